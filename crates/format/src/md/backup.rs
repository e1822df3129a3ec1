//! mdadm's backup file: what a reshape in place overwrites next.
//!
//! Invariants:
//! - its two "checksums" are the same in every file, so they prove nothing: identity, ranges and lengths are compared
//!   instead;
//! - a section lies wholly in the file.
//!
//! Source: md-reshape.md section 5.

use std::mem::size_of;
use std::ops::Range;

use zerocopy::byteorder::little_endian::U64;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::error::{FormatError, Problem, StructurePlace};
use crate::units::SECTOR_BYTES;

/// Bytes of the header.
pub const BACKUP_HEADER_BYTES: usize = 512;
const STRUCTURE: &str = "mdadm backup file";
const MAGIC_ONE: &[u8; 16] = b"md_backup_data-1";
const MAGIC_TWO: &[u8; 16] = b"md_backup_data-2";

/// Header exactly as on disk, little-endian.
#[derive(FromBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBackup {
    magic: [u8; 16],    // 0
    set_uuid: [u8; 16], // 16
    mtime: U64,         // 32, seconds
    devstart: U64,      // 40, sector of the first section in the file
    arraystart: U64,    // 48, array sector that it was taken from
    length: U64,        // 56, sectors; 0: empty
    checksum: U64,      // 64, proves nothing
    devstart2: U64,     // 72, from devstart
    arraystart2: U64,   // 80
    length2: U64,       // 88
}
const _: () = assert!(size_of::<RawBackup>() == 96);

/// Data of the array that were copied before they were overwritten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSection {
    /// Bytes of the array.
    pub array_bytes: Range<u64>,
    /// Where they begin in the file.
    pub file_bytes: u64,
}

/// A backup file's header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupHeader {
    /// Array that it belongs to: the bytes of the field.
    pub set_uuid: [u8; 16],
    /// When it was written, in seconds since 1970.
    pub mtime_seconds: u64,
    /// Sections that are not empty.
    pub sections: Vec<BackupSection>,
}

impl BackupHeader {
    /// Decodes the header of a file of `file_bytes`.
    ///
    /// # Errors
    /// [`Problem::NoMagic`], or [`Problem::Invalid`] for a section that does not lie in the file.
    pub fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: 0,
        };
        let Some(area) = bytes.first_chunk::<BACKUP_HEADER_BYTES>() else {
            let found = format!("{} bytes", bytes.len());
            return Err(place.error(Problem::TooShort, 0, "header", found, "512 bytes"));
        };
        let (raw, _) = RawBackup::ref_from_prefix(area).expect("the area is longer");
        if raw.magic != *MAGIC_ONE && raw.magic != *MAGIC_TWO {
            let found = String::from_utf8_lossy(&raw.magic).into_owned();
            return Err(place.error(Problem::NoMagic, 0, "magic", found, "md_backup_data-1"));
        }
        let first = (raw.devstart.get(), raw.arraystart.get(), raw.length.get());
        let mut wanted = vec![(first, 40)];
        if raw.magic == *MAGIC_TWO {
            let start = raw.devstart.get().saturating_add(raw.devstart2.get());
            wanted.push(((start, raw.arraystart2.get(), raw.length2.get()), 72));
        }
        let mut sections = Vec::new();
        for ((start, array_start, length), offset) in wanted {
            if length == 0 {
                continue;
            }
            let bytes_of = |sectors: u64| sectors.checked_mul(SECTOR_BYTES);
            let section = || {
                let array_end = bytes_of(array_start.checked_add(length)?)?;
                let file_end = bytes_of(start.checked_add(length)?)?;
                (file_end <= file_bytes).then_some(BackupSection {
                    array_bytes: bytes_of(array_start)?..array_end,
                    file_bytes: bytes_of(start)?,
                })
            };
            let found = format!("{length} sectors from sector {start}");
            let expected = format!("a section in a file of {file_bytes} bytes");
            sections.push(section().ok_or_else(|| {
                place.error(Problem::Invalid, offset, "section", found, expected)
            })?);
        }
        Ok(Self {
            set_uuid: raw.set_uuid,
            mtime_seconds: raw.mtime.get(),
            sections,
        })
    }

    /// Whether it belongs to the array with this UUID in display order. Superblocks of version 0.90 have it as four
    /// words, which are shown the other way round.
    #[must_use]
    pub fn is_of(&self, array_uuid: &[u8; 16]) -> bool {
        let mut turned = self.set_uuid;
        turned.chunks_exact_mut(4).for_each(<[u8]>::reverse);
        self.set_uuid == *array_uuid || turned == *array_uuid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: &[u8; 16], numbers: &[(usize, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; BACKUP_HEADER_BYTES];
        bytes[..16].copy_from_slice(magic);
        bytes[16..32].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        for (offset, number) in numbers {
            bytes[*offset..offset + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn both_sections_are_found_and_empty_ones_are_none() {
        let numbers = [
            (32, 99),
            (40, 8),
            (48, 0),
            (56, 16),
            (72, 16),
            (80, 64),
            (88, 8),
        ];
        let one = BackupHeader::parse(&header(MAGIC_ONE, &numbers), 20_000).unwrap();
        assert_eq!(
            one.sections.len(),
            1,
            "the second one does not count in the older version"
        );
        let two = BackupHeader::parse(&header(MAGIC_TWO, &numbers), 20_000).unwrap();
        assert_eq!(two.sections[0].array_bytes, 0..8192);
        assert_eq!(two.sections[1].array_bytes, 32768..36864);
        assert_eq!(two.sections[1].file_bytes, 24 * 512);
        assert_eq!(two.mtime_seconds, 99);
        let none = BackupHeader::parse(&header(MAGIC_TWO, &[(40, 8)]), 512).unwrap();
        assert!(none.sections.is_empty());
    }

    #[test]
    fn a_section_that_does_not_lie_in_the_file_is_refused() {
        for numbers in [
            [(40, 8), (56, 17), (48, 0)],
            [(40, u64::MAX), (56, 1), (48, 0)],
            [(40, 8), (56, 1), (48, u64::MAX)],
        ] {
            let error = BackupHeader::parse(&header(MAGIC_ONE, &numbers), 24 * 512).unwrap_err();
            assert_eq!(error.problem, Problem::Invalid);
        }
        let error = BackupHeader::parse(&[0; BACKUP_HEADER_BYTES], 1 << 20).unwrap_err();
        assert_eq!(error.problem, Problem::NoMagic);
    }

    #[test]
    fn the_uuid_may_be_in_the_order_of_either_version() {
        let header = BackupHeader::parse(&header(MAGIC_ONE, &[]), 512).unwrap();
        assert!(header.is_of(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]));
        assert!(header.is_of(&[4, 3, 2, 1, 8, 7, 6, 5, 12, 11, 10, 9, 16, 15, 14, 13]));
        assert!(!header.is_of(&[0; 16]));
    }
}
