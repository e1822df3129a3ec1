//! Object sets and dnodes: the objects of a data set and where their blocks are.
//!
//! Source: zfs-raidz.md 2.4 and 2.8.

use super::blockptr::{BlockPointer, POINTER_BYTES};
use super::bytes::{le16, le64, nowhere, require};
use super::intent::LogHead;
use crate::error::{FormatError, Problem};

/// Bytes of a slot; a dnode takes one or more.
pub const DNODE_BYTES: usize = 512;
/// Most slots of a dnode.
pub const DNODE_SLOTS_MAX: usize = 32;
/// Most levels of pointers: enough for 2^64 bytes in blocks of 512 with the smallest indirect blocks.
pub const LEVELS_MAX: u8 = 12;
/// Pointers of a dnode start here.
const POINTERS_OFFSET: usize = 64;

/// Types of objects and of bonus areas that matter to a reader.
pub mod object_type {
    /// A directory of the pool.
    pub const DSL_DIR: u8 = 12;
    /// A data set or a snapshot.
    pub const DSL_DATASET: u8 = 16;
    /// Attributes in the old form.
    pub const ZNODE: u8 = 17;
    /// Attributes.
    pub const SA: u8 = 44;
}

/// An object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dnode {
    /// Type of the object; 0: free.
    pub kind: u8,
    /// Type of the bonus area.
    pub bonus_kind: u8,
    /// Levels of blocks: 1 when the pointers here lead to data.
    pub levels: u8,
    /// Indirect blocks are 2^this bytes.
    pub indirect_shift: u8,
    /// Bytes of a data block.
    pub block_bytes: u64,
    /// Highest data block.
    pub block_id_max: u64,
    /// Space used in bytes.
    pub used_bytes: u64,
    /// Slots after the first that the dnode takes.
    pub extra_slots: u8,
    /// One to three pointers, or why one cannot be.
    pub pointers: Vec<BlockPointer>,
    /// The bonus area.
    pub bonus: Vec<u8>,
    /// Pointer to attributes that did not fit.
    pub spill: Option<BlockPointer>,
}

impl Dnode {
    /// Reads the dnode at the start of `bytes`, which go on to the end of its block.
    ///
    /// # Errors
    /// [`Problem::TooShort`], [`Problem::Invalid`] for numbers that cannot be; those of its pointers.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let place = nowhere("dnode");
        require(place, bytes, DNODE_BYTES, "slot")?;
        let extra_slots = bytes[12];
        let length = DNODE_BYTES * (usize::from(extra_slots) + 1);
        let is_right = usize::from(extra_slots) < DNODE_SLOTS_MAX && length <= bytes.len();
        place.check(
            is_right,
            12,
            "extra slots",
            extra_slots,
            "slots of its block",
        )?;
        let bytes = &bytes[..length];
        let (kind, indirect_shift, levels) = (bytes[0], bytes[1], bytes[2]);
        let pointer_count = usize::from(bytes[3]);
        let bonus_bytes = usize::from(le16(bytes, 10).expect("the length was checked"));
        let sectors = le16(bytes, 8).expect("the length was checked");
        let word = |at| le64(bytes, at).expect("the length was checked");
        let mut dnode = Self {
            kind,
            bonus_kind: bytes[4],
            levels,
            indirect_shift,
            block_bytes: u64::from(sectors) * 512,
            block_id_max: word(16),
            // Before version 3 of the dnode's flags this counted sectors.
            used_bytes: if bytes[7] & 1 == 1 {
                word(24)
            } else {
                word(24).saturating_mul(512)
            },
            extra_slots,
            pointers: Vec::new(),
            bonus: Vec::new(),
            spill: None,
        };
        if kind == 0 {
            return Ok(dnode);
        }
        dnode.check_numbers(pointer_count)?;
        dnode.take_pointers(bytes, pointer_count, bonus_bytes)?;
        Ok(dnode)
    }

    fn check_numbers(&self, pointer_count: usize) -> Result<(), FormatError> {
        let place = nowhere("dnode");
        let (levels, shift) = (self.levels, self.indirect_shift);
        let is_right = (1..=3).contains(&pointer_count);
        place.check(is_right, 3, "pointers", pointer_count, "1 to 3")?;
        let is_right = (1..=LEVELS_MAX).contains(&levels);
        place.check(is_right, 2, "levels", levels, "1 to 12")?;
        let is_right = (10..=24).contains(&shift) || levels == 1;
        place.check(is_right, 1, "indirect shift", shift, "10 to 24")?;
        let is_right = self.block_bytes > 0;
        place.check(is_right, 8, "block size", 0, "at least 1 sector")
    }

    /// Pointers, bonus area and spill pointer. `bytes` are all slots of the dnode.
    fn take_pointers(
        &mut self,
        bytes: &[u8],
        pointer_count: usize,
        bonus_bytes: usize,
    ) -> Result<(), FormatError> {
        let length = bytes.len();
        let has_spill = bytes[7] & 4 != 0;
        let bonus_start = POINTERS_OFFSET + POINTER_BYTES * pointer_count;
        let spill_bytes = if has_spill { POINTER_BYTES } else { 0 };
        // Three pointers leave no room for a fourth in a single slot.
        let room = length.checked_sub(bonus_start + spill_bytes);
        let is_right = room.is_some_and(|room| bonus_bytes <= room);
        let room = room.unwrap_or(0);
        nowhere("dnode").check(
            is_right,
            10,
            "bonus length",
            bonus_bytes,
            format!("at most {room}"),
        )?;
        for n in 0..pointer_count {
            let at = POINTERS_OFFSET + POINTER_BYTES * n;
            self.pointers.push(BlockPointer::parse(&bytes[at..])?);
        }
        self.bonus = bytes[bonus_start..bonus_start + bonus_bytes].to_vec();
        if has_spill {
            self.spill = Some(BlockPointer::parse(&bytes[length - POINTER_BYTES..])?);
        }
        Ok(())
    }

    /// Whether nothing is here.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.kind == 0
    }

    /// Pointers in an indirect block, as a power of two.
    #[must_use]
    pub fn fanout_shift(&self) -> u32 {
        u32::from(self.indirect_shift).saturating_sub(7)
    }

    /// Which pointer of the dnode, and then of each indirect block from the top down, leads to data block `block_id`.
    /// `None` when the block is beyond what the dnode can address.
    #[must_use]
    pub fn path(&self, block_id: u64) -> Option<Vec<usize>> {
        let shift = self.fanout_shift();
        let index = |level: u32| -> u64 { block_id.checked_shr(shift * level).unwrap_or(0) };
        let top = index(u32::from(self.levels) - 1);
        let mut path = vec![
            usize::try_from(top)
                .ok()
                .filter(|top| *top < self.pointers.len())?,
        ];
        for level in (0..u32::from(self.levels) - 1).rev() {
            path.push((index(level) & ((1 << shift) - 1)) as usize);
        }
        Some(path)
    }
}

/// What an object set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectSetKind {
    /// The pool's own.
    Meta,
    /// A file system.
    FileSystem,
    /// A volume.
    Volume,
    /// Another number.
    Other(u64),
}

/// The head of an object set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSetHeader {
    /// The object whose data are all other objects.
    pub meta: Dnode,
    /// What it is.
    pub kind: ObjectSetKind,
    /// The header of the intent log, whose first block may never have been written; `None`: it has none.
    pub intent_log: Option<LogHead>,
}

impl ObjectSetHeader {
    /// Reads the block of an object set.
    ///
    /// # Errors
    /// Those of a dnode; [`Problem::TooShort`].
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let place = nowhere("object set");
        require(place, bytes, 1024, "block")?;
        let meta = Dnode::parse(&bytes[..DNODE_BYTES])?;
        if meta.is_free() {
            return Err(place.error(Problem::Invalid, 0, "meta dnode", "free", "in use"));
        }
        let log = LogHead::parse(&bytes[DNODE_BYTES..]);
        Ok(Self {
            meta,
            kind: match le64(bytes, 704).expect("the length was checked") {
                1 => ObjectSetKind::Meta,
                2 => ObjectSetKind::FileSystem,
                3 => ObjectSetKind::Volume,
                other => ObjectSetKind::Other(other),
            },
            intent_log: log.filter(|head| !head.first.is_hole()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dnode(levels: u8, shift: u8, pointers: u8) -> Vec<u8> {
        let mut bytes = vec![0; DNODE_BYTES];
        bytes[..4].copy_from_slice(&[19, shift, levels, pointers]);
        bytes[8] = 1;
        bytes
    }

    #[test]
    fn a_spill_pointer_behind_three_others_has_no_room_in_one_slot() {
        let mut slot = [0; DNODE_BYTES];
        slot[..8].copy_from_slice(&[19, 17, 1, 3, 0, 0, 0, 4]);
        slot[8] = 1;
        assert_eq!(Dnode::parse(&slot).unwrap_err().problem, Problem::Invalid);
        slot[7] = 0;
        assert!(Dnode::parse(&slot).is_ok());
    }

    #[test]
    fn a_path_leads_through_all_levels() {
        let dnode = Dnode::parse(&dnode(3, 10, 2)).unwrap(); // 8 pointers a block
        assert_eq!(dnode.path(0), Some(vec![0, 0, 0]));
        assert_eq!(dnode.path(8 * 8 + 8 + 3), Some(vec![1, 1, 3]));
        assert_eq!(dnode.path(2 * 64), None);
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        for (at, value, field) in [
            (3, 4, "pointers"),
            (3, 0, "pointers"),
            (2, 13, "levels"),
            (1, 40, "indirect shift"),
            (12, 1, "extra slots"),
            (11, 2, "bonus length"),
            (8, 0, "block size"),
        ] {
            let mut bytes = dnode(2, 17, 1);
            bytes[at] = value;
            assert_eq!(Dnode::parse(&bytes).unwrap_err().field, field);
        }
        assert!(Dnode::parse(&[0; DNODE_BYTES]).unwrap().is_free());
    }
}
