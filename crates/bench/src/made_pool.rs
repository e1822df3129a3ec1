//! ZFS pools that are measured: made with one volume, filled, and opened as they are served.

use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_pool::{
    Foreign, GroupKind, LivePool, LiveVolume, NewGroup, NewMember, NewPool, NewVolume, PoolError,
    WritablePool,
};
use plexum_runtime::clock::RealClock;
use plexum_zfs::{NamedDevice, find_members};

use crate::BenchError;

/// Block of the volume, and sector of the pool.
pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const SECTOR_SHIFT: u32 = 12;
/// The same as what is served has.
const PENDING_BYTES_MAX: u64 = 128 << 20;
const BUFFERS_BYTES: usize = 64 << 20;
const FILL_BYTES: usize = 128 << 10;
const VOLUME: &str = "bench/vol";

/// What a pool is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolShape {
    kind: GroupKind,
    group_members: usize,
    groups: usize,
}

impl PoolShape {
    /// One group of eight with two parities.
    pub const RAIDZ2: Self = Self {
        kind: GroupKind::RaidZ(2),
        group_members: 8,
        groups: 1,
    };
    /// Four mirrors of two.
    pub const MIRRORS: Self = Self {
        kind: GroupKind::Mirror,
        group_members: 2,
        groups: 4,
    };

    /// Members of all groups.
    pub fn members(self) -> usize {
        self.group_members * self.groups
    }
}

pub(crate) fn of_pool(error: PoolError) -> BenchError {
    BenchError(error.to_string())
}

/// Makes a pool with a volume; `member` opens the member of a number.
pub(crate) async fn make<D: Device>(
    shape: &PoolShape,
    member: impl Fn(usize) -> Result<D, BenchError>,
    volume_bytes: u64,
) -> Result<(), BenchError> {
    let mut groups = Vec::new();
    for group in 0..shape.groups {
        let mut members = Vec::new();
        for index in 0..shape.group_members {
            let number = group * shape.group_members + index;
            members.push(NewMember {
                name: format!("member {number}"),
                path: format!("/bench/{number}"),
                is_disk: false,
                device: Rc::new(member(number)?),
            });
        }
        groups.push(NewGroup {
            kind: shape.kind,
            members,
        });
    }
    let new = NewPool {
        name: "bench".into(),
        ashift: SECTOR_SHIFT,
        wall_s: 1,
        seed: 1,
        host: "bench".into(),
    };
    let buffers = BufPool::new(BUFFERS_BYTES);
    WritablePool::create(groups, &new, &buffers)
        .await
        .map_err(of_pool)?;
    let mut pool = writable(shape, member).await?;
    let volume = NewVolume {
        name: VOLUME.into(),
        size_bytes: volume_bytes,
        block_bytes: BLOCK_BYTES as u64,
        wall_s: 2,
        seed: 2,
    };
    pool.create_volume(&volume).await.map_err(of_pool)?;
    pool.export(2).await.map_err(of_pool)
}

async fn writable<D: Device>(
    shape: &PoolShape,
    member: impl Fn(usize) -> Result<D, BenchError>,
) -> Result<WritablePool<D>, BenchError> {
    let buffers = BufPool::new(BUFFERS_BYTES);
    let mut named = Vec::new();
    for number in 0..shape.members() {
        named.push(NamedDevice {
            name: format!("member {number}"),
            device: member(number)?,
        });
    }
    let (members, _) = find_members(named, &buffers).await;
    let mut pool = WritablePool::open(members, Foreign::Refused, &buffers)
        .await
        .map_err(of_pool)?;
    pool.begin(1).await.map_err(of_pool)?;
    Ok(pool)
}

/// The pool as it is served.
pub(crate) async fn open<D: Device>(
    shape: &PoolShape,
    member: impl Fn(usize) -> Result<D, BenchError>,
    clock: RealClock,
) -> Result<Rc<LivePool<D, RealClock>>, BenchError> {
    let pool = writable(shape, member).await?;
    Ok(Rc::new(LivePool::new(pool, clock, PENDING_BYTES_MAX)))
}

/// Its volume, with something in every block.
pub(crate) async fn filled<D: Device>(
    pool: &Rc<LivePool<D, RealClock>>,
    volume_bytes: u64,
) -> Result<LiveVolume<D, RealClock>, BenchError> {
    let volume = LiveVolume::open(pool, VOLUME).await.map_err(of_pool)?;
    let piece = vec![0x5a; FILL_BYTES];
    for offset in (0..volume_bytes).step_by(FILL_BYTES) {
        volume.write(offset, &piece).await.map_err(of_pool)?;
    }
    commit(pool).await?;
    Ok(volume)
}

/// Everything that was written reaches a root.
pub(crate) async fn commit<D: Device>(pool: &LivePool<D, RealClock>) -> Result<(), BenchError> {
    pool.change(async |pool| pool.commit(3).await)
        .await
        .map_err(of_pool)
}
