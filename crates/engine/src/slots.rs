//! The I/Os that one drive has under way: how many, how old, and the end of waiting for a drive that hangs (W9).
//!
//! Invariants:
//! - nothing is cancelled: when waiting ends early, the I/O goes on in the device's own slot with its own buffer and
//!   drains unseen; the device says with `busy` whether it has;
//! - age is counted in ticks of the watchman, not by a clock: time in which the whole program stood still is nobody's
//!   fault;
//! - a drive that hangs keeps no more than its quota of slots, so the others go on.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use plexum_block::device::IoError;
use plexum_block::wait::Signal;

struct Flight {
    since_tick: u64,
    waker: Option<Waker>,
}

/// The slots of one drive.
pub(crate) struct Slots {
    most: usize,
    has_waited: Cell<bool>,
    flights: RefCell<Vec<Option<Flight>>>,
    count: Cell<usize>,
    tick: Cell<u64>,
    is_abandoned: Cell<bool>,
    /// Nothing begins any more.
    is_closed: Cell<bool>,
    /// When the oldest I/O began that nobody waits for and that the device may still have.
    orphaned_tick: Cell<Option<u64>>,
    freed: Signal,
    /// The watchman, while there is nothing to watch.
    watcher: RefCell<Option<Waker>>,
}

/// One slot in use.
struct Place<'a> {
    slots: &'a Slots,
    index: usize,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.slots.flights.borrow_mut()[self.index] = None;
        let count = self.slots.count.get();
        self.slots.count.set(count - 1);
        if count == self.slots.most {
            self.slots.freed.notify();
        }
    }
}

impl Place<'_> {
    /// Whoever waits for the I/O may do so with another waker than before.
    fn waits(&self, waker: &Waker) {
        let mut flights = self.slots.flights.borrow_mut();
        if let Some(flight) = &mut flights[self.index]
            && !flight
                .waker
                .as_ref()
                .is_some_and(|own| own.will_wake(waker))
        {
            flight.waker = Some(waker.clone());
        }
    }
}

impl Slots {
    /// So many of them, all free.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            has_waited: Cell::default(),
            flights: RefCell::default(),
            count: Cell::default(),
            tick: Cell::default(),
            is_abandoned: Cell::default(),
            is_closed: Cell::default(),
            orphaned_tick: Cell::default(),
            freed: Signal::default(),
            watcher: RefCell::default(),
        }
    }

    /// Whether some I/O had to wait for a slot.
    pub(crate) fn has_waited(&self) -> bool {
        self.has_waited.get()
    }

    /// Waits for the I/O that `begin` makes, which begins when a slot is free; what was interrupted begins again, up to
    /// `retries_max` times. It is made where it stays: futures of I/Os are large, and moving one costs more than the
    /// rest of this.
    ///
    /// # Errors
    /// `Gone` once the drive was closed or abandoned; those of the I/O, `Retryable` only when all tries were in vain.
    pub(crate) async fn run<T, F: Future<Output = Result<T, IoError>>>(
        &self,
        retries_max: u32,
        begin: impl Fn() -> F,
    ) -> Result<T, IoError> {
        let mut tries = 0;
        loop {
            if self.count.get() >= self.most {
                self.has_waited.set(true);
                let is_free = || self.count.get() < self.most || self.is_abandoned.get();
                self.freed.until(is_free).await;
            }
            if self.is_closed.get() || self.is_abandoned.get() {
                return Err(IoError::Gone);
            }
            let mut io = pin!(begin());
            // Who is answered at once never takes a slot: nobody could have seen it.
            let mut place: Option<Place<'_>> = None;
            let result = poll_fn(|cx| {
                if self.is_abandoned.get() {
                    return Poll::Ready(Err(IoError::Gone));
                }
                let result = io.as_mut().poll(cx);
                if result.is_pending() {
                    match &place {
                        None => place = Some(self.enter(cx.waker())),
                        Some(place) => place.waits(cx.waker()),
                    }
                }
                result
            })
            .await;
            if tries == retries_max || !matches!(result, Err(IoError::Retryable)) {
                return result;
            }
            tries += 1;
        }
    }

    fn enter(&self, waker: &Waker) -> Place<'_> {
        let flight = Flight {
            since_tick: self.tick.get(),
            waker: Some(waker.clone()),
        };
        if let Some(watcher) = self.watcher.take() {
            watcher.wake();
        }
        let mut flights = self.flights.borrow_mut();
        let free = flights.iter().position(Option::is_none);
        let index = free.unwrap_or(flights.len());
        if index == flights.len() {
            flights.push(None);
        }
        flights[index] = Some(flight);
        self.count.set(self.count.get() + 1);
        Place { slots: self, index }
    }

    /// I/Os that somebody waits for.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Time passes; says how many whole ticks the oldest I/O has taken. `busy`: I/Os that the device has.
    pub(crate) fn tick(&self, busy: usize) -> u64 {
        let now = self.tick.get() + 1;
        self.tick.set(now);
        if busy <= self.count.get() {
            self.orphaned_tick.set(None);
        }
        let flights = self.flights.borrow();
        let waited_for = flights.iter().flatten().map(|flight| flight.since_tick);
        let oldest = waited_for.chain(self.orphaned_tick.get()).min();
        // The first tick after its start may have come at once.
        oldest.map_or(0, |since| now - since - 1)
    }

    /// Whether nothing is under way that ticks could count. If so, `watcher` is woken when that changes. `busy`: I/Os
    /// that the device has.
    pub(crate) fn rests(&self, busy: usize, watcher: &Waker) -> bool {
        let rests = self.count.get() == 0 && (busy == 0 || self.is_abandoned.get());
        if rests {
            *self.watcher.borrow_mut() = Some(watcher.clone());
        }
        rests
    }

    /// Somebody has stopped to wait for an I/O because another drive answered first; it still counts when it hangs.
    pub(crate) fn orphan(&self) {
        if self.orphaned_tick.get().is_none() {
            self.orphaned_tick.set(Some(self.tick.get()));
        }
    }

    /// Nothing begins any more: who comes, or still waits for a slot, gets `Gone`; what is under way goes on.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Whether `close` was called.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Nobody waits any more: all I/Os are answered with `Gone`, and so is every later one.
    pub(crate) fn abandon(&self) {
        self.is_abandoned.set(true);
        let mut wakers = Vec::new();
        for flight in self.flights.borrow_mut().iter_mut().flatten() {
            wakers.extend(flight.waker.take());
        }
        for waker in wakers {
            waker.wake();
        }
        self.freed.notify();
    }

    /// Whether `abandon` was called.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_block::wait::join_all;
    use plexum_block::wait::poll_once;

    async fn never() -> Result<(), IoError> {
        std::future::pending().await
    }

    const SLOTS_MAX: usize = 256;

    #[test]
    fn an_abandoned_io_ends_at_once_and_no_later_one_begins() {
        let slots = Slots::new(SLOTS_MAX);
        let mut waiting = pin!(slots.run(0, never));
        assert!(poll_once(waiting.as_mut()).is_pending());
        assert!(poll_once(waiting.as_mut()).is_pending());
        assert_eq!((slots.count(), slots.tick(1), slots.tick(1)), (1, 0, 1));
        slots.abandon();
        assert_eq!(poll_once(waiting.as_mut()), Poll::Ready(Err(IoError::Gone)));
        let mut later = pin!(slots.run(0, || async { Ok(()) }));
        assert_eq!(poll_once(later.as_mut()), Poll::Ready(Err(IoError::Gone)));
        assert_eq!((slots.count(), slots.tick(0)), (0, 0));
    }

    #[test]
    fn an_io_that_lost_a_race_ages_until_the_device_has_none_left() {
        let slots = Slots::new(SLOTS_MAX);
        slots.orphan();
        assert_eq!((slots.tick(1), slots.tick(1), slots.tick(1)), (0, 1, 2));
        assert_eq!((slots.tick(0), slots.tick(1)), (0, 0));
    }

    #[test]
    fn who_waits_for_a_slot_when_the_drive_is_fenced_does_not_begin() {
        let slots = Slots::new(SLOTS_MAX);
        let gate = Signal::new();
        let is_open = Cell::new(false);
        let io = || async {
            gate.until(|| is_open.get()).await;
            Ok(())
        };
        let mut first = pin!(join_all((0..SLOTS_MAX).map(|_| slots.run(0, io))));
        assert!(poll_once(first.as_mut()).is_pending());
        let begun = Cell::new(false);
        let late = || {
            begun.set(true);
            io()
        };
        let mut late = pin!(slots.run(0, late));
        assert!(poll_once(late.as_mut()).is_pending());
        slots.close();
        is_open.set(true);
        gate.notify();
        while poll_once(first.as_mut()).is_pending() {}
        assert_eq!(poll_once(late.as_mut()), Poll::Ready(Err(IoError::Gone)));
        assert!(!begun.get());
    }

    #[test]
    fn the_io_beyond_the_quota_waits_until_a_slot_is_free() {
        let slots = Slots::new(SLOTS_MAX);
        let gate = Signal::new();
        let is_open = Cell::new(false);
        let begun = Cell::new(0);
        let io = || async {
            begun.set(begun.get() + 1);
            gate.until(|| is_open.get()).await;
            Ok(())
        };
        let mut all = pin!(join_all((0..SLOTS_MAX + 3).map(|_| slots.run(0, io))));
        assert!(poll_once(all.as_mut()).is_pending());
        assert_eq!((begun.get(), slots.count()), (SLOTS_MAX, SLOTS_MAX));
        is_open.set(true);
        gate.notify();
        while poll_once(all.as_mut()).is_pending() {}
        assert_eq!((begun.get(), slots.count()), (SLOTS_MAX + 3, 0));
    }
}
