//! A workload on simulated disks, in virtual time.

use super::job_file::job_names;
use super::measurement::{Figure, Measurement, summarise, without_files};
use super::phases::{bonnie_of, processes, rawio_of};
use super::real::{On, measure_on};
use super::{Work, programs, rebuild};
use crate::array::Mode;
use crate::error::LabError;
use crate::host::{HostFile, HostSpec};
use crate::inside::Recorder;
use crate::iostat::MemberRow;
use crate::setup::running::Running;
use crate::setup::{Setup, beside};
use crate::workload::rawio::{self, Test};
use crate::workload::{Outcome, bonnie, dd, jobs, run_processes};

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
    let names = job_names(work)?.ok_or_else(|| {
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
        return measure_on(&On { name, destroy }, work, seed);
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
    let workload = bonnie_of(work, seed);
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
