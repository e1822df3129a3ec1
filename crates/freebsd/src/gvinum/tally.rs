//! What drives, subdisks, plexes and volumes have done, in the terms of classic Vinum.
//!
//! Invariants:
//! - plain cells, nothing is allocated per request;
//! - a transfer is counted once on its subdisk, its drive and its plex; a volume is the sum of its plexes;
//! - a subdisk that goes to another drive takes what it has done along, a drive keeps what was done on it.
//!
//! Source: freebsd-geom.md section 2.15.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_engine::volume::Volume;
use plexum_layout::Geometry;

use super::counters::{Direction, PlexCounters, Transfers, count};

/// What a drive has done, for all volumes of its system.
#[derive(Debug)]
pub struct DriveTally {
    /// Its name.
    pub name: String,
    done: Cell<Transfers>,
}

impl DriveTally {
    /// Transfers since the last reset.
    pub fn done(&self) -> Transfers {
        self.done.get()
    }
}

/// What a subdisk has done.
#[derive(Debug)]
pub struct SubdiskTally {
    /// Its name.
    pub name: String,
    done: Cell<Transfers>,
    drive: RefCell<Rc<DriveTally>>,
}

impl SubdiskTally {
    /// Transfers since the last reset.
    pub fn done(&self) -> Transfers {
        self.done.get()
    }

    /// The drive that it is on.
    pub fn drive(&self) -> Rc<DriveTally> {
        Rc::clone(&self.drive.borrow())
    }

    fn transfer(&self, direction: Direction, length_bytes: u64) {
        for cell in [&self.done, &self.drive.borrow().done] {
            let mut done = cell.get();
            done.add(direction, 1, length_bytes);
            cell.set(done);
        }
    }
}

/// What a plex has done.
pub struct PlexTally {
    /// Its name.
    pub name: String,
    /// Its subdisks by slot.
    pub subdisks: Vec<Rc<SubdiskTally>>,
    done: Cell<PlexCounters>,
}

impl PlexTally {
    /// Counters since the last reset.
    pub fn done(&self) -> PlexCounters {
        self.done.get()
    }

    /// Counts a request that this plex has answered; `is_lost` by slot.
    pub fn count(
        &self,
        geometry: &Geometry,
        is_lost: impl Fn(usize) -> bool,
        direction: Direction,
        offset_bytes: u64,
        length_bytes: u64,
    ) {
        let on_slot = |slot: usize, direction, bytes| {
            if let Some(subdisk) = self.subdisks.get(slot) {
                subdisk.transfer(direction, bytes);
            }
        };
        let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
        let mut done = self.done.get();
        done += count(geometry, is_lost, direction, range, on_slot);
        self.done.set(done);
    }

    /// The same for a plex that is this volume.
    pub fn count_on<D: Device, C: Clock>(
        &self,
        volume: &Volume<D, C>,
        direction: Direction,
        offset_bytes: u64,
        length_bytes: u64,
    ) {
        let is_lost = |slot: usize| volume.is_lost(slot);
        let geometry = volume.geometry();
        self.count(geometry, is_lost, direction, offset_bytes, length_bytes);
    }

    fn reset(&self) {
        self.done.set(PlexCounters::default());
        for subdisk in &self.subdisks {
            subdisk.done.set(Transfers::default());
            subdisk.drive.borrow().done.set(Transfers::default());
        }
    }
}

/// What a volume has done.
pub struct VolumeTally {
    /// Its plexes by slot, then those on hot spares.
    pub plexes: Vec<Rc<PlexTally>>,
    /// The plexes count for themselves. Otherwise there is one, and whoever answers requests counts them on it.
    pub counts_itself: bool,
}

impl VolumeTally {
    /// The sum of its plexes.
    pub fn done(&self) -> PlexCounters {
        let mut sum = PlexCounters::default();
        self.plexes.iter().for_each(|plex| sum += plex.done());
        sum
    }

    /// Each drive under it once, in the order of the subdisks.
    pub fn drives(&self) -> Vec<Rc<DriveTally>> {
        let mut drives: Vec<Rc<DriveTally>> = Vec::new();
        for subdisk in self.plexes.iter().flat_map(|plex| &plex.subdisks) {
            let drive = subdisk.drive();
            if !drives.iter().any(|known| Rc::ptr_eq(known, &drive)) {
                drives.push(drive);
            }
        }
        drives
    }

    /// Starts anew: the volume, its plexes, its subdisks and the drives under them.
    pub fn reset(&self) {
        self.plexes.iter().for_each(|plex| plex.reset());
    }
}

/// All tallies of a system.
#[derive(Default)]
pub struct Tallies {
    drives: BTreeMap<String, Rc<DriveTally>>,
    subdisks: BTreeMap<String, Rc<SubdiskTally>>,
}

impl fmt::Debug for Tallies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tallies of {} subdisks", self.subdisks.len())
    }
}

impl Tallies {
    fn drive(&mut self, name: &str) -> Rc<DriveTally> {
        let drive = self.drives.entry(name.to_owned()).or_insert_with(|| {
            Rc::new(DriveTally {
                name: name.to_owned(),
                done: Cell::default(),
            })
        });
        Rc::clone(drive)
    }

    /// The tally of a plex with these subdisks: name and drive, by slot.
    pub fn plex<'a>(
        &mut self,
        name: &str,
        subdisks: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Rc<PlexTally> {
        let subdisks = subdisks.map(|(subdisk, drive)| {
            let drive = self.drive(drive);
            let tally = self.subdisks.entry(subdisk.to_owned()).or_insert_with(|| {
                Rc::new(SubdiskTally {
                    name: subdisk.to_owned(),
                    done: Cell::default(),
                    drive: RefCell::new(drive),
                })
            });
            Rc::clone(tally)
        });
        let subdisks = subdisks.collect();
        Rc::new(PlexTally {
            name: name.to_owned(),
            subdisks,
            done: Cell::default(),
        })
    }

    /// A subdisk is on another drive from now on.
    pub fn place(&mut self, subdisk: &str, drive: &str) {
        let drive = self.drive(drive);
        if let Some(subdisk) = self.subdisks.get(subdisk) {
            *subdisk.drive.borrow_mut() = drive;
        }
    }
}
