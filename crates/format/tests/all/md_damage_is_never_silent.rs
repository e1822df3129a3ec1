//! Damaged metadata is refused or seen; hostile metadata gets a line with the field, never a panic.

use crate::common::{Image, fix_checksum_1, fix_checksum_090, image};
use plexum_format::md::{MdVersion, Role, Superblock, describe_superblock};
use plexum_format::{FormatError, Problem, Slot};

fn parse(image: &Image, area: &[u8]) -> Result<Superblock, FormatError> {
    let known = image.superblock();
    let sector = known.super_offset_sectors;
    Superblock::parse(area, sector, image.device_sectors(), known.version)
}

fn fix_checksum(version: MdVersion, area: &mut [u8]) {
    match version {
        MdVersion::V090 => fix_checksum_090(area),
        _ => fix_checksum_1(area),
    }
}

/// Images that between them use every kind of field.
fn samples() -> Vec<Image> {
    [
        ("s08_raid5_la_090", "m1.img"),
        ("s05_raid1_writemostly", "m2.img"),
        ("s03_raid0_alternate", "m0.img"),
        ("s30_raid5_ppl_crash", "m0.img"),
        ("s31_raid5_grow_3_4", "m0.img"),
        ("s32_raid1_badblocks", "m0.img"),
        ("s34_raid10_replace_half", "m4.img"),
        ("s35_raid5_journal", "m3.img"),
        ("s21_raid5_crash_bitmap", "m0.img"),
    ]
    .map(|(id, file)| image(id, file))
    .into()
}

#[test]
fn every_single_flipped_bit_under_the_checksum_is_refused() {
    for image in samples() {
        let known = image.superblock();
        let area = image.superblock_area();
        let covered = known.write_bytes(512);
        for bit in 0..covered * 8 {
            let mut damaged = area;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let result = parse(&image, &damaged);
            assert!(
                result.is_err(),
                "{} bit {} of byte {}",
                image.name(),
                bit % 8,
                bit / 8
            );
        }
    }
}

/// Bytes that nobody reads in this superblock, because the feature they belong to is off.
fn unread(superblock: &Superblock) -> Vec<std::ops::Range<usize>> {
    if superblock.version == MdVersion::V090 {
        // patch, gvalid, number of disks, minor, persistence, reserved words, counters and the checksum; while clean
        // the checkpoint; without a reshape its words; reserved words; of the table all but the roles of three members.
        let mut ranges = vec![
            12..20,
            36..40,
            44..52,
            64..128,
            133..156,
            164..256,
            264..512,
        ];
        ranges.extend((0..27).map(|number| 528 + 128 * number..640 + 128 * number));
        ranges.extend((3..27).map(|number| 524 + 128 * number..528 + 128 * number));
        ranges.extend((0..27).map(|number| 512 + 128 * number..524 + 128 * number));
        ranges.extend([132..133, 3972..4096]); // states are bits: their own test is below
        return ranges;
    }
    // The checksum itself is set right again; behind the name's first NUL nobody looks.
    let mut ranges = vec![216..220, 32 + superblock.name.len() + 1..64];
    if superblock.bitmap_offset_sectors.is_none() && superblock.ppl.is_none() {
        ranges.push(96..100);
    }
    match superblock.reshape {
        None => ranges.push(100..128),
        Some(reshape) if reshape.new_offset_sectors.is_none() => ranges.push(124..128),
        Some(_) => {}
    }
    if superblock.rebuild_offset_sectors.is_none() && superblock.journal_tail_sectors.is_none() {
        ranges.push(152..160);
    }
    if superblock.bad_block_log.is_none() {
        ranges.push(185..192);
    }
    ranges
}

#[test]
fn a_changed_field_with_a_right_checksum_is_refused_or_seen() {
    for image in samples() {
        let known = image.superblock();
        let described = describe_superblock(&known);
        let area = image.superblock_area();
        let unread = unread(&known);
        for byte in (0..known.write_bytes(512)).filter(|b| !unread.iter().any(|r| r.contains(b))) {
            for value in [area[byte] ^ 1, area[byte] ^ 0x80, !area[byte]] {
                if known.version != MdVersion::V090 && byte == 184 && value & 3 == area[byte] & 3 {
                    continue; // flags that do not exist
                }
                let mut changed = area;
                changed[byte] = value;
                fix_checksum(known.version, &mut changed);
                let Ok(found) = parse(&image, &changed) else {
                    continue;
                };
                let is_seen = describe_superblock(&found) != described;
                let is_role = byte >= 256 && changed[byte | 1] == 0xff; // all above 0xfeff but two are spares
                assert!(
                    is_seen || is_role,
                    "{} byte {byte}: {value:#x}",
                    image.name()
                );
            }
        }
    }
}

/// Overwrites bytes of a valid 1.2 superblock and gives the refusal.
fn refusal(id: &str, changes: &[(usize, &[u8])]) -> FormatError {
    let image = image(id, "m0.img");
    let mut area = image.superblock_area();
    for (offset, bytes) in changes {
        area[*offset..offset + bytes.len()].copy_from_slice(bytes);
    }
    fix_checksum(image.superblock().version, &mut area);
    match parse(&image, &area) {
        Err(error) => error,
        Ok(superblock) => panic!("{id} {changes:?} was taken: {superblock:?}"),
    }
}

const PLAIN: &str = "s11_raid6_ls";

/// Case, byte offset, 32-bit value written there, field that must be named, kind of refusal.
const REFUSALS: &[(&str, (usize, u32), &str, Problem)] = &[
    (PLAIN, (0, 1), "magic", Problem::NoMagic),
    (PLAIN, (4, 2), "major_version", Problem::NoMagic),
    (PLAIN, (220, 1921), "max_dev", Problem::Invalid),
    (PLAIN, (220, u32::MAX), "max_dev", Problem::Invalid),
    (PLAIN, (144, 0), "super_offset", Problem::Foreign),
    (PLAIN, (12, 1), "pad0", Problem::Invalid),
    (PLAIN, (252, 1), "pad3", Problem::Invalid),
    (PLAIN, (8, 0x100), "feature_map", Problem::Unsupported),
    (PLAIN, (8, 0x2000), "feature_map", Problem::Unsupported),
    (PLAIN, (8, 0x4000_0000), "feature_map", Problem::Unsupported),
    (PLAIN, (8, 0xc00), "feature_map", Problem::Invalid),
    (PLAIN, (8, 0x401), "feature_map", Problem::Invalid),
    (PLAIN, (8, 0xa00), "feature_map", Problem::Invalid),
    (PLAIN, (8, 0x40), "feature_map", Problem::Invalid),
    (PLAIN, (8, 0x1000), "feature_map", Problem::Invalid),
    (PLAIN, (72, 7), "level", Problem::Unsupported),
    (PLAIN, (72, 0xffff_fffc), "level", Problem::Unsupported),
    (PLAIN, (88, 0), "chunksize", Problem::Invalid),
    (PLAIN, (88, 24), "chunksize", Problem::Invalid),
    (
        "s02_raid0_original",
        (88, 12),
        "chunksize",
        Problem::Invalid,
    ),
    (PLAIN, (92, 0), "raid_disks", Problem::Invalid),
    (PLAIN, (92, 1921), "raid_disks", Problem::Invalid),
    (PLAIN, (136, 9), "data_size", Problem::Invalid),
    (PLAIN, (224, 100), "logical_block_size", Problem::Invalid),
    (PLAIN, (224, 768), "logical_block_size", Problem::Invalid),
    (
        PLAIN,
        (224, 1 << 17),
        "logical_block_size",
        Problem::Invalid,
    ),
    (PLAIN, (228, 1), "pad3", Problem::Invalid),
    (PLAIN, (128, 15), "data_offset", Problem::Invalid),
    (PLAIN, (132, u32::MAX), "data_size", Problem::Invalid),
    (PLAIN, (84, 1), "size", Problem::Invalid),
    (
        "s31_raid5_grow_3_4",
        (124, 0x8000_0000),
        "new_offset",
        Problem::Invalid,
    ),
    (
        "s31_raid5_grow_3_4",
        (112, 0x7fff_ffff),
        "delta_disks",
        Problem::Invalid,
    ),
    (
        "s31_raid5_grow_3_4",
        (120, 0),
        "new_chunk",
        Problem::Invalid,
    ),
    (
        "s32_raid1_badblocks",
        (184, 0x0009_0000),
        "bblog_size",
        Problem::Invalid,
    ),
    (
        "s32_raid1_badblocks",
        (188, 0),
        "bblog_offset",
        Problem::Invalid,
    ),
    (
        "s32_raid1_badblocks",
        (188, 2100),
        "bblog_offset",
        Problem::Invalid,
    ),
    ("s07_raid5_ls", (96, 0), "bitmap_offset", Problem::Invalid),
    (
        "s07_raid5_ls",
        (96, 2048),
        "bitmap_offset",
        Problem::Invalid,
    ),
    (
        "s07_raid5_ls",
        (96, 0xffff_fff0),
        "bitmap_offset",
        Problem::Invalid,
    ),
    (
        "s29_raid5_ppl",
        (96, 0xffff_0008),
        "ppl.offset",
        Problem::Invalid,
    ),
];

#[test]
fn what_the_document_refuses_at_load_time_is_refused_by_name() {
    for (id, (offset, value), field, problem) in REFUSALS {
        let error = refusal(id, &[(*offset, &value.to_le_bytes())]);
        assert_eq!(
            (error.field, &error.problem),
            (*field, problem),
            "{id} {offset}: {error}"
        );
        assert!(
            error.offset_bytes >= 4096 && error.offset_bytes < 8192,
            "{error}"
        );
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn hostile_0_90_superblocks_are_refused_by_name() {
    let id = "s08_raid5_la_090";
    for (word, value, field) in [
        (0, 0, "magic"),
        (1, 1, "major_version"),
        (2, 92, "minor_version"),
        (7, 2, "level"),
        (8, 0, "size"),
        (8, u32::MAX, "size"),
        (10, 0, "raid_disks"),
        (10, 28, "raid_disks"),
        (65, 1000, "chunk_size"),
        (65, 0, "chunk_size"),
        (992, 27, "this_disk.number"),
    ] {
        let error = refusal(id, &[(4 * word, &value.to_le_bytes())]);
        assert_eq!(error.field, field, "{error}");
    }
}

#[test]
fn a_superblock_is_only_valid_where_it_says_it_is() {
    let image = image("s07_raid5_ls", "m0.img");
    let area = image.superblock_area();
    let error = Superblock::parse(&area, 0, image.device_sectors(), MdVersion::V11).unwrap_err();
    assert_eq!(
        (error.problem, error.field),
        (Problem::Foreign, "super_offset")
    );
    let too_short = Superblock::parse(&area[..4095], 8, image.device_sectors(), MdVersion::V12);
    assert_eq!(too_short.unwrap_err().problem, Problem::TooShort);
    // The same bytes on a device that ends earlier: what the array uses is there, and that it was cut is said.
    let clipped = Superblock::parse(&area, 8, 4000, MdVersion::V12).unwrap();
    assert!(clipped.is_clipped);
    assert_eq!(
        clipped.data_size_sectors,
        4000 - clipped.data_offset_sectors
    );
    let needed = clipped.data_offset_sectors + clipped.component_sectors;
    let error = Superblock::parse(&area, 8, needed - 1, MdVersion::V12).unwrap_err();
    assert_eq!(error.field, "data_size");
}

#[test]
fn a_0_90_superblock_of_a_longer_device_is_refused() {
    let image = image("s08_raid5_la_090", "m0.img");
    let area = image.superblock_area();
    // As if a disk with that superblock in its last 64 KiB were shorter than the members' used size.
    let error = Superblock::parse(&area, 128, 256, MdVersion::V090).unwrap_err();
    assert_eq!(error.field, "size");
}

#[test]
fn a_big_endian_0_90_superblock_reads_and_rewrites_alike() {
    let image = image("s08_raid5_la_090", "m2.img");
    let little = image.superblock();
    let mut area = image.superblock_area();
    area.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    // The two halves of 64-bit numbers stand in the order of the machine.
    for word in [39, 41, 44] {
        let (first, second) = area[4 * word..4 * word + 8].split_at_mut(4);
        first.swap_with_slice(second);
    }
    let big = parse(&image, &area).unwrap();
    assert!(big.is_big_endian() && !little.is_big_endian());
    assert_eq!(big.events, little.events);
    assert_eq!(big.array_uuid, little.array_uuid);
    assert_eq!(big.roles, little.roles);
    assert_eq!(big.encode(), area);
}

#[test]
fn the_state_bits_of_a_0_90_member_decide_its_role() {
    let image = image("s08_raid5_la_090", "m0.img");
    for (minor, state, role) in [
        (90_u32, 6_u32, Role::Active(Slot(1))),
        (90, 4, Role::Active(Slot(1))),
        (90, 7, Role::Faulty),
        (90, 9, Role::Faulty),
        (90, 2, Role::Spare),
        (90, 0, Role::Spare),
        (91, 2, Role::Active(Slot(1))),
    ] {
        let mut area = image.superblock_area();
        area[8..12].copy_from_slice(&minor.to_le_bytes());
        area[4 * 46..4 * 47].copy_from_slice(&5_u32.to_le_bytes()); // new level
        area[4 * 49..4 * 50].copy_from_slice(&16384_u32.to_le_bytes()); // new chunk
        area[512 + 128 + 16..512 + 128 + 20].copy_from_slice(&state.to_le_bytes());
        fix_checksum_090(&mut area);
        let superblock = parse(&image, &area).unwrap();
        assert_eq!(superblock.role_of(1), role, "minor {minor} state {state}");
        assert_eq!(superblock.encode(), area);
        assert_eq!(superblock.reshape.is_some(), minor == 91);
    }
}

#[test]
fn areas_may_touch_superblock_and_data_but_not_overlap_them() {
    let bitmap = image("s07_raid5_ls", "m0.img");
    let log = image("s32_raid1_badblocks", "m0.img");
    // Superblock in sector 8, 512 bytes of it used; data from sector 2048; the log has 8 sectors.
    for (image, offset, value, is_right) in [
        (&bitmap, 96, 1_i32, true),
        (&bitmap, 96, -1, true),
        (&bitmap, 96, -8, true),
        (&bitmap, 96, -9, false),
        (&bitmap, 96, 2039, true),
        (&bitmap, 96, 2040, false),
        (&log, 188, 2032, true),
        (&log, 188, 2033, false),
        (&log, 188, -8, true),
        (&log, 188, -7, false),
        (&log, 188, i32::MIN, false),
    ] {
        let mut area = image.superblock_area();
        area[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        fix_checksum_1(&mut area);
        assert_eq!(
            parse(image, &area).is_ok(),
            is_right,
            "{} {offset} {value}",
            image.name()
        );
    }
}

#[test]
fn data_may_reach_to_the_end_of_the_device_and_no_further() {
    for (id, room) in [
        ("s11_raid6_ls", 6144_u64 - 2048),
        ("s05_raid1_writemostly", 4080),
    ] {
        let image = image(id, "m0.img");
        for (size, is_right) in [(room, true), (room + 1, false)] {
            let mut area = image.superblock_area();
            area[136..144].copy_from_slice(&size.to_le_bytes());
            fix_checksum_1(&mut area);
            let is_whole = parse(&image, &area).is_ok_and(|superblock| !superblock.is_clipped);
            assert_eq!(is_whole, is_right, "{id} {size}");
        }
    }
}

#[test]
fn a_finished_reshape_leaves_zeroes() {
    let image = image("s31_raid5_grow_3_4", "m0.img");
    let mut superblock = image.superblock();
    superblock.reshape = None;
    let area = superblock.encode();
    assert_eq!(area[100..128], [0; 28]);
    assert_eq!(area[8..12], [0; 4]);
    assert_eq!(parse(&image, &area).unwrap().reshape, None);
}
