//! A sign of life for a dead-man's switch elsewhere: silence there is the alarm for everything that fails here.

use serde::{Deserialize, Serialize};

use crate::time::UnixTime;

/// The last judgement may be as old.
pub const JUDGED_S_MAX: u64 = 30;

/// When the last sign of life was given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Heartbeat {
    /// When it arrived.
    pub last: Option<UnixTime>,
    /// When it was tried.
    tried: Option<UnixTime>,
}

/// What a sign of life says: this was the case lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// When everything was judged last.
    pub judged_at: Option<UnixTime>,
    /// What is decided can be kept.
    pub is_journal_writable: bool,
}

impl Heartbeat {
    /// Whether it is time for one every `every_s`. Never while nothing is judged, or nothing can be kept: then the
    /// other side is to notice.
    #[must_use]
    pub fn is_due(&self, every_s: u64, pulse: Pulse, now: UnixTime) -> bool {
        let is_judged = pulse
            .judged_at
            .is_some_and(|at| now.since_s(at) <= JUDGED_S_MAX);
        let is_time = self
            .tried
            .is_none_or(|last| last > now || now.since_s(last) >= every_s);
        is_judged && pulse.is_journal_writable && is_time
    }

    /// It is under way.
    pub fn tried(&mut self, now: UnixTime) {
        self.tried = Some(now);
    }

    /// It has arrived.
    pub fn arrived(&mut self, now: UnixTime) {
        self.last = Some(now);
    }
}
