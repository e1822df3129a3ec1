//! Arrays of slots as a subject: md arrays, and toys that look like these.
//!
//! Invariants:
//! - what is said here of members holds for every such array; what stands on the disks is asked of the format crate
//!   and the reference model, never of the engine;
//! - the rules are those of the guarantees: what may be lost, when a crash meets the write hole, who is stale.

mod atlas;
mod compare;
mod foreign;
mod rules;
mod silent;
mod stale;

use std::cell::{Cell, RefCell};
use std::fmt;

use plexum_engine::mutant::Mutant;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_exec::Spawner;

use crate::scenario::{Options, Scenario};
use crate::subject::{Context, Force, Refusal, Subject};
use crate::world::{Outcome, Tracing, run_plan};
use plexum_disks::disk::SimDisk;

/// Kind of array, in the words of the reference model (which has its own geometry code).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after another.
    Linear,
    /// Strips in turn, no redundancy.
    Raid0,
    /// Copies.
    Raid1,
    /// Parity on the last member.
    Raid4,
    /// Rotating parity.
    Raid5,
    /// Two parities.
    Raid6,
    /// Striped copies.
    Raid10,
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// Whether a row has parity: the organisations with a write hole.
    #[must_use]
    pub fn has_parity(self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// md's number of the level.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Linear => f.pad("linear"),
            other => f.pad(&format!("raid{}", other.number())),
        }
    }
}

/// What is to be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Kind of array.
    pub level: Level,
    /// md's number of the layout within the level.
    pub layout: u32,
    /// Slots.
    pub member_count: usize,
    /// Strip size in bytes; 0 for RAID-1 and linear.
    pub strip_bytes: u64,
    /// Bytes of each member that hold data.
    pub component_bytes: u64,
    /// Bytes of the volume for each bit of the bitmap; `None`: no bitmap.
    pub region_bytes: Option<u64>,
    /// Largest ring of the stripe log on each member in bytes; `None`: no log.
    pub log_bytes: Option<u64>,
    /// Writes are answered when they are durable in the stripe log.
    pub is_write_back: bool,
    /// md's partial parity log, RAID-5 only; without bitmap and stripe log.
    pub has_ppl: bool,
}

impl Spec {
    /// How many members, whichever they are, may be lost without losing data.
    #[must_use]
    pub fn tolerates(&self) -> usize {
        match self.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid1 => self.member_count - 1,
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Raid10 => {
                let (near, far) = (self.layout & 0xff, (self.layout >> 8) & 0xff);
                (near * far) as usize - 1
            }
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let region = self.region_bytes.map_or("no bitmap".to_owned(), |bytes| {
            format!("regions of {bytes}")
        });
        write!(
            f,
            "{} layout {} members {} strip {} component {} {region}",
            self.level, self.layout, self.member_count, self.strip_bytes, self.component_bytes
        )?;
        match self.log_bytes {
            Some(bytes) if self.is_write_back => write!(f, " write-back log of {bytes}"),
            Some(bytes) => write!(f, " log of {bytes}"),
            None if self.has_ppl => f.write_str(" ppl"),
            None => Ok(()),
        }
    }
}

/// What every array of slots is given.
#[derive(Clone)]
pub struct Setting {
    /// What every subject is given.
    pub context: Context,
    /// md metadata version: 0.90 is 90, 1.0 is 100, and so on.
    pub metadata: u32,
    /// Mirrors read ahead of streams (`adaptive:ahead`).
    pub reads_ahead: bool,
    /// NBD connections in front of the volume; 0: none.
    pub connections: usize,
    /// Shards of the volume; 1: it is not divided.
    pub shards: usize,
}

/// What a subject says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// By slot: number of the disk that holds the slot's data completely.
    pub slots: Vec<Option<u32>>,
    /// Disks that hold a slot although it is not durable yet that they are complete: a crash leaves the slot empty.
    pub unsure: Vec<u32>,
    /// Disks that belong to the array in any live role: active, being filled, spare.
    pub live: Vec<u32>,
    /// A resync or rebuild runs or has still to run.
    pub is_syncing: bool,
    /// Regions whose copies or parity may disagree.
    pub is_doubtful: bool,
    /// What the array says of its members is not durable yet.
    pub is_uncommitted: bool,
    /// More is lost than the organisation survives.
    pub is_frozen: bool,
    /// Event count of the superblocks, 0 when there is none.
    pub event_count: u64,
    /// Bad-block lists of members that hold a slot: slot and range of the data area.
    pub bad_ranges: Vec<(usize, std::ops::Range<u64>)>,
    /// A scrub has found members that disagree.
    pub has_scrub_mismatch: bool,
}

impl Status {
    /// Whether it lacks nothing and has nothing left to do.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !self.slots.contains(&None) && !self.is_syncing && !self.is_doubtful
    }

    /// What goes on in the background, or is lacking.
    #[must_use]
    pub fn condition(&self) -> Option<&'static str> {
        match (self.slots.contains(&None), self.is_syncing) {
            (true, true) => Some("rebuild"),
            (true, false) => Some("degraded"),
            (false, true) => Some("resync"),
            (false, false) => None,
        }
    }
}

/// A place that a scrub reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrubPlace {
    /// The member that is wrong, by slot, where the scrub says so.
    pub slot: Option<usize>,
    /// Range of the member's data area.
    pub member: std::ops::Range<u64>,
    /// Ranges of the volume.
    pub volume: Vec<std::ops::Range<u64>>,
}

/// What a scrub has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubFound {
    /// Where members do not agree.
    pub places: Vec<ScrubPlace>,
    /// Whether it went to the end.
    pub is_complete: bool,
}

/// What came of a start with stale members to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StaleRead {
    /// By slot: number of the disk that was used for it.
    pub slots: Vec<Option<u32>>,
    /// Disks that were used in any role.
    pub live: Vec<u32>,
    /// What could be read, by the first byte of the volume.
    pub pieces: Vec<(u64, Vec<u8>)>,
}

/// What an array of slots promises.
pub struct SlotRules;

/// What these rules remember.
#[derive(Default)]
pub struct SlotMemory {
    /// Too many cables are out: errors are right until the next start, which must need no force (W4).
    is_unplugged: Cell<bool>,
    /// Event count at the last start.
    event_count: Cell<u64>,
    /// Highest event count that was ever seen on a disk.
    highest_count: Cell<u64>,
    /// All slots were held when the last life ended, and no disk was ever struck.
    was_whole: Cell<bool>,
    /// Who was in use when the last life ended, where that was durable.
    committed: RefCell<Option<Vec<u32>>>,
}

/// A subject that is an array of slots, with one volume.
#[allow(async_fn_in_trait)] // the world has one thread
pub trait SlotArray: Subject<Rules = SlotRules> {
    /// Whether the members carry md metadata that a checker can read.
    const HAS_METADATA: bool = false;

    /// Changes a drawn spec into one that this subject can be. Only toys need it.
    fn fit(spec: &mut Spec) {
        let _ = spec;
    }

    /// Makes an array of the first `spec.member_count` disks and starts it.
    ///
    /// # Errors
    /// A sentence.
    async fn create(setting: &Setting, spec: &Spec, disks: &[SimDisk]) -> Result<Self, String>;

    /// Starts an array from what is on the disks that are present, in any order.
    ///
    /// # Errors
    /// Why it may not be started.
    async fn assemble(
        setting: &Setting,
        spec: &Spec,
        disks: &[SimDisk],
        force: Force,
    ) -> Result<Self, Refusal>;

    /// Starts an array by force from these disks, stale ones among them, to be read (W7, forced). Reads all of it and
    /// stops. `None`: refused, or the subject knows no such start.
    async fn read_with_stale(
        setting: &Setting,
        disks: &[SimDisk],
        spawner: Spawner,
    ) -> Option<StaleRead> {
        let _ = (setting, disks, spawner);
        None
    }

    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// What it says of itself.
    fn status(&self) -> Status;

    /// Scrubs to the end. `None`: refused, there is nothing to compare.
    async fn scrub(&self, mode: ScrubMode) -> Option<ScrubFound> {
        let _ = mode;
        None
    }

    /// First byte of the data area on a disk, for the reference model.
    fn data_offset_bytes(&self, disk: u32) -> u64;
}

/// Runs one seed.
#[must_use]
pub fn run_seed<S: SlotArray>(seed: u64, options: &Options, mutant: Option<Mutant>) -> Outcome {
    run_scenario::<S>(&Scenario::new(seed, options), Tracing::Hash, mutant)
}

/// Runs a scenario, which need not be the one of its seed (a shrunk plan).
#[must_use]
pub fn run_scenario<S: SlotArray>(
    scenario: &Scenario,
    tracing: Tracing,
    mutant: Option<Mutant>,
) -> Outcome {
    let mut scenario = scenario.clone();
    S::fit(&mut scenario.spec);
    run_plan::<S>(&scenario, tracing, mutant)
}
