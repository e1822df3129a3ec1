//! Several jobs at the same time, on one volume or on those of several that carry them, for so many seconds.
//!
//! Invariants:
//! - each job has a range of its own; on one volume they lie one behind the other, so that all arrangements do the
//!   same;
//! - every job goes on until the time is over, so that none has the disks to itself at the end;
//! - the joint figure is the geometric mean of the jobs: twice as fast a job counts the same whichever it is, and an
//!   arrangement that starves one is no good.

use serde::{Deserialize, Serialize};

use super::{Operation, Outcome, Process, mixed, run_together};
use crate::error::LabError;
use crate::iostat::MemberRow;
use crate::target::Target;
use crate::world::World;

/// Kinds of a job.
pub const JOB_KINDS: [&str; 5] = [
    "random-read",
    "random-write",
    "mixed",
    "sequential-read",
    "sequential-write",
];

/// Most jobs.
const JOBS_MAX: usize = 64;
/// Longest run in virtual seconds: a day.
const SECONDS_MAX: u64 = 86_400;
/// Ranges of jobs begin at multiples of this.
const RANGE_UNIT: u64 = 1 << 20;

/// One of several jobs that run at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// What it does (`JOB_KINDS`).
    pub kind: String,
    /// Length of a request.
    pub block_bytes: u64,
    /// Processes.
    pub processes: usize,
    /// Requests under way of each.
    pub depth: usize,
    /// Reads in a hundred, for `mixed`.
    pub read_percent: u64,
    /// Range that it uses; 0 = an equal share of what other jobs of its volume leave.
    pub range_bytes: u64,
    /// Whether each write is durable before it counts.
    pub is_sync: bool,
}

impl Default for Job {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: "random-read".to_owned(),
            block_bytes: 4096,
            processes: 4,
            depth: 1,
            read_percent: 70,
            range_bytes: 0,
            is_sync: false,
        }
    }
}

impl Job {
    /// What one of its requests does; when it is mixed, one that is no read.
    fn operation(&self) -> Operation {
        match (self.kind.ends_with("read"), self.is_sync) {
            (true, _) => Operation::Read,
            (false, false) => Operation::Write,
            (false, true) => Operation::WriteThrough,
        }
    }

    /// Its processes on a target of its own.
    fn processes(&self, target: &Target, seed: u64) -> Result<Vec<Process>, LabError> {
        let shape = mixed::Shape {
            operation: self.operation(),
            read_percent: (self.kind == "mixed").then_some(self.read_percent),
            is_random: !self.kind.starts_with("sequential"),
            block_bytes: self.block_bytes,
            process_count: self.processes,
            depth: self.depth,
            request_count: u64::MAX, // until the time is over
        };
        let told = |error: LabError| match error {
            LabError::Usage(text) => LabError::Usage(format!("job {}: {text}", self.name)),
            other => other,
        };
        mixed::processes(&shape, target.size_bytes(), seed).map_err(told)
    }
}

/// Whether these jobs can be run for so long.
///
/// # Errors
/// `Usage` with the job, or with where jobs are described.
pub fn check(jobs: &[Job], seconds: u64) -> Result<(), LabError> {
    let refused = |text: String| Err(LabError::Usage(format!("jobs: {text}")));
    if jobs.is_empty() || jobs.len() > JOBS_MAX {
        return refused(format!(
            "1 to {JOBS_MAX} are described in the file of an experiment ([[work.jobs]]), which plexum lab run takes"
        ));
    }
    if seconds > SECONDS_MAX {
        return refused(format!("at most {SECONDS_MAX} seconds"));
    }
    for (index, job) in jobs.iter().enumerate() {
        let name = &job.name;
        let is_known = jobs[..index].iter().any(|other| other.name == *name);
        if name.trim().is_empty() || is_known {
            return refused(format!("each has a name of its own, not \"{name}\""));
        }
        if !JOB_KINDS.contains(&job.kind.as_str()) {
            return refused(format!(
                "\"{}\" of {name} is no kind of theirs; there are: {}",
                job.kind,
                JOB_KINDS.join(", ")
            ));
        }
        if job.processes == 0 || job.depth == 0 {
            return refused(format!("{name}: processes and depth are at least 1"));
        }
    }
    Ok(())
}

/// What one volume of a run did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeRow {
    /// Its name; that of the only one is `all`.
    pub name: String,
    /// What it is, in few words.
    pub what: String,
    /// The jobs that it carried.
    pub jobs: Vec<String>,
    /// Reads and writes a second.
    pub requests_per_s: f64,
    /// Their bytes, in KiB a second.
    pub kib_per_s: f64,
    /// How busy its disks were, on average.
    pub busy_percent: f64,
}

/// A volume that carries jobs.
pub struct Carrier {
    /// Its name.
    pub name: String,
    /// What it is, in few words.
    pub what: String,
    /// Where its jobs run.
    pub target: Target,
    /// The jobs that it carries; `None`: all.
    pub jobs: Option<Vec<String>>,
    /// What its disks are called.
    pub disks: Vec<String>,
}

impl Carrier {
    /// Whether it carries the job of this name.
    #[must_use]
    pub fn carries(&self, job: &str) -> bool {
        let named = self.jobs.as_ref();
        named.is_none_or(|jobs| jobs.iter().any(|name| name == job))
    }

    /// What it did: its jobs are some of `jobs`, its disks some of `members`.
    #[must_use]
    pub fn row(&self, jobs: &[String], outcome: &Outcome, members: &[MemberRow]) -> VolumeRow {
        let own = members
            .iter()
            .filter(|row| self.disks.contains(&row.device));
        let busy: Vec<f64> = own.map(|row| row.busy_percent).collect();
        let carried = jobs.iter().filter(|job| self.carries(job));
        let round = |value: f64| (value * 10.0).round() / 10.0;
        VolumeRow {
            name: self.name.clone(),
            what: self.what.clone(),
            jobs: carried.cloned().collect(),
            requests_per_s: round(outcome.requests_per_s()),
            kib_per_s: round(outcome.bytes_per_s() / 1024.0),
            busy_percent: round(busy.iter().sum::<f64>() / busy.len().max(1) as f64),
        }
    }
}

/// Where jobs begin on a volume of `size_bytes`, and how long their ranges are.
fn ranges(volume: &str, jobs: &[&Job], size_bytes: u64) -> Result<Vec<(u64, u64)>, LabError> {
    let whole = |bytes: u64| bytes.div_ceil(RANGE_UNIT).saturating_mul(RANGE_UNIT);
    let named = jobs
        .iter()
        .fold(0_u64, |sum, job| sum.saturating_add(whole(job.range_bytes)));
    let sharers = jobs.iter().filter(|job| job.range_bytes == 0).count() as u64;
    let free = size_bytes.checked_sub(named).ok_or_else(|| {
        LabError::Usage(format!(
            "jobs: volume {volume} has {size_bytes} bytes, the ranges of its jobs {named}"
        ))
    })?;
    let share = free.checked_div(sharers).unwrap_or(0) / RANGE_UNIT * RANGE_UNIT;
    let mut start = 0;
    let range = |job: &&Job| {
        let length = match job.range_bytes {
            0 => share,
            bytes => bytes,
        };
        let begin = start;
        start += whole(length);
        (begin, length)
    };
    Ok(jobs.iter().map(range).collect())
}

/// A job with its target and its processes.
struct Prepared {
    job: usize,
    carrier: usize,
    target: Target,
    processes: Vec<Process>,
}

fn prepare(carriers: &[Carrier], jobs: &[Job], seed: u64) -> Result<Vec<Prepared>, LabError> {
    let mut all = Vec::new();
    for (carrier, on) in carriers.iter().enumerate() {
        let numbered = jobs.iter().enumerate();
        let (numbers, carried): (Vec<usize>, Vec<&Job>) =
            numbered.filter(|(_, job)| on.carries(&job.name)).unzip();
        let ranges = ranges(&on.name, &carried, on.target.size_bytes())?;
        for ((job, spec), (start, length)) in numbers.into_iter().zip(carried).zip(ranges) {
            let target = on.target.part(start, length)?;
            all.push(Prepared {
                job,
                carrier,
                processes: spec.processes(&target, seed.wrapping_add(job as u64 * 1000))?,
                target,
            });
        }
    }
    all.sort_by_key(|one| one.job);
    Ok(all)
}

/// Whether the jobs have room on the volumes that carry them.
///
/// # Errors
/// `Usage` with the volume or the job.
pub fn check_room(carriers: &[Carrier], jobs: &[Job]) -> Result<(), LabError> {
    prepare(carriers, jobs, 0).map(drop)
}

/// What came of jobs.
pub struct JobsSeen {
    /// All together.
    pub all: Outcome,
    /// Each job.
    pub jobs: Vec<Outcome>,
    /// Each volume.
    pub carriers: Vec<Outcome>,
}

impl JobsSeen {
    /// The joint figure: the geometric mean of the requests a second of the jobs.
    #[must_use]
    pub fn together(&self) -> f64 {
        let rates = self.jobs.iter().map(Outcome::requests_per_s);
        let sum: f64 = rates.map(|rate| rate.max(1e-12).ln()).sum();
        (sum / self.jobs.len().max(1) as f64).exp()
    }

    /// A line for each of `jobs`.
    #[must_use]
    pub fn lines(&self, jobs: &[Job]) -> String {
        let line = |(job, outcome): (&Job, &Outcome)| line(&job.name, outcome);
        jobs.iter().zip(&self.jobs).map(line).collect()
    }
}

fn line(name: &str, outcome: &Outcome) -> String {
    let mut line = format!(
        "{name}: {:.1} requests/s, {:.0} KiB/s",
        outcome.requests_per_s(),
        outcome.bytes_per_s() / 1024.0
    );
    for (word, latencies) in [
        ("reads", &outcome.traffic.reads),
        ("writes", &outcome.traffic.writes),
    ] {
        if latencies.count() > 0 {
            let seen = latencies.summary();
            line += &format!(
                "; {word}: mean {:.0} us, 99 % {:.0}, worst {:.0}",
                seen.mean_us, seen.p99_us, seen.max_us
            );
        }
    }
    line + "\n"
}

/// Jobs that run for so long; the seed decides where.
#[derive(Clone, Copy, Debug)]
pub struct JobsRun<'a> {
    /// The jobs.
    pub jobs: &'a [Job],
    /// Virtual seconds.
    pub seconds: u64,
    /// Seed.
    pub seed: u64,
}

/// Runs all jobs at the same time.
///
/// # Errors
/// As `check_room`; the first request that failed.
pub fn run(world: &World, carriers: &[Carrier], run: JobsRun<'_>) -> Result<JobsSeen, LabError> {
    let prepared = prepare(carriers, run.jobs, run.seed)?;
    let carried_by: Vec<usize> = prepared.iter().map(|one| one.carrier).collect();
    let parts = prepared.into_iter();
    let parts = parts.map(|one| (one.target, one.processes)).collect();
    let limit_ns = run.seconds.saturating_mul(1_000_000_000);
    let spawner = world.spawner();
    let outcomes =
        world.run(async move { run_together(&spawner, parts, Some(limit_ns)).await })??;
    let mut seen = JobsSeen {
        all: Outcome::default(),
        carriers: vec![Outcome::default(); carriers.len()],
        jobs: outcomes,
    };
    for (carrier, outcome) in carried_by.into_iter().zip(&seen.jobs) {
        seen.carriers[carrier].add_beside(outcome);
        seen.all.add_beside(outcome);
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lie_one_behind_the_other_and_those_that_are_not_named_share_the_rest() {
        let job = |bytes| Job {
            range_bytes: bytes,
            ..Job::default()
        };
        let (a, b, c) = (job(10 << 20), job(0), job(0));
        let mib = |all: Vec<(u64, u64)>| -> Vec<(u64, u64)> {
            all.iter()
                .map(|(start, length)| (start >> 20, length >> 20))
                .collect()
        };
        let found = ranges("v", &[&a, &b, &c], (31 << 20) + 5).unwrap();
        assert_eq!(mib(found), [(0, 10), (10, 10), (20, 10)]);
        let error = ranges("v", &[&a, &b], 9 << 20).unwrap_err().to_string();
        assert!(error.contains("volume v has 9437184 bytes"), "{error}");
        assert_eq!(mib(ranges("v", &[&job(1)], 1 << 20).unwrap()), [(0, 0)]);
    }
}
