//! A stripe log that is damaged: the array is as one without a log, said in one line where data are at risk; never
//! wrong data.

use crate::common::small_array::{
    BLOCK, Keeps, STRIP_BYTES, new_array, open, place, poke, read, write,
};
use crate::common::{Memory, run};
use plexum_block::buf::BufPool;
use plexum_format::md::MdVersion;
use plexum_md::assemble::{AssembleCode, LogUse};
use plexum_md::open::{OpenError, examine};

type Members = Vec<(String, Memory)>;

/// Three answered writes to one place, one record after another, then a crash that took what was in place.
fn crashed() -> Members {
    let (_, devices) = new_array(MdVersion::V12, Keeps::Log);
    let (volume, _) = open(&devices).unwrap();
    for byte in [0x11, 0x12, 0x13] {
        write(&volume, 0, byte);
    }
    drop(volume);
    poke(&devices, 0, 0);
    poke(&devices, 2, 0x77);
    devices
}

fn header(devices: &[(String, Memory)], slot: usize) -> plexum_format::stripe_log::LogHeader {
    let (name, device) = &devices[slot];
    let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
    examined.log.unwrap().0
}

fn flip(devices: &[(String, Memory)], slot: usize, at: u64) {
    devices[slot].1.bytes.borrow_mut()[usize::try_from(at).unwrap()] ^= 0x10;
}

/// The first byte of batch `number` of a member; each holds a page and one block here.
fn batch(devices: &[(String, Memory)], slot: usize, number: u64) -> u64 {
    let header = header(devices, slot);
    let position = header.start_position + number * 2 * BLOCK as u64;
    header.area.offset_bytes(position)
}

/// As without a log: with all members the region is in doubt and resynced; without one the start is refused in one
/// line.
fn is_as_without_a_log(mut devices: Members, what: &str) {
    let (volume, assembly) = open(&devices).unwrap();
    assert!(
        volume.status().doubtful_regions.0 > 0,
        "{what}: {:?}",
        assembly.log
    );
    drop(volume);
    devices.remove(0);
    let message = match open(&devices).err() {
        Some(OpenError::Assemble(error)) => {
            assert_eq!(error.code, AssembleCode::DirtyDegraded, "{what}");
            error.message.clone()
        }
        Some(OpenError::Log(message)) => message,
        other => panic!("{what}: {other:?}"),
    };
    assert!(
        !message.contains('\n') && message.len() > 20,
        "{what}: {message}"
    );
}

#[test]
fn a_header_that_is_broken_on_one_member_ends_the_log() {
    for byte in [0, 20, 60, 110, 200] {
        let devices = crashed();
        let at = place(&devices, 1) as u64 - 4096 + byte;
        flip(&devices, 1, at);
        is_as_without_a_log(devices, &format!("byte {byte} of one header"));
    }
}

#[test]
fn headers_that_are_broken_on_all_members_end_the_log() {
    let devices = crashed();
    for slot in 0..3 {
        let at = place(&devices, slot) as u64 - 4096 + 60;
        flip(&devices, slot, at);
    }
    let (_, assembly) = open(&devices).unwrap();
    assert_eq!(assembly.log, LogUse::None);
    is_as_without_a_log(devices, "all headers");
}

/// A record of a member in the middle: later records of that row exist, so it had been carried out, and is not dropped.
#[test]
fn a_block_that_is_damaged_in_the_middle_puts_the_region_in_doubt() {
    let devices = crashed();
    let at = batch(&devices, 2, 1) + BLOCK as u64 + 100;
    flip(&devices, 2, at);
    let (volume, assembly) = open(&devices).unwrap();
    assert!(matches!(assembly.log, LogUse::Replay { .. }));
    assert!(volume.status().doubtful_regions.0 > 0);
    drop(volume);
    let mut devices = crashed();
    flip(&devices, 2, at);
    devices.remove(0);
    match open(&devices).err() {
        Some(OpenError::Log(message)) => {
            assert!(
                message.contains("damaged") && !message.contains('\n'),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// The page that names a batch: the chain of that member ends there, and what the others still hold contradicts it.
#[test]
fn a_batch_that_is_damaged_in_the_middle_is_never_taken_for_the_end() {
    for field in [0, 8, 16, 24, 32, 64, 100] {
        let devices = crashed();
        flip(&devices, 2, batch(&devices, 2, 1) + field);
        let (volume, _) = open(&devices).unwrap();
        assert!(volume.status().doubtful_regions.0 > 0, "byte {field}");
    }
}

/// At the end of the log a damaged record looks like one that was never finished; what came before counts.
#[test]
fn a_record_that_is_damaged_at_the_end_is_dropped_as_a_whole() {
    let devices = crashed();
    flip(&devices, 0, batch(&devices, 0, 2) + BLOCK as u64);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(read(&volume, 0), [0x12; BLOCK], "the record before it");
    let at = place(&devices, 2);
    assert_eq!(devices[2].1.bytes.borrow()[at], 0x12, "and its parity");
    assert_eq!(read(&volume, STRIP_BYTES), [0; BLOCK]);
}
