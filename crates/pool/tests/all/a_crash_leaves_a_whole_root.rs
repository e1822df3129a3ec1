//! The power is cut at every operation of a commit, and every sector that was not flushed is lost or not: what is there
//! afterwards is the root before or the one that was being written, whole, and it goes on from there.

use crate::common::memory::{MemoryDisk, Power};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, world, write};
use plexum_disks::rng::Rng;
use plexum_pool::GroupKind;
use plexum_testkit::block_on;

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
        let (disks, bytes) = world(kinds, 4096, &mut rng).await;
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
