//! From a superblock to its bytes, and what has no place in them.

use crate::error::{FormatError, Problem};
use crate::units::SECTOR_BYTES;

use super::super::superblock::{MdVersion, Role, SUPERBLOCK_BYTES, Superblock};
use super::super::superblock1::MAGIC;

use super::{
    BITMAP_OFFSET_SECTORS, DISK_ACTIVE, DISK_FAILFAST, DISK_FAULTY, DISK_SYNC, DISK_WRITE_MOSTLY,
    MAX_MEMBERS, STATE_BITMAP, STATE_CLEAN, Words, at, decode_role, uuid_words, word,
};

/// Refuses what 0.90 has no place for.
pub(in crate::md) fn check_encodable(superblock: &Superblock) -> Result<(), FormatError> {
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

/// The refusal of a field whose place is the word `index`.
fn refuse(
    index: usize,
    field: &'static str,
    found: String,
    expected: &str,
) -> Result<(), FormatError> {
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
}

/// Refuses what only 1.x can say.
fn check_no_extras(superblock: &Superblock) -> Result<(), FormatError> {
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
pub(in crate::md) fn encode(superblock: &Superblock) -> [u8; SUPERBLOCK_BYTES] {
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
