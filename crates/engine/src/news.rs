//! What the outside should hear about a volume.

use crate::state::FailCause;

/// Something the outside should hear about, once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Announcement {
    /// A member was failed.
    MemberFailed {
        /// Its name.
        member: String,
        /// Why.
        cause: FailCause,
    },
    /// More is lost than the organisation survives.
    Frozen {
        /// The member whose loss was one too many.
        member: String,
        /// Why it was lost.
        cause: FailCause,
    },
    /// A member is being filled.
    RebuildStarted {
        /// Its name.
        member: String,
        /// Its slot.
        slot: u16,
    },
    /// A member is complete.
    RebuildFinished {
        /// Its name.
        member: String,
        /// Its slot.
        slot: u16,
    },
    /// Ranges could not be rebuilt and are lost: reads of them answer an error.
    RangesLost {
        /// The member that should have held them.
        member: String,
        /// How many bytes.
        lost_bytes: u64,
    },
    /// A resync after an unclean stop, or the first one, has begun.
    ResyncStarted,
    /// All regions are consistent.
    ResyncFinished,
    /// A read error was corrected from redundancy.
    ReadCorrected {
        /// The member that could not read.
        member: String,
        /// Offset in its data area.
        offset_bytes: u64,
        /// Length.
        length_bytes: u64,
    },
    /// A scrub went to the end.
    ScrubFinished {
        /// Bytes of the members that do not agree.
        mismatch_bytes: u64,
        /// Bytes that could not be compared.
        skipped_bytes: u64,
    },
    /// A scrub ended before it was through.
    ScrubStopped {
        /// How far it came.
        done_bytes: u64,
        /// Of how much.
        total_bytes: u64,
        /// Bytes of the members that do not agree, as far as it came.
        mismatch_bytes: u64,
    },
    /// A member took no write for want of space; told at most once a minute.
    NoSpace {
        /// Its name.
        member: String,
    },
}
