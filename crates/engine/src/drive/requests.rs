//! Requests to a drive: where they go, what they count for, the slots that they have while they are under way, and the
//! end of waiting for a drive that hangs (W9).
//!
//! Invariants:
//! - offsets given to `read` and `write` count from the data offset and stay inside the data area;
//! - `Retryable` never leaves this file;
//! - nothing is cancelled: when waiting ends early, the I/O goes on in the device's own slot with its own buffer and
//!   drains unseen; the device says with `busy` whether it has;
//! - age is counted in ticks of the watchman, not by a clock: time in which the whole program stood still is nobody's
//!   fault;
//! - a drive that hangs keeps no more than its quota of slots, so the others go on.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, Waker};

use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::busy::UnderWay;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, Extent, Fua, IoError, ZeroMode};
use plexum_block::wait::Signal;

use super::{Drive, Written};

struct Flight {
    since_tick: u64,
    waker: Option<Waker>,
}

/// The slots of one drive.
pub(super) struct Slots {
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
    pub(super) fn new(most: usize) -> Self {
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
    pub(super) fn has_waited(&self) -> bool {
        self.has_waited.get()
    }

    /// Waits for the I/O that `begin` makes, which begins when a slot is free; what was interrupted begins again, up to
    /// `retries_max` times. It is made where it stays: futures of I/Os are large, and moving one costs more than the
    /// rest of this.
    ///
    /// # Errors
    /// `Gone` once the drive was closed or abandoned; those of the I/O, `Retryable` only when all tries were in vain.
    pub(super) async fn run<T, F: Future<Output = Result<T, IoError>>>(
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
    pub(super) fn count(&self) -> usize {
        self.count.get()
    }

    /// Time passes; says how many whole ticks the oldest I/O has taken. `busy`: I/Os that the device has.
    pub(super) fn tick(&self, busy: usize) -> u64 {
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
    pub(super) fn rests(&self, busy: usize, watcher: &Waker) -> bool {
        let rests = self.count.get() == 0 && (busy == 0 || self.is_abandoned.get());
        if rests {
            *self.watcher.borrow_mut() = Some(watcher.clone());
        }
        rests
    }

    /// Somebody has stopped to wait for an I/O because another drive answered first; it still counts when it hangs.
    pub(super) fn orphan(&self) {
        if self.orphaned_tick.get().is_none() {
            self.orphaned_tick.set(Some(self.tick.get()));
        }
    }

    /// Nothing begins any more: who comes, or still waits for a slot, gets `Gone`; what is under way goes on.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
    }

    /// Whether `close` was called.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Nobody waits any more: all I/Os are answered with `Gone`, and so is every later one.
    pub(super) fn abandon(&self) {
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
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }
}

impl<D: Device> Drive<D> {
    #[inline]
    fn device_offset(&self, offset_bytes: u64, length_bytes: u64) -> u64 {
        let end = offset_bytes
            .checked_add(length_bytes)
            .expect("offsets inside the data area do not overflow");
        assert!(
            end <= self.data_size_bytes,
            "member I/O stays inside the data area of {}",
            self.name
        );
        self.data_offset_bytes + offset_bytes
    }

    /// A read or write begins, now. Says whether it goes on where the one before it ends.
    #[inline]
    fn begin<'a, C: Clock>(
        &'a self,
        clock: &'a C,
        started: Moment,
        at: u64,
        length_bytes: u64,
    ) -> (UnderWay<'a, C>, bool) {
        let is_sequential = self.position.replace(at + length_bytes) == at;
        (self.busy.begin(clock, started), is_sequential)
    }

    /// Reads `length_bytes` of the data area.
    ///
    /// # Errors
    /// `Medium` for a bad range, `Gone` when the drive is fenced or lost.
    pub async fn read(
        &self,
        pool: &BufPool,
        clock: &impl Clock,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<BufMut, IoError> {
        let started = clock.recent();
        self.read_since(pool, clock, started, offset_bytes, length_bytes)
            .await
            .0
    }

    /// As `read`, for callers who have read the clock already: `started` is now. Also says when it ended. A reading of
    /// the clock costs as much as a tenth of a read from memory.
    pub(crate) async fn read_since(
        &self,
        pool: &BufPool,
        clock: &impl Clock,
        started: Moment,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> (Result<BufMut, IoError>, Moment) {
        let at = self.device_offset(offset_bytes, length_bytes as u64);
        let (under_way, is_sequential) = self.begin(clock, started, at, length_bytes as u64);
        let read = || self.device.read(at, pool.take(length_bytes));
        let result = self.slots.run(self.retries_max.get(), read).await;
        let result = result.map_err(in_vain);
        let ended = clock.now();
        under_way.end(ended);
        let took_ns = ended.ns_since(started);
        self.reads
            .add(length_bytes as u64, took_ns, result.is_ok(), is_sequential);
        (result, ended)
    }

    /// Writes to the data area.
    ///
    /// # Errors
    /// `Medium`, `Gone`, `NoSpace`.
    pub async fn write(
        &self,
        clock: &impl Clock,
        offset_bytes: u64,
        data: &Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        let started = clock.recent();
        let write = self.write_since(clock, started, offset_bytes, data, fua);
        write.await.note(clock.now())
    }

    /// As `write`, for callers who read the clock for several writes together: `started` is now, and what comes back
    /// has to be told when it ended.
    pub(crate) async fn write_since<'a, C: Clock>(
        &'a self,
        clock: &'a C,
        started: Moment,
        offset_bytes: u64,
        data: &Buf,
        fua: Fua,
    ) -> Written<'a, C> {
        let at = self.device_offset(offset_bytes, data.len() as u64);
        let length_bytes = data.len() as u64;
        let (under_way, is_sequential) = self.begin(clock, started, at, length_bytes);
        let write = || self.device.write(at, data.clone(), fua);
        let result = self.slots.run(self.retries_max.get(), write).await;
        Written {
            result: result.map_err(in_vain),
            tally: &self.writes,
            under_way,
            started,
            length_bytes,
            is_sequential,
        }
    }

    /// Writes anywhere on the device: superblocks, bitmap, bad-block list.
    ///
    /// # Errors
    /// As `write`.
    pub async fn write_device(&self, at_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let count = &self.writes.errors;
        let write = || self.device.write(at_bytes, data.clone(), fua);
        let written = self.slots.run(self.retries_max.get(), write).await;
        let written = written.map_err(in_vain);
        written.inspect_err(|_| count.set(count.get() + 1))
    }

    /// Reads anywhere on the device, for metadata.
    ///
    /// # Errors
    /// As `read`.
    pub async fn read_device(
        &self,
        pool: &BufPool,
        at_bytes: u64,
        length_bytes: usize,
    ) -> Result<BufMut, IoError> {
        let read = || self.device.read(at_bytes, pool.take(length_bytes));
        let result = self.slots.run(self.retries_max.get(), read).await;
        result.map_err(in_vain)
    }

    /// Makes a data range zero without a payload.
    ///
    /// # Errors
    /// `Unsupported` when the device does not guarantee zeroes (W11).
    pub async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        let at = self.device_offset(offset_bytes, length_bytes);
        if self.slots.is_closed() {
            return Err(IoError::Gone);
        }
        if !self.device.info().has_zeroing_trim {
            return Err(IoError::Unsupported);
        }
        let zero = || self.device.zero(at, length_bytes, mode);
        self.slots.run(0, zero).await
    }

    /// What is known of a data range without reading it; anything that is not known is data.
    pub async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Vec<Extent> {
        let at = self.device_offset(offset_bytes, length_bytes);
        let extents = || self.device.extents(at, length_bytes, extents_max);
        match self.slots.run(0, extents).await {
            Ok(extents) if !extents.is_empty() => extents,
            _ => vec![Extent {
                length_bytes,
                is_hole: false,
                is_zero: false,
            }],
        }
    }

    /// Flushes; never retried (W13). After an error every further flush fails too, those under way included: the device
    /// may have dropped what it could not write, and a later success would say that this is durable, before whoever
    /// began the failed one has come round to failing the member.
    ///
    /// # Errors
    /// Any error means that the drive must be failed.
    pub async fn flush(&self) -> Result<(), IoError> {
        if self.slots.is_closed() {
            return Err(IoError::Gone);
        }
        let result = self.slots.run(0, || self.device.flush()).await;
        self.flushes.set(self.flushes.get() + 1);
        let known = self.flush_error.get();
        self.flush_error.set(known.or(result.err()));
        self.flush_error.get().map_or(Ok(()), Err)
    }

    /// Whether the device is still what was opened.
    ///
    /// # Errors
    /// `Gone` when it is not.
    pub async fn check(&self) -> Result<(), IoError> {
        self.slots.run(0, || self.device.check()).await
    }
}

/// What was interrupted again and again is an error of the medium: `Retryable` never leaves this file.
#[inline]
fn in_vain(error: IoError) -> IoError {
    match error {
        IoError::Retryable => IoError::Medium,
        error => error,
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
