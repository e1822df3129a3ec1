//! What came of a job.

use std::collections::BTreeMap;
use std::path::Path;

use crate::examine::MemberState;
use crate::job::{Expected, Job, Judge};
use crate::pattern::pattern_sha256;

/// What came of one job.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the job.
    pub name: String,
    /// Exit code of its script: 0 fine, 3 refused by mdadm or the kernel; `None` when the guest ended before.
    pub exit_code: Option<i32>,
    /// What the script `put`: key and value.
    pub values: BTreeMap<String, String>,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
    /// What mdadm said.
    pub mdadm: String,
    /// The members as mdadm saw them when `examine` ran; empty when it did not.
    pub members: Vec<MemberState>,
    /// Why the guest failed as a whole.
    pub lost: Option<String>,
    judge: Option<Judge>,
}

impl Report {
    /// Reads what `job` left in `folder`.
    pub(crate) fn read(job: &Job, folder: &Path, lost: Option<String>) -> Report {
        let file = |name: &str| {
            let bytes = std::fs::read(folder.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let values = file("values");
        let pairs = values.lines().filter_map(|line| line.split_once('\t'));
        let members =
            (0..job.members.len()).filter(|index| folder.join(format!("examine.{index}")).exists());
        Report {
            name: job.name.clone(),
            exit_code: file("exit").trim().parse().ok(),
            values: pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .collect(),
            stdout: file("stdout"),
            stderr: file("stderr"),
            mdadm: file("mdadm"),
            members: members
                .map(|index| {
                    MemberState::parse(
                        &file(&format!("examine.{index}")),
                        &file(&format!("bitmap.{index}")),
                    )
                })
                .collect(),
            lost,
            judge: job.judge.clone(),
        }
    }

    /// A value that the script `put`; empty when it did not.
    #[must_use]
    pub fn value(&self, key: &str) -> &str {
        self.values.get(key).map_or("", String::as_str)
    }

    /// `mismatch_cnt` after a scrub, in sectors; `None` without a scrub or without redundancy.
    #[must_use]
    pub fn mismatch_sectors(&self) -> Option<u64> {
        self.value("mismatch_sectors").parse().ok()
    }

    /// All that is wrong, a sentence each; empty when the script ended well and a judge found what it expected.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        match self.exit_code {
            Some(0) => {}
            Some(code) => faults.push(format!(
                "ended with {code}\n{}{}{}",
                self.stdout, self.stderr, self.mdadm
            )),
            None => faults.push(format!(
                "gave no result: {}\n{}",
                self.lost.as_deref().unwrap_or("the guest ended before it"),
                self.mdadm
            )),
        }
        if let Some(judge) = &self.judge {
            self.judge_metadata(judge, &mut faults);
            self.judge_content(judge, &mut faults);
        }
        faults
            .into_iter()
            .map(|fault| format!("{}: {fault}", self.name))
            .collect()
    }

    fn judge_metadata(&self, judge: &Judge, faults: &mut Vec<String>) {
        for (index, member) in self.members.iter().enumerate().filter(|_| judge.clean) {
            if !member.is_clean() {
                faults.push(format!(
                    "member {index}: state \"{}\", not clean\n{}",
                    member.state, member.text
                ));
            }
            if member.dirty_bits.unwrap_or(0) != 0 {
                faults.push(format!(
                    "member {index}: bitmap has dirty bits\n{}",
                    member.text
                ));
            }
        }
        if judge.scrub && self.mismatch_sectors().unwrap_or(0) != 0 {
            faults.push(format!(
                "check found {} sectors that differ",
                self.value("mismatch_sectors")
            ));
        }
    }

    fn judge_content(&self, judge: &Judge, faults: &mut Vec<String>) {
        let reads = (0..judge.without.len())
            .map(|number| (format!("read.{number}"), &judge.without[number][..]));
        let after = judge.scrub.then(|| ("after_scrub".to_owned(), &[][..]));
        for (key, without) in reads.chain(after) {
            let found = self.value(&format!("{key}.sha256"));
            let size_bytes = self.value(&format!("{key}.size_bytes"));
            let expected = match &judge.expected {
                Expected::Anything if found.len() == 64 => continue,
                Expected::Anything => "content".to_owned(),
                Expected::Sha256(hash) => hash.clone(),
                Expected::Seed(seed) => match size_bytes.parse() {
                    Ok(size_bytes) if size_bytes > 0 => pattern_sha256(*seed, size_bytes),
                    _ => format!("the pattern of seed {seed:#x}"),
                },
            };
            if found != expected {
                faults.push(format!(
                    "{key} without members {without:?}: content {found:?} ({size_bytes} bytes), expected {expected}\n{}",
                    self.mdadm
                ));
            }
        }
    }
}
