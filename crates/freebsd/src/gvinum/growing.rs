//! A striped or RAID-5 plex that gets a subdisk more while it is served: the engine's migration, with the position in
//! the configuration on the drives.
//!
//! Invariants:
//! - a position is saved on every drive; with parity one may fail to hear of it;
//! - the first rows are kept at the end of the new subdisk, behind their own new place, until they are there;
//! - what the drives say of a growth is checked before anything is read by it, and refused.
//!
//! Source: freebsd-geom.md sections 2.8, 2.12 and 2.16 (defect 6).

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_format::vinum::{Growth, HEADER_OFFSET_BYTES, Mark, Subdisk, SubdiskState};

use crate::labels::ForeignError;
use crate::stacked::Stackable;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Fua, FuaWay, IoError};
use plexum_block::ranges::RangeSet;
use plexum_engine::drive::RETRIES_MAX;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::migrate::{
    Bond, Direction as Way, Ledger, Migration, MigrationParts, Position, Unfit, Window, WindowSpec,
};
use plexum_engine::state::Standing;
use plexum_engine::volume::{JobStatus, Volume, VolumeOptions, VolumeParts};
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

/// Where the position of a growing plex is durable: in the configuration on its drives. What is kept is at the end of
/// the new subdisk.
struct PlexLedger<D> {
    volume: String,
    plex: String,
    /// Each drive once.
    drives: Vec<D>,
    new_drive: D,
    /// Where address 0 is kept on it.
    kept_start_bytes: u64,
    store: SharedStore,
    /// What the configuration has said of this plex.
    growth: Growth,
    /// Drives that may fail to hear of a position: what parity survives.
    deaf_max: usize,
    pool: BufPool,
}

impl<D: Device> PlexLedger<D> {
    async fn write(&self, growth: Option<Growth>) -> Result<(), IoError> {
        {
            let mut store = self.store.borrow_mut();
            store.set_growth(&self.plex, growth);
            store.next_save(0); // later than every save before, that is enough
        }
        let mut failed = 0;
        for drive in &self.drives {
            let nothing = self.pool.copy_of(&[0; 512]).freeze();
            let write = || drive.write(HEADER_OFFSET_BYTES, nothing.clone(), Fua::Yes);
            let saved = match retrying(write).await {
                Ok(()) => drive.flush().await,
                error => error,
            };
            failed += usize::from(saved.is_err());
        }
        if failed > self.deaf_max {
            return Err(IoError::Failed);
        }
        Ok(())
    }
}

impl<D: Device> Ledger for PlexLedger<D> {
    async fn save(&self, position: Position) -> Result<(), IoError> {
        let growth = Growth {
            moved_bytes: position.border_bytes,
            backup_bytes: position.kept_bytes,
            ..self.growth
        };
        self.write(Some(growth)).await
    }

    async fn end(&self) -> Result<(), IoError> {
        self.write(None).await // no longer one that grows
    }

    async fn keep(&self, at_bytes: u64, data: Buf) -> Result<(), IoError> {
        let at = self.kept_start_bytes + at_bytes;
        retrying(|| self.new_drive.write(at, data.clone(), Fua::No)).await
    }

    async fn flush_kept(&self) -> Result<(), IoError> {
        self.new_drive.flush().await
    }

    async fn kept(&self, range: Range<u64>) -> Result<Buf, IoError> {
        let at = self.kept_start_bytes + range.start;
        let length = (range.end - range.start) as usize; // one row
        let kept = retrying(|| self.new_drive.read(at, self.pool.take(length))).await?;
        Ok(kept.freeze())
    }

    fn note_proven(&self) {
        self.store.borrow_mut().mark_settled(&self.volume);
    }
}

/// A plex between two sizes; to its volume it has the old one.
pub struct Growing<D: Device, C: Clock> {
    migration: Migration<D, C, PlexLedger<D>>,
    tally: Rc<PlexTally>,
}

impl<D: Device, C: Clock> Growing<D, C> {
    fn drives(&self) -> &[D] {
        &self.migration.ledger().drives
    }

    /// Plex bytes that have moved, and how many will have.
    pub fn progress(&self) -> (u64, u64) {
        self.migration.progress()
    }

    /// How far it is, until it has ended or an error has stopped it.
    pub fn job(&self) -> Option<JobStatus> {
        self.migration.job()
    }

    /// As `Migration::ended`.
    pub async fn ended(&self) {
        self.migration.ended().await;
    }

    /// Counts what one side of the border has answered.
    fn count(&self, direction: Direction) -> impl Fn(&Volume<D, C>, Range<u64>) + use<'_, D, C> {
        move |volume, part| {
            let length = part.end - part.start;
            self.tally.count_on(volume, direction, part.start, length);
        }
    }

    /// Moves everything that has not moved, until `stop`. An error leaves it as it is: a later start goes on.
    pub async fn run(&self) {
        self.migration.run().await;
    }

    /// Ends both halves cleanly.
    ///
    /// # Errors
    /// As `Volume::stop`.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.migration.stop().await
    }
}

/// To the volume over it, it has the old size.
impl<D: Device, C: Clock> Device for Growing<D, C> {
    fn info(&self) -> DeviceInfo {
        let mut infos = self.drives().iter().map(Device::info);
        DeviceInfo {
            size_bytes: self.migration.size_bytes(),
            sector_bytes: self.migration.sector_bytes(),
            is_rotational: infos.any(|info| info.is_rotational),
            has_zeroing_trim: false,
        }
    }

    async fn read(&self, at: u64, buf: BufMut) -> Result<BufMut, IoError> {
        let counted = self.count(Direction::Read);
        let mut buf = buf;
        let rope = self.migration.read(at, buf.len(), counted).await?;
        let mut from = 0;
        for piece in rope.pieces {
            buf[from..from + piece.len()].copy_from_slice(&piece);
            from += piece.len();
        }
        assert_eq!(from, buf.len(), "the sides make up the whole range");
        Ok(buf)
    }

    async fn write(&self, at: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let counted = self.count(Direction::Write);
        self.migration.write(at, data, fua, counted).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.migration.flush().await
    }

    fn fua_way(&self) -> FuaWay {
        FuaWay::of_all(self.drives())
    }

    fn busy(&self) -> usize {
        self.drives().iter().map(Device::busy).sum()
    }

    /// Its halves look after their members.
    async fn check(&self) -> Result<(), IoError> {
        match self.migration.is_frozen() {
            true => Err(IoError::Gone), // too much was lost, on either side of the border
            false => Ok(()),
        }
    }
}

impl<D: Stackable, C: Clock + Clone> Builder<'_, D, C> {
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
        let unfit = |text: String| ForeignError::Unfit(None, format!("{name}: {text}"));
        let never = |error: Unfit| unfit(format!("{plex} is growing, and {error}"));
        let (before, after) = (self.map(plex)?, grown_map(self.config(), plex));
        let after = after.map_err(|error| unfit(error.to_string()))?;
        let new = after.subdisks.get(usize::from(growth.subdisk_count));
        let new = new.ok_or_else(|| unfit(format!("{plex} has no new subdisk")))?;
        let is_cut_first = growth.backup_bytes > 0;
        let is_read_only = self.request.volume.is_read_only;
        self.check_halves(name, plex, [&before, &after])?;
        if is_cut_first && (is_read_only || new.state != SubdiskState::Up) {
            let text = "its growth was cut in the first step: serve it with --write and all drives";
            return Err(unfit(text.to_owned()));
        }
        // Parity that may be wrong answers nothing while it is made anew: neither for a block that cannot be read nor
        // for one that takes long. With a subdisk lost, whoever forced the start has asked for what there is.
        let is_doubtful = self.system.mark != Mark::Settled;
        let is_degraded = after.subdisks.iter().any(is_lost);
        let doubt = (is_doubtful && !is_degraded).then_some(0);
        let window = window_of(&before.geometry, &after.geometry, &self.request.volume);
        let window = window.map_err(never)?;
        check_new(new, &window).map_err(unfit)?;
        let ledger = self.ledger([name, plex], growth, &after, (new, &window));
        let ledger = ledger.ok_or_else(|| unfit(format!("drive {} is not here", new.drive)))?;
        let migration = Migration::new(MigrationParts {
            before: self.half(&format!("{plex} before"), before, doubt)?,
            after: Rc::new(self.half(&format!("{plex} after"), after.clone(), doubt)?),
            bond: Bond::Apart,
            window,
            ledger,
            position: Position {
                border_bytes: growth.moved_bytes,
                kept_bytes: growth.backup_bytes,
            },
            is_doubtful,
        });
        let migration = migration.map_err(never)?;
        let tally = self.tally(plex, &after);
        let growing = Rc::new(Growing { migration, tally });
        Ok(OpenedVolume {
            volume: self.over(name, &growing)?,
            tally: VolumeTally {
                plexes: vec![Rc::clone(&growing.tally)],
                counts_itself: true,
            },
            plexes: Vec::new(),
            growing: (!is_read_only).then_some(growing),
            read_only_reason: None,
        })
    }

    /// Whether both halves can be used with the subdisks that are up.
    fn check_halves(
        &self,
        name: &str,
        plex: &str,
        halves: [&PlexMap; 2],
    ) -> Result<(), ForeignError> {
        for map in halves {
            let lost: Vec<bool> = map.subdisks.iter().map(is_lost).collect();
            if !map.geometry.tolerates(&lost) {
                let text = format!("{name}: too much of {plex}, which is growing, is missing");
                return Err(ForeignError::Missing(text));
            }
        }
        let is_degraded = halves.iter().any(|map| map.subdisks.iter().any(is_lost));
        let may_be_wrong = self.system.mark != Mark::Settled && is_degraded;
        if may_be_wrong && !self.request.volume.is_read_only && !self.request.force {
            return Err(ForeignError::DirtyDegraded(format!(
                "{name}: writes were under way when it was left, and {plex} lacks a subdisk"
            )));
        }
        Ok(())
    }

    /// Where the position of a plex is durable; `None`: the drive of its new subdisk is not here.
    fn ledger(
        &self,
        [volume, plex]: [&str; 2],
        growth: Growth,
        after: &PlexMap,
        kept: (&Subdisk, &Window),
    ) -> Option<PlexLedger<D>> {
        let (new, window) = kept;
        let (_, _, new_drive) = self.device(new)?;
        let (drives, _) = self.drives_of(after);
        Some(PlexLedger {
            volume: volume.to_owned(),
            plex: plex.to_owned(),
            drives: drives.into_iter().map(|(_, drive)| drive).collect(),
            new_drive,
            kept_start_bytes: new.drive_end_bytes() - window.critical_bytes(),
            store: Rc::clone(&self.store),
            growth,
            deaf_max: after.geometry.parity_count(),
            pool: self.pool.clone(),
        })
    }

    /// One half: only what is up takes part, and nothing is repaired. From `doubt` on its parity may be wrong where no
    /// whole row was written since.
    fn half(
        &self,
        name: &str,
        map: PlexMap,
        doubt: Option<u64>,
    ) -> Result<Volume<D, C>, ForeignError> {
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
        let metadata = self.metadata(name, &map, &[]).only_lowering();
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
    fn over(&self, name: &str, growing: &Rc<Growing<D, C>>) -> Result<Volume<D, C>, ForeignError> {
        let size_bytes = growing.info().size_bytes;
        let geometry = Geometry::with_any_strip(&GeometrySpec {
            organisation: Organisation::Linear,
            member_count: 1,
            strip_bytes: 0,
            component_bytes: size_bytes,
            member_sizes_bytes: vec![size_bytes],
        });
        let geometry = geometry.map_err(|error| ForeignError::Unfit(None, error.to_string()))?;
        let device = D::stacked(growing);
        let plex = growing.migration.ledger().plex.clone();
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

fn is_lost(subdisk: &Subdisk) -> bool {
    subdisk.state != SubdiskState::Up
}

/// How the rows of a plex lie over those that it will have.
fn window_of(
    before: &Geometry,
    after: &Geometry,
    options: &VolumeOptions,
) -> Result<Window, Unfit> {
    Window::new(&WindowSpec {
        before,
        after,
        direction: Way::Up,
        gap_bytes: 0, // a subdisk stays where it is
        step_bytes: options.thresholds.migration_step_bytes,
    })
}

/// Whether the first rows can be kept at the end of the new subdisk, behind their own new place.
///
/// # Errors
/// A sentence.
fn check_new(new: &Subdisk, window: &Window) -> Result<(), String> {
    let needed = window
        .critical_bytes()
        .checked_add(window.critical_member_bytes());
    match needed {
        Some(needed) if needed <= new.length_bytes => Ok(()),
        _ => Err(format!(
            "its new subdisk {} has {} bytes, too few to keep the first rows while they are moved",
            new.name, new.length_bytes
        )),
    }
}
