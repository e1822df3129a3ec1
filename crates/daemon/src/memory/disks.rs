//! The disks that the slots of a volume have, or had last.
//!
//! Invariant: who a disk is, is written when it arrives and is in use. Leaving writes only when it was last seen.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;

use plexum_inventory::health::{Baseline, Reading, Report, Verdict, judge};
use plexum_inventory::{Identity, Sameness};
use serde::{Deserialize, Serialize};

use super::{Remembered, StateDir, VolumeMemory};
use crate::disk::{DiskHealth, DiskStatus, FormerDisk};

/// How old the time may be that is kept of a disk that stays: a day.
const SEEN_EVERY_S: u64 = 24 * 3600;

/// Largest file that is read, in bytes: one disk has some kilobytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How long a disk is told of whose place another has taken: a month is time enough to pull it.
const FORMER_S: u64 = 30 * 24 * 3600;
/// How many of these are kept.
const FORMER_MAX: usize = 16;

/// A disk that had a slot before the one that has it now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Former {
    /// The slot.
    pub slot: u32,
    /// The disk.
    pub disk: KnownDisk,
}

/// A disk that has, or had, a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct KnownDisk {
    /// The member's path.
    pub member: String,
    /// Who it is.
    pub identity: Identity,
    /// When it was first seen in this volume, in seconds since 1970.
    pub first_seen_s: u64,
    /// When it was last seen in use.
    pub last_seen_s: u64,
    /// What it was like when it joined, and what was seen since; none while it never answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<Baseline>,
    /// The last verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl KnownDisk {
    /// Who it is, with what only the disk itself has said: behind a bridge nobody else knows its serial.
    #[must_use]
    pub fn complete(&self) -> Identity {
        let mut identity = self.identity.clone();
        let last = self
            .baseline
            .as_ref()
            .and_then(|all| all.last_awake.as_ref());
        if let Some(Report::Awake(health)) = last.map(|last| &last.report) {
            identity.complete_from(health);
        }
        identity
    }

    /// How it is; none while it was not asked.
    #[must_use]
    pub fn health(&self) -> Option<DiskHealth> {
        let verdict = self.verdict.clone()?;
        Some(DiskHealth {
            words: verdict.to_string(),
            read_s: self.read_s()?,
            verdict,
        })
    }

    /// When it was last asked.
    #[must_use]
    pub fn read_s(&self) -> Option<u64> {
        self.baseline.as_ref()?.read_unix_s
    }
}

impl VolumeMemory {
    /// The disk that a slot has, or had last.
    #[must_use]
    pub fn disk_in(&self, slot: u32) -> Option<KnownDisk> {
        self.now.borrow().disks.get(&slot).cloned()
    }

    /// Disks that had a slot in the last month and whose place another has now, oldest first.
    #[must_use]
    pub fn former(&self, now_s: u64) -> Vec<Former> {
        let now = self.now.borrow();
        let is_recent = |former: &&Former| now_s.abs_diff(former.disk.last_seen_s) < FORMER_S;
        now.former_disks.iter().filter(is_recent).cloned().collect()
    }

    /// Notes the disk of the member that is in use in a slot; none where it has none. What is known of the same disk,
    /// in whichever slot it was, stays known.
    pub fn note_disk(&self, slot: u32, member: &str, found: Option<&Identity>, now_s: u64) {
        self.change(|now| {
            let Some(identity) = found else {
                let is_other = |known: &KnownDisk| known.member != member;
                let is_new = now.disks.get(&slot).is_some_and(is_other);
                if is_new {
                    now.disks.remove(&slot);
                }
                return is_new;
            };
            let former = now.former_disks.iter().map(|former| &former.disk);
            let mut disks = now.disks.values().chain(former);
            let before = disks.find(|known| is_same(&known.identity, identity));
            let mut disk = before.cloned().unwrap_or_else(|| KnownDisk {
                first_seen_s: now_s,
                ..KnownDisk::default()
            });
            disk.last_seen_s = now_s;
            disk.member = member.to_owned();
            disk.identity = identity.clone();
            now.former_disks
                .retain(|former| !is_same(&former.disk.identity, identity));
            let replaced = now.disks.remove(&slot);
            if let Some(disk) = replaced.filter(|known| !is_same(&known.identity, identity)) {
                now.former_disks.push(Former { slot, disk });
                let surplus = now.former_disks.len().saturating_sub(FORMER_MAX);
                now.former_disks.drain(..surplus);
            }
            now.disks.insert(slot, disk);
            true
        });
    }

    /// Notes which slots have their disk in use now. Kept when one has lost it, and once a day.
    pub fn note_in_use(&self, slots: &BTreeSet<u32>, now_s: u64) {
        self.change(|now| {
            let mut seen = self.in_use.borrow_mut();
            let mut is_new = seen.slots.difference(slots).next().is_some();
            seen.slots.clone_from(slots);
            for (_, disk) in now
                .disks
                .iter_mut()
                .filter(|(slot, _)| slots.contains(slot))
            {
                disk.last_seen_s = now_s;
            }
            is_new |= now_s.abs_diff(seen.kept_s) >= SEEN_EVERY_S && !now.disks.is_empty();
            if is_new {
                seen.kept_s = now_s;
            }
            is_new
        });
    }

    /// Keeps when the disks were last seen: nobody looks any more.
    pub fn end_in_use(&self, now_s: u64) {
        let slots = self.in_use.borrow().slots.clone();
        if !slots.is_empty() {
            self.note_in_use(&slots, now_s);
            self.note_in_use(&BTreeSet::new(), now_s);
        }
    }

    /// Judges a reading of the disk in a slot, and takes it in. The answer is the verdict, where it is another than
    /// before.
    pub fn note_reading(&self, slot: u32, reading: &Reading) -> Option<Verdict> {
        let mut news = None;
        self.change(|now| {
            let Some(disk) = now.disks.get_mut(&slot) else {
                return false;
            };
            let mut baseline = disk.baseline.take().unwrap_or_default();
            let verdict = judge(&baseline, reading);
            baseline.follow(reading);
            disk.baseline = Some(baseline);
            if disk.verdict.as_ref() != Some(&verdict) {
                news = Some(verdict.clone());
            }
            disk.verdict = Some(verdict);
            true
        });
        news
    }
}

impl StateDir {
    /// The disks of a volume that is not served, as they were kept, by the name that it was served by last; of several
    /// of that name the one that was served last. Nothing where nothing is kept.
    #[must_use]
    pub fn disks_of(&self, volume: &str) -> Vec<FormerDisk> {
        let entries = fs::read_dir(self.path().join("sets")).into_iter().flatten();
        let files = entries.flatten().map(|entry| entry.path());
        let files = files.filter(|path| path.extension().is_some_and(|end| end == "json"));
        let read = |path: PathBuf| {
            let mut bytes = Vec::new();
            let file = fs::File::open(path).ok()?;
            file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
            serde_json::from_slice::<Remembered>(&bytes).ok()
        };
        let of_name = files
            .filter_map(read)
            .filter(|found| found.volume == volume);
        let newest = of_name.max_by_key(|found| {
            let seen = found.disks.values().map(|disk| disk.last_seen_s);
            seen.max()
        });
        let Some(found) = newest else {
            return Vec::new();
        };
        let disks = found.disks.iter().map(|(slot, disk)| (*slot, disk));
        let former = found.former_disks.iter();
        let former = former.map(|former| (former.slot, &former.disk));
        let told = disks.chain(former).map(|(slot, disk)| FormerDisk {
            slot,
            member: disk.member.clone(),
            disk: DiskStatus::of_gone(disk),
        });
        told.collect()
    }
}

/// Whether two identities are one disk's. Of one that nothing but its bridge speaks for, all but the kernel's name must
/// be as it was.
fn is_same(known: &Identity, found: &Identity) -> bool {
    let renamed = Identity {
        name: found.name.clone(),
        ..known.clone()
    };
    known.compare(found) == Sameness::Same || renamed == *found
}

/// Which slots had their disk in use, and when that was kept.
#[derive(Debug, Default)]
pub(super) struct InUse {
    slots: BTreeSet<u32>,
    kept_s: u64,
}

#[cfg(test)]
mod tests {
    use plexum_inventory::health::{Ended, ExitStatus, read};

    use super::*;

    fn disk(serial: &str) -> Identity {
        Identity {
            wwn: Some(format!("naa.{serial}")),
            serial: Some(serial.to_owned()),
            size_bytes: 7,
            ..Identity::default()
        }
    }

    #[test]
    fn a_disk_that_has_left_its_slot_stays_known_with_the_time_it_was_last_seen() {
        let memory = VolumeMemory::unkept("v");
        memory.note_disk(1, "/dev/sdb", Some(&disk("B")), 100);
        memory.note_in_use(&BTreeSet::from([1]), 150);
        memory.note_in_use(&BTreeSet::new(), 200);
        memory.note_in_use(&BTreeSet::new(), 300);
        let known = memory.disk_in(1).unwrap();
        assert_eq!(known.identity, disk("B"));
        assert_eq!((known.first_seen_s, known.last_seen_s), (100, 150));
    }

    #[test]
    fn a_disk_that_comes_back_in_another_slot_keeps_its_past_and_another_one_begins_anew() {
        let memory = VolumeMemory::unkept("v");
        memory.note_disk(1, "/dev/sdb", Some(&disk("B")), 100);
        memory.note_disk(2, "/dev/sdc", Some(&disk("B")), 200);
        assert_eq!(memory.disk_in(2).unwrap().first_seen_s, 100);
        memory.note_disk(2, "/dev/sdc", Some(&disk("C")), 300);
        assert_eq!(memory.disk_in(2).unwrap().first_seen_s, 300);
        memory.note_disk(2, "/dev/sdc", None, 400);
        assert!(memory.disk_in(2).is_some(), "it could not be read now");
        memory.note_disk(2, "/a/file", None, 500);
        assert_eq!(memory.disk_in(2), None, "a file took its place");
    }

    #[test]
    fn a_disk_whose_place_another_took_is_told_for_a_month_or_until_it_is_back() {
        let memory = VolumeMemory::unkept("v");
        let serials = |now_s| -> Vec<String> {
            let former = memory.former(now_s).into_iter();
            former.filter_map(|one| one.disk.identity.serial).collect()
        };
        memory.note_disk(1, "/dev/sdb", Some(&disk("B")), 100);
        memory.note_disk(1, "/dev/sdc", Some(&disk("C")), 200);
        assert_eq!(serials(200), ["B"]);
        assert_eq!(serials(100 + FORMER_S), [""; 0]);
        memory.note_disk(2, "/dev/sdb", Some(&disk("B")), 300);
        assert_eq!(serials(300), [""; 0]);
        assert_eq!(memory.disk_in(2).unwrap().first_seen_s, 100);
    }

    #[test]
    fn growth_since_the_disk_joined_is_news_and_is_told_once() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../fixtures/inventory/health/ata.json"
        );
        let document = std::fs::read_to_string(path).unwrap();
        let reading = |read_unix_s, pending: u64| {
            let mut document: serde_json::Value = serde_json::from_str(&document).unwrap();
            let table = document["ata_smart_attributes"]["table"].as_array_mut();
            let mut rows = table.unwrap().iter_mut();
            let row = rows.find(|row| row["id"] == 197).unwrap();
            row["raw"] = serde_json::json!({"value": pending, "string": pending.to_string()});
            let bytes = serde_json::to_vec(&document).unwrap();
            Reading {
                read_unix_s,
                report: read(&bytes, Ended::Exited(ExitStatus(0))),
            }
        };
        let memory = VolumeMemory::unkept("v");
        memory.note_disk(1, "/dev/sdb", Some(&disk("B")), 100);
        let words = |news: Option<Verdict>| news.map(|verdict| verdict.to_string());
        let note = |reading: &Reading| words(memory.note_reading(1, reading));
        assert_eq!(note(&reading(100, 8)).as_deref(), Some("fine"), "its past");
        assert_eq!(note(&reading(200, 8)), None);
        let grown = "growing: pending sectors 8 -> 24";
        assert_eq!(note(&reading(300, 24)).as_deref(), Some(grown));
        assert_eq!(memory.disk_in(1).unwrap().health().unwrap().words, grown);
        memory.note_disk(2, "/dev/sdx", Some(&disk("B")), 400);
        let moved = memory.disk_in(2).unwrap();
        assert_eq!(moved.health().unwrap().words, grown, "it is the disk's");
        assert_eq!(moved.read_s(), Some(300));
    }
}
