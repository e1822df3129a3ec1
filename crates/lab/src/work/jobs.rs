//! Several jobs at the same time, on one volume or on the volumes of an arrangement that carry them, for so many seconds.
//!
//! Invariants:
//! - each job has a range of its own; on one volume they lie one behind the other, so that all arrangements do the same;
//! - every job goes on until the time is over, so that none has the disks to itself at the end;
//! - the joint figure is the geometric mean of the jobs: twice as fast a job counts the same whichever it is, and an
//!   arrangement that starves one is no good.

use serde::{Deserialize, Serialize};

use super::{Figure, Measurement, Work, operation_of, summarise};
use crate::error::LabError;
use crate::iostat::MemberRow;
use crate::setup::Running;
use crate::setup::beside::{VolumeBeside, short};
use crate::target::Target;
use crate::work::programs::{fio_groups_of, fio_jobs};
use crate::workload::{Outcome, Process, mixed, run_together};
use crate::worth::Worth;

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
        let work = Work::default();
        Self {
            name: String::new(),
            kind: work.kind,
            block_bytes: work.block_bytes,
            processes: work.processes,
            depth: work.depth,
            read_percent: work.read_percent,
            range_bytes: 0,
            is_sync: false,
        }
    }
}

impl Job {
    /// As a workload of its own.
    #[must_use]
    pub fn alone(&self) -> Work {
        Work {
            kind: self.kind.clone(),
            block_bytes: self.block_bytes,
            processes: self.processes,
            depth: self.depth,
            read_percent: self.read_percent,
            range_bytes: self.range_bytes,
            is_sync: self.is_sync,
            ..Work::default()
        }
    }

    fn processes(&self, size_bytes: u64, seed: u64) -> Result<Vec<Process>, LabError> {
        let shape = mixed::Shape {
            operation: operation_of(&self.kind, self.is_sync),
            read_percent: (self.kind == "mixed").then_some(self.read_percent),
            is_random: !self.kind.starts_with("sequential"),
            block_bytes: self.block_bytes,
            process_count: self.processes,
            depth: self.depth,
            request_count: u64::MAX, // until the time is over
        };
        mixed::processes(&shape, size_bytes, seed)
    }
}

/// What one volume of a run did, and what it holds.
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
    /// What it holds, in gigabytes.
    pub holds_gb: Option<f64>,
    /// So many of its disks may be lost, whichever they are.
    pub survives_losses: Option<usize>,
}

/// A volume and the jobs on it.
struct Place<'a> {
    name: &'a str,
    target: &'a Target,
    /// `None`: it carries all.
    spec: Option<&'a VolumeBeside>,
}

impl Place<'_> {
    fn carries(&self, job: &str) -> bool {
        self.spec
            .is_none_or(|spec| spec.jobs.iter().any(|name| name == job))
    }
}

fn places(running: &Running) -> Vec<Place<'_>> {
    if running.beside.is_empty() {
        return vec![Place {
            name: "all",
            target: &running.target,
            spec: None,
        }];
    }
    let beside = running.beside.iter();
    let places = beside.map(|one| Place {
        name: &one.spec.name,
        target: &one.target,
        spec: Some(&one.spec),
    });
    places.collect()
}

/// Whether the jobs are some that can be run.
pub(super) fn check(work: &Work) -> Result<(), LabError> {
    let refused = |text: String| Err(LabError::Usage(format!("jobs: {text}")));
    if work.kind != "jobs" {
        return match work.jobs.is_empty() {
            true => Ok(()),
            false => refused(format!(
                "they are for kind = \"jobs\", not for {}",
                work.kind
            )),
        };
    }
    if work.jobs.is_empty() || work.jobs.len() > JOBS_MAX {
        return refused(format!(
            "1 to {JOBS_MAX} are described in the file of an experiment ([[work.jobs]]), which plexum lab run takes"
        ));
    }
    if work.range_bytes > 0 {
        return refused("each has a range_bytes of its own".to_owned());
    }
    if work.seconds > SECONDS_MAX {
        return refused(format!("at most {SECONDS_MAX} seconds"));
    }
    for (index, job) in work.jobs.iter().enumerate() {
        let name = &job.name;
        let is_known = work.jobs[..index].iter().any(|other| other.name == *name);
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

/// The names of the jobs of a workload, where it has some.
///
/// # Errors
/// `Usage` for a job file that cannot be read.
pub(super) fn names(work: &Work) -> Result<Option<Vec<String>>, LabError> {
    match work.kind.as_str() {
        "jobs" => Ok(Some(work.jobs.iter().map(|job| job.name.clone()).collect())),
        "fio" => Ok(Some(fio_jobs(work)?)),
        _ => Ok(None),
    }
}

/// Where the jobs begin on a volume of `size_bytes`, and how long their ranges are.
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

/// All jobs with their targets and processes, by the volume that carries them.
struct Prepared {
    job: usize,
    place: usize,
    target: Target,
    processes: Vec<Process>,
}

fn prepare(running: &Running, work: &Work, seed: u64) -> Result<Vec<Prepared>, LabError> {
    let mut all = Vec::new();
    for (place, on) in places(running).iter().enumerate() {
        let carried: Vec<(usize, &Job)> = work
            .jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| on.carries(&job.name))
            .collect();
        let jobs: Vec<&Job> = carried.iter().map(|(_, job)| *job).collect();
        let ranges = ranges(on.name, &jobs, on.target.size_bytes())?;
        for ((job, spec), (start, length)) in carried.into_iter().zip(ranges) {
            let told = |error: LabError| match error {
                LabError::Usage(text) => LabError::Usage(format!("job {}: {text}", spec.name)),
                other => other,
            };
            let seed = seed.wrapping_add(job as u64 * 1000);
            all.push(Prepared {
                job,
                place,
                target: on.target.part(start, length)?,
                processes: spec.processes(length, seed).map_err(told)?,
            });
        }
    }
    all.sort_by_key(|one| one.job);
    Ok(all)
}

/// Whether the jobs of the workload have room on the volumes that carry them.
///
/// # Errors
/// `Usage` with the volume or the job.
pub fn check_room(running: &Running, work: &Work) -> Result<(), LabError> {
    if work.kind == "jobs" {
        prepare(running, work, 0)?;
    }
    Ok(())
}

/// Runs the jobs.
pub(super) fn run(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let prepared = prepare(running, work, seed)?;
    let placed: Vec<(usize, usize)> = prepared.iter().map(|one| (one.job, one.place)).collect();
    let parts = prepared
        .into_iter()
        .map(|one| (one.target, one.processes))
        .collect();
    let mut sampler = running.sampler();
    let limit_ns = work.seconds.saturating_mul(1_000_000_000);
    let spawner = running.world.spawner();
    let outcomes = running
        .world
        .run(async move { run_together(&spawner, parts, Some(limit_ns)).await })??;
    let members = sampler.sample(running.world.clock().now_ns());
    let mut by_place = vec![Outcome::default(); places(running).len()];
    let mut all = Outcome::default();
    let mut figures = Vec::new();
    for ((job, place), outcome) in placed.iter().zip(&outcomes) {
        by_place[*place].add_beside(outcome);
        all.add_beside(outcome);
        let name = format!("{} requests", work.jobs[*job].name);
        figures.push(Figure::new(&name, outcome.requests_per_s(), "1/s"));
    }
    let logarithms: f64 = figures.iter().map(|one| one.value.max(1e-12).ln()).sum();
    let together = (logarithms / figures.len().max(1) as f64).exp();
    figures.insert(0, Figure::new("together", together, "1/s"));
    let mut seen = summarise(&all, members);
    seen.figures = figures;
    seen.classic = lines(work, &outcomes);
    seen.volumes = rows(running, work, &by_place, &seen.members)?;
    Ok(seen)
}

/// A line for each job.
fn lines(work: &Work, outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for (job, outcome) in work.jobs.iter().zip(outcomes) {
        let mut line = format!(
            "{}: {:.1} requests/s, {:.0} KiB/s",
            job.name,
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
        text += &line;
        text += "\n";
    }
    text
}

/// What each volume did.
fn rows(
    running: &Running,
    work: &Work,
    outcomes: &[Outcome],
    members: &[MemberRow],
) -> Result<Vec<VolumeRow>, LabError> {
    let all_jobs = names(work)?.unwrap_or_default();
    let mut rows = Vec::new();
    for (place, outcome) in places(running).iter().zip(outcomes) {
        let alone = match place.spec {
            Some(spec) => spec.alone(&running.setup),
            None => running.setup.clone(),
        };
        let is_own = |row: &&MemberRow| {
            place.spec.is_none_or(|spec| {
                let mut disks = spec.disks.iter();
                disks.any(|disk| row.device == format!("disk{disk}"))
            })
        };
        let busy: Vec<f64> = members
            .iter()
            .filter(is_own)
            .map(|row| row.busy_percent)
            .collect();
        let worth = Worth::of(&alone);
        let mut jobs = all_jobs.clone();
        jobs.retain(|job| place.carries(job));
        let round = |value: f64| (value * 10.0).round() / 10.0;
        rows.push(VolumeRow {
            name: place.name.to_owned(),
            what: short(&alone),
            jobs,
            requests_per_s: round(outcome.requests_per_s()),
            kib_per_s: round(outcome.bytes_per_s() / 1024.0),
            busy_percent: round(busy.iter().sum::<f64>() / busy.len().max(1) as f64),
            holds_gb: worth.map(|worth| worth.usable_gb().round()),
            survives_losses: worth.map(|worth| worth.losses),
        });
    }
    Ok(rows)
}

/// A job file of fio on volumes side by side: groups one after another, the jobs of each on the volumes that carry them.
pub(super) fn fio_beside(
    running: &Running,
    work: &Work,
    seed: u64,
) -> Result<Measurement, LabError> {
    let places = places(running);
    let mut groups = Vec::new();
    for place in &places {
        let size = place.target.size_bytes();
        groups.push(fio_groups_of(work, size, seed, |job| place.carries(job))?);
    }
    let mut sampler = running.sampler();
    let mut by_place = vec![Outcome::default(); places.len()];
    let (mut all, mut figures, mut classic) = (Outcome::default(), Vec::new(), String::new());
    // Every volume knows of every group, if only of its name.
    for number in 0..groups[0].len() {
        let (mut parts, mut on) = (Vec::new(), Vec::new());
        let (name, limit_ns) = (groups[0][number].name.clone(), groups[0][number].limit_ns);
        for (index, place) in places.iter().enumerate() {
            let processes = std::mem::take(&mut groups[index][number].processes);
            if !processes.is_empty() {
                parts.push((place.target.clone(), processes));
                on.push(index);
            }
        }
        let spawner = running.world.spawner();
        let outcomes = running
            .world
            .run(async move { run_together(&spawner, parts, limit_ns).await })??;
        let mut group = Outcome::default();
        for (index, outcome) in on.iter().zip(&outcomes) {
            by_place[*index].add(outcome);
            group.add_beside(outcome);
        }
        classic += &super::programs::fio_figures(&name, &group, &mut figures);
        all.add(&group);
    }
    let members = sampler.sample(running.world.clock().now_ns());
    // Of the whole run, whether a volume had something to do in each group or not.
    for outcome in &mut by_place {
        outcome.elapsed_ns = all.elapsed_ns;
    }
    let mut seen = summarise(&all, members);
    seen.figures = figures;
    seen.classic = classic;
    seen.notes = super::programs::fio_notes(work)?;
    seen.volumes = rows(running, work, &by_place, &seen.members)?;
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::Setup;
    use crate::work::measure;

    fn volume(name: &str, disks: &[usize], job: &str) -> VolumeBeside {
        VolumeBeside {
            name: name.to_owned(),
            disks: disks.to_vec(),
            jobs: vec![job.to_owned()],
            level: Some("1".to_owned()),
            ..VolumeBeside::default()
        }
    }

    fn mixed_disks() -> Setup {
        Setup {
            disks: ["nas-12t", "nas-12t", "ssd-sata"]
                .map(str::to_owned)
                .to_vec(),
            has_bitmap: false,
            strip_bytes: 64 << 10,
            ..Setup::default()
        }
    }

    fn beside() -> Setup {
        Setup {
            volumes: vec![
                volume("hdd", &[0, 1], "archive"),
                volume("ssd", &[2, 3], "database"),
            ],
            ..mixed_disks()
        }
    }

    fn work() -> Work {
        let database = Job {
            name: "database".to_owned(),
            kind: "random-write".to_owned(),
            range_bytes: 20 << 30,
            is_sync: true,
            ..Job::default()
        };
        let archive = Job {
            name: "archive".to_owned(),
            kind: "sequential-read".to_owned(),
            block_bytes: 1 << 20,
            processes: 1,
            range_bytes: 40 << 30,
            ..Job::default()
        };
        Work {
            kind: "jobs".to_owned(),
            jobs: vec![database, archive],
            seconds: 2,
            ..Work::default()
        }
    }

    fn figure(seen: &Measurement, name: &str) -> f64 {
        let found = seen.figures.iter().find(|figure| figure.name == name);
        found.expect("it is there").value
    }

    #[test]
    fn jobs_on_volumes_of_their_own_do_not_disturb_each_other_and_on_one_volume_they_do() {
        let (apart, one) = (
            measure(&beside(), &work(), 1).unwrap(),
            measure(&mixed_disks(), &work(), 1).unwrap(),
        );
        let names: Vec<&str> = apart.figures.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["together", "database requests", "archive requests"]);
        for name in names {
            let (apart, one) = (figure(&apart, name), figure(&one, name));
            assert!(apart > 1.5 * one, "{name}: {apart} {one}");
        }
        let mean =
            (figure(&apart, "database requests") * figure(&apart, "archive requests")).sqrt();
        assert!((figure(&apart, "together") / mean - 1.0).abs() < 1e-9);
        // The same jobs alone, on the same volumes: nothing is in their way.
        for (job, volume) in work().jobs.iter().zip([1, 0]) {
            let setup = beside();
            let alone = setup.volumes[volume].alone(&setup);
            let work = Work {
                jobs: vec![job.clone()],
                ..work()
            };
            let name = format!("{} requests", job.name);
            let alone = figure(&measure(&alone, &work, 1).unwrap(), &name);
            let seen = figure(&apart, &name);
            assert!((seen / alone - 1.0).abs() < 0.05, "{name}: {seen} {alone}");
        }
    }

    #[test]
    fn every_volume_tells_what_it_did_holds_and_survives() {
        let seen = measure(&beside(), &work(), 1).unwrap();
        let [hdd, ssd] = seen.volumes.as_slice() else {
            panic!("{:?}", seen.volumes)
        };
        assert_eq!(
            (hdd.name.as_str(), hdd.what.as_str()),
            ("hdd", "RAID-1 of 2")
        );
        assert_eq!(
            (&hdd.jobs[..], &ssd.jobs[..]),
            (&["archive".to_owned()][..], &["database".to_owned()][..])
        );
        assert!((hdd.requests_per_s - figure(&seen, "archive requests")).abs() < 0.1);
        assert!((hdd.kib_per_s / hdd.requests_per_s - 1024.0).abs() < 1.0);
        assert!(hdd.holds_gb.unwrap() > 20.0 * ssd.holds_gb.unwrap());
        assert_eq!(
            (hdd.survives_losses, ssd.survives_losses),
            (Some(1), Some(1))
        );
        assert!(
            hdd.busy_percent > 30.0 && ssd.busy_percent > 10.0,
            "{hdd:?} {ssd:?}"
        );
        let wrong = seen.inside.checks.iter().find(|check| !check.is_right);
        assert_eq!(wrong, None);
        let one = measure(&mixed_disks(), &work(), 1).unwrap();
        assert_eq!(one.volumes.len(), 1);
        assert_eq!(
            (one.volumes[0].name.as_str(), one.volumes[0].jobs.len()),
            ("all", 2)
        );
    }

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

    #[test]
    fn jobs_that_cannot_be_are_refused_by_name() {
        type Change = dyn Fn(&mut Work);
        let cases: [(&Change, &str); 8] = [
            (&|one| one.jobs.clear(), "[[work.jobs]]"),
            (&|one| one.jobs[0].name.clear(), "not \"\""),
            (
                &|one| one.jobs[0].name = "archive".to_owned(),
                "not \"archive\"",
            ),
            (
                &|one| one.jobs[0].kind = "bonnie".to_owned(),
                "\"bonnie\" of database",
            ),
            (&|one| one.jobs[0].depth = 0, "database: processes"),
            (&|one| one.range_bytes = 1 << 30, "range_bytes of its own"),
            (
                &|one| one.kind = "random-read".to_owned(),
                "not for random-read",
            ),
            (&|one| one.jobs[0].range_bytes = 1 << 40, "volume ssd has"),
        ];
        for (change, told) in cases {
            let mut work = work();
            change(&mut work);
            let error = measure(&beside(), &work, 1).unwrap_err().to_string();
            assert!(error.contains(told), "{told}: {error}");
        }
        let other = Work::default();
        let error = measure(&beside(), &other, 1).unwrap_err().to_string();
        assert!(error.contains("jobs or fio"), "{error}");
    }

    #[test]
    fn jobs_of_fio_run_on_the_volumes_that_carry_them() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "[global]\nbs=4k\nsize=1m\nioengine=libaio\n[archive]\nrw=read\n[database]\nrw=randwrite\n\
                    [later]\nstonewall\nrw=randread\n";
        std::fs::write(file.path(), text).unwrap();
        let work = Work {
            kind: "fio".to_owned(),
            file: file.path().display().to_string(),
            ..Work::default()
        };
        let mut setup = beside();
        setup.volumes[1].jobs.push("later".to_owned());
        let seen = measure(&setup, &work, 1).unwrap();
        let names: Vec<&str> = seen.figures.iter().map(|one| one.name.as_str()).collect();
        let expected = [
            "archive+database read",
            "archive+database write",
            "later read",
        ];
        assert_eq!(names, expected);
        let moved = |disks: std::ops::Range<usize>| {
            let rows = seen.members[disks].iter();
            rows.map(|row| row.read_kib_per_s + row.written_kib_per_s)
                .sum::<f64>()
        };
        assert!(moved(0..2) > 0.0 && moved(2..4) > 0.0, "{:?}", seen.members);
        assert_eq!(seen.reads.count + seen.writes.count, 3 * 256);
        assert_eq!(seen.volumes[1].jobs, ["database", "later"]);
        setup.volumes[1].jobs.pop();
        let error = measure(&setup, &work, 1).unwrap_err().to_string();
        assert!(error.contains("none carries the job later"), "{error}");
    }
}
