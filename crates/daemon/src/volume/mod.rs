//! A volume that is served: what it is, what it does, what can be changed, what is advised.
//!
//! It knows no socket and no server of clients: those are the host's.

pub mod advice;
mod catch_up;
pub(crate) mod contents;
mod disks;
pub mod export;
pub mod facts;
mod jobs;
pub mod meaning;
mod member_disks;
pub(crate) mod member_word;
mod members;
pub mod ops;
pub mod rehearse;
pub mod scrub_plan;
mod scrubbed;
pub mod served;
mod stats;
pub mod status;

pub(crate) use members::empty_slot;
