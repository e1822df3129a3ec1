//! Thresholds: sizes, counts and times from which on the engine does something else.
//!
//! They are values and no constants because a path that begins at 16 MiB or after a hundred reads is never walked in a
//! world of 1 MiB that lasts milliseconds: a bug in it was found by no seed. The simulator makes them small, and counts
//! which ones its seeds have crossed.

use std::time::Duration;

/// The values, with those of the product as default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Piece of members on disk that scrub, resync and rebuild look at together, at most.
    pub piece_bytes: u64,
    /// Member bytes between two durable checkpoints of a rebuild, at least (md: a sixteenth of the work).
    pub checkpoint_bytes_min: u64,
    /// Time between two durable checkpoints of a rebuild, at least: each flushes all members, who are writing.
    pub checkpoint_period_min: Duration,
    /// Reads that have to be known before any is hedged.
    pub hedge_samples_min: u64,
    /// A read younger than this is never hedged: asking twice would cost more than waiting.
    pub hedge_delay_min: Duration,
    /// The same for a disk that turns: there the second read costs another disk a seek, and the stream that it had.
    pub rotational_hedge_delay_min: Duration,
    /// Most ranges kept as proven inside doubtful regions; beyond it, new ones are simply not remembered.
    pub proven_ranges_max: usize,
    /// Failures after which a write that has failed is not cut into smaller pieces any more: a drive on its last legs
    /// may take seconds over each of them.
    pub write_failures_max: u32,
    /// Batches of a stripe log up to this size are copied into one buffer and written at once; larger ones go from the
    /// row's own buffers, and are flushed.
    pub log_copied_bytes_max: u64,
    /// Most bytes of blocks that a stripe log keeps in memory when they are in place.
    pub log_kept_bytes_max: u64,
    /// Most bytes of all that is kept of what was read ahead.
    pub ahead_bytes_max: u64,
    /// I/Os that one drive has under way at most; more wait their turn.
    pub drive_slots_max: usize,
    /// Bytes that one window of a migration moves at most, when its unit is not larger.
    pub migration_step_bytes: u64,
    /// Longest piece of a zero request that is carried out at once, in bytes.
    pub zero_slice_bytes: u64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            piece_bytes: 1 << 20,
            checkpoint_bytes_min: 16 << 20,
            checkpoint_period_min: Duration::from_secs(1),
            hedge_samples_min: 100,
            hedge_delay_min: Duration::from_millis(10),
            rotational_hedge_delay_min: Duration::from_millis(100),
            proven_ranges_max: 65_536,
            write_failures_max: 64,
            log_copied_bytes_max: 1 << 20,
            log_kept_bytes_max: 16 << 20,
            ahead_bytes_max: 32 << 20,
            drive_slots_max: 256,
            migration_step_bytes: 4 << 20,
            zero_slice_bytes: 1 << 20,
        }
    }
}

/// What lies behind a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Threshold {
    /// A scrub or a resync of copies takes several pieces for one strip.
    Pieces,
    /// A checkpoint within the pass of a rebuild.
    Checkpoint,
    /// A read took so long that the rest of its copies or its row was asked as well.
    Hedge,
    /// More was proven than is remembered.
    ProvenRanges,
    /// So many pieces of a write failed that the rest was recorded as it was.
    WriteFailures,
    /// A batch of a stripe log was written from the row's own buffers.
    LogUncopied,
    /// A stripe log gave up blocks that it had kept.
    LogKept,
    /// Something read ahead had to go, or was not read, for want of room.
    Ahead,
    /// An I/O waited for others of its drive.
    DriveSlots,
    /// A zero request was carried out in several pieces.
    ZeroSlices,
}

impl Threshold {
    /// All of them.
    pub const ALL: [Threshold; 10] = [
        Threshold::Pieces,
        Threshold::Checkpoint,
        Threshold::Hedge,
        Threshold::ProvenRanges,
        Threshold::WriteFailures,
        Threshold::LogUncopied,
        Threshold::LogKept,
        Threshold::Ahead,
        Threshold::DriveSlots,
        Threshold::ZeroSlices,
    ];

    /// Its name in the coverage matrix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Threshold::Pieces => "pieces",
            Threshold::Checkpoint => "checkpoint",
            Threshold::Hedge => "hedge",
            Threshold::ProvenRanges => "proven-ranges",
            Threshold::WriteFailures => "write-failures",
            Threshold::LogUncopied => "log-uncopied",
            Threshold::LogKept => "log-kept",
            Threshold::Ahead => "ahead",
            Threshold::DriveSlots => "drive-slots",
            Threshold::ZeroSlices => "zero-slices",
        }
    }
}

/// Which ones a volume has crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Crossed(u32);

impl Crossed {
    pub(crate) fn with(self, threshold: Threshold) -> Self {
        Self(self.0 | 1 << threshold as u32)
    }

    pub(crate) fn list(self) -> Vec<Threshold> {
        let is_in = |threshold: &Threshold| self.0 & (1 << *threshold as u32) != 0;
        Threshold::ALL.into_iter().filter(is_in).collect()
    }
}
