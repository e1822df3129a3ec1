//! What a workload runs against: a disk or a volume, in whole or in part. Requests carry no bytes that matter.
//!
//! Invariants:
//! - a request outside of the target is refused, never wrapped or cut;
//! - every request is counted with its latency, under its class.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::ops::RangeInclusive;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::Signal;
use plexum_freebsd::gvinum::counters::{self, Direction, PlexCounters};

use crate::member::{Member, SimVolume};
use crate::stats::Latencies;
use crate::world::World;

/// Longest request in bytes.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

enum Store {
    Device(Member),
    Volume(Rc<SimVolume>),
}

/// Rows of a volume, and which have a write under way.
struct Rows {
    row_bytes: u64,
    taken: RefCell<BTreeSet<u64>>,
    changed: Signal,
}

impl Rows {
    /// Waits until no row of the range is taken, and takes them.
    async fn turn(self: &Rc<Self>, at_bytes: u64, length_bytes: u64) -> Turn {
        let end = at_bytes + length_bytes.max(1) - 1;
        let range = at_bytes / self.row_bytes..=end / self.row_bytes;
        let is_free = || self.taken.borrow().range(range.clone()).next().is_none();
        self.changed.until(is_free).await;
        self.taken.borrow_mut().extend(range.clone());
        Turn {
            rows: Rc::clone(self),
            range,
        }
    }
}

/// Rows that are taken as long as it lives.
struct Turn {
    rows: Rc<Rows>,
    range: RangeInclusive<u64>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        for row in self.range.clone() {
            self.rows.taken.borrow_mut().remove(&row);
        }
        self.rows.changed.notify();
    }
}

struct View {
    store: Store,
    start_bytes: u64,
    size_bytes: u64,
    /// Longer requests go in pieces, one after another; 0 = never.
    cut_bytes: u64,
    /// Rows in which one write is under way at a time.
    rows: Option<Rc<Rows>>,
    /// Vinum's counters of the plex, where somebody wants them.
    plex: Option<Rc<RefCell<PlexCounters>>>,
    clock: plexum_disks::clock::SimClock,
    pool: BufPool,
    payload: Buf,
    reads: RefCell<Latencies>,
    writes: RefCell<Latencies>,
    flushes: RefCell<Latencies>,
    /// Requests under way, when that changed last, and their number integrated over time.
    under_way: Cell<(u64, u64, u64)>,
}

/// A range of a disk or of a volume. Clones are the same target with the same counters.
#[derive(Clone)]
pub struct Target {
    inner: Rc<View>,
}

/// What went through a target.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    /// Reads.
    pub reads: Latencies,
    /// Writes.
    pub writes: Latencies,
    /// Flushes.
    pub flushes: Latencies,
    /// Number of requests under way, integrated over time; 0 where nobody counted.
    pub under_way_ns: u64,
}

impl Traffic {
    /// Adds what went through elsewhere.
    pub fn merge(&mut self, other: &Traffic) {
        self.reads.merge(&other.reads);
        self.writes.merge(&other.writes);
        self.flushes.merge(&other.flushes);
        self.under_way_ns += other.under_way_ns;
    }
}

impl Target {
    fn new(world: &World, store: Store, size_bytes: u64) -> Self {
        let payload = world.pool().take_zeroed(REQUEST_BYTES_MAX).freeze();
        Self {
            inner: Rc::new(View {
                store,
                start_bytes: 0,
                size_bytes,
                cut_bytes: 0,
                rows: None,
                plex: None,
                clock: world.clock().clone(),
                pool: world.pool().clone(),
                payload,
                reads: RefCell::default(),
                writes: RefCell::default(),
                flushes: RefCell::default(),
                under_way: Cell::default(),
            }),
        }
    }

    /// A disk without a volume above it.
    #[must_use]
    pub fn device(world: &World, member: &Member) -> Self {
        let size_bytes = member.info().size_bytes;
        Self::new(world, Store::Device(member.clone()), size_bytes)
    }

    /// A volume.
    #[must_use]
    pub fn volume(world: &World, volume: &Rc<SimVolume>) -> Self {
        Self::new(world, Store::Volume(Rc::clone(volume)), volume.size_bytes())
    }

    /// A part of it, as a target with counters of its own.
    ///
    /// # Errors
    /// `OutOfRange` when the part does not lie inside.
    pub fn part(&self, start_bytes: u64, length_bytes: u64) -> Result<Self, IoError> {
        let end = start_bytes
            .checked_add(length_bytes)
            .ok_or(IoError::OutOfRange)?;
        if end > self.size_bytes() {
            return Err(IoError::OutOfRange);
        }
        Ok(self.derive(|inner| {
            inner.start_bytes += start_bytes;
            inner.size_bytes = length_bytes;
        }))
    }

    /// The same target for a host that cuts longer requests into pieces of `cut_bytes`, one after another.
    #[must_use]
    pub fn with_cut(&self, cut_bytes: u64) -> Self {
        self.derive(|inner| inner.cut_bytes = cut_bytes)
    }

    /// The same target for a driver that locks the whole row for each write of its own, as those did that join nothing.
    #[must_use]
    pub fn with_row_turns(&self, row_bytes: u64) -> Self {
        let rows = Rows {
            row_bytes: row_bytes.max(1),
            taken: RefCell::default(),
            changed: Signal::new(),
        };
        self.derive(|inner| inner.rows = Some(Rc::new(rows)))
    }

    /// The same target, whose requests are counted as Vinum counts those of a plex.
    #[must_use]
    pub fn with_plex_counters(&self, counters: &Rc<RefCell<PlexCounters>>) -> Self {
        self.derive(|inner| inner.plex = Some(Rc::clone(counters)))
    }

    /// Counts one request of the plex.
    fn count_plex(&self, direction: Direction, at_bytes: u64, length_bytes: u64) {
        if let (Some(plex), Store::Volume(volume)) = (&self.inner.plex, &self.inner.store) {
            let range = at_bytes..at_bytes + length_bytes;
            let geometry = volume.geometry();
            *plex.borrow_mut() +=
                counters::count(geometry, |_| false, direction, range, |_, _, _| ());
        }
    }

    /// The same target with counters of its own and a change.
    fn derive(&self, change: impl FnOnce(&mut View)) -> Self {
        let inner = &self.inner;
        let store = match &inner.store {
            Store::Device(member) => Store::Device(member.clone()),
            Store::Volume(volume) => Store::Volume(Rc::clone(volume)),
        };
        let mut derived = View {
            store,
            start_bytes: inner.start_bytes,
            size_bytes: inner.size_bytes,
            cut_bytes: inner.cut_bytes,
            rows: inner.rows.clone(),
            plex: inner.plex.clone(),
            clock: inner.clock.clone(),
            pool: inner.pool.clone(),
            payload: inner.payload.clone(),
            reads: RefCell::default(),
            writes: RefCell::default(),
            flushes: RefCell::default(),
            under_way: Cell::default(),
        };
        change(&mut derived);
        Self {
            inner: Rc::new(derived),
        }
    }

    /// Size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.inner.size_bytes
    }

    /// Virtual now, in nanoseconds.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.clock.now_ns()
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &plexum_disks::clock::SimClock {
        &self.inner.clock
    }

    /// One request more or less is under way from now on.
    fn count(&self, is_begin: bool) {
        let now = self.inner.clock.now_ns();
        let (number, since, integral) = self.inner.under_way.get();
        let integral = integral + number * (now - since);
        let number = if is_begin { number + 1 } else { number - 1 };
        self.inner.under_way.set((number, now, integral));
    }

    fn take_under_way_ns(&self) -> u64 {
        let now = self.inner.clock.now_ns();
        let (number, since, integral) = self.inner.under_way.get();
        self.inner.under_way.set((number, now, 0));
        integral + number * (now - since)
    }

    /// Counts `request` as under way while it is.
    async fn counted<T>(&self, request: impl Future<Output = T>) -> T {
        self.count(true);
        let result = request.await;
        self.count(false);
        result
    }

    fn check(&self, offset_bytes: u64, length_bytes: u64) -> Result<u64, IoError> {
        let end = offset_bytes
            .checked_add(length_bytes)
            .ok_or(IoError::OutOfRange)?;
        if end > self.size_bytes() || length_bytes > REQUEST_BYTES_MAX as u64 {
            return Err(IoError::OutOfRange);
        }
        Ok(self.inner.start_bytes + offset_bytes)
    }

    /// The pieces of a request that was checked.
    fn pieces(
        &self,
        at_bytes: u64,
        length_bytes: u64,
    ) -> impl Iterator<Item = (u64, usize)> + use<> {
        let step = match self.inner.cut_bytes {
            0 => length_bytes.max(1),
            cut => cut,
        };
        (0..length_bytes.div_ceil(step)).map(move |piece| {
            let start = piece * step;
            let length = step.min(length_bytes - start);
            (
                at_bytes + start,
                usize::try_from(length).expect("requests are bounded"),
            )
        })
    }

    /// Reads.
    ///
    /// # Errors
    /// As the device or volume below; `OutOfRange` outside of the target.
    pub async fn read(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError> {
        self.counted(self.read_now(offset_bytes, length_bytes))
            .await
    }

    async fn read_now(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError> {
        let at = self.check(offset_bytes, length_bytes)?;
        let started = self.inner.clock.now();
        for (at, length) in self.pieces(at, length_bytes) {
            self.count_plex(Direction::Read, at, length as u64);
            match &self.inner.store {
                Store::Device(member) => {
                    drop(member.read(at, self.inner.pool.take(length)).await?);
                }
                Store::Volume(volume) => drop(volume.read(at, length).await?),
            }
        }
        let took = self.inner.clock.now().since(started);
        self.inner.reads.borrow_mut().add(took, length_bytes);
        Ok(())
    }

    /// Writes zeroes.
    ///
    /// # Errors
    /// As the device or volume below; `OutOfRange` outside of the target.
    pub async fn write(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        fua: Fua,
    ) -> Result<(), IoError> {
        self.counted(self.write_now(offset_bytes, length_bytes, fua))
            .await
    }

    async fn write_now(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        fua: Fua,
    ) -> Result<(), IoError> {
        let at = self.check(offset_bytes, length_bytes)?;
        let started = self.inner.clock.now();
        for (at, length) in self.pieces(at, length_bytes) {
            self.count_plex(Direction::Write, at, length as u64);
            let data = self.inner.payload.slice(0..length);
            let _turn = match &self.inner.rows {
                Some(rows) => Some(rows.turn(at, length as u64).await),
                None => None,
            };
            match &self.inner.store {
                Store::Device(member) => member.write(at, data, fua).await?,
                Store::Volume(volume) => volume.write(at, data, fua).await?,
            }
        }
        let took = self.inner.clock.now().since(started);
        self.inner.writes.borrow_mut().add(took, length_bytes);
        Ok(())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// As the device or volume below.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.counted(self.flush_now()).await
    }

    async fn flush_now(&self) -> Result<(), IoError> {
        let started = self.inner.clock.now();
        match &self.inner.store {
            Store::Device(member) => member.flush().await?,
            Store::Volume(volume) => volume.flush().await?,
        }
        let took = self.inner.clock.now().since(started);
        self.inner.flushes.borrow_mut().add(took, 0);
        Ok(())
    }

    /// What went through since the target was made or this was called last.
    #[must_use]
    pub fn take_traffic(&self) -> Traffic {
        Traffic {
            reads: self.inner.reads.take(),
            writes: self.inner.writes.take(),
            flushes: self.inner.flushes.take(),
            under_way_ns: self.take_under_way_ns(),
        }
    }
}
