//! Block pointers: where a block is, how it is checked and how it is stored.
//!
//! Invariants: lengths are at least one sector and at most [`BLOCK_BYTES_MAX`]; an address is a byte
//! offset in a plex that a signed 64-bit number can hold.
//! Source: zfs-raidz.md 2.3.

use super::BLOCK_BYTES_MAX;
use super::bytes::{le64, nowhere, require};
use super::checksum::{ChecksumKind, Digest};
use crate::error::{FormatError, Problem};

/// Bytes of a block pointer.
pub const POINTER_BYTES: usize = 128;
/// Bytes of the payload of an embedded block.
pub const EMBEDDED_BYTES_MAX: usize = 112;

/// Address of one copy of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dva {
    /// Number of the plex (top-level vdev).
    pub plex_id: u32,
    /// Byte offset in the plex.
    pub offset_bytes: u64,
    /// Space that the copy takes, parity and padding included.
    pub allocated_bytes: u64,
    /// The address is that of a gang header.
    pub is_gang: bool,
}

/// How a block is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    Off,
    /// Nothing but zeroes.
    Empty,
    /// LZJB.
    Lzjb,
    /// zlib.
    Gzip,
    /// Runs of zeroes.
    Zle,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
    /// Unknown; its number.
    Unsupported(u8),
}

impl Compression {
    /// The kind of this number in a block pointer.
    #[must_use]
    pub fn of(number: u8) -> Self {
        match number {
            2 => Self::Off,
            3 => Self::Lzjb,
            4 => Self::Empty,
            5..=13 => Self::Gzip,
            14 => Self::Zle,
            15 => Self::Lz4,
            16 => Self::Zstd,
            other => Self::Unsupported(other),
        }
    }
}

/// Where the bytes of a block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Nowhere: it reads as zeroes.
    Hole,
    /// In the pointer itself: this many of the bytes count.
    Embedded {
        /// The bytes.
        bytes: [u8; EMBEDDED_BYTES_MAX],
        /// How many.
        used: usize,
        /// 0: data; others are not for readers.
        kind: u8,
    },
    /// On members: one to three equal copies.
    Stored {
        /// The addresses; `None` where there is no copy.
        copies: [Option<Dva>; 3],
        /// Bytes to read, before any rounding to sectors.
        physical_bytes: u64,
        /// How it is checked.
        checksum: ChecksumKind,
        /// The checksum of the physical bytes.
        digest: Digest,
    },
}

/// A block pointer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockPointer {
    /// Where the bytes are.
    pub payload: Payload,
    /// Length after decompression.
    pub logical_bytes: u64,
    /// How it is compressed.
    pub compression: Compression,
    /// Type of the object that it belongs to.
    pub object_type: u8,
    /// 0: data of the object; above: pointers to blocks one level below.
    pub level: u8,
    /// Encrypted or authenticated: cannot be read without keys.
    pub is_encrypted: bool,
    /// Transaction group in which it was written.
    pub birth_txg: u64,
    /// Transaction group in which it was allocated.
    pub physical_birth_txg: u64,
}

impl BlockPointer {
    /// Whether it reads as zeroes without any I/O.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        self.payload == Payload::Hole
    }

    /// Reads the first 128 bytes.
    ///
    /// # Errors
    /// [`Problem::TooShort`], [`Problem::Invalid`] for lengths and addresses that cannot be, [`Problem::Unsupported`]
    /// for data in the other byte order.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let place = nowhere("block pointer");
        require(place, bytes, POINTER_BYTES, "pointer")?;
        let word = |n: usize| le64(bytes, n * 8).expect("the length was checked");
        let prop = word(6);
        let is_embedded = prop >> 39 & 1 == 1;
        let mut pointer = Self {
            payload: Payload::Hole,
            logical_bytes: 0,
            compression: Compression::of((prop >> 32 & 0x7f) as u8),
            object_type: (prop >> 48) as u8,
            level: (prop >> 56 & 0x1f) as u8,
            is_encrypted: prop >> 61 & 1 == 1 && !is_embedded,
            birth_txg: word(10),
            physical_birth_txg: if word(9) == 0 { word(10) } else { word(9) },
        };
        if is_embedded {
            pointer.logical_bytes = (prop & 0x1ff_ffff) + 1;
            pointer.physical_birth_txg = pointer.birth_txg;
            pointer.payload = embedded(bytes, prop)?;
        } else {
            pointer.logical_bytes = ((prop & 0xffff) + 1) * 512;
            let copies = copies(&word)?;
            if copies[0].is_some() {
                if prop >> 63 == 0 {
                    let expected = "little-endian";
                    let problem = Problem::Unsupported;
                    return Err(place.error(problem, 48, "byte order", "big-endian", expected));
                }
                pointer.payload = Payload::Stored {
                    copies,
                    physical_bytes: ((prop >> 16 & 0xffff) + 1) * 512,
                    checksum: ChecksumKind::of((prop >> 40) as u8),
                    digest: [word(12), word(13), word(14), word(15)],
                };
            }
        }
        let logical = pointer.logical_bytes;
        let is_right = logical <= BLOCK_BYTES_MAX;
        place.check(is_right, 48, "logical size", logical, "at most 16 MiB")?;
        if let Payload::Stored { physical_bytes, .. } = pointer.payload {
            let is_right = physical_bytes <= BLOCK_BYTES_MAX;
            place.check(
                is_right,
                48,
                "physical size",
                physical_bytes,
                "at most 16 MiB",
            )?;
        }
        Ok(pointer)
    }
}

fn embedded(bytes: &[u8], prop: u64) -> Result<Payload, FormatError> {
    let used = (prop >> 25 & 0x7f) as usize + 1;
    let expected = "at most 112";
    let is_right = used <= EMBEDDED_BYTES_MAX;
    nowhere("block pointer").check(is_right, 48, "embedded size", used, expected)?;
    let mut payload = [0; EMBEDDED_BYTES_MAX];
    // All words but those of properties (6) and birth (10).
    let parts = [&bytes[..48], &bytes[56..80], &bytes[88..128]];
    let mut at = 0;
    for part in parts {
        payload[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Ok(Payload::Embedded {
        bytes: payload,
        used,
        kind: (prop >> 40) as u8,
    })
}

fn copies(word: &impl Fn(usize) -> u64) -> Result<[Option<Dva>; 3], FormatError> {
    let mut copies = [None; 3];
    for (n, copy) in copies.iter_mut().enumerate() {
        let (first, second) = (word(2 * n), word(2 * n + 1));
        if first == 0 && second == 0 {
            continue;
        }
        let sectors = second & (u64::MAX >> 1);
        let is_right = sectors < 1 << 53;
        let field_offset = 16 * n as u64 + 8;
        nowhere("block pointer").check(is_right, field_offset, "offset", sectors, "below 2^53")?;
        *copy = Some(Dva {
            plex_id: (first >> 32 & 0xff_ffff) as u32,
            offset_bytes: sectors * 512,
            allocated_bytes: (first & 0xff_ffff) * 512,
            is_gang: second >> 63 == 1,
        });
    }
    Ok(copies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[(usize, u64)]) -> [u8; POINTER_BYTES] {
        let mut bytes = [0; POINTER_BYTES];
        for (n, word) in words {
            bytes[n * 8..n * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_pointer_without_address_is_a_hole_of_its_length() {
        let pointer = BlockPointer::parse(&bytes(&[(6, 0xff)])).unwrap();
        assert!(pointer.is_hole());
        assert_eq!(pointer.logical_bytes, 128 << 10);
    }

    #[test]
    fn a_stored_block_has_addresses_lengths_and_checksum() {
        let prop = 0xff | 7 << 16 | 15 << 32 | 7 << 40 | 19 << 48 | 1 << 56 | 1 << 63;
        let pointer = bytes(&[
            (0, 2 << 32 | 8),
            (1, 1 << 63 | 100),
            (6, prop),
            (10, 5),
            (12, 1),
            (15, 4),
        ]);
        let pointer = BlockPointer::parse(&pointer).unwrap();
        let copy = Dva {
            plex_id: 2,
            offset_bytes: 51200,
            allocated_bytes: 4096,
            is_gang: true,
        };
        assert_eq!(
            pointer.payload,
            Payload::Stored {
                copies: [Some(copy), None, None],
                physical_bytes: 4096,
                checksum: ChecksumKind::Fletcher4,
                digest: [1, 0, 0, 4],
            }
        );
        assert_eq!(
            (pointer.compression, pointer.level, pointer.object_type),
            (Compression::Lz4, 1, 19)
        );
        assert_eq!((pointer.birth_txg, pointer.physical_birth_txg), (5, 5));
    }

    #[test]
    fn an_embedded_block_carries_its_bytes() {
        let mut raw = [0; POINTER_BYTES];
        for (n, byte) in raw.iter_mut().enumerate() {
            *byte = n as u8;
        }
        let prop: u64 = 99 | 111 << 25 | 1 << 39 | 2 << 32;
        raw[48..56].copy_from_slice(&prop.to_le_bytes());
        let pointer = BlockPointer::parse(&raw).unwrap();
        let Payload::Embedded { bytes, used, kind } = pointer.payload else {
            panic!("embedded");
        };
        let expected: Vec<u8> = (0..48).chain(56..80).chain(88..128).collect();
        assert_eq!(
            (bytes.as_slice(), used, kind),
            (expected.as_slice(), 112, 0)
        );
        assert_eq!(pointer.logical_bytes, 100);
    }

    #[test]
    fn no_bytes_make_it_panic_or_too_long() {
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut raw = [0; POINTER_BYTES];
            for word in raw.chunks_exact_mut(8) {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                word.copy_from_slice(&(seed ^ seed >> 29).to_le_bytes());
            }
            if let Ok(pointer) = BlockPointer::parse(&raw) {
                assert!(pointer.logical_bytes <= BLOCK_BYTES_MAX);
            }
        }
    }
}
