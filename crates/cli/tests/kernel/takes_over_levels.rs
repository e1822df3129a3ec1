//! Levels that are other names of the same places: the real md driver finds the array that Plexum has made of it, and
//! Plexum the one that the driver has made.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{Server, content, done, fill, status, wait_until};
use plexum_oracle::{Batch, Create, Expected, Job, Judge, pattern_bytes, sha256};

const SEED: u64 = 0x5eed_0051;

/// How an array is made, and what it becomes.
struct Kind {
    name: &'static str,
    create: &'static str,
    slots: usize,
    /// Words for `plexum grow`, and members that it adds.
    grow: &'static str,
    added: usize,
    level: &'static str,
    /// Members, by number, that are in it at the end.
    left: &'static [usize],
    /// Whether it survives a lost member at the end.
    has_redundancy: bool,
}

const KINDS: [Kind; 9] = [
    Kind {
        name: "0-5",
        create: "--level 0 --strip 16K",
        slots: 3,
        grow: "--level 5",
        added: 1,
        level: "raid5",
        left: &[0, 1, 2, 3],
        has_redundancy: true,
    },
    Kind {
        name: "0-4",
        create: "--level 0 --strip 64K",
        slots: 2,
        grow: "--level 4",
        added: 1,
        level: "raid4",
        left: &[0, 1, 2],
        has_redundancy: true,
    },
    Kind {
        name: "5-0",
        create: "--level 5 --layout parity-last --strip 16K --consistency bitmap",
        slots: 4,
        grow: "--level 0",
        added: 0,
        level: "raid0",
        left: &[0, 1, 2],
        has_redundancy: false,
    },
    Kind {
        name: "4-0",
        create: "--level 4 --strip 64K",
        slots: 3,
        grow: "--level 0",
        added: 0,
        level: "raid0",
        left: &[0, 1],
        has_redundancy: false,
    },
    Kind {
        name: "5ls-0",
        create: "--level 5 --strip 16K",
        slots: 3,
        grow: "--level 0",
        added: 0,
        level: "raid0",
        left: &[0, 1],
        has_redundancy: false,
    },
    Kind {
        name: "0-10",
        create: "--level 0 --strip 16K",
        slots: 2,
        grow: "--level 10",
        added: 2,
        level: "raid10",
        left: &[0, 1, 2, 3],
        has_redundancy: true,
    },
    Kind {
        name: "10-0",
        create: "--level 10 --strip 16K --consistency bitmap",
        slots: 4,
        grow: "--level 0",
        added: 0,
        level: "raid0",
        left: &[0, 2],
        has_redundancy: false,
    },
    Kind {
        name: "1-10",
        create: "--level 1 --consistency bitmap",
        slots: 2,
        grow: "--level 10 --strip 16K",
        added: 0,
        level: "raid10",
        left: &[0, 1],
        has_redundancy: true,
    },
    Kind {
        name: "10-1",
        create: "--level 10 --strip 16K --consistency bitmap",
        slots: 2,
        grow: "--level 1",
        added: 0,
        level: "raid1",
        left: &[0, 1],
        has_redundancy: true,
    },
];

fn names(range: std::ops::Range<usize>) -> String {
    let names: Vec<String> = range.map(|number| format!("m{number}")).collect();
    names.join(" ")
}

/// Made, filled and changed; and what the kernel is asked of it.
fn taken_over(kind: &Kind) -> (Place, Job) {
    let place = Place::new(&format!("to-{}", kind.name));
    let all = kind.slots + kind.added;
    for number in 0..all {
        place.sparse(&format!("m{number}"), 12 << 20);
    }
    let members = names(0..kind.slots);
    done(&place, &format!("create nas {} {members} -y", kind.create));
    let server = Server::start(&place, &members);
    fill(&place, SEED);
    let before = content(&place);
    let add = match kind.added {
        0 => String::new(),
        _ => format!("--add {}", names(kind.slots..all)),
    };
    done(&place, &format!("grow nas {} {add}", kind.grow));
    wait_until(&place, "it is what was wished", || {
        let told = status(&place);
        let is_whole = told["verdict"] == "ok" || !kind.has_redundancy;
        told["level"] == kind.level && is_whole
    });
    let there = content(&place);
    assert!(there == before, "{}", kind.name);
    assert!(
        there == pattern_bytes(SEED, 0, there.len()),
        "{}",
        kind.name
    );
    server.stop(&place);
    let mut judge = Judge::new(Expected::Sha256(sha256(&there)));
    if kind.has_redundancy {
        judge.without = vec![vec![], vec![0], vec![kind.left.len() - 1]];
    }
    let files: Vec<PathBuf> = kind
        .left
        .iter()
        .map(|number| place.file(&format!("m{number}")))
        .collect();
    let job = Job::judge(kind.name, &files, &judge);
    (place, job)
}

#[test]
fn the_kernel_finds_the_array_that_has_got_another_level() {
    let mut batch = Batch::new();
    let mut places = Vec::new();
    for kind in &KINDS {
        let (place, job) = taken_over(kind);
        batch.add(job);
        places.push(place);
    }
    batch.run_faultless();
}

/// A name, level and options for mdadm, members, and of which of them mdadm makes a RAID-0.
type Theirs = (
    &'static str,
    &'static str,
    &'static [&'static str],
    usize,
    &'static [usize],
);

const THEIRS: [Theirs; 2] = [
    (
        "k5-0",
        "5",
        &["--layout=parity-last", "--chunk=16"],
        3,
        &[0, 1],
    ),
    ("k10-0", "10", &["--layout=n2", "--chunk=16"], 4, &[0, 2]),
];

#[test]
fn a_raid0_that_the_kernel_has_made_of_another_level_gets_redundancy_again() {
    let mut batch = Batch::new();
    let mut places = Vec::new();
    for (name, level, options, count, _) in THEIRS {
        let place = Place::new(name);
        let files: Vec<PathBuf> = (0..count)
            .map(|number| place.sparse(&format!("m{number}"), 12 << 20))
            .collect();
        let mut create = Create::new(level, options, SEED);
        create.then = "mdadm --grow $MD --level=0 || return 1".to_owned();
        batch.add(Job::create(name, &files, &create));
        places.push(place);
    }
    batch.run_faultless();
    let mut batch = Batch::new();
    for (place, (name, .., left)) in places.iter().zip(THEIRS) {
        let mut files: Vec<PathBuf> = left
            .iter()
            .map(|number| place.file(&format!("m{number}")))
            .collect();
        let members: Vec<String> = left.iter().map(|number| format!("m{number}")).collect();
        let server = Server::start(place, &members.join(" "));
        assert_eq!(status(place)["level"], "raid0", "{name}");
        let there = content(place);
        assert!(there == pattern_bytes(SEED, 0, there.len()), "{name}");
        files.push(place.sparse("new", 12 << 20));
        done(place, "grow nas --level 5 --add new");
        wait_until(place, "its parity is there", || {
            status(place)["level"] == "raid5" && status(place)["verdict"] == "ok"
        });
        assert!(content(place) == there, "{name}");
        server.stop(place);
        let mut judge = Judge::new(Expected::Sha256(sha256(&there)));
        judge.without = vec![vec![], vec![0], vec![2]];
        batch.add(Job::judge(name, &files, &judge));
    }
    batch.run_faultless();
}
