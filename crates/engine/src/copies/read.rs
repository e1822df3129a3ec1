//! Reads of copies: who is asked, what is read ahead, and a second one when the first takes too long.
//!
//! Invariant: a copy answers by itself only where all copies are known to be equal, or nobody could tell them apart.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use super::ahead::Kept;
use super::{Copies, member_range};
use crate::array::MemberSet;
use crate::balance::{Pick, Request};
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::stage::Tag;
use crate::state::FailCause;
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};
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

/// Where else the same bytes are: a drive and the offset in its data area.
type OtherCopy<D> = Option<(Rc<Drive<D>>, u64)>;

impl<D: Device, C: Clock> Copies<D, C> {
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
}
