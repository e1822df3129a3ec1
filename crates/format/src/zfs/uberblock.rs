//! Uberblocks: the roots of a pool, a ring of them in every label.
//!
//! Source: zfs-raidz.md 2.2.

use super::blockptr::BlockPointer;
use super::bytes::{le64, require};
use super::checksum::verify_embedded;
use super::pointer_image::PointerImage;
use crate::error::{FormatError, Problem, StructurePlace};

/// First word of an uberblock, in the byte order of the pool.
const MAGIC: u64 = 0x00ba_b10c;
/// Marks the words about several importers as present.
const MMP_MAGIC: u64 = 0xa11c_ea11;
/// Smallest slot of the ring in bytes.
pub const SLOT_BYTES_MIN: usize = 1024;

/// A checked uberblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uberblock {
    /// Version of the pool's format.
    pub version: u64,
    /// Transaction group that it ended.
    pub txg: u64,
    /// Sum of the identities of all members and plexes.
    pub guid_sum: u64,
    /// When it was written, seconds since 1970.
    pub written_s: u64,
    /// Root of everything: the meta object set.
    pub root: BlockPointer,
    /// The same as it stands there.
    pub root_image: PointerImage,
    /// Version of the software that wrote it; 0: not recorded.
    pub software_version: u64,
    /// Sequence number among uberblocks of one transaction group; 0: none.
    pub sequence: u64,
    /// Transaction group of the checkpoint; 0: none.
    pub checkpoint_txg: u64,
    /// A RAID-Z plex is being expanded: its blocks cannot be mapped.
    pub is_expanding: bool,
}

impl Uberblock {
    /// Checks one slot of the ring that lies at `offset_bytes` of the member.
    ///
    /// # Errors
    /// [`Problem::NoMagic`] for an empty slot, [`Problem::Checksum`], [`Problem::Unsupported`] for the other byte
    /// order, and those of its block pointer.
    pub fn parse(slot: &[u8], offset_bytes: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: "zfs uberblock",
            base_bytes: offset_bytes,
        };
        require(place, slot, SLOT_BYTES_MIN, "slot")?;
        let word = |n: usize| le64(slot, n * 8).expect("the length was checked");
        let magic = word(0);
        if magic == MAGIC.swap_bytes() {
            let problem = Problem::Unsupported;
            return Err(place.error(problem, 0, "byte order", "big-endian", "little-endian"));
        }
        if magic != MAGIC {
            let found = format!("{magic:#x}");
            return Err(place.error(Problem::NoMagic, 0, "magic", found, "0xbab10c"));
        }
        if !verify_embedded(slot, [offset_bytes, 0, 0, 0]) {
            let at = slot.len() as u64 - 32;
            let expected = "the SHA-256 of the slot";
            return Err(place.error(Problem::Checksum, at, "checksum", "another", expected));
        }
        let has_sequence = word(22) == MMP_MAGIC;
        Ok(Self {
            version: word(1),
            txg: word(2),
            guid_sum: word(3),
            written_s: word(4),
            root: BlockPointer::parse(&slot[40..168])?,
            root_image: PointerImage::of(&slot[40..168]),
            software_version: word(21),
            // Sequence in bits 32 to 63 of the configuration, when bit 1 says so.
            sequence: if has_sequence && word(24) & 2 != 0 {
                word(24) >> 32 & 0xffff
            } else {
                0
            },
            checkpoint_txg: word(25),
            is_expanding: word(1) >= 5000 && word(26) != 0,
        })
    }

    /// Order in which roots are tried: the greatest first.
    #[must_use]
    pub fn rank(&self) -> (u64, u64, u64) {
        (self.txg, self.written_s, self.sequence)
    }
}
