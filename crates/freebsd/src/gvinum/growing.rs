//! A striped or RAID-5 plex that gets a subdisk more while it is served: two volumes over the same subdisks, one in the
//! old address map and one in the new, and a border between them that moves.
//!
//! Invariants:
//! - below the border an address is where the new map puts it, above where the old one does; the border on the drives
//!   is moved after what was copied is flushed, and before anybody may read or write there;
//! - a step never writes over the old place of an address that is not below the border on the drives. In the first rows
//!   that cannot be: they are kept at the end of the new subdisk until they are in place;
//! - nothing else works on these subdisks: no resync, no rebuild, no scrub. After a crash parity is made anew on both
//!   sides of the border before the border moves;
//! - a drive that fails is lost until the growth has ended.
//!
//! Source: freebsd-geom.md sections 2.8, 2.12 and 2.16 (defect 6).

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use plexum_format::vinum::{Growth, HEADER_OFFSET_BYTES, Mark, Subdisk, SubdiskState};

use crate::labels::ForeignError;
use crate::stacked::Stacked;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, DeviceInfo, Fua, FuaWay, IoError};
use plexum_block::lock::{RangeGuard, RangeLocks};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::Signal;
use plexum_engine::drive::RETRIES_MAX;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::mutant::Mutant;
use plexum_engine::state::Standing;
use plexum_engine::upkeep::{JobKind, JobStatus};
use plexum_engine::volume::{Volume, VolumeParts};
use plexum_layout::{Geometry, GeometrySpec, Organisation};

use super::counters::Direction;
use super::open::{Builder, OpenedVolume, part};
use super::store::SharedStore;
use super::tally::{PlexTally, VolumeTally};
use super::{PlexMap, grown_map};

/// A request may wait for a step: the plex is not failed for that.
const OVER_TIMEOUT: Duration = Duration::from_secs(86_400);

/// An I/O on a device that no drive stands before: interrupted ones are tried again, as a drive does it.
///
/// # Errors
/// `Medium` after too many interruptions; those of the I/O.
async fn retrying<T, F: Future<Output = Result<T, IoError>>>(
    begin: impl Fn() -> F,
) -> Result<T, IoError> {
    for _ in 0..=RETRIES_MAX {
        match begin().await {
            Err(IoError::Retryable) => {}
            other => return other,
        }
    }
    Err(IoError::Medium)
}

/// What a growing plex is made of.
pub struct GrowingParts<D: Device, C: Clock> {
    /// Name of the volume.
    pub volume: String,
    /// Name of the plex.
    pub plex: String,
    /// The plex as it was; nothing of it runs in the background.
    pub before: Volume<Stacked<D, C>, C>,
    /// The plex as it will be, over the same drives.
    pub after: Volume<Stacked<D, C>, C>,
    /// Each drive once.
    pub drives: Vec<Stacked<D, C>>,
    /// The drive of the new subdisk, and the end of that on it.
    pub backup: (Stacked<D, C>, u64),
    /// The configuration.
    pub store: SharedStore,
    /// What it says about this plex.
    pub growth: Growth,
    /// What it has done.
    pub tally: Rc<PlexTally>,
    /// Writes were under way when it was left.
    pub is_doubtful: bool,
    /// For what is copied.
    pub pool: BufPool,
}

/// A plex between two sizes; to its volume it has the old one.
pub struct Growing<D: Device, C: Clock> {
    parts: GrowingParts<D, C>,
    locks: RangeLocks,
    /// The border.
    moved_bytes: Cell<u64>,
    /// Bytes that are kept at the end of the new subdisk and not yet in place.
    backup_bytes: Cell<u64>,
    is_stopping: Cell<bool>,
    is_running: Cell<bool>,
    /// An error stopped it.
    has_failed: Cell<bool>,
    /// When it began to run, and the border then.
    begun: Cell<Option<(Moment, u64)>>,
    changed: Signal,
}

impl<D: Device, C: Clock> Growing<D, C> {
    /// How a durable write on its drives becomes so.
    pub fn fua_way(&self) -> FuaWay {
        FuaWay::of_all(&self.parts.drives)
    }

    /// Puts it together; nothing is read or written yet.
    #[must_use]
    pub fn new(parts: GrowingParts<D, C>) -> Self {
        Self {
            locks: RangeLocks::new(),
            moved_bytes: Cell::new(parts.growth.moved_bytes),
            backup_bytes: Cell::new(parts.growth.backup_bytes),
            is_stopping: Cell::new(false),
            is_running: Cell::new(false),
            has_failed: Cell::new(false),
            begun: Cell::new(None),
            changed: Signal::new(),
            parts,
        }
    }

    /// Size and sector to the volume over it.
    pub(crate) fn info(&self) -> DeviceInfo {
        let mut infos = self.parts.drives.iter().map(Device::info);
        DeviceInfo {
            size_bytes: self.parts.before.size_bytes(),
            sector_bytes: self.parts.before.sector_bytes(),
            is_rotational: infos.any(|info| info.is_rotational),
            has_zeroing_trim: false,
        }
    }

    pub(crate) fn busy(&self) -> usize {
        self.parts.drives.iter().map(Device::busy).sum()
    }

    /// Whether too much was lost, on either side of the border.
    pub(crate) fn is_frozen(&self) -> bool {
        self.parts.before.is_frozen() || self.parts.after.is_frozen()
    }

    /// Plex bytes that have moved, and how many will have.
    pub fn progress(&self) -> (u64, u64) {
        (self.moved_bytes.get(), self.parts.after.size_bytes())
    }

    /// How far it is, until it has ended or an error has stopped it.
    pub fn job(&self) -> Option<JobStatus> {
        let (done_bytes, total_bytes) = self.progress();
        if done_bytes >= total_bytes || self.has_failed.get() {
            return None;
        }
        let not_begun = (self.parts.after.clock().now(), done_bytes);
        let (started, moved_then) = self.begun.get().unwrap_or(not_begun);
        Some(JobStatus {
            kind: JobKind::Reshape,
            done_bytes,
            total_bytes,
            started,
            worked_bytes: done_bytes.saturating_sub(moved_then),
        })
    }

    /// Waits until the growth has ended, or will not go on in this process. It counts as going on before `run` was
    /// called.
    pub async fn ended(&self) {
        let total = self.parts.after.size_bytes();
        let has_left = || {
            let may_begin = self.begun.get().is_none() && !self.is_stopping.get();
            !self.is_running.get() && !may_begin
        };
        self.changed
            .until(|| self.moved_bytes.get() >= total || has_left())
            .await;
    }

    /// The lock of a request, once no byte of it is between two places.
    async fn admit(&self, range: std::ops::Range<u64>) -> Result<RangeGuard<'_>, IoError> {
        loop {
            self.changed
                .until(|| range.start >= self.backup_bytes.get() || self.has_failed.get())
                .await;
            let lock = self
                .locks
                .lock(range.start..range.end.max(range.start + 1))
                .await;
            if range.start >= self.backup_bytes.get() {
                return Ok(lock);
            }
            if self.has_failed.get() {
                return Err(IoError::Failed); // between two places, for as long as nobody moves it
            }
        }
    }

    pub(crate) async fn read(&self, at: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        let end = at + buf.len() as u64;
        let _lock = self.admit(at..end).await?;
        let border = self.moved_bytes.get().clamp(at, end);
        let mut from = 0;
        for (volume, range) in [
            (&self.parts.after, at..border),
            (&self.parts.before, border..end),
        ] {
            if range.is_empty() {
                continue;
            }
            let length = (range.end - range.start) as usize; // a part of the buffer
            for piece in volume.read(range.start, length).await?.pieces {
                buf[from..from + piece.len()].copy_from_slice(&piece);
                from += piece.len();
            }
            let bytes = range.end - range.start;
            self.parts
                .tally
                .count_on(volume, Direction::Read, range.start, bytes);
        }
        Ok(buf)
    }

    pub(crate) async fn write(&self, at: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let end = at + data.len() as u64;
        let _lock = self.admit(at..end).await?;
        let border = self.moved_bytes.get().clamp(at, end);
        for (volume, range) in [
            (&self.parts.after, at..border),
            (&self.parts.before, border..end),
        ] {
            if range.is_empty() {
                continue;
            }
            let bytes = range.end - range.start;
            let from = (range.start - at) as usize; // at most the length of the buffer
            let part = data.slice(from..from + bytes as usize);
            volume.write(range.start, part, fua).await?;
            self.parts
                .tally
                .count_on(volume, Direction::Write, range.start, bytes);
        }
        Ok(())
    }

    pub(crate) async fn flush(&self) -> Result<(), IoError> {
        self.parts.before.flush().await?;
        self.parts.after.flush().await
    }

    /// Moves everything that has not moved, until `stop`. An error leaves it as it is: a later start goes on.
    pub async fn run(&self) {
        self.is_running.set(true);
        let now = self.parts.after.clock().now();
        self.begun.set(Some((now, self.moved_bytes.get())));
        self.has_failed.set(self.work().await.is_err());
        self.is_running.set(false);
        self.changed.notify();
    }

    async fn work(&self) -> Result<(), IoError> {
        if self.parts.is_doubtful {
            self.make_parity().await?;
            if !self.is_stopping.get() {
                let mut store = self.parts.store.borrow_mut();
                store.set_settled(&self.parts.volume, true); // saved with the next step
            }
        }
        if self.backup_bytes.get() > 0 {
            self.put_back().await?;
        }
        while !self.is_stopping.get() {
            let at = self.moved_bytes.get();
            if at >= self.parts.after.size_bytes() {
                break;
            }
            if at == 0 {
                self.keep_first_rows().await?;
                self.put_back().await?;
            } else {
                self.step(at).await?;
            }
            self.changed.notify();
        }
        Ok(())
    }

    /// Ends both halves cleanly.
    ///
    /// # Errors
    /// As `Volume::stop`.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.is_stopping.set(true);
        self.changed.notify();
        self.changed.until(|| !self.is_running.get()).await;
        let before = self.parts.before.stop().await;
        before.and(self.parts.after.stop().await)
    }

    /// Bytes of a row in the old and in the new map.
    fn rows(&self) -> (u64, u64) {
        let row = |volume: &Volume<Stacked<D, C>, C>| {
            let geometry = volume.geometry();
            let data = geometry.member_count() - geometry.parity_count();
            data as u64 * geometry.strip_bytes()
        };
        (row(&self.parts.before), row(&self.parts.after))
    }

    /// Bytes whose old rows are written over by their own or earlier new rows: whole new rows.
    fn first_bytes(&self) -> u64 {
        let (old, new) = self.rows();
        let strip = self.parts.before.geometry().strip_bytes();
        new * (old / strip)
    }

    /// Both sides of the border: rows are read and written as they are, which makes their parity.
    async fn make_parity(&self) -> Result<(), IoError> {
        if self.parts.before.geometry().parity_count() == 0 {
            return Ok(());
        }
        let (old, new) = self.rows();
        let border = self.moved_bytes.get();
        let sides = [
            (&self.parts.after, 0, border, new),
            (
                &self.parts.before,
                border / old * old,
                self.parts.before.size_bytes(),
                old,
            ),
        ];
        for (volume, start, end, row) in sides {
            while !self.is_stopping.get() {
                // A write that a drive refused leaves its row in doubt again: then once more.
                let spoilt_count = volume.spoilt_count();
                self.write_rows_again(volume, start..end, row).await?;
                if self.is_stopping.get() {
                    break;
                }
                if volume.settle_all_unspoilt(spoilt_count) {
                    break; // no row on the other side of the border is read by its parity
                }
            }
        }
        Ok(())
    }

    async fn write_rows_again(
        &self,
        volume: &Volume<Stacked<D, C>, C>,
        range: std::ops::Range<u64>,
        row: u64,
    ) -> Result<(), IoError> {
        let mut at = range.start;
        while at < range.end && !self.is_stopping.get() {
            let upto = at + row;
            let _lock = self.locks.lock(at..upto).await;
            let length = (upto.min(volume.size_bytes()) - at) as usize; // one row
            let data = volume.read(at, length).await?.to_vec();
            let data = self.parts.pool.copy_of(&data).freeze();
            volume.write(at, data, Fua::No).await?;
            at = upto;
        }
        volume.flush().await
    }

    /// Where a byte of the first rows is kept on the drive of the new subdisk.
    fn kept_at(&self, at: u64) -> u64 {
        self.parts.backup.1 - self.first_bytes() + at
    }

    async fn keep_first_rows(&self) -> Result<(), IoError> {
        let (_, row) = self.rows();
        let end = self.first_bytes();
        let _lock = self.locks.lock(0..end).await;
        let drive = &self.parts.backup.0;
        for at in (0..end).step_by(row as usize) {
            let data = self.parts.before.read(at, row as usize).await?.to_vec();
            let data = self.parts.pool.copy_of(&data).freeze();
            retrying(|| drive.write(self.kept_at(at), data.clone(), Fua::No)).await?;
        }
        drive.flush().await?;
        self.save(0, end).await?;
        self.backup_bytes.set(end);
        Ok(())
    }

    /// What is kept goes into its new place.
    async fn put_back(&self) -> Result<(), IoError> {
        let (_, row) = self.rows();
        let end = self.backup_bytes.get();
        let lock = self.locks.lock(0..end).await;
        for at in (0..end).step_by(row as usize) {
            let buf = || self.parts.pool.take(row as usize);
            let kept = retrying(|| self.parts.backup.0.read(self.kept_at(at), buf())).await?;
            self.parts.after.write(at, kept.freeze(), Fua::No).await?;
        }
        self.parts.after.flush().await?;
        self.save(end, 0).await?;
        self.moved_bytes.set(end);
        self.backup_bytes.set(0);
        drop(lock);
        self.changed.notify();
        Ok(())
    }

    /// As many rows as have their sources above everything that they write over.
    async fn step(&self, at: u64) -> Result<(), IoError> {
        let (old, new) = self.rows();
        let total = self.parts.after.size_bytes();
        let data_end = self.parts.before.size_bytes();
        let has_parity = self.parts.before.geometry().parity_count() > 0;
        if at >= data_end && !has_parity {
            return self.settle_at(total).await; // what is new there was never anybody's
        }
        let step_bytes = self.parts.before.thresholds().growth_step_bytes;
        let most = (step_bytes / new).max(1);
        let rows = if at < data_end {
            (at / old).saturating_sub(at / new).clamp(1, most)
        } else {
            most
        };
        let end = (at + rows * new).min(total);
        let _lock = self.locks.lock(at..end).await;
        if self.parts.before.has_bug(Mutant::GrowthBorderAheadOfData) {
            self.save(end, 0).await?;
        }
        let mut from = at;
        while from < end {
            let upto = (from + new).min(end);
            let mut data = Vec::new();
            if from < data_end {
                let length = (upto.min(data_end) - from) as usize; // at most a row
                data = self.parts.before.read(from, length).await?.to_vec();
            }
            data.resize((upto - from) as usize, 0);
            let data = self.parts.pool.copy_of(&data).freeze();
            self.parts.after.write(from, data, Fua::No).await?;
            from = upto;
        }
        self.parts.after.flush().await?;
        self.settle_at(end).await
    }

    /// The border is at `at`, on the drives first. At the end the plex is no longer one that grows.
    async fn settle_at(&self, at: u64) -> Result<(), IoError> {
        self.save(at, 0).await?;
        self.moved_bytes.set(at);
        Ok(())
    }

    /// Saves how far it is on every drive; with parity one may fail to hear of it.
    async fn save(&self, moved_bytes: u64, backup_bytes: u64) -> Result<(), IoError> {
        let has_ended = moved_bytes >= self.parts.after.size_bytes();
        let growth = Growth {
            moved_bytes,
            backup_bytes,
            ..self.parts.growth
        };
        {
            let mut store = self.parts.store.borrow_mut();
            store.set_growth(&self.parts.plex, (!has_ended).then_some(growth));
            store.next_save(0); // later than every save before, that is enough
        }
        let mut failed = 0;
        for drive in &self.parts.drives {
            let nothing = self.parts.pool.copy_of(&[0; 512]).freeze();
            let write = || drive.write(HEADER_OFFSET_BYTES, nothing.clone(), Fua::Yes);
            let saved = match retrying(write).await {
                Ok(()) => drive.flush().await,
                error => error,
            };
            failed += usize::from(saved.is_err());
        }
        if failed > self.parts.before.geometry().parity_count() {
            return Err(IoError::Failed);
        }
        Ok(())
    }
}

impl<D: Device, C: Clock + Clone> Builder<'_, D, C> {
    /// How far a plex is on the way to more subdisks.
    pub(super) fn growth_of(&self, plex: &str) -> Option<Growth> {
        let found = self.config().plexes.iter().find(|other| other.name == plex);
        found.and_then(|plex| plex.growth)
    }

    /// A volume whose only plex is getting more subdisks: one piece, over both halves of it.
    pub(super) fn growing(
        &self,
        name: &str,
        plex: &str,
        growth: Growth,
    ) -> Result<OpenedVolume<D, C>, ForeignError> {
        self.check_absent(name)?;
        let unfit = |text: String| ForeignError::Unfit(None, text);
        let (before, after) = (self.map(plex)?, grown_map(self.config(), plex));
        let after = after.map_err(|error| unfit(error.to_string()))?;
        let new = after.subdisks.get(usize::from(growth.subdisk_count));
        let new = new.ok_or_else(|| unfit(format!("{plex} has no new subdisk")))?;
        let is_lost = |one: &Subdisk| one.state != SubdiskState::Up;
        for map in [&before, &after] {
            let lost: Vec<bool> = map.subdisks.iter().map(is_lost).collect();
            if !map.geometry.tolerates(&lost) {
                let text = format!("{name}: too much of {plex}, which is growing, is missing");
                return Err(ForeignError::Missing(text));
            }
        }
        let is_read_only = self.request.volume.is_read_only;
        if growth.backup_bytes > 0 && (is_read_only || new.state != SubdiskState::Up) {
            let text = "its growth was cut in the first step: serve it with --write and all drives";
            return Err(unfit(format!("{name}: {text}")));
        }
        let is_doubtful = self.system.mark != Mark::Settled;
        let is_degraded = after.subdisks.iter().any(is_lost);
        if is_doubtful && is_degraded && !is_read_only && !self.request.force {
            return Err(ForeignError::DirtyDegraded(format!(
                "{name}: writes were under way when it was left, and {plex} lacks a subdisk"
            )));
        }
        // Parity that may be wrong answers nothing while it is made anew: neither for a block that cannot be read nor
        // for one that takes long. With a subdisk lost, whoever forced the start has asked for what there is.
        let doubt = (is_doubtful && !is_degraded).then_some(0);
        let (_, _, new_drive) = self
            .device(new)
            .ok_or_else(|| unfit(format!("drive {} is not here", new.drive)))?;
        let (drives, _) = self.drives_of(&after);
        let drives: Vec<Stacked<D, C>> = drives.into_iter().map(|(_, drive)| drive).collect();
        let growing = Rc::new(Growing::new(GrowingParts {
            volume: name.to_owned(),
            plex: plex.to_owned(),
            before: self.half(&format!("{plex} before"), before, doubt)?,
            after: self.half(&format!("{plex} after"), after.clone(), doubt)?,
            drives,
            backup: (new_drive, new.drive_end_bytes()),
            store: Rc::clone(&self.store),
            growth,
            tally: self.tally(plex, &after),
            is_doubtful,
            pool: self.pool.clone(),
        }));
        let volume = self.over(name, &growing)?;
        Ok(OpenedVolume {
            volume,
            tally: VolumeTally {
                plexes: vec![Rc::clone(&growing.parts.tally)],
                counts_itself: true,
            },
            plexes: Vec::new(),
            growing: (!is_read_only).then_some(growing),
            read_only_reason: None,
        })
    }

    /// One half: only what is up takes part, and nothing is repaired. From `doubt` on its parity may be wrong where no
    /// whole row was written since.
    fn half(
        &self,
        name: &str,
        map: PlexMap,
        doubt: Option<u64>,
    ) -> Result<Volume<Stacked<D, C>, C>, ForeignError> {
        let mut map = map;
        let mut members = Vec::new();
        for (slot, subdisk) in (0_u16..).zip(&map.subdisks) {
            let is_up = subdisk.state == SubdiskState::Up;
            let Some((_, device_name, device)) = self.device(subdisk).filter(|_| is_up) else {
                continue;
            };
            let data = subdisk.drive_offset_bytes..subdisk.drive_end_bytes();
            let standing = Standing::Active;
            members.push(part(
                device_name,
                device,
                slot,
                standing,
                data,
                RangeSet::new(),
            ));
        }
        map.subdisks
            .retain(|subdisk| subdisk.state == SubdiskState::Up);
        let metadata = self.metadata(name, &map, &[], true).only_lowering();
        Ok(Volume::new(VolumeParts {
            name: name.to_owned(),
            regions: Regions::without_bitmap(&map.geometry, 512, doubt),
            geometry: map.geometry,
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            members,
            metadata: Box::new(metadata),
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: doubt,
            options: self.request.volume.clone(),
        }))
    }

    /// The volume that clients see.
    fn over(
        &self,
        name: &str,
        growing: &Rc<Growing<D, C>>,
    ) -> Result<Volume<Stacked<D, C>, C>, ForeignError> {
        let size_bytes = growing.info().size_bytes;
        let geometry = Geometry::with_any_strip(&GeometrySpec {
            organisation: Organisation::Linear,
            member_count: 1,
            strip_bytes: 0,
            component_bytes: size_bytes,
            member_sizes_bytes: vec![size_bytes],
        });
        let geometry = geometry.map_err(|error| ForeignError::Unfit(None, error.to_string()))?;
        let device = Stacked::Growing(Rc::clone(growing));
        let plex = growing.parts.plex.clone();
        let member = part(
            plex,
            device,
            0,
            Standing::Active,
            0..size_bytes,
            RangeSet::new(),
        );
        let mut options = self.request.volume.clone();
        options.member_timeout = OVER_TIMEOUT; // the halves look after their members
        Ok(Volume::new(VolumeParts {
            name: name.to_owned(),
            regions: Regions::without_bitmap(&geometry, 512, None),
            geometry,
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            members: vec![member],
            metadata: Box::new(PlainMetadata::new("gvinum")),
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: None,
            options,
        }))
    }
}
