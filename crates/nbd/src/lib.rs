//! NBD protocol: wire, negotiation, server and client sessions, no operating system.
#![forbid(unsafe_code)]

pub mod export;
pub mod transport;
