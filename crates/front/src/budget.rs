//! Memory for requests in flight, shared by all clients: who wants more waits, and reads no further.
//!
//! Invariants:
//! - `used_bytes` is the sum of all living permits; it exceeds `bytes_max` only by overdrafts, at most
//!   `OVERDRAFT_BYTES` for each client that holds nothing else;
//! - permits are given in the order in which they were asked for, so that large requests do not starve;
//! - a dropped permit, or a dropped wait for one, leaves nothing behind.
//!
//! The overdraft is why one client that holds everything (its client reads no answers) cannot stop small requests of
//! the others; a client that stands in the way of large ones is found by `pressure`.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::export::REQUEST_BYTES_MAX;

/// Largest request in bytes that a client holding nothing gets although the budget is used up.
pub const OVERDRAFT_BYTES: u64 = 1 << 20;

/// What a client that asks for memory holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// No permit: a small one it gets at once.
    Nothing,
    /// Some.
    Something,
}

/// A budget; clones share it. Belongs to one thread.
#[derive(Clone)]
pub struct Budget(Rc<Ledger>);

struct Ledger {
    bytes_max: u64,
    used_bytes: Cell<u64>,
    tickets: Cell<u64>,
    waiting: RefCell<VecDeque<(u64, Waker)>>,
    watchers: RefCell<VecDeque<(u64, Waker)>>,
}

impl Budget {
    /// A budget of `bytes_max` bytes; raised to two largest requests when it is less.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        Self(Rc::new(Ledger {
            bytes_max: bytes_max.max(2 * u64::from(REQUEST_BYTES_MAX)),
            used_bytes: Cell::new(0),
            tickets: Cell::new(0),
            waiting: RefCell::default(),
            watchers: RefCell::default(),
        }))
    }

    /// Bytes of all permits given.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.used_bytes.get()
    }

    /// Waits for `bytes`, at most `REQUEST_BYTES_MAX` and a little.
    pub fn acquire(&self, bytes: u64, holds: Holds) -> Acquire<'_> {
        Acquire {
            budget: self,
            bytes,
            may_overdraw: holds == Holds::Nothing && bytes <= OVERDRAFT_BYTES,
            ticket: None,
        }
    }

    /// Returns when somebody waits for memory.
    pub fn pressure(&self) -> Pressure<'_> {
        Pressure {
            budget: self,
            ticket: None,
        }
    }

    /// How many clients wait for memory.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.0.waiting.borrow().len()
    }

    fn ticket(&self) -> u64 {
        let ticket = self.0.tickets.get();
        self.0.tickets.set(ticket + 1);
        ticket
    }

    fn fits(&self, bytes: u64) -> bool {
        self.used_bytes()
            .checked_add(bytes)
            .is_some_and(|sum| sum <= self.0.bytes_max)
    }

    fn give(&self, bytes: u64) -> Permit {
        self.0.used_bytes.set(self.used_bytes() + bytes);
        Permit {
            budget: self.clone(),
            bytes,
        }
    }

    fn wake_first(&self) {
        let first = self
            .0
            .waiting
            .borrow()
            .front()
            .map(|(_, waker)| waker.clone());
        if let Some(first) = first {
            first.wake();
        }
    }
}

/// Bytes of the budget; given back by `drop`.
pub struct Permit {
    budget: Budget,
    bytes: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let used = self.budget.used_bytes();
        assert!(used >= self.bytes, "permits add up to what is used");
        self.budget.0.used_bytes.set(used - self.bytes);
        self.budget.wake_first();
    }
}

/// Wait for a permit. Any number of polls without a reason is harmless: only the first in the queue is served.
pub struct Acquire<'a> {
    budget: &'a Budget,
    bytes: u64,
    may_overdraw: bool,
    ticket: Option<u64>,
}

impl Future for Acquire<'_> {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        let budget = self.budget;
        let mut waiting = budget.0.waiting.borrow_mut();
        let is_first = match self.ticket {
            None => waiting.is_empty(),
            Some(ticket) => waiting.front().is_some_and(|(first, _)| *first == ticket),
        };
        if self.may_overdraw || (is_first && budget.fits(self.bytes)) {
            drop(waiting);
            self.leave();
            return Poll::Ready(budget.give(self.bytes));
        }
        if let Some(ticket) = self.ticket {
            for (other, waker) in waiting.iter_mut().filter(|(other, _)| *other == ticket) {
                debug_assert_eq!(*other, ticket);
                waker.clone_from(cx.waker());
            }
            return Poll::Pending;
        }
        let ticket = budget.ticket();
        waiting.push_back((ticket, cx.waker().clone()));
        drop(waiting);
        self.ticket = Some(ticket);
        let watchers = std::mem::take(&mut *budget.0.watchers.borrow_mut());
        for (_, watcher) in watchers {
            watcher.wake();
        }
        Poll::Pending
    }
}

impl Acquire<'_> {
    /// Leaves the queue, and lets the next one look whether it fits.
    fn leave(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.budget
                .0
                .waiting
                .borrow_mut()
                .retain(|(other, _)| *other != ticket);
            self.budget.wake_first();
        }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Wait until somebody waits for memory.
pub struct Pressure<'a> {
    budget: &'a Budget,
    ticket: Option<u64>,
}

impl Future for Pressure<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.budget.waiters() > 0 {
            return Poll::Ready(());
        }
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => self.budget.ticket(),
        };
        self.ticket = Some(ticket);
        let mut watchers = self.budget.0.watchers.borrow_mut();
        watchers.retain(|(other, _)| *other != ticket);
        watchers.push_back((ticket, cx.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Pressure<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.budget
                .0
                .watchers
                .borrow_mut()
                .retain(|(other, _)| *other != ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    const MAX: u64 = 2 * REQUEST_BYTES_MAX as u64;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn ready<T>(poll: Poll<T>) -> Option<T> {
        match poll {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn permits_come_in_order_whatever_is_polled_without_a_reason() {
        let budget = Budget::new(0);
        let all = ready(poll(pin!(budget.acquire(MAX, Holds::Something)))).expect("free");
        let mut large = pin!(budget.acquire(MAX - 10, Holds::Something));
        let mut small = pin!(budget.acquire(5, Holds::Something));
        for _ in 0..3 {
            assert!(poll(large.as_mut()).is_pending());
            assert!(poll(small.as_mut()).is_pending());
        }
        drop(all);
        assert!(poll(small.as_mut()).is_pending(), "it is not its turn");
        let large = ready(poll(large.as_mut())).expect("first and fitting");
        let small = ready(poll(small.as_mut())).expect("first now");
        assert_eq!(budget.used_bytes(), MAX - 5);
        drop((large, small));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn who_comes_later_does_not_pass_although_it_would_fit() {
        let budget = Budget::new(0);
        let half = ready(poll(pin!(budget.acquire(MAX / 2, Holds::Something)))).expect("free");
        let mut large = pin!(budget.acquire(MAX, Holds::Something));
        assert!(poll(large.as_mut()).is_pending());
        let mut small = pin!(budget.acquire(1, Holds::Something));
        assert!(poll(small.as_mut()).is_pending());
        drop(half);
        assert!(poll(large.as_mut()).is_ready());
    }

    #[test]
    fn a_small_request_of_a_session_that_holds_nothing_never_waits() {
        let budget = Budget::new(0);
        let all = ready(poll(pin!(budget.acquire(MAX, Holds::Something)))).expect("free");
        assert!(poll(pin!(budget.acquire(OVERDRAFT_BYTES + 1, Holds::Nothing))).is_pending());
        assert!(poll(pin!(budget.acquire(1, Holds::Something))).is_pending());
        let overdraft =
            ready(poll(pin!(budget.acquire(OVERDRAFT_BYTES, Holds::Nothing)))).expect("allowed");
        assert_eq!(budget.used_bytes(), MAX + OVERDRAFT_BYTES);
        drop(all);
        drop(overdraft);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn a_dropped_wait_lets_the_next_one_pass_and_ends_the_pressure() {
        let budget = Budget::new(0);
        let all = ready(poll(pin!(budget.acquire(MAX, Holds::Something)))).expect("free");
        let mut pressure = pin!(budget.pressure());
        assert!(poll(pressure.as_mut()).is_pending());
        {
            let mut gone = pin!(budget.acquire(MAX, Holds::Something));
            assert!(poll(gone.as_mut()).is_pending());
            assert!(poll(pressure.as_mut()).is_ready());
            let mut next = pin!(budget.acquire(1, Holds::Something));
            assert!(poll(next.as_mut()).is_pending());
            drop(all);
            gone.set(budget.acquire(MAX, Holds::Something));
            assert!(poll(next.as_mut()).is_ready());
        }
        assert_eq!(budget.waiters(), 0);
        assert_eq!(budget.used_bytes(), 0);
    }
}
