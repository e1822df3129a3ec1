//! What to do now.

use std::fmt;
use std::ops::Range;

use jiff::tz::TimeZone;

use crate::UnixSeconds;
use crate::config::ScrubConfig;
use crate::state::State;

/// A round has so many parts at most: what was done is kept after each.
const PARTS_MAX: u64 = 256;
/// Smaller parts are not worth keeping.
const PART_BYTES_MIN: u64 = 1 << 30;
/// Parts begin and end at multiples of this, but for the end of the volume.
const ALIGN_BYTES: u64 = 1 << 20;

/// What is the case with a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    /// What there is to compare; 0 where there is nothing.
    pub total_bytes: u64,
    /// Whether all members are there and complete: what lacks one is not compared.
    pub is_whole: bool,
    /// Something else goes over all of it: a rebuild, a resync, a scrub by hand, a long test of a member by itself.
    pub has_other_job: bool,
    /// Until then somebody wants nothing to be compared; 0 where nobody does.
    pub held_until_s: UnixSeconds,
    /// The part that is being compared now because of a decision.
    pub running: Option<Range<u64>>,
    /// Bytes of a part.
    pub part_bytes: u64,
}

/// How many bytes of a volume make a part.
#[must_use]
pub fn part_bytes(total_bytes: u64) -> u64 {
    let part = (total_bytes / PARTS_MAX).max(PART_BYTES_MIN);
    part.next_multiple_of(ALIGN_BYTES)
}

/// Why nothing is compared now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has no redundancy.
    NothingToCompare,
    /// A member is missing or being filled.
    MemberMissing,
    /// Something else goes over all of it.
    OtherJob,
    /// Somebody has stopped it.
    Stopped,
    /// Everything was looked at lately.
    NotDue,
    /// It is not the time of the day.
    OutsideWindow,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NothingToCompare => "there is nothing to compare",
            Self::MemberMissing => "a member is missing",
            Self::OtherJob => "another job runs",
            Self::Stopped => "somebody has stopped it",
            Self::NotDue => "everything was compared lately",
            Self::OutsideWindow => "it is not the time of the day for it",
        })
    }
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Compare this part; a round begins with it, if none has begun.
    Start(Range<u64>),
    /// What runs goes on.
    GoOn,
    /// Stop what runs; it goes on later where it was.
    Pause(Why),
    /// Nothing.
    Wait {
        /// Why.
        why: Why,
        /// When it goes on; none where nobody can say.
        next_s: Option<UnixSeconds>,
    },
}

/// What to do with a volume now. `state` must fit its size.
#[must_use]
pub fn decide(
    config: &ScrubConfig,
    state: &State,
    now: UnixSeconds,
    zone: &TimeZone,
    facts: &VolumeFacts,
) -> Decision {
    let hindrance = match () {
        () if facts.total_bytes == 0 => Some(Why::NothingToCompare),
        () if !facts.is_whole => Some(Why::MemberMissing),
        () if facts.has_other_job => Some(Why::OtherJob),
        () if now < facts.held_until_s => Some(Why::Stopped),
        () => None,
    };
    let is_open = config.within.has(now, zone);
    if facts.running.is_some() {
        let outside = (!is_open).then_some(Why::OutsideWindow);
        return hindrance
            .or(outside)
            .map_or(Decision::GoOn, Decision::Pause);
    }
    if let Some(why) = hindrance {
        let held = (why == Why::Stopped).then_some(facts.held_until_s);
        let next_s = held.and_then(|until| config.within.next(until, zone));
        return Decision::Wait { why, next_s };
    }
    let due = due_s(config, state).max(now);
    if due > now {
        let next_s = config.within.next(due, zone);
        let why = Why::NotDue;
        return Decision::Wait { why, next_s };
    }
    if !is_open {
        let next_s = config.within.next(now, zone);
        let why = Why::OutsideWindow;
        return Decision::Wait { why, next_s };
    }
    let begun = state.round.as_ref().map_or(now, |round| round.begun_s);
    match state.ages.next(begun, facts.part_bytes) {
        Some(part) => Decision::Start(part),
        // A clock that went back: everything was looked at behind `now`.
        None => Decision::Wait {
            why: Why::NotDue,
            next_s: None,
        },
    }
}

/// From when on something is to be compared. What a scrub could not compare waits for the next round: it would be tried
/// again and again.
fn due_s(config: &ScrubConfig, state: &State) -> UnixSeconds {
    match (&state.round, state.ages.oldest_looked().flatten()) {
        (Some(_), _) | (None, None) => 0,
        (None, Some(oldest)) => oldest.saturating_add(config.every.seconds()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Looked;

    fn config(within: &str) -> ScrubConfig {
        ScrubConfig {
            every: "30d".parse().unwrap(),
            within: within.parse().unwrap(),
            rate: None,
        }
    }

    fn facts() -> VolumeFacts {
        VolumeFacts {
            total_bytes: 100,
            is_whole: true,
            has_other_job: false,
            held_until_s: 0,
            running: None,
            part_bytes: 40,
        }
    }

    /// 1970-01-11, so many hours after midnight UTC.
    fn hour(hours: u64) -> UnixSeconds {
        10 * 86_400 + hours * 3_600
    }

    #[test]
    fn a_new_volume_is_scrubbed_as_soon_as_its_window_opens() {
        let state = State::new(100, 0);
        let now = |moment| {
            decide(
                &config("01:00-06:00"),
                &state,
                moment,
                &TimeZone::UTC,
                &facts(),
            )
        };
        assert_eq!(now(hour(1)), Decision::Start(0..40));
        let why = Why::OutsideWindow;
        let next_s = Some(hour(25));
        assert_eq!(now(hour(7)), Decision::Wait { why, next_s });
    }

    #[test]
    fn what_runs_is_stopped_for_a_rebuild_a_lost_member_and_the_end_of_its_window_and_for_nothing_else()
     {
        let state = State::new(100, 0);
        let now = |moment, change: &dyn Fn(&mut VolumeFacts)| {
            let mut facts = facts();
            facts.running = Some(0..40);
            change(&mut facts);
            decide(
                &config("01:00-06:00"),
                &state,
                moment,
                &TimeZone::UTC,
                &facts,
            )
        };
        assert_eq!(now(hour(2), &|_| {}), Decision::GoOn);
        assert_eq!(now(hour(6), &|_| {}), Decision::Pause(Why::OutsideWindow));
        let other = |facts: &mut VolumeFacts| facts.has_other_job = true;
        assert_eq!(now(hour(2), &other), Decision::Pause(Why::OtherJob));
        let lost = |facts: &mut VolumeFacts| facts.is_whole = false;
        assert_eq!(now(hour(2), &lost), Decision::Pause(Why::MemberMissing));
    }

    #[test]
    fn what_somebody_has_stopped_goes_on_when_he_said() {
        let state = State::new(100, 0);
        let mut facts = facts();
        facts.held_until_s = hour(26);
        let now = |moment, facts: &VolumeFacts| {
            decide(
                &config("01:00-06:00"),
                &state,
                moment,
                &TimeZone::UTC,
                facts,
            )
        };
        let (why, next_s) = (Why::Stopped, Some(hour(26)));
        assert_eq!(now(hour(2), &facts), Decision::Wait { why, next_s });
        assert_eq!(now(hour(26), &facts), Decision::Start(0..40));
        facts.running = Some(0..40);
        assert_eq!(now(hour(2), &facts), Decision::Pause(why));
    }

    #[test]
    fn what_could_not_be_compared_is_tried_again_in_the_next_round_and_not_at_once() {
        let mut state = State::new(100, 0);
        state.begin(hour(1));
        let skipped = Looked {
            skipped_bytes: 1,
            ..Looked::default()
        };
        assert!(state.note(&(0..100), skipped, hour(2)).is_some());
        let decided = decide(&config("always"), &state, hour(3), &TimeZone::UTC, &facts());
        let (why, next_s) = (Why::NotDue, Some(hour(2) + 30 * 86_400));
        assert_eq!(decided, Decision::Wait { why, next_s });
    }

    #[test]
    fn parts_are_neither_many_nor_tiny_and_begin_at_even_places() {
        assert_eq!(part_bytes(0), 1 << 30);
        for total in [1 << 20, 1 << 35, (1 << 45) + 12_345, u64::MAX / 4] {
            let part = part_bytes(total);
            assert!(part >= 1 << 30 && part.is_multiple_of(1 << 20));
            assert!(total.div_ceil(part) <= 256);
        }
    }
}
