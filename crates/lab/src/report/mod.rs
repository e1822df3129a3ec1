//! What comes out: tables for people, for spreadsheets and for programs; the report of an experiment.

pub mod experiment;
pub mod inside;
mod label;
pub mod page;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod results;
pub mod svg;
pub mod sweep;
pub mod table;
