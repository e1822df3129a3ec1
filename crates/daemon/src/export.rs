//! A volume as NBD clients see it, with counters.
//!
//! Invariants: nothing is decided here: every call is one call of the volume.

use std::cell::Cell;
use std::rc::Rc;

use plexum_engine::buf::{Buf, Rope};
use plexum_engine::clock::{Clock, Moment};
use plexum_engine::device::{Fua, IoError, ZeroMode};
use plexum_engine::meta::gvinum::counters::Direction;
use plexum_engine::meta::gvinum::tally::VolumeTally;
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

/// The export of one volume.
pub struct VolumeExport {
    volume: Rc<Body>,
    info: ExportInfo,
    clock: RealClock,
    counters: Cell<Counters>,
    /// Only systems of Vinum keep counters by object.
    tally: Option<VolumeTally>,
}

impl VolumeExport {
    /// The export of `volume`, which must not be dropped before its sessions have ended. `tally` is that of a volume of Vinum.
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
            tally,
        }
    }

    /// What clients have done.
    pub fn counters(&self) -> Counters {
        self.counters.get()
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
        let since = self.clock.now();
        let result = self
            .volume
            .read_bytes(offset_bytes, length_bytes as usize)
            .await;
        let spent = self.spent_ns(since);
        if result.is_ok() {
            self.count_plex(Direction::Read, offset_bytes, u64::from(length_bytes));
        }
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
        let since = self.clock.now();
        let result = self.volume.write(offset_bytes, data, fua).await;
        if result.is_ok() {
            self.count_plex(Direction::Write, offset_bytes, length_bytes);
        }
        self.count_write(result.is_ok(), length_bytes, since);
        result
    }

    async fn flush(&self) -> Result<(), IoError> {
        let result = self.volume.flush().await;
        self.count(|counters| {
            counters.flushes += 1;
            counters.errors += u64::from(result.is_err());
        });
        result
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let since = self.clock.now();
        let mode = ZeroMode::Unmap;
        let result = self
            .volume
            .zero(offset_bytes, length_bytes, mode, fua)
            .await;
        self.count_write(result.is_ok(), length_bytes, since);
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
        let since = self.clock.now();
        let mode = if how.may_unmap {
            ZeroMode::Unmap
        } else {
            ZeroMode::Allocate
        };
        let result = self
            .volume
            .zero(offset_bytes, length_bytes, mode, how.fua)
            .await;
        if result.is_ok() && !how.may_unmap {
            self.count_plex(Direction::Write, offset_bytes, length_bytes);
        }
        self.count_write(result.is_ok(), length_bytes, since);
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
