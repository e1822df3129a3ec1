//! Many seeds in a row: what `plexum sim` and the tests call.
//!
//! Invariants:
//! - it reads no clock: how long to go on is decided by the caller, after each seed;
//! - a failure carries all that is needed to see it again: seed, plan, hash.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{ControlFlow, Range};

use plexum_engine::mutant::Mutant;
use plexum_engine::threshold::Threshold;
use serde::Serialize;

use crate::course::Plan;
use crate::md::aim::Aim;
use crate::md::cells::{self, SILENT};
use crate::md::scenario::{Options, Scenario};
use crate::md::{Level, SlotArray, run_scenario};
use crate::world::{Counts, Outcome, Tracing};
use plexum_disks::fault::{FAULT_KINDS, kind_name};

/// Most failures kept with their plans; more are only counted.
const FAILURES_MAX: usize = 50;

/// Most empty cells printed for people; the JSON has all.
const EMPTY_CELLS_SHOWN: usize = 60;

/// Runs of so many seeds aim at the cells of the matrix that they have left empty; in shorter ones most are.
const AIMS_FROM_SEEDS: u64 = 400;

/// Most attempts at a cell. One is enough for nearly all; of five times 918 cells none has needed more than nine.
const ATTEMPTS_MAX: u64 = 64;

/// First attempts that differ from run to run, with the first seed.
const FIRST_ATTEMPTS: u64 = 1 << 32;

/// One seed that went wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Kind of the first finding.
    pub kind: &'static str,
    /// All findings, as sentences.
    pub findings: Vec<String>,
    /// The whole plan.
    pub plan: String,
    /// Hash over the trace, as hex.
    pub hash: String,
}

/// Result of many seeds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// Seeds asked for.
    pub seeds_asked: u64,
    /// Seeds run.
    pub seeds: u64,
    /// Client requests begun.
    pub requests: u64,
    /// Client requests answered.
    pub answers: u64,
    /// Of these, with an error.
    pub errors: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes while the previous one was being got over.
    pub nested_crashes: u64,
    /// Orderly stops.
    pub stops: u64,
    /// Refused starts that were forced.
    pub forced_starts: u64,
    /// Faults put in, by kind.
    pub faults_put: BTreeMap<&'static str, u64>,
    /// I/Os struck by a fault, by kind.
    pub faults_hit: BTreeMap<&'static str, u64>,
    /// Wishes held back by the fault budget.
    pub held_back: u64,
    /// Operations, by name.
    pub operations: BTreeMap<&'static str, u64>,
    /// Member I/Os.
    pub member_ios: u64,
    /// Polls of tasks.
    pub polls: u64,
    /// Virtual seconds.
    pub virtual_seconds: u64,
    /// Coverage: `organisation / what / during`, with how often.
    pub coverage: BTreeMap<String, u64>,
    /// How often a request stage, a fault and a crash have met: `organisation / stage / fault / crash`.
    pub matrix: BTreeMap<String, u64>,
    /// Cells of `matrix` (and silent faults) that can be met and never were.
    pub empty_cells: Vec<String>,
    /// What was met although it is held to be impossible, with the reason.
    pub contradictions: Vec<String>,
    /// Scenarios that aimed at cells which the seeds had left empty.
    pub aimed: u64,
    /// Seeds with findings.
    pub violations: u64,
    /// The first of them.
    pub failures: Vec<Failure>,
    /// Sum of all trace hashes, as hex: two runs of the same seeds give the same.
    pub hash: String,
    #[serde(skip)]
    hash_sum: u64,
}

impl Report {
    /// Whether all seeds were run and none had a finding.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.seeds == self.seeds_asked
    }

    /// What can meet and never did: each stage of a request with each fault and each crash, on each of `levels`; each
    /// silent fault on each of them; and each threshold of the engine that nothing has crossed.
    #[must_use]
    pub fn missing_cells(&self, levels: &[Level]) -> Vec<String> {
        let mut missing: Vec<String> = levels
            .iter()
            .flat_map(|level| Aim::all(*level, 0))
            .filter(|aim| !self.has_met(aim))
            .map(|aim| aim.to_string())
            .collect();
        // Of those that no seed crosses, nothing is known: whatever begins there was never tried.
        for threshold in Threshold::ALL.map(Threshold::name) {
            let end = format!(" / threshold / {threshold}");
            if !self.coverage.keys().any(|cell| cell.ends_with(&end)) {
                missing.push(format!("threshold / {threshold}"));
            }
        }
        for level in levels {
            for fault in SILENT {
                let start = format!("{level} / silent / {fault} / ");
                if !self.coverage.keys().any(|cell| cell.starts_with(&start)) {
                    missing.push(format!("{level} / silent / {fault}"));
                }
            }
        }
        missing
    }

    fn has_met(&self, aim: &Aim) -> bool {
        cells::is_met(&self.matrix, aim.level, aim.stage, aim.fault, aim.crash)
    }

    /// Runs what aims at the cells that no seed has met, until they are met.
    fn aim<S: SlotArray>(&mut self, first_attempt: u64, options: &Options) {
        for aim in options.levels.iter().flat_map(|level| Aim::all(*level, 0)) {
            for attempt in first_attempt..first_attempt + ATTEMPTS_MAX {
                if self.has_met(&aim) || self.violations > 0 {
                    break;
                }
                let scenario = Scenario::new(Aim { attempt, ..aim }.seed(), options);
                let outcome = run_scenario::<S>(&scenario, Tracing::Hash, None);
                self.add(&scenario, &outcome);
                self.aimed += 1;
            }
        }
    }

    /// Adds what a plan did.
    fn add(&mut self, plan: &impl Plan, outcome: &Outcome) {
        let kind = plan.kind();
        let Counts {
            requests,
            answers,
            errors,
            crashes,
            nested_crashes,
            stops,
            forced,
            held_back,
            polls,
            ..
        } = outcome.counts;
        self.requests += requests;
        self.answers += answers;
        self.errors += errors;
        self.crashes += crashes;
        self.nested_crashes += nested_crashes;
        self.stops += stops;
        self.forced_starts += forced;
        self.held_back += held_back;
        self.polls += polls;
        self.member_ios += outcome.counts.member_ios;
        self.virtual_seconds += outcome.counts.virtual_ns / 1_000_000_000;
        for fault in 0..FAULT_KINDS {
            let (put, hit) = (
                outcome.counts.faults_put[fault],
                outcome.counts.faults_hit[fault],
            );
            let name = kind_name(fault);
            *self.faults_put.entry(name).or_default() += put;
            *self.faults_hit.entry(name).or_default() += hit;
            if put > 0 {
                let cell = format!("{kind} / {name} / put");
                *self.coverage.entry(cell).or_default() += put;
            }
        }
        for (name, count) in &outcome.counts.operations {
            *self.operations.entry(name).or_default() += count;
        }
        for (what, count) in &outcome.counts.coverage {
            *self.coverage.entry(format!("{kind} / {what}")).or_default() += count;
        }
        for ((stage, fault, crash), count) in &outcome.counts.matrix {
            let cell = format!("{kind} / {stage} / {fault} / {crash}");
            *self.matrix.entry(cell).or_default() += count;
        }
        self.hash_sum = self.hash_sum.wrapping_add(outcome.hash);
        self.hash = format!("{:016x}", self.hash_sum);
        let Some(first) = outcome.findings.first() else {
            return;
        };
        self.violations += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(Failure {
                seed: plan.course().seed,
                kind: first.kind(),
                findings: outcome.findings.iter().map(ToString::to_string).collect(),
                plan: plan.to_string(),
                hash: format!("{:016x}", outcome.hash),
            });
        }
    }
}

/// Runs the plans of `seeds` one after another; `progress` sees the report after each and may end the run.
pub fn run_plans<P: Plan>(
    seeds: Range<u64>,
    plan_of: impl Fn(u64) -> P,
    run: impl Fn(&P) -> Outcome,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let mut report = Report {
        seeds_asked: seeds.end.saturating_sub(seeds.start),
        ..Report::default()
    };
    for seed in seeds {
        let plan = plan_of(seed);
        let outcome = run(&plan);
        report.add(&plan, &outcome);
        report.seeds += 1;
        if progress(&report).is_break() {
            break;
        }
    }
    report
}

/// The same for arrays of slots; a long run aims at what it has left empty.
pub fn run<S: SlotArray>(
    seeds: Range<u64>,
    options: &Options,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let first = seeds.start;
    let mut report = run_plans(
        seeds,
        |seed| Scenario::new(seed, options),
        |scenario| run_scenario::<S>(scenario, Tracing::Hash, mutant),
        progress,
    );
    let is_long = report.seeds == report.seeds_asked && report.seeds >= AIMS_FROM_SEEDS;
    if is_long && options.is_whole() && mutant.is_none() {
        report.aim::<S>(first % FIRST_ATTEMPTS, options);
    }
    report.empty_cells = report.missing_cells(&options.levels);
    report.contradictions = cells::contradicted(&report.matrix);
    report
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seeds          {} of {}", self.seeds, self.seeds_asked)?;
        writeln!(
            f,
            "requests       {} ({} answered, {} with an error)",
            self.requests, self.answers, self.errors
        )?;
        writeln!(
            f,
            "crashes        {} ({} nested), {} orderly stops",
            self.crashes, self.nested_crashes, self.stops
        )?;
        writeln!(f, "forced starts  {}", self.forced_starts)?;
        for (title, counts) in [
            ("faults put", &self.faults_put),
            ("faults hit", &self.faults_hit),
        ] {
            let listed = counts.iter().filter(|(_, count)| **count > 0);
            let text: Vec<String> = listed
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            writeln!(f, "{title:<14} {}", text.join(", "))?;
        }
        let operations: Vec<String> = self
            .operations
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        writeln!(f, "operations     {}", operations.join(", "))?;
        writeln!(f, "held back      {}", self.held_back)?;
        writeln!(f, "member I/Os    {}", self.member_ios)?;
        writeln!(f, "virtual time   {} s", self.virtual_seconds)?;
        writeln!(
            f,
            "coverage       {} cells of stage, fault, crash and organisation, {} scenarios aimed at; {} never met",
            self.matrix.len(),
            self.aimed,
            self.empty_cells.len()
        )?;
        for cell in self.empty_cells.iter().take(EMPTY_CELLS_SHOWN) {
            writeln!(f, "never met      {cell}")?;
        }
        for cell in &self.contradictions {
            writeln!(f, "impossible, and met: {cell}")?;
        }
        writeln!(f, "hash           {}", self.hash)?;
        writeln!(f, "violations     {}", self.violations)?;
        for failure in &self.failures {
            writeln!(
                f,
                "\nseed {} ({}): {}",
                failure.seed,
                failure.kind,
                failure.findings.join("; ")
            )?;
        }
        Ok(())
    }
}
