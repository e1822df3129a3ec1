//! What the clients of an export have asked for, and how long it took: counted once, at one place, whatever the server.
//!
//! Invariants:
//! - counting decides nothing: the workers of a session (`perform.rs`) tell what they have asked an export for;
//! - a request counts when it has ended; one that is refused before anything was done (zeroes that would not be fast)
//!   does not count;
//! - counters of other threads are what they were at their last request: reading them disturbs nobody.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plexum_block::busy::{BusyTime, UnderWay};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::IoError;

/// What clients have asked for since the start (or the last reset), and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads answered.
    pub reads: u64,
    /// Writes answered, zero and trim requests included.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Flushes answered.
    pub flushes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Time spent in reads, summed.
    pub read_ns: u64,
    /// Time spent in writes, summed.
    pub write_ns: u64,
    /// Reads that began where the request before them ended.
    pub sequential_reads: u64,
    /// Writes that began where the request before them ended.
    pub sequential_writes: u64,
    /// Time with at least one read or write under way, at the thread that is asked.
    pub busy_ns: u64,
    /// Reads and writes under way, at the thread that is asked.
    pub outstanding: u64,
}

/// How long a request took, and whether it began where the one before it ended.
#[derive(Clone, Copy, Debug)]
struct Took {
    ns: u64,
    is_sequential: bool,
}

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    Badly,
}

impl Ended {
    fn of<T>(result: &Result<T, IoError>) -> Self {
        match result {
            Ok(_) => Ended::Well,
            Err(_) => Ended::Badly,
        }
    }
}

impl Counters {
    fn note_read(&mut self, ended: Ended, length_bytes: u64, took: Took) {
        self.reads += 1;
        self.read_ns += took.ns;
        self.sequential_reads += u64::from(took.is_sequential);
        match ended {
            Ended::Well => self.read_bytes += length_bytes,
            Ended::Badly => self.errors += 1,
        }
    }

    fn note_write(&mut self, ended: Ended, length_bytes: u64, took: Took) {
        self.writes += 1;
        self.write_ns += took.ns;
        self.sequential_writes += u64::from(took.is_sequential);
        match ended {
            Ended::Well => self.written_bytes += length_bytes,
            Ended::Badly => self.errors += 1,
        }
    }

    fn note_flush(&mut self, ended: Ended) {
        self.flushes += 1;
        self.errors += u64::from(ended == Ended::Badly);
    }

    /// Adds what clients did elsewhere since `before`.
    fn add(&mut self, now: &Counters, before: &Counters) {
        self.reads += now.reads - before.reads;
        self.writes += now.writes - before.writes;
        self.read_bytes += now.read_bytes - before.read_bytes;
        self.written_bytes += now.written_bytes - before.written_bytes;
        self.flushes += now.flushes - before.flushes;
        self.errors += now.errors - before.errors;
        self.read_ns += now.read_ns - before.read_ns;
        self.write_ns += now.write_ns - before.write_ns;
        self.sequential_reads += now.sequential_reads - before.sequential_reads;
        self.sequential_writes += now.sequential_writes - before.sequential_writes;
    }
}

/// What the clients of one export have done at one thread; any thread may look.
#[derive(Debug, Default)]
pub struct Tally {
    counters: Mutex<Counters>,
    sessions: AtomicU64,
}

/// A client's connection, counted until this is dropped.
pub struct SessionCounted(Arc<Tally>);

impl Tally {
    /// What they have done; `busy_ns` and `outstanding` are not told.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections that are open.
    #[must_use]
    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// A client has connected.
    #[must_use]
    pub fn enter(self: &Arc<Self>) -> SessionCounted {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        SessionCounted(Arc::clone(self))
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        change(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for SessionCounted {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read or write under way; ends with `drop`, also when whoever waited for it is gone: it does not count then.
pub struct Asked<'a, C: Clock> {
    counting: &'a Counting<C>,
    under_way: UnderWay<'a, C>,
    since: Moment,
    length_bytes: u64,
    /// Where the read or write before it ended, or will.
    position_before: u64,
    is_sequential: bool,
}

impl<C: Clock> Asked<'_, C> {
    /// A read has ended.
    pub fn read<T>(self, result: &Result<T, IoError>) {
        let ended = Ended::of(result);
        self.count(|counters, length_bytes, took| counters.note_read(ended, length_bytes, took));
    }

    /// A request that changes a range has ended.
    pub fn written(self, result: &Result<(), IoError>) {
        let ended = Ended::of(result);
        self.count(|counters, length_bytes, took| counters.note_write(ended, length_bytes, took));
    }

    /// It was refused before anything was done: it is as if nobody had asked for it.
    pub fn refused(self) {
        self.counting.position.set(self.position_before);
    }

    /// It has ended now; the clock is read once.
    fn count(self, change: impl FnOnce(&mut Counters, u64, Took)) {
        let now = self.counting.clock.now();
        self.under_way.end(now);
        let took = Took {
            ns: now.ns_since(self.since),
            is_sequential: self.is_sequential,
        };
        let tally = &self.counting.tally;
        tally.count(|counters| change(counters, self.length_bytes, took));
    }
}

/// The clock of an export that counts nothing. There is none.
pub enum NoClock {}

impl Clock for NoClock {
    fn now(&self) -> Moment {
        match *self {}
    }
    fn wall_seconds(&self) -> u64 {
        match *self {}
    }
    async fn sleep(&self, _duration: Duration) {
        match *self {}
    }
}

/// Counts what the clients of one export ask for at one thread, whatever server they come through. The export has it,
/// and the workers of each session tell it what they ask the export for.
pub struct Counting<C> {
    clock: C,
    tally: Arc<Tally>,
    /// What the tally was at the last reset.
    before: Cell<Counters>,
    busy: BusyTime,
    /// Busy time before the last reset.
    busy_before_ns: Cell<u64>,
    /// Where the last read or write that began will end, or did.
    position: Cell<u64>,
    /// What clients have done at other threads, and what they had done at the last reset.
    elsewhere: RefCell<Vec<(Arc<Tally>, Counters)>>,
}

impl<C: Clock> Counting<C> {
    /// Counts in `tally`.
    #[must_use]
    pub fn new(clock: C, tally: Arc<Tally>) -> Self {
        Self {
            clock,
            before: Cell::new(tally.counters()),
            tally,
            busy: BusyTime::default(),
            busy_before_ns: Cell::new(0),
            position: Cell::new(u64::MAX),
            elsewhere: RefCell::default(),
        }
    }

    /// Other threads serve the same volume.
    pub fn count_elsewhere(&self, tallies: Vec<Arc<Tally>>) {
        let new = tallies.into_iter().map(|tally| {
            let before = tally.counters();
            (tally, before)
        });
        self.elsewhere.borrow_mut().extend(new);
    }

    /// Connections of clients at other threads.
    #[must_use]
    pub fn sessions_elsewhere(&self) -> u64 {
        let elsewhere = self.elsewhere.borrow();
        elsewhere.iter().map(|(tally, _)| tally.sessions()).sum()
    }

    /// What clients have done since the start or the last reset, at all threads.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let busy_ns = self.busy.until_ns(self.clock.now());
        let mut counters = Counters {
            busy_ns: busy_ns - self.busy_before_ns.get(),
            outstanding: u64::from(self.busy.under_way()),
            ..Counters::default()
        };
        counters.add(&self.tally.counters(), &self.before.get());
        for (tally, before) in self.elsewhere.borrow().iter() {
            counters.add(&tally.counters(), before);
        }
        counters
    }

    /// Starts counting anew.
    pub fn reset(&self) {
        self.before.set(self.tally.counters());
        self.busy_before_ns
            .set(self.busy.until_ns(self.clock.now()));
        for (tally, before) in self.elsewhere.borrow_mut().iter_mut() {
            *before = tally.counters();
        }
    }

    /// A read or write begins.
    pub fn begin(&self, (offset_bytes, length_bytes): (u64, u64)) -> Asked<'_, C> {
        let since = self.clock.now();
        let end = offset_bytes.saturating_add(length_bytes);
        let position_before = self.position.replace(end);
        Asked {
            counting: self,
            under_way: self.busy.begin(&self.clock, since),
            since,
            length_bytes,
            position_before,
            is_sequential: position_before == offset_bytes,
        }
    }

    /// A flush has ended.
    pub fn flushed(&self, result: &Result<(), IoError>) {
        let ended = Ended::of(result);
        self.tally.count(|counters| counters.note_flush(ended));
    }
}
