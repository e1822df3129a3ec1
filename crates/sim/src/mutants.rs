//! Deliberate bugs of the engine against the harness: each must be found, and it is said how soon.
//!
//! Invariants:
//! - a mutant counts as found only by a finding of the oracle or a checker; nothing looks at the switch;
//! - a seed that has a finding without the mutant as well proves nothing.

use std::fmt::Debug;
use std::ops::Range;

use plexum_engine::mutant::Mutant;
use serde::Serialize;

use crate::md::Level;
use crate::md::drill::Drill;
use crate::md::scenario::Options;
use crate::world::Outcome;

/// What became of one mutant.
#[derive(Clone, Debug, Serialize)]
pub struct MutantResult {
    /// Its name.
    pub mutant: String,
    /// Seeds run, the one that found it included.
    pub seeds: u64,
    /// The seed that found it; `None`: it survived.
    pub seed: Option<u64>,
    /// The first finding.
    pub finding: Option<String>,
}

/// Options under which a mutant is hunted: the levels it can harm, everything else as for the real engine.
#[must_use]
pub fn options_for(mutant: Mutant) -> Options {
    let copies = vec![Level::Raid1, Level::Raid10];
    let parity = vec![Level::Raid4, Level::Raid5, Level::Raid6];
    let redundant = [copies.clone(), parity.clone()].concat();
    let levels = match mutant {
        Mutant::ReadUnequalCopies
        | Mutant::TrimOneCopy
        | Mutant::NoRangeLock
        | Mutant::AheadKeptOverWrite
        | Mutant::WidenedWrites
        | Mutant::EqualWithoutFlush
        | Mutant::ProvenBeforeFlush
        | Mutant::HedgedReadUnproven => copies,
        Mutant::ModifyUnprovenParity
        | Mutant::NoRowLock
        | Mutant::DegradedWriteSkipsParity
        | Mutant::ForcedStartForgetsDoubt
        | Mutant::TrustDoubtfulParity
        | Mutant::ResyncForgetsReplacement
        | Mutant::BadEntryClearedWithoutFlush => parity,
        Mutant::LogOverlapsData
        | Mutant::RecordWithoutParity
        | Mutant::ReplayTornRecords
        | Mutant::FullRowNotLogged
        | Mutant::RecordNotFlushed
        | Mutant::InPlaceBeforeRecord
        | Mutant::ReplayUnbound
        | Mutant::RefusedRecordStays
        | Mutant::RecordBeforeFailureCommit
        | Mutant::LogNotReplayed
        | Mutant::ReplayForgottenBeforeFlush
        | Mutant::RingReusedBeforeFlush => return logs(mutant, parity),
        // Two members may be lost one after the other: three times as often met as with one parity.
        Mutant::ReplayBeforeCommit => return logs(mutant, vec![Level::Raid6]),
        Mutant::LoggedNotRead
        | Mutant::DestageLost
        | Mutant::KeptOverRebuild
        | Mutant::AnswersNotAnnounced => {
            return Options {
                write_backs_of_256: 256,
                ..logs(mutant, parity)
            };
        }
        Mutant::PplNotWritten | Mutant::PplNotReplayed => return ppls(),
        Mutant::DoorStaysOpen
        | Mutant::SlabLentWithoutLock
        | Mutant::ShardWritesUnmarked
        | Mutant::ShardAnswersUnsettled => {
            return shards(mutant, redundant);
        }
        Mutant::FirstRowLocked | Mutant::ResyncBelievesRows => parity,
        Mutant::WrongQCoefficient | Mutant::WrongQOrder => vec![Level::Raid6],
        // Where several may be lost one after another, and one that is left is not enough.
        Mutant::StalestTaken | Mutant::StaleWrittenUnasked => vec![Level::Raid10, Level::Raid6],
        Mutant::SkipFlush | Mutant::IgnoreFua | Mutant::RetryableIsFinal => Level::ALL.to_vec(),
        _ => redundant,
    };
    Options {
        levels,
        drill: drill_for(mutant),
        shards_of_256: 0,
        small_of_256: small_for(mutant),
        ..Options::default()
    }
}

/// Share of the seeds with small thresholds. Where few I/Os may be under way and writes give up soon, some of what has
/// to meet meets more rarely: there they are as people have them.
fn small_for(mutant: Mutant) -> u64 {
    match mutant {
        Mutant::CountsNotLevelled | Mutant::RetryableIsFinal | Mutant::ReplayBeforeCommit => 0,
        _ => Options::default().small_of_256,
    }
}

/// The drill that is bent towards the rule a mutant breaks; `None`: any seed may meet it.
fn drill_for(mutant: Mutant) -> Option<Drill> {
    Some(match mutant {
        Mutant::BadEntryClearedWithoutFlush => Drill::Forced,
        Mutant::RefusedRecordStays | Mutant::RefusedWriteForgotten => Drill::Refused,
        Mutant::ResyncForgetsReplacement => Drill::Replace,
        Mutant::ComesBackUndrained => Drill::Hang,
        Mutant::ReplayBeforeCommit => Drill::Replay,
        Mutant::AheadKeptOverWrite => Drill::Streams,
        Mutant::ReplayUnbound | Mutant::AnswersNotAnnounced | Mutant::EqualWithoutFlush => {
            Drill::Kernel
        }
        Mutant::ProvenBeforeFlush => Drill::Resync,
        Mutant::ReAddForgetsBadBlocks => Drill::Scarred,
        Mutant::IgnoreFlushError => Drill::FailedFlush,
        Mutant::CommitBeyondRedundancy | Mutant::RecordBeforeFailureCommit => Drill::Unplugged,
        Mutant::ShardAnswersUnsettled => Drill::Lost,
        Mutant::StalestTaken | Mutant::StaleWrittenUnasked => Drill::OneByOne,
        _ => return None,
    })
}

/// Volumes on several cores only, whose writes are lent.
fn shards(mutant: Mutant, levels: Vec<Level>) -> Options {
    // What is answered too early wants a loss, a crash and the loss back: met soonest with the fewest members.
    let is_rare = mutant == Mutant::ShardAnswersUnsettled;
    Options {
        levels: if is_rare { vec![Level::Raid1] } else { levels },
        drill: drill_for(mutant),
        logs_of_256: 0,
        ppls_of_256: 0,
        shards_of_256: 256,
        // Small thresholds make what is met rarer here: more is done at home.
        small_of_256: 0,
        ..Options::default()
    }
}

/// Arrays with a partial parity log only.
fn ppls() -> Options {
    Options {
        levels: vec![Level::Raid5],
        logs_of_256: 0,
        ppls_of_256: 256,
        ..Options::default()
    }
}

/// Arrays with a stripe log only.
fn logs(mutant: Mutant, levels: Vec<Level>) -> Options {
    Options {
        levels,
        drill: drill_for(mutant),
        shards_of_256: 0,
        small_of_256: small_for(mutant),
        logs_of_256: 256,
        ..Options::default()
    }
}

/// Hunts a mutant over seeds that `run` runs, with it and without.
pub(crate) fn hunt_by<M: Copy + Debug>(
    mutant: M,
    seeds: Range<u64>,
    run: impl Fn(u64, Option<M>) -> Outcome,
) -> MutantResult {
    let (mutant_name, first) = (format!("{mutant:?}"), seeds.start);
    for seed in seeds.clone() {
        if let Some(finding) = run(seed, Some(mutant)).findings.first()
            && run(seed, None).findings.is_empty()
        {
            return MutantResult {
                mutant: mutant_name,
                seeds: seed - first + 1,
                seed: Some(seed),
                finding: Some(finding.to_string()),
            };
        }
    }
    MutantResult {
        mutant: mutant_name,
        seeds: seeds.end - first,
        seed: None,
        finding: None,
    }
}
