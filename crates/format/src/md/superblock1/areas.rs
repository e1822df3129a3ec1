//! Whether the areas that a superblock points to lie on the device and on nothing else.

use std::mem::offset_of;

use crate::error::{FormatError, StructurePlace};
use crate::units::SECTOR_BYTES;

use super::super::superblock::{MdVersion, Role, SUPERBLOCK_BYTES, Superblock};

use super::{MAX_BAD_BLOCK_SECTORS, MIN_DATA_SECTORS, RawHead};

/// Refuses areas that lie outside the device or on each other, so that nobody who obeys the superblock can write
/// where data or another structure are. Source: linux-md.md section 1, load-time refusals; the overlap of bitmap, bad
/// block log and parity log with data is our own rule (the kernel does not look).
pub(super) fn check_placement(
    superblock: &Superblock,
    head: &RawHead,
    device_sectors: u64,
    place: StructurePlace,
) -> Result<(), FormatError> {
    let super_start = superblock.super_offset_sectors;
    let data_start = superblock.data_offset_sectors;
    let data_size = superblock.data_size_sectors;
    let field = "data_size";
    let expected = format!("at least {MIN_DATA_SECTORS} sectors");
    place.check(
        data_size >= MIN_DATA_SECTORS,
        at!(data_size),
        field,
        data_size,
        expected,
    )?;
    let data_limit = if superblock.version == MdVersion::V10 {
        super_start.min(device_sectors)
    } else {
        let after = super_start.saturating_add(SUPERBLOCK_BYTES as u64 / SECTOR_BYTES);
        let expected = format!("at least {after}, behind the superblock");
        place.check(
            data_start >= after,
            at!(data_offset),
            "data_offset",
            data_start,
            expected,
        )?;
        if let Some(change) = superblock.reshape.and_then(|r| r.new_offset_sectors) {
            let new_start = data_start.checked_add_signed(i64::from(change));
            let fits = new_start.is_some_and(|start| start >= after);
            let expected = format!("a new data offset of at least {after}");
            place.check(fits, at!(new_offset), "new_offset", change, expected)?;
        }
        device_sectors
    };
    let room = data_limit.saturating_sub(data_start);
    let expected = format!("at most the {room} sectors between data offset and end of the room");
    place.check(
        data_size <= room,
        at!(data_size),
        "data_size",
        data_size,
        expected,
    )?;
    if matches!(superblock.role(), Role::Active(_)) && superblock.level > 0 {
        let size = superblock.component_sectors;
        let fits = size >= 1 && size <= data_size;
        let expected = format!("1 to {data_size} (data_size)");
        place.check(fits, at!(size), "size", size, expected)?;
    }
    check_areas(superblock, head, device_sectors, place)
}

fn check_areas(
    superblock: &Superblock,
    head: &RawHead,
    device_sectors: u64,
    place: StructurePlace,
) -> Result<(), FormatError> {
    if superblock.has_bad_blocks {
        let size = head.bblog_size.get();
        let fits = (1..=MAX_BAD_BLOCK_SECTORS).contains(&size);
        let expected = format!("1 to {MAX_BAD_BLOCK_SECTORS} sectors");
        place.check(fits, at!(bblog_size), "bblog_size", size, expected)?;
        let offset = head.bblog_offset.get();
        place.check(
            offset != 0,
            at!(bblog_offset),
            "bblog_offset",
            offset,
            "not 0",
        )?;
    }
    let areas = [
        (
            superblock.bitmap_offset_sectors,
            1,
            at!(bitmap_offset),
            "bitmap_offset",
        ),
        (
            superblock.bad_block_log.map(|log| log.offset_sectors),
            superblock
                .bad_block_log
                .map_or(0, |log| u64::from(log.size_sectors)),
            at!(bblog_offset),
            "bblog_offset",
        ),
        (
            superblock.ppl.map(|ppl| i32::from(ppl.offset_sectors)),
            superblock
                .ppl
                .map_or(0, |ppl| u64::from(ppl.size_sectors).max(8)),
            at!(bitmap_offset),
            "ppl.offset",
        ),
    ];
    for (offset, size, field_offset, field) in areas {
        let Some(offset) = offset else { continue };
        let fits = area_is_free(superblock, i64::from(offset), size, device_sectors);
        let expected = "a place on the device beside superblock and data";
        place.check(fits, field_offset, field, offset, expected)?;
    }
    Ok(())
}

/// Whether `size` sectors at `offset` from the superblock lie on the device and touch neither superblock nor data.
fn area_is_free(superblock: &Superblock, offset: i64, size: u64, device_sectors: u64) -> bool {
    let super_start = superblock.super_offset_sectors;
    let Some(start) = super_start.checked_add_signed(offset) else {
        return false;
    };
    let Some(end) = start.checked_add(size).filter(|end| *end <= device_sectors) else {
        return false;
    };
    let super_end = super_start + superblock.used_bytes().div_ceil(SECTOR_BYTES as usize) as u64;
    let data_start = superblock.data_offset_sectors;
    let data_end = data_start.saturating_add(superblock.used_sectors());
    let is_apart = |other_start: u64, other_end: u64| end <= other_start || start >= other_end;
    is_apart(super_start, super_end) && is_apart(data_start, data_end)
}
