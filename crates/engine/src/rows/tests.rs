//! Rows over three made-up members and what is known of them, without a volume.
#![allow(clippy::unwrap_used)] // tests

use std::ops::Range;
use std::rc::Rc;

use super::Rows;
use crate::intent::Intent;
use crate::stage::{RequestKind, Requests};
use crate::state::{FailCause, MemberId};
use crate::testing::{Ground, Memory, STRIP_BYTES, Still, nobody, run};
use plexum_block::clock::Moment;
use plexum_block::device::{Fua, IoError};
use plexum_layout::{Organisation, Raid5Layout};

/// A RAID-5 of three; in doubt from this byte of the members on.
fn rows(doubt_from: Option<u64>) -> (Ground, Rc<Intent<Memory, Still>>, Rows<Memory, Still>) {
    let ground = Ground::new(Organisation::Raid5(Raid5Layout::LeftSymmetric), 3);
    let intent = ground.intent(doubt_from);
    ground.begin(&intent, nobody());
    let (base, array) = (Rc::clone(&ground.base), Rc::clone(&ground.array));
    let rows = Rows::new(base, array, Rc::clone(&intent));
    (ground, intent, rows)
}

fn write(
    ground: &Ground,
    rows: &Rows<Memory, Still>,
    at: u64,
    fill: u8,
    length: usize,
) -> Result<(), IoError> {
    let mut data = ground.base.pool().take(length);
    data.fill(fill);
    let requests = Requests::default();
    let tag = requests.begin(RequestKind::Write, at, length as u64, Moment(0));
    run(rows.write_row(0, at, data.freeze(), Fua::No, &tag))
}

fn read(rows: &Rows<Memory, Still>, index: usize, part: Range<u64>) -> Result<Vec<u8>, IoError> {
    let requests = Requests::default();
    let tag = requests.begin(RequestKind::Read, 0, 0, Moment(0));
    run(rows.read_strip(0, index, part, &tag)).map(|data| data.to_vec())
}

#[test]
fn a_part_of_a_row_is_written_with_its_parity() {
    let (ground, _intent, rows) = rows(None);
    write(&ground, &rows, 512, 7, 1024).unwrap();
    write(&ground, &rows, STRIP_BYTES, 9, STRIP_BYTES as usize).unwrap();
    assert_eq!(parity_of(&ground), vec![0; STRIP_BYTES as usize]);
    assert_eq!(read(&rows, 0, 512..1536).unwrap(), vec![7; 1024]);
    assert_eq!(read(&rows, 1, 0..512).unwrap(), vec![9; 512]);
}

/// All blocks of row 0 added up: nothing is left where its parity is right.
fn parity_of(ground: &Ground) -> Vec<u8> {
    let mut sum = vec![0; STRIP_BYTES as usize];
    for member in &ground.members {
        let bytes = member.bytes.borrow();
        for (sum, byte) in sum.iter_mut().zip(bytes.iter()) {
            *sum ^= byte;
        }
    }
    sum
}

#[test]
fn a_lost_block_comes_from_its_parity_unless_that_is_in_doubt() {
    for is_doubtful in [false, true] {
        let (ground, intent, rows) = rows(None);
        write(&ground, &rows, 0, 5, 512).unwrap();
        let slot = ground.base.row(0).slot(plexum_parity::Block::Data(0));
        if is_doubtful {
            intent.unprove(&(0..512));
        }
        ground
            .array
            .fail_member(MemberId(slot as u16), FailCause::Gone);
        let expected = match is_doubtful {
            true => Err(IoError::Medium),
            false => Ok(vec![5; 512]),
        };
        assert_eq!(read(&rows, 0, 0..512), expected);
    }
}

#[test]
fn a_row_in_doubt_is_proven_by_whoever_writes_all_of_it_and_by_no_part() {
    let (ground, intent, rows) = rows(Some(0));
    write(&ground, &rows, 0, 1, 512).unwrap();
    assert!(
        intent.is_proven(&(0..512)),
        "its parity was made of all blocks of that part"
    );
    assert!(!intent.is_proven(&(512..1024)));
    write(&ground, &rows, 0, 2, 2 * STRIP_BYTES as usize).unwrap();
    assert!(intent.is_proven(&(0..STRIP_BYTES)));
    assert!(
        !intent.is_proven(&(STRIP_BYTES..STRIP_BYTES + 512)),
        "the next row is another"
    );
}

#[test]
fn a_write_that_one_member_has_no_space_for_leaves_its_row_in_doubt() {
    let (ground, intent, rows) = rows(None);
    ground.members[2].write_error.set(Some(IoError::NoSpace));
    let written = write(&ground, &rows, 0, 3, 2 * STRIP_BYTES as usize);
    assert_eq!(written, Err(IoError::NoSpace));
    assert!(!intent.is_proven(&(0..512)));
    assert!(!ground.array.is_frozen() && ground.array.lost_slots() == [false; 3]);
}

#[test]
fn a_block_that_cannot_be_read_is_made_of_the_others() {
    let (ground, _intent, rows) = rows(None);
    write(&ground, &rows, 0, 4, 2 * STRIP_BYTES as usize).unwrap();
    let slot = ground.base.row(0).slot(plexum_parity::Block::Data(1));
    ground.members[slot].read_error.set(Some(IoError::Medium));
    assert_eq!(read(&rows, 1, 0..512).unwrap(), vec![4; 512]);
}
