//! Pools on disks in memory, with a volume `tank/vol`.

use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_disks::rng::Rng;
use plexum_pool::{
    Absent, Foreign, GroupKind, NewGroup, NewMember, NewPool, NewVolume, OpenVolume, WritablePool,
    WriteOptions, check_pool,
};
use plexum_zfs::{OpenOptions, Pool, find_members};

use super::memory::{MemoryDisk, Power, named};

/// Bytes of `tank/vol`.
pub const VOLUME_BYTES: usize = 1 << 20;

pub async fn open(disks: &[MemoryDisk]) -> (WritablePool<MemoryDisk>, OpenVolume) {
    let buffers = BufPool::new(1 << 20);
    let (members, _) = find_members(named(disks), &buffers).await;
    let mut pool = WritablePool::open(members, Foreign::Refused, &buffers)
        .await
        .unwrap();
    let volume = pool.open_volume("tank/vol").await.unwrap();
    (pool, volume)
}

/// The same of disks of which some are missing.
pub async fn open_without(disks: &[MemoryDisk]) -> (WritablePool<MemoryDisk>, OpenVolume) {
    let buffers = BufPool::new(1 << 20);
    let (members, _) = find_members(named(disks), &buffers).await;
    let options = WriteOptions {
        absent: Absent::Accepted,
        ..WriteOptions::default()
    };
    let mut pool = WritablePool::open(members, options, &buffers)
        .await
        .unwrap();
    let volume = pool.open_volume("tank/vol").await.unwrap();
    (pool, volume)
}

pub async fn assert_sound(disks: &[MemoryDisk], what: &str) {
    let (members, _) = find_members(named(disks), &BufPool::new(1 << 20)).await;
    let report = check_pool(Pool::open(members, &OpenOptions::default()).await.unwrap())
        .await
        .unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

pub async fn write(
    pool: &mut WritablePool<MemoryDisk>,
    volume: &OpenVolume,
    bytes: &mut [u8],
    rng: &mut Rng,
    count: usize,
) {
    for _ in 0..count {
        let length = 512 * rng.between(1, 40) as usize;
        let at = 512 * rng.below(((VOLUME_BYTES - length) / 512) as u64) as usize;
        let value = rng.next_u64() as u8;
        bytes[at..at + length].fill(value);
        if value.is_multiple_of(8) {
            bytes[at..at + length].fill(0);
            pool.trim(volume, at as u64..(at + length) as u64)
                .await
                .unwrap();
        } else {
            pool.write(volume, at as u64, &bytes[at..at + length])
                .await
                .unwrap();
        }
    }
}

/// A pool that was committed a few times, and what its volume holds.
pub async fn world(
    kinds: &[(GroupKind, usize)],
    block_bytes: u64,
    rng: &mut Rng,
) -> (Vec<MemoryDisk>, Vec<u8>) {
    let power = Power::on();
    let count = kinds.iter().map(|(_, count)| count).sum();
    let disks: Vec<MemoryDisk> = (0..count)
        .map(|_| MemoryDisk::new(64 << 20, &power))
        .collect();
    let mut left = disks.iter();
    let groups = kinds.iter().map(|(kind, count)| NewGroup {
        kind: *kind,
        members: left
            .by_ref()
            .take(*count)
            .map(|disk| NewMember {
                name: "disk".into(),
                path: "/disk".into(),
                is_disk: false,
                device: Rc::new(disk.clone()),
            })
            .collect(),
    });
    let new = NewPool {
        name: "tank".into(),
        ashift: 9,
        wall_s: 1,
        seed: 3,
        host: "test".into(),
    };
    WritablePool::create(groups.collect(), &new, &BufPool::new(0))
        .await
        .unwrap();
    let buffers = BufPool::new(1 << 20);
    let (members, _) = find_members(named(&disks), &buffers).await;
    let mut pool = WritablePool::open(members, Foreign::Refused, &buffers)
        .await
        .unwrap();
    let new = NewVolume {
        name: "tank/vol".into(),
        size_bytes: VOLUME_BYTES as u64,
        block_bytes,
        wall_s: 2,
        seed: 4,
    };
    pool.create_volume(&new).await.unwrap();
    let volume = pool.open_volume("tank/vol").await.unwrap();
    let mut bytes = vec![0; VOLUME_BYTES];
    for _ in 0..4 {
        write(&mut pool, &volume, &mut bytes, rng, 8).await;
        pool.commit(3).await.unwrap();
    }
    (disks, bytes)
}
