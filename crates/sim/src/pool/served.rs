//! A pool that is served, as the daemon serves it: opened, begun, its volumes opened, what members missed made good
//! meanwhile, exported at the end.

use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::Buf;
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_exec::Spawner;
use plexum_pool::{
    Absent, GroupKind, LivePool, LiveVolume, NewGroup, NewMember, NewPool, NewVolume, PoolError,
    WritablePool, WriteOptions,
};
use plexum_zfs::{MemberState, NamedDevice, find_members};

use super::memory::PoolMemory;
use super::plan::Plan;
use crate::members::{device_name, disk_named};
use crate::subject::{Context, Operation, Subject};
use crate::world::Scene;
use plexum_block::clock::Clock;
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;

/// What the path of a member begins with, before the number of its disk.
const PATH: &str = "/sim/disk ";

/// A pool that is served.
pub struct Served {
    live: Rc<LivePool<SimDisk, SimClock>>,
    volumes: Vec<LiveVolume<SimDisk, SimClock>>,
}

/// What a disk is as a new member.
pub(super) fn new_member(disk: &SimDisk) -> NewMember<SimDisk> {
    NewMember {
        name: device_name(disk),
        path: format!("{PATH}{}", disk.number()),
        is_disk: false,
        device: Rc::new(disk.clone()),
    }
}

/// Number of the disk of a member: one that is missing is called as it was last.
pub(super) fn disk_of(name: &str) -> Option<u32> {
    disk_named(name).or_else(|| name.strip_prefix(PATH)?.parse().ok())
}

/// How pools are opened here: members may be missing.
pub(super) fn write_options(plan: &Plan) -> WriteOptions {
    WriteOptions {
        absent: Absent::Accepted,
        bug: plexum_pool::mutant::DeliberateBug::new(plan.bug),
        ..WriteOptions::default()
    }
}

/// Makes the pool of a plan, and its volumes.
pub(super) async fn make(
    context: &Context,
    plan: &Plan,
    disks: &[SimDisk],
) -> Result<(), PoolError> {
    let mut left = disks.iter();
    let groups = plan.groups.iter().map(|(kind, count)| NewGroup {
        kind: *kind,
        members: left.by_ref().take(*count).map(new_member).collect(),
    });
    let groups: Vec<NewGroup<SimDisk>> = groups.collect();
    debug_assert!(
        groups
            .iter()
            .all(|group| group.kind != GroupKind::Mirror || group.members.len() > 1)
    );
    let new = NewPool {
        name: "tank".into(),
        ashift: plan.ashift,
        wall_s: context.clock.wall_seconds(),
        seed: context.seed,
        host: "sim".into(),
    };
    WritablePool::create(groups, &new, &context.pool).await?;
    let mut pool = open(context, plan, disks).await?;
    for (number, volume) in plan.volumes.iter().enumerate() {
        let new = NewVolume {
            name: Plan::volume_name(number),
            size_bytes: volume.size_bytes,
            block_bytes: volume.block_bytes,
            wall_s: context.clock.wall_seconds(),
            seed: context.seed ^ number as u64,
        };
        pool.create_volume(&new).await?;
    }
    pool.commit(context.clock.wall_seconds()).await
}

/// Opens the pool that is on these disks.
pub(super) async fn open(
    context: &Context,
    plan: &Plan,
    disks: &[SimDisk],
) -> Result<WritablePool<SimDisk>, PoolError> {
    let named = disks.iter().map(|disk| NamedDevice {
        name: device_name(disk),
        device: disk.clone(),
    });
    let (members, _): (Vec<MemberState<SimDisk>>, _) =
        find_members(named.collect(), &context.pool).await;
    WritablePool::open(members, write_options(plan), &context.pool).await
}

impl Served {
    /// Opens what is on these disks, has it managed, and serves it.
    pub(super) async fn begin(
        context: &Context,
        scene: &Scene<Served>,
        disks: &[SimDisk],
        manage: impl AsyncFnOnce(&mut WritablePool<SimDisk>) -> Result<(), PoolError>,
    ) -> Result<Self, PoolError> {
        let (plan, memory) = (&scene.plan, &scene.memory);
        let mut pool = open(context, plan, disks).await?;
        manage(&mut pool).await?;
        pool.begin(context.clock.wall_seconds()).await?;
        memory.committed_txg.set(pool.txg());
        let live = Rc::new(LivePool::new(
            pool,
            context.clock.clone(),
            plan.pending_bytes_max,
        ));
        let mut volumes = Vec::new();
        for number in 0..plan.volumes.len() {
            volumes.push(LiveVolume::open(&live, &Plan::volume_name(number)).await?);
        }
        Ok(Self { live, volumes })
    }

    /// By volume: its size.
    pub(super) fn sizes_bytes(&self) -> Vec<u64> {
        let sizes = self.volumes.iter().map(|one| one.volume().size_bytes);
        sizes.collect()
    }

    /// Members, as the pool knows them: disk, and whether it has everything.
    pub(super) fn members(&self) -> Vec<(Option<u32>, bool)> {
        let members = self.live.members().into_iter();
        members
            .map(|one| {
                (
                    disk_of(&one.name),
                    one.out.is_none() && one.missed_groups == 0,
                )
            })
            .collect()
    }

    async fn finish(&self, volume: usize, fua: Fua) -> Result<(), IoError> {
        match fua {
            Fua::Yes => self.flush(volume).await,
            Fua::No => Ok(()),
        }
    }
}

impl Subject for Served {
    type Plan = Plan;
    type Memory = PoolMemory;

    async fn read(&self, volume: usize, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let length = (bytes.end - bytes.start) as usize;
        let read = self.volumes[volume].read(bytes.start, length).await;
        read.map_err(|error| error.io_error())
    }

    async fn write(
        &self,
        volume: usize,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        let written = self.volumes[volume].write(offset_bytes, &data).await;
        written.map_err(|error| error.io_error())?;
        self.finish(volume, fua).await
    }

    async fn flush(&self, volume: usize) -> Result<(), IoError> {
        let flushed = self.volumes[volume].flush().await;
        flushed.map_err(|error| error.io_error())
    }

    async fn zero(
        &self,
        volume: usize,
        bytes: Range<u64>,
        _mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        let trimmed = self.volumes[volume].trim(bytes).await;
        trimmed.map_err(|error| error.io_error())?;
        self.finish(volume, fua).await
    }

    async fn background(self: Rc<Self>, _spawner: Spawner) {
        // What stands in the way is in the status; the volumes are served all the same.
        let _ = self.live.make_good().await;
    }

    async fn operate(&self, _operation: Operation, _disks: &[SimDisk]) -> Result<(), String> {
        Err("what an administrator does with a pool he does while nobody uses it".to_owned())
    }

    async fn stop(&self) -> Result<(), IoError> {
        let exported = self.live.export().await;
        exported.map_err(|error| error.io_error())
    }

    fn is_whole(&self) -> bool {
        self.members().iter().all(|(_, is_whole)| *is_whole)
    }

    fn describe(&self) -> String {
        format!("{:?}", self.live.members())
    }

    fn condition(&self) -> Option<&'static str> {
        let members = self.live.members();
        if members.iter().any(|one| one.out.is_some()) {
            return Some("degraded");
        }
        members
            .iter()
            .any(|one| one.missed_groups > 0)
            .then_some("making good")
    }
}
