//! Partitions of a disk, where a member may be: GPT, and the four primary ones of an MBR.
//!
//! Invariants: entries outside of the disk are left out; at most [`PARTITIONS_MAX`] are given.
//! Source: UEFI specification, chapter 5 (GPT header and entries, MBR).

use std::ops::Range;

use super::bytes::{le32, le64};

/// Most partitions that are looked at.
pub const PARTITIONS_MAX: usize = 128;
/// Bytes from the start of a disk that [`partitions`] wants: both tables for sectors of 512 and of 4096 bytes.
pub const TABLE_BYTES: usize = 64 << 10;

/// The byte ranges of the partitions of a disk that begins with `head` and is `disk_bytes` long.
#[must_use]
pub fn partitions(head: &[u8], disk_bytes: u64) -> Vec<Range<u64>> {
    for sector_bytes in [512, 4096] {
        let found = gpt(head, disk_bytes, sector_bytes);
        if !found.is_empty() {
            return found;
        }
    }
    mbr(head, disk_bytes)
}

fn gpt(head: &[u8], disk_bytes: u64, sector_bytes: u64) -> Vec<Range<u64>> {
    let header = head.get(sector_bytes as usize..).unwrap_or_default();
    if header.get(..8) != Some(b"EFI PART".as_slice()) {
        return Vec::new();
    }
    let (Some(table), Some(count), Some(each)) =
        (le64(header, 72), le32(header, 80), le32(header, 84))
    else {
        return Vec::new();
    };
    let each = each as usize;
    let table = usize::try_from(table.saturating_mul(sector_bytes)).unwrap_or(usize::MAX);
    if each < 128 || table >= head.len() {
        return Vec::new();
    }
    let entries = head[table..].chunks_exact(each);
    let entries = entries.take((count as usize).min(PARTITIONS_MAX));
    let used = entries.filter(|entry| entry[..16] != [0; 16]);
    used.filter_map(|entry| {
        let start = le64(entry, 32)?.checked_mul(sector_bytes)?;
        let end = le64(entry, 40)?.checked_add(1)?.checked_mul(sector_bytes)?;
        (start > 0 && start < end && end <= disk_bytes).then_some(start..end)
    })
    .collect()
}

fn mbr(head: &[u8], disk_bytes: u64) -> Vec<Range<u64>> {
    if head.get(510..512) != Some([0x55, 0xaa].as_slice()) {
        return Vec::new();
    }
    let entries = head[446..510].chunks_exact(16);
    let used = entries.filter(|entry| entry[4] != 0 && entry[4] != 0xee);
    used.filter_map(|entry| {
        let start = u64::from(le32(entry, 8)?) * 512;
        let end = start + u64::from(le32(entry, 12)?) * 512;
        (start > 0 && start < end && end <= disk_bytes).then_some(start..end)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpt_partitions_are_found_and_impossible_ones_left_out() {
        let range: Range<u64> = 1 << 20..2 << 20;
        let mut head = vec![0; TABLE_BYTES];
        head[512..520].copy_from_slice(b"EFI PART");
        head[512 + 72] = 2;
        head[512 + 80] = 3;
        head[512 + 84] = 128;
        for (n, (first, last)) in [(2048_u64, 4095_u64), (5000, 4000), (6000, u64::MAX)]
            .iter()
            .enumerate()
        {
            let entry = &mut head[1024 + 128 * n..][..128];
            entry[0] = 1;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        assert_eq!(partitions(&head, 64 << 20), vec![range.clone()]);
        head[512 + 84] = 0;
        assert_eq!(partitions(&head, 64 << 20), []);
    }

    #[test]
    fn primary_partitions_are_found() {
        let range: Range<u64> = 1 << 20..2 << 20;
        let mut head = vec![0; 512];
        head[510..].copy_from_slice(&[0x55, 0xaa]);
        head[446 + 4] = 0x83;
        head[446 + 9] = 8; // sector 2048
        head[446 + 13] = 8;
        assert_eq!(partitions(&head, 64 << 20), vec![range.clone()]);
    }
}
