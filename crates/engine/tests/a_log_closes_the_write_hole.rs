//! The stripe log at start: it is replayed when Plexum alone had the array (L6), and then a missing member is no doubt;
//! after anybody else had the array it is not.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::{Memory, Still, run};
use plexum_engine::buf::BufPool;
use plexum_engine::device::Fua;
use plexum_engine::meta::assemble::{Assembly, LogUse, Options};
use plexum_engine::meta::create::{NewArray, Plan, Start, plan, write_new};
use plexum_engine::meta::open::{OpenError, OpenRequest, examine, open_volume};
use plexum_engine::plex::layout::{Organisation, Raid5Layout};
use plexum_engine::volume::{Volume, VolumeOptions};
use plexum_format::md::MdVersion;

const DEVICE_BYTES: u64 = 6 << 20;
const STRIP_BYTES: u64 = 65_536;
const BLOCK: usize = 4096;

fn new_array(version: MdVersion) -> (Plan, Vec<(String, Memory)>) {
    let new = NewArray {
        version,
        organisation: Organisation::Raid5(Raid5Layout::LeftSymmetric),
        strip_bytes: STRIP_BYTES,
        size_bytes: None,
        members: vec![Some(DEVICE_BYTES); 3],
        spares: Vec::new(),
        write_mostly: Vec::new(),
        stored_name: "test".to_owned(),
        uuid: [7; 16],
        identities: vec![[1; 16], [2; 16], [3; 16]],
        wall_seconds: 1,
        has_bitmap: true,
        region_bytes: Some(65_536),
        log_bytes_max: Some(1 << 20),
        start: Start::Agreeing,
    };
    let plan = plan(&new).unwrap();
    let memory = || Some(Memory::new(vec![0; usize::try_from(DEVICE_BYTES).unwrap()]));
    let devices: Vec<Option<Memory>> = (0..3).map(|_| memory()).collect();
    run(write_new(&plan, &devices, &BufPool::new(0))).unwrap();
    let named = devices.into_iter().flatten().enumerate();
    (
        plan,
        named
            .map(|(index, device)| (format!("m{index}"), device))
            .collect(),
    )
}

fn open(devices: &[(String, Memory)]) -> Result<(Volume<Memory, Still>, Assembly), OpenError> {
    let request = OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        volume: VolumeOptions::default(),
        name: None,
    };
    let pool = BufPool::new(1 << 20);
    run(open_volume(
        devices.to_vec(),
        Still::default(),
        pool,
        request,
    ))
}

fn write(volume: &Volume<Memory, Still>, at: u64, byte: u8) {
    let data = BufPool::new(0).copy_of(&[byte; BLOCK]).freeze();
    run(volume.write(at, data, Fua::No)).unwrap();
}

fn read(volume: &Volume<Memory, Still>, at: u64) -> Vec<u8> {
    run(volume.read(at, BLOCK)).unwrap().to_vec()
}

/// The data of the first row's first block on its members: slot 0 holds data 0, slot 1 data 1, slot 2 parity.
fn place(devices: &[(String, Memory)], slot: usize) -> usize {
    let (name, device) = &devices[slot];
    let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
    usize::try_from(examined.superblock.data_offset_sectors * 512).unwrap()
}

fn poke(devices: &[(String, Memory)], slot: usize, byte: u8) {
    let at = place(devices, slot);
    devices[slot].1.bytes.borrow_mut()[at..at + BLOCK].fill(byte);
}

/// What the kernel does to a superblock: another event, and no microseconds.
fn have_the_kernel_commit(devices: &[(String, Memory)]) {
    for (name, device) in devices {
        let mut superblock = run(examine(device, &BufPool::new(0), 0, name))
            .unwrap()
            .superblock;
        superblock.utime.microseconds = 0;
        let at = usize::try_from(superblock.super_offset_sectors * 512).unwrap();
        device.bytes.borrow_mut()[at..at + 4096].copy_from_slice(&superblock.encode());
    }
}

/// An array with two answered writes in its first row, dropped like a crash; then what was in place is taken back, as a
/// power cut does with what was not flushed.
fn crashed() -> Vec<(String, Memory)> {
    let (_, devices) = new_array(MdVersion::V12);
    let (volume, assembly) = open(&devices).unwrap();
    assert_eq!(assembly.log, LogUse::Void, "nothing was under way");
    write(&volume, 0, 0x11);
    write(&volume, STRIP_BYTES, 0x22);
    drop(volume);
    poke(&devices, 0, 0);
    poke(&devices, 2, 0x77);
    devices
}

#[test]
fn answered_writes_are_put_in_place_again_and_nothing_is_in_doubt() {
    let devices = crashed();
    let (volume, assembly) = open(&devices).unwrap();
    assert_eq!(
        assembly.log,
        LogUse::Replay {
            doubt_from_bytes: None
        }
    );
    assert_eq!(volume.status().doubtful_regions.0, 0);
    assert_eq!(read(&volume, 0), [0x11; BLOCK]);
    assert_eq!(read(&volume, STRIP_BYTES), [0x22; BLOCK]);
    let at = place(&devices, 2);
    assert_eq!(devices[2].1.bytes.borrow()[at], 0x33, "parity is right");
}

#[test]
fn a_member_lost_with_the_crash_needs_no_force() {
    for lost in 0..3 {
        let mut devices = crashed();
        devices.remove(lost);
        let (volume, _) = open(&devices).unwrap();
        assert_eq!(read(&volume, 0), [0x11; BLOCK], "without member {lost}");
        assert_eq!(
            read(&volume, STRIP_BYTES),
            [0x22; BLOCK],
            "without member {lost}"
        );
    }
}

#[test]
fn a_second_start_after_a_replay_begins_with_an_empty_log() {
    let devices = crashed();
    drop(open(&devices).unwrap());
    poke(&devices, 0, 0x44);
    poke(&devices, 2, 0x66);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(
        read(&volume, 0),
        [0x44; BLOCK],
        "the old life does not count any more"
    );
}

#[test]
fn nothing_is_replayed_once_somebody_else_had_the_array() {
    let devices = crashed();
    poke(&devices, 0, 0x55);
    have_the_kernel_commit(&devices);
    let (volume, assembly) = open(&devices).unwrap();
    assert_eq!(assembly.log, LogUse::Void);
    assert!(volume.status().doubtful_regions.0 > 0, "as without a log");
    assert_eq!(read(&volume, 0), [0x55; BLOCK], "the other's data stand");
    drop(volume);
    // The first commit binds the log anew: what it held before must not come back with it.
    let (volume, _) = open(&devices).unwrap();
    write(&volume, 4 * STRIP_BYTES, 0x99);
    drop(volume);
    let (volume, assembly) = open(&devices).unwrap();
    assert!(matches!(assembly.log, LogUse::Replay { .. }));
    assert_eq!(read(&volume, 0), [0x55; BLOCK]);
}

#[test]
fn without_the_log_a_dirty_and_degraded_start_is_still_refused() {
    let mut devices = crashed();
    have_the_kernel_commit(&devices);
    devices.remove(1);
    assert!(matches!(open(&devices), Err(OpenError::Assemble(_))));
}

#[test]
fn formats_without_room_have_no_log_and_say_why() {
    for version in [MdVersion::V10, MdVersion::V090] {
        let (plan, devices) = new_array(version);
        let reason = plan.no_log.expect("there is no gap").to_string();
        assert!(reason.contains("leaves no room"), "{reason}");
        assert_eq!(open(&devices).unwrap().1.log, LogUse::None);
    }
}

#[test]
fn a_bitmap_that_grew_over_the_ring_ends_the_log() {
    let devices = crashed();
    for (name, device) in &devices {
        let mut superblock = run(examine(device, &BufPool::new(0), 0, name))
            .unwrap()
            .superblock;
        let mut bad = superblock.bad_block_log.unwrap();
        bad.offset_sectors = i32::try_from(superblock.data_offset_sectors).unwrap() - 40;
        superblock.bad_block_log = Some(bad);
        let at = usize::try_from(superblock.super_offset_sectors * 512).unwrap();
        device.bytes.borrow_mut()[at..at + 4096].copy_from_slice(&superblock.encode());
    }
    let (volume, assembly) = open(&devices).unwrap();
    assert!(
        matches!(assembly.log, LogUse::Refused { .. }),
        "{:?}",
        assembly.log
    );
    assert!(volume.status().log.is_none());
}
