//! Programs with several parts: iozone, fio job files, traces; and jobs at the same time.

use super::Work;
use super::job_file::{fio_groups, fio_groups_of, fio_notes, job_names, read_file};
use super::measurement::{Figure, Measurement, summarise};
use super::phases::{iozone_runs, iozone_tests};
use crate::error::LabError;
use crate::setup::running::Running;
use crate::workload::jobs::{self as job_list, Carrier, JobsRun};
use crate::workload::{Outcome, Process, iozone, run_processes, run_together, trace};

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
    if !running.beside.is_empty() {
        return fio_beside(running, work, seed);
    }
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

/// Adds what each volume did.
fn add_volumes(
    seen: &mut Measurement,
    work: &Work,
    carriers: &[Carrier],
    outcomes: &[Outcome],
) -> Result<(), LabError> {
    let names = job_names(work)?.unwrap_or_default();
    let each = carriers.iter().zip(outcomes);
    let rows = each.map(|(carrier, outcome)| carrier.row(&names, outcome, &seen.members));
    seen.volumes = rows.collect();
    Ok(())
}

/// Jobs at the same time, each on the volume that carries it.
pub(super) fn jobs(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let carriers = running.carriers();
    let mut sampler = running.sampler();
    let run = JobsRun {
        jobs: &work.jobs,
        seconds: work.seconds,
        seed,
    };
    let done = job_list::run(&running.world, &carriers, run)?;
    let members = sampler.sample(running.world.clock().now_ns());
    let mut seen = summarise(&done.all, members);
    let figure = |(job, outcome): (&job_list::Job, &Outcome)| {
        let name = format!("{} requests", job.name);
        Figure::new(&name, outcome.requests_per_s(), "1/s")
    };
    seen.figures = vec![Figure::new("together", done.together(), "1/s")];
    seen.figures
        .extend(work.jobs.iter().zip(&done.jobs).map(figure));
    seen.classic = done.lines(&work.jobs);
    add_volumes(&mut seen, work, &carriers, &done.carriers)?;
    Ok(seen)
}

/// A job file on volumes side by side: groups one after another, the jobs of each on the volumes that carry them.
fn fio_beside(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let carriers = running.carriers();
    let mut groups = Vec::new();
    for carrier in &carriers {
        let size = carrier.target.size_bytes();
        groups.push(fio_groups_of(work, size, seed, |job| carrier.carries(job))?);
    }
    let mut sampler = running.sampler();
    let mut of_carriers = vec![Outcome::default(); carriers.len()];
    let (mut all, mut figures, mut classic) = (Outcome::default(), Vec::new(), String::new());
    // Every volume knows of every group, if only of its name.
    for number in 0..groups[0].len() {
        let (mut parts, mut on) = (Vec::new(), Vec::new());
        let (name, limit_ns) = (groups[0][number].name.clone(), groups[0][number].limit_ns);
        for (index, carrier) in carriers.iter().enumerate() {
            let processes = std::mem::take(&mut groups[index][number].processes);
            if !processes.is_empty() {
                parts.push((carrier.target.clone(), processes));
                on.push(index);
            }
        }
        let spawner = running.world.spawner();
        let outcomes = running
            .world
            .run(async move { run_together(&spawner, parts, limit_ns).await })??;
        let mut group = Outcome::default();
        for (index, outcome) in on.iter().zip(&outcomes) {
            of_carriers[*index].add(outcome);
            group.add_beside(outcome);
        }
        classic += &fio_figures(&name, &group, &mut figures);
        all.add(&group);
    }
    let members = sampler.sample(running.world.clock().now_ns());
    // Of the whole run, whether a volume had something to do in each group or not.
    for outcome in &mut of_carriers {
        outcome.elapsed_ns = all.elapsed_ns;
    }
    let mut seen = summarise(&all, members);
    seen.figures = figures;
    seen.classic = classic;
    seen.notes = fio_notes(work)?;
    add_volumes(&mut seen, work, &carriers, &of_carriers)?;
    Ok(seen)
}
