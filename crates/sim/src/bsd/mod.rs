//! Arrays of FreeBSD's formats in the made-up world: gmirror's labels and gvinum's drives, under the same disks, faults
//! and oracle as md arrays.
//!
//! Invariants:
//! - the engine and the formats are those that the daemon uses;
//! - seeds of md arrays are untouched: these have streams, plans and a world of their own.

mod array;
mod client;
mod compare;
mod labels;
mod operator;
pub mod plan;
mod world;

use std::ops::{ControlFlow, Range};

use plexum_engine::mutant::Mutant;

use crate::mutants::MutantResult;
use crate::run::Report;
use crate::world::Outcome;

pub use plan::{Format, Plan};

/// Runs the plan of a seed.
#[must_use]
pub fn run_one(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Outcome {
    world::run_plan(plan, mutant, is_traced)
}

/// Runs `seeds` of a format one after another; `progress` sees the report after each and may end the run.
pub fn run_seeds(
    seeds: Range<u64>,
    format: Format,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let mut report = Report {
        seeds_asked: seeds.end.saturating_sub(seeds.start),
        ..Report::default()
    };
    let mut hash_sum = 0;
    for seed in seeds {
        let plan = Plan::new(seed, format);
        let outcome = run_one(&plan, mutant, false);
        let text = || plan.to_string();
        report.add_outcome(format.name(), seed, &text, &outcome, &mut hash_sum);
        report.seeds += 1;
        if progress(&report).is_break() {
            break;
        }
    }
    report
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
pub fn hunt(mutant: Mutant, format: Format, first_seed: u64, seeds_max: u64) -> MutantResult {
    let mutant_name = format!("{mutant:?}");
    for seed in first_seed..first_seed + seeds_max {
        let plan = Plan::new(seed, format);
        let outcome = run_one(&plan, Some(mutant), false);
        if let Some(finding) = outcome.findings.first()
            && run_one(&plan, None, false).findings.is_empty()
        {
            return MutantResult {
                mutant: mutant_name,
                seeds: seed - first_seed + 1,
                seed: Some(seed),
                finding: Some(finding.to_string()),
            };
        }
    }
    MutantResult {
        mutant: mutant_name,
        seeds: seeds_max,
        seed: None,
        finding: None,
    }
}
