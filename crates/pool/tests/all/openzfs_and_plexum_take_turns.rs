//! The alternation test: Plexum writes, snapshots and leaves a log, OpenZFS replays it, writes, snapshots, destroys and
//! scrubs, Plexum goes on. After every step zdb is content and the volume holds what it should. At the end everything
//! is destroyed, which is when the engine's assertions look at the sums.
//!
//! `PLEXUM_ZFS_ROUNDS` is the number of rounds, 6 by default.

use crate::common::{Folder, Shadow, VOLUME, assert_checked, assert_sound, block_on, engine, open};
use plexum_pool::{Logged, Now};

/// Layout, sector shift, and block of the volume.
const SETUPS: [(&[&str], u32, u64); 12] = [
    (&["raidz2:5"], 12, 8192),
    (&["mirror:2", "mirror:2"], 12, 4096),
    (&["raidz1:3"], 9, 4096),
    (&["single"], 12, 16384),
    (&["raidz3:7"], 12, 16384),
    (&["mirror:3"], 9, 8192),
    (&["raidz1:4"], 12, 65536),
    (&["raidz2:8"], 10, 4096),
    (&["single", "single"], 9, 512),
    (&["raidz1:3", "raidz1:3"], 12, 8192),
    (&["raidz2:4"], 9, 131_072),
    (&["mirror:2", "mirror:2", "mirror:2"], 13, 8192),
];

fn rounds() -> usize {
    let asked = std::env::var("PLEXUM_ZFS_ROUNDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// One round: which of the two versions of OpenZFS, and what it does between two turns of Plexum.
fn turn(folder: &Folder, shadow: &mut Shadow, round: usize) {
    let version = ["21", "23"][round % 2];
    let mut pool = open(folder).unwrap();
    shadow.assert_same(&mut pool);
    shadow.write(&mut pool, 40);
    // Snapshots of both, destroyed by both.
    let own = format!("{VOLUME}@own{round}");
    let now = Now {
        wall_s: 1_700_000_003,
        seed: round as u64,
    };
    block_on(async {
        pool.snapshot(&own, now).await.unwrap();
        if let Some(older) = round.checked_sub(2) {
            let older = format!("{VOLUME}@own{older}");
            pool.destroy_snapshot(&older, 4).await.unwrap();
        }
    });
    shadow.write(&mut pool, 40);
    // The last writes are in the log alone: who comes next replays it.
    let volume = block_on(pool.open_volume(VOLUME)).unwrap();
    pool.use_log(&volume);
    block_on(pool.begin(5)).unwrap();
    for _ in 0..3 {
        shadow.change(&mut pool, 4);
        assert_eq!(block_on(pool.log()).unwrap(), Logged::Durable);
    }
    drop(pool);
    assert_sound(folder, "21");
    assert_checked(folder);
    let file = folder.path().join("shadow");
    std::fs::write(&file, &shadow.bytes).unwrap();
    let write = format!("write={VOLUME}:100:{round}:{}", file.display());
    let dump = format!("dump={VOLUME}:{}", folder.path().join("dump").display());
    let (snap, old) = (
        format!("snap={VOLUME}@{round}"),
        format!("destroy={VOLUME}@{}", round.saturating_sub(2)),
    );
    let replay = format!("replay={VOLUME}");
    let mut operations: Vec<&str> = vec![&replay, &dump, &snap, &write];
    if round >= 2 && round % 3 != 1 {
        operations.push(&old);
    }
    operations.push("scrub");
    let text = engine(folder, version, &operations);
    let dumped = std::fs::read(folder.path().join("dump")).unwrap();
    assert!(
        dumped == shadow.bytes,
        "OpenZFS read something else in round {round}: {text}"
    );
    shadow.bytes = std::fs::read(&file).unwrap();
    assert_checked(folder);
}

fn take_turns(setup: &(&[&str], u32, u64), rounds: usize) {
    let (layout, ashift, block_bytes) = *setup;
    let folder = Folder::new(layout);
    folder.create(128 << 20, ashift).unwrap();
    let mut pool = open(&folder).unwrap();
    let mut shadow = Shadow::new(rounds as u64);
    Shadow::add_volume(&mut pool, block_bytes);
    shadow.write(&mut pool, 100);
    drop(pool);
    for round in 0..rounds {
        turn(&folder, &mut shadow, round);
    }
    let mut pool = open(&folder).unwrap();
    shadow.assert_same(&mut pool);
    shadow.write(&mut pool, 20);
    drop(pool);
    assert_sound(&folder, "both");
    let mut snapshots: Vec<String> = (rounds.saturating_sub(2)..rounds)
        .map(|round| format!("destroy={VOLUME}@own{round}"))
        .collect();
    let theirs = (0..rounds)
        .filter(|round| !(2..rounds).any(|later| later - 2 == *round && later % 3 != 1))
        .map(|round| format!("destroy={VOLUME}@{round}"));
    snapshots.extend(theirs);
    let volume = format!("destroy={VOLUME}");
    let mut operations: Vec<&str> = snapshots.iter().map(String::as_str).collect();
    operations.extend([volume.as_str(), "scrub"]);
    engine(&folder, "21", &operations);
    assert_sound(&folder, "21");
}

#[test]
fn raidz2_stays_sound_while_both_write_it() {
    take_turns(&SETUPS[0], rounds());
}

#[test]
fn two_mirrors_stay_sound_while_both_write_them() {
    take_turns(&SETUPS[1], rounds());
}

#[test]
#[ignore = "minutes: all layouts; PLEXUM_ZFS_ROUNDS says how long"]
fn all_layouts_stay_sound_while_both_write_them() {
    for setup in &SETUPS {
        take_turns(setup, rounds());
    }
}
