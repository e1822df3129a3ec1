//! From drives to served volumes: each volume is a plex over subdisks, or copies over several plexes.
//!
//! Invariants:
//! - nothing is written here;
//! - a plex that lacks a part is never written to; it is read, where its parts are current, only when no whole plex is
//!   there, and then the volume is read-only.

mod several;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use plexum_format::vinum::{
    Config, DATA_OFFSET_BYTES, HEADER_OFFSET_BYTES, Mark, Plex, PlexState, Subdisk, SubdiskState,
};

use crate::labels::ForeignError;
use crate::stacked::{LabelledDrive, Lane, PlexMember, Stackable};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::ranges::RangeSet;
use plexum_block::wait::Mutex;
use plexum_engine::balance::Policy;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::Metadata;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::mutant::Mutant;
use plexum_engine::state::{MemberRecord, Standing};
use plexum_engine::volume::VolumeOptions;
use plexum_engine::volume::{DrivePart, Volume, VolumeParts};

use super::adapter::{GvinumMetadata, Held};
use super::drive::read_drive;
use super::growing::Growing;
use super::spares::{SpareArea, take_over};
use super::store::{SharedStore, Store};
use super::tally::{PlexTally, VolumeTally};
use super::{PlexMap, System, assemble, plex_map, plexes_of};

/// What opening a system asks for besides the drives.
#[derive(Clone, Debug, Default)]
pub struct SystemRequest {
    /// Start a volume whose parity cannot be trusted (W8).
    pub force: bool,
    /// Start although a drive is missing that was there at the last save.
    pub run_degraded: bool,
    /// Settings of the volumes.
    pub volume: VolumeOptions,
    /// How reads are spread over plexes; gvinum takes them in turn.
    pub balance: Option<Policy>,
}

/// A volume of a system.
pub struct OpenedVolume<D: Device, C: Clock> {
    /// The volume.
    pub volume: Volume<D, C>,
    /// Its plexes, where it has several: each has background work of its own.
    pub plexes: Vec<Rc<PlexMember<D, C>>>,
    /// Its plex, where that is getting more subdisks: `run` moves the data.
    pub growing: Option<Rc<Growing<D, C>>>,
    /// What it has done.
    pub tally: VolumeTally,
    /// Whether it can only be read, and why.
    pub read_only_reason: Option<String>,
}

/// A system with the volumes that can be served.
pub struct OpenedSystem<D: Device, C: Clock> {
    /// Drives, objects and states.
    pub system: System,
    /// What is served.
    pub volumes: Vec<OpenedVolume<D, C>>,
    /// Volumes that cannot be served, and why.
    pub refused: Vec<(String, ForeignError)>,
}

/// Opens all volumes of the system that these drives belong to.
///
/// # Errors
/// `ForeignError` when the drives make no system; a volume that cannot be served is in `refused`.
pub async fn open_system<D: Stackable, C: Clock + Clone>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    request: SystemRequest,
) -> Result<OpenedSystem<D, C>, ForeignError> {
    let mut found = Vec::new();
    for (index, (name, device)) in devices.iter().enumerate() {
        found.push(read_drive(device, &pool, index, name).await?);
    }
    let mut system =
        assemble(&found).map_err(|error| ForeignError::Unfit(None, error.to_string()))?;
    if request.volume.bug.is(Mutant::StaleSubdiskBelieved) {
        for subdisk in &mut system.config.subdisks {
            if subdisk.state == SubdiskState::Stale {
                subdisk.state = SubdiskState::Up;
            }
        }
    }
    if !request.volume.is_read_only {
        take_over(&mut system, &request);
    }
    let store: SharedStore = Rc::new(RefCell::new(Store::new(&system)));
    let builder = Builder {
        system: &system,
        devices: &devices,
        lanes: lanes(&system, &devices, &store, &pool),
        reserved: RefCell::new(system.config.clone()),
        store,
        clock,
        pool,
        request,
    };
    let (mut volumes, mut refused) = (Vec::new(), Vec::new());
    for volume in &system.config.volumes {
        match builder.volume(&volume.name) {
            Ok(opened) => volumes.push(opened),
            Err(error) => refused.push((volume.name.clone(), error)),
        }
    }
    drop(builder);
    Ok(OpenedSystem {
        system,
        volumes,
        refused,
    })
}

pub(super) struct Builder<'a, D: Device, C: Clock> {
    pub(super) system: &'a System,
    devices: &'a [(String, D)],
    /// By device.
    lanes: Vec<Rc<Lane>>,
    /// What is on the drives, and what hot spares are kept for.
    pub(super) reserved: RefCell<Config>,
    pub(super) store: SharedStore,
    pub(super) clock: C,
    pub(super) pool: BufPool,
    pub(super) request: SystemRequest,
}

/// The turns of the drives' labels.
fn lanes<D>(
    system: &System,
    devices: &[(String, D)],
    store: &SharedStore,
    pool: &BufPool,
) -> Vec<Rc<Lane>> {
    let lane = |key: usize| {
        let drive = system.drives.iter().find(|drive| drive.key == Some(key));
        let name = drive.map_or(String::new(), |drive| drive.name.clone());
        let store = Rc::clone(store);
        Rc::new(Lane {
            turn: Mutex::new(),
            labels: Box::new(move || store.borrow().writes(&name)),
            at_bytes: HEADER_OFFSET_BYTES,
            end_bytes: DATA_OFFSET_BYTES,
            pool: pool.clone(),
            failed_flushes: Cell::new(0),
        })
    };
    (0..devices.len()).map(lane).collect()
}

impl<D: Stackable, C: Clock + Clone> Builder<'_, D, C> {
    pub(super) fn config(&self) -> &Config {
        &self.system.config
    }

    fn volume(&self, name: &str) -> Result<OpenedVolume<D, C>, ForeignError> {
        let plexes: Vec<String> = plexes_of(self.config(), name)
            .iter()
            .map(|plex| plex.name.clone())
            .collect();
        match plexes.as_slice() {
            [] => Err(ForeignError::Missing(format!("{name} has no plex"))),
            [plex] => self.single(name, plex),
            _ => self.several(name, &plexes),
        }
    }

    pub(super) fn map(&self, plex: &str) -> Result<PlexMap, ForeignError> {
        plex_map(self.config(), plex).map_err(|error| ForeignError::Unfit(None, error.to_string()))
    }

    fn check_growth(&self, plex: &str) -> Result<(), ForeignError> {
        let recorded = self
            .system
            .recorded
            .plexes
            .iter()
            .find(|other| other.name == plex);
        let is_half = |plex: &Plex| plex.state == PlexState::Growable && plex.growth.is_none();
        if recorded.is_some_and(is_half) {
            return Err(ForeignError::Unfit(
                None,
                format!("{plex} was being grown: which part of it is where is not recorded"),
            ));
        }
        Ok(())
    }

    pub(super) fn device(&self, subdisk: &Subdisk) -> Option<(usize, String, D)> {
        let key = self.system.drive(&subdisk.drive)?.key?;
        let (name, device) = self.drive_at(key)?;
        Some((key, name, device))
    }

    /// A drive by the number of its device; all volumes write its labels in turn.
    pub(super) fn drive_at(&self, key: usize) -> Option<(String, D)> {
        let (name, device) = self.devices.get(key)?;
        let lane = self.lanes.get(key)?;
        let device = D::stacked(&Rc::new(LabelledDrive::new(device.clone(), lane)));
        Some((name.clone(), device))
    }

    /// A volume with one plex is that plex.
    fn single(&self, name: &str, plex: &str) -> Result<OpenedVolume<D, C>, ForeignError> {
        self.check_growth(plex)?;
        if let Some(growth) = self.growth_of(plex) {
            return self.growing(name, plex, growth);
        }
        let map = self.map(plex)?;
        let missing: Vec<&str> = map
            .subdisks
            .iter()
            .filter(|subdisk| subdisk.state == SubdiskState::Down)
            .map(|subdisk| subdisk.name.as_str())
            .collect();
        let lost: Vec<bool> = map
            .subdisks
            .iter()
            .map(|subdisk| subdisk.state != SubdiskState::Up)
            .collect();
        if !map.geometry.tolerates(&lost) {
            let text = format!(
                "{name}: too much of {plex} is missing or stale: {}",
                missing.join(" ")
            );
            return Err(ForeignError::Missing(text));
        }
        self.check_absent(name)?;
        let has_parity = map.geometry.parity_count() > 0;
        let spares = if has_parity {
            self.spare_areas(map.geometry.component_bytes())
        } else {
            Vec::new()
        };
        let is_degraded = lost.contains(&true);
        let doubt = self.doubt(has_parity, is_degraded);
        if doubt && is_degraded && !self.request.force && !self.request.volume.is_read_only {
            return Err(ForeignError::DirtyDegraded(format!(
                "{name}: writes were under way when it was left, and {plex} lacks a subdisk"
            )));
        }
        let metadata: Box<dyn Metadata> = if has_parity {
            let metadata = self.metadata(name, &map, &spares);
            Box::new(match self.system.mark == Mark::Settled || !is_degraded {
                true => metadata,
                false => metadata.never_settling(),
            })
        } else if self.system.is_uneven {
            Box::new(self.metadata(name, &map, &[]).only_evening())
        } else {
            Box::new(PlainMetadata::new("gvinum"))
        };
        let resync = (doubt && has_parity).then_some(0);
        let options = self.request.volume.clone();
        let tally = VolumeTally {
            plexes: vec![self.tally(plex, &map)],
            counts_itself: false,
        };
        let volume = self.plex_volume(name, &map, metadata, resync, options, spares);
        Ok(OpenedVolume {
            volume,
            plexes: Vec::new(),
            growing: None,
            tally,
            read_only_reason: None,
        })
    }

    /// The counters of a plex.
    pub(super) fn tally(&self, plex: &str, map: &PlexMap) -> Rc<PlexTally> {
        let subdisks = map.subdisks.iter();
        let subdisks = subdisks.map(|subdisk| (subdisk.name.as_str(), subdisk.drive.as_str()));
        self.store.borrow_mut().tallies.plex(plex, subdisks)
    }

    /// Metadata of a plex that keeps its own redundancy: its subdisks that are here, then hot spares.
    pub(super) fn metadata(
        &self,
        name: &str,
        map: &PlexMap,
        spares: &[SpareArea],
    ) -> GvinumMetadata {
        let here = map.subdisks.iter();
        let here = here.filter(|subdisk| self.device(subdisk).is_some());
        let held = here.map(|subdisk| Held {
            subdisks: vec![subdisk.name.clone()],
            drives: vec![subdisk.drive.clone()],
            label_at_bytes: None,
            is_filled: subdisk.state != SubdiskState::Up,
            spare: None,
        });
        let spares = spares.iter().map(|spare| Held {
            subdisks: Vec::new(),
            drives: vec![spare.drive.clone()],
            label_at_bytes: None,
            is_filled: false,
            spare: Some((spare.drive.clone(), spare.at_bytes)),
        });
        let held = held.chain(spares).collect();
        let slots = map.subdisks.iter().map(|subdisk| subdisk.name.clone());
        GvinumMetadata::new(Rc::clone(&self.store), name, held)
            .with_slots(slots.collect())
            .with_bug(self.request.volume.bug)
    }

    /// Whether copies or parity have to be made equal first. What Plexum marked was being written; of what FreeBSD
    /// wrote nothing is known: gvinum never made the parity of a new plex (defect 3), so it is made before it is relied
    /// on.
    fn doubt(&self, has_parity: bool, is_degraded: bool) -> bool {
        match self.system.mark {
            Mark::Writing => true,
            Mark::Unknown => has_parity && !is_degraded && !self.request.volume.is_read_only,
            Mark::Settled => false,
        }
    }

    pub(super) fn plex_volume(
        &self,
        name: &str,
        map: &PlexMap,
        metadata: Box<dyn Metadata>,
        resync: Option<u64>,
        options: VolumeOptions,
        spares: Vec<SpareArea>,
    ) -> Volume<D, C> {
        let mut members = Vec::new();
        let mut sector_bytes = 512;
        for (slot, subdisk) in (0_u16..).zip(&map.subdisks) {
            let Some((_, device_name, device)) = self.device(subdisk) else {
                continue;
            };
            sector_bytes = sector_bytes.max(device.info().sector_bytes);
            let standing = if subdisk.state == SubdiskState::Up {
                Standing::Active
            } else {
                Standing::Rebuilding {
                    valid_below_bytes: 0,
                    by_bitmap: false,
                }
            };
            members.push(part(
                device_name,
                device,
                slot,
                standing,
                subdisk.drive_offset_bytes..subdisk.drive_end_bytes(),
                RangeSet::new(),
            ));
        }
        members.extend(
            spares
                .into_iter()
                .filter_map(|spare| self.spare_part(spare)),
        );
        Volume::new(VolumeParts {
            name: name.to_owned(),
            regions: Regions::without_bitmap(&map.geometry, sector_bytes, resync),
            geometry: map.geometry.clone(),
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            members,
            metadata,
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: resync,
            options,
        })
    }

    /// Whether a drive of the volume is away that was there at the last save: it may come back newer than what is
    /// served. Whether what was saved last is lost with the configuration of a drive that is here.
    pub(super) fn check_absent(&self, volume: &str) -> Result<(), ForeignError> {
        if self.request.run_degraded || self.request.volume.is_read_only {
            return Ok(());
        }
        if let Some(device) = &self.system.unreadable_newer {
            return Err(ForeignError::Degraded(format!(
                "{volume}: {device} was written last, and neither copy of its configuration makes sense"
            )));
        }
        match absent(self.system, volume) {
            None => Ok(()),
            Some(subdisk) => Err(ForeignError::Degraded(format!(
                "{volume}: drive {} of {} is not here, and was up at the last save",
                subdisk.drive, subdisk.name
            ))),
        }
    }
}

/// A subdisk of a volume that is away and was up at the last save.
pub(super) fn absent<'a>(system: &'a System, volume: &str) -> Option<&'a Subdisk> {
    let plexes = plexes_of(&system.config, volume);
    let is_in = |subdisk: &&Subdisk| {
        let plex = subdisk.plex.as_ref().map(|(plex, _)| plex);
        plexes.iter().any(|other| Some(&other.name) == plex)
    };
    let was_up = |subdisk: &&Subdisk| {
        let mut recorded = system.recorded.subdisks.iter();
        recorded.any(|other| other.name == subdisk.name && other.state == SubdiskState::Up)
    };
    let away = system.config.subdisks.iter().filter(is_in);
    let mut away = away.filter(|subdisk| subdisk.state == SubdiskState::Down);
    away.find(was_up)
}

pub(super) fn part<D>(
    name: String,
    device: D,
    slot: u16,
    standing: Standing,
    data: Range<u64>,
    bad: RangeSet,
) -> DrivePart<D> {
    DrivePart {
        name,
        device: Some(device),
        record: MemberRecord {
            slot: Some(slot),
            standing,
            is_replacement: false,
            is_write_mostly: false,
        },
        data,
        bad,
    }
}
