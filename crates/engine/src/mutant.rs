//! Deliberate bugs, one for each rule of the write path. A test-only switch: `plexum sim --mutants` and the tests turn
//! one on to prove that the simulator finds it. Nothing else ever sets it.

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
    /// Trim of a mirror reaches one copy only (W11).
    TrimOneCopy,
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
    /// The event count does not rise with a commit.
    EventCountNotRaised,
    /// Client writes do not reach a member that is being rebuilt.
    WriteSkipsRebuildTarget,
}

/// All mutants, for `--mutants`.
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
    Mutant::TrimOneCopy,
    Mutant::IgnoreFlushError,
    Mutant::SkipFlush,
    Mutant::IgnoreFua,
    Mutant::NoRowLock,
    Mutant::NoRangeLock,
    Mutant::WrongQCoefficient,
    Mutant::DegradedWriteSkipsParity,
    Mutant::ForgetBadBlocks,
    Mutant::CheckpointAheadOfData,
    Mutant::EventCountNotRaised,
    Mutant::WriteSkipsRebuildTarget,
];
