//! Write-back: what was answered is read at once, survives a crash and the loss of a member, and is in place after a
//! stop.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::common::small_array::{
    BLOCK, Keeps, STRIP_BYTES, new_array, new_member, open, open_as, place, poke, read, write,
};
use crate::common::{Memory, run};
use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_format::md::MdVersion;
use plexum_md::assemble::{AssembleCode, LogUse, Options};
use plexum_md::open::{OpenError, examine};

type Members = Vec<(String, Memory)>;

/// The byte that a member has in place for the first block of its first strip.
fn in_place(devices: &[(String, Memory)], slot: usize) -> u8 {
    let at = place(devices, slot);
    devices[slot].1.bytes.borrow()[at]
}

fn says_that_the_log_is_needed(devices: &[(String, Memory)]) -> Vec<bool> {
    let says = |(name, device): &(String, Memory)| {
        let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
        examined.superblock.has_answers_in_log
    };
    devices.iter().map(says).collect()
}

/// Two answered writes in the first row, the second over a part of the first one's row.
fn written() -> (
    plexum_engine::volume::Volume<Memory, crate::common::Still>,
    Members,
) {
    let (_, devices) = new_array(MdVersion::V12, Keeps::WriteBackLog);
    let (volume, _) = open(&devices).unwrap();
    write(&volume, 0, 0x11);
    write(&volume, STRIP_BYTES, 0x22);
    (volume, devices)
}

fn crashed() -> Members {
    written().1
}

fn refusal(result: Result<impl Sized, OpenError>) -> (AssembleCode, String) {
    match result.err() {
        Some(OpenError::Assemble(error)) => (error.code, error.message.clone()),
        other => panic!("{other:?}"),
    }
}

/// Breaks the header of a member's ring.
fn break_header(devices: &[(String, Memory)], slot: usize) {
    let at = place(devices, slot) - 4096;
    devices[slot].1.bytes.borrow_mut()[at + 60] ^= 0x40;
}

#[test]
fn an_answered_write_is_in_the_log_only_and_is_read_all_the_same() {
    let (volume, devices) = written();
    for slot in 0..3 {
        assert_eq!(in_place(&devices, slot), 0, "nothing is in place yet");
    }
    assert_eq!(says_that_the_log_is_needed(&devices), [true; 3]);
    assert_eq!(read(&volume, 0), [0x11; BLOCK]);
    assert_eq!(read(&volume, STRIP_BYTES), [0x22; BLOCK]);
    let log = volume.status().log.unwrap();
    assert!(log.is_write_back);
    assert_eq!(
        log.logged_bytes,
        3 * BLOCK as u64,
        "one newest block for each member"
    );
}

#[test]
fn a_clean_stop_puts_everything_in_place_and_leaves_an_array_for_anybody() {
    let (volume, devices) = written();
    run(volume.stop()).unwrap();
    let found: Vec<u8> = (0..3).map(|slot| in_place(&devices, slot)).collect();
    assert_eq!(found, [0x11, 0x22, 0x33], "data and their parity");
    assert_eq!(says_that_the_log_is_needed(&devices), [false; 3]);
    let (volume, assembly) = open(&devices).unwrap();
    assert_eq!(assembly.resync_start_bytes, None);
    assert!(volume.status().log.unwrap().is_write_back, "the mode stays");
}

#[test]
fn a_crash_loses_nothing_answered_with_or_without_a_member() {
    for lost in [None, Some(0), Some(1), Some(2)] {
        let mut devices = crashed();
        if let Some(lost) = lost {
            devices.remove(lost);
        }
        let (volume, assembly) = open(&devices).unwrap();
        assert!(matches!(assembly.log, LogUse::Replay { .. }));
        assert_eq!(read(&volume, 0), [0x11; BLOCK], "without {lost:?}");
        assert_eq!(
            read(&volume, STRIP_BYTES),
            [0x22; BLOCK],
            "without {lost:?}"
        );
    }
}

#[test]
fn a_full_ring_holds_writers_back_and_loses_nothing() {
    let (volume, devices) = written();
    // Three times what the rings hold.
    let blocks = 3 * (1 << 20) / BLOCK as u64;
    for block in 0..blocks {
        write(&volume, block % 64 * BLOCK as u64, block as u8 | 1);
    }
    let expected = |at: u64| ((blocks - 64 + at) as u8) | 1;
    for at in 0..64 {
        assert_eq!(read(&volume, at * BLOCK as u64), [expected(at); BLOCK]);
    }
    drop(volume);
    let (volume, _) = open(&devices).unwrap();
    for at in 0..64 {
        assert_eq!(read(&volume, at * BLOCK as u64), [expected(at); BLOCK]);
    }
}

#[test]
fn what_was_written_lately_is_written_again_without_a_read_of_old_content() {
    let (volume, devices) = written();
    let reads = || -> u64 { devices.iter().map(|(_, device)| device.reads.get()).sum() };
    let write_all = |byte| (0..64).for_each(|at| write(&volume, at * BLOCK as u64, byte));
    write_all(0x31);
    let before = reads();
    // Often enough that everything was put in place in between, more than once.
    for byte in 1..16 {
        write_all(byte);
    }
    assert_eq!(reads(), before);
    run(volume.stop()).unwrap();
    let found: Vec<u8> = (0..3).map(|slot| in_place(&devices, slot)).collect();
    assert_eq!(found[0] ^ found[1], found[2], "parity agrees");
}

#[test]
fn the_mode_is_changed_while_it_is_served() {
    let (volume, devices) = written();
    assert!(run(volume.set_write_back(false)).unwrap());
    assert_eq!(
        in_place(&devices, 1),
        0x22,
        "what was in the log is in place"
    );
    assert_eq!(says_that_the_log_is_needed(&devices), [false; 3]);
    write(&volume, 0, 0x44);
    assert_eq!(in_place(&devices, 0), 0x44, "in place before the answer");
    assert!(run(volume.set_write_back(true)).unwrap());
    assert!(!run(volume.set_write_back(true)).unwrap());
    write(&volume, 0, 0x55);
    assert_eq!(in_place(&devices, 0), 0x44);
    assert_eq!(read(&volume, 0), [0x55; BLOCK]);
    assert_eq!(says_that_the_log_is_needed(&devices), [true; 3]);
}

#[test]
fn read_only_is_refused_while_answered_writes_are_in_the_log() {
    let devices = crashed();
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (code, message) = refusal(open_as(&devices, options));
    assert_eq!(code, AssembleCode::LogLost);
    assert!(message.contains("only in its stripe log"), "{message}");
    assert!(!message.contains('\n'));
}

#[test]
fn a_damaged_header_is_named_and_its_member_can_be_left_out() {
    for broken in 0..3 {
        let mut devices = crashed();
        break_header(&devices, broken);
        let (code, message) = refusal(open(&devices));
        assert_eq!(code, AssembleCode::LogLost);
        let slot = format!("the member of slot {broken}");
        assert!(
            message.contains(&slot) && !message.contains('\n'),
            "{message}"
        );
        devices.remove(broken);
        let (volume, _) = open(&devices).unwrap();
        assert_eq!(read(&volume, 0), [0x11; BLOCK], "without {broken}");
        assert_eq!(
            read(&volume, STRIP_BYTES),
            [0x22; BLOCK],
            "without {broken}"
        );
    }
}

#[test]
fn without_any_header_only_force_gives_the_answered_writes_up() {
    let devices = crashed();
    (0..3).for_each(|slot| break_header(&devices, slot));
    assert_eq!(refusal(open(&devices)).0, AssembleCode::LogLost);
    let options = Options {
        force: true,
        ..Options::default()
    };
    let (volume, _) = open_as(&devices, options).unwrap();
    assert_eq!(read(&volume, 0), [0; BLOCK], "the old content, said openly");
    assert!(volume.status().doubtful_regions.0 > 0);
}

#[test]
fn what_the_log_held_before_a_replay_does_not_come_back() {
    let devices = crashed();
    let (volume, _) = open(&devices).unwrap();
    run(volume.stop()).unwrap();
    poke(&devices, 0, 0x66);
    poke(&devices, 2, 0x44);
    let (volume, _) = open(&devices).unwrap();
    assert_eq!(read(&volume, 0), [0x66; BLOCK]);
}

/// A member that joins again finds in its ring what it had in this life of the log before, some of it where a batch of
/// now could be: the last batch that fits there, while the one of now had to go to the front.
#[test]
fn what_a_member_had_in_its_ring_before_it_joined_again_is_never_taken_for_what_it_has_now() {
    let (_, devices) = new_array(MdVersion::V12, Keeps::WriteBackLog);
    let (volume, _) = open(&devices).unwrap();
    write(&volume, 0, 0x10);
    let (name, device) = &devices[2];
    let examined = run(examine(device, &BufPool::new(0), 0, name)).unwrap();
    let batches = examined.log.unwrap().0.area.ring_bytes / (2 * BLOCK as u64); // of a page and a block
    for _ in 1..batches {
        write(&volume, 0, 0x11); // its parity is on that member
    }
    let member = volume.status().members[2].id;
    run(volume.fail(member)).unwrap();
    run(volume.remove(member)).unwrap();
    run(volume.add(new_member(name, device, None), false)).unwrap();
    {
        let mut background = pin!(volume.run_background());
        run(poll_fn(|cx| match background.as_mut().poll(cx) {
            Poll::Pending if volume.lost_slots().contains(&true) => Poll::Pending,
            _ => Poll::Ready(()),
        }));
    }
    for _ in 1..batches {
        write(&volume, 0, 0x22);
    }
    let longer = BufPool::new(0).copy_of(&[0x33; 2 * BLOCK]).freeze();
    run(volume.write(0, longer, Fua::No)).unwrap();
    drop(volume);
    let (volume, _) = open(&devices).unwrap();
    for at in [0, BLOCK as u64] {
        let lost = read(&volume, at)
            .iter()
            .filter(|byte| **byte != 0x33)
            .count();
        assert_eq!(lost, 0, "bytes of the answered write at {at}");
    }
}
