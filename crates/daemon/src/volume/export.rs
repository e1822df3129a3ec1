//! A volume as the clients of any server see it.
//!
//! Invariants:
//! - nothing is decided here: every call is one call of the volume. Sessions count what clients ask for, and the plexes
//!   of Vinum are counted here;
//! - while a volume is opened again in another geometry requests wait, and none is under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};
use plexum_block::wait::{Gauge, GaugeGuard, Signal};
use plexum_freebsd::gvinum::counters::Direction;
use plexum_freebsd::gvinum::tally::VolumeTally;
use plexum_front::counted::Counting;
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_runtime::clock::RealClock;

use crate::assembly::Body;

/// The export of one volume.
pub struct VolumeExport {
    /// None while it is opened again, or when that could not be done.
    volume: RefCell<Option<Rc<Body>>>,
    info: RefCell<ExportInfo>,
    /// Only systems of Vinum keep counters by object.
    tally: Option<VolumeTally>,
    /// What clients of all threads have asked for.
    counting: Counting<RealClock>,
    under_way: Rc<Gauge>,
    is_held: Cell<bool>,
    changed: Signal,
}

impl VolumeExport {
    /// The export of `volume`, which must not be dropped before its sessions have ended. `tally` is that of a volume of
    /// Vinum; `clock` says how long clients wait.
    pub fn new(
        volume: Rc<Body>,
        info: ExportInfo,
        tally: Option<VolumeTally>,
        clock: RealClock,
    ) -> Self {
        Self {
            counting: Counting::new(clock, Arc::default()),
            volume: RefCell::new(Some(volume)),
            info: RefCell::new(info),
            tally,
            under_way: Rc::default(),
            is_held: Cell::new(false),
            changed: Signal::new(),
        }
    }

    /// From now on requests wait; returns when none is under way. The volume is let go of.
    pub(crate) async fn hold(&self) {
        self.is_held.set(true);
        self.under_way.empty().await;
        self.volume.take();
    }

    /// Requests go on, with this volume and size; none: they are refused from now on.
    pub(crate) fn go_on(&self, volume: Option<(Rc<Body>, u64)>) {
        if let Some((volume, size_bytes)) = volume {
            self.info.borrow_mut().size_bytes = size_bytes;
            *self.volume.borrow_mut() = Some(volume);
        }
        self.is_held.set(false);
        self.changed.notify();
    }

    /// The volume for one request, which is under way as long as the second lives.
    async fn enter(&self) -> Result<(Rc<Body>, GaugeGuard), IoError> {
        if self.is_held.get() {
            self.changed.until(|| !self.is_held.get()).await;
        }
        let guard = self.under_way.enter();
        let volume = self.volume.borrow().clone();
        Ok((volume.ok_or(IoError::Failed)?, guard))
    }

    /// What clients have asked for, at this thread and at others.
    pub fn clients(&self) -> &Counting<RealClock> {
        &self.counting
    }

    /// What drives, subdisks and plexes have done, where it is a volume of Vinum.
    pub fn tally(&self) -> Option<&VolumeTally> {
        self.tally.as_ref()
    }

    /// A volume that is its only plex is counted here; other plexes count for themselves.
    fn count_plex(
        &self,
        volume: &Body,
        direction: Direction,
        offset_bytes: u64,
        length_bytes: u64,
    ) {
        let tally = self.tally.as_ref().filter(|tally| !tally.counts_itself);
        if let Some(plex) = tally.and_then(|tally| tally.plexes.first()) {
            plex.count_on(volume, direction, offset_bytes, length_bytes);
        }
    }
}

impl Export for VolumeExport {
    fn info(&self) -> ExportInfo {
        self.info.borrow().clone()
    }

    async fn resized(&self, known_bytes: u64) -> u64 {
        let size_bytes = || self.info.borrow().size_bytes;
        self.changed.until(|| size_bytes() != known_bytes).await;
        size_bytes()
    }

    fn counting(&self) -> Option<&Counting<impl Clock>> {
        Some(&self.counting)
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let (volume, _under_way) = self.enter().await?;
        let rope = volume
            .read_bytes(offset_bytes, length_bytes as usize)
            .await?;
        let length_bytes = u64::from(length_bytes);
        self.count_plex(&volume, Direction::Read, offset_bytes, length_bytes);
        Ok(rope)
    }

    fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        if let Some(Body::Whole(volume)) = self.volume.borrow().as_deref() {
            volume.expect_write(offset_bytes, length_bytes);
        }
    }

    fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        if let Some(Body::Whole(volume)) = self.volume.borrow().as_deref() {
            volume.expect_no_write(offset_bytes, length_bytes);
        }
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let (volume, _under_way) = self.enter().await?;
        let length_bytes = data.len() as u64;
        match &*volume {
            Body::Reshaping(moving) => moving.write(offset_bytes, data, fua).await?,
            body if body.lends_writes() => body.write_shared(offset_bytes, data, fua).await?,
            body => body.write(offset_bytes, data, fua).await?,
        }
        self.count_plex(&volume, Direction::Write, offset_bytes, length_bytes);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        let (volume, _under_way) = self.enter().await?;
        volume.flush_all().await
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        let (volume, _under_way) = self.enter().await?;
        let range = offset_bytes..offset_bytes + length_bytes;
        volume.trim_bytes(range, fua).await
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
        let (volume, _under_way) = self.enter().await?;
        let range = offset_bytes..offset_bytes + length_bytes;
        volume.zero_bytes(range, how.mode(), how.fua).await?;
        if !how.may_unmap {
            self.count_plex(&volume, Direction::Write, offset_bytes, length_bytes);
        }
        Ok(())
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
        let (volume, _under_way) = self.enter().await?;
        volume
            .extents_of(offset_bytes, length_bytes, extents_max)
            .await
    }
}
