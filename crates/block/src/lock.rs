//! Range locks: rows for parity organisations, byte ranges for copies. Exclusive, first come first served.
//!
//! Invariants:
//! - two holders never overlap;
//! - a waiter waits for every earlier waiter or holder that overlaps it, so nobody starves;
//! - a spurious poll takes nothing; a dropped waiter or guard frees its place.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::wait::Few;

/// The locks of one address space. Units are the caller's: row numbers or bytes, never mixed in one instance.
#[derive(Default)]
pub struct RangeLocks {
    inner: RefCell<Queue>,
}

#[derive(Default)]
struct Queue {
    next_ticket: u64,
    /// In order of arrival. Bounded by the number of request tags plus the background tasks.
    entries: Vec<Entry>,
    /// How many of the entries are not held.
    waiting: usize,
}

struct Entry {
    ticket: u64,
    range: Range<u64>,
    is_held: bool,
    /// Of who waits for it; of a holder: to be told when somebody wants it.
    waker: Option<Waker>,
}

fn overlaps(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

impl RangeLocks {
    /// No locks held.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until nobody who came earlier holds or wants any part of `range`.
    pub fn lock(&self, range: Range<u64>) -> RangeLock<'_> {
        assert!(range.start < range.end, "a lock covers something");
        RangeLock {
            locks: self,
            range,
            ticket: None,
        }
    }

    /// Locks one row.
    pub fn row(&self, row: u64) -> RangeLock<'_> {
        self.lock(row..row + 1)
    }

    /// Number of locks held or waited for; 0 when the volume is quiet.
    #[must_use]
    pub fn count(&self) -> usize {
        self.inner.borrow().entries.len()
    }

    fn leave(&self, ticket: u64) {
        let mut inner = self.inner.borrow_mut();
        let place = inner
            .entries
            .iter()
            .position(|entry| entry.ticket == ticket);
        let gone = inner.entries.remove(place.expect("a ticket is left once"));
        inner.waiting -= usize::from(!gone.is_held);
        if inner.waiting == 0 {
            return;
        }
        let wakers: Vec<Waker> = inner
            .entries
            .iter_mut()
            .filter(|entry| !entry.is_held && overlaps(&entry.range, &gone.range))
            .filter_map(|entry| entry.waker.take())
            .collect();
        drop(inner);
        for waker in wakers {
            waker.wake();
        }
    }
}

/// Future of [`RangeLocks::lock`].
pub struct RangeLock<'a> {
    locks: &'a RangeLocks,
    range: Range<u64>,
    ticket: Option<u64>,
}

impl<'a> Future for RangeLock<'a> {
    type Output = RangeGuard<'a>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<RangeGuard<'a>> {
        let locks = self.locks;
        let mut inner = locks.inner.borrow_mut();
        let place = match self.ticket {
            Some(ticket) => inner
                .entries
                .iter()
                .position(|entry| entry.ticket == ticket)
                .expect("a waiting ticket stays listed"),
            None => {
                let ticket = inner.next_ticket;
                inner.next_ticket += 1;
                inner.entries.push(Entry {
                    ticket,
                    range: self.range.clone(),
                    is_held: false,
                    waker: None,
                });
                inner.waiting += 1;
                self.ticket = Some(ticket);
                inner.entries.len() - 1
            }
        };
        let is_free = !inner.entries[..place]
            .iter()
            .any(|earlier| overlaps(&earlier.range, &self.range));
        if is_free {
            inner.entries[place].is_held = true;
            inner.waiting -= 1;
            let ticket = self.ticket.take().expect("ticket was taken above");
            return Poll::Ready(RangeGuard { locks, ticket });
        }
        inner.entries[place].waker = Some(cx.waker().clone());
        // Holders that would give it back when somebody wants it.
        let wakers: Few<Waker> = inner.entries[..place]
            .iter_mut()
            .filter(|earlier| earlier.is_held && overlaps(&earlier.range, &self.range))
            .filter_map(|holder| holder.waker.take())
            .collect();
        drop(inner);
        wakers.into_iter().for_each(Waker::wake);
        Poll::Pending
    }
}

impl Drop for RangeLock<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.locks.leave(ticket);
        }
    }
}

/// Proof of holding a range.
pub struct RangeGuard<'a> {
    locks: &'a RangeLocks,
    ticket: u64,
}

impl RangeGuard<'_> {
    /// Whether somebody waits for a part of the range; if nobody does, `waker` is woken when somebody begins to.
    pub fn is_wanted(&self, waker: &Waker) -> bool {
        let mut inner = self.locks.inner.borrow_mut();
        let own = |entry: &Entry| entry.ticket == self.ticket;
        let place = inner.entries.iter().position(own);
        let place = place.expect("a held ticket stays listed");
        let range = inner.entries[place].range.clone();
        let is_wanted = inner.entries[place + 1..]
            .iter()
            .any(|later| overlaps(&later.range, &range));
        if !is_wanted {
            inner.entries[place].waker = Some(waker.clone());
        }
        is_wanted
    }
}

impl Drop for RangeGuard<'_> {
    fn drop(&mut self) {
        self.locks.leave(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::poll_once;
    use std::pin::pin;

    #[test]
    fn overlapping_ranges_exclude_each_other_and_others_do_not() {
        let locks = RangeLocks::new();
        let mut a = pin!(locks.lock(0..10));
        let Poll::Ready(guard) = poll_once(a.as_mut()) else {
            panic!("free")
        };
        let mut b = pin!(locks.lock(9..12));
        let mut c = pin!(locks.lock(10..12));
        let mut d = pin!(locks.lock(20..21));
        assert!(poll_once(b.as_mut()).is_pending());
        assert!(
            poll_once(b.as_mut()).is_pending(),
            "a spurious poll takes nothing"
        );
        assert!(
            poll_once(c.as_mut()).is_pending(),
            "an earlier waiter is not overtaken"
        );
        assert!(poll_once(d.as_mut()).is_ready());
        drop(guard);
        assert!(poll_once(c.as_mut()).is_pending());
        assert!(poll_once(b.as_mut()).is_ready());
        assert!(poll_once(c.as_mut()).is_ready());
    }

    #[test]
    fn a_holder_is_told_when_somebody_begins_to_want_its_range() {
        let (locks, told) = (RangeLocks::new(), std::sync::Arc::new(Told::default()));
        let mut a = pin!(locks.lock(0..10));
        let Poll::Ready(guard) = poll_once(a.as_mut()) else {
            panic!("free")
        };
        let waker = Waker::from(std::sync::Arc::clone(&told));
        assert!(!guard.is_wanted(&waker));
        let mut apart = pin!(locks.lock(10..12));
        assert!(poll_once(apart.as_mut()).is_ready());
        assert!(!told.0.load(std::sync::atomic::Ordering::SeqCst));
        let mut b = pin!(locks.lock(9..12));
        assert!(poll_once(b.as_mut()).is_pending());
        assert!(told.0.load(std::sync::atomic::Ordering::SeqCst));
        assert!(guard.is_wanted(&waker));
    }

    #[derive(Default)]
    struct Told(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Told {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }

    #[test]
    fn a_dropped_waiter_frees_its_place() {
        let locks = RangeLocks::new();
        let mut a = pin!(locks.row(3));
        let Poll::Ready(guard) = poll_once(a.as_mut()) else {
            panic!("free")
        };
        let mut b = Box::pin(locks.row(3));
        let mut c = pin!(locks.row(3));
        assert!(poll_once(b.as_mut()).is_pending());
        assert!(poll_once(c.as_mut()).is_pending());
        drop(b);
        drop(guard);
        let Poll::Ready(_last) = poll_once(c.as_mut()) else {
            panic!("free again")
        };
        assert_eq!(locks.count(), 1);
    }
}
