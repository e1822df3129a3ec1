//! The two ways to do I/O, on real files, devices and sockets.
//!
//! One program for all of them, so that they cost one link step.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod block_devices;
#[path = "../common/mod.rs"]
mod common;
mod durable_writes_are_proven;
mod event_loop;
mod file_faults;
mod files;
mod mailbox;
mod signals;
mod sockets;
