//! Programs with several parts: iozone, fio job files, traces.

use super::phases::{iozone_runs, iozone_tests};
use super::{Figure, Measurement, Work, summarise};
use crate::error::LabError;
use crate::setup::Running;
use crate::workload::{Outcome, Process, fio, iozone, run_processes, trace};

/// File of iozone when nothing else is said.
pub(super) const FILE_BYTES: u64 = 100 << 20;

pub(super) fn read_file(work: &Work) -> Result<String, LabError> {
    std::fs::read_to_string(&work.file)
        .map_err(|error| LabError::Usage(format!("{}: \"{}\": {error}", work.kind, work.file)))
}

fn run(
    running: &Running,
    processes: Vec<Process>,
    limit_ns: Option<u64>,
) -> Result<Outcome, LabError> {
    let (target, spawner) = (running.target.clone(), running.world.spawner());
    running
        .world
        .run(async move { run_processes(&spawner, &target, processes, limit_ns).await })?
}

/// The thirteen tests, one after another.
pub(super) fn iozone(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let size_bytes = running.target.size_bytes();
    let runs = iozone_runs(work, size_bytes)?;
    let mut sampler = running.sampler();
    let mut all = Outcome::default();
    let (mut figures, mut rates) = (Vec::new(), Vec::new());
    for (name, requests) in iozone_tests(work, size_bytes, seed)? {
        let outcome = run(running, vec![requests], None)?;
        let rate = outcome.bytes_per_s() / 1024.0;
        figures.push(Figure::new(&name, rate, "KiB/s"));
        rates.push(rate);
        all.add(&outcome);
    }
    let members = sampler.sample(running.world.clock().now_ns());
    let mut measurement = summarise(&all, members);
    measurement.figures = figures;
    measurement.classic = iozone::classic(&runs, &rates);
    Ok(measurement)
}

/// Jobs that run at the same time, and their common limit.
pub(super) struct Group {
    /// Names of the jobs.
    pub(super) name: String,
    /// Their processes.
    pub(super) processes: Vec<Process>,
    /// No request starts later.
    pub(super) limit_ns: Option<u64>,
}

/// The groups of a job file, all checked before anything runs.
pub(super) fn fio_groups(work: &Work, size_bytes: u64, seed: u64) -> Result<Vec<Group>, LabError> {
    let file = fio::parse(&read_file(work)?, Some(size_bytes))?;
    let mut prepared = Vec::new();
    for group in fio::groups(file.jobs) {
        let mut processes = Vec::new();
        let (starts, _) = fio::starts(&group);
        for (index, (job, start)) in group.iter().zip(starts).enumerate() {
            let seed = seed.wrapping_add(index as u64 * 1000);
            processes.extend(fio::processes(job, start, size_bytes, seed)?);
        }
        let limit = group.iter().filter_map(|job| job.runtime).max();
        prepared.push(Group {
            name: fio::group_name(group.iter().map(|job| job.name.as_str())),
            processes,
            limit_ns: limit.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)),
        });
    }
    Ok(prepared)
}

/// Bytes that the files of the largest group take.
pub(super) fn fio_bytes(work: &Work) -> Result<u64, LabError> {
    let groups = fio::groups(fio::parse(&read_file(work)?, None)?.jobs);
    let sums = groups.iter().map(|group| fio::starts(group).1);
    Ok(sums.max().unwrap_or(0))
}

/// What a reader of a job file's figures should know.
pub(super) fn fio_notes(work: &Work) -> Result<Vec<String>, LabError> {
    Ok(fio::parse(&read_file(work)?, Some(u64::MAX >> 1))?.notes())
}

/// Figures of one group, and its lines as fio prints them.
pub(super) fn fio_figures(name: &str, outcome: &Outcome, figures: &mut Vec<Figure>) -> String {
    let mut classic = String::new();
    for (word, latencies) in [
        ("read", &outcome.traffic.reads),
        ("write", &outcome.traffic.writes),
    ] {
        if latencies.count() == 0 {
            continue;
        }
        let iops = latencies.count() as f64 / outcome.seconds();
        let kib = latencies.bytes() as f64 / 1024.0 / outcome.seconds();
        figures.push(Figure::new(&format!("{name} {word}"), kib, "KiB/s"));
        let summary = latencies.summary();
        classic += &format!(
            "{name}:\n  {word}: IOPS={iops:.0}, BW={kib:.0}KiB/s ({:.0}MiB/{:.0}msec)\n    lat (usec): max={:.0}, avg={:.2}\n",
            latencies.bytes() as f64 / 1_048_576.0,
            outcome.seconds() * 1e3,
            summary.max_us,
            summary.mean_us
        );
    }
    classic
}

/// A job file: jobs that do not wait for the ones before run at the same time.
pub(super) fn fio(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let groups = fio_groups(work, running.target.size_bytes(), seed)?;
    let mut sampler = running.sampler();
    let mut all = Outcome::default();
    let (mut figures, mut classic) = (Vec::new(), String::new());
    for group in groups {
        let outcome = run(running, group.processes, group.limit_ns)?;
        classic += &fio_figures(&group.name, &outcome, &mut figures);
        all.add(&outcome);
    }
    let members = sampler.sample(running.world.clock().now_ns());
    let mut measurement = summarise(&all, members);
    measurement.figures = figures;
    measurement.classic = classic;
    measurement.notes = fio_notes(work)?;
    Ok(measurement)
}

/// A trace.
pub(super) fn trace(running: &Running, work: &Work) -> Result<Measurement, LabError> {
    let entries = trace::parse(&read_file(work)?, running.target.size_bytes())?;
    let mut sampler = running.sampler();
    let (target, spawner) = (running.target.clone(), running.world.spawner());
    let outcome = running
        .world
        .run(async move { trace::replay(&spawner, &target, entries).await })??;
    let members = sampler.sample(running.world.clock().now_ns());
    Ok(summarise(&outcome, members))
}
