//! The real md driver makes arrays and leaves them clean or in the middle of writes; Plexum serves them; the kernel
//! agrees.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{Server, content, done, fill_part, wait_until_clean};
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

impl Array {
    /// Members without anything on them.
    fn fresh(words: &str, sizes_mib: &[u64], end: &str) -> Self {
        let words = words.replace([' ', '-', '='], "");
        let name = format!("rk{words}{}{end}", sizes_mib.len());
        let place = Place::new(&name);
        let names: Vec<_> = (0..sizes_mib.len()).map(|n| format!("m{n}")).collect();
        let files = names.iter().zip(sizes_mib);
        Self {
            files: files.map(|(n, mib)| place.sparse(n, mib << 20)).collect(),
            place,
            name,
            members: names.join(" "),
        }
    }
}

fn array(words: &str, count: usize, ending: Ending, batch: &mut Batch) -> Array {
    array_of(words, &vec![4; count], ending, batch)
}

fn array_of(words: &str, sizes_mib: &[u64], ending: Ending, batch: &mut Batch) -> Array {
    let end = if ending == Ending::Crash { "cut" } else { "" };
    let array = Array::fresh(words, sizes_mib, end);
    let words: Vec<&str> = words.split(' ').collect();
    let mut create = Create::new(words[0], &words[1..], SEED);
    create.ending = ending;
    if ending == Ending::Crash {
        create.then = format!("md_set $MD safe_mode_delay 60; fill {NEXT_SEED} 65536 {PART_BYTES}");
    }
    batch.add(Job::create(&array.name, &array.files, &create).with_seeds(&[NEXT_SEED]));
    array
}

/// A layout that mdadm has no word for: Plexum makes the metadata, the kernel writes the content.
fn filled_by_the_kernel(words: &str, count: usize, batch: &mut Batch) -> Array {
    let array = Array::fresh(words, &vec![4; count], "");
    let create = format!("create nas --level {words} {}", array.members);
    done(&array.place, &create);
    let script = format!("start $DEVS || exit 3\nfill {SEED} || exit 3\nstop || exit 3");
    batch.add(Job::script(&array.name, &array.files, &script).with_seeds(&[SEED]));
    array
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
fn stripes_and_mirrors() {
    let mut batch = Batch::new();
    let mut add = |words, sizes: &[u64]| {
        let array = array_of(words, sizes, Ending::Stop, &mut batch);
        (array, &[][..])
    };
    let arrays = [
        add("linear", &[4, 5, 6]),
        add("0 --chunk=16", &[4, 4, 4]),
        add("0 --chunk=16 --layout=original", &[4, 6, 8]),
        add("0 --chunk=16 --layout=alternate", &[4, 6, 8]),
        add("1 --bitmap=internal", &[4, 4]),
        add("1 --metadata=0.90", &[4, 4]),
        add("1 --metadata=1.1 --bitmap=internal", &[4, 4, 4]),
    ];
    are_served_and_judged(batch, &arrays);
}

#[test]
fn every_kind_of_raid10() {
    let mut batch = Batch::new();
    let mut add = |words, count| (array(words, count, Ending::Stop, &mut batch), &[][..]);
    let mut arrays = vec![
        add("10 --chunk=16 --layout=n2", 4),
        add("10 --chunk=16 --layout=n2 --assume-clean", 5),
        add("10 --chunk=16 --layout=f2 --bitmap=internal", 3),
        add("10 --chunk=16 --layout=f3 --assume-clean", 5),
        add("10 --chunk=16 --layout=o2 --assume-clean", 5),
        add("10 --chunk=16 --layout=n3", 4),
    ];
    for count in [4, 5] {
        let array = filled_by_the_kernel("10 --strip 16K --layout f2s2", count, &mut batch);
        arrays.push((array, &[]));
    }
    are_served_and_judged(batch, &arrays);
}

#[test]
fn every_layout_of_raid4_and_raid5() {
    let mut batch = Batch::new();
    let mut add = |words: &str, count| (array(words, count, Ending::Stop, &mut batch), &[][..]);
    let mut arrays = vec![
        add("4 --chunk=16", 3),
        add("5 --chunk=64 --layout=rs --bitmap=internal", 3),
        add("5 --chunk=16 --layout=parity-first --metadata=1.0", 3),
    ];
    // Members are fresh, hence parity is right from the beginning.
    for layout in ["la", "ra", "ls", "parity-last"] {
        let words = format!("5 --chunk=16 --layout={layout} --assume-clean --size=1024");
        arrays.push(add(&words, 4));
    }
    are_served_and_judged(batch, &arrays);
}

#[test]
fn the_usual_layouts_of_raid6() {
    raid6(&["ddf-zero-restart", "left-symmetric-6"]);
}

#[test]
#[ignore = "a minute and a half: cargo xtask nightly kernel"]
fn every_other_layout_of_raid6() {
    raid6(&[
        "la",
        "ra",
        "rs",
        "parity-first",
        "parity-last",
        "ddf-N-restart",
        "ddf-N-continue",
        "left-asymmetric-6",
        "right-asymmetric-6",
        "right-symmetric-6",
        "parity-first-6",
    ]);
}

/// These, and the default one with a bitmap.
fn raid6(layouts: &[&str]) {
    let mut batch = Batch::new();
    let mut add = |words: &str| (array(words, 5, Ending::Stop, &mut batch), &[][..]);
    let mut arrays = vec![add("6 --chunk=16 --layout=ls --bitmap=internal")];
    for layout in layouts {
        let words = format!("6 --chunk=16 --layout={layout} --assume-clean --size=1024");
        arrays.push(add(&words));
    }
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
