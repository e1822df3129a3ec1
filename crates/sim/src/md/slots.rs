//! What the rules of arrays of slots ask of such an array: an md array, or a toy that looks like one.

use std::cell::{Cell, RefCell};

use plexum_engine::mutant::Mutant;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_exec::Spawner;

use super::scenario::{Options, Scenario};
use super::spec::Spec;
use crate::subject::{Context, Force, Refusal, Subject};
use crate::world::{Outcome, Tracing, run_plan};
use plexum_disks::disk::SimDisk;

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

impl Setting {
    /// What a scenario says of it.
    pub(super) fn of(context: &Context, scenario: &Scenario) -> Self {
        Self {
            context: context.clone(),
            metadata: scenario.metadata,
            reads_ahead: scenario.course.load.has_streams,
            connections: scenario.connections,
            shards: scenario.shards,
        }
    }
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

/// What these rules remember.
#[derive(Default)]
pub struct SlotMemory {
    /// Too many cables are out: errors are right until the next start, which must need no force (W4).
    pub(super) is_unplugged: Cell<bool>,
    /// Event count at the last start.
    pub(super) event_count: Cell<u64>,
    /// Highest event count that was ever seen on a disk.
    pub(super) highest_count: Cell<u64>,
    /// All slots were held when the last life ended, and no disk was ever struck.
    pub(super) was_whole: Cell<bool>,
    /// Who was in use when the last life ended, where that was durable.
    pub(super) committed: RefCell<Option<Vec<u32>>>,
}

/// A subject that is an array of slots, with one volume.
#[allow(async_fn_in_trait)] // the world has one thread
pub trait SlotArray: Subject<Plan = Scenario, Memory = SlotMemory> {
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
