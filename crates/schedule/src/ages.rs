//! The map of age: which part of a volume was looked at when.
//!
//! Invariants:
//! - stretches follow each other without a gap, from 0 to the size of the volume;
//! - there are at most `STRETCHES_MAX`: neighbours are taken together, and are then as old as the older one.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::UnixSeconds;

/// Stretches of one volume at most.
pub const STRETCHES_MAX: usize = 1024;

/// A part of a volume that was looked at as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Its first byte.
    pub from_bytes: u64,
    /// Behind its last byte.
    pub until_bytes: u64,
    /// When all of it was compared last; none while it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared_s: Option<UnixSeconds>,
    /// When a scrub went over it last, also one that could not compare all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked_s: Option<UnixSeconds>,
}

impl Stretch {
    fn is_looked_at_since(&self, moment: UnixSeconds) -> bool {
        self.looked_s.is_some_and(|looked| looked >= moment)
    }

    fn is_compared_since(&self, moment: UnixSeconds) -> bool {
        self.compared_s.is_some_and(|compared| compared >= moment)
    }

    fn bytes(&self) -> u64 {
        self.until_bytes - self.from_bytes
    }
}

/// Whether a scrub compared all that it went over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compared {
    All,
    NotAll,
}

/// All stretches of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Stretch>", into = "Vec<Stretch>")]
pub struct Ages(Vec<Stretch>);

impl TryFrom<Vec<Stretch>> for Ages {
    type Error = &'static str;

    fn try_from(stretches: Vec<Stretch>) -> Result<Self, Self::Error> {
        let mut end = 0;
        for stretch in &stretches {
            if stretch.from_bytes != end || stretch.until_bytes <= end {
                return Err("the stretches do not follow each other");
            }
            end = stretch.until_bytes;
        }
        match stretches.len() <= STRETCHES_MAX {
            true => Ok(Self(stretches)),
            false => Err("there are too many stretches"),
        }
    }
}

impl From<Ages> for Vec<Stretch> {
    fn from(ages: Ages) -> Self {
        ages.0
    }
}

impl Ages {
    /// A volume of which nothing is known.
    #[must_use]
    pub fn unknown(total_bytes: u64) -> Self {
        let mut ages = Self::default();
        ages.fit(total_bytes);
        ages
    }

    /// All stretches, in order.
    #[must_use]
    pub fn stretches(&self) -> &[Stretch] {
        &self.0
    }

    /// Size of the volume.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.0.last().map_or(0, |last| last.until_bytes)
    }

    /// Takes over the size that the volume has now. What is new was never looked at.
    pub fn fit(&mut self, total_bytes: u64) {
        self.0.retain(|stretch| stretch.from_bytes < total_bytes);
        if let Some(last) = self.0.last_mut() {
            last.until_bytes = last.until_bytes.min(total_bytes);
        }
        let known = self.total_bytes();
        if known < total_bytes {
            self.0.push(Stretch {
                from_bytes: known,
                until_bytes: total_bytes,
                compared_s: None,
                looked_s: None,
            });
        }
        self.tidy();
    }

    /// Forgets what is said to have happened behind `moment`: a clock was wrong.
    pub(crate) fn forget_after(&mut self, moment: UnixSeconds) {
        for stretch in &mut self.0 {
            stretch.compared_s = stretch.compared_s.filter(|compared| *compared <= moment);
            stretch.looked_s = stretch.looked_s.filter(|looked| *looked <= moment);
        }
    }

    /// A scrub has gone over `range`; all of it was compared, or not.
    pub(crate) fn note(&mut self, range: &Range<u64>, now: UnixSeconds, compared: Compared) {
        self.cut_at(range.start);
        self.cut_at(range.end);
        for stretch in &mut self.0 {
            if stretch.from_bytes >= range.start && stretch.until_bytes <= range.end {
                stretch.looked_s = Some(now);
                stretch.compared_s = match compared {
                    Compared::All => Some(now),
                    Compared::NotAll => stretch.compared_s,
                };
            }
        }
        self.tidy();
    }

    /// When the byte was compared that has waited longest; the inner none: it never was. None for an empty volume.
    #[must_use]
    pub fn oldest_compared(&self) -> Option<Option<UnixSeconds>> {
        self.0.iter().map(|stretch| stretch.compared_s).min()
    }

    /// The same of when a scrub went over it.
    #[must_use]
    pub fn oldest_looked(&self) -> Option<Option<UnixSeconds>> {
        self.0.iter().map(|stretch| stretch.looked_s).min()
    }

    /// Bytes that a scrub went over since then.
    #[must_use]
    pub fn bytes_looked_at_since(&self, moment: UnixSeconds) -> u64 {
        let looked = self
            .0
            .iter()
            .filter(|stretch| stretch.is_looked_at_since(moment));
        looked.map(Stretch::bytes).sum()
    }

    /// Whether everything was compared since then.
    #[must_use]
    pub fn is_all_compared_since(&self, moment: UnixSeconds) -> bool {
        self.0
            .iter()
            .all(|stretch| stretch.is_compared_since(moment))
    }

    /// Where a round goes on that began at `moment`: what was looked at longest ago, and of its neighbours behind it
    /// what the round has not looked at either, `bytes_max` at most. None when it has looked at everything.
    #[must_use]
    pub fn next(&self, moment: UnixSeconds, bytes_max: u64) -> Option<Range<u64>> {
        let is_left = |stretch: &&Stretch| !stretch.is_looked_at_since(moment);
        let left = self.0.iter().filter(is_left);
        let first = left.min_by_key(|stretch| (stretch.looked_s, stretch.from_bytes))?;
        let behind = self
            .0
            .iter()
            .filter(|stretch| stretch.from_bytes >= first.from_bytes);
        let end = behind.take_while(is_left).last()?.until_bytes;
        let from = first.from_bytes;
        Some(from..end.min(from.saturating_add(bytes_max.max(1))))
    }

    fn cut_at(&mut self, at: u64) {
        let found = self
            .0
            .iter()
            .position(|stretch| stretch.from_bytes < at && at < stretch.until_bytes);
        if let Some(place) = found {
            let behind = Stretch {
                from_bytes: at,
                ..self.0[place]
            };
            self.0[place].until_bytes = at;
            self.0.insert(place + 1, behind);
        }
    }

    /// Takes neighbours together: those that are alike, and where there are too many those that differ least.
    fn tidy(&mut self) {
        self.0.dedup_by(|next, before| {
            let is_alike = (next.compared_s, next.looked_s) == (before.compared_s, before.looked_s);
            before.until_bytes = if is_alike {
                next.until_bytes
            } else {
                before.until_bytes
            };
            is_alike
        });
        while self.0.len() > STRETCHES_MAX {
            let difference = |pair: &[Stretch]| {
                let compared = pair[0]
                    .compared_s
                    .unwrap_or(0)
                    .abs_diff(pair[1].compared_s.unwrap_or(0));
                let looked = pair[0]
                    .looked_s
                    .unwrap_or(0)
                    .abs_diff(pair[1].looked_s.unwrap_or(0));
                compared.max(looked)
            };
            let pairs = self.0.windows(2).enumerate();
            let Some((place, _)) = pairs.min_by_key(|(_, pair)| difference(pair)) else {
                return;
            };
            let behind = self.0.remove(place + 1);
            let joined = &mut self.0[place];
            joined.until_bytes = behind.until_bytes;
            joined.compared_s = joined.compared_s.min(behind.compared_s);
            joined.looked_s = joined.looked_s.min(behind.looked_s);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_looked_at_longest_ago_comes_first_and_its_neighbours_with_it() {
        let mut ages = Ages::unknown(100);
        assert_eq!(ages.next(10, 30), Some(0..30));
        ages.note(&(0..30), 10, Compared::All);
        ages.note(&(60..100), 5, Compared::All);
        assert_eq!(
            ages.next(10, 100),
            Some(30..100),
            "never, and then at 5: both before 10"
        );
        assert_eq!(ages.next(5, 100), Some(30..60));
        ages.note(&(30..60), 9, Compared::All);
        assert_eq!(
            ages.next(11, 10),
            Some(60..70),
            "at 5, before those at 9 and 10"
        );
        ages.note(&(30..100), 11, Compared::All);
        assert_eq!(ages.next(10, 100), None);
        assert_eq!(ages.next(12, 100), Some(0..100));
    }

    #[test]
    fn a_volume_that_grows_or_shrinks_keeps_the_ages_of_what_stays() {
        let mut ages = Ages::unknown(100);
        ages.note(&(0..100), 7, Compared::All);
        ages.fit(150);
        assert_eq!(
            (ages.total_bytes(), ages.oldest_compared()),
            (150, Some(None))
        );
        ages.fit(60);
        assert_eq!(
            (ages.total_bytes(), ages.oldest_compared()),
            (60, Some(Some(7)))
        );
        ages.fit(0);
        assert_eq!((ages.total_bytes(), ages.oldest_compared()), (0, None));
    }

    #[test]
    fn many_stretches_become_few_and_none_gets_younger() {
        let count = 4 * STRETCHES_MAX as u64;
        let mut ages = Ages::unknown(count);
        let time_of = |byte: u64| 1_000 + byte * 7919 % 1_000;
        for byte in 0..count {
            ages.note(&(byte..byte + 1), time_of(byte), Compared::All);
        }
        assert!(ages.stretches().len() <= STRETCHES_MAX);
        for stretch in ages.stretches() {
            let inside = stretch.from_bytes..stretch.until_bytes;
            let oldest = inside.map(time_of).min();
            assert!(stretch.compared_s <= oldest && stretch.looked_s <= oldest);
        }
    }

    #[test]
    fn stretches_from_a_file_that_do_not_fit_together_are_refused() {
        let read = |text: &str| serde_json::from_str::<Ages>(text);
        for text in [
            r#"[{"from_bytes":1,"until_bytes":2}]"#,
            r#"[{"from_bytes":0,"until_bytes":0}]"#,
            r#"[{"from_bytes":0,"until_bytes":5},{"from_bytes":4,"until_bytes":9}]"#,
            r#"[{"from_bytes":0,"until_bytes":5},{"from_bytes":6,"until_bytes":9}]"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(r#"[{"from_bytes":0,"until_bytes":5,"compared_s":3}]"#).is_ok());
    }
}
