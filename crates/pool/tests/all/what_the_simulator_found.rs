//! What the simulator found, met on purpose: a root on one member alone, a member that is lost with a root, a member
//! that was replaced and is read on, or is not given what the log had placed, a group that never came to be.

use std::rc::Rc;

use crate::common::memory::{MemoryDisk, Power};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, open_without, world, write};
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, Logged, Mixed, NewGroup, NewMember, Now};
use plexum_testkit::block_on;

/// The same disks, each with a power of its own.
fn apart(disks: &[MemoryDisk]) -> (Vec<MemoryDisk>, Vec<Power>) {
    let powers: Vec<Power> = disks.iter().map(|_| Power::on()).collect();
    let copies = disks.iter().zip(&powers);
    (
        copies.map(|(disk, power)| disk.copy(power)).collect(),
        powers,
    )
}

#[test]
fn a_root_that_one_member_alone_has_is_on_all_before_space_is_used_again() {
    let mut rng = Rng::new(11);
    block_on(async {
        let (disks, before) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        // The second commit of a pool that goes on reuses what the one that was cut off has freed.
        let mut cuts = 0;
        for operations in (0..60).step_by(2) {
            let (first, powers) = apart(&disks);
            let (mut pool, volume) = open(&first).await;
            let mut after = before.clone();
            write(&mut pool, &volume, &mut after, &mut rng, 12).await;
            powers
                .iter()
                .for_each(|power| power.cut_after(Some(operations)));
            if pool.commit(5).await.is_ok() {
                break;
            }
            drop(pool);
            powers.iter().for_each(|power| power.cut_after(None));
            first.iter().for_each(|disk| disk.toss(&mut rng));
            for again in (0..40).step_by(5) {
                let (second, powers) = apart(&first);
                let (mut pool, volume) = open(&second).await;
                let mut now = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
                write(&mut pool, &volume, &mut now, &mut rng, 30).await;
                powers.iter().for_each(|power| power.cut_after(Some(again)));
                let is_done = pool.begin(6).await.is_ok();
                drop(pool);
                powers.iter().for_each(|power| power.cut_after(None));
                second.iter().for_each(|disk| disk.toss(&mut rng));
                for left in &second {
                    let (pool, volume) = open_without(std::slice::from_ref(left)).await;
                    let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
                    let is_one = read == before || read == after || read == now;
                    assert!(is_one, "cut after {operations}, then after {again}");
                }
                cuts += 1;
                if is_done {
                    break;
                }
            }
        }
        assert!(cuts > 20, "{cuts} cuts");
    });
}

#[test]
fn a_root_of_a_member_that_was_away_never_stands_for_one_that_was_written_without_it() {
    let mut rng = Rng::new(16);
    block_on(async {
        let (disks, before) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let mut roots = 0;
        for operations in 1..60 {
            // The power goes in a commit: one member may have its root alone.
            let (disks, powers) = apart(&disks);
            let (mut pool, volume) = open(&disks).await;
            let mut lost = before.clone();
            write(&mut pool, &volume, &mut lost, &mut rng, 12).await;
            powers[0].cut_after(Some(operations));
            powers[1].cut_after(Some(operations - 1));
            let is_done = pool.commit(5).await.is_ok();
            drop(pool);
            powers.iter().for_each(|power| power.cut_after(None));
            let (alone, _) = open_without(&disks[..1]).await;
            let (other, _) = open_without(&disks[1..]).await;
            roots += u32::from(alone.txg() > other.txg());
            drop((alone, other));
            // That member is away for one life, which commits once, within the same second.
            let (mut pool, volume) = open_without(&disks[1..]).await;
            let mut now = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
            write(&mut pool, &volume, &mut now, &mut rng, 3).await;
            pool.begin(5).await.unwrap();
            drop(pool);
            let (pool, volume) = open(&disks).await;
            let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
            assert!(read == now, "cut after {operations}");
            drop(pool);
            assert_sound(&disks, "it is back").await;
            if is_done {
                break;
            }
        }
        assert!(roots > 0, "{roots} roots were on one member alone");
    });
}

#[test]
fn a_member_that_is_lost_with_a_root_is_recorded_by_the_next() {
    let mut rng = Rng::new(12);
    block_on(async {
        let (disks, before) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let mut flushed = 0;
        for operations in 0..60 {
            let (disks, powers) = apart(&disks);
            let (mut pool, volume) = open(&disks).await;
            pool.use_log(&volume);
            pool.begin(4).await.unwrap();
            let mut now = before.clone();
            write(&mut pool, &volume, &mut now, &mut rng, 6).await;
            powers[1].cut_after(Some(operations));
            pool.commit(5).await.unwrap();
            let is_lost = !pool.members_out().is_empty();
            write(&mut pool, &volume, &mut now, &mut rng, 3).await;
            if pool.log().await != Ok(Logged::Durable) {
                pool.commit(6).await.unwrap();
            }
            drop(pool);
            powers[1].cut_after(None);
            disks.iter().for_each(|disk| disk.toss(&mut rng));
            // It is back: either the pool knows that it is behind, or it has all that was answered.
            let (pool, _) = open(&disks).await;
            if pool.members_behind().is_empty() {
                let (pool, volume) = open_without(&disks[1..]).await;
                let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
                assert!(read == now, "lost after {operations} operations");
            }
            assert_sound(&disks, "after the loss").await;
            flushed += 1;
            if !is_lost {
                break;
            }
        }
        assert!(flushed > 10, "{flushed} losses");
    });
}

#[test]
fn a_pool_of_one_member_goes_on_after_that_was_replaced() {
    let mut rng = Rng::new(13);
    block_on(async {
        let (disks, mut now) = world(&[(GroupKind::Single, 1)], 4096, &mut rng).await;
        let (mut pool, volume) = open(&disks).await;
        let new = MemoryDisk::new(64 << 20, &Power::on());
        let member = NewMember {
            name: "new".into(),
            path: "/new".into(),
            is_disk: false,
            device: Rc::new(new.clone()),
        };
        let with = Now { wall_s: 7, seed: 9 };
        pool.replace("disk 0", member, with, &mut |_| {})
            .await
            .unwrap();
        for _ in 0..3 {
            write(&mut pool, &volume, &mut now, &mut rng, 20).await;
            pool.commit(8).await.unwrap();
        }
        assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now);
        drop(pool);
        assert_sound(std::slice::from_ref(&new), "the new member").await;
        let (pool, volume) = open(&[new]).await;
        assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now);
    });
}

/// A replacement is cut off after so many operations; whether it came to its end.
async fn replace_and_cut(disks: &[MemoryDisk], before: &[u8], operations: u64) -> bool {
    let what = format!("cut after {operations} operations");
    let mut rng = Rng::new(operations);
    let power = Power::on();
    let mut disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    disks.push(MemoryDisk::new(64 << 20, &power));
    let (mut pool, _) = open(&disks).await;
    pool.begin(4).await.unwrap();
    let member = NewMember {
        name: "new".into(),
        path: "/new".into(),
        is_disk: false,
        device: Rc::new(disks[disks.len() - 1].clone()),
    };
    power.cut_after(Some(operations));
    let with = Now { wall_s: 7, seed: 9 };
    let replaced = pool.replace("disk 0", member, with, &mut |_| {}).await;
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    let mut now = before.to_vec();
    for _ in 0..2 {
        let (mut pool, volume) = open(&disks).await;
        let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
        assert!(read == now, "{what}: it holds something else");
        assert_eq!(pool.members_behind(), Vec::<String>::new(), "{what}");
        write(&mut pool, &volume, &mut now, &mut rng, 6).await;
        pool.begin(8).await.unwrap();
        write(&mut pool, &volume, &mut now, &mut rng, 6).await;
        pool.commit(9).await.unwrap();
        drop(pool);
        assert_sound(&disks, &what).await;
    }
    // Nobody lacks anything: each can be spared.
    for away in 0..disks.len() {
        let left = (0..disks.len()).filter(|n| *n != away);
        let left: Vec<MemoryDisk> = left.map(|n| disks[n].clone()).collect();
        let (pool, volume) = open_without(&left).await;
        let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
        assert!(read == now, "{what}: it is needed, disk {away}");
    }
    replaced.is_ok()
}

#[test]
fn a_replacement_that_is_cut_off_leaves_the_old_member_or_the_new_one() {
    let mut rng = Rng::new(14);
    block_on(async {
        let (disks, before) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let mut operations = 0;
        while !replace_and_cut(&disks, &before, operations).await {
            operations += 1;
        }
        assert!(operations > 20, "{operations} operations");
    });
}

/// The disks after a pool on copies of them began to be used, which writes labels, and was cut off after so many
/// operations; whether it came to its end.
async fn begin_and_cut(
    disks: &[MemoryDisk],
    operations: u64,
    rng: &mut Rng,
) -> (Vec<MemoryDisk>, bool) {
    let power = Power::on();
    let copies: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    let (mut pool, volume) = open(&copies).await;
    let mut now = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
    write(&mut pool, &volume, &mut now, rng, 2).await;
    power.cut_after(Some(operations));
    let is_done = pool.begin(5).await.is_ok();
    drop(pool);
    power.cut_after(None);
    copies.iter().for_each(|disk| disk.toss(rng));
    (copies, is_done)
}

#[test]
fn two_cuts_that_leave_a_member_labels_of_no_root_alone_leave_it_a_member() {
    let mut rng = Rng::new(16);
    let stripe = [(GroupKind::Single, 1); 2];
    let mut cuts = 0;
    for groups in [&[(GroupKind::Mirror, 3)][..], &stripe] {
        block_on(async {
            let (disks, _) = world(groups, 4096, &mut rng).await;
            // The first one tears the labels that follow a root, the second one comes before the next root.
            for first in 0.. {
                let (once, is_last) = begin_and_cut(&disks, first, &mut rng).await;
                for second in (0..80).step_by(5) {
                    let (again, is_done) = begin_and_cut(&once, second, &mut rng).await;
                    let what = format!("cut after {first}, then after {second}");
                    let (pool, _) = open(&again).await;
                    assert_eq!(pool.members_behind(), Vec::<String>::new(), "{what}");
                    assert_eq!(pool.members_out(), Vec::new(), "{what}");
                    cuts += 1;
                    if is_done {
                        break;
                    }
                }
                if is_last {
                    break;
                }
            }
        });
    }
    assert!(cuts > 200, "{cuts} cuts");
}

#[test]
fn a_log_ends_where_a_flush_was_cut_off_before_its_blocks_were_there() {
    let mut rng = Rng::new(15);
    block_on(async {
        let (disks, before) = world(&[(GroupKind::Mirror, 2)], 64 << 10, &mut rng).await;
        let mut cuts = 0;
        for operations in 0..8 {
            for _ in 0..8 {
                let power = Power::on();
                let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
                let (mut pool, volume) = open(&disks).await;
                pool.use_log(&volume);
                pool.begin(4).await.unwrap();
                let mut now = before.clone();
                now[..256 << 10].fill(0xA5);
                pool.write(&volume, 0, &now[..256 << 10]).await.unwrap();
                power.cut_after(Some(operations));
                let is_durable = pool.log().await == Ok(Logged::Durable);
                drop(pool);
                power.cut_after(None);
                disks.iter().for_each(|disk| disk.toss(&mut rng));
                let (pool, volume) = open(&disks).await;
                let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
                assert!(read == now || !is_durable, "an answered flush is lost");
                let blocks = read
                    .chunks(64 << 10)
                    .zip(before.chunks(64 << 10))
                    .zip(now.chunks(64 << 10));
                let is_one =
                    |((read, old), new): ((&[u8], &[u8]), &[u8])| read == old || read == new;
                assert!(blocks.into_iter().all(is_one), "cut after {operations}");
                assert_sound(&disks, "after the cut").await;
                cuts += usize::from(!is_durable);
            }
        }
        assert!(cuts > 20, "{cuts} cuts");
    });
}

/// A new disk, and it as a member that comes.
fn coming(power: &Power) -> (MemoryDisk, NewMember<MemoryDisk>) {
    let disk = MemoryDisk::new(64 << 20, power);
    let new = NewMember {
        name: "new".into(),
        path: "/new".into(),
        is_disk: false,
        device: Rc::new(disk.clone()),
    };
    (disk, new)
}

#[test]
fn who_replaces_a_member_is_given_what_the_log_had_placed() {
    let mut rng = Rng::new(31);
    block_on(async {
        let (mut disks, mut now) = world(&[(GroupKind::Single, 1)], 32 << 10, &mut rng).await;
        let (mut pool, volume) = open(&disks).await;
        pool.use_log(&volume);
        pool.begin(4).await.unwrap();
        now[..64 << 10].fill(7);
        pool.write(&volume, 0, &now[..64 << 10]).await.unwrap();
        assert_eq!(pool.log().await, Ok(Logged::Durable));
        // No root reaches the blocks, which are in their final places.
        let (disk, new) = coming(&Power::on());
        let seed = Now { wall_s: 5, seed: 9 };
        let old = pool.members()[0].guid.to_string();
        pool.replace(&old, new, seed, &mut |_| {}).await.unwrap();
        pool.export(6).await.unwrap();
        disks[0] = disk;
        assert_sound(&disks, "replaced").await;
        let (pool, volume) = open(&disks).await;
        assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now);
    });
}

#[test]
fn disks_that_a_crash_kept_from_being_a_group_are_none_when_the_pool_has_gone_on() {
    let mut rng = Rng::new(32);
    block_on(async {
        let (disks, before) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let mut kept_out = 0;
        for operations in 1.. {
            let power = Power::on();
            let own: Vec<MemoryDisk> = disks.iter().map(|one| one.copy(&power)).collect();
            let (mut pool, _) = open(&own).await;
            let ((first, new), (second, other)) = (coming(&power), coming(&power));
            let group = NewGroup {
                kind: GroupKind::Mirror,
                members: vec![new, other],
            };
            let seed = Now { wall_s: 5, seed: 9 };
            power.cut_after(Some(operations));
            let is_added = pool.add_group(group, Mixed::Refused, seed).await.is_ok();
            drop(pool);
            power.cut_after(None);
            let all = [own.clone(), vec![first, second]].concat();
            if is_added {
                break;
            }
            // A kill: what was written is there. The pool goes on, past the number of the root that never came.
            let (mut pool, volume) = open(&all).await;
            let mut now = before.clone();
            for round in 0..4 {
                write(&mut pool, &volume, &mut now, &mut rng, 3).await;
                pool.commit(6 + round).await.unwrap();
            }
            kept_out += usize::from(pool.members().len() == own.len());
            drop(pool);
            let (pool, volume) = open(&all).await;
            let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
            assert!(read == now, "cut after {operations} operations");
            drop(pool);
            assert_sound(&all, &format!("cut after {operations} operations")).await;
        }
        assert!(kept_out > 10, "{kept_out} times it was no group");
    });
}

#[test]
fn blocks_that_a_volume_shares_with_its_snapshot_are_given_as_a_whole() {
    let mut rng = Rng::new(33);
    block_on(async {
        for changed in [0, 1, 17, 62, 63] {
            let (mut disks, _) = world(&[(GroupKind::Single, 1)], 16 << 10, &mut rng).await;
            let (mut pool, volume) = open(&disks).await;
            let then: Vec<u8> = (0..VOLUME_BYTES).map(|at| (at / 509) as u8).collect();
            pool.write(&volume, 0, &then).await.unwrap();
            let seed = Now { wall_s: 5, seed: 9 };
            pool.snapshot("tank/vol@then", seed).await.unwrap();
            let at = changed * (16 << 10);
            pool.write(&volume, at, &[1; 16 << 10]).await.unwrap();
            pool.commit(6).await.unwrap();
            let (disk, new) = coming(&Power::on());
            let old = pool.members()[0].guid.to_string();
            pool.replace(&old, new, seed, &mut |_| {}).await.unwrap();
            pool.rollback("tank/vol@then", 7).await.unwrap();
            drop(pool);
            disks[0] = disk;
            let (pool, volume) = open(&disks).await;
            let read = pool.read(&volume, 0, VOLUME_BYTES).await;
            assert!(read.as_ref() == Ok(&then), "block {changed} had changed");
        }
    });
}
