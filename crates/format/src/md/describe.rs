//! Decoded metadata as an ordered list of names and values, for `examine` and its JSON twin.
//!
//! Invariants:
//! - names are the glossary's, with their unit last, and are never changed, only added to;
//! - whatever the model holds is in the list: two superblocks with equal lists differ at most in bytes nobody reads.

use crate::describe::List;
pub use crate::describe::{Field, Value};
use crate::uuid::md_uuid_text;

use super::superblock::{Role, Superblock};
use super::{BadBlocks, Bitmap, BitmapKind, JournalMeta, PplHeader};

/// The level in words: `linear`, `raid5`; numbers that have none as themselves.
#[must_use]
pub fn level_name(level: i32) -> String {
    match level {
        -1 => "linear".to_owned(),
        0.. => format!("raid{level}"),
        _ => level.to_string(),
    }
}

/// md's name of a layout number at this level; `None` where the level has none or the number is unknown.
///
/// Source: linux-md.md section 7.
#[must_use]
pub fn layout_name(level: i32, layout: u32) -> Option<String> {
    let name = match (level, layout) {
        (0, 1) => "original",
        (0, 2) => "alternate",
        (5 | 6, 0) => "left-asymmetric",
        (5 | 6, 1) => "right-asymmetric",
        (5 | 6, 2) => "left-symmetric",
        (5 | 6, 3) => "right-symmetric",
        (5 | 6, 4) => "parity-first",
        (5 | 6, 5) => "parity-last",
        (6, 8) => "ddf-zero-restart",
        (6, 9) => "ddf-N-restart",
        (6, 10) => "ddf-N-continue",
        (6, 16) => "left-asymmetric-6",
        (6, 17) => "right-asymmetric-6",
        (6, 18) => "left-symmetric-6",
        (6, 19) => "right-symmetric-6",
        (6, 20) => "parity-first-6",
        (10, _) => return raid10_layout_name(layout),
        _ => return None,
    };
    Some(name.to_owned())
}

fn raid10_layout_name(layout: u32) -> Option<String> {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    let (is_offset, far_set) = (layout >> 16 & 1 == 1, layout >> 17);
    if near == 0 || far == 0 || far_set > 2 {
        return None;
    }
    let mut parts = Vec::new();
    if near > 1 || far == 1 {
        parts.push(format!("near={near}"));
    }
    if far > 1 {
        let kind = if is_offset { "offset" } else { "far" };
        parts.push(format!("{kind}={far}"));
    }
    if far_set > 0 {
        parts.push(format!("far-sets={far_set}"));
    }
    Some(parts.join(" "))
}

/// A role as a word: the slot number, `spare`, `faulty` or `journal`.
#[must_use]
pub fn role_text(role: Role) -> String {
    match role {
        Role::Active(slot) => slot.to_string(),
        Role::Spare => "spare".to_owned(),
        Role::Faulty => "faulty".to_owned(),
        Role::Journal => "journal".to_owned(),
    }
}

/// Everything a superblock says.
#[must_use]
pub fn describe_superblock(superblock: &Superblock) -> Vec<Field> {
    let mut list = List::new(superblock.version.structure());
    list.add("is_big_endian", superblock.is_big_endian());
    list.add("features", format!("{:#x}", superblock.features()));
    list.add("array_uuid", md_uuid_text(&superblock.array_uuid));
    list.add("name", superblock.name.as_str());
    list.add("created_s", superblock.ctime.seconds);
    list.add("created_us", superblock.ctime.microseconds);
    list.add("updated_s", superblock.utime.seconds);
    list.add("updated_us", superblock.utime.microseconds);
    describe_geometry(superblock, &mut list);
    describe_member(superblock, &mut list);
    describe_areas(superblock, &mut list);
    describe_reshape(superblock, &mut list);
    list.0
}

fn describe_geometry(superblock: &Superblock, list: &mut List) {
    let (level, layout) = (superblock.level, superblock.layout);
    list.add("level", level_name(level));
    list.add("layout", layout);
    let is_named = level != 0 || superblock.has_raid0_layout;
    list.add(
        "layout_name",
        layout_name(level, layout).filter(|_| is_named),
    );
    list.add("strip_sectors", superblock.strip_sectors);
    let block_bytes = Some(superblock.logical_block_bytes).filter(|bytes| *bytes > 0);
    list.add("logical_block_bytes", block_bytes);
    list.add("member_count", superblock.member_count);
    list.add("component_sectors", superblock.component_sectors);
    list.add("event_count", superblock.events.0);
    list.add("is_clean", superblock.is_clean());
    list.add("resync_offset_sectors", superblock.resync_offset_sectors);
}

fn describe_member(superblock: &Superblock, list: &mut List) {
    list.add("device_uuid", md_uuid_text(&superblock.device_uuid));
    list.add("dev_number", superblock.dev_number);
    list.add("role", role_text(superblock.role()));
    let known = superblock
        .roles
        .iter()
        .rposition(|role| *role != Role::Spare);
    let table = superblock
        .roles
        .iter()
        .take(known.map_or(0, |last| last + 1));
    list.add(
        "roles",
        Value::List(table.map(|role| role_text(*role).into()).collect()),
    );
    list.add("role_table_entries", superblock.roles.len() as u64);
    list.add("is_write_mostly", superblock.is_write_mostly);
    list.add("is_failfast", superblock.is_failfast);
    list.add("is_replacement", superblock.is_replacement);
    list.add("rebuild_offset_sectors", superblock.rebuild_offset_sectors);
    list.add("is_bitmap_rebuild", superblock.is_bitmap_rebuild);
    list.add("corrected_reads", superblock.corrected_reads);
    list.add("super_offset_sectors", superblock.super_offset_sectors);
    list.add("data_offset_sectors", superblock.data_offset_sectors);
    list.add("data_size_sectors", superblock.data_size_sectors);
    list.add("is_clipped", superblock.is_clipped);
    let flagged = superblock.flagged_dev_numbers();
    list.add(
        "disk_error_flags",
        Value::List(flagged.map(|number| number.to_string().into()).collect()),
    );
}

fn describe_areas(superblock: &Superblock, list: &mut List) {
    list.add("bitmap_offset_sectors", superblock.bitmap_offset_sectors);
    let log = superblock.bad_block_log;
    list.add(
        "bad_block_log_offset_sectors",
        log.map(|log| log.offset_sectors),
    );
    list.add(
        "bad_block_log_size_sectors",
        log.map(|log| log.size_sectors),
    );
    list.add("bad_block_log_shift", log.map(|log| log.shift));
    list.add("has_bad_blocks", superblock.has_bad_blocks);
    let ppl = superblock.ppl;
    list.add("ppl_offset_sectors", ppl.map(|ppl| ppl.offset_sectors));
    list.add("ppl_size_sectors", ppl.map(|ppl| ppl.size_sectors));
    list.add("ppl_is_ring", ppl.map(|ppl| ppl.is_multiple));
    list.add("has_journal", superblock.has_journal);
    list.add("has_answers_in_log", superblock.has_answers_in_log);
    list.add("journal_tail_sectors", superblock.journal_tail_sectors);
}

fn describe_reshape(superblock: &Superblock, list: &mut List) {
    let Some(reshape) = &superblock.reshape else {
        list.add("is_reshaping", false);
        return;
    };
    list.add("is_reshaping", true);
    list.add("reshape_position_sectors", reshape.position_sectors);
    list.add("reshape_is_backwards", reshape.is_backwards());
    list.add("reshape_is_marked_backwards", reshape.is_marked_backwards);
    list.add("member_count_change", reshape.member_count_change);
    list.add("new_level", level_name(reshape.new_level));
    list.add("new_layout", reshape.new_layout);
    list.add(
        "new_layout_name",
        layout_name(reshape.new_level, reshape.new_layout),
    );
    list.add("new_strip_sectors", reshape.new_strip_sectors);
    list.add("new_offset_sectors", reshape.new_offset_sectors);
}

/// Everything a bitmap says; of the regions only how many may differ.
#[must_use]
pub fn describe_bitmap(bitmap: &Bitmap) -> Vec<Field> {
    let header = &bitmap.header;
    let mut list = List::new(match header.kind {
        BitmapKind::Bits => "md bitmap 4",
        BitmapKind::Lockless => "md bitmap 6 (lockless)",
    });
    list.add("array_uuid", md_uuid_text(&header.uuid));
    list.add("event_count", header.events.0);
    list.add("event_count_cleared", header.events_cleared.0);
    list.add("is_stale", header.is_stale);
    list.add("has_write_error", header.has_write_error);
    list.add("sync_size_sectors", header.sync_size_sectors);
    list.add("region_bytes", header.region_bytes);
    list.add("region_count", bitmap.region_count());
    list.add("region_count_set", bitmap.count_set());
    list.add("daemon_sleep_s", header.daemon_sleep_seconds);
    list.add("write_behind", header.write_behind);
    list.add("reserved_sectors", header.reserved_sectors);
    list.0
}

/// The bad ranges as `start+length` in sectors of the member.
#[must_use]
pub fn describe_bad_blocks(blocks: &BadBlocks) -> Vec<Field> {
    let mut list = List::new("md bad block log");
    let sectors: u64 = blocks
        .ranges()
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    list.add("bad_sectors", sectors);
    let ranges = blocks.ranges().iter();
    let texts = ranges.map(|range| format!("{}+{}", range.start, range.end - range.start).into());
    list.add("bad_ranges_sectors", Value::List(texts.collect()));
    list.0
}

/// The newest header of a partial parity log.
#[must_use]
pub fn describe_ppl(header: &PplHeader) -> Vec<Field> {
    let mut list = List::new("md partial parity log");
    list.add("signature", format!("{:08x}", header.signature));
    list.add("generation", header.generation);
    let entries = header.entries.iter().map(|entry| {
        let text = format!(
            "array sector {} data {} bytes parity {} bytes on slot {}",
            entry.data_sector, entry.data_bytes, entry.partial_parity_bytes, entry.parity_slot
        );
        text.into()
    });
    list.add("entries", Value::List(entries.collect()));
    list.0
}

/// A meta block of a write journal.
#[must_use]
pub fn describe_journal(meta: &JournalMeta) -> Vec<Field> {
    let mut list = List::new("md write journal");
    list.add("sequence", meta.sequence);
    list.add("position_sectors", meta.position_sectors);
    list.add("payload_count", meta.payloads.len() as u64);
    let sectors = meta
        .payloads
        .iter()
        .map(|payload| u64::from(payload.size_sectors));
    list.add("payload_sectors", sectors.sum::<u64>());
    list.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raid10_layouts_have_names() {
        for (layout, name) in [
            (0x102, Some("near=2")),
            (0x201, Some("far=2")),
            (0x10201, Some("offset=2")),
            (0x202, Some("near=2 far=2")),
            (0x40201, Some("far=2 far-sets=2")),
            (0x2, None),
            (0x100, None),
        ] {
            assert_eq!(layout_name(10, layout).as_deref(), name, "{layout:#x}");
        }
    }
}
