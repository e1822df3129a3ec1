//! The address map of RAID-Z: every block is a stripe of its own, with its own parity.
//!
//! Invariants (each is a test over all small geometries):
//! - the data columns follow one another in the block and cover it, in order, without gaps;
//! - all columns of a block are on different members, and no column is longer than the first one;
//! - blocks that do not overlap in the plex do not overlap on any member.
//!
//! Member offsets are bytes from the start of the member's data area. Nothing here allocates.
//! Source: zfs-raidz.md 1.1 and 1.2; compared with the bytes of pools that OpenZFS wrote.

use super::GeometryError;

/// Most parity columns.
pub const RAIDZ_PARITIES_MAX: u8 = 3;
/// Most members: the exponents of Q must differ in GF(2^8).
pub const RAIDZ_MEMBERS_MAX: u16 = 255;
/// RAID-Z with one parity swaps its first two columns in every second of these stretches of the plex.
const SWAP_BIT_BYTES: u64 = 1 << 20;

/// Members, parities and sector of a RAID-Z plex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidzGeometry {
    member_count: u64,
    parity_count: u64,
    sector_shift: u32,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaidzPart {
    /// Parity: 0, 1, 2 for P, Q, R.
    Parity(usize),
    /// Data: the number of the data column.
    Data(usize),
}

/// One column of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidzColumn {
    /// What it holds.
    pub part: RaidzPart,
    /// Slot of the member.
    pub slot: usize,
    /// Byte offset in the member's data area.
    pub member_offset_bytes: u64,
    /// Length in bytes, at least one sector.
    pub length_bytes: u64,
    /// Where a data column begins in the block; 0 for parity.
    pub block_offset_bytes: u64,
}

/// The columns of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RaidzMap {
    geometry: RaidzGeometry,
    first_slot: u64,
    member_sector: u64,
    is_swapped: bool,
    /// Sectors of a long column is one more than this.
    short_sectors: u64,
    /// How many columns are long.
    long_columns: u64,
    column_count: u64,
}

impl RaidzGeometry {
    /// A geometry of `member_count` members, `parity_count` of each block's columns being parity, and sectors of
    /// 2^`sector_shift` bytes.
    ///
    /// # Errors
    /// `GeometryError` for 0 or more than 3 parities, for members that are not more than those or more than 255, and
    /// for sectors below 512 bytes or above 64 KiB.
    pub fn new(
        member_count: u16,
        parity_count: u8,
        sector_shift: u32,
    ) -> Result<Self, GeometryError> {
        let is_possible = (1..=RAIDZ_PARITIES_MAX).contains(&parity_count)
            && member_count > u16::from(parity_count)
            && member_count <= RAIDZ_MEMBERS_MAX
            && (9..=16).contains(&sector_shift);
        if !is_possible {
            return Err(GeometryError::Raidz {
                member_count,
                parity_count,
                sector_shift,
            });
        }
        Ok(Self {
            member_count: u64::from(member_count),
            parity_count: u64::from(parity_count),
            sector_shift,
        })
    }

    /// Number of parity columns.
    #[must_use]
    pub fn parity_count(&self) -> usize {
        self.parity_count as usize
    }

    /// Bytes of a sector.
    #[must_use]
    pub fn sector_bytes(&self) -> u64 {
        1 << self.sector_shift
    }

    /// The columns of the block of `length_bytes` (rounded up to sectors) at `offset_bytes` of the plex.
    ///
    /// # Errors
    /// `TooLarge` for an empty block, or when offset and length exceed 2^62.
    pub fn map(&self, offset_bytes: u64, length_bytes: u64) -> Result<RaidzMap, GeometryError> {
        const LIMIT: u64 = 1 << 62;
        if offset_bytes >= LIMIT || length_bytes >= LIMIT || length_bytes == 0 {
            return Err(GeometryError::TooLarge);
        }
        let sectors = length_bytes.div_ceil(self.sector_bytes());
        let first = offset_bytes >> self.sector_shift;
        let data_count = self.member_count - self.parity_count;
        let (short_sectors, rest) = (sectors / data_count, sectors % data_count);
        let long_columns = if rest == 0 {
            0
        } else {
            rest + self.parity_count
        };
        Ok(RaidzMap {
            geometry: *self,
            first_slot: first % self.member_count,
            member_sector: first / self.member_count,
            is_swapped: self.parity_count == 1 && offset_bytes & SWAP_BIT_BYTES != 0,
            short_sectors,
            long_columns,
            column_count: if short_sectors > 0 {
                self.member_count
            } else {
                long_columns
            },
        })
    }

    /// Space that a block of `length_bytes` takes in the plex: data, parity, and padding to a multiple of parities + 1.
    ///
    /// # Errors
    /// `TooLarge` above 2^62 bytes.
    pub fn allocated_bytes(&self, length_bytes: u64) -> Result<u64, GeometryError> {
        if length_bytes >= 1 << 62 {
            return Err(GeometryError::TooLarge);
        }
        let sectors = length_bytes.div_ceil(self.sector_bytes());
        let rows = sectors.div_ceil(self.member_count - self.parity_count);
        let all = u128::from(sectors) + u128::from(rows) * u128::from(self.parity_count);
        let all = all.next_multiple_of(u128::from(self.parity_count) + 1) << self.sector_shift;
        u64::try_from(all).map_err(|_| GeometryError::TooLarge)
    }
}

impl RaidzMap {
    /// Number of columns, parity included; not more than members.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.column_count as usize
    }

    /// Number of data columns.
    #[must_use]
    pub fn data_count(&self) -> usize {
        (self.column_count - self.geometry.parity_count) as usize
    }

    /// Length of the parity columns, which is that of the longest data column.
    #[must_use]
    pub fn parity_bytes(&self) -> u64 {
        self.sectors(0) << self.geometry.sector_shift
    }

    /// Exponent of a data column in Q (of 2) and R (of 4): it counts down from the last but one power to 0.
    ///
    /// # Panics
    /// When there is no such data column.
    #[must_use]
    pub fn exponent(&self, data: usize) -> u8 {
        u8::try_from(self.data_count() - 1 - data).expect("at most 254 data columns")
    }

    /// All columns: first parity in the order P, Q, R, then data in the order of the block.
    pub fn columns(&self) -> impl Iterator<Item = RaidzColumn> + '_ {
        (0..self.column_count).map(|number| self.column(number))
    }

    fn sectors(&self, number: u64) -> u64 {
        self.short_sectors + u64::from(number < self.long_columns)
    }

    fn column(&self, number: u64) -> RaidzColumn {
        let RaidzGeometry {
            member_count,
            parity_count,
            sector_shift,
        } = self.geometry;
        let place = match number {
            0 | 1 if self.is_swapped => 1 - number,
            number => number,
        };
        let slot = self.first_slot + place;
        let wraps = u64::from(slot >= member_count);
        let data = number.checked_sub(parity_count);
        let before = data.map_or(0, |data| {
            let long_before = data.min(self.long_columns.saturating_sub(parity_count));
            data * self.short_sectors + long_before
        });
        RaidzColumn {
            part: match data {
                Some(data) => RaidzPart::Data(data as usize),
                None => RaidzPart::Parity(number as usize),
            },
            slot: (slot - wraps * member_count) as usize,
            member_offset_bytes: (self.member_sector + wraps) << sector_shift,
            length_bytes: self.sectors(number) << sector_shift,
            block_offset_bytes: before << sector_shift,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn geometries() -> impl Iterator<Item = RaidzGeometry> {
        (1..=3_u8).flat_map(|parities| {
            (u16::from(parities) + 1..=8)
                .map(move |members| RaidzGeometry::new(members, parities, 9).unwrap())
        })
    }

    #[test]
    fn data_columns_cover_the_block_in_order_and_members_differ() {
        for geometry in geometries() {
            for (offset, sectors) in (0..20).flat_map(|o| (1..40).map(move |s| (o, s))) {
                for high in [0, SWAP_BIT_BYTES] {
                    let map = geometry.map(high + offset * 512, sectors * 512).unwrap();
                    let columns: Vec<_> = map.columns().collect();
                    let mut at = 0;
                    for column in &columns[geometry.parity_count()..] {
                        assert_eq!(column.block_offset_bytes, at);
                        at += column.length_bytes;
                    }
                    assert_eq!(at, sectors * 512);
                    let slots: BTreeSet<_> = columns.iter().map(|column| column.slot).collect();
                    assert_eq!(slots.len(), columns.len());
                    assert!(
                        columns
                            .iter()
                            .all(|c| (1..=map.parity_bytes()).contains(&c.length_bytes))
                    );
                    let exponents =
                        (0..map.data_count()).map(|data| usize::from(map.exponent(data)));
                    assert!(exponents.eq((0..map.data_count()).rev()));
                }
            }
        }
    }

    #[test]
    fn neighbouring_blocks_never_share_a_byte_of_a_member() {
        for geometry in geometries() {
            for high in [0, SWAP_BIT_BYTES - 512 * 60] {
                let mut used = BTreeSet::new();
                let mut offset = high;
                for length in [512, 1024, 5 * 512, 512, 17 * 512, 3 * 512, 40 * 512] {
                    for column in geometry.map(offset, length).unwrap().columns() {
                        for sector in 0..column.length_bytes / 512 {
                            let place = column.member_offset_bytes / 512 + sector;
                            assert!(used.insert((column.slot, place)), "{geometry:?} {length}");
                        }
                    }
                    let step = geometry.allocated_bytes(length).unwrap();
                    assert!(step.is_multiple_of(512 * (geometry.parity_count() as u64 + 1)));
                    offset += step;
                }
            }
        }
    }

    #[test]
    fn one_parity_swaps_with_the_first_data_column_in_every_second_mebibyte() {
        let slots = |parities, offset| -> Vec<usize> {
            let geometry = RaidzGeometry::new(5, parities, 12).unwrap();
            let map = geometry.map(offset, 128 << 10).unwrap();
            map.columns().map(|column| column.slot).collect()
        };
        // 2^20 / 4096 is 1 modulo 5.
        assert_eq!(slots(1, 0), [0, 1, 2, 3, 4]);
        assert_eq!(slots(1, 1 << 20), [2, 1, 3, 4, 0]);
        assert_eq!(slots(1, 2 << 20), [2, 3, 4, 0, 1]);
        assert_eq!(slots(2, 1 << 20), [1, 2, 3, 4, 0]);
    }

    #[test]
    fn space_follows_the_published_table() {
        // Block, members, parities, allocated sectors of 4 KiB: zfs-raidz.md 1.5.
        for (kib, members, parities, expected) in [
            (4, 3, 1, 2),
            (4, 6, 2, 3),
            (8, 6, 2, 6),
            (128, 6, 2, 48),
            (128, 8, 2, 45),
            (1024, 11, 3, 352),
        ] {
            let geometry = RaidzGeometry::new(members, parities, 12).unwrap();
            assert_eq!(
                geometry.allocated_bytes(kib << 10).unwrap() / 4096,
                expected
            );
        }
    }

    #[test]
    fn impossible_geometries_and_blocks_are_refused() {
        for (members, parities, shift) in [
            (3, 0, 9),
            (4, 4, 9),
            (2, 2, 9),
            (256, 1, 9),
            (3, 1, 8),
            (3, 1, 17),
        ] {
            assert!(RaidzGeometry::new(members, parities, shift).is_err());
        }
        let geometry = RaidzGeometry::new(3, 1, 9).unwrap();
        for (offset, length) in [(0, 0), (1 << 62, 512), (0, u64::MAX)] {
            assert_eq!(geometry.map(offset, length), Err(GeometryError::TooLarge));
        }
        assert_eq!(
            geometry.allocated_bytes(u64::MAX),
            Err(GeometryError::TooLarge)
        );
    }
}
