//! The made-up world: simulated disks, faults, crashes, oracle, mutants.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod aim;
pub mod bsd;
pub mod cells;
pub mod checker;
pub mod course;
pub mod crew;
pub mod drill;
pub mod engine;
pub mod finding;
pub mod front;
pub mod md;
pub mod minimise;
pub mod mutants;
pub mod oracle;
pub mod reference;
pub mod run;
pub mod scenario;
pub mod subject;
pub mod toy;
pub mod world;
