//! md's partial parity log is written by one side and replayed by the other: no resync, no lost member's byte, both
//! ways.

use std::ops::Range;
use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{
    Server, check_sectors, content, done, fill, kill_under_load_of, status, wait_until_clean,
};
use plexum_oracle::{Batch, Create, Ending, Expected, Job, Judge, pattern_bytes, sha256};

/// Seed of what all members have.
const SEED: u64 = 0x5eed_000b;

/// Seed of what the kernel is writing when the power goes.
const NEXT_SEED: u64 = 0x5eed_000c;

const MEMBERS: usize = 4;

/// Files of the members in a place of their own.
fn place_of(name: &str) -> (Place, Vec<PathBuf>) {
    let place = Place::new(name);
    let files = (0..MEMBERS).map(|n| place.sparse(&format!("m{n}"), 8 << 20));
    let files = files.collect();
    (place, files)
}

fn words(without: Option<usize>) -> String {
    let all = (0..MEMBERS).filter(|n| Some(*n) != without);
    all.map(|n| format!("m{n}")).collect::<Vec<_>>().join(" ")
}

/// Served by Plexum with its log, killed under random writes of these sizes.
fn killed(name: &str, sizes: &str) -> (Place, Vec<PathBuf>, Range<u64>) {
    let (place, files) = place_of(name);
    let create = "create nas --level 5 --strip 16K --consistency ppl";
    done(&place, &format!("{create} {}", words(None)));
    let server = Server::start(&place, &words(None));
    let found = status(&place);
    assert_eq!(found["consistency"], "ppl");
    assert!(found["bitmap"].is_null(), "ppl excludes the bitmap");
    fill(&place, SEED);
    wait_until_clean(&place);
    let area = kill_under_load_of(&place, server, sizes);
    (place, files, area)
}

/// The kernel takes the array as clean: no resync, parity right everywhere, every sector old or new.
///
/// Without a member too, where each write had a strip of its own: strips that are written together are not protected.
#[test]
fn the_kernel_replays_what_plexum_logged() {
    let mut batch = Batch::new();
    let mut places = Vec::new();
    for (name, sizes, lost) in [("ppl-all", "4k-64k", None), ("ppl-lost", "4k-4k", Some(1))] {
        let (place, files, area) = killed(name, sizes);
        let present = (0..MEMBERS).filter(|n| Some(*n) != lost);
        let present: Vec<String> = present.map(|n| format!("$D{n}")).collect();
        let check = if lost.is_none() {
            "scrub || exit 4"
        } else {
            "true"
        };
        // Auto-read-only: the log was replayed at the start, and nothing was resynced yet.
        let script = format!(
            "start {} || exit 3\nput_sys resync_start resync_start\nput_content early\n\
             mdadm --readwrite $MD; md_wait $MD || exit 3\n{check}\n\
             put_content late\nstop || exit 3",
            present.join(" ")
        );
        batch.add(Job::script(name, &files, &script));
        places.push((place, area, lost));
    }
    let reports = batch.run_faultless();
    for ((place, area, lost), report) in places.iter().zip(&reports) {
        assert_eq!(report.value("resync_start"), "none", "a resync was needed");
        if lost.is_none() {
            assert_eq!(report.mismatch_sectors(), Some(0));
        }
        // What the kernel has read and left is read by Plexum: the sectors are judged there.
        let server = Server::start(place, &format!("--run-degraded {}", words(*lost)));
        let found = content(place);
        server.stop(place);
        let sum = sha256(&found);
        assert_eq!(report.value("early.sha256"), sum);
        assert_eq!(report.value("late.sha256"), sum);
        check_sectors(place, &found, area, SEED);
    }
}

/// A member is lost with the crash: Plexum's own replay brings every byte back, without force.
#[test]
fn plexum_replays_its_own_log_without_a_member() {
    let (place, files, area) = killed("ppl-own", "4k-4k");
    let server = Server::start(&place, &format!("--run-degraded {}", words(Some(2))));
    let found = content(&place);
    check_sectors(&place, &found, &area, SEED);
    done(&place, "add nas m2 --wait");
    wait_until_clean(&place);
    assert!(found == content(&place), "the rebuild changed it");
    server.stop(&place);
    let mut judge = Judge::new(Expected::Sha256(sha256(&found)));
    judge.without.push(vec![0]);
    let mut batch = Batch::new();
    batch.add(Job::judge("ppl-own", &files, &judge));
    batch.run_faultless();
}

/// The kernel writes with its log and loses power: Plexum replays, serves and writes on, and the kernel agrees.
#[test]
fn plexum_replays_what_the_kernel_logged() {
    let (place, files) = place_of("ppl-kernel");
    let options = ["--chunk=16", "--consistency-policy=ppl"];
    let mut create = Create::new("5", &options, SEED);
    create.ending = Ending::Crash;
    let (start, length) = (65_536_usize, 256 << 10);
    create.then = format!("md_set $MD safe_mode_delay 60; fill {NEXT_SEED} {start} {length}");
    let mut batch = Batch::new();
    batch.add(Job::create("ppl-kernel", &files, &create).with_seeds(&[NEXT_SEED]));
    batch.run_faultless();

    let server = Server::start(&place, &words(None));
    assert_eq!(status(&place)["consistency"], "ppl");
    let found = content(&place);
    let mut expected = pattern_bytes(SEED, 0, found.len());
    let part = pattern_bytes(NEXT_SEED, start as u64, length);
    expected[start..start + length].copy_from_slice(&part);
    assert!(found == expected, "content differs after the replay");
    fill(&place, SEED);
    wait_until_clean(&place);
    server.stop(&place);
    let mut judge = Judge::new(Expected::Seed(SEED));
    judge.without.push(vec![3]);
    let mut batch = Batch::new();
    batch.add(Job::judge("ppl-kernel", &files, &judge));
    batch.run_faultless();
}
