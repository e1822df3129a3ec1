//! Hedged reads: a copy that takes longer than it nearly always does is not waited for alone (W9).
//!
//! Invariants:
//! - two slots, two buffers: the first good answer wins, the loser goes on in its device's slot and drains unseen;
//! - only copies that are known to agree are asked, or the rest of a row whose parity is proven: it does not matter who answers;
//! - a read that lost still counts as under way when it hangs: the watchman fails its member.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::threshold::Threshold;
use crate::volume::Volume;
use plexum_block::buf::Buf;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};

/// Where else the same bytes are: a drive and the offset in its data area.
type OtherCopy<D> = Option<(Rc<Drive<D>>, u64)>;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Another in-sync copy of a range inside one strip that starts at `offset_bytes` of the volume, preferably not a
    /// write-mostly one. Asked when the first copy takes too long, not before: who has the data may have changed meanwhile.
    fn other_copy(&self, drive: &Drive<D>, offset_bytes: u64, length_bytes: usize) -> OtherCopy<D> {
        let sync = offset_bytes..offset_bytes + length_bytes as u64;
        if !self.regions.borrow().is_proven(&sync) && !self.has(Mutant::HedgedReadUnproven) {
            return None;
        }
        let set = self.members();
        let copies = self.geometry.copies_of(offset_bytes);
        let mut found = None;
        for place in copies.iter() {
            let start = place.member_offset_bytes;
            let member = start..start + length_bytes as u64;
            let other = self.readable_drive(&set, place.slot, &member, &sync);
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

    /// Reads a range inside one strip from `drive`, where it starts at `start`, and from the other copy as well when that
    /// takes too long. `started` is now; says when the answer came.
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
            let read = drive.read_since(&self.pool, &self.clock, started, start, length_bytes);
            let (result, end) = read.await;
            ended.set(end);
            Ok(result?.freeze())
        };
        let second = || {
            let (other, start) = self.other_copy(drive, offset_bytes, length_bytes)?;
            let (now, ended) = (self.clock.now(), &ended);
            Some(async move {
                let read = other.read_since(&self.pool, &self.clock, now, start, length_bytes);
                let (result, end) = read.await;
                ended.set(end);
                Ok(result?.freeze())
            })
        };
        (self.race(drive, started, first, second).await, ended.get())
    }

    /// Waits for `first`, a read of `drive` that begins now, at `started`; when that takes too long also for `second`, which
    /// is begun only then, if there is one. Both are made where they stay: moving the future of an I/O costs more than the
    /// choice.
    pub(crate) async fn race<F, S>(
        &self,
        drive: &Drive<D>,
        started: Moment,
        first: impl FnOnce() -> F,
        second: impl FnOnce() -> Option<S>,
    ) -> Result<Buf, IoError>
    where
        F: Future<Output = Result<Buf, IoError>>,
        S: Future<Output = Result<Buf, IoError>>,
    {
        let mut first = pin!(first());
        let mut patience = pin!(None);
        let mut is_waiting = false;
        let early = poll_fn(|cx| {
            if let Poll::Ready(result) = first.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            if !std::mem::replace(&mut is_waiting, true) {
                // Only now: many reads are answered at once.
                let delay = drive.hedge_delay();
                patience.set(delay.map(|delay| self.clock.sleep(delay)));
            }
            match patience.as_mut().as_pin_mut() {
                Some(patience) => patience.poll(cx).map(|()| None),
                None => Poll::Pending,
            }
        });
        if let Some(result) = early.await {
            return result;
        }
        let Some(second) = second() else {
            return first.await;
        };
        self.cross(Threshold::Hedge);
        let mut second = pin!(second);
        let (result, is_second) = first_good(first.as_mut(), second.as_mut()).await;
        if is_second {
            drive.note_hedged(self.clock.now().since(started));
            if self.has(Mutant::HedgedReadAnswersTwice) {
                return Ok(self.both(&result?, &first.await?));
            }
        }
        result
    }
}

/// The first good answer, and whether it was the second one's; the first one's error when neither is good.
async fn first_good<F, S>(mut first: Pin<&mut F>, mut second: Pin<&mut S>) -> (F::Output, bool)
where
    F: Future<Output = Result<Buf, IoError>>,
    S: Future<Output = Result<Buf, IoError>>,
{
    let mut failed = None;
    let mut is_second_lost = false;
    poll_fn(|cx| {
        if failed.is_none()
            && let Poll::Ready(result) = first.as_mut().poll(cx)
        {
            match result {
                Err(error) if !is_second_lost => failed = Some(error),
                result => return Poll::Ready((result, false)),
            }
        }
        if !is_second_lost && let Poll::Ready(result) = second.as_mut().poll(cx) {
            match (result, failed) {
                (Ok(buf), None) => return Poll::Ready((Ok(buf), true)),
                // The error has to be told, so that the copy is mended or its member failed.
                (_, Some(error)) => return Poll::Ready((Err(error), false)),
                (Err(_), None) => is_second_lost = true,
            }
        }
        Poll::Pending
    })
    .await
}
