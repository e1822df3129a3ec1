//! Each deliberate bug of the engine is found by the oracle or a checker within a bounded number of seeds.

use plexum_engine::mutant::{ALL, Mutant};
use plexum_sim::engine::hunt;

/// Bugs that are found soon; `plexum sim --mutants` hunts all of them over more seeds.
const FOUND_SOON: &[Mutant] = &[
    Mutant::BitmapAfterData,
    Mutant::AnswerBeforeFailureCommit,
    Mutant::ReadUnequalCopies,
    Mutant::ReadWhileRebuilding,
    Mutant::BelieveStaleMember,
    Mutant::TrimOneCopy,
    Mutant::SkipFlush,
    Mutant::IgnoreFua,
    Mutant::NoRowLock,
    Mutant::NoRangeLock,
    Mutant::WrongQCoefficient,
    Mutant::DegradedWriteSkipsParity,
    Mutant::CheckpointAheadOfData,
    Mutant::WriteSkipsRebuildTarget,
    Mutant::DirtyMarkAfterData,
    Mutant::EventCountNotRaised,
    Mutant::AnswerAfterFirstCopy,
    Mutant::ResyncSkipped,
    Mutant::ForgetBadBlocks,
    Mutant::LoggedNotRead,
    Mutant::DestageLost,
    Mutant::PplNotWritten,
    Mutant::PplNotReplayed,
];

/// What the guarantees say of each bug.
const GUARANTEES: &str = include_str!("../../../docs/guarantees.md");

#[test]
fn every_one_of_them_stands_beside_the_promise_that_it_breaks() {
    for mutant in ALL {
        let name = format!("`{mutant:?}`");
        assert!(
            GUARANTEES.contains(&name),
            "docs/guarantees.md does not name {name}"
        );
    }
}

#[test]
fn every_one_of_them_is_found_within_a_hundred_seeds() {
    for mutant in FOUND_SOON {
        let result = hunt(*mutant, 0, 100);
        assert!(
            result.seed.is_some(),
            "{mutant:?} survived {} seeds",
            result.seeds
        );
    }
}
