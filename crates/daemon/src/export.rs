//! A volume as NBD clients see it, with counters.
//!
//! Invariants: nothing is decided here: every call is one call of the volume.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_engine::busy::{BusyTime, UnderWay};
use plexum_freebsd::gvinum::counters::Direction;
use plexum_freebsd::gvinum::tally::VolumeTally;
use plexum_nbd::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_runtime::clock::RealClock;

use crate::assembly::Body;
use crate::shards::ShardTally;

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
    /// Time with at least one read or write under way.
    pub busy_ns: u64,
    /// Reads and writes under way.
    pub outstanding: u64,
}

/// How long a request took, and whether it began where the one before it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) ns: u64,
    pub(crate) is_sequential: bool,
}

impl Counters {
    /// A read has ended.
    pub(crate) fn note_read(&mut self, is_ok: bool, length_bytes: u64, took: Took) {
        self.reads += 1;
        self.read_ns += took.ns;
        self.sequential_reads += u64::from(took.is_sequential);
        self.read_bytes += if is_ok { length_bytes } else { 0 };
        self.errors += u64::from(!is_ok);
    }

    /// A write, zero or trim request has ended.
    pub(crate) fn note_write(&mut self, is_ok: bool, length_bytes: u64, took: Took) {
        self.writes += 1;
        self.write_ns += took.ns;
        self.sequential_writes += u64::from(took.is_sequential);
        self.written_bytes += if is_ok { length_bytes } else { 0 };
        self.errors += u64::from(!is_ok);
    }

    /// A flush has ended.
    pub(crate) fn note_flush(&mut self, is_ok: bool) {
        self.flushes += 1;
        self.errors += u64::from(!is_ok);
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

/// A read or write under way.
struct Asked<'a> {
    since: Moment,
    under_way: UnderWay<'a, RealClock>,
    is_sequential: bool,
}

/// The export of one volume.
pub struct VolumeExport {
    volume: Rc<Body>,
    info: ExportInfo,
    clock: RealClock,
    /// All but `busy_ns` and `outstanding`.
    counters: Cell<Counters>,
    busy: BusyTime,
    /// Busy time before the last reset.
    busy_before_ns: Cell<u64>,
    /// Where the last read or write that began will end, or did.
    position: Cell<u64>,
    /// Only systems of Vinum keep counters by object.
    tally: Option<VolumeTally>,
    /// What clients have done at other threads, and what they had done at the last reset.
    shards: RefCell<Vec<(Arc<ShardTally>, Counters)>>,
}

impl VolumeExport {
    /// The export of `volume`, which must not be dropped before its sessions have ended. `tally` is that of a volume of
    /// Vinum.
    pub fn new(
        volume: Rc<Body>,
        clock: RealClock,
        info: ExportInfo,
        tally: Option<VolumeTally>,
    ) -> Self {
        Self {
            volume,
            info,
            clock,
            counters: Cell::default(),
            busy: BusyTime::default(),
            busy_before_ns: Cell::new(0),
            position: Cell::new(u64::MAX),
            tally,
            shards: RefCell::default(),
        }
    }

    /// What clients have done.
    pub fn counters(&self) -> Counters {
        let busy_ns = self.busy.until_ns(self.clock.now());
        let mut counters = Counters {
            busy_ns: busy_ns - self.busy_before_ns.get(),
            outstanding: u64::from(self.busy.under_way()),
            ..self.counters.get()
        };
        for (tally, before) in self.shards.borrow().iter() {
            counters.add(&tally.counters(), before);
        }
        counters
    }

    /// Other threads serve the volume too.
    pub fn count_shards(&self, tallies: Vec<Arc<ShardTally>>) {
        let new = tallies
            .into_iter()
            .map(|tally| (tally, Counters::default()));
        self.shards.borrow_mut().extend(new);
    }

    /// Connections of clients at other threads.
    pub fn sessions_elsewhere(&self) -> u64 {
        self.shards
            .borrow()
            .iter()
            .map(|(tally, _)| tally.sessions())
            .sum()
    }

    /// What drives, subdisks and plexes have done, where it is a volume of Vinum.
    pub fn tally(&self) -> Option<&VolumeTally> {
        self.tally.as_ref()
    }

    /// A volume that is its only plex is counted here; other plexes count for themselves.
    fn count_plex(&self, direction: Direction, offset_bytes: u64, length_bytes: u64) {
        let tally = self.tally.as_ref().filter(|tally| !tally.counts_itself);
        if let Some(plex) = tally.and_then(|tally| tally.plexes.first()) {
            plex.count_on(&**self.volume, direction, offset_bytes, length_bytes);
        }
    }

    /// Starts counting anew what clients do.
    pub fn reset_counters(&self) {
        self.counters.set(Counters::default());
        let now = self.clock.now();
        self.busy_before_ns.set(self.busy.until_ns(now));
        for (tally, before) in self.shards.borrow_mut().iter_mut() {
            *before = tally.counters();
        }
    }

    /// A read or write begins.
    fn begin(&self, offset_bytes: u64, length_bytes: u64) -> Asked<'_> {
        let since = self.clock.now();
        let end = offset_bytes.saturating_add(length_bytes);
        Asked {
            since,
            under_way: self.busy.begin(&self.clock, since),
            is_sequential: self.position.replace(end) == offset_bytes,
        }
    }

    /// It has ended.
    fn end(&self, asked: Asked<'_>) -> Took {
        let now = self.clock.now();
        asked.under_way.end(now);
        Took {
            ns: u64::try_from(now.since(asked.since).as_nanos()).unwrap_or(u64::MAX),
            is_sequential: asked.is_sequential,
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn count_read(&self, is_ok: bool, offset_bytes: u64, length_bytes: u32, asked: Asked<'_>) {
        let took = self.end(asked);
        let length_bytes = u64::from(length_bytes);
        if is_ok {
            self.count_plex(Direction::Read, offset_bytes, length_bytes);
        }
        self.count(|counters| counters.note_read(is_ok, length_bytes, took));
    }

    fn count_write(&self, is_ok: bool, length_bytes: u64, asked: Asked<'_>) {
        let took = self.end(asked);
        self.count(|counters| counters.note_write(is_ok, length_bytes, took));
    }
}

impl Export for VolumeExport {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let asked = self.begin(offset_bytes, u64::from(length_bytes));
        let result = self
            .volume
            .read_bytes(offset_bytes, length_bytes as usize)
            .await;
        self.count_read(result.is_ok(), offset_bytes, length_bytes, asked);
        result
    }

    fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        if let Body::Whole(volume) = &*self.volume {
            volume.expect_write(offset_bytes, length_bytes);
        }
    }

    fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        if let Body::Whole(volume) = &*self.volume {
            volume.expect_no_write(offset_bytes, length_bytes);
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let length_bytes = data.len() as u64;
        let asked = self.begin(offset_bytes, length_bytes);
        let result = self.volume.write_shared(offset_bytes, data, fua).await;
        if result.is_ok() {
            self.count_plex(Direction::Write, offset_bytes, length_bytes);
        }
        self.count_write(result.is_ok(), length_bytes, asked);
        result
    }

    async fn flush(&self) -> Result<(), IoError> {
        let result = self.volume.flush().await;
        self.count(|counters| counters.note_flush(result.is_ok()));
        result
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let asked = self.begin(offset_bytes, length_bytes);
        let mode = ZeroMode::Unmap;
        let result = self
            .volume
            .zero(offset_bytes, length_bytes, mode, fua)
            .await;
        self.count_write(result.is_ok(), length_bytes, asked);
        result
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        // Parity always writes the zeroes, and what members do is not known to be fast.
        if how.only_if_fast {
            return Err(IoError::Unsupported);
        }
        let asked = self.begin(offset_bytes, length_bytes);
        let mode = how.mode();
        let result = self
            .volume
            .zero(offset_bytes, length_bytes, mode, how.fua)
            .await;
        if result.is_ok() && !how.may_unmap {
            self.count_plex(Direction::Write, offset_bytes, length_bytes);
        }
        self.count_write(result.is_ok(), length_bytes, asked);
        result
    }

    async fn cache(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        Ok(()) // a hint; the volume keeps no read cache
    }

    async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.volume
            .extents_of(offset_bytes, length_bytes, extents_max)
            .await
    }
}
