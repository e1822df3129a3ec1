//! What the world asks of whatever is built of its disks and runs: an array of slots, a set of drives, a toy.
//!
//! The world knows nothing of slots, labels or superblocks: by its own it counts volumes, disks and requests. What a
//! subject promises is asked of its `Rules`, in `world`.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_engine::mutant::Mutant;
use plexum_engine::threshold::Thresholds;
use plexum_exec::Spawner;

use crate::course::Plan;
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;

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
    /// Speed of background work while clients are at work, in bytes a second.
    pub pace_bytes_per_s: u64,
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

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::DirtyDegraded(reason) | Refusal::Other(reason) => f.write_str(reason),
        }
    }
}

/// Whether a start may be forced (W8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// Refuse what is in doubt.
    No,
    /// Start anyway; rows in doubt answer an error.
    Yes,
}

/// Who is offered to a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// Every disk that is there.
    All,
    /// Those that the user names: stale ones are left out.
    Fresh,
}

/// How a life begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It is made of all disks.
    Create,
    /// It is put together from what is on the disks.
    Open(Force, Offered),
}

/// What a refused start is followed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterRefusal {
    /// Another attempt.
    Again(Attempt),
    /// Nothing: it cannot start any more, rightly.
    Over,
    /// It should have started.
    Wrong,
}

/// An administrator's operation. Who is meant by a slot is said by the subject.
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

/// What a disk is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To stand by, or for what is lost.
    Add,
    /// Just this one, for the same.
    Give(u32),
    /// In the place of a member that is there.
    Replace,
    /// To end what is lacking.
    Mend,
}

/// How a life has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// In order.
    Stopped,
    /// By a crash.
    Cut,
}

/// A subject that runs. Offsets and lengths are bytes, multiples of 512; its volumes are numbered from 0.
#[allow(async_fn_in_trait)] // the world has one thread
pub trait Subject: Sized + 'static {
    /// Everything a seed decides beforehand.
    type Plan: Plan;

    /// What the rules remember from one life to the next.
    type Memory: Default;

    /// Reads.
    ///
    /// # Errors
    /// What the client would get.
    async fn read(&self, volume: usize, bytes: Range<u64>) -> Result<Vec<u8>, IoError>;

    /// Writes.
    ///
    /// # Errors
    /// What the client would get.
    async fn write(
        &self,
        volume: usize,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError>;

    /// Makes everything answered durable.
    ///
    /// # Errors
    /// What the client would get.
    async fn flush(&self, volume: usize) -> Result<(), IoError>;

    /// Makes a range read as zeroes, or gives it back: contents afterwards are the old ones or zeroes then.
    ///
    /// # Errors
    /// What the client would get.
    async fn zero(
        &self,
        volume: usize,
        bytes: Range<u64>,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError>;

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

    /// Whether it lacks nothing and has nothing left to do.
    fn is_whole(&self) -> bool;

    /// What it says of itself, for people.
    fn describe(&self) -> String;

    /// What goes on in the background, or is lacking; `None`: nothing.
    fn condition(&self) -> Option<&'static str>;

    /// Waits for what ends by itself and cannot be seen in `is_whole`.
    async fn settled(&self) {}

    /// Whether a resync is under way and has made something equal.
    fn is_resyncing(&self) -> bool {
        false
    }

    /// Names of the thresholds that it has crossed.
    fn crossed(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// Stages of the requests that are being carried out, by name; nothing where the subject does not know.
    fn stages(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What is still held although nothing runs any more: a sentence, or nothing.
    fn leaks(&self) -> Option<String> {
        None
    }
}
