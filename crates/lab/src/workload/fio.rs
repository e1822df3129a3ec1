//! fio job files, a subset: what they ask for becomes request streams. Unknown keys are refused by name.
//!
//! Invariants:
//! - clones and jobs of one named file share its range, others have one each; random jobs touch every block of it once
//!   before any twice, where so many can be kept in order;
//! - requests of `posixaio` on one descriptor go one after another, whatever `iodepth` says (glibc does so; lab.md 3);
//! - nothing is read ahead or delayed: jobs see the volume as with `direct=1`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plexum_disks::rng::Rng;

use super::{IoRequest, Operation, Process};
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
    /// The file that its clones and other jobs share; `None`: each clone has one of its own.
    pub file: Option<String>,
    /// Clones.
    pub clones: usize,
    /// Requests under way.
    pub depth: usize,
    /// Flush after so many writes; 0 = never.
    pub flush_every: u64,
    /// Flush at the end.
    pub flushes_at_end: bool,
    /// Ends after this time.
    pub runtime: Option<Duration>,
    /// Goes round until the time is over.
    pub is_time_based: bool,
    /// Waits for the jobs before it.
    pub waits: bool,
}

/// What a job file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFile {
    /// Its jobs.
    pub jobs: Vec<Job>,
    /// Keys that change no request and were passed over, each once.
    pub passed_over: BTreeSet<String>,
}

impl JobFile {
    /// What a reader of the figures should know.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        if self.passed_over.is_empty() {
            return Vec::new();
        }
        let keys: Vec<&str> = self.passed_over.iter().map(String::as_str).collect();
        vec![format!(
            "fio: passed over, for they change no request: {}",
            keys.join(", ")
        )]
    }
}

/// Bytes of each file of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Bytes(u64),
    /// In a hundred of what there is.
    Percent(u64),
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
    size: Option<Size>,
    file: Option<String>,
    file_format: Option<String>,
    clones: Option<u64>,
    depth: Option<u64>,
    is_serial: bool,
    flush_every: Option<u64>,
    flushes_at_end: bool,
    runtime: Option<Duration>,
    is_time_based: bool,
    waits: bool,
    passed_over: BTreeSet<String>,
}

/// Keys that change nothing in virtual time.
const IGNORED: [&str; 9] = [
    "name",
    "direct",
    "group_reporting",
    "directory",
    "fallocate",
    "randrepeat",
    "thread",
    "invalidate",
    "norandommap",
];

/// Keys about what is recorded, checked or filled in, never about which requests there are: passed over, with a note.
const HARMLESS: [&str; 53] = [
    "allrandrepeat",
    "buffer_compress_percentage",
    "buffer_pattern",
    "bwavgtime",
    "clat_percentiles",
    "clocksource",
    "cpumask",
    "cpus_allowed",
    "cpus_allowed_policy",
    "create_fsync",
    "create_on_open",
    "create_serialize",
    "dedupe_percentage",
    "description",
    "disable_bw",
    "disable_bw_measurement",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "fsync_on_close",
    "gtod_cpu",
    "gtod_reduce",
    "iopsavgtime",
    "iomem",
    "iomem_align",
    "lat_percentiles",
    "log_avg_msec",
    "log_compression",
    "log_hist_msec",
    "log_max_value",
    "log_offset",
    "log_unix_epoch",
    "mem",
    "mem_align",
    "new_group",
    "nice",
    "numa_cpu_nodes",
    "numa_mem_policy",
    "percentile_list",
    "per_job_logs",
    "prio",
    "prioclass",
    "random_generator",
    "randseed",
    "refill_buffers",
    "scramble_buffers",
    "significant_figures",
    "slat_percentiles",
    "unlink",
    "write_bw_log",
    "write_hist_log",
    "write_iops_log",
    "write_lat_log",
];

/// Keys that change nothing with these values; with others they are not known.
const NEUTRAL: [(&str, &str); 13] = [
    ("buffered", "0"),
    ("io_submit_mode", "inline"),
    ("loops", "1"),
    ("nrfiles", "1"),
    ("offset", "0"),
    ("overwrite", "0"),
    ("ramp_time", "0"),
    ("random_distribution", "random"),
    ("startdelay", "0"),
    ("sync", "0"),
    ("thinktime", "0"),
    ("verify", "0"),
    ("zonemode", "none"),
];

/// What jobs that run at the same time are called together: every name once, in their order, with `+` between them.
#[must_use]
pub fn group_name<'a>(jobs: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in jobs {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join("+")
}

/// A time as fio has it: seconds, or with a unit.
fn time(text: &str) -> Option<Duration> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let count: u64 = digits.parse().ok()?;
    let seconds = |each: u64| count.checked_mul(each).map(Duration::from_secs);
    match text[digits.len()..].trim() {
        "" | "s" => seconds(1),
        "m" => seconds(60),
        "h" => seconds(3600),
        "d" => seconds(86_400),
        "ms" | "msec" => Some(Duration::from_millis(count)),
        "us" | "usec" => Some(Duration::from_micros(count)),
        _ => None,
    }
}

/// The value with what it takes from the environment.
///
/// # Errors
/// The name of a variable that is not there.
fn expand(value: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, behind) = after.split_once('}').ok_or("${ without }")?;
        let found = std::env::var(name);
        out += before;
        out += &found.map_err(|_| format!("${{{name}}} is not in the environment"))?;
        rest = behind;
    }
    Ok(out + rest)
}

fn number(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match &text[digits.len()..] {
        "" | "s" => 1,
        "k" | "ki" | "kb" | "kib" => 1 << 10,
        "m" | "mi" | "mb" | "mib" => 1 << 20,
        "g" | "gi" | "gb" | "gib" => 1 << 30,
        "t" | "ti" | "tb" | "tib" => 1 << 40,
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
            "bsrange" if is_one_length(value) => {
                self.block_bytes = value.split_once('-').and_then(|(bytes, _)| number(bytes));
            }
            "size" => {
                self.size = Some(match value.strip_suffix('%').map(number) {
                    Some(Some(percent @ 1..=100)) => Size::Percent(percent),
                    Some(_) => return Err(format!("{key}={value} is no share of what there is")),
                    None => Size::Bytes(counted()?),
                });
            }
            "filename" if value.contains(':') => {
                return Err(format!(
                    "{key}={value}: several files of one job are not known"
                ));
            }
            "filename" => self.file = Some(value.to_owned()).filter(|name| !name.is_empty()),
            "filename_format" => self.file_format = Some(value.to_owned()),
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
            "runtime" | "timeout" => {
                let told = || format!("{key}={value} is no time");
                self.runtime = Some(time(value).ok_or_else(told)?);
            }
            "time_based" => self.is_time_based = flag()?,
            "stonewall" | "wait_for_previous" => self.waits = flag()?,
            _ if IGNORED.contains(&key) => {}
            _ if HARMLESS.contains(&key) || NEUTRAL.contains(&(key, value)) => {
                self.passed_over.insert(key.to_owned());
            }
            _ => return Err(format!("key \"{key}\" is not known")),
        }
        Ok(())
    }

    /// The file that clones share, by its name or by how names are made.
    fn shared_file(&self, job: &str) -> Option<String> {
        let is_each = |format: &&String| {
            ["$jobnum", "$filenum"]
                .iter()
                .any(|word| format.contains(word))
        };
        let format = self.file_format.as_ref().filter(|format| !is_each(format));
        let made = format.map(|format| format.replace("$jobname", job));
        self.file.clone().or(made)
    }

    fn finish(self, name: &str, place_bytes: Option<u64>) -> Result<Job, String> {
        let file = self.shared_file(name);
        let (is_random, reads) = self.pattern.unwrap_or((false, Some(100)));
        let reads = reads.unwrap_or(self.mix.unwrap_or(50));
        let block_bytes = self.block_bytes.unwrap_or(4096);
        // Without a size it is all of a device or file, which is there and has one.
        let size = self.size.or(file.is_some().then_some(Size::Percent(100)));
        let size_bytes = match (size.ok_or("it has no size")?, place_bytes) {
            (Size::Bytes(bytes), _) => bytes,
            (Size::Percent(percent), Some(bytes)) => {
                bytes / 100 * percent / block_bytes.max(1) * block_bytes
            }
            (Size::Percent(_), None) => {
                return Err(
                    "its size is a share of what is there: say how much (size=, or --range)"
                        .to_owned(),
                );
            }
        };
        if block_bytes == 0 || !block_bytes.is_multiple_of(512) || block_bytes > size_bytes {
            return Err(format!("bs={block_bytes} does not fit size={size_bytes}"));
        }
        if is_random && size_bytes / block_bytes > BLOCKS_MAX && self.runtime.is_none() {
            return Err(format!(
                "more than {BLOCKS_MAX} blocks in random order; with a runtime they need not all be touched"
            ));
        }
        if self.is_time_based && self.runtime.is_none() {
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
            file,
            clones,
            depth: usize::try_from(depth).unwrap_or(1),
            flush_every: self.flush_every.unwrap_or(0),
            flushes_at_end: self.flushes_at_end,
            runtime: self.runtime,
            is_time_based: self.is_time_based,
            waits: self.waits,
        })
    }
}

/// Whether a range of lengths holds one.
fn is_one_length(range: &str) -> bool {
    let (least, most) = range.split_once('-').unwrap_or((range, ""));
    number(least).is_some() && number(least) == number(most)
}

/// A line without its comment.
fn without_comment(line: &str) -> &str {
    let line = line.split(['#', ';']).next().unwrap_or_default();
    let line = line.split_once(" //").map_or(line, |(before, _)| before);
    line.split_once("\t//")
        .map_or(line, |(before, _)| before)
        .trim()
}

/// Reads a job file for a place of `place_bytes`, where that is known.
///
/// # Errors
/// `Usage` with line and key of what is not known or does not fit.
pub fn parse(text: &str, place_bytes: Option<u64>) -> Result<JobFile, LabError> {
    let mut global = Draft::default();
    let mut sections: Vec<(String, Draft)> = Vec::new();
    let mut is_global = true;
    for (index, line) in text.lines().enumerate() {
        let line = without_comment(line);
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
        let value = expand(value.trim()).map_err(told)?;
        draft.set(key.trim(), &value).map_err(told)?;
    }
    if sections.is_empty() {
        return Err(LabError::Usage("fio: the file has no job".to_owned()));
    }
    let mut file = JobFile::default();
    for (name, mut draft) in sections {
        file.passed_over.append(&mut draft.passed_over);
        let job = draft.finish(&name, place_bytes);
        let told = |error| LabError::Usage(format!("fio job [{name}]: {error}"));
        file.jobs.push(job.map_err(told)?);
    }
    Ok(file)
}

/// Where the files of each job of a group begin, and what all take together. A named file is there once, as long as the
/// longest of its jobs needs.
#[must_use]
pub fn starts(group: &[Job]) -> (Vec<u64>, u64) {
    let mut named: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut starts, mut end) = (Vec::new(), 0_u64);
    for job in group {
        let Some(file) = &job.file else {
            starts.push(end);
            end = end.saturating_add(job.size_bytes.saturating_mul(job.clones as u64));
            continue;
        };
        let start = *named.entry(file).or_insert_with(|| {
            let start = end;
            let sharers = group
                .iter()
                .filter(|other| other.file.as_ref() == Some(file));
            end = end.saturating_add(sharers.map(|other| other.size_bytes).max().unwrap_or(0));
            start
        });
        starts.push(start);
    }
    (starts, end)
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

/// The processes of a job, their files one after another from `start_bytes`, or all in the one that they share.
///
/// # Errors
/// `Usage` when the files do not fit.
pub fn processes(
    job: &Job,
    start_bytes: u64,
    size_bytes: u64,
    seed: u64,
) -> Result<Vec<Process>, LabError> {
    let files = if job.file.is_some() {
        1
    } else {
        job.clones as u64
    };
    let needed = job.size_bytes.checked_mul(files);
    let end = needed.and_then(|needed| needed.checked_add(start_bytes));
    if end.is_none_or(|end| end > size_bytes) {
        return Err(LabError::Usage(format!(
            "fio job [{}]: {} files of {} bytes do not fit into {size_bytes}",
            job.name, files, job.size_bytes
        )));
    }
    let base = Rng::new(seed);
    Ok((0..job.clones as u64)
        .map(|clone| {
            let start = start_bytes + clone % files * job.size_bytes;
            Process {
                depth: job.depth,
                requests: Box::new(stream(job, start, base.fork(clone))),
            }
        })
        .collect())
}

fn stream(job: &Job, start_bytes: u64, mut rng: Rng) -> impl Iterator<Item = IoRequest> + use<> {
    let blocks = job.size_bytes / job.block_bytes;
    let (is_random, reads) = match job.pattern {
        Pattern::Forward(reads) => (false, reads),
        Pattern::Random(reads) => (true, reads),
    };
    let mut order: Vec<u32> = Vec::new();
    let is_ordered = is_random && blocks <= BLOCKS_MAX;
    if is_ordered {
        order = (0..u32::try_from(blocks).unwrap_or(u32::MAX)).collect();
        for index in (1..order.len()).rev() {
            let other = rng.below(index as u64 + 1) as usize;
            order.swap(index, other);
        }
    }
    let job = job.clone();
    let (mut next, mut writes, mut has_ended) = (0u64, 0u64, false);
    let mut owes_flush = false;
    let flush = IoRequest {
        operation: Operation::Flush,
        ..IoRequest::read(0, 0)
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
        let block = match order.get(usize::try_from(next).unwrap_or(usize::MAX)) {
            Some(block) => u64::from(*block),
            None if is_random => rng.below(blocks),
            None => next,
        };
        next += 1;
        let at = start_bytes + block * job.block_bytes;
        if reads >= 100 || rng.chance(reads, 100) {
            return Some(IoRequest::read(at, job.block_bytes));
        }
        writes += 1;
        // fio does not flush after the last write of all, unless end_fsync asks for it.
        let goes_on = next < blocks || job.is_time_based;
        owes_flush = goes_on && job.flush_every > 0 && writes.is_multiple_of(job.flush_every);
        Some(IoRequest::write(at, job.block_bytes))
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
        let jobs = parse(ARTICLE, None).unwrap().jobs;
        assert_eq!(
            (jobs[0].depth, jobs[0].clones),
            (1, 8),
            "posixaio is serial"
        );
        let processes = processes(&jobs[0], 0, 1 << 20, 1).unwrap();
        assert_eq!(processes.len(), 8);
        for (clone, process) in processes.into_iter().enumerate() {
            let all: Vec<IoRequest> = process.requests.collect();
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
            let error = parse(&format!("[a]\nsize=1m\n{line}\n"), None)
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        assert!(
            parse("[a]\nrw=read\n", None)
                .unwrap_err()
                .to_string()
                .contains("size")
        );
        let jobs = parse("[a]\nsize=1m\nnumjobs=3\n", None).unwrap().jobs;
        assert!(
            processes(&jobs[0], 0, 2 << 20, 1).is_err(),
            "three files of 1 MiB do not fit"
        );
    }

    fn one(lines: &str) -> Job {
        parse(&format!("[a]\nrw=randread\n{lines}\n"), Some(1 << 40))
            .unwrap()
            .jobs
            .remove(0)
    }

    #[test]
    fn times_have_units_of_time_and_sizes_units_of_size() {
        for (text, ms) in [
            ("1m", 60_000),
            ("90", 90_000),
            ("30s", 30_000),
            ("1h", 3_600_000),
            ("2d", 172_800_000),
            ("5000ms", 5000),
            ("250000us", 250),
        ] {
            let job = one(&format!("size=1m\nruntime={text}"));
            assert_eq!(job.runtime, Some(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(
            one("size=1m\ntimeout=60").runtime,
            Some(Duration::from_secs(60))
        );
        assert_eq!(one("bs=4ki\nsize=1gi").size_bytes, 1 << 30);
        assert!(
            parse("[a]\nsize=1m\nruntime=1q\n", None)
                .unwrap_err()
                .to_string()
                .contains("runtime")
        );
    }

    #[test]
    fn jobs_and_clones_of_one_named_file_share_it() {
        let text = "[global]\nsize=1m\nfilename=data\nrw=randread\nbs=4k\n[a]\nnumjobs=4\n[b]\nsize=2m\n\
            [c]\nfilename=other\n";
        let jobs = parse(text, None).unwrap().jobs;
        assert_eq!(starts(&jobs), (vec![0, 0, 2 << 20], 3 << 20));
        let clones = processes(&jobs[0], 0, 1 << 20, 1).unwrap();
        assert_eq!(clones.len(), 4, "four clones fit into one file");
        for clone in clones {
            let end = clone
                .requests
                .map(|one| one.offset_bytes + one.length_bytes)
                .max();
            assert_eq!(end, Some(1 << 20));
        }
        // By how names are made: with the number of the clone each has one.
        assert_eq!(
            one("size=1m\nfilename_format=$jobname.dat").file.as_deref(),
            Some("a.dat")
        );
        assert_eq!(one("size=1m\nfilename_format=file$jobnum").file, None);
        let error = parse("[a]\nsize=1m\nfilename=x:y\n", None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("several files"), "{error}");
    }

    #[test]
    fn a_size_may_be_a_share_of_what_there_is_or_all_of_a_named_file() {
        assert_eq!(
            one("runtime=5\nfilename=/dev/sda").size_bytes,
            (1 << 40) / 100 * 100 / 4096 * 4096
        );
        assert_eq!(
            one("bs=1m\nruntime=5\nsize=10%").size_bytes >> 20,
            ((1 << 40) / 10) >> 20
        );
        let error = parse("[a]\nsize=100%\n", None).unwrap_err().to_string();
        assert!(error.contains("--range"), "{error}");
        assert!(parse("[a]\nsize=101%\n", Some(1 << 30)).is_err());
        // A whole modern disk: no order of its blocks is kept when there is an end to the time.
        let job = one("bs=4k\nsize=300g\nruntime=5");
        let process = processes(&job, 0, 1 << 40, 1).unwrap().remove(0);
        let some: Vec<u64> = process
            .requests
            .take(100)
            .map(|one| one.offset_bytes)
            .collect();
        assert!(some.iter().all(|at| at % 4096 == 0 && *at < 300 << 30));
        assert!(some.iter().any(|at| *at > 150 << 30));
        assert!(parse("[a]\nrw=randread\nbs=4k\nsize=300g\n", None).is_err());
    }

    #[test]
    fn what_changes_no_request_is_passed_over_with_a_note() {
        let text = "[a]\nsize=1m\nnumjobs=8\t// eight\ndescription=of it\ngtod_reduce=1\nloops=1\nverify=0\nbuffered=0\n\
            bsrange=8k-8k\nrefill_buffers\nwrite_lat_log=here\n";
        let file = parse(text, None).unwrap();
        assert_eq!((file.jobs[0].clones, file.jobs[0].block_bytes), (8, 8192));
        let note = file.notes().remove(0);
        for key in [
            "description",
            "gtod_reduce",
            "loops",
            "verify",
            "write_lat_log",
        ] {
            assert!(note.contains(key), "{note}");
        }
        for other in [
            "loops=3",
            "verify=crc32c",
            "buffered=1",
            "bsrange=4k-8k",
            "offset=1m",
        ] {
            let error = parse(&format!("[a]\nsize=1m\n{other}\n"), None).unwrap_err();
            let key = other.split('=').next().unwrap();
            assert!(error.to_string().contains(&format!("\"{key}\"")), "{error}");
        }
    }

    #[test]
    fn variables_come_from_the_environment_or_are_named() {
        let home = std::env::var("PATH").unwrap();
        assert_eq!(expand("x${PATH}y"), Ok(format!("x{home}y")));
        assert!(
            expand("${PLEXUM_NO_SUCH_THING}")
                .unwrap_err()
                .contains("PLEXUM_NO_SUCH_THING")
        );
        assert!(expand("${open").is_err());
    }

    #[test]
    fn a_mixed_forward_job_keeps_its_share_and_order() {
        let text = "[a]\nrw=rw\nrwmixread=25\nbs=4k\nsize=16m\n";
        let jobs = parse(text, None).unwrap().jobs;
        let all: Vec<IoRequest> = processes(&jobs[0], 0, 1 << 30, 2)
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
