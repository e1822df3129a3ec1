//! What was flushed is there after a crash although no root was written since: it is in the intent log, which this
//! program replays, and OpenZFS.

use crate::common::memory::{MemoryDisk, Power};
use crate::common::world::{VOLUME_BYTES, assert_sound, open, world, write};
use crate::common::{
    Folder, Shadow, VOLUME, assert_checked, assert_sound as assert_judged, engine, oracle,
};
use plexum_disks::rng::Rng;
use plexum_pool::{GroupKind, Logged};
use plexum_testkit::block_on;

/// Flushes of a run, and after which of them a commit comes instead.
const FLUSHES: usize = 6;
const COMMIT_AT: usize = 3;

/// The power is cut after `operations`; whether all flushes were answered before.
async fn crash(disks: &[MemoryDisk], before: &[u8], operations: u64, seed: u64) -> bool {
    let what = format!("cut after {operations} operations");
    let mut rng = Rng::new(seed);
    let power = Power::on();
    let disks: Vec<MemoryDisk> = disks.iter().map(|disk| disk.copy(&power)).collect();
    let (mut pool, volume) = open(&disks).await;
    pool.use_log(&volume);
    pool.begin(4).await.unwrap();
    power.cut_after(Some(operations));
    let (mut flushed, mut now) = (before.to_vec(), before.to_vec());
    let mut answered = 0;
    for flush in 0..FLUSHES {
        write(&mut pool, &volume, &mut now, &mut rng, 4).await;
        let is_durable = match flush {
            COMMIT_AT => pool.commit(5).await.is_ok(),
            _ => pool.log().await == Ok(Logged::Durable),
        };
        if !is_durable {
            break;
        }
        flushed.clone_from(&now);
        answered += 1;
    }
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    assert_sound(&disks, &what).await;
    // The power fails once more while what was left is being replayed.
    let (mut pool, _) = open(&disks).await;
    power.cut_after(Some(operations % 19));
    let _ = pool.begin(5).await;
    drop(pool);
    power.cut_after(None);
    disks.iter().for_each(|disk| disk.toss(&mut rng));
    let (mut pool, volume) = open(&disks).await;
    let read = pool.read(&volume, 0, VOLUME_BYTES).await.unwrap();
    for (n, sector) in read.chunks(512).enumerate() {
        let range = n * 512..(n + 1) * 512;
        assert!(
            *sector == flushed[range.clone()] || *sector == now[range],
            "{what}: sector {n} is neither what was flushed last ({answered} flushes) nor newer"
        );
    }
    let mut now = read;
    for _ in 0..3 {
        write(&mut pool, &volume, &mut now, &mut rng, 6).await;
        pool.commit(6).await.unwrap();
        assert_sound(&disks, &what).await;
    }
    let (pool, volume) = open(&disks).await;
    assert!(
        pool.read(&volume, 0, VOLUME_BYTES).await.unwrap() == now,
        "{what}: it did not go on well"
    );
    answered == FLUSHES
}

fn crash_everywhere(kinds: &[(GroupKind, usize)], block_bytes: u64, seed: u64) {
    let mut rng = Rng::new(seed);
    block_on(async {
        let (disks, bytes) = world(kinds, block_bytes, &mut rng).await;
        let mut operations = 0;
        while !crash(&disks, &bytes, operations, seed).await {
            operations += 1;
        }
        assert!(operations > 40, "the run has {operations} operations");
    });
}

#[test]
fn of_raidz_every_answered_flush_is_there() {
    crash_everywhere(&[(GroupKind::RaidZ(1), 3)], 4096, 1);
}

#[test]
fn of_two_mirrors_with_large_blocks_every_answered_flush_is_there() {
    let mirrors = [(GroupKind::Mirror, 2), (GroupKind::Mirror, 2)];
    crash_everywhere(&mirrors, 32 << 10, 2);
}

/// A pool whose last writes are in its log alone.
fn logged(layout: &str, block_bytes: u64) -> (Folder, Shadow) {
    let folder = Folder::new(&[layout]);
    folder.create(128 << 20, 12).unwrap();
    let mut pool = crate::common::open(&folder).unwrap();
    let mut shadow = Shadow::new(3);
    Shadow::add_volume(&mut pool, block_bytes);
    shadow.write(&mut pool, 30);
    let volume = block_on(pool.open_volume(VOLUME)).unwrap();
    pool.use_log(&volume);
    block_on(pool.begin(5)).unwrap();
    let txg = pool.txg();
    for _ in 0..20 {
        shadow.change(&mut pool, 3);
        assert_eq!(block_on(pool.log()).unwrap(), Logged::Durable);
    }
    assert_eq!(pool.txg(), txg, "nothing was committed");
    // What is not flushed is lost with the crash.
    let mut lost = Shadow::new(4);
    lost.bytes.clone_from(&shadow.bytes);
    lost.change(&mut pool, 3);
    (folder, shadow)
}

#[test]
fn openzfs_replays_a_log_of_plexum() {
    for (version, layout, block_bytes) in [
        ("21", "raidz1:3", 4096),
        ("23", "mirror:2", 32 << 10),
        ("21", "raidz2:5", 128 << 10),
    ] {
        let (folder, mut shadow) = logged(layout, block_bytes);
        assert_checked(&folder);
        assert_judged(&folder, "21");
        let replay = format!("replay={VOLUME}");
        let text = engine(&folder, version, &[&replay]);
        assert!(!text.contains(" 0 records"), "{text}");
        shadow.assert_dumped(&folder, version);
        assert_judged(&folder, "both");
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.assert_same(&mut pool);
        shadow.write(&mut pool, 20);
        drop(pool);
        engine(&folder, version, &["scrub", &format!("destroy={VOLUME}")]);
        assert_judged(&folder, "21");
    }
}

#[test]
fn plexum_replays_its_own_log_and_openzfs_goes_on() {
    let (folder, mut shadow) = logged("raidz1:4", 64 << 10);
    let mut pool = crate::common::open(&folder).unwrap();
    shadow.assert_same(&mut pool);
    block_on(pool.begin(6)).unwrap();
    shadow.assert_same(&mut pool);
    shadow.write(&mut pool, 20);
    block_on(pool.export(7)).unwrap();
    drop(pool);
    assert_checked(&folder);
    assert_judged(&folder, "both");
    shadow.assert_dumped(&folder, "23");
}

#[test]
fn plexum_replays_a_log_of_openzfs_whether_it_was_taken_over_or_not() {
    for (version, layout, is_claimed) in [
        ("21", "raidz1:3", false),
        ("23", "mirror:2", false),
        ("21", "mirror:2", true),
        ("23", "raidz1:3", true),
    ] {
        let folder = Folder::new(&[layout]);
        let path = folder.path().display().to_string();
        let dump = folder.path().join("dump").display().to_string();
        let words = [
            "make",
            &path,
            "tank",
            layout,
            "--features",
            "none",
            "--version",
            version,
            "--vol",
            "8M",
            "--block",
            "8192",
            "--log",
            "40",
            "--dump",
            &dump,
        ];
        let (is_good, text) = oracle(&words);
        assert!(is_good, "{text}");
        let mut shadow = Shadow::new(7);
        shadow.bytes = std::fs::read(&dump).unwrap();
        std::fs::remove_file(&dump).unwrap();
        if is_claimed {
            engine(&folder, version, &["commit", "crash"]);
        }
        assert_checked(&folder);
        let mut pool = crate::common::open(&folder).unwrap();
        shadow.assert_same(&mut pool);
        shadow.write(&mut pool, 20);
        drop(pool);
        assert_checked(&folder);
        assert_judged(&folder, "both");
        shadow.assert_dumped(&folder, version);
    }
}
