//! Deliberate bugs, one for each rule of the write path. The hunt (`cargo xtask hunt`) and the tests of the simulator
//! turn one on to prove that the simulator finds it. Nothing else ever sets it.
//!
//! Most of them are one condition at the place of the rule; what takes more lines is here, out of the way. Without the
//! feature `mutants`, which the simulator's tests and examples alone turn on, `DeliberateBug` is of no size and every
//! condition is false where it is compiled: a release build has nothing of them.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use plexum_block::device::IoError;

/// How long writes use the member set of before, with `OldMemberSetStillWrites`.
pub(crate) const OLD_SET_LASTS: Duration = Duration::from_millis(20);

/// Unit of `WidenedWrites`.
pub(crate) const WIDE_BYTES: u64 = 4096;

/// The bug that a volume has: none, but in the hunt for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliberateBug {
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(
    size_of::<DeliberateBug>() == 0,
    "it costs the product nothing"
);

impl DeliberateBug {
    /// No bug.
    pub const NONE: Self = Self {
        #[cfg(feature = "mutants")]
        mutant: None,
    };

    /// This bug, or none.
    ///
    /// # Panics
    /// In a build without the feature `mutants` when it is one: it would not be there, and seem to be found by nothing.
    #[must_use]
    pub fn new(mutant: Option<Mutant>) -> Self {
        #[cfg(not(feature = "mutants"))]
        assert!(
            mutant.is_none(),
            "deliberate bugs are in builds with the feature `mutants` alone"
        );
        Self {
            #[cfg(feature = "mutants")]
            mutant,
        }
    }

    /// Whether it is this one.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether it is this one: never.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    #[must_use]
    pub const fn is(self, mutant: Mutant) -> bool {
        let _ = mutant;
        false
    }
}

/// A bug that can be switched on. Each name says what goes wrong; the rule is in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// Data are written before the array is marked dirty (W1).
    DirtyMarkAfterData,
    /// Data are written before the bitmap bits are durable (W1).
    BitmapAfterData,
    /// A bitmap bit is cleared without a flush before (W2).
    BitClearedWithoutFlush,
    /// "Clean" is written without a flush before (W2).
    CleanWithoutFlush,
    /// A write that missed a member is answered before the failure is durable (W3).
    AnswerBeforeFailureCommit,
    /// A failure beyond redundancy is committed (W4).
    CommitBeyondRedundancy,
    /// Read-modify-write on parity that is not proven (W5).
    ModifyUnprovenParity,
    /// Mirrors: a read in a doubtful region does not make the copies equal (W6).
    ReadUnequalCopies,
    /// A rebuilding member is read where it is not valid yet (W7).
    ReadWhileRebuilding,
    /// A stale member is taken as fresh at assembly (W7).
    BelieveStaleMember,
    /// Of members that missed writes, a forced start takes the stalest in place of the least stale (W7, forced).
    StalestTaken,
    /// An array that was started to be read with stale members is written to (W7, forced).
    StaleWrittenUnasked,
    /// Trim of a mirror reaches one copy only (W11).
    TrimOneCopy,
    /// A scrub compares, and says nothing of what differs.
    ScrubOverlooks,
    /// The door of the shards stays open when a member fails or copies come into doubt (W12).
    DoorStaysOpen,
    /// A slab is lent to a shard without its lock (W12).
    SlabLentWithoutLock,
    /// A shard writes before the home has marked the region (W12, W1).
    ShardWritesUnmarked,
    /// A shard answers a write that a member has missed before its home has made that durable (W12, W3).
    ShardAnswersUnsettled,
    /// A step of several rows holds the lock of the first one alone.
    FirstRowLocked,
    /// An error of a member's flush is ignored (W13).
    IgnoreFlushError,
    /// A client's flush does not reach the members.
    SkipFlush,
    /// A write with FUA is not made durable.
    IgnoreFua,
    /// No row lock around a parity update.
    NoRowLock,
    /// No range lock around a mirror write.
    NoRangeLock,
    /// Q is computed with the wrong coefficients.
    WrongQCoefficient,
    /// A degraded write leaves out the parity.
    DegradedWriteSkipsParity,
    /// The bad-block list is not consulted by reads.
    ForgetBadBlocks,
    /// The rebuild's checkpoint runs ahead of its data (W2).
    CheckpointAheadOfData,
    /// The rebuild's checkpoint takes its place after the flush, and what was filled meanwhile with it (W2).
    CheckpointTakenAfterFlush,
    /// The event count does not rise with a commit.
    EventCountNotRaised,
    /// Client writes do not reach a member that is being rebuilt.
    WriteSkipsRebuildTarget,
    /// A write is answered when the first member has it (W1).
    AnswerAfterFirstCopy,
    /// A write that some members took and others had no space for leaves its range proven (W5, W6).
    RefusedWriteForgotten,
    /// Mirrors: what was read ahead is kept when it is written over.
    AheadKeptOverWrite,
    /// An unclean stop is forgotten at the start: nothing is in doubt (W5, W6).
    ResyncSkipped,
    /// Parity rows: a resync leaves out the member that is being filled beside the one it replaces (W5).
    ResyncForgetsReplacement,
    /// Parity rows: a resync that compares several rows takes all of them for right when the first one is (W5).
    ResyncBelievesRows,
    /// Mirrors: copies count as equal before they were flushed (W6).
    EqualWithoutFlush,
    /// Mirrors: a region that was resynced counts as equal before the flush that covers it has ended (W6).
    ProvenBeforeFlush,
    /// A member that an interrupted commit left one event behind is refused (W7).
    OneBehindRefused,
    /// A member one event behind keeps the role that it calls its own (W7).
    OwnRoleBelieved,
    /// Members one event behind are not brought up before the next commit (W7).
    CountsNotLevelled,
    /// A member comes back by a bitmap that no longer names all it has missed (W7).
    ReAddIgnoresHistory,
    /// A member that was away while rows moved catches up by the bitmap alone (W7, R8).
    ReAddIgnoresShape,
    /// A member that comes back by the bitmap is read where its bad-block list says that it was never written (W7).
    ReAddForgetsBadBlocks,
    /// Bitmap bits are cleared although a member that needs them is away (W7).
    ClearWhileDegraded,
    /// A forced start takes all rows as right (W8).
    ForcedStartForgetsDoubt,
    /// Blocks are recovered from parity that is not proven (W8).
    TrustDoubtfulParity,
    /// What a rebuild could not recover is not put on the bad-block list (W8).
    LostRangeNotRecorded,
    /// A bad-block entry is taken off the member before what was written there is flushed (W2).
    BadEntryClearedWithoutFlush,
    /// A small write to a mirror is widened with what was read before the lock (W10).
    WidenedWrites,
    /// Writes use the member set of before for a while after a new one was published (W12).
    OldMemberSetStillWrites,
    /// A flush is answered with one that began earlier, and misses what other connections wrote meanwhile.
    FlushJoinsRunning,
    /// Q is computed in the order of the other layout family (DDF for md, md for DDF).
    WrongQOrder,
    /// One spare is filled for two slots.
    SpareUsedTwice,
    /// The ring lies over the first data of its member (L1).
    LogOverlapsData,
    /// A record without its parity (L2).
    RecordWithoutParity,
    /// A record that a surviving member lacks is replayed (L2).
    ReplayTornRecords,
    /// A full-row write is treated as atomic: it is not logged (L2).
    FullRowNotLogged,
    /// Nobody flushes the group: the record is answered for before it is durable (L3).
    RecordNotFlushed,
    /// Data go in place before their record is durable (L4).
    InPlaceBeforeRecord,
    /// The log is believed whoever had the array meanwhile (L6).
    ReplayUnbound,
    /// The log is not replayed (L7).
    LogNotReplayed,
    /// The rings are given up before what was replayed is flushed: after a crash in between there is no second time
    /// (L7).
    ReplayForgottenBeforeFlush,
    /// A place in the ring is used again before the members' flush (W2).
    RingReusedBeforeFlush,
    /// A record whose write was refused for want of space stays in the rings, under newer ones (L7).
    RefusedRecordStays,
    /// A record leaves out a member whose failure is not durable yet (W3, L2).
    RecordBeforeFailureCommit,
    /// The log is replayed before it is durable who is missing (W3, L7).
    ReplayBeforeCommit,
    /// A member that hung comes back while writes of before are still under way on it (W9).
    ComesBackUndrained,
    /// A hedged read answers with what both copies gave (W9).
    HedgedReadAnswersTwice,
    /// Mirrors: a hedged read does not ask whether its copies are known to agree. Not among `ALL`: nobody can see it.
    /// Only reads of what was proven when they began are hedged, and what comes into doubt meanwhile does so by a write
    /// at the same time, which was refused: what was there before and what it wrote are both right answers.
    HedgedReadUnproven,
    /// The superblock does not say that answers are only in the log (L5).
    AnswersNotAnnounced,
    /// What is only in the log is not read (L5).
    LoggedNotRead,
    /// Rows that wait in the log are forgotten instead of written (L5).
    DestageLost,
    /// Blocks in memory are taken for a row's content after the members have changed and it was rebuilt (L5).
    KeptOverRebuild,
    /// Data go in place without an entry in the partial parity log (W1).
    PplNotWritten,
    /// The partial parity log is not replayed (W5).
    PplNotReplayed,
    /// An interrupted I/O is not tried again.
    RetryableIsFinal,
    /// gmirror: the syncid does not rise when a component vanishes (W3, W7).
    SyncIdNotRaised,
    /// gmirror: the genid does not rise when a component is dropped for an error (W3, W7).
    GenerationNotRaised,
    /// gvinum: a subdisk that missed writes is taken as up at the start (W7).
    StaleSubdiskBelieved,
    /// gvinum: a subdisk is recorded as up while it is being revived (W7).
    SubdiskUpBeforeRevived,
    /// gvinum: the border of a plex that grows is on the drives before the data below it are in place (W2).
    GrowthBorderAheadOfData,
}

/// All mutants, for the hunt.
pub const ALL: &[Mutant] = &[
    Mutant::DirtyMarkAfterData,
    Mutant::BitmapAfterData,
    Mutant::BitClearedWithoutFlush,
    Mutant::CleanWithoutFlush,
    Mutant::AnswerBeforeFailureCommit,
    Mutant::CommitBeyondRedundancy,
    Mutant::ModifyUnprovenParity,
    Mutant::ReadUnequalCopies,
    Mutant::ReadWhileRebuilding,
    Mutant::BelieveStaleMember,
    Mutant::StalestTaken,
    Mutant::StaleWrittenUnasked,
    Mutant::TrimOneCopy,
    Mutant::ScrubOverlooks,
    Mutant::DoorStaysOpen,
    Mutant::SlabLentWithoutLock,
    Mutant::ShardWritesUnmarked,
    Mutant::ShardAnswersUnsettled,
    Mutant::FirstRowLocked,
    Mutant::IgnoreFlushError,
    Mutant::SkipFlush,
    Mutant::IgnoreFua,
    Mutant::NoRowLock,
    Mutant::NoRangeLock,
    Mutant::WrongQCoefficient,
    Mutant::DegradedWriteSkipsParity,
    Mutant::ForgetBadBlocks,
    Mutant::CheckpointAheadOfData,
    Mutant::CheckpointTakenAfterFlush,
    Mutant::EventCountNotRaised,
    Mutant::WriteSkipsRebuildTarget,
    Mutant::AnswerAfterFirstCopy,
    Mutant::RefusedWriteForgotten,
    Mutant::AheadKeptOverWrite,
    Mutant::ResyncSkipped,
    Mutant::ResyncForgetsReplacement,
    Mutant::ResyncBelievesRows,
    Mutant::EqualWithoutFlush,
    Mutant::ProvenBeforeFlush,
    Mutant::OneBehindRefused,
    Mutant::OwnRoleBelieved,
    Mutant::CountsNotLevelled,
    Mutant::ReAddIgnoresHistory,
    Mutant::ReAddIgnoresShape,
    Mutant::ReAddForgetsBadBlocks,
    Mutant::ClearWhileDegraded,
    Mutant::ForcedStartForgetsDoubt,
    Mutant::TrustDoubtfulParity,
    Mutant::LostRangeNotRecorded,
    Mutant::BadEntryClearedWithoutFlush,
    Mutant::WidenedWrites,
    Mutant::OldMemberSetStillWrites,
    Mutant::FlushJoinsRunning,
    Mutant::WrongQOrder,
    Mutant::SpareUsedTwice,
    Mutant::LogOverlapsData,
    Mutant::RecordWithoutParity,
    Mutant::ReplayTornRecords,
    Mutant::FullRowNotLogged,
    Mutant::RecordNotFlushed,
    Mutant::InPlaceBeforeRecord,
    Mutant::ReplayUnbound,
    Mutant::LogNotReplayed,
    Mutant::ReplayForgottenBeforeFlush,
    Mutant::RingReusedBeforeFlush,
    Mutant::RefusedRecordStays,
    Mutant::RecordBeforeFailureCommit,
    Mutant::ReplayBeforeCommit,
    Mutant::ComesBackUndrained,
    Mutant::HedgedReadAnswersTwice,
    Mutant::AnswersNotAnnounced,
    Mutant::LoggedNotRead,
    Mutant::DestageLost,
    Mutant::KeptOverRebuild,
    Mutant::PplNotWritten,
    Mutant::PplNotReplayed,
    Mutant::RetryableIsFinal,
    Mutant::SyncIdNotRaised,
    Mutant::GenerationNotRaised,
    Mutant::StaleSubdiskBelieved,
    Mutant::SubdiskUpBeforeRevived,
    Mutant::GrowthBorderAheadOfData,
];

/// Runs I/Os until the first has ended; the others go on unseen and count as done.
pub(crate) async fn join_first<F>(under_way: impl Iterator<Item = F>) -> Vec<Result<(), IoError>>
where
    F: Future<Output = Result<(), IoError>>,
{
    let mut under_way: Vec<Pin<Box<F>>> = under_way.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        let mut results = Vec::new();
        let mut has_ended = under_way.is_empty();
        for io in &mut under_way {
            match io.as_mut().poll(context) {
                Poll::Ready(result) => {
                    has_ended = true;
                    results.push(result);
                }
                Poll::Pending => results.push(Ok(())),
            }
        }
        if has_ended {
            Poll::Ready(results)
        } else {
            Poll::Pending
        }
    })
    .await
}
