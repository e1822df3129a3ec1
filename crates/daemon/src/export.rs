//! A volume as NBD clients see it, with counters and a list of the requests in flight.
//!
//! Invariants:
//! - nothing is decided here: every call is one call of the volume;
//! - a request is in the list from the moment it is accepted until it is answered, also when it fails.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_engine::buf::{Buf, Rope};
use plexum_engine::clock::{Clock, Moment};
use plexum_engine::device::{Fua, IoError, ZeroMode};
use plexum_nbd::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_runtime::clock::RealClock;

use crate::assembly::Body;

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
}

/// A request in flight.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// `read`, `write`, ...
    pub kind: &'static str,
    /// Offset in the volume.
    pub offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// When it was accepted.
    pub since: Moment,
}

/// The export of one volume.
pub struct VolumeExport {
    volume: Rc<Body>,
    info: ExportInfo,
    clock: RealClock,
    counters: Cell<Counters>,
    in_flight: RefCell<BTreeMap<u64, InFlight>>,
    next_number: Cell<u64>,
}

/// Takes the request out of the list when it ends, however it ends.
struct Tracked<'a> {
    export: &'a VolumeExport,
    number: u64,
    since: Moment,
}

impl Drop for Tracked<'_> {
    fn drop(&mut self) {
        self.export.in_flight.borrow_mut().remove(&self.number);
    }
}

impl VolumeExport {
    /// The export of `volume`, which must not be dropped before its sessions have ended.
    pub fn new(volume: Rc<Body>, clock: RealClock, info: ExportInfo) -> Self {
        Self {
            volume,
            info,
            clock,
            counters: Cell::default(),
            in_flight: RefCell::default(),
            next_number: Cell::new(0),
        }
    }

    /// What clients have done.
    pub fn counters(&self) -> Counters {
        self.counters.get()
    }

    /// Starts counting anew.
    pub fn reset_counters(&self) {
        self.counters.set(Counters::default());
    }

    /// Requests accepted and not yet answered, oldest first.
    pub fn in_flight(&self) -> Vec<InFlight> {
        self.in_flight.borrow().values().cloned().collect()
    }

    fn track(&self, kind: &'static str, offset_bytes: u64, length_bytes: u64) -> Tracked<'_> {
        let number = self.next_number.get();
        self.next_number.set(number + 1);
        let since = self.clock.now();
        let entry = InFlight {
            kind,
            offset_bytes,
            length_bytes,
            since,
        };
        self.in_flight.borrow_mut().insert(number, entry);
        Tracked {
            export: self,
            number,
            since,
        }
    }

    fn count(&self, change: impl FnOnce(&mut Counters)) {
        let mut counters = self.counters.get();
        change(&mut counters);
        self.counters.set(counters);
    }

    fn count_write(&self, is_ok: bool, length_bytes: u64, since: Moment) {
        let spent = self.spent_ns(since);
        self.count(|counters| {
            counters.writes += 1;
            counters.write_ns += spent;
            if is_ok {
                counters.written_bytes += length_bytes;
            } else {
                counters.errors += 1;
            }
        });
    }

    fn spent_ns(&self, since: Moment) -> u64 {
        u64::try_from(self.clock.now().since(since).as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Export for VolumeExport {
    fn info(&self) -> ExportInfo {
        self.info.clone()
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let tracked = self.track("read", offset_bytes, u64::from(length_bytes));
        let result = self
            .volume
            .read_bytes(offset_bytes, length_bytes as usize)
            .await;
        let spent = self.spent_ns(tracked.since);
        self.count(|counters| {
            counters.reads += 1;
            counters.read_ns += spent;
            match &result {
                Ok(_) => counters.read_bytes += u64::from(length_bytes),
                Err(_) => counters.errors += 1,
            }
        });
        result
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let length_bytes = data.len() as u64;
        let tracked = self.track("write", offset_bytes, length_bytes);
        let result = self.volume.write(offset_bytes, data, fua).await;
        self.count_write(result.is_ok(), length_bytes, tracked.since);
        result
    }

    async fn flush(&self) -> Result<(), IoError> {
        let _tracked = self.track("flush", 0, 0);
        let result = self.volume.flush().await;
        self.count(|counters| {
            counters.flushes += 1;
            counters.errors += u64::from(result.is_err());
        });
        result
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let tracked = self.track("trim", offset_bytes, length_bytes);
        let mode = ZeroMode::Unmap;
        let result = self
            .volume
            .zero(offset_bytes, length_bytes, mode, fua)
            .await;
        self.count_write(result.is_ok(), length_bytes, tracked.since);
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
        let tracked = self.track("zero", offset_bytes, length_bytes);
        let mode = if how.may_unmap {
            ZeroMode::Unmap
        } else {
            ZeroMode::Allocate
        };
        let result = self
            .volume
            .zero(offset_bytes, length_bytes, mode, how.fua)
            .await;
        self.count_write(result.is_ok(), length_bytes, tracked.since);
        result
    }

    async fn cache(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        Ok(()) // a hint; the volume keeps no read cache
    }

    async fn status(
        &self,
        _offset_bytes: u64,
        length_bytes: u64,
        _extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        // Holes are not told yet; "data" is always right.
        Ok(vec![Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        }])
    }
}
