//! Members fail, are missing, come back, are taken out and replaced: nothing is lost, old data are never given, and
//! OpenZFS agrees with what the pool says of it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use crate::common::memory::{MemoryDisk, Power};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, open_without, world, write};
use crate::common::{
    FileDevice, Folder, Shadow, VOLUME, assert_checked, assert_sound as assert_judged, engine,
};
use plexum_disks::rng::Rng;
use plexum_pool::{Absent, GroupKind, Logged, NewMember, Now, Task, WritablePool, WriteOptions};
use plexum_testkit::block_on;

/// A member fails after so many operations, while the others go on; then it comes back as it was. Whether it failed
/// before the end.
async fn fail(disks: &[MemoryDisk], before: &[u8], operations: u64, failing: usize) -> bool {
    let what = format!("disk {failing} failed after {operations} operations");
    let mut rng = Rng::new(operations);
    let (power, others) = (Power::on(), Power::on());
    let disks: Vec<MemoryDisk> = disks
        .iter()
        .enumerate()
        .map(|(n, disk)| disk.copy(if n == failing { &power } else { &others }))
        .collect();
    let (mut pool, volume) = open(&disks).await;
    pool.use_log(&volume);
    pool.begin(4).await.unwrap();
    power.cut_after(Some(operations));
    let mut now = before.to_vec();
    for flush in 0..5 {
        write(&mut pool, &volume, &mut now, &mut rng, 3).await;
        if flush == 2 || pool.log().await != Ok(Logged::Durable) {
            pool.commit(5).await.unwrap();
        }
    }
    pool.commit(6).await.unwrap();
    let has_failed = !pool.members_out().is_empty();
    assert!(
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
        "{what}: read while it is out"
    );
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    assert_sound(&disks, &what).await;
    // It is back. What it missed is read from the others, and given to it.
    let (mut pool, volume) = open(&disks).await;
    assert!(pool.members_behind().is_empty() || has_failed, "{what}");
    assert!(
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
        "{what}: read before it is whole"
    );
    write(&mut pool, &volume, &mut now, &mut rng, 3).await;
    pool.begin(7).await.unwrap();
    let report = pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
    assert_eq!(report.lost, Vec::<String>::new(), "{what}");
    pool.export(8).await.unwrap();
    assert!(pool.members_behind().is_empty(), "{what}");
    drop(pool);
    // Another one is away now: what was given to it is needed.
    let left: Vec<MemoryDisk> = (0..disks.len())
        .filter(|n| *n != (failing + 1) % disks.len())
        .map(|n| disks[n].clone())
        .collect();
    let (pool, volume) = open_without(&left).await;
    assert!(
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
        "{what}: read from what it was given"
    );
    has_failed
}

fn fail_everywhere(kinds: &[(GroupKind, usize)], seed: u64) {
    let mut rng = Rng::new(seed);
    block_on(async {
        let (disks, bytes) = world(kinds, 4096, &mut rng).await;
        let mut operations = 0;
        while fail(&disks, &bytes, operations, (operations % 2) as usize).await {
            operations += 1;
        }
        assert!(operations > 25, "the run has {operations} operations");
    });
}

#[test]
fn a_member_of_raidz_that_fails_at_any_time_costs_nothing() {
    fail_everywhere(&[(GroupKind::RaidZ(1), 3)], 1);
}

#[test]
fn a_member_of_a_mirror_that_fails_at_any_time_costs_nothing() {
    fail_everywhere(&[(GroupKind::Mirror, 2)], 2);
}

#[test]
fn two_members_of_a_mirror_of_two_end_the_pool_before_anything_wrong_is_answered() {
    let mut rng = Rng::new(3);
    block_on(async {
        let (disks, bytes) = world(&[(GroupKind::Mirror, 2)], 4096, &mut rng).await;
        let power = Power::on();
        let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
        let (mut pool, volume) = open(&disks).await;
        pool.begin(4).await.unwrap();
        power.cut_after(Some(0));
        let mut now = bytes.clone();
        write(&mut pool, &volume, &mut now, &mut rng, 3).await;
        assert!(pool.commit(5).await.is_err());
        assert!(pool.write(&volume, 0, &[1; 512]).await.is_err());
    });
}

fn degraded(folder: &Folder) -> WritablePool<FileDevice> {
    let options = WriteOptions {
        absent: Absent::Accepted,
        ..WriteOptions::default()
    };
    crate::common::open_with(folder, options).unwrap()
}

/// A pool with a volume, exported.
fn filled(layout: &[&str]) -> (Folder, Shadow) {
    let folder = Folder::new(layout);
    folder.create(128 << 20, 12).unwrap();
    let mut pool = crate::common::open(&folder).unwrap();
    let mut shadow = Shadow::new(9);
    Shadow::add_volume(&mut pool, 8192);
    shadow.write(&mut pool, 60);
    block_on(pool.export(2)).unwrap();
    (folder, shadow)
}

/// Writes while a member is away, and puts it back as it was.
fn write_without(folder: &Folder, shadow: &mut Shadow, member: usize) {
    let path = &folder.members()[member];
    let away = folder.path().join("away");
    std::fs::rename(path, &away).unwrap();
    let error = crate::common::open(folder).err().unwrap().to_string();
    assert!(error.contains("`missing`"), "{error}");
    let mut pool = degraded(folder);
    shadow.write(&mut pool, 30);
    shadow.write(&mut pool, 30);
    shadow.assert_same(&mut pool);
    block_on(pool.export(3)).unwrap();
    drop(pool);
    std::fs::rename(&away, path).unwrap();
}

#[test]
fn openzfs_resilvers_what_a_member_missed_here() {
    for (version, layout, member) in [
        ("21", "raidz1:3", 1),
        ("23", "mirror:2", 0),
        ("23", "raidz2:5", 4),
    ] {
        let (folder, mut shadow) = filled(&[layout]);
        write_without(&folder, &mut shadow, member);
        assert_checked(&folder);
        // While it is imported, OpenZFS reads before it knows who missed what: its counters begin anew after that.
        let text = engine(&folder, version, &["resilver"]);
        engine(&folder, version, &["scrub"]);
        assert!(!text.contains("processed 0"), "{text}");
        assert_judged(&folder, "21");
        shadow.assert_dumped(&folder, version);
        let mut pool = crate::common::open(&folder).unwrap();
        assert!(pool.members_behind().is_empty());
        shadow.assert_same(&mut pool);
    }
}

#[test]
fn what_a_member_missed_here_or_with_openzfs_is_made_good_here() {
    for (version, layout, is_ours) in [
        ("21", "raidz1:3", true),
        ("23", "mirror:3", true),
        ("21", "mirror:2", false),
        ("23", "raidz2:5", false),
    ] {
        let (folder, mut shadow) = filled(&[layout, layout]);
        if is_ours {
            write_without(&folder, &mut shadow, 1);
        } else {
            let file = folder.path().join("shadow");
            std::fs::write(&file, &shadow.bytes).unwrap();
            let write = format!("write={VOLUME}:200:5:{}", file.display());
            engine(&folder, version, &["offline=1", &write]);
            shadow.bytes = std::fs::read(&file).unwrap();
        }
        assert_checked(&folder);
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.assert_same(&mut pool);
        block_on(async {
            if !is_ours {
                assert_eq!(pool.members_out().len(), 1, "OpenZFS took it offline");
                let member = folder.members()[1].display().to_string();
                pool.online(&member, 4).await.unwrap();
            }
            assert_eq!(pool.members_behind().len(), 1);
            let report = pool.walk_all(Task::Rebuild, &mut |_| {}).await.unwrap();
            // Which of the groups OpenZFS writes to depends on its time: of its writes, few may be this member's.
            let at_least = if is_ours { 100_000 } else { 1 };
            assert!(
                report.repaired_bytes >= at_least && report.lost_count == 0,
                "{report:?}"
            );
            pool.export(5).await.unwrap();
        });
        drop(pool);
        engine(&folder, version, &["scrub"]);
        assert_judged(&folder, "both");
        assert_checked(&folder);
        shadow.assert_dumped(&folder, version);
    }
}

#[test]
fn a_member_that_is_taken_offline_is_not_written_until_it_is_online() {
    let (folder, mut shadow) = filled(&["raidz1:3"]);
    let names: Vec<String> = folder
        .members()
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let mut pool = crate::common::open(&folder).unwrap();
    block_on(pool.offline(&names[0], 3)).unwrap();
    let error = block_on(pool.offline(&names[1], 3))
        .unwrap_err()
        .to_string();
    assert!(error.contains("cannot do without it"), "{error}");
    drop(pool);
    let before = std::fs::read(&names[0]).unwrap();
    let mut pool = crate::common::open(&folder).unwrap();
    shadow.write(&mut pool, 40);
    shadow.assert_same(&mut pool);
    block_on(pool.export(4)).unwrap();
    drop(pool);
    assert!(
        std::fs::read(&names[0]).unwrap() == before,
        "it was written"
    );
    assert_checked(&folder);
    engine(&folder, "21", &["online=0", "scrub"]);
    assert_judged(&folder, "21");
    shadow.assert_dumped(&folder, "21");
}

/// A file of the same size beside the members.
fn new_member(folder: &Folder, name: &str) -> (PathBuf, NewMember<FileDevice>) {
    let path = folder.path().join(name);
    File::create(&path).unwrap().set_len(128 << 20).unwrap();
    let name = path.display().to_string();
    let member = NewMember {
        path: name.clone(),
        name,
        is_disk: false,
        device: Rc::new(FileDevice::open(&path)),
    };
    (path, member)
}

#[test]
fn a_member_is_replaced_whether_it_is_there_or_not() {
    for (version, layout, is_there) in [
        ("21", "raidz1:3", true),
        ("23", "mirror:2", false),
        ("21", "raidz2:5", false),
    ] {
        let (folder, mut shadow) = filled(&[layout]);
        let old = folder.members()[1].clone();
        let word = old.display().to_string();
        let away = folder.path().join("away");
        if !is_there {
            std::fs::rename(&old, &away).unwrap();
        }
        let mut pool = degraded(&folder);
        shadow.write(&mut pool, 20);
        let (path, new) = new_member(&folder, "new");
        let now = Now {
            wall_s: 6,
            seed: 77,
        };
        let report = block_on(pool.replace(&word, new, now, &mut |_| {})).unwrap();
        assert!(report.repaired_bytes > 100_000, "{report:?}");
        block_on(pool.export(7)).unwrap();
        drop(pool);
        let _ = std::fs::remove_file(away);
        std::fs::rename(path, &old).unwrap();
        assert_checked(&folder);
        assert_judged(&folder, "21");
        engine(&folder, version, &["scrub"]);
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.assert_same(&mut pool);
        shadow.write(&mut pool, 20);
        drop(pool);
        assert_judged(&folder, "both");
        shadow.assert_dumped(&folder, version);
    }
}

#[test]
fn what_is_wrong_on_a_member_is_mended_by_a_read_and_by_a_scrub() {
    for layout in ["raidz1:3", "mirror:2"] {
        let (folder, shadow) = filled(&[layout]);
        let damage = || {
            let file = OpenOptions::new()
                .write(true)
                .open(&folder.members()[0])
                .unwrap();
            file.write_all_at(&vec![0xA5; 60 << 20], 5 << 20).unwrap();
        };
        damage();
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.assert_same(&mut pool);
        drop(pool);
        // Data were read and mended; what was not read still is wrong.
        let pool = crate::common::open(&folder).unwrap();
        drop(pool);
        let mut pool = crate::common::open(&folder).unwrap();
        let volume = block_on(pool.open_volume(VOLUME)).unwrap();
        let before = std::fs::read(&folder.members()[0]).unwrap();
        block_on(pool.read(&volume, 0, 8 << 20)).unwrap();
        let after = std::fs::read(&folder.members()[0]).unwrap();
        assert!(
            before == after,
            "there was nothing left to mend of the volume"
        );
        let report = block_on(pool.walk_all(Task::Scrub, &mut |_| {})).unwrap();
        assert!(report.lost_count == 0, "{report:?}");
        let again = block_on(pool.walk_all(Task::Scrub, &mut |_| {})).unwrap();
        assert_eq!((again.repaired_bytes, again.lost_count), (0, 0));
        drop(pool);
        engine(&folder, "21", &["scrub"]);
        assert_judged(&folder, "21");
    }
}
