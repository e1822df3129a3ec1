//! Labels inside of a slice, or at the start of a whole disk: BSD's (`a` to `p`), and those of Solaris (slices 0 to
//! 15).
//!
//! Sources: FreeBSD, `sys/sys/disklabel.h` and `sys/geom/part/g_part_bsd.c`; Linux, `block/partitions/msdos.c`,
//! `sun.c`.

use std::ops::Range;

use super::{Partition, Seen, Table, Wanted, le16, le32, place_of};

/// Magic number of BSD's label, which it has twice.
const BSD_MAGIC: u32 = 0x8256_4557;
/// Where the partitions begin in BSD's label; each has 16 bytes.
const BSD_PARTITIONS: usize = 148;
/// Most partitions that fit in its sector.
const BSD_PARTITIONS_MAX: usize = 22;
/// The partition that stands for all of the slice: `c`.
const BSD_RAW: usize = 2;
/// Magic number of the table of contents of Solaris on PCs.
const VTOC_SANITY: u32 = 0x600d_deee;
/// Magic number at the end of the label of Sun's own machines, big-endian.
const SUN_MAGIC: [u8; 2] = [0xda, 0xbe];

/// The partitions of a label in `slice`, which is called `prefix`.
pub(super) fn labels_in(
    prefix: &str,
    slice: &Range<u64>,
    disk_bytes: u64,
    seen: &Seen,
) -> Result<Vec<Partition>, Wanted> {
    let second = seen.sector(slice.start.saturating_add(512), disk_bytes)?;
    let mut found = bsd(prefix, slice, &second);
    if found.is_empty() {
        found = solaris(prefix, slice, &second);
    }
    if found.is_empty() && slice.start == 0 {
        found = sun(prefix, slice, &seen.sector(0, disk_bytes)?);
    }
    found.retain(|one| {
        one.place != *slice && slice.start <= one.place.start && one.place.end <= slice.end
    });
    Ok(found)
}

fn bsd(prefix: &str, slice: &Range<u64>, label: &[u8; 512]) -> Vec<Partition> {
    let count = usize::from(le16(label, 138).unwrap_or(0)).min(BSD_PARTITIONS_MAX);
    let covered = &label[..BSD_PARTITIONS + 16 * count];
    let sum = covered
        .chunks_exact(2)
        .fold(0, |sum, pair| sum ^ u16::from_le_bytes([pair[0], pair[1]]));
    let has_magic = le32(label, 0) == Some(BSD_MAGIC) && le32(label, 132) == Some(BSD_MAGIC);
    if !has_magic || sum != 0 {
        return Vec::new();
    }
    let sector_bytes = match le32(label, 40) {
        Some(4096) => 4096,
        _ => 512,
    };
    let entry = |number: usize| -> Option<(u64, u64)> {
        let at = BSD_PARTITIONS + 16 * number;
        let (sectors, start) = (le32(label, at)?, le32(label, at + 4)?);
        Some((u64::from(start), u64::from(sectors)))
    };
    let (raw_start, raw_sectors) = entry(BSD_RAW).unwrap_or_default();
    // OpenBSD and NetBSD count from the start of the disk, and `c` is all of it; FreeBSD from where `c` begins.
    let is_absolute = raw_sectors * sector_bytes > slice.end - slice.start;
    let base_bytes = if is_absolute { 0 } else { slice.start };
    (0..count)
        .filter(|number| *number != BSD_RAW)
        .filter_map(|number| {
            let (start, sectors) = entry(number)?;
            let start = if is_absolute {
                start
            } else {
                start.checked_sub(raw_start)?
            };
            let place = place_of(start, sectors, sector_bytes, u64::MAX - base_bytes)?;
            Some(Partition {
                name: format!("{prefix}{}", char::from(b'a' + number as u8)), // at most 22
                table: Table::Bsd,
                place: base_bytes + place.start..base_bytes + place.end,
            })
        })
        .collect()
}

fn solaris(prefix: &str, slice: &Range<u64>, label: &[u8; 512]) -> Vec<Partition> {
    if le32(label, 12) != Some(VTOC_SANITY) || le32(label, 16) != Some(1) {
        return Vec::new();
    }
    let count = usize::from(le16(label, 30).unwrap_or(0)).min(16);
    let places = (0..count).filter_map(|number| {
        let at = 72 + 12 * number;
        let (start, sectors) = (le32(label, at + 4)?, le32(label, at + 8)?);
        let room = u64::MAX - slice.start;
        let place = place_of(u64::from(start), u64::from(sectors), 512, room)?;
        Some((number, slice.start + place.start..slice.start + place.end))
    });
    named(prefix, places)
}

fn sun(prefix: &str, slice: &Range<u64>, label: &[u8; 512]) -> Vec<Partition> {
    let sum = label
        .chunks_exact(2)
        .fold(0, |sum, pair| sum ^ u16::from_be_bytes([pair[0], pair[1]]));
    if label[508..510] != SUN_MAGIC || sum != 0 {
        return Vec::new();
    }
    let word = |at: usize| u64::from(u16::from_be_bytes([label[at], label[at + 1]]));
    let cylinder_sectors = word(436) * word(438);
    let places = (0..8).filter_map(|number| {
        let at = 444 + 8 * number;
        let start = (word(at) << 16 | word(at + 2)).checked_mul(cylinder_sectors)?;
        let sectors = word(at + 4) << 16 | word(at + 6);
        Some((number, place_of(start, sectors, 512, slice.end)?))
    });
    named(prefix, places)
}

fn named(prefix: &str, places: impl Iterator<Item = (usize, Range<u64>)>) -> Vec<Partition> {
    places
        .map(|(number, place)| Partition {
            name: format!("{prefix}s{number}"),
            table: Table::Solaris,
            place,
        })
        .collect()
}
