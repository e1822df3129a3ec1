//! Dnodes as they stand on a disk, which a writer changes in place.
//!
//! What is not understood here stays as it is: fields are set one by one in the bytes.
//! Source: zfs-write.md 1.4, zfs-raidz.md 2.4.

use super::blockptr::POINTER_BYTES;
use super::bytes::{le16, le64, nowhere};
use super::dnode::{DNODE_BYTES, Dnode};
use super::pointer_image::PointerImage;
use crate::error::FormatError;

const POINTERS_OFFSET: usize = 64;
const FLAG_USED_BYTES: u8 = 1;
const FLAG_SPILL: u8 = 4;
/// "As the parent": neither a checksum nor a compression of its own.
const INHERIT: u8 = 0;
const COMPRESSION_OFF: u8 = 2;
const FLETCHER4: u8 = 7;

/// A dnode as its bytes: one slot or more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DnodeImage(pub Vec<u8>);

/// What a new object is.
#[derive(Clone, Copy, Debug)]
pub struct NewObject {
    /// Its type.
    pub kind: u8,
    /// Bytes of a data block, a multiple of 512.
    pub block_bytes: u64,
    /// Indirect blocks are 2^this bytes.
    pub indirect_shift: u8,
    /// Type of its bonus area; 0: none.
    pub bonus_kind: u8,
    /// Bytes of its bonus area.
    pub bonus_bytes: usize,
}

impl DnodeImage {
    /// A free slot.
    #[must_use]
    pub fn free() -> Self {
        Self(vec![0; DNODE_BYTES])
    }

    /// An object without blocks, in one slot.
    ///
    /// # Panics
    /// When the bonus area does not fit a slot: it is of fixed size in every structure here.
    #[must_use]
    pub fn new(new: &NewObject) -> Self {
        assert!(new.bonus_bytes <= 320, "a bonus area fits its slot");
        let mut image = Self::free();
        let pointer_count = 3.min(1 + (320 - new.bonus_bytes) / POINTER_BYTES) as u8;
        image.0[..8].copy_from_slice(&[
            new.kind,
            new.indirect_shift,
            1,
            pointer_count,
            new.bonus_kind,
            INHERIT,
            INHERIT,
            FLAG_USED_BYTES,
        ]);
        let sectors = (new.block_bytes / 512) as u16;
        image.0[8..10].copy_from_slice(&sectors.to_le_bytes());
        image.0[10..12].copy_from_slice(&(new.bonus_bytes as u16).to_le_bytes());
        image
    }

    /// Says in the dnode that its blocks have Fletcher sums and are not compressed.
    pub fn set_plain(&mut self) {
        self.0[5] = FLETCHER4;
        self.0[6] = COMPRESSION_OFF;
    }

    /// The dnode that begins a block's part; `None` when it goes beyond that part.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let slots = usize::from(*bytes.get(12)?) + 1;
        let bytes = bytes.get(..slots * DNODE_BYTES)?;
        Some(Self(bytes.to_vec()))
    }

    /// As [`of`](Self::of), with numbers that a writer can count on: see [`Dnode::parse`], and indirect blocks of 1 KiB
    /// to 16 MiB. `None`: a free slot.
    ///
    /// # Errors
    /// Those of [`Dnode::parse`]; [`Problem::Invalid`](crate::Problem::Invalid) for the indirect blocks.
    pub fn checked(bytes: &[u8]) -> Result<Option<Self>, FormatError> {
        let dnode = Dnode::parse(bytes)?;
        if dnode.is_free() {
            return Ok(None);
        }
        let shift = dnode.indirect_shift;
        let is_right = (10..=24).contains(&shift);
        nowhere("dnode").check(is_right, 1, "indirect shift", shift, "10 to 24")?;
        Ok(Self::of(bytes))
    }

    /// Its type; 0: free.
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    /// Slots that it takes.
    #[must_use]
    pub fn slots(&self) -> usize {
        usize::from(self.0[12]) + 1
    }

    /// Levels of blocks.
    #[must_use]
    pub fn levels(&self) -> u8 {
        self.0[2]
    }

    /// Sets the levels.
    pub fn set_levels(&mut self, levels: u8) {
        self.0[2] = levels;
    }

    /// Pointers in an indirect block, as a power of two.
    #[must_use]
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.0[1]).saturating_sub(7)
    }

    /// Bytes of a data block.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        u64::from(le16(&self.0, 8).unwrap_or(0)) * 512
    }

    /// Sets the bytes of a data block: only while there is none, or one that is written again.
    pub fn set_block_bytes(&mut self, bytes: u64) {
        let sectors = (bytes / 512) as u16;
        self.0[8..10].copy_from_slice(&sectors.to_le_bytes());
    }

    /// Bytes of an indirect block.
    #[must_use]
    pub fn indirect_bytes(&self) -> u64 {
        1 << self.0[1].min(24)
    }

    /// Highest data block.
    #[must_use]
    pub fn block_id_max(&self) -> u64 {
        le64(&self.0, 16).unwrap_or(0)
    }

    /// Sets the highest data block.
    pub fn set_block_id_max(&mut self, block_id: u64) {
        self.0[16..24].copy_from_slice(&block_id.to_le_bytes());
    }

    /// Space that its blocks take.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        let used = le64(&self.0, 24).unwrap_or(0);
        match self.0[7] & FLAG_USED_BYTES {
            0 => used.saturating_mul(512),
            _ => used,
        }
    }

    /// Sets the space that its blocks take.
    pub fn set_used_bytes(&mut self, bytes: u64) {
        self.0[7] |= FLAG_USED_BYTES;
        self.0[24..32].copy_from_slice(&bytes.to_le_bytes());
    }

    /// Number of its pointers.
    #[must_use]
    pub fn pointer_count(&self) -> usize {
        usize::from(self.0[3])
    }

    /// A pointer of it; a hole when it has none of that number.
    #[must_use]
    pub fn pointer(&self, n: usize) -> PointerImage {
        if n >= self.pointer_count() {
            return PointerImage::HOLE;
        }
        let at = POINTERS_OFFSET + n * POINTER_BYTES;
        PointerImage::of(self.0.get(at..).unwrap_or_default())
    }

    /// Sets a pointer.
    ///
    /// # Panics
    /// When it has none of that number.
    pub fn set_pointer(&mut self, n: usize, pointer: &PointerImage) {
        assert!(
            n < self.pointer_count(),
            "a dnode has the pointer that is set"
        );
        let at = POINTERS_OFFSET + n * POINTER_BYTES;
        self.0[at..at + POINTER_BYTES].copy_from_slice(&pointer.0);
    }

    /// Its spill pointer.
    #[must_use]
    pub fn spill(&self) -> Option<PointerImage> {
        let at = self.0.len() - POINTER_BYTES;
        (self.0[7] & FLAG_SPILL != 0).then(|| PointerImage::of(&self.0[at..]))
    }

    /// Type of its bonus area.
    #[must_use]
    pub fn bonus_kind(&self) -> u8 {
        self.0[4]
    }

    fn bonus_range(&self) -> std::ops::Range<usize> {
        let start = POINTERS_OFFSET + self.pointer_count() * POINTER_BYTES;
        let length = usize::from(le16(&self.0, 10).unwrap_or(0));
        let start = start.min(self.0.len());
        start..(start + length).min(self.0.len())
    }

    /// Its bonus area.
    #[must_use]
    pub fn bonus(&self) -> &[u8] {
        &self.0[self.bonus_range()]
    }

    /// A word of the bonus area; 0 past its end.
    #[must_use]
    pub fn bonus_word(&self, n: usize) -> u64 {
        le64(self.bonus(), 8 * n).unwrap_or(0)
    }

    /// Sets a word of the bonus area; nothing past its end.
    pub fn set_bonus_word(&mut self, n: usize, word: u64) {
        let range = self.bonus_range();
        if let Some(place) = self.0[range].get_mut(8 * n..8 * n + 8) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Sets a block pointer in the bonus area; nothing past its end.
    pub fn set_bonus_pointer(&mut self, n: usize, pointer: &PointerImage) {
        let range = self.bonus_range();
        if let Some(place) = self.0[range].get_mut(8 * n..8 * n + POINTER_BYTES) {
            place.copy_from_slice(&pointer.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_object_reads_back_and_its_fields_can_be_set() {
        let mut image = DnodeImage::new(&NewObject {
            kind: 8,
            block_bytes: 4096,
            indirect_shift: 14,
            bonus_kind: 7,
            bonus_bytes: 24,
        });
        image.set_used_bytes(12288);
        image.set_block_id_max(4);
        image.set_levels(2);
        image.set_bonus_word(2, 99);
        let dnode = Dnode::parse(&image.0).unwrap();
        assert_eq!((dnode.kind, dnode.bonus_kind, dnode.levels), (8, 7, 2));
        assert_eq!((dnode.block_bytes, dnode.indirect_shift), (4096, 14));
        assert_eq!((dnode.used_bytes, dnode.block_id_max), (12288, 4));
        assert_eq!(dnode.pointers.len(), 3);
        assert_eq!((image.bonus_word(2), image.bonus_word(3)), (99, 0));
        assert_eq!(DnodeImage::of(&image.0), Some(image));
        let wide = NewObject {
            kind: 16,
            block_bytes: 512,
            indirect_shift: 17,
            bonus_kind: 16,
            bonus_bytes: 320,
        };
        assert_eq!(DnodeImage::new(&wide).pointer_count(), 1);
        assert_eq!(DnodeImage::of(&[0; 100]), None);
        assert_eq!(DnodeImage::checked(&[0; 512]), Ok(None));
        let mut odd = DnodeImage::new(&wide).0;
        assert!(DnodeImage::checked(&odd).is_ok_and(|found| found.is_some()));
        odd[1] = 60;
        assert!(
            DnodeImage::checked(&odd).is_err(),
            "indirect blocks of 2^60 bytes"
        );
    }
}
