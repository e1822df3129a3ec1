//! Programs with several parts: iozone, fio job files, traces.

use super::{Figure, Measurement, Work, summarise};
use crate::error::LabError;
use crate::setup::Running;
use crate::workload::{Outcome, Process, fio, iozone, run_processes, trace};

/// File of iozone when nothing else is said.
const FILE_BYTES: u64 = 100 << 20;

fn read_file(work: &Work) -> Result<String, LabError> {
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
    let file_bytes = if work.range_bytes > 0 {
        work.range_bytes
    } else {
        FILE_BYTES
    };
    if file_bytes > running.target.size_bytes() {
        return Err(LabError::Usage(format!(
            "iozone: a file of {file_bytes} bytes does not fit into {}",
            running.target.size_bytes()
        )));
    }
    let mut sampler = running.sampler();
    let mut all = Outcome::default();
    let (mut figures, mut rates) = (Vec::new(), Vec::new());
    for test in iozone::TESTS {
        let requests = iozone::requests(test, file_bytes, work.block_bytes, seed)?;
        let outcome = run(running, vec![Process::single(requests)], None)?;
        let rate = outcome.bytes_per_s() / 1024.0;
        figures.push(Figure::new(test, rate, "KiB/s"));
        rates.push(rate);
        all.elapsed_ns += outcome.elapsed_ns;
        all.traffic.reads.merge(&outcome.traffic.reads);
        all.traffic.writes.merge(&outcome.traffic.writes);
    }
    let members = sampler.sample(running.world.clock().now_ns());
    let mut measurement = summarise(&all, members);
    measurement.figures = figures;
    measurement.classic = iozone::classic(file_bytes, work.block_bytes, &rates);
    Ok(measurement)
}

/// A job file: jobs that do not wait for the ones before run at the same time.
pub(super) fn fio(running: &Running, work: &Work, seed: u64) -> Result<Measurement, LabError> {
    let jobs = fio::parse(&read_file(work)?)?;
    let mut groups: Vec<Vec<fio::Job>> = Vec::new();
    for job in jobs {
        match groups.last_mut() {
            Some(group) if !job.waits => group.push(job),
            _ => groups.push(vec![job]),
        }
    }
    // Everything is checked before anything runs.
    let mut prepared = Vec::new();
    for group in groups {
        let (mut processes, mut start) = (Vec::new(), 0u64);
        for (index, job) in group.iter().enumerate() {
            let seed = seed.wrapping_add(index as u64 * 1000);
            processes.extend(fio::processes(
                job,
                start,
                running.target.size_bytes(),
                seed,
            )?);
            start += job.size_bytes * job.clones as u64;
        }
        let limit = group.iter().filter_map(|job| job.runtime_s).max();
        let names: Vec<String> = group.iter().map(|job| job.name.clone()).collect();
        prepared.push((
            names.join("+"),
            processes,
            limit.map(|s| s.saturating_mul(1_000_000_000)),
        ));
    }
    let mut sampler = running.sampler();
    let mut all = Outcome::default();
    let (mut figures, mut classic) = (Vec::new(), String::new());
    for (name, processes, limit_ns) in prepared {
        let outcome = run(running, processes, limit_ns)?;
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
        all.elapsed_ns += outcome.elapsed_ns;
        all.traffic.reads.merge(&outcome.traffic.reads);
        all.traffic.writes.merge(&outcome.traffic.writes);
        all.process_bytes = outcome.process_bytes;
    }
    let members = sampler.sample(running.world.clock().now_ns());
    let mut measurement = summarise(&all, members);
    measurement.figures = figures;
    measurement.classic = classic;
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
