//! ublk, the kernel's block devices that a program serves: its commands as bytes, and the session of one queue.
//!
//! `wire` and `params` are pure: structures of the kernel's user interface, encoded and decoded. `session` serves a
//! queue over `front`; what the queue is made of is behind the trait [`queue::Queue`], which `runtime` implements.
#![forbid(unsafe_code)]

pub mod identity;
pub mod params;
pub mod queue;
pub mod session;
pub mod wire;
