//! The write-intent bitmap: which regions may differ between the members.
//!
//! Invariants:
//! - the area is no larger than the room its caller found between bitmap and the next structure;
//! - bits of regions are only reached through a checked region number; bytes behind the last bit are kept as read;
//! - a [`Bitmap`] that was read and not changed encodes to the same bytes.
//!
//! What a region covers: sectors of the members (from the data offset) for RAID-1, 4, 5 and 6; sectors of the array for
//! RAID-10. Source: linux-md.md section 3.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, Problem, StructurePlace};
use crate::kept::Kept;
use crate::units::{EventCount, SECTOR_BYTES};

pub use header::BitmapHeader;

/// Bytes before the bits.
pub const HEADER_BYTES: usize = 256;
/// Bytes before the states of a lockless bitmap.
const LOCKLESS_STATES_AT: usize = 1024;
/// First four bytes: "bitm" read as a little-endian number.
const MAGIC: u32 = 0x6d74_6962;
/// The version that is read and written: bits in little-endian order, one machine.
const VERSION: u32 = 4;
/// The lockless bitmap of Linux 6.18: read, never written by an engine.
const VERSION_LOCKLESS: u32 = 6;
/// More regions than this are refused: their bits would take over 32 MiB.
const MAX_REGIONS: u64 = 1 << 28;
const MAX_WRITE_BEHIND: u32 = 16_383;

const STATE_STALE: u32 = 1 << 1;
const STATE_WRITE_ERROR: u32 = 1 << 2;
/// Lockless: the states are not on the members yet.
const STATE_FIRST_USE: u32 = 1 << 3;
/// Flags of a lockless bitmap beside `STATE_FIRST_USE`: made with `--assume-clean`; its daemon was behind.
const STATES_LOCKLESS: u32 = STATE_FIRST_USE | 1 << 4 | 1 << 5;

/// States of a lockless bitmap's region. All others (never written, being written, to be synchronised, and whatever is
/// not known) mean that copies or parity may differ. Source: linux-md.md section 3.
mod lockless {
    /// Copies or parity agree.
    pub(super) const CLEAN: u8 = 1;
    /// Data are being written.
    pub(super) const DIRTY: u8 = 2;
    /// Nothing was ever written, but parity was made all the same.
    pub(super) const CLEAN_UNWRITTEN: u8 = 7;
}

/// How a bitmap says what may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BitmapKind {
    /// A bit for each region: set where members may differ.
    Bits,
    /// A byte for each region with its state (Linux 6.18, lockless). Regions that were never written have no parity.
    Lockless,
}

/// Smallest region that [`default_region_bytes`] chooses.
pub const MIN_DEFAULT_REGION_BYTES: u32 = 64 << 10;
/// Largest region that [`default_region_bytes`] chooses.
pub const MAX_DEFAULT_REGION_BYTES: u32 = 64 << 20;
/// Least number of regions that [`default_region_bytes`] aims at.
const DEFAULT_REGIONS: u64 = 1024;

/// Header exactly as on disk, little-endian. Source: linux-md.md section 3.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    magic: U32,            // 0
    version: U32,          // 4
    uuid: [u8; 16],        // 8
    events: U64,           // 24
    events_cleared: U64,   // 32
    sync_size: U64,        // 40, sectors
    state: U32,            // 48
    chunksize: U32,        // 52, bytes
    daemon_sleep: U32,     // 56, seconds
    write_behind: U32,     // 60
    sectors_reserved: U32, // 64
    nodes: U32,            // 68
    cluster: [u8; 64],     // 72
    rest: [u8; 120],       // 136, kept as read
}
const _: () =
    assert!(size_of::<RawHeader>() == HEADER_BYTES && offset_of!(RawHeader, cluster) == 72);

macro_rules! at {
    ($field:ident) => {
        offset_of!(RawHeader, $field) as u64
    };
}

mod header;

/// Bytes of header and bits of a bitmap with that many regions.
#[must_use]
pub fn area_bytes(region_count: u64) -> u64 {
    HEADER_BYTES as u64 + region_count.div_ceil(8)
}

/// The largest power of two from 64 KiB to 64 MiB that gives at least 1024 regions (64 KiB when nothing does).
///
/// Source: cli.md, Defaults.
#[must_use]
pub fn default_region_bytes(sync_size_sectors: u64) -> u32 {
    let mut region = MAX_DEFAULT_REGION_BYTES;
    while region > MIN_DEFAULT_REGION_BYTES
        && sync_size_sectors.div_ceil(u64::from(region) / SECTOR_BYTES) < DEFAULT_REGIONS
    {
        region /= 2;
    }
    region
}

/// What a new bitmap is made from; see [`Bitmap::create`].
#[derive(Debug, Clone, Copy)]
pub struct NewBitmap {
    /// The array's UUID as [`super::Superblock::bitmap_uuid`] gives it.
    pub uuid: [u8; 16],
    /// Events of the superblock that will be written after it.
    pub events: EventCount,
    /// What the regions cover together.
    pub sync_size_sectors: u64,
    /// Bytes of a region, a power of two of at least 512.
    pub region_bytes: u32,
    /// Sectors reserved for header and bits.
    pub reserved_sectors: u32,
    /// Whether every region may differ (a new array that was not proven equal) or none.
    pub is_all_set: bool,
}

/// A bitmap: header and bits.
#[derive(Clone, PartialEq, Eq)]
pub struct Bitmap {
    /// The header; its sizes must not be changed, for the bits depend on them.
    pub header: BitmapHeader,
    /// Bits from byte 256 of the area to the end of its last sector.
    bits: Vec<u8>,
}

impl Bitmap {
    /// Reads a whole area: at least [`BitmapHeader::area_sectors`] sectors that begin at `offset_bytes` of the member
    /// and have `room_sectors` to themselves.
    ///
    /// # Errors
    /// As [`BitmapHeader::parse`]; [`Problem::TooShort`] when `area` ends before the last bit's sector.
    pub fn parse(area: &[u8], offset_bytes: u64, room_sectors: u64) -> Result<Self, FormatError> {
        let header = BitmapHeader::parse(area, offset_bytes, room_sectors)?;
        // Cannot overflow: at most MAX_REGIONS regions.
        let needed = (header.area_sectors() * SECTOR_BYTES) as usize;
        let Some(bits) = area.get(HEADER_BYTES..needed) else {
            let place = StructurePlace {
                structure: "md bitmap",
                base_bytes: offset_bytes,
            };
            let found = format!("{} bytes", area.len());
            let expected = format!("{needed} bytes");
            return Err(place.error(Problem::TooShort, 0, "bits", found, expected));
        };
        Ok(Self {
            header,
            bits: bits.to_vec(),
        })
    }

    /// A bitmap for a new array, as mdadm and the kernel would begin it.
    ///
    /// # Errors
    /// [`FormatError`] when region size, number of regions or reserve don't fit each other.
    pub fn create(new: &NewBitmap) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: "new md bitmap",
            base_bytes: 0,
        };
        let fits =
            new.region_bytes.is_power_of_two() && u64::from(new.region_bytes) >= SECTOR_BYTES;
        if !fits {
            let expected = "a power of two of at least 512 bytes";
            let found = new.region_bytes;
            return Err(place.error(
                Problem::Request,
                at!(chunksize),
                "region size",
                found,
                expected,
            ));
        }
        let header = BitmapHeader {
            kind: BitmapKind::Bits,
            uuid: new.uuid,
            events: new.events,
            events_cleared: new.events,
            sync_size_sectors: new.sync_size_sectors,
            region_bytes: new.region_bytes,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            reserved_sectors: new.reserved_sectors,
            is_stale: false,
            has_write_error: false,
            raw: Kept::new([0; HEADER_BYTES]),
        };
        header.check_room(u64::from(new.reserved_sectors), place)?;
        let length = (header.area_sectors() * SECTOR_BYTES) as usize - HEADER_BYTES;
        let mut bitmap = Self {
            header,
            bits: vec![0; length],
        };
        if new.is_all_set {
            bitmap.set_all();
        }
        Self::parse(&bitmap.encode(), 0, u64::from(new.reserved_sectors))
    }

    /// Number of regions.
    #[must_use]
    pub fn region_count(&self) -> u64 {
        self.header.region_count()
    }

    /// The region that a sector (of the member's data or of the array, see the file's head) lies in.
    #[must_use]
    pub fn region_of(&self, sector: u64) -> u64 {
        sector / self.header.region_sectors()
    }

    /// The sectors of a region, cut at the end of what the bitmap covers.
    #[must_use]
    pub fn sectors_of(&self, region: u64) -> Range<u64> {
        let size = self.header.region_sectors();
        let end = self.header.sync_size_sectors;
        region.saturating_mul(size).min(end)..region.saturating_add(1).saturating_mul(size).min(end)
    }

    /// Whether the region may differ.
    ///
    /// # Panics
    /// When there is no such region, as all functions that take one.
    #[must_use]
    pub fn get(&self, region: u64) -> bool {
        let (byte, mask) = self.position(region);
        match self.header.kind {
            BitmapKind::Bits => self.bits[byte] & mask != 0,
            BitmapKind::Lockless => {
                !matches!(self.bits[byte], lockless::CLEAN | lockless::CLEAN_UNWRITTEN)
            }
        }
    }

    /// Sets or clears a region's bit; tells whether that changed it.
    pub fn set(&mut self, region: u64, may_differ: bool) -> bool {
        let (byte, mask) = self.position(region);
        let old = self.bits[byte];
        self.bits[byte] = match (self.header.kind, may_differ) {
            (BitmapKind::Bits, true) => old | mask,
            (BitmapKind::Bits, false) => old & !mask,
            (BitmapKind::Lockless, _) if self.get(region) == may_differ => old,
            (BitmapKind::Lockless, true) => lockless::DIRTY,
            (BitmapKind::Lockless, false) => lockless::CLEAN,
        };
        old != self.bits[byte]
    }

    fn position(&self, region: u64) -> (usize, u8) {
        assert!(region < self.region_count(), "a region of this bitmap");
        (
            self.header.byte_of(region) - HEADER_BYTES,
            1 << (region % 8),
        )
    }

    /// Marks every region.
    pub fn set_all(&mut self) {
        (0..self.region_count()).for_each(|region| {
            self.set(region, true);
        });
    }

    /// Clears every region.
    pub fn clear_all(&mut self) {
        (0..self.region_count()).for_each(|region| {
            self.set(region, false);
        });
    }

    /// The regions that may differ, ascending.
    pub fn set_regions(&self) -> impl Iterator<Item = u64> + '_ {
        let count = self.region_count();
        let bits = match self.header.kind {
            BitmapKind::Bits => self.bits.as_slice(),
            BitmapKind::Lockless => &[],
        };
        let states = match self.header.kind {
            BitmapKind::Bits => 0..0,
            BitmapKind::Lockless => 0..count,
        };
        let bytes = bits.iter().enumerate().filter(|(_, byte)| **byte != 0);
        bytes
            .flat_map(|(index, byte)| {
                let byte = *byte;
                (0..8)
                    .filter(move |bit| byte >> bit & 1 != 0)
                    .map(move |bit| 8 * index as u64 + bit)
            })
            .take_while(move |region| *region < count)
            .chain(states.filter(|region| self.get(*region)))
    }

    /// How many regions may differ.
    #[must_use]
    pub fn count_set(&self) -> u64 {
        self.set_regions().count() as u64
    }

    /// Takes over the set bits of another member's bitmap of the same array; `false` (and nothing changed) when the two
    /// do not cover the same regions.
    pub fn merge(&mut self, other: &Self) -> bool {
        let is_alike = self.header.kind == other.header.kind
            && self.header.sync_size_sectors == other.header.sync_size_sectors
            && self.header.region_bytes == other.header.region_bytes;
        if is_alike {
            other.set_regions().for_each(|region| {
                self.set(region, true);
            });
        }
        is_alike
    }

    /// The bytes of some sectors of the area, as they should be on disk; the header is part of sector 0.
    ///
    /// # Panics
    /// When the range reaches beyond [`BitmapHeader::area_sectors`].
    #[must_use]
    pub fn encode_sectors(&self, sectors: Range<u64>) -> Vec<u8> {
        assert!(
            sectors.end <= self.header.area_sectors(),
            "sectors of this bitmap"
        );
        let bytes = (sectors.start * SECTOR_BYTES) as usize..(sectors.end * SECTOR_BYTES) as usize;
        let mut out = Vec::with_capacity(bytes.len());
        if bytes.start < HEADER_BYTES && !bytes.is_empty() {
            out.extend_from_slice(&self.header.encode()); // sectors are larger than the header
        }
        let from = bytes.start.max(HEADER_BYTES);
        if from < bytes.end {
            out.extend_from_slice(&self.bits[from - HEADER_BYTES..bytes.end - HEADER_BYTES]);
        }
        out
    }

    /// The whole area.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_sectors(0..self.header.area_sectors())
    }
}

impl std::fmt::Debug for Bitmap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bitmap")
            .field("header", &self.header)
            .field("set", &self.count_set())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_bitmap(sync_size_sectors: u64, region_bytes: u32, is_all_set: bool) -> Bitmap {
        Bitmap::create(&NewBitmap {
            uuid: [7; 16],
            events: EventCount(3),
            sync_size_sectors,
            region_bytes,
            reserved_sectors: 256,
            is_all_set,
        })
        .unwrap()
    }

    #[test]
    fn every_bit_lies_where_the_format_says_and_nowhere_else() {
        for count in [1_u64, 7, 8, 9, 2047, 2048, 2049, 5000] {
            let mut bitmap = new_bitmap(count * 8 - 3, 4096, false);
            assert_eq!(bitmap.region_count(), count);
            let clean = bitmap.encode();
            for region in [0, 1, count / 2, count - 1] {
                if region >= count {
                    continue;
                }
                assert!(bitmap.set(region, true));
                assert!(!bitmap.set(region, true), "setting again changes nothing");
                let dirty = bitmap.encode();
                let changed: Vec<usize> = (0..dirty.len())
                    .filter(|index| dirty[*index] != clean[*index])
                    .collect();
                assert_eq!(changed, [256 + (region / 8) as usize]);
                assert_eq!(dirty[changed[0]], 1 << (region % 8));
                assert_eq!(bitmap.set_regions().collect::<Vec<_>>(), [region]);
                assert!(bitmap.set(region, false));
            }
            assert_eq!(bitmap.encode(), clean);
        }
    }

    #[test]
    fn a_lockless_bitmap_proves_only_what_is_clean() {
        let mut area = new_bitmap(128 * 9, 4096, false).encode();
        area.resize(2048, 0xee);
        area[4] = 6;
        area[52..56].copy_from_slice(&128_u32.to_le_bytes()); // sectors
        for (region, state) in (0_u8..8).chain([0xff]).enumerate() {
            area[1024 + region] = state;
        }
        let mut bitmap = Bitmap::parse(&area, 0, 256).unwrap();
        assert_eq!(bitmap.header.region_bytes, 65_536);
        let set: Vec<u64> = bitmap.set_regions().collect();
        assert_eq!(set, [0, 2, 3, 4, 5, 6, 8]);
        assert_eq!(bitmap.encode(), area[..1536]);
        assert!(bitmap.set(0, true) | bitmap.set(3, false));
        assert!(!bitmap.get(3) && bitmap.get(0));
        area[48] = 1 << 3; // first use: no state counts yet
        assert!(BitmapHeader::parse(&area, 0, 256).unwrap().is_stale);
        assert_eq!(Bitmap::parse(&area, 0, 256).unwrap().encode(), area[..1536]);
        for (at, value, field) in [(4, 7, "version"), (49, 1, "state"), (52, 3, "chunksize")] {
            let mut other = area.clone();
            other[at] = value;
            let error = BitmapHeader::parse(&other, 0, 256).unwrap_err();
            assert_eq!(error.field, field);
        }
    }

    #[test]
    fn single_sectors_are_pieces_of_the_whole_area() {
        let bitmap = new_bitmap(80_000, 4096, true);
        let whole = bitmap.encode();
        let count = bitmap.header.area_sectors();
        let pieces: Vec<u8> = (0..count)
            .flat_map(|s| bitmap.encode_sectors(s..s + 1))
            .collect();
        assert_eq!(pieces, whole);
    }

    #[test]
    fn the_default_region_is_the_largest_that_gives_1024() {
        let mebi = 2048; // sectors
        assert_eq!(default_region_bytes(1), 64 << 10);
        assert_eq!(default_region_bytes(64 * mebi), 64 << 10);
        assert_eq!(default_region_bytes(128 * mebi), 128 << 10);
        assert_eq!(default_region_bytes(128 * mebi - 1), 128 << 10);
        assert_eq!(default_region_bytes(128 * mebi - 256), 64 << 10);
        assert_eq!(default_region_bytes(u64::MAX), 64 << 20);
    }

    #[test]
    fn the_last_region_is_cut_at_the_end() {
        let bitmap = new_bitmap(100, 4096, true);
        assert_eq!(bitmap.region_count(), 13);
        assert_eq!(bitmap.sectors_of(12), 96..100);
        assert_eq!(bitmap.count_set(), 13);
        assert_eq!(bitmap.region_of(99), 12);
    }

    #[test]
    fn merging_takes_set_bits_only_from_a_bitmap_of_the_same_shape() {
        let mut first = new_bitmap(800, 4096, false);
        let mut second = first.clone();
        first.set(3, true);
        second.set(64, true);
        assert!(first.merge(&second));
        assert_eq!(first.set_regions().collect::<Vec<_>>(), [3, 64]);
        assert!(!first.merge(&new_bitmap(800, 8192, true)));
        assert_eq!(first.count_set(), 2);
    }

    #[test]
    fn an_area_that_would_reach_beyond_its_room_is_refused() {
        let bitmap = new_bitmap(80_000, 4096, true);
        let area = bitmap.encode();
        let needed = bitmap.header.area_sectors();
        assert_eq!(Bitmap::parse(&area, 8192, needed), Ok(bitmap.clone()));
        let error = Bitmap::parse(&area, 8192, needed - 1).unwrap_err();
        assert_eq!((error.field, error.offset_bytes), ("sync_size", 8192 + 40));
        assert_eq!(
            Bitmap::parse(&area[..area.len() - 1], 0, needed)
                .unwrap_err()
                .problem,
            Problem::TooShort
        );
    }
}
