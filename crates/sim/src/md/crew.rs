//! The satellites of a volume on several cores, in the loop: all on the one thread of the world, where the order of
//! tasks is drawn.
//!
//! Invariant: requests go to the shards in turn, the home included, wherever they belong.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use plexum_engine::shard::{Opener, Satellite, ShardCounters, Spawn};
use plexum_engine::volume::Volume;
use plexum_exec::Spawner;

use super::slots::Setting;
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;

type SimVolume = Volume<SimDisk, SimClock>;
type SimSatellite = Satellite<SimDisk, SimClock, Disks>;

/// Disks by number, for satellites that open them once more.
#[derive(Clone, Default)]
pub struct Disks(Rc<RefCell<BTreeMap<u32, SimDisk>>>);

impl Opener<SimDisk> for Disks {
    async fn open(&self, _name: &str, handle: u64) -> Option<SimDisk> {
        let disk = self
            .0
            .borrow()
            .get(&((handle & 0xffff_ffff) as u32))
            .cloned()?;
        Some(disk.at_handle(handle))
    }
}

/// The satellites of a volume.
pub struct Crew {
    satellites: Vec<Rc<SimSatellite>>,
    disks: Disks,
    turn: Cell<usize>,
}

impl Crew {
    /// Divides `volume`; nothing runs yet.
    #[must_use]
    pub fn new(volume: &SimVolume, setting: &Setting, present: &[SimDisk]) -> Self {
        let disks = Disks::default();
        let context = &setting.context;
        let seeds = volume.share(setting.shards).into_iter();
        let satellites = seeds.map(|seed| {
            let (clock, pool) = (context.clock.clone(), context.pool.clone());
            Rc::new(Satellite::new(seed, clock, pool, disks.clone()))
        });
        let crew = Self {
            satellites: satellites.collect(),
            disks,
            turn: Cell::new(0),
        };
        present.iter().for_each(|disk| crew.meet(disk));
        crew
    }

    /// Satellites may have to open this disk.
    pub fn meet(&self, disk: &SimDisk) {
        let mut disks = self.disks.0.borrow_mut();
        disks.insert(disk.number(), disk.clone());
    }

    /// Starts home and satellites.
    pub fn start(&self, volume: &Rc<SimVolume>, spawner: &Spawner) {
        let own = spawner.clone();
        let spawn: Spawn = Rc::new(move |task| {
            let _detached = own.spawn(task);
        });
        spawn(Box::pin(SimVolume::run_sharing(
            Rc::clone(volume),
            Rc::clone(&spawn),
        )));
        for satellite in &self.satellites {
            spawn(Box::pin(Rc::clone(satellite).run(Rc::clone(&spawn))));
        }
    }

    /// Ends the satellites; the volume has stopped.
    pub fn end(&self) {
        self.satellites.iter().for_each(|satellite| satellite.end());
    }

    /// What all satellites together have done.
    #[must_use]
    pub fn counters(&self) -> ShardCounters {
        let mut sum = ShardCounters::default();
        for satellite in &self.satellites {
            let counters = satellite.counters();
            sum.served += counters.served;
            sum.sent_home += counters.sent_home;
        }
        sum
    }

    /// Who takes the next request; `None`: the home.
    pub fn next(&self) -> Option<Rc<SimSatellite>> {
        let turn = self.turn.get();
        self.turn.set((turn + 1) % (self.satellites.len() + 1));
        self.satellites.get(turn).cloned()
    }
}
