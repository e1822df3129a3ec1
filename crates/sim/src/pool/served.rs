//! A pool that is served, as the daemon serves it: opened, begun, its volumes opened, what members missed made good
//! meanwhile, exported at the end.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_exec::Spawner;
use plexum_pool::{
    Absent, GroupKind, LivePool, LiveVolume, MemberInfo, NewGroup, NewMember, NewPool, NewVolume,
    Now, PoolError, WritablePool, WriteOptions,
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

/// How a snapshot is called that is there for as long as a scrub.
pub(super) const PASSING: &str = "@passing";

/// A pool that is served.
pub struct Served {
    live: Rc<LivePool<SimDisk, SimClock>>,
    volumes: Vec<LiveVolume<SimDisk, SimClock>>,
    buffers: BufPool,
    clock: SimClock,
    /// Changes that were begun while it is served.
    changes: Cell<u64>,
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

/// By slot: the disk, and the number of the group.
pub(super) fn slots_of(members: &[MemberInfo]) -> Vec<(Option<u32>, u32)> {
    let slots = members.iter().map(|one| (disk_of(&one.name), one.plex_id));
    slots.collect()
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

/// Snapshots of a scrub that a crash has cut off are gone before anything else is done.
async fn forget_passing(pool: &mut WritablePool<SimDisk>, wall_s: u64) -> Result<(), PoolError> {
    for volume in pool.dataset_names().await? {
        for snapshot in pool.snapshots(&volume).await? {
            let name = format!("{volume}@{}", snapshot.name);
            if name.ends_with(PASSING) {
                pool.destroy_snapshot(&name, wall_s).await?;
            }
        }
    }
    Ok(())
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
        forget_passing(&mut pool, context.clock.wall_seconds()).await?;
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
        Ok(Self {
            live,
            volumes,
            buffers: context.pool.clone(),
            clock: context.clock.clone(),
            changes: Cell::new(0),
        })
    }

    /// By volume: its size.
    pub(super) fn sizes_bytes(&self) -> Vec<u64> {
        let sizes = self.volumes.iter().map(|one| one.volume().size_bytes);
        sizes.collect()
    }

    /// Disks of members that are out.
    pub(super) fn out(&self) -> Vec<u32> {
        let members = self.live.members().into_iter();
        let out = members.filter(|one| one.out.is_some());
        out.filter_map(|one| disk_of(&one.name)).collect()
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

    /// A member is taken offline, while clients go on.
    async fn offline(&self, slot: usize) -> Result<(), PoolError> {
        let members = self.live.members();
        let Some(member) = members.get(slot) else {
            return Err(PoolError::Refused(format!("there is no slot {slot}")));
        };
        let (name, wall_s) = (member.guid.to_string(), self.now().wall_s);
        let change = async |pool: &mut WritablePool<SimDisk>| pool.offline(&name, wall_s).await;
        self.live.change(change).await
    }

    /// The member of a disk, when it was taken offline.
    fn offline_member(&self, disk: u32) -> Option<MemberInfo> {
        let mut members = self.live.members().into_iter();
        members.find(|one| {
            let is_offline = one
                .out
                .as_deref()
                .is_some_and(|out| out.contains("offline"));
            is_offline && one.is_there && disk_of(&one.name) == Some(disk)
        })
    }

    /// A member that is there again is one again, and is given what it missed.
    async fn take_back(&self, disk: &SimDisk) -> Result<(), PoolError> {
        if let Some(member) = self.offline_member(disk.number()) {
            let (name, wall_s) = (member.guid.to_string(), self.now().wall_s);
            let change = async |pool: &mut WritablePool<SimDisk>| pool.online(&name, wall_s).await;
            self.live.change(change).await?;
            return self.live.make_good().await.map(drop);
        }
        let named = NamedDevice {
            name: device_name(disk),
            device: disk.reopen(),
        };
        let (members, notes) = find_members(vec![named], &self.buffers).await;
        let Some(member) = members.first() else {
            return Err(PoolError::Refused(notes.join(", ")));
        };
        let path = format!("{PATH}{}", disk.number());
        self.live.take_back(member, Some(&path)).await?;
        self.live.make_good().await.map(drop)
    }

    /// A disk that nobody has takes the place of a member, while clients go on.
    async fn replace(&self, slot: usize, disk: &SimDisk) -> Result<(), PoolError> {
        let members = self.live.members();
        let Some(member) = members.get(slot) else {
            return Err(PoolError::Refused(format!("there is no slot {slot}")));
        };
        let old = member.guid.to_string();
        let new = new_member(&disk.reopen());
        let begun = self.live.begin_replace(&old, new, self.now()).await?;
        self.live.end_replace(&begun).await.map(drop)
    }

    /// Everything is read and mended, while clients go on. A snapshot of each volume is there for as long.
    async fn scrub(&self) -> Result<(), PoolError> {
        let names = self.volumes.iter().map(|one| one.volume().name.clone());
        let names: Vec<String> = names.map(|name| format!("{name}{PASSING}")).collect();
        for name in &names {
            let now = self.now();
            let taken = self
                .live
                .change(async |pool| pool.snapshot(name, now).await);
            taken.await?;
        }
        let scrubbed = self.live.scrub().await;
        for name in &names {
            let wall_s = self.now().wall_s;
            let gone = self
                .live
                .change(async |pool| pool.destroy_snapshot(name, wall_s).await);
            gone.await?;
        }
        scrubbed.map(drop)
    }

    /// No two changes have one seed, also when they begin in the same moment: identities are made of it.
    fn now(&self) -> Now {
        self.changes.set(self.changes.get() + 1);
        Now {
            wall_s: self.clock.wall_seconds(),
            seed: self.clock.now_ns() ^ self.changes.get() << 48,
        }
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

    async fn operate(&self, operation: Operation, disks: &[SimDisk]) -> Result<(), String> {
        match operation {
            Operation::Add { disk } => {
                let taken_back = self.take_back(&disks[disk as usize]).await;
                taken_back.map_err(|error| error.to_string())
            }
            Operation::Replace { slot, disk } => {
                let replaced = self.replace(slot, &disks[disk as usize]).await;
                replaced.map_err(|error| error.to_string())
            }
            Operation::Scrub => {
                let scrubbed = self.scrub().await;
                scrubbed.map_err(|error| error.to_string())
            }
            Operation::Fail { slot } => {
                let taken_out = self.offline(slot).await;
                taken_out.map_err(|error| error.to_string())
            }
        }
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
