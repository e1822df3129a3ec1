//! From a superblock to its bytes, and what has no place in them.

use std::mem::offset_of;

use zerocopy::FromBytes;

use crate::error::{FormatError, Problem, StructurePlace};
use crate::units::SECTOR_BYTES;

use super::super::superblock::{MAX_ROLES, MdTime, Role, SUPERBLOCK_BYTES, Superblock, feature};

use super::{
    CLEAN, FLAG_FAILFAST, FLAG_WRITE_MOSTLY, HEAD_BYTES, MAGIC, NAME_BYTES, ROLE_ERROR_FLAG,
    ROLE_FAULTY, ROLE_JOURNAL, ROLE_SPARE, RawHead, SECONDS_BITS, checksum, decode_bad_block_area,
    decode_role, shown_name,
};

/// Refuses what the 1.x format has no place for.
pub(in crate::md) fn check_encodable(superblock: &Superblock) -> Result<(), FormatError> {
    let place = StructurePlace {
        structure: superblock.version.structure(),
        base_bytes: superblock.super_offset_sectors.saturating_mul(SECTOR_BYTES),
    };
    let refuse = |offset, field, found: String, expected: String| {
        Err(place.error(Problem::Request, offset, field, found, expected))
    };
    if superblock.roles.len() > MAX_ROLES {
        let found = superblock.roles.len().to_string();
        return refuse(
            at!(max_dev),
            "max_dev",
            found,
            format!("at most {MAX_ROLES}"),
        );
    }
    let high = superblock.roles.iter().filter_map(|role| role.slot());
    let too_high = |slot: &u16| *slot >= ROLE_ERROR_FLAG;
    if let Some(slot) = high.map(|slot| slot.0).find(too_high) {
        let expected = format!("at most {}", ROLE_ERROR_FLAG - 1);
        return refuse(HEAD_BYTES as u64, "dev_roles", slot.to_string(), expected);
    }
    if superblock.ppl.is_some() && superblock.bitmap_offset_sectors.is_some() {
        let expected = "either bitmap or partial parity log".to_owned();
        return refuse(
            at!(bitmap_offset),
            "bitmap_offset",
            "both".to_owned(),
            expected,
        );
    }
    Ok(())
}

/// The area's bytes; see [`Superblock::encode`].
pub(in crate::md) fn encode(superblock: &Superblock) -> [u8; SUPERBLOCK_BYTES] {
    if let Err(error) = check_encodable(superblock) {
        panic!("a superblock that the format can hold: {error}");
    }
    let mut area = *superblock.raw;
    encode_roles(superblock, &mut area);
    let (head, _) = RawHead::mut_from_prefix(&mut area).expect("the area is longer than the head");
    let old_map = head.feature_map.get();
    let old_area = decode_bad_block_area(head);
    head.magic.set(MAGIC);
    head.major_version.set(1);
    head.feature_map.set(superblock.features());
    head.set_uuid = superblock.array_uuid;
    encode_name(superblock, head);
    head.ctime.set(encode_time(superblock.ctime));
    head.utime.set(encode_time(superblock.utime));
    head.level.set(superblock.level);
    head.layout.set(superblock.layout);
    head.size.set(superblock.component_sectors);
    head.chunksize.set(superblock.strip_sectors);
    head.raid_disks.set(superblock.member_count);
    head.data_offset.set(superblock.data_offset_sectors);
    if !superblock.is_clipped {
        head.data_size.set(superblock.data_size_sectors);
    }
    head.logical_block_size.set(superblock.logical_block_bytes);
    head.super_offset.set(superblock.super_offset_sectors);
    head.dev_number.set(superblock.dev_number);
    head.cnt_corrected_read.set(superblock.corrected_reads);
    head.device_uuid = superblock.device_uuid;
    set_flag(
        &mut head.devflags,
        FLAG_WRITE_MOSTLY,
        superblock.is_write_mostly,
    );
    set_flag(&mut head.devflags, FLAG_FAILFAST, superblock.is_failfast);
    head.events.set(superblock.events.0);
    head.resync_offset
        .set(superblock.resync_offset_sectors.unwrap_or(CLEAN));
    head.max_dev.set(superblock.roles.len() as u32);
    encode_optional(superblock, head, old_map);
    match superblock.bad_block_log {
        Some(log) => {
            head.bblog_offset.set(log.offset_sectors);
            head.bblog_size.set(log.size_sectors);
            head.bblog_shift = log.shift;
        }
        None if old_area.is_some() => {
            head.bblog_offset.set(0);
            head.bblog_size.set(0);
            head.bblog_shift = 0;
        }
        None => {}
    }
    let sum = checksum(&area, superblock.roles.len());
    let (head, _) = RawHead::mut_from_prefix(&mut area).expect("the area is longer than the head");
    head.sb_csum.set(sum);
    area
}

/// Fields that share bytes or belong to a feature: written when it is on, zeroed when it has just gone off.
fn encode_optional(superblock: &Superblock, head: &mut RawHead, old_map: u32) {
    let went_off = |mask: u32| old_map & mask != 0;
    if let Some(offset) = superblock.bitmap_offset_sectors {
        head.bitmap_offset = offset.to_le_bytes();
    } else if let Some(ppl) = superblock.ppl {
        let [a, b] = ppl.offset_sectors.to_le_bytes();
        let [c, d] = ppl.size_sectors.to_le_bytes();
        head.bitmap_offset = [a, b, c, d];
    } else if went_off(feature::BITMAP | feature::PPL | feature::MULTIPLE_PPLS) {
        head.bitmap_offset = [0; 4];
    }
    if let Some(offset) = superblock.rebuild_offset_sectors {
        head.recovery_offset.set(offset);
    } else if let Some(tail) = superblock.journal_tail_sectors {
        head.recovery_offset.set(tail);
    } else if went_off(feature::RECOVERY_OFFSET) {
        head.recovery_offset.set(0);
    }
    if let Some(reshape) = &superblock.reshape {
        head.new_level.set(reshape.new_level);
        head.reshape_position.set(reshape.position_sectors);
        head.delta_disks.set(reshape.member_count_change);
        head.new_layout.set(reshape.new_layout);
        head.new_chunk.set(reshape.new_strip_sectors);
        if let Some(change) = reshape.new_offset_sectors {
            head.new_offset.set(change);
        } else if went_off(feature::NEW_OFFSET) {
            head.new_offset.set(0);
        }
    } else if went_off(feature::RESHAPE) {
        head.new_level.set(0);
        head.reshape_position.set(0);
        head.delta_disks.set(0);
        head.new_layout.set(0);
        head.new_chunk.set(0);
        head.new_offset.set(0);
    }
}

/// Roles that still read the same keep their bytes (unknown role numbers above 0xfeff read as spare).
fn encode_roles(superblock: &Superblock, area: &mut [u8; SUPERBLOCK_BYTES]) {
    let (head, table) = area.split_at_mut(HEAD_BYTES);
    let (head, _) = RawHead::ref_from_prefix(head).expect("the head is 256 bytes");
    let known = head.max_dev.get() as usize;
    for (index, (pair, role)) in table.chunks_exact_mut(2).zip(&superblock.roles).enumerate() {
        let old = u16::from_le_bytes([pair[0], pair[1]]);
        if index >= known || decode_role(old) != *role {
            pair.copy_from_slice(&encode_role(*role).to_le_bytes());
        }
    }
}

fn encode_name(superblock: &Superblock, head: &mut RawHead) {
    if superblock.name == shown_name(&head.set_name) {
        return; // also keeps names that are not UTF-8
    }
    let mut length = superblock.name.len().min(NAME_BYTES);
    while !superblock.name.is_char_boundary(length) {
        length -= 1;
    }
    head.set_name = [0; NAME_BYTES];
    head.set_name[..length].copy_from_slice(&superblock.name.as_bytes()[..length]);
}

fn set_flag(flags: &mut u8, mask: u8, is_set: bool) {
    *flags = if is_set {
        *flags | mask
    } else {
        *flags & !mask
    };
}

fn encode_role(role: Role) -> u16 {
    match role {
        Role::Active(slot) => slot.0,
        Role::Spare => ROLE_SPARE,
        Role::Faulty => ROLE_FAULTY,
        Role::Journal => ROLE_JOURNAL,
    }
}

fn encode_time(time: MdTime) -> u64 {
    (time.seconds & ((1 << SECONDS_BITS) - 1)) | (u64::from(time.microseconds) << SECONDS_BITS)
}
