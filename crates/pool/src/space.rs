//! Free space: metaslabs, allocation, and what was freed but must not be used again yet.
//!
//! Invariants:
//! - space that a root on the members may still reach is not given out: what transaction group t frees is free again
//!   when two more have been committed;
//! - what was taken and given back in the same transaction group enters no map, and waits like the rest;
//! - a block never crosses the border of a metaslab;
//! - users leave a part of the pool alone (the slop), so that giving space back can always be committed.
//!
//! Source: zfs-write.md 1.5.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use plexum_block::device::Device;
use plexum_format::zfs::Dva;
use plexum_format::zfs::spacemap::{Change, encode, words_of};

use crate::error::PoolError;
use crate::ground::Ground;
use crate::mutant::{DeliberateBug, Mutant};
use crate::spans::Spans;

/// Transaction groups for which freed space waits.
const DEFERRED_GROUPS: usize = 2;
/// Allocations go to the next plex after so many bytes.
const TURN_BYTES: u64 = 1 << 20;
/// The slop: a 32nd of the pool within these borders, but never more than half of it.
const SLOP_SHIFT: u32 = 5;
const SLOP_BYTES: Range<u64> = 128 << 20..128 << 30;

/// Addresses of the copies of a block.
pub(crate) type Copies = [Option<Dva>; 3];

/// Who wants space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A user's data: leaves the slop alone.
    Data,
    /// What a commit needs.
    Upkeep,
}

/// A metaslab: a part of a plex with a space map of its own.
#[derive(Clone, Debug)]
pub(crate) struct Metaslab {
    pub plex_id: u32,
    /// Its number in its plex.
    pub number: u64,
    pub start_bytes: u64,
    pub size_bytes: u64,
    pub sector_shift: u32,
    /// Object of its space map; 0: it was never used.
    pub map_object: u64,
    /// Bytes of its space map that count.
    pub map_bytes: u64,
    /// What its space map says is in use.
    pub allocated_bytes: u64,
    /// What can be given out.
    pub free: Spans,
    /// Taken and given back in the open transaction group.
    pub taken: Spans,
    pub given: Spans,
    /// Taken and given back again.
    cancelled: Spans,
    deferred: VecDeque<Spans>,
    cursor: u64,
}

impl Metaslab {
    pub fn new(plex_id: u32, number: u64, range: Range<u64>, sector_shift: u32) -> Self {
        Self {
            plex_id,
            number,
            start_bytes: range.start,
            size_bytes: range.end - range.start,
            sector_shift,
            map_object: 0,
            map_bytes: 0,
            allocated_bytes: 0,
            free: Spans::of(range.clone()),
            taken: Spans::default(),
            given: Spans::default(),
            cancelled: Spans::default(),
            deferred: VecDeque::new(),
            cursor: range.start,
        }
    }

    fn end_bytes(&self) -> u64 {
        self.start_bytes + self.size_bytes
    }

    /// Whether the open transaction group changed it.
    pub fn is_changed(&self) -> bool {
        !self.taken.is_empty() || !self.given.is_empty()
    }

    /// Bytes that the entries of the open transaction group take in the space map.
    pub fn change_bytes(&self) -> u64 {
        let changes = self.taken.iter().chain(self.given.iter());
        let words = changes.map(|range| words_of((range.end - range.start) >> self.sector_shift));
        8 * words.sum::<u64>()
    }

    /// Those entries.
    pub fn encode_changes(&self, bug: DeliberateBug) -> Result<Vec<u8>, PoolError> {
        let mut out = Vec::new();
        for (change, spans) in [
            (Change::Allocated, &self.taken),
            (Change::Freed, &self.given),
        ] {
            let is_lost = change == Change::Freed && bug.is(Mutant::SpaceMapEntryLost);
            for range in spans.iter().skip(usize::from(is_lost)) {
                let start = (range.start - self.start_bytes) >> self.sector_shift;
                let count = (range.end - range.start) >> self.sector_shift;
                if !encode(change, start..start + count, &mut out) {
                    return Err(PoolError::invalid(
                        "space map",
                        "a metaslab is too large for it",
                    ));
                }
            }
        }
        Ok(out)
    }

    /// The entries are in the map: what it says now.
    pub fn mapped(&mut self, added_bytes: u64) {
        self.map_bytes += added_bytes;
        self.allocated_bytes += self.taken.total_bytes();
        self.allocated_bytes = self
            .allocated_bytes
            .saturating_sub(self.given.total_bytes());
    }

    /// The transaction group is durable. While space is `held`, nothing becomes free.
    fn committed(&mut self, held: Held) -> Result<(), PoolError> {
        self.taken = Spans::default();
        let mut now = std::mem::take(&mut self.given);
        let cancelled = std::mem::take(&mut self.cancelled);
        let mut is_sound = now.add_all(&cancelled);
        self.deferred.push_back(now);
        while held == Held::No && self.deferred.len() > DEFERRED_GROUPS {
            let free = self
                .deferred
                .pop_front()
                .expect("it is longer than the limit");
            is_sound &= self.free.add_all(&free);
        }
        is_sound.then_some(()).ok_or_else(|| self.twice())
    }

    fn twice(&self) -> PoolError {
        let (number, plex_id) = (self.number, self.plex_id);
        PoolError::invalid(
            format!("metaslab {number} of plex {plex_id}"),
            "something would be freed twice",
        )
    }
}

/// Whether a walk over the pool keeps freed space from being given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Held {
    #[default]
    No,
    Yes,
}

/// The free space of a pool.
#[derive(Default)]
pub(crate) struct Space {
    /// By plex and number.
    pub metaslabs: BTreeMap<(u32, u64), Metaslab>,
    pub bug: DeliberateBug,
    held: Held,
    turn: usize,
    turn_bytes: u64,
    /// The metaslab in use for each plex and copy.
    current: BTreeMap<(u32, usize), u64>,
}

/// The metaslabs' sizes that OpenZFS would choose for a plex, as powers of two; see zfs-write.md 1.1.
pub(crate) fn metaslab_shift(plex_bytes: u64) -> u32 {
    let bit_length = |value: u64| u64::BITS - value.leading_zeros();
    let count = plex_bytes >> 29;
    let shift = if count < 16 {
        bit_length((plex_bytes / 16).max(1))
    } else if count > 200 {
        bit_length((plex_bytes / 200).max(1))
    } else {
        29
    };
    shift.clamp(24, 34)
}

impl Space {
    pub fn of(metaslabs: BTreeMap<(u32, u64), Metaslab>) -> Self {
        Self {
            metaslabs,
            ..Self::default()
        }
    }

    /// Bytes that can be given out now.
    pub fn free_bytes(&self) -> u64 {
        self.metaslabs
            .values()
            .map(|one| one.free.total_bytes())
            .sum()
    }

    /// Bytes of all metaslabs.
    pub fn size_bytes(&self) -> u64 {
        self.metaslabs.values().map(|one| one.size_bytes).sum()
    }

    /// What users leave alone.
    pub fn slop_bytes(&self) -> u64 {
        let size = self.size_bytes();
        let slop = (size >> SLOP_SHIFT).clamp(SLOP_BYTES.start, SLOP_BYTES.end);
        slop.min(size / 4)
    }

    /// Bytes that users may still take.
    pub fn usable_bytes(&self) -> u64 {
        self.free_bytes().saturating_sub(self.slop_bytes())
    }

    /// Bytes that will be free again after the next two commits.
    pub fn waiting_bytes(&self) -> u64 {
        let waiting = |one: &Metaslab| {
            let deferred: u64 = one.deferred.iter().map(Spans::total_bytes).sum();
            deferred + one.given.total_bytes() + one.cancelled.total_bytes()
        };
        self.metaslabs.values().map(waiting).sum()
    }

    /// Takes space for a block. Copies lie on different plexes where there are several, and in different metaslabs.
    pub fn allocate<D: Device>(
        &mut self,
        ground: &Ground<D>,
        length_bytes: u64,
        copy_count: usize,
        purpose: Purpose,
    ) -> Result<Copies, PoolError> {
        let plexes: Vec<u32> = ground.plexes.keys().copied().collect();
        let wanted = |id: u32| ground.plexes[&id].shape.allocated_bytes(length_bytes);
        let no_space = |space: &Self| PoolError::NoSpace {
            pool: String::new(),
            wanted_bytes: length_bytes * copy_count as u64,
            free_bytes: space.usable_bytes(),
        };
        if purpose == Purpose::Data && self.usable_bytes() < wanted(plexes[0]) * copy_count as u64 {
            return Err(no_space(self));
        }
        let mut copies: Copies = [None; 3];
        for copy in 0..copy_count.min(3) {
            let first = self.turn + copy;
            let order = (0..plexes.len()).map(|n| plexes[(first + n) % plexes.len()]);
            let mut found = None;
            for id in order {
                let size = wanted(id);
                let others: Vec<(u32, u64)> = copies
                    .iter()
                    .flatten()
                    .filter_map(|dva| self.metaslab_of(dva))
                    .collect();
                if let Some(offset) = self.take(id, copy, size, &others) {
                    found = Some(Dva {
                        plex_id: id,
                        offset_bytes: offset,
                        allocated_bytes: size,
                        is_gang: false,
                    });
                    break;
                }
            }
            let Some(dva) = found else {
                // The copies that were found stay taken: the commit that wanted them fails as a whole.
                return Err(no_space(self));
            };
            self.turn_bytes += dva.allocated_bytes;
            copies[copy] = Some(dva);
        }
        if self.turn_bytes > TURN_BYTES {
            self.turn_bytes = 0;
            self.turn = (self.turn + 1) % plexes.len();
        }
        Ok(copies)
    }

    fn metaslab_of(&self, dva: &Dva) -> Option<(u32, u64)> {
        let of_plex = self
            .metaslabs
            .range((dva.plex_id, 0)..=(dva.plex_id, u64::MAX));
        let mut found = of_plex
            .filter(|(_, one)| (one.start_bytes..one.end_bytes()).contains(&dva.offset_bytes));
        found.next().map(|(key, _)| *key)
    }

    /// Takes `size_bytes` in a plex: in the metaslab that is in use, else in the emptiest where it fits.
    fn take(
        &mut self,
        id: u32,
        copy: usize,
        size_bytes: u64,
        others: &[(u32, u64)],
    ) -> Option<u64> {
        if let Some(number) = self.current.get(&(id, copy)).copied()
            && !others.contains(&(id, number))
            && let Some(offset) = self.take_in((id, number), size_bytes)
        {
            return Some(offset);
        }
        let of_plex = self.metaslabs.range((id, 0)..=(id, u64::MAX));
        let mut order: Vec<(bool, u64, u64)> = of_plex
            .map(|(key, one)| {
                (
                    others.contains(key),
                    u64::MAX - one.free.total_bytes(),
                    one.number,
                )
            })
            .collect();
        order.sort_unstable();
        for (_, _, number) in order {
            if let Some(offset) = self.take_in((id, number), size_bytes) {
                self.current.insert((id, copy), number);
                return Some(offset);
            }
        }
        None
    }

    fn take_in(&mut self, key: (u32, u64), size_bytes: u64) -> Option<u64> {
        let one = self.metaslabs.get_mut(&key)?;
        if self.bug.is(Mutant::FreedBlockReused)
            && let Some(offset) = one.given.find(size_bytes, one.start_bytes..)
            && one.given.take(offset..offset + size_bytes)
        {
            return Some(offset);
        }
        let offset = one.free.find(size_bytes, one.cursor..)?;
        let range = offset..offset + size_bytes;
        let is_taken = one.free.take(range.clone()) && one.taken.add(range.clone());
        assert!(is_taken, "what was found free is free and was not taken");
        one.cursor = range.end;
        Some(offset)
    }

    /// Gives the space of a copy back.
    pub fn give_back(&mut self, dva: &Dva) -> Result<(), PoolError> {
        let what = || {
            format!(
                "the block at byte {} of plex {}",
                dva.offset_bytes, dva.plex_id
            )
        };
        let key = self.metaslab_of(dva);
        let key = key.ok_or_else(|| PoolError::invalid(what(), "it lies in no metaslab"))?;
        let one = self.metaslabs.get_mut(&key).expect("it was just found");
        let range = dva.offset_bytes..dva.offset_bytes.saturating_add(dva.allocated_bytes);
        let is_free = range.end > one.end_bytes() || one.free.overlaps(&range);
        if !is_free && one.taken.take(range.clone()) {
            let _ = one.cancelled.add(range);
            return Ok(());
        }
        if is_free || !one.given.add(range) {
            return Err(PoolError::invalid(
                what(),
                "it is freed, but was not in use",
            ));
        }
        Ok(())
    }

    /// Keeps space from being used that is free in the maps; it waits like what is given back.
    pub fn withhold(&mut self, dva: &Dva) -> Result<(), PoolError> {
        let what = || PoolError::invalid("intent log", "it names space that is in use");
        let key = self.metaslab_of(dva).ok_or_else(what)?;
        let one = self.metaslabs.get_mut(&key).expect("it was just found");
        let range = dva.offset_bytes..dva.offset_bytes.saturating_add(dva.allocated_bytes);
        if range.end > one.end_bytes() || !one.free.take(range.clone()) {
            return Err(what());
        }
        let _ = one.cancelled.add(range);
        Ok(())
    }

    /// The transaction group is durable.
    pub fn committed(&mut self) -> Result<(), PoolError> {
        let held = self.held;
        self.metaslabs
            .values_mut()
            .try_for_each(|one| one.committed(held))
    }

    /// From now on nothing that is given back becomes free.
    pub fn hold(&mut self) {
        self.held = Held::Yes;
    }

    /// What was given back becomes free again in its time.
    pub fn release(&mut self) {
        self.held = Held::No;
    }

    /// Whether nothing becomes free.
    pub fn is_held(&self) -> bool {
        self.held == Held::Yes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_space_waits_for_two_more_commits() {
        let mut one = Metaslab::new(0, 0, 0..1 << 20, 12);
        assert!(one.free.take(0..8192) && one.taken.add(0..8192));
        one.committed(Held::No).unwrap();
        assert!(one.given.add(0..4096));
        one.committed(Held::No).unwrap();
        one.committed(Held::No).unwrap();
        assert!(!one.free.overlaps(&(0..4096)), "a root may still reach it");
        one.committed(Held::No).unwrap();
        assert!(one.free.overlaps(&(0..4096)) && !one.free.overlaps(&(4096..8192)));
    }

    #[test]
    fn metaslabs_are_as_large_as_those_of_openzfs() {
        for (bytes, shift) in [
            (95_944_704, 24),
            (4 << 30, 29),
            (1 << 30, 27),
            (64 << 30, 29),
            (200 << 30, 31),
        ] {
            assert_eq!(metaslab_shift(bytes), shift, "{bytes}");
        }
    }
}
