//! Serving volumes: control socket, events, status.
#![forbid(unsafe_code)]

pub mod control;
pub mod events;
pub mod problem;
pub mod runtime_dir;
pub mod status;
