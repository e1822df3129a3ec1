//! Steps of a job that are under way at once, so that members on disk always have the next one asked of them.
//!
//! Invariants:
//! - results come out in the order in which steps went in: a cursor never passes what is not done;
//! - steps are polled while their job waits for anything else: none holds a lock that nobody works to give back;
//! - no step is ever dropped while it is under way (W9): `rest` ends them.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::task::Poll;

use crate::threshold::Threshold;
use crate::upkeep::FOREGROUND_WINDOW;
use crate::upkeep::Upkeep;

use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::wait::{Part, poll_parts};

/// Memory of all steps of a job that are under way at once, in bytes.
const AHEAD_BYTES: u64 = 32 << 20;

/// Steps of a job that are under way at once, at most.
const STEPS_MAX: u64 = 32;

/// Steps under way, the oldest first.
pub(crate) struct Steps<F: Future> {
    queue: VecDeque<Part<F>>,
}

impl<F: Future> Steps<F> {
    pub fn new() -> Self {
        Self {
            queue: VecDeque::new(),
        }
    }

    /// Begins a step; it moves when anything of this is awaited.
    pub fn push(&mut self, step: F) {
        self.queue.push_back(Part::Running(Box::pin(step)));
    }

    /// The result of the oldest step; `None` when there is none.
    pub async fn next(&mut self) -> Option<F::Output> {
        poll_fn(|cx| {
            poll_parts(&mut self.queue, cx);
            match self.take_done() {
                None if !self.is_empty() => Poll::Pending,
                output => Poll::Ready(output),
            }
        })
        .await
    }

    /// Whether none is under way, and no result waits to be taken.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The result of the oldest step if it is done by now.
    pub fn take_done(&mut self) -> Option<F::Output> {
        match self.queue.pop_front()? {
            Part::Done(output) => Some(output),
            under_way => {
                self.queue.push_front(under_way);
                None
            }
        }
    }

    /// Waits for something else while the steps go on.
    pub async fn during<R>(&mut self, other: impl Future<Output = R>) -> R {
        let mut other = pin!(other);
        poll_fn(|cx| {
            poll_parts(&mut self.queue, cx);
            other.as_mut().poll(cx)
        })
        .await
    }

    /// Waits until none is under way; their results are nobody's.
    pub async fn rest(mut self) {
        while self.next().await.is_some() {}
    }
}

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Begins as many steps of what lies ahead as may be under way beside `steps`: the first one always. `end_of` says
    /// where the step ends that begins at a byte.
    pub(super) fn begin_steps<F: Future>(
        &self,
        steps: &mut Steps<F>,
        ahead: &mut Range<u64>,
        end_of: impl Fn(u64) -> u64,
        step: impl Fn(Range<u64>) -> F,
    ) {
        while !ahead.is_empty() {
            let range = ahead.start..end_of(ahead.start);
            assert!(
                range.start < range.end && range.end <= ahead.end,
                "a step goes forward, inside of what is ahead"
            );
            let step_bytes = range.end - range.start;
            if !steps.is_empty() && steps.queue.len() >= self.steps_at_once(step_bytes) {
                return;
            }
            ahead.start = range.end;
            steps.push(step(range));
        }
    }

    /// End of the step of a scrub or a resync that begins at `at` of the sync space, at `end` at the latest: what is
    /// one piece of every copy, or rows.
    pub(super) fn sync_step_end(&self, at: u64, end: u64) -> u64 {
        let piece_end = at + self.piece_bytes();
        if self.base.has_copies() {
            let volume_end = self.base.size_bytes().min(end);
            if at >= volume_end {
                return end; // the sync space may be rounded up beyond the volume
            }
            let strip_end = at + self.base.geometry().copies_of(at).length_bytes;
            if piece_end < strip_end.min(volume_end) {
                self.base.cross(Threshold::Pieces);
            }
            return strip_end.min(piece_end).min(volume_end);
        }
        let rows = self
            .rows_at_once(self.base.geometry().row_count() * self.base.geometry().strip_bytes());
        let rows_end = self.rows_end(at, rows).min(end);
        if rows == 1 {
            rows_end.min(piece_end)
        } else {
            rows_end
        }
    }

    /// Whether clients wait for the members, or have just done so.
    pub(super) fn is_in_foreground(&self) -> bool {
        let last = self.traffic.last_request();
        last.0 > 0 && self.base.clock().now().since(last) < FOREGROUND_WINDOW
    }

    /// How many steps of `step_bytes` of each member may be under way. Where clients wait for the members it is one;
    /// where members are in memory, which is copying by this thread, it is one too.
    fn steps_at_once(&self, step_bytes: u64) -> usize {
        if self.is_in_foreground() || self.array.is_in_memory() {
            return 1;
        }
        let members = u64::from(self.array.state().slot_count) + 1;
        let row_bytes = step_bytes.max(1) * members;
        usize::try_from((AHEAD_BYTES / row_bytes).clamp(1, STEPS_MAX)).expect("a few steps")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use plexum_block::wait::Signal;
    use plexum_block::wait::poll_once;

    #[test]
    fn results_come_in_the_order_of_the_steps_whichever_is_done_first() {
        let (signal, open) = (Signal::new(), Cell::new(usize::MAX));
        let set = |index| {
            open.set(index);
            signal.notify();
        };
        let step = async |index: usize| {
            signal.until(|| open.get() == index || index == 1).await;
            index
        };
        let mut steps = Steps::new();
        (0..3).for_each(|index| steps.push(step(index)));
        assert_eq!(steps.queue.len(), 3);
        {
            let mut next = pin!(steps.next());
            assert!(
                poll_once(next.as_mut()).is_pending(),
                "step 1 alone is done"
            );
            set(0);
            assert_eq!(poll_once(next.as_mut()), Poll::Ready(Some(0)));
        }
        assert_eq!(poll_once(pin!(steps.next())), Poll::Ready(Some(1)));
        assert!(poll_once(pin!(steps.next())).is_pending());
        set(2);
        assert_eq!(poll_once(pin!(steps.next())), Poll::Ready(Some(2)));
        assert_eq!(poll_once(pin!(steps.next())), Poll::Ready(None));
    }

    #[test]
    fn steps_go_on_while_their_job_waits_for_something_else() {
        let done = Cell::new(0);
        let mut steps = Steps::new();
        steps.push(async { done.set(done.get() + 1) });
        assert!(steps.take_done().is_none(), "nobody has waited yet");
        let never = std::future::pending::<()>();
        assert!(poll_once(pin!(steps.during(never))).is_pending());
        assert_eq!(done.get(), 1);
        assert!(!steps.is_empty(), "its result waits to be taken");
        assert!(steps.take_done().is_some());
        assert!(steps.is_empty());
    }
}
