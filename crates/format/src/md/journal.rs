//! The write journal of a RAID-4/5/6: recognised, described and read, never written.
//!
//! Invariants:
//! - a meta block is taken only with right checksum and a payload list that ends inside the block.
//!
//! Source: linux-md.md section 6.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{FormatError, Problem, StructurePlace};
use crate::units::SECTOR_BYTES;

/// Bytes of a meta block.
pub const META_BYTES: usize = 4096;
const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const STRUCTURE: &str = "md write journal";

/// Head of a meta block exactly as on disk, little-endian.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawMeta {
    magic: U32,     // 0
    checksum: U32,  // 4, raw CRC-32C seeded by the array UUID, with this field 0
    version: u8,    // 8
    pad: [u8; 3],   // 9
    meta_size: U32, // 12, bytes in use
    seq: U64,       // 16
    position: U64,  // 24, sector of this block, from the data offset
}
const _: () = assert!(size_of::<RawMeta>() == 32);

/// Head of a payload exactly as on disk; checksums of 4 bytes for each 4 KiB follow (flush: stripe sectors of 8 bytes).
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawPayload {
    kind: U16,     // 0
    flags: U16,    // 2
    size: U32,     // 4, sectors; flush: bytes of the list
    location: U64, // 8, data: array sector, parity: member sector; flush: first stripe
}
const PAYLOAD_HEAD_BYTES: usize = 8;

/// What a payload holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PayloadKind {
    /// Data blocks of the array.
    Data,
    /// Parity blocks.
    Parity,
    /// Stripes that are on the members by now.
    Flush,
}

/// A payload of a meta block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalPayload {
    /// What it holds.
    pub kind: PayloadKind,
    /// Sectors of data or parity; 0 for a flush.
    pub size_sectors: u32,
    /// Data: array sector. Parity: member sector. Flush: first stripe's sector.
    pub location_sectors: u64,
    /// Of each 4 KiB of data or parity.
    pub checksums: Vec<u32>,
    /// Flush: the sectors of all stripes that are on the members.
    pub stripes_sectors: Vec<u64>,
}

/// A checked meta block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalMeta {
    /// Number of the block in the ring's history.
    pub sequence: u64,
    /// Its own sector, from the journal's data offset.
    pub position_sectors: u64,
    /// What follows it.
    pub payloads: Vec<JournalPayload>,
}

impl JournalMeta {
    /// Checks the 4096 bytes at `offset_bytes` of the journal device of the array with that UUID.
    ///
    /// # Errors
    /// [`Problem::NoMagic`], [`Problem::Checksum`], or [`Problem::Invalid`] for a payload list that cannot be.
    pub fn parse(
        bytes: &[u8],
        offset_bytes: u64,
        array_uuid: &[u8; 16],
    ) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        };
        let Some(area) = bytes.first_chunk::<META_BYTES>() else {
            let found = format!("{} bytes", bytes.len());
            return Err(place.error(Problem::TooShort, 0, "meta block", found, "4096 bytes"));
        };
        let (raw, _) = RawMeta::ref_from_prefix(area).expect("the area is longer than the head");
        if raw.magic.get() != MAGIC {
            let found = format!("{:#010x}", raw.magic.get());
            let expected = format!("{MAGIC:#010x}");
            return Err(place.error(Problem::NoMagic, 0, "magic", found, expected));
        }
        if raw.version != VERSION {
            let offset = offset_of!(RawMeta, version) as u64;
            return Err(place.error(
                Problem::Unsupported,
                offset,
                "version",
                raw.version,
                VERSION,
            ));
        }
        let computed = checksum(area, array_uuid);
        if raw.checksum.get() != computed {
            let found = format!("{:08x}", raw.checksum.get());
            let expected = format!("{computed:08x}");
            return Err(place.error(Problem::Checksum, 4, "checksum", found, expected));
        }
        let size = raw.meta_size.get();
        let used = usize::try_from(size)
            .ok()
            .filter(|size| (size_of::<RawMeta>()..=META_BYTES).contains(size));
        let offset = offset_of!(RawMeta, meta_size) as u64;
        let wrong_size = || {
            place.error(
                Problem::Invalid,
                offset,
                "meta_size",
                size,
                "32 to 4096 bytes",
            )
        };
        let used = used.ok_or_else(wrong_size)?;
        Ok(Self {
            sequence: raw.seq.get(),
            position_sectors: raw.position.get(),
            payloads: parse_payloads(&area[..used], place)?,
        })
    }
}

fn parse_payloads(used: &[u8], place: StructurePlace) -> Result<Vec<JournalPayload>, FormatError> {
    let mut payloads = Vec::new();
    let mut offset = size_of::<RawMeta>();
    while offset < used.len() {
        let wrong = |field: &'static str, found: String, expected: &str| {
            place.error(Problem::Invalid, offset as u64, field, found, expected)
        };
        let Ok((raw, _)) = RawPayload::ref_from_prefix(&used[offset..]) else {
            let found = format!("{} bytes", used.len() - offset);
            return Err(wrong("payload", found, "16 bytes of head"));
        };
        let size = raw.size.get();
        let pages = u64::from(size).div_ceil(META_BYTES as u64 / SECTOR_BYTES);
        let (kind, size_sectors, list_bytes) = match raw.kind.get() {
            0 => (PayloadKind::Data, size, 8 + 4 * pages),
            1 => (PayloadKind::Parity, size, 8 + 4 * pages),
            2 => (PayloadKind::Flush, 0, u64::from(size)),
            other => return Err(wrong("payload type", other.to_string(), "0, 1 or 2")),
        };
        let rest = (used.len() - offset - PAYLOAD_HEAD_BYTES) as u64;
        if list_bytes > rest || list_bytes < 8 {
            return Err(wrong(
                "payload size",
                size.to_string(),
                "a list that ends in the block",
            ));
        }
        let location_sectors = raw.location.get();
        // A flush's list begins where the others have their location.
        let list_from = offset + PAYLOAD_HEAD_BYTES;
        let list = &used[list_from..list_from + list_bytes as usize];
        let (mut checksums, mut stripes_sectors) = (Vec::new(), Vec::new());
        if kind == PayloadKind::Flush {
            let words = list.chunks_exact(8).filter_map(<[u8]>::first_chunk);
            stripes_sectors.extend(words.map(|word| u64::from_le_bytes(*word)));
        } else {
            let words = list[8..].chunks_exact(4).filter_map(<[u8]>::first_chunk);
            checksums.extend(words.map(|word| u32::from_le_bytes(*word)));
        }
        payloads.push(JournalPayload {
            kind,
            size_sectors,
            location_sectors,
            checksums,
            stripes_sectors,
        });
        // No padding between payloads. Each step is at least 16 bytes, so the block bounds the loop.
        offset += PAYLOAD_HEAD_BYTES + list_bytes as usize;
    }
    Ok(payloads)
}

fn checksum(area: &[u8; META_BYTES], array_uuid: &[u8; 16]) -> u32 {
    let mut block = *area;
    block[4..8].fill(0);
    block_checksum(&block, array_uuid)
}

/// The kernel's raw CRC (no final inversion) over a block, continued from the raw CRC of the array's UUID.
#[must_use]
pub fn block_checksum(block: &[u8], array_uuid: &[u8; 16]) -> u32 {
    // raw(seed = !0, x) is the usual CRC of x inverted, and continuing works on the concatenation.
    let mut both = array_uuid.to_vec();
    both.extend_from_slice(block);
    !super::ppl::crc32c(&both)
}
