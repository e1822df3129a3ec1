//! What a guest asks of the disk: the head of a request, and the ranges of discards and zeroes.
//!
//! Source: the virtio specification 1.2, section 5.2.6. The bytes that the device reads begin with 16 bytes,
//! little-endian: type (4), reserved (4), sector of 512 bytes (8). The last byte that the device writes is the status.
//! Descriptors may be cut anywhere. A range has 16 bytes: sector (8), sectors (4), flags (4; bit 0: space may be given
//! back).
//!
//! Invariants: what is read of the guest's memory is read once; ranges lie in the disk, whole blocks each.

use plexum_front::export::{ExportInfo, REQUEST_BYTES_MAX};
use plexum_front::memory::{Memory, Part};

use crate::chain::{Chain, Scattered, length_of};
use crate::config::{RANGES_MAX, SECTOR_BYTES, block_bytes};
use crate::peer::Mapping;
use crate::table::Table;

/// Length in bytes of the head of a request.
pub const HEAD_BYTES: usize = 16;
const RANGE_BYTES: usize = 16;
/// Length in bytes of the name that a guest is told.
pub const IDENTITY_BYTES: usize = 20;

mod kind {
    pub const IN: u32 = 0;
    pub const OUT: u32 = 1;
    pub const FLUSH: u32 = 4;
    pub const GET_ID: u32 = 8;
    pub const DISCARD: u32 = 11;
    pub const WRITE_ZEROES: u32 = 13;
}

/// Bit 0 of a range of zeroes.
const UNMAP: u32 = 1;

/// What a guest is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done.
    Ok,
    /// It is not, or not wholly.
    Failed,
    /// Nobody does that here.
    Unsupported,
}

impl Status {
    /// As the guest reads it.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Unsupported => 2,
        }
    }
}

/// A range of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is.
    pub length_bytes: u64,
    /// Space may be given back; of zeroes alone.
    pub may_unmap: bool,
}

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Reads.
    Read(Range),
    /// Writes; the data come behind the head.
    Write(Range),
    /// What was answered is to be durable.
    Flush,
    /// The name of the disk.
    Identity,
    /// These ranges are not used any more.
    Discard(Vec<Range>),
    /// These ranges are to read as zeroes.
    Zero(Vec<Range>),
}

impl Ask {
    /// How many bytes of data it moves.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Read(range) | Self::Write(range) => range.length_bytes,
            _ => 0,
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// What the guest is answered instead.
    pub fn parse<M: Mapping>(
        chain: &Chain,
        table: &Table<M>,
        info: &ExportInfo,
    ) -> Result<Self, Status> {
        let head: [u8; HEAD_BYTES] = loaded(chain, table, 0).ok_or(Status::Failed)?;
        let behind = length_of(&chain.readable) - HEAD_BYTES as u64;
        // The last byte is the status; that there is one was looked at by whoever answers.
        let written = length_of(&chain.writable).saturating_sub(1);
        let (kind, sector) = (le32(&head, 0), le64(&head, 8));
        match kind {
            kind::IN => data_range(info, (sector, written)).map(Self::Read),
            kind::OUT if info.is_read_only => Err(Status::Failed),
            kind::OUT => data_range(info, (sector, behind)).map(Self::Write),
            kind::FLUSH => Ok(Self::Flush),
            kind::GET_ID if written >= IDENTITY_BYTES as u64 => Ok(Self::Identity),
            kind::GET_ID => Err(Status::Failed),
            kind::DISCARD | kind::WRITE_ZEROES if info.is_read_only => Err(Status::Failed),
            kind::DISCARD | kind::WRITE_ZEROES => {
                let ranges = ranges(chain, table, info, behind, kind)?;
                Ok(match kind {
                    kind::DISCARD => Self::Discard(ranges),
                    _ => Self::Zero(ranges),
                })
            }
            _ => Err(Status::Unsupported),
        }
    }
}

/// Bytes at a place of what the device reads; `None` when there are fewer, or they are not in the machine's memory.
fn loaded<const N: usize, M: Mapping>(
    chain: &Chain,
    table: &Table<M>,
    offset_bytes: usize,
) -> Option<[u8; N]> {
    let part = Part {
        offset_bytes,
        count: N,
    };
    let mut bytes = [0; N];
    let memory = Scattered::new(table, &chain.readable, part)?;
    memory.load(0, &mut bytes).ok()?;
    Some(bytes)
}

fn le32(bytes: &[u8; 16], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn le64(bytes: &[u8; 16], at: usize) -> u64 {
    u64::from(le32(bytes, at)) | u64::from(le32(bytes, at + 4)) << 32
}

/// A range of whole blocks in the disk.
fn checked(info: &ExportInfo, (sector, length_bytes): (u64, u64)) -> Option<Range> {
    let block_bytes = u64::from(block_bytes(info));
    let offset_bytes = sector.checked_mul(SECTOR_BYTES)?;
    let end = offset_bytes.checked_add(length_bytes)?;
    let is_whole =
        offset_bytes.is_multiple_of(block_bytes) && length_bytes.is_multiple_of(block_bytes);
    (is_whole && end <= info.size_bytes).then_some(Range {
        offset_bytes,
        length_bytes,
        may_unmap: false,
    })
}

fn data_range(info: &ExportInfo, (sector, length_bytes): (u64, u64)) -> Result<Range, Status> {
    let is_fine = length_bytes > 0 && length_bytes <= u64::from(REQUEST_BYTES_MAX);
    let range = checked(info, (sector, length_bytes)).filter(|_| is_fine);
    range.ok_or(Status::Failed)
}

fn ranges<M: Mapping>(
    chain: &Chain,
    table: &Table<M>,
    info: &ExportInfo,
    all_bytes: u64,
    kind: u32,
) -> Result<Vec<Range>, Status> {
    let count = all_bytes / RANGE_BYTES as u64;
    if !all_bytes.is_multiple_of(RANGE_BYTES as u64)
        || !(1..=u64::from(RANGES_MAX)).contains(&count)
    {
        return Err(Status::Failed);
    }
    let mut ranges = Vec::with_capacity(count as usize);
    for index in 0..count as usize {
        let at = HEAD_BYTES + index * RANGE_BYTES;
        let bytes: [u8; 16] = loaded(chain, table, at).ok_or(Status::Failed)?;
        let (sector, sectors, flags) = (le64(&bytes, 0), le32(&bytes, 8), le32(&bytes, 12));
        let known = if kind == kind::DISCARD { 0 } else { UNMAP };
        if flags & !known != 0 {
            return Err(Status::Unsupported);
        }
        let range = checked(info, (sector, u64::from(sectors) * SECTOR_BYTES));
        let range = range.ok_or(Status::Failed)?;
        ranges.push(Range {
            may_unmap: flags & UNMAP != 0,
            ..range
        });
    }
    Ok(ranges)
}

/// The name of a disk as a guest is told: its first 20 bytes, in whole characters; the rest is 0.
#[must_use]
pub fn identity(name: &str) -> [u8; IDENTITY_BYTES] {
    let mut end = name.len().min(IDENTITY_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [0; IDENTITY_BYTES];
    bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
    bytes
}
