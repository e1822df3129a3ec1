//! Serving volumes: control socket, events, status.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod advice;
pub mod assembly;
mod buffers;
mod catch_up;
pub mod control;
pub mod create;
pub mod date;
pub mod events;
pub mod examine;
pub mod export;
pub mod foreign;
pub mod inspect;
mod member_word;
pub mod memory;
pub mod open;
pub mod ops;
pub mod owners;
mod part;
pub mod problem;
pub mod rehearse;
pub mod runtime_dir;
pub mod serve;
pub mod serve_dataset;
pub mod served;
pub mod shards;
mod space;
mod stats;
pub mod status;
pub mod zfs;
