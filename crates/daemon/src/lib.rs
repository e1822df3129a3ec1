//! Serving volumes: control socket, events, status.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod assembly;
mod buffers;
pub mod changes;
pub mod claims;
pub mod config;
pub mod control;
pub mod create;
mod dataset;
pub mod date;
pub mod disk;
pub mod doctor;
pub mod examine;
pub mod expected;
pub mod foreign;
pub mod host;
pub mod inspect;
mod marks;
pub mod memory;
pub mod metrics;
pub mod open;
pub mod owners;
mod part;
pub mod planned;
pub mod pool_change;
pub mod pool_write;
pub mod problem;
pub mod runtime_dir;
pub mod serve;
pub mod serve_dataset;
pub mod service;
mod space;
pub mod volume;
pub mod web;
pub mod zfs;

pub use control::events;
pub use volume::{advice, meaning, status};

/// How volumes are scrubbed by themselves.
pub mod scrub {
    pub use plexum_schedule::{Every, Rate, ScrubConfig, Windows};
}
