//! Alarms that cannot stay silent.
//!
//! Once a second, and at the start, whoever has the facts of all volumes hands them to [`Alarm::run`]. What is wrong
//! *now* is found by pure functions ([`judge`](judge::judge)): nobody has to see it happen, so a start, a restart and a
//! member that was never there are no special cases. What was found for ten seconds is an incident; an incident has
//! one message, and further ones only when it gets worse, lasts a day unacknowledged, or ends.
//!
//! Invariants:
//! - nothing here reads a clock, a file or a network: facts and time come in, messages and requests go out;
//! - severity comes from how many more losses are survived, never from a word;
//! - what cannot be judged is as it was last, and is an incident itself;
//! - a message is on the way before the state that knows of it is saved only when that cannot be saved.

#![forbid(unsafe_code)]

pub mod alarm;
pub mod channel;
pub mod config;
pub mod facts;
pub mod finding;
pub mod heartbeat;
pub mod incident;
pub mod incidents;
pub mod judge;
pub mod message;
pub mod mutant;
pub mod outbox;
pub mod time;

pub use alarm::Alarm;
