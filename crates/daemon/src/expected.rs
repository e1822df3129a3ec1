//! What should be there: the volumes that the daemon was given, also while their members are not.
//!
//! Invariants:
//! - a file tells of a volume as it was when it was last served with all that it needs: who is gone now stays in it;
//! - a file that makes no sense is told and left as it is; the volumes of the others are served;
//! - what was answered to whoever changed it is durable.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read};

use serde::{Deserialize, Serialize};

use crate::control::OpenRequest;
use crate::memory::{Key, StateDir};
use crate::volume::status::{JSON_VERSION, MemberState, MemberStatus, VolumeStatus};

/// Largest file that is read, in bytes: a volume of many members with long names is a fiftieth of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Whether a volume is to be served whenever its members are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// At each start.
    #[default]
    Served,
    /// Somebody has stopped it: only when somebody asks for it again.
    Stopped,
}

/// A slot of a volume, and who had it last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedSlot {
    /// The member's path or address.
    pub member: String,
    /// The serial number of its disk, where that was known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// It has missed writes that others of the volume have.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_behind: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde calls it with a reference
fn is_false(is: &bool) -> bool {
    !is
}

/// A volume that should be there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expected {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `expected`.
    pub kind: String,
    /// Its name.
    pub volume: String,
    /// Its level, in a word.
    pub level: String,
    /// Whose metadata its members carry.
    pub format: String,
    /// Its identity.
    pub uuid: String,
    /// Whether it is to be served.
    pub wanted: Wanted,
    /// How it is served.
    pub open: OpenRequest,
    /// Who has each slot, or had it last.
    #[serde(default)]
    pub slots: BTreeMap<u32, ExpectedSlot>,
    /// Members without a slot: spares.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spares: Vec<String>,
}

impl Expected {
    /// What is known of a volume that is served now, as it was asked for.
    #[must_use]
    pub fn of(status: &VolumeStatus, open: &OpenRequest) -> Self {
        let mut expected = Self {
            version: JSON_VERSION,
            kind: "expected".into(),
            volume: status.volume.clone(),
            level: status.level.clone(),
            format: status.format.clone(),
            uuid: status.uuid.clone(),
            wanted: Wanted::Served,
            open: open.clone(),
            ..Self::default()
        };
        expected.learn(status);
        expected
    }

    /// By what it is known from one start to the next.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of(&self.format, &self.uuid, &self.volume)
    }

    /// Takes over who is in the slots now; whoever was in one that is empty stays known. Says whether that is news.
    pub fn learn(&mut self, status: &VolumeStatus) -> bool {
        let before = (self.slots.clone(), self.spares.clone());
        self.spares.clear();
        if self.format == "zfs" {
            // Members of a pool come and go for good; slots behind one that has gone are others now.
            let is_slot = |slot: &u32| status.members.iter().any(|one| one.slot == Some(*slot));
            self.slots.retain(|slot, _| is_slot(slot));
        }
        for member in &status.members {
            let is_lost = matches!(member.state, MemberState::Missing | MemberState::Faulty);
            let slot = member.slot.and_then(|slot| self.slots.get_mut(&slot));
            if let (Some(slot), true) = (slot, is_lost && !status.is_read_only) {
                slot.is_behind = true;
            }
            let Some(name) = member.path.clone() else {
                self.learn_gone(member);
                continue;
            };
            match (member.slot, member.state) {
                // The slot is another one's until this one is filled.
                (_, MemberState::Rebuilding) if member.is_replacement => self.spares.push(name),
                (Some(slot), MemberState::Active | MemberState::Rebuilding) => {
                    // The disk is looked for when the member has joined: until it is found it is the one of before.
                    let before = self.slots.get(&slot).filter(|known| known.member == name);
                    let before = before.and_then(|known| known.serial.clone());
                    let entry = ExpectedSlot {
                        member: name,
                        serial: member.serial.clone().or(before),
                        is_behind: member.state == MemberState::Rebuilding,
                    };
                    self.slots.insert(slot, entry);
                }
                (None, MemberState::Spare) => self.spares.push(name),
                _ => {} // it is known as it was
            }
        }
        before != (self.slots.clone(), self.spares.clone())
    }

    /// Takes over the serial of the disk that an empty slot had, where it left before that was known here.
    fn learn_gone(&mut self, empty: &MemberStatus) {
        let slot = empty.slot.and_then(|slot| self.slots.get_mut(&slot));
        if let Some(slot) = slot
            && empty.was.as_ref() == Some(&slot.member)
            && slot.serial.is_none()
        {
            let disk = empty.disk.as_ref();
            slot.serial = disk.and_then(|disk| disk.serial.clone());
        }
    }

    /// A member with the serial of its disk, where that is known: it may have come back under another path.
    #[must_use]
    pub fn with_serial(&self, member: &str) -> String {
        let mut slots = self.slots.values();
        let slot = slots.find(|slot| slot.member == member);
        match slot.and_then(|slot| slot.serial.as_ref()) {
            Some(serial) => format!("{member} (serial {serial})"),
            None => member.to_owned(),
        }
    }

    /// Everybody who belongs to it, as far as it is known.
    #[must_use]
    pub fn members(&self) -> Vec<String> {
        let slots = self.slots.values().map(|slot| slot.member.clone());
        let mut members: Vec<String> = slots.chain(self.spares.iter().cloned()).collect();
        for asked in &self.open.members {
            if asked != "missing" && !members.contains(asked) {
                members.push(asked.clone());
            }
        }
        members
    }
}

impl StateDir {
    /// The volumes that should be there, by name; and of each file that makes no sense, why.
    #[must_use]
    pub fn expected(&self) -> (Vec<Expected>, Vec<String>) {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        let folder = self.path().join("volumes");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return (found, problems),
            Err(error) => return (found, vec![format!("{}: {error}", folder.display())]),
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_none_or(|end| end != "json") {
                continue;
            }
            match read(&path) {
                Ok(expected) => found.push(expected),
                Err(reason) => problems.push(format!("{}: {reason}", path.display())),
            }
        }
        found.sort_by(|one, other| one.volume.cmp(&other.volume));
        problems.sort();
        (found, problems)
    }
}

fn read(path: &std::path::Path) -> Result<Expected, String> {
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| error.to_string())?;
    let expected: Expected =
        serde_json::from_str(&text).map_err(|error| format!("makes no sense, {error}"))?;
    match expected.kind.as_str() {
        "expected" => Ok(expected),
        other => Err(format!("is of kind {other:?}, expected \"expected\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(volume: &str) -> Expected {
        Expected {
            version: JSON_VERSION,
            kind: "expected".into(),
            volume: volume.into(),
            level: "raid1".into(),
            format: "md-1.2".into(),
            uuid: format!("uuid-of-{volume}"),
            wanted: Wanted::Served,
            open: OpenRequest {
                members: vec!["/a".into(), "/b".into(), "missing".into()],
                ..OpenRequest::default()
            },
            slots: BTreeMap::from([(
                0,
                ExpectedSlot {
                    member: "/a".into(),
                    ..ExpectedSlot::default()
                },
            )]),
            spares: Vec::new(),
        }
    }

    #[test]
    fn everybody_who_belongs_to_a_volume_is_named_once() {
        assert_eq!(expected("nas").members(), ["/a", "/b"]);
    }

    #[test]
    fn a_file_that_makes_no_sense_is_told_and_the_others_are_read() {
        let home = tempfile::tempdir().unwrap();
        let dir = StateDir::at(home.path().to_owned());
        let folder = home.path().join("volumes");
        fs::create_dir(&folder).unwrap();
        for name in ["nas", "attic"] {
            let text = serde_json::to_string(&expected(name)).unwrap();
            fs::write(folder.join(format!("{name}.json")), text).unwrap();
        }
        fs::write(folder.join("half.json"), "{\"version\":1,").unwrap();
        fs::write(folder.join("other.json"), "{\"kind\":\"event\"}").unwrap();
        fs::write(folder.join("nas.new"), "half").unwrap();
        let (found, problems) = dir.expected();
        let names: Vec<&str> = found.iter().map(|one| one.volume.as_str()).collect();
        assert_eq!(names, ["attic", "nas"]);
        assert_eq!(found[1], expected("nas"));
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("half.json") && problems[0].contains("line 1"));
    }
}
