//! When a volume is scrubbed by itself, and which part of it.
//!
//! Invariants:
//! - no clock, no file, no thread: whoever calls has the time, the time zone and the facts;
//! - what was looked at longest ago comes first, so that a scrub which never gets through in one night gets through;
//! - a round is a success only when everything was compared in it: one that was interrupted goes on, and is none yet;
//! - nothing is stopped for being slow: it goes on when its window opens again.
#![forbid(unsafe_code)]

pub mod ages;
pub mod config;
pub mod decide;
pub mod state;
pub mod window;
mod word;

pub use ages::{Ages, Stretch};
pub use config::{Every, Rate, ScrubConfig};
pub use decide::{Decision, VolumeFacts, Why, decide};
pub use state::{Looked, Round, RoundEnd, State};
pub use window::Windows;
pub use word::ConfigError;

/// Seconds since 1970.
pub type UnixSeconds = u64;
