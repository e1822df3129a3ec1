//! The RAID engine: knows no operating system, runtime, clock or random source.
#![forbid(unsafe_code)]

pub mod balance;
pub mod bits;
pub mod buf;
pub mod clock;
pub mod device;
pub mod drive;
pub mod intent;
pub mod lock;
pub mod meta;
pub mod mutant;
pub mod plex;
pub mod ranges;
pub mod state;
pub mod wait;
