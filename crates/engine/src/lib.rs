//! The RAID engine: knows no operating system, runtime, clock or random source.
#![forbid(unsafe_code)]

mod ahead;
pub mod background;
pub mod balance;
pub mod busy;
mod copies;
pub mod drive;
mod hedge;
pub mod intent;
pub mod latency;
mod member_io;
pub mod meta;
pub mod mutant;
mod refusals;
pub mod shard;
mod slots;
pub mod stacked;
pub mod stage;
pub mod state;
pub mod stripe;
pub mod threshold;
pub mod volume;
