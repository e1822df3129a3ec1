//! Volumes that are expected: how each stands, and what is told of those that are not served.

use std::collections::BTreeSet;

use plexum_block::clock::Moment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::find::Present;
use super::returns::Returns;
use super::same_bay::Plugged;
use crate::expected::{Expected, Wanted};
use crate::problem::Problem;

/// A volume that is expected and not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its name.
    pub volume: String,
    /// Its identity.
    #[serde(default)]
    pub uuid: String,
    /// Its level, in a word.
    pub level: String,
    /// Whether it is to be served.
    pub wanted: Wanted,
    /// Who belongs to it.
    pub members: Vec<String>,
    /// Those of them that are not there.
    pub missing: Vec<String>,
    /// The same with the serials of their disks, for people.
    #[serde(default)]
    pub missing_disks: Vec<String>,
    /// Why it is not served; none of one that was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<Value>,
}

/// An expected volume as it stands.
pub(super) struct Entry {
    pub(super) expected: Expected,
    /// Why it could not be served when it was last tried.
    pub(super) problem: Option<Problem>,
    /// Who of it was found nowhere when it was last looked for.
    pub(super) missing: Vec<String>,
    /// Who has arrived while it waits, and when the last one did.
    pub(super) waits_since: Option<(BTreeSet<String>, Moment)>,
    /// Who has returned lately.
    pub(super) returns: Returns,
    /// New disks in bays of its slots that were looked at.
    pub(super) looked_at: BTreeSet<Plugged>,
}

impl Entry {
    /// A volume that nobody has tried yet.
    pub(super) fn new(expected: Expected) -> Self {
        Self {
            expected,
            problem: None,
            missing: Vec::new(),
            waits_since: None,
            returns: Returns::default(),
            looked_at: BTreeSet::new(),
        }
    }

    /// Takes note of who is there; says when the last one arrived. One that comes and goes arrives once.
    pub(super) fn note_arrivals(&mut self, present: &Present, now: Moment) -> Moment {
        let (known, since) = self
            .waits_since
            .get_or_insert_with(|| (BTreeSet::new(), now));
        for member in &present.members {
            if known.insert(member.clone()) {
                *since = now;
            }
        }
        *since
    }

    /// What is told of it.
    pub(super) fn waiting(&self) -> Waiting {
        let with_serial = |member: &String| self.expected.with_serial(member);
        Waiting {
            missing_disks: self.missing.iter().map(with_serial).collect(),
            volume: self.expected.volume.clone(),
            uuid: self.expected.uuid.clone(),
            level: self.expected.level.clone(),
            wanted: self.expected.wanted,
            missing: self.missing.clone(),
            members: self.expected.members(),
            problem: self.problem.as_ref().map(Problem::to_json),
        }
    }

    /// Why it is not served, in words.
    pub(super) fn why_not_served(&self) -> String {
        let volume = &self.expected.volume;
        match (&self.problem, self.expected.wanted) {
            (_, Wanted::Stopped) => format!("{volume} was stopped"),
            (Some(problem), _) => format!("{volume} waits: {}", problem.message),
            (None, _) => format!("{volume} waits for its members"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_begins_anew_with_each_arrival_and_not_with_one_that_comes_and_goes() {
        let mut entry = Entry::new(Expected::default());
        let mut at = |seconds: u64, members: &[&str]| {
            let members = members.iter().map(|member| (*member).to_owned()).collect();
            let present = Present {
                members,
                ..Present::default()
            };
            let moment = |seconds: u64| Moment(seconds * 1_000_000_000);
            entry.note_arrivals(&present, moment(seconds)).0 / 1_000_000_000
        };
        assert_eq!(at(1, &["a"]), 1);
        assert_eq!(at(9, &["a"]), 1);
        assert_eq!(at(20, &["a", "b"]), 20);
        assert_eq!(at(25, &["a"]), 20);
        assert_eq!(at(30, &["a", "b"]), 20);
    }
}
