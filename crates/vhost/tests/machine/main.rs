//! A made-up machine over real sockets, shared memory and events: what its disk does, and what it cannot be made to do.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod ground;
mod guest;
mod hostile;
mod refused;
mod served;
mod successors;
