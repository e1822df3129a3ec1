//! Slabs: the parts of a volume that shards own in turn.
//!
//! Invariants: slabs are whole rows of parity and whole strips of copies, so that no lock reaches over a border; slab
//! `n` belongs to shard `n` modulo their number, shard 0 is the home.

use std::ops::Range;

use plexum_layout::divisor::Divisor;
use plexum_layout::{Geometry, Organisation};

/// Slabs for each shard: more even the load, fewer keep the list of locks short.
const SLABS_PER_SHARD: u64 = 16;

/// Smallest slab in bytes: a stream should stay for a while where it is.
const SLAB_BYTES_MIN: u64 = 4 << 20;

/// How a volume is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slabs {
    slab_bytes: u64,
    /// The same, to divide by.
    slab: Divisor,
    volume_bytes: u64,
    shards: Divisor,
    /// Bytes of a row, where locks are rows.
    row_bytes: Option<u64>,
}

impl Slabs {
    /// Divides a volume among `shards`.
    pub(crate) fn new(geometry: &Geometry, shards: usize) -> Self {
        let volume_bytes = geometry.volume_bytes();
        let unit = match geometry.organisation() {
            _ if geometry.parity_count() > 0 => geometry.row_data_bytes(),
            Organisation::Raid1 | Organisation::Linear => 4096,
            _ => geometry.strip_bytes().max(4096),
        };
        let wanted = volume_bytes / (SLABS_PER_SHARD * shards as u64);
        // A volume that is small is divided all the same: at least one slab for each.
        let least = SLAB_BYTES_MIN.min(volume_bytes / shards as u64).max(1);
        let slab_bytes = wanted.max(least).div_ceil(unit) * unit;
        Self {
            slab_bytes,
            slab: Divisor::new(slab_bytes),
            volume_bytes,
            shards: Divisor::new(shards as u64),
            row_bytes: (geometry.parity_count() > 0).then(|| geometry.row_data_bytes()),
        }
    }

    /// The slab that holds a byte.
    #[inline]
    pub(crate) fn of(&self, at_bytes: u64) -> u32 {
        u32::try_from(self.slab.split(at_bytes).0).expect("slabs are few")
    }

    /// The shard that a slab belongs to.
    #[inline]
    pub(crate) fn owner(&self, slab: u32) -> usize {
        self.shards.split(u64::from(slab)).1 as usize // below the number of shards
    }

    /// The slabs of a shard, as bytes of the volume; ascending.
    pub(crate) fn ranges_of(&self, shard: usize) -> Vec<Range<u64>> {
        let last = self.of(self.volume_bytes - 1); // no volume is empty
        let own = (0..=last).filter(|slab| self.owner(*slab) == shard);
        own.map(|slab| self.range(slab)).collect()
    }

    /// Bytes of the volume in a slab.
    pub(crate) fn range(&self, slab: u32) -> Range<u64> {
        let start = u64::from(slab) * self.slab_bytes;
        start..(start + self.slab_bytes).min(self.volume_bytes)
    }

    /// What is locked for a slab: rows of parity, bytes of copies.
    pub(crate) fn lock_range(&self, slab: u32) -> Range<u64> {
        let range = self.range(slab);
        match self.row_bytes {
            Some(row_bytes) => range.start / row_bytes..range.end.div_ceil(row_bytes),
            None => range,
        }
    }

    /// A range cut at the borders of slabs: offset and length of each part.
    pub(crate) fn cut(&self, range: Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut at = range.start;
        std::iter::from_fn(move || {
            if at >= range.end {
                return None;
            }
            let end = self.range(self.of(at)).end.min(range.end);
            let part = (at, end - at);
            at = end;
            Some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_layout::{GeometrySpec, Raid5Layout, Raid10Layout};

    fn geometry(organisation: Organisation, member_count: u16, strip_bytes: u64) -> Geometry {
        Geometry::new(&GeometrySpec {
            organisation,
            member_count,
            strip_bytes,
            component_bytes: 96 << 20,
            member_sizes_bytes: Vec::new(),
        })
        .expect("a geometry")
    }

    fn all() -> Vec<Geometry> {
        vec![
            geometry(Organisation::Raid1, 2, 0),
            geometry(Organisation::Raid5(Raid5Layout::LeftSymmetric), 4, 65_536),
            geometry(Organisation::Raid10(Raid10Layout::near(2)), 5, 32 << 10),
        ]
    }

    #[test]
    fn every_shard_has_slabs_and_no_lock_reaches_over_a_border() {
        for geometry in all() {
            for shards in [2, 3, 8] {
                let slabs = Slabs::new(&geometry, shards);
                let last = slabs.of(geometry.volume_bytes() - 1);
                let mut owners = vec![0; shards];
                let (mut at, mut locked) = (0, 0);
                for slab in 0..=last {
                    owners[slabs.owner(slab)] += 1;
                    assert_eq!(slabs.range(slab).start, at, "no gap");
                    assert_eq!(
                        slabs.lock_range(slab).start,
                        locked,
                        "no row is in two slabs"
                    );
                    (at, locked) = (slabs.range(slab).end, slabs.lock_range(slab).end);
                }
                assert_eq!(at, geometry.volume_bytes());
                assert!(owners.iter().all(|count| *count > 0), "{owners:?}");
                let mut own: Vec<_> = (0..shards).flat_map(|n| slabs.ranges_of(n)).collect();
                own.sort_by_key(|range| range.start);
                let all: Vec<_> = (0..=last).map(|slab| slabs.range(slab)).collect();
                assert_eq!(own, all);
            }
        }
    }

    #[test]
    fn a_range_is_cut_where_slabs_meet_and_nowhere_else() {
        for geometry in all() {
            let slabs = Slabs::new(&geometry, 2);
            let border = slabs.range(0).end;
            let parts: Vec<_> = slabs.cut(border - 512..border + 1024).collect();
            assert_eq!(parts, [(border - 512, 512), (border, 1024)]);
            let whole: Vec<_> = slabs.cut(0..border).collect();
            assert_eq!(whole, [(0, border)]);
        }
    }
}
