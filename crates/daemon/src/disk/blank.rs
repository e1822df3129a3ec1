//! Whether a disk is blank: nothing was written where any format that is known has its mark, nor in between as far as
//! it is looked.
//!
//! Invariants:
//! - nothing is written;
//! - a place that cannot be read is no blank one: the error goes to whoever asks.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// So much is looked at from either end. Marks of RAID sets, partition tables, file systems, volume managers and
/// encryption lie within it: the farthest is the second header of LUKS2, below 4 MiB.
const END_BYTES: u64 = 16 << 20;
/// The copies of a btrfs superblock. Source: btrfs on-disk format, "Superblock".
const COPIES: [u64; 2] = [64 << 20, 256 << 30];
/// Places in between, spread evenly: data without a mark (a plain encrypted disk) are all over it.
const SAMPLES: u64 = 256;
/// What is looked at in each of them.
const SAMPLE_BYTES: u64 = 4096;
/// Read at once.
const READ_BYTES: usize = 1 << 20;

/// The first byte that is not zero, among those that are looked at; none of a blank one. May take as long as the disk
/// does: for a thread of its own.
///
/// # Errors
/// Of reading.
pub fn first_written(disk: &File) -> io::Result<Option<u64>> {
    let mut disk_end = disk;
    let size_bytes = disk_end.seek(SeekFrom::End(0))?;
    let mut buffer = vec![0; READ_BYTES];
    for place in places(size_bytes) {
        let mut at = place.start;
        while at < place.end {
            let left = usize::try_from(place.end - at).unwrap_or(READ_BYTES);
            let piece = &mut buffer[..left.min(READ_BYTES)];
            disk.read_exact_at(piece, at)?;
            if let Some(index) = piece.iter().position(|byte| *byte != 0) {
                return Ok(Some(at + index as u64));
            }
            at += piece.len() as u64;
        }
    }
    Ok(None)
}

/// Where it is looked on a disk of this size.
fn places(size_bytes: u64) -> Vec<Range<u64>> {
    let first = 0..END_BYTES.min(size_bytes);
    let last = size_bytes.saturating_sub(END_BYTES)..size_bytes;
    let step = size_bytes / (SAMPLES + 1) / SAMPLE_BYTES * SAMPLE_BYTES;
    let samples = (1..=SAMPLES).map(|number| number * step);
    let single = COPIES.into_iter().chain(samples);
    let single = single.map(|at| at..at.saturating_add(SAMPLE_BYTES).min(size_bytes));
    let all = [first, last].into_iter().chain(single);
    all.filter(|place| !place.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use plexum_format::partition::look_at;
    use plexum_format::{SECTOR_BYTES, detect};

    use super::*;

    /// A sparse file with one byte at `at`, where one is given.
    fn disk(size_bytes: u64, at: Option<u64>) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size_bytes).unwrap();
        if let Some(at) = at {
            file.write_all_at(&[1], at).unwrap();
        }
        file
    }

    #[test]
    fn everything_that_a_format_looks_at_is_looked_at() {
        let sizes = [1 << 20, 40 << 20, 1 << 30, (2000 << 30) + 512, 22 << 40];
        for size_bytes in sizes {
            let mut read = Vec::new();
            let mut reader = |offset: u64, buffer: &mut [u8]| {
                read.push(offset..offset + buffer.len() as u64);
                buffer.fill(0);
                Ok::<(), Infallible>(())
            };
            let Ok(_) = detect(size_bytes / SECTOR_BYTES, &mut reader);
            let _ = look_at(size_bytes, &mut reader);
            assert!(read.len() > 5, "it looks somewhere");
            let places = places(size_bytes);
            for one in read {
                let covers = |place: &Range<u64>| place.start <= one.start && one.end <= place.end;
                assert!(places.iter().any(covers), "{one:?} of {size_bytes}");
            }
        }
    }

    #[test]
    fn a_single_byte_at_an_end_or_where_copies_lie_makes_it_written() {
        let size_bytes = 300 << 30;
        assert_eq!(first_written(&disk(size_bytes, None)).unwrap(), None);
        let copies = [64 << 20, 256 << 30];
        let ends = [
            0,
            1,
            (16 << 20) - 1,
            size_bytes - (16 << 20),
            size_bytes - 1,
        ];
        for at in ends.into_iter().chain(copies) {
            let found = first_written(&disk(size_bytes, Some(at))).unwrap();
            assert_eq!(found, Some(at));
        }
        // Of what lies all over a disk something is met.
        let file = disk(size_bytes, None);
        for at in (1 << 30..size_bytes - (1 << 30)).step_by(128 << 20) {
            file.write_all_at(&[1; 8192], at / 8192 * 8192).unwrap();
        }
        let step = size_bytes / 257 / 4096 * 4096;
        file.write_all_at(&[7], 100 * step + 9).unwrap();
        assert!(first_written(&file).unwrap().is_some());
    }

    #[test]
    fn a_disk_smaller_than_what_is_looked_at_is_looked_at_as_a_whole() {
        for at in [0, 4095, 500_000, (1 << 20) - 1] {
            let found = first_written(&disk(1 << 20, Some(at))).unwrap();
            assert_eq!(found, Some(at));
        }
        assert_eq!(first_written(&disk(0, None)).unwrap(), None);
    }
}
