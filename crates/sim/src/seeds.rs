//! Seeds of the real engine, whatever is built of the disks. All of this is compiled once, for everybody who calls it.

use std::ops::{ControlFlow, Range};

use plexum_engine::mutant::Mutant;
use plexum_pool::mutant::Mutant as PoolBug;

use crate::bsd::{Array, Format, Plan as SetPlan};
use crate::course::Plan;
use crate::md::engine::Engine;
use crate::md::run_scenario;
use crate::md::scenario::{Options, Scenario};
use crate::minimise::minimise;
use crate::mutants::{self, MutantResult, hunt_by};
use crate::pool::{Plan as PoolPlan, Served};
use crate::reshape::{self, Plan as ReshapePlan};
use crate::run::{self, Report, run_plans};
use crate::world::{Outcome, Tracing, run_plan};

/// A plan that the real engine carries out.
pub trait Seeded: Plan {
    /// Runs it.
    #[must_use]
    fn run(&self, tracing: Tracing, mutant: Option<Mutant>) -> Outcome;

    /// Makes it small, if it fails: the smallest that does the same, and how that ended.
    #[must_use]
    fn minimised(&self, tracing: Tracing, runs_max: usize) -> Option<(Self, Outcome)> {
        minimise(self, |plan: &Self| plan.run(tracing, None), runs_max)
    }
}

impl Seeded for Scenario {
    fn run(&self, tracing: Tracing, mutant: Option<Mutant>) -> Outcome {
        run_scenario::<Engine>(self, tracing, mutant)
    }
}

impl Seeded for SetPlan {
    fn run(&self, tracing: Tracing, mutant: Option<Mutant>) -> Outcome {
        run_plan::<Array>(self, tracing, mutant)
    }
}

impl Seeded for ReshapePlan {
    fn run(&self, tracing: Tracing, mutant: Option<Mutant>) -> Outcome {
        run_plan::<reshape::Array>(self, tracing, mutant)
    }
}

impl Seeded for PoolPlan {
    /// Pools have deliberate bugs of their own, which are a part of their plans.
    fn run(&self, tracing: Tracing, _mutant: Option<Mutant>) -> Outcome {
        run_plan::<Served>(self, tracing, None)
    }
}

/// Runs seeds of md arrays.
pub fn run_seeds(
    seeds: Range<u64>,
    options: &Options,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    run::run::<Engine>(seeds, options, mutant, progress)
}

/// Runs seeds of a format of FreeBSD.
pub fn run_seeds_of(
    seeds: Range<u64>,
    format: Format,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let run = |plan: &SetPlan| plan.run(Tracing::Hash, mutant);
    run_plans(seeds, |seed| SetPlan::new(seed, format), run, progress)
}

/// Runs seeds of reshapes of md arrays.
pub fn run_seeds_of_reshapes(
    seeds: Range<u64>,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let run = |plan: &ReshapePlan| plan.run(Tracing::Hash, mutant);
    run_plans(seeds, ReshapePlan::new, run, progress)
}

/// Runs seeds of ZFS pools.
pub fn run_seeds_of_pools(
    seeds: Range<u64>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let run = |plan: &PoolPlan| plan.run(Tracing::Hash, None);
    run_plans(seeds, PoolPlan::new, run, progress)
}

/// Hunts a deliberate bug of pools.
#[must_use]
pub fn hunt_on_pools(bug: PoolBug, seeds: Range<u64>) -> MutantResult {
    hunt_by(bug, seeds, |seed, bug| {
        let plan = PoolPlan {
            bug,
            ..PoolPlan::new(seed)
        };
        plan.run(Tracing::Hash, None)
    })
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

/// Whether a deliberate bug is one of reshapes of md arrays.
#[must_use]
pub fn is_of_reshapes(mutant: Mutant) -> bool {
    matches!(mutant, Mutant::ReAddIgnoresShape)
}

/// Hunts a deliberate bug over seeds, on md arrays or on the format that it belongs to.
#[must_use]
pub fn hunt(mutant: Mutant, seeds: Range<u64>) -> MutantResult {
    hunt_with(mutant, &mutants::options_for(mutant), seeds)
}

/// The same with other options than those of the bug; formats of FreeBSD have none.
#[must_use]
pub fn hunt_with(mutant: Mutant, options: &Options, seeds: Range<u64>) -> MutantResult {
    if is_of_reshapes(mutant) {
        return hunt_by(mutant, seeds, |seed, mutant| {
            ReshapePlan::new(seed).run(Tracing::Hash, mutant)
        });
    }
    match format_for(mutant) {
        Some(format) => hunt_by(mutant, seeds, |seed, mutant| {
            SetPlan::new(seed, format).run(Tracing::Hash, mutant)
        }),
        None => hunt_by(mutant, seeds, |seed, mutant| {
            Scenario::new(seed, options).run(Tracing::Hash, mutant)
        }),
    }
}
