//! A volume that is larger than its pool: what was answered is there, "no space" changes nothing, space that is given
//! back can be used again.

use std::collections::BTreeMap;
use std::rc::Rc;

use crate::common::memory::{MemoryDisk, Power, named};
use plexum_block::buf::BufPool;
use plexum_disks::rng::Rng;
use plexum_pool::{
    Foreign, GroupKind, NewGroup, NewMember, NewPool, NewVolume, OpenVolume, PoolError,
    WritablePool, check_pool,
};
use plexum_testkit::block_on;
use plexum_zfs::{OpenOptions, Pool, find_members};

const BLOCK_BYTES: u64 = 4096;
const VOLUME_BLOCKS: u64 = 64 << 10;

async fn open(disks: &[MemoryDisk]) -> WritablePool<MemoryDisk> {
    let buffers = BufPool::new(1 << 20);
    let (members, _) = find_members(named(disks), &buffers).await;
    WritablePool::open(members, Foreign::Refused, &buffers)
        .await
        .unwrap()
}

async fn assert_sound(disks: &[MemoryDisk]) {
    let (members, _) = find_members(named(disks), &BufPool::new(1 << 20)).await;
    let pool = Pool::open(members, &OpenOptions::default()).await.unwrap();
    let report = check_pool(pool).await.unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

async fn make(kind: GroupKind, count: usize) -> Vec<MemoryDisk> {
    let power = Power::on();
    let disks: Vec<MemoryDisk> = (0..count)
        .map(|_| MemoryDisk::new(64 << 20, &power))
        .collect();
    let members = disks.iter().map(|disk| NewMember {
        name: "disk".into(),
        path: "/disk".into(),
        is_disk: false,
        device: Rc::new(disk.clone()),
    });
    let members = members.collect();
    let new = NewPool {
        name: "tank".into(),
        ashift: 12,
        wall_s: 1,
        seed: 3,
        host: "test".into(),
    };
    WritablePool::create(vec![NewGroup { kind, members }], &new, &BufPool::new(0))
        .await
        .unwrap();
    disks
}

/// Writes random blocks until there is no space; what every block holds is in `shadow`.
async fn fill(
    pool: &mut WritablePool<MemoryDisk>,
    volume: &OpenVolume,
    shadow: &mut BTreeMap<u64, u8>,
    rng: &mut Rng,
) -> u64 {
    for count in 0.. {
        let (id, value) = (rng.below(VOLUME_BLOCKS), rng.next_u64() as u8);
        match pool
            .write(volume, id * BLOCK_BYTES, &[value; BLOCK_BYTES as usize])
            .await
        {
            Ok(()) => {
                shadow.insert(id, value);
            }
            Err(PoolError::NoSpace { .. }) => return count,
            Err(error) => panic!("{error}"),
        }
        if count % 500 == 499 {
            pool.commit(2).await.unwrap();
        }
    }
    unreachable!("the volume is larger than the pool")
}

async fn assert_holds(
    pool: &WritablePool<MemoryDisk>,
    volume: &OpenVolume,
    shadow: &BTreeMap<u64, u8>,
) {
    for (id, value) in shadow {
        let read = pool
            .read(volume, id * BLOCK_BYTES, BLOCK_BYTES as usize)
            .await
            .unwrap();
        assert!(read.iter().all(|byte| byte == value), "block {id}");
    }
}

fn fill_and_empty(kind: GroupKind, count: usize) {
    block_on(async {
        let disks = make(kind, count).await;
        let mut pool = open(&disks).await;
        let size_bytes = VOLUME_BLOCKS * BLOCK_BYTES;
        let new = NewVolume {
            name: "tank/vol".into(),
            size_bytes,
            block_bytes: BLOCK_BYTES,
            wall_s: 2,
            seed: 4,
        };
        pool.create_volume(&new).await.unwrap();
        let volume = pool.open_volume("tank/vol").await.unwrap();
        let (mut shadow, mut rng) = (BTreeMap::new(), Rng::new(1));
        let first = fill(&mut pool, &volume, &mut shadow, &mut rng).await;
        assert!(first > 1000, "{first} blocks fit");
        pool.commit(3).await.unwrap();
        assert_holds(&pool, &volume, &shadow).await;
        drop(pool);
        assert_sound(&disks).await;
        let mut pool = open(&disks).await;
        let volume = pool.open_volume("tank/vol").await.unwrap();
        assert_holds(&pool, &volume, &shadow).await;
        pool.trim(&volume, 0..size_bytes).await.unwrap();
        shadow.clear();
        pool.commit(4).await.unwrap();
        pool.settle(5).await.unwrap();
        let second = fill(&mut pool, &volume, &mut shadow, &mut rng).await;
        assert!(second * 10 > first * 9, "{second} blocks fit after {first}");
        pool.commit(6).await.unwrap();
        assert_holds(&pool, &volume, &shadow).await;
        drop(pool);
        assert_sound(&disks).await;
    });
}

#[test]
fn of_raidz_nothing_is_lost_and_all_space_comes_back() {
    fill_and_empty(GroupKind::RaidZ(1), 3);
}

#[test]
fn of_a_mirror_nothing_is_lost_and_all_space_comes_back() {
    fill_and_empty(GroupKind::Mirror, 2);
}
