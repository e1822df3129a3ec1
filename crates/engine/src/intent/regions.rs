//! Regions of the sync space: where copies or parity may differ, and what the bitmap on the members has to say.
//!
//! The *sync space* is what one bit of the bitmap counts in (linux-md.md 3): member bytes from the data offset for
//! RAID-1 and RAID-4/5/6, volume bytes for RAID-10.
//!
//! Invariants:
//! - a region with a write in flight is wanted on the bitmap, and was durable there before the write began (W1);
//! - a bit is cleared only when nothing is in flight, nothing doubtful, and nothing was written since the flush (W2);
//! - `durable` never says more than what all live members' bitmaps say.

mod plain;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::threshold::Thresholds;
use plexum_block::bits::Bits;
use plexum_block::ranges::RangeSet;

/// Bytes of the bitmap area before the first bit (the bitmap's superblock).
pub const BITMAP_HEADER_BYTES: u64 = 256;

/// Intent of one array, in memory.
#[derive(Debug)]
pub struct Regions {
    region_bytes: u64,
    sync_bytes: u64,
    /// Whether the members hold a bitmap. Without one, regions only say where a resync has to go.
    pub is_persistent: bool,
    doubtful: Bits,
    wanted: Bits,
    durable: Bits,
    touched: Bits,
    in_flight: InFlight,
    proven: RangeSet,
    /// Most ranges of `proven`, and whether there were more.
    proven_max: usize,
    has_forgotten: bool,
    /// The region that is being made consistent, until something of it comes into doubt anew.
    settling: Option<usize>,
    /// How often something has come into doubt.
    spoilt_count: u64,
    /// Blocks of the bitmap area whose content on the members is not what `wanted` says.
    unwritten_blocks: BTreeSet<u64>,
    block_bytes: u64,
    /// Rises whenever numbers of regions get another meaning: whoever keeps one over an await compares.
    generation: u64,
}

/// How many writes are in flight in which regions.
///
/// Of those here never more entries than requests times their regions: a sorted list, which is short. Marks that are
/// lent to shards are many and stay for long: they are kept apart, or each write would move them about.
#[derive(Debug, Default)]
struct InFlight {
    counts: Vec<(usize, u32)>,
    lent: BTreeMap<usize, u32>,
}

impl InFlight {
    fn place(&self, index: usize) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&index, |(own, _)| *own)
    }

    fn enter(&mut self, index: usize) {
        match self.place(index) {
            Ok(place) => self.counts[place].1 += 1,
            Err(place) => self.counts.insert(place, (index, 1)),
        }
    }

    fn leave(&mut self, index: usize) {
        let place = self.place(index).expect("leave follows enter");
        self.counts[place].1 -= 1;
        if self.counts[place].1 == 0 {
            self.counts.remove(place);
        }
    }

    fn lend(&mut self, index: usize) {
        *self.lent.entry(index).or_default() += 1;
    }

    fn take_back(&mut self, index: usize) {
        let count = self.lent.get_mut(&index).expect("what is back was lent");
        *count -= 1;
        if *count == 0 {
            self.lent.remove(&index);
        }
    }

    fn contains(&self, index: usize) -> bool {
        self.place(index).is_ok() || self.lent.contains_key(&index)
    }

    fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.lent.is_empty()
    }
}

impl Regions {
    /// Regions of `region_bytes` over `sync_bytes`; nothing doubtful, nothing wanted. `block_bytes` is the unit in
    /// which bitmap blocks are written: the largest sector of the members.
    #[must_use]
    pub fn new(sync_bytes: u64, region_bytes: u64, block_bytes: u32, is_persistent: bool) -> Self {
        assert!(region_bytes.is_power_of_two(), "regions are powers of two");
        let count = usize::try_from(sync_bytes.div_ceil(region_bytes))
            .expect("the bitmap's size was bounded when parsed");
        Self {
            region_bytes,
            sync_bytes,
            is_persistent,
            doubtful: Bits::new(count),
            wanted: Bits::new(count),
            durable: Bits::new(count),
            touched: Bits::new(count),
            in_flight: InFlight::default(),
            proven: RangeSet::new(),
            proven_max: Thresholds::default().proven_ranges_max,
            has_forgotten: false,
            settling: None,
            spoilt_count: 0,
            unwritten_blocks: BTreeSet::new(),
            block_bytes: u64::from(block_bytes),
            generation: 0,
        }
    }

    /// The same doubt in regions of another size, for a bitmap that begins: bits are set where there is doubt, and
    /// count as durable, for the caller has just written them. Only while nothing is in flight.
    #[must_use]
    pub fn regrained(&self, region_bytes: u64) -> Self {
        assert!(
            self.in_flight.is_empty(),
            "regions change only while no write is under way"
        );
        let block_bytes = u32::try_from(self.block_bytes).expect("a block is small");
        let mut new = Self::new(self.sync_bytes, region_bytes, block_bytes, true);
        new.generation = self.generation + 1;
        (new.proven_max, new.has_forgotten) = (self.proven_max, self.has_forgotten);
        let mut from = 0;
        while let Some(old) = self.doubtful.next(from) {
            let range = self.range(old);
            for index in new.indices(&range) {
                if new.doubtful.set(index, true) {
                    let region = new.range(index);
                    new.proven.insert(region);
                }
                new.wanted.set(index, true);
                new.durable.set(index, true);
            }
            new.proven.remove(range);
            from = old + 1;
        }
        for range in self.proven.iter() {
            new.proven.insert(range);
        }
        new
    }

    /// Ends the bitmap on the members; what is in doubt stays so.
    pub fn forget_bitmap(&mut self) {
        self.is_persistent = false;
        self.unwritten_blocks.clear();
    }

    /// Which meaning the numbers of regions have.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Bytes of the sync space that one bit stands for.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.region_bytes
    }

    /// Length of the sync space.
    #[must_use]
    pub fn sync_bytes(&self) -> u64 {
        self.sync_bytes
    }

    /// Number of regions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.wanted.len()
    }

    /// Sync range of region `index`.
    #[must_use]
    pub fn range(&self, index: usize) -> Range<u64> {
        let start = index as u64 * self.region_bytes;
        start..(start + self.region_bytes).min(self.sync_bytes)
    }

    #[inline]
    fn indices(&self, range: &Range<u64>) -> Range<usize> {
        assert!(
            range.start < range.end && range.end <= self.sync_bytes,
            "a write stays inside the sync space"
        );
        let shift = self.region_bytes.trailing_zeros(); // powers of two
        let index = |at: u64| usize::try_from(at >> shift).expect("fewer regions than addresses");
        index(range.start)..index(range.end - 1) + 1
    }

    fn block_of(&self, index: usize) -> u64 {
        (BITMAP_HEADER_BYTES + index as u64 / 8) / self.block_bytes
    }

    /// Takes over a bit found on some member at assembly. It becomes durable everywhere with the next write of its
    /// block.
    pub fn load_bit(&mut self, index: usize) {
        self.wanted.set(index, true);
    }

    /// How often something has come into doubt since the start.
    #[must_use]
    pub fn spoilt_count(&self) -> u64 {
        self.spoilt_count
    }

    /// Marks a region as possibly inconsistent.
    pub fn doubt(&mut self, index: usize) {
        self.spoilt_count += 1;
        self.settling = self.settling.filter(|settling| *settling != index);
        self.doubtful.set(index, true);
    }

    /// Marks everything from `from_bytes` of the sync space on as possibly inconsistent.
    pub fn doubt_from(&mut self, from_bytes: u64) {
        if from_bytes >= self.sync_bytes {
            return;
        }
        let first = usize::try_from(from_bytes / self.region_bytes).expect("inside the regions");
        for index in first..self.count() {
            self.doubtful.set(index, true);
        }
        self.proven.insert(self.range(first).start..from_bytes);
    }

    /// First doubtful region at or after `from`.
    #[must_use]
    pub fn next_doubtful(&self, from: usize) -> Option<usize> {
        self.doubtful.next(from)
    }

    /// Number of doubtful regions.
    #[must_use]
    pub fn doubtful_count(&self) -> usize {
        self.doubtful.count()
    }

    /// Sync bytes below this are consistent; `None`: all of them.
    #[must_use]
    pub fn consistent_below_bytes(&self) -> Option<u64> {
        self.doubtful.next(0).map(|index| self.range(index).start)
    }

    /// Somebody begins to make a region consistent as a whole, and ends with `settle_unspoilt`.
    pub fn begin_settling(&mut self, index: usize) {
        assert!(index < self.count(), "a region of these");
        self.settling = Some(index);
    }

    /// A region was made consistent as a whole: settled, unless something of it has come into doubt since
    /// `begin_settling` (a write that some members refused).
    pub fn settle_unspoilt(&mut self, index: usize) {
        if self.settling.take() == Some(index) {
            self.settle_region(index);
        }
    }

    /// All regions were made consistent by somebody who asked `spoilt_count` before: settled, unless something has come
    /// into doubt since. Whether they are.
    pub fn settle_all_unspoilt(&mut self, spoilt_count: u64) -> bool {
        assert!(self.spoilt_count >= spoilt_count, "it only grows");
        if self.spoilt_count != spoilt_count {
            return false;
        }
        while let Some(index) = self.doubtful.next(0) {
            self.settle_region(index);
        }
        true
    }

    /// Nothing of a region is in doubt.
    pub fn settle_region(&mut self, index: usize) {
        let range = self.range(index);
        self.doubtful.set(index, false);
        self.proven.remove(range);
        debug_assert!(!self.doubtful.get(index));
    }

    /// Whether copies or parity of the whole range are known to agree (W5, W6).
    #[must_use]
    #[inline]
    pub fn is_proven(&self, range: &Range<u64>) -> bool {
        if self.doubtful.count() == 0 {
            return true;
        }
        self.indices(range).all(|index| {
            let region = self.range(index);
            !self.doubtful.get(index)
                || self
                    .proven
                    .covers(&(range.start.max(region.start)..range.end.min(region.end)))
        })
    }

    /// Ranges that may be inconsistent.
    #[must_use]
    pub fn unproven(&self) -> Vec<Range<u64>> {
        let mut ranges = Vec::new();
        let mut from = 0;
        while let Some(index) = self.doubtful.next(from) {
            ranges.extend(self.proven.gaps(&self.range(index)));
            from = index + 1;
        }
        ranges
    }

    /// Beyond so many ranges, what is proven is not remembered.
    pub(crate) fn remember_at_most(&mut self, ranges: usize) {
        self.proven_max = ranges;
    }

    /// Whether something proven was not remembered.
    #[must_use]
    pub fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }

    /// Remembers that a range was made consistent.
    #[inline]
    pub fn prove(&mut self, range: &Range<u64>) {
        if self.doubtful.count() == 0 {
            return;
        }
        if self.proven.len() >= self.proven_max {
            self.has_forgotten = true;
            return;
        }
        for index in self.indices(range) {
            if self.doubtful.get(index) {
                let region = self.range(index);
                self.proven
                    .insert(range.start.max(region.start)..range.end.min(region.end));
            }
        }
    }

    /// A range may be inconsistent again (a write that some members took and others refused).
    pub fn unprove(&mut self, range: &Range<u64>) {
        self.spoilt_count += 1;
        for index in self.indices(range) {
            self.settling = self.settling.filter(|settling| *settling != index);
            if self.doubtful.set(index, true) {
                let region = self.range(index);
                self.proven.insert(region);
            }
        }
        self.proven.remove(range.clone());
    }

    /// A write to `range` begins. Its data may go out once `is_durable` says so.
    #[inline]
    pub fn enter(&mut self, range: &Range<u64>) {
        for index in self.indices(range) {
            self.in_flight.enter(index);
            self.want(index);
        }
    }

    #[inline]
    fn want(&mut self, index: usize) {
        self.touched.set(index, true);
        if self.wanted.set(index, true) {
            self.unwritten_blocks.insert(self.block_of(index));
        }
    }

    /// The regions of `range` are lent to a shard, which may write there until `take_back`: counts as a write in
    /// flight.
    pub fn lend(&mut self, range: &Range<u64>) {
        self.indices(range)
            .for_each(|index| self.in_flight.lend(index));
    }

    /// What was lent is back.
    pub fn take_back(&mut self, range: &Range<u64>) {
        self.indices(range)
            .for_each(|index| self.in_flight.take_back(index));
    }

    /// A write to `range` has ended on all members (or was noted as missed).
    #[inline]
    pub fn leave(&mut self, range: &Range<u64>) {
        for index in self.indices(range) {
            self.in_flight.leave(index);
        }
    }

    /// Whether every bit of the range is durable on the members (always, when there is no bitmap).
    #[must_use]
    #[inline]
    pub fn is_durable(&self, range: &Range<u64>) -> bool {
        !self.is_persistent || self.indices(range).all(|index| self.durable.get(index))
    }

    /// Whether the bitmap says that this region may differ.
    #[must_use]
    pub fn is_wanted(&self, index: usize) -> bool {
        self.wanted.get(index)
    }

    /// The regions the bitmap names, for a re-add.
    #[must_use]
    pub fn wanted(&self) -> &Bits {
        &self.wanted
    }

    /// Whether any bit is set: a period that ends could clear it.
    #[must_use]
    pub fn has_marks(&self) -> bool {
        self.wanted.next(0).is_some()
    }

    /// Ends one ageing period: regions that could be cleared if they stay untouched until after a flush.
    pub fn age(&mut self) -> Vec<usize> {
        let idle: Vec<usize> = self
            .wanted
            .iter()
            .filter(|index| {
                !self.touched.get(*index)
                    && !self.doubtful.get(*index)
                    && !self.in_flight.contains(*index)
            })
            .collect();
        self.touched = Bits::new(self.wanted.len());
        idle
    }

    /// All regions that nothing keeps set, without waiting for another period; for a clean stop.
    #[must_use]
    pub fn idle(&self) -> Vec<usize> {
        self.wanted
            .iter()
            .filter(|index| !self.doubtful.get(*index) && !self.in_flight.contains(*index))
            .collect()
    }

    /// Forgets that regions were touched; what `clear` sees as touched came later.
    pub fn reset_touched(&mut self) {
        self.touched = Bits::new(self.wanted.len());
    }

    /// Clears those of `candidates` that were not touched since `age` (W2: a flush lies between). Says how many.
    pub fn clear(&mut self, candidates: &[usize]) -> usize {
        let mut cleared = 0;
        for &index in candidates {
            if self.touched.get(index) || self.doubtful.get(index) || self.in_flight.contains(index)
            {
                continue;
            }
            debug_assert!(
                !self.in_flight.contains(index),
                "a bit stays while a write is under way"
            );
            self.wanted.set(index, false);
            self.durable.set(index, false);
            self.unwritten_blocks.insert(self.block_of(index));
            cleared += 1;
        }
        cleared
    }

    /// Whether some block of the bitmap has to be written.
    #[must_use]
    pub fn has_unwritten(&self) -> bool {
        self.is_persistent && !self.unwritten_blocks.is_empty()
    }

    /// Blocks that must be written, and the bits that become durable with them. They count as written from now on.
    pub fn take_unwritten(&mut self) -> (Vec<u64>, Vec<usize>) {
        let blocks: Vec<u64> = std::mem::take(&mut self.unwritten_blocks)
            .into_iter()
            .collect();
        debug_assert!(
            self.durable.without(&self.wanted).next().is_none(),
            "what is durable is wanted"
        );
        let pending = self.wanted.without(&self.durable).collect();
        (blocks, pending)
    }

    /// The write of `take_unwritten` did not reach all members: it has to be done again.
    pub fn put_back(&mut self, blocks: &[u64]) {
        self.unwritten_blocks.extend(blocks);
    }

    /// Bits that are on all live members now.
    pub fn set_durable(&mut self, bits: &[usize]) {
        for &index in bits {
            if self.wanted.get(index) {
                self.durable.set(index, true);
            }
        }
    }

    /// Every bit shall be set: what the members say cannot be used.
    pub fn want_all(&mut self) {
        self.wanted.fill();
        self.rewrite_all();
    }

    /// Every block has to be written again (a new member, another bitmap).
    pub fn rewrite_all(&mut self) {
        let last = self.block_of(self.count().saturating_sub(1));
        self.unwritten_blocks.extend(0..=last);
    }

    /// Unit of bitmap writes in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Length in bytes of the whole bitmap area, in whole blocks.
    #[must_use]
    pub fn area_bytes(&self) -> u64 {
        (self.block_of(self.count().saturating_sub(1)) + 1) * self.block_bytes
    }

    /// The bits' bytes of one block of the bitmap area (linux-md.md 3: bit n is byte 256 + n/8, bit n mod 8); the place
    /// of the bitmap's superblock is left zero.
    #[must_use]
    pub fn encode_block(&self, block: u64) -> Vec<u8> {
        let mut bytes = vec![0u8; usize::try_from(self.block_bytes).expect("a block is small")];
        let start = block * self.block_bytes;
        let header = BITMAP_HEADER_BYTES.saturating_sub(start); // whole words, as blocks are
        let first_word = (start + header - BITMAP_HEADER_BYTES) / 8;
        let words = self.wanted.words();
        let words = usize::try_from(first_word)
            .ok()
            .and_then(|at| words.get(at..));
        let places = bytes[header as usize..].chunks_exact_mut(8);
        for (place, word) in places.zip(words.unwrap_or_default()) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Number of regions with writes in flight, and of those lent; 0 when quiet.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.in_flight.counts.len() + self.in_flight.lent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_is_wanted_from_the_first_write_until_cleared_after_a_quiet_period() {
        let mut regions = Regions::new(1 << 20, 1 << 16, 512, true);
        let range = 65_536..131_073;
        regions.enter(&range);
        assert!(!regions.is_durable(&range));
        let (blocks, pending) = regions.take_unwritten();
        assert_eq!((blocks, pending.clone()), (vec![0], vec![1, 2]));
        regions.set_durable(&pending);
        assert!(regions.is_durable(&range));
        assert!(regions.age().is_empty(), "in flight");
        regions.leave(&range);
        regions.enter(&range);
        regions.leave(&range);
        assert!(regions.age().is_empty(), "touched in this period");
        let idle = regions.age();
        assert_eq!(idle, [1, 2]);
        regions.enter(&(131_072..131_073)); // touched between the flush and the clearing
        assert_eq!(regions.clear(&idle), 1);
        assert!(!regions.is_wanted(1) && regions.is_wanted(2));
    }

    #[test]
    fn blocks_hold_the_bits_where_md_expects_them() {
        let mut regions = Regions::new(1 << 30, 1 << 12, 512, true);
        for bit in [0usize, 9, 2047, 2048, 6143, 6144] {
            regions.load_bit(bit);
        }
        let block0 = regions.encode_block(0);
        assert_eq!((block0[256], block0[257], block0[511]), (1, 2, 0x80));
        let block1 = regions.encode_block(1);
        assert_eq!((block1[0], block1[511]), (1, 0x80));
        assert_eq!(regions.encode_block(2)[0], 1);
    }

    #[test]
    fn proof_inside_a_doubtful_region_is_remembered_until_it_is_settled() {
        let mut regions = Regions::new(1 << 20, 1 << 16, 512, false);
        regions.doubt_from(70_000);
        assert!(regions.is_proven(&(0..70_000)));
        assert!(!regions.is_proven(&(0..70_001)));
        regions.prove(&(70_000..80_000));
        assert!(regions.is_proven(&(69_000..80_000)));
        assert_eq!(regions.consistent_below_bytes(), Some(65_536));
        regions.settle_region(1);
        assert!(regions.is_proven(&(0..131_072)));
        regions.unprove(&(4096..8192));
        assert!(!regions.is_proven(&(4096..4097)) && regions.is_proven(&(0..4096)));
    }

    #[test]
    fn doubt_that_comes_up_while_a_region_is_made_consistent_stays() {
        let mut regions = Regions::new(65_536, 4096, 512, true);
        regions.doubt(1);
        regions.begin_settling(1);
        regions.prove(&(4096..8192));
        regions.unprove(&(5120..5632));
        regions.settle_unspoilt(1);
        assert!(!regions.is_proven(&(5120..5632)));
        regions.begin_settling(1);
        regions.unprove(&(0..512)); // another one
        regions.settle_unspoilt(1);
        assert!(regions.is_proven(&(4096..8192)));
    }

    #[test]
    fn a_region_with_a_write_in_flight_or_in_doubt_is_not_idle() {
        let mut regions = Regions::new(65_536, 4096, 512, true);
        for bit in [1, 2, 3] {
            regions.load_bit(bit);
        }
        regions.enter(&(4096..4097));
        regions.enter(&(4096..4097));
        regions.doubt(2);
        regions.reset_touched();
        assert_eq!(regions.idle(), [3]);
        assert_eq!(regions.age(), [3]);
        assert_eq!(regions.clear(&[1, 2]), 0);
        assert!(regions.is_wanted(1) && regions.is_wanted(2));
        regions.leave(&(4096..4097));
        assert_eq!((regions.in_flight_count(), regions.idle()), (1, vec![3]));
        regions.leave(&(4096..4097));
        assert_eq!((regions.in_flight_count(), regions.idle()), (0, vec![1, 3]));
    }

    #[test]
    fn a_region_that_is_lent_is_not_idle_until_the_last_shard_has_given_it_back() {
        let mut regions = Regions::new(65_536, 4096, 512, true);
        regions.load_bit(3);
        regions.reset_touched();
        let region = regions.range(3);
        regions.lend(&region);
        regions.lend(&region);
        regions.take_back(&region);
        assert_eq!((regions.in_flight_count(), regions.idle()), (1, vec![]));
        assert!(regions.age().is_empty());
        assert_eq!(regions.clear(&[3]), 0);
        regions.take_back(&region);
        assert_eq!((regions.in_flight_count(), regions.idle()), (0, vec![3]));
    }

    #[test]
    fn a_bit_is_written_with_the_block_that_holds_it() {
        let mut regions = Regions::new(1 << 30, 1 << 12, 512, true);
        for (bit, block) in [(0, 0), (2047, 0), (2048, 1), (6143, 1), (6144, 2)] {
            regions.enter(&regions.range(bit));
            let (blocks, pending) = regions.take_unwritten();
            assert_eq!((blocks, pending), (vec![block], vec![bit]), "bit {bit}");
            regions.leave(&regions.range(bit));
            regions.reset_touched();
            assert_eq!(regions.clear(&[bit]), 1);
            assert_eq!(regions.take_unwritten().0, [block], "cleared");
        }
        assert_eq!(regions.area_bytes(), 33_280, "65 blocks: 256 + 32768 bytes");
        regions.rewrite_all();
        assert_eq!(regions.take_unwritten().0, (0..65).collect::<Vec<u64>>());
    }

    #[test]
    fn a_write_of_bits_that_failed_is_done_again() {
        let mut regions = Regions::new(65_536, 4096, 512, true);
        regions.enter(&(0..1));
        let (blocks, pending) = regions.take_unwritten();
        assert!(!regions.has_unwritten());
        regions.put_back(&blocks);
        assert!(regions.has_unwritten());
        assert_eq!(regions.take_unwritten(), (blocks, pending));
    }

    #[test]
    fn without_a_bitmap_every_write_may_go_out_and_nothing_waits_to_be_written() {
        let mut regions = Regions::new(65_536, 4096, 512, true);
        regions.enter(&(0..1));
        regions.doubt(3);
        assert!(regions.has_unwritten() && !regions.is_durable(&(0..1)));
        regions.forget_bitmap();
        assert!(!regions.has_unwritten() && regions.is_durable(&(0..1)));
        assert_eq!(regions.take_unwritten().0, [0; 0]);
        assert_eq!(regions.doubtful_count(), 1, "doubt stays");
    }

    #[test]
    fn the_same_doubt_is_kept_in_regions_of_another_size() {
        let mut regions = Regions::new(65_536, 8192, 512, false);
        regions.doubt_from(20_480); // the third region and all behind it, right below this
        for region in 4..8 {
            regions.settle_region(region);
        }
        let fine = regions.regrained(4096);
        assert!(fine.is_persistent);
        assert_eq!((fine.count(), fine.region_bytes()), (16, 4096));
        let doubtful: Vec<usize> = (0..16).filter(|bit| fine.doubtful.get(*bit)).collect();
        assert_eq!(doubtful, [4, 5, 6, 7]);
        assert!(fine.wanted.iter().eq(4..8) && fine.durable.iter().eq(4..8));
        assert!(fine.is_proven(&(0..20_480)) && !fine.is_proven(&(20_480..20_481)));
        let coarse = fine.regrained(32_768);
        assert_eq!(coarse.doubtful_count(), 1);
        assert!(coarse.is_proven(&(0..20_480)) && coarse.is_proven(&(32_768..65_536)));
        assert!(!coarse.is_proven(&(32_767..32_768)));
        let generations = [&regions, &fine, &coarse].map(Regions::generation);
        assert_eq!(
            generations,
            [0, 1, 2],
            "numbers of regions of before mean nothing"
        );
    }

    #[test]
    #[should_panic(expected = "no write is under way")]
    fn regions_never_change_their_size_under_a_write() {
        let mut regions = Regions::new(65_536, 4096, 512, false);
        regions.enter(&(0..1));
        let _ = regions.regrained(8192);
    }

    #[test]
    fn doubt_of_the_region_that_is_being_settled_counts_and_that_of_others_does_not() {
        let mut regions = Regions::new(65_536, 4096, 512, false);
        for (other, is_settled) in [(1, false), (2, true)] {
            regions.doubt(1);
            regions.begin_settling(1);
            regions.doubt(other);
            regions.settle_unspoilt(1);
            assert_eq!(regions.is_proven(&(4096..4097)), is_settled, "{other}");
        }
    }

    #[test]
    fn what_lies_before_the_doubt_is_proven_in_its_own_region_only() {
        let mut regions = Regions::new(1 << 20, 1 << 16, 512, false);
        regions.doubt_from(70_000);
        regions.doubt(0);
        assert!(!regions.is_proven(&(0..1)));
        assert!(regions.is_proven(&(65_536..70_000)));
        let mut regions = Regions::new(10_000, 4096, 512, false);
        regions.doubt_from(10_000);
        assert_eq!(
            regions.doubtful_count(),
            0,
            "there is nothing behind the end"
        );
    }

    #[test]
    fn nothing_is_remembered_as_proven_where_nothing_is_in_doubt() {
        let mut regions = Regions::new(65_536, 4096, 512, false);
        regions.prove(&(0..4096));
        assert_eq!(regions.proven.len(), 0);
        regions.doubt(0);
        assert!(!regions.is_proven(&(0..4096)));
        regions.doubt(4);
        regions.prove(&(2048..10_000));
        regions.doubt(1);
        assert!(regions.is_proven(&(2048..4096)), "doubtful then");
        assert!(!regions.is_proven(&(4096..4097)), "not doubtful then");
    }

    #[test]
    fn bits_are_durable_only_while_they_are_wanted() {
        let mut regions = Regions::new(65_536, 4096, 512, true);
        regions.enter(&(0..8192));
        let (_, pending) = regions.take_unwritten();
        regions.leave(&(0..8192));
        regions.reset_touched();
        assert_eq!(regions.clear(&[0]), 1);
        regions.set_durable(&pending); // the write of before ends now
        assert!(!regions.is_durable(&(0..1)) && regions.is_durable(&(4096..8192)));
        regions.want_all();
        assert_eq!(regions.wanted().count(), 16);
        assert!(regions.has_unwritten());
    }
}
