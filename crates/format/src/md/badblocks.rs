//! The bad block log: ranges of one member whose content must not be read.
//!
//! Invariants:
//! - ranges are sorted, apart from each other and never empty; sectors are absolute on the member (data offset
//!   included);
//! - a list that would not fit its area is refused before it changes, so that nobody believes an entry is kept that is
//!   not.
//!
//! Source: linux-md.md section 4.

use std::ops::Range;

use crate::error::{FormatError, Problem, StructurePlace};
use crate::units::SECTOR_BYTES;

/// Most entries of a log, however large its area.
pub const MAX_ENTRIES: usize = 512;
/// Most units that an entry covers.
const MAX_UNITS: u64 = 512;
/// Low bits of an entry that hold the length.
const LENGTH_BITS: u32 = 10;
/// Entries end here.
const END: u64 = u64::MAX;
/// Starts have 54 bits: shifted by more they would leave 64.
const MAX_SHIFT: u8 = 9;

/// A list of bad ranges, in sectors of the member.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BadBlocks {
    ranges: Vec<Range<u64>>,
    shift: u8,
    capacity: usize,
}

impl BadBlocks {
    /// An empty list for an area of `size_sectors` whose entries count units of `512 << shift` bytes.
    ///
    /// # Errors
    /// [`Problem::Invalid`] when the shift is larger than any in use could be.
    pub fn new(size_sectors: u16, shift: u8) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: "md bad block log",
            base_bytes: 0,
        };
        let expected = format!("at most {MAX_SHIFT}");
        place.check(shift <= MAX_SHIFT, 0, "bblog_shift", shift, expected)?;
        let capacity = (usize::from(size_sectors) * SECTOR_BYTES as usize / 8).min(MAX_ENTRIES);
        Ok(Self {
            ranges: Vec::new(),
            shift,
            capacity,
        })
    }

    /// Reads an area that lies at `offset_bytes` of the member. Overlapping and adjacent entries are joined.
    ///
    /// # Errors
    /// [`Problem::Invalid`] for an entry longer than 512. One of length 0 names no sector: mdadm before 4.5 gave new
    /// members a log of zeroes.
    pub fn parse(area: &[u8], shift: u8, offset_bytes: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: "md bad block log",
            base_bytes: offset_bytes,
        };
        let size_sectors = u16::try_from(area.len() / SECTOR_BYTES as usize).unwrap_or(u16::MAX);
        let mut list = Self::new(size_sectors, shift)?;
        for (index, bytes) in area.chunks_exact(8).take(list.capacity).enumerate() {
            let entry = u64::from_le_bytes(bytes.try_into().expect("pieces of 8 bytes"));
            if entry == END {
                break;
            }
            let units = entry & ((1 << LENGTH_BITS) - 1);
            if units == 0 {
                continue;
            }
            let expected = format!("at most {MAX_UNITS}");
            place.check(
                units <= MAX_UNITS,
                8 * index as u64,
                "length",
                units,
                expected,
            )?;
            let start = entry >> LENGTH_BITS;
            list.ranges.push(start << shift..(start + units) << shift);
        }
        list.join();
        Ok(list)
    }

    /// Sorts, and joins what overlaps or touches.
    fn join(&mut self) {
        self.ranges.sort_by_key(|range| range.start);
        self.ranges.dedup_by(|next, last| {
            let touches = next.start <= last.end;
            if touches {
                last.end = last.end.max(next.end);
            }
            touches
        });
    }

    /// The bad ranges, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Whether nothing is bad.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Adds a range, widened to whole units.
    ///
    /// # Errors
    /// [`Problem::Request`] when the list would not fit its area any more; it is then unchanged, and the member has to
    /// be failed instead.
    pub fn add(&mut self, sectors: Range<u64>) -> Result<(), FormatError> {
        if sectors.is_empty() {
            return Ok(());
        }
        let unit = 1_u64 << self.shift;
        let end = sectors.end.checked_next_multiple_of(unit);
        let limit = 1_u64 << (u64::BITS - LENGTH_BITS);
        let end = end.filter(|end| end >> self.shift < limit).ok_or_else(|| {
            let place = StructurePlace {
                structure: "md bad block log",
                base_bytes: 0,
            };
            place.error(
                Problem::Request,
                0,
                "end of the range",
                sectors.end,
                "below 2^54 units",
            )
        })?;
        let mut wider = self.clone();
        wider.ranges.push(sectors.start / unit * unit..end);
        wider.join();
        wider.check_capacity()?;
        *self = wider;
        Ok(())
    }

    /// Removes a range after it was written whole; only units that lie completely inside it go.
    ///
    /// # Errors
    /// [`Problem::Request`] when the list, cut into more pieces, would not fit its area; it is then unchanged, which is
    /// safe.
    pub fn remove(&mut self, sectors: Range<u64>) -> Result<(), FormatError> {
        let unit = 1_u64 << self.shift;
        let Some(start) = sectors.start.checked_next_multiple_of(unit) else {
            return Ok(());
        };
        let end = sectors.end / unit * unit;
        if start >= end {
            return Ok(());
        }
        let mut smaller = self.clone();
        smaller.ranges = self
            .ranges
            .iter()
            .flat_map(|range| {
                [
                    range.start..range.end.min(start),
                    range.start.max(end)..range.end,
                ]
            })
            .filter(|range| !range.is_empty())
            .collect();
        smaller.check_capacity()?;
        *self = smaller;
        Ok(())
    }

    fn check_capacity(&self) -> Result<(), FormatError> {
        let needed = self.entries().count();
        if needed <= self.capacity {
            return Ok(());
        }
        let place = StructurePlace {
            structure: "md bad block log",
            base_bytes: 0,
        };
        let expected = format!("at most {}", self.capacity);
        Err(place.error(Problem::Request, 0, "number of entries", needed, expected))
    }

    fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        self.ranges.iter().flat_map(|range| {
            let (start, end) = (range.start >> self.shift, range.end >> self.shift);
            (start..end)
                .step_by(MAX_UNITS as usize)
                .map(move |from| from << LENGTH_BITS | (end - from).min(MAX_UNITS))
        })
    }

    /// The area's bytes: as many as the area given to [`BadBlocks::new`] or [`BadBlocks::parse`] had, at most 4096.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut area = Vec::with_capacity(8 * self.capacity);
        area.extend(self.entries().flat_map(u64::to_le_bytes));
        assert!(
            area.len() <= 8 * self.capacity,
            "add and remove keep the list within its area"
        );
        area.resize(8 * self.capacity, 0xff);
        area
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_reads_back_and_long_ranges_are_cut_into_entries() {
        let mut list = BadBlocks::new(8, 0).unwrap();
        list.add(5000..6100).unwrap();
        list.add(10..11).unwrap();
        list.add(11..20).unwrap();
        assert_eq!(list.ranges(), [10..20, 5000..6100]);
        let area = list.encode();
        assert_eq!(area.len(), 4096);
        assert_eq!(area[..8], (10_u64 << 10 | 10).to_le_bytes());
        assert_eq!(area[8..16], (5000_u64 << 10 | 512).to_le_bytes());
        assert_eq!(area[24..32], (6024_u64 << 10 | 76).to_le_bytes());
        assert!(area[32..].iter().all(|byte| *byte == 0xff));
        assert_eq!(BadBlocks::parse(&area, 0, 0), Ok(list));
    }

    #[test]
    fn a_sector_is_bad_exactly_when_a_slow_model_says_so() {
        // Every pair of an added and a removed range over a few sectors.
        let all = || (0..9_u64).flat_map(|a| (a..9).map(move |b| a..b));
        for added in all() {
            for removed in all() {
                let mut list = BadBlocks::new(8, 0).unwrap();
                list.add(0..2).unwrap();
                list.add(added.clone()).unwrap();
                list.remove(removed.clone()).unwrap();
                for sector in 0..10 {
                    let is_bad =
                        (sector < 2 || added.contains(&sector)) && !removed.contains(&sector);
                    let found = list.ranges().iter().any(|range| range.contains(&sector));
                    assert_eq!(found, is_bad, "{added:?} {removed:?} {sector}");
                }
            }
        }
    }

    #[test]
    fn units_are_widened_when_added_and_only_whole_ones_removed() {
        let mut list = BadBlocks::new(1, 3).unwrap();
        list.add(9..10).unwrap();
        assert_eq!(list.ranges(), std::slice::from_ref(&(8..16)));
        list.remove(9..16).unwrap();
        assert_eq!(list.ranges(), std::slice::from_ref(&(8..16)));
        list.remove(8..16).unwrap();
        assert!(list.is_empty());
    }

    #[test]
    fn a_full_list_refuses_more_and_stays_as_it_was() {
        let mut list = BadBlocks::new(1, 0).unwrap();
        (0..64).for_each(|index| list.add(2 * index..2 * index + 1).unwrap());
        let before = list.clone();
        assert_eq!(list.add(1000..1001).unwrap_err().problem, Problem::Request);
        assert_eq!(list, before);
        list.add(1..2).unwrap(); // joins two entries
        assert_eq!(list.ranges()[0], 0..3);
    }

    #[test]
    fn entries_without_length_name_nothing_and_what_does_not_fit_is_refused() {
        let mut area = vec![0xff; 512];
        area[..8].copy_from_slice(&(7_u64 << 10).to_le_bytes());
        area[8..16].copy_from_slice(&(9_u64 << 10 | 2).to_le_bytes());
        let list = BadBlocks::parse(&area, 0, 4096).unwrap();
        assert_eq!(list.ranges(), std::slice::from_ref(&(9..11)));
        assert!(BadBlocks::parse(&[0; 512], 0, 0).unwrap().is_empty());
        area[..8].copy_from_slice(&(7_u64 << 10 | 513).to_le_bytes());
        let error = BadBlocks::parse(&area, 0, 4096).unwrap_err();
        assert_eq!((error.field, error.offset_bytes), ("length", 4096));
        assert!(BadBlocks::new(8, 10).is_err());
        assert!(BadBlocks::new(8, 0).unwrap().add(0..1 << 60).is_err());
        assert!(BadBlocks::new(8, 9).unwrap().add(0..u64::MAX).is_err());
    }
}
