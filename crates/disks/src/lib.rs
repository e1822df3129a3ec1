//! Made-up disks and the time they live in: they keep what they are given, lose what was not flushed at a crash, fail
//! when told to, and take the time that real disks take. The simulator and the laboratory stand on them.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod clock;
pub mod disk;
pub mod fault;
pub mod rng;
pub mod sector;
pub mod trace;
