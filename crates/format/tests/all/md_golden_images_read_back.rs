//! What the kernel wrote is decoded as an independent reader decoded it, and written back byte for byte.

use crate::common::{Image, for_each_image, for_each_valid_image, image};
use plexum_format::md::{Role, Superblock};
use plexum_format::uuid::md_uuid_text;
use plexum_format::{Found, Problem, SECTOR_BYTES};
use plexum_testkit::OwnRole;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn own_role(role: Role) -> OwnRole {
    match role {
        Role::Active(slot) => OwnRole::Slot(slot.0),
        Role::Spare => OwnRole::Word("spare".into()),
        Role::Faulty => OwnRole::Word("faulty".into()),
        Role::Journal => OwnRole::Word("journal".into()),
    }
}

fn features(superblock: &Superblock) -> Vec<String> {
    let names = [
        (0x1, "bitmap"),
        (0x2, "recovery_offset"),
        (0x4, "reshape"),
        (0x8, "bad_blocks"),
        (0x10, "replacement"),
        (0x20, "backwards"),
        (0x40, "new_offset"),
        (0x80, "recovery_bitmap"),
        (0x200, "journal"),
        (0x400, "ppl"),
        (0x800, "multiple_ppls"),
        (0x1000, "raid0_layout"),
    ];
    let map = superblock.features();
    let set = names.iter().filter(|(mask, _)| map & mask != 0);
    set.map(|(_, name)| (*name).to_owned()).collect()
}

#[test]
fn every_superblock_says_what_the_manifest_says() {
    let mut count = 0;
    for_each_valid_image(|image| {
        count += 1;
        let superblock = image.superblock();
        let (case, member, name) = (&image.case, &image.member, image.name());
        // 0.91 is what 0.90 calls itself in a reshape.
        let version = member.metadata.replace("0.91", "0.90");
        assert_eq!(superblock.version.name(), version, "{name}");
        assert_eq!(hex(&superblock.array_uuid), case.array_uuid, "{name}");
        assert_eq!(superblock.name, case.name, "{name}");
        assert_eq!(superblock.level, case.level, "{name}");
        assert_eq!(superblock.layout, case.layout, "{name}");
        assert_eq!(
            superblock.component_sectors, case.component_sectors,
            "{name}"
        );
        assert_eq!(
            u64::from(superblock.strip_sectors) * SECTOR_BYTES,
            case.strip_bytes,
            "{name}"
        );
        assert_eq!(
            superblock.super_offset_sectors, member.super_offset_sectors,
            "{name}"
        );
        assert_eq!(
            superblock.data_offset_sectors, member.data_offset_sectors,
            "{name}"
        );
        assert_eq!(
            superblock.data_size_sectors, member.data_size_sectors,
            "{name}"
        );
        assert_eq!(superblock.events.0, member.events, "{name}");
        assert_eq!(superblock.dev_number, member.dev_number, "{name}");
        assert_eq!(Some(own_role(superblock.role())), member.own_role, "{name}");
        let roles: Vec<OwnRole> = superblock
            .roles
            .iter()
            .take(8)
            .map(|r| own_role(*r))
            .collect();
        assert_eq!(roles, member.dev_roles, "{name}");
        let mut expected = member.features.clone();
        expected.sort();
        let mut found = features(&superblock);
        found.sort();
        assert_eq!(found, expected, "{name}");
        if !member.device_uuid.is_empty() {
            assert_eq!(hex(&superblock.device_uuid), member.device_uuid, "{name}");
        }
        assert_eq!(superblock.is_write_mostly, member.write_mostly, "{name}");
        assert_eq!(
            superblock.rebuild_offset_sectors, member.rebuild_offset_sectors,
            "{name}"
        );
        let resync = member.resync_offset_sectors.as_ref().unwrap();
        assert_eq!(superblock.resync_offset_sectors, resync.as_u64(), "{name}");
    });
    assert_eq!(count, 207);
}

#[test]
fn reshape_journal_and_parity_log_are_described() {
    for_each_valid_image(|image| {
        let (superblock, name) = (image.superblock(), image.name());
        let index = image
            .case
            .members
            .iter()
            .position(|m| m.file == image.member.file)
            .unwrap();
        match (&superblock.reshape, &image.case.reshape) {
            (Some(found), Some(expected)) => {
                // A stale member was left where the others had been.
                let is_stale = image.case.stale.contains(&image.member.file);
                let is_there = found.position_sectors == expected.position_sectors;
                assert_eq!(is_there, !is_stale, "{name}");
                assert_eq!(found.member_count_change, expected.delta_disks, "{name}");
                assert_eq!(found.new_level, expected.new_level, "{name}");
                assert_eq!(found.new_layout, expected.new_layout, "{name}");
                let strip = u64::from(found.new_strip_sectors) * SECTOR_BYTES;
                assert_eq!(strip, expected.new_strip_bytes, "{name}");
                let shift = found.new_offset_sectors.unwrap_or(0);
                assert_eq!(shift, expected.new_offset_sectors[index], "{name}");
                assert_eq!(found.is_backwards(), expected.backwards, "{name}");
            }
            (None, None) => assert_eq!(superblock.member_count, image.case.raid_disks, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
        assert_eq!(
            superblock.ppl.is_some(),
            image.member.ppl.is_some(),
            "{name}"
        );
        if let (Some(ppl), Some(expected)) = (superblock.ppl, &image.member.ppl) {
            assert_eq!(
                expected["offset"].as_i64(),
                Some(i64::from(ppl.offset_sectors)),
                "{name}"
            );
            assert_eq!(
                expected["size"].as_u64(),
                Some(u64::from(ppl.size_sectors)),
                "{name}"
            );
            assert!(ppl.is_multiple, "{name}");
        }
        let is_journal = superblock.role() == Role::Journal;
        assert_eq!(
            superblock.journal_tail_sectors.is_some(),
            is_journal,
            "{name}"
        );
    });
    assert!(
        image("s35_raid5_journal", "m3.img")
            .superblock()
            .has_journal
    );
}

#[test]
fn every_superblock_is_written_back_byte_for_byte() {
    for_each_valid_image(|image| {
        let superblock = image.superblock();
        let area = image.superblock_area();
        assert!(
            superblock.encode() == area,
            "{}: the area changed",
            image.name()
        );
        let again = Superblock::parse(
            &superblock.encode(),
            superblock.super_offset_sectors,
            image.device_sectors(),
            superblock.version,
        );
        assert_eq!(again, Ok(superblock), "{}", image.name());
    });
}

#[test]
fn every_bitmap_says_what_the_manifest_says_and_is_written_back_byte_for_byte() {
    let mut count = 0;
    for_each_valid_image(|image| {
        let (bitmap, name) = (image.bitmap(), image.name());
        assert_eq!(bitmap.is_some(), image.member.bitmap.is_some(), "{name}");
        let (Some(bitmap), Some(expected)) = (bitmap, &image.member.bitmap) else {
            return;
        };
        count += 1;
        let superblock = image.superblock();
        assert_eq!(
            superblock.bitmap_offset_sectors,
            Some(expected.offset_sectors),
            "{name}"
        );
        assert_eq!(bitmap.header.uuid, superblock.bitmap_uuid(), "{name}");
        assert_eq!(bitmap.header.events.0, expected.events, "{name}");
        assert_eq!(
            bitmap.header.events_cleared.0, expected.events_cleared,
            "{name}"
        );
        assert_eq!(
            bitmap.header.sync_size_sectors, expected.sync_size_sectors,
            "{name}"
        );
        assert_eq!(bitmap.header.region_bytes, expected.region_bytes, "{name}");
        assert_eq!(
            bitmap.header.daemon_sleep_seconds, expected.daemon_sleep_s,
            "{name}"
        );
        assert_eq!(bitmap.header.write_behind, expected.write_behind, "{name}");
        assert_eq!(bitmap.region_count(), expected.bits, "{name}");
        assert_eq!(
            bitmap.set_regions().collect::<Vec<_>>(),
            expected.dirty,
            "{name}"
        );
        let area = bitmap.encode();
        let sector = superblock.bitmap_sector().unwrap();
        assert!(
            area == image.sectors(sector, bitmap.header.area_sectors()),
            "{name}"
        );
    });
    assert_eq!(count, 25);
}

#[test]
fn bad_block_logs_say_what_the_manifest_says_and_are_written_back_byte_for_byte() {
    let mut count = 0;
    for_each_valid_image(|image| {
        let (list, name) = (image.bad_blocks(), image.name());
        assert_eq!(list.is_some(), image.member.bad_blocks.is_some(), "{name}");
        let (Some(list), Some(expected)) = (list, &image.member.bad_blocks) else {
            return;
        };
        count += 1;
        let found: Vec<(u64, u64)> = list
            .ranges()
            .iter()
            .map(|r| (r.start, r.end - r.start))
            .collect();
        assert_eq!(&found, expected, "{name}");
        let sector = image.superblock().bad_block_log_sector().unwrap();
        assert!(
            list.encode() == image.sectors(sector, 8),
            "{name}: the area changed"
        );
    });
    assert_eq!(count, 2);
}

#[test]
fn a_flipped_byte_is_refused_with_the_checksums_and_the_place() {
    let image = image("s33_raid6_bad_checksum", "m1.img");
    let detection = image.detect();
    let Some(Found::Damaged { error, .. }) = detection.best() else {
        panic!("{detection:?}");
    };
    assert_eq!(error.problem, Problem::Checksum);
    assert_eq!(error.offset_bytes, 4096 + 216);
    assert_eq!(
        error.to_string(),
        "md superblock 1.2 at byte 4312: sb_csum is f3529cb5, expected f352acb5"
    );
}

#[test]
fn nothing_is_found_on_an_image_whose_superblock_was_wiped() {
    for_each_image(|image| {
        let mut wiped = Image {
            case: image.case.clone(),
            member: image.member.clone(),
            bytes: image.bytes.clone(),
        };
        for place in plexum_format::probe_places(image.device_sectors()) {
            wiped.bytes[place.start as usize..place.end as usize].fill(0);
        }
        assert_eq!(wiped.detect().found, [], "{}", image.name());
    });
}

#[test]
fn uuids_are_shown_as_mdadm_shows_them() {
    let old = image("s08_raid5_la_090", "m0.img").superblock();
    assert_eq!(
        md_uuid_text(&old.array_uuid),
        "eaa9e28a:b7f9f406:0570755e:3ea45c11"
    );
    assert_eq!(hex(&old.bitmap_uuid()), "8ae2a9ea06f4f9b75e757005115ca43e");
    let new = image("s05_raid1_writemostly", "m0.img").superblock();
    assert_eq!(
        md_uuid_text(&new.array_uuid),
        "f92aad93:d8ffbc20:7cacbc92:46df1d33"
    );
    assert_eq!(new.bitmap_uuid(), new.array_uuid);
}
