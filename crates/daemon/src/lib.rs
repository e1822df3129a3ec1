//! Serving volumes: control socket, events, status.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod control;
pub mod create;
pub mod events;
pub mod inspect;
pub mod open;
pub mod problem;
pub mod runtime_dir;
pub mod status;
