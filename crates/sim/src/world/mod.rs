//! One simulated world: a subject on simulated disks under clients, faults, operations and crashes, watched by an
//! oracle for each of its volumes.
//!
//! Invariants:
//! - everything that happens follows from the plan: two runs give one trace hash;
//! - a crash drops the executor with all futures, then the pending events, then crashes the disks, then the subject is
//!   started again from the disks alone;
//! - findings are collected, and the first one ends the run;
//! - what a format is, and what it promises, is asked of its `Rules`.

mod client;
mod coverage;
mod finale;
mod life;
mod off;
mod operator;
mod rules;
mod scene;
mod start;

pub use life::run_plan;
pub use rules::Rules;
pub use scene::{Cell3, Counts, Outcome, PATIENCE_NS, Scene, Tracing, World};
