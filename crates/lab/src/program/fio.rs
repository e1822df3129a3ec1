//! fio: job files for a place, and the JSON it answers with.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::unread;
use crate::error::LabError;
use crate::stats::LatencySummary;
use crate::work::{Figure, Work};
use crate::workload::fio::{Job, Pattern, starts};

/// Where the jobs work.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// A file for each job in this folder.
    Folder(&'a Path),
    /// Each job in a range of its own of this file or device.
    File(&'a str),
    /// The same on an export.
    Nbd(&'a str),
}

impl Target<'_> {
    fn head(&self) -> String {
        let place = match self {
            Target::Folder(path) => format!("directory={}\nfallocate=none", path.display()),
            Target::File(name) => format!("filename={name}\nallow_file_create=0"),
            Target::Nbd(_) => "thread=1".to_owned(),
        };
        let direct = u8::from(!matches!(self, Target::Nbd(_)));
        format!("[global]\n{place}\ndirect={direct}\ngroup_reporting=1\n")
    }

    /// The engine; what belongs to one is known only after it.
    fn engine(&self, depth: usize) -> String {
        match (self, depth) {
            (Target::Nbd(uri), _) => format!("nbd\nuri={uri}"),
            (_, 1) => "psync".to_owned(),
            _ => "libaio".to_owned(),
        }
    }
}

/// Keys that may lead fio to other files, devices or programs than the place.
const ELSEWHERE: [&str; 10] = [
    "exec_postrun",
    "exec_prerun",
    "include",
    "merge_blktrace_file",
    "opendir",
    "read_iolog",
    "replay_redirect",
    "verify_state_load",
    "write_iolog",
    "zonerange",
];

/// Engines that do their requests to files and devices of this machine, by name.
const ENGINES: [&str; 11] = [
    "falloc", "io_uring", "libaio", "mmap", "null", "posixaio", "psync", "pvsync", "pvsync2",
    "sync", "vsync",
];

/// Key and value of a line of a job file; `None`: it has none.
fn setting(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['#', ';', '[']) {
        return None;
    }
    let (key, value) = line.split_once('=').unwrap_or((line, ""));
    Some((key.trim(), value.trim()))
}

/// Whether a job file writes; what is not understood counts as writing.
#[must_use]
pub fn text_writes(text: &str) -> bool {
    text.lines().filter_map(setting).any(|(key, value)| {
        let is_pattern = matches!(key, "rw" | "readwrite");
        let word = value
            .split([' ', '\t', ';', '#', ':'])
            .next()
            .unwrap_or_default();
        let is_read = matches!(word, "read" | "randread");
        is_pattern && !is_read || matches!(key, "trimwrite" | "verify_only")
    })
}

/// A job file as it is, handed on to fio: only where it works is said anew. The second part of the answer says what was
/// left out.
///
/// # Errors
/// `Usage` for keys that may lead fio elsewhere.
pub fn handed_on(text: &str, target: &Target) -> Result<(String, Vec<String>), LabError> {
    let place = match target {
        Target::Folder(path) => format!("directory={}", path.display()),
        Target::File(name) => format!("filename={name}\nallow_file_create=0"),
        Target::Nbd(uri) => format!("uri={uri}"),
    };
    let mut out = format!("[global]\n{place}\ngroup_reporting=1\n");
    let mut left_out = BTreeSet::new();
    for line in text.lines() {
        let (key, value) = setting(line).unwrap_or_default();
        let refused = |why: &str| {
            let text = format!("fio: {key}={value}: {why}; run fio itself if that is wanted");
            Err(LabError::Usage(text))
        };
        let is_inside = !value.contains(['/', ':', '$']) && value != "..";
        match (key, target) {
            (key, _) if ELSEWHERE.contains(&key) => {
                return refused("it may lead to other places than the one that was named");
            }
            ("ioengine", _) if !ENGINES.contains(&value) => {
                return refused("this engine may work elsewhere than on the place that was named");
            }
            ("filename", Target::Folder(_)) if is_inside => {}
            ("filename_format", Target::Folder(_)) if !value.contains('/') => {}
            ("directory" | "filename" | "filename_format" | "allow_file_create", _)
            | ("unlink" | "unlink_each_loop", Target::File(_)) => {
                left_out.insert(key.to_owned());
                continue;
            }
            _ => {}
        }
        out += line;
        out += "\n";
    }
    let note = |keys: &BTreeSet<String>| {
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        format!(
            "fio works where --on says; left out of the job file: {}",
            keys.join(", ")
        )
    };
    let notes = (!left_out.is_empty()).then(|| note(&left_out));
    Ok((out, notes.into_iter().collect()))
}

/// A job file that does what the jobs ask for; those of one group run at the same time.
#[must_use]
pub fn job_file(groups: &[Vec<Job>], target: &Target) -> String {
    let mut text = target.head();
    for (group, jobs) in groups.iter().enumerate() {
        let (starts, _) = starts(jobs);
        for (index, (job, start)) in jobs.iter().zip(starts).enumerate() {
            text += &format!("[{}]\n", job.name);
            if group > 0 && index == 0 {
                text += "stonewall\n";
            }
            text += &job_lines(job, target);
            if !matches!(target, Target::Folder(_)) {
                text += &format!("offset={start}\n");
                if job.file.is_none() {
                    text += &format!("offset_increment={}\n", job.size_bytes);
                }
            }
        }
    }
    text
}

fn pattern(prefix: &str, reads: u64) -> String {
    match reads {
        100 => format!("rw={prefix}read\n"),
        0 => format!("rw={prefix}write\n"),
        share => format!("rw={prefix}rw\nrwmixread={share}\n"),
    }
}

fn job_lines(job: &Job, target: &Target) -> String {
    let mut text = match job.pattern {
        Pattern::Forward(reads) => pattern("", reads),
        Pattern::Random(reads) => pattern("rand", reads),
    };
    text += &format!(
        "bs={}\nsize={}\nnumjobs={}\niodepth={}\nioengine={}\n",
        job.block_bytes,
        job.size_bytes,
        job.clones,
        job.depth,
        target.engine(job.depth)
    );
    if job.flush_every > 0 {
        text += &format!("fsync={}\n", job.flush_every);
    }
    if job.flushes_at_end {
        text += "end_fsync=1\n";
    }
    if let Some(time) = job.runtime {
        text += &format!("runtime={}us\n", time.as_micros());
    }
    if job.is_time_based {
        text += "time_based=1\n";
    }
    text
}

/// A job file for one of the workloads of requests of one length; `range_bytes` is what they use.
#[must_use]
pub fn job_file_of(work: &Work, range_bytes: u64, target: &Target) -> String {
    let reads = match work.kind.as_str() {
        "mixed" => work.read_percent.min(100),
        kind if kind.ends_with("write") => 0,
        _ => 100,
    };
    let is_forward = work.kind.starts_with("sequential");
    let share = range_bytes / work.processes.max(1) as u64 / work.block_bytes * work.block_bytes;
    let (prefix, size) = if is_forward {
        ("", share)
    } else {
        ("rand", range_bytes / work.block_bytes * work.block_bytes)
    };
    let mut text = target.head();
    text += &format!("[{}]\n", work.kind);
    text += &pattern(prefix, reads);
    text += &format!(
        "bs={}\nsize={size}\nnumjobs={}\niodepth={}\nioengine={}\nnumber_ios={}\nrandseed=1\n",
        work.block_bytes,
        work.processes,
        work.depth,
        target.engine(work.depth),
        work.requests
    );
    if is_forward {
        text += &format!("offset=0\noffset_increment={share}\n");
    } else {
        text += "norandommap=1\n";
    }
    if work.is_sync && reads < 100 {
        text += "sync=dsync\n";
    }
    text
}

/// What fio printed, read.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Rates of each group.
    pub figures: Vec<Figure>,
    /// Latencies of reads and of writes, when there is one group.
    pub latencies: [LatencySummary; 2],
    /// Seconds of all groups.
    pub elapsed_s: f64,
    /// What it prints for people.
    pub classic: String,
}

/// Reads what `--output-format=normal,json` gives: JSON first or in the middle, from a line `{` to a line `}`. `names`
/// are those of the groups; with none, the jobs' own are taken.
///
/// # Errors
/// `Io` when there is none, or a job failed.
pub fn parse(text: &str, names: &[String]) -> Result<Seen, LabError> {
    let (object, classic) = object_of(text)?;
    let jobs = object["jobs"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let own = |job: &Value| job["jobname"].as_str().unwrap_or("job").to_owned();
    let names = match names {
        [] => jobs.iter().map(own).collect(),
        names => names.to_vec(),
    };
    if jobs.is_empty() || jobs.len() != names.len() {
        return Err(unread("fio", &format!("{} groups of jobs", jobs.len())));
    }
    let seen = figures_of(jobs, &names)?;
    Ok(Seen { classic, ..seen })
}

/// The JSON, and what is said for people behind it.
///
/// # Errors
/// `Io` when there is none.
pub(super) fn object_of(text: &str) -> Result<(Value, String), LabError> {
    if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
        return Ok((object, String::new()));
    }
    let lines: Vec<&str> = text.lines().collect();
    let first = lines.iter().position(|line| *line == "{");
    let last = lines.iter().rposition(|line| *line == "}");
    let (Some(first), Some(last)) = (
        first,
        last.filter(|last| first.is_some_and(|first| first < *last)),
    ) else {
        return Err(unread("fio", "no JSON"));
    };
    let object = serde_json::from_str(&lines[first..=last].join("\n"))
        .map_err(|error| unread("fio", &error.to_string()))?;
    let classic = lines[last + 1..].join("\n").trim().to_owned() + "\n";
    Ok((object, classic))
}

/// The figures of jobs that are called so.
///
/// # Errors
/// `Io` when a job failed.
pub(super) fn figures_of(jobs: &[Value], names: &[String]) -> Result<Seen, LabError> {
    let mut seen = Seen::default();
    for (job, name) in jobs.iter().zip(names) {
        if job["error"].as_u64() != Some(0) {
            return Err(unread(
                "fio",
                &format!("job {name} ended with {}", job["error"]),
            ));
        }
        let mut longest = 0.0_f64;
        for (index, word) in ["read", "write"].into_iter().enumerate() {
            let part = &job[word];
            if part["total_ios"].as_u64().unwrap_or(0) == 0 {
                continue;
            }
            let number = |key: &str| part[key].as_f64().unwrap_or(0.0);
            seen.figures.push(Figure::new(
                &format!("{name} {word}"),
                number("bw"),
                "KiB/s",
            ));
            let iops = Figure::new(&format!("{name} {word}s"), number("iops"), "1/s");
            seen.figures.push(iops);
            longest = longest.max(number("runtime") / 1e3);
            if jobs.len() == 1 {
                seen.latencies[index] = latency(part);
            }
        }
        seen.elapsed_s += longest;
    }
    Ok(seen)
}

fn latency(part: &Value) -> LatencySummary {
    let us = |value: &Value| value.as_f64().unwrap_or(0.0) / 1e3;
    let share = |key: &str| us(&part["clat_ns"]["percentile"][key]);
    LatencySummary {
        count: part["total_ios"].as_u64().unwrap_or(0),
        bytes: part["io_bytes"].as_u64().unwrap_or(0),
        mean_us: us(&part["lat_ns"]["mean"]),
        p50_us: share("50.000000"),
        p90_us: share("90.000000"),
        p99_us: share("99.000000"),
        p999_us: share("99.900000"),
        max_us: us(&part["lat_ns"]["max"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fio::{groups, parse as parse_jobs};

    const PRINTED: &str = include_str!("../../../../fixtures/lab/programs/fio.txt");

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn every_group_that_fio_printed_has_its_figures() {
        let seen = parse(PRINTED, &names(&["a", "b"])).unwrap();
        let pairs: Vec<(&str, f64)> = seen
            .figures
            .iter()
            .map(|f| (f.name.as_str(), f.value))
            .collect();
        assert_eq!(
            pairs,
            [
                ("a read", 4_096_000.0),
                ("a reads", 1_024_000.0),
                ("b read", 1_042_000.0),
                ("b reads", 260_500.0),
                ("b write", 1_006_000.0),
                ("b writes", 251_500.0)
            ]
        );
        assert!((seen.elapsed_s - 0.004).abs() < 1e-9, "{}", seen.elapsed_s);
        assert!(
            seen.classic.starts_with("a: (groupid=0, jobs=2)"),
            "{}",
            seen.classic
        );
        assert!(
            parse(PRINTED, &names(&["a"])).is_err(),
            "a group is missing"
        );
        assert!(
            parse(
                &PRINTED.replacen("\"error\" : 0", "\"error\" : 5", 1),
                &names(&["a", "b"])
            )
            .is_err()
        );
        assert!(parse("fio: no such file", &[]).is_err());
    }

    #[test]
    fn jobs_become_a_file_of_their_own_with_the_same_meaning() {
        let text = "[global]\nbs=8k\nsize=1m\nioengine=posixaio\niodepth=8\n[a]\nrw=randread\nnumjobs=2\n\
            [b]\nrw=write\nfsync=4\nend_fsync=1\n[c]\nstonewall\nrw=randrw\nrwmixread=30\nruntime=5\ntime_based\n";
        let jobs = parse_jobs(text, None).unwrap().jobs;
        let file = job_file(&groups(jobs), &Target::File("/dev/x"));
        let sections: Vec<&str> = file.split('[').collect();
        assert!(sections[1].contains("filename=/dev/x\n") && sections[1].contains("direct=1\n"));
        let wanted = "a]\nrw=randread\nbs=8192\nsize=1048576\nnumjobs=2\niodepth=1\nioengine=psync\n\
            offset=0\noffset_increment=1048576\n";
        assert_eq!(sections[2], wanted);
        assert!(
            sections[3].contains("fsync=4\nend_fsync=1\noffset=2097152\n"),
            "after both clones"
        );
        assert!(!sections[3].contains("stonewall"));
        assert!(sections[4].starts_with("c]\nstonewall\nrw=randrw\nrwmixread=30\n"));
        assert!(sections[4].contains("runtime=5000000us\ntime_based=1\noffset=0\n"));
        // Read again, it is the same jobs.
        let again = file
            .replace("offset=", "#")
            .replace("offset_increment=", "#");
        let again = again
            .replace("allow_file_create", "#")
            .replace("rw=randrw", "stonewall\nrw=randrw");
        let twice = parse_jobs(&again, None).unwrap().jobs;
        assert_eq!(twice.len(), 3);
        assert_eq!(twice[1].flush_every, 4);
    }

    #[test]
    fn a_job_file_is_handed_on_as_it_is_but_for_the_place() {
        let text = "; as it was\n[global]\nfilename=/dev/sda\ngtod_reduce=1\n[a]\nrw=randrw ; both\nbssplit=4k/50:8k/50\n";
        let (file, notes) = handed_on(text, &Target::File("/dev/x")).unwrap();
        assert!(
            file.starts_with("[global]\nfilename=/dev/x\nallow_file_create=0\n"),
            "{file}"
        );
        assert!(
            file.ends_with("gtod_reduce=1\n[a]\nrw=randrw ; both\nbssplit=4k/50:8k/50\n"),
            "{file}"
        );
        assert!(
            !file.contains("sda") && notes[0].contains("filename"),
            "{notes:?}"
        );
        let inside = handed_on("[a]\nfilename=data\n", &Target::Folder(Path::new("/mnt"))).unwrap();
        assert!(inside.0.contains("filename=data") && inside.1.is_empty());
        let outside =
            handed_on("[a]\nfilename=/etc/x\n", &Target::Folder(Path::new("/mnt"))).unwrap();
        assert!(!outside.0.contains("/etc/x"), "{outside:?}");
        for bad in [
            "include=more.fio",
            "exec_prerun=rm x",
            "read_iolog=log",
            "ioengine=rbd",
            "opendir=/home",
        ] {
            let error = handed_on(&format!("[a]\n{bad}\n"), &Target::File("f")).unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
    }

    #[test]
    fn a_job_file_writes_unless_all_it_says_is_read() {
        for (lines, writes) in [
            ("rw=read", false),
            ("rw = randread ; forward", false),
            ("bs=4k", false),
            ("rw=randread\n[b]\nrw=write", true),
            ("readwrite=randrw", true),
            ("rw=${HOW}", true),
            ("rw=trim", true),
        ] {
            assert_eq!(text_writes(&format!("[a]\n{lines}\n")), writes, "{lines}");
        }
    }

    #[test]
    fn requests_of_one_length_become_a_job() {
        let work = Work {
            kind: "mixed".to_owned(),
            depth: 8,
            is_sync: true,
            ..Work::default()
        };
        let file = job_file_of(&work, 1 << 30, &Target::Nbd("nbd+unix:///v?socket=s"));
        for line in [
            "uri=nbd+unix:///v?socket=s",
            "ioengine=nbd",
            "rw=randrw",
            "rwmixread=70",
            "number_ios=500",
            "sync=dsync",
            "norandommap=1",
        ] {
            assert!(file.lines().any(|one| one == line), "{line}: {file}");
        }
        let forward = Work {
            kind: "sequential-read".to_owned(),
            processes: 3,
            ..Work::default()
        };
        let file = job_file_of(&forward, 1 << 20, &Target::File("f"));
        assert!(
            file.contains("rw=read\n") && file.contains("size=348160\n"),
            "{file}"
        );
        assert!(file.contains("offset_increment=348160\n"), "{file}");
    }
}
