//! Arrays of slots as a subject: md arrays, and toys that look like these.
//!
//! Invariants:
//! - what is said here of members holds for every such array; what stands on the disks is asked of the format crate
//!   and the reference model, never of the engine;
//! - the rules are those of the guarantees: what may be lost, when a crash meets the write hole, who is stale.

pub mod aim;
mod atlas;
pub mod cells;
pub mod checker;
mod compare;
pub mod crew;
pub mod drill;
pub mod engine;
mod foreign;
pub mod front;
pub(crate) mod identity;
pub mod reference;
mod rules;
pub mod scenario;
mod silent;
mod slots;
mod spec;
mod stale;
mod stripes;
pub mod toy;

pub use slots::{
    ScrubFound, ScrubPlace, Setting, SlotArray, SlotMemory, StaleRead, Status, run_scenario,
    run_seed,
};
pub use spec::{Level, Spec};
