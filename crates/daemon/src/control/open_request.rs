//! A volume that is to be served, in words that go over the control socket and into a file.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plexum_engine::volume::VolumeOptions;
use plexum_layout::Raid0Layout;
use plexum_md::assemble::{Options, StaleUse};
use serde::{Deserialize, Serialize};

use crate::assembly::{AssembleRequest, DeviceWish};
use crate::foreign::asked_balance;
use crate::owners::Choice;
use crate::problem::{Code, Problem};

/// How long a member may leave a request without an answer, in seconds, where nothing else is said.
const MEMBER_TIMEOUT_S: u64 = 30;

/// What to serve and how, by the words of `plexum serve`: members, and what the user insists on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OpenRequest {
    /// Members in any order: paths or addresses.
    pub members: Vec<String>,
    /// `POOL/VOLUME[@SNAPSHOT]`: volumes of the ZFS pool on the members, all of one pool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub datasets: Vec<String>,
    /// With `datasets` and `write`: the pool is not checked first.
    #[serde(skip_serializing_if = "is_false")]
    pub trust: bool,
    /// With `datasets`: the newest root up to this transaction group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txg: Option<u64>,
    /// Name instead of the one in the metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Change no byte of any member.
    #[serde(skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// Allow writes to formats that are read-only by default; with `force`, to stale members.
    #[serde(skip_serializing_if = "is_false")]
    pub write: bool,
    /// Start although members disagree.
    #[serde(skip_serializing_if = "is_false")]
    pub force: bool,
    /// With `force`: answer rows in doubt with what is there.
    #[serde(skip_serializing_if = "is_false")]
    pub force_data: bool,
    /// Start although a member is missing that was there at the last stop.
    #[serde(skip_serializing_if = "is_false")]
    pub run_degraded: bool,
    /// Which copy is read, in the words of `--balance`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Which set is meant where members may be of several, in the words of `--format`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
    /// `original` or `alternate`, of a RAID-0 of unequal members.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raid0_layout: Option<String>,
    /// The backup file that `mdadm --grow` was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_file: Option<PathBuf>,
    /// Make it a block device of the kernel.
    #[serde(skip_serializing_if = "is_false")]
    pub ublk: bool,
    /// A Unix socket by which a virtual machine has it as a disk (vhost-user-blk).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vhost_user: Option<PathBuf>,
    /// Seconds after which a member that does not answer is failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_timeout_s: Option<u64>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it with a reference
fn is_false(is: &bool) -> bool {
    !is
}

impl OpenRequest {
    /// What is to be assembled.
    ///
    /// # Errors
    /// `Usage`: a word is none of those that there are.
    pub fn assemble(&self) -> Result<AssembleRequest, Problem> {
        if self.force_data && !self.force {
            return Err(usage("--force-data goes with --force"));
        }
        let timeout_s = self.member_timeout_s.unwrap_or(MEMBER_TIMEOUT_S);
        let mut volume = VolumeOptions {
            is_read_only: self.read_only,
            member_timeout: Duration::from_secs(timeout_s),
            ..VolumeOptions::default()
        };
        if let Some(word) = &self.balance {
            volume.balance = word.parse().map_err(|error| usage(format!("{error}")))?;
        }
        Ok(AssembleRequest {
            members: self.members.clone(),
            name: self.name.clone(),
            options: Options {
                force: self.force,
                run_degraded: self.run_degraded,
                read_only: self.read_only,
                force_data: self.force_data,
                stale: match (self.force, self.write) {
                    (false, _) => StaleUse::Never,
                    (true, false) => StaleUse::Read,
                    (true, true) => StaleUse::Write,
                },
                raid0_layout: self.raid0_layout.as_deref().map(raid0_layout).transpose()?,
                goes_on_reshaping: false,
                has_backup: self.backup_file.is_some(),
            },
            balance: asked_balance(self.balance.as_deref()),
            may_write: self.write,
            backup_file: self.backup_file.clone(),
            choice: match &self.format {
                Some(word) => Choice::Format(word.parse()?),
                None => Choice::Only,
            },
            planned: Vec::new(),
            change: crate::assembly::Change::None,
            goal: None,
            device: self.device_wish(),
            vhost_user: self.vhost_user.clone(),
            volume,
        })
    }

    /// Whether it is made a block device.
    pub(crate) fn device_wish(&self) -> DeviceWish {
        match self.ublk {
            true => DeviceWish::Make,
            false => DeviceWish::TakeOver,
        }
    }

    /// The same with whole paths: another process works in another folder. Links are kept: what a link in
    /// `/dev/disk/by-id` means is the same after the next start, what it leads to now is not.
    #[must_use]
    pub fn absolute(&self) -> Self {
        let whole = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let word = |word: &String| match word.contains("://") || word == "missing" {
            true => word.clone(),
            false => whole(Path::new(word)).to_string_lossy().into_owned(),
        };
        Self {
            members: self.members.iter().map(word).collect(),
            backup_file: self.backup_file.as_deref().map(whole),
            vhost_user: self.vhost_user.as_deref().map(whole),
            ..self.clone()
        }
    }

    /// What is insisted on once, and must not be insisted on at a later start: force belongs to the moment at which
    /// somebody looked.
    #[must_use]
    pub fn for_later(&self) -> Self {
        Self {
            force: false,
            force_data: false,
            run_degraded: false,
            trust: false,
            backup_file: None,
            ..self.clone()
        }
    }
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

fn raid0_layout(word: &str) -> Result<Raid0Layout, Problem> {
    match word {
        "original" => Ok(Raid0Layout::Original),
        "alternate" => Ok(Raid0Layout::Alternate),
        other => Err(usage(format!(
            "--raid0-layout {other}: it is original or alternate"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_insisted_on_once_is_not_insisted_on_at_a_later_start() {
        let asked = OpenRequest {
            members: vec!["/a".into(), "/b".into()],
            write: true,
            force: true,
            force_data: true,
            run_degraded: true,
            backup_file: Some("/backup".into()),
            ..OpenRequest::default()
        };
        let later = asked.for_later().assemble().unwrap();
        assert_eq!(later.options, Options::default());
        assert!(later.may_write, "the format may still be written to");
        assert_eq!(later.backup_file, None);
    }

    #[test]
    fn a_request_is_the_same_after_its_way_through_a_file() {
        let asked = OpenRequest {
            members: vec!["/a".into()],
            name: Some("nas".into()),
            balance: Some("round-robin".into()),
            format: Some("md-1.2".into()),
            member_timeout_s: Some(5),
            ..OpenRequest::default()
        };
        let text = serde_json::to_string(&asked).unwrap();
        assert_eq!(serde_json::from_str::<OpenRequest>(&text).unwrap(), asked);
        assert!(
            !text.contains("force"),
            "what is not asked for is not written: {text}"
        );
        let typed = serde_json::from_str::<OpenRequest>(r#"{"members":["/a"],"forse":true}"#);
        assert!(typed.unwrap_err().to_string().contains("forse"));
    }
}
