//! The life of one incident.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Severity};
use crate::time::{DAY_S, HOUR_S, MINUTE_S, UnixTime};

/// A finding becomes an incident, or a worse one, when it was there for as long.
pub const HOLD_S: u64 = 10;
/// An incident that nobody acknowledged is told again after this.
pub const REPEAT_S: u64 = DAY_S;
/// What is over stays over for as long before that is told; twice as long each time it came back.
pub const QUIET_S: u64 = MINUTE_S;
/// The longest of these.
pub const QUIET_S_MAX: u64 = 4 * HOUR_S;
/// How often something came back is forgotten when it stayed away for as long.
pub const FORGET_S: u64 = DAY_S;

/// How long something has to hold before it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// A finding becomes an incident, or a worse one, when it was there for so many seconds.
    pub hold_s: u64,
    /// What is over stays over for so many seconds before that is told; twice as many each time it came back.
    pub quiet_s: u64,
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            hold_s: HOLD_S,
            quiet_s: QUIET_S,
        }
    }
}

impl Delays {
    /// How long what came back `returns` times stays away before that is told.
    pub(crate) fn quiet_after(self, returns: u32) -> u64 {
        let doubled = 1_u64.checked_shl(returns.min(32)).unwrap_or(u64::MAX);
        self.quiet_s.saturating_mul(doubled).min(QUIET_S_MAX)
    }
}

/// The number of an incident, written in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IncidentId(pub u64);

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Somebody knows of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledgement {
    /// Who.
    pub who: String,
    /// Why that is enough.
    pub why: String,
    /// When.
    pub at: UnixTime,
    /// How bad it was. Who knew of that does not know of worse.
    pub severity: Severity,
}

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    /// It is there.
    Opened,
    /// It is worse than was told.
    Worse,
    /// It is still there after a day, and nobody has acknowledged it.
    Repeated,
    /// It is over.
    Closed,
    /// Somebody tries the way of a message.
    Test,
}

impl NoticeKind {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Worse => "worse",
            Self::Repeated => "repeated",
            Self::Closed => "closed",
            Self::Test => "test",
        }
    }
}

/// What is known of an incident from its opening to its last message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// Its number.
    pub id: IncidentId,
    /// When it was opened.
    pub opened: UnixTime,
    /// When it was over; it is open again when it comes back before that was told.
    pub closed: Option<UnixTime>,
    /// Who knows of it.
    pub acknowledged: Option<Acknowledgement>,
    /// How often it came back.
    pub returns: u32,
    /// Messages so far.
    pub messages: u32,
    /// The worst that was told of it.
    pub worst: Severity,
    /// What who reads the messages takes it for.
    told: Severity,
    told_at: UnixTime,
    /// Since when it is worse than that.
    worse_since: Option<UnixTime>,
    /// Since when it is better than that.
    better_since: Option<UnixTime>,
}

/// Something to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub kind: NoticeKind,
    /// What was found, last when it is over.
    pub finding: Finding,
    /// Of which incident, with this message counted.
    pub life: Life,
    /// Its object is still looked at. When it is not, an end says nothing about how it is.
    pub is_looked_at: bool,
}

impl Life {
    /// An incident that is opened now, and told.
    pub(crate) fn open(id: IncidentId, severity: Severity, returns: u32, now: UnixTime) -> Self {
        Self {
            id,
            opened: now,
            closed: None,
            acknowledged: None,
            returns,
            messages: 1,
            worst: severity,
            told: severity,
            told_at: now,
            worse_since: None,
            better_since: None,
        }
    }

    /// Somebody knows of it, at `severity` or worse.
    #[must_use]
    pub fn is_acknowledged(&self, severity: Severity) -> bool {
        let known = self.acknowledged.as_ref().map(|known| known.severity);
        known.is_some_and(|known| severity <= known)
    }

    /// What is to be told while it is open at `severity`.
    pub(crate) fn follow(
        &mut self,
        severity: Severity,
        delays: Delays,
        now: UnixTime,
    ) -> Option<NoticeKind> {
        // A clock that was set back must not make anybody wait until it has caught up.
        self.told_at = self.told_at.min(now);
        let is_worse = severity > self.told;
        let is_better = severity < self.told;
        let held_worse_s = hold(&mut self.worse_since, is_worse, now);
        let held_better_s = hold(&mut self.better_since, is_better, now);
        if is_better && held_better_s >= delays.quiet_after(self.returns) {
            self.told = severity; // from here, getting worse is news again, and a return
            self.returns = self.returns.saturating_add(1);
        }
        let is_repeat_due = now.since_s(self.told_at) >= REPEAT_S;
        let kind = match () {
            () if is_worse && (held_worse_s >= delays.hold_s || is_repeat_due) => NoticeKind::Worse,
            () if self.is_acknowledged(severity) => return None,
            () if is_repeat_due => NoticeKind::Repeated,
            () => return None,
        };
        self.told = severity;
        self.worst = self.worst.max(severity);
        self.worse_since = None;
        self.better_since = None;
        self.count(now);
        Some(kind)
    }

    /// One more message.
    pub(crate) fn count(&mut self, now: UnixTime) {
        self.messages = self.messages.saturating_add(1);
        self.told_at = now;
    }
}

/// Seconds that something holds by now: `since` is when it began.
pub(crate) fn hold(since: &mut Option<UnixTime>, is_there: bool, now: UnixTime) -> u64 {
    if !is_there {
        *since = None;
        return 0;
    }
    let since = since.get_or_insert(now);
    *since = (*since).min(now);
    now.since_s(*since)
}
