//! What went on inside of a run: how long requests took, what each disk did at each moment, and whether the books
//! balance.
//!
//! Invariants:
//! - a recording asks nothing of the disks that takes virtual time: figures are the same with and without it;
//! - it has at most `SAMPLES_MAX` moments, however long the run is: neighbours are joined and the interval doubles.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_disks::disk::timed::TimedDisk;
use plexum_disks::disk::timed_stats::DiskFigures;
use serde::{Deserialize, Serialize};

use crate::setup::running::Running;
use crate::stats::Latencies;
use crate::target::Traffic;

/// Moments of a recording.
const SAMPLES_MAX: usize = 96;
/// Interval at the beginning.
const INTERVAL_NS: u64 = 1_000_000;
/// No interval is longer: a run that never ends must not be kept going by its recording.
const INTERVAL_NS_MAX: u64 = 86_400_000_000_000;
/// Difference of two sums that should be equal, as a share: requests that were under way at an end of the run.
const TOLERANCE: f64 = 0.02;

/// One disk over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskLine {
    /// Its name.
    pub device: String,
    /// Share of each interval with something outstanding, in percent.
    pub busy_percent: Vec<f64>,
    /// Where the head stood at the end of each interval, in percent of the cylinders from outside; nothing without
    /// moving parts.
    pub head_percent: Vec<f64>,
}

/// All disks over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Length of an interval.
    pub interval_us: f64,
    /// The disks.
    pub disks: Vec<DiskLine>,
}

/// Two sums from different books that belong together: equal, or the first one larger by what only the lower layer
/// counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is compared, and where.
    pub what: String,
    /// As one layer says.
    pub seen: f64,
    /// As it follows from the other.
    pub expected: f64,
    /// Whether they agree.
    pub is_right: bool,
}

/// The inside of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Inside {
    /// Reads: (microseconds, percent that took at most so long), ascending.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<(f64, f64)>,
    /// The same of writes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<(f64, f64)>,
    /// Disks over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Whether the books of the layers agree.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<Check>,
}

impl Inside {
    /// What a workload has seen of itself.
    #[must_use]
    pub fn of(traffic: &Traffic, elapsed_ns: u64) -> Self {
        let mut checks = Vec::new();
        if traffic.under_way_ns > 0 && elapsed_ns > 0 {
            let elapsed = elapsed_ns as f64;
            let took = [&traffic.reads, &traffic.writes, &traffic.flushes].map(Latencies::sum_ns);
            checks.push(equal(
                "requests under way at the volume: mean number, and rate times mean time"
                    .to_owned(),
                traffic.under_way_ns as f64 / elapsed,
                took.iter().sum::<u64>() as f64 / elapsed,
            ));
        }
        Self {
            reads: traffic.reads.shares(),
            writes: traffic.writes.shares(),
            timeline: None,
            checks,
        }
    }
}

fn equal(what: String, seen: f64, expected: f64) -> Check {
    Check {
        what,
        seen,
        expected,
        is_right: (seen - expected).abs() <= TOLERANCE * expected.abs().max(1e-3),
    }
}

fn at_least(what: String, seen: f64, expected: f64) -> Check {
    Check {
        what,
        seen,
        expected,
        is_right: seen >= expected,
    }
}

/// What is being recorded.
struct Tape {
    disks: Vec<(String, TimedDisk)>,
    before: Vec<DiskFigures>,
    interval_ns: u64,
    timeline: Timeline,
    has_ended: bool,
}

impl Tape {
    fn sample(&mut self) {
        for (((_, disk), before), line) in self
            .disks
            .iter()
            .zip(&mut self.before)
            .zip(&mut self.timeline.disks)
        {
            let figures = disk.figures();
            let busy = figures.busy_ns - before.busy_ns;
            *before = figures;
            let share = busy as f64 / self.interval_ns as f64 * 100.0;
            line.busy_percent.push((share * 10.0).round() / 10.0);
            if let Some((cylinder, cylinders)) = disk.head() {
                let place = cylinder as f64 / cylinders.max(1) as f64 * 100.0;
                line.head_percent.push((place * 100.0).round() / 100.0);
            }
        }
        let is_full = |line: &DiskLine| line.busy_percent.len() >= SAMPLES_MAX;
        if self.timeline.disks.iter().any(is_full) {
            for line in &mut self.timeline.disks {
                line.busy_percent = pairs(&line.busy_percent, |one, two| (one + two) / 2.0);
                line.head_percent = pairs(&line.head_percent, |_, two| two);
            }
            self.interval_ns *= 2;
        }
    }
}

fn pairs(list: &[f64], join: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    let pair = |pair: &[f64]| join(pair[0], pair[1]);
    list.chunks_exact(2).map(pair).collect()
}

/// A recording of the disks of an arrangement, from its start to `end`.
pub struct Recorder {
    tape: Rc<RefCell<Tape>>,
    started_ns: u64,
    first: Vec<DiskFigures>,
    /// Bytes that the engine had sent to each member and got from it, by name.
    sent: Vec<(String, u64, u64)>,
}

/// (name, bytes read, bytes written) of the members, as the engine counts them.
fn sent_by_engine(running: &Running) -> Vec<(String, u64, u64)> {
    let members = running.volumes().flat_map(|volume| volume.status().members);
    let named = members.filter_map(|member| {
        let counters = member.counters;
        Some((member.name?, counters.read_bytes, counters.written_bytes))
    });
    named.collect()
}

impl Recorder {
    /// Begins to record.
    #[must_use]
    pub fn start(running: &Running) -> Self {
        let figures = || running.disks.iter().map(|(_, disk)| disk.figures());
        let line = |(name, _): &(String, TimedDisk)| DiskLine {
            device: name.clone(),
            ..DiskLine::default()
        };
        let tape = Rc::new(RefCell::new(Tape {
            disks: running.disks.clone(),
            before: figures().collect(),
            interval_ns: INTERVAL_NS,
            timeline: Timeline {
                interval_us: 0.0,
                disks: running.disks.iter().map(line).collect(),
            },
            has_ended: false,
        }));
        let (clock, shared) = (running.world.clock().clone(), Rc::clone(&tape));
        drop(running.world.spawn(async move {
            loop {
                let interval_ns = shared.borrow().interval_ns;
                clock.sleep(Duration::from_nanos(interval_ns)).await;
                let mut tape = shared.borrow_mut();
                if tape.has_ended || tape.interval_ns > INTERVAL_NS_MAX {
                    return;
                }
                tape.sample();
            }
        }));
        Self {
            tape,
            started_ns: running.world.clock().now_ns(),
            first: figures().collect(),
            sent: sent_by_engine(running),
        }
    }

    /// Ends the recording and compares the books of engine and disks.
    pub fn end(self, running: &Running, inside: &mut Inside) {
        let mut tape = self.tape.borrow_mut();
        tape.has_ended = true;
        let mut timeline = std::mem::take(&mut tape.timeline);
        timeline.interval_us = tape.interval_ns as f64 / 1e3;
        inside.timeline = Some(timeline);
        let span = running
            .world
            .clock()
            .now_ns()
            .saturating_sub(self.started_ns);
        let sent = sent_by_engine(running);
        for ((name, disk), first) in running.disks.iter().zip(&self.first) {
            let figures = disk.figures().since(first);
            if figures.reads + figures.writes == 0 {
                continue;
            }
            if disk.outstanding() == 0 {
                let took = figures.read_wait_ns + figures.write_wait_ns + figures.flush_wait_ns;
                inside.checks.push(equal(
                    format!("requests under way at {name}: mean number, and rate times mean time"),
                    figures.queue_integral_ns as f64 / span.max(1) as f64,
                    took as f64 / span.max(1) as f64,
                ));
            }
            let of = |list: &[(String, u64, u64)]| {
                let found = list.iter().find(|(member, _, _)| member == name);
                found.map(|(_, read, written)| (*read, *written))
            };
            if let Some((read, written)) = of(&sent) {
                let before = of(&self.sent).unwrap_or((0, 0));
                inside.checks.push(equal(
                    format!("bytes read from {name}: at the disk, and as the engine counts"),
                    figures.read_bytes as f64,
                    (read - before.0) as f64,
                ));
                inside.checks.push(at_least(
                    format!("bytes written to {name}: with bitmap, superblocks and log, and data as the engine counts"),
                    figures.written_bytes as f64,
                    (written - before.1) as f64,
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Setup;
    use crate::work::{Work, measure};

    /// `level` is a level, or one with a consistency behind a space.
    fn seen(level: &str, kind: &str, requests: u64) -> Inside {
        let (level, consistency) = level.split_once(' ').unwrap_or((level, ""));
        let setup = Setup {
            level: level.to_owned(),
            consistency: consistency.to_owned(),
            strip_bytes: 64 << 10,
            ..Setup::default()
        };
        let work = Work {
            kind: kind.to_owned(),
            requests,
            ..Work::default()
        };
        measure(&setup, &work, 1).unwrap().inside
    }

    #[test]
    fn the_books_of_all_layers_agree() {
        for (level, kind) in [
            ("10", "random-read"),
            ("5", "random-write"),
            ("6", "sequential-write"),
            ("5 log", "random-write"),
            ("5 ppl", "mixed"),
            ("1", "mixed"),
            ("single", "random-read"),
        ] {
            let inside = seen(level, kind, 200);
            let wrong = inside.checks.iter().find(|check| !check.is_right);
            assert_eq!(wrong, None, "{level} {kind}");
            let disks = if level == "single" { 1 } else { 4 };
            assert!(inside.checks.len() > disks, "{level} {kind}: {inside:?}");
        }
    }

    #[test]
    fn sums_that_do_not_agree_are_told() {
        assert!(!equal(String::new(), 1.05, 1.0).is_right);
        assert!(equal(String::new(), 1.01, 1.0).is_right);
        assert!(!at_least(String::new(), 0.99, 1.0).is_right);
    }

    #[test]
    fn a_recording_has_every_disk_and_changes_nothing() {
        let inside = seen("10", "random-read", 2000);
        let timeline = inside.timeline.unwrap();
        assert_eq!(timeline.disks.len(), 4);
        for line in &timeline.disks {
            let count = line.busy_percent.len();
            assert!((SAMPLES_MAX / 2..SAMPLES_MAX).contains(&count), "{count}");
            assert_eq!(line.head_percent.len(), count);
            assert!(
                line.busy_percent
                    .iter()
                    .all(|busy| (0.0..=100.0).contains(busy))
            );
            assert!(
                line.head_percent
                    .iter()
                    .all(|head| (0.0..=100.0).contains(head))
            );
            let busy = line.busy_percent.iter().sum::<f64>() / count as f64;
            assert!(busy > 20.0, "{line:?}");
        }
        let setup = Setup::default();
        let running = setup.start(1, 0, crate::array::Mode::Timing).unwrap();
        let without = crate::work::tests::requests_alone(&running, &Work::default(), 1);
        let with = measure(&setup, &Work::default(), 1).unwrap();
        assert_eq!(without.figures, with.figures);
        assert_eq!(without.members, with.members);
    }

    #[test]
    fn a_distribution_ends_with_everything() {
        let inside = seen("10", "random-read", 300);
        assert!(inside.writes.is_empty());
        let (last_us, last) = *inside.reads.last().unwrap();
        assert!((last - 100.0).abs() < 1e-9 && last_us > 1000.0);
        let is_ascending = |pair: &[(f64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
        assert!(
            inside.reads.windows(2).all(is_ascending),
            "{:?}",
            inside.reads
        );
    }
}
