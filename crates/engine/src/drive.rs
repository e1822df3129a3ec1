//! A drive in use: its device, the place of its data, retries, counters, bad blocks.
//!
//! Invariants:
//! - a bad range that was written again can be read at once, but is off the durable list only after a flush (W2);
//! - a fenced drive answers `Gone` to everything new; what is in flight drains unseen (W9);
//! - whoever waits for an abandoned drive gets `Gone` at once, though the I/O itself goes on in the device's slot (W9);
//! - requests to it are in `requests.rs` alone.

mod requests;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::task::Waker;
use std::time::Duration;

use crate::latency::{Histogram, Latency, Recent};
use crate::refusals::Refusals;
use crate::state::MemberId;
use crate::threshold::Thresholds;
use plexum_block::busy::{BusyTime, UnderWay};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, DeviceInfo, FuaWay, IoError};
use plexum_block::ranges::RangeSet;
use requests::Slots;

/// How often a retryable error is tried again before it counts as a medium error.
pub const RETRIES_MAX: u32 = 3;

/// What a drive has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounters {
    /// Reads answered.
    pub reads: u64,
    /// Writes answered.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Read errors that were corrected from redundancy.
    pub corrected_errors: u64,
    /// Reads that took so long that another copy was asked, and answered first.
    pub hedged_reads: u64,
    /// Time spent in reads, summed, in nanoseconds.
    pub read_ns: u64,
    /// Time spent in writes, summed, in nanoseconds.
    pub write_ns: u64,
    /// Reads that began where the request before them, read or write, ended.
    pub sequential_reads: u64,
    /// Writes that began where the request before them, read or write, ended.
    pub sequential_writes: u64,
    /// Time with at least one read or write under way, in nanoseconds.
    pub busy_ns: u64,
    /// Reads and writes under way.
    pub outstanding: u64,
}

/// A write that has ended and is not counted yet.
pub(crate) struct Written<'a, C: Clock> {
    result: Result<(), IoError>,
    tally: &'a Tally,
    under_way: UnderWay<'a, C>,
    started: Moment,
    length_bytes: u64,
    is_sequential: bool,
}

impl<C: Clock> Written<'_, C> {
    /// It ended now.
    #[inline]
    pub(crate) fn note(self, now: Moment) -> Result<(), IoError> {
        self.under_way.end(now);
        let took_ns = now.ns_since(self.started);
        let is_good = self.result.is_ok();
        self.tally
            .add(self.length_bytes, took_ns, is_good, self.is_sequential);
        self.result
    }
}

impl DriveCounters {
    /// Adds what the same drive has done for others. Times with something under way are added too: those that overlap
    /// count twice.
    pub fn add(&mut self, other: &DriveCounters) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.flushes += other.flushes;
        self.read_errors += other.read_errors;
        self.write_errors += other.write_errors;
        self.corrected_errors += other.corrected_errors;
        self.hedged_reads += other.hedged_reads;
        self.read_ns = self.read_ns.saturating_add(other.read_ns);
        self.write_ns = self.write_ns.saturating_add(other.write_ns);
        self.sequential_reads += other.sequential_reads;
        self.sequential_writes += other.sequential_writes;
        self.busy_ns = self.busy_ns.saturating_add(other.busy_ns);
        self.outstanding += other.outstanding;
    }
}

/// A member's drive with the extent of it that holds data.
pub struct Drive<D> {
    /// Identity in the array's state.
    pub id: MemberId,
    /// Name for messages: the path or URI it was opened by.
    pub name: String,
    device: D,
    /// First byte of the data area on the device.
    pub data_offset_bytes: u64,
    /// Length of the data area in bytes.
    pub data_size_bytes: u64,
    /// A flush has failed: none can succeed any more (W13).
    flush_error: Cell<Option<IoError>>,
    /// How often an interrupted I/O is tried again.
    retries_max: Cell<u32>,
    slots: Slots,
    reads: Tally,
    writes: Tally,
    flushes: Cell<u64>,
    corrected_errors: Cell<u64>,
    hedged_reads: Cell<u64>,
    /// Reads that have to be known before any is hedged, and how old one has to be.
    hedge_samples_min: u64,
    hedge_delay_min: Duration,
    busy: BusyTime,
    /// Where the last read or write on the device that began will end, or did.
    position: Cell<u64>,
    /// Ranges of the data area that hold wrong or unreadable data.
    bad: RefCell<RangeSet>,
    /// Ranges that were bad and have been written since the last flush, each with the number of its writing.
    healed: RefCell<Vec<(Range<u64>, u64)>>,
    healed_count: Cell<u64>,
    pub(crate) refusals: Refusals,
}

/// Reads, or writes. Each number in a place of its own: together they would be copied out and in again for each
/// request.
#[derive(Default)]
struct Tally {
    ended: Cell<u64>,
    bytes: Cell<u64>,
    errors: Cell<u64>,
    took_ns: Cell<u64>,
    sequential: Cell<u64>,
    recent: RefCell<Recent>,
}

impl Tally {
    /// One has ended.
    #[inline]
    fn add(&self, length_bytes: u64, took_ns: u64, is_good: bool, is_sequential: bool) {
        self.ended.set(self.ended.get() + 1);
        self.bytes.set(self.bytes.get() + length_bytes);
        self.took_ns.set(self.took_ns.get().saturating_add(took_ns));
        self.sequential
            .set(self.sequential.get() + u64::from(is_sequential));
        if is_good {
            self.recent.borrow_mut().add(took_ns);
        } else {
            self.errors.set(self.errors.get() + 1);
        }
    }
}

impl<D: Device> Drive<D> {
    /// A drive whose data area lies at `data_offset_bytes`; `bad` are the ranges of it that cannot be trusted.
    pub fn new(id: MemberId, name: String, device: D, data: Range<u64>, bad: RangeSet) -> Self {
        Self::with_thresholds(id, name, device, data, bad, &Thresholds::default())
    }

    /// The same with these thresholds.
    pub(crate) fn with_thresholds(
        id: MemberId,
        name: String,
        device: D,
        data: Range<u64>,
        bad: RangeSet,
        thresholds: &Thresholds,
    ) -> Self {
        let info = device.info();
        assert!(
            data.start <= data.end && data.end <= info.size_bytes,
            "the data area is on the device"
        );
        Self {
            id,
            name,
            device,
            data_offset_bytes: data.start,
            data_size_bytes: data.end - data.start,
            flush_error: Cell::new(None),
            retries_max: Cell::new(RETRIES_MAX),
            slots: Slots::new(thresholds.drive_slots_max),
            reads: Tally::default(),
            writes: Tally::default(),
            flushes: Cell::default(),
            corrected_errors: Cell::default(),
            hedged_reads: Cell::default(),
            hedge_samples_min: thresholds.hedge_samples_min,
            // On a disk that turns the second read costs another disk a seek, and the stream that it had.
            hedge_delay_min: match info.is_rotational {
                true => thresholds.rotational_hedge_delay_min,
                false => thresholds.hedge_delay_min,
            },
            busy: BusyTime::default(),
            position: Cell::new(u64::MAX),
            bad: RefCell::new(bad),
            healed: RefCell::default(),
            healed_count: Cell::new(0),
            refusals: Refusals::default(),
        }
    }

    /// Whether some I/O had to wait for others.
    pub(crate) fn has_waited(&self) -> bool {
        self.slots.has_waited()
    }

    /// A deliberate bug: what was interrupted is not tried again.
    pub(crate) fn never_retry(&self) {
        self.retries_max.set(0);
    }

    /// Place of the data area on the device, in bytes.
    pub(crate) fn data_range(&self) -> Range<u64> {
        self.data_offset_bytes..self.data_offset_bytes + self.data_size_bytes
    }

    /// Whether nothing is under way on it, not even what nobody waits for and could still change it.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.slots.count() == 0 && !self.is_draining()
    }

    /// How a durable write on it becomes so.
    pub fn fua_way(&self) -> FuaWay {
        self.device.fua_way()
    }

    /// Whether the device is in memory.
    pub fn is_in_memory(&self) -> bool {
        self.device.is_in_memory()
    }

    /// The device's size and properties.
    pub fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    /// The device itself, for what only its kind knows.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What it has done up to `now`.
    pub fn counters(&self, now: Moment) -> DriveCounters {
        DriveCounters {
            reads: self.reads.ended.get(),
            writes: self.writes.ended.get(),
            read_bytes: self.reads.bytes.get(),
            written_bytes: self.writes.bytes.get(),
            flushes: self.flushes.get(),
            read_errors: self.reads.errors.get(),
            write_errors: self.writes.errors.get(),
            corrected_errors: self.corrected_errors.get(),
            hedged_reads: self.hedged_reads.get(),
            read_ns: self.reads.took_ns.get(),
            write_ns: self.writes.took_ns.get(),
            sequential_reads: self.reads.sequential.get(),
            sequential_writes: self.writes.sequential.get(),
            busy_ns: self.busy.until_ns(now),
            outstanding: u64::from(self.busy.under_way()),
        }
    }

    /// I/Os under way.
    pub fn in_flight(&self) -> u32 {
        u32::try_from(self.slots.count()).unwrap_or(u32::MAX)
    }

    /// The watchman's tick; says for how many whole ticks somebody has been waiting for the oldest I/O.
    pub(crate) fn tick(&self) -> u64 {
        self.slots.tick(self.device.busy())
    }

    /// Whether nothing is under way; if so, the watchman is woken by the first I/O that has to wait for its device.
    pub(crate) fn rests(&self, watchman: &Waker) -> bool {
        self.slots.rests(self.device.busy(), watchman)
    }

    /// How long a read may take before another copy is asked as well: longer than 99 of 100 took lately. `None` while
    /// too few are known.
    pub(crate) fn hedge_delay(&self) -> Option<Duration> {
        let reads = self.reads.recent.borrow();
        if reads.samples() < self.hedge_samples_min {
            return None;
        }
        Some(Duration::from_nanos(reads.p99_ns()).max(self.hedge_delay_min))
    }

    /// Another copy answered first, after `took`: the read here drains unseen (W9).
    pub(crate) fn note_hedged(&self, took: Duration) {
        self.slots.orphan();
        self.hedged_reads.set(self.hedged_reads.get() + 1);
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.reads.recent.borrow_mut().add(took_ns); // at least so long
    }

    /// Nobody waits for it any more (W9).
    pub(crate) fn abandon(&self) {
        self.fence();
        self.slots.abandon();
    }

    /// Whether I/Os that nobody waits for may still change it: it must not come back before they have ended (W9).
    pub fn is_draining(&self) -> bool {
        self.slots.is_abandoned() && self.device.busy() > 0
    }

    /// How long reads and writes took lately.
    pub fn latencies(&self) -> (Latency, Latency) {
        (
            self.reads.recent.borrow().latency(),
            self.writes.recent.borrow().latency(),
        )
    }

    /// How often reads and writes took how long lately.
    pub fn histograms(&self) -> (Histogram, Histogram) {
        (
            self.reads.recent.borrow().whole(),
            self.writes.recent.borrow().whole(),
        )
    }

    /// Old answers are forgotten.
    pub(crate) fn rotate_latencies(&self) {
        self.reads.recent.borrow_mut().rotate();
        self.writes.recent.borrow_mut().rotate();
    }

    /// All answers are forgotten: those to come are of another kind of work.
    pub(crate) fn forget_latencies(&self) {
        self.reads.recent.take();
        self.writes.recent.take();
    }

    /// From now on every new I/O is answered with `Gone`.
    pub fn fence(&self) {
        self.slots.close();
    }

    /// Notes a read error that redundancy has mended.
    pub fn count_corrected(&self) {
        self.corrected_errors.set(self.corrected_errors.get() + 1);
    }

    /// Whether there is anything in the bad-block list.
    #[inline]
    pub fn has_bad(&self) -> bool {
        !self.bad.borrow().is_empty()
    }

    /// Whether any part of the data range is in the bad-block list.
    #[inline]
    pub fn is_bad(&self, range: &Range<u64>) -> bool {
        self.has_bad() && self.bad.borrow().overlaps(range)
    }

    /// The parts of a range of member data that are not on the list of bad blocks.
    pub fn good_ranges(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        self.bad.borrow().gaps(range)
    }

    /// The bad-block list, data ranges.
    pub fn bad_ranges(&self) -> RangeSet {
        self.bad.borrow().clone()
    }

    /// The bad-block list as it has to be on the member: with what was written again but not flushed. A power cut could
    /// bring the old content back.
    pub fn bad_ranges_to_record(&self) -> RangeSet {
        let mut all = self.bad_ranges();
        for (range, _) in self.healed.borrow().iter() {
            all.insert(range.clone());
        }
        all
    }

    /// Adds to the bad-block list; the caller makes it durable before anything depends on it.
    pub fn mark_bad(&self, range: Range<u64>) {
        self.bad.borrow_mut().insert(range);
    }

    /// A range was written whole: it can be read again. Says whether the durable list may shrink at once, which it may
    /// when the write `is_durable`; otherwise the next flush says so.
    #[inline]
    pub fn clear_bad(&self, range: &Range<u64>, is_durable: bool) -> bool {
        if !self.has_bad() || !self.bad.borrow_mut().remove(range.clone()) {
            return false;
        }
        if !is_durable {
            self.healed_count.set(self.healed_count.get() + 1);
            let number = self.healed_count.get();
            self.healed.borrow_mut().push((range.clone(), number));
        }
        is_durable
    }

    /// Number of the last writing that took a range off the list; give it to `forget_healed` after a flush begun now.
    pub fn healed_mark(&self) -> u64 {
        self.healed_count.get()
    }

    /// A flush has covered every writing up to `mark`. Says whether the durable list may shrink.
    pub fn forget_healed(&self, mark: u64) -> bool {
        let mut healed = self.healed.borrow_mut();
        let before = healed.len();
        healed.retain(|(_, number)| *number > mark);
        healed.len() < before
    }
}
