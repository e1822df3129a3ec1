//! NBD protocol: wire, negotiation, server and client sessions, no operating system.
#![forbid(unsafe_code)]

pub mod client;
pub mod error;
pub mod negotiate;
pub mod server;
pub mod session;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tls;
pub mod transport;
pub mod uri;
pub mod wire;
