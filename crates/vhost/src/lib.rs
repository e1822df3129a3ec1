//! vhost-user-blk: a disk for a virtual machine, whose rings and data lie in memory that the machine shares.
//!
//! `wire`, `config` and `inflight` are pure: messages, the disk's description and the record of requests under way, as
//! bytes. `table`, `ring`, `chain` and `ask` read what a guest has written into its memory, of which nothing is
//! believed. `session` serves one machine over `front`; sockets, mappings and events are behind the trait
//! [`peer::Peer`], which `runtime` implements.
#![forbid(unsafe_code)]

pub mod ask;
pub mod chain;
pub mod config;
pub mod inflight;
pub mod peer;
pub mod ring;
pub mod session;
pub mod table;
pub mod wire;
