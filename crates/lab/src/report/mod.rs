//! What comes out: tables for people, for spreadsheets and for programs.

pub mod table;
