//! What is kept of a volume's scrubs: its map of age, the round that has begun, how the last one ended.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::UnixSeconds;
use crate::ages::{Ages, Compared};

/// Version of what is kept.
pub const STATE_VERSION: u32 = 1;

/// A clock that is behind by less than this is no reason to forget anything.
const CLOCK_SLACK_S: u64 = 86_400;

/// What a scrub has found in one part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Bytes that differ.
    pub mismatch_bytes: u64,
    /// Bytes that could not be compared.
    pub skipped_bytes: u64,
}

/// A round that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// When.
    pub begun_s: UnixSeconds,
    /// Bytes that differ, so far.
    pub mismatch_bytes: u64,
    /// Bytes that could not be compared, so far.
    pub skipped_bytes: u64,
}

/// A round that has looked at everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundEnd {
    /// When it began.
    pub begun_s: UnixSeconds,
    /// When it ended.
    pub ended_s: UnixSeconds,
    /// Bytes that differ.
    pub mismatch_bytes: u64,
    /// Bytes that could not be compared.
    pub skipped_bytes: u64,
    /// Whether everything was compared.
    pub is_success: bool,
}

/// What is kept from one start of the daemon to the next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// `STATE_VERSION`.
    pub version: u32,
    /// When the volume was first known.
    pub known_since_s: UnixSeconds,
    /// Which part was looked at when.
    pub ages: Ages,
    /// The round that has begun and has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<Round>,
    /// The last round that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_round: Option<RoundEnd>,
    /// End of the last round in which everything was compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_s: Option<UnixSeconds>,
}

impl State {
    /// Of a volume that is new here.
    #[must_use]
    pub fn new(total_bytes: u64, now: UnixSeconds) -> Self {
        Self {
            version: STATE_VERSION,
            known_since_s: now,
            ages: Ages::unknown(total_bytes),
            round: None,
            last_round: None,
            last_success_s: None,
        }
    }

    /// Whether it was kept by a version that this one understands.
    #[must_use]
    pub fn is_understood(&self) -> bool {
        self.version == STATE_VERSION
    }

    /// Takes over the size that the volume has now, and forgets what is said to happen in days to come: a clock was
    /// wrong, and nothing would be scrubbed until then.
    pub fn fit(&mut self, total_bytes: u64, now: UnixSeconds) {
        let latest = now.saturating_add(CLOCK_SLACK_S);
        self.ages.fit(total_bytes);
        self.ages.forget_after(latest);
        self.known_since_s = self.known_since_s.min(now);
        self.last_success_s = self.last_success_s.filter(|moment| *moment <= latest);
        self.last_round = self
            .last_round
            .take()
            .filter(|round| round.ended_s <= latest);
        self.round = self.round.take().filter(|round| round.begun_s <= latest);
    }

    /// A scrub begins: a round has begun, if none had.
    pub fn begin(&mut self, now: UnixSeconds) {
        if self.round.is_none() {
            self.round = Some(Round {
                begun_s: now,
                ..Round::default()
            });
        }
    }

    /// A scrub went over `range`, to its end or until it was stopped there. Says how the round ended, if it has.
    pub fn note(
        &mut self,
        range: &Range<u64>,
        looked: Looked,
        now: UnixSeconds,
    ) -> Option<RoundEnd> {
        // A clock that goes back makes no round begin anew.
        let now = now.max(self.round.as_ref().map_or(0, |round| round.begun_s));
        let compared = match looked.skipped_bytes {
            0 => Compared::All,
            _ => Compared::NotAll,
        };
        self.ages.note(range, now, compared);
        let round = self.round.as_mut()?;
        round.mismatch_bytes += looked.mismatch_bytes;
        round.skipped_bytes += looked.skipped_bytes;
        if self.ages.next(round.begun_s, 1).is_some() {
            return None;
        }
        let end = RoundEnd {
            begun_s: round.begun_s,
            ended_s: now,
            mismatch_bytes: round.mismatch_bytes,
            skipped_bytes: round.skipped_bytes,
            is_success: self.ages.is_all_compared_since(round.begun_s),
        };
        if end.is_success {
            self.last_success_s = Some(now);
        }
        self.round = None;
        self.last_round = Some(end.clone());
        Some(end)
    }

    /// Somebody had everything scrubbed by hand: a round of its own, in place of the one that had begun.
    pub fn note_all(&mut self, looked: Looked, now: UnixSeconds) {
        self.round = Some(Round {
            begun_s: now,
            ..Round::default()
        });
        let _ = self.note(&(0..self.ages.total_bytes()), looked, now);
    }

    /// When the byte was compared that has waited longest; one that never was counts from when the volume was known.
    #[must_use]
    pub fn oldest_byte_s(&self) -> UnixSeconds {
        self.ages
            .oldest_compared()
            .flatten()
            .unwrap_or(self.known_since_s)
    }

    /// Whether something was never compared.
    #[must_use]
    pub fn is_partly_unknown(&self) -> bool {
        self.ages.oldest_compared() == Some(None)
    }

    /// Bytes that the round has looked at which has begun.
    #[must_use]
    pub fn round_done_bytes(&self) -> Option<u64> {
        let round = self.round.as_ref()?;
        Some(self.ages.bytes_looked_at_since(round.begun_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLEAN: Looked = Looked {
        mismatch_bytes: 0,
        skipped_bytes: 0,
    };

    #[test]
    fn a_round_that_was_interrupted_is_no_success_until_it_has_looked_at_everything() {
        let mut state = State::new(100, 50);
        state.begin(60);
        assert_eq!(state.note(&(0..61), CLEAN, 70), None);
        assert_eq!((state.last_success_s, state.oldest_byte_s()), (None, 50));
        assert_eq!(
            (state.round_done_bytes(), state.is_partly_unknown()),
            (Some(61), true)
        );
        state.begin(500); // the next night
        let end = state.note(&(61..100), CLEAN, 510).unwrap();
        assert!(end.is_success && end.begun_s == 60 && state.round.is_none());
        assert_eq!(
            (state.last_success_s, state.oldest_byte_s()),
            (Some(510), 70)
        );
    }

    #[test]
    fn a_round_that_could_not_compare_everything_ends_and_is_no_success() {
        let mut state = State::new(100, 0);
        state.begin(60);
        let skipped = Looked {
            mismatch_bytes: 4,
            skipped_bytes: 1,
        };
        assert_eq!(state.note(&(0..10), skipped, 61), None);
        let end = state.note(&(10..100), CLEAN, 62).unwrap();
        assert!(!end.is_success && end.skipped_bytes == 1 && end.mismatch_bytes == 4);
        assert_eq!(state.last_success_s, None);
        assert!(
            state.is_partly_unknown(),
            "what was skipped stays as old as it was"
        );
    }

    #[test]
    fn a_scrub_by_hand_ends_the_round_that_had_begun() {
        let mut state = State::new(100, 0);
        state.begin(60);
        let _ = state.note(&(0..10), CLEAN, 61);
        state.note_all(CLEAN, 90);
        assert_eq!(
            (state.round.clone(), state.last_success_s),
            (None, Some(90))
        );
        assert_eq!(state.oldest_byte_s(), 90);
    }

    #[test]
    fn a_clock_that_was_wrong_stops_no_scrub_for_years() {
        let mut state = State::new(100, 4_000_000_000);
        state.begin(4_000_000_000);
        let _ = state.note(&(0..100), CLEAN, 4_000_000_000);
        state.begin(4_000_000_100);
        state.fit(100, 1_000);
        assert_eq!(state, State::new(100, 1_000));
        // One that goes back a little while a round is open: what is looked at counts for it.
        state.begin(1_000);
        assert!(state.note(&(0..100), CLEAN, 900).is_some());
    }

    #[test]
    fn what_is_kept_is_read_back_and_damage_is_refused() {
        let mut state = State::new(100, 5);
        state.begin(60);
        let _ = state.note(&(0..61), CLEAN, 70);
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<State>(&text).unwrap(), state);
        let damaged = text.replacen("\"until_bytes\":61", "\"until_bytes\":62", 1);
        assert!(
            serde_json::from_str::<State>(&damaged).is_err(),
            "{damaged}"
        );
    }
}
