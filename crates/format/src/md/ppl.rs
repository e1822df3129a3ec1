//! The partial parity log of a RAID-5: what to XOR after a crash so that parity is right again.
//!
//! Invariants:
//! - a header is taken only with right signature and checksum; a log that ends or is torn is not an error;
//! - nothing is allocated or multiplied from an entry before it was checked against the geometry;
//! - replay is described, not done: a [`ReplayRow`] names array sectors, and whoever knows the layout reads and writes.
//!
//! Source: linux-md.md section 5.

use std::mem::{offset_of, size_of};
use std::ops::Range;

use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, Problem, StructurePlace};
use crate::kept::Kept;
use crate::units::{SECTOR_BYTES, Slot};

/// Bytes of a header; the partial parities of its entries follow.
pub const HEADER_BYTES: usize = 4096;
/// Most entries of a header.
pub const MAX_ENTRIES: usize = 148;
/// Most members of an array with this log.
pub const MAX_MEMBERS: u32 = 64;
/// An area of at least this many sectors is a ring: two headers with 128 KiB each.
pub const RING_SECTORS: u16 = (2 * (128 + 4) * 1024 / SECTOR_BYTES) as u16;

const STRUCTURE: &str = "md partial parity log";
/// Rows are treated in pieces of this size when everything is aligned to it, else by single sectors.
const PAGE_SECTORS: u64 = 8;

/// Entry exactly as on disk, little-endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawEntry {
    data_sector: U64, // 0, array sector of the first changed data
    pp_size: U32,     // 8, bytes of partial parity, 0 for whole rows
    data_size: U32,   // 12, bytes of changed data
    parity_disk: U32, // 16, role
    checksum: U32,    // 20, of the partial parity
}

/// Header exactly as on disk, little-endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    reserved: [u8; 512],              // 0, all 0xff
    signature: U32,                   // 512, CRC-32C of the array UUID
    pad: U32,                         // 516
    generation: U64,                  // 520
    entries_count: U32,               // 528
    checksum: U32,                    // 532, of the 4096 bytes with this field 0
    entries: [RawEntry; MAX_ENTRIES], // 536
    rest: [u8; 8],                    // 4088
}
const _: () = assert!(size_of::<RawEntry>() == 24 && size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RawHeader, entries) == 536);

macro_rules! at {
    ($field:ident) => {
        offset_of!(RawHeader, $field) as u64
    };
}

/// CRC-32C as everybody computes it: of entries, headers and, for the signature, of the array UUID.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The 32-bit algorithms give 32 bits.
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The number that every header of an array's log carries.
#[must_use]
pub fn signature(array_uuid: &[u8; 16]) -> u32 {
    crc32c(array_uuid)
}

/// A group of writes to one or more rows whose parity is on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PplEntry {
    /// Array sector of the first changed data.
    pub data_sector: u64,
    /// Bytes of partial parity; 0 when the rows are written whole.
    pub partial_parity_bytes: u32,
    /// Bytes of changed data in all strips together.
    pub data_bytes: u32,
    /// The member whose parity this is.
    pub parity_slot: Slot,
    /// CRC-32C of the partial parity.
    pub checksum: u32,
}

/// A checked header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PplHeader {
    /// Identifies the array.
    pub signature: u32,
    /// Rises with each header that is written.
    pub generation: u64,
    /// What is logged.
    pub entries: Vec<PplEntry>,
    raw: Kept<HEADER_BYTES>,
}

impl PplHeader {
    /// Checks the 4096 bytes at `offset_bytes` of a member.
    ///
    /// # Errors
    /// [`Problem::Foreign`] for another array's signature, [`Problem::Checksum`], [`Problem::Invalid`] for counts or
    /// roles that cannot be.
    pub fn parse(bytes: &[u8], offset_bytes: u64, signature: u32) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        };
        let Some(area) = bytes.first_chunk::<HEADER_BYTES>() else {
            let found = format!("{} bytes", bytes.len());
            return Err(place.error(Problem::TooShort, 0, "header", found, "4096 bytes"));
        };
        let (raw, _) = RawHeader::ref_from_prefix(area).expect("the area is a header");
        if raw.signature.get() != signature {
            let found = format!("{:08x}", raw.signature.get());
            let expected = format!("{signature:08x}");
            return Err(place.error(
                Problem::Foreign,
                at!(signature),
                "signature",
                found,
                expected,
            ));
        }
        let computed = header_checksum(area);
        if raw.checksum.get() != computed {
            let found = format!("{:08x}", raw.checksum.get());
            let expected = format!("{computed:08x}");
            return Err(place.error(
                Problem::Checksum,
                at!(checksum),
                "checksum",
                found,
                expected,
            ));
        }
        let count = raw.entries_count.get();
        let fits = usize::try_from(count).is_ok_and(|count| count <= MAX_ENTRIES);
        let expected = format!("at most {MAX_ENTRIES}");
        place.check(fits, at!(entries_count), "entries_count", count, expected)?;
        let entries = raw.entries.iter().take(count as usize).enumerate();
        let entries = entries.map(|(index, entry)| decode_entry(entry, index, place));
        Ok(Self {
            signature,
            generation: raw.generation.get(),
            entries: entries.collect::<Result<_, _>>()?,
            raw: Kept::new(*area),
        })
    }

    /// A header for writing.
    ///
    /// # Panics
    /// With more than [`MAX_ENTRIES`] entries.
    #[must_use]
    pub fn new(signature: u32, generation: u64, entries: Vec<PplEntry>) -> Self {
        assert!(entries.len() <= MAX_ENTRIES, "the entries fit a header");
        let mut raw = [0; HEADER_BYTES];
        raw[..512].fill(0xff);
        let header = Self {
            signature,
            generation,
            entries,
            raw: Kept::new(raw),
        };
        Self {
            raw: Kept::new(header.encode()),
            ..header
        }
    }

    /// The header's 4096 bytes, checksum computed.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        assert!(
            self.entries.len() <= MAX_ENTRIES,
            "the entries fit a header"
        );
        let mut area = *self.raw;
        let (raw, _) = RawHeader::mut_from_prefix(&mut area).expect("the area is a header");
        raw.signature.set(self.signature);
        raw.generation.set(self.generation);
        raw.entries_count.set(self.entries.len() as u32);
        for (raw, entry) in raw.entries.iter_mut().zip(&self.entries) {
            raw.data_sector.set(entry.data_sector);
            raw.pp_size.set(entry.partial_parity_bytes);
            raw.data_size.set(entry.data_bytes);
            raw.parity_disk.set(u32::from(entry.parity_slot.0));
            raw.checksum.set(entry.checksum);
        }
        let sum = header_checksum(&area);
        area[offset_of!(RawHeader, checksum)..][..4].copy_from_slice(&sum.to_le_bytes());
        area
    }

    /// Where the partial parity of each entry lies, in bytes from the header's first byte.
    #[must_use]
    pub fn partial_parity_ranges(&self) -> Vec<Range<u64>> {
        let mut next = HEADER_BYTES as u64;
        let ranges = self.entries.iter().map(|entry| {
            let start = next;
            next += u64::from(entry.partial_parity_bytes); // at most 148 * 4 GiB
            start..next
        });
        ranges.collect()
    }

    /// Bytes from this header to the next one.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        let parities = self.partial_parity_ranges();
        parities.last().map_or(HEADER_BYTES as u64, |last| last.end)
    }
}

fn decode_entry(
    raw: &RawEntry,
    index: usize,
    place: StructurePlace,
) -> Result<PplEntry, FormatError> {
    let offset = (offset_of!(RawHeader, entries) + index * size_of::<RawEntry>()) as u64;
    let slot = raw.parity_disk.get();
    let fits = slot < MAX_MEMBERS;
    let expected = format!("below {MAX_MEMBERS}");
    let field_offset = offset + offset_of!(RawEntry, parity_disk) as u64;
    place.check(fits, field_offset, "parity_disk", slot, expected)?;
    Ok(PplEntry {
        data_sector: raw.data_sector.get(),
        partial_parity_bytes: raw.pp_size.get(),
        data_bytes: raw.data_size.get(),
        parity_slot: Slot(slot as u16), // below 64
        checksum: raw.checksum.get(),
    })
}

fn header_checksum(area: &[u8; HEADER_BYTES]) -> u32 {
    let mut area = *area;
    area[offset_of!(RawHeader, checksum)..][..4].fill(0);
    crc32c(&area)
}

/// Follows the headers of a log area (`offset_bytes` of the member) to the newest: where it is in the area, and itself.
/// `None`: the area holds no header of this array.
///
/// A log with one place (`is_ring` false) has its only header at the start.
#[must_use]
pub fn find_newest(
    area: &[u8],
    offset_bytes: u64,
    signature: u32,
    is_ring: bool,
) -> Option<(u64, PplHeader)> {
    let mut newest: Option<(u64, PplHeader)> = None;
    let mut next = 0_u64;
    // Each step goes on by at least a header, so the area's length bounds the loop.
    while let Some(bytes) = usize::try_from(next)
        .ok()
        .and_then(|start| area.get(start..))
    {
        let Ok(header) = PplHeader::parse(bytes, offset_bytes.saturating_add(next), signature)
        else {
            break;
        };
        let is_older = newest
            .as_ref()
            .is_some_and(|(_, last)| header.generation < last.generation);
        if is_older {
            break; // what the ring held before it came round
        }
        let unit = header.unit_bytes();
        newest = Some((next, header));
        if !is_ring {
            break;
        }
        next += unit; // fits: the area has its end far below
    }
    newest
}

/// The geometry that replay needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PplGeometry {
    /// Strip size.
    pub strip_sectors: u32,
    /// Members of a row that hold data: all but one.
    pub data_members: u32,
    /// Size of the array.
    pub array_sectors: u64,
}

/// A piece of a row whose parity has to be made anew.
///
/// Parity = XOR of the data at `data_sectors`, as they are on disk now, and of the partial parity. It goes to the
/// parity member at the same place in its strip. To be left out when one of the data members is missing or not rebuilt
/// that far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayRow {
    /// Array sectors of the changed data, one for each changed strip of the row.
    pub data_sectors: Vec<u64>,
    /// Length of each piece.
    pub length_sectors: u64,
    /// Place of the matching partial parity, in bytes from the start of the entry's; `None`: the row is written whole.
    pub partial_parity_offset_bytes: Option<u64>,
}

impl PplEntry {
    /// The pieces to replay, in ascending order; at most one for each sector of a strip.
    ///
    /// # Errors
    /// [`Problem::Invalid`] when the entry does not describe rows of that geometry.
    pub fn replay_rows(&self, geometry: &PplGeometry) -> Result<Vec<ReplayRow>, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: 0,
        };
        let strip = u64::from(geometry.strip_sectors);
        let (parity, data) = (
            u64::from(self.partial_parity_bytes),
            u64::from(self.data_bytes),
        );
        let is_whole =
            data > 0 && data.is_multiple_of(SECTOR_BYTES) && parity.is_multiple_of(SECTOR_BYTES);
        place.check(
            is_whole && strip > 0,
            12,
            "data_size",
            data,
            "whole sectors, not 0",
        )?;
        let data_members = u64::from(geometry.data_members);
        let changed = data.checked_div(parity).unwrap_or(data_members); // 0: whole rows
        let fits = (1..=data_members).contains(&changed) && data.is_multiple_of(changed);
        let expected = format!("pieces of 1 to {data_members} strips of equal length");
        place.check(fits, 12, "data_size", data, expected)?;
        let length = data / changed / SECTOR_BYTES;
        let fits = parity == 0 || parity == length * SECTOR_BYTES;
        place.check(fits, 8, "pp_size", parity, length * SECTOR_BYTES)?;
        let first = self.data_sector;
        let column = first / strip % data_members.max(1);
        let fits = column + changed <= data_members && first % strip + length <= strip;
        let expected =
            format!("a place where {changed} pieces of {length} sectors stay in one row");
        place.check(fits, 0, "data_sector", first, expected)?;
        let end = first.checked_add((changed - 1) * strip + length);
        let fits = end.is_some_and(|end| end <= geometry.array_sectors);
        let expected = format!("an end within {} sectors", geometry.array_sectors);
        place.check(fits, 0, "data_sector", first, expected)?;
        let is_aligned = first.is_multiple_of(PAGE_SECTORS) && length.is_multiple_of(PAGE_SECTORS);
        let piece = if is_aligned { PAGE_SECTORS } else { 1 };
        let rows = (0..length).step_by(piece as usize).map(|from| ReplayRow {
            data_sectors: (0..changed)
                .map(|index| first + from + index * strip)
                .collect(),
            length_sectors: piece,
            partial_parity_offset_bytes: (parity > 0).then_some(from * SECTOR_BYTES),
        });
        Ok(rows.collect())
    }

    /// Whether `partial_parity` is what was logged.
    #[must_use]
    pub fn matches(&self, partial_parity: &[u8]) -> bool {
        partial_parity.len() as u64 == u64::from(self.partial_parity_bytes)
            && (partial_parity.is_empty() || crc32c(partial_parity) == self.checksum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: PplGeometry = PplGeometry {
        strip_sectors: 128,
        data_members: 3,
        array_sectors: 1 << 20,
    };

    fn entry(data_sector: u64, partial_parity_bytes: u32, data_bytes: u32) -> PplEntry {
        PplEntry {
            data_sector,
            partial_parity_bytes,
            data_bytes,
            parity_slot: Slot(1),
            checksum: 0,
        }
    }

    #[test]
    fn the_checksum_is_the_usual_castagnoli_crc() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn the_newest_header_is_found_wherever_the_ring_is() {
        let make = |generation: u64, bytes: u32| {
            let entries = vec![entry(0, bytes, bytes)];
            let mut unit = PplHeader::new(7, generation, entries).encode().to_vec();
            unit.resize(unit.len() + bytes as usize, 0x33);
            unit
        };
        let mut ring = [make(5, 4096), make(6, 0), make(7, 8192), make(4, 0)].concat();
        let (offset, header) = find_newest(&ring, 8192, 7, true).unwrap();
        assert_eq!((offset, header.generation), (8192 + 4096, 7));
        assert_eq!(find_newest(&ring, 8192, 7, false).unwrap().1.generation, 5);
        assert_eq!(find_newest(&ring, 8192, 8, true), None);
        ring[8192 + 600] ^= 1; // inside the second header
        assert_eq!(find_newest(&ring, 8192, 7, true).unwrap().1.generation, 5);
        ring[600] ^= 1;
        assert_eq!(find_newest(&ring, 8192, 7, true), None);
    }

    #[test]
    fn rows_name_the_changed_strips_and_their_partial_parity() {
        // Two strips of the second row changed, 8 KiB each.
        let rows = entry(3 * 128 + 128 + 8, 8192, 16384)
            .replay_rows(&GEOMETRY)
            .unwrap();
        let first = 3 * 128 + 128 + 8;
        assert_eq!(
            rows,
            [(0, 0), (8, 4096)].map(|(from, offset)| ReplayRow {
                data_sectors: vec![first + from, first + from + 128],
                length_sectors: 8,
                partial_parity_offset_bytes: Some(offset),
            })
        );
        let whole = entry(384, 0, 3 * 65536).replay_rows(&GEOMETRY).unwrap();
        assert_eq!(whole.len(), 16);
        assert_eq!(whole[15].data_sectors, [384 + 120, 512 + 120, 640 + 120]);
        assert_eq!(whole[15].partial_parity_offset_bytes, None);
        assert_eq!(
            entry(3, 512, 512).replay_rows(&GEOMETRY).unwrap()[0].length_sectors,
            1
        );
    }

    #[test]
    fn entries_that_fit_no_row_are_refused() {
        for (entry, field) in [
            (entry(0, 0, 0), "data_size"),
            (entry(0, 0, 100), "data_size"),
            (entry(0, 4096, 2048), "data_size"),
            (entry(0, 512, 4 * 512), "data_size"),
            (entry(0, 4096, 4096 + 512), "pp_size"),
            (entry(256, 4096, 8192), "data_sector"),
            (entry(120, 8192, 8192), "data_sector"),
            (entry(u64::MAX - 7, 512, 512), "data_sector"),
            (entry(1 << 20, 4096, 4096), "data_sector"),
            (entry(0, u32::MAX - 511, u32::MAX - 511), "data_sector"),
        ] {
            let error = entry.replay_rows(&GEOMETRY).unwrap_err();
            assert_eq!(error.field, field, "{entry:?}: {error}");
        }
        let none = PplGeometry {
            strip_sectors: 0,
            data_members: 0,
            array_sectors: 0,
        };
        assert!(entry(0, 0, 512).replay_rows(&none).is_err());
    }
}
