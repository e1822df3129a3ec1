//! Events: the state takes them, and what needs no await follows at once.
//!
//! Invariants:
//! - every effect of an event is carried out here, or is a commit that the caller or housekeeping makes;
//! - a member that is failed is fenced before anybody uses the next snapshot, unless the array froze over it (W4).

use std::rc::Rc;

use super::state::{Effect, Event, FailCause, MemberId, Standing};
use super::{Array, Filling, MemberSet};
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::news::Announcement;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};

impl<D: Device, C: Clock> Array<D, C> {
    /// Applies an event and carries out what needs no await. The caller commits where it has to.
    pub(crate) fn apply(&self, event: &Event) {
        let tolerates = |lost: &[bool]| self.tolerates(lost);
        let tolerates_all = |_: &[bool]| true;
        let effects = if self.base.has(Mutant::CommitBeyondRedundancy) {
            self.state.borrow_mut().apply(event, &tolerates_all)
        } else {
            self.state.borrow_mut().apply(event, &tolerates)
        };
        for effect in effects {
            match effect {
                Effect::PublishMembers => self.publish_members(),
                Effect::Freeze => {
                    let bells = self.freeze_bells.borrow();
                    bells
                        .iter()
                        .filter_map(std::rc::Weak::upgrade)
                        .for_each(|bell| bell.notify());
                    if let Event::MemberFailed { member, cause } = event {
                        self.lost_when_frozen.borrow_mut().push(*member);
                        self.base.announce(Announcement::Frozen {
                            member: self.member_name(*member),
                            cause: *cause,
                        });
                    }
                }
                Effect::CommitSuperblock | Effect::PickSpare => {}
            }
        }
        self.base.note_change();
    }

    /// A member cannot be used any more. Its answer-side consequences follow in `settle` (W3).
    pub(crate) fn fail_member(&self, member: MemberId, cause: FailCause) {
        if !self.state.borrow().record(member).is_live() {
            return;
        }
        if self.is_frozen() {
            return self.note_lost_when_frozen(member);
        }
        self.metadata.borrow_mut().note_failure(member, cause);
        self.apply(&Event::MemberFailed { member, cause });
        if !self.is_frozen() {
            assert!(
                !self.state.borrow().record(member).is_live(),
                "whoever failed takes part in nothing"
            );
            if let Some(drive) = self.drive(member) {
                drive.fence();
            }
            self.base.announce(Announcement::MemberFailed {
                member: self.member_name(member),
                cause,
            });
        }
    }

    /// A frozen array has lost one more member. Nothing is written about it any more.
    fn note_lost_when_frozen(&self, member: MemberId) {
        let mut lost = self.lost_when_frozen.borrow_mut();
        if !lost.contains(&member) {
            lost.push(member);
        }
    }

    /// A new member stands ready: its drive, under the next free number.
    pub(crate) fn take_in(&self, drive: Rc<Drive<D>>, is_write_mostly: WriteMostly) {
        let member = drive.id;
        assert_eq!(
            usize::from(member.0),
            self.drives.borrow().len(),
            "numbers are given in order"
        );
        self.drives.borrow_mut().push(Some(drive));
        self.note_sectors();
        self.apply(&Event::SpareAdded {
            member,
            is_write_mostly: is_write_mostly == WriteMostly::Yes,
        });
    }

    /// A member that holds no slot leaves: its record only keeps the numbering.
    pub(crate) fn let_go(&self, member: MemberId) {
        assert!(
            !self.state.borrow().record(member).is_slotted(),
            "whoever holds a slot stays"
        );
        self.apply(&Event::MemberRemoved { member });
        self.metadata.borrow_mut().forget_member(member);
        if let Some(place) = self.drives.borrow_mut().get_mut(usize::from(member.0))
            && let Some(drive) = place.take()
        {
            drive.fence();
        }
        self.note_sectors();
    }

    /// Whether the array is durably dirty, so that a write may begin (W1). It becomes dirty here, not durably yet.
    #[inline]
    pub(crate) fn is_marked_dirty(&self) -> bool {
        self.apply_first_write();
        self.committed.get() >= self.dirty_version.get()
    }

    /// W1: returns when the superblocks say that writes may be under way.
    ///
    /// # Errors
    /// As `commit_until`.
    pub(crate) async fn make_dirty(&self) -> Result<(), IoError> {
        loop {
            // A clean commit may have been under way: look again after each commit.
            self.commit_until(self.dirty_version.get()).await?;
            if self.state.borrow().is_dirty {
                return Ok(());
            }
            self.apply_first_write();
        }
    }

    fn apply_first_write(&self) {
        if !self.state.borrow().is_dirty {
            self.apply(&Event::FirstWrite);
            self.dirty_version.set(self.state.borrow().version);
            debug_assert!(
                self.dirty_version.get() > self.committed.get() || self.is_frozen(),
                "what has just become so is not durable"
            );
        }
    }

    /// Makes a new snapshot from the state.
    pub(super) fn publish_members(&self) {
        let state = self.state.borrow();
        let drives = self.drives.borrow();
        let mut fillings = self.fillings.borrow_mut();
        fillings.retain(|filling| {
            matches!(
                state.record(filling.drive.id).standing,
                Standing::Rebuilding { .. }
            )
        });
        for (record, drive) in state.members.iter().zip(drives.iter()) {
            let (
                Standing::Rebuilding {
                    valid_below_bytes,
                    by_bitmap,
                },
                Some(drive),
            ) = (record.standing, drive)
            else {
                continue;
            };
            if !fillings.iter().any(|filling| filling.drive.id == drive.id) {
                let companion = self.companion().filter(|_| by_bitmap);
                fillings.push(Rc::new(Filling::new(
                    Rc::clone(drive),
                    valid_below_bytes,
                    companion.map(|companion| companion.marked()),
                )));
            }
        }
        let mut set = MemberSet::of(&state, &drives, &fillings);
        assert_eq!(
            set.slots.len(),
            usize::from(state.slot_count),
            "the snapshot has every slot, also the empty ones"
        );
        let is_out = |filling: &Rc<Filling<D>>| !state.record(filling.drive.id).is_slotted();
        debug_assert!(
            !fillings.iter().any(is_out),
            "only whoever has a slot is filled"
        );
        if self.base.has(Mutant::SpareUsedTwice) {
            set.lend_fillings();
        }
        if let Some(follower) = self.follower.get().and_then(std::rc::Weak::upgrade) {
            follower.members_change(&self.members(), &set);
        }
        let before = std::mem::replace(&mut *self.set.borrow_mut(), Rc::new(set));
        if self.base.has(Mutant::OldMemberSetStillWrites) {
            *self.set_before.borrow_mut() = Some((self.base.clock().now(), before));
        }
    }
}

/// Whether a member is read only when nobody else can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteMostly {
    /// So it is.
    Yes,
    /// It is read like the others.
    No,
}
