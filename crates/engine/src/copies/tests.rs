//! Mirrors over three made-up members and what is known of them, without a volume.
#![allow(clippy::unwrap_used)] // tests

use std::rc::{Rc, Weak};

use super::Copies;
use crate::array::Follower;
use crate::intent::Intent;
use crate::stage::{RequestKind, Requests};
use crate::state::{FailCause, MemberId};
use crate::testing::{Ground, Memory, Still, run};
use plexum_block::clock::Moment;
use plexum_block::device::{Fua, IoError};
use plexum_layout::Organisation;

type OfCopies = (Ground, Rc<Intent<Memory, Still>>, Rc<Copies<Memory, Still>>);

fn mirror(doubt_from: Option<u64>) -> OfCopies {
    let ground = Ground::new(Organisation::Raid1, 3);
    let intent = ground.intent(doubt_from);
    let (base, array) = (Rc::clone(&ground.base), Rc::clone(&ground.array));
    let copies = Rc::new(Copies::new(base, array, Rc::clone(&intent)));
    let follower: Weak<dyn Follower<Memory>> = Rc::<Copies<Memory, Still>>::downgrade(&copies);
    ground.begin(&intent, follower);
    (ground, intent, copies)
}

fn write(of: &OfCopies, at: u64, fill: u8) -> Result<(), IoError> {
    let mut data = of.0.base.pool().take(512);
    data.fill(fill);
    let requests = Requests::default();
    let tag = requests.begin(RequestKind::Write, at, 512, Moment(0));
    run(of.2.write_copies(at, data.freeze(), Fua::No, &tag))
}

fn read(of: &OfCopies, at: u64) -> Result<u8, IoError> {
    let requests = Requests::default();
    let tag = requests.begin(RequestKind::Read, at, 512, Moment(0));
    let map = of.0.base.geometry().copies_of(at);
    let data = run(of.2.read_copies(map, at, 512, &tag))?;
    let bytes = data.to_vec();
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
    Ok(bytes[0])
}

fn copies_at(ground: &Ground, at: usize) -> Vec<u8> {
    let members = ground.members.iter();
    members.map(|member| member.bytes.borrow()[at]).collect()
}

#[test]
fn a_write_reaches_every_copy_and_only_those_of_the_snapshot() {
    let of = mirror(None);
    write(&of, 1024, 6).unwrap();
    assert_eq!(copies_at(&of.0, 1024), [6, 6, 6]);
    of.0.array.fail_member(MemberId(1), FailCause::Asked);
    write(&of, 1024, 7).unwrap();
    assert_eq!(copies_at(&of.0, 1024), [7, 6, 7]);
    assert_eq!(read(&of, 1024), Ok(7));
}

#[test]
fn copies_that_may_differ_are_equal_before_a_read_answers() {
    let of = mirror(Some(0));
    of.0.members[1].bytes.borrow_mut()[2048..2560].fill(9);
    let answer = read(&of, 2048).unwrap();
    assert_eq!(copies_at(&of.0, 2048), vec![answer; 3]);
    assert!(of.1.is_proven(&(2048..2560)) && !of.1.is_proven(&(0..512)));
}

#[test]
fn a_copy_that_cannot_be_read_is_answered_from_another() {
    let of = mirror(None);
    write(&of, 0, 8).unwrap();
    for lost in 0..2 {
        of.0.members[lost].read_error.set(Some(IoError::Medium));
        assert_eq!(read(&of, 0), Ok(8));
    }
    of.0.members[2].read_error.set(Some(IoError::Medium));
    assert_eq!(read(&of, 0), Err(IoError::Medium));
}

#[test]
fn a_write_that_some_copies_refuse_is_in_doubt_and_no_error_of_the_member() {
    let of = mirror(None);
    of.0.members[2].write_error.set(Some(IoError::NoSpace));
    assert_eq!(write(&of, 512, 3), Err(IoError::NoSpace));
    assert!(!of.1.is_proven(&(512..1024)));
    assert_eq!(of.0.array.lost_slots(), [false; 3]);
}
