//! One simulated arrangement of disks: what the volume is made of, in words that fit a command line and a file.
//!
//! Invariant: everything is checked before the first request: an impossible arrangement is refused with the reason.

pub mod beside;
mod label;
pub mod running;

use plexum_disks::disk::mechanical_spec::{DiskSpec, QueueOrder};
use plexum_engine::balance::Policy;
use plexum_layout::{Level, Organisation};
use serde::{Deserialize, Deserializer, Serialize};

use crate::array::{ArraySpec, LogKind};
use crate::change;
use crate::error::LabError;
use crate::preset;
use beside::VolumeBeside;

/// Disks and volume of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    /// Something real instead of simulated disks: a device, a file, a folder or an NBD URI; the rest is ignored then.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on: String,
    /// What may be destroyed: `on` in the same words, for workloads that write; every device of `members_on`.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_many"
    )]
    pub destroy: Vec<String>,
    /// Who builds a real volume (`build::SYSTEMS`); empty: the disks are simulated.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub system: String,
    /// Members of a real volume: a folder for files, or devices.
    #[serde(
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "one_or_many"
    )]
    pub members_on: Vec<String>,
    /// File system on a real volume: `ext4`, `xfs`, `btrfs`; empty: none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file_system: String,
    /// How a volume of Plexum is reached: `nbd` (also when empty), `device` (FUSE and loop) or `kernel-nbd`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub through: String,
    /// What closes the write hole: `log`, `write-back`, `ppl`, `bitmap`, `resync`; empty: the usual, which is a bitmap
    /// alone on simulated disks. Of volumes over volumes it is the upper one's.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub consistency: String,
    /// Presets (or preset files) of the disks; the last one is repeated.
    pub disks: Vec<String>,
    /// Number of disks.
    pub members: usize,
    /// Level: `single`, `linear`, `0`, `1`, `4`, `5`, `6`, `10`.
    pub level: String,
    /// Layout in md's words; empty: the usual one.
    pub layout: String,
    /// Strip size.
    pub strip_bytes: u64,
    /// Balance policy.
    pub balance: String,
    /// Whether there is a bitmap.
    pub has_bitmap: bool,
    /// Bytes used of each member; 0 = all.
    pub member_bytes: u64,
    /// Commands each disk holds; 0 = as the preset says.
    pub queue_depth: u32,
    /// Members that are so many times slower.
    pub slow: Vec<(usize, f64)>,
    /// Buses that disks share: bytes a second of each; empty: every disk has a path of its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub buses: Vec<f64>,
    /// On which bus each disk hangs, counted from 0; the last number is repeated; empty: all on the first one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bus_of: Vec<usize>,
    /// One thing that is different with all disks (`change::CHANGES`); empty: nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub change: String,
    /// Volumes as members: this many volumes of `inner_level`, made of the disks in order; 0 = disks are members.
    pub inner_volumes: usize,
    /// Level of the volumes that are members.
    pub inner_level: String,
    /// Strip sizes of the volumes that are members; the last one is repeated.
    pub inner_strip_bytes: Vec<u64>,
    /// Several volumes side by side, over some of the disks each; empty: one over all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeBeside>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            on: String::new(),
            destroy: Vec::new(),
            system: String::new(),
            members_on: Vec::new(),
            file_system: String::new(),
            through: String::new(),
            consistency: String::new(),
            disks: vec!["sata-7200-750".to_owned()],
            members: 4,
            level: "10".to_owned(),
            layout: String::new(),
            strip_bytes: 512 << 10,
            balance: "load".to_owned(),
            has_bitmap: true,
            member_bytes: 0,
            queue_depth: 0,
            slow: Vec::new(),
            buses: Vec::new(),
            bus_of: Vec::new(),
            change: String::new(),
            inner_volumes: 0,
            inner_level: "0".to_owned(),
            inner_strip_bytes: vec![64 << 10],
            volumes: Vec::new(),
        }
    }
}

/// A word alone, or a list of words.
fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Words {
        One(String),
        Many(Vec<String>),
    }
    Ok(match Words::deserialize(from)? {
        Words::One(word) if word.is_empty() => Vec::new(),
        Words::One(word) => vec![word],
        Words::Many(words) => words,
    })
}

/// What closes the write hole.
const CONSISTENCY: [&str; 6] = ["", "log", "write-back", "ppl", "bitmap", "resync"];
/// The kernel's own NBD client instead of FUSE and a loop device.
pub(crate) const KERNEL_NBD: &str = "kernel-nbd";

/// Whether a word is one of those that are known.
///
/// # Errors
/// `Usage` with those.
pub(crate) fn one_of(what: &str, word: &str, known: &[&str]) -> Result<(), LabError> {
    if known.contains(&word) {
        return Ok(());
    }
    let known: Vec<&str> = known
        .iter()
        .copied()
        .filter(|one| !one.is_empty())
        .collect();
    Err(LabError::Usage(format!(
        "{what} = \"{word}\" is not known; there are: {}",
        known.join(", ")
    )))
}

/// Whether `consistency` is a word that is known.
///
/// # Errors
/// `Usage` with those that are.
pub(crate) fn check_consistency_word(word: &str) -> Result<(), LabError> {
    one_of("consistency", word, &CONSISTENCY)
}

fn organisation(level: &str, layout: &str) -> Result<Organisation, LabError> {
    let told = |error: &dyn std::fmt::Display| LabError::Usage(error.to_string());
    let level: Level = level.parse().map_err(|error| told(&error))?;
    let layout = (!layout.is_empty()).then_some(layout);
    Organisation::from_words(level, layout).map_err(|error| told(&error))
}

impl Setup {
    /// A volume of those that are side by side, as an arrangement of its own disks, as if there were no others.
    #[must_use]
    pub fn alone(&self, volume: &VolumeBeside) -> Self {
        let last = self.disks.len().saturating_sub(1);
        let make = |disk: &usize| self.disks.get(*disk.min(&last)).cloned();
        let slow = volume.disks.iter().enumerate().filter_map(|(own, disk)| {
            let found = self.slow.iter().find(|(slow, _)| slow == disk);
            found.map(|(_, factor)| (own, *factor))
        });
        let or = |own: &Option<String>, other: &String| own.as_ref().unwrap_or(other).clone();
        Self {
            disks: volume.disks.iter().filter_map(make).collect(),
            members: volume.disks.len(),
            slow: slow.collect(),
            level: or(&volume.level, &self.level),
            layout: or(&volume.layout, &self.layout),
            balance: or(&volume.balance, &self.balance),
            consistency: or(&volume.consistency, &self.consistency),
            strip_bytes: volume.strip_bytes.unwrap_or(self.strip_bytes),
            has_bitmap: volume.has_bitmap.unwrap_or(self.has_bitmap),
            member_bytes: volume.member_bytes.unwrap_or(self.member_bytes),
            volumes: Vec::new(),
            buses: Vec::new(),
            bus_of: Vec::new(),
            ..self.clone()
        }
    }

    /// Whether several volumes can be side by side here.
    fn check_beside(&self) -> Result<(), LabError> {
        let refused = |text: &str| Err(LabError::Usage(format!("volumes: {text}")));
        if self.inner_volumes > 0 {
            return refused("volumes over volumes cannot be side by side as well");
        }
        if !self.is_simulated() {
            return refused("they are for simulated disks");
        }
        beside::check(&self.volumes, self.members)
    }

    /// Whether its disks are simulated: nothing that is there, nothing that is built.
    #[must_use]
    pub fn is_simulated(&self) -> bool {
        self.on.is_empty() && self.system.is_empty()
    }

    /// Whether its change changes any of its disks.
    ///
    /// # Errors
    /// `Usage` for a disk or a change that does not exist.
    pub fn has_change(&self) -> Result<bool, LabError> {
        let mut found = false;
        for name in &self.disks {
            found |= change::apply(&self.change, &mut preset::find(name)?)?;
        }
        Ok(found)
    }

    /// Bytes of each of its disks.
    pub(crate) fn capacities(&self) -> Result<Vec<u64>, LabError> {
        let specs = self.specs(self.members)?;
        Ok(specs.iter().map(DiskSpec::capacity_bytes).collect())
    }

    /// Level and layout of the volume.
    pub(crate) fn organisation(&self) -> Result<Organisation, LabError> {
        organisation(&self.level, &self.layout)
    }

    fn specs(&self, count: usize) -> Result<Vec<DiskSpec>, LabError> {
        if self.disks.is_empty() || self.members == 0 || self.members > 64 {
            return Err(LabError::Usage(
                "an arrangement has 1 to 64 disks and says of which make".to_owned(),
            ));
        }
        let mut specs = Vec::new();
        for index in 0..count {
            let name = &self.disks[index.min(self.disks.len() - 1)];
            let mut spec = preset::find(name)?;
            if let (DiskSpec::Mechanical(spec), true) = (&mut spec, self.queue_depth > 0) {
                spec.queue_depth = self.queue_depth;
                if self.queue_depth > 1 {
                    spec.order = QueueOrder::Fifo;
                }
            }
            if !self.change.is_empty() {
                change::apply(&self.change, &mut spec)?;
            }
            if let Some((_, factor)) = self.slow.iter().find(|(slow, _)| *slow == index) {
                spec.set_slow_factor(*factor);
            }
            specs.push(spec);
        }
        Ok(specs)
    }

    /// The array of a level, as the arrangement says the rest.
    fn array(&self, level: &str, layout: &str, strip_bytes: u64) -> Result<ArraySpec, LabError> {
        let balance: Policy =
            self.balance
                .parse()
                .map_err(|error: plexum_engine::balance::UnknownPolicy| {
                    LabError::Usage(error.to_string())
                })?;
        Ok(ArraySpec {
            balance,
            has_bitmap: self.has_bitmap,
            member_bytes: (self.member_bytes > 0).then_some(self.member_bytes),
            ..ArraySpec::new(organisation(level, layout)?, strip_bytes)
        })
    }

    /// Bitmap and log of the volume.
    ///
    /// # Errors
    /// `Usage` for what its level cannot have.
    fn safeguards(&self) -> Result<(bool, LogKind), LabError> {
        let word = self.consistency.as_str();
        check_consistency_word(word)?;
        if word.is_empty() {
            return Ok((self.has_bitmap, LogKind::Without));
        }
        let refused = |why: String| Err(LabError::Usage(format!("consistency {word}: {why}")));
        if self.level == "single" {
            return refused("a single disk has nothing that could differ".to_owned());
        }
        let level = self.organisation()?.level();
        if !level.has_redundancy() {
            return refused(format!("{level} has no redundancy, so nothing can differ"));
        }
        match word {
            "log" | "write-back" if !level.has_parity() => {
                refused(format!("the stripe log is for parity, not for {level}"))
            }
            "ppl" if level != Level::Raid5 => refused(format!("it is for raid5, not for {level}")),
            "bitmap" if !self.has_bitmap => {
                refused("the bitmap is left out at the same time".to_owned())
            }
            "log" => Ok((self.has_bitmap, LogKind::WriteThrough)),
            "write-back" => Ok((self.has_bitmap, LogKind::WriteBack)),
            "ppl" => Ok((false, LogKind::PartialParity)),
            word => Ok((word == "bitmap", LogKind::Without)),
        }
    }
}
