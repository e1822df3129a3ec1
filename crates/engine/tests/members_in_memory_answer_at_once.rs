//! Requests that are carried out in one step by members that answer at once: they do what `read` and `write` do otherwise, and whatever needs
//! more than that is left to those.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::small_array::{BLOCK, DEVICE_BYTES, three_members};
use common::{Memory, Still, named, run};
use plexum_engine::balance::Policy;
use plexum_engine::buf::BufPool;
use plexum_engine::device::Fua;
use plexum_engine::meta::assemble::Options;
use plexum_engine::meta::create::{plan, write_new};
use plexum_engine::meta::open::{OpenRequest, open_volume};
use plexum_engine::plex::layout::{Organisation, Raid0Layout, Raid5Layout, Raid10Layout};
use plexum_engine::volume::{Volume, VolumeOptions};

const KIB: u64 = 1024;
const RAID5: Organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);
/// An I/O at once for everything that is asked.
const ALWAYS: Option<u32> = Some(u32::MAX);

type Members = Vec<(String, Memory)>;

/// Three members of a new array.
fn members(organisation: Organisation) -> Members {
    let plan = plan(&three_members(organisation, DEVICE_BYTES)).unwrap();
    let memory = || Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]);
    let devices: Vec<Option<Memory>> = (0..3).map(|_| Some(memory())).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    named(devices.into_iter().flatten())
}

fn answer_at_once(members: &Members, count: Option<u32>) {
    for (_, member) in members {
        member.at_once.set(count);
    }
}

fn open(members: &[(String, Memory)], balance: Policy) -> Volume<Memory, Still> {
    let request = OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        volume: VolumeOptions {
            balance,
            ..VolumeOptions::default()
        },
        ..OpenRequest::default()
    };
    let (pool, clock) = (BufPool::new(1 << 20), Still::default());
    run(open_volume(members.to_vec(), clock, pool, request))
        .unwrap()
        .0
}

fn read(volume: &Volume<Memory, Still>, at: u64, length: u64) -> Vec<u8> {
    let read = volume.read(at, usize::try_from(length).unwrap());
    run(read).unwrap().to_vec()
}

fn write(volume: &Volume<Memory, Still>, at: u64, bytes: &[u8]) {
    let data = BufPool::new(0).copy_of(bytes).freeze();
    run(volume.write(at, data, Fua::No)).unwrap();
}

/// Reads and writes that members were asked for and could have taken their time for.
fn waited_for(members: &Members) -> (u64, u64) {
    let of = |count: fn(&Memory) -> u64| members.iter().map(|(_, member)| count(member)).sum();
    (
        of(|member| member.reads.get()),
        of(|member| member.writes.get()),
    )
}

/// Counted reads and writes of all members, and their bytes.
fn counted(volume: &Volume<Memory, Still>) -> (u64, u64, u64, u64) {
    let status = volume.status();
    let counters = status.members.iter().map(|member| member.counters);
    counters.fold((0, 0, 0, 0), |sum, of| {
        (
            sum.0 + of.reads,
            sum.1 + of.writes,
            sum.2 + of.read_bytes,
            sum.3 + of.written_bytes,
        )
    })
}

#[test]
fn what_is_answered_at_once_is_what_would_have_been_waited_for() {
    for organisation in [
        Organisation::Linear,
        Organisation::Raid0(Raid0Layout::Alternate),
        Organisation::Raid1,
        Organisation::Raid10(Raid10Layout::near(2)),
        RAID5,
    ] {
        for balance in [Policy::RoundRobin, Policy::Split { slice_bytes: 4096 }] {
            let (prompt, slow) = (members(organisation), members(organisation));
            let volumes = [open(&prompt, balance), open(&slow, balance)];
            let mut random = 0x9e37_79b9_7f4a_7c15u64;
            for round in 0..600u32 {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Now all answer at once, now none, now some of those that are asked.
                answer_at_once(
                    &prompt,
                    [ALWAYS, Some(1), None][(random >> 60) as usize % 3],
                );
                let sectors = 1 + (random >> 20) % 300;
                let at = (random >> 32) % (volumes[0].size_bytes() / 512 - sectors) * 512;
                if round % 2 == 0 {
                    let bytes: Vec<u8> = (0..sectors * 512)
                        .map(|byte| (byte / 512) as u8 ^ round as u8)
                        .collect();
                    volumes.iter().for_each(|volume| write(volume, at, &bytes));
                } else {
                    let [first, second] = [0, 1].map(|of| read(&volumes[of], at, sectors * 512));
                    assert!(first == second, "{organisation:?} {at}");
                }
            }
            answer_at_once(&prompt, None);
            let whole = volumes[0].size_bytes();
            let [first, second] = [0, 1].map(|of| read(&volumes[of], 0, whole));
            assert!(first == second, "{organisation:?}");
            volumes
                .iter()
                .for_each(|volume| run(volume.stop()).unwrap());
            for ((name, prompt), (_, slow)) in prompt.iter().zip(&slow) {
                let is_alike = *prompt.bytes.borrow() == *slow.bytes.borrow();
                assert!(
                    is_alike,
                    "{organisation:?} {name}: another member than without"
                );
            }
        }
    }
}

#[test]
fn nothing_is_waited_for_where_members_answer_at_once_and_it_counts_like_what_is() {
    for (organisation, writes) in [
        (Organisation::Raid0(Raid0Layout::Alternate), 1),
        (Organisation::Raid1, 3),
    ] {
        let members = members(organisation);
        answer_at_once(&members, ALWAYS);
        let volume = open(&members, Policy::RoundRobin);
        write(&volume, 0, &[1; BLOCK]); // the array becomes dirty, and the region is marked
        let (before, asked) = (counted(&volume), waited_for(&members));
        write(&volume, 8 * KIB, &[2; BLOCK]);
        assert_eq!(read(&volume, 8 * KIB, 4096), [2; BLOCK]);
        assert_eq!(waited_for(&members), asked, "{organisation:?}");
        let after = counted(&volume);
        let done = (
            after.0 - before.0,
            after.1 - before.1,
            after.2 - before.2,
            after.3 - before.3,
        );
        assert_eq!(done, (1, writes, 4096, writes * 4096), "{organisation:?}");
    }
}

#[test]
fn a_write_that_one_copy_does_not_take_at_once_is_waited_for_on_all() {
    let members = members(Organisation::Raid1);
    answer_at_once(&members, ALWAYS);
    let volume = open(&members, Policy::Prefer);
    write(&volume, 0, &[1; BLOCK]);
    let before = waited_for(&members).1;
    members[1].1.at_once.set(Some(0));
    write(&volume, 0, &[2; BLOCK]);
    assert_eq!(waited_for(&members).1 - before, 3);
    for first in 0..3 {
        answer_at_once(&members, Some(0));
        members[first].1.at_once.set(ALWAYS);
        assert_eq!(read(&volume, 0, 4096), [2; BLOCK], "m{first}");
    }
}

#[test]
fn a_copy_that_does_not_answer_at_once_is_waited_for_and_no_other() {
    for balance in [
        Policy::RoundRobin,
        Policy::Load,
        Policy::Split { slice_bytes: 4096 },
    ] {
        let members = members(Organisation::Raid1);
        answer_at_once(&members, ALWAYS);
        let volume = open(&members, balance);
        write(&volume, 0, &[7; 4 * BLOCK]);
        members[1].1.is_gone.set(true);
        for part in 0..4 {
            let (at, length) = match part {
                3 => (0, 4 * BLOCK as u64),
                part => (part * BLOCK as u64, BLOCK as u64),
            };
            assert!(read(&volume, at, length).iter().all(|byte| *byte == 7));
        }
        let lost = volume.status().lost_slots.len();
        assert_eq!(lost, 1, "{balance:?}");
    }
}

#[test]
fn the_first_write_to_a_clean_array_waits_for_its_mark() {
    let members = members(Organisation::Raid1);
    answer_at_once(&members, ALWAYS);
    let volume = open(&members, Policy::Prefer);
    let before = waited_for(&members).1;
    write(&volume, 0, &[1; BLOCK]);
    let marks = waited_for(&members).1 - before;
    assert!(marks >= 3, "superblock and bitmap of each member: {marks}");
    let far = volume.size_bytes() - 4096;
    let before = waited_for(&members).1;
    write(&volume, 4096, &[1; BLOCK]);
    assert_eq!(waited_for(&members).1, before, "all is marked");
    assert_eq!(read(&volume, far, 4096), [0; BLOCK]);
}

#[test]
fn what_has_to_be_durable_is_waited_for() {
    let members = members(Organisation::Raid1);
    answer_at_once(&members, ALWAYS);
    let volume = open(&members, Policy::Prefer);
    write(&volume, 0, &[1; BLOCK]);
    let before = waited_for(&members).1;
    let data = BufPool::new(0).copy_of(&[3; BLOCK]).freeze();
    run(volume.write(0, data, Fua::Yes)).unwrap();
    assert_eq!(waited_for(&members).1 - before, 3);
}

#[test]
fn a_copy_in_doubt_is_made_equal_before_it_is_answered() {
    let members = members(Organisation::Raid1);
    answer_at_once(&members, ALWAYS);
    let volume = open(&members, Policy::RoundRobin);
    write(&volume, 0, &[1; BLOCK]);
    drop(volume); // a crash: the region's bit is still set
    for (index, (_, member)) in members.iter().enumerate() {
        // The copies differ, as after a power cut.
        let mut bytes = member.bytes.borrow_mut();
        let at = bytes.windows(BLOCK).position(|found| found == [1; BLOCK]);
        bytes[at.unwrap()] = 10 + index as u8;
    }
    let volume = open(&members, Policy::RoundRobin);
    let first = read(&volume, 0, 4096);
    for _ in 0..6 {
        assert_eq!(read(&volume, 0, 4096), first);
    }
}

#[test]
fn a_request_that_is_refused_is_refused_like_any_other() {
    let members = members(Organisation::Raid1);
    answer_at_once(&members, ALWAYS);
    let volume = open(&members, Policy::Prefer);
    let size = volume.size_bytes();
    assert!(run(volume.read(size, 512)).is_err());
    assert!(run(volume.read(100, 512)).is_err());
    let data = BufPool::new(0).copy_of(&[1; 512]).freeze();
    assert!(run(volume.write(size, data, Fua::No)).is_err());
    assert_eq!(run(volume.read(0, 0)).unwrap().length_bytes(), 0);
}
