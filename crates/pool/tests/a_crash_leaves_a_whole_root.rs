//! The power is cut at every operation of a commit, and every sector that was not flushed is lost or not: what is there
//! afterwards is the root before or the one that was being written, whole, and it goes on from there.
#![allow(clippy::unwrap_used)]

#[path = "common/memory.rs"]
mod memory;

use std::rc::Rc;

use memory::{MemoryDisk, Power};
use plexum_block::buf::BufPool;
use plexum_disks::rng::Rng;
use plexum_pool::{
    Foreign, GroupKind, NewGroup, NewMember, NewPool, NewVolume, OpenVolume, WritablePool,
    check_pool,
};
use plexum_testkit::block_on;
use plexum_zfs::{NamedDevice, OpenOptions, Pool, find_members};

const VOLUME_BYTES: usize = 1 << 20;

fn named(disks: &[MemoryDisk]) -> Vec<NamedDevice<MemoryDisk>> {
    let named = disks.iter().enumerate();
    named
        .map(|(n, disk)| NamedDevice {
            name: format!("disk {n}"),
            device: disk.clone(),
        })
        .collect()
}

async fn open(disks: &[MemoryDisk]) -> (WritablePool<MemoryDisk>, OpenVolume) {
    let buffers = BufPool::new(1 << 20);
    let (members, _) = find_members(named(disks), &buffers).await;
    let mut pool = WritablePool::open(members, Foreign::Refused, &buffers)
        .await
        .unwrap();
    let volume = pool.open_volume("tank/vol").await.unwrap();
    (pool, volume)
}

async fn assert_sound(disks: &[MemoryDisk], what: &str) {
    let (members, _) = find_members(named(disks), &BufPool::new(1 << 20)).await;
    let report = check_pool(Pool::open(members, &OpenOptions::default()).await.unwrap())
        .await
        .unwrap();
    assert!(report.is_clean(), "{what}: {:#?}", report.findings);
}

async fn write(
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
async fn world(kinds: &[(GroupKind, usize)], rng: &mut Rng) -> (Vec<MemoryDisk>, Vec<u8>) {
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
        block_bytes: 4096,
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

/// The power is cut after `operations`; whether the commit came to its end before.
async fn crash(disks: &[MemoryDisk], before: &[u8], operations: u64, seed: u64) -> bool {
    let what = format!("cut after {operations} operations");
    let mut rng = Rng::new(seed);
    let power = Power::on();
    let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    let (mut pool, volume) = open(&disks).await;
    let mut after = before.to_vec();
    write(&mut pool, &volume, &mut after, &mut rng, 12).await;
    power.cut_after(Some(operations));
    let is_committed = match seed % 2 {
        0 => pool.commit(5).await.is_ok(),
        _ => pool.export(5).await.is_ok(),
    };
    if !is_committed {
        assert!(
            pool.write(&volume, 0, &[1; 512]).await.is_err(),
            "{what}: it went on after an error"
        );
    }
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    assert_sound(&disks, &what).await;
    let (mut pool, volume) = open(&disks).await;
    let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
    assert!(
        read == after || read == before,
        "{what}: neither the old state nor the new one"
    );
    assert!(
        read == after || !is_committed,
        "{what}: an answered commit is lost"
    );
    let mut now = read;
    for _ in 0..4 {
        write(&mut pool, &volume, &mut now, &mut rng, 6).await;
        pool.commit(6).await.unwrap();
    }
    drop(pool);
    assert_sound(&disks, &what).await;
    let (pool, volume) = open(&disks).await;
    assert!(
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
        "{what}: it did not go on well"
    );
    is_committed
}

fn crash_everywhere(kinds: &[(GroupKind, usize)], seed: u64) {
    let mut rng = Rng::new(seed);
    block_on(async {
        let (disks, bytes) = world(kinds, &mut rng).await;
        for seed in [2, 3] {
            let mut operations = 0;
            while !crash(&disks, &bytes, operations, seed).await {
                operations += 1;
            }
            assert!(operations > 10, "a commit has {operations} operations");
        }
    });
}

#[test]
fn of_raidz_the_old_root_is_left_or_the_new_one() {
    crash_everywhere(&[(GroupKind::RaidZ(1), 3)], 1);
}

#[test]
fn of_two_mirrors_the_old_root_is_left_or_the_new_one() {
    crash_everywhere(&[(GroupKind::Mirror, 2), (GroupKind::Mirror, 2)], 2);
}

#[test]
fn of_raidz3_the_old_root_is_left_or_the_new_one() {
    crash_everywhere(&[(GroupKind::RaidZ(3), 5)], 3);
}
