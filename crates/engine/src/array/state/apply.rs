//! The state of an array and the one function that changes it.
//!
//! Invariants:
//! - `apply` is synchronous and does no I/O; what must follow is in the effects it returns;
//! - a failure that the organisation does not survive changes nothing but `is_frozen` (W4);
//! - a slot has at most one active member and at most one that is being filled for it;
//! - `version` rises with each change that has to become durable; `urgent_version` is the last one an answer depends on
//!   (W3).

use super::event::{Effect, Event, FailCause};
use super::member::{MemberId, MemberRecord, Standing};

/// State of an array. One owner; requests hold `MemberSet` snapshots made from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayState {
    /// Every member ever seen since the array was opened, by `MemberId`.
    pub members: Vec<MemberRecord>,
    /// Number of slots.
    pub slot_count: u16,
    /// Superblocks say that writes may be under way.
    pub is_dirty: bool,
    /// When not dirty: sync bytes below this are consistent, `None`: all of them.
    pub consistent_below_bytes: Option<u64>,
    /// More was lost than the organisation survives: no request and no commit any more.
    pub is_frozen: bool,
    /// Counts changes that must become durable.
    pub version: u64,
    /// The last version that answers to writes have to wait for.
    pub urgent_version: u64,
}

/// Tells whether the organisation can serve with these slots lost (`true` = lost).
pub type Tolerates<'a> = &'a dyn Fn(&[bool]) -> bool;

impl ArrayState {
    /// Slots without an active member.
    #[must_use]
    pub fn lost_slots(&self) -> Vec<bool> {
        let mut lost = vec![true; usize::from(self.slot_count)];
        for record in &self.members {
            if let (Standing::Active, Some(slot)) = (record.standing, record.slot) {
                lost[usize::from(slot)] = false;
            }
        }
        lost
    }

    /// Whether some slot has no active member.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.lost_slots().contains(&true)
    }

    /// The active member of a slot.
    #[must_use]
    pub fn active(&self, slot: u16) -> Option<MemberId> {
        self.find(|record| record.slot == Some(slot) && record.standing == Standing::Active)
    }

    /// All active members.
    pub(crate) fn all_active(&self) -> impl Iterator<Item = MemberId> + '_ {
        let ids = (0..).map(MemberId);
        let active = ids.zip(&self.members);
        active
            .filter(|(_, record)| record.standing == Standing::Active)
            .map(|(id, _)| id)
    }

    /// The member that is being filled for a slot.
    #[must_use]
    pub fn rebuilding(&self, slot: u16) -> Option<MemberId> {
        self.find(|record| {
            record.slot == Some(slot) && matches!(record.standing, Standing::Rebuilding { .. })
        })
    }

    /// First member for which `wanted` holds.
    pub fn find(&self, wanted: impl Fn(&MemberRecord) -> bool) -> Option<MemberId> {
        self.members
            .iter()
            .position(wanted)
            .map(|index| MemberId(u16::try_from(index).expect("members are few")))
    }

    /// Record of a member.
    #[must_use]
    pub fn record(&self, member: MemberId) -> &MemberRecord {
        &self.members[usize::from(member.0)]
    }

    fn record_mut(&mut self, member: MemberId) -> &mut MemberRecord {
        &mut self.members[usize::from(member.0)]
    }

    fn changed(&mut self, is_urgent: bool) -> Effect {
        self.version += 1;
        if is_urgent {
            self.urgent_version = self.version;
        }
        Effect::CommitSuperblock
    }

    /// Applies one event. `tolerates` is the organisation's rule about lost slots.
    pub fn apply(&mut self, event: &Event, tolerates: Tolerates<'_>) -> Vec<Effect> {
        if self.is_frozen {
            return Vec::new();
        }
        let effects = match *event {
            Event::FirstWrite => self.first_write(),
            Event::Quiet {
                consistent_below_bytes,
            } => self.quiet(consistent_below_bytes),
            Event::MemberFailed { member, cause } => self.member_failed(member, cause, tolerates),
            Event::SpareAdded {
                member,
                is_write_mostly,
            } => self.spare_added(member, is_write_mostly),
            Event::RebuildStarted {
                member,
                slot,
                is_replacement,
                by_bitmap,
            } => self.rebuild_started(member, slot, is_replacement, by_bitmap),
            Event::RebuildCheckpoint {
                member,
                valid_below_bytes,
            } => self.checkpoint(member, valid_below_bytes),
            Event::RebuildDone { member } => self.rebuild_done(member),
            Event::MemberRemoved { member } => self.member_removed(member),
            Event::SlotsLeft { slot_count } => self.slots_left(slot_count),
            Event::SettingsChanged => vec![self.changed(false)],
            Event::BadBlocksChanged { is_urgent, .. } => vec![self.changed(is_urgent)],
        };
        self.check();
        effects
    }

    fn first_write(&mut self) -> Vec<Effect> {
        if self.is_dirty {
            return Vec::new();
        }
        self.is_dirty = true;
        vec![self.changed(false)]
    }

    fn quiet(&mut self, consistent_below_bytes: Option<u64>) -> Vec<Effect> {
        if !self.is_dirty && self.consistent_below_bytes == consistent_below_bytes {
            return Vec::new();
        }
        self.is_dirty = false;
        self.consistent_below_bytes = consistent_below_bytes;
        vec![self.changed(false)]
    }

    fn member_failed(
        &mut self,
        member: MemberId,
        cause: FailCause,
        tolerates: Tolerates<'_>,
    ) -> Vec<Effect> {
        let record = self.record(member).clone();
        match record.standing {
            Standing::Faulty | Standing::Removed => return Vec::new(),
            Standing::Spare | Standing::Rebuilding { .. } => {}
            Standing::Active => {
                let slot = usize::from(record.slot.expect("an active member has a slot"));
                let mut lost = self.lost_slots();
                lost[slot] = true;
                if !tolerates(&lost) {
                    // W4: what the operator asks for is refused by the caller, everything else freezes the array.
                    assert!(
                        cause != FailCause::Asked,
                        "asking to fail a needed member is refused before this"
                    );
                    self.is_frozen = true;
                    return vec![Effect::Freeze];
                }
            }
        }
        let failed = self.record_mut(member);
        failed.standing = Standing::Faulty;
        failed.slot = None;
        failed.is_replacement = false;
        // A replacement whose source failed goes on as an ordinary rebuild of the now empty slot.
        if let Some(heir) = record
            .slot
            .filter(|_| record.standing == Standing::Active)
            .and_then(|slot| self.rebuilding(slot))
        {
            self.record_mut(heir).is_replacement = false;
        }
        vec![
            self.changed(true),
            Effect::PublishMembers,
            Effect::PickSpare,
        ]
    }

    fn spare_added(&mut self, member: MemberId, is_write_mostly: bool) -> Vec<Effect> {
        assert_eq!(
            usize::from(member.0),
            self.members.len(),
            "ids are given in order"
        );
        self.members.push(MemberRecord {
            slot: None,
            standing: Standing::Spare,
            is_replacement: false,
            is_write_mostly,
        });
        vec![
            self.changed(false),
            Effect::PublishMembers,
            Effect::PickSpare,
        ]
    }

    fn rebuild_started(
        &mut self,
        member: MemberId,
        slot: u16,
        is_replacement: bool,
        by_bitmap: bool,
    ) -> Vec<Effect> {
        assert_eq!(
            self.record(member).standing,
            Standing::Spare,
            "only a spare takes a slot"
        );
        assert!(
            self.rebuilding(slot).is_none(),
            "a slot is filled by one member at a time"
        );
        assert_eq!(
            self.active(slot).is_some(),
            is_replacement,
            "a replacement needs a source, a rebuild an empty slot"
        );
        let record = self.record_mut(member);
        record.slot = Some(slot);
        record.standing = Standing::Rebuilding {
            valid_below_bytes: 0,
            by_bitmap,
        };
        record.is_replacement = is_replacement;
        // Answers must not depend on a member that no superblock knows.
        vec![self.changed(true), Effect::PublishMembers]
    }

    fn checkpoint(&mut self, member: MemberId, valid_below_bytes: u64) -> Vec<Effect> {
        let Standing::Rebuilding {
            valid_below_bytes: old,
            by_bitmap,
        } = self.record(member).standing
        else {
            return Vec::new(); // it failed meanwhile
        };
        assert!(valid_below_bytes >= old, "a rebuild does not go back");
        self.record_mut(member).standing = Standing::Rebuilding {
            valid_below_bytes,
            by_bitmap,
        };
        vec![self.changed(false)]
    }

    fn rebuild_done(&mut self, member: MemberId) -> Vec<Effect> {
        if !matches!(self.record(member).standing, Standing::Rebuilding { .. }) {
            return Vec::new(); // it failed meanwhile
        }
        let slot = self
            .record(member)
            .slot
            .expect("a rebuilding member has a slot");
        if let Some(old) = self.active(slot) {
            let old = self.record_mut(old);
            old.standing = Standing::Faulty;
            old.slot = None;
        }
        let record = self.record_mut(member);
        record.standing = Standing::Active;
        record.is_replacement = false;
        vec![
            self.changed(true),
            Effect::PublishMembers,
            Effect::PickSpare,
        ]
    }

    fn member_removed(&mut self, member: MemberId) -> Vec<Effect> {
        assert!(
            matches!(
                self.record(member).standing,
                Standing::Faulty | Standing::Spare
            ),
            "only a faulty member or a spare can be removed"
        );
        self.record_mut(member).standing = Standing::Removed;
        vec![self.changed(false), Effect::PublishMembers]
    }

    fn slots_left(&mut self, slot_count: u16) -> Vec<Effect> {
        assert!(slot_count <= self.slot_count, "no slot comes by this");
        self.slot_count = slot_count;
        for record in &mut self.members {
            if record.slot.is_some_and(|slot| slot >= slot_count) {
                record.slot = None;
                record.standing = Standing::Spare;
                record.is_replacement = false;
            }
        }
        vec![
            self.changed(true),
            Effect::PublishMembers,
            Effect::PickSpare,
        ]
    }

    fn check(&self) {
        for slot in 0..self.slot_count {
            let of = |wanted: fn(&Standing) -> bool| {
                self.members
                    .iter()
                    .filter(|record| record.slot == Some(slot) && wanted(&record.standing))
                    .count()
            };
            assert!(
                of(|standing| *standing == Standing::Active) <= 1,
                "a slot has at most one active member"
            );
            assert!(
                of(|standing| matches!(standing, Standing::Rebuilding { .. })) <= 1,
                "a slot is filled by one"
            );
        }
        for record in &self.members {
            assert_eq!(
                record.is_slotted(),
                record.slot.is_some(),
                "exactly slotted members have a slot"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(slot: u16) -> MemberRecord {
        MemberRecord {
            slot: Some(slot),
            standing: Standing::Active,
            is_replacement: false,
            is_write_mostly: false,
        }
    }

    fn raid5() -> ArrayState {
        ArrayState {
            members: (0..3).map(active).collect(),
            slot_count: 3,
            is_dirty: false,
            consistent_below_bytes: None,
            is_frozen: false,
            version: 0,
            urgent_version: 0,
        }
    }

    fn one_loss(lost: &[bool]) -> bool {
        lost.iter().filter(|is_lost| **is_lost).count() <= 1
    }

    fn failed(member: u16) -> Event {
        Event::MemberFailed {
            member: MemberId(member),
            cause: FailCause::Gone,
        }
    }

    #[test]
    fn a_survivable_failure_is_urgent_and_looks_for_a_spare() {
        let mut state = raid5();
        let effects = state.apply(&failed(1), &one_loss);
        assert_eq!(
            effects,
            [
                Effect::CommitSuperblock,
                Effect::PublishMembers,
                Effect::PickSpare
            ]
        );
        assert_eq!(state.urgent_version, state.version);
        assert_eq!(state.lost_slots(), [false, true, false]);
    }

    #[test]
    fn a_failure_too_many_freezes_and_changes_nothing_else() {
        let mut state = raid5();
        state.apply(&failed(1), &one_loss);
        let before = state.clone();
        assert_eq!(state.apply(&failed(2), &one_loss), [Effect::Freeze]);
        assert_eq!(
            ArrayState {
                is_frozen: true,
                ..before
            },
            state
        );
        assert!(
            state.apply(&Event::FirstWrite, &one_loss).is_empty(),
            "a frozen array takes no event"
        );
    }

    #[test]
    fn a_replacement_goes_on_as_rebuild_when_its_source_fails() {
        let mut state = raid5();
        state.apply(
            &Event::SpareAdded {
                member: MemberId(3),
                is_write_mostly: false,
            },
            &one_loss,
        );
        let start = Event::RebuildStarted {
            member: MemberId(3),
            slot: 0,
            is_replacement: true,
            by_bitmap: false,
        };
        state.apply(&start, &one_loss);
        assert_eq!(
            (state.active(0), state.rebuilding(0)),
            (Some(MemberId(0)), Some(MemberId(3)))
        );
        state.apply(&failed(0), &one_loss);
        assert!(!state.record(MemberId(3)).is_replacement);
        state.apply(
            &Event::RebuildDone {
                member: MemberId(3),
            },
            &one_loss,
        );
        assert_eq!(state.active(0), Some(MemberId(3)));
    }

    #[test]
    fn a_finished_replacement_retires_its_source() {
        let mut state = raid5();
        state.apply(
            &Event::SpareAdded {
                member: MemberId(3),
                is_write_mostly: false,
            },
            &one_loss,
        );
        let start = Event::RebuildStarted {
            member: MemberId(3),
            slot: 0,
            is_replacement: true,
            by_bitmap: false,
        };
        state.apply(&start, &one_loss);
        state.apply(
            &Event::RebuildDone {
                member: MemberId(3),
            },
            &one_loss,
        );
        assert_eq!(state.record(MemberId(0)).standing, Standing::Faulty);
        assert!(!state.is_degraded());
    }

    #[test]
    fn writing_and_resting_alternate_dirty_and_clean() {
        let mut state = raid5();
        assert_eq!(
            state.apply(&Event::FirstWrite, &one_loss),
            [Effect::CommitSuperblock]
        );
        assert!(state.apply(&Event::FirstWrite, &one_loss).is_empty());
        assert_eq!(
            state.apply(
                &Event::Quiet {
                    consistent_below_bytes: None
                },
                &one_loss
            ),
            [Effect::CommitSuperblock]
        );
        assert!(!state.is_dirty);
    }

    fn spare_added() -> Event {
        Event::SpareAdded {
            member: MemberId(3),
            is_write_mostly: true,
        }
    }

    #[test]
    fn a_member_that_is_taken_out_is_forgotten_durably_and_used_no_more() {
        let mut state = raid5();
        state.apply(&spare_added(), &one_loss);
        assert!(state.record(MemberId(3)).is_write_mostly);
        let version = state.version;
        let removed = Event::MemberRemoved {
            member: MemberId(3),
        };
        assert_eq!(
            state.apply(&removed, &one_loss),
            [Effect::CommitSuperblock, Effect::PublishMembers]
        );
        assert_eq!(state.version, version + 1);
        assert_eq!(state.record(MemberId(3)).standing, Standing::Removed);
        assert!(!state.record(MemberId(3)).is_live());
    }

    #[test]
    #[should_panic(expected = "only a faulty member or a spare can be removed")]
    fn an_active_member_is_not_taken_out() {
        let removed = Event::MemberRemoved {
            member: MemberId(0),
        };
        raid5().apply(&removed, &one_loss);
    }

    #[test]
    #[should_panic(expected = "a slot has at most one active member")]
    fn a_state_with_two_members_in_a_slot_is_never_gone_on_with() {
        let mut state = raid5();
        state.members[1].slot = Some(0);
        state.apply(&Event::FirstWrite, &one_loss);
    }

    #[test]
    #[should_panic(expected = "a slot is filled by one")]
    fn a_state_with_two_members_being_filled_for_a_slot_is_never_gone_on_with() {
        let mut state = raid5();
        for member in &mut state.members[..2] {
            member.slot = Some(0);
            member.standing = Standing::Rebuilding {
                valid_below_bytes: 0,
                by_bitmap: false,
            };
        }
        state.apply(&Event::FirstWrite, &one_loss);
    }

    #[test]
    fn whoever_holds_a_slot_that_is_no_more_is_a_spare() {
        let mut state = raid5();
        state.apply(&Event::SlotsLeft { slot_count: 2 }, &one_loss);
        let left = state.record(MemberId(2));
        assert_eq!((left.standing, left.slot), (Standing::Spare, None));
        assert_eq!(state.lost_slots(), [false, false]);
        assert_eq!(state.urgent_version, state.version);
    }

    #[test]
    fn a_source_whose_replacement_fails_is_no_longer_being_replaced() {
        let mut state = raid5();
        state.apply(&spare_added(), &one_loss);
        let start = Event::RebuildStarted {
            member: MemberId(3),
            slot: 0,
            is_replacement: true,
            by_bitmap: false,
        };
        state.apply(&start, &one_loss);
        state.apply(&failed(3), &one_loss);
        assert_eq!(state.active(0), Some(MemberId(0)));
    }
}
