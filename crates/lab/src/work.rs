//! One measurement: a workload on an arrangement, with figures, latencies and what each member did. This file is the
//! workload: what can be asked for.

mod job_file;
mod measurement;
mod phases;
pub mod program;
mod programs;
pub mod real;
mod rebuild;
mod simulated;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::workload::jobs::{self, Job};
use crate::workload::superblocks;

pub use measurement::{Figure, Measurement};
#[cfg(test)]
pub(crate) use simulated::tests;
pub use simulated::{check_assignment, check_room, measure, measure_in};

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

/// Hosts that are modelled (`HostSpec`).
pub const HOSTS: [&str; 2] = ["ufs-1999", "ext2-1999"];

/// Most files, in units of 1024: more than a file system in use has.
const FILES_MAX: u64 = 1 << 20;
/// Most folders of them, as in the program: their names have five digits.
const FOLDERS_MAX: u64 = 99_999;

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
