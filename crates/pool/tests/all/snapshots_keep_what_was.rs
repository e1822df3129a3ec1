//! Snapshots are taken, destroyed in any order, gone back to and cloned: each holds what was, all sums are right, and
//! OpenZFS agrees, also when it takes turns.

use std::collections::BTreeMap;

use crate::common::memory::{MemoryDisk, Power};
use crate::common::{
    FileDevice, Folder, Shadow, VOLUME, VOLUME_BYTES, assert_checked,
    assert_sound as assert_judged, engine,
};
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, Now, Shrink, WritablePool};
use plexum_testkit::block_on;
use plexum_zfs::DatasetName;

fn now(seed: u64) -> Now {
    Now {
        wall_s: 1_700_000_100 + seed,
        seed,
    }
}

/// What a data set holds as the reader sees it.
fn content(folder: &Folder, name: &str) -> Vec<u8> {
    let pool = crate::common::open_reader(folder);
    block_on(async {
        let volume = pool.volume(&DatasetName::parse(name)).await.unwrap();
        volume.read(0, volume.size_bytes() as usize).await.unwrap()
    })
}

/// A pool and what its snapshots should hold.
struct History {
    folder: Folder,
    shadow: Shadow,
    kept: BTreeMap<String, Vec<u8>>,
}

impl History {
    fn new(layout: &[&str], block_bytes: u64) -> Self {
        let folder = Folder::new(layout);
        folder.create(256 << 20, 9).unwrap();
        let mut pool = crate::common::open(&folder).unwrap();
        let mut shadow = Shadow::new(block_bytes);
        Shadow::add_volume(&mut pool, block_bytes);
        shadow.write(&mut pool, 40);
        Self {
            folder,
            shadow,
            kept: BTreeMap::new(),
        }
    }

    fn change(&mut self, what: impl FnOnce(&mut WritablePool<FileDevice>)) {
        let mut pool = crate::common::open(&self.folder).unwrap();
        what(&mut pool);
        self.shadow.write(&mut pool, 12);
        self.shadow.assert_same(&mut pool);
    }

    fn snapshot(&mut self, name: &str) {
        let full = format!("{VOLUME}@{name}");
        self.kept.insert(full.clone(), self.shadow.bytes.clone());
        let seed = self.kept.len() as u64;
        self.change(|pool| block_on(pool.snapshot(&full, now(seed))).unwrap());
    }

    fn destroy(&mut self, name: &str) {
        let full = format!("{VOLUME}@{name}");
        self.kept.remove(&full);
        self.change(|pool| block_on(pool.destroy_snapshot(&full, 9)).unwrap());
    }

    #[track_caller]
    fn assert_kept(&self) {
        assert_checked(&self.folder);
        for (name, bytes) in &self.kept {
            assert!(content(&self.folder, name) == *bytes, "{name} is another");
        }
    }
}

#[test]
fn snapshots_hold_what_was_whichever_of_them_are_destroyed() {
    let mut rng = Rng::new(11);
    for (version, layout, block_bytes) in [
        ("21", &["raidz1:3"][..], 4096),
        ("23", &["mirror:2", "mirror:2"], 16 << 10),
    ] {
        let mut history = History::new(layout, block_bytes);
        let mut names: Vec<String> = Vec::new();
        for n in 0..12 {
            let name = format!("s{n}");
            history.snapshot(&name);
            names.push(name);
            history.assert_kept();
            if names.len() > 3 {
                let at = rng.below(names.len() as u64) as usize;
                history.destroy(&names.remove(at));
                history.assert_kept();
            }
        }
        assert_judged(&history.folder, "both");
        // OpenZFS destroys some, takes one, and everything is destroyed at the end: its assertions see the sums.
        let middle = format!("destroy={VOLUME}@{}", names[1]);
        let snap = format!("snap={VOLUME}@theirs");
        engine(&history.folder, version, &[&middle, &snap, "scrub"]);
        history
            .kept
            .remove(&format!("{VOLUME}@{}", names.remove(1)));
        let theirs = history.shadow.bytes.clone();
        history.kept.insert(format!("{VOLUME}@theirs"), theirs);
        history.assert_kept();
        history.destroy(&names.remove(0));
        history.assert_kept();
        let mut last: Vec<String> = vec![format!("destroy={VOLUME}@theirs")];
        last.extend(names.iter().map(|name| format!("destroy={VOLUME}@{name}")));
        last.push(format!("destroy={VOLUME}"));
        let words: Vec<&str> = last.iter().map(String::as_str).collect();
        engine(&history.folder, version, &words);
        assert_judged(&history.folder, "21");
        assert_checked_empty(&history.folder);
    }
}

/// All sums are right of a pool without volumes.
#[track_caller]
fn assert_checked_empty(folder: &Folder) {
    let report = crate::common::check(&folder.members()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

#[test]
fn everything_can_be_destroyed_here_too_and_leaves_nothing() {
    let mut history = History::new(&["raidz2:5"], 8192);
    for name in ["a", "b", "c", "d"] {
        history.snapshot(name);
    }
    let mut pool = crate::common::open(&history.folder).unwrap();
    let error = block_on(pool.destroy_volume(VOLUME, 8)).unwrap_err();
    assert!(error.to_string().contains("(a, b, c, d)"), "{error}");
    for name in ["b", "d", "a", "c"] {
        block_on(pool.destroy_snapshot(&format!("{VOLUME}@{name}"), 9)).unwrap();
        assert_checked_empty(&history.folder);
    }
    block_on(pool.destroy_volume(VOLUME, 10)).unwrap();
    block_on(pool.export(11)).unwrap();
    drop(pool);
    assert_checked_empty(&history.folder);
    assert_judged(&history.folder, "both");
    let report = crate::common::check(&history.folder.members()).unwrap();
    assert!(
        report.allocated_bytes < 4 << 20,
        "{}",
        report.allocated_bytes
    );
    history.change_again();
}

impl History {
    /// The pool takes a volume of the old name, and OpenZFS what is in it.
    fn change_again(&mut self) {
        let mut pool = crate::common::open(&self.folder).unwrap();
        self.shadow = Shadow::new(5);
        Shadow::add_volume(&mut pool, 4096);
        self.shadow.write(&mut pool, 20);
        drop(pool);
        self.shadow.assert_dumped(&self.folder, "23");
    }
}

#[test]
fn a_volume_goes_back_to_its_last_snapshot() {
    let mut history = History::new(&["raidz1:3"], 4096);
    history.snapshot("a");
    history.snapshot("b");
    history.change(|_| {});
    let mut pool = crate::common::open(&history.folder).unwrap();
    let error = block_on(pool.rollback(&format!("{VOLUME}@a"), 8)).unwrap_err();
    assert!(error.to_string().contains("(b)"), "{error}");
    let name = format!("{VOLUME}@b");
    for _ in 0..2 {
        block_on(pool.rollback(&name, 9)).unwrap();
        assert_checked(&history.folder);
        history.shadow.bytes.clone_from(&history.kept[&name]);
        history.shadow.assert_same(&mut pool);
        history.shadow.write(&mut pool, 20);
        assert_checked(&history.folder);
    }
    drop(pool);
    history.assert_kept();
    assert_judged(&history.folder, "both");
    history.shadow.assert_dumped(&history.folder, "21");
    let words = [
        format!("destroy={VOLUME}@a"),
        format!("destroy={VOLUME}@b"),
        format!("destroy={VOLUME}"),
    ];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    engine(&history.folder, "21", &words);
    assert_judged(&history.folder, "21");
}

#[test]
fn a_clone_shares_and_goes_its_own_way() {
    for (version, is_ours) in [("21", true), ("23", false)] {
        let mut history = History::new(&["raidz1:3"], 4096);
        history.snapshot("a");
        history.snapshot("b");
        history.snapshot("c");
        let (origin, clone) = (format!("{VOLUME}@c"), "tank/clone");
        let mut twin = history.kept[&origin].clone();
        history.change(|pool| {
            block_on(async {
                pool.clone_snapshot(&origin, clone, now(7)).await.unwrap();
                let error = pool.destroy_snapshot(&origin, 9).await.unwrap_err();
                assert!(error.to_string().contains("1 volumes"), "{error}");
                let volume = pool.open_volume(clone).await.unwrap();
                for n in 0..20_u64 {
                    let at = n * 393_216;
                    pool.write(&volume, at, &[n as u8; 9000]).await.unwrap();
                    twin[at as usize..at as usize + 9000].fill(n as u8);
                }
                pool.commit(8).await.unwrap();
                pool.snapshot("tank/clone@x", now(8)).await.unwrap();
                pool.write(&volume, 0, &[9; 70_000]).await.unwrap();
                pool.commit(8).await.unwrap();
            });
        });
        history.assert_kept();
        assert!(content(&history.folder, "tank/clone@x") == twin);
        twin[..70_000].fill(9);
        assert!(content(&history.folder, clone) == twin);
        assert_judged(&history.folder, "both");
        history.destroy("a");
        history.assert_kept();
        if is_ours {
            history.change(|pool| {
                block_on(async {
                    pool.destroy_snapshot("tank/clone@x", 9).await.unwrap();
                    pool.destroy_volume(clone, 9).await.unwrap();
                });
            });
            history.destroy("b");
            history.assert_kept();
        } else {
            let words = ["destroy=tank/clone@x", "destroy=tank/clone"];
            engine(&history.folder, version, &words);
            history.assert_kept();
            history.destroy("b");
        }
        let words = [format!("destroy={VOLUME}@c"), format!("destroy={VOLUME}")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        engine(&history.folder, version, &words);
        assert_judged(&history.folder, "21");
        assert_checked_empty(&history.folder);
    }
}

#[test]
fn volumes_and_snapshots_are_renamed_and_volumes_get_other_sizes() {
    let mut history = History::new(&["mirror:2"], 8192);
    history.snapshot("a");
    let mut pool = crate::common::open(&history.folder).unwrap();
    let half = VOLUME_BYTES / 2;
    block_on(async {
        pool.rename(&format!("{VOLUME}@a"), &format!("{VOLUME}@z"), 5)
            .await
            .unwrap();
        pool.rename(VOLUME, "tank/other", 5).await.unwrap();
        assert!(pool.open_volume(VOLUME).await.is_err());
        let names = pool.snapshots("tank/other").await.unwrap();
        assert_eq!(names[0].name, "z");
        let error = pool
            .resize("tank/other", half, Shrink::Refused, 6)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("would lose"), "{error}");
        pool.resize("tank/other", half, Shrink::Accepted, 6)
            .await
            .unwrap();
        pool.resize("tank/other", 3 * VOLUME_BYTES, Shrink::Refused, 7)
            .await
            .unwrap();
        let error = pool
            .rename("tank/other", "tank/other", 8)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("is there already"), "{error}");
        pool.export(9).await.unwrap();
    });
    drop(pool);
    assert_checked(&history.folder);
    assert_judged(&history.folder, "both");
    let mut expected = history.shadow.bytes[..half as usize].to_vec();
    expected.resize(3 * VOLUME_BYTES as usize, 0);
    assert!(content(&history.folder, "tank/other") == expected);
    let dump = history.folder.path().join("dump");
    let word = format!("dump=tank/other:{}", dump.display());
    engine(&history.folder, "23", &[&word]);
    assert!(
        std::fs::read(dump).unwrap() == expected,
        "OpenZFS sees another"
    );
}

/// The power is cut at every operation of a snapshot, its destruction and a rollback.
#[test]
fn a_crash_leaves_the_snapshot_or_not_and_all_sums_right() {
    let mut rng = Rng::new(4);
    block_on(async {
        let kinds = [(GroupKind::RaidZ(1), 3)];
        let (disks, bytes) = crate::common::world::world(&kinds, 4096, &mut rng).await;
        let mut operations = 0;
        while !crash(&disks, &bytes, operations).await {
            operations += 3;
        }
        assert!(operations > 60, "the run has {operations} operations");
    });
}

/// Whether the run came to its end before the cut.
async fn crash(disks: &[MemoryDisk], before: &[u8], operations: u64) -> bool {
    let what = format!("cut after {operations} operations");
    let mut rng = Rng::new(operations);
    let power = Power::on();
    let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    let (mut pool, volume) = crate::common::world::open(&disks).await;
    pool.use_log(&volume);
    power.cut_after(Some(operations));
    let result = async {
        pool.snapshot("tank/vol@a", now(1)).await?;
        pool.write(&volume, 8192, &[1; 20_000]).await?;
        pool.snapshot("tank/vol@b", now(2)).await?;
        pool.write(&volume, 9000, &[2; 600_000]).await?;
        pool.commit(5).await?;
        pool.rollback("tank/vol@b", 6).await?;
        pool.destroy_snapshot("tank/vol@b", 7).await?;
        pool.rollback("tank/vol@a", 8).await?;
        pool.destroy_snapshot("tank/vol@a", 9).await
    };
    let is_done = result.await.is_ok();
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    crate::common::world::assert_sound(&disks, &what).await;
    let (mut pool, volume) = crate::common::world::open(&disks).await;
    let all = pool.snapshots("tank/vol").await.unwrap();
    if is_done {
        assert!(all.is_empty(), "{what}");
        let read = pool
            .read(&volume, 0, crate::common::world::VOLUME_BYTES)
            .await
            .unwrap();
        assert!(read == before, "{what}: it did not go back");
    }
    for one in all.iter().rev() {
        let name = format!("tank/vol@{}", one.name);
        pool.rollback(&name, 10).await.unwrap();
        pool.destroy_snapshot(&name, 11).await.unwrap();
        crate::common::world::assert_sound(&disks, &what).await;
    }
    is_done
}
