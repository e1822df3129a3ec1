//! For any bytes: no panic, and what was taken is written and read back as the same.

use std::sync::LazyLock;

use crate::common::{Image, fix_checksum_1, fix_checksum_090, image};
use plexum_format::md::{
    BadBlockArea, BadBlocks, Bitmap, MdVersion, NewMember, Reshape, Role, Superblock,
    describe_superblock, super_offset_sectors,
};
use plexum_format::{EventCount, SECTOR_BYTES, Slot, detect, probe_places};
use proptest::prelude::*;

static SAMPLES: LazyLock<Vec<(Image, Superblock)>> = LazyLock::new(|| {
    [
        ("s05_raid1_writemostly", "m2.img"),
        ("s08_raid5_la_090", "m1.img"),
        ("s30_raid5_ppl_crash", "m0.img"),
        ("s31_raid5_grow_3_4", "m0.img"),
        ("s34_raid10_replace_half", "m4.img"),
        ("s07_raid5_ls", "m0.img"),
        ("s32_raid1_badblocks", "m0.img"),
    ]
    .map(|(id, file)| {
        let image = image(id, file);
        let superblock = image.superblock();
        (image, superblock)
    })
    .into()
});

/// Bytes changed at random places, most of them in the head.
fn edits() -> impl Strategy<Value = Vec<(usize, u8)>> {
    let place = prop_oneof![4 => 0..256_usize, 1 => 256..4096_usize];
    let byte = prop_oneof![Just(0_u8), Just(0xff), Just(1), any::<u8>()];
    prop::collection::vec((place, byte), 0..12)
}

fn check_area(area: &[u8; 4096], sector: u64, device_sectors: u64, version: MdVersion) {
    let Ok(superblock) = Superblock::parse(area, sector, device_sectors, version) else {
        return;
    };
    let again = Superblock::parse(&superblock.encode(), sector, device_sectors, version);
    assert_eq!(again.as_ref(), Ok(&superblock));
    assert_eq!(
        &superblock.encode(),
        area,
        "what was not changed is written as it was"
    );
    if let Some(room) = superblock.bitmap_room_sectors(device_sectors) {
        assert!(superblock.bitmap_sector().unwrap() + room <= device_sectors);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_change_of_a_superblock_is_refused_or_read_back(
        sample in any::<prop::sample::Index>(),
        edits in edits(),
    ) {
        let (image, superblock) = sample.get(&SAMPLES);
        let mut area = superblock.encode();
        for (offset, byte) in edits {
            area[offset] = byte;
        }
        match superblock.version {
            MdVersion::V090 => fix_checksum_090(&mut area),
            _ => fix_checksum_1(&mut area),
        }
        let sector = superblock.super_offset_sectors;
        check_area(&area, sector, image.device_sectors(), superblock.version);
    }

    #[test]
    fn random_bytes_with_magic_and_checksum_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 4096),
        max_dev in 0_u32..2000,
        version in prop::sample::select(&MdVersion::ALL[..]),
        device_sectors in prop_oneof![any::<u64>(), 0_u64..100_000],
    ) {
        let mut area: [u8; 4096] = bytes.try_into().unwrap();
        area[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
        let sector = super_offset_sectors(version, device_sectors).unwrap_or(8);
        if version == MdVersion::V090 {
            area[4..12].copy_from_slice(&[0, 0, 0, 0, 90, 0, 0, 0]);
            fix_checksum_090(&mut area);
        } else {
            area[4..16].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            area[144..152].copy_from_slice(&sector.to_le_bytes());
            area[220..224].copy_from_slice(&max_dev.to_le_bytes());
            area[224..256].fill(0);
            fix_checksum_1(&mut area);
        }
        check_area(&area, sector, device_sectors, version);
    }

    #[test]
    fn a_changed_model_is_read_back_as_it_was_written(
        sample in any::<prop::sample::Index>(),
        roles in prop::collection::vec(0_u16..7, 1..27),
        events in any::<u64>(),
        resync in prop::option::of(0_u64..1000),
        rebuild in prop::option::of(0_u64..1000),
        name in "[a-z]{0,12}(:[a-zäß]{0,6})?",
        flags in any::<[bool; 5]>(),
        reshape in prop::option::of((any::<u64>(), -1_i32..3, prop::option::of(-90_i32..90), any::<bool>())),
    ) {
        let (image, superblock) = sample.get(&SAMPLES);
        let mut changed = superblock.clone();
        changed.roles = roles.into_iter().map(|number| match number {
            4 => Role::Spare,
            5.. => Role::Faulty,
            slot => Role::Active(Slot(slot)),
        }).collect();
        changed.roles.resize(changed.roles.len().max(27), Role::Spare);
        changed.dev_number = 0;
        changed.member_count = 4;
        changed.events = EventCount(events);
        changed.resync_offset_sectors = resync;
        changed.journal_tail_sectors = None;
        changed.is_write_mostly = flags[0];
        changed.is_failfast = flags[1];
        changed.reshape = reshape.map(|(position, change, offset, is_marked)| Reshape {
            position_sectors: position,
            member_count_change: change,
            new_level: 5,
            new_layout: 2,
            new_strip_sectors: 64,
            new_offset_sectors: offset.filter(|_| superblock.version != MdVersion::V090),
            is_marked_backwards: is_marked && superblock.version != MdVersion::V090,
        });
        if superblock.version != MdVersion::V090 {
            changed.name = name;
            changed.rebuild_offset_sectors = rebuild;
            changed.is_replacement = flags[2];
            changed.is_bitmap_rebuild = flags[3];
            if flags[4] {
                changed.bitmap_offset_sectors = None;
                changed.ppl = None;
            }
        }
        let sector = superblock.super_offset_sectors;
        let again = Superblock::parse(&changed.encode(), sector, image.device_sectors(), superblock.version);
        let again = again.unwrap();
        prop_assert_eq!(describe_superblock(&again), describe_superblock(&changed));
        prop_assert_eq!(again.encode(), changed.encode());
    }

    #[test]
    fn any_bitmap_header_is_refused_or_read_back(
        edits in prop::collection::vec((0_usize..136, any::<u8>()), 0..8),
        room in 0_u64..64,
    ) {
        let (image, _) = &SAMPLES[5];
        let mut area = image.bitmap().unwrap().encode();
        area.resize(64 * SECTOR_BYTES as usize, 0x5a);
        for (offset, byte) in edits {
            area[offset] = byte;
        }
        if let Ok(bitmap) = Bitmap::parse(&area, 8192, room) {
            let written = bitmap.encode();
            prop_assert!(written.len() as u64 <= room * SECTOR_BYTES);
            prop_assert_eq!(&written[..], &area[..written.len()]);
            prop_assert_eq!(Bitmap::parse(&written, 8192, room), Ok(bitmap.clone()));
            prop_assert!(bitmap.count_set() <= bitmap.region_count());
        }
    }

    #[test]
    fn any_bad_block_area_is_refused_or_read_back(
        words in prop::collection::vec(prop_oneof![any::<u64>(), (0_u64..64, 1_u64..20).prop_map(|(s, l)| s << 10 | l)], 0..512),
        shift in 0_u8..12,
    ) {
        let mut area: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        area.resize(4096, 0xff);
        if let Ok(list) = BadBlocks::parse(&area, shift, 0) {
            let mut last = 0;
            for (index, range) in list.ranges().iter().enumerate() {
                prop_assert!(range.start < range.end && (index == 0 || range.start > last));
                last = range.end;
            }
            prop_assert_eq!(BadBlocks::parse(&list.encode(), shift, 0), Ok(list));
        }
    }

    #[test]
    fn detection_of_random_bytes_never_panics(device_sectors in 0_u64..400, byte in any::<u8>()) {
        let mut reader = |offset: u64, buffer: &mut [u8]| -> Result<(), ()> {
            assert!(offset + buffer.len() as u64 <= device_sectors * SECTOR_BYTES);
            assert!(probe_places(device_sectors).iter().any(|place| place.start == offset));
            buffer.fill(byte);
            Ok(())
        };
        prop_assert_eq!(detect(device_sectors, &mut reader).unwrap().found, []);
    }
}

fn new_member(version: MdVersion) -> NewMember<'static> {
    let is_behind = matches!(version, MdVersion::V11 | MdVersion::V12);
    NewMember {
        version,
        array_uuid: [0x42; 16],
        name: "host:name",
        ctime: Default::default(),
        level: 5,
        layout: 2,
        component_sectors: 4096,
        strip_sectors: 128,
        member_count: 3,
        data_offset_sectors: if is_behind { 4096 } else { 0 },
        data_size_sectors: 4096,
        device_sectors: 10_000,
        dev_number: 2,
        device_uuid: [0x24; 16],
        roles: &[
            Role::Active(Slot(0)),
            Role::Active(Slot(1)),
            Role::Active(Slot(2)),
            Role::Spare,
        ],
        events: EventCount(0),
        resync_offset_sectors: Some(0),
        bitmap_offset_sectors: Some(8),
        bad_block_log: None,
        is_write_mostly: true,
    }
}

#[test]
fn a_new_superblock_says_what_was_asked_for() {
    for version in MdVersion::ALL {
        let mut new = new_member(version);
        if version == MdVersion::V10 {
            new.bitmap_offset_sectors = Some(-16);
            new.bad_block_log = Some(BadBlockArea {
                offset_sectors: -8,
                size_sectors: 8,
                shift: 0,
            });
        }
        let superblock = Superblock::create(&new).unwrap();
        assert_eq!(superblock.version, version);
        assert_eq!(superblock.role(), Role::Active(Slot(2)));
        assert_eq!(superblock.resync_offset_sectors, Some(0));
        assert_eq!(superblock.bitmap_offset_sectors, new.bitmap_offset_sectors);
        assert_eq!(superblock.bad_block_log, new.bad_block_log);
        assert!(superblock.is_write_mostly);
        let has_name = version != MdVersion::V090;
        assert_eq!(superblock.name, if has_name { "host:name" } else { "" });
        assert_eq!(superblock.roles.len(), if has_name { 128 } else { 27 });
        assert_eq!(
            superblock.write_bytes(512),
            if has_name { 512 } else { 4096 }
        );
    }
}

#[test]
fn what_does_not_fit_a_new_superblock_is_refused_by_name() {
    let refused = |change: fn(&mut NewMember<'static>), version, field: &str| {
        let mut new = new_member(version);
        change(&mut new);
        let error = Superblock::create(&new).unwrap_err();
        assert_eq!(error.field, field, "{error}");
    };
    let v12 = MdVersion::V12;
    refused(
        |new| new.name = "a name of more than thirty-two bytes",
        v12,
        "name",
    );
    refused(|new| new.name = "a\nb", v12, "name");
    refused(|new| new.device_sectors = 12, v12, "device size");
    refused(|new| new.data_size_sectors = 100_000, v12, "data_size");
    refused(|new| new.component_sectors = 5000, v12, "size");
    refused(|new| new.strip_sectors = 100, v12, "chunksize");
    refused(
        |new| new.roles = &[Role::Spare; 2000],
        v12,
        "number of members",
    );
    refused(
        |new| new.roles = &[Role::Spare; 28],
        MdVersion::V090,
        "number of members",
    );
    refused(
        |new| new.data_offset_sectors = 8,
        MdVersion::V090,
        "data offset",
    );
    refused(|new| new.member_count = 28, MdVersion::V090, "raid_disks");
}

#[test]
fn the_table_grows_for_a_new_member_and_the_write_with_it() {
    let mut superblock = Superblock::create(&new_member(MdVersion::V12)).unwrap();
    superblock.set_role(500, Role::Active(Slot(1))).unwrap();
    assert_eq!(superblock.write_bytes(512), 1536);
    assert_eq!(superblock.write_bytes(4096), 4096);
    let again = Superblock::parse(&superblock.encode(), 8, 10_000, MdVersion::V12).unwrap();
    assert_eq!(again.role_of(500), Role::Active(Slot(1)));
    assert_eq!(again.roles.len(), 501);
    assert!(superblock.set_role(1920, Role::Spare).is_err());
}

#[test]
fn tables_of_every_length_are_summed_as_an_independent_sum_does() {
    let (image, superblock) = &SAMPLES[0];
    for entries in (3..140).chain([1919, 1920]) {
        let mut area = superblock.encode();
        area[220..224].copy_from_slice(&u32::to_le_bytes(entries));
        area[256 + 6..256 + 2 * entries as usize].fill(0xff);
        fix_checksum_1(&mut area);
        let sector = superblock.super_offset_sectors;
        let read =
            Superblock::parse(&area, sector, image.device_sectors(), MdVersion::V10).unwrap();
        assert_eq!(read.roles.len(), entries as usize);
        assert_eq!(read.encode(), area);
    }
}

#[test]
fn a_0_90_table_keeps_its_counters_in_step() {
    let mut superblock = Superblock::create(&new_member(MdVersion::V090)).unwrap();
    superblock.set_role(1, Role::Faulty).unwrap();
    let area = superblock.encode();
    let word =
        |index: usize| u32::from_le_bytes(area[4 * index..4 * index + 4].try_into().unwrap());
    assert_eq!([word(34), word(35), word(36), word(9)], [2, 2, 1, 3]);
    assert_eq!(
        area[992 * 4..],
        area[(128 + 2 * 32) * 4..(128 + 3 * 32) * 4]
    );
    assert!(superblock.set_role(27, Role::Spare).is_err());
}
