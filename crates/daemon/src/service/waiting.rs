//! Volumes that are expected: how each stands, and what is told of those that are not served.

use std::path::Path;

use plexum_block::clock::Moment;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::returns::Returns;
use crate::expected::{Expected, Wanted};
use crate::problem::Problem;

/// A volume that is expected and not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its name.
    pub volume: String,
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
    /// When a member of it was first seen, while it waits.
    pub(super) seen: Option<Moment>,
    /// Who has returned lately.
    pub(super) returns: Returns,
}

impl Entry {
    /// A volume that nobody has tried yet.
    pub(super) fn new(expected: Expected) -> Self {
        Self {
            expected,
            problem: None,
            seen: None,
            returns: Returns::default(),
        }
    }

    /// What is told of it.
    pub(super) fn waiting(&self) -> Waiting {
        let members = self.expected.members();
        let missing = members.iter().filter(|member| !is_there(member));
        let missing: Vec<String> = missing.cloned().collect();
        let with_serial = |member: &String| self.expected.with_serial(member);
        Waiting {
            missing_disks: missing.iter().map(with_serial).collect(),
            volume: self.expected.volume.clone(),
            level: self.expected.level.clone(),
            wanted: self.expected.wanted,
            missing,
            members,
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

/// Whether something is at a member's path. Addresses are asked when they are opened.
pub(super) fn is_there(member: &str) -> bool {
    member.contains("://") || Path::new(member).exists()
}
