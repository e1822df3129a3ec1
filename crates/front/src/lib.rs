//! What all servers of volumes share: exports, clients, requests under way, the workers that carry them out, memory.
//!
//! A server (of NBD, ublk, NVMe) speaks its protocol and nothing else: what it serves are [`exports`], whom it serves
//! are [`client`]s, what they want are jobs that [`perform`] carries out. No protocol, no engine and no format is known
//! here.
#![forbid(unsafe_code)]

pub mod budget;
pub mod client;
pub mod connections;
pub mod counted;
pub mod expecting;
pub mod export;
pub mod exports;
pub mod flag;
pub mod gather;
pub mod memory;
pub mod parts;
pub mod peer;
pub mod perform;
pub mod receive;
pub mod requests;
pub mod size;
#[cfg(feature = "testing")]
pub mod testing;
pub mod transport;
