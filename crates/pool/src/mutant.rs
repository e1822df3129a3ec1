//! Deliberate bugs of pools, one for each rule of a writer. The tests of the simulator turn one on to prove that the
//! simulator finds it. Nothing else ever sets it.
//!
//! Without the feature `mutants`, which the simulator's tests and examples alone turn on, `DeliberateBug` is of no size
//! and every condition is false where it is compiled: a release build has nothing of them.
//!
//! Source: zfs-write.md 4.

/// The bug that a pool has: none, but in the hunt for them.
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
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    /// Whether it is this one: never.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    #[must_use]
    pub(crate) const fn is(self, mutant: Mutant) -> bool {
        let _ = mutant;
        false
    }
}

/// A bug that can be switched on. Each name says what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// Space that was just freed is given out again while the last roots still reach it.
    FreedBlockReused,
    /// The root is written before what it reaches was flushed.
    RootBeforeFlush,
    /// A member that was lost is not recorded as having missed anything.
    MissedNotNoted,
    /// The header of a log moves on when its records were logged, before they are in a root.
    LogHeadMovedEarly,
    /// One entry of a space map is not written.
    SpaceMapEntryLost,
    /// Dead blocks go to the list before the one that they belong to in a deadlist.
    DeadlistKeyOff,
    /// The sums of directories stay what they were.
    SumsSkipped,
    /// A root that a crash left on some members alone is not put on the others before space is given out that it freed.
    RootNotSettled,
    /// A member that is lost between two roots is not recorded before the next flush is answered.
    LossNotRecorded,
    /// A member that was replaced goes on being read in the place of the new one.
    ReplacedMemberRead,
    /// A side that was attached is taken for one that has everything.
    SideTakenForWhole,
    /// A member that returns while the pool is open is taken for one that has everything.
    ReturnTakenForWhole,
    /// The successor of a member is not written along with it.
    SuccessorSkipped,
    /// The end of a walk says of members that came while it was on its way that they have everything.
    WalkCreditsAll,
}

/// All of them, for the hunt.
pub const ALL: &[Mutant] = &[
    Mutant::FreedBlockReused,
    Mutant::RootBeforeFlush,
    Mutant::MissedNotNoted,
    Mutant::LogHeadMovedEarly,
    Mutant::SpaceMapEntryLost,
    Mutant::DeadlistKeyOff,
    Mutant::SumsSkipped,
    Mutant::RootNotSettled,
    Mutant::LossNotRecorded,
    Mutant::ReplacedMemberRead,
    Mutant::SideTakenForWhole,
    Mutant::ReturnTakenForWhole,
    Mutant::SuccessorSkipped,
    Mutant::WalkCreditsAll,
];
