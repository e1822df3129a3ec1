//! Address maps of all organisations: volume offset -> member and offset, and back. Pure; nothing here reads or writes.
//!
//! Invariants (each is a test over all small geometries):
//! - every byte of the volume has exactly one data place, every member byte belongs to at most one volume byte;
//! - P, Q and the data of a row are on different members, copies of a strip too;
//! - the inverse agrees with the map;
//! - the maps allocate nothing (`Geometry::new` does).
//!
//! Member offsets are bytes from the start of the member's data area. Source: linux-md.md section 7.
#![forbid(unsafe_code)]

pub mod divisor;
mod linear;
mod names;
mod parity;
mod raid0;
mod raid10;
mod raidz;
#[cfg(test)]
mod tests;

pub use names::{Level, Organisation, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};
pub use parity::{RowMap, RowRole};
pub use raid10::{CopyMap, CopyPlace};
pub use raidz::{RaidzColumn, RaidzGeometry, RaidzMap, RaidzPart};

use linear::LinearMap;
use raid0::ZoneMap;
use raid10::Raid10Map;

/// Most members of a parity organisation: the exponents of Q must differ in GF(2^8).
pub const PARITY_MEMBERS_MAX: u16 = 255;
/// Most members of any organisation: the roles that fit an md superblock.
pub const MEMBERS_MAX: u16 = 1920;
/// Unit of all sizes in bytes.
const SECTOR_BYTES: u64 = 512;
/// Smallest strip of parity and RAID-10 in bytes (md: 8 sectors).
const STRIP_BYTES_MIN: u64 = 4096;
/// Largest offset in bytes: what a signed file offset can hold, so that sums of two offsets never wrap.
const OFFSET_BYTES_MAX: u64 = i64::MAX as u64;

/// Why a geometry cannot be. Every number is as given by the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the sentences say it
pub enum GeometryError {
    #[error("level {0} is not known")]
    UnknownLevel(i32),
    #[error("layout {layout:#x} is not known for level {level}")]
    UnknownLayout { level: i32, layout: u32 },
    #[error(
        "the RAID-0 layout is not recorded, and members of different sizes could be read in two ways"
    )]
    Raid0LayoutUnknown,
    #[error("\"{0}\" is no level: linear, 0, 1, 4, 5, 6 or 10")]
    UnknownLevelWord(String),
    #[error("{level} has no layout \"{word}\"{}", level.told_layouts())]
    UnknownLayoutWord { level: Level, word: String },
    #[error("{level} needs {min} to {max} members, not {found}")]
    MemberCount {
        level: Level,
        found: u16,
        min: u16,
        max: u16,
    },
    #[error("sizes of {found} members are given, {expected} expected")]
    SizeCount { found: usize, expected: u16 },
    #[error("a strip of {strip_bytes} bytes: it must be a power of two of at least 4 KiB")]
    StripNotPowerOfTwo { strip_bytes: u64 },
    #[error("a strip of {strip_bytes} bytes: it must be a multiple of 512 bytes and not 0")]
    StripUnaligned { strip_bytes: u64 },
    #[error("members of {component_bytes} bytes are too small for strips of {strip_bytes} bytes")]
    MembersTooSmall {
        component_bytes: u64,
        strip_bytes: u64,
    },
    #[error("a member size of {0} bytes is not a multiple of 512")]
    SizeUnaligned(u64),
    #[error("the volume would be larger than 2^63 bytes")]
    TooLarge,
    #[error(
        "RAID-Z with {parity_count} parities on {member_count} members and sectors of 2^{sector_shift} bytes"
    )]
    Raidz {
        member_count: u16,
        parity_count: u8,
        sector_shift: u32,
    },
    #[error("RAID-10 needs 2 to {member_count} copies on {member_count} members, not {copies}")]
    Copies { copies: usize, member_count: usize },
    #[error("layout {layout} on {member_count} members would put two strips on one place")]
    Collides {
        layout: Raid10Layout,
        member_count: usize,
    },
}

/// What a geometry is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeometrySpec {
    /// Organisation with layout.
    pub organisation: Organisation,
    /// Number of slots.
    pub member_count: u16,
    /// Strip size in bytes; 0 (and ignored) for RAID-1, 0 or a rounding unit for linear.
    pub strip_bytes: u64,
    /// Bytes used of each member for data (md's "size"). Linear and RAID-0: the size of every member when
    /// `member_sizes_bytes` is empty, else ignored.
    pub component_bytes: u64,
    /// Linear and RAID-0: the data size of each member by slot. Empty for the others.
    pub member_sizes_bytes: Vec<u64>,
}

/// Where a byte of the volume is (its data, or its first copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Slot of the member.
    pub slot: usize,
    /// Byte offset in the member's data area.
    pub member_offset_bytes: u64,
    /// Contiguous bytes from there, at least 1.
    pub length_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Map {
    Linear(LinearMap),
    Zones(ZoneMap),
    Mirror,
    Parity,
    Spread(Raid10Map),
}

/// A checked geometry: the address map of one plex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    organisation: Organisation,
    member_count: usize,
    strip_bytes: u64,
    component_bytes: u64,
    volume_bytes: u64,
    /// Rows of a parity organisation, else 0; kept because every request asks.
    row_count: u64,
    map: Map,
}

impl Geometry {
    /// Checks `spec` and makes its map.
    ///
    /// # Errors
    /// `GeometryError` says which number cannot be. Sizes that are no multiple of the strip are rounded down, as md
    /// does.
    pub fn new(spec: &GeometrySpec) -> Result<Geometry, GeometryError> {
        check_counts(spec)?;
        check_md_strip(spec)?;
        Self::with_any_strip(spec)
    }

    /// As `new`, with strips that md does not have: any multiple of a sector (Vinum uses 15 sectors, and 279 KiB).
    ///
    /// # Errors
    /// As `new`.
    pub fn with_any_strip(spec: &GeometrySpec) -> Result<Geometry, GeometryError> {
        check_counts(spec)?;
        check_sector_strip(spec)?;
        check_sizes(spec)?;
        let member_count = usize::from(spec.member_count);
        let strip_bytes = if spec.organisation == Organisation::Raid1 {
            0
        } else {
            spec.strip_bytes
        };
        let rounded = round_down(spec.component_bytes, strip_bytes);
        let each = vec![spec.component_bytes; member_count];
        let sizes = if spec.member_sizes_bytes.is_empty() {
            &each
        } else {
            &spec.member_sizes_bytes
        };
        let (map, volume_bytes, component_bytes) = match spec.organisation {
            Organisation::Linear => {
                let map = LinearMap::new(sizes, strip_bytes)?;
                let bytes = map.volume_bytes();
                (Map::Linear(map), bytes, 0)
            }
            Organisation::Raid0(layout) => {
                let map = ZoneMap::new(layout, sizes, strip_bytes)?;
                let bytes = map.volume_bytes();
                (Map::Zones(map), bytes, 0)
            }
            Organisation::Raid1 => (Map::Mirror, rounded, rounded),
            Organisation::Raid4 | Organisation::Raid5(_) | Organisation::Raid6(_) => {
                let data = (member_count - parity_count(&spec.organisation)) as u64;
                (
                    Map::Parity,
                    rounded.checked_mul(data).ok_or(GeometryError::TooLarge)?,
                    rounded,
                )
            }
            Organisation::Raid10(layout) => {
                let map = Raid10Map::new(layout, member_count, strip_bytes, spec.component_bytes)?;
                let bytes = map
                    .strip_count()
                    .checked_mul(strip_bytes)
                    .ok_or(GeometryError::TooLarge)?;
                (Map::Spread(map), bytes, rounded)
            }
        };
        if volume_bytes == 0 {
            return Err(GeometryError::MembersTooSmall {
                component_bytes: spec.component_bytes,
                strip_bytes,
            });
        }
        if volume_bytes > OFFSET_BYTES_MAX {
            return Err(GeometryError::TooLarge);
        }
        Ok(Geometry {
            organisation: spec.organisation,
            member_count,
            strip_bytes,
            component_bytes,
            volume_bytes,
            row_count: if map == Map::Parity {
                component_bytes / strip_bytes
            } else {
                0
            },
            map,
        })
    }

    /// Organisation with layout.
    #[must_use]
    pub fn organisation(&self) -> Organisation {
        self.organisation
    }

    /// Number of slots.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.member_count
    }

    /// Strip size in bytes; 0 for RAID-1 and for linear without rounding.
    #[must_use]
    pub fn strip_bytes(&self) -> u64 {
        self.strip_bytes
    }

    /// Size of the volume in bytes.
    #[must_use]
    pub fn volume_bytes(&self) -> u64 {
        self.volume_bytes
    }

    /// md's "size" in bytes, rounded down to strips: what every member of a redundant organisation has to offer. 0 for
    /// linear and RAID-0.
    #[must_use]
    pub fn component_bytes(&self) -> u64 {
        self.component_bytes
    }

    /// Length of the space in which copies or parity agree or differ, and which a bitmap's bits count in: volume bytes
    /// where there are copies, member bytes where there is parity, 0 without redundancy.
    #[must_use]
    pub fn sync_bytes(&self) -> u64 {
        match self.organisation {
            Organisation::Raid10(_) | Organisation::Raid1 => self.volume_bytes(),
            Organisation::Linear | Organisation::Raid0(_) => 0,
            _ => self.component_bytes(),
        }
    }

    /// Bytes of the member's data area that the map uses, from 0 (RAID-10 may leave a strip at the end; the last used
    /// strip may be unused on some members).
    #[must_use]
    pub fn used_bytes(&self, slot: usize) -> u64 {
        assert!(slot < self.member_count, "a slot is below the member count");
        match &self.map {
            Map::Linear(map) => map.used_bytes(slot),
            Map::Zones(map) => map.used_bytes(slot),
            Map::Mirror | Map::Parity => self.component_bytes,
            Map::Spread(map) => map.member_strips() * self.strip_bytes,
        }
    }

    /// Data strips of a row: parity organisations. Copies: members / copies, rounded down, at least 1. RAID-0: all
    /// members; linear: 1.
    #[must_use]
    pub fn data_count(&self) -> usize {
        match self.organisation {
            Organisation::Linear | Organisation::Raid1 => 1,
            Organisation::Raid10(layout) => (self.member_count / layout.copies()).max(1),
            _ => self.member_count - self.parity_count(),
        }
    }

    /// Parity strips of a row: 1 for RAID-4 and RAID-5, 2 for RAID-6, 0 for the others.
    #[must_use]
    pub fn parity_count(&self) -> usize {
        parity_count(&self.organisation)
    }

    /// Rows of a parity organisation: strips of each member. Others: 0.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.row_count
    }

    /// Data bytes of one row: parity organisations (and the natural request size of RAID-0 and RAID-10). Strip size 0
    /// gives 0.
    #[must_use]
    pub fn row_data_bytes(&self) -> u64 {
        self.strip_bytes * self.data_count() as u64
    }

    /// Parity organisations: the row of a volume offset, and the offset in the row's data.
    #[must_use]
    pub fn row_of(&self, volume_offset_bytes: u64) -> (u64, u64) {
        assert!(
            self.row_count > 0 && volume_offset_bytes < self.volume_bytes,
            "a parity volume's offset inside of the volume"
        );
        (
            volume_offset_bytes / self.row_data_bytes(),
            volume_offset_bytes % self.row_data_bytes(),
        )
    }

    /// Parity organisations: the places in `row` (below `row_count`). The row is at `row * strip_bytes` of every
    /// member.
    #[must_use]
    pub fn row_map(&self, row: u64) -> RowMap {
        assert!(row < self.row_count(), "a row is below the row count");
        RowMap::new(&self.organisation, self.member_count, row)
    }

    /// RAID-1 and RAID-10: all places of the data at a volume offset, first copy first.
    #[must_use]
    #[inline]
    pub fn copies_of(&self, volume_offset_bytes: u64) -> CopyMap<'_> {
        assert!(
            volume_offset_bytes < self.volume_bytes,
            "the offset is inside of the volume"
        );
        match &self.map {
            Map::Mirror => CopyMap::mirror(
                self.member_count,
                volume_offset_bytes,
                self.volume_bytes - volume_offset_bytes,
            ),
            Map::Spread(map) => map.copies_of(volume_offset_bytes),
            _ => panic!("copies are asked of RAID-1 and RAID-10 only"),
        }
    }

    /// Copies of each byte: RAID-1 and RAID-10; 1 for the others.
    #[must_use]
    pub fn copy_count(&self) -> usize {
        match self.organisation {
            Organisation::Raid1 => self.member_count,
            Organisation::Raid10(layout) => layout.copies(),
            _ => 1,
        }
    }

    /// Where a byte of the volume is: its only place (linear, RAID-0), its data strip (parity), its first copy.
    #[must_use]
    #[inline]
    pub fn locate(&self, volume_offset_bytes: u64) -> Place {
        assert!(
            volume_offset_bytes < self.volume_bytes,
            "the offset is inside of the volume"
        );
        match &self.map {
            Map::Linear(map) => map.locate(volume_offset_bytes),
            Map::Zones(map) => map.locate(volume_offset_bytes),
            Map::Mirror | Map::Spread(_) => {
                let map = self.copies_of(volume_offset_bytes);
                let CopyPlace {
                    slot,
                    member_offset_bytes,
                } = map.get(0);
                Place {
                    slot,
                    member_offset_bytes,
                    length_bytes: map.length_bytes,
                }
            }
            Map::Parity => {
                let (row, offset) = self.row_of(volume_offset_bytes);
                let (data, inside) = (offset / self.strip_bytes, offset % self.strip_bytes);
                let data = usize::try_from(data).expect("below the number of data strips");
                Place {
                    slot: self.row_map(row).data_slot(data),
                    member_offset_bytes: row * self.strip_bytes + inside,
                    length_bytes: self.strip_bytes - inside,
                }
            }
        }
    }

    /// The inverse, for rebuilds by member order and for reports: the volume offset of a member's byte and how many
    /// bytes follow contiguously in both. `None` for parity and unused space.
    #[must_use]
    pub fn volume_offset_of(&self, slot: usize, member_offset_bytes: u64) -> Option<(u64, u64)> {
        assert!(slot < self.member_count, "a slot is below the member count");
        match &self.map {
            Map::Linear(map) => map.volume_offset_of(slot, member_offset_bytes),
            Map::Zones(map) => map.volume_offset_of(slot, member_offset_bytes),
            Map::Mirror => {
                let is_inside = member_offset_bytes < self.volume_bytes;
                is_inside.then(|| (member_offset_bytes, self.volume_bytes - member_offset_bytes))
            }
            Map::Spread(map) => map.volume_offset_of(slot, member_offset_bytes),
            Map::Parity => {
                let (row, inside) = (
                    member_offset_bytes / self.strip_bytes,
                    member_offset_bytes % self.strip_bytes,
                );
                if row >= self.row_count() {
                    return None;
                }
                let RowRole::Data(data) = self.row_map(row).role_of(slot) else {
                    return None;
                };
                let start = row * self.row_data_bytes() + data as u64 * self.strip_bytes;
                Some((start + inside, self.strip_bytes - inside))
            }
        }
    }

    /// Whether the data are all there without the members for which `missing` says true (by slot; as long as the member
    /// count).
    ///
    /// RAID-10: of the members that hold one strip's copies, one must be there (with far sets this is exact, where the
    /// kernel is not).
    #[must_use]
    pub fn tolerates(&self, missing: &[bool]) -> bool {
        assert_eq!(missing.len(), self.member_count, "one entry for each slot");
        let lost = missing.iter().filter(|m| **m).count();
        match &self.map {
            Map::Linear(_) | Map::Zones(_) => lost == 0,
            Map::Mirror => lost < self.member_count,
            Map::Parity => lost <= self.parity_count(),
            Map::Spread(map) => map.all_groups(|slots| slots.iter().any(|&slot| !missing[slot])),
        }
    }

    /// How many further members may be lost, whichever they are. 0 also when too many are already missing.
    #[must_use]
    pub fn losses_left(&self, missing: &[bool]) -> usize {
        let lost = missing.iter().filter(|m| **m).count();
        match &self.map {
            Map::Linear(_) | Map::Zones(_) => 0,
            Map::Mirror => (self.member_count - 1).saturating_sub(lost),
            Map::Parity => self.parity_count().saturating_sub(lost),
            Map::Spread(map) => {
                let mut fewest = usize::MAX;
                map.all_groups(|slots| {
                    fewest = fewest.min(slots.iter().filter(|slot| !missing[**slot]).count());
                    true
                });
                fewest.saturating_sub(1)
            }
        }
    }

    /// RAID-0: whether `original` and `alternate` read these members differently. False for the others.
    #[must_use]
    pub fn raid0_layout_matters(&self) -> bool {
        matches!(&self.map, Map::Zones(map) if map.layout_matters())
    }
}

/// `size_bytes` in whole strips; unchanged without a strip size.
fn round_down(size_bytes: u64, strip_bytes: u64) -> u64 {
    size_bytes - size_bytes.checked_rem(strip_bytes).unwrap_or(0)
}

fn parity_count(organisation: &Organisation) -> usize {
    match organisation {
        Organisation::Raid4 | Organisation::Raid5(_) => 1,
        Organisation::Raid6(_) => 2,
        _ => 0,
    }
}

/// Fewest and most members of a level.
#[must_use]
pub fn member_limits(level: Level) -> (u16, u16) {
    match level {
        Level::Linear | Level::Raid0 | Level::Raid1 => (1, MEMBERS_MAX),
        Level::Raid4 | Level::Raid5 => (2, PARITY_MEMBERS_MAX),
        Level::Raid6 => (4, PARITY_MEMBERS_MAX),
        Level::Raid10 => (2, MEMBERS_MAX),
    }
}

fn check_counts(spec: &GeometrySpec) -> Result<(), GeometryError> {
    let level = spec.organisation.level();
    let (min, max) = member_limits(level);
    if !(min..=max).contains(&spec.member_count) {
        return Err(GeometryError::MemberCount {
            level,
            found: spec.member_count,
            min,
            max,
        });
    }
    let given = spec.member_sizes_bytes.len();
    if given != 0 && given != usize::from(spec.member_count) {
        return Err(GeometryError::SizeCount {
            found: given,
            expected: spec.member_count,
        });
    }
    Ok(())
}

fn check_strip_size(strip_bytes: u64) -> Result<(), GeometryError> {
    if strip_bytes > OFFSET_BYTES_MAX / u64::from(MEMBERS_MAX) {
        return Err(GeometryError::TooLarge);
    }
    Ok(())
}

/// What every map needs: whole sectors, and products that fit.
fn check_sector_strip(spec: &GeometrySpec) -> Result<(), GeometryError> {
    let strip_bytes = spec.strip_bytes;
    check_strip_size(strip_bytes)?;
    match spec.organisation.level() {
        Level::Raid1 => Ok(()),
        Level::Linear if strip_bytes == 0 => Ok(()),
        _ if strip_bytes == 0 || !strip_bytes.is_multiple_of(SECTOR_BYTES) => {
            Err(GeometryError::StripUnaligned { strip_bytes })
        }
        _ => Ok(()),
    }
}

/// What md has: powers of two where rows are kept.
fn check_md_strip(spec: &GeometrySpec) -> Result<(), GeometryError> {
    let strip_bytes = spec.strip_bytes;
    check_strip_size(strip_bytes)?;
    match spec.organisation.level() {
        Level::Raid1 | Level::Linear | Level::Raid0 => Ok(()),
        _ if strip_bytes < STRIP_BYTES_MIN || !strip_bytes.is_power_of_two() => {
            Err(GeometryError::StripNotPowerOfTwo { strip_bytes })
        }
        _ => Ok(()),
    }
}

fn check_sizes(spec: &GeometrySpec) -> Result<(), GeometryError> {
    for &size in spec
        .member_sizes_bytes
        .iter()
        .chain([&spec.component_bytes])
    {
        if !size.is_multiple_of(SECTOR_BYTES) {
            return Err(GeometryError::SizeUnaligned(size));
        }
        if size > OFFSET_BYTES_MAX {
            return Err(GeometryError::TooLarge);
        }
    }
    Ok(())
}
