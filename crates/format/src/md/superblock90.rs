//! The 0.90 superblock's bytes: 1024 words of 32 bits in the byte order of the machine that made it.
//!
//! Invariants:
//! - a rewrite keeps the byte order it found;
//! - words that the model does not describe, and those of members whose role did not change, are kept as read.

use crate::error::{FormatError, Place, Problem};
use crate::kept::Kept;
use crate::units::{EventCount, SECTOR_BYTES, Slot};

use super::superblock::{MdTime, MdVersion, Reshape, Role, SUPERBLOCK_BYTES, Superblock};
use super::superblock1::{MAGIC, check_level, check_strip};

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
    let place = Place {
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

fn check(words: &Words, place: Place) -> Result<(), FormatError> {
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

fn check_reshape(words: &Words, place: Place) -> Result<(), FormatError> {
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
    place: Place,
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

/// Refuses what 0.90 has no place for.
pub(super) fn check_encodable(superblock: &Superblock) -> Result<(), FormatError> {
    let refuse = |index: usize, field: &'static str, found: String, expected: &str| {
        let structure = MdVersion::V090.structure();
        let problem = Problem::Request;
        Err(FormatError::new(
            problem,
            structure,
            at(index),
            field,
            found,
            expected,
        ))
    };
    if superblock.roles.len() > MAX_MEMBERS || superblock.dev_number as usize >= MAX_MEMBERS {
        let found = superblock
            .roles
            .len()
            .max(superblock.dev_number as usize + 1);
        return refuse(
            word::DISKS,
            "number of members",
            found.to_string(),
            "at most 27",
        );
    }
    let is_low = |role: &Role| role.slot().is_none_or(|slot| slot.index() < MAX_MEMBERS);
    if superblock.roles.contains(&Role::Journal) || !superblock.roles.iter().all(is_low) {
        let expected = "slots below 27 and no journal";
        return refuse(word::DISKS, "roles", "another".to_owned(), expected);
    }
    let size = superblock.component_sectors;
    if !size.is_multiple_of(2) || size / 2 > u64::from(u32::MAX) {
        let expected = "whole KiB, at most 4 TiB";
        return refuse(word::SIZE_KIB, "size", format!("{size} sectors"), expected);
    }
    let largest_strip = u32::MAX / SECTOR_BYTES as u32;
    if superblock.strip_sectors > largest_strip
        || superblock
            .reshape
            .is_some_and(|r| r.new_strip_sectors > largest_strip)
    {
        let found = format!("{} sectors", superblock.strip_sectors);
        return refuse(word::CHUNK_BYTES, "chunk_size", found, "below 4 GiB");
    }
    if superblock.data_offset_sectors != 0 {
        let found = format!("{} sectors", superblock.data_offset_sectors);
        return refuse(0, "data offset", found, "0");
    }
    check_no_extras(superblock)
}

/// Refuses what only 1.x can say.
fn check_no_extras(superblock: &Superblock) -> Result<(), FormatError> {
    let refuse = |index: usize, field: &'static str, found: String, expected: &str| {
        let structure = MdVersion::V090.structure();
        let problem = Problem::Request;
        Err(FormatError::new(
            problem,
            structure,
            at(index),
            field,
            found,
            expected,
        ))
    };
    let has_foreign_place = superblock
        .bitmap_offset_sectors
        .is_some_and(|offset| offset != BITMAP_OFFSET_SECTORS);
    if has_foreign_place {
        let found = format!("{:?}", superblock.bitmap_offset_sectors);
        return refuse(word::STATE, "bitmap offset", found, "8 sectors");
    }
    let extras = [
        (
            superblock.rebuild_offset_sectors.is_some(),
            "rebuild offset",
        ),
        (
            superblock.bad_block_log.is_some() || superblock.has_bad_blocks,
            "bad block log",
        ),
        (superblock.ppl.is_some(), "partial parity log"),
        (superblock.has_journal, "journal"),
        (superblock.has_answers_in_log, "answers in the stripe log"),
        (superblock.is_replacement, "replacement"),
        (superblock.is_bitmap_rebuild, "rebuild by bitmap"),
        (superblock.has_raid0_layout, "RAID-0 layout"),
    ];
    match extras.into_iter().find(|(is_set, _)| *is_set) {
        Some((_, field)) => refuse(0, field, "set".to_owned(), "metadata 1.x for this"),
        None => Ok(()),
    }
}

/// The area's bytes; see [`Superblock::encode`].
pub(super) fn encode(superblock: &Superblock) -> [u8; SUPERBLOCK_BYTES] {
    if let Err(error) = check_encodable(superblock) {
        panic!("a superblock that the format can hold: {error}");
    }
    let mut words = Words::decode(&superblock.raw, superblock.is_big_endian);
    let is_new = words.words[word::MAGIC] != MAGIC;
    if is_new {
        words.words[word::MAGIC] = MAGIC;
        words.words[4] = 0; // gvalid_words: mdadm writes 0
    }
    let minor = if superblock.reshape.is_some() { 91 } else { 90 };
    words.words[word::MINOR] = minor;
    for (group, index) in superblock.array_uuid.chunks_exact(4).zip(uuid_words()) {
        words.words[index] = u32::from_be_bytes([group[0], group[1], group[2], group[3]]);
    }
    words.words[word::CTIME] = superblock.ctime.seconds as u32; // 32 bits are all there are
    words.words[word::UTIME] = superblock.utime.seconds as u32;
    words.words[word::LEVEL] = superblock.level.cast_unsigned();
    words.words[word::LAYOUT] = superblock.layout;
    words.words[word::SIZE_KIB] = (superblock.component_sectors / 2) as u32;
    words.words[word::RAID_DISKS] = superblock.member_count;
    if words.words[word::CHUNK_BYTES] / SECTOR_BYTES as u32 != superblock.strip_sectors {
        words.words[word::CHUNK_BYTES] = superblock.strip_sectors * SECTOR_BYTES as u32;
    }
    encode_progress(superblock, &mut words);
    encode_reshape(superblock, &mut words);
    encode_table(superblock, &mut words, is_new);
    words.words[word::CHECKSUM] = words.checksum();
    words.encode()
}

/// Clean bit, checkpoint and events: the checkpoint counts only with the events it was written with.
fn encode_progress(superblock: &Superblock, words: &mut Words) {
    let mut state = words.words[word::STATE] & !(STATE_CLEAN | STATE_BITMAP);
    if superblock.bitmap_offset_sectors.is_some() {
        state |= STATE_BITMAP;
    }
    let events = superblock.events.0;
    words.set_long(word::EVENTS, events);
    match superblock.resync_offset_sectors {
        None => state |= STATE_CLEAN,
        Some(offset) => {
            let is_current = words.long(word::CP_EVENTS) == events;
            let shown = if is_current {
                u64::from(words.words[word::RECOVERY_CP])
            } else {
                0
            };
            if shown != offset {
                // Larger positions do not fit: begin anew rather than skip.
                words.words[word::RECOVERY_CP] = u32::try_from(offset).unwrap_or(0);
                words.set_long(word::CP_EVENTS, events);
            }
        }
    }
    words.words[word::STATE] = state;
}

fn encode_reshape(superblock: &Superblock, words: &mut Words) {
    if let Some(reshape) = &superblock.reshape {
        words.set_long(word::RESHAPE_POSITION, reshape.position_sectors);
        words.words[word::DELTA_DISKS] = reshape.member_count_change.cast_unsigned();
        words.words[word::NEW_LEVEL] = reshape.new_level.cast_unsigned();
        words.words[word::NEW_LAYOUT] = reshape.new_layout;
        let shown = words.words[word::NEW_CHUNK_BYTES] / SECTOR_BYTES as u32;
        if shown != reshape.new_strip_sectors {
            words.words[word::NEW_CHUNK_BYTES] = reshape.new_strip_sectors * SECTOR_BYTES as u32;
        }
    }
}

/// Descriptors whose role changed are rewritten, and then the counters; `this_disk` repeats the member's own entry.
fn encode_table(superblock: &Superblock, words: &mut Words, is_new: bool) {
    let is_reshaping = superblock.reshape.is_some();
    let mut is_changed = is_new;
    for number in 0..MAX_MEMBERS {
        let role = superblock.role_of(number as u32);
        if decode_role(words.descriptor(number), is_reshaping) == role {
            continue;
        }
        is_changed = true;
        let start = word::DISKS + word::DISK_WORDS * number;
        let descriptor = &mut words.words[start..start + word::DISK_WORDS];
        let kept = descriptor[word::DISK_STATE] & (DISK_WRITE_MOSTLY | DISK_FAILFAST);
        descriptor[word::NUMBER] = number as u32;
        let (slot, state) = match role {
            Role::Active(slot) => (u32::from(slot.0), DISK_ACTIVE | DISK_SYNC),
            Role::Faulty => (number as u32, DISK_FAULTY),
            Role::Spare | Role::Journal => (number as u32, 0),
        };
        descriptor[word::ROLE] = slot;
        descriptor[word::DISK_STATE] = state | kept;
    }
    let own = superblock.dev_number as usize;
    let own_start = word::DISKS + word::DISK_WORDS * own;
    let mut own_state = words.words[own_start + word::DISK_STATE];
    let old_state = own_state;
    own_state &= !(DISK_WRITE_MOSTLY | DISK_FAILFAST);
    own_state |= if superblock.is_write_mostly {
        DISK_WRITE_MOSTLY
    } else {
        0
    };
    own_state |= if superblock.is_failfast {
        DISK_FAILFAST
    } else {
        0
    };
    let this_number = words.words[word::THIS_DISK + word::NUMBER];
    if is_changed || own_state != old_state || this_number != own as u32 {
        words.words[own_start + word::DISK_STATE] = own_state;
        words.words[own_start + word::NUMBER] = own as u32;
        words
            .words
            .copy_within(own_start..own_start + word::DISK_WORDS, word::THIS_DISK);
        encode_counters(superblock, words);
    }
}

fn encode_counters(superblock: &Superblock, words: &mut Words) {
    let count =
        |wanted: fn(&Role) -> bool| superblock.roles.iter().filter(|r| wanted(r)).count() as u32;
    let active = count(|role| matches!(role, Role::Active(_)));
    let failed = count(|role| matches!(role, Role::Faulty));
    words.words[word::ACTIVE_DISKS] = active;
    words.words[word::WORKING_DISKS] = active;
    words.words[word::FAILED_DISKS] = failed;
    words.words[word::SPARE_DISKS] = 0; // an empty descriptor and a spare look alike; nobody relies on the number
    words.words[word::NR_DISKS] = active + failed;
}
