//! What is planned for new members, and for a partial parity log that comes later: sizes, places, refusals.

use crate::common::small_array::three_members;
use crate::common::{Memory, Still, named, run};
use plexum_block::buf::BufPool;
use plexum_engine::volume::{ControlError, Volume};
use plexum_format::md::ppl::{self, RING_SECTORS};
use plexum_format::md::{MdVersion, PplHeader, Role, Superblock, bitmap};
use plexum_layout::{Organisation, Raid5Layout, Raid6Layout, Raid10Layout};
use plexum_md::create::{CreateError, NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, examine, open_volume};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

fn raid5() -> Organisation {
    Organisation::Raid5(Raid5Layout::LeftSymmetric)
}

fn bare(organisation: Organisation, bytes: u64) -> NewArray {
    NewArray {
        has_bitmap: false,
        ..three_members(organisation, bytes)
    }
}

#[test]
fn regions_are_chosen_for_what_the_bitmap_covers() {
    let raid10 = Organisation::Raid10(Raid10Layout::near(2));
    for (organisation, covers) in [(Organisation::Raid1, 1), (raid5(), 1), (raid10, 3)] {
        for size in [64 * MIB, TIB, 40 * TIB] {
            let made = plan(&three_members(organisation, size)).unwrap();
            let expected = bitmap::default_region_bytes(size * covers / 512);
            assert_eq!(
                made.region_bytes,
                Some(u64::from(expected)),
                "{organisation}, {size}"
            );
        }
    }
    // The smallest member decides, or the size that was asked for.
    let mut new = three_members(Organisation::Raid1, 40 * TIB);
    new.members[1] = Some(TIB);
    let of = |bytes: u64| Some(u64::from(bitmap::default_region_bytes(bytes / 512)));
    assert_eq!(plan(&new).unwrap().region_bytes, of(TIB));
    new.size_bytes = Some(8 << 30);
    assert_eq!(plan(&new).unwrap().region_bytes, of(8 << 30));
}

#[test]
fn regions_nobody_asked_for_grow_until_the_bitmap_fits_and_others_are_refused() {
    // 0.90 has 60 KiB for it.
    let new = NewArray {
        version: MdVersion::V090,
        ..three_members(Organisation::Raid10(Raid10Layout::near(2)), TIB)
    };
    let made = plan(&new).unwrap();
    let region = made.region_bytes.unwrap();
    let bytes = |region: u64| bitmap::area_bytes((3 * TIB).div_ceil(region));
    assert!(bytes(region) <= 60 << 10, "{region}");
    // Of 52 TB the usual regions need more: they are doubled once.
    let count = 26;
    let large = NewArray {
        members: vec![Some(2 * TIB - MIB); count],
        identities: vec![[1; 16]; count],
        ..new.clone()
    };
    let usual = bitmap::default_region_bytes(count as u64 * (2 * TIB - MIB) / 512);
    assert!(bitmap::area_bytes((count as u64 * 2 * TIB).div_ceil(usual.into())) > 60 << 10);
    assert_eq!(
        plan(&large).unwrap().region_bytes,
        Some(2 * u64::from(usual))
    );
    let asked = NewArray {
        region_bytes: Some(1 << 20),
        ..new
    };
    let refused = plan(&asked).map(|made| made.region_bytes);
    assert!(
        matches!(refused, Err(CreateError::Format { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_size_is_refused_when_it_is_nothing_or_more_than_a_member_has_room_for() {
    let with = |size: u64| NewArray {
        size_bytes: Some(size),
        ..bare(Organisation::Raid1, 64 * MIB)
    };
    let Err(CreateError::SizeTooLarge { room_bytes, .. }) = plan(&with(64 * MIB)) else {
        panic!("the metadata take some of it");
    };
    assert!(plan(&with(room_bytes)).is_ok(), "all of the room");
    for size in [0, room_bytes + 512] {
        let error = plan(&with(size)).unwrap_err();
        let text = format!(
            "the member has room for {room_bytes} bytes of data, less than the size asked for"
        );
        assert_eq!(error.to_string(), text, "{size}");
    }
}

#[test]
fn why_there_is_no_plan_is_said_in_one_line() {
    let nobody = NewArray {
        members: vec![None; 3],
        ..bare(raid5(), MIB)
    };
    assert_eq!(
        plan(&nobody).unwrap_err().to_string(),
        "every member is missing"
    );
    let tiny = plan(&bare(raid5(), 4096)).unwrap_err();
    let CreateError::Format { error, .. } = &tiny else {
        panic!("{tiny:?}");
    };
    assert_eq!(tiny.to_string(), error.to_string());
    let odd = NewArray {
        strip_bytes: 1000,
        ..bare(raid5(), 64 * MIB)
    };
    let text = plan(&odd).unwrap_err().to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text}");
}

#[test]
fn a_slot_that_is_filled_after_the_start_begins_empty_or_as_a_spare() {
    for version in [MdVersion::V12, MdVersion::V090] {
        let mut made = plan(&NewArray {
            version,
            ..bare(Organisation::Raid1, 64 * MIB)
        })
        .unwrap();
        made.fill_slot(1);
        let superblocks: Vec<&Superblock> = made.superblocks.iter().flatten().collect();
        let has_offset = version == MdVersion::V12;
        assert_eq!(
            superblocks[1].rebuild_offset_sectors,
            has_offset.then_some(0)
        );
        for superblock in superblocks {
            assert_eq!(
                superblock.role_of(1) == Role::Spare,
                !has_offset,
                "{version:?}"
            );
            assert!(superblock.role_of(0) != Role::Spare);
        }
    }
}

#[test]
fn only_members_that_may_differ_need_a_resync() {
    let with = |start: Start, organisation: Organisation| {
        let new = NewArray {
            start,
            ..bare(organisation, 64 * MIB)
        };
        plan(&new).unwrap().needs_resync()
    };
    assert!(with(Start::Resync, Organisation::Raid1));
    assert!(!with(Start::Agreeing, Organisation::Raid1));
    assert!(
        !with(Start::Resync, Organisation::Linear),
        "there is nothing to compare"
    );
}

/// First and end sector of a member's partial parity log.
fn ppl_sectors(superblock: &Superblock) -> (u64, u64) {
    let area = superblock.ppl.unwrap();
    let start = superblock.ppl_sector().unwrap();
    (start, start + u64::from(area.size_sectors))
}

#[test]
fn a_new_partial_parity_log_lies_before_the_data_and_has_its_header() {
    for version in [MdVersion::V12, MdVersion::V11] {
        let made = plan(&NewArray {
            version,
            has_ppl: true,
            ..bare(raid5(), 64 * MIB)
        })
        .unwrap();
        for (index, superblock) in made.superblocks.iter().flatten().enumerate() {
            let (start, end) = ppl_sectors(superblock);
            assert!(start >= superblock.super_offset_sectors + 8);
            assert!(end <= superblock.data_offset_sectors, "{version:?}");
            let writes = made.surroundings(index).unwrap();
            let header = writes
                .iter()
                .find(|write| write.at_bytes == start * 512)
                .expect("its header is written");
            let signature = ppl::signature(&superblock.array_uuid);
            let parsed = PplHeader::parse(&header.bytes, start * 512, signature).unwrap();
            assert!(parsed.entries.is_empty());
        }
    }
}

type Members = Vec<(String, Memory)>;

fn served(new: &NewArray) -> (Volume<Memory, Still>, Members) {
    let made = plan(new).unwrap();
    let memory = |bytes: &Option<u64>| {
        bytes.map(|bytes| Memory::new(vec![0; usize::try_from(bytes).unwrap()]))
    };
    let devices: Vec<Option<Memory>> = new.members.iter().map(memory).collect();
    run(write_new(&made, &devices, &BufPool::new(0))).unwrap();
    let named: Members = named(devices.into_iter().flatten());
    let pool = BufPool::new(1 << 20);
    let opened = open_volume(
        named.clone(),
        Still::default(),
        pool,
        OpenRequest::default(),
    );
    (run(opened).unwrap().0, named)
}

fn superblock(device: &Memory) -> Superblock {
    run(examine(device, &BufPool::new(0), 0, "m"))
        .unwrap()
        .superblock
}

/// The largest gap between superblock, bad-block log and data, in whole pages: its first sector and its length.
fn largest_gap(superblock: &Superblock) -> (u64, u64) {
    let first = superblock.super_offset_sectors + 8;
    let log = superblock.bad_block_log_sector().unwrap();
    let end = (log + u64::from(superblock.bad_block_log.unwrap().size_sectors)).next_multiple_of(8);
    let gaps = [
        (first, log - first),
        (end, superblock.data_offset_sectors - end),
    ];
    let (start, length) = gaps.into_iter().max_by_key(|(_, length)| *length).unwrap();
    (start, length / 8 * 8)
}

#[test]
fn a_partial_parity_log_that_comes_later_takes_the_largest_gap_and_works() {
    for version in [MdVersion::V12, MdVersion::V11] {
        for bytes in [3 * MIB, 6 * MIB, 200 * MIB] {
            let new = NewArray {
                version,
                ..bare(raid5(), bytes)
            };
            let (volume, devices) = served(&new);
            let (start, length) = largest_gap(&superblock(&devices[0].1));
            let result = run(volume.set_ppl(true));
            if length < u64::from(RING_SECTORS) {
                let text = result.unwrap_err().to_string();
                assert!(text.contains("KiB are free before the data"), "{text}");
                let numbers = format!("{} KiB are free", length / 2);
                assert!(text.contains(&numbers), "{text}, not {numbers}");
                continue;
            }
            assert_eq!(result, Ok(true), "{version:?}, {bytes}");
            assert_eq!(run(volume.set_ppl(true)), Ok(false), "it is there");
            let superblock = superblock(&devices[0].1);
            let (from, to) = ppl_sectors(&superblock);
            assert_eq!(
                (from, to - from),
                (start, length.min(2048)),
                "{version:?}, {bytes}"
            );
            assert!(superblock.ppl.unwrap().is_multiple);
            // Every member has its header, so that after a crash nothing is in doubt.
            let data = BufPool::new(0).copy_of(&[7; 4096]).freeze();
            run(volume.write(0, data, plexum_block::device::Fua::No)).unwrap();
            drop(volume);
            let pool = BufPool::new(1 << 20);
            let again = open_volume(
                devices.clone(),
                Still::default(),
                pool,
                OpenRequest::default(),
            );
            let (volume, assembly) = run(again).unwrap();
            assert!(assembly.has_ppl && volume.status().has_ppl);
            assert_eq!(volume.status().doubtful_regions.0, 0);
            assert_eq!(run(volume.set_ppl(false)), Ok(true));
            assert_eq!(self::superblock(&devices[0].1).ppl, None);
        }
    }
}

#[test]
fn what_cannot_have_a_partial_parity_log_says_why() {
    let why = |new: &NewArray| match run(served(new).0.set_ppl(true)) {
        Err(ControlError::Unfit(text)) => text,
        other => panic!("{other:?}"),
    };
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let four = NewArray {
        members: vec![Some(6 * MIB); 4],
        identities: vec![[1; 16], [2; 16], [3; 16], [4; 16]],
        ..bare(raid6, 6 * MIB)
    };
    assert_eq!(why(&four), "a partial parity log is for RAID-5");
    for version in [MdVersion::V10, MdVersion::V090] {
        let new = NewArray {
            version,
            ..bare(raid5(), 6 * MIB)
        };
        let text = why(&new);
        assert!(text.contains("leaves no room"), "{text}");
    }
    let marked = NewArray {
        region_bytes: Some(65_536),
        ..three_members(raid5(), 6 * MIB)
    };
    assert_eq!(why(&marked), "bitmap and stripe log have to be off first");
}
