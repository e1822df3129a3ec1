//! The ground floor: what a member's storage is, and what everybody who reads or writes one needs: buffers, time,
//! waiting, locks and sets of ranges. No RAID in it.
//!
//! Invariants: nothing here knows an operating system, a runtime or a random source; futures stay on one thread.
#![forbid(unsafe_code)]

pub mod bits;
pub mod boxed;
pub mod buf;
pub mod busy;
pub mod clock;
pub mod device;
pub mod lock;
pub mod ranges;
pub mod shared;
pub mod wait;
