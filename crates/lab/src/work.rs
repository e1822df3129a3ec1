//! One measurement: a workload on an arrangement, with figures, latencies and what each member did.

mod phases;
pub mod program;
mod programs;
pub mod real;
mod rebuild;

use serde::{Deserialize, Serialize};

use crate::array::Mode;
use crate::error::LabError;
use crate::host::{HostFile, HostSpec};
use crate::inside::{Inside, Recorder};
use crate::iostat::MemberRow;
use crate::setup::{Running, Setup, beside};
use crate::stats::LatencySummary;
use crate::workload::bonnie::{self, BonnieFigures};
use crate::workload::files::{self, FilePhase};
use crate::workload::jobs::{self, Job, VolumeRow};
use crate::workload::rawio::{self, Mix, Rawio, Test};
use crate::workload::{Operation, Outcome, Process, dd, mixed, run_processes, superblocks};

/// A workload with its options. What a kind does not use is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Work {
    /// `rawio`, `dd-read`, `dd-write`, `random-dd`, `random-read`, `random-write`, `mixed`, `sequential-read`,
    /// `sequential-write`, `superblocks`, `rebuild`, `rebuild-load`, `bonnie`, `bonnie++`,
    /// `iozone`, `fio`, `trace`, `jobs`.
    pub kind: String,
    /// Length of a request.
    pub block_bytes: u64,
    /// Processes.
    pub processes: usize,
    /// Requests under way of each.
    pub depth: usize,
    /// Requests of each process.
    pub requests: u64,
    /// Reads in a hundred, for `mixed` and `superblocks`.
    pub read_percent: u64,
    /// Bytes of a cylinder group, for `superblocks`.
    pub group_bytes: u64,
    /// Range of the volume that is used; 0 = all.
    pub range_bytes: u64,
    /// Whether each write is durable before it counts.
    pub is_sync: bool,
    /// rawio: the lengths of the Vinum measurements.
    pub has_vinum_mix: bool,
    /// `fio`: the job file; `trace`: the trace.
    pub file: String,
    /// Host between `bonnie` and a simulated volume (`HOSTS`); empty: the first one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// `bonnie++` in a folder: files of its six phases with many of them, in units of 1024; 0 = without these phases.
    #[serde(skip_serializing_if = "is_zero")]
    pub files: u64,
    /// Bytes in each of these files, at most.
    #[serde(skip_serializing_if = "is_zero")]
    pub files_bytes: u64,
    /// The same at least, 0 as in the program; above `files_bytes`: as many as that.
    #[serde(skip_serializing_if = "is_zero")]
    pub files_bytes_min: u64,
    /// Folders that they are spread over, all of them made, also for fewer files; 0: all in one.
    #[serde(skip_serializing_if = "is_zero")]
    pub file_folders: u64,
    /// `iozone`: all files from 64 KiB to `range_bytes` with all records, as its `-a`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_auto: bool,
    /// `jobs`: what runs at the same time.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<Job>,
    /// `jobs`: for so long, in virtual seconds.
    #[serde(skip_serializing_if = "is_usual_time")]
    pub seconds: u64,
}

/// Virtual seconds that `jobs` run for unless another time is said.
const SECONDS: u64 = 10;

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_usual_time(seconds: &u64) -> bool {
    *seconds == SECONDS
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl Default for Work {
    fn default() -> Self {
        Self {
            kind: "random-read".to_owned(),
            block_bytes: 4096,
            processes: 4,
            depth: 1,
            requests: 500,
            read_percent: 70,
            group_bytes: superblocks::GROUP_BYTES,
            range_bytes: 0,
            is_sync: false,
            has_vinum_mix: false,
            file: String::new(),
            host: String::new(),
            files: 0,
            files_bytes: 0,
            files_bytes_min: 0,
            file_folders: 0,
            is_auto: false,
            jobs: Vec::new(),
            seconds: SECONDS,
        }
    }
}

/// One number that a workload gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name.
    pub name: String,
    /// Value; higher is better.
    pub value: f64,
    /// Unit.
    pub unit: String,
}

impl Figure {
    pub(crate) fn new(name: &str, value: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
        }
    }
}

impl BonnieFigures {
    /// As figures of a measurement.
    pub(crate) fn list(&self) -> Vec<Figure> {
        vec![
            Figure::new("block write", self.block_write_kib_per_s, "KiB/s"),
            Figure::new("rewrite", self.rewrite_kib_per_s, "KiB/s"),
            Figure::new("block read", self.block_read_kib_per_s, "KiB/s"),
            Figure::new("seeks", self.seeks_per_s, "1/s"),
        ]
    }
}

/// What a measurement gave.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measurement {
    /// Figures, the main one first.
    pub figures: Vec<Figure>,
    /// Latencies of reads and writes.
    pub reads: LatencySummary,
    /// The same of writes.
    pub writes: LatencySummary,
    /// Members.
    pub members: Vec<MemberRow>,
    /// Jain's fairness over the processes.
    pub fairness: f64,
    /// The volumes and what each did, where jobs were shared out to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRow>,
    /// bonnie++'s phases with many files, where they ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FilePhase>,
    /// The look of the classic program, where there is one.
    pub classic: String,
    /// Time it took: virtual on simulated disks.
    pub elapsed_s: f64,
    /// What a reader of the figures should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Distributions, disks over time, and whether the books of the layers agree.
    pub inside: Inside,
}

/// Hosts that are modelled (`HostSpec`).
pub const HOSTS: [&str; 2] = ["ufs-1999", "ext2-1999"];

/// Most files, in units of 1024: more than a file system in use has.
const FILES_MAX: u64 = 1 << 20;
/// Most folders of them, as in the program: their names have five digits.
const FOLDERS_MAX: u64 = 99_999;

/// What is said where bonnie++'s phases with many files were asked for and cannot be.
fn without_files(work: &Work) -> Vec<String> {
    let is_asked = work.kind == "bonnie++" && work.files > 0;
    let text = "bonnie++'s phases with many files are left out: they need a file system, a folder after --on";
    is_asked.then(|| text.to_owned()).into_iter().collect()
}

impl Measurement {
    /// Adds bonnie++'s phases with `count` files each.
    fn add_files(&mut self, name: &str, count: u64, phases: Vec<FilePhase>) {
        for phase in &phases {
            self.figures
                .push(Figure::new(phase.name, phase.files_per_s, "files/s"));
            self.elapsed_s += count as f64 / phase.files_per_s;
        }
        self.classic += &format!("\n{}", files::classic(name, count, &phases));
        self.files = phases;
    }
}

/// All kinds with a line about each.
pub const KINDS: [(&str, &str); 18] = [
    ("random-read", "reads of one length anywhere"),
    ("random-write", "writes of one length anywhere"),
    ("mixed", "reads and writes of one length anywhere"),
    ("sequential-read", "each process forward in its own part"),
    ("sequential-write", "each process forward in its own part"),
    (
        "superblocks",
        "heads of 8 KiB of random cylinder groups of `group_bytes` (32 MiB), read and updated",
    ),
    ("rawio", "the four tests of rawio"),
    ("dd-read", "one request after another, forward"),
    ("dd-write", "the same, writing"),
    ("random-dd", "one read at a time, each by a new process"),
    (
        "rebuild",
        "a member is lost and filled again; member_bytes of the arrangement bounds it",
    ),
    (
        "rebuild-load",
        "the same while `processes` read `block_bytes` anywhere",
    ),
    (
        "bonnie",
        "bonnie on a file of range_bytes (100 MiB) through a host of 1999 (`host`)",
    ),
    (
        "bonnie++",
        "the same of bonnie++; in a folder also its six phases with `files` times 1024 files",
    ),
    (
        "iozone",
        "thirteen tests with records of block_bytes on a file of range_bytes (100 MiB)",
    ),
    ("fio", "a fio job file (a subset; `file`)"),
    ("trace", "a block trace, replayed (`file`)"),
    (
        "jobs",
        "several of the first five at the same time, described in an experiment; on volumes of their own where it has some",
    ),
];

impl Work {
    /// How many bytes of `place` it uses, which has `size_bytes`: what was asked for, or all.
    ///
    /// # Errors
    /// `Usage` when more was asked for than there is.
    pub(crate) fn used_bytes(&self, place: &str, size_bytes: u64) -> Result<u64, LabError> {
        match self.range_bytes {
            0 => Ok(size_bytes),
            bytes if bytes <= size_bytes => Ok(bytes),
            bytes => Err(LabError::Usage(format!(
                "the workload wants {bytes} bytes, {place} has {size_bytes}"
            ))),
        }
    }

    /// Jobs belong to their kind alone, and what is of all workloads is said for each of them.
    fn check_jobs(&self) -> Result<(), LabError> {
        let refused = |text: String| Err(LabError::Usage(format!("jobs: {text}")));
        match (self.kind.as_str(), self.jobs.is_empty()) {
            ("jobs", _) if self.range_bytes > 0 => {
                refused("each has a range_bytes of its own".to_owned())
            }
            ("jobs", _) => jobs::check(&self.jobs, self.seconds),
            (_, true) => Ok(()),
            (kind, false) => refused(format!("they are for kind = \"jobs\", not for {kind}")),
        }
    }

    /// Checks what needs no volume.
    ///
    /// # Errors
    /// `Usage` for a workload that does not exist, or that would do nothing.
    pub fn check(&self) -> Result<(), LabError> {
        if !KINDS.iter().any(|(kind, _)| *kind == self.kind) {
            let names: Vec<&str> = KINDS.iter().map(|(kind, _)| *kind).collect();
            return Err(LabError::Usage(format!(
                "\"{}\" is no workload; there are: {}",
                self.kind,
                names.join(", ")
            )));
        }
        if !self.host.is_empty() && !HOSTS.contains(&self.host.as_str()) {
            return Err(LabError::Usage(format!(
                "\"{}\" is no host; there are: {}",
                self.host,
                HOSTS.join(", ")
            )));
        }
        let small_bytes_max = 1 << 30;
        if self.files > FILES_MAX || self.files_bytes > small_bytes_max {
            return Err(LabError::Usage(format!(
                "{} times 1024 files of {} bytes; at most {FILES_MAX} of {small_bytes_max}",
                self.files, self.files_bytes
            )));
        }
        if self.file_folders > FOLDERS_MAX {
            return Err(LabError::Usage(format!(
                "{} folders; at most {FOLDERS_MAX}",
                self.file_folders
            )));
        }
        if self.is_auto && self.kind != "iozone" {
            return Err(LabError::Usage("--auto is for iozone".to_owned()));
        }
        self.check_jobs()?;
        if self.requests == 0 || self.processes == 0 || self.depth == 0 || self.seconds == 0 {
            return Err(LabError::Usage(
                "requests, processes, depth and seconds are at least 1".to_owned(),
            ));
        }
        Ok(())
    }
}

/// Whether jobs at the same time have room on the volumes that carry them.
///
/// # Errors
/// `Usage` with the volume or the job.
pub fn check_room(running: &Running, work: &Work) -> Result<(), LabError> {
    match work.kind.as_str() {
        "jobs" => jobs::check_room(&running.carriers(), &work.jobs),
        _ => Ok(()),
    }
}

/// Whether the volumes of an arrangement carry the jobs of the workload, each exactly once.
///
/// # Errors
/// `Usage` with the job, or for a workload without jobs.
pub fn check_assignment(setup: &Setup, work: &Work) -> Result<(), LabError> {
    if setup.volumes.is_empty() {
        return Ok(());
    }
    let names = programs::job_names(work)?.ok_or_else(|| {
        LabError::Usage(format!(
            "volumes side by side share out jobs: kind = jobs or fio, not {}",
            work.kind
        ))
    })?;
    if work.range_bytes > 0 {
        let text = "range_bytes is of one volume; jobs side by side have a range or a size each";
        return Err(LabError::Usage(text.to_owned()));
    }
    beside::check_jobs(&setup.volumes, &names)
}

/// Runs the workload once.
///
/// # Errors
/// `Usage` for an arrangement or a workload that cannot be, before anything runs.
pub fn measure(setup: &Setup, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    work.check()?;
    if !setup.on.is_empty() {
        let name = &setup.on;
        let destroy = setup.destroy.iter().find(|named| *named == name);
        let destroy = destroy.map(String::as_str);
        return real::measure_on(&real::On { name, destroy }, work, seed);
    }
    if !setup.system.is_empty() {
        let text = "volumes are built by experiments: put it into a file, plexum lab run FILE";
        return Err(LabError::Usage(text.to_owned()));
    }
    measure_in(setup, work, seed, Mode::Timing)
}

/// Runs the workload once on simulated disks; in data mode they keep every byte, and the figures are the same.
///
/// # Errors
/// As `measure`.
pub fn measure_in(
    setup: &Setup,
    work: &Work,
    seed: u64,
    mode: Mode,
) -> Result<Measurement, LabError> {
    work.check()?;
    check_assignment(setup, work)?;
    let spares = usize::from(work.kind.starts_with("rebuild"));
    let mut running = setup.start(seed, spares, mode)?;
    let size = running.target.size_bytes();
    let used = work.used_bytes("the volume", size)?;
    if work.range_bytes > 0 {
        running.target = running.target.part(0, used)?;
    }
    let recorder = Recorder::start(&running);
    let seen = run_kind(&running, work, seed);
    // Rebuilds lose a member because they are told to.
    if !work.kind.starts_with("rebuild") {
        check_members(&running, seen.as_ref().err())?;
    }
    let mut seen = seen?;
    recorder.end(&running, &mut seen.inside);
    Ok(seen)
}

/// A run in which a member left is none: its figures are those of a volume with fewer members.
///
/// # Errors
/// `MemberLost` with the members and why they left, and with what the run failed with, if it did.
fn check_members(running: &Running, failed: Option<&LabError>) -> Result<(), LabError> {
    let lost = running.lost_members();
    if lost.is_empty() {
        return Ok(());
    }
    let after_s = running.world.clock().now_ns() / 1_000_000_000;
    let lost = lost.join(", ");
    let mut text =
        format!("no result: members left the volume while it was measured ({after_s} s): {lost}");
    if let Some(error) = failed {
        text += &format!("; then {error}");
    }
    Err(LabError::MemberLost(text))
}

fn run_kind(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    match work.kind.as_str() {
        "rawio" => run_rawio(running, work, seed),
        "bonnie" | "bonnie++" => run_bonnie(running, work, seed),
        "iozone" => programs::iozone(running, work, seed),
        "fio" => programs::fio(running, work, seed),
        "trace" => programs::trace(running, work),
        "jobs" => programs::jobs(running, work, seed),
        "rebuild" | "rebuild-load" => rebuild::run(running, work, seed),
        _ => run_requests(running, work, seed),
    }
}

/// What a request of a kind does; of `mixed` what those do that are no reads.
fn operation_of(kind: &str, is_sync: bool) -> Operation {
    match (kind.ends_with("write") || kind == "mixed", is_sync) {
        (false, _) => Operation::Read,
        (true, false) => Operation::Write,
        (true, true) => Operation::WriteThrough,
    }
}

fn processes(work: &Work, size_bytes: u64, seed: u64) -> Result<Vec<Process>, LabError> {
    let operation = operation_of(&work.kind, work.is_sync);
    match work.kind.as_str() {
        "dd-read" | "dd-write" => Ok(vec![Process::single(dd::sequential(
            operation,
            work.block_bytes,
            work.requests,
            size_bytes,
        )?)]),
        "random-dd" => Ok(vec![Process::single(dd::random(
            work.block_bytes,
            work.requests,
            size_bytes,
            seed,
        )?)]),
        "superblocks" => superblocks::processes(
            &superblocks::Shape {
                group_bytes: work.group_bytes,
                update: match work.is_sync {
                    true => Operation::WriteThrough,
                    false => Operation::Write,
                },
                read_percent: work.read_percent,
                process_count: work.processes,
                depth: work.depth,
                request_count: work.requests,
            },
            size_bytes,
            seed,
        ),
        kind => mixed::processes(
            &mixed::Shape {
                operation,
                read_percent: (kind == "mixed").then_some(work.read_percent),
                is_random: !kind.starts_with("sequential"),
                block_bytes: work.block_bytes,
                process_count: work.processes,
                depth: work.depth,
                request_count: work.requests,
            },
            size_bytes,
            seed,
        ),
    }
}

fn summarise(outcome: &Outcome, members: Vec<MemberRow>) -> Measurement {
    Measurement {
        figures: vec![
            Figure::new("requests", outcome.requests_per_s(), "1/s"),
            Figure::new("rate", outcome.bytes_per_s() / 1024.0, "KiB/s"),
        ],
        reads: outcome.traffic.reads.summary(),
        writes: outcome.traffic.writes.summary(),
        members,
        fairness: outcome.fairness(),
        volumes: Vec::new(),
        files: Vec::new(),
        classic: String::new(),
        elapsed_s: outcome.seconds(),
        notes: Vec::new(),
        inside: Inside::of(&outcome.traffic, outcome.elapsed_ns),
    }
}

fn run_requests(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let processes = processes(work, running.target.size_bytes(), seed)?;
    let mut sampler = running.sampler();
    let (target, spawner) = (running.target.clone(), running.world.spawner());
    let outcome = running
        .world
        .run(async move { run_processes(&spawner, &target, processes, None).await })??;
    let members = sampler.sample(running.world.clock().now_ns());
    let mut measurement = summarise(&outcome, members);
    if work.kind.contains("dd") {
        measurement.classic = dd::classic(&outcome);
    }
    if work.kind == "superblocks" {
        show_placement(&mut measurement);
    }
    Ok(measurement)
}

/// How evenly the members were used: 100 % when all did as many requests, 25 % when one of four did them all.
fn show_placement(seen: &mut Measurement) {
    let of_one = |row: &MemberRow| row.reads_per_s + row.writes_per_s;
    let sum: f64 = seen.members.iter().map(of_one).sum();
    let by_requests = |a: &&MemberRow, b: &&MemberRow| of_one(a).total_cmp(&of_one(b));
    let Some(busiest) = seen.members.iter().max_by(by_requests) else {
        return;
    };
    if sum <= 0.0 {
        return;
    }
    let count = seen.members.len() as f64;
    let share = of_one(busiest) / sum;
    seen.classic = format!(
        "busiest member: {}, {:.1} % of the requests of all {count}\n",
        busiest.device,
        share * 100.0
    );
    let evenness = Figure::new("evenness", 100.0 / (share * count), "%");
    seen.figures.push(evenness);
}

fn rawio_of(work: &Work, seed: u64) -> Rawio {
    Rawio {
        process_count: work.processes,
        request_count: work.requests,
        mix: if work.has_vinum_mix {
            Mix::Vinum
        } else {
            Mix::Uniform
        },
        seed,
    }
}

fn run_rawio(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let rawio = rawio_of(work, seed);
    let mut sampler = running.sampler();
    let mut all = Outcome::default();
    let mut figures = Vec::new();
    let mut pairs = [(0.0, 0.0); 4];
    for (index, test) in Test::ALL.into_iter().enumerate() {
        let processes = rawio.processes(test, running.target.size_bytes())?;
        let (target, spawner) = (running.target.clone(), running.world.spawner());
        let outcome = running
            .world
            .run(async move { run_processes(&spawner, &target, processes, None).await })??;
        pairs[index] = (outcome.bytes_per_s() / 1024.0, outcome.requests_per_s());
        figures.push(Figure::new(test.name(), pairs[index].0, "KiB/s"));
        all.add(&outcome);
    }
    let members = sampler.sample(running.world.clock().now_ns());
    let mut measurement = summarise(&all, members);
    measurement.figures = figures;
    measurement.classic = rawio::classic(&[("volume".to_owned(), pairs)]);
    Ok(measurement)
}

fn run_bonnie(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let file_bytes = if work.range_bytes > 0 {
        work.range_bytes
    } else {
        100 << 20
    };
    let target = running.target.part(0, file_bytes)?;
    let host = match work.host.as_str() {
        "ext2-1999" => HostSpec::ext2_1999(work.block_bytes),
        _ => HostSpec::ufs_1999(),
    };
    let file = HostFile::new(host, target, running.world.spawner());
    let workload = phases::bonnie_of(work, seed);
    let mut sampler = running.sampler();
    let started = running.world.clock().now_ns();
    let spawner = running.world.spawner();
    let figures = running
        .world
        .run(async move { workload.run(&spawner, &file).await })??;
    let now = running.world.clock().now_ns();
    Ok(Measurement {
        figures: figures.list(),
        members: sampler.sample(now),
        classic: bonnie::classic(&[("volume".to_owned(), figures)]),
        elapsed_s: (now - started) as f64 / 1e9,
        fairness: 1.0,
        notes: without_files(work),
        ..Measurement::default()
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::rc::Rc;

    use super::*;

    fn rate(setup: &Setup, work: &Work) -> f64 {
        let seen = measure(setup, work, 1).unwrap();
        let rate = seen.figures.iter().find(|figure| figure.unit == "KiB/s");
        rate.unwrap().value * 1024.0
    }

    #[test]
    fn a_bus_bounds_what_its_disks_give_together() {
        let free = Setup {
            level: "0".to_owned(),
            ..Setup::default()
        };
        let shared = Setup {
            buses: vec![40e6],
            ..free.clone()
        };
        let split = Setup {
            buses: vec![40e6, 40e6],
            bus_of: vec![0, 0, 1],
            ..free.clone()
        };
        let work = Work {
            kind: "sequential-read".to_owned(),
            block_bytes: 1 << 20,
            requests: 50,
            ..Work::default()
        };
        let (free, shared, split) = (
            rate(&free, &work),
            rate(&shared, &work),
            rate(&split, &work),
        );
        assert!(free > 90e6, "{free}");
        assert!((30e6..=40e6).contains(&shared), "{shared}");
        assert!((60e6..=80e6).contains(&split), "{split}");
    }

    #[test]
    fn a_bus_or_host_that_is_not_there_is_refused_by_name() {
        let refused = |setup: &Setup, work: &Work| measure(setup, work, 1).unwrap_err().to_string();
        let work = Work::default();
        let setup = Setup {
            buses: vec![40e6],
            bus_of: vec![0, 1],
            ..Setup::default()
        };
        let told = refused(&setup, &work);
        assert!(told.contains("no bus 1"), "{told}");
        let setup = Setup {
            buses: vec![0.0],
            ..Setup::default()
        };
        assert!(refused(&setup, &work).contains("no rate"));
        let work = Work {
            kind: "bonnie".to_owned(),
            host: "os2".to_owned(),
            ..Work::default()
        };
        let told = refused(&Setup::default(), &work);
        assert!(told.contains("os2") && told.contains("ext2-1999"), "{told}");
    }

    #[test]
    fn the_host_decides_what_bonnie_sees() {
        let work = |host: &str, block_bytes| Work {
            kind: "bonnie".to_owned(),
            host: host.to_owned(),
            block_bytes,
            range_bytes: 16 << 20,
            ..Work::default()
        };
        let setup = Setup::default();
        let (large, small) = (
            rate(&setup, &work("ext2-1999", 4096)),
            rate(&setup, &work("ext2-1999", 1024)),
        );
        assert!(
            large > 1.3 * small,
            "a block costs time of the processor: {large} {small}"
        );
        assert!(
            (rate(&setup, &work("", 4096)) - rate(&setup, &work("ufs-1999", 1024))).abs() < 1e-6
        );
    }

    #[test]
    fn a_run_in_which_a_member_left_is_no_result_and_says_who_left_and_why() {
        let setup = Setup {
            level: "1".to_owned(),
            members: 2,
            ..Setup::default()
        };
        let running = setup.start(1, 0, Mode::Timing).unwrap();
        assert!(check_members(&running, None).is_ok());
        let volume = Rc::clone(running.volume.as_ref().unwrap());
        let lost = volume.status().members[0].id;
        let failing = async move { volume.fail(lost).await.is_ok() };
        assert!(running.world.run(failing).unwrap());
        let error = check_members(&running, None).unwrap_err();
        assert!(matches!(error, LabError::MemberLost(_)));
        let told = error.to_string();
        assert!(
            told.contains("no result") && told.contains("disk0 ("),
            "{told}"
        );
    }

    #[test]
    fn long_random_writes_to_a_mirror_lose_no_member() {
        let setup = Setup {
            level: "1".to_owned(),
            members: 2,
            disks: vec!["nas-12t".to_owned()],
            ..Setup::default()
        };
        let work = Work {
            kind: "random-write".to_owned(),
            depth: 16,
            requests: 3000,
            range_bytes: 40 << 30,
            ..Work::default()
        };
        let seen = measure(&setup, &work, 1).unwrap();
        assert!(seen.writes.max_us < 20e6, "{} us", seen.writes.max_us);
        let rates: Vec<f64> = seen.members.iter().map(|row| row.writes_per_s).collect();
        assert!((rates[0] / rates[1] - 1.0).abs() < 0.05, "{rates:?}");
    }

    /// A run of requests that nobody records.
    pub(crate) fn requests_alone(running: &Running, work: &Work, seed: u64) -> Measurement {
        run_kind(running, work, seed).unwrap()
    }
}
