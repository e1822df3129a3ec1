//! The first line of everything: the worst that is the case now, in words. Pure.
//!
//! Invariants:
//! - it says what was seen, and no more: without volumes it does not say that all is well;
//! - what cannot be judged is never well.

use jiff::tz::TimeZone;

use super::state::State;
use super::words::{seconds, time_of_day};
use crate::date::local_zone;
use crate::volume::meaning::meaning;
use crate::volume::status::{JobKind, JobStatus, Verdict, VolumeStatus};

/// What was not judged for so long counts as not judged.
const JUDGED_S_MAX: u64 = 120;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Badness {
    /// Nothing is.
    Well,
    /// Something asks for attention.
    Warning,
    /// Nothing more may go wrong, or nobody knows.
    Critical,
    /// Data are lost, or cannot be reached.
    Emergency,
}

impl Badness {
    /// Its word; it stands beside each colour.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Badness::Well => "well",
            Badness::Warning => "warning",
            Badness::Critical => "critical",
            Badness::Emergency => "emergency",
        }
    }

    fn of_severity(word: &str) -> Self {
        match word {
            "warning" => Badness::Warning,
            "emergency" => Badness::Emergency,
            // A word that is not known is not harmless.
            _ => Badness::Critical,
        }
    }
}

/// The worst, and how many more there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Headline {
    /// How bad it is.
    pub badness: Badness,
    /// In words.
    pub text: String,
    /// What else there is, and when it will be better.
    pub more: Vec<String>,
}

/// How bad a volume is.
#[must_use]
pub fn badness(status: &VolumeStatus) -> Badness {
    match status.verdict {
        Verdict::Ok => Badness::Well,
        Verdict::Damaged | Verdict::Full => Badness::Warning,
        Verdict::Degraded if status.spare_failures == 0 => Badness::Critical,
        Verdict::Degraded => Badness::Warning,
        Verdict::Failed => Badness::Emergency,
    }
}

/// The first line, with times by the clock of this machine.
#[must_use]
pub fn headline_here(state: &State) -> Headline {
    headline(state, &local_zone())
}

/// When a job ends, by the clock of this machine; none while nobody knows.
#[must_use]
pub fn ends_here(job: &JobStatus, now_s: u64) -> Option<String> {
    ends(job, now_s, &local_zone())
}

/// A time of day by the clock of this machine.
#[must_use]
pub fn clock_here(time_s: u64) -> String {
    time_of_day(time_s, &local_zone())
}

/// The first line.
pub(super) fn headline(state: &State, zone: &TimeZone) -> Headline {
    let mut found = Vec::new();
    found.extend(not_judged(state));
    for status in &state.volumes {
        found.extend(of_volume(status));
    }
    for missed in state.missed() {
        let text = format!("{} IS NOT SERVED", missed.volume);
        found.push((Badness::Critical, text));
    }
    let has_own = found.len();
    for open in state.open_incidents() {
        let headline = open.headline.as_deref().unwrap_or_default();
        let text = format!("{}: {headline}", open.name);
        found.push((Badness::of_severity(&open.severity), text));
    }
    let worst = found.iter().map(|(badness, _)| *badness).max();
    let Some(badness) = worst.filter(|worst| *worst > Badness::Well) else {
        return all_well(state);
    };
    // Of equals the first: what was seen of a volume now comes before what an incident says of it.
    let at = found.iter().position(|(one, _)| *one == badness);
    let (_, text) = found.remove(at.unwrap_or(0));
    let mut more: Vec<String> = Vec::new();
    let others = has_own.saturating_sub(1);
    if others > 0 {
        more.push(format!("{others} more below"));
    }
    let jobs = state.volumes.iter();
    more.extend(jobs.filter_map(|status| safe_again(status, state.now_s, zone)));
    Headline {
        badness,
        text,
        more,
    }
}

fn of_volume(status: &VolumeStatus) -> Option<(Badness, String)> {
    let name = &status.volume;
    let text = match status.verdict {
        Verdict::Ok => return None,
        Verdict::Degraded if status.spare_failures == 0 => {
            format!("ONE MORE FAILURE LOSES {name}")
        }
        Verdict::Failed => format!("{name} HAS FAILED: nothing is written any more"),
        _ => format!("{name}: {}", meaning(status).unwrap_or_default()),
    };
    Some((badness(status), text))
}

fn not_judged(state: &State) -> Option<(Badness, String)> {
    let judged = state.alarms.as_ref()?.judged_s;
    let age = judged.map(|judged| state.now_s.saturating_sub(judged));
    let text = match age {
        None => "NOT JUDGED YET".to_owned(),
        Some(age) if age > JUDGED_S_MAX => format!("NOT JUDGED FOR {}", seconds(age)),
        Some(_) => return None,
    };
    Some((Badness::Critical, text))
}

fn all_well(state: &State) -> Headline {
    let text = match state.volumes.len() {
        0 => "no volume is served".to_owned(),
        1 => format!("{} is whole", state.volumes[0].volume),
        count => format!("all {count} volumes are whole"),
    };
    let bare = state
        .volumes
        .iter()
        .filter(|one| one.designed_spare_failures.unwrap_or(one.spare_failures) == 0);
    let more = bare.map(|one| format!("{}: no redundancy by design", one.volume));
    Headline {
        badness: Badness::Well,
        text,
        more: more.collect(),
    }
}

/// When a volume has its redundancy back, where something fills a member.
fn safe_again(status: &VolumeStatus, now_s: u64, zone: &TimeZone) -> Option<String> {
    let is_filling = |job: &&JobStatus| job.kind == JobKind::Rebuild;
    let job = status.jobs.iter().find(is_filling)?;
    let ends = ends(job, now_s, zone)?;
    Some(format!("{} is being filled, {ends}", status.volume))
}

/// When a job ends, as a time of day with its range: `ends about 10:30 (09:40 to 12:10)`.
pub(super) fn ends(job: &JobStatus, now_s: u64, zone: &TimeZone) -> Option<String> {
    let at = |left: u64| time_of_day(now_s.saturating_add(left), zone);
    let about = at(job.eta_s?);
    let range = job.eta_range_s.map(|(least, most)| (at(least), at(most)));
    Some(match range {
        Some((least, most)) if least != most => {
            format!("ends about {about} ({least} to {most})")
        }
        _ => format!("ends about {about}"),
    })
}
