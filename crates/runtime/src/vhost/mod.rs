//! What a server of virtual machines needs: sockets that carry files, memory of others, events.
//!
//! Invariants:
//! - no call waits for a peer: sockets and events are non-blocking, and are waited for in the reactor;
//! - a peer that takes its memory away again, by cutting its file, hurts its own session alone.

mod event;
mod guard;
mod memory;
mod peer;

pub use event::{Doorbell, Signal};
pub use memory::SharedMemory;
pub use peer::{BackendSocket, FrontEnd};
