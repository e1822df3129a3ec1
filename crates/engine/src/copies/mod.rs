//! Copies: RAID-1 and RAID-10, one code. Locks are ranges of the volume.
//!
//! Invariants:
//! - all copies of a range are written under its lock, so that overlapping writes end in the same order everywhere;
//! - where copies may differ, a read makes them equal before it answers (W6), from the first copy in md's order.

pub(crate) mod ahead;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use crate::array::io::MemberWrite;
use crate::array::{Array, Follower, MemberSet, SlotView};
use crate::balance::{Balancer, Learned, MemberTraits, Pick, Policy, Request};
use crate::base::Base;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::mutant::{Mutant, WIDE_BYTES};
use crate::stage::{Stage, Tag};
use crate::state::{FailCause, MemberId};
use ahead::{Kept, ReadAhead, Unread};
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_block::wait::{Few, join_all};
use plexum_layout::{CopyMap, CopyPlace, Organisation};

/// Who reads.
enum Choice {
    Whole(CopyPlace),
    /// One member, with so many bytes behind.
    Ahead(CopyPlace, u64),
    /// Several of these. Boxed: it is seldom, and would make every read larger.
    Split(Box<(Few<CopyPlace>, Pick)>),
    /// No copy can be read as a whole.
    Nobody,
}

/// Members that could not read a range of their data area.
type Broken<D> = Vec<(Rc<Drive<D>>, Range<u64>)>;

/// What was read of whoever could read it.
struct CopyRead<D> {
    data: Buf,
    /// Who gave all of it; `None` when several did.
    source: Option<MemberId>,
    /// Who could not.
    broken: Broken<D>,
}

/// Where else the same bytes are: a drive and the offset in its data area.
type OtherCopy<D> = Option<(Rc<Drive<D>>, u64)>;

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

    /// Another in-sync copy of a range inside one strip that starts at `offset_bytes` of the volume, preferably not a
    /// write-mostly one. Asked when the first copy takes too long, not before: who has the data may have changed
    /// meanwhile.
    fn other_copy(&self, drive: &Drive<D>, offset_bytes: u64, length_bytes: usize) -> OtherCopy<D> {
        let sync = offset_bytes..offset_bytes + length_bytes as u64;
        if !self.intent.is_proven(&sync) && !self.base.has(Mutant::HedgedReadUnproven) {
            return None;
        }
        let set = self.array.members();
        let copies = self.base.geometry().copies_of(offset_bytes);
        let mut found = None;
        for place in copies.iter() {
            let start = place.member_offset_bytes;
            let member = start..start + length_bytes as u64;
            let other = self.array.readable_drive(&set, place.slot, &member, &sync);
            let Some(other) = other.filter(|other| other.id != drive.id) else {
                continue;
            };
            if !set.slots[place.slot].is_write_mostly {
                return Some((Rc::clone(other), start));
            }
            found.get_or_insert((Rc::clone(other), start));
        }
        found
    }

    /// Reads a range inside one strip from `drive`, where it starts at `start`, and from the other copy as well when
    /// that takes too long. `started` is now; says when the answer came.
    pub(crate) async fn read_hedged(
        &self,
        drive: &Drive<D>,
        started: Moment,
        start: u64,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> (Result<Buf, IoError>, Moment) {
        let ended = Cell::new(started);
        let first = || async {
            let read = drive.read_since(
                self.base.pool(),
                self.base.clock(),
                started,
                start,
                length_bytes,
            );
            let (result, end) = read.await;
            ended.set(end);
            Ok(result?.freeze())
        };
        let second = || {
            let (other, start) = self.other_copy(drive, offset_bytes, length_bytes)?;
            let (now, ended) = (self.base.clock().now(), &ended);
            Some(async move {
                let read = other.read_since(
                    self.base.pool(),
                    self.base.clock(),
                    now,
                    start,
                    length_bytes,
                );
                let (result, end) = read.await;
                ended.set(end);
                Ok(result?.freeze())
            })
        };
        (
            self.array.race(drive, started, first, second).await,
            ended.get(),
        )
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

    /// Whether all copies of a range are known to be equal.
    fn may_read_any(&self, sync: &Range<u64>) -> bool {
        self.intent.is_proven(sync) || self.base.has(Mutant::ReadUnequalCopies)
    }

    /// What was read ahead of a range. Waits while it is being read, and not once somebody has begun to write there.
    async fn read_kept(&self, sync: &Range<u64>, tag: &Tag<'_>) -> Option<Buf> {
        while self.may_read_any(sync) {
            match self.ahead.look(sync) {
                Kept::Data(data) => {
                    let mut balancer = self.balancer.borrow_mut();
                    balancer.served_ahead(sync.start, tag.started());
                    return Some(data);
                }
                Kept::UnderWay(number) => self.ahead.ended(number).await,
                Kept::Nothing => return None,
            }
        }
        None
    }

    /// Reads a range inside one strip.
    pub(crate) async fn read_copies(
        &self,
        map: CopyMap<'_>,
        offset_bytes: u64,
        length_bytes: usize,
        tag: &Tag<'_>,
    ) -> Result<Rope, IoError> {
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        if !self.ahead.is_empty()
            && let Some(kept) = Box::pin(self.read_kept(&sync, tag)).await
        {
            return Ok(Rope::from(kept));
        }
        if !self.may_read_any(&sync) {
            let read = self.read_equalised(offset_bytes, length_bytes, tag);
            return Box::pin(read).await.map(Rope::from);
        }
        let set = self.array.members();
        let started = tag.started();
        let reads_ahead = self.balancer.borrow().reads_ahead();
        let ahead_bytes_max = || self.ahead_bytes_max(&sync);
        let ahead_bytes_max = reads_ahead.then_some(&ahead_bytes_max as &dyn Fn() -> u64);
        match self.choose(&set, &map, &sync, ahead_bytes_max, started) {
            Choice::Whole(place) => {
                let read = self.read_copy(&set, started, place, offset_bytes, length_bytes);
                read.await.map(Rope::from)
            }
            Choice::Ahead(place, ahead_bytes) => {
                let read = self.read_ahead(&set, started, place, &sync, ahead_bytes);
                Box::pin(read).await.map(Rope::from)
            }
            Choice::Split(parts) => {
                let (candidates, pick) = *parts;
                let read = self.read_split(&set, started, &candidates, pick, &sync);
                Box::pin(read).await
            }
            Choice::Nobody => {
                let read = self.read_any_copy(offset_bytes, length_bytes, None);
                Box::pin(read).await.map(Rope::from)
            }
        }
    }

    /// Which copies can be read, and who of them reads. `ahead_bytes_max`: says how many bytes behind `sync` may be
    /// read with it.
    fn choose(
        &self,
        set: &MemberSet<D>,
        map: &CopyMap<'_>,
        sync: &Range<u64>,
        ahead_bytes_max: Option<&dyn Fn() -> u64>,
        now: Moment,
    ) -> Choice {
        let length_bytes = sync.end - sync.start;
        let mut candidates: Few<CopyPlace> = Few::new();
        for place in map.iter() {
            let member = place.member_offset_bytes..place.member_offset_bytes + length_bytes;
            if self
                .array
                .readable_drive(set, place.slot, &member, sync)
                .is_some()
            {
                candidates.push(place);
            }
        }
        if candidates.is_empty() {
            return Choice::Nobody;
        }
        let is_one_group = matches!(self.base.geometry().organisation(), Organisation::Raid1);
        let request = Request {
            offset_bytes: sync.start,
            length_bytes,
            group: if is_one_group { 0 } else { map.get(0).slot },
            ahead_bytes_max,
            now,
        };
        let mut balancer = self.balancer.borrow_mut();
        match balancer.pick(&request, &mut candidates) {
            Pick::Whole(place) => Choice::Whole(place),
            Pick::Ahead(place, ahead_bytes) => Choice::Ahead(place, ahead_bytes),
            pick => Choice::Split(Box::new((candidates, pick))),
        }
    }

    /// Several members read a part each.
    async fn read_split(
        &self,
        set: &MemberSet<D>,
        started: Moment,
        candidates: &[CopyPlace],
        pick: Pick,
        sync: &Range<u64>,
    ) -> Result<Rope, IoError> {
        let parts = pick.pieces(candidates, sync.end - sync.start).map(|piece| {
            let place = CopyPlace {
                slot: piece.slot,
                member_offset_bytes: piece.member_offset_bytes,
            };
            let length = usize::try_from(piece.length_bytes).expect("part of a request");
            let at = sync.start + piece.request_offset_bytes;
            self.read_copy(set, started, place, at, length)
        });
        let pieces = join_all(parts)
            .await
            .into_iter()
            .collect::<Result<_, IoError>>()?;
        Ok(Rope { pieces })
    }

    /// Reads from the chosen copy; when it cannot, from any other, and mends it. `started` is now.
    async fn read_copy(
        &self,
        set: &MemberSet<D>,
        started: Moment,
        place: CopyPlace,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Buf, IoError> {
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        let range = member_range(&place, length_bytes);
        let Some(drive) = self.array.readable_drive(set, place.slot, &range, &sync) else {
            self.read_ended(&place, started, started);
            return Box::pin(self.read_any_copy(offset_bytes, length_bytes, None)).await;
        };
        let (result, ended) = self
            .read_hedged(drive, started, range.start, offset_bytes, length_bytes)
            .await;
        self.read_ended(&place, started, ended);
        match result {
            Ok(buf) => Ok(buf),
            Err(IoError::Gone) => {
                self.array.fail_member(drive.id, FailCause::Gone);
                Box::pin(self.read_any_copy(offset_bytes, length_bytes, None)).await
            }
            Err(_) => {
                let failed = Some((Rc::clone(drive), range));
                Box::pin(self.read_any_copy(offset_bytes, length_bytes, failed)).await
            }
        }
    }

    /// Where reads ahead are wanted: how many bytes behind a read could be read with it: in the same strip, where
    /// copies are equal.
    fn ahead_bytes_max(&self, sync: &Range<u64>) -> u64 {
        if self.base.is_shared_now() {
            return 0; // others could change what is kept
        }
        let strip_end = sync.start + self.base.contiguous_bytes(sync.start);
        let end = strip_end.min(self.base.size_bytes());
        let ahead = sync.end..end.min(sync.end + crate::balance::AHEAD_BYTES_MAX);
        if !ahead.is_empty() && self.intent.is_proven(&ahead) {
            ahead.end - ahead.start
        } else {
            0
        }
    }

    /// Reads from the chosen copy what was asked for and what the stream will ask for next, which is kept.
    async fn read_ahead(
        &self,
        set: &MemberSet<D>,
        started: Moment,
        place: CopyPlace,
        asked: &Range<u64>,
        ahead_bytes: u64,
    ) -> Result<Buf, IoError> {
        let length_bytes = usize::try_from(asked.end - asked.start).expect("part of a request");
        let all_bytes = length_bytes + usize::try_from(ahead_bytes).expect("a few MiB");
        let Some(begun) = self.ahead.begin(asked.end..asked.end + ahead_bytes) else {
            return self
                .read_copy(set, started, place, asked.start, length_bytes)
                .await;
        };
        match self
            .read_copy(set, started, place, asked.start, all_bytes)
            .await
        {
            Ok(all) => {
                begun.end(all.slice(length_bytes..all_bytes));
                Ok(all.slice(0..length_bytes))
            }
            // Perhaps only what nobody has asked for is lost.
            Err(IoError::Medium) => self.read_any_copy(asked.start, length_bytes, None).await,
            Err(error) => Err(error),
        }
    }

    /// Tells the balancer that a read that it chose is answered.
    fn read_ended(&self, place: &CopyPlace, started: Moment, ended: Moment) {
        let mut balancer = self.balancer.borrow_mut();
        balancer.finished(place.slot, ended.since(started));
        balancer.answered(place.slot, place.member_offset_bytes, ended);
    }

    /// Tries the copies one after the other under the range's lock; `failed` is mended with what another copy holds.
    async fn read_any_copy(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        failed: Option<(Rc<Drive<D>>, Range<u64>)>,
    ) -> Result<Buf, IoError> {
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        if self.array.is_lent() {
            return Err(IoError::Medium);
        }
        let _lock = self.base.locks().lock(sync.clone()).await;
        let read = self.read_some_copy(offset_bytes, length_bytes, &sync);
        let CopyRead {
            data, mut broken, ..
        } = read.await?;
        if let Some(failed) = failed
            && !broken.iter().any(|(drive, _)| drive.id == failed.0.id)
        {
            broken.push(failed);
        }
        for (drive, range) in broken {
            self.array.mend(&drive, range, &data).await?;
        }
        Ok(data)
    }

    /// As `first_readable`; where no copy can be read as a whole, every sector is tried by itself: different copies may
    /// have lost different sectors.
    async fn read_some_copy(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        sync: &Range<u64>,
    ) -> Result<CopyRead<D>, IoError> {
        let sector = self.array.sector_bytes() as usize;
        match self.first_readable(offset_bytes, length_bytes, sync).await {
            Err(IoError::Medium) if length_bytes > sector => {}
            other => return other,
        }
        let mut data = self.base.pool().take(length_bytes);
        let mut all_broken: Broken<D> = Vec::new();
        for start in (0..length_bytes).step_by(sector) {
            let at = offset_bytes + start as u64;
            let piece = self
                .first_readable(at, sector, &(at..at + sector as u64))
                .await?;
            data[start..start + sector].copy_from_slice(&piece.data);
            for (drive, range) in piece.broken {
                let whole = range.start - start as u64;
                if !all_broken.iter().any(|(known, _)| known.id == drive.id) {
                    all_broken.push((drive, whole..whole + length_bytes as u64));
                }
            }
        }
        Ok(CopyRead {
            data: data.freeze(),
            source: None,
            broken: all_broken,
        })
    }

    /// The first copy in md's order that can be read, and those that could not. The caller holds the lock.
    async fn first_readable(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        sync: &Range<u64>,
    ) -> Result<CopyRead<D>, IoError> {
        let mut broken = Vec::new();
        let set = self.array.members();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            let Some(drive) = self
                .array
                .readable_drive(&set, place.slot, &range, sync)
                .cloned()
            else {
                continue;
            };
            match drive
                .read(
                    self.base.pool(),
                    self.base.clock(),
                    range.start,
                    length_bytes,
                )
                .await
            {
                Ok(buf) => {
                    return Ok(CopyRead {
                        data: buf.freeze(),
                        source: Some(drive.id),
                        broken,
                    });
                }
                Err(IoError::Gone) => self.array.fail_member(drive.id, FailCause::Gone),
                Err(_) => broken.push((drive, range)),
            }
        }
        Err(if self.array.is_frozen() {
            IoError::Failed
        } else {
            IoError::Medium
        })
    }

    /// W6: in a region that may differ, the range is made equal on all copies and flushed before it is answered.
    async fn read_equalised(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        tag: &Tag<'_>,
    ) -> Result<Buf, IoError> {
        if self.array.is_lent() {
            return Err(IoError::Medium);
        }
        tag.enter(Stage::Lock);
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        let _lock = self.base.locks().lock(sync.clone()).await;
        tag.enter(Stage::Read);
        let data = self.equalise(offset_bytes, length_bytes).await?;
        if !self.base.is_read_only() {
            tag.enter(Stage::Flush);
            if !self.base.has(Mutant::EqualWithoutFlush) {
                self.intent.flush_members().await?;
            }
            tag.enter(Stage::Settle);
            self.array.settle().await?;
            self.intent.prove(&sync);
        }
        Ok(data)
    }

    /// Makes all copies of a range inside one strip equal to a readable one. The caller holds the lock, and proves the
    /// range only after a flush: a read that came in between would otherwise answer what a crash and the loss of one
    /// copy could take back (W6).
    pub(crate) async fn equalise(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Buf, IoError> {
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        let CopyRead {
            data,
            source,
            broken,
        } = self
            .read_some_copy(offset_bytes, length_bytes, &sync)
            .await?;
        if self.base.is_read_only() || self.intent.is_proven(&sync) && broken.is_empty() {
            return Ok(data);
        }
        let set = self.array.members();
        let mut writes: Few<MemberWrite<D>> = Few::new();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            for drive in self.array.write_targets(&set, place.slot) {
                writes.push((Rc::clone(drive), range.clone(), data.clone()));
            }
        }
        // Equal to itself: the last copy is read where it does not take a write, too. Whoever was read may have failed
        // meanwhile, and the one that is left have other data.
        let is_source = |write: &MemberWrite<D>| Some(write.0.id) == source;
        if writes.len() == 1 && writes.iter().all(is_source) && broken.is_empty() {
            return Ok(data);
        }
        let outcome = self.array.write_members(writes, Fua::No).await;
        self.check_reached(&sync, outcome.reached, outcome.refusal())?;
        Ok(data)
    }
}

/// Member range of a copy.
pub(crate) fn member_range(place: &CopyPlace, length_bytes: usize) -> Range<u64> {
    place.member_offset_bytes..place.member_offset_bytes + length_bytes as u64
}
