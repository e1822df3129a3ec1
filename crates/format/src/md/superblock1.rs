//! The 1.x superblock's bytes: 256 bytes of head, then the role table.
//!
//! Invariants:
//! - nothing is allocated or summed before `max_dev` is known to fit the 4 KiB;
//! - fields whose feature is off are kept as read; a feature that is switched off leaves zeroes.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::little_endian::{I32, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FormatError, Problem, StructurePlace, escape_text};
use crate::kept::Kept;
use crate::units::{EventCount, SECTOR_BYTES, Slot};

use super::superblock::{
    BadBlockArea, MAX_ROLES, MdTime, MdVersion, PplArea, Reshape, Role, SUPERBLOCK_BYTES,
    Superblock, feature,
};

use areas::check_placement;

pub(super) use encode::{check_encodable, encode};

/// Bytes before the role table.
pub(super) const HEAD_BYTES: usize = 256;
/// Bytes of the array's name.
pub(super) const NAME_BYTES: usize = 32;
/// First four bytes of every md superblock, as a little-endian number.
pub(super) const MAGIC: u32 = 0xa92b_4efc;

/// Value of `resync_offset` of a clean array.
const CLEAN: u64 = u64::MAX;
/// A bad block log is a single page at most: 512 entries.
const MAX_BAD_BLOCK_SECTORS: u16 = 8;
/// Least `data_size` that the kernel takes.
const MIN_DATA_SECTORS: u64 = 10;

const ROLE_SPARE: u16 = 0xffff;
const ROLE_FAULTY: u16 = 0xfffe;
const ROLE_JOURNAL: u16 = 0xfffd;
/// Highest number that is a role with or without a flag.
const ROLE_MAX: u16 = 0xfeff;
/// A NAS vendor's kernel marks members on which it has seen an error: the role is the rest. No array has so many slots.
const ROLE_ERROR_FLAG: u16 = 0x8000;
/// Largest logical block that a kernel can have.
const MAX_LOGICAL_BLOCK_BYTES: u32 = 64 << 10;

const KNOWN_FEATURES: u32 = feature::BITMAP
    | feature::RECOVERY_OFFSET
    | feature::RESHAPE
    | feature::BAD_BLOCKS
    | feature::REPLACEMENT
    | feature::RESHAPE_BACKWARDS
    | feature::NEW_OFFSET
    | feature::RECOVERY_BITMAP
    | feature::JOURNAL
    | feature::PPL
    | feature::MULTIPLE_PPLS
    | feature::RAID0_LAYOUT
    | feature::PLEXUM_STRIPE_LOG;

const FLAG_WRITE_MOSTLY: u8 = 1;
const FLAG_FAILFAST: u8 = 2;

/// Head of a 1.x superblock exactly as on disk. Source: linux-md.md section 1.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHead {
    magic: U32,              // 0
    major_version: U32,      // 4
    feature_map: U32,        // 8
    pad0: U32,               // 12
    set_uuid: [u8; 16],      // 16
    set_name: [u8; 32],      // 32
    ctime: U64,              // 64
    level: I32,              // 72
    layout: U32,             // 76
    size: U64,               // 80, sectors
    chunksize: U32,          // 88, sectors
    raid_disks: U32,         // 92
    bitmap_offset: [u8; 4],  // 96, s32; with PPL: s16 offset and u16 size
    new_level: I32,          // 100
    reshape_position: U64,   // 104, array sector
    delta_disks: I32,        // 112
    new_layout: U32,         // 116
    new_chunk: U32,          // 120, sectors
    new_offset: I32,         // 124
    data_offset: U64,        // 128
    data_size: U64,          // 136
    super_offset: U64,       // 144
    recovery_offset: U64,    // 152, journal device: journal_tail
    dev_number: U32,         // 160
    cnt_corrected_read: U32, // 164
    device_uuid: [u8; 16],   // 168
    devflags: u8,            // 184
    bblog_shift: u8,         // 185
    bblog_size: U16,         // 186, sectors
    bblog_offset: I32,       // 188
    utime: U64,              // 192
    events: U64,             // 200
    resync_offset: U64,      // 208
    sb_csum: U32,            // 216
    max_dev: U32,            // 220
    logical_block_size: U32, // 224, bytes; Linux 6.19 and later, padding before
    pad3: [u8; 28],          // 228
}
const _: () = assert!(size_of::<RawHead>() == HEAD_BYTES && offset_of!(RawHead, pad3) == 228);
const _: () = assert!(offset_of!(RawHead, data_offset) == 128 && offset_of!(RawHead, utime) == 192);

macro_rules! at {
    ($field:ident) => {
        offset_of!(RawHead, $field) as u64
    };
}

mod areas;
mod encode;

/// Decodes and checks; see [`Superblock::parse`].
pub(super) fn parse(
    area: &[u8; SUPERBLOCK_BYTES],
    found_at_sector: u64,
    device_sectors: u64,
    version: MdVersion,
) -> Result<Superblock, FormatError> {
    let place = StructurePlace {
        structure: version.structure(),
        base_bytes: found_at_sector.saturating_mul(SECTOR_BYTES),
    };
    let (head, _) = RawHead::ref_from_prefix(area).expect("the area is longer than the head");
    check_identity(head, area, found_at_sector, place)?;
    check_features(head, place)?;
    check_geometry(head, place)?;
    let mut superblock = decode(head, area, version);
    clip(&mut superblock, device_sectors);
    check_placement(&superblock, head, device_sectors, place)?;
    Ok(superblock)
}

fn check_identity(
    head: &RawHead,
    area: &[u8; SUPERBLOCK_BYTES],
    found_at_sector: u64,
    place: StructurePlace,
) -> Result<(), FormatError> {
    if head.magic.get() != MAGIC {
        let found = format_args!("{:#010x}", head.magic.get()).to_string();
        let expected = format!("{MAGIC:#010x}");
        return Err(place.error(Problem::NoMagic, at!(magic), "magic", found, expected));
    }
    if head.major_version.get() != 1 {
        let found = head.major_version.get();
        return Err(place.error(
            Problem::NoMagic,
            at!(major_version),
            "major_version",
            found,
            1,
        ));
    }
    let max_dev = head.max_dev.get();
    let fits = usize::try_from(max_dev).is_ok_and(|count| count <= MAX_ROLES);
    let expected = format_args!("at most {MAX_ROLES}").to_string();
    place.check(fits, at!(max_dev), "max_dev", max_dev, expected)?;
    let computed = checksum(area, max_dev as usize);
    if head.sb_csum.get() != computed {
        let found = format!("{:08x}", head.sb_csum.get());
        let expected = format!("{computed:08x}");
        return Err(place.error(Problem::Checksum, at!(sb_csum), "sb_csum", found, expected));
    }
    if head.super_offset.get() != found_at_sector {
        let found = head.super_offset.get();
        let field = "super_offset";
        return Err(place.error(
            Problem::Foreign,
            at!(super_offset),
            field,
            found,
            found_at_sector,
        ));
    }
    place.check(head.pad0.get() == 0, at!(pad0), "pad0", head.pad0.get(), 0)?;
    let block = head.logical_block_size.get();
    let fits = block == 0
        || block.is_power_of_two()
            && (SECTOR_BYTES as u32..=MAX_LOGICAL_BLOCK_BYTES).contains(&block);
    let expected = format!("0 or a power of two from 512 to {MAX_LOGICAL_BLOCK_BYTES}");
    place.check(
        fits,
        at!(logical_block_size),
        "logical_block_size",
        block,
        expected,
    )?;
    let pad = head.pad3.iter().position(|byte| *byte != 0);
    let pad_offset = at!(pad3) + pad.unwrap_or(0) as u64;
    place.check(pad.is_none(), pad_offset, "pad3", "not zero", "zeroes")
}

fn check_features(head: &RawHead, place: StructurePlace) -> Result<(), FormatError> {
    let map = head.feature_map.get();
    let refuse = |problem, found: &str, expected: &str| {
        Err(place.error(problem, at!(feature_map), "feature_map", found, expected))
    };
    if map & feature::CLUSTERED != 0 {
        let expected = "an array that a single machine uses";
        return refuse(Problem::Unsupported, "0x100 (clustered array)", expected);
    }
    let unknown = map & !KNOWN_FEATURES;
    if unknown != 0 {
        let found = format!("{map:#x} (unknown {unknown:#x})");
        let expected = format!("bits of {KNOWN_FEATURES:#x}");
        return refuse(Problem::Unsupported, &found, &expected);
    }
    let has = |mask: u32| map & mask != 0;
    let found = format!("{map:#x}");
    let contradictions = [
        (
            has(feature::PPL) && has(feature::MULTIPLE_PPLS),
            "one kind of partial parity log",
        ),
        (
            has(feature::PPL | feature::MULTIPLE_PPLS) && has(feature::BITMAP | feature::JOURNAL),
            "a partial parity log without bitmap and journal",
        ),
        (
            has(feature::RESHAPE_BACKWARDS | feature::NEW_OFFSET) && !has(feature::RESHAPE),
            "reshape details only during a reshape",
        ),
        (
            has(feature::PLEXUM_STRIPE_LOG) && !matches!(head.level.get(), 4..=6),
            "a stripe log only with parity",
        ),
        (
            has(feature::RAID0_LAYOUT) && head.level.get() != 0,
            "the RAID-0 layout bit only at level 0",
        ),
    ];
    match contradictions.into_iter().find(|(is_wrong, _)| *is_wrong) {
        Some((_, expected)) => refuse(Problem::Invalid, &found, expected),
        None => Ok(()),
    }
}

fn check_geometry(head: &RawHead, place: StructurePlace) -> Result<(), FormatError> {
    check_level(head.level.get(), at!(level), "level", place)?;
    let chunk = head.chunksize.get();
    check_strip(head.level.get(), chunk, at!(chunksize), "chunksize", place)?;
    let raid_disks = head.raid_disks.get();
    let fits = raid_disks >= 1 && usize::try_from(raid_disks).is_ok_and(|n| n <= MAX_ROLES);
    let expected = format!("1 to {MAX_ROLES}");
    place.check(fits, at!(raid_disks), "raid_disks", raid_disks, expected)?;
    if head.feature_map.get() & feature::RESHAPE == 0 {
        return Ok(());
    }
    check_level(head.new_level.get(), at!(new_level), "new_level", place)?;
    let new_chunk = head.new_chunk.get();
    check_strip(
        head.new_level.get(),
        new_chunk,
        at!(new_chunk),
        "new_chunk",
        place,
    )?;
    let old_count = i64::from(raid_disks) - i64::from(head.delta_disks.get());
    let fits = (1..=MAX_ROLES as i64).contains(&old_count);
    let expected = "an old number of members of 1 to 1920";
    place.check(
        fits,
        at!(delta_disks),
        "delta_disks",
        head.delta_disks.get(),
        expected,
    )
}

/// Levels that this project reads; md's multipath (-4), faulty (-5) and container levels are refused by number.
pub(super) fn check_level(
    level: i32,
    offset: u64,
    field: &'static str,
    place: StructurePlace,
) -> Result<(), FormatError> {
    if matches!(level, -1 | 0 | 1 | 4 | 5 | 6 | 10) {
        return Ok(());
    }
    let expected = "-1 (linear), 0, 1, 4, 5, 6 or 10";
    Err(place.error(Problem::Unsupported, offset, field, level, expected))
}

/// The strip sizes that the level can have. Source: linux-md.md section 1, chunksize.
pub(super) fn check_strip(
    level: i32,
    strip_sectors: u32,
    offset: u64,
    field: &'static str,
    place: StructurePlace,
) -> Result<(), FormatError> {
    let (fits, expected) = match level {
        0 => (
            strip_sectors >= 8 && strip_sectors.is_multiple_of(8),
            "a multiple of 8 sectors",
        ),
        4 | 5 | 6 | 10 => (
            strip_sectors >= 8 && strip_sectors.is_power_of_two(),
            "a power of two of at least 8 sectors",
        ),
        _ => (true, ""),
    };
    let found = format_args!("{strip_sectors} sectors").to_string();
    place.check(fits, offset, field, found, expected)
}

fn decode(head: &RawHead, area: &[u8; SUPERBLOCK_BYTES], version: MdVersion) -> Superblock {
    let map = head.feature_map.get();
    let has = |mask: u32| map & mask != 0;
    let roles = area[HEAD_BYTES..]
        .chunks_exact(2)
        .take(head.max_dev.get() as usize)
        .map(|pair| decode_role(u16::from_le_bytes([pair[0], pair[1]])))
        .collect();
    let mut superblock = Superblock {
        version,
        array_uuid: head.set_uuid,
        name: shown_name(&head.set_name),
        ctime: decode_time(head.ctime.get()),
        utime: decode_time(head.utime.get()),
        level: head.level.get(),
        layout: head.layout.get(),
        has_raid0_layout: has(feature::RAID0_LAYOUT),
        component_sectors: head.size.get(),
        strip_sectors: head.chunksize.get(),
        member_count: head.raid_disks.get(),
        data_offset_sectors: head.data_offset.get(),
        data_size_sectors: head.data_size.get(),
        is_clipped: false,
        logical_block_bytes: head.logical_block_size.get(),
        super_offset_sectors: head.super_offset.get(),
        rebuild_offset_sectors: has(feature::RECOVERY_OFFSET).then(|| head.recovery_offset.get()),
        journal_tail_sectors: None,
        dev_number: head.dev_number.get(),
        device_uuid: head.device_uuid,
        is_write_mostly: head.devflags & FLAG_WRITE_MOSTLY != 0,
        is_failfast: head.devflags & FLAG_FAILFAST != 0,
        events: EventCount(head.events.get()),
        resync_offset_sectors: Some(head.resync_offset.get()).filter(|offset| *offset != CLEAN),
        roles,
        bitmap_offset_sectors: has(feature::BITMAP).then(|| i32::from_le_bytes(head.bitmap_offset)),
        bad_block_log: decode_bad_block_area(head),
        has_bad_blocks: has(feature::BAD_BLOCKS),
        is_replacement: has(feature::REPLACEMENT),
        is_bitmap_rebuild: has(feature::RECOVERY_BITMAP),
        ppl: has(feature::PPL | feature::MULTIPLE_PPLS).then(|| {
            let [a, b, c, d] = head.bitmap_offset;
            PplArea {
                offset_sectors: i16::from_le_bytes([a, b]),
                size_sectors: u16::from_le_bytes([c, d]),
                is_multiple: has(feature::MULTIPLE_PPLS),
            }
        }),
        has_journal: has(feature::JOURNAL),
        has_answers_in_log: has(feature::PLEXUM_STRIPE_LOG),
        reshape: has(feature::RESHAPE).then(|| Reshape {
            position_sectors: head.reshape_position.get(),
            member_count_change: head.delta_disks.get(),
            new_level: head.new_level.get(),
            new_layout: head.new_layout.get(),
            new_strip_sectors: head.new_chunk.get(),
            new_offset_sectors: has(feature::NEW_OFFSET).then(|| head.new_offset.get()),
            is_marked_backwards: has(feature::RESHAPE_BACKWARDS),
        }),
        corrected_reads: head.cnt_corrected_read.get(),
        raw: Kept::new(*area),
        is_big_endian: false,
    };
    if superblock.role() == Role::Journal {
        superblock.journal_tail_sectors = Some(head.recovery_offset.get());
    }
    superblock
}

/// A device that was cut (a hidden area, an image that is not whole) behind what the array uses of it still holds all
/// its data. Only where the superblock is in front of them: the others are found from the end.
fn clip(superblock: &mut Superblock, device_sectors: u64) {
    let is_in_front = matches!(superblock.version, MdVersion::V11 | MdVersion::V12);
    let room = device_sectors.saturating_sub(superblock.data_offset_sectors);
    let strip = u64::from(superblock.strip_sectors).max(1);
    let needed = match superblock.level {
        1.. => superblock.component_sectors,
        _ => superblock.data_size_sectors / strip * strip,
    };
    if is_in_front && (1..=room).contains(&needed) && room < superblock.data_size_sectors {
        (superblock.data_size_sectors, superblock.is_clipped) = (room, true);
    }
}

fn decode_bad_block_area(head: &RawHead) -> Option<BadBlockArea> {
    let area = BadBlockArea {
        offset_sectors: head.bblog_offset.get(),
        size_sectors: head.bblog_size.get(),
        shift: head.bblog_shift,
    };
    (area.offset_sectors != 0 && area.size_sectors != 0).then_some(area)
}

/// The refusal of a new superblock on a device that is too short for the `wanted_sectors` of its data.
pub(super) fn clipped(made: &Superblock, wanted_sectors: u64) -> FormatError {
    let place = StructurePlace {
        structure: made.version.structure(),
        base_bytes: made.super_offset_sectors.saturating_mul(SECTOR_BYTES),
    };
    let room = made.data_size_sectors;
    let expected = format!("at most the {room} sectors between data offset and end of the room");
    let problem = Problem::Invalid;
    place.error(
        problem,
        at!(data_size),
        "data_size",
        wanted_sectors,
        expected,
    )
}

fn shown_name(name: &[u8; NAME_BYTES]) -> String {
    let length = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(NAME_BYTES);
    escape_text(&name[..length])
}

fn decode_role(number: u16) -> Role {
    match number {
        0..=ROLE_MAX => Role::Active(Slot(number & !ROLE_ERROR_FLAG)),
        ROLE_FAULTY => Role::Faulty,
        ROLE_JOURNAL => Role::Journal,
        _ => Role::Spare,
    }
}

/// Whether the table's entry of a device number is a role with the vendor's flag.
pub(super) fn has_error_flag(area: &[u8; SUPERBLOCK_BYTES], dev_number: usize) -> bool {
    let at = HEAD_BYTES + 2 * dev_number;
    let entry = area.get(at..at + 2).and_then(<[u8]>::first_chunk);
    entry.is_some_and(|pair| (ROLE_ERROR_FLAG..=ROLE_MAX).contains(&u16::from_le_bytes(*pair)))
}

const SECONDS_BITS: u32 = 40;

fn decode_time(time: u64) -> MdTime {
    MdTime {
        seconds: time & ((1 << SECONDS_BITS) - 1),
        microseconds: (time >> SECONDS_BITS) as u32, // 24 bits are left
    }
}

/// Sum of the 32-bit words of head and role table with `sb_csum` as 0, folded to 32 bits.
///
/// Source: linux-md.md section 1, checksum.
pub(super) fn checksum(area: &[u8; SUPERBLOCK_BYTES], max_dev: usize) -> u32 {
    assert!(max_dev <= MAX_ROLES, "the role table fits the area");
    let covered = &area[..HEAD_BYTES + 2 * max_dev];
    let words = covered.chunks_exact(4);
    let rest = match words.remainder() {
        [a, b] => u64::from(u16::from_le_bytes([*a, *b])),
        _ => 0,
    };
    let own_offset = offset_of!(RawHead, sb_csum);
    let own = area[own_offset..]
        .first_chunk()
        .expect("the head is inside the area");
    let sum = words
        .map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])))
        .sum::<u64>()
        + rest
        - u64::from(u32::from_le_bytes(*own));
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
