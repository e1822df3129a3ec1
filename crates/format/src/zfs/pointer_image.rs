//! Block pointers as they stand on a disk, which a writer copies, compares and makes.
//!
//! A pointer that is not changed must stay as it is to the last bit: it is kept as its bytes, and not taken apart and
//! put together.
//! Source: zfs-write.md 1.4, zfs-raidz.md 2.3.

use super::blockptr::{BlockPointer, Dva, POINTER_BYTES};
use super::checksum::Digest;
use crate::error::FormatError;

/// Number of no compression, and of the checksum that is used for everything here.
const COMPRESSION_OFF: u64 = 2;
const FLETCHER4: u64 = 7;
const INTENT_LOG_2: u64 = 9;
const INTENT_LOG: u8 = 9;
/// Bit of the property word: the data are little-endian.
const LITTLE_ENDIAN: u64 = 1 << 63;
const EMBEDDED: u64 = 1 << 39;

/// A block pointer as its 128 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PointerImage(pub [u8; POINTER_BYTES]);

/// What is put into a new pointer to an uncompressed block with a Fletcher sum.
#[derive(Clone, Copy, Debug)]
pub struct NewPointer {
    /// Addresses, the used ones first.
    pub copies: [Option<Dva>; 3],
    /// Length in bytes, a multiple of 512.
    pub length_bytes: u64,
    /// Fletcher sum of the block.
    pub digest: Digest,
    /// Type of the object.
    pub object_type: u8,
    /// Level of the block.
    pub level: u8,
    /// Transaction group.
    pub birth_txg: u64,
    /// How much is below: see zfs-write.md 1.4.
    pub fill: u64,
}

impl std::fmt::Debug for PointerImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PointerImage({:?})", self.parse())
    }
}

impl PointerImage {
    /// All zeroes: a hole.
    pub const HOLE: Self = Self([0; POINTER_BYTES]);

    /// The first 128 bytes of `bytes`; a hole when they are fewer.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        bytes.first_chunk().map_or(Self::HOLE, |bytes| Self(*bytes))
    }

    /// A new pointer.
    #[must_use]
    pub fn new(new: &NewPointer) -> Self {
        let mut image = Self::HOLE;
        for (n, dva) in new.copies.iter().enumerate() {
            if let Some(dva) = dva {
                let first = (u64::from(dva.plex_id) << 32) | (dva.allocated_bytes / 512);
                image.put(2 * n, first);
                image.put(2 * n + 1, dva.offset_bytes / 512);
            }
        }
        let sectors = new.length_bytes / 512 - 1;
        image.put(
            6,
            sectors
                | sectors << 16
                | COMPRESSION_OFF << 32
                | FLETCHER4 << 40
                | u64::from(new.object_type) << 48
                | u64::from(new.level) << 56
                | LITTLE_ENDIAN,
        );
        image.put(10, new.birth_txg);
        image.put(11, new.fill);
        for (n, word) in new.digest.iter().enumerate() {
            image.put(12 + n, *word);
        }
        image
    }

    /// A pointer to a block of an intent log, whose words are its name in the chain instead of a checksum.
    #[must_use]
    pub fn of_log(copy: Dva, length_bytes: u64, words: Digest, birth_txg: u64) -> Self {
        let mut image = Self::new(&NewPointer {
            copies: [Some(copy), None, None],
            length_bytes,
            digest: words,
            object_type: INTENT_LOG,
            level: 0,
            birth_txg,
            fill: 0,
        });
        let properties = image.word(6) & !(0xff << 40) | INTENT_LOG_2 << 40;
        image.put(6, properties);
        image
    }

    /// The checksum of the block, or of a block of an intent log its words.
    #[must_use]
    pub fn digest(&self) -> Digest {
        [12, 13, 14, 15].map(|n| self.word(n))
    }

    /// The checked pointer.
    ///
    /// # Errors
    /// Those of [`BlockPointer::parse`].
    pub fn parse(&self) -> Result<BlockPointer, FormatError> {
        BlockPointer::parse(&self.0)
    }

    /// A word of it.
    ///
    /// # Panics
    /// From word 16 on.
    #[must_use]
    pub fn word(&self, n: usize) -> u64 {
        let bytes = self.0[8 * n..8 * n + 8].try_into().expect("eight bytes");
        u64::from_le_bytes(bytes)
    }

    fn put(&mut self, n: usize, word: u64) {
        self.0[8 * n..8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// The payload is in the pointer.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.word(6) & EMBEDDED != 0
    }

    /// Nothing is stored: it reads as zeroes.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        !self.is_embedded() && self.word(0) == 0 && self.word(1) == 0
    }

    /// Transaction group of its birth; 0 for a hole that was never written.
    #[must_use]
    pub fn birth_txg(&self) -> u64 {
        self.word(10)
    }

    /// How much is below. An embedded block counts as one.
    #[must_use]
    pub fn fill(&self) -> u64 {
        match self.is_embedded() {
            true => 1,
            false if self.is_hole() => 0,
            false => self.word(11),
        }
    }

    /// Level of the block.
    #[must_use]
    pub fn level(&self) -> u8 {
        (self.word(6) >> 56 & 0x1f) as u8
    }

    /// Type of the object.
    #[must_use]
    pub fn object_type(&self) -> u8 {
        (self.word(6) >> 48) as u8
    }

    /// Bytes as stored in one copy, before sectors and parity; of an embedded block those of its payload.
    #[must_use]
    pub fn physical_bytes(&self) -> u64 {
        match self.is_embedded() {
            true => (self.word(6) >> 25 & 0x7f) + 1,
            false if self.is_hole() => 0,
            false => ((self.word(6) >> 16 & 0xffff) + 1) * 512,
        }
    }

    /// Bytes after decompression.
    #[must_use]
    pub fn logical_bytes(&self) -> u64 {
        match self.is_embedded() {
            true => (self.word(6) & 0x1ff_ffff) + 1,
            false if self.is_hole() => 0,
            false => ((self.word(6) & 0xffff) + 1) * 512,
        }
    }

    /// Addresses of its copies.
    #[must_use]
    pub fn copies(&self) -> Vec<Dva> {
        if self.is_embedded() {
            return Vec::new();
        }
        let dva = |n: usize| {
            let (first, second) = (self.word(2 * n), self.word(2 * n + 1));
            (first != 0 || second != 0).then_some(Dva {
                plex_id: (first >> 32 & 0xff_ffff) as u32,
                offset_bytes: (second & (u64::MAX >> 1)).wrapping_mul(512),
                allocated_bytes: (first & 0xff_ffff) * 512,
                is_gang: second >> 63 == 1,
            })
        };
        (0..3).filter_map(dva).collect()
    }

    /// As lists of dead blocks have it: without checksum and fill; of an embedded one only its properties and birth.
    #[must_use]
    pub fn as_dead(&self) -> Self {
        let mut dead = *self;
        let all = [0..48, 56..80, 88..128];
        // Of an embedded one all words but those of properties (6) and birth (10).
        let first = if self.is_embedded() { 0 } else { 2 };
        for range in all.into_iter().skip(first) {
            dead.0[range].fill(0);
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::super::blockptr::{Compression, Payload};
    use super::super::checksum::ChecksumKind;
    use super::*;

    #[test]
    fn a_new_pointer_reads_back_as_what_it_was_made_of() {
        let dva = |offset_bytes| Dva {
            plex_id: 3,
            offset_bytes,
            allocated_bytes: 12 << 10,
            is_gang: false,
        };
        let new = NewPointer {
            copies: [Some(dva(1 << 40)), Some(dva(4096)), None],
            length_bytes: 8192,
            digest: [1, 2, 3, u64::MAX],
            object_type: 23,
            level: 2,
            birth_txg: 77,
            fill: 9,
        };
        let image = PointerImage::new(&new);
        let pointer = image.parse().unwrap();
        assert_eq!(
            pointer.payload,
            Payload::Stored {
                copies: new.copies,
                physical_bytes: 8192,
                checksum: ChecksumKind::Fletcher4,
                digest: new.digest,
            }
        );
        assert_eq!(pointer.compression, Compression::Off);
        assert_eq!((pointer.level, pointer.object_type), (2, 23));
        assert_eq!((pointer.birth_txg, pointer.physical_birth_txg), (77, 77));
        assert_eq!(
            (image.fill(), image.level(), image.object_type()),
            (9, 2, 23)
        );
        assert_eq!(
            (image.logical_bytes(), image.physical_bytes()),
            (8192, 8192)
        );
        assert_eq!(image.copies(), [dva(1 << 40), dva(4096)]);
        let dead = image.as_dead();
        assert_eq!((dead.fill(), dead.word(12), dead.birth_txg()), (0, 0, 77));
        assert!(PointerImage::HOLE.is_hole() && !image.is_hole());
    }
}
