//! The RAID engine: knows no operating system, runtime, clock or random source.
#![forbid(unsafe_code)]

pub mod array;
pub mod balance;
mod base;
mod copies;
pub mod detect;
pub mod drive;
pub mod intent;
pub mod latency;
pub mod metadata;
pub mod migrate;
pub mod mutant;
mod news;
mod options;
mod refusals;
mod row;
pub mod shard;
mod spot;
pub mod stage;
pub use array::state;
pub mod rows;
#[cfg(test)]
mod testing;
pub mod threshold;
mod traffic;
pub mod upkeep;
pub mod volume;
