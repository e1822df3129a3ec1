//! The 0.90 superblock's bytes: 1024 words of 32 bits in the byte order of the machine that made it.
//!
//! Invariants:
//! - a rewrite keeps the byte order it found;
//! - words that the model does not describe, and those of members whose role did not change, are kept as read.

mod encode;

use crate::error::{FormatError, Problem, StructurePlace};
use crate::kept::Kept;
use crate::units::{EventCount, SECTOR_BYTES, Slot};

use super::superblock::{MdTime, MdVersion, Reshape, Role, SUPERBLOCK_BYTES, Superblock};
use super::superblock1::{MAGIC, check_level, check_strip};

pub(super) use encode::{check_encodable, encode};

/// Entries of the descriptor table.
pub(super) const MAX_MEMBERS: usize = 27;

const WORDS: usize = SUPERBLOCK_BYTES / 4;
/// Sectors from the superblock to the bitmap. Source: linux-md.md section 2.
const BITMAP_OFFSET_SECTORS: i32 = 8;

const STATE_CLEAN: u32 = 1;
const STATE_BITMAP: u32 = 1 << 8;

const DISK_FAULTY: u32 = 1;
const DISK_ACTIVE: u32 = 1 << 1;
const DISK_SYNC: u32 = 1 << 2;
const DISK_WRITE_MOSTLY: u32 = 1 << 9;
const DISK_FAILFAST: u32 = 1 << 10;

/// Indices of the words. Source: linux-md.md section 2.
mod word {
    pub const MAGIC: usize = 0;
    pub const MAJOR: usize = 1;
    pub const MINOR: usize = 2;
    pub const UUID0: usize = 5;
    pub const CTIME: usize = 6;
    pub const LEVEL: usize = 7;
    pub const SIZE_KIB: usize = 8;
    pub const NR_DISKS: usize = 9;
    pub const RAID_DISKS: usize = 10;
    pub const UUID1: usize = 13;
    pub const UTIME: usize = 32;
    pub const STATE: usize = 33;
    pub const ACTIVE_DISKS: usize = 34;
    pub const WORKING_DISKS: usize = 35;
    pub const FAILED_DISKS: usize = 36;
    pub const SPARE_DISKS: usize = 37;
    pub const CHECKSUM: usize = 38;
    pub const EVENTS: usize = 39;
    pub const CP_EVENTS: usize = 41;
    pub const RECOVERY_CP: usize = 43;
    pub const RESHAPE_POSITION: usize = 44;
    pub const NEW_LEVEL: usize = 46;
    pub const DELTA_DISKS: usize = 47;
    pub const NEW_LAYOUT: usize = 48;
    pub const NEW_CHUNK_BYTES: usize = 49;
    pub const LAYOUT: usize = 64;
    pub const CHUNK_BYTES: usize = 65;
    pub const DISKS: usize = 128;
    pub const DISK_WORDS: usize = 32;
    pub const THIS_DISK: usize = 992;
    // inside a descriptor
    pub const NUMBER: usize = 0;
    pub const ROLE: usize = 3;
    pub const DISK_STATE: usize = 4;
}

/// The area as numbers, with its byte order.
#[derive(Clone)]
struct Words {
    words: [u32; WORDS],
    is_big_endian: bool,
}

impl Words {
    fn decode(area: &[u8; SUPERBLOCK_BYTES], is_big_endian: bool) -> Self {
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(area.chunks_exact(4)) {
            let bytes = [bytes[0], bytes[1], bytes[2], bytes[3]];
            *word = if is_big_endian {
                u32::from_be_bytes(bytes)
            } else {
                u32::from_le_bytes(bytes)
            };
        }
        Self {
            words,
            is_big_endian,
        }
    }

    fn encode(&self) -> [u8; SUPERBLOCK_BYTES] {
        let mut area = [0; SUPERBLOCK_BYTES];
        for (bytes, word) in area.chunks_exact_mut(4).zip(&self.words) {
            bytes.copy_from_slice(&if self.is_big_endian {
                word.to_be_bytes()
            } else {
                word.to_le_bytes()
            });
        }
        area
    }

    /// A 64-bit number in two words, which stand in the order of the machine.
    fn long(&self, index: usize) -> u64 {
        let (first, second) = (
            u64::from(self.words[index]),
            u64::from(self.words[index + 1]),
        );
        if self.is_big_endian {
            first << 32 | second
        } else {
            second << 32 | first
        }
    }

    fn set_long(&mut self, index: usize, value: u64) {
        let (high, low) = ((value >> 32) as u32, value as u32);
        let pair = if self.is_big_endian {
            [high, low]
        } else {
            [low, high]
        };
        self.words[index..index + 2].copy_from_slice(&pair);
    }

    fn signed(&self, index: usize) -> i32 {
        self.words[index].cast_signed()
    }

    /// Sum of all words with the checksum's own as 0, folded to 32 bits.
    fn checksum(&self) -> u32 {
        let sum = self.words.iter().map(|word| u64::from(*word)).sum::<u64>()
            - u64::from(self.words[word::CHECKSUM]);
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }

    fn descriptor(&self, number: usize) -> &[u32] {
        let start = word::DISKS + word::DISK_WORDS * number;
        &self.words[start..start + word::DISK_WORDS]
    }
}

/// Whether the area starts with the magic in either byte order; `Some(true)`: big-endian.
fn byte_order(area: &[u8; SUPERBLOCK_BYTES]) -> Option<bool> {
    let magic = *area.first_chunk::<4>().expect("the area is 4096 bytes");
    if magic == MAGIC.to_le_bytes() {
        return Some(false);
    }
    (magic == MAGIC.to_be_bytes()).then_some(true)
}

/// Byte offset of a word in the area.
fn at(index: usize) -> u64 {
    4 * index as u64
}

/// Decodes and checks; see [`Superblock::parse`].
pub(super) fn parse(
    area: &[u8; SUPERBLOCK_BYTES],
    found_at_sector: u64,
    device_sectors: u64,
) -> Result<Superblock, FormatError> {
    let place = StructurePlace {
        structure: MdVersion::V090.structure(),
        base_bytes: found_at_sector.saturating_mul(SECTOR_BYTES),
    };
    let Some(is_big_endian) = byte_order(area) else {
        let found = area[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        let expected = "fc4e2ba9 or a92b4efc";
        return Err(place.error(Problem::NoMagic, at(word::MAGIC), "magic", found, expected));
    };
    let words = Words::decode(area, is_big_endian);
    check(&words, place)?;
    let superblock = decode(&words, area, found_at_sector);
    check_size(&superblock, device_sectors, place)?;
    Ok(superblock)
}

fn check(words: &Words, place: StructurePlace) -> Result<(), FormatError> {
    let value = |index: usize| words.words[index];
    let major = value(word::MAJOR);
    if major != 0 {
        return Err(place.error(Problem::NoMagic, at(word::MAJOR), "major_version", major, 0));
    }
    let computed = words.checksum();
    if value(word::CHECKSUM) != computed {
        let found = format!("{:08x}", value(word::CHECKSUM));
        let expected = format!("{computed:08x}");
        return Err(place.error(
            Problem::Checksum,
            at(word::CHECKSUM),
            "sb_csum",
            found,
            expected,
        ));
    }
    let minor = value(word::MINOR);
    let fits = matches!(minor, 90 | 91);
    place.check(fits, at(word::MINOR), "minor_version", minor, "90 or 91")?;
    check_level(words.signed(word::LEVEL), at(word::LEVEL), "level", place)?;
    let chunk = value(word::CHUNK_BYTES);
    let field = "chunk_size";
    let fits = u64::from(chunk).is_multiple_of(SECTOR_BYTES);
    place.check(fits, at(word::CHUNK_BYTES), field, chunk, "whole sectors")?;
    let strip = chunk / SECTOR_BYTES as u32;
    check_strip(
        words.signed(word::LEVEL),
        strip,
        at(word::CHUNK_BYTES),
        field,
        place,
    )?;
    let raid_disks = value(word::RAID_DISKS);
    let fits = (1..=MAX_MEMBERS as u32).contains(&raid_disks);
    let expected = format!("1 to {MAX_MEMBERS}");
    place.check(
        fits,
        at(word::RAID_DISKS),
        "raid_disks",
        raid_disks,
        expected,
    )?;
    let number = value(word::THIS_DISK + word::NUMBER);
    let fits = usize::try_from(number).is_ok_and(|number| number < MAX_MEMBERS);
    let expected = format!("below {MAX_MEMBERS}");
    place.check(
        fits,
        at(word::THIS_DISK),
        "this_disk.number",
        number,
        expected,
    )?;
    if minor == 90 {
        return Ok(());
    }
    check_reshape(words, place)
}

fn check_reshape(words: &Words, place: StructurePlace) -> Result<(), FormatError> {
    let value = |index: usize| words.words[index];
    check_level(
        words.signed(word::NEW_LEVEL),
        at(word::NEW_LEVEL),
        "new_level",
        place,
    )?;
    let strip = value(word::NEW_CHUNK_BYTES) / SECTOR_BYTES as u32;
    let level = words.signed(word::NEW_LEVEL);
    check_strip(level, strip, at(word::NEW_CHUNK_BYTES), "new_chunk", place)?;
    let delta = words.signed(word::DELTA_DISKS);
    let old_count = i64::from(value(word::RAID_DISKS)) - i64::from(delta);
    let fits = (1..=MAX_MEMBERS as i64).contains(&old_count);
    let expected = format!("an old number of members of 1 to {MAX_MEMBERS}");
    place.check(fits, at(word::DELTA_DISKS), "delta_disks", delta, expected)
}

fn decode(words: &Words, area: &[u8; SUPERBLOCK_BYTES], found_at_sector: u64) -> Superblock {
    let value = |index: usize| words.words[index];
    let is_reshaping = value(word::MINOR) == 91;
    let time = |index: usize| MdTime {
        seconds: u64::from(value(index)),
        microseconds: 0,
    };
    let number = value(word::THIS_DISK + word::NUMBER);
    // 0.90 keeps these flags in the table; the member's own entry counts.
    let own_state = words.descriptor(number as usize)[word::DISK_STATE];
    let is_clean = value(word::STATE) & STATE_CLEAN != 0;
    let events = words.long(word::EVENTS);
    let checkpoint = if words.long(word::CP_EVENTS) == events {
        u64::from(value(word::RECOVERY_CP))
    } else {
        0
    };
    Superblock {
        version: MdVersion::V090,
        array_uuid: decode_uuid(words),
        name: String::new(),
        ctime: time(word::CTIME),
        utime: time(word::UTIME),
        level: words.signed(word::LEVEL),
        layout: value(word::LAYOUT),
        has_raid0_layout: false,
        component_sectors: 2 * u64::from(value(word::SIZE_KIB)),
        strip_sectors: value(word::CHUNK_BYTES) / SECTOR_BYTES as u32,
        member_count: value(word::RAID_DISKS),
        data_offset_sectors: 0,
        data_size_sectors: found_at_sector,
        is_clipped: false,
        logical_block_bytes: 0,
        super_offset_sectors: found_at_sector,
        rebuild_offset_sectors: None,
        journal_tail_sectors: None,
        dev_number: number,
        device_uuid: [0; 16],
        is_write_mostly: own_state & DISK_WRITE_MOSTLY != 0,
        is_failfast: own_state & DISK_FAILFAST != 0,
        events: EventCount(events),
        resync_offset_sectors: (!is_clean).then_some(checkpoint),
        roles: decode_roles(words),
        bitmap_offset_sectors: (value(word::STATE) & STATE_BITMAP != 0)
            .then_some(BITMAP_OFFSET_SECTORS),
        bad_block_log: None,
        has_bad_blocks: false,
        is_replacement: false,
        is_bitmap_rebuild: false,
        ppl: None,
        has_journal: false,
        has_answers_in_log: false,
        reshape: is_reshaping.then(|| Reshape {
            position_sectors: words.long(word::RESHAPE_POSITION),
            member_count_change: words.signed(word::DELTA_DISKS),
            new_level: words.signed(word::NEW_LEVEL),
            new_layout: value(word::NEW_LAYOUT),
            new_strip_sectors: value(word::NEW_CHUNK_BYTES) / SECTOR_BYTES as u32,
            new_offset_sectors: None,
            is_marked_backwards: false,
        }),
        corrected_reads: 0,
        raw: Kept::new(*area),
        is_big_endian: words.is_big_endian,
    }
}

fn uuid_words() -> [usize; 4] {
    [word::UUID0, word::UUID1, word::UUID1 + 1, word::UUID1 + 2]
}

fn decode_uuid(words: &Words) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (group, index) in uuid.chunks_exact_mut(4).zip(uuid_words()) {
        group.copy_from_slice(&words.words[index].to_be_bytes());
    }
    uuid
}

fn decode_roles(words: &Words) -> Vec<Role> {
    let is_reshaping = words.words[word::MINOR] == 91;
    (0..MAX_MEMBERS)
        .map(|number| decode_role(words.descriptor(number), is_reshaping))
        .collect()
}

/// Source: linux-md.md section 2, descriptor state bits.
fn decode_role(descriptor: &[u32], is_reshaping: bool) -> Role {
    let state = descriptor[word::DISK_STATE];
    if state & DISK_FAULTY != 0 {
        return Role::Faulty;
    }
    let counts = state & DISK_SYNC != 0 || (is_reshaping && state & DISK_ACTIVE != 0);
    // A role beyond the table cannot be a slot of 0.90: such an entry is nobody.
    match u16::try_from(descriptor[word::ROLE]) {
        Ok(role) if counts && usize::from(role) < MAX_MEMBERS => Role::Active(Slot(role)),
        _ => Role::Spare,
    }
}

/// A superblock whose member is larger than the device belongs to another device (a partition that ends where the
/// disk ends). Source: linux-md.md section 2.
fn check_size(
    superblock: &Superblock,
    device_sectors: u64,
    place: StructurePlace,
) -> Result<(), FormatError> {
    let is_on_device = superblock.super_offset_sectors < device_sectors;
    let expected = "a superblock inside the device";
    let found = superblock.super_offset_sectors;
    place.check(is_on_device, 0, "place", found, expected)?;
    if superblock.level < 1 {
        return Ok(());
    }
    let size = superblock.component_sectors;
    let fits = size >= 1 && size <= superblock.data_size_sectors;
    let found = format!("{} KiB", size / 2);
    let expected = format!("1 to {} KiB", superblock.data_size_sectors / 2);
    place.check(fits, at(word::SIZE_KIB), "size", found, expected)
}
