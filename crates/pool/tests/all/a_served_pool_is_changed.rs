//! A pool is changed while clients use its volumes: snapshots, volumes made of them, members that are replaced, scrubs.
//! Nobody's data change by it, and what was made is what was there at that moment.

use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::common::memory::{MemoryDisk, Power};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, open_without, world};
use plexum_block::wait::join;
use plexum_disks::clock::SimClock;
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, LivePool, LiveVolume, NewMember, Now, PoolError, Shrink};
use plexum_testkit::block_on;

type Live = Rc<LivePool<MemoryDisk, SimClock>>;
type Volume = LiveVolume<MemoryDisk, SimClock>;

const NOW: Now = Now {
    wall_s: 6,
    seed: 77,
};

async fn serve(disks: &[MemoryDisk]) -> (Live, Volume) {
    let (mut pool, _) = open_without(disks).await;
    pool.begin(4).await.unwrap();
    let live = Rc::new(LivePool::new(pool, SimClock::new(), 64 << 20));
    let volume = LiveVolume::open(&live, "tank/vol").await.unwrap();
    (live, volume)
}

/// A client's write somewhere, and now and then a flush.
async fn use_it(volume: &Volume, bytes: &mut [u8], rng: &mut Rng) {
    let length = 512 * rng.between(1, 40) as usize;
    let at = 512 * rng.below(((VOLUME_BYTES - length) / 512) as u64) as usize;
    bytes[at..at + length].fill(rng.next_u64() as u8);
    let part = &bytes[at..at + length];
    volume.write(at as u64, part).await.unwrap();
    if rng.chance(1, 3) {
        volume.flush().await.unwrap();
    }
}

fn disk(power: &Power) -> (MemoryDisk, NewMember<MemoryDisk>) {
    let disk = MemoryDisk::new(64 << 20, power);
    let new = NewMember {
        name: "new".into(),
        path: "/new".into(),
        is_disk: false,
        device: Rc::new(disk.clone()),
    };
    (disk, new)
}

/// Whatever single disk is away, everything is there.
async fn assert_whole(disks: &[MemoryDisk], bytes: &[u8], what: &str) {
    assert_sound(disks, what).await;
    for away in 0..disks.len() {
        let mut there = disks.to_vec();
        there.remove(away);
        let (pool, volume) = open_without(&there).await;
        let read = pool.read(&volume, 0, bytes.len()).await.unwrap();
        assert!(read == bytes, "{what}: read without disk {away}");
    }
}

fn refused<T: std::fmt::Debug>(result: Result<T, PoolError>) -> String {
    match result {
        Err(PoolError::Refused(text)) => text,
        other => panic!("{other:?} is no refusal"),
    }
}

/// Polls `change`, and lets a client write between two polls. What it gave, and how often it let the client in.
async fn beside<T>(
    change: impl Future<Output = T>,
    volume: &Volume,
    bytes: &mut [u8],
    rng: &mut Rng,
) -> (T, usize) {
    let mut change = pin!(change);
    let mut context = Context::from_waker(Waker::noop());
    let mut writes = 0;
    loop {
        if let Poll::Ready(result) = change.as_mut().poll(&mut context) {
            return (result, writes);
        }
        use_it(volume, bytes, rng).await;
        writes += 1;
    }
}

#[test]
fn a_snapshot_of_a_volume_that_is_used_is_what_the_volume_was_and_flushes_go_on_in_the_log() {
    let mut rng = Rng::new(1);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::RaidZ(1), 3)], 4096, &mut rng).await;
        let (live, volume) = serve(&disks).await;
        let mut then = Vec::new();
        for round in 0..4 {
            for _ in 0..10 {
                use_it(&volume, &mut now, &mut rng).await;
            }
            let name = format!("tank/vol@s{round}");
            let taken = live.change(async |pool| pool.snapshot(&name, NOW).await);
            taken.await.unwrap();
            then.push(now.clone());
        }
        // A log was begun again, so that a flush is no commit.
        volume.write(0, &[9; 512]).await.unwrap();
        volume.flush().await.unwrap();
        let txg = live
            .change(async |pool| Ok::<_, PoolError>(pool.txg()))
            .await;
        volume.write(512, &[9; 512]).await.unwrap();
        volume.flush().await.unwrap();
        let later = live
            .change(async |pool| Ok::<_, PoolError>(pool.txg()))
            .await;
        assert_eq!(txg, later, "the flush was a commit");
        now[..1024].fill(9);
        let clone = async |pool: &mut plexum_pool::WritablePool<_>| {
            pool.clone_snapshot("tank/vol@s2", "tank/clone", NOW).await
        };
        live.change(clone).await.unwrap();
        let gone = live.change(async |pool| pool.destroy_snapshot("tank/vol@s1", 9).await);
        gone.await.unwrap();
        use_it(&volume, &mut now, &mut rng).await;
        assert!(volume.read(0, VOLUME_BYTES).await.unwrap() == now);
        let clone = LiveVolume::open(&live, "tank/clone").await.unwrap();
        assert!(clone.read(0, VOLUME_BYTES).await.unwrap() == then[2]);
        live.export().await.unwrap();
        drop((volume, clone, live));
        assert_whole(&disks, &now, "snapshots").await;
        let (mut pool, _) = open(&disks).await;
        pool.rollback("tank/vol@s3", 10).await.unwrap();
        let volume = pool.open_volume("tank/vol").await.unwrap();
        assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == then[3]);
    });
}

#[test]
fn a_volume_becomes_larger_while_it_is_served() {
    let mut rng = Rng::new(3);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::RaidZ(1), 3)], 4096, &mut rng).await;
        let (live, volume) = serve(&disks).await;
        let other = LiveVolume::open(&live, "tank/vol").await.unwrap();
        use_it(&volume, &mut now, &mut rng).await;
        let (small, large) = (VOLUME_BYTES as u64, 3 * VOLUME_BYTES as u64);
        let beyond = volume.write(large - 4096, &[7; 4096]).await;
        assert!(beyond.is_err(), "it ends before");
        let grow = live.change_size("tank/vol", large, async |pool| {
            pool.resize("tank/vol", large, Shrink::Refused, 8).await
        });
        let (sees, done) = join(other.resized(small), grow).await;
        done.unwrap();
        assert_eq!(sees, large);
        assert_eq!(
            volume.volume().size_bytes,
            large,
            "whoever has it open knows"
        );
        now.resize(large as usize, 0);
        assert!(
            volume.read(0, large as usize).await.unwrap() == now,
            "zeroes behind the old end"
        );
        volume.write(large - 4096, &[7; 4096]).await.unwrap();
        now[large as usize - 4096..].fill(7);
        other.flush().await.unwrap();
        assert!(other.read(0, large as usize).await.unwrap() == now);
        live.export().await.unwrap();
        drop((volume, other, live));
        assert_whole(&disks, &now, "grown").await;
    });
}

#[test]
fn what_a_volume_is_stays_while_it_is_served_and_can_be_changed_afterwards() {
    let mut rng = Rng::new(2);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let (live, volume) = serve(&disks).await;
        let taken = live.change(async |pool| pool.snapshot("tank/vol@a", NOW).await);
        taken.await.unwrap();
        use_it(&volume, &mut now, &mut rng).await;
        let rollback = || {
            live.change_volume("tank/vol@a", async |pool| {
                pool.rollback("tank/vol@a", 7).await
            })
        };
        let rename = || {
            live.change_volume("tank/vol", async |pool| {
                pool.rename("tank/vol", "tank/other", 8).await
            })
        };
        let size = VOLUME_BYTES as u64 / 2;
        let shrink = || {
            live.change_size("tank/vol", size, async |pool| {
                pool.resize("tank/vol", size, Shrink::Accepted, 8).await
            })
        };
        let destroy = || {
            live.change_volume("tank/vol", async |pool| {
                pool.destroy_volume("tank/vol", 9).await
            })
        };
        for said in [
            refused(rollback().await),
            refused(rename().await),
            refused(shrink().await),
            refused(destroy().await),
        ] {
            assert!(said.starts_with("tank/vol is served"), "{said}");
        }
        assert!(volume.read(0, VOLUME_BYTES).await.unwrap() == now);
        drop(volume);
        rollback().await.unwrap();
        shrink().await.unwrap();
        let gone = live.change(async |pool| pool.destroy_snapshot("tank/vol@a", 9).await);
        gone.await.unwrap();
        rename().await.unwrap();
        let said = refused(destroy().await);
        assert!(said.contains("there is no tank/vol"), "{said}");
        live.export().await.unwrap();
    });
}

#[test]
fn a_member_is_replaced_while_clients_write_and_the_new_one_has_everything() {
    let layouts = [
        (GroupKind::Single, 1),
        (GroupKind::Mirror, 2),
        (GroupKind::RaidZ(1), 3),
        (GroupKind::RaidZ(2), 4),
    ];
    for (seed, layout) in layouts.into_iter().enumerate() {
        for is_there in [true, false] {
            if !is_there && layout.1 == 1 {
                continue;
            }
            let mut rng = Rng::new(seed as u64);
            let what = format!("{layout:?}, the old one is there: {is_there}");
            block_on(async {
                let (mut disks, mut now) = world(&[layout], 4096, &mut rng).await;
                let away = disks.len() - 1;
                let there = match is_there {
                    true => &disks[..],
                    false => &disks[..away],
                };
                let (live, volume) = serve(there).await;
                let members = live.members();
                let old = members.iter().find(|one| one.slot == away).unwrap();
                let (new_disk, new) = disk(&Power::on());
                let guid = old.guid.to_string();
                let begun = live.begin_replace(&guid, new, NOW).await.unwrap();
                let change = live.end_replace(&begun);
                let (replaced, writes) = beside(change, &volume, &mut now, &mut rng).await;
                let report = replaced.unwrap();
                assert!(
                    report.repaired_bytes > 0 && writes > 3,
                    "{what}: {report:?}"
                );
                assert!(volume.read(0, VOLUME_BYTES).await.unwrap() == now);
                use_it(&volume, &mut now, &mut rng).await;
                live.export().await.unwrap();
                drop((volume, live));
                disks[away] = new_disk;
                match layout.1 {
                    1 => {
                        let (pool, volume) = open(&disks).await;
                        assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now);
                        drop(pool);
                        assert_sound(&disks, &what).await;
                    }
                    _ => assert_whole(&disks, &now, &what).await,
                }
            });
        }
    }
}

#[test]
fn a_new_member_that_fails_at_any_time_leaves_the_old_one_and_all_data() {
    let mut rng = Rng::new(4);
    block_on(async {
        let (disks, bytes) = world(&[(GroupKind::RaidZ(1), 3)], 4096, &mut rng).await;
        let (mut failures, mut operations) = (0, 0);
        loop {
            let disks: Vec<MemoryDisk> = disks.iter().map(|one| one.copy(&Power::on())).collect();
            let mut now = bytes.clone();
            let (live, volume) = serve(&disks).await;
            let power = Power::on();
            let (_new_disk, new) = disk(&power);
            power.cut_after(Some(operations));
            let old = live.members()[1].guid.to_string();
            let change = async {
                let begun = live.begin_replace(&old, new, NOW).await?;
                live.end_replace(&begun).await
            };
            let (replaced, _) = beside(change, &volume, &mut now, &mut rng).await;
            let is_whole = live.members().iter().all(|one| one.out.is_none());
            let is_old = live.members()[1].guid.to_string() == old;
            assert_eq!(replaced.is_err(), is_old, "{operations}: {replaced:?}");
            assert!(live.members().iter().all(|one| one.successor.is_none()));
            assert!(volume.read(0, VOLUME_BYTES).await.unwrap() == now);
            live.export().await.unwrap();
            drop((volume, live));
            if !is_old {
                break; // it failed with the labels, or not at all
            }
            assert!(is_whole, "{operations}: the pool lost nobody");
            assert_whole(&disks, &now, &format!("after {operations} operations")).await;
            failures += 1;
            operations += 1;
        }
        assert!(failures > 20, "it failed {failures} times");
    });
}

#[test]
fn a_scrub_mends_what_is_wrong_while_clients_write() {
    let mut rng = Rng::new(5);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let (live, volume) = serve(&disks).await;
        // All data of one side are gone.
        let zeroes = plexum_block::buf::BufPool::new(0)
            .take_zeroed(8 << 20)
            .freeze();
        let spoil = plexum_block::device::Device::write(
            &disks[1],
            4 << 20,
            zeroes,
            plexum_block::device::Fua::No,
        );
        spoil.await.unwrap();
        let (report, writes) = beside(live.scrub(), &volume, &mut now, &mut rng).await;
        let report = report.unwrap();
        assert_eq!(report.lost, Vec::<String>::new());
        assert!(report.repaired_bytes > 0 && writes > 3, "{report:?}");
        assert!(live.walking().is_none());
        live.export().await.unwrap();
        drop((volume, live));
        assert_whole(&disks, &now, "after a scrub").await;
    });
}

#[test]
fn a_replacement_that_is_under_way_ends_with_the_pool_and_the_old_member_stays() {
    let mut rng = Rng::new(6);
    block_on(async {
        let (disks, now) = world(&[(GroupKind::RaidZ(1), 3)], 4096, &mut rng).await;
        let (live, volume) = serve(&disks).await;
        let (_new_disk, new) = disk(&Power::on());
        let old = live.members()[1].guid.to_string();
        let begun = live.begin_replace(&old, new, NOW).await.unwrap();
        assert_eq!(live.members()[1].successor.as_deref(), Some("new"));
        let (_, other) = disk(&Power::on());
        let said = refused(live.begin_replace(&old, other, NOW).await);
        assert!(said.contains("is being replaced already, by new"), "{said}");
        let mut change = pin!(live.end_replace(&begun));
        let mut context = Context::from_waker(Waker::noop());
        assert!(change.as_mut().poll(&mut context).is_pending());
        live.export().await.unwrap();
        let said = refused(change.await);
        assert!(said.contains("was closed"), "{said}");
        drop(volume);
        assert_whole(&disks, &now, "closed meanwhile").await;
    });
}
