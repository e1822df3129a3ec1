//! The made-up world: simulated disks, faults, crashes, oracle, mutants.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod bsd;
pub mod course;
pub mod finding;
pub mod md;
mod members;
pub mod minimise;
pub mod mutants;
pub mod oracle;
pub mod pool;
pub mod reshape;
pub mod run;
pub mod seeds;
pub mod subject;
pub mod world;
