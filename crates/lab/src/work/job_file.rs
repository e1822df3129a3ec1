//! Files that say what a workload does: fio's job files, and traces.

use super::Work;
use crate::error::LabError;
use crate::workload::{Process, fio};

/// The text of the file.
pub(super) fn read_file(work: &Work) -> Result<String, LabError> {
    std::fs::read_to_string(&work.file)
        .map_err(|error| LabError::Usage(format!("{}: \"{}\": {error}", work.kind, work.file)))
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
    fio_groups_of(work, size_bytes, seed, |_| true)
}

/// The same of the jobs that a volume of `size_bytes` carries: all groups, some of them without processes.
pub(super) fn fio_groups_of(
    work: &Work,
    size_bytes: u64,
    seed: u64,
    carries: impl Fn(&str) -> bool,
) -> Result<Vec<Group>, LabError> {
    let file = fio::parse(&read_file(work)?, Some(size_bytes))?;
    let mut prepared = Vec::new();
    for group in fio::groups(file.jobs) {
        let mut processes = Vec::new();
        let all = group.iter().enumerate();
        let (numbers, own): (Vec<usize>, Vec<fio::Job>) = all
            .filter(|(_, job)| carries(&job.name))
            .map(|(number, job)| (number, job.clone()))
            .unzip();
        let (starts, _) = fio::starts(&own);
        for ((number, job), start) in numbers.into_iter().zip(&own).zip(starts) {
            let seed = seed.wrapping_add(number as u64 * 1000);
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

/// The names of the jobs of a file.
pub(super) fn fio_jobs(work: &Work) -> Result<Vec<String>, LabError> {
    let file = fio::parse(&read_file(work)?, Some(u64::MAX >> 1))?;
    let mut names: Vec<String> = Vec::new();
    for job in file.jobs {
        if !names.contains(&job.name) {
            names.push(job.name);
        }
    }
    Ok(names)
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

/// The names of the jobs of a workload, where it has some.
pub(super) fn job_names(work: &Work) -> Result<Option<Vec<String>>, LabError> {
    match work.kind.as_str() {
        "jobs" => Ok(Some(work.jobs.iter().map(|job| job.name.clone()).collect())),
        "fio" => Ok(Some(fio_jobs(work)?)),
        _ => Ok(None),
    }
}
