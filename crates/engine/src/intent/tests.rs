//! What is known of three made-up members, over their array alone.
#![allow(clippy::unwrap_used)] // tests

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;

use super::Intent;
use crate::base::Guard;
use crate::state::MemberId;
use crate::testing::{Ground, Memory, Still, Superblock, nobody, run};
use plexum_block::device::IoError;
use plexum_block::wait::poll_once;
use plexum_layout::{Organisation, Raid5Layout};

fn intent() -> (Ground, Rc<Intent<Memory, Still>>) {
    let ground = Ground::new(Organisation::Raid5(Raid5Layout::LeftSymmetric), 3);
    let intent = ground.intent(None);
    ground.begin(&intent, nobody());
    (ground, intent)
}

#[test]
fn a_region_is_not_idle_while_a_write_has_its_mark() {
    let (_ground, intent) = intent();
    let mark = run(intent.mark(0..512)).unwrap();
    assert!(intent.regions().has_marks());
    run(intent.clear_idle_bits(true)).unwrap();
    assert!(intent.regions().has_marks(), "the write is under way");
    drop(mark);
    run(intent.clear_idle_bits(true)).unwrap();
    assert!(!intent.regions().has_marks());
}

#[test]
fn a_failed_flush_has_cost_its_member_durably_when_it_is_answered() {
    let (ground, intent) = intent();
    ground.members[2].flush_error.set(Some(IoError::Medium));
    run(intent.flush_members()).unwrap();
    assert!(!ground.array.is_durably_active(MemberId(2)));
    for survivor in [0, 1] {
        assert!(!Superblock::on(&ground.members[survivor]).has_active(2));
    }
    ground.members[1].flush_error.set(Some(IoError::Medium));
    assert_eq!(
        run(intent.flush_members()),
        Err(IoError::Failed),
        "one too many"
    );
}

type Waiter = Pin<Box<dyn Future<Output = ()>>>;

/// Looks whether a waiter was woken before it was told itself.
struct Watch {
    looks: Rc<Cell<u32>>,
    waiter: Rc<RefCell<Option<Waiter>>>,
}

impl Guard for Watch {
    fn look(&self) {
        self.looks.set(self.looks.get() + 1);
        if let Some(waiter) = self.waiter.borrow_mut().as_mut() {
            assert!(
                poll_once(waiter.as_mut()).is_pending(),
                "the guard is told first"
            );
        }
    }

    fn is_shared_now(&self) -> bool {
        false
    }

    fn is_all_back(&self) -> bool {
        true
    }
}

#[test]
fn doubt_is_told_to_the_guard_before_anybody_who_waits() {
    let (ground, intent) = intent();
    let (looks, waiter) = (Rc::<Cell<u32>>::default(), Rc::default());
    ground.base.set_guard(Box::new(Watch {
        looks: Rc::clone(&looks),
        waiter: Rc::clone(&waiter),
    }));
    let base = Rc::clone(&ground.base);
    let mut change: Waiter = Box::pin(async move { base.changes().await });
    assert!(poll_once(change.as_mut()).is_pending());
    *waiter.borrow_mut() = Some(change);
    intent.unprove(&(0..512));
    assert_eq!(looks.get(), 1);
    let mut change = waiter.borrow_mut().take().unwrap();
    assert!(poll_once(change.as_mut()).is_ready());
}

#[test]
fn what_came_into_doubt_meanwhile_is_not_settled_with_the_rest() {
    let (_ground, intent) = intent();
    intent.unprove(&(0..512));
    let before = intent.regions().spoilt_count();
    intent.unprove(&(4096..4608));
    assert!(!intent.settle_all_unspoilt(before));
    assert!(!intent.is_proven(&(0..512)));
    let now = intent.regions().spoilt_count();
    assert!(intent.settle_all_unspoilt(now));
    assert!(intent.is_proven(&(0..8192)));
}
