//! Members that were missing or failed are taken back while the pool is open: they are given what they missed, nothing
//! is read from them before that, and who was written elsewhere is refused.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::common::memory::{MemoryDisk, Power, named};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, open_without, world, write};
use plexum_block::buf::BufPool;
use plexum_disks::clock::SimClock;
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, LivePool, LiveVolume, Logged, PoolError, Task, WritablePool};
use plexum_testkit::block_on;
use plexum_zfs::{MemberState, find_members};

const LAYOUTS: [(GroupKind, usize); 4] = [
    (GroupKind::Mirror, 2),
    (GroupKind::Mirror, 3),
    (GroupKind::RaidZ(1), 3),
    (GroupKind::RaidZ(2), 4),
];

/// What is found on a disk that is plugged in, by this name.
async fn found(disk: &MemoryDisk, name: &str) -> MemberState<MemoryDisk> {
    let mut device = named(std::slice::from_ref(disk)).remove(0);
    name.clone_into(&mut device.name);
    let (mut members, notes) = find_members(vec![device], &BufPool::new(1 << 20)).await;
    assert_eq!(notes, Vec::<String>::new());
    members.remove(0)
}

fn without(disks: &[MemoryDisk], away: usize) -> Vec<MemoryDisk> {
    let there = disks.iter().enumerate().filter(|(n, _)| *n != away);
    there.map(|(_, disk)| disk.clone()).collect()
}

/// Whatever single disk is away, everything is there.
async fn assert_whole(disks: &[MemoryDisk], bytes: &[u8], what: &str) {
    assert_sound(disks, what).await;
    for away in 0..disks.len() {
        let (pool, volume) = open_without(&without(disks, away)).await;
        assert!(
            pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == bytes,
            "{what}: read without disk {away}"
        );
    }
}

async fn refusal(pool: &mut WritablePool<MemoryDisk>, disk: &MemoryDisk) -> String {
    let txg = pool.txg();
    let refused = pool.take_back(&found(disk, "back").await, None, 9).await;
    assert!(
        matches!(refused, Err(PoolError::Refused(_))),
        "{refused:?} is no refusal"
    );
    assert_eq!(pool.txg(), txg, "something was committed");
    refused.unwrap_err().to_string()
}

#[test]
fn a_member_that_was_missing_is_given_what_it_missed_while_the_pool_is_open() {
    for (seed, layout) in LAYOUTS.into_iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        block_on(async {
            let (disks, mut now) = world(&[layout], 4096, &mut rng).await;
            let (mut pool, volume) = open_without(&without(&disks, 1)).await;
            pool.use_log(&volume);
            pool.begin(4).await.unwrap();
            write(&mut pool, &volume, &mut now, &mut rng, 20).await;
            pool.commit(5).await.unwrap();
            write(&mut pool, &volume, &mut now, &mut rng, 3).await;
            assert_eq!(pool.log().await, Ok(Logged::Durable));
            let back = found(&disks[1], "back").await;
            pool.take_back(&back, Some("/elsewhere"), 6).await.unwrap();
            assert_eq!(pool.members_behind(), ["back"]);
            assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now);
            write(&mut pool, &volume, &mut now, &mut rng, 3).await;
            let report = pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
            assert_eq!(report.lost, Vec::<String>::new());
            assert!(report.repaired_bytes > 0);
            pool.export(8).await.unwrap();
            assert!(pool.members_behind().is_empty());
            drop(pool);
            assert_whole(&disks, &now, &format!("{layout:?}")).await;
        });
    }
}

/// A member fails after so many operations and is back at once, without what it had not flushed. Whether it failed.
async fn fail_and_return(disks: &[MemoryDisk], before: &[u8], operations: u64) -> bool {
    let what = format!("a disk failed after {operations} operations");
    let mut rng = Rng::new(operations);
    let (power, others) = (Power::on(), Power::on());
    let copy = |(n, disk): (usize, &MemoryDisk)| disk.copy(if n == 0 { &power } else { &others });
    let disks: Vec<MemoryDisk> = disks.iter().enumerate().map(copy).collect();
    let (mut pool, volume) = open(&disks).await;
    pool.use_log(&volume);
    pool.begin(4).await.unwrap();
    power.cut_after(Some(operations));
    let mut now = before.to_vec();
    let mut has_failed = false;
    for round in 0..7 {
        write(&mut pool, &volume, &mut now, &mut rng, 3).await;
        if round % 3 == 2 || pool.log().await != Ok(Logged::Durable) {
            pool.commit(5).await.unwrap();
        }
        if !has_failed && !pool.members_out().is_empty() {
            has_failed = true;
            power.cut_after(None);
            disks[0].toss(&mut rng);
            let back = found(&disks[0], "back").await;
            pool.take_back(&back, None, 6).await.unwrap();
        }
        assert!(
            pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
            "{what}: read in round {round}"
        );
    }
    power.cut_after(None);
    let report = pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
    assert_eq!(report.lost, Vec::<String>::new(), "{what}");
    pool.export(8).await.unwrap();
    drop(pool);
    if has_failed {
        assert_whole(&disks, &now, &what).await;
    }
    has_failed
}

#[test]
fn a_member_that_fails_at_any_time_returns_and_is_relied_on_when_it_has_everything() {
    for layout in [LAYOUTS[0], LAYOUTS[2]] {
        let mut rng = Rng::new(7);
        block_on(async {
            let (disks, bytes) = world(&[layout], 4096, &mut rng).await;
            let mut operations = 0;
            while fail_and_return(&disks, &bytes, operations).await {
                operations += 1;
            }
            assert!(operations > 25, "the run has {operations} operations");
        });
    }
}

/// How a member is there again.
#[derive(Clone, Copy, Debug)]
enum Return {
    /// It was missing, and is found.
    Found,
    /// It was taken offline.
    Online,
}

/// A member returns while another is given what it missed: nobody is said to have what he has not.
async fn return_during_a_walk(how: Return) {
    let mut rng = Rng::new(11);
    let (disks, mut now) = world(&[(GroupKind::RaidZ(2), 4)], 4096, &mut rng).await;
    let (mut pool, volume) = match how {
        Return::Found => open_without(&disks[2..]).await,
        Return::Online => open(&disks).await,
    };
    pool.begin(4).await.unwrap();
    let names: Vec<String> = pool.members().into_iter().map(|one| one.name).collect();
    if matches!(how, Return::Online) {
        pool.offline(&names[0], 4).await.unwrap();
        pool.offline(&names[1], 4).await.unwrap();
    }
    write(&mut pool, &volume, &mut now, &mut rng, 30).await;
    pool.commit(5).await.unwrap();
    match how {
        Return::Found => {
            let first = found(&disks[0], "first").await;
            pool.take_back(&first, None, 6).await.unwrap();
        }
        Return::Online => pool.online(&names[0], 6).await.unwrap(),
    }
    let live = LivePool::new(pool, SimClock::new(), 64 << 20);
    let second = found(&disks[1], "second").await;
    let mut walks = pin!(live.make_good());
    let mut context = Context::from_waker(Waker::noop());
    let mut polls = 0;
    while polls < 3 {
        assert!(walks.as_mut().poll(&mut context).is_pending());
        polls += 1;
    }
    // The walk lets others in between two of its steps.
    let mut returns = pin!(async {
        match how {
            Return::Found => live.take_back(&second, None).await,
            Return::Online => {
                live.change(async |pool| pool.online(&names[1], 7).await)
                    .await
            }
        }
    });
    let mut has_returned = false;
    loop {
        if !has_returned && let Poll::Ready(result) = returns.as_mut().poll(&mut context) {
            result.unwrap();
            has_returned = true;
        }
        if let Poll::Ready(result) = walks.as_mut().poll(&mut context) {
            assert_eq!(result.unwrap().unwrap().lost, Vec::<String>::new());
            break;
        }
    }
    assert!(has_returned, "{how:?}");
    live.export().await.unwrap();
    assert!(live.members().iter().all(|one| one.missed_groups == 0));
    let (pool, volume) = open_without(&disks[..2]).await;
    let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
    assert!(read == now, "{how:?}");
}

#[test]
fn a_member_that_returns_during_a_walk_is_no_part_of_what_that_walk_has_given() {
    block_on(return_during_a_walk(Return::Found));
    block_on(return_during_a_walk(Return::Online));
}

/// Long blocks of the open transaction group are in their final place before its root, and the log points to them.
#[test]
fn a_member_that_is_online_again_is_given_what_the_open_group_has_in_its_place() {
    for (seed, layout) in LAYOUTS.into_iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        block_on(async {
            let (disks, mut now) = world(&[layout], 64 << 10, &mut rng).await;
            let (mut pool, volume) = open(&disks).await;
            pool.use_log(&volume);
            pool.begin(4).await.unwrap();
            let name = pool.members()[1].name.clone();
            pool.offline(&name, 4).await.unwrap();
            pool.write(&volume, 0, &[7; 256 << 10]).await.unwrap();
            now[..256 << 10].fill(7);
            assert_eq!(pool.log().await, Ok(Logged::Durable));
            pool.online(&name, 6).await.unwrap();
            pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
            pool.export(8).await.unwrap();
            drop(pool);
            assert_whole(&disks, &now, &format!("{layout:?}")).await;
        });
    }
}

/// The machine goes off between the last block of a walk and the root that says so, and a disk with it.
#[test]
fn what_a_walk_has_given_is_there_before_the_pool_says_so() {
    for (seed, layout) in LAYOUTS.into_iter().enumerate() {
        let mut rng = Rng::new(seed as u64);
        block_on(async {
            let (disks, mut now) = world(&[layout], 4096, &mut rng).await;
            let (mut pool, volume) = open(&disks).await;
            pool.begin(4).await.unwrap();
            let name = pool.members()[1].name.clone();
            pool.offline(&name, 4).await.unwrap();
            write(&mut pool, &volume, &mut now, &mut rng, 20).await;
            pool.online(&name, 6).await.unwrap();
            write(&mut pool, &volume, &mut now, &mut rng, 3).await;
            pool.commit(7).await.unwrap();
            pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
            drop(pool);
            let others = without(&disks, 0);
            let (pool, volume) = open_without(&others).await;
            assert!(!pool.members_behind().is_empty(), "nothing is shown");
            let read = pool.read(&volume, 0, VOLUME_BYTES).await;
            assert!(read.unwrap() == now, "{layout:?}");
        });
    }
}

#[test]
fn who_does_not_belong_there_or_was_written_elsewhere_is_refused_and_nothing_is_written() {
    let mut rng = Rng::new(5);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let power = Power::on();
        let elsewhere = disks[1].copy(&power);
        let (mut other, volume) = open_without(std::slice::from_ref(&elsewhere)).await;
        let mut others = now.clone();
        write(&mut other, &volume, &mut others, &mut rng, 3).await;
        other.begin(5).await.unwrap();
        other.export(6).await.unwrap();
        let there = without(&disks, 1);
        let (mut pool, volume) = open_without(&there).await;
        pool.begin(4).await.unwrap();
        let said = refusal(&mut pool, &elsewhere).await;
        assert!(said.contains("was written elsewhere"), "{said}");
        let said = refusal(&mut pool, &disks[0]).await;
        assert!(said.contains("which is there"), "{said}");
        let (strangers, _) = world(&[(GroupKind::Mirror, 2)], 512, &mut Rng::new(6)).await;
        let stranger = found(&strangers[1], "stranger").await;
        if stranger.label.guid != found(&disks[1], "own").await.label.guid {
            let said = refusal(&mut pool, &strangers[1]).await;
            assert!(said.contains("no member of pool tank"), "{said}");
        }
        let own = found(&disks[1], "back").await;
        pool.take_back(&own, None, 7).await.unwrap();
        pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
        pool.commit(8).await.unwrap();
        let name = "back";
        pool.offline(name, 9).await.unwrap();
        let said = refusal(&mut pool, &disks[1]).await;
        assert!(said.contains("bring it online"), "{said}");
        write(&mut pool, &volume, &mut now, &mut rng, 3).await;
        pool.online(name, 9).await.unwrap();
        pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
        pool.export(10).await.unwrap();
        drop(pool);
        assert_whole(&disks, &now, "after refusals").await;
    });
}

/// Clients go on while a member is away and when it is back.
#[test]
fn a_served_pool_takes_a_member_back_and_says_what_it_misses_until_it_has_everything() {
    let mut rng = Rng::new(12);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::RaidZ(1), 3)], 4096, &mut rng).await;
        let (mut pool, _) = open_without(&without(&disks, 2)).await;
        pool.begin(4).await.unwrap();
        let live = std::rc::Rc::new(LivePool::new(pool, SimClock::new(), 64 << 20));
        let volume = LiveVolume::open(&live, "tank/vol").await.unwrap();
        volume.write(0, &[7; 65536]).await.unwrap();
        now[..65536].fill(7);
        volume.flush().await.unwrap();
        assert!(live.make_good().await.unwrap().is_none());
        let back = found(&disks[2], "back").await;
        live.take_back(&back, None).await.unwrap();
        let behind = |live: &LivePool<MemoryDisk, SimClock>| {
            let members = live.members();
            let one = members.into_iter().find(|one| one.name == "back").unwrap();
            (one.out, one.missed_groups)
        };
        let (out, missed) = behind(&live);
        assert!(out.is_none() && missed > 0, "{out:?}, {missed}");
        let report = live.make_good().await.unwrap().unwrap();
        assert!(report.repaired_bytes > 0 && report.lost_count == 0);
        assert_eq!(behind(&live), (None, 0));
        live.export().await.unwrap();
        drop((volume, live));
        assert_whole(&disks, &now, "served").await;
    });
}
