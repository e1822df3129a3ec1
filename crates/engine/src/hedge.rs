//! Hedged reads: a copy that takes longer than it nearly always does is not waited for alone (W9).
//!
//! Invariants:
//! - two slots, two buffers: the first good answer wins, the loser goes on in its device's slot and drains unseen;
//! - only copies that are known to agree are asked, or the rest of a row whose parity is proven: it does not matter who answers;
//! - a read that lost still counts as under way when it hangs: the watchman fails its member.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use crate::buf::Buf;
use crate::clock::Clock;
use crate::device::{Device, IoError};
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::volume::{MemberSet, Volume};

/// Where else the same bytes are: a drive and the offset in its data area.
pub(crate) type OtherCopy<D> = Option<(Rc<Drive<D>>, u64)>;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Another in-sync copy of a range inside one strip, preferably not a write-mostly one.
    pub(crate) fn other_copy(
        &self,
        set: &MemberSet<D>,
        drive: &Rc<Drive<D>>,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> OtherCopy<D> {
        let sync = offset_bytes..offset_bytes + length_bytes as u64;
        if drive.hedge_delay().is_none() || !self.regions.borrow().is_proven(&sync) {
            return None;
        }
        let copies = self.geometry.copies_of(offset_bytes);
        let mut found = None;
        for place in copies.iter() {
            let start = place.member_offset_bytes;
            let member = start..start + length_bytes as u64;
            let other = self.readable_drive(set, place.slot, &member, &sync);
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

    /// Reads from `drive`, and from the other copy as well when that takes too long.
    pub(crate) async fn read_hedged(
        &self,
        drive: &Rc<Drive<D>>,
        start: u64,
        other: OtherCopy<D>,
        length_bytes: usize,
    ) -> Result<Buf, IoError> {
        let read = |drive: Rc<Drive<D>>, start: u64| async move {
            let read = drive.read(&self.pool, &self.clock, start, length_bytes);
            Ok(read.await?.freeze())
        };
        match other {
            None => read(Rc::clone(drive), start).await,
            Some((other, other_start)) => {
                let first = || read(Rc::clone(drive), start);
                self.race(drive, first, || read(other, other_start)).await
            }
        }
    }

    /// Waits for `first`, a read of `drive`; when that takes too long also for `second`, which is begun only then. Both are
    /// made where they stay: moving the future of an I/O costs more than the choice.
    pub(crate) async fn race<F, S>(
        &self,
        drive: &Rc<Drive<D>>,
        first: impl FnOnce() -> F,
        second: impl FnOnce() -> S,
    ) -> Result<Buf, IoError>
    where
        F: Future<Output = Result<Buf, IoError>>,
        S: Future<Output = Result<Buf, IoError>>,
    {
        let mut first = pin!(first());
        let Some(delay) = drive.hedge_delay() else {
            return first.await;
        };
        let started = self.clock.now();
        let mut patience = pin!(self.clock.sleep(delay));
        let early = poll_fn(|cx| match first.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending => patience.as_mut().poll(cx).map(|()| None),
        });
        if let Some(result) = early.await {
            return result;
        }
        let mut second = pin!(second());
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
