//! All incidents: what was found becomes one, is told, and ends.
//!
//! Invariants:
//! - an incident is open if and only if its finding is there now and was for [`Delays::hold_s`], however many restarts
//!   lie between; it does not matter whether anybody saw it begin;
//! - what cannot be judged is as it was when it last could be;
//! - each incident is told once when it opens, once each time it gets worse, once when it is over; what comes and goes
//!   is one incident until it stays away.

use serde::{Deserialize, Serialize};

use crate::finding::{Code, Finding, Object, Severity};
use crate::incident::{
    Acknowledgement, Delays, FORGET_S, IncidentId, Life, Notice, NoticeKind, hold,
};
use crate::mutant::{DeliberateBug, Mutant, Overlooked};
use crate::time::UnixTime;

/// Findings that are watched at once. More would be a mistake of whoever gives the facts; the worst are kept.
pub const WATCHED_MAX: usize = 10_000;

/// All incidents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incidents {
    /// The number of the next one.
    next: u64,
    watched: Vec<Watched>,
    #[serde(skip)]
    delays: Delays,
    #[serde(skip)]
    overlooked: Overlooked,
}

/// A finding that is there, or was not long ago.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Watched {
    /// As it was found last.
    finding: Finding,
    /// Since when it is there; none while it is not.
    held_since: Option<UnixTime>,
    /// Since when it is not.
    gone_since: Option<UnixTime>,
    /// How often it came back.
    returns: u32,
    /// The incident, until its end was told.
    life: Option<Life>,
}

/// What has to be kept of a finding.
#[derive(PartialEq, Eq)]
pub(crate) struct Essence {
    key: (Code, Object),
    severity: Severity,
    watched: (Option<UnixTime>, Option<UnixTime>, u32),
    life: Option<Life>,
}

/// An incident that is open.
#[derive(Clone, Copy, Debug)]
pub struct Open<'a> {
    /// What was found last.
    pub finding: &'a Finding,
    /// What became of it.
    pub life: &'a Life,
}

/// Why something was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcknowledgeError {
    /// No such incident, or it is over.
    #[error("incident {0} is not open: see \"plexum incident\" for those that are")]
    NotOpen(IncidentId),
    /// Nobody said why.
    #[error("incident {0}: an acknowledgement needs a reason, such as --why \"disk is ordered\"")]
    NoReason(IncidentId),
}

impl Incidents {
    /// None yet. `first` is the number of the first one: where the memory of older ones is lost, take one that none
    /// of them can have had, such as the time in minutes.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self {
            next: first,
            ..Self::default()
        }
    }

    /// From now on something has to hold for as long.
    pub(crate) fn set_delays(&mut self, delays: Delays) {
        self.delays = delays;
    }

    /// A number that nothing else has.
    pub(crate) fn take_number(&mut self) -> IncidentId {
        let id = IncidentId(self.next);
        self.next = self.next.wrapping_add(1);
        id
    }

    /// What is to be told, now that `findings` are there and nothing can be said of `unjudged`. Called once a second.
    pub fn step(
        &mut self,
        findings: &[Finding],
        unjudged: &[Object],
        now: UnixTime,
    ) -> Vec<Notice> {
        self.step_with(findings, unjudged, now, DeliberateBug::NONE)
    }

    pub(crate) fn step_with(
        &mut self,
        findings: &[Finding],
        unjudged: &[Object],
        now: UnixTime,
        bug: DeliberateBug,
    ) -> Vec<Notice> {
        let findings = self.overlooked.without(bug, findings);
        let mut is_found = vec![false; self.watched.len()];
        for finding in worst_of_each(&findings) {
            let known = self
                .watched
                .iter()
                .position(|watched| watched.is_of(finding));
            match known {
                Some(index) => {
                    self.watched[index].finding = finding.clone();
                    is_found[index] = true;
                }
                None if self.watched.len() < WATCHED_MAX => {
                    self.watched.push(Watched::new(finding));
                    is_found.push(true);
                }
                None => {}
            }
        }
        let mut notices = Vec::new();
        let delays = self.delays;
        for (watched, is_found) in self.watched.iter_mut().zip(is_found) {
            let object = &watched.finding.object;
            let is_unjudged = unjudged.iter().any(|other| object.is_part_of(other))
                && !bug.is(Mutant::UnknownIsFine);
            let notice = match is_found {
                true => watched.there(&mut self.next, delays, now),
                false if !is_unjudged => watched.gone(delays, now, bug),
                // As it was last.
                false if watched.held_since.is_some() => watched.there(&mut self.next, delays, now),
                false => None,
            };
            notices.extend(notice);
        }
        self.watched.retain(|watched| !watched.is_forgotten(now));
        notices
    }

    /// All but texts, which change with every second of a rebuild and need not be kept as often.
    pub(crate) fn essence(&self) -> Vec<Essence> {
        let each = self.watched.iter().map(|watched| Essence {
            key: (watched.finding.code, watched.finding.object.clone()),
            severity: watched.finding.severity,
            watched: (watched.held_since, watched.gone_since, watched.returns),
            life: watched.life.clone(),
        });
        each.collect()
    }

    /// All that are open, the worst first, then the oldest.
    #[must_use]
    pub fn open(&self) -> Vec<Open<'_>> {
        let mut open: Vec<Open<'_>> = self.watched.iter().filter_map(Watched::open).collect();
        open.sort_by_key(|open| {
            let severity = std::cmp::Reverse(open.finding.severity);
            (severity, open.life.opened, open.life.id)
        });
        open
    }

    /// The incident of `code` at `object`, when it is open.
    #[must_use]
    pub fn open_of(&self, code: Code, object: &Object) -> Option<Open<'_>> {
        let mut open = self.watched.iter().filter_map(Watched::open);
        open.find(|open| open.finding.code == code && open.finding.object == *object)
    }

    /// `who` knows of it: it is not told again until it gets worse or ends.
    ///
    /// # Errors
    /// When it is not open, or nobody says why.
    pub fn acknowledge(
        &mut self,
        id: IncidentId,
        who: &str,
        why: &str,
        now: UnixTime,
    ) -> Result<(), AcknowledgeError> {
        if why.trim().is_empty() {
            return Err(AcknowledgeError::NoReason(id));
        }
        for watched in &mut self.watched {
            let severity = watched.finding.severity;
            let life = watched.life.as_mut();
            let Some(life) = life.filter(|life| life.id == id && life.closed.is_none()) else {
                continue;
            };
            life.acknowledged = Some(Acknowledgement {
                who: who.to_owned(),
                why: why.to_owned(),
                at: now,
                severity,
            });
            return Ok(());
        }
        Err(AcknowledgeError::NotOpen(id))
    }
}

/// One finding for each code and object. Where there are several, as for two copies of one volume, the worst.
fn worst_of_each(findings: &[Finding]) -> Vec<&Finding> {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|found| (std::cmp::Reverse(found.severity), found.code, &found.object));
    let mut each: Vec<&Finding> = Vec::new();
    for finding in sorted {
        let is_same =
            |other: &&Finding| other.code == finding.code && other.object == finding.object;
        if !each.iter().any(is_same) {
            each.push(finding);
        }
    }
    each
}

impl Watched {
    fn new(finding: &Finding) -> Self {
        Self {
            finding: finding.clone(),
            held_since: None,
            gone_since: None,
            returns: 0,
            life: None,
        }
    }

    fn is_of(&self, finding: &Finding) -> bool {
        self.finding.code == finding.code && self.finding.object == finding.object
    }

    fn open(&self) -> Option<Open<'_>> {
        let life = self.life.as_ref().filter(|life| life.closed.is_none())?;
        Some(Open {
            finding: &self.finding,
            life,
        })
    }

    /// It is there.
    fn there(&mut self, next: &mut u64, delays: Delays, now: UnixTime) -> Option<Notice> {
        let held_s = hold(&mut self.held_since, true, now);
        if held_s < delays.hold_s && self.life.as_ref().is_none_or(|life| life.closed.is_some()) {
            return None;
        }
        let was_here = self.gone_since.take().is_some();
        let severity = self.finding.severity;
        let kind = match &mut self.life {
            Some(life) => {
                if life.closed.take().is_some() {
                    life.returns = life.returns.saturating_add(1);
                }
                let kind = life.follow(severity, delays, now);
                self.returns = life.returns;
                kind?
            }
            None => {
                self.returns = self.returns.saturating_add(u32::from(was_here));
                let id = IncidentId(*next);
                *next = next.wrapping_add(1);
                self.life = Some(Life::open(id, severity, self.returns, now));
                NoticeKind::Opened
            }
        };
        self.notice(kind)
    }

    /// It is not there.
    fn gone(&mut self, delays: Delays, now: UnixTime, bug: DeliberateBug) -> Option<Notice> {
        if bug.is(Mutant::IncidentNeverCloses) && self.life.is_some() {
            return None;
        }
        let was_back = self.held_since.take().is_some();
        let life = self.life.as_mut()?;
        if was_back {
            self.gone_since = None; // if only for a moment
        }
        let gone_s = hold(&mut self.gone_since, true, now);
        life.closed.get_or_insert(now);
        if gone_s < delays.quiet_after(self.returns) {
            return None;
        }
        life.count(now);
        let notice = self.notice(NoticeKind::Closed);
        self.life = None;
        notice
    }

    fn notice(&self, kind: NoticeKind) -> Option<Notice> {
        Some(Notice {
            kind,
            finding: self.finding.clone(),
            life: self.life.clone()?,
            is_looked_at: true,
        })
    }

    fn is_forgotten(&self, now: UnixTime) -> bool {
        let is_idle = self.life.is_none() && self.held_since.is_none();
        // A time in the future is of a clock that was set back; it is not waited for.
        let is_away = |gone: UnixTime| gone > now || now.since_s(gone) >= FORGET_S;
        is_idle && self.gone_since.is_none_or(is_away)
    }
}
