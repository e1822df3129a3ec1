//! The real md driver makes arrays and leaves them clean or in the middle of writes; Plexum serves them; the kernel agrees.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use common::Place;
use common::served::{Server, content, fill_part, wait_until_clean};
use plexum_oracle::{Batch, Create, Ending, Expected, Job, Judge, pattern_bytes, sha256};

/// Seed of what the kernel writes.
const SEED: u64 = 0x5eed_0002;

/// Seed of what is written while the power is cut, and of what Plexum writes.
const NEXT_SEED: u64 = 0x5eed_0003;

const PART_BYTES: usize = 256 << 10;

/// One array of the kernel.
struct Array {
    place: Place,
    files: Vec<PathBuf>,
    name: String,
    members: String,
}

fn array(words: &str, count: usize, ending: Ending, batch: &mut Batch) -> Array {
    let words: Vec<&str> = words.split(' ').collect();
    let end = if ending == Ending::Crash { "cut" } else { "" };
    let name = format!("rk{}{end}", words.join("").replace('-', ""));
    let place = Place::new(&name);
    let names: Vec<_> = (0..count).map(|n| format!("m{n}")).collect();
    let files: Vec<_> = names.iter().map(|n| place.sparse(n, 4 << 20)).collect();
    let mut create = Create::new(words[0], &words[1..], SEED);
    create.ending = ending;
    if ending == Ending::Crash {
        create.then = format!("md_set $MD safe_mode_delay 60; fill {NEXT_SEED} 65536 {PART_BYTES}");
    }
    batch.add(Job::create(&name, &files, &create).with_seeds(&[NEXT_SEED]));
    Array {
        place,
        files,
        name,
        members: names.join(" "),
    }
}

/// What the array holds: the pattern, with a part of the next pattern at `part_bytes` where that was written.
fn expected(size: usize, parts: &[usize]) -> Vec<u8> {
    let mut bytes = pattern_bytes(SEED, 0, size);
    for &start in parts {
        let part = pattern_bytes(NEXT_SEED, start as u64, PART_BYTES);
        bytes[start..start + PART_BYTES].copy_from_slice(&part);
    }
    bytes
}

/// Plexum reads without changing a byte, then writes a part and stops. The answer is the content's hash.
fn served(array: &Array, parts: &[usize]) -> String {
    let place = &array.place;
    let bytes = || -> Vec<Vec<u8>> {
        let read = |file| std::fs::read(file).unwrap();
        array.files.iter().map(read).collect()
    };
    let before = bytes();
    let server = Server::start(place, &format!("{} --read-only", array.members));
    let found = content(place);
    server.stop(place);
    assert!(before == bytes(), "{}: a byte was changed", array.name);
    let is_right = found == expected(found.len(), parts);
    assert!(is_right, "{}: content differs", array.name);

    let server = Server::start(place, &array.members);
    let start = found.len() / 2 / 4096 * 4096 + 4096;
    fill_part(place, NEXT_SEED, start as u64, PART_BYTES);
    wait_until_clean(place);
    let found = content(place);
    server.stop(place);
    let all: Vec<_> = parts.iter().copied().chain([start]).collect();
    let is_right = found == expected(found.len(), &all);
    assert!(is_right, "{}: content differs after a write", array.name);
    sha256(&found)
}

/// Plexum serves each, and the kernel judges what is left.
fn are_served_and_judged(batch: Batch, arrays: &[(Array, &[usize])]) {
    let made = batch.run_faultless();
    assert_eq!(made.len(), arrays.len());
    let mut batch = Batch::new();
    for (array, parts) in arrays {
        let judge = Judge::new(Expected::Sha256(served(array, parts)));
        batch.add(Job::judge(&array.name, &array.files, &judge));
    }
    batch.run_faultless();
}

#[test]
fn stripes_mirrors_and_copies() {
    let mut batch = Batch::new();
    let mut add = |words, count| (array(words, count, Ending::Stop, &mut batch), &[][..]);
    let arrays = [
        add("linear", 2),
        add("0 --chunk=16", 3),
        add("1 --bitmap=internal", 2),
        add("1 --metadata=0.90", 2),
        add("1 --metadata=1.1 --bitmap=internal", 3),
        add("10 --chunk=16 --layout=n2", 4),
        add("10 --chunk=16 --layout=f2 --bitmap=internal", 3),
        add("10 --chunk=16 --layout=o2", 5),
        add("10 --chunk=16 --layout=n3", 4),
    ];
    are_served_and_judged(batch, &arrays);
}

#[test]
fn parity() {
    let mut batch = Batch::new();
    let mut add = |words, count| (array(words, count, Ending::Stop, &mut batch), &[][..]);
    let arrays = [
        add("4 --chunk=16", 3),
        add("5 --chunk=16 --layout=la", 4),
        add("5 --chunk=64 --layout=rs --bitmap=internal", 3),
        add("5 --chunk=16 --layout=parity-first --metadata=1.0", 3),
        add("6 --chunk=16 --layout=ls --bitmap=internal", 5),
        add("6 --chunk=16 --layout=ddf-zero-restart", 4),
        add("6 --chunk=16 --layout=ddf-N-continue", 5),
        add("6 --chunk=16 --layout=left-symmetric-6", 5),
    ];
    are_served_and_judged(batch, &arrays);
}

#[test]
fn arrays_whose_power_was_cut() {
    let mut batch = Batch::new();
    let mut add = |words, count| (array(words, count, Ending::Crash, &mut batch), &[65536][..]);
    let arrays = [
        add("1 --bitmap=internal", 2),
        add("5 --chunk=16 --bitmap=internal", 3),
        add("6 --chunk=16 --bitmap=internal", 5),
        add("10 --chunk=16 --bitmap=internal", 4),
        add("5 --chunk=16 --bitmap=none", 4),
    ];
    are_served_and_judged(batch, &arrays);
}
