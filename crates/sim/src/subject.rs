//! What the harness can do with an engine under test: the real volume, or a toy that proves the harness itself.

use std::fmt;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Fua, IoError};
use plexum_engine::mutant::Mutant;
use plexum_engine::threshold::Thresholds;
use plexum_exec::Spawner;

use plexum_disks::clock::SimClock;
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

/// What every subject is given.
#[derive(Clone)]
pub struct Context {
    /// Virtual time.
    pub clock: SimClock,
    /// Buffers.
    pub pool: BufPool,
    /// For identities (UUIDs) that creation needs.
    pub seed: u64,
    /// A deliberate bug.
    pub mutant: Option<Mutant>,
    /// md metadata version: 0.90 is 90, 1.0 is 100, and so on.
    pub metadata: u32,
    /// Speed of background work while clients are at work, in bytes a second.
    pub pace_bytes_per_s: u64,
    /// Mirrors read ahead of streams (`adaptive:ahead`).
    pub reads_ahead: bool,
    /// NBD connections in front of the volume; 0: none.
    pub connections: usize,
    /// Shards of the volume; 1: it is not divided.
    pub shards: usize,
    /// Threads that help with jobs; 0: none.
    /// Where the engine does something else.
    pub thresholds: Thresholds,
}

/// Why a volume did not come up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Parity is in doubt and a member is missing: only with force (W8).
    DirtyDegraded(String),
    /// Anything else.
    Other(String),
}

/// Whether a start may be forced (W8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Refuse what is in doubt.
    No,
    /// Start anyway; rows in doubt answer an error.
    Yes,
}

/// An administrator's operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Declare the member of this slot failed.
    Fail {
        /// Slot.
        slot: usize,
    },
    /// Add disk number `disk`: a returning member or a fresh one.
    Add {
        /// Number of the disk.
        disk: u32,
    },
    /// Copy the member of this slot to disk number `disk`, then let it take the slot.
    Replace {
        /// Slot.
        slot: usize,
        /// Number of the disk.
        disk: u32,
    },
    /// Read and compare everything.
    Scrub,
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

/// An engine under test. Offsets and lengths are bytes, multiples of 512.
#[allow(async_fn_in_trait)] // the world has one thread
pub trait Subject: Sized + 'static {
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
    async fn create(context: &Context, spec: &Spec, disks: &[SimDisk]) -> Result<Self, String>;

    /// Starts an array from what is on the disks that are present, in any order.
    ///
    /// # Errors
    /// Why it may not be started.
    async fn assemble(
        context: &Context,
        spec: &Spec,
        disks: &[SimDisk],
        force: Force,
    ) -> Result<Self, Refusal>;

    /// Starts an array by force from these disks, stale ones among them, to be read (W7, forced). Reads all of it and
    /// stops. `None`: refused, or the subject knows no such start.
    async fn read_with_stale(
        context: &Context,
        disks: &[SimDisk],
        spawner: Spawner,
    ) -> Option<StaleRead> {
        let _ = (context, disks, spawner);
        None
    }

    /// Size in bytes.
    fn size_bytes(&self) -> u64;

    /// Reads.
    ///
    /// # Errors
    /// What the client would get.
    async fn read(&self, offset_bytes: u64, length_bytes: u64) -> Result<Vec<u8>, IoError>;

    /// Writes.
    ///
    /// # Errors
    /// What the client would get.
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError>;

    /// Makes everything answered durable.
    ///
    /// # Errors
    /// What the client would get.
    async fn flush(&self) -> Result<(), IoError>;

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// What the client would get.
    async fn zero(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError>;

    /// Gives a range back; contents afterwards are the old ones or zeroes.
    ///
    /// # Errors
    /// What the client would get.
    async fn trim(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError>;

    /// Runs background work until the subject stops; `spawner` starts further tasks.
    async fn background(self: Rc<Self>, spawner: Spawner);

    /// An operation, until it has taken effect (not until a rebuild has ended).
    ///
    /// # Errors
    /// A sentence when it was refused.
    async fn operate(&self, operation: Operation, disks: &[SimDisk]) -> Result<(), String>;

    /// Ends background work, writes "clean" where there is something to write.
    ///
    /// # Errors
    /// What went wrong on the way; the subject has stopped all the same.
    async fn stop(&self) -> Result<(), IoError>;

    /// What it says of itself.
    fn status(&self) -> Status;

    /// Whether a resync is under way and has made something equal.
    fn is_resyncing(&self) -> bool {
        false
    }

    /// Names of the thresholds that it has crossed.
    fn crossed(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Scrubs to the end, with or without repair. `None`: refused, there is nothing to compare.
    async fn scrub(&self, repairs: bool) -> Option<ScrubFound> {
        let _ = repairs;
        None
    }

    /// Stages of the requests that are being carried out, by name; nothing where the subject does not know.
    fn stages(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What is still held although nothing runs any more: a sentence, or nothing.
    fn leaks(&self) -> Option<String> {
        None
    }

    /// First byte of the data area on a disk, for the reference model.
    fn data_offset_bytes(&self, disk: u32) -> u64;
}
