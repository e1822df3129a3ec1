//! A workload as requests alone: phases, one after another, without a model of the host.

use super::Work;
use super::job_file::{fio_groups, read_file};
use crate::error::LabError;
use crate::place::Actor;
use crate::workload::bonnie::{self, Bonnie};
use crate::workload::rawio::{Mix, Rawio, Test};
use crate::workload::{Operation, Process, dd, fio, iozone, mixed, superblocks, trace};

/// A part of a workload that has a figure of its own.
pub(super) struct Phase {
    /// Its name; "" when its figure is not shown.
    pub(super) name: String,
    /// Its processes.
    pub(super) actors: Vec<Actor>,
    /// No request starts later.
    pub(super) limit_ns: Option<u64>,
}

impl Phase {
    fn new(name: &str, processes: Vec<Process>) -> Self {
        Self {
            name: name.to_owned(),
            actors: processes.into_iter().map(Actor::of).collect(),
            limit_ns: None,
        }
    }
}

/// File of iozone when nothing else is said.
pub(super) const FILE_BYTES: u64 = 100 << 20;

/// Bytes of the file of bonnie and iozone.
pub(super) fn file_bytes(work: &Work, size_bytes: u64) -> Result<u64, LabError> {
    let wanted = match work.range_bytes {
        0 => FILE_BYTES,
        bytes => bytes,
    };
    if wanted > size_bytes {
        return Err(LabError::Usage(format!(
            "{}: a file of {wanted} bytes does not fit into {size_bytes}",
            work.kind
        )));
    }
    Ok(wanted)
}

/// Files and records that iozone goes through.
pub(super) fn iozone_runs(work: &Work, size_bytes: u64) -> Result<Vec<iozone::Run>, LabError> {
    if !work.is_auto {
        return Ok(vec![(file_bytes(work, size_bytes)?, work.block_bytes)]);
    }
    let runs = iozone::auto(work.range_bytes);
    let Some((largest, _)) = runs.last() else {
        return Err(LabError::Usage(format!(
            "iozone -a: its smallest file has 65536 bytes, more than the range of {}; --range takes a larger one",
            work.range_bytes
        )));
    };
    if *largest > size_bytes {
        return Err(LabError::Usage(format!(
            "iozone -a: files of 65536 to {largest} bytes do not fit into {size_bytes}; --range takes smaller ones"
        )));
    }
    Ok(runs)
}

/// Its tests with their names.
pub(super) fn iozone_tests(
    work: &Work,
    size_bytes: u64,
    seed: u64,
) -> Result<Vec<(String, Process)>, LabError> {
    let runs = iozone_runs(work, size_bytes)?;
    let mut tests = Vec::new();
    for (file, record) in &runs {
        for test in iozone::TESTS {
            let requests = iozone::requests(test, *file, *record, seed)?;
            tests.push(Process::single(requests));
        }
    }
    Ok(iozone::named(&runs).into_iter().zip(tests).collect())
}

/// The options of bonnie.
pub(super) fn bonnie_of(work: &Work, seed: u64) -> Bonnie {
    let options = if work.kind == "bonnie++" {
        Bonnie::plus()
    } else {
        Bonnie::default()
    };
    Bonnie { seed, ..options }
}

/// What a request of a kind does; of `mixed` what those do that are no reads.
fn operation_of(kind: &str, is_sync: bool) -> Operation {
    match (kind.ends_with("write") || kind == "mixed", is_sync) {
        (false, _) => Operation::Read,
        (true, false) => Operation::Write,
        (true, true) => Operation::WriteThrough,
    }
}

/// The processes of a workload of one phase.
pub(super) fn processes(work: &Work, size_bytes: u64, seed: u64) -> Result<Vec<Process>, LabError> {
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

/// The options of rawio.
pub(super) fn rawio_of(work: &Work, seed: u64) -> Rawio {
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

/// All phases on a place of `size_bytes`.
///
/// # Errors
/// `Usage` when the workload does not fit.
pub(super) fn phases(work: &Work, size_bytes: u64, seed: u64) -> Result<Vec<Phase>, LabError> {
    let mut all = Vec::new();
    match work.kind.as_str() {
        "rawio" => {
            let rawio = rawio_of(work, seed);
            for test in Test::ALL {
                all.push(Phase::new(test.name(), rawio.processes(test, size_bytes)?));
            }
        }
        "bonnie" | "bonnie++" => {
            let file_bytes = file_bytes(work, size_bytes)?;
            for (name, processes) in bonnie::requests(&bonnie_of(work, seed), file_bytes)? {
                all.push(Phase::new(name, processes));
            }
        }
        "iozone" => {
            for (name, requests) in iozone_tests(work, size_bytes, seed)? {
                all.push(Phase::new(&name, vec![requests]));
            }
        }
        "fio" => {
            for group in fio_groups(work, size_bytes, seed)? {
                all.push(Phase {
                    limit_ns: group.limit_ns,
                    ..Phase::new(&group.name, group.processes)
                });
            }
        }
        "trace" => {
            let entries = trace::parse(&read_file(work)?, size_bytes)?;
            all.push(Phase {
                actors: vec![Actor::replay(entries)],
                ..Phase::new("trace", Vec::new())
            });
        }
        "rebuild" | "rebuild-load" => {
            return Err(LabError::Usage(format!(
                "{} takes a member away, which is done to simulated disks only",
                work.kind
            )));
        }
        "jobs" => {
            return Err(LabError::Usage(
                "jobs at the same time are for simulated disks".to_owned(),
            ));
        }
        kind => all.push(Phase::new(kind, processes(work, size_bytes, seed)?)),
    }
    Ok(all)
}

/// Whether a workload writes.
///
/// # Errors
/// `Usage` for a job file or trace that cannot be read.
pub(super) fn writes(work: &Work) -> Result<bool, LabError> {
    Ok(match work.kind.as_str() {
        "random-read" | "sequential-read" | "dd-read" | "random-dd" => false,
        "superblocks" => work.read_percent < 100,
        "fio" => {
            let file = fio::parse(&read_file(work)?, Some(u64::MAX >> 1))?;
            file.jobs.iter().any(fio::Job::writes)
        }
        "trace" => {
            let entries = trace::parse(&read_file(work)?, u64::MAX)?;
            let is_write =
                |one: Operation| matches!(one, Operation::Write | Operation::WriteThrough);
            entries.iter().any(|(_, one)| is_write(one.operation))
        }
        _ => true,
    })
}

/// Whether the program that the workload is named after goes through the page cache.
pub(super) fn is_buffered(kind: &str) -> bool {
    matches!(
        kind,
        "bonnie" | "bonnie++" | "iozone" | "dd-read" | "dd-write" | "random-dd"
    )
}

/// Whether the workload makes its file itself.
pub(super) fn makes_its_file(kind: &str) -> bool {
    matches!(kind, "bonnie" | "bonnie++" | "iozone" | "dd-write")
}
