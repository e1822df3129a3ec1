//! Plexum's stripe log: the header of a member's ring, and the batches of records in it.
//!
//! Each member has a ring of its own in space that md leaves free (`area.rs`, L1). A batch is what one group commit
//! writes to one member: a page that names the records, then their blocks, one after another. Batches of a member are
//! numbered without a gap and never run over the end of the ring, so a reader follows them from the place that the
//! header names and never takes a client's data for a batch. A member that joins while the log lives begins with the
//! sequence of the next record as its number: a device that was a member before finds none of its old batches there.
//!
//! Invariants:
//! - a header or batch is taken only with right magic, checksum, identity and bounds; a chain that ends is no error;
//! - nothing is allocated or multiplied from a value on the disk before it was checked;
//! - all of a header that matters is in its first sector, so that a torn write leaves the old one or the new one.
//!
//! Source: write-order.md L1, L2, L6.

pub mod area;
#[cfg(test)]
mod tests;

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::describe::{Field, List};
use crate::error::{FormatError, Problem, StructurePlace};
use crate::md::Superblock;
use crate::md::ppl::crc32c;
use crate::md5::md5;
use crate::units::SECTOR_BYTES;

pub use area::{LogArea, NoLog, check_area, plan_area};

pub use batch::{Batch, Record, batch_bytes, block_checksum};

/// Bytes of a header's place and of a batch's first page.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of a header that carry anything: one sector, the unit that is written whole or not at all (W10).
const HEADER_BYTES: usize = 512;
/// Most records in one batch of one member.
pub const BATCH_RECORDS_MAX: usize = 63;
/// Most slots of an array that has a log: bits of [`Slots`].
pub const SLOTS_MAX: usize = 256;

const HEADER_MAGIC: [u8; 16] = *b"Plexum log ring\0";
const BATCH_MAGIC: [u8; 8] = *b"PlxBatch";
const VERSION: u32 = 1;
const HEADER: &str = "stripe log header";
const BATCH: &str = "stripe log batch";
/// Header flag: answered writes may be in the log only (L5).
const WRITE_BACK: u32 = 1;

/// Header exactly as on disk, little-endian; the rest of its page is zero.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawLogHeader {
    magic: [u8; 16],           // 0
    version: U32,              // 16
    checksum: U32,             // 20, CRC-32C of the 512 bytes with this field 0
    array_uuid: [u8; 16],      // 24
    device_uuid: [u8; 16],     // 40, of the member
    log_id: U64,               // 56, changes with each life of the log
    epoch: U64,                // 64, counts the lives of the log
    tail_sequence: U64,        // 72, records below are on all members
    joined_sequence: U64,      // 80, records below never were on this member
    start_position: U64,       // 88, of the first batch, in bytes since the ring began
    start_batch: U64,          // 96, its number
    superblock: [u8; 16],      // 104, hash of the member's superblock
    next_superblock: [u8; 16], // 120, hash of the one being committed, or zero
    doubt_from: U64, // 136, member bytes below have right parity but for the log; all ones: everywhere
    ring_sector: U64, // 144, first sector of the ring
    ring_bytes: U64, // 152
    data_sector: U64, // 160, first data sector of the member
    component_sectors: U64, // 168
    strip_sectors: U32, // 176
    level: U32,      // 180
    layout: U32,     // 184
    member_count: U32, // 188
    flags: U32,      // 192, 1: write-back
    reserved: [u8; 316], // 196
}
const _: () = assert!(size_of::<RawLogHeader>() == HEADER_BYTES);
const _: () = assert!(offset_of!(RawLogHeader, flags) == 192);

/// Record exactly as in a batch's page, little-endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawRecord {
    sequence: U64,     // 0
    row: U64,          // 8
    start_bytes: U32,  // 16, of the part within the strip
    length_bytes: U32, // 20
    checksum: U32,     // 24, CRC-32C of this member's block
    slot: U16,         // 28, of this member
    reserved: U16,     // 30
    touched: [u8; 32], // 32, one bit for each slot that the write touches
}

/// First page of a batch exactly as on disk, little-endian; the blocks of its records follow.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawBatch {
    magic: [u8; 8],                          // 0
    checksum: U32,                           // 8, CRC-32C of the page with this field 0
    record_count: U32,                       // 12
    log_id: U64,                             // 16
    number: U64,                             // 24, counts the batches of this member
    position: U64,                           // 32, in bytes since the ring began
    reserved: [u8; 24],                      // 40
    records: [RawRecord; BATCH_RECORDS_MAX], // 64
}
const _: () = assert!(size_of::<RawRecord>() == 64 && size_of::<RawBatch>() == PAGE_BYTES);
const _: () = assert!(offset_of!(RawBatch, records) == 64);

macro_rules! at {
    ($raw:ident, $field:ident) => {
        offset_of!($raw, $field) as u64
    };
}

mod batch;

/// A set of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Slots([u8; SLOTS_MAX / 8]);

impl Slots {
    /// Adds a slot.
    ///
    /// # Panics
    /// At [`SLOTS_MAX`] and above: arrays that large have no log.
    pub fn insert(&mut self, slot: usize) {
        self.0[slot / 8] |= 1 << (slot % 8);
    }

    /// Whether the slot is in the set.
    #[must_use]
    pub fn contains(&self, slot: usize) -> bool {
        self.0
            .get(slot / 8)
            .is_some_and(|byte| byte >> (slot % 8) & 1 == 1)
    }

    /// The slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..SLOTS_MAX).filter(|slot| self.contains(*slot))
    }
}

/// What the rows of a log mean; must be that of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogGeometry {
    /// First data sector of the member.
    pub data_sector: u64,
    /// Sectors used of each member.
    pub component_sectors: u64,
    /// Strip size.
    pub strip_sectors: u32,
    /// md's level number.
    pub level: i32,
    /// md's layout number.
    pub layout: u32,
    /// Number of slots.
    pub member_count: u32,
}

impl LogGeometry {
    /// That of a member.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Self {
        Self {
            data_sector: superblock.data_offset_sectors,
            component_sectors: superblock.component_sectors,
            strip_sectors: superblock.strip_sectors,
            level: superblock.level,
            layout: superblock.layout,
            member_count: superblock.member_count,
        }
    }
}

/// Hash by which a log's header names a superblock (L6): of the bytes as they are on the member, whole sectors.
#[must_use]
pub fn superblock_hash(superblock: &Superblock) -> [u8; 16] {
    md5(&superblock.encode()[..superblock.write_bytes(SECTOR_BYTES as usize)])
}

/// Identity of a new life of the log, from the last one and what the array is now; never equal by accident.
#[must_use]
pub fn next_log_id(last_log_id: u64, epoch: u64, superblock: &[u8; 16]) -> u64 {
    let mut bytes = superblock.to_vec();
    bytes.extend_from_slice(&last_log_id.to_le_bytes());
    bytes.extend_from_slice(&epoch.to_le_bytes());
    let digest = md5(&bytes);
    u64::from_le_bytes(*digest.first_chunk().expect("a digest has 16 bytes"))
}

/// The header of a member's ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogHeader {
    /// The array.
    pub array_uuid: [u8; 16],
    /// The member.
    pub device_uuid: [u8; 16],
    /// Identity of this life of the log; batches of another one do not count.
    pub log_id: u64,
    /// Number of this life.
    pub epoch: u64,
    /// Every record below is on all members, flushed (W2).
    pub tail_sequence: u64,
    /// Records below were never meant for this member.
    pub joined_sequence: u64,
    /// Where the chain of batches begins, in bytes since the ring began (never wraps).
    pub start_position: u64,
    /// Number of the batch there.
    pub start_batch: u64,
    /// Hash of the superblock on the member (L6).
    pub superblock: [u8; 16],
    /// Hash of the superblock that is being committed; zero: none is.
    pub next_superblock: [u8; 16],
    /// Below this member byte parity is right everywhere but for what the log holds; `None`: everywhere.
    pub doubt_from_bytes: Option<u64>,
    /// Answered writes may be in the log only (L5).
    pub is_write_back: bool,
    /// Place of the ring.
    pub area: LogArea,
    /// What the rows mean.
    pub geometry: LogGeometry,
}

impl LogHeader {
    /// The header of a log that was never used, for a member in `area`.
    #[must_use]
    pub fn blank(superblock: &Superblock, area: LogArea) -> Self {
        Self {
            array_uuid: superblock.array_uuid,
            device_uuid: superblock.device_uuid,
            log_id: 0,
            epoch: 0,
            tail_sequence: 0,
            joined_sequence: 0,
            start_position: 0,
            start_batch: 0,
            superblock: [0; 16],
            next_superblock: [0; 16],
            doubt_from_bytes: Some(0),
            is_write_back: false,
            area,
            geometry: LogGeometry::of(superblock),
        }
    }

    /// Reads the page that lies at `offset_bytes` of the member.
    ///
    /// # Errors
    /// [`Problem::NoMagic`] when there is no header, else the first field that cannot be.
    pub fn parse(page: &[u8], offset_bytes: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: HEADER,
            base_bytes: offset_bytes,
        };
        let Ok((raw, _)) = RawLogHeader::ref_from_prefix(page) else {
            let (found, expected) = (page.len(), HEADER_BYTES);
            return Err(place.error(Problem::TooShort, 0, "area", found, expected));
        };
        if raw.magic != HEADER_MAGIC {
            return Err(place.error(Problem::NoMagic, 0, "magic", "another", "a log's"));
        }
        let (found, expected) = (raw.checksum.get(), header_checksum(raw));
        if found != expected {
            let at = at!(RawLogHeader, checksum);
            let found = format!("{found:#010x}");
            let expected = format!("{expected:#010x}");
            return Err(place.error(Problem::Checksum, at, "checksum", found, expected));
        }
        let version = raw.version.get();
        if version != VERSION {
            let at = at!(RawLogHeader, version);
            return Err(place.error(Problem::Unsupported, at, "version", version, VERSION));
        }
        let flags = raw.flags.get();
        if flags & !WRITE_BACK != 0 {
            let at = at!(RawLogHeader, flags);
            return Err(place.error(Problem::Unsupported, at, "flags", flags, "0 or 1"));
        }
        let header = Self::decode(raw);
        header.check(place)?;
        Ok(header)
    }

    fn decode(raw: &RawLogHeader) -> Self {
        let doubt = raw.doubt_from.get();
        Self {
            array_uuid: raw.array_uuid,
            device_uuid: raw.device_uuid,
            log_id: raw.log_id.get(),
            epoch: raw.epoch.get(),
            tail_sequence: raw.tail_sequence.get(),
            joined_sequence: raw.joined_sequence.get(),
            start_position: raw.start_position.get(),
            start_batch: raw.start_batch.get(),
            superblock: raw.superblock,
            next_superblock: raw.next_superblock,
            doubt_from_bytes: (doubt != u64::MAX).then_some(doubt),
            is_write_back: raw.flags.get() & WRITE_BACK != 0,
            area: LogArea {
                ring_sector: raw.ring_sector.get(),
                ring_bytes: raw.ring_bytes.get(),
            },
            geometry: LogGeometry {
                data_sector: raw.data_sector.get(),
                component_sectors: raw.component_sectors.get(),
                strip_sectors: raw.strip_sectors.get(),
                level: raw.level.get().cast_signed(),
                layout: raw.layout.get(),
                member_count: raw.member_count.get(),
            },
        }
    }

    fn check(&self, place: StructurePlace) -> Result<(), FormatError> {
        let (area, geometry) = (self.area, self.geometry);
        let at = at!(RawLogHeader, ring_bytes);
        place.check(
            area.is_sane(),
            at,
            "ring_bytes",
            area.ring_bytes,
            "whole pages from 128 KiB to 64 MiB",
        )?;
        let is_before = area
            .end_sector()
            .is_some_and(|end| end <= geometry.data_sector);
        let at = at!(RawLogHeader, ring_sector);
        let expected = format!("an end before the data at sector {}", geometry.data_sector);
        place.check(is_before, at, "ring_sector", area.ring_sector, expected)?;
        let at = at!(RawLogHeader, strip_sectors);
        let strip = geometry.strip_sectors;
        place.check(strip > 0, at, "strip_sectors", strip, "more than 0")?;
        let at = at!(RawLogHeader, member_count);
        let count = geometry.member_count;
        let fits = usize::try_from(count).is_ok_and(|count| count <= SLOTS_MAX);
        place.check(fits, at, "member_count", count, "at most 256")?;
        let at = at!(RawLogHeader, start_position);
        let start = self.start_position;
        // So far from the end of its numbers that nothing in a ring can overflow.
        let fits = start.is_multiple_of(PAGE_BYTES as u64) && start < 1 << 62;
        place.check(fits, at, "start_position", start, "a whole page")
    }

    /// The header's page, checksum computed.
    #[must_use]
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut page = [0; PAGE_BYTES];
        let (raw, _) = RawLogHeader::mut_from_prefix(&mut page).expect("a page is longer");
        raw.magic = HEADER_MAGIC;
        raw.version.set(VERSION);
        raw.array_uuid = self.array_uuid;
        raw.device_uuid = self.device_uuid;
        raw.log_id.set(self.log_id);
        raw.epoch.set(self.epoch);
        raw.tail_sequence.set(self.tail_sequence);
        raw.joined_sequence.set(self.joined_sequence);
        raw.start_position.set(self.start_position);
        raw.start_batch.set(self.start_batch);
        raw.superblock = self.superblock;
        raw.next_superblock = self.next_superblock;
        raw.doubt_from
            .set(self.doubt_from_bytes.unwrap_or(u64::MAX));
        raw.ring_sector.set(self.area.ring_sector);
        raw.ring_bytes.set(self.area.ring_bytes);
        raw.data_sector.set(self.geometry.data_sector);
        raw.component_sectors.set(self.geometry.component_sectors);
        raw.strip_sectors.set(self.geometry.strip_sectors);
        raw.level.set(self.geometry.level.cast_unsigned());
        raw.layout.set(self.geometry.layout);
        raw.member_count.set(self.geometry.member_count);
        raw.flags
            .set(if self.is_write_back { WRITE_BACK } else { 0 });
        let sum = header_checksum(raw);
        raw.checksum.set(sum);
        page
    }

    /// Whether the superblock with this hash is one that Plexum committed last (L6): nobody else has had the member.
    #[must_use]
    pub fn is_bound_to(&self, hash: &[u8; 16]) -> bool {
        *hash != [0; 16] && (self.superblock == *hash || self.next_superblock == *hash)
    }
}

/// Decoded fields of a header; `is_bound`: it names the superblock that is on the member (L6).
#[must_use]
pub fn describe_log(header: &LogHeader, is_bound: bool) -> Vec<Field> {
    let mut list = List::new("plexum stripe log");
    list.add("ring_sector", header.area.ring_sector);
    list.add("ring_bytes", header.area.ring_bytes);
    list.add("epoch", header.epoch);
    list.add("tail_sequence", header.tail_sequence);
    list.add("joined_sequence", header.joined_sequence);
    list.add("start_position_bytes", header.start_position);
    list.add("start_batch", header.start_batch);
    list.add("doubt_from_bytes", header.doubt_from_bytes);
    list.add("is_write_back", header.is_write_back);
    list.add("is_bound", is_bound);
    list.0
}

fn header_checksum(raw: &RawLogHeader) -> u32 {
    let mut raw = raw.clone();
    raw.checksum.set(0);
    crc32c(raw.as_bytes())
}
