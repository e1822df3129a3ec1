//! fio job files, a subset: what they ask for becomes request streams. Unknown keys are refused by name.
//!
//! Invariants:
//! - each job has a range of its own (its file), and random jobs touch every block of it once before any twice;
//! - requests of `posixaio` on one descriptor go one after another, whatever `iodepth` says (glibc does so; lab.md 3);
//! - nothing is read ahead or delayed: jobs see the volume as with `direct=1`.

use plexum_sim::rng::Rng;

use super::{Operation, Process, Request};
use crate::error::LabError;

/// Most jobs (clones counted) of a file.
const JOBS_MAX: usize = 1024;
/// Most blocks of a random job: its order is kept in memory.
const BLOCKS_MAX: u64 = 1 << 24;

/// What a job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Forward, reads in a hundred.
    Forward(u64),
    /// Every block once in random order, reads in a hundred.
    Random(u64),
}

/// One section of a job file, `[global]` taken in.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Name of the section.
    pub name: String,
    /// What it does.
    pub pattern: Pattern,
    /// Length of a request.
    pub block_bytes: u64,
    /// Size of each clone's file.
    pub size_bytes: u64,
    /// Clones.
    pub clones: usize,
    /// Requests under way.
    pub depth: usize,
    /// Flush after so many writes; 0 = never.
    pub flush_every: u64,
    /// Flush at the end.
    pub flushes_at_end: bool,
    /// Ends after this time.
    pub runtime_s: Option<u64>,
    /// Goes round until the time is over.
    pub is_time_based: bool,
    /// Waits for the jobs before it.
    pub waits: bool,
}

impl Job {
    /// Whether it writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        let (Pattern::Forward(reads) | Pattern::Random(reads)) = self.pattern;
        reads < 100
    }
}

#[derive(Clone, Default)]
struct Draft {
    pattern: Option<(bool, Option<u64>)>,
    mix: Option<u64>,
    block_bytes: Option<u64>,
    size_bytes: Option<u64>,
    clones: Option<u64>,
    depth: Option<u64>,
    is_serial: bool,
    flush_every: Option<u64>,
    flushes_at_end: bool,
    runtime_s: Option<u64>,
    is_time_based: bool,
    waits: bool,
}

/// Keys that change nothing in virtual time.
const IGNORED: [&str; 10] = [
    "name",
    "direct",
    "group_reporting",
    "directory",
    "filename",
    "fallocate",
    "randrepeat",
    "thread",
    "invalidate",
    "norandommap",
];

fn number(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match &text[digits.len()..] {
        "" | "s" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

impl Draft {
    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let counted = || number(value).ok_or_else(|| format!("{key}={value} is no number"));
        let flag = || Ok::<bool, String>(value.is_empty() || counted()? != 0);
        match key {
            "rw" | "readwrite" => {
                self.pattern = Some(match value {
                    "read" => (false, Some(100)),
                    "write" => (false, Some(0)),
                    "rw" | "readwrite" => (false, None),
                    "randread" => (true, Some(100)),
                    "randwrite" => (true, Some(0)),
                    "randrw" => (true, None),
                    _ => return Err(format!("{key}={value} is not known")),
                });
            }
            "rwmixread" => self.mix = Some(counted()?.min(100)),
            "rwmixwrite" => self.mix = Some(100 - counted()?.min(100)),
            "bs" | "blocksize" => self.block_bytes = Some(counted()?),
            "size" => self.size_bytes = Some(counted()?),
            "numjobs" => self.clones = Some(counted()?),
            "iodepth" => self.depth = Some(counted()?),
            "ioengine" => {
                self.is_serial = match value {
                    "posixaio" | "sync" | "psync" | "vsync" => true,
                    "libaio" | "io_uring" => false,
                    _ => return Err(format!("{key}={value} is not known")),
                };
            }
            "fsync" | "fdatasync" => self.flush_every = Some(counted()?),
            "end_fsync" => self.flushes_at_end = flag()?,
            "runtime" => self.runtime_s = Some(counted()?),
            "time_based" => self.is_time_based = flag()?,
            "stonewall" | "wait_for_previous" => self.waits = flag()?,
            _ if IGNORED.contains(&key) => {}
            _ => return Err(format!("key \"{key}\" is not known")),
        }
        Ok(())
    }

    fn finish(self, name: &str) -> Result<Job, String> {
        let (is_random, reads) = self.pattern.unwrap_or((false, Some(100)));
        let reads = reads.unwrap_or(self.mix.unwrap_or(50));
        let block_bytes = self.block_bytes.unwrap_or(4096);
        let size_bytes = self.size_bytes.ok_or("it has no size")?;
        if block_bytes == 0 || !block_bytes.is_multiple_of(512) || block_bytes > size_bytes {
            return Err(format!("bs={block_bytes} does not fit size={size_bytes}"));
        }
        if is_random && size_bytes / block_bytes > BLOCKS_MAX {
            return Err(format!("more than {BLOCKS_MAX} blocks in random order"));
        }
        if self.is_time_based && self.runtime_s.is_none() {
            return Err("time_based without runtime never ends".to_owned());
        }
        let clones = usize::try_from(self.clones.unwrap_or(1)).unwrap_or(usize::MAX);
        let depth = if self.is_serial {
            1
        } else {
            self.depth.unwrap_or(1).clamp(1, 1024)
        };
        if clones == 0 || clones > JOBS_MAX {
            return Err(format!("numjobs is {clones}; 1 to {JOBS_MAX} are possible"));
        }
        Ok(Job {
            name: name.to_owned(),
            pattern: if is_random {
                Pattern::Random(reads)
            } else {
                Pattern::Forward(reads)
            },
            block_bytes,
            size_bytes,
            clones,
            depth: usize::try_from(depth).unwrap_or(1),
            flush_every: self.flush_every.unwrap_or(0),
            flushes_at_end: self.flushes_at_end,
            runtime_s: self.runtime_s,
            is_time_based: self.is_time_based,
            waits: self.waits,
        })
    }
}

/// Reads a job file.
///
/// # Errors
/// `Usage` with line and key of what is not known or does not fit.
pub fn parse(text: &str) -> Result<Vec<Job>, LabError> {
    let mut global = Draft::default();
    let mut sections: Vec<(String, Draft)> = Vec::new();
    let mut is_global = true;
    for (index, line) in text.lines().enumerate() {
        let line = line.split(['#', ';']).next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let told = |error: String| LabError::Usage(format!("fio line {}: {error}", index + 1));
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            is_global = name == "global";
            if !is_global {
                sections.push((name.to_owned(), global.clone()));
            }
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        let draft = match sections.last_mut() {
            Some((_, draft)) if !is_global => draft,
            _ => &mut global,
        };
        draft.set(key.trim(), value.trim()).map_err(told)?;
    }
    if sections.is_empty() {
        return Err(LabError::Usage("fio: the file has no job".to_owned()));
    }
    sections
        .into_iter()
        .map(|(name, draft)| {
            draft
                .finish(&name)
                .map_err(|error| LabError::Usage(format!("fio job [{name}]: {error}")))
        })
        .collect()
}

/// Jobs that run at the same time, in order: a job that waits begins a new group.
#[must_use]
pub fn groups(jobs: Vec<Job>) -> Vec<Vec<Job>> {
    let mut groups: Vec<Vec<Job>> = Vec::new();
    for job in jobs {
        match groups.last_mut() {
            Some(group) if !job.waits => group.push(job),
            _ => groups.push(vec![job]),
        }
    }
    groups
}

/// The processes of a job, their files one after another from `start_bytes`.
///
/// # Errors
/// `Usage` when the files do not fit.
pub fn processes(
    job: &Job,
    start_bytes: u64,
    size_bytes: u64,
    seed: u64,
) -> Result<Vec<Process>, LabError> {
    let needed = job.size_bytes.checked_mul(job.clones as u64);
    let end = needed.and_then(|needed| needed.checked_add(start_bytes));
    if end.is_none_or(|end| end > size_bytes) {
        return Err(LabError::Usage(format!(
            "fio job [{}]: {} files of {} bytes do not fit into {size_bytes}",
            job.name, job.clones, job.size_bytes
        )));
    }
    let base = Rng::new(seed);
    Ok((0..job.clones as u64)
        .map(|clone| {
            let start = start_bytes + clone * job.size_bytes;
            Process {
                depth: job.depth,
                requests: Box::new(stream(job, start, base.fork(clone))),
            }
        })
        .collect())
}

fn stream(job: &Job, start_bytes: u64, mut rng: Rng) -> impl Iterator<Item = Request> + use<> {
    let blocks = job.size_bytes / job.block_bytes;
    let (is_random, reads) = match job.pattern {
        Pattern::Forward(reads) => (false, reads),
        Pattern::Random(reads) => (true, reads),
    };
    let mut order: Vec<u32> = Vec::new();
    if is_random {
        order = (0..u32::try_from(blocks).unwrap_or(u32::MAX)).collect();
        for index in (1..order.len()).rev() {
            let other = rng.below(index as u64 + 1) as usize;
            order.swap(index, other);
        }
    }
    let job = job.clone();
    let (mut next, mut writes, mut has_ended) = (0u64, 0u64, false);
    let mut owes_flush = false;
    let flush = Request {
        operation: Operation::Flush,
        ..Request::read(0, 0)
    };
    std::iter::from_fn(move || {
        if owes_flush {
            owes_flush = false;
            return Some(flush);
        }
        if next == blocks {
            if !job.is_time_based {
                let is_last = job.flushes_at_end && !has_ended;
                has_ended = true;
                return is_last.then_some(flush);
            }
            next = 0;
        }
        let block = order
            .get(usize::try_from(next).unwrap_or(usize::MAX))
            .map_or(next, |block| u64::from(*block));
        next += 1;
        let at = start_bytes + block * job.block_bytes;
        if reads >= 100 || rng.chance(reads, 100) {
            return Some(Request::read(at, job.block_bytes));
        }
        writes += 1;
        // fio does not flush after the last write of all, unless end_fsync asks for it.
        let goes_on = next < blocks || job.is_time_based;
        owes_flush = goes_on && job.flush_every > 0 && writes.is_multiple_of(job.flush_every);
        Some(Request::write(at, job.block_bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 4 KiB synchronous writes of the 2020 articles, smaller.
    const ARTICLE: &str = "[global]\nioengine=posixaio\niodepth=8\nend_fsync=1\nfallocate=none\n\
        [sync4k] ; eight jobs\nrw=randwrite\nbs=4k\nsize=64k\nnumjobs=8\nfsync=1\n";

    #[test]
    fn a_job_of_the_articles_is_read_and_streamed_as_defined() {
        let jobs = parse(ARTICLE).unwrap();
        assert_eq!(
            (jobs[0].depth, jobs[0].clones),
            (1, 8),
            "posixaio is serial"
        );
        let processes = processes(&jobs[0], 0, 1 << 20, 1).unwrap();
        assert_eq!(processes.len(), 8);
        for (clone, process) in processes.into_iter().enumerate() {
            let all: Vec<Request> = process.requests.collect();
            // Sixteen blocks, a flush between them, one at the end.
            assert_eq!(all.len(), 32);
            let mut blocks: Vec<u64> = all
                .iter()
                .filter(|r| r.operation == Operation::Write)
                .map(|r| r.offset_bytes)
                .collect();
            assert_ne!(blocks[0..3], [0, 4096, 8192]);
            blocks.sort_unstable();
            let start = clone as u64 * 65536;
            let wanted: Vec<u64> = (0..16).map(|n| start + n * 4096).collect();
            assert_eq!(blocks, wanted, "every block once");
            assert!(
                all.iter()
                    .skip(1)
                    .step_by(2)
                    .all(|r| r.operation == Operation::Flush)
            );
        }
    }

    #[test]
    fn unknown_keys_and_values_are_refused_by_name() {
        for (line, word) in [
            ("zonemode=zbd", "zonemode"),
            ("ioengine=rbd", "rbd"),
            ("rw=trim", "trim"),
            ("bs=zero", "bs"),
            ("time_based", "runtime"),
            ("numjobs=0", "numjobs"),
            ("bs=1000", "bs=1000"),
        ] {
            let error = parse(&format!("[a]\nsize=1m\n{line}\n"))
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert!(
            parse("[a]\nrw=read\n")
                .unwrap_err()
                .to_string()
                .contains("size")
        );
        let jobs = parse("[a]\nsize=1m\nnumjobs=3\n").unwrap();
        assert!(
            processes(&jobs[0], 0, 2 << 20, 1).is_err(),
            "three files of 1 MiB do not fit"
        );
    }

    #[test]
    fn a_mixed_forward_job_keeps_its_share_and_order() {
        let jobs = parse("[a]\nrw=rw\nrwmixread=25\nbs=4k\nsize=16m\n").unwrap();
        let all: Vec<Request> = processes(&jobs[0], 0, 1 << 30, 2)
            .unwrap()
            .remove(0)
            .requests
            .collect();
        assert!(
            all.windows(2)
                .all(|pair| pair[1].offset_bytes == pair[0].offset_bytes + 4096)
        );
        let reads = all
            .iter()
            .filter(|r| r.operation == Operation::Read)
            .count();
        assert!((reads as f64 / all.len() as f64 - 0.25).abs() < 0.03);
    }
}
