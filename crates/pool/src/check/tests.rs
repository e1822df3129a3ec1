//! Each lie of a pool about itself is found: the table of zfs-write.md 2.4, and what no other judge sees.

use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_format::zfs::{
    PointerImage,
    zap_write::{MicroHead, encode_micro},
};
use plexum_testkit::block_on;
use plexum_zfs::{NamedDevice, OpenOptions, Pool, find_members};

use super::{CheckReport, FindingKind, check_pool};
use crate::dsl::{dir, kind, object, set};
use crate::memory::{MemoryDisk, Power};
use crate::space::Purpose;
use crate::{Foreign, GroupKind, NewGroup, NewMember, NewPool, NewVolume, WritablePool};

type TestPool = WritablePool<MemoryDisk>;

fn named(disks: &[MemoryDisk]) -> Vec<NamedDevice<MemoryDisk>> {
    let named = disks.iter().enumerate();
    named
        .map(|(n, disk)| NamedDevice {
            name: format!("disk {n}"),
            device: disk.clone(),
        })
        .collect()
}

fn open(disks: &[MemoryDisk]) -> TestPool {
    let buffers = BufPool::new(1 << 20);
    block_on(async {
        let (members, _) = find_members(named(disks), &buffers).await;
        WritablePool::open(members, Foreign::Refused, &buffers)
            .await
            .unwrap()
    })
}

fn check(disks: &[MemoryDisk]) -> CheckReport {
    let buffers = BufPool::new(1 << 20);
    block_on(async {
        let (members, _) = find_members(named(disks), &buffers).await;
        check_pool(Pool::open(members, &OpenOptions::default()).await.unwrap())
            .await
            .unwrap()
    })
}

/// A pool of three members with a volume that holds something.
fn pool() -> Vec<MemoryDisk> {
    let power = Power::on();
    let disks: Vec<MemoryDisk> = (0..3).map(|_| MemoryDisk::new(64 << 20, &power)).collect();
    let members = disks.iter().enumerate().map(|(n, disk)| NewMember {
        name: format!("disk {n}"),
        path: format!("/disk/{n}"),
        is_disk: false,
        device: Rc::new(disk.clone()),
    });
    let group = NewGroup {
        kind: GroupKind::RaidZ(1),
        members: members.collect(),
    };
    let new = NewPool {
        name: "tank".into(),
        ashift: 9,
        wall_s: 1,
        seed: 1,
        host: "test".into(),
    };
    block_on(WritablePool::create(vec![group], &new, &BufPool::new(0))).unwrap();
    let mut pool = open(&disks);
    let volume = NewVolume {
        name: "tank/vol".into(),
        size_bytes: 1 << 20,
        block_bytes: 4096,
        wall_s: 2,
        seed: 2,
    };
    block_on(async {
        pool.create_volume(&volume).await.unwrap();
        let volume = pool.open_volume("tank/vol").await.unwrap();
        pool.write(&volume, 0, &[7; 300_000]).await.unwrap();
        pool.commit(3).await.unwrap();
    });
    disks
}

/// The pool tells a lie: the first kind of finding is the one that is wanted.
#[track_caller]
fn assert_found(kind: FindingKind, lie: impl AsyncFnOnce(&mut TestPool)) {
    let disks = pool();
    assert!(
        check(&disks).is_clean(),
        "before the lie: {:#?}",
        check(&disks).findings
    );
    let mut pool = open(&disks);
    let sum = pool.guid_sum;
    block_on(async {
        lie(&mut pool).await;
        pool.commit(4).await.unwrap();
    });
    let report = check(&disks);
    if kind != FindingKind::SpaceMap && pool.guid_sum == sum {
        let opened = block_on(open(&disks).check()).unwrap();
        assert!(!opened.is_clean(), "who opens it to write sees it too");
    }
    assert!(
        report.findings.iter().any(|one| one.kind == kind),
        "{:#?}",
        report.findings
    );
}

async fn add_word(pool: &mut TestPool, object: u64, word: usize, delta: i64) {
    let changed = pool.meta.change(&pool.source, object).await.unwrap();
    let value = changed.dnode.bonus_word(word).wrapping_add_signed(delta);
    changed.dnode.set_bonus_word(word, value);
}

/// The volume's directory and data set.
async fn volume(pool: &TestPool) -> (u64, u64) {
    let root = pool
        .meta
        .dnode(&pool.source, pool.landmarks.root_dir)
        .await
        .unwrap();
    let children = root.bonus_word(dir::CHILDREN);
    let directory = pool
        .meta
        .zap_number(&pool.source, children, "vol")
        .await
        .unwrap()
        .unwrap();
    let dnode = pool.meta.dnode(&pool.source, directory).await.unwrap();
    (directory, dnode.bonus_word(dir::HEAD))
}

#[test]
fn a_leak_is_found() {
    assert_found(FindingKind::Leaked, async |pool| {
        let _ = pool
            .space
            .allocate(&pool.ground, 65536, 1, Purpose::Data)
            .unwrap();
        add_word(pool, pool.landmarks.root_dir, dir::CREATED_S, 1).await;
    });
}

#[test]
fn a_block_in_use_that_is_free_in_the_map_is_found() {
    assert_found(FindingKind::UsedButFree, async |pool| {
        let (_, dataset) = volume(pool).await;
        let dnode = pool.meta.dnode(&pool.source, dataset).await.unwrap();
        let root = PointerImage::of(&dnode.bonus()[8 * set::ROOT..]);
        pool.space.give_back(&root.copies()[0]).unwrap();
        add_word(pool, pool.landmarks.root_dir, dir::CREATED_S, 1).await;
    });
}

#[test]
fn a_wrong_sum_of_a_space_map_is_found() {
    assert_found(FindingKind::SpaceMap, async |pool| {
        let used = pool
            .space
            .metaslabs
            .values_mut()
            .filter(|one| one.map_object != 0);
        used.for_each(|one| one.allocated_bytes += 4096);
        add_word(pool, pool.landmarks.root_dir, dir::CREATED_S, 1).await;
    });
}

#[test]
fn an_object_without_an_owner_is_found() {
    assert_found(FindingKind::Object, async |pool| {
        pool.meta
            .add(
                &pool.source,
                &object(kind::SPACE_MAP, 4096, kind::SPACE_MAP_HEAD, 24),
            )
            .await
            .unwrap();
    });
}

#[test]
fn a_missing_directory_of_the_pool_is_found() {
    assert_found(FindingKind::Object, async |pool| {
        let root = pool
            .meta
            .dnode(&pool.source, pool.landmarks.root_dir)
            .await
            .unwrap();
        let children = root.bonus_word(dir::CHILDREN);
        let entries = pool.meta.zap(&pool.source, children).await.unwrap();
        let entries = entries.iter().filter(|entry| entry.text() != "$FREE");
        let entries: Vec<_> = entries
            .map(|entry| (entry.name.clone(), entry.number().unwrap()))
            .collect();
        let block = encode_micro(
            &entries,
            MicroHead {
                salt: 1,
                norm_flags: 0,
            },
        )
        .unwrap();
        pool.meta
            .write(children, &pool.source, 0, &block)
            .await
            .unwrap();
    });
}

#[test]
fn wrong_sums_of_a_directory_are_found() {
    for word in [
        dir::USED,
        dir::STORED,
        dir::PLAIN,
        dir::BY_HEAD,
        dir::BY_SNAPSHOTS,
        dir::BY_CHILDREN,
    ] {
        for delta in [512, -512] {
            if delta < 0 && word > dir::BY_HEAD {
                continue;
            }
            assert_found(FindingKind::Sum, async |pool| {
                let (directory, _) = volume(pool).await;
                add_word(pool, directory, word, delta).await;
            });
        }
    }
}

#[test]
fn wrong_sums_of_a_data_set_are_found() {
    for word in [set::REFERENCED, set::STORED, set::PLAIN, set::UNIQUE] {
        assert_found(FindingKind::Sum, async |pool| {
            let (_, dataset) = volume(pool).await;
            add_word(pool, dataset, word, -512).await;
        });
    }
}

#[test]
fn wrong_sums_of_a_deadlist_and_of_its_lists_are_found() {
    for word in 0..3 {
        assert_found(FindingKind::Sum, async |pool| {
            let (_, dataset) = volume(pool).await;
            let deadlist = pool
                .meta
                .dnode(&pool.source, dataset)
                .await
                .unwrap()
                .bonus_word(set::DEADLIST);
            add_word(pool, deadlist, word, 512).await;
        });
        assert_found(FindingKind::Sum, async |pool| {
            let (_, dataset) = volume(pool).await;
            let deadlist = pool
                .meta
                .dnode(&pool.source, dataset)
                .await
                .unwrap()
                .bonus_word(set::DEADLIST);
            let list = pool
                .meta
                .zap_number(&pool.source, deadlist, "0")
                .await
                .unwrap()
                .unwrap();
            add_word(pool, list, word + 1, 512).await;
        });
    }
}

#[test]
fn a_wrong_number_of_clones_is_found() {
    assert_found(FindingKind::Count, async |pool| {
        add_word(pool, pool.landmarks.origin_snapshot, set::CHILD_COUNT, 1).await;
    });
}

#[test]
fn a_wrong_sum_of_identities_is_found() {
    assert_found(FindingKind::Count, async |pool| {
        pool.guid_sum += 1;
        add_word(pool, pool.landmarks.root_dir, dir::CREATED_S, 1).await;
    });
}

#[test]
fn a_wrong_space_of_an_object_is_found() {
    assert_found(FindingKind::ObjectUsed, async |pool| {
        let root = pool
            .meta
            .dnode(&pool.source, pool.landmarks.root_dir)
            .await
            .unwrap();
        let changed = pool
            .meta
            .change(&pool.source, root.bonus_word(dir::PROPERTIES))
            .await
            .unwrap();
        let used = changed.dnode.used_bytes();
        changed.dnode.set_used_bytes(used + 512);
    });
}

/// A word of the pointer to the only block of an object is another.
async fn lie_in_pointer(pool: &mut TestPool, word: usize, delta: u64) {
    let root = pool
        .meta
        .dnode(&pool.source, pool.landmarks.root_dir)
        .await
        .unwrap();
    let changed = pool
        .meta
        .change(&pool.source, root.bonus_word(dir::PROPERTIES))
        .await
        .unwrap();
    let mut pointer = changed.dnode.pointer(0);
    let value = pointer.word(word).wrapping_add(delta);
    pointer.0[8 * word..8 * word + 8].copy_from_slice(&value.to_le_bytes());
    changed.dnode.set_pointer(0, &pointer);
}

#[test]
fn a_wrong_fill_and_a_birth_in_the_future_are_found() {
    assert_found(FindingKind::Pointer, async |pool| {
        lie_in_pointer(pool, 11, 1).await
    });
    assert_found(FindingKind::Pointer, async |pool| {
        lie_in_pointer(pool, 10, 1000).await
    });
}

#[test]
fn a_block_in_two_objects_is_found() {
    assert_found(FindingKind::UsedTwice, async |pool| {
        let root = pool
            .meta
            .dnode(&pool.source, pool.landmarks.root_dir)
            .await
            .unwrap();
        let own = pool
            .meta
            .dnode(&pool.source, pool.landmarks.own_dir)
            .await
            .unwrap();
        let first = pool
            .meta
            .dnode(&pool.source, root.bonus_word(dir::PROPERTIES))
            .await
            .unwrap();
        let second = pool
            .meta
            .change(&pool.source, own.bonus_word(dir::PROPERTIES))
            .await
            .unwrap();
        second.dnode.set_pointer(0, &first.pointer(0));
    });
}

/// Whatever an object's dnode says: it is a finding or an error.
#[test]
fn made_up_objects_end_neither_a_check_nor_a_writer() {
    let whole = pool();
    let mut rng = plexum_disks::rng::Rng::new(5);
    let mut found = 0;
    for _ in 0..150 {
        let power = Power::on();
        let disks: Vec<MemoryDisk> = whole.iter().map(|disk| disk.copy(&power)).collect();
        let mut pool = open(&disks);
        let object = 1 + rng.below(40);
        block_on(async {
            let Ok(changed) = pool.meta.change(&pool.source, object).await else {
                return;
            };
            for _ in 0..rng.between(1, 4) {
                let at = if rng.chance(1, 2) {
                    rng.below(64)
                } else {
                    rng.below(512)
                } as usize;
                changed.dnode.0[at] = *rng.pick(&[0, 1, 0x7f, 0xff, rng.clone().next_u64() as u8]);
            }
            // A slot more would overwrite its neighbours here already.
            changed.dnode.0[12] = 0;
            let _ = pool.commit(9).await;
        });
        found += u32::from(try_all(&disks));
    }
    assert!(found > 50, "{found} of 150 lies were found");
}

/// Checks and writes, whatever comes of it; whether something was found wrong.
fn try_all(disks: &[MemoryDisk]) -> bool {
    let buffers = BufPool::new(1 << 20);
    block_on(async {
        let (members, _) = find_members(named(disks), &buffers).await;
        let Ok(pool) = Pool::open(members, &OpenOptions::default()).await else {
            return true;
        };
        let is_clean = check_pool(pool).await.is_ok_and(|report| report.is_clean());
        let (members, _) = find_members(named(disks), &buffers).await;
        if let Ok(mut pool) = WritablePool::open(members, Foreign::Refused, &buffers).await
            && let Ok(volume) = pool.open_volume("tank/vol").await
        {
            let _ = pool.write(&volume, 5000, &[9; 90_000]).await;
            let _ = pool.trim(&volume, 0..200_000).await;
            let _ = pool.commit(10).await;
            let _ = pool.read(&volume, 0, 1 << 20).await;
        }
        !is_clean
    })
}
