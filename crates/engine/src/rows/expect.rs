//! Writes that are known before they have come: a long payload takes a while to arrive, and a row that it would make
//! whole had better wait for it than be read for a part.
//!
//! Invariants:
//! - what is expected decides how long a row is collected and nothing else: no write waits for one that may never come
//!   longer than [`EXPECT_TIME_MAX`], and none at all for a while after one has waited so long in vain;
//! - a row waits before it is locked: it is in nobody's way.

use std::cell::RefCell;
use std::future::poll_fn;
use std::ops::Range;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::rows::Rows;
use crate::rows::collect::Lead;
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::wait::first;

/// Longest time that a row waits for writes that are being received. A megabyte over a socket of the same machine takes
/// a third of a millisecond.
pub(crate) const EXPECT_TIME_MAX: Duration = Duration::from_millis(2);

/// Rows that wait for nobody after one that has waited in vain.
const DOUBT: u8 = 32;

/// Writes that are being received, and who waits for them.
#[derive(Default)]
pub(crate) struct Expected {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    /// In bytes of the volume; few: one for each client at most.
    ranges: Vec<Range<u64>>,
    waiting: Vec<Waker>,
    doubt: u8,
}

impl Expected {
    fn begin(&self, range: Range<u64>) {
        self.inner.borrow_mut().ranges.push(range);
    }

    /// It has come. Rows that wait for it hear of it when it joins them.
    #[inline]
    pub(crate) fn arrived(&self, range: &Range<u64>) -> bool {
        let mut inner = self.inner.borrow_mut();
        if inner.ranges.is_empty() {
            return false;
        }
        let found = inner.ranges.iter().position(|known| known == range);
        found.map(|at| inner.ranges.swap_remove(at)).is_some()
    }

    /// Whoever waits looks again: something has joined a row, or never will.
    #[inline]
    pub(crate) fn look_again(&self) {
        let mut inner = self.inner.borrow_mut();
        if inner.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether a part of `row` (bytes of the volume) is being received that is not among `collected`.
    fn is_open(&self, row: &Range<u64>, collected: impl Fn(u64) -> bool) -> bool {
        let inner = self.inner.borrow();
        inner.ranges.iter().any(|range| {
            let (start, end) = (range.start.max(row.start), range.end.min(row.end));
            start < end && !collected(start - row.start)
        })
    }

    /// Whether rows wait at present; each that asks while they do not counts.
    fn is_worth_waiting(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let is_worth_it = inner.doubt == 0;
        inner.doubt = inner.doubt.saturating_sub(1);
        is_worth_it
    }

    fn wait_again(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.inner.borrow_mut().waiting.push(cx.waker().clone());
        Poll::Pending
    }
}

impl<D: Device, C: Clock> Rows<D, C> {
    /// A hint: a write of this range, which is inside the volume, is being received.
    pub(crate) fn expect_write(&self, range: Range<u64>) {
        if self.base.geometry().parity_count() > 0 {
            self.expected.begin(range);
        }
    }

    /// What was expected will not come.
    pub(crate) fn expect_no_write(&self, range: Range<u64>) {
        if self.expected.arrived(&range) {
            self.expected.look_again();
        }
    }

    /// Waits for writes of this row that are being received, but not for long.
    pub(crate) async fn wait_for_expected(&self, row: u64, lead: &Lead<'_>) {
        let row_bytes = self.base.geometry().row_data_bytes();
        let span = row * row_bytes..(row + 1) * row_bytes;
        let is_open = || self.expected.is_open(&span, |at_bytes| lead.has(at_bytes));
        if !is_open() || !self.expected.is_worth_waiting() {
            return;
        }
        let come = poll_fn(|cx| match is_open() {
            true => self.expected.wait_again(cx),
            false => Poll::Ready(()),
        });
        // Boxed: seldom needed, and room in the future of every write otherwise.
        Box::pin(first(come, self.base.clock().sleep(EXPECT_TIME_MAX))).await;
        if is_open() {
            self.expected.inner.borrow_mut().doubt = DOUBT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_open_while_a_part_of_it_is_received_that_nobody_has_brought() {
        let expected = Expected::default();
        let row = 100..200;
        let nothing = |_| false;
        assert!(!expected.is_open(&row, nothing));
        expected.begin(150..260);
        assert!(expected.is_open(&row, nothing));
        assert!(
            expected.is_open(&(200..300), nothing),
            "it crosses the border"
        );
        assert!(!expected.is_open(&(300..400), nothing));
        assert!(!expected.is_open(&row, |at_bytes| at_bytes == 50));
        assert!(!expected.arrived(&(150..250)), "that is another one");
        assert!(expected.arrived(&(150..260)));
        assert!(!expected.is_open(&row, nothing));
    }

    #[test]
    fn after_a_wait_in_vain_some_rows_wait_for_nobody() {
        let expected = Expected::default();
        assert!(expected.is_worth_waiting());
        expected.inner.borrow_mut().doubt = DOUBT;
        let refused = (0..100).filter(|_| !expected.is_worth_waiting());
        assert_eq!(refused.count(), usize::from(DOUBT));
    }
}
