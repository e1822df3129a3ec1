//! Copies: RAID-1 and RAID-10, one code. Locks are ranges of the volume.
//!
//! Invariants:
//! - all copies of a range are written under its lock, so that overlapping writes end in the same order everywhere;
//! - where copies may differ, a read makes them equal before it answers (W6), from the first copy in md's order.

use std::ops::Range;
use std::rc::Rc;

use crate::ahead::{Kept, Unread};
use crate::balance::{Pick, Request};
use crate::drive::Drive;
use crate::member_io::MemberWrite;
use crate::mutant::Mutant;
use crate::stage::{Stage, Tag};
use crate::state::{FailCause, MemberId};
use crate::volume::{MemberSet, Volume};
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

impl<D: Device, C: Clock> Volume<D, C> {
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
        let (offset_bytes, data) = match self.has(Mutant::WidenedWrites) {
            true => Box::pin(self.widened(offset_bytes, data)).await,
            false => (offset_bytes, data),
        };
        let sync = Self::copies_sync(offset_bytes, data.len() as u64);
        let _unread = self.unread(sync.clone());
        let _lock = if self.has(Mutant::NoRangeLock) {
            None
        } else {
            Some(self.locks.lock(sync.clone()).await)
        };
        tag.enter(Stage::Write);
        let set = self.members_to_write();
        let mut targets: Few<(&Rc<Drive<D>>, u64)> = Few::new();
        for place in self.geometry.copies_of(offset_bytes).iter() {
            for drive in self.write_targets(&set, place.slot) {
                targets.push((drive, place.member_offset_bytes));
            }
        }
        let outcome = self.write_same(&targets, &data, fua).await;
        self.copies_written(&sync, outcome.reached, outcome.refusal())
    }

    /// What was read ahead here is forgotten, now and when the guard is dropped: for whoever writes.
    pub(crate) fn unread(&self, range: Range<u64>) -> Unread<'_> {
        let is_kept = self.has(Mutant::AheadKeptOverWrite);
        Unread::new(&self.ahead, if is_kept { 0..0 } else { range })
    }

    fn copies_written(
        &self,
        sync: &Range<u64>,
        reached: usize,
        refused: Option<IoError>,
    ) -> Result<(), IoError> {
        self.check_reached(sync, reached, refused)?;
        self.regions.borrow_mut().prove(sync);
        Ok(())
    }

    fn check_reached(
        &self,
        sync: &Range<u64>,
        reached: usize,
        refused: Option<IoError>,
    ) -> Result<(), IoError> {
        if self.is_frozen() {
            return Err(IoError::Failed);
        }
        if let Some(error) = refused {
            if !self.has(Mutant::RefusedWriteForgotten) {
                self.regions.borrow_mut().unprove(sync);
                self.check_sharing();
            }
            self.changed.notify();
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
        let lock = self.locks.lock(sync.clone()).await;
        tag.enter(Stage::Write);
        let set = self.members();
        let mut targets: Vec<(Rc<Drive<D>>, Range<u64>)> = Vec::new();
        for place in self.geometry.copies_of(offset_bytes).iter() {
            for drive in self.write_targets(&set, place.slot) {
                targets.push((
                    Rc::clone(drive),
                    place.member_offset_bytes..place.member_offset_bytes + length_bytes,
                ));
            }
        }
        if self.has(Mutant::TrimOneCopy) {
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
                Err(IoError::Gone) => self.fail_member(drive.id, FailCause::Gone),
                Err(_) => {
                    let length = usize::try_from(length_bytes)
                        .expect("zero requests are cut to slices that fit memory");
                    writes.push((drive, range, self.pool.take_zeroed(length).freeze()));
                }
            }
        }
        let outcome = self.write_members(writes, fua).await;
        let result = self.copies_written(&sync, reached + outcome.reached, outcome.refusal());
        drop(lock);
        result
    }

    /// Whether all copies of a range are known to be equal.
    fn may_read_any(&self, sync: &Range<u64>) -> bool {
        self.regions.borrow().is_proven(sync) || self.has(Mutant::ReadUnequalCopies)
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
        let set = self.members();
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

    /// Which copies can be read, and who of them reads. `ahead_bytes_max`: says how many bytes behind `sync` may be read with it.
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
                .readable_drive(set, place.slot, &member, sync)
                .is_some()
            {
                candidates.push(place);
            }
        }
        if candidates.is_empty() {
            return Choice::Nobody;
        }
        let is_one_group = matches!(self.geometry.organisation(), Organisation::Raid1);
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
        let Some(drive) = self.readable_drive(set, place.slot, &range, &sync) else {
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
                self.fail_member(drive.id, FailCause::Gone);
                Box::pin(self.read_any_copy(offset_bytes, length_bytes, None)).await
            }
            Err(_) => {
                let failed = Some((Rc::clone(drive), range));
                Box::pin(self.read_any_copy(offset_bytes, length_bytes, failed)).await
            }
        }
    }

    /// Where reads ahead are wanted: how many bytes behind a read could be read with it: in the same strip, where copies are equal.
    fn ahead_bytes_max(&self, sync: &Range<u64>) -> u64 {
        if self.is_shared_now() {
            return 0; // others could change what is kept
        }
        let strip_end = sync.start + self.contiguous_bytes(sync.start);
        let end = strip_end.min(self.size_bytes());
        let ahead = sync.end..end.min(sync.end + crate::balance::AHEAD_BYTES_MAX);
        if !ahead.is_empty() && self.regions.borrow().is_proven(&ahead) {
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
        if self.is_lent() {
            return Err(IoError::Medium);
        }
        let _lock = self.locks.lock(sync.clone()).await;
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
            self.mend(&drive, range, &data).await?;
        }
        Ok(data)
    }

    /// As `first_readable`; where no copy can be read as a whole, every sector is tried by itself: different copies may have
    /// lost different sectors.
    async fn read_some_copy(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        sync: &Range<u64>,
    ) -> Result<CopyRead<D>, IoError> {
        let sector = self.sector_bytes() as usize;
        match self.first_readable(offset_bytes, length_bytes, sync).await {
            Err(IoError::Medium) if length_bytes > sector => {}
            other => return other,
        }
        let mut data = self.pool.take(length_bytes);
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
        let set = self.members();
        for place in self.geometry.copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            let Some(drive) = self.readable_drive(&set, place.slot, &range, sync).cloned() else {
                continue;
            };
            match drive
                .read(&self.pool, &self.clock, range.start, length_bytes)
                .await
            {
                Ok(buf) => {
                    return Ok(CopyRead {
                        data: buf.freeze(),
                        source: Some(drive.id),
                        broken,
                    });
                }
                Err(IoError::Gone) => self.fail_member(drive.id, FailCause::Gone),
                Err(_) => broken.push((drive, range)),
            }
        }
        Err(if self.is_frozen() {
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
        if self.is_lent() {
            return Err(IoError::Medium);
        }
        tag.enter(Stage::Lock);
        let sync = Self::copies_sync(offset_bytes, length_bytes as u64);
        let _lock = self.locks.lock(sync.clone()).await;
        tag.enter(Stage::Read);
        let data = self.equalise(offset_bytes, length_bytes).await?;
        if !self.options.borrow().is_read_only {
            tag.enter(Stage::Flush);
            if !self.has(Mutant::EqualWithoutFlush) {
                self.flush_members().await?;
            }
            tag.enter(Stage::Settle);
            self.settle().await?;
            self.regions.borrow_mut().prove(&sync);
        }
        Ok(data)
    }

    /// Makes all copies of a range inside one strip equal to a readable one. The caller holds the lock, and proves the range
    /// only after a flush: a read that came in between would otherwise answer what a crash and the loss of one copy could
    /// take back (W6).
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
        if self.options.borrow().is_read_only
            || self.regions.borrow().is_proven(&sync) && broken.is_empty()
        {
            return Ok(data);
        }
        let set = self.members();
        let mut writes: Few<MemberWrite<D>> = Few::new();
        for place in self.geometry.copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            for drive in self.write_targets(&set, place.slot) {
                writes.push((Rc::clone(drive), range.clone(), data.clone()));
            }
        }
        // Equal to itself: the last copy is read where it does not take a write, too. Whoever was read may have failed
        // meanwhile, and the one that is left have other data.
        let is_source = |write: &MemberWrite<D>| Some(write.0.id) == source;
        if writes.len() == 1 && writes.iter().all(is_source) && broken.is_empty() {
            return Ok(data);
        }
        let outcome = self.write_members(writes, Fua::No).await;
        self.check_reached(&sync, outcome.reached, outcome.refusal())?;
        Ok(data)
    }

    /// Whether this organisation keeps copies.
    pub(crate) fn has_copies(&self) -> bool {
        matches!(
            self.geometry.organisation(),
            Organisation::Raid1 | Organisation::Raid10(_)
        )
    }
}

/// Member range of a copy.
pub(crate) fn member_range(place: &CopyPlace, length_bytes: usize) -> Range<u64> {
    place.member_offset_bytes..place.member_offset_bytes + length_bytes as u64
}
