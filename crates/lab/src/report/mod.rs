//! What comes out: tables for people, for spreadsheets and for programs; the report of an experiment.

pub mod experiment;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod results;
pub mod svg;
pub mod table;
