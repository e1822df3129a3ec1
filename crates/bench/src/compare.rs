//! Several contestants by turns: each round asks every one of them once, and the medians are compared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::goals::{Better, Figures};
use crate::row::median;
use crate::{BenchError, Progress};

/// What a contestant is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Plexum,
    Peer,
    /// What the machine allows: a yardstick, not something people could take instead.
    Limit,
}

/// A figure: metric, unit, value.
pub(crate) type Reading = (String, &'static str, f64);

/// One contestant at one task.
pub(crate) struct Probe<'a> {
    pub name: String,
    pub role: Role,
    /// What it stands in, for the progress and for what is said when it fails.
    pub task: String,
    pub measure: Box<dyn FnMut() -> Result<Vec<Reading>, BenchError> + 'a>,
}

/// Who could not be measured, at what, and why.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// The contestant.
    pub name: String,
    /// What it would have done.
    pub task: String,
    /// Why it did not.
    pub reason: String,
}

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Samples {
    figures: BTreeMap<(String, &'static str, Role, String), Vec<f64>>,
    pub skipped: Vec<Skipped>,
}

impl Samples {
    pub fn add(&mut self, role: Role, name: &str, (metric, unit, value): Reading) {
        let key = (metric, unit, role, name.to_owned());
        self.figures.entry(key).or_default().push(value);
    }

    pub fn skip(&mut self, name: &str, task: &str, reason: impl Into<String>) {
        let (name, task, reason) = (name.to_owned(), task.to_owned(), reason.into());
        let skipped = Skipped { name, task, reason };
        if !self.skipped.contains(&skipped) {
            self.skipped.push(skipped);
        }
    }

    /// Moves everything to `target`; figures of metrics that begin with `word` become the limit of those that `metrics`
    /// names.
    pub fn split_limits(
        self,
        target: &mut Samples,
        word: &str,
        metrics: impl Fn(&str) -> Vec<String>,
    ) {
        for ((metric, unit, role, name), values) in self.figures {
            let is_limit = metric.starts_with(word);
            let (role, names) = if is_limit {
                (Role::Limit, metrics(&metric))
            } else {
                (role, vec![metric])
            };
            for metric in names {
                let key = (metric, unit, role, name.clone());
                target.figures.entry(key).or_default().extend(&values);
            }
        }
        target.skipped.extend(self.skipped);
    }

    /// Metrics with their units, each once, in the order of their names.
    pub fn metrics(&self) -> Vec<(String, &'static str)> {
        let mut metrics: Vec<_> = self
            .figures
            .keys()
            .map(|(metric, unit, ..)| (metric.clone(), *unit))
            .collect();
        metrics.dedup();
        metrics
    }

    /// Names and medians of all in this role.
    pub fn medians(&self, metric: &str, unit: &str, role: Role) -> Vec<(String, f64)> {
        self.figures
            .iter()
            .filter(|((m, u, r, _), _)| m == metric && *u == unit && *r == role)
            .map(|((.., name), values)| (name.clone(), median(values.iter().copied())))
            .collect()
    }

    /// Most measurements of any contestant at this metric.
    pub fn rounds(&self, metric: &str, unit: &str) -> usize {
        let of_it = self
            .figures
            .iter()
            .filter(|((m, u, ..), _)| m == metric && *u == unit);
        of_it.map(|(_, values)| values.len()).max().unwrap_or(0)
    }
}

impl Figures for Samples {
    fn plexum(&self, metric: &str, unit: &str) -> Option<f64> {
        let own = self.medians(metric, unit, Role::Plexum);
        own.first().map(|(_, value)| *value)
    }
    fn peer(&self, metric: &str, unit: &str, peer: &str) -> Option<f64> {
        let peers = self.medians(metric, unit, Role::Peer);
        peers
            .into_iter()
            .find_map(|(name, value)| (name == peer).then_some(value))
    }
    fn best_peer(&self, metric: &str, unit: &str, better: Better) -> Option<(String, f64)> {
        let peers = self.medians(metric, unit, Role::Peer).into_iter();
        match better {
            Better::Higher => peers.max_by(|(_, a), (_, b)| a.total_cmp(b)),
            Better::Lower => peers.min_by(|(_, a), (_, b)| a.total_cmp(b)),
        }
    }
    fn limit(&self, metric: &str, unit: &str) -> Option<f64> {
        let limits = self.medians(metric, unit, Role::Limit);
        limits.first().map(|(_, value)| *value)
    }
}

/// Asks every probe once in each round. One that fails is skipped by name from then on.
pub(crate) fn take_turns(
    group: &'static str,
    mut probes: Vec<Probe<'_>>,
    rounds: usize,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) {
    let total = probes.len() * rounds;
    let started = Instant::now();
    let mut done = 0;
    for round in 0..rounds {
        let mut failed = Vec::new();
        for (index, probe) in probes.iter_mut().enumerate() {
            let left = (done > 0).then(|| time_left(started.elapsed(), done, total));
            progress(&Step {
                group,
                what: format!("{}: {}", probe.task, probe.name),
                done,
                total,
                left,
            });
            match (probe.measure)() {
                Ok(readings) => readings
                    .into_iter()
                    .for_each(|reading| samples.add(probe.role, &probe.name, reading)),
                Err(error) => {
                    let reason = format!("round {}: {error}", round + 1);
                    samples.skip(&probe.name, &probe.task, reason);
                    failed.push(index);
                }
            }
            done += 1;
        }
        for index in failed.into_iter().rev() {
            probes.remove(index);
            done += rounds - round - 1; // its further turns
        }
    }
}

fn time_left(elapsed: Duration, done: usize, total: usize) -> Duration {
    elapsed.mul_f64((total - done) as f64 / done as f64)
}

/// What is being measured.
#[derive(Clone, Debug)]
pub struct Step {
    /// Group.
    pub group: &'static str,
    /// Task and contestant.
    pub what: String,
    /// Measurements of this group that are done.
    pub done: usize,
    /// Measurements of this group.
    pub total: usize,
    /// Time left at the rate so far, for this group.
    pub left: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe<'a>(name: &str, role: Role, mut answers: Vec<Result<f64, BenchError>>) -> Probe<'a> {
        let measure = Box::new(move || {
            answers
                .remove(0)
                .map(|value| vec![("m".to_owned(), "u", value)])
        });
        let (name, task) = (name.to_owned(), "task".to_owned());
        Probe {
            name,
            role,
            task,
            measure,
        }
    }

    #[test]
    fn the_best_peer_is_the_one_that_is_best_in_the_direction_of_the_metric() {
        let mut samples = Samples::default();
        for (name, values) in [("a", [1.0, 5.0, 2.0]), ("b", [9.0, 1.5, 1.0])] {
            for value in values {
                samples.add(Role::Peer, name, ("m".into(), "u", value));
            }
        }
        samples.add(Role::Limit, "machine", ("m".into(), "u", 100.0));
        let best = |better| samples.best_peer("m", "u", better);
        assert_eq!(best(Better::Higher), Some(("a".to_owned(), 2.0)));
        assert_eq!(best(Better::Lower), Some(("b".to_owned(), 1.5)));
        assert_eq!(samples.limit("m", "u"), Some(100.0));
    }

    #[test]
    fn one_that_fails_is_named_with_its_reason_and_the_others_go_on() {
        let fails = vec![Ok(1.0), Err(BenchError("gone".to_owned()))];
        let goes_on = vec![Ok(1.0), Ok(2.0), Ok(3.0)];
        let probes = vec![
            probe("a", Role::Peer, fails),
            probe("plexum", Role::Plexum, goes_on),
        ];
        let mut samples = Samples::default();
        let mut last = 0;
        take_turns("g", probes, 3, &mut samples, &mut |step| last = step.done);
        assert_eq!(samples.plexum("m", "u"), Some(2.0));
        assert_eq!(samples.skipped[0].reason, "round 2: gone");
        assert_eq!(last, 5, "of 6, the one that never came included");
    }
}
