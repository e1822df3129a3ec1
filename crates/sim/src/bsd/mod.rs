//! Sets of FreeBSD as a subject: gmirror's labels and gvinum's drives, in the same world as md arrays.
//!
//! Invariant: the engine and the formats are those that the daemon uses.

mod array;
mod compare;
mod labels;
pub mod plan;
mod rules;

use std::ops::{ControlFlow, Range};

use plexum_engine::mutant::Mutant;

use crate::mutants::{MutantResult, hunt_by};
use crate::run::{Report, run_plans};
use crate::world::{Outcome, Tracing, run_plan};
use array::Array;

pub use plan::{Format, Plan};

/// Runs the plan of a seed.
#[must_use]
pub fn run_one(plan: &Plan, tracing: Tracing, mutant: Option<Mutant>) -> Outcome {
    run_plan::<Array>(plan, tracing, mutant)
}

/// Runs `seeds` of a format one after another; `progress` sees the report after each and may end the run.
pub fn run_seeds(
    seeds: Range<u64>,
    format: Format,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let run = |plan: &Plan| run_one(plan, Tracing::Hash, mutant);
    run_plans(seeds, |seed| Plan::new(seed, format), run, progress)
}

/// The format that a deliberate bug is hunted on; `None`: it is one of md arrays.
#[must_use]
pub fn format_for(mutant: Mutant) -> Option<Format> {
    match mutant {
        Mutant::SyncIdNotRaised | Mutant::GenerationNotRaised => Some(Format::Gmirror),
        Mutant::StaleSubdiskBelieved
        | Mutant::SubdiskUpBeforeRevived
        | Mutant::GrowthBorderAheadOfData => Some(Format::Gvinum),
        _ => None,
    }
}

/// Hunts a deliberate bug of these formats over at most `seeds_max` seeds from `first_seed` on.
#[must_use]
pub fn hunt(mutant: Mutant, format: Format, seeds: Range<u64>) -> MutantResult {
    let run = |seed, mutant| run_one(&Plan::new(seed, format), Tracing::Hash, mutant);
    hunt_by(mutant, seeds, run)
}
