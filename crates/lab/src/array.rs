//! Sets of simulated disks, and volumes over them made and opened by the engine's own create and open paths.
//!
//! Invariants:
//! - equal disks get slightly different speeds and phases from the seed: equal ones would lock (lab.md 2.9);
//! - in timing mode exactly the bytes before the data area are kept, so metadata is real, and no parity is computed
//!   (`world.rs`).

mod bare;

use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_disks::clock::SimClock;
use plexum_disks::disk::mechanical_spec::DiskSpec;
use plexum_disks::disk::timed::{Bus, Contents, TimedDisk};
use plexum_disks::rng::{Rng, mix};
use plexum_engine::balance::Policy;
use plexum_engine::volume::VolumeOptions;
use plexum_exec::Spawner;
use plexum_format::SECTOR_BYTES;
use plexum_format::md::MdVersion;
use plexum_layout::Organisation;
use plexum_md::assemble::Options;
use plexum_md::create::{NewArray, Start, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};

use crate::error::LabError;
use crate::member::{Member, SimVolume};
use crate::world::World;

pub use crate::world::Mode;

/// Unit of md's strips.
const MD_STRIP_BYTES: u64 = 4096;

/// How long a simulated member may take to answer. None of them ever hangs: what takes long is what is measured.
pub(crate) const MEMBER_TIMEOUT: Duration = Duration::from_secs(3600);

/// Disks of one machine: make and bus of each.
#[derive(Clone, Debug)]
pub struct DiskSet {
    /// Make of each disk.
    pub disks: Vec<DiskSpec>,
    /// Which bus each hangs on, if it shares one.
    pub bus_of: Vec<Option<usize>>,
    /// Rates of the buses, in bytes a second.
    pub buses: Vec<f64>,
    /// Whether equal disks are made to differ a little.
    pub varies: bool,
}

impl DiskSet {
    /// So many disks of one make, each with a path of its own.
    #[must_use]
    pub fn of(spec: &DiskSpec, count: usize) -> Self {
        Self::mixed(vec![spec.clone(); count])
    }

    /// Different disks, each with a path of its own.
    #[must_use]
    pub fn mixed(disks: Vec<DiskSpec>) -> Self {
        Self {
            bus_of: vec![None; disks.len()],
            disks,
            buses: Vec::new(),
            varies: true,
        }
    }

    /// All on one bus.
    #[must_use]
    pub fn on_one_bus(mut self, bytes_per_s: f64) -> Self {
        self.buses = vec![bytes_per_s];
        self.bus_of = vec![Some(0); self.disks.len()];
        self
    }

    /// Makes the disks.
    ///
    /// # Errors
    /// A spec that makes no disk.
    pub fn make(&self, world: &World, seed: u64, mode: Mode) -> Result<Vec<TimedDisk>, LabError> {
        let buses: Vec<Bus> = self.buses.iter().map(|rate| Bus::new(*rate)).collect();
        let mut rng = Rng::new(mix(seed ^ 0xd15c));
        let contents = match mode {
            Mode::Timing => Contents::Below(0),
            Mode::Data => Contents::All,
        };
        world.add_disks(mode);
        let mut made = Vec::new();
        for (index, spec) in self.disks.iter().enumerate() {
            let mut spec = spec.clone();
            if let DiskSpec::Mechanical(spec) = &mut spec
                && self.varies
            {
                // 0.02 to 0.1 %, either way.
                let share = rng.between(200, 1000) as f64 / 1e6;
                let sign = if rng.chance(1, 2) { 1.0 } else { -1.0 };
                spec.rpm *= 1.0 + sign * share;
                spec.phase_turns = rng.below(1 << 20) as f64 / f64::from(1 << 20);
            }
            let bus = self.bus_of[index].map(|bus| buses[bus].clone());
            let disk = TimedDisk::new(&spec, world.clock(), bus, contents)
                .map_err(|error| LabError::Usage(format!("disk {index}: {error}")))?;
            made.push(disk);
        }
        Ok(made)
    }
}

/// Which log closes the write hole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogKind {
    /// None.
    #[default]
    Without,
    /// The stripe log; writes are answered when they are in place.
    WriteThrough,
    /// The stripe log; writes are answered when they are in the log.
    WriteBack,
    /// md's partial parity log, which excludes a bitmap.
    PartialParity,
}

/// What a simulated volume shall be.
#[derive(Clone, Debug)]
pub struct ArraySpec {
    /// Organisation with layout.
    pub organisation: Organisation,
    /// Strip size, 0 where there are none.
    pub strip_bytes: u64,
    /// Read balance.
    pub balance: Policy,
    /// Whether a redundant volume has a bitmap.
    pub has_bitmap: bool,
    /// Which log it has.
    pub log: LogKind,
    /// Size of a region; `None`: the engine chooses.
    pub region_bytes: Option<u64>,
    /// Bytes to use of each member; `None`: all.
    pub member_bytes: Option<u64>,
    /// What the members are called; those without a name by their slot (`disk0` ...).
    pub names: Vec<String>,
}

impl ArraySpec {
    /// That organisation with the defaults of `plexum create`, members in agreement.
    #[must_use]
    pub fn new(organisation: Organisation, strip_bytes: u64) -> Self {
        let has_strips = !matches!(organisation, Organisation::Raid1 | Organisation::Linear);
        Self {
            organisation,
            strip_bytes: if has_strips { strip_bytes } else { 0 },
            balance: Policy::Load,
            has_bitmap: true,
            log: LogKind::Without,
            region_bytes: None,
            member_bytes: None,
            names: Vec::new(),
        }
    }

    /// What the member in a slot is called.
    fn name_of(&self, slot: usize) -> String {
        let named = self.names.get(slot).cloned();
        named.unwrap_or_else(|| format!("disk{slot}"))
    }
}

/// What building a volume needs of the world.
#[derive(Clone)]
pub struct Surroundings {
    /// Time.
    pub clock: SimClock,
    /// Buffers.
    pub pool: BufPool,
    /// Tasks.
    pub spawner: Spawner,
}

impl Surroundings {
    /// Those of a world.
    #[must_use]
    pub fn of(world: &World) -> Self {
        Self {
            clock: world.clock().clone(),
            pool: world.pool().clone(),
            spawner: world.spawner(),
        }
    }
}

fn identity(number: u64) -> [u8; 16] {
    let mut bytes = [0x4c; 16];
    bytes[..8].copy_from_slice(&mix(number + 1).to_le_bytes());
    bytes
}

/// Strips that md cannot express (Vinum could): such a volume runs without metadata.
fn needs_no_format(spec: &ArraySpec) -> bool {
    matches!(spec.organisation, Organisation::Raid0(_))
        && !spec.strip_bytes.is_multiple_of(MD_STRIP_BYTES)
}

fn new_array(around: &Surroundings, members: &[Option<Member>], spec: &ArraySpec) -> NewArray {
    NewArray {
        version: MdVersion::V12,
        organisation: spec.organisation,
        strip_bytes: spec.strip_bytes,
        size_bytes: spec.member_bytes,
        members: members
            .iter()
            .map(|member| member.as_ref().map(|member| member.info().size_bytes))
            .collect(),
        spares: Vec::new(),
        write_mostly: Vec::new(),
        stored_name: "lab:volume".to_owned(),
        uuid: identity(0),
        identities: (0..members.len() as u64)
            .map(|slot| identity(slot + 1))
            .collect(),
        wall_seconds: around.clock.wall_seconds(),
        has_bitmap: spec.has_bitmap,
        region_bytes: spec.region_bytes,
        log_bytes_max: matches!(spec.log, LogKind::WriteThrough | LogKind::WriteBack)
            .then_some(u64::MAX),
        has_ppl: spec.log == LogKind::PartialParity,
        is_write_back: spec.log == LogKind::WriteBack,
        start: Start::Agreeing,
    }
}

/// Makes a volume over `members` and starts its background work. A `None` stays an empty slot.
///
/// # Errors
/// `Usage` when members, organisation and strip size do not fit together.
pub async fn build(
    around: Surroundings,
    members: Vec<Option<Member>>,
    spec: ArraySpec,
    mode: Mode,
) -> Result<Rc<SimVolume>, LabError> {
    if needs_no_format(&spec) {
        return bare::build(around, members, &spec);
    }
    let refused = |error: &dyn std::fmt::Display| LabError::Usage(error.to_string());
    let array = new_array(&around, &members, &spec);
    let plan = plan(&array).map_err(|error| refused(&error))?;
    if let Some(reason) = &plan.no_log {
        return Err(refused(reason));
    }
    for (member, superblock) in members.iter().zip(&plan.superblocks) {
        if let (Mode::Timing, Some(Member::Disk(disk)), Some(superblock)) =
            (mode, member, superblock)
        {
            disk.set_contents(Contents::Below(
                superblock.data_offset_sectors * SECTOR_BYTES,
            ));
        }
    }
    write_new(&plan, &members, &around.pool)
        .await
        .map_err(|(index, error)| LabError::Io(format!("member {index}: {error}")))?;
    let devices = members.into_iter().enumerate();
    let devices = devices
        .filter_map(|(slot, member)| Some((spec.name_of(slot), member?)))
        .collect();
    let request = OpenRequest {
        assemble: Options {
            run_degraded: true,
            ..Options::default()
        },
        volume: VolumeOptions {
            balance: spec.balance,
            member_timeout: MEMBER_TIMEOUT,
            ..VolumeOptions::default()
        },
        ..OpenRequest::default()
    };
    let (volume, _) = open_volume(devices, around.clock, around.pool, request)
        .await
        .map_err(|error| refused(&error))?;
    let volume = Rc::new(volume);
    let served = Rc::clone(&volume);
    drop(
        around
            .spawner
            .spawn(async move { served.run_background().await }),
    );
    Ok(volume)
}
