//! The GUID partition table: at the start, and its backup at the end.
//!
//! Source: UEFI specification, chapter 5.3.

use super::{PARTITIONS_MAX, Partition, Seen, TABLE_BYTES, Table, Wanted, le32, le64, place_of};

/// Bytes of the longest array of entries that is read.
const ENTRIES_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a header that its own checksum may cover: of the shortest and the longest one.
const HEADER_BYTES: [usize; 2] = [92, 512];

/// A table, and whether both of its checksums are right.
struct Found {
    partitions: Vec<Partition>,
    is_whole: bool,
}

/// The first table that is whole: at the start or at the end; else what the start says. Of sectors of 512 and of 4096
/// bytes, for an image has no sector size of its own.
pub(super) fn partitions(disk_bytes: u64, seen: &Seen) -> Result<Vec<Partition>, Wanted> {
    let mut first = None;
    for sector_bytes in [512, 4096] {
        if let Some(found) = table(disk_bytes, sector_bytes, sector_bytes, Table::Gpt, seen)? {
            if found.is_whole {
                return Ok(found.partitions);
            }
            first = first.or(Some(found.partitions));
        }
    }
    for sector_bytes in [512, 4096] {
        let Some(at) = (disk_bytes / sector_bytes).checked_sub(1) else {
            continue;
        };
        let at = at * sector_bytes;
        if let Some(found) = table(disk_bytes, sector_bytes, at, Table::GptBackup, seen)?
            && found.is_whole
        {
            return Ok(found.partitions);
        }
    }
    Ok(first.unwrap_or_default())
}

/// The table at the start alone.
pub(super) fn at_start(disk_bytes: u64, seen: &Seen) -> Result<Vec<Partition>, Wanted> {
    for sector_bytes in [512, 4096] {
        if let Some(found) = table(disk_bytes, sector_bytes, sector_bytes, Table::Gpt, seen)? {
            return Ok(found.partitions);
        }
    }
    Ok(Vec::new())
}

/// The table whose header is at `at`; `None` when there is none, or an empty one.
fn table(
    disk_bytes: u64,
    sector_bytes: u64,
    at: u64,
    table: Table,
    seen: &Seen,
) -> Result<Option<Found>, Wanted> {
    let header = seen.sector(at, disk_bytes)?;
    if !header.starts_with(b"EFI PART") {
        return Ok(None);
    }
    let number = |at| u64::from(le32(&header, at).unwrap_or(0));
    let (count, each) = (number(80), number(84));
    let start = le64(&header, 72).and_then(|sector| sector.checked_mul(sector_bytes));
    let Some(start) = start.filter(|_| (128..=4096).contains(&each)) else {
        return Ok(None);
    };
    let length = (count * each).min(ENTRIES_BYTES_MAX);
    let Some(end) = start.checked_add(length).filter(|end| *end <= disk_bytes) else {
        return Ok(None);
    };
    let within_head = seen.get(0..TABLE_BYTES.min(disk_bytes))?;
    let entries = match within_head.get(start as usize..end as usize) {
        Some(entries) if end <= TABLE_BYTES => entries,
        _ => seen.get(start..end)?,
    };
    let mut partitions = Vec::new();
    for (entry, number) in entries.chunks_exact(each as usize).zip(1..) {
        let (Some(first), Some(last)) = (le64(entry, 32), le64(entry, 40)) else {
            continue;
        };
        let count = last.checked_sub(first).and_then(|span| span.checked_add(1));
        let place = count.and_then(|count| place_of(first, count, sector_bytes, disk_bytes));
        if entry[..16] == [0; 16] || first == 0 || partitions.len() >= PARTITIONS_MAX {
            continue;
        }
        partitions.extend(place.map(|place| Partition {
            name: format!("p{number}"),
            table,
            place,
        }));
    }
    let is_whole = is_header_whole(&header)
        && count * each == length
        && le32(&header, 88) == Some(crc32(entries));
    Ok((!partitions.is_empty()).then_some(Found {
        partitions,
        is_whole,
    }))
}

fn is_header_whole(header: &[u8; 512]) -> bool {
    let length = le32(header, 12).unwrap_or(0) as usize;
    if !(HEADER_BYTES[0]..=HEADER_BYTES[1]).contains(&length) {
        return false;
    }
    let mut covered = header[..length].to_vec();
    covered[16..20].fill(0);
    le32(header, 16) == Some(crc32(&covered))
}

/// CRC-32 as Ethernet has it. Bit by bit: a table is 16 KiB.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg());
        }
    }
    !sum
}
