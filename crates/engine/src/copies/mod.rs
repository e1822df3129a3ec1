//! Copies: RAID-1 and RAID-10, one code. Locks are ranges of the volume.
//!
//! Invariants:
//! - all copies of a range are written under its lock, so that overlapping writes end in the same order everywhere;
//! - where copies may differ, a read makes them equal before it answers (W6), from the first copy in md's order.

pub(crate) mod ahead;
mod equal;
mod read;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::array::io::MemberWrite;
use crate::array::{Array, Follower, MemberSet, SlotView};
use crate::balance::{Balancer, Learned, MemberTraits, Policy};
use crate::base::Base;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::mutant::{Mutant, WIDE_BYTES};
use crate::stage::{Stage, Tag};
use crate::state::FailCause;
use ahead::{ReadAhead, Unread};
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_block::wait::{Few, join_all};
use plexum_layout::CopyPlace;

/// Mirrors: which copy is read, what is read ahead of it, and writing all of them. It knows the members and what is
/// known of their agreement, and nothing else.
pub(crate) struct Copies<D: Device, C: Clock> {
    base: Rc<Base<C>>,
    array: Rc<Array<D, C>>,
    intent: Rc<Intent<D, C>>,
    balancer: RefCell<Balancer>,
    /// What was read ahead.
    ahead: ReadAhead,
}

impl<D: Device, C: Clock> Follower<D> for Copies<D, C> {
    /// Tells the balancer who can be read now.
    fn members_change(&self, before: &MemberSet<D>, after: &MemberSet<D>) {
        let mut balancer = self.balancer.borrow_mut();
        // Slots that only another geometry has hold nothing of this one (`migrate`).
        let own = self.base.geometry().member_count();
        let slots = before.slots.iter().zip(&after.slots).take(own);
        for (slot, (old, new)) in slots.enumerate() {
            let drive = |view: &SlotView<D>| {
                view.active.clone().or(view
                    .filling
                    .as_ref()
                    .map(|filling| Rc::clone(&filling.drive)))
            };
            let (old, drive) = (drive(old), drive(new));
            if old.as_ref().map(|drive| drive.id) == drive.as_ref().map(|drive| drive.id) {
                continue;
            }
            balancer.detach(slot);
            if let Some(drive) = drive {
                let traits = MemberTraits {
                    is_write_mostly: new.is_write_mostly,
                    is_rotational: drive.info().is_rotational,
                };
                balancer.attach(slot, traits, self.base.clock().now());
            }
        }
    }
}

impl<D: Device, C: Clock> Copies<D, C> {
    pub(crate) fn new(base: Rc<Base<C>>, array: Rc<Array<D, C>>, intent: Rc<Intent<D, C>>) -> Self {
        let (balancer, ahead_bytes_max) = {
            let options = base.options();
            let slot_count = base.geometry().member_count();
            let balancer = Balancer::new(options.balance, slot_count, 512);
            (balancer, options.thresholds.ahead_bytes_max)
        };
        Self {
            base,
            array,
            intent,
            balancer: RefCell::new(balancer),
            ahead: ReadAhead::new(ahead_bytes_max),
        }
    }

    /// Reads are spread by another policy from now on; nothing is kept of what was read ahead.
    pub(crate) fn set_policy(&self, policy: Policy) {
        self.balancer.borrow_mut().set_policy(policy);
        self.forget_ahead();
    }

    /// What the policy `adaptive` has learned of a slot's member.
    pub(crate) fn learned(&self, slot: usize) -> Option<Learned> {
        self.balancer.borrow().learned(slot)
    }

    /// Nothing is kept of what was read ahead: others are about to write.
    pub(crate) fn forget_ahead(&self) {
        self.ahead.clear();
    }

    /// Whether there was no room for something to be read ahead.
    pub(crate) fn was_full(&self) -> bool {
        self.ahead.was_full()
    }

    /// `WidenedWrites`: the write with its surroundings, as the first copy had them before any lock.
    pub(crate) async fn widened(&self, offset_bytes: u64, data: Buf) -> (u64, Buf) {
        let start = offset_bytes / WIDE_BYTES * WIDE_BYTES;
        let end = (offset_bytes + data.len() as u64).next_multiple_of(WIDE_BYTES);
        let length = (end - start) as usize;
        let place = self.base.geometry().copies_of(start).get(0);
        let set = self.array.members();
        let (true, Some(drive)) = (
            self.base.geometry().copies_of(start).length_bytes >= end - start,
            &set.slots[place.slot].active,
        ) else {
            return (offset_bytes, data);
        };
        let read = drive
            .read(
                self.base.pool(),
                self.base.clock(),
                place.member_offset_bytes,
                length,
            )
            .await;
        let Ok(mut wide) = read else {
            return (offset_bytes, data);
        };
        let from = (offset_bytes - start) as usize;
        wide[from..from + data.len()].copy_from_slice(&data);
        (start, wide.freeze())
    }

    /// Sync range of a part of one copy: volume bytes for RAID-10, member bytes (the same) for RAID-1.
    fn copies_sync(offset_bytes: u64, length_bytes: u64) -> Range<u64> {
        offset_bytes..offset_bytes + length_bytes
    }

    /// Writes `data`, which stays inside one strip, to all copies.
    pub(crate) async fn write_copies(
        &self,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        tag.enter(Stage::Lock);
        let (offset_bytes, data) = match self.base.has(Mutant::WidenedWrites) {
            true => Box::pin(self.widened(offset_bytes, data)).await,
            false => (offset_bytes, data),
        };
        debug_assert!(
            data.len() as u64 <= self.base.geometry().copies_of(offset_bytes).length_bytes,
            "a piece stays inside one strip"
        );
        let sync = Self::copies_sync(offset_bytes, data.len() as u64);
        let _unread = self.unread(sync.clone());
        let _lock = if self.base.has(Mutant::NoRangeLock) {
            None
        } else {
            Some(self.base.locks().lock(sync.clone()).await)
        };
        tag.enter(Stage::Write);
        let set = self.array.members_to_write();
        let mut writes: Few<MemberWrite<D>> = Few::new();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            let start = place.member_offset_bytes;
            for drive in self.array.write_targets(&set, place.slot) {
                let range = start..start + data.len() as u64;
                writes.push((Rc::clone(drive), range, data.clone()));
            }
        }
        debug_assert!(
            writes.iter().all(|(drive, ..)| writes
                .iter()
                .filter(|(other, ..)| other.id == drive.id)
                .count()
                == 1)
                || self.base.has(Mutant::SpareUsedTwice),
            "each member has one copy of a piece"
        );
        let outcome = self.array.write_members(writes, fua).await;
        self.copies_written(&sync, outcome.reached, outcome.refusal())
    }

    /// What was read ahead here is forgotten, now and when the guard is dropped: for whoever writes.
    pub(crate) fn unread(&self, range: Range<u64>) -> Unread<'_> {
        let is_kept = self.base.has(Mutant::AheadKeptOverWrite);
        Unread::new(&self.ahead, if is_kept { 0..0 } else { range })
    }

    fn copies_written(
        &self,
        sync: &Range<u64>,
        reached: usize,
        refused: Option<IoError>,
    ) -> Result<(), IoError> {
        self.check_reached(sync, reached, refused)?;
        self.intent.prove(sync);
        Ok(())
    }

    fn check_reached(
        &self,
        sync: &Range<u64>,
        reached: usize,
        refused: Option<IoError>,
    ) -> Result<(), IoError> {
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        if let Some(error) = refused {
            if self.base.has(Mutant::RefusedWriteForgotten) {
                self.base.changed().notify();
            } else {
                self.intent.unprove(sync);
            }
            return Err(error);
        }
        if reached == 0 {
            return Err(IoError::Medium);
        }
        Ok(())
    }

    /// Makes a range of one strip zero on all copies; holes where every member guarantees them (W11).
    pub(crate) async fn zero_copies(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        tag.enter(Stage::Lock);
        let sync = Self::copies_sync(offset_bytes, length_bytes);
        let _unread = self.unread(sync.clone());
        let lock = self.base.locks().lock(sync.clone()).await;
        tag.enter(Stage::Write);
        let set = self.array.members();
        let mut targets: Vec<(Rc<Drive<D>>, Range<u64>)> = Vec::new();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            for drive in self.array.write_targets(&set, place.slot) {
                targets.push((
                    Rc::clone(drive),
                    place.member_offset_bytes..place.member_offset_bytes + length_bytes,
                ));
            }
        }
        if self.base.has(Mutant::TrimOneCopy) {
            targets.truncate(1);
        }
        let results = join_all(
            targets
                .iter()
                .map(|(drive, range)| drive.zero(range.start, range.end - range.start, mode)),
        )
        .await;
        let mut writes: Few<MemberWrite<D>> = Few::new();
        let mut reached = 0;
        for ((drive, range), result) in targets.into_iter().zip(results) {
            match result {
                Ok(()) => reached += 1,
                Err(IoError::Gone) => self.array.fail_member(drive.id, FailCause::Gone),
                Err(_) => {
                    let length = usize::try_from(length_bytes)
                        .expect("zero requests are cut to slices that fit memory");
                    writes.push((drive, range, self.base.pool().take_zeroed(length).freeze()));
                }
            }
        }
        let outcome = self.array.write_members(writes, fua).await;
        let result = self.copies_written(&sync, reached + outcome.reached, outcome.refusal());
        drop(lock);
        result
    }
}

/// Member range of a copy.
pub(crate) fn member_range(place: &CopyPlace, length_bytes: usize) -> Range<u64> {
    place.member_offset_bytes..place.member_offset_bytes + length_bytes as u64
}
