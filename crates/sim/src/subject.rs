//! What the world asks of whatever is built of its disks: an array of slots, a set of drives, a toy.
//!
//! A subject is served (`Subject`), and it has rules (`Rules`): how it is made and opened, what may be lost, what an
//! operator may do, what must stand on the disks at the end. The world knows nothing of slots, labels or superblocks:
//! by its own it counts volumes, disks and requests.

use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Fua, IoError};
use plexum_engine::mutant::Mutant;
use plexum_engine::threshold::Thresholds;
use plexum_exec::Spawner;

use crate::course::Plan;
use crate::world::{Scene, World};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

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
    /// What it promises, and how it begins and ends.
    type Rules: Rules<Self>;

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

    /// Makes a range read as zeroes.
    ///
    /// # Errors
    /// What the client would get.
    async fn zero(&self, volume: usize, bytes: Range<u64>, fua: Fua) -> Result<(), IoError>;

    /// Gives a range back; contents afterwards are the old ones or zeroes.
    ///
    /// # Errors
    /// What the client would get.
    async fn trim(&self, volume: usize, bytes: Range<u64>) -> Result<(), IoError>;

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

/// The plan of a subject.
pub type PlanOf<S> = <<S as Subject>::Rules as Rules<S>>::Plan;

/// What the rules of a subject remember.
pub type MemoryOf<S> = <<S as Subject>::Rules as Rules<S>>::Memory;

/// What a subject promises, told to the world. What has a body need not be told.
#[allow(async_fn_in_trait)] // the world has one thread
pub trait Rules<S: Subject>: Sized + 'static {
    /// Everything a seed decides beforehand.
    type Plan: Plan;

    /// What the rules remember from one life to the next.
    type Memory: Default;

    /// How the lost disk of a crash is counted.
    const LOST: &'static str;

    /// Before the first life. How that begins.
    ///
    /// # Errors
    /// Why nothing could be made.
    fn prepare(scene: &Scene<S>) -> Result<Attempt, String> {
        let _ = scene;
        Ok(Attempt::Create)
    }

    /// Makes it, or starts it from what is on the disks that are present.
    ///
    /// # Errors
    /// Why it may not be started.
    async fn begin(
        context: &Context,
        plan: &Self::Plan,
        attempt: Attempt,
        disks: Vec<SimDisk>,
    ) -> Result<S, Refusal>;

    /// By volume: its size when it was made.
    fn sizes_bytes(subject: &S, plan: &Self::Plan) -> Vec<u64>;

    /// A life begins.
    fn enter(scene: &Scene<S>) {
        let _ = scene;
    }

    /// Whether nobody is there who could know that what he has is old: no start is tried any more.
    fn is_left_to_the_stale(scene: &Scene<S>) -> bool {
        let _ = scene;
        false
    }

    /// Looks at what has started.
    fn welcome(scene: &Scene<S>, subject: &S);

    /// Whether it is right that a start is refused without force.
    fn may_be_refused(scene: &Scene<S>) -> bool;

    /// A start was refused, and force is of no use.
    fn after_refusal(world: &mut World<S>, attempt: Attempt, refusal: &Refusal) -> AfterRefusal {
        let _ = (world, attempt, refusal);
        AfterRefusal::Wrong
    }

    /// Whether an error answer is right now.
    fn may_answer(scene: &Scene<S>, error: IoError) -> bool {
        let _ = error;
        scene.are_errors_allowed.get()
    }

    /// Forgets what is settled, before something is asked.
    fn review(scene: &Scene<S>) {
        let _ = scene;
    }

    /// By slot: number of the disk that has it.
    fn slots(scene: &Scene<S>) -> Vec<Option<u32>>;

    /// Where a fault of a plan falls on a disk.
    fn placed(scene: &Scene<S>, disk: u32, fault: &Fault) -> Fault {
        let _ = (scene, disk);
        fault.clone()
    }

    /// Whether a fault may strike this disk now.
    fn admits(scene: &Scene<S>, disk: u32, fault: &Fault) -> bool;

    /// Whether the member on this disk may be taken out now.
    fn may_lose(scene: &Scene<S>, disk: u32) -> bool;

    /// A disk for this purpose, if it is wanted and there is one.
    fn spare_for(scene: &Scene<S>, purpose: Purpose) -> Option<u32>;

    /// Whether the operator and the disks may do anything now.
    fn is_open_to_wishes(scene: &Scene<S>) -> bool {
        let _ = scene;
        true
    }

    /// Pulls one cable too many out. Whether it did.
    fn unplug(scene: &Scene<S>, slot: usize) -> bool {
        let _ = (scene, slot);
        false
    }

    /// Whether a crash stays within the promise now.
    fn may_crash(scene: &Scene<S>) -> bool {
        let _ = scene;
        true
    }

    /// Whether an orderly stop can be asked for.
    fn may_stop(scene: &Scene<S>) -> bool {
        let _ = scene;
        true
    }

    /// Whether a crash that is due gives way to a stop.
    fn stops_instead(world: &mut World<S>) -> bool {
        let _ = world;
        false
    }

    /// The machine is about to go off at the end of life `number`. A disk that is not there when it comes on again.
    fn before_off(world: &mut World<S>, number: usize, ended: Ended) -> Option<u32>;

    /// Disks are back as they come back by themselves; now whatever else ends with a life.
    fn after_off(scene: &Scene<S>);

    /// What the disks say now, and what the operator does while nothing runs.
    fn between(scene: &Scene<S>, number: usize);

    /// Somebody else has the array between two lives. What he did, for counting.
    fn lend(scene: &Scene<S>, salt: u64) -> Option<&'static str> {
        let _ = (scene, salt);
        None
    }

    /// Whether everything must become whole at the end.
    fn has_finale(scene: &Scene<S>) -> bool {
        let _ = scene;
        true
    }

    /// What is tried once everything is whole and was read.
    async fn try_last(scene: &Rc<Scene<S>>) {
        let _ = scene;
    }

    /// Looks at the disks alone, after the last stop.
    fn compare(scene: &Scene<S>);
}
