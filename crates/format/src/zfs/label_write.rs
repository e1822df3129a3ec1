//! Labels and uberblocks as bytes.
//!
//! Source: zfs-write.md 1.1.

use super::checksum::seal_embedded;
use super::label::LABEL_BYTES;
use super::nvlist::NvList;
use super::pointer_image::PointerImage;

const LIST_OFFSET: usize = 16 << 10;
const LIST_BYTES: usize = 112 << 10;
const BOOT_OFFSET: usize = 8 << 10;
const BOOT_BYTES: usize = 8 << 10;
/// Where the ring of uberblocks begins in a label.
pub const RING_OFFSET: usize = 128 << 10;
/// The part of a label before its ring: what is written when the configuration changes.
pub const HEAD_BYTES: usize = RING_OFFSET;
/// First word of an uberblock.
const MAGIC: u64 = 0x00ba_b10c;
const TRAILER_BYTES: usize = 40;

/// Bytes of a slot of the ring for a plex of this sector.
#[must_use]
pub fn slot_bytes(ashift: u32) -> usize {
    1 << ashift.clamp(10, 13)
}

/// Slots of the ring for a plex of this sector.
#[must_use]
pub fn slot_count(ashift: u32) -> u64 {
    ((LABEL_BYTES - RING_OFFSET) / slot_bytes(ashift)) as u64
}

/// The head of the label at `offset_bytes` of the member; `None` when the list cannot be written or is too long.
#[must_use]
pub fn encode_head(list: &NvList, offset_bytes: u64) -> Option<Vec<u8>> {
    let bytes = list.encode()?;
    if bytes.len() > LIST_BYTES - TRAILER_BYTES {
        return None;
    }
    let mut head = vec![0; HEAD_BYTES];
    head[LIST_OFFSET..LIST_OFFSET + bytes.len()].copy_from_slice(&bytes);
    let seal = |head: &mut [u8], at: usize, length: usize| {
        let verifier = [offset_bytes + at as u64, 0, 0, 0];
        seal_embedded(&mut head[at..at + length], verifier);
    };
    // FreeBSD's loader wants the block about booting to be sealed, empty as it is.
    seal(&mut head, BOOT_OFFSET, BOOT_BYTES);
    seal(&mut head, LIST_OFFSET, LIST_BYTES);
    Some(head)
}

/// What is in a new root.
#[derive(Clone, Copy, Debug)]
pub struct NewUberblock {
    /// Version of the pool's format.
    pub version: u64,
    /// Transaction group that it ends.
    pub txg: u64,
    /// Sum of the identities of all members and plexes, the pool's own included.
    pub guid_sum: u64,
    /// Seconds since 1970.
    pub written_s: u64,
    /// The pool's own object set.
    pub root: PointerImage,
}

/// A slot of the ring at `offset_bytes` of the member.
#[must_use]
pub fn encode_uberblock(new: &NewUberblock, ashift: u32, offset_bytes: u64) -> Vec<u8> {
    let mut slot = vec![0; slot_bytes(ashift)];
    let words = [MAGIC, new.version, new.txg, new.guid_sum, new.written_s];
    for (n, word) in words.iter().enumerate() {
        slot[8 * n..8 * n + 8].copy_from_slice(&word.to_le_bytes());
    }
    slot[40..168].copy_from_slice(&new.root.0);
    slot[168..176].copy_from_slice(&5000_u64.to_le_bytes());
    seal_embedded(&mut slot, [offset_bytes, 0, 0, 0]);
    slot
}

#[cfg(test)]
mod tests {
    use super::super::uberblock::Uberblock;
    use super::super::{Label, LabelArea};
    use super::*;

    #[test]
    fn a_label_and_its_root_read_back_at_their_place_alone() {
        let mut list = NvList::default();
        list.put_number("version", 5000);
        list.put_text("name", "tank");
        list.put_number("txg", 4);
        let mut label = encode_head(&list, 262_144).unwrap();
        let new = NewUberblock {
            version: 5000,
            txg: 4,
            guid_sum: 9,
            written_s: 1,
            root: PointerImage::HOLE,
        };
        let at = 262_144 + RING_OFFSET as u64 + 4 * 4096;
        let slot = encode_uberblock(&new, 12, at);
        label.resize(LABEL_BYTES, 0);
        label[RING_OFFSET + 4 * 4096..][..4096].copy_from_slice(&slot);
        let read = Label::parse(&label, 262_144).unwrap();
        assert_eq!((read.pool_name.as_str(), read.txg), ("tank", 4));
        assert!(Label::parse(&label, 0).is_err());
        let root = Uberblock::parse(&slot, at).unwrap();
        assert_eq!((root.txg, root.guid_sum, root.version), (4, 9, 5000));
        assert_eq!(
            (slot_bytes(9), slot_count(9), slot_count(12), slot_count(16)),
            (1024, 128, 32, 16)
        );
        assert_eq!(
            LabelArea::parse(&label, 262_144).uberblocks.len(),
            0,
            "no vdev tree: slots of 1 KiB"
        );
    }
}
