//! A set of byte ranges: bad blocks of a drive, rows proven consistent, places a scrub found.
//!
//! Invariants: the ranges are not empty, ascending, and neither overlap nor touch.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of u64 positions, kept as ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeSet {
    /// start -> end
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end)
    }

    /// Adds `range`; it is merged with what it overlaps or touches.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        if let Some((&before, &before_end)) = self.ranges.range(..=start).next_back()
            && before_end >= start
        {
            start = before;
            end = end.max(before_end);
        }
        while let Some((&next, &next_end)) = self.ranges.range(start..=end).next() {
            end = end.max(next_end);
            self.ranges.remove(&next);
        }
        self.ranges.insert(start, end);
    }

    /// Takes `range` away. Says whether anything of it was in the set.
    pub fn remove(&mut self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return false;
        }
        let hit: Vec<(u64, u64)> = self.overlapping(&range).collect();
        for (start, end) in &hit {
            self.ranges.remove(start);
            if *start < range.start {
                self.ranges.insert(*start, range.start);
            }
            if *end > range.end {
                self.ranges.insert(range.end, *end);
            }
        }
        !hit.is_empty()
    }

    fn overlapping<'a>(&'a self, range: &Range<u64>) -> impl Iterator<Item = (u64, u64)> + 'a {
        let first = self
            .ranges
            .range(..=range.start)
            .next_back()
            .filter(|(_, end)| **end > range.start)
            .map_or(range.start, |(start, _)| *start);
        self.ranges
            .range(first..range.end)
            .map(|(start, end)| (*start, *end))
    }

    /// The parts of `range` that are not in the set, ascending.
    #[must_use]
    pub fn gaps(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = range.start;
        for (start, end) in self.overlapping(range) {
            if at < start {
                gaps.push(at..start);
            }
            at = at.max(end);
        }
        if at < range.end {
            gaps.push(at..range.end);
        }
        gaps
    }

    /// Whether any position of `range` is in the set.
    #[must_use]
    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.overlapping(range).next().is_some()
    }

    /// Whether every position of `range` is in the set.
    #[must_use]
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty()
            || self
                .ranges
                .range(..=range.start)
                .next_back()
                .is_some_and(|(_, end)| *end >= range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_operations_agree_with_a_bit_vector_over_all_small_cases() {
        let mut seed = 1u64;
        for _ in 0..2000 {
            let mut set = RangeSet::new();
            let mut bits = [false; 24];
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let a = (seed >> 33) % 24;
                let b = a + (seed >> 43) % (25 - a);
                let range = a..b;
                let any = (a..b).any(|i| bits[i as usize]);
                assert_eq!(set.overlaps(&range), any);
                assert_eq!(set.covers(&range), (a..b).all(|i| bits[i as usize]));
                if seed >> 63 == 0 {
                    set.insert(range);
                    (a..b).for_each(|i| bits[i as usize] = true);
                } else {
                    assert_eq!(set.remove(range), any);
                    (a..b).for_each(|i| bits[i as usize] = false);
                }
                let listed: Vec<u64> = set.iter().flatten().collect();
                let wanted: Vec<u64> = (0..24).filter(|i| bits[*i as usize]).collect();
                assert_eq!(listed, wanted);
                let starts: Vec<_> = set.iter().collect();
                assert!(starts.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }
}
