//! Many seeds in a row: what `plexum sim` and the tests call.
//!
//! Invariants:
//! - it reads no clock: how long to go on is decided by the caller, after each seed;
//! - a failure carries all that is needed to see it again: seed, plan, hash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::{ControlFlow, Range};

use plexum_engine::mutant::Mutant;
use serde::Serialize;

use crate::fault::{FAULT_KINDS, kind_name};
use crate::scenario::{Options, Scenario, possible};
use crate::subject::{Level, Subject};
use crate::world::{Counts, Outcome, run_scenario};

/// Most failures kept with their plans; more are only counted.
const FAILURES_MAX: usize = 50;

/// Most empty cells printed for people; the JSON has all.
const EMPTY_CELLS_SHOWN: usize = 60;

/// Kinds of crashes, as in the matrix.
const CRASHES: &[&str] = &["kill", "power-cut"];

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
    /// Pairs of `matrix` (and silent faults) that can meet and never did.
    pub empty_cells: Vec<String>,
    /// Seeds with findings.
    pub violations: u64,
    /// The first of them.
    pub failures: Vec<Failure>,
    /// Sum of all trace hashes, as hex: two runs of the same seeds give the same.
    pub hash: String,
}

impl Report {
    /// Whether all seeds were run and none had a finding.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.seeds == self.seeds_asked
    }

    /// What can meet and never did: each stage of a request with each fault and with each crash, each fault with each crash,
    /// on each of `levels`; and each silent fault on each of them.
    #[must_use]
    pub fn missing_pairs(&self, levels: &[Level]) -> Vec<String> {
        let mut met: BTreeSet<(&str, &str, &str)> = BTreeSet::new();
        for cell in self.matrix.keys() {
            let parts: Vec<&str> = cell.split(" / ").collect();
            let [level, stage, fault, crash] = parts[..] else {
                continue;
            };
            met.extend([
                (level, stage, fault),
                (level, stage, crash),
                (level, fault, crash),
            ]);
        }
        let mut missing = Vec::new();
        for level in levels {
            let name = level.to_string();
            let (stages, faults) = possible(*level);
            let stage_pairs = stages.iter().flat_map(|stage| {
                faults
                    .iter()
                    .chain(CRASHES)
                    .map(move |other| (stage, other))
            });
            let fault_pairs = faults
                .iter()
                .flat_map(|fault| CRASHES.iter().map(move |crash| (fault, crash)));
            for (one, other) in stage_pairs.chain(fault_pairs) {
                if !met.contains(&(name.as_str(), *one, *other)) {
                    missing.push(format!("{name} / {one} / {other}"));
                }
            }
            for fault in ["bit-flip", "lost-write", "misdirected-write"] {
                let start = format!("{name} / silent / {fault} / ");
                if !self.coverage.keys().any(|cell| cell.starts_with(&start)) {
                    missing.push(format!("{name} / silent / {fault}"));
                }
            }
        }
        missing
    }

    fn add(&mut self, scenario: &Scenario, outcome: &Outcome, hash_sum: &mut u64) {
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
        self.seeds += 1;
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
        for kind in 0..FAULT_KINDS {
            let (put, hit) = (
                outcome.counts.faults_put[kind],
                outcome.counts.faults_hit[kind],
            );
            let name = kind_name(kind);
            *self.faults_put.entry(name).or_default() += put;
            *self.faults_hit.entry(name).or_default() += hit;
            if put > 0 {
                *self
                    .coverage
                    .entry(format!("{} / {name} / put", scenario.spec.level))
                    .or_default() += put;
            }
        }
        for (name, count) in &outcome.counts.operations {
            *self.operations.entry(name).or_default() += count;
        }
        for (what, count) in &outcome.counts.coverage {
            *self
                .coverage
                .entry(format!("{} / {what}", scenario.spec.level))
                .or_default() += count;
        }
        for ((stage, fault, crash), count) in &outcome.counts.matrix {
            let cell = format!("{} / {stage} / {fault} / {crash}", scenario.spec.level);
            *self.matrix.entry(cell).or_default() += count;
        }
        *hash_sum = hash_sum.wrapping_add(outcome.hash);
        self.hash = format!("{hash_sum:016x}");
        let Some(first) = outcome.findings.first() else {
            return;
        };
        self.violations += 1;
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(Failure {
                seed: scenario.seed,
                kind: first.kind(),
                findings: outcome.findings.iter().map(ToString::to_string).collect(),
                plan: scenario.to_string(),
                hash: format!("{:016x}", outcome.hash),
            });
        }
    }
}

/// Runs `seeds` one after another; `progress` sees the report after each and may end the run.
pub fn run<S: Subject>(
    seeds: Range<u64>,
    options: &Options,
    mutant: Option<Mutant>,
    progress: &mut dyn FnMut(&Report) -> ControlFlow<()>,
) -> Report {
    let mut report = Report {
        seeds_asked: seeds.end.saturating_sub(seeds.start),
        ..Report::default()
    };
    let mut hash_sum = 0;
    for seed in seeds {
        let scenario = Scenario::new(seed, options);
        let outcome = run_scenario::<S>(&scenario, options, mutant);
        report.add(&scenario, &outcome, &mut hash_sum);
        if progress(&report).is_break() {
            break;
        }
    }
    report.empty_cells = report.missing_pairs(&options.levels);
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
            "coverage       {} cells of stage, fault, crash and organisation; {} pairs never met",
            self.matrix.len(),
            self.empty_cells.len()
        )?;
        for cell in self.empty_cells.iter().take(EMPTY_CELLS_SHOWN) {
            writeln!(f, "never met      {cell}")?;
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
