//! Long reads that are not copied: what is parked is what a read gives, and whatever needs more than a look is left to the read.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::small_array::{BLOCK, DEVICE_BYTES, three_members};
use common::{Heap, Memory, Still, run};
use plexum_engine::balance::Policy;
use plexum_engine::buf::BufPool;
use plexum_engine::device::Fua;
use plexum_engine::meta::assemble::Options;
use plexum_engine::meta::create::{plan, write_new};
use plexum_engine::meta::open::{OpenRequest, open_volume};
use plexum_engine::plex::layout::{Organisation, Raid0Layout, Raid5Layout, Raid10Layout};
use plexum_engine::volume::{Volume, VolumeOptions};

const KIB: u64 = 1024;
/// Organisations whose members hold the same in every slot, or never change it.
const PARKED: [Organisation; 3] = [
    Organisation::Linear,
    Organisation::Raid0(Raid0Layout::Alternate),
    Organisation::Raid1,
];

/// Three members of a new array, whose devices park.
fn members(organisation: Organisation) -> Vec<(String, Memory)> {
    let plan = plan(&three_members(organisation, DEVICE_BYTES)).unwrap();
    let memory = || Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]);
    let devices: Vec<Option<Memory>> = (0..3).map(|_| Some(memory())).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    let devices = devices.into_iter().flatten().enumerate();
    let named = devices.map(|(index, device)| {
        device.parks.set(Some(u32::MAX));
        (format!("m{index}"), device)
    });
    named.collect()
}

fn open_with(devices: &[(String, Memory)], balance: Policy) -> Volume<Memory, Still> {
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
    let opened = run(open_volume(devices.to_vec(), clock, pool, request));
    opened.unwrap().0
}

/// Fills the volume with bytes that differ from place to place.
fn fill(volume: &Volume<Memory, Still>) {
    let bytes: Vec<u8> = (0..volume.size_bytes() / 512)
        .flat_map(|sector| [(sector.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8; 512])
        .collect();
    let data = BufPool::new(0).copy_of(&bytes).freeze();
    run(volume.write(0, data, Fua::No)).unwrap();
    run(volume.flush()).unwrap();
}

fn park(volume: &Volume<Memory, Still>, at: u64, length: u64) -> Option<Vec<u8>> {
    let mut heap = Heap::default();
    let is_parked = volume.park(at, usize::try_from(length).unwrap(), &mut heap);
    is_parked.then_some(heap.0)
}

fn read(volume: &Volume<Memory, Still>, at: u64, length: u64) -> Vec<u8> {
    let read = volume.read(at, usize::try_from(length).unwrap());
    run(read).unwrap().to_vec()
}

fn device_reads(devices: &[(String, Memory)]) -> u64 {
    devices.iter().map(|(_, device)| device.reads.get()).sum()
}

#[test]
fn what_is_parked_is_what_a_read_gives() {
    for organisation in PARKED {
        let devices = members(organisation);
        for balance in [Policy::RoundRobin, Policy::Split { slice_bytes: 4096 }] {
            let volume = open_with(&devices, balance);
            fill(&volume);
            for (at, length) in [
                (0, 64 * KIB),
                (0, 1024 * KIB),
                (512, 200 * KIB),
                (64 * KIB - 512, 1024),
                (100 * KIB + 512, 700 * KIB + 512),
                (volume.size_bytes() - 300 * KIB, 300 * KIB),
            ] {
                let before = device_reads(&devices);
                let parked = park(&volume, at, length);
                assert_eq!(device_reads(&devices), before, "nothing was copied");
                let parked = parked.unwrap_or_else(|| panic!("{organisation:?} {at} {length}"));
                assert!(parked == read(&volume, at, length), "{organisation:?} {at}");
            }
            run(volume.stop()).unwrap();
        }
    }
}

#[test]
fn parked_reads_count_like_others() {
    let devices = members(Organisation::Raid0(Raid0Layout::Alternate));
    let volume = open_with(&devices, Policy::RoundRobin);
    let reads = || -> (u64, u64) {
        let members = volume.status().members;
        let counters = members.iter().map(|member| member.counters);
        counters.fold((0, 0), |(reads, bytes), of| {
            (reads + of.reads, bytes + of.read_bytes)
        })
    };
    let (reads_before, bytes_before) = reads();
    park(&volume, 0, 1024 * KIB).unwrap();
    let (reads_after, bytes_after) = reads();
    assert_eq!(reads_after - reads_before, 16, "one for each strip");
    assert_eq!(bytes_after - bytes_before, 1024 * KIB);
}

#[test]
fn what_a_missing_member_held_is_parked_from_another_copy() {
    let mirror = members(Organisation::Raid1);
    let volume = open_with(&mirror, Policy::Prefer);
    fill(&volume);
    run(volume.stop()).unwrap();
    let volume = open_with(&mirror[1..], Policy::Prefer);
    assert!(park(&volume, 0, 1024 * KIB).is_some(), "others have it");
}

#[test]
fn a_copy_in_doubt_is_made_equal_before_it_is_parked() {
    let devices = members(Organisation::Raid1);
    let volume = open_with(&devices, Policy::Prefer);
    fill(&volume);
    let data = BufPool::new(0).copy_of(&[7; BLOCK]).freeze();
    run(volume.write(0, data, Fua::No)).unwrap();
    drop(volume); // a crash: the region's bit is still set
    let volume = open_with(&devices, Policy::Prefer);
    assert_eq!(park(&volume, 0, 4096), None);
    let equal = read(&volume, 0, 4096);
    assert_eq!(park(&volume, 0, 4096), Some(equal));
}

#[test]
fn nothing_is_parked_of_a_member_that_another_slot_would_fill_with_something_else() {
    for organisation in [
        Organisation::Raid10(Raid10Layout::near(2)),
        Organisation::Raid4,
        Organisation::Raid5(Raid5Layout::LeftSymmetric),
    ] {
        let volume = open_with(&members(organisation), Policy::RoundRobin);
        assert_eq!(park(&volume, 0, 64 * KIB), None, "{organisation:?}");
    }
}

#[test]
fn a_member_that_cannot_park_has_no_read_tried_in_vain() {
    let devices = members(Organisation::Raid1);
    let volume = open_with(&devices, Policy::RoundRobin);
    devices[2].1.parks.set(None);
    for _ in 0..3 {
        assert_eq!(park(&volume, 0, 64 * KIB), None);
    }
    assert_eq!(devices[0].1.parks.get(), Some(u32::MAX), "nobody was asked");
}

#[test]
fn a_device_that_gives_up_in_the_middle_leaves_the_read_to_the_ordinary_way() {
    for organisation in PARKED {
        let devices = members(organisation);
        let balance = Policy::Split { slice_bytes: 4096 };
        let volume = open_with(&devices, balance);
        fill(&volume);
        for (_, device) in &devices {
            device.parks.set(Some(0));
        }
        devices[0].1.parks.set(Some(1));
        let length = 1024 * KIB;
        let is_one_member = organisation == Organisation::Linear;
        assert_eq!(park(&volume, 0, length).is_some(), is_one_member);
        assert_eq!(read(&volume, 0, length).len() as u64, length);
        for member in volume.status().members {
            assert_eq!((member.counters.outstanding, member.in_flight), (0, 0));
        }
    }
}

#[test]
fn ranges_that_a_read_refuses_are_not_parked() {
    let devices = members(Organisation::Linear);
    let volume = open_with(&devices, Policy::RoundRobin);
    let end = volume.size_bytes();
    for (at, length) in [(end, 512), (u64::MAX - 511, 512), (1, 512), (0, 511)] {
        assert_eq!(park(&volume, at, length), None);
    }
    devices[0].1.is_gone.set(true);
    run(volume.read(0, 4096)).unwrap_err();
    assert!(volume.is_frozen());
    assert_eq!(park(&volume, 0, 4096), None);
}
