//! A new disk in the bay of one that is gone: by policy it takes that one's slot.
//!
//! Invariants:
//! - only a disk that is blank (`first_written`) is taken, and never the one that is gone itself;
//! - only a bay that hardware names counts: an enclosure's, a port's, a slot's of PCI, not a way of cables;
//! - each disk is looked at once in each bay, and each taking counts as a return: what flaps is left alone.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use plexum_block::clock::Clock;
use plexum_inventory::{BayAddress, Identity, Inventory, Roots};

use super::Service;
use super::names::key_of_status;
use crate::config::SameBay;
use crate::control::request::Action;
use crate::disk::{DiskStatus, beside, first_written};
use crate::host::Hosted;
use crate::volume::ops::act;
use crate::volume::status::{MemberState, VolumeStatus};

/// A slot whose disk has left its bay.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Vacancy {
    slot: u32,
    bay: BayAddress,
    gone: DiskStatus,
}

/// A disk as it was plugged in: the slot that it may take, its node's number, the kernel's count of disks when it came,
/// which older kernels do not have, and its serial.
pub(super) type Plugged = (u32, u64, String, Option<String>);

/// What a disk in the bay of a vacancy is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Candidate {
    /// It is blank, and may take the slot.
    Blank { path: String, words: String },
    /// It stays as it is, for this reason.
    Left { words: String, reason: String },
}

impl Service {
    /// Has blank disks take the slots of those that have left their bays, where that is the policy.
    pub(super) async fn take_same_bay(&self, hosted: &Hosted, status: &VolumeStatus) {
        if self.replace.same_bay != SameBay::Replace || status.is_read_only {
            return;
        }
        for vacancy in vacancies(status) {
            let key = key_of_status(status);
            let seen = match self.entries.borrow().get(&key) {
                Some(entry) => entry.looked_at.clone(),
                None => return, // it was forgotten meanwhile
            };
            let roots = self.host.settings().disks.roots.clone();
            let slot = vacancy.slot;
            let looking = beside("same-bay", move || candidate(&roots, &vacancy, &seen));
            let Ok(Some((plugged, candidate))) = looking.await else {
                continue;
            };
            let now = self.host.handle().clock().now();
            let may = {
                let mut entries = self.entries.borrow_mut();
                let Some(entry) = entries.get_mut(&key) else {
                    return;
                };
                entry.looked_at.insert(plugged);
                matches!(candidate, Candidate::Left { .. }) || entry.returns.may(slot, now)
            };
            match candidate {
                Candidate::Left { words, reason } => {
                    let text = format!("the {words} does not take slot {slot}: {reason}");
                    self.tell_same_bay(hosted, "new_disk_left", text);
                }
                Candidate::Blank { words, .. } if !may => {
                    let text = format!(
                        "the {words} does not take slot {slot}: disks come and go there too often"
                    );
                    self.tell_same_bay(hosted, "new_disk_left", text);
                }
                Candidate::Blank { path, words } => {
                    self.take(hosted, slot, (path, words)).await;
                }
            }
        }
    }

    /// Adds a blank disk, in the way of `plexum add` without `--force`.
    async fn take(&self, hosted: &Hosted, slot: u32, (path, words): (String, String)) {
        let Ok((served, under_way)) = hosted.for_change().await else {
            return; // it is being closed
        };
        let action = Action::Add {
            member: path.clone(),
            force: false,
        };
        let result = act(&served, self.host.handle(), action).await;
        let (name, text) = match result {
            Ok(_) => (
                "new_disk_taken",
                format!(
                    "the {words}, which is blank, takes slot {slot} as {path}, by the policy same-bay"
                ),
            ),
            Err(problem) => (
                "new_disk_left",
                format!("the {words} does not take slot {slot}: {problem}"),
            ),
        };
        self.tell_same_bay(hosted, name, text);
        drop((served, under_way));
    }

    fn tell_same_bay(&self, hosted: &Hosted, name: &str, text: String) {
        let time_s = self.host.handle().clock().wall_seconds();
        self.host
            .events()
            .publish(time_s, hosted.name(), name, text, None);
    }
}

/// Slots that nobody has, and whose last disk was in a bay that hardware names.
fn vacancies(status: &VolumeStatus) -> Vec<Vacancy> {
    let vacancy = |member: &crate::volume::status::MemberStatus| {
        let slot = member
            .slot
            .filter(|_| member.state == MemberState::Missing)?;
        let gone = member.disk.clone().filter(|disk| disk.is_gone)?;
        let bay = gone.bay.as_ref()?.address.clone();
        let is_named = !matches!(bay, BayAddress::Path { .. });
        is_named.then_some(Vacancy { slot, bay, gone })
    };
    status.members.iter().filter_map(vacancy).collect()
}

/// The disk that is in the bay of a vacancy, when it is one that was not looked at. Reads sysfs and the disk.
fn candidate(
    roots: &Roots,
    vacancy: &Vacancy,
    seen: &BTreeSet<Plugged>,
) -> Option<(Plugged, Candidate)> {
    let inventory = Inventory::read(roots).ok()?;
    let mut there = inventory
        .disks
        .iter()
        .filter(|disk| disk.bay.as_ref() == Some(&vacancy.bay));
    let disk = there.next()?;
    if there.next().is_some() {
        return None; // two that say they are in one bay: which one was put in?
    }
    let (path, number) = node_of(roots, &disk.name)?;
    let count = count_of(roots, &disk.name);
    let plugged = (vacancy.slot, number, count, disk.serial.clone());
    if seen.contains(&plugged) || !is_another(disk, &vacancy.gone) {
        return None;
    }
    let words = DiskStatus::of(disk).words();
    let left = |reason: String| Candidate::Left {
        words: words.clone(),
        reason,
    };
    let found = File::open(&path).and_then(|file| first_written(&file));
    let candidate = match found {
        Ok(None) => Candidate::Blank {
            path: path.display().to_string(),
            words,
        },
        Ok(Some(at)) => left(format!(
            "it is not blank, byte {at} of it is not zero; to take it all the same: plexum add"
        )),
        Err(error) => left(format!("it cannot be read, {error}")),
    };
    Some((plugged, candidate))
}

/// Whether a disk is certainly not the one that is gone.
fn is_another(disk: &Identity, gone: &DiskStatus) -> bool {
    let differ = |one: &Option<String>, other: &Option<String>| match (one, other) {
        (Some(one), Some(other)) => Some(one != other),
        _ => None,
    };
    let serials = differ(&disk.serial, &gone.serial);
    serials == Some(true) && differ(&disk.wwn, &gone.wwn) != Some(false)
}

/// The node of a disk, and its number. The number is the disk's; the node's name is the one that it has here.
fn node_of(roots: &Roots, name: &str) -> Option<(PathBuf, u64)> {
    let told = std::fs::read_to_string(roots.sys().join("class/block").join(name).join("dev"));
    let told = told.ok()?;
    let told = told.trim();
    let (major, minor) = told.split_once(':')?;
    let number = rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?);
    let folder = std::fs::canonicalize(Path::new("/sys/dev/block").join(told)).ok()?;
    // In names of the kernel a `!` stands for the slash of the node.
    let name = folder.file_name()?.to_str()?.replace('!', "/");
    let path = Path::new("/dev").join(name);
    let meta = std::fs::metadata(&path).ok()?;
    let is_it = meta.file_type().is_block_device() && meta.rdev() == number;
    is_it.then_some((path, number))
}

/// By what one disk is told from the next one of the same name.
fn count_of(roots: &Roots, name: &str) -> String {
    let file = roots.sys().join("class/block").join(name).join("diskseq");
    let told = std::fs::read_to_string(file).unwrap_or_default();
    told.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gone(serial: Option<&str>, wwn: Option<&str>) -> DiskStatus {
        DiskStatus {
            serial: serial.map(str::to_owned),
            wwn: wwn.map(str::to_owned),
            is_gone: true,
            ..DiskStatus::of(&Identity::default())
        }
    }

    fn disk(serial: Option<&str>, wwn: Option<&str>) -> Identity {
        Identity {
            serial: serial.map(str::to_owned),
            wwn: wwn.map(str::to_owned),
            ..Identity::default()
        }
    }

    #[test]
    fn a_disk_is_another_one_only_when_its_own_names_say_so() {
        let known = gone(Some("A"), Some("1"));
        assert!(is_another(&disk(Some("B"), Some("2")), &known));
        assert!(is_another(&disk(Some("B"), None), &known));
        assert!(!is_another(&disk(Some("A"), Some("1")), &known), "it is it");
        assert!(!is_another(&disk(Some("B"), Some("1")), &known), "unsure");
        assert!(!is_another(&disk(Some("A"), Some("2")), &known), "unsure");
        assert!(!is_another(&disk(None, Some("2")), &known), "unsure");
        assert!(!is_another(&disk(Some("B"), None), &gone(None, None)));
    }
}
