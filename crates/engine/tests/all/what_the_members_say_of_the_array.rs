//! What lies on the members besides data while a volume is served: bits of the bitmap, event counts, bad blocks, time.

use crate::common::small_array::{BLOCK, new_member, open, read, three_members, write};
use crate::common::{Memory, Still, named, run};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::IoError;
use plexum_block::ranges::RangeSet;
use plexum_block::wait::join;
use plexum_engine::volume::{FormerMember, Volume};
use plexum_format::EventCount;
use plexum_format::md::{BadBlocks, MdVersion, Role, Superblock};
use plexum_format::stripe_log::LogHeader;
use plexum_layout::{Geometry, GeometrySpec, Organisation, Raid0Layout, Raid5Layout, Raid10Layout};
use plexum_md::assemble::{Examined, Options};
use plexum_md::create::{NewArray, plan, write_new};
use plexum_md::open::{OpenError, OpenRequest, examine, judge_log_page, open_volume, volume_name};
use std::time::Duration;

const DEVICE_BYTES: u64 = 24 << 20;
const REGION_BYTES: u64 = 4096;

type Members = Vec<(String, Memory)>;

fn memory() -> Memory {
    Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()])
}

fn array(new: &NewArray) -> Members {
    let plan = plan(new).unwrap();
    let devices: Vec<Option<Memory>> = new.members.iter().map(|_| Some(memory())).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    named(devices.into_iter().flatten())
}

/// A mirror of three with regions so small that their bits take several blocks.
fn mirror() -> Members {
    array(&NewArray {
        region_bytes: Some(REGION_BYTES),
        ..three_members(Organisation::Raid1, DEVICE_BYTES)
    })
}

fn look(device: &Memory) -> Examined {
    run(examine(device, &BufPool::new(0), 0, "m")).unwrap()
}

/// The bytes of the bits on a member.
fn bits(device: &Memory) -> Vec<u8> {
    let at = look(device).superblock.bitmap_sector().unwrap() * 512 + 256;
    let length = DEVICE_BYTES / REGION_BYTES / 8;
    let at = usize::try_from(at).unwrap();
    device.bytes.borrow()[at..at + usize::try_from(length).unwrap()].to_vec()
}

fn marked(device: &Memory) -> u32 {
    bits(device).iter().map(|byte| byte.count_ones()).sum()
}

/// Event counts of superblock and bitmap, and up to which one a returning member can be brought up to date.
fn events(device: &Memory) -> (u64, u64, u64) {
    let examined = look(device);
    let header = examined.bitmap.unwrap();
    (
        examined.superblock.events.0,
        header.events.0,
        header.events_cleared.0,
    )
}

/// Opens it, with its clock.
fn open_timed(devices: &[(String, Memory)]) -> (Volume<Memory, Still>, Still) {
    let clock = Still::default();
    let request = OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        ..OpenRequest::default()
    };
    let pool = BufPool::new(1 << 20);
    let opened = open_volume(devices.to_vec(), clock.clone(), pool, request);
    (run(opened).unwrap().0, clock)
}

/// Serves for a while, with the work in the background.
async fn rest(volume: &Volume<Memory, Still>, clock: &Still, seconds: u64) {
    let rest = async {
        for _ in 0..seconds * 10 {
            clock.sleep(Duration::from_millis(100)).await;
        }
        volume.stop().await.unwrap();
    };
    join(volume.run_background(), rest).await;
}

#[test]
fn bits_of_every_version_are_found_after_a_crash() {
    for version in [MdVersion::V10, MdVersion::V090, MdVersion::V11] {
        let devices = array(&NewArray {
            version,
            region_bytes: Some(65_536),
            ..three_members(Organisation::Raid1, DEVICE_BYTES)
        });
        let (volume, _) = open(&devices).unwrap();
        write(&volume, 8 << 20, 1);
        drop(volume);
        let (volume, _) = open(&devices).unwrap();
        assert_eq!(volume.status().doubtful_regions.0, 1, "{version}");
    }
}

#[test]
fn a_bit_behind_the_first_block_is_found_after_a_crash() {
    for at in [0, 8 << 20, 20 << 20] {
        let devices = mirror();
        let (volume, _) = open(&devices).unwrap();
        write(&volume, at, 1);
        drop(volume);
        let (volume, _) = open(&devices).unwrap();
        assert_eq!(volume.status().doubtful_regions.0, 1, "{at}");
        assert!(volume.is_in_doubt(&(at..at + 1)), "{at}");
        assert_eq!(
            bits(&devices[0].1)[usize::try_from(at / REGION_BYTES / 8).unwrap()],
            1
        );
    }
}

#[test]
fn the_bitmap_has_the_event_count_of_every_commit() {
    let devices = mirror();
    let (volume, _) = open(&devices).unwrap();
    let mut last = events(&devices[0].1).0;
    let mut is_risen = |what: &str, of: &[usize]| {
        for slot in of {
            let (superblock, bitmap, _) = events(&devices[*slot].1);
            assert!(superblock == bitmap && superblock > last, "{what}");
        }
        last = events(&devices[0].1).0;
    };
    write(&volume, 0, 1);
    is_risen("dirty", &[0, 1, 2]);
    let member = volume.status().members[2].id;
    run(volume.fail(member)).unwrap();
    is_risen("failed", &[0, 1]);
    run(volume.stop()).unwrap();
    is_risen("clean", &[0, 1]);
}

#[test]
fn a_new_member_has_the_whole_bitmap_before_it_is_filled() {
    let devices = mirror();
    let (volume, _) = open(&devices).unwrap();
    let member = volume.status().members[2].id;
    run(volume.fail(member)).unwrap();
    for at in [0, 9 << 20, 20 << 20] {
        write(&volume, at, 1);
    }
    let new = memory();
    run(volume.add(new_member("new", &new, None), false)).unwrap();
    assert_eq!(marked(&new), 3);
    assert_eq!(bits(&new), bits(&devices[0].1));
}

#[test]
fn bits_are_cleared_on_the_members_when_their_regions_have_rested() {
    let devices = mirror();
    let (volume, clock) = open_timed(&devices);
    write(&volume, 0, 1);
    write(&volume, 20 << 20, 1);
    let (count, _, cleared) = events(&devices[1].1);
    assert_eq!(marked(&devices[1].1), 2);
    run(rest(&volume, &clock, 60));
    for (_, device) in &devices {
        assert_eq!(marked(device), 0);
        let (_, _, now) = events(device);
        assert!(now >= count && now > cleared, "whole at {now}");
    }
}

#[test]
fn bits_stay_and_the_count_of_the_last_whole_time_too_while_a_member_is_away() {
    let devices = mirror();
    let (volume, clock) = open_timed(&devices);
    let member = volume.status().members[2].id;
    run(volume.fail(member)).unwrap();
    let (_, _, cleared) = events(&devices[0].1);
    write(&volume, 20 << 20, 1);
    run(rest(&volume, &clock, 60));
    assert_eq!(marked(&devices[0].1), 1);
    assert_eq!(events(&devices[0].1).2, cleared);
    // So it comes back by the bitmap, with what it missed alone.
    let (volume, clock) = open_timed(&devices);
    let gone = look(&devices[2].1);
    let former = FormerMember {
        slot: 2,
        event_count: gone.superblock.events.0,
        was_active: true,
        bad_ranges: RangeSet::new(),
        data_start_bytes: gone.superblock.data_offset_sectors * 512,
        geometry: Some(volume.geometry().clone()),
    };
    let before = devices[2].1.writes.get();
    run(volume.add(new_member("m2", &devices[2].1, Some(former)), true)).unwrap();
    run(rest(&volume, &clock, 60));
    assert!(devices[2].1.writes.get() - before < 100, "not all of it");
    let (volume, _) = open(&devices[2..]).unwrap();
    assert_eq!(read(&volume, 20 << 20), [1; BLOCK]);
}

#[test]
fn an_array_without_redundancy_is_never_written_to_but_for_its_data() {
    let raid0 = Organisation::Raid0(Raid0Layout::Original);
    for organisation in [raid0, Organisation::Linear] {
        let devices = array(&NewArray {
            has_bitmap: false,
            ..three_members(organisation, DEVICE_BYTES)
        });
        let before: Vec<_> = devices
            .iter()
            .map(|(_, device)| look(device).superblock)
            .collect();
        let (volume, _) = open(&devices).unwrap();
        write(&volume, 0, 1);
        run(volume.stop()).unwrap();
        for ((_, device), before) in devices.iter().zip(before) {
            assert_eq!(look(device).superblock, before);
        }
    }
}

#[test]
fn superblocks_say_when_they_were_written_and_that_it_was_not_the_kernel() {
    for version in [MdVersion::V12, MdVersion::V10, MdVersion::V090] {
        let devices = array(&NewArray {
            version,
            ..three_members(Organisation::Raid1, DEVICE_BYTES)
        });
        let (volume, _) = open(&devices).unwrap();
        assert_eq!(volume.status().format, format!("md {}", version.name()));
        write(&volume, 0, 1);
        let superblock = look(&devices[0].1).superblock;
        assert_eq!(superblock.utime.seconds, 1_700_000_000);
        let events = u32::try_from(superblock.events.0).unwrap();
        let expected = if version == MdVersion::V090 {
            0
        } else {
            1 + events
        };
        assert_eq!(superblock.utime.microseconds, expected, "{version:?}");
    }
}

#[test]
fn a_failed_member_is_recorded_as_faulty_and_a_removed_one_as_nothing() {
    let devices = mirror();
    let (volume, _) = open(&devices).unwrap();
    let member = volume.status().members[2].id;
    run(volume.fail(member)).unwrap();
    let role = || look(&devices[0].1).superblock.role_of(2);
    assert_eq!(role(), Role::Faulty);
    run(volume.remove(member)).unwrap();
    assert_eq!(role(), Role::Spare);
    // Spares take the first free number behind the slots'; that of a removed one is free again.
    for _ in 0..2 {
        let new = memory();
        run(volume.add(new_member("new", &new, None), false)).unwrap();
        assert_eq!(look(&new).superblock.dev_number, 3);
        let spare = volume.status().members.last().unwrap().id;
        run(volume.remove(spare)).unwrap();
    }
}

#[test]
fn a_header_of_the_stripe_log_says_what_the_log_can_do_without() {
    let devices = array(&NewArray {
        log_bytes_max: Some(1 << 20),
        ..three_members(
            Organisation::Raid5(Raid5Layout::LeftSymmetric),
            DEVICE_BYTES,
        )
    });
    let header = |slot: usize| look(&devices[slot].1).log.unwrap().0;
    let mut epochs = Vec::new();
    for _ in 0..3 {
        let (volume, _) = open(&devices).unwrap();
        write(&volume, 0, 1);
        let first = header(0);
        assert_eq!((first.tail_sequence, first.joined_sequence), (1, 0));
        run(volume.stop()).unwrap();
        epochs.push(first.epoch);
        assert_eq!(header(1).epoch, first.epoch, "all members are in one life");
        assert!(first.log_id != 0 && header(1).log_id == first.log_id);
    }
    assert!(
        epochs[0] > 0 && epochs.windows(2).all(|two| two[0] < two[1]),
        "{epochs:?}"
    );
    let (volume, _) = open(&devices).unwrap();
    for block in 0..400 {
        write(&volume, block * BLOCK as u64, 2); // more than the rings take at once
    }
    let header = header(0);
    assert!(header.tail_sequence > 1, "what is in place is given up");
    assert!(header.start_position > 0 && header.start_batch > 0);
    assert_eq!(
        look(&devices[0].1).superblock.events,
        look(&devices[2].1).superblock.events
    );
    assert!(look(&devices[0].1).superblock.events > EventCount(0));
}

/// The header of a ring, as what was read at its place says it.
#[test]
fn the_header_of_another_array_or_shape_or_place_is_not_this_log() {
    let devices = array(&NewArray {
        log_bytes_max: Some(1 << 20),
        ..three_members(
            Organisation::Raid5(Raid5Layout::LeftSymmetric),
            DEVICE_BYTES,
        )
    });
    let examined = look(&devices[0].1);
    let (superblock, bitmap) = (examined.superblock, examined.bitmap);
    let (header, reason) = examined.log.unwrap();
    assert_eq!(reason, None);
    let judge = |header: &LogHeader, superblock: &Superblock| {
        judge_log_page(&header.encode(), superblock, bitmap.as_ref()).is_some()
    };
    assert!(judge(&header, &superblock));
    let changes: [fn(&mut LogHeader); 3] = [
        |header| header.array_uuid[0] ^= 1,
        |header| header.device_uuid[0] ^= 1,
        |header| header.area.ring_sector += 8,
    ];
    for change in changes {
        let mut other = header.clone();
        change(&mut other);
        assert!(!judge(&other, &superblock));
    }
    let mut grown = superblock.clone();
    grown.strip_sectors *= 2;
    assert!(!judge(&header, &grown), "another shape");
}

#[test]
fn bits_count_in_bytes_of_the_volume_or_of_its_members_or_not_at_all() {
    let geometry = |organisation| {
        let geometry = GeometrySpec {
            organisation,
            member_count: 4,
            strip_bytes: 65_536,
            component_bytes: 1 << 20,
            member_sizes_bytes: Vec::new(),
        };
        Geometry::new(&geometry).unwrap().sync_bytes()
    };
    assert_eq!(geometry(Organisation::Raid1), 1 << 20);
    assert_eq!(
        geometry(Organisation::Raid10(Raid10Layout::near(2))),
        2 << 20
    );
    assert_eq!(
        geometry(Organisation::Raid5(Raid5Layout::LeftSymmetric)),
        1 << 20
    );
    assert_eq!(geometry(Organisation::Raid0(Raid0Layout::Original)), 0);
    assert_eq!(geometry(Organisation::Linear), 0);
}

#[test]
fn a_volume_is_called_by_its_name_without_the_host_or_by_its_uuid() {
    for (stored, name) in [
        ("host:data", "data"),
        ("data", "data"),
        ("host:", "md-07070707"),
        ("", "md-07070707"),
    ] {
        let devices = array(&NewArray {
            stored_name: stored.to_owned(),
            ..three_members(Organisation::Raid1, DEVICE_BYTES)
        });
        let (volume, assembly) = open(&devices).unwrap();
        assert_eq!(
            (volume.name(), volume_name(&assembly).as_str()),
            (name, name),
            "{stored}"
        );
    }
}

#[test]
fn why_a_volume_does_not_open_is_said_in_one_line() {
    let blank = [("a".to_owned(), memory())];
    let text = |error: Option<OpenError>| error.unwrap().to_string();
    assert_eq!(
        text(open(&blank).err()),
        "member 0: no array metadata found"
    );
    assert_eq!(
        text(Some(OpenError::Io {
            index: 3,
            error: IoError::Gone
        })),
        format!("member 3: {}", IoError::Gone)
    );
    assert!(text(Some(OpenError::InPieces)).contains("--read-only"));
    for error in [OpenError::Log, OpenError::NotSupported] {
        assert_eq!(text(Some(error("so it is".to_owned()))), "so it is");
    }
    let devices = mirror();
    let other = NewArray {
        uuid: [8; 16],
        ..three_members(Organisation::Raid1, DEVICE_BYTES)
    };
    let strangers = [devices[0].clone(), array(&other)[1].clone()];
    let text = text(open(&strangers).err());
    assert!(!text.is_empty() && !text.contains('\n'), "{text}");
}

#[test]
fn bad_blocks_are_known_again_where_they_were() {
    let devices = mirror();
    let examined = look(&devices[1].1);
    let mut superblock = examined.superblock;
    let (area, data) = (
        superblock.bad_block_log.unwrap(),
        superblock.data_offset_sectors,
    );
    let mut log = BadBlocks::new(area.size_sectors, area.shift).unwrap();
    log.add(data + 8..data + 16).unwrap();
    log.add(data - 8..data).unwrap(); // before the data: nobody reads there
    let each = |number: u64| data + 64 + number * 2;
    (0..100).for_each(|number| log.add(each(number)..each(number) + 1).unwrap());
    superblock.has_bad_blocks = true;
    {
        let mut bytes = devices[1].1.bytes.borrow_mut();
        let mut put = |sector: u64, new: &[u8]| {
            let at = usize::try_from(sector * 512).unwrap();
            bytes[at..at + new.len()].copy_from_slice(new);
        };
        put(superblock.bad_block_log_sector().unwrap(), &log.encode());
        put(superblock.super_offset_sectors, &superblock.encode());
    }
    let (volume, _) = open(&devices).unwrap();
    let members = volume.status().members;
    let bad: Vec<_> = members
        .iter()
        .flat_map(|member| &member.bad_ranges)
        .collect();
    assert_eq!(*bad[0], 4096..8192);
    assert_eq!(bad.len(), 101, "more than one sector of the list");
    let last = (64 + 99 * 2) * 512;
    assert_eq!(*bad[100], last..last + 512);
    assert_eq!(members[1].bad_bytes, 4096 + 100 * 512);
}

/// Bits and bad blocks of another array that was here before must not pass for this one's.
#[test]
fn a_bitmap_of_another_size_is_none() {
    let devices = mirror();
    let (volume, _) = open(&devices).unwrap();
    write(&volume, 0, 1);
    drop(volume);
    let (volume, _) = open(&devices).unwrap();
    let (few, all) = volume.status().doubtful_regions;
    assert!(few == 1 && all > 100, "{few} of {all}");
    drop(volume);
    for (_, device) in &devices {
        let at = look(device).superblock.bitmap_sector().unwrap() * 512 + 40;
        let at = usize::try_from(at).unwrap();
        let mut bytes = device.bytes.borrow_mut();
        let sectors = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        bytes[at..at + 8].copy_from_slice(&(sectors - 8).to_le_bytes());
    }
    let (volume, _) = open(&devices).unwrap();
    let status = volume.status();
    assert_eq!(status.bitmap_region_bytes, None);
    assert_eq!(status.doubtful_regions.0, status.doubtful_regions.1);
}

#[test]
fn what_was_asked_for_to_be_read_only_takes_no_writes() {
    let devices = mirror();
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (volume, _) = crate::common::small_array::open_as(&devices, options).unwrap();
    assert!(volume.status().is_read_only);
    let data = BufPool::new(0).copy_of(&[1; BLOCK]).freeze();
    let written = run(volume.write(0, data, plexum_block::device::Fua::No));
    assert_eq!(written, Err(IoError::ReadOnly));
}
