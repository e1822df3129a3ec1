//! The stripe log at start: it is replayed when Plexum alone had the array (L6), and then a missing member is no doubt;
//! after anybody else had the array it is not.

use crate::common::small_array::{
    BLOCK, Keeps, STRIP_BYTES, new_array, open, place, poke, read, write,
};
use crate::common::{Memory, run};
use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_format::md::MdVersion;
use plexum_md::assemble::LogUse;
use plexum_md::open::{OpenError, examine};

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
    let (_, devices) = new_array(MdVersion::V12, Keeps::Log);
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

/// A small record is durable when its own write is answered, and the tail flushes only for room.
#[test]
fn small_writes_flush_nobody_while_the_rings_have_room() {
    let (_, devices) = new_array(MdVersion::V12, Keeps::Log);
    let (volume, _) = open(&devices).unwrap();
    let flushes = || -> u64 { devices.iter().map(|(_, device)| device.flushes.get()).sum() };
    write(&volume, 0, 0x11);
    let before = flushes();
    for block in 0..50 {
        write(&volume, block * BLOCK as u64, 0x22);
    }
    assert_eq!(flushes(), before);
    // More than the rings hold: a page and a block of each of two members.
    for _ in 0..3 * (1 << 20) / (4 * BLOCK) {
        write(&volume, 0, 0x33);
    }
    assert!(flushes() > before, "room comes back only with a flush");
}

#[test]
fn the_records_of_several_rows_are_one_write_to_each_member() {
    let (_, devices) = new_array(MdVersion::V12, Keeps::Log);
    let (volume, _) = open(&devices).unwrap();
    let rows = 4;
    let write_rows = |byte| {
        let length = usize::try_from(rows * 2 * STRIP_BYTES).unwrap();
        let data = BufPool::new(0).copy_of(&vec![byte; length]).freeze();
        run(volume.write(0, data, Fua::No)).unwrap();
    };
    let counts = || {
        let count = |(_, device): &(_, Memory)| (device.writes.get(), device.flushes.get());
        devices.iter().map(count).collect::<Vec<_>>()
    };
    write_rows(0x11);
    let before = counts();
    write_rows(0x22);
    for (now, before) in counts().into_iter().zip(before) {
        assert_eq!(
            now,
            (before.0 + 1 + rows, before.1),
            "the record, then the rows"
        );
    }
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
        let (plan, devices) = new_array(version, Keeps::Log);
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

/// A tool may keep more room for the bitmap than its bits take.
#[test]
fn a_bitmap_that_keeps_the_room_of_the_ring_ends_the_log() {
    let devices = crashed();
    for (name, device) in &devices {
        let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
        let (header, _) = examined.log.unwrap();
        let bitmap = examined.superblock.bitmap_sector().unwrap();
        let kept = u32::try_from(header.area.ring_sector + 8 - bitmap).unwrap();
        let at = usize::try_from(bitmap * 512 + 64).unwrap();
        device.bytes.borrow_mut()[at..at + 4].copy_from_slice(&kept.to_le_bytes());
    }
    let (_, assembly) = open(&devices).unwrap();
    let log = assembly.log;
    assert!(matches!(log, LogUse::Refused { .. }), "{log:?}");
}
