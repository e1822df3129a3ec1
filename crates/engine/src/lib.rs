//! The RAID engine: knows no operating system, runtime, clock or random source.
#![forbid(unsafe_code)]

mod ahead;
pub mod background;
pub mod balance;
pub mod bits;
pub mod buf;
pub mod busy;
pub mod clock;
mod copies;
pub mod device;
pub mod drive;
mod hedge;
pub mod intent;
pub mod latency;
pub mod lock;
mod member_io;
pub mod meta;
pub mod mutant;
pub mod plex;
pub mod ranges;
mod refusals;
pub mod shard;
mod slots;
pub mod stacked;
pub mod stage;
pub mod state;
pub mod stripe;
pub mod threshold;
pub mod volume;
pub mod wait;
