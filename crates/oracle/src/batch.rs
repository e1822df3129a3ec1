//! Packs jobs into few guests, runs them, and hands each job its report.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::folder::Folder;
use crate::guest::{self, MEMBERS_MAX};
use crate::job::{Ending, Job};
use crate::pattern::write_pattern;
use crate::report::Report;

const FUNCTIONS: &str = include_str!("job.sh");

/// Time for boot and end of a guest on a busy machine, in seconds.
const BOOT_LIMIT_S: u64 = 60;

/// Jobs that are to run together.
#[derive(Debug)]
pub struct Batch {
    jobs: Vec<Job>,
    boot_limit_s: u64,
}

impl Default for Batch {
    fn default() -> Self {
        Batch::new()
    }
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Batch {
        Batch {
            jobs: Vec::new(),
            boot_limit_s: BOOT_LIMIT_S,
        }
    }

    /// Allows each guest `seconds` for its boot and end, besides the time of its jobs.
    #[must_use]
    pub fn with_boot_limit(mut self, seconds: u64) -> Batch {
        self.boot_limit_s = seconds;
        self
    }

    /// Adds a job; the answer is its place in what [`Batch::run`] returns.
    pub fn add(&mut self, job: Job) -> usize {
        self.jobs.push(job);
        self.jobs.len() - 1
    }

    /// Runs all jobs and returns their reports in the order of adding.
    ///
    /// # Panics
    /// When a job has more than 16 members, or temporary files cannot be written: tests cannot go on without.
    #[must_use]
    pub fn run(self) -> Vec<Report> {
        let guests = pack(&self.jobs);
        let boot_limit_s = self.boot_limit_s;
        let mut reports: Vec<Option<Report>> = self.jobs.iter().map(|_| None).collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = guests
                .iter()
                .map(|guest| {
                    let jobs: Vec<&Job> = guest.iter().map(|&job| &self.jobs[job]).collect();
                    scope.spawn(move || {
                        run_guest(&jobs, boot_limit_s).expect("temporary files can be written")
                    })
                })
                .collect();
            for (guest, thread) in guests.iter().zip(threads) {
                let answers = thread.join().expect("a guest's thread does not panic");
                for (&job, report) in guest.iter().zip(answers) {
                    reports[job] = Some(report);
                }
            }
        });
        let all = reports
            .into_iter()
            .map(|report| report.expect("each job is in one guest"));
        all.collect()
    }

    /// Runs all jobs and panics, naming every fault of every job, unless all are without one.
    ///
    /// # Panics
    /// When a report has a fault.
    pub fn run_faultless(self) -> Vec<Report> {
        let reports = self.run();
        let faults: Vec<String> = reports.iter().flat_map(Report::faults).collect();
        assert!(
            faults.is_empty(),
            "{} faults:\n{}",
            faults.len(),
            faults.join("\n")
        );
        reports
    }
}

/// Which jobs share a guest: first fit, largest first; those that cut the power come last in theirs.
fn pack(jobs: &[Job]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&job| std::cmp::Reverse(jobs[job].members.len()));
    let mut guests: Vec<(usize, Vec<usize>)> = Vec::new();
    for job in order {
        let members = jobs[job].members.len();
        assert!(
            members <= MEMBERS_MAX,
            "{}: {members} members, a guest takes 16",
            jobs[job].name
        );
        match guests
            .iter_mut()
            .find(|(used, _)| used + members <= MEMBERS_MAX)
        {
            Some((used, list)) => {
                *used += members;
                list.push(job);
            }
            None => guests.push((members, vec![job])),
        }
    }
    let mut packed: Vec<Vec<usize>> = guests.into_iter().map(|(_, list)| list).collect();
    for list in &mut packed {
        list.sort_by_key(|&job| (jobs[job].ending == Ending::Crash, job));
    }
    packed
}

/// Runs one guest with `jobs`.
fn run_guest(jobs: &[&Job], boot_limit_s: u64) -> std::io::Result<Vec<Report>> {
    let folder = Folder::new("oracle")?;
    let members = place_members(jobs, folder.path())?;
    place_patterns(jobs, folder.path())?;
    let script = folder.path().join("script");
    std::fs::write(&script, guest_script(jobs, folder.path()))?;
    let out = folder.path().join("out");
    let limit_s = boot_limit_s + jobs.iter().map(|job| job.seconds).sum::<u64>();
    let outcome = guest::run(&script, &members, &out, limit_s);
    let reports = jobs.iter().enumerate().map(|(number, job)| {
        let lost = outcome.as_ref().err().cloned();
        Report::read(job, &out.join(number.to_string()), lost)
    });
    Ok(reports.collect())
}

/// The files to attach: the caller's own, or copies of them.
fn place_members(jobs: &[&Job], folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        for (index, member) in job.members.iter().enumerate() {
            if !job.works_on_copies {
                all.push(member.clone());
                continue;
            }
            let copy = folder.join(format!("copy-{number}-{index}"));
            let status = Command::new("cp")
                .args(["--reflink=auto", "--sparse=always", "--"])
                .args([member, &copy])
                .status()?;
            if !status.success() {
                let message = format!("{} cannot be copied", member.display());
                return Err(std::io::Error::other(message));
            }
            all.push(copy);
        }
    }
    Ok(all)
}

/// One pattern file for each seed, as long as the largest array that may be filled with it.
fn place_patterns(jobs: &[&Job], folder: &Path) -> std::io::Result<()> {
    let patterns = folder.join("patterns");
    std::fs::create_dir(&patterns)?;
    let mut sizes = std::collections::BTreeMap::new();
    for job in jobs {
        let mut size_bytes = 0;
        for member in &job.members {
            size_bytes += std::fs::metadata(member)?.len();
        }
        for &seed in &job.seeds {
            let largest = sizes.entry(seed).or_insert(0);
            *largest = size_bytes.max(*largest);
        }
    }
    for (seed, size_bytes) in sizes {
        write_pattern(&patterns.join(seed.to_string()), seed, size_bytes)?;
    }
    Ok(())
}

/// The script of a whole guest: each job in a subshell with its own names.
fn guest_script(jobs: &[&Job], folder: &Path) -> String {
    let mut text = format!(
        "ALL=$OUT\nset -- $DEVS\nPATTERNS='/run/host{}'; export PATTERNS\n{FUNCTIONS}\n",
        folder.join("patterns").display()
    );
    let mut first = 0;
    for (number, job) in jobs.iter().enumerate() {
        let count = job.members.len();
        let devices: Vec<String> = (0..count)
            .map(|n| format!("${{{}}}", first + n + 1))
            .collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "mkdir -p \"$ALL/{number}\"\n(");
        let _ = writeln!(
            text,
            "OUT=$ALL/{number} MD=/dev/md{number} MD_SYS=/sys/block/md{number}/md N={count}"
        );
        let _ = writeln!(text, "DEVS=\"{}\"", devices.join(" "));
        for (index, device) in devices.iter().enumerate() {
            let _ = writeln!(text, "D{index}={device}");
        }
        let _ = writeln!(text, "export OUT MD MD_SYS N DEVS\n{}\n", job.script);
        let _ = writeln!(
            text,
            ") >\"$ALL/{number}/stdout\" 2>\"$ALL/{number}/stderr\" </dev/null"
        );
        let _ = writeln!(text, "echo $? >\"$ALL/{number}/exit\"");
        if job.ending == Ending::Stop {
            let state = format!("/sys/block/md{number}/md");
            let _ = writeln!(
                text,
                "[ -e {state} ] && mdadm --stop /dev/md{number} >>\"$ALL/{number}/mdadm\" 2>&1"
            );
        }
        first += count;
    }
    if jobs.iter().any(|job| job.ending == Ending::Crash) {
        text.push_str("md_crash\n");
    }
    text.push_str("exit 0\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(members: usize) -> Job {
        Job::script("a", &vec!["m"; members], ":")
    }

    #[test]
    fn jobs_are_packed_into_few_guests_and_crashes_come_last() {
        let jobs = [
            job(6).crash_at_end(),
            job(10),
            job(8),
            job(4),
            job(3),
            job(1),
        ];
        let guests = pack(&jobs);
        assert_eq!(guests, vec![vec![1, 0], vec![2, 3, 4, 5]]);
    }

    #[test]
    #[should_panic(expected = "17 members")]
    fn a_job_too_large_for_a_guest_is_refused() {
        let _ = pack(&[job(17)]);
    }

    #[test]
    fn each_job_sees_its_own_members() {
        let jobs = [job(2), job(12)];
        let text = guest_script(&[&jobs[0], &jobs[1]], Path::new("/x"));
        assert!(
            text.contains("D0=${1}\nD1=${2}\n")
                && text.contains("D0=${3}\n")
                && text.contains("D11=${14}\n")
        );
        assert!(text.contains("MD=/dev/md1") && !text.contains("md_crash\nexit 0"));
    }
}
