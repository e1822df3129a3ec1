//! Pools of the fixtures and of the tests' own making are read, scrubbed and refused.
//!
//! One program for all of them, so that they cost one link step and share what they make of the reader.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod common;
mod golden_pools_read_back;
mod hostile_pools_are_only_refused;
mod scrub_names_members_and_files;
