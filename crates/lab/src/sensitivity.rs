//! What of a disk would have to be different for another arrangement to be the best.
//!
//! Invariants:
//! - only simulated disks are changed, and of each only one thing at a time;
//! - the best arrangements of a workload are compared with the same seed, so that nothing but the change differs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::change::CHANGES;
use crate::error::LabError;
use crate::experiment::{Run, RunResult};
use crate::lines::{self, Lines};
use crate::place::interrupt;
use crate::setup::Setup;
use crate::stats::{Spread, spread};
use crate::work::{Measurement, Work, measure};

/// Name of the results in a folder.
const FILE: &str = "sensitivity.jsonl";
/// Arrangements of a workload that are compared: the best ones.
const RIVALS: usize = 3;
/// Another arrangement has to be better by this share before the answer counts as changed.
const MARGIN: f64 = 0.02;

/// The main figure of one arrangement with changed disks; one line of the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Arrangement, with its `change`.
    pub setup: Setup,
    /// Workload.
    pub work: Work,
    /// Seed.
    pub seed: u64,
    /// Its main figure.
    pub value: f64,
}

impl Changed {
    /// The arrangement without its change.
    fn name(&self) -> String {
        let setup = Setup {
            change: String::new(),
            ..self.setup.clone()
        };
        setup.full_name()
    }

    fn key(&self) -> String {
        let run = Run {
            setup: self.setup.clone(),
            work: self.work.clone(),
            seed: self.seed,
        };
        run.key()
    }
}

/// The best simulated arrangements of each workload, and the lowest seed.
fn rivals(results: &[RunResult]) -> Vec<(Work, Vec<Setup>, u64)> {
    let mut works: Vec<Work> = Vec::new();
    let is_simulated = |result: &&RunResult| {
        let setup = &result.setup;
        setup.is_simulated() && setup.change.is_empty()
    };
    let simulated: Vec<&RunResult> = results.iter().filter(is_simulated).collect();
    for result in &simulated {
        if !works.contains(&result.work) {
            works.push(result.work.clone());
        }
    }
    let mut all = Vec::new();
    for work in works {
        let mut figures: BTreeMap<String, (Setup, Vec<f64>)> = BTreeMap::new();
        let of_work = simulated.iter().filter(|result| result.work == work);
        let mut seed = u64::MAX;
        for result in of_work {
            let Some(figure) = result.figures.first() else {
                continue;
            };
            seed = seed.min(result.seed);
            let entry = figures.entry(result.setup.full_name());
            let entry = entry.or_insert_with(|| (result.setup.clone(), Vec::new()));
            entry.1.push(figure.value);
        }
        let mut ranked: Vec<(Setup, Spread)> = figures
            .into_values()
            .map(|(setup, values)| (setup, spread(&values)))
            .collect();
        ranked.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
        let setups = best_and_others(&ranked);
        if setups.len() > 1 {
            all.push((work, setups, seed));
        }
    }
    all
}

/// The best one and those that may take its place: first of all ones that are clearly worse now.
fn best_and_others(ranked: &[(Setup, Spread)]) -> Vec<Setup> {
    let Some((_, best)) = ranked.first() else {
        return Vec::new();
    };
    let (near, worse): (Vec<_>, Vec<_>) =
        ranked[1..].iter().partition(|(_, one)| one.is_near(best));
    let all = ranked[..1].iter().chain(worse).chain(near);
    all.take(RIVALS).map(|(setup, _)| setup.clone()).collect()
}

/// What has no result in `folder` yet.
///
/// # Errors
/// `Io` when the folder cannot be read; `Usage` for disks that are not known any more.
pub fn pending(folder: &Path, results: &[RunResult]) -> Result<Vec<Changed>, LabError> {
    let done: BTreeSet<String> = read(folder)?.iter().map(Changed::key).collect();
    let mut all = Vec::new();
    for (work, setups, seed) in rivals(results) {
        for (change, _) in CHANGES {
            for setup in &setups {
                let setup = Setup {
                    change: change.to_owned(),
                    ..setup.clone()
                };
                let one = Changed {
                    setup,
                    work: work.clone(),
                    seed,
                    value: 0.0,
                };
                if one.setup.has_change()? && !done.contains(&one.key()) {
                    all.push(one);
                }
            }
        }
    }
    Ok(all)
}

/// Runs what is pending. `tell` hears (done, all).
///
/// # Errors
/// `Io` when the folder cannot be written; a run that failed. Results so far are kept.
pub fn run_in(
    folder: &Path,
    pending: &[Changed],
    mut tell: impl FnMut(usize, usize),
) -> Result<(), LabError> {
    let mut lines = Lines::append(&folder.join(FILE))?;
    for (index, one) in pending.iter().enumerate() {
        interrupt::check()?;
        let seen = match measure(&one.setup, &one.work, one.seed) {
            // It says nothing about the change; the others do.
            Err(LabError::MemberLost(_) | LabError::Io(_)) => Measurement::default(),
            measured => measured?,
        };
        let value = seen.figures.first().map_or(0.0, |figure| figure.value); // 0.0: none
        lines.add(&Changed {
            value,
            ..one.clone()
        })?;
        tell(index + 1, pending.len());
    }
    Ok(())
}

/// The results of a folder; half a line at the end is left out.
///
/// # Errors
/// `Io` when the folder cannot be read.
pub fn read(folder: &Path) -> Result<Vec<Changed>, LabError> {
    lines::read(&folder.join(FILE))
}

/// What a change does to the answer of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The change.
    pub change: String,
    /// The best arrangement then.
    pub best: String,
    /// So many times as good as the one that is best without the change.
    pub times: f64,
    /// Whether that is another answer.
    pub is_other: bool,
}

/// The verdicts on a workload, in the order of `CHANGES`. `now` names its arrangements with their figures, the best
/// first. One that is as good as the best within the margins is the same answer.
#[must_use]
pub fn verdicts(changed: &[Changed], work: &Work, now: &[(String, Spread)]) -> Vec<Verdict> {
    let Some((best, figure)) = now.first() else {
        return Vec::new();
    };
    let is_near = |name: &str| {
        now.iter()
            .any(|(other, one)| other == name && one.is_near(figure))
    };
    let margin = MARGIN.max(figure.margin / figure.mean.max(1e-12));
    let mut all = Vec::new();
    for (change, _) in CHANGES {
        let of_change =
            |one: &&Changed| one.work == *work && one.setup.change == change && one.value > 0.0;
        let mut values: Vec<(String, f64)> = changed
            .iter()
            .filter(of_change)
            .map(|one| (one.name(), one.value))
            .collect();
        values.sort_by(|a, b| b.1.total_cmp(&a.1));
        let base = values.iter().find(|(name, _)| name == best);
        if let (Some((first, value)), Some((_, base))) = (values.first(), base) {
            let times = value / base.max(1e-12);
            all.push(Verdict {
                change: change.to_owned(),
                best: first.clone(),
                times,
                is_other: !is_near(first) && times > 1.0 + margin,
            });
        }
    }
    all
}

/// Whether there is an arrangement that is best now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Winner {
    /// One is clearly better than all others.
    Clear,
    /// Several may be the best.
    None,
}

/// The verdicts in one sentence.
#[must_use]
pub fn sentence(verdicts: &[Verdict], winner: Winner) -> String {
    let others: Vec<String> = verdicts
        .iter()
        .filter(|verdict| verdict.is_other)
        .map(|verdict| {
            format!(
                "{} if {} ({:.2} times)",
                verdict.best, verdict.change, verdict.times
            )
        })
        .collect();
    match (verdicts.len(), others.is_empty()) {
        (0, _) => String::new(),
        (count, true) if winner == Winner::None => {
            format!("none of {count} changes of the disks makes a clear one")
        }
        (count, true) => {
            format!("the same would be best with each of {count} changes of the disks")
        }
        (_, false) => format!("another would be best: {}", others.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(change: &str, level: &str, value: f64) -> Changed {
        let setup = Setup {
            level: level.to_owned(),
            change: change.to_owned(),
            ..Setup::default()
        };
        Changed {
            setup,
            work: Work::default(),
            seed: 1,
            value,
        }
    }

    #[test]
    fn another_answer_is_one_that_is_better_by_more_than_chance() {
        let name = |level: &str| changed("", level, 0.0).setup.full_name();
        let (slow, fast) = (CHANGES[1].0, CHANGES[0].0);
        let all = [
            changed(slow, "0", 10.0),
            changed(slow, "10", 15.0),
            changed(fast, "0", 100.0),
            changed(fast, "10", 101.0),
        ];
        let now = [
            (name("0"), spread(&[20.0, 20.1])),
            (name("10"), spread(&[12.0, 12.1])),
        ];
        let seen = verdicts(&all, &Work::default(), &now);
        assert_eq!(seen.len(), 2);
        assert!(!seen[0].is_other, "one in a hundred is chance: {seen:?}");
        assert!(seen[1].is_other && (seen[1].times - 1.5).abs() < 1e-9);
        assert_eq!(seen[1].best, name("10"));
        let told = sentence(&seen, Winner::Clear);
        assert!(told.contains(slow) && !told.contains(fast), "{told}");
        assert!(sentence(&seen[..1], Winner::Clear).contains("the same would be best"));
        let told = sentence(&seen[..1], Winner::None);
        assert!(
            !told.contains("best"),
            "where none is best, none is the same: {told}"
        );
        assert_eq!(sentence(&[], Winner::Clear), "");
        let near = [now[0].clone(), (name("10"), spread(&[19.9, 20.1]))];
        let seen = verdicts(&all, &Work::default(), &near);
        assert!(!seen[1].is_other, "they are alike now: {seen:?}");
    }
}
