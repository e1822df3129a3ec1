//! Each deliberate bug of the engine is found by the oracle or a checker within a bounded number of seeds.

use plexum_engine::mutant::Mutant;
use plexum_sim::engine::Engine;
use plexum_sim::mutants::hunt;

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
];

#[test]
fn every_one_of_them_is_found_within_a_hundred_seeds() {
    for mutant in FOUND_SOON {
        let result = hunt::<Engine>(*mutant, 0, 100);
        assert!(
            result.seed.is_some(),
            "{mutant:?} survived {} seeds",
            result.seeds
        );
    }
}
