//! Sides of mirrors are attached and detached, groups are added: OpenZFS agrees with every step, and wherever the power
//! is cut the pool is what it was, or what it was to become.

use std::fs::File;
use std::rc::Rc;

use crate::common::memory::{MemoryDisk, Power};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, open_without, world, write};
use crate::common::{
    FileDevice, Folder, Shadow, assert_checked, assert_sound as assert_judged, engine, group,
};
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, Mixed, NewGroup, NewMember, Now, Task, WritablePool};
use plexum_testkit::block_on;

const MEMBER_BYTES: u64 = 128 << 20;

fn now(wall_s: u64) -> Now {
    Now { wall_s, seed: 77 }
}

/// A pool with a volume, which OpenZFS has imported once when `version` says so.
fn filled(layout: &[&str], version: Option<&str>) -> (Folder, Shadow) {
    let folder = Folder::new(layout);
    folder.create(MEMBER_BYTES, 12).unwrap();
    let mut pool = crate::common::open(&folder).unwrap();
    let mut shadow = Shadow::new(9);
    Shadow::add_volume(&mut pool, 8192);
    shadow.write(&mut pool, 60);
    block_on(pool.export(2)).unwrap();
    if let Some(version) = version {
        engine(&folder, version, &["scrub"]);
    }
    (folder, shadow)
}

/// A new file behind the members that a folder has.
fn next_member(folder: &Folder, further: usize) -> NewMember<FileDevice> {
    let path = folder
        .path()
        .join(format!("m{:02}", folder.members().len() + further));
    File::create(&path).unwrap().set_len(MEMBER_BYTES).unwrap();
    let name = path.display().to_string();
    NewMember {
        path: name.clone(),
        name,
        is_disk: false,
        device: Rc::new(FileDevice::open(&path)),
    }
}

fn word(folder: &Folder, member: usize) -> String {
    folder.members()[member].display().to_string()
}

/// OpenZFS reads all of it, and finds nothing wrong: zdb of both versions, a scrub, and the volume's bytes.
#[track_caller]
fn assert_agreed(folder: &Folder, shadow: &Shadow, version: &str) {
    assert_checked(folder);
    engine(folder, version, &["scrub"]);
    assert_judged(folder, "both");
    shadow.assert_dumped(folder, version);
}

#[test]
fn a_side_is_attached_and_another_detached_and_openzfs_agrees() {
    attached_and_detached(&[("23", "mirror:2", None), ("21", "single", Some("23"))]);
}

#[test]
#[ignore = "a minute: cargo xtask nightly openzfs"]
fn a_side_is_attached_and_another_detached_in_further_pools() {
    attached_and_detached(&[("21", "single", None), ("23", "mirror:2", Some("21"))]);
}

/// Pools: the version of OpenZFS that judges, the layout of both groups, the version that has made the pool.
fn attached_and_detached(cases: &[(&str, &str, Option<&str>)]) {
    for (version, layout, before) in cases {
        let (version, layout, before) = (*version, *layout, *before);
        let (mut folder, mut shadow) = filled(&[layout, layout], before);
        let width = group(layout).1;
        let mut pool = crate::common::open(&folder).unwrap();
        let new = next_member(&folder, 0);
        // The new file has the last name, and belongs to the last group.
        block_on(async {
            pool.attach(&word(&folder, width), new, now(5))
                .await
                .unwrap();
            assert_eq!(pool.members_behind().len(), 1);
            let report = pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
            assert!(report.repaired_bytes > 100_000, "{report:?}");
            assert_eq!(report.lost, Vec::<String>::new());
            pool.export(6).await.unwrap();
            assert!(pool.members_behind().is_empty());
        });
        drop(pool);
        folder.groups[1] = (GroupKind::Mirror, width + 1);
        assert_agreed(&folder, &shadow, version);
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.write(&mut pool, 40);
        // The side that all the others were filled from goes.
        block_on(pool.detach(&word(&folder, width), 7)).unwrap();
        shadow.write(&mut pool, 20);
        shadow.assert_same(&mut pool);
        block_on(pool.export(8)).unwrap();
        drop(pool);
        let bytes = std::fs::read(word(&folder, width)).unwrap();
        assert!(
            bytes[..512 << 10].iter().all(|byte| *byte == 0),
            "labels are left"
        );
        std::fs::remove_file(word(&folder, width)).unwrap();
        for member in width..2 * width {
            std::fs::rename(word(&folder, member + 1), word(&folder, member)).unwrap();
        }
        folder.groups[1] = group(layout);
        assert_agreed(&folder, &shadow, version);
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.write(&mut pool, 20);
        drop(pool);
        assert_agreed(&folder, &shadow, version);
    }
}

#[test]
fn openzfs_gives_a_side_what_it_lacks_that_was_attached_here() {
    for (version, layout) in [("21", "single"), ("23", "mirror:2")] {
        let (mut folder, mut shadow) = filled(&[layout], None);
        let mut pool = crate::common::open(&folder).unwrap();
        let new = next_member(&folder, 0);
        block_on(pool.attach(&word(&folder, 0), new, now(5))).unwrap();
        shadow.write(&mut pool, 20);
        shadow.assert_same(&mut pool);
        block_on(pool.export(6)).unwrap();
        drop(pool);
        folder.groups[0] = (GroupKind::Mirror, group(layout).1 + 1);
        let text = engine(&folder, version, &["resilver"]);
        assert!(!text.contains("processed 0"), "{text}");
        engine(&folder, version, &["scrub"]);
        assert_judged(&folder, "both");
        let mut pool = crate::common::open(&folder).unwrap();
        assert!(pool.members_behind().is_empty());
        shadow.assert_same(&mut pool);
    }
}

#[test]
fn the_last_whole_side_and_members_of_raidz_stay() {
    let refused = |folder: &Folder, member: usize, reason: &str| {
        let mut pool = crate::common::open(folder).unwrap();
        let error = block_on(pool.detach(&word(folder, member), 3)).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    };
    let (folder, _) = filled(&["raidz1:3"], None);
    refused(&folder, 0, "RAID-Z");
    let mut pool = crate::common::open(&folder).unwrap();
    let new = next_member(&folder, 0);
    let error = block_on(pool.attach(&word(&folder, 0), new, now(3))).unwrap_err();
    assert!(error.to_string().contains("whose width stays"), "{error}");
    drop(pool);
    let (mut folder, shadow) = filled(&["single"], None);
    refused(&folder, 0, "the only one");
    let mut pool = crate::common::open(&folder).unwrap();
    let new = next_member(&folder, 0);
    block_on(pool.attach(&word(&folder, 0), new, now(3))).unwrap();
    // The new side has nothing yet.
    let error = block_on(pool.detach(&word(&folder, 0), 4)).unwrap_err();
    assert!(error.to_string().contains("whole"), "{error}");
    block_on(pool.export(5)).unwrap();
    drop(pool);
    folder.groups[0] = (GroupKind::Mirror, 2);
    refused(&folder, 0, "whole");
    // It may go itself: the pool is what it was.
    let mut pool = crate::common::open(&folder).unwrap();
    block_on(pool.detach(&word(&folder, 1), 6)).unwrap();
    block_on(pool.export(7)).unwrap();
    drop(pool);
    folder.groups[0] = (GroupKind::Single, 1);
    assert_agreed(&folder, &shadow, "21");
}

#[test]
fn a_group_is_added_and_its_space_is_used_at_once() {
    added(&[("23", "mirror:2", None), ("21", "raidz2:4", Some("23"))]);
}

#[test]
#[ignore = "a minute: cargo xtask nightly openzfs"]
fn a_group_is_added_to_further_pools() {
    added(&[("21", "raidz1:3", None), ("23", "single", Some("21"))]);
}

/// Pools, as in `attached_and_detached`.
fn added(cases: &[(&str, &str, Option<&str>)]) {
    for (version, layout, before) in cases {
        let (version, layout, before) = (*version, *layout, *before);
        let (mut folder, mut shadow) = filled(&[layout], before);
        let (kind, count) = group(layout);
        let mut pool = crate::common::open(&folder).unwrap();
        let usable_bytes = pool.usable_bytes();
        let new = NewGroup {
            kind,
            members: (0..count).map(|n| next_member(&folder, n)).collect(),
        };
        block_on(pool.add_group(new, Mixed::Refused, now(4))).unwrap();
        assert!(pool.usable_bytes() > usable_bytes + usable_bytes / 2);
        shadow.write(&mut pool, 200);
        shadow.assert_same(&mut pool);
        block_on(pool.export(5)).unwrap();
        drop(pool);
        folder.groups.push((kind, count));
        assert_agreed(&folder, &shadow, version);
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.write(&mut pool, 50);
        drop(pool);
        assert_agreed(&folder, &shadow, version);
    }
}

#[test]
fn a_group_of_another_redundancy_is_refused_unless_it_is_accepted() {
    let (mut folder, mut shadow) = filled(&["mirror:2"], None);
    for (kind, count, reason) in [
        (GroupKind::Single, 1, "single member"),
        (GroupKind::RaidZ(1), 3, "RAID-Z"),
        (GroupKind::Mirror, 3, "can do without 2"),
    ] {
        let mut pool = crate::common::open(&folder).unwrap();
        let members = (0..count).map(|n| next_member(&folder, n)).collect();
        let new = NewGroup { kind, members };
        let added = block_on(pool.add_group(new, Mixed::Refused, now(4)));
        let error = added.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let mut pool = crate::common::open(&folder).unwrap();
    let new = NewGroup {
        kind: GroupKind::RaidZ(1),
        members: (0..3).map(|n| next_member(&folder, n)).collect(),
    };
    block_on(pool.add_group(new, Mixed::Accepted, now(4))).unwrap();
    shadow.write(&mut pool, 100);
    block_on(pool.export(5)).unwrap();
    drop(pool);
    folder.groups.push((GroupKind::RaidZ(1), 3));
    assert_agreed(&folder, &shadow, "21");
}

#[test]
fn a_side_that_is_attached_during_a_walk_is_no_part_of_what_that_walk_has_given() {
    let power = Power::on();
    let fresh = [(); 2].map(|()| MemoryDisk::new(64 << 20, &power));
    block_on(async {
        let (disks, bytes) = world(&[(GroupKind::Single, 1)], 4096, &mut Rng::new(3)).await;
        let (mut pool, _) = open(&disks).await;
        pool.begin(4).await.unwrap();
        pool.attach("disk 0", side("first", &fresh[0]), now(5))
            .await
            .unwrap();
        let mut walk = pool.begin_walk(Task::Rebuild);
        assert!(pool.walk(&mut walk, 5).await.unwrap());
        pool.attach("disk 0", side("second", &fresh[1]), now(6))
            .await
            .unwrap();
        while !walk.is_done() && pool.walk(&mut walk, 16).await.unwrap() {}
        pool.end_walk(walk).await.unwrap();
        let behind = pool.members_behind();
        assert!(behind.contains(&"second".to_owned()), "{behind:?}");
        pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
        pool.export(7).await.unwrap();
        let (pool, volume) = open_without(&fresh[1..]).await;
        assert!(pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == bytes);
    });
}

/// A new side.
fn side(name: &str, disk: &MemoryDisk) -> NewMember<MemoryDisk> {
    NewMember {
        name: name.into(),
        path: format!("/{name}"),
        is_disk: false,
        device: Rc::new(disk.clone()),
    }
}

/// What is done while the power is cut.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Attach,
    Detach,
    Add,
}

async fn carry_out(
    deed: Deed,
    pool: &mut WritablePool<MemoryDisk>,
    fresh: &[MemoryDisk],
) -> Result<(), plexum_pool::PoolError> {
    let new = |disk: &MemoryDisk| side("new", disk);
    match deed {
        Deed::Attach => {
            pool.attach("disk 0", new(&fresh[0]), now(6)).await?;
            pool.walk_all(Task::Rebuild, &mut |_| {}).await?;
        }
        Deed::Detach => pool.detach("disk 0", 6).await?,
        Deed::Add => {
            let members = fresh.iter().map(new).collect();
            let kind = GroupKind::Mirror;
            let group = NewGroup { kind, members };
            pool.add_group(group, Mixed::Refused, now(6)).await?;
        }
    }
    pool.commit(7).await
}

/// The power is cut after `operations` of a deed; whether it came to its end before.
async fn crash(deed: Deed, disks: &[MemoryDisk], before: &[u8], operations: u64) -> bool {
    let what = format!("{deed:?} cut after {operations} operations");
    let mut rng = Rng::new(operations);
    let power = Power::on();
    let mut disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    let old_count = disks.len();
    disks.extend((0..2).map(|_| MemoryDisk::new(64 << 20, &power)));
    let (mut pool, volume) = open(&disks[..old_count]).await;
    let mut now = before.to_vec();
    write(&mut pool, &volume, &mut now, &mut rng, 4).await;
    pool.commit(5).await.unwrap();
    power.cut_after(Some(operations));
    let is_done = carry_out(deed, &mut pool, &disks[old_count..])
        .await
        .is_ok();
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    assert_sound(&disks, &what).await;
    let (mut pool, volume) = open(&disks).await;
    assert!(
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
        "{what}: other bytes"
    );
    let members = pool.members().len();
    let after = match deed {
        Deed::Attach => old_count + 1,
        Deed::Detach => old_count - 1,
        Deed::Add => old_count + 2,
    };
    assert!(
        members == old_count || members == after,
        "{what}: {members} members"
    );
    assert!(members == after || !is_done, "{what}: it is lost");
    // It goes on, whatever it has become.
    pool.begin(8).await.unwrap();
    write(&mut pool, &volume, &mut now, &mut rng, 6).await;
    pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
    pool.export(9).await.unwrap();
    assert!(pool.members_behind().is_empty(), "{what}");
    drop(pool);
    assert_sound(&disks, &what).await;
    if matches!(deed, Deed::Attach) && members == after {
        // What the new side was given is enough.
        let (pool, volume) = open_without(&disks[1..]).await;
        assert!(
            pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
            "{what}: read from the new side"
        );
    }
    is_done
}

fn crash_everywhere(deed: Deed, width: usize) {
    let kind = match width {
        1 => GroupKind::Single,
        _ => GroupKind::Mirror,
    };
    let mut rng = Rng::new(width as u64);
    block_on(async {
        let (disks, bytes) = world(&[(kind, width)], 4096, &mut rng).await;
        let mut operations = 0;
        while !crash(deed, &disks, &bytes, operations).await {
            operations += 1;
        }
        assert!(operations > 10, "{deed:?} has {operations} operations");
    });
}

#[test]
fn a_crash_leaves_a_single_member_or_a_mirror_whose_new_side_lacks_what_it_lacks() {
    crash_everywhere(Deed::Attach, 1);
}

#[test]
fn a_crash_leaves_a_mirror_with_the_new_side_or_without_it() {
    crash_everywhere(Deed::Attach, 2);
}

#[test]
fn a_crash_leaves_a_mirror_with_the_side_that_goes_or_without_it() {
    crash_everywhere(Deed::Detach, 2);
    crash_everywhere(Deed::Detach, 3);
}

#[test]
fn a_crash_leaves_a_pool_with_the_new_group_or_without_it() {
    crash_everywhere(Deed::Add, 2);
}
