//! What comes out: tables for people, for spreadsheets and for programs; the report of an experiment.

pub mod experiment;
pub mod svg;
pub mod table;
