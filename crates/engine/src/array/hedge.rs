//! Hedged reads: a copy that takes longer than it nearly always does is not waited for alone (W9).
//!
//! Invariants:
//! - two slots, two buffers: the first good answer wins, the loser goes on in its device's slot and drains unseen;
//! - only copies that are known to agree are asked, or the rest of a row whose parity is proven: it does not matter who
//!   answers;
//! - a read that lost still counts as under way when it hangs: the watchman fails its member.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;

use super::Array;
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::threshold::Threshold;

use plexum_block::buf::Buf;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};

impl<D: Device, C: Clock> Array<D, C> {
    /// `HedgedReadAnswersTwice`: one answer of two.
    fn both(&self, one: &[u8], other: &[u8]) -> Buf {
        self.base.pool().copy_of(&[one, other].concat()).freeze()
    }

    /// Waits for `first`, a read of `drive` that begins now, at `started`; when that takes too long also for `second`,
    /// which is begun only then, if there is one. Both are made where they stay: moving the future of an I/O costs more
    /// than the choice.
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
                patience.set(delay.map(|delay| self.base.clock().sleep(delay)));
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
        self.base.cross(Threshold::Hedge);
        let mut second = pin!(second);
        let (result, is_second) = first_good(first.as_mut(), second.as_mut()).await;
        if is_second {
            drive.note_hedged(self.base.clock().now().since(started));
            if self.base.has(Mutant::HedgedReadAnswersTwice) {
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
