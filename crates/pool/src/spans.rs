//! Sets of ranges of a metaslab: what is free, what was taken and given back.
//!
//! Invariants: ranges in a set neither overlap nor touch; none is empty.

use std::collections::BTreeMap;
use std::ops::{Range, RangeFrom};

/// A set of ranges in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// Start to end.
    ranges: BTreeMap<u64, u64>,
    total_bytes: u64,
}

impl Spans {
    /// One range.
    #[must_use]
    pub fn of(range: Range<u64>) -> Self {
        let mut spans = Self::default();
        let _ = spans.add(range);
        spans
    }

    /// Bytes in the set.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in their order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }

    /// Adds a range; `false`, and no change, when a part of it is in the set already.
    #[must_use]
    pub fn add(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let before = self.ranges.range(..range.end).next_back();
        if before.is_some_and(|(_, end)| *end > range.start) {
            return false;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((left, _)) = before.filter(|(_, left_end)| **left_end == range.start) {
            start = *left;
        }
        if let Some(right_end) = self.ranges.remove(&range.end) {
            end = right_end;
        }
        self.ranges.insert(start, end);
        self.total_bytes += range.end - range.start;
        true
    }

    /// Takes a range away; `false`, and no change, when a part of it is not in the set.
    #[must_use]
    pub fn take(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let Some((start, end)) = self.around(range.start) else {
            return false;
        };
        if end < range.end {
            return false;
        }
        self.ranges.remove(&start);
        if start < range.start {
            self.ranges.insert(start, range.start);
        }
        if range.end < end {
            self.ranges.insert(range.end, end);
        }
        self.total_bytes -= range.end - range.start;
        true
    }

    /// The range that has this byte.
    fn around(&self, at: u64) -> Option<(u64, u64)> {
        let (start, end) = self.ranges.range(..=at).next_back()?;
        (*end > at).then_some((*start, *end))
    }

    /// The first place of `length_bytes` at or after `from`, then from the start.
    #[must_use]
    pub fn find(&self, length_bytes: u64, from: RangeFrom<u64>) -> Option<u64> {
        let from = from.start;
        let fits = |start: u64, end: u64| end.saturating_sub(start) >= length_bytes;
        if let Some((_, end)) = self.around(from)
            && fits(from, end)
        {
            return Some(from);
        }
        let after = self
            .ranges
            .range(from..)
            .find(|(start, end)| fits(**start, **end));
        let all = || self.ranges.iter().find(|(start, end)| fits(**start, **end));
        after.or_else(all).map(|(start, _)| *start)
    }

    /// The parts of the set inside of a range.
    #[must_use]
    pub fn within(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let first = self
            .ranges
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(start, _)| *start);
        let all = self.ranges.range(first..range.end);
        let cut = all.map(|(start, end)| (*start).max(range.start)..(*end).min(range.end));
        cut.filter(|part| part.start < part.end).collect()
    }

    /// Whether any part of a range is in the set.
    #[must_use]
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..range.end).next_back();
        before.is_some_and(|(_, end)| *end > range.start)
    }

    /// Adds all ranges of another set, none of which may be in this one; `false` when one is.
    #[must_use]
    pub fn add_all(&mut self, other: &Self) -> bool {
        other.iter().all(|range| self.add(range))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_split_and_nothing_is_added_or_taken_twice() {
        let mut spans = Spans::of(0..100);
        assert!(spans.take(20..30) && !spans.take(25..35) && !spans.take(15..25));
        assert_eq!(spans.iter().collect::<Vec<_>>(), [0..20, 30..100]);
        assert_eq!(spans.total_bytes(), 90);
        assert!(!spans.add(10..25) && !spans.add(25..31) && !spans.add(0..200));
        assert!(spans.add(20..25) && spans.add(25..30));
        assert_eq!(spans, Spans::of(0..100));
        assert!(spans.take(0..100) && spans.is_empty() && spans.add(5..5));
    }

    #[test]
    fn the_first_place_from_a_cursor_on_is_found_and_the_search_goes_round() {
        let mut spans = Spans::of(0..10);
        assert!(spans.add(20..60) && spans.add(100..110));
        assert_eq!(spans.find(10, 30..), Some(30));
        assert_eq!(spans.find(10, 55..), Some(100));
        assert_eq!(spans.find(30, 55..), Some(20));
        assert_eq!(spans.find(41, 0..), None);
    }
}
