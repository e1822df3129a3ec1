//! Deliberate bugs, one for each rule of the alarms. The simulation turns one on to prove that it finds it. Nothing
//! else ever sets it.
//!
//! Without the feature `mutants`, which the tests here alone turn on, `DeliberateBug` is of no size and every condition
//! is false where it is compiled: a release build has nothing of them.

use std::borrow::Cow;

use crate::finding::Finding;
#[cfg(feature = "mutants")]
use crate::finding::{Code, Object};

/// The bug that an alarm has: none, but in the search for them.
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

/// A bug that can be switched on. Each name says what goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mutant {
    /// What is there already when the process starts opens nothing: only a change does.
    IncidentOnTransitionOnly,
    /// What is over stays open.
    IncidentNeverCloses,
    /// "Degraded" is a warning and "failed" is critical, however many losses are survived.
    SeverityByWord,
    /// A slot without a member is neither failed nor being filled, so it is overlooked.
    MissingNotCounted,
    /// What cannot be judged counts as whole.
    UnknownIsFine,
    /// A restart forgets what was decided and not delivered.
    UndeliveredForgotten,
    /// A message is sent before the state that knows of it is saved.
    SentBeforeSaved,
}

/// All mutants, for the search.
pub const ALL: &[Mutant] = &[
    Mutant::IncidentOnTransitionOnly,
    Mutant::IncidentNeverCloses,
    Mutant::SeverityByWord,
    Mutant::MissingNotCounted,
    Mutant::UnknownIsFine,
    Mutant::UndeliveredForgotten,
    Mutant::SentBeforeSaved,
];

/// What `IncidentOnTransitionOnly` does not see: what was there already at the first look of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overlooked {
    #[cfg(feature = "mutants")]
    since_start: Option<Vec<(Code, Object)>>,
}

#[cfg(not(feature = "mutants"))]
const _: () = assert!(size_of::<Overlooked>() == 0, "it costs the product nothing");

impl Overlooked {
    /// What is seen of `findings`: everything, without the bug.
    #[cfg(feature = "mutants")]
    pub(crate) fn without<'a>(
        &mut self,
        bug: DeliberateBug,
        findings: &'a [Finding],
    ) -> Cow<'a, [Finding]> {
        if !bug.is(Mutant::IncidentOnTransitionOnly) {
            return Cow::Borrowed(findings);
        }
        let keys: Vec<_> = findings
            .iter()
            .map(|found| (found.code, found.object.clone()))
            .collect();
        let overlooked = self.since_start.get_or_insert_with(|| keys.clone());
        overlooked.retain(|key| keys.contains(key));
        let seen = findings
            .iter()
            .filter(|found| !overlooked.contains(&(found.code, found.object.clone())));
        Cow::Owned(seen.cloned().collect())
    }

    /// What is seen of `findings`: everything.
    #[cfg(not(feature = "mutants"))]
    #[inline(always)]
    pub(crate) fn without<'a>(
        &mut self,
        _bug: DeliberateBug,
        findings: &'a [Finding],
    ) -> Cow<'a, [Finding]> {
        Cow::Borrowed(findings)
    }
}
