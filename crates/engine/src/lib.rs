//! The RAID engine: knows no operating system, runtime, clock or random source.
#![forbid(unsafe_code)]

pub mod buf;
pub mod clock;
pub mod device;
pub mod plex;
