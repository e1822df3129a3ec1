//! md's partial parity log, written by the engine: what a crash leaves is right again, or is said to be in doubt.

use crate::common::small_array::{
    BLOCK, Keeps, STRIP_BYTES, new_array, new_member, open, open_as, place, poke, read, write,
};
use crate::common::{Memory, run, yield_once};
use plexum_block::buf::BufPool;
use plexum_block::device::{Fua, IoError};
use plexum_block::wait::join;
use plexum_format::md::{MdVersion, PplHeader, ppl};
use plexum_md::assemble::{AssembleCode, Options};
use plexum_md::open::{OpenError, examine};

type Members = Vec<(String, Memory)>;

/// The header on a member.
fn unit(devices: &[(String, Memory)], slot: usize) -> PplHeader {
    let (name, device) = &devices[slot];
    let superblock = run(examine(device, &BufPool::new(0), 0, name))
        .unwrap()
        .superblock;
    let at = usize::try_from(superblock.ppl_sector().unwrap() * 512).unwrap();
    let signature = ppl::signature(&superblock.array_uuid);
    PplHeader::parse(&device.bytes.borrow()[at..at + 4096], 0, signature).unwrap()
}

fn spoil_header(devices: &[(String, Memory)], slot: usize) {
    let (name, device) = &devices[slot];
    let superblock = run(examine(device, &BufPool::new(0), 0, name))
        .unwrap()
        .superblock;
    let at = usize::try_from(superblock.ppl_sector().unwrap() * 512).unwrap();
    device.bytes.borrow_mut()[at + 600] ^= 1;
}

/// One strip of the first row is written; the crash takes the parity back.
fn crashed_in_one_strip() -> Members {
    let (_, devices) = new_array(MdVersion::V12, Keeps::Ppl);
    let (volume, _) = open(&devices).unwrap();
    assert!(volume.status().has_ppl && volume.status().bitmap_region_bytes.is_none());
    write(&volume, STRIP_BYTES, 0x22);
    write(&volume, 0, 0x11);
    drop(volume);
    poke(&devices, 2, 0x77);
    devices
}

/// Both strips of the first row are written at once; the crash takes the parity back.
fn crashed_in_a_whole_row() -> Members {
    let (_, devices) = new_array(MdVersion::V12, Keeps::Ppl);
    let (volume, _) = open(&devices).unwrap();
    let length = usize::try_from(2 * STRIP_BYTES).unwrap();
    let data = BufPool::new(0).copy_of(&vec![0x55; length]).freeze();
    run(volume.write(0, data, Fua::No)).unwrap();
    drop(volume);
    poke(&devices, 2, 0x77);
    devices
}

fn is_refused(devices: &[(String, Memory)]) -> bool {
    match open(devices).err() {
        Some(OpenError::Assemble(error)) => error.code == AssembleCode::DirtyDegraded,
        None => false,
        other => panic!("{other:?}"),
    }
}

#[test]
fn parity_is_right_after_a_crash_without_a_resync() {
    let devices = crashed_in_one_strip();
    assert_eq!(unit(&devices, 2).entries.len(), 1, "before the row changed");
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(volume.status().doubtful_regions.0, 0);
    let at = place(&devices, 2);
    assert_eq!(
        devices[2].1.bytes.borrow()[at],
        0x33,
        "parity of both strips"
    );
    assert!(unit(&devices, 2).entries.is_empty(), "it is done");
}

#[test]
fn a_strip_that_was_not_written_survives_the_loss_of_its_member_with_the_crash() {
    let mut devices = crashed_in_one_strip();
    devices.remove(1);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(read(&volume, STRIP_BYTES), [0x22; BLOCK]);
    assert_eq!(read(&volume, 0), [0x11; BLOCK]);
}

#[test]
fn a_strip_written_with_others_is_in_doubt_when_its_member_is_lost() {
    let mut devices = crashed_in_a_whole_row();
    devices.remove(0);
    assert!(is_refused(&devices));
    let forced = || Options {
        force: true,
        ..Options::default()
    };
    let (volume, _) = open_as(&devices, forced()).unwrap();
    assert_eq!(
        run(volume.read(0, BLOCK)).err(),
        Some(IoError::Medium),
        "not a guess"
    );
    assert_eq!(
        read(&volume, STRIP_BYTES),
        [0x55; BLOCK],
        "its neighbour is there"
    );
    // W8: the doubt stays, until the row was written whole.
    drop(volume);
    assert!(is_refused(&devices));
    let (volume, _) = open_as(&devices, forced()).unwrap();
    let length = usize::try_from(2 * STRIP_BYTES).unwrap();
    let data = BufPool::new(0).copy_of(&vec![0x66; length]).freeze();
    run(volume.write(0, data, Fua::No)).unwrap();
    assert_eq!(read(&volume, 0), [0x66; BLOCK]);
    drop(volume);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(read(&volume, 0), [0x66; BLOCK], "and without force again");
}

/// Its member is gone before the write: the strip is written alone, so that no crash can hurt it.
#[test]
fn a_degraded_array_has_no_hole_either() {
    let mut devices = crashed_in_one_strip();
    devices.remove(0);
    let (volume, _) = open(&devices).unwrap();
    let length = usize::try_from(2 * STRIP_BYTES).unwrap();
    let data = BufPool::new(0).copy_of(&vec![0x55; length]).freeze();
    run(volume.write(0, data, Fua::No)).unwrap();
    drop(volume);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(read(&volume, 0), [0x55; BLOCK]);
}

/// The entry of a strip without a member holds once the member is filled again: it reckons with what only parity kept.
#[test]
fn the_entry_of_a_lost_strip_is_right_when_its_member_is_back() {
    let mut devices = crashed_in_one_strip();
    let gone = devices.remove(0);
    let (volume, _) = open(&devices).unwrap();
    write(&volume, 0, 0x44);
    drop(volume);
    let unit = unit(&devices, 1);
    assert_eq!(unit.entries.len(), 1);
    // P ^ new strip: what the other strip holds.
    let (_, device) = &devices[1];
    let superblock = run(examine(device, &BufPool::new(0), 0, "m"))
        .unwrap()
        .superblock;
    let at = usize::try_from(superblock.ppl_sector().unwrap() * 512).unwrap() + 4096;
    assert_eq!(device.bytes.borrow()[at..at + BLOCK], [0x22; BLOCK]);
    drop(gone);
}

/// Nobody knows then what was being written.
#[test]
fn a_member_without_a_header_puts_everything_in_doubt() {
    let mut devices = crashed_in_one_strip();
    spoil_header(&devices, 1);
    let (volume, _) = open(&devices).unwrap();
    let (doubtful, all) = volume.status().doubtful_regions;
    assert!(doubtful == all && all > 0);
    drop(volume);
    devices.remove(0);
    assert!(is_refused(&devices), "the doubt outlives a second crash");
}

/// XOR of all members over their data, in which parity and data give zero: the first place where it is not.
fn wrong_parity(devices: &[(String, Memory)]) -> Option<usize> {
    let starts: Vec<usize> = (0..3).map(|slot| place(devices, slot)).collect();
    let bytes: Vec<_> = devices
        .iter()
        .map(|(_, device)| device.bytes.borrow())
        .collect();
    let rows = usize::try_from(12 * STRIP_BYTES).unwrap();
    (0..rows).find(|at| (0..3).fold(0, |all, slot| all ^ bytes[slot][starts[slot] + at]) != 0)
}

/// Parity of a row as a crash may leave it.
fn spoil_parity(devices: &[(String, Memory)], row: u64) {
    let slot = usize::try_from(2 - row % 3).unwrap(); // left-symmetric, three members
    let at = place(devices, slot) + usize::try_from(row * STRIP_BYTES).unwrap();
    for byte in
        &mut devices[slot].1.bytes.borrow_mut()[at..at + usize::try_from(STRIP_BYTES).unwrap()]
    {
        *byte = 0x77;
    }
}

fn bytes_of(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| (at / 512 * 7 + at + seed) as u8)
        .collect()
}

/// Wherever the last write before the crash was, and however long: one strip or several, the front of one or its end.
#[test]
fn parity_of_what_was_written_last_is_right_in_every_row() {
    let row_bytes = 2 * STRIP_BYTES;
    for (at, length) in [
        (0, 2 * STRIP_BYTES),
        (3 * row_bytes, 2 * STRIP_BYTES),
        (4 * row_bytes + STRIP_BYTES, STRIP_BYTES),
        (5 * row_bytes, STRIP_BYTES),
        (7 * row_bytes, STRIP_BYTES + 4096),
        (8 * row_bytes + 8192, STRIP_BYTES),
        (10 * row_bytes + STRIP_BYTES + 512, 1536),
    ] {
        let (_, devices) = new_array(MdVersion::V12, Keeps::Ppl);
        let (volume, _) = open(&devices).unwrap();
        let put = |at: u64, data: &[u8]| {
            let data = BufPool::new(0).copy_of(data).freeze();
            run(volume.write(at, data, Fua::No)).unwrap();
        };
        let mut model = bytes_of(1, usize::try_from(12 * row_bytes).unwrap());
        put(0, &model);
        let (from, length) = (
            usize::try_from(at).unwrap(),
            usize::try_from(length).unwrap(),
        );
        let new = bytes_of(99, length);
        model[from..from + length].copy_from_slice(&new);
        put(at, &new);
        drop(volume);
        assert_eq!(wrong_parity(&devices), None);
        // Only what the write has touched may be wrong: the rest of the strip was right and durable.
        let before = devices[usize::try_from(2 - at / row_bytes % 3).unwrap()]
            .1
            .bytes
            .borrow()
            .clone();
        spoil_parity(&devices, at / row_bytes);
        keep_untouched(&devices, at, length as u64, &before);
        let (volume, _) = open(&devices).unwrap();
        assert_eq!(wrong_parity(&devices), None, "{length} bytes at {at}");
        let read = run(volume.read(0, model.len())).unwrap();
        assert!(read.to_vec() == model, "{length} bytes at {at}");
    }
}

/// Gives the parts of a parity strip back that a write of one row has not touched.
fn keep_untouched(devices: &[(String, Memory)], at: u64, length: u64, before: &[u8]) {
    let row_bytes = 2 * STRIP_BYTES;
    let (row, start) = (at / row_bytes, at % row_bytes);
    let slot = usize::try_from(2 - row % 3).unwrap();
    let base = place(devices, slot) + usize::try_from(row * STRIP_BYTES).unwrap();
    for byte in 0..STRIP_BYTES {
        let is_touched =
            |strip: u64| (start..start + length).contains(&(strip * STRIP_BYTES + byte));
        if !is_touched(0) && !is_touched(1) {
            let at = base + usize::try_from(byte).unwrap();
            devices[slot].1.bytes.borrow_mut()[at] = before[at];
        }
    }
}

/// Doubt that no header could name has ended with the resync: every member has a header again.
#[test]
fn after_a_resync_everything_is_named_again() {
    let devices = crashed_in_one_strip();
    spoil_header(&devices, 1);
    let (volume, _) = open(&devices).unwrap();
    assert!(volume.status().doubtful_regions.0 > 0);
    let has_header = |slot: usize| {
        let (name, device) = &devices[slot];
        let superblock = run(examine(device, &BufPool::new(0), 0, name))
            .unwrap()
            .superblock;
        let at = usize::try_from(superblock.ppl_sector().unwrap() * 512).unwrap();
        let signature = ppl::signature(&superblock.array_uuid);
        PplHeader::parse(&device.bytes.borrow()[at..at + 4096], 0, signature).is_ok()
    };
    assert!(
        (0..3).all(|slot| !has_header(slot)),
        "no member vouches for its rows"
    );
    run(join(volume.run_background(), async {
        while volume.status().doubtful_regions.0 > 0 {
            yield_once().await;
        }
        volume.resynced().await;
        for _ in 0..1000 {
            yield_once().await;
        }
        assert!((0..3).all(has_header), "known again while it is served");
        volume.stop().await.unwrap();
    }));
    write(&open(&devices).unwrap().0, 0, 0x44);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(
        volume.status().doubtful_regions.0,
        0,
        "a crash needs no resync again"
    );
}

/// What its log said when it was a member before counts no more.
#[test]
fn a_member_that_comes_back_gets_a_header_that_names_nothing() {
    let devices = crashed_in_one_strip();
    assert_eq!(unit(&devices, 2).entries.len(), 1);
    let old = devices[2].1.bytes.borrow().clone();
    let (volume, _) = open(&devices).unwrap();
    let member = volume.status().members[2].id;
    run(volume.fail(member)).unwrap();
    run(volume.remove(member)).unwrap();
    *devices[2].1.bytes.borrow_mut() = old;
    run(volume.add(new_member("m2", &devices[2].1, None), false)).unwrap();
    assert!(unit(&devices, 2).entries.is_empty());
}
