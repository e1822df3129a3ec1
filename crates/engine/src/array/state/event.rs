//! What happens to an array, and what follows from it.

use super::member::MemberId;

/// Why a member was failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailCause {
    /// The device is gone.
    Gone,
    /// A write failed and could not be recorded as a bad block.
    WriteError,
    /// A flush failed: what it held since the last good one is unknown (W13).
    FlushError,
    /// Its superblock could not be written.
    SuperblockError,
    /// It did not answer in time (W9).
    TimedOut,
    /// Too many corrected read errors.
    ReadErrors,
    /// The operator said so.
    Asked,
}

/// Something that happened; the only way array state changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first write after a clean time is about to begin (W1).
    FirstWrite,
    /// All writes have ended, and a flush of every live member came after them (W2).
    Quiet {
        /// Sync bytes below this are known to be consistent; `None`: all.
        consistent_below_bytes: Option<u64>,
    },
    /// A member missed a write or cannot be used any more (W3, W4).
    MemberFailed {
        /// Which.
        member: MemberId,
        /// Why.
        cause: FailCause,
    },
    /// A new member stands ready.
    SpareAdded {
        /// Its id: the next free one.
        member: MemberId,
        /// Read only when nobody else can answer.
        is_write_mostly: bool,
    },
    /// A member takes an empty slot, or begins to replace the active one of that slot.
    RebuildStarted {
        /// Who is filled.
        member: MemberId,
        /// Which slot.
        slot: u16,
        /// Copies an active member (`replace`).
        is_replacement: bool,
        /// Only the regions that the bitmap names are stale.
        by_bitmap: bool,
    },
    /// Progress of a rebuild, after a flush that covers it (W2).
    RebuildCheckpoint {
        /// Who.
        member: MemberId,
        /// Member bytes below this are valid.
        valid_below_bytes: u64,
    },
    /// A rebuild has reached its end, and a flush covers it.
    RebuildDone {
        /// Who.
        member: MemberId,
    },
    /// A faulty or spare member is taken out.
    MemberRemoved {
        /// Who.
        member: MemberId,
    },
    /// The geometry that had more slots than these is left for good: who held one of them is a spare.
    SlotsLeft {
        /// Slots from now on.
        slot_count: u16,
    },
    /// What the superblocks say besides the members changed (bitmap on or off) and must become durable.
    SettingsChanged,
    /// The bad-block list of a member changed and must become durable.
    BadBlocksChanged {
        /// Whose.
        member: MemberId,
        /// A write depends on it: its answer waits for the commit (W3).
        is_urgent: bool,
    },
}

/// What has to follow an event. `apply` never does it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Superblocks must be committed; answers to writes that depend on it wait (W3).
    CommitSuperblock,
    /// The set of members that requests use has changed: publish a new snapshot.
    PublishMembers,
    /// The array lost redundancy: look for a spare.
    PickSpare,
    /// The array is frozen (W4): answer everything with an error, touch no superblock.
    Freeze,
}
