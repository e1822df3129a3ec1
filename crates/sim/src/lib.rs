//! The made-up world: simulated disks, faults, crashes, oracle, mutants.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod aim;
pub mod bsd;
pub mod cells;
pub mod checker;
pub mod clock;
pub mod crew;
pub mod disk;
pub mod drill;
pub mod engine;
pub mod fault;
pub mod finding;
pub mod front;
pub mod minimise;
pub mod mutants;
pub mod oracle;
pub mod reference;
pub mod rng;
pub mod run;
pub mod scenario;
pub mod sector;
pub mod subject;
pub mod toy;
pub mod trace;
pub mod world;
