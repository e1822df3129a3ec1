//! An array over three made-up members, without any other room.
#![allow(clippy::unwrap_used)] // tests

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use super::state::{ArrayState, Event, FailCause, MemberId, Standing};
use super::{Companion, Follower, Later, MemberSet, Stale, WriteMostly};
use crate::drive::Drive;
use crate::testing::{DATA_BYTES, Ground, Memory, Superblock, run};
use plexum_block::bits::Bits;
use plexum_block::device::{Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{Signal, poll_once};
use plexum_layout::{Organisation, Raid5Layout};

/// Notes what it is asked and told, and who was in the snapshot then.
#[derive(Default)]
struct Stub {
    heard: RefCell<Vec<String>>,
    cannot_bind: Cell<bool>,
}

impl Stub {
    fn note(&self, what: String) {
        self.heard.borrow_mut().push(what);
    }

    fn take(&self) -> Vec<String> {
        self.heard.take()
    }
}

impl Companion<Memory> for Stub {
    fn marked(&self) -> Stale {
        let mut bits = Bits::new(16);
        bits.set(3, true);
        Stale::new(bits, 4096)
    }

    fn is_doubtful(&self) -> bool {
        false
    }

    fn answers_from_log(&self) -> bool {
        false
    }

    fn before_superblocks(&self, event_count: u64) -> Later<'_, Result<(), IoError>> {
        self.note(format!("before {event_count}"));
        Box::pin(async { Ok(()) })
    }

    fn bind<'a>(&'a self, _: &'a ArrayState, drives: &'a [Rc<Drive<Memory>>]) -> Later<'a, bool> {
        self.note(format!("bind {}", drives.len()));
        Box::pin(async { !self.cannot_bind.replace(false) })
    }

    fn superblock_written(&self, member: MemberId) {
        self.note(format!("written {}", member.0));
    }
}

impl Follower<Memory> for Stub {
    fn members_change(&self, before: &MemberSet<Memory>, after: &MemberSet<Memory>) {
        let active = |set: &MemberSet<Memory>| {
            let slots = set.slots.iter();
            slots.filter(|slot| slot.active.is_some()).count()
        };
        self.note(format!("members {} to {}", active(before), active(after)));
    }
}

/// Three members of a RAID-5 with what is beside the array, which has begun.
fn begun() -> (Ground, Rc<Stub>) {
    let ground = Ground::new(Organisation::Raid5(Raid5Layout::LeftSymmetric), 3);
    let stub = Rc::new(Stub::default());
    let companion: Weak<dyn Companion<Memory>> = Rc::<Stub>::downgrade(&stub);
    let follower: Weak<dyn Follower<Memory>> = Rc::<Stub>::downgrade(&stub);
    ground.array.begin(companion, follower);
    assert_eq!(stub.take(), ["members 0 to 3"]);
    (ground, stub)
}

const LOST: MemberId = MemberId(1);

#[test]
fn who_is_failed_is_out_of_the_next_snapshot_at_once_and_durably_after_settle() {
    let (ground, stub) = begun();
    let before = ground.array.members();
    ground.array.fail_member(LOST, FailCause::WriteError);
    assert!(
        before.slots[1].active.is_some(),
        "a snapshot does not change"
    );
    assert!(ground.array.members().slots[1].active.is_none());
    assert!(!ground.array.is_settled(), "nobody may be answered yet");
    assert!(
        Superblock::on(&ground.members[0]).event_count == 0,
        "nothing is written yet"
    );
    run(ground.array.settle()).unwrap();
    assert!(ground.array.is_settled() && !ground.array.is_durably_active(LOST));
    for survivor in [0, 2] {
        let superblock = Superblock::on(&ground.members[survivor]);
        assert_eq!(superblock.event_count, 8);
        assert!(superblock.has_active(survivor) && !superblock.has_active(1));
    }
    assert_eq!(
        Superblock::on(&ground.members[1]).event_count,
        0,
        "it is left as it is"
    );
    let told = [
        "members 3 to 2",
        "before 8",
        "bind 2",
        "written 0",
        "written 2",
    ];
    assert_eq!(stub.take(), told);
}

#[test]
fn a_loss_too_many_freezes_and_nothing_is_written_about_it() {
    let (ground, _stub) = begun();
    let bell = Rc::new(Signal::new());
    ground.array.ring_when_frozen(&bell);
    let mut rung = Box::pin(bell.changed());
    ground.array.fail_member(LOST, FailCause::Gone);
    assert!(
        poll_once(rung.as_mut()).is_pending(),
        "one loss is survived"
    );
    ground.array.fail_member(MemberId(2), FailCause::Gone);
    assert!(ground.array.is_frozen());
    assert!(poll_once(rung.as_mut()).is_ready());
    assert_eq!(*ground.array.lost_when_frozen(), [MemberId(2)]);
    assert_eq!(run(ground.array.commit_all()), Err(IoError::Failed));
    for member in &ground.members {
        assert_eq!(Superblock::on(member).event_count, 0);
    }
    // Whoever is lost later is noted, and no state changes by it.
    let version = ground.array.state().version;
    ground.array.fail_member(MemberId(0), FailCause::Gone);
    assert_eq!(ground.array.lost_when_frozen().len(), 2);
    assert_eq!(ground.array.state().version, version);
}

#[test]
fn a_member_lost_in_a_commit_is_left_out_of_the_next_attempt() {
    let (ground, stub) = begun();
    ground.members[2].write_error.set(Some(IoError::Medium));
    ground.array.apply(&Event::SettingsChanged);
    run(ground.array.commit_all()).unwrap();
    assert!(!ground.array.is_durably_active(MemberId(2)));
    let superblock = Superblock::on(&ground.members[0]);
    assert_eq!(
        superblock.event_count, 9,
        "each attempt has a count of its own"
    );
    assert!(!superblock.has_active(2));
    let told = stub.take();
    assert!(told.contains(&"bind 3".to_owned()) && told.contains(&"bind 2".to_owned()));
}

#[test]
fn no_superblock_is_written_that_the_companion_could_not_be_bound_to() {
    let (ground, stub) = begun();
    stub.cannot_bind.set(true);
    ground.array.apply(&Event::SettingsChanged);
    run(ground.array.commit_all()).unwrap();
    let told = stub.take();
    assert_eq!(
        told[..3],
        ["before 8", "bind 3", "before 9"],
        "asked again before any is written"
    );
}

#[test]
fn the_first_write_waits_until_every_superblock_says_dirty() {
    let (ground, _stub) = begun();
    assert!(!ground.array.is_marked_dirty(), "not durably");
    run(ground.array.make_dirty()).unwrap();
    assert!(ground.array.is_marked_dirty());
    assert!(
        ground
            .members
            .iter()
            .all(|member| Superblock::on(member).is_dirty)
    );
}

#[test]
fn who_comes_in_is_a_spare_and_who_leaves_is_fenced_and_keeps_his_number() {
    let (ground, _stub) = begun();
    let newcomer = Memory::new();
    let drive = |id| {
        let data = 0..DATA_BYTES;
        Rc::new(Drive::new(
            MemberId(id),
            "new".into(),
            newcomer.clone(),
            data,
            RangeSet::new(),
        ))
    };
    ground.array.take_in(drive(3), WriteMostly::No);
    assert_eq!(
        ground.array.state().record(MemberId(3)).standing,
        Standing::Spare
    );
    assert_eq!(ground.array.live_drives().len(), 4);
    let leaving = ground.array.drive(MemberId(3)).unwrap();
    ground.array.let_go(MemberId(3));
    assert!(ground.array.drive(MemberId(3)).is_none());
    let data = ground.base.pool().take_zeroed(512).freeze();
    let written = run(leaving.write(ground.base.clock(), 0, &data, Fua::No));
    assert_eq!(written, Err(IoError::Gone), "it is fenced");
    ground.array.take_in(drive(4), WriteMostly::No);
    assert_eq!(ground.array.state().members.len(), 5);
}

#[test]
fn who_comes_back_by_bitmap_is_stale_only_where_the_companion_says() {
    let (ground, _stub) = begun();
    ground.array.fail_member(LOST, FailCause::Asked);
    let returned = Drive::new(
        MemberId(3),
        "back".into(),
        ground.members[1].clone(),
        0..DATA_BYTES,
        RangeSet::new(),
    );
    ground.array.take_in(Rc::new(returned), WriteMostly::No);
    ground.array.apply(&Event::RebuildStarted {
        member: MemberId(3),
        slot: 1,
        is_replacement: false,
        by_bitmap: true,
    });
    let set = ground.array.members();
    let is_readable = |range: std::ops::Range<u64>| set.slots[1].readable(&range, &range).is_some();
    assert!(is_readable(0..4096) && is_readable(16_384..20_480));
    assert!(!is_readable(12_288..16_384), "the region that is marked");
    assert!(!is_readable(8192..12_800), "a part of it is enough");
}
