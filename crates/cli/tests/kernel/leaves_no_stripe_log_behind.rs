//! Twins of one crash with a stripe log that is not empty: without the kernel the log brings every byte back, though a
//! member is gone; after the kernel had the array its data stand, and the log is not replayed.

use std::ops::Range;
use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{
    Server, check_sectors, content, done, fill, kill_under_load, status, wait_until_clean,
};
use plexum_oracle::{Batch, Expected, Job, Judge, pattern_bytes, sha256};

/// Seed of what all members have.
const SEED: u64 = 0x5eed_0009;

/// Seed of what the kernel writes over the rows that are in the log.
const THEIR_SEED: u64 = 0x5eed_000a;

/// One of the twins.
struct Twin {
    place: Place,
    name: String,
    files: Vec<PathBuf>,
    area: Range<u64>,
}

/// Files of `count` members in a place of their own.
fn place_of(name: &str, count: usize) -> (Place, Vec<PathBuf>) {
    let place = Place::new(name);
    let names = (0..count).map(|n| format!("m{n}"));
    let files = names.map(|n| place.sparse(&n, 8 << 20)).collect();
    (place, files)
}

fn words(count: usize, without: Option<usize>) -> String {
    let all = (0..count).filter(|n| Some(*n) != without);
    all.map(|n| format!("m{n}")).collect::<Vec<_>>().join(" ")
}

/// Killed under load: the array, and a copy of it.
fn twins(level: &str, count: usize) -> [Twin; 2] {
    let name = format!("log-{level}");
    let (place, files) = place_of(&name, count);
    let members = words(count, None);
    done(
        &place,
        &format!("create nas --level {level} --strip 16K {members}"),
    );
    let server = Server::start(&place, &members);
    assert_eq!(status(&place)["consistency"], "log");
    fill(&place, SEED);
    wait_until_clean(&place);
    let area = kill_under_load(&place, server);
    let copied = format!("{name}-kernel");
    let (other, copies) = place_of(&copied, count);
    for (from, to) in files.iter().zip(&copies) {
        std::fs::copy(from, to).unwrap();
    }
    let first = Twin {
        place,
        name,
        files,
        area: area.clone(),
    };
    let second = Twin {
        place: other,
        name: copied,
        files: copies,
        area,
    };
    [first, second]
}

/// Every byte is there without the member, and when it is back the kernel finds nothing wrong.
fn is_replayed(twin: &Twin, lost: usize) -> Job {
    let (place, count) = (&twin.place, twin.files.len());
    let words = format!("--run-degraded {}", words(count, Some(lost)));
    let server = Server::start(place, &words);
    let found = content(place);
    check_sectors(place, &found, &twin.area, SEED);
    done(place, &format!("re-add nas m{lost} --wait"));
    wait_until_clean(place);
    assert!(found == content(place), "{}: it changed", twin.name);
    server.stop(place);
    let mut judge = Judge::new(Expected::Sha256(sha256(&found)));
    judge.without.push(vec![(lost + 1) % count]);
    Job::judge(&twin.name, &twin.files, &judge)
}

#[test]
fn a_log_is_replayed_unless_the_kernel_had_the_array() {
    let mut judges = Batch::new();
    let mut batch = Batch::new();
    let mut theirs = Vec::new();
    for (level, count) in [("5", 4), ("6", 5)] {
        let [ours, other] = twins(level, count);
        judges.add(is_replayed(&ours, 1));
        // The places stay until the judge has seen them.
        let length = other.area.end - other.area.start;
        let script = format!(
            "start $DEVS || exit 3\nmdadm --readwrite $MD; md_wait $MD || exit 3\n\
             fill {THEIR_SEED} {} {length} || exit 3\nput_content theirs\nstop || exit 3",
            other.area.start
        );
        let job = Job::script(&other.name, &other.files, &script);
        batch.add(job.with_seeds(&[THEIR_SEED]));
        theirs.push((ours, other));
    }
    let reports = batch.run_faultless();
    judges.run_faultless();
    for ((_, twin), report) in theirs.iter().zip(&reports) {
        let place = &twin.place;
        let server = Server::start(place, &words(twin.files.len(), None));
        let found = content(place);
        server.stop(place);
        assert_eq!(
            sha256(&found),
            report.value("theirs.sha256"),
            "{}",
            twin.name
        );
        let (start, end) = (twin.area.start as usize, twin.area.end as usize);
        let is_theirs =
            found[start..end] == pattern_bytes(THEIR_SEED, twin.area.start, end - start);
        assert!(is_theirs, "{}: the log was replayed", twin.name);
    }
}
