//! One simulated arrangement of disks: what the volume is made of, in words that fit a command line and a file.
//!
//! Invariant: everything is checked before the first request: an impossible arrangement is refused with the reason.

pub mod beside;

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use plexum_disks::disk::mechanical_spec::{DiskSpec, QueueOrder};
use plexum_disks::disk::timed::TimedDisk;
use plexum_engine::balance::Policy;
use plexum_engine::state::{FailCause, Standing};
use plexum_engine::volume::Announcement;
use plexum_layout::{Level, Organisation};
use serde::{Deserialize, Deserializer, Serialize};

use crate::array::{ArraySpec, DiskSet, LogKind, Mode, Surroundings, build as make};
use crate::build;
use crate::error::LabError;
use crate::iostat::Sampler;
use crate::member::{Member, SimVolume};
use crate::preset;
use crate::sensitivity;
use crate::target::Target;
use crate::workload::jobs::Carrier;
use crate::world::World;
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
    /// What closes the write hole: `log`, `write-back`, `ppl`, `bitmap`, `resync`; empty: the usual, which is a bitmap alone
    /// on simulated disks. Of volumes over volumes it is the upper one's.
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
    /// One thing that is different with all disks (`sensitivity::CHANGES`); empty: nothing.
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

/// An arrangement that runs.
pub struct Running {
    /// What it is.
    pub setup: Setup,
    /// Its world.
    pub world: World,
    /// What workloads see; of volumes side by side the first one.
    pub target: Target,
    /// The volume, unless a single disk or several volumes are measured.
    pub volume: Option<Rc<SimVolume>>,
    /// Volumes side by side; empty: there is one.
    pub beside: Vec<RunningVolume>,
    /// Volumes that are its members.
    pub inner: Vec<Rc<SimVolume>>,
    /// Disks with their names, members first.
    pub disks: Vec<(String, TimedDisk)>,
}

/// One of several volumes that run side by side.
pub struct RunningVolume {
    /// What it is.
    pub spec: VolumeBeside,
    /// What its jobs see.
    pub target: Target,
    /// The volume, unless it is a single disk.
    pub volume: Option<Rc<SimVolume>>,
}

impl Running {
    /// All volumes that clients see.
    pub fn volumes(&self) -> impl Iterator<Item = &Rc<SimVolume>> {
        let beside = self.beside.iter().filter_map(|one| one.volume.as_ref());
        self.volume.iter().chain(beside)
    }

    /// The volumes that jobs run on, as these see them.
    #[must_use]
    pub fn carriers(&self) -> Vec<Carrier> {
        let name = |disk: &usize| format!("disk{disk}");
        if self.beside.is_empty() {
            return vec![Carrier {
                name: "all".to_owned(),
                what: self.setup.short_words(),
                target: self.target.clone(),
                jobs: None,
                disks: (0..self.setup.members).map(|disk| name(&disk)).collect(),
            }];
        }
        let beside = self.beside.iter();
        let carriers = beside.map(|one| Carrier {
            name: one.spec.name.clone(),
            what: self.setup.alone(&one.spec).short_words(),
            target: one.target.clone(),
            jobs: Some(one.spec.jobs.clone()),
            disks: one.spec.disks.iter().map(name).collect(),
        });
        carriers.collect()
    }

    /// Begins to sample the disks.
    #[must_use]
    pub fn sampler(&self) -> Sampler {
        Sampler::start(&self.disks, self.world.clock().now_ns())
    }

    /// Members that have left a volume, each with the reason as far as it was announced.
    #[must_use]
    pub fn lost_members(&self) -> Vec<String> {
        let volumes = self.volumes().chain(&self.inner);
        volumes.flat_map(|volume| lost_members(volume)).collect()
    }
}

fn reason(cause: FailCause) -> &'static str {
    match cause {
        FailCause::Gone => "it was gone",
        FailCause::WriteError => "a write failed",
        FailCause::FlushError => "a flush failed",
        FailCause::SuperblockError => "its superblock could not be written",
        FailCause::TimedOut => "it did not answer in time",
        FailCause::ReadErrors => "too many read errors",
        FailCause::Asked => "as asked",
        _ => "for another reason",
    }
}

fn lost_members(volume: &SimVolume) -> Vec<String> {
    let mut lost = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(said) = pin!(volume.next_announcement()).poll(&mut context) {
        if let Announcement::MemberFailed { member, cause } = said {
            lost.push(format!("{member} ({})", reason(cause)));
        }
    }
    let members = volume.status().members.into_iter();
    let gone = members.filter(|member| member.standing == Standing::Faulty);
    for name in gone.filter_map(|member| member.name) {
        if !lost.iter().any(|said| said.starts_with(&name)) {
            lost.push(name);
        }
    }
    lost
}

fn organisation(level: &str, layout: &str) -> Result<Organisation, LabError> {
    let told = |error: &dyn std::fmt::Display| LabError::Usage(error.to_string());
    let level: Level = level.parse().map_err(|error| told(&error))?;
    let layout = (!layout.is_empty()).then_some(layout);
    Organisation::from_words(level, layout).map_err(|error| told(&error))
}

/// A level in tables.
fn level_word(level: &str) -> String {
    match level {
        "linear" => "linear".to_owned(),
        level => format!("RAID-{}", level.trim_start_matches("raid")),
    }
}

impl Setup {
    /// A short name for tables.
    #[must_use]
    pub fn label(&self) -> String {
        if !self.on.is_empty() {
            return self.on.clone();
        }
        if !self.system.is_empty() {
            return build::label(self);
        }
        let mut label = match self.volumes.len() {
            0 => self.volume_label(),
            _ => self.beside_label(),
        };
        if self.level == "single" && self.volumes.is_empty() {
            return label;
        }
        if self.queue_depth > 0 {
            label += &format!(" queue {}", self.queue_depth);
        }
        match self.buses.len() {
            0 => {}
            1 => label += " on one bus",
            count => label += &format!(" on {count} buses"),
        }
        if !self.change.is_empty() {
            label += &format!(" when {}", self.change);
        }
        if self.inner_volumes > 0 {
            let level = level_word(&self.inner_level);
            let strips = self.inner_strip_bytes.iter();
            let strips: Vec<String> = strips.map(|bytes| format!("{}K", bytes >> 10)).collect();
            label += &format!(
                " over {} {level} ({})",
                self.inner_volumes,
                strips.join(", ")
            );
        }
        label
    }

    /// The volume alone, without what its disks hang on.
    fn volume_label(&self) -> String {
        if self.level == "single" {
            return format!("single disk {}", self.consistency)
                .trim_end()
                .to_owned();
        }
        let mut label = format!("{} of {}", level_word(&self.level), self.members);
        if !self.layout.is_empty() {
            label += &format!(" {}", self.layout);
        }
        let has_strips = !matches!(self.level.as_str(), "1" | "raid1" | "mirror" | "linear");
        if has_strips {
            label += &format!(" strip {}K", self.strip_bytes >> 10);
        }
        if matches!(
            self.level.as_str(),
            "1" | "raid1" | "mirror" | "10" | "raid10"
        ) {
            label += &format!(" {}", self.balance);
        }
        if !self.consistency.is_empty() {
            label += &format!(" {}", self.consistency);
        }
        if !self.has_bitmap && matches!(self.consistency.as_str(), "" | "log" | "write-back") {
            label += " no bitmap";
        }
        label
    }

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

    /// The volumes that are side by side: name, what it is, its disks, and what it carries.
    fn beside_label(&self) -> String {
        let each = self.volumes.iter().map(|volume| {
            let disks: Vec<String> = volume.disks.iter().map(ToString::to_string).collect();
            let (what, disks) = (self.alone(volume).volume_label(), disks.join(" "));
            let jobs = volume.jobs.join(", ");
            format!("{}: {what} (disks {disks}; {jobs})", volume.name)
        });
        each.collect::<Vec<_>>().join(" + ")
    }

    /// What it is, in few words: its level and its disks.
    fn short_words(&self) -> String {
        match self.level.as_str() {
            "single" => "single disk".to_owned(),
            level => format!("{} of {}", level_word(level), self.members),
        }
    }

    /// What the level is called in a table: of several volumes that of each.
    #[must_use]
    pub fn level_words(&self) -> String {
        if self.volumes.is_empty() {
            return self.level.clone();
        }
        let levels = self.volumes.iter().map(|volume| self.alone(volume).level);
        levels.collect::<Vec<_>>().join(" + ")
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

    /// The label with the disks, as a report names an arrangement.
    #[must_use]
    pub fn full_name(&self) -> String {
        if self.is_simulated() {
            format!("{} ({})", self.label(), self.disks.join(", "))
        } else {
            self.label()
        }
    }

    /// Whether its change changes any of its disks.
    ///
    /// # Errors
    /// `Usage` for a disk or a change that does not exist.
    pub fn has_change(&self) -> Result<bool, LabError> {
        let mut found = false;
        for name in &self.disks {
            found |= sensitivity::apply(&self.change, &mut preset::find(name)?)?;
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
                sensitivity::apply(&self.change, &mut spec)?;
            }
            if let Some((_, factor)) = self.slow.iter().find(|(slow, _)| *slow == index) {
                spec.set_slow_factor(*factor);
            }
            specs.push(spec);
        }
        Ok(specs)
    }

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
        build::check_consistency_word(word)?;
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

    /// Builds it, with `spare_count` further disks of the same make (named `spare0` ...).
    ///
    /// # Errors
    /// `Usage` for an impossible arrangement.
    pub fn start(&self, seed: u64, spare_count: usize, mode: Mode) -> Result<Running, LabError> {
        if !self.volumes.is_empty() {
            self.check_beside()?;
        }
        let world = World::new();
        let mode = if self.inner_volumes > 0 {
            Mode::Data
        } else {
            mode
        };
        let mut set = DiskSet::mixed(self.specs(self.members + spare_count)?);
        self.share_buses(&mut set)?;
        let disks = set.make(&world, seed, mode)?;
        let named: Vec<(String, TimedDisk)> = disks
            .iter()
            .enumerate()
            .map(|(index, disk)| match index.checked_sub(self.members) {
                None => (format!("disk{index}"), disk.clone()),
                Some(spare) => (format!("spare{spare}"), disk.clone()),
            })
            .collect();
        if !self.volumes.is_empty() {
            return self.start_beside(world, named, mode);
        }
        let members = named.iter().take(self.members).cloned().collect();
        let (target, volume, inner) = self.over(&world, members, mode)?;
        Ok(Running {
            setup: self.clone(),
            target,
            volume,
            beside: Vec::new(),
            inner,
            world,
            disks: named,
        })
    }

    /// Builds the volumes that are side by side.
    fn start_beside(
        &self,
        world: World,
        disks: Vec<(String, TimedDisk)>,
        mode: Mode,
    ) -> Result<Running, LabError> {
        let mut beside = Vec::new();
        for spec in &self.volumes {
            let own = spec.disks.iter().map(|disk| disks[*disk].clone()).collect();
            let built = self.alone(spec).over(&world, own, mode);
            let (target, volume, _) = built.map_err(|error| match error {
                LabError::Usage(text) => LabError::Usage(format!("{}: {text}", spec.name)),
                other => other,
            })?;
            beside.push(RunningVolume {
                spec: spec.clone(),
                target,
                volume,
            });
        }
        Ok(Running {
            setup: self.clone(),
            target: beside[0].target.clone(), // `check_beside` and its caller: there is one
            volume: None,
            beside,
            inner: Vec::new(),
            world,
            disks,
        })
    }

    /// One volume over these disks, or the first of them: what is seen of it, the volume, and volumes that are members.
    #[allow(clippy::type_complexity)] // three things that belong together for a line
    fn over(
        &self,
        world: &World,
        disks: Vec<(String, TimedDisk)>,
        mode: Mode,
    ) -> Result<(Target, Option<Rc<SimVolume>>, Vec<Rc<SimVolume>>), LabError> {
        let (has_bitmap, log) = self.safeguards()?;
        let (names, members): (Vec<String>, Vec<Member>) = disks
            .into_iter()
            .map(|(name, disk)| (name, Member::Disk(disk)))
            .unzip();
        if self.level == "single" {
            return Ok((Target::device(world, &members[0]), None, Vec::new()));
        }
        let members = if self.inner_volumes > 0 {
            self.nest(world, members)?
        } else {
            members
        };
        let inner = members.iter().filter_map(|member| match member {
            Member::Volume(volume) => Some(Rc::clone(volume)),
            Member::Disk(_) => None,
        });
        let inner = inner.collect();
        let array = ArraySpec {
            has_bitmap,
            log,
            names: if self.inner_volumes > 0 {
                Vec::new()
            } else {
                names
            },
            ..self.array(&self.level, &self.layout, self.strip_bytes)?
        };
        let members = members.into_iter().map(Some).collect();
        let volume = world.run(make(Surroundings::of(world), members, array, mode))??;
        Ok((Target::volume(world, &volume), Some(volume), inner))
    }

    /// Hangs the disks on the buses.
    fn share_buses(&self, set: &mut DiskSet) -> Result<(), LabError> {
        let is_rate = |rate: &f64| (1e4..1e12).contains(rate);
        if let Some(rate) = self.buses.iter().find(|rate| !is_rate(rate)) {
            return Err(LabError::Usage(format!(
                "buses: {rate} is no rate in bytes a second (10 000 to 10^12)"
            )));
        }
        if let Some(bus) = self.bus_of.iter().find(|bus| **bus >= self.buses.len()) {
            return Err(LabError::Usage(format!(
                "bus_of: there is no bus {bus}; buses has {} rates, counted from 0",
                self.buses.len()
            )));
        }
        if self.buses.is_empty() {
            return Ok(());
        }
        let last = self.bus_of.len().saturating_sub(1);
        let bus_of = |disk: usize| self.bus_of.get(disk.min(last)).copied().unwrap_or(0);
        set.buses.clone_from(&self.buses);
        set.bus_of = (0..set.disks.len())
            .map(|disk| Some(bus_of(disk)))
            .collect();
        Ok(())
    }

    /// Volumes over the disks, to be members themselves.
    fn nest(&self, world: &World, members: Vec<Member>) -> Result<Vec<Member>, LabError> {
        let each = members.len() / self.inner_volumes;
        if each == 0 || !members.len().is_multiple_of(self.inner_volumes) {
            return Err(LabError::Usage(format!(
                "{} disks cannot be shared out to {} volumes",
                members.len(),
                self.inner_volumes
            )));
        }
        let mut volumes = Vec::new();
        for (index, disks) in members.chunks(each).enumerate() {
            let last = self.inner_strip_bytes.len().saturating_sub(1);
            let strip = self.inner_strip_bytes.get(index.min(last)).copied();
            let array = self.array(&self.inner_level, "", strip.unwrap_or(64 << 10))?;
            let disks = disks.iter().cloned().map(Some).collect();
            let around = Surroundings::of(world);
            let volume = world.run(make(around, disks, array, Mode::Data))??;
            volumes.push(Member::Volume(volume));
        }
        Ok(volumes)
    }
}
