//! NVMe over TCP: the protocol's bytes, and a target that serves volumes over `front`. No operating system.
//!
//! `wire` is pure. A [`server::Server`] is given connections; each is a queue of a controller. Of I/O queues it knows
//! what their session has to know and leaves the rest to `front`: admission, memory, the order of flushes, counters,
//! how clients leave.
#![forbid(unsafe_code)]

pub mod identity;
pub mod wire;

mod arrival;
mod controller;
pub mod error;
pub mod judge;
mod link;
pub mod server;
mod session;

pub use controller::{IO_QUEUES_MAX, QUEUE_ENTRIES_MAX, Shape};
