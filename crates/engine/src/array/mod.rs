//! Who is in: the members' state, their drives, the snapshot that requests use, and the superblocks that say so. The
//! only owner of state and superblocks.
//!
//! Invariants:
//! - the state changes in `ArrayState::apply` and nowhere else, and its effects are carried out at once;
//! - requests use a `MemberSet` snapshot, which is made anew whenever the state says so;
//! - an answer that depends on a failure waits until that is durable on the survivors (W3, `settle`);
//! - a frozen array writes no superblock (W4).

mod apply;
mod commit;
mod hedge;
pub(crate) mod io;
mod members;
mod mend;
pub mod state;
#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, Ref, RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

pub(crate) use apply::WriteMostly;
pub use members::{Filling, MemberSet, SlotView, Stale};

use crate::base::Base;
use crate::drive::Drive;
use crate::metadata::Metadata;
use crate::mutant::Mutant;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};
use plexum_block::wait::{Mutex, MutexGuard, Signal};
use state::{ArrayState, MemberId, MemberRecord, Standing};

/// A future of a room that this one knows by a trait alone.
pub(crate) type Later<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Drives by `MemberId`; `None` for members that are not there.
pub(crate) type Drives<D> = Vec<Option<Rc<Drive<D>>>>;

/// What has to become durable with the superblocks, and what they say of it. `intent` is that; a test may do without.
pub(crate) trait Companion<D> {
    /// Regions that a write may have left behind on members that are away.
    fn marked(&self) -> Stale;

    /// Whether copies or parity may differ somewhere.
    fn is_doubtful(&self) -> bool;

    /// Whether answered writes may be in a log only while the array is dirty (L5).
    fn answers_from_log(&self) -> bool;

    /// The bitmap's superblock with this event count, before the members' ones (linux-md.md 3, rule 4).
    fn before_superblocks(&self, event_count: u64) -> Later<'_, Result<(), IoError>>;

    /// L6: the log's headers name the superblocks that are about to be written. `false`: a member could not be written
    /// and was failed.
    fn bind<'a>(&'a self, state: &'a ArrayState, drives: &'a [Rc<Drive<D>>]) -> Later<'a, bool>;

    /// The superblock of a member is on it.
    fn superblock_written(&self, member: MemberId);
}

/// Whoever keeps something by slot, and hears of every new snapshot before anybody uses it.
pub(crate) trait Follower<D> {
    /// The members of the slots change.
    fn members_change(&self, before: &MemberSet<D>, after: &MemberSet<D>);
}

/// What an array is made of.
pub(crate) struct ArrayParts<D> {
    /// Records of the members, in the order of their ids.
    pub records: Vec<MemberRecord>,
    /// Their drives.
    pub drives: Drives<D>,
    /// Format adapter.
    pub metadata: Box<dyn Metadata>,
    /// Event count of the freshest superblock.
    pub event_count: u64,
    /// Whether some used member's superblock is one event behind.
    pub is_uneven: bool,
    /// As in `VolumeParts`.
    pub resync_start_bytes: Option<u64>,
}

/// The members of one volume. One thread owns it.
pub(crate) struct Array<D: Device, C> {
    base: Rc<Base<C>>,
    state: RefCell<ArrayState>,
    drives: RefCell<Drives<D>>,
    /// Largest sector of `drives`.
    sector_bytes: Cell<u32>,
    fillings: RefCell<Vec<Rc<Filling<D>>>>,
    set: RefCell<Rc<MemberSet<D>>>,
    /// For the deliberate bug of a member set that goes on after its time.
    set_before: RefCell<Option<(Moment, Rc<MemberSet<D>>)>>,
    metadata: RefCell<Box<dyn Metadata>>,
    event_count: Cell<u64>,
    /// What the freshest superblock says, until every member says the same.
    uneven: RefCell<Option<ArrayState>>,
    /// Last version of the state that is durable.
    committed: Cell<u64>,
    /// Members that are active in it.
    durably_active: RefCell<Vec<MemberId>>,
    /// Version of the state that says "dirty"; writes wait until it is durable.
    dirty_version: Cell<u64>,
    commit_lock: Mutex,
    /// One new member at a time: its id and its place in the format's tables are taken together.
    entry_lock: Mutex,
    /// It is a satellite's (`shard`): what it learns is made durable by its home, not here.
    is_lent: Cell<bool>,
    /// Somebody else makes durable what it learns: a satellite's home, or the same members in another geometry.
    is_silent: Cell<bool>,
    /// Members that were lost when it froze and later: the state keeps them as the superblocks have them (W4).
    lost_when_frozen: RefCell<Vec<MemberId>>,
    companion: OnceCell<Weak<dyn Companion<D>>>,
    follower: OnceCell<Weak<dyn Follower<D>>>,
    /// The members in another geometry, which must survive every loss as well (`migrate`).
    beside: RefCell<Option<Rc<Array<D, C>>>>,
    /// Whoever waits for something that does not come any more in a frozen array.
    freeze_bells: RefCell<Vec<Weak<Signal>>>,
}

fn largest_sector<D: Device>(drives: &Drives<D>, asked_bytes: u32) -> u32 {
    let sectors = drives.iter().flatten();
    let sectors = sectors.map(|drive| drive.info().sector_bytes);
    sectors.max().unwrap_or(512).max(asked_bytes.min(4096))
}

/// What is known of the members when nothing was read yet; `resync_start_bytes` as in `VolumeParts`.
fn first_state(
    members: Vec<MemberRecord>,
    slot_count: u16,
    resync_start_bytes: Option<u64>,
    version: u64,
) -> ArrayState {
    let is_dirty = resync_start_bytes == Some(0);
    ArrayState {
        members,
        slot_count,
        is_dirty,
        consistent_below_bytes: resync_start_bytes.filter(|_| !is_dirty),
        is_frozen: false,
        version,
        urgent_version: version,
    }
}

impl<D: Device, C: Clock> Array<D, C> {
    /// Puts it together. Nobody is in the snapshot before `begin`.
    pub(crate) fn new(base: Rc<Base<C>>, parts: ArrayParts<D>) -> Self {
        let slot_count = u16::try_from(base.geometry().member_count())
            .expect("slots were bounded by the geometry");
        // Another geometry of the same members may have more (`migrate`).
        let slots = parts.records.iter().filter_map(|record| record.slot);
        let slot_count = slots
            .map(|slot| slot + 1)
            .max()
            .unwrap_or(0)
            .max(slot_count);
        let is_dirty = parts.resync_start_bytes == Some(0);
        let may_write = !base.is_read_only();
        // A dirty array was written to before it went down: what is true now (who is missing) must be durable before
        // more is.
        let is_due = (is_dirty || parts.metadata.is_commit_due()) && may_write;
        let first_version = u64::from(is_due);
        assert_eq!(
            parts.records.len(),
            parts.drives.len(),
            "each member has a record, and a place for its drive"
        );
        let state = first_state(
            parts.records,
            slot_count,
            parts.resync_start_bytes,
            first_version,
        );
        let asked_bytes = base.options().block_bytes_min;
        Self {
            durably_active: RefCell::new(state.all_active().collect()),
            uneven: RefCell::new(parts.is_uneven.then(|| state.clone())),
            state: RefCell::new(state),
            sector_bytes: Cell::new(largest_sector(&parts.drives, asked_bytes)),
            drives: RefCell::new(parts.drives),
            fillings: RefCell::default(),
            set: RefCell::new(Rc::new(MemberSet::empty(usize::from(slot_count)))),
            set_before: RefCell::default(),
            metadata: RefCell::new(parts.metadata),
            event_count: Cell::new(parts.event_count),
            committed: Cell::new(0),
            dirty_version: Cell::new(first_version),
            commit_lock: Mutex::new(),
            entry_lock: Mutex::new(),
            is_lent: Cell::new(false),
            is_silent: Cell::new(false),
            lost_when_frozen: RefCell::default(),
            companion: OnceCell::new(),
            follower: OnceCell::new(),
            beside: RefCell::default(),
            freeze_bells: RefCell::default(),
            base,
        }
    }

    /// Makes the first snapshot. From now on `companion` is asked and told, and `follower` told.
    pub(crate) fn begin(&self, companion: Weak<dyn Companion<D>>, follower: Weak<dyn Follower<D>>) {
        let is_first = self.companion.set(companion).is_ok() && self.follower.set(follower).is_ok();
        assert!(is_first, "an array begins once");
        self.publish_members();
    }

    fn companion(&self) -> Option<Rc<dyn Companion<D>>> {
        self.companion.get().and_then(Weak::upgrade)
    }

    /// Rings when the array freezes, besides the signal of every change.
    pub(crate) fn ring_when_frozen(&self, bell: &Rc<Signal>) {
        let mut bells = self.freeze_bells.borrow_mut();
        bells.retain(|bell| bell.strong_count() > 0);
        bells.push(Rc::downgrade(bell));
    }

    /// The state, to be looked at. Not to be held over an await.
    #[inline]
    pub(crate) fn state(&self) -> Ref<'_, ArrayState> {
        self.state.borrow()
    }

    /// What the format says and where; not to be held over an await.
    pub(crate) fn metadata(&self) -> Ref<'_, Box<dyn Metadata>> {
        self.metadata.borrow()
    }

    /// The same, to be changed. What it changes becomes durable with the next commit.
    pub(crate) fn metadata_mut(&self) -> RefMut<'_, Box<dyn Metadata>> {
        self.metadata.borrow_mut()
    }

    /// Largest sector of the members: unit of requests, in bytes.
    #[inline]
    pub(crate) fn sector_bytes(&self) -> u32 {
        self.sector_bytes.get()
    }

    /// A drive has come or gone.
    fn note_sectors(&self) {
        let asked = self.base.options().block_bytes_min;
        (self.sector_bytes).set(largest_sector(&self.drives.borrow(), asked));
    }

    /// Whether more was lost than the organisation survives (W4).
    #[inline]
    pub(crate) fn is_frozen(&self) -> bool {
        self.state.borrow().is_frozen
    }

    /// By slot, whether it has no active member now.
    pub(crate) fn lost_slots(&self) -> Vec<bool> {
        self.state.borrow().lost_slots()
    }

    /// Event count of the last superblock commit that has begun.
    pub(crate) fn event_count(&self) -> u64 {
        self.event_count.get()
    }

    /// Whether all that the state says is durable on the members.
    pub(crate) fn is_committed(&self) -> bool {
        self.committed.get() >= self.state.borrow().version
    }

    /// Whether the members' superblocks name this one as complete: whoever starts the array after a crash can rely on
    /// it.
    pub(crate) fn is_durably_active(&self, member: MemberId) -> bool {
        self.durably_active.borrow().contains(&member)
    }

    /// Whether every member's superblock says the same.
    pub(crate) fn is_even(&self) -> bool {
        self.uneven.borrow().is_none()
    }

    /// Makes it a satellite's array (`shard`): it counts as dirty, which its home has made durable, and commits
    /// nothing. What it learns of its members is the home's to make durable, before anything that depends on it is
    /// answered.
    pub(crate) fn become_lent(&self) {
        assert!(
            self.committed.get() >= self.state.borrow().version,
            "what is lent has nothing of its own to commit"
        );
        self.is_lent.set(true);
        self.fall_silent();
    }

    /// From now on it commits nothing, and counts as dirty: others make durable what it learns, before anything that
    /// depends on it is answered.
    pub(crate) fn fall_silent(&self) {
        self.is_silent.set(true);
        self.state.borrow_mut().is_dirty = true;
    }

    /// Whether others commit for it.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        self.is_silent.get()
    }

    /// Whether it is a satellite's.
    #[inline]
    pub(crate) fn is_lent(&self) -> bool {
        self.is_lent.get()
    }

    /// Snapshot of who serves which slot. Take it after the lock.
    #[inline]
    pub(crate) fn members(&self) -> Rc<MemberSet<D>> {
        Rc::clone(&self.set.borrow())
    }

    /// The snapshot for writes. The same, but for a deliberate bug.
    #[inline]
    pub(crate) fn members_to_write(&self) -> Rc<MemberSet<D>> {
        if self.base.has(Mutant::OldMemberSetStillWrites)
            && let Some((since, set)) = &*self.set_before.borrow()
            && self.base.clock().now().since(*since) < crate::mutant::OLD_SET_LASTS
        {
            return Rc::clone(set);
        }
        self.members()
    }

    /// The drive of a member that is there.
    pub(crate) fn drive(&self, member: MemberId) -> Option<Rc<Drive<D>>> {
        self.drives
            .borrow()
            .get(usize::from(member.0))
            .cloned()
            .flatten()
    }

    /// The drives of all members by their numbers. Not to be held over an await.
    pub(crate) fn drives(&self) -> Ref<'_, Drives<D>> {
        self.drives.borrow()
    }

    /// Drives of all live members: active, rebuilding and spare.
    pub(crate) fn live_drives(&self) -> Vec<Rc<Drive<D>>> {
        let state = self.state.borrow();
        let drives = self.drives.borrow();
        let live = state
            .members
            .iter()
            .zip(drives.iter())
            .filter(|(record, _)| record.is_live());
        live.filter_map(|(_, drive)| drive.clone()).collect()
    }

    /// Drives that hold data and bitmap: active and rebuilding.
    pub(crate) fn slotted_drives(&self) -> Vec<Rc<Drive<D>>> {
        self.with_slotted_drives(|drives| drives.cloned().collect())
    }

    /// Whether all members with a slot answer at once, from memory (tmpfs).
    pub(crate) fn is_in_memory(&self) -> bool {
        self.with_slotted_drives(|mut drives| Iterator::all(&mut drives, |it| it.is_in_memory()))
    }

    fn with_slotted_drives<R>(
        &self,
        act: impl FnOnce(&mut dyn Iterator<Item = &Rc<Drive<D>>>) -> R,
    ) -> R {
        let state = self.state.borrow();
        let drives = self.drives.borrow();
        let members = state.members.iter().zip(drives.iter());
        let slotted = members.filter(|(record, _)| record.is_slotted());
        act(&mut slotted.filter_map(|(_, drive)| drive.as_ref()))
    }

    /// Does something with the drive of every member that is there.
    pub(crate) fn for_each_drive(&self, mut act: impl FnMut(&Drive<D>)) {
        for drive in self.drives.borrow().iter().flatten() {
            act(drive);
        }
    }

    /// Members that are being filled. Not to be held over an await.
    pub(crate) fn fillings(&self) -> Ref<'_, Vec<Rc<Filling<D>>>> {
        self.fillings.borrow()
    }

    /// Bad ranges of members, in bytes of their data areas.
    pub(crate) fn all_bad(&self) -> Vec<(MemberId, std::ops::Range<u64>)> {
        let drives = self.drives.borrow();
        let of = |drive: &Rc<Drive<D>>| -> Vec<_> {
            let bad = drive.bad_ranges();
            bad.iter().map(|range| (drive.id, range)).collect()
        };
        drives.iter().flatten().flat_map(of).collect()
    }

    /// Whether no device has anything under way, not even what nobody waits for (W9).
    pub(crate) fn are_devices_idle(&self) -> bool {
        let drives = self.drives.borrow();
        drives.iter().flatten().all(|drive| drive.is_at_rest())
    }

    /// What people call a member.
    pub(crate) fn member_name(&self, member: MemberId) -> String {
        self.drive(member).map_or_else(
            || format!("member {}", member.0),
            |drive| drive.name.clone(),
        )
    }

    /// Members that were lost when the array froze and later.
    pub(crate) fn lost_when_frozen(&self) -> Ref<'_, Vec<MemberId>> {
        self.lost_when_frozen.borrow()
    }

    /// Whether it ends, or is frozen: no new step in the background.
    pub(crate) fn is_ended(&self) -> bool {
        self.base.is_stopping() || self.is_frozen()
    }

    /// The turn of whoever takes a new member in, or changes what its places depend on.
    pub(crate) async fn entry_turn(&self) -> MutexGuard<'_> {
        self.entry_lock.lock().await
    }

    /// No commit begins while the guard lives.
    pub(crate) async fn hold_commits(&self) -> MutexGuard<'_> {
        self.commit_lock.lock().await
    }

    /// Whether the volume would be lost without a member.
    pub(crate) fn is_needed(&self, member: MemberId) -> bool {
        let state = self.state.borrow();
        let record = state.record(member);
        let (Standing::Active, Some(slot)) = (record.standing, record.slot) else {
            return false;
        };
        let mut lost = state.lost_slots();
        lost[usize::from(slot)] = true;
        !self.tolerates(&lost)
    }

    /// From now on no loss is survived that `other`, which has the same members in another geometry, does not survive.
    pub(crate) fn stand_beside(&self, other: &Rc<Self>) {
        let before = self.beside.borrow_mut().replace(Rc::clone(other));
        assert!(before.is_none(), "two geometries, not three");
    }

    /// There is but one geometry again.
    pub(crate) fn stand_alone(&self) {
        self.beside.take();
    }

    /// Whether the volume survives with these slots lost, in every geometry that there is.
    pub(crate) fn tolerates(&self, lost: &[bool]) -> bool {
        let beside = self.beside.borrow();
        let survives_there = beside.as_ref().is_none_or(|other| {
            let geometry = other.base.geometry();
            geometry.tolerates(&other.lost_slots_with(lost))
        });
        survives_there && self.base.geometry().tolerates(self.own_slots(lost))
    }

    /// How many more members may be lost, in the geometry that survives fewer.
    pub(crate) fn losses_left(&self, lost: &[bool]) -> usize {
        let beside = self.beside.borrow();
        let there = beside.as_ref().map_or(usize::MAX, |other| {
            let geometry = other.base.geometry();
            geometry.losses_left(&other.lost_slots_with(lost))
        });
        there.min(self.base.geometry().losses_left(self.own_slots(lost)))
    }

    /// Without the slots that only the other geometry has.
    fn own_slots<'a>(&self, lost: &'a [bool]) -> &'a [bool] {
        &lost[..self.base.geometry().member_count().min(lost.len())]
    }

    /// Its own lost slots and those of `more` that it has.
    fn lost_slots_with(&self, more: &[bool]) -> Vec<bool> {
        let own = self.lost_slots().into_iter().enumerate();
        own.map(|(slot, is_lost)| is_lost || more.get(slot).is_some_and(|is_lost| *is_lost))
            .collect()
    }
}
