//! What the article says: ratios as numbers, and effects in words.

use std::collections::BTreeMap;

use super::super::{number, seed_rows};

use super::{LARGE_BYTES, SMALL_BYTES};

/// A ratio of two arrangements: words of the table's row, test, block.
pub(super) type Ratio = (&'static str, &'static str, u64);

/// The nine ratios that are stated as numbers other than 1: words of the table, its operation, ours.
pub(super) const STATED: [(&str, &str, Ratio); 9] = [
    (
        "1MiB",
        "async write",
        ("md6 without bitmap / md6 with bitmap", "async", LARGE_BYTES),
    ),
    (
        "1MiB",
        "write (async and sync)",
        ("raidz2 / md6", "async", LARGE_BYTES),
    ),
    ("1MiB", "read", ("md6 / raidz2", "read", LARGE_BYTES)),
    (
        "4KiB",
        "async write",
        ("raidz2 / md6", "async", SMALL_BYTES),
    ),
    ("4KiB", "read", ("md6 / raidz2", "read", SMALL_BYTES)),
    (
        "1MiB",
        "async write",
        (
            "md10 without bitmap / md10 with bitmap",
            "async",
            LARGE_BYTES,
        ),
    ),
    ("4KiB", "read", ("md10 / zfs mirrors", "read", SMALL_BYTES)),
    (
        "4KiB",
        "async write",
        ("zfs mirrors / md10", "async", SMALL_BYTES),
    ),
    (
        "4KiB",
        "sync write",
        ("zfs mirrors / md10", "sync", SMALL_BYTES),
    ),
];

/// Effects: what is said, the ratio, the bounds in which it is right, whether it must stay so. What "changes nothing"
/// or has "no visible difference" in the article is within 10 % here: how much its bars differ is not known.
pub(super) const EFFECTS: [(&str, Ratio, f64, f64, bool); 19] = [
    (
        "1 MiB asynchronous writes: RAID-Z2 more than twice md6",
        ("raidz2 / md6", "async", LARGE_BYTES),
        2.0,
        1e9,
        true,
    ),
    (
        "1 MiB synchronous writes: RAID-Z2 more than twice md6",
        ("raidz2 / md6", "sync", LARGE_BYTES),
        2.0,
        1e9,
        true,
    ),
    (
        "1 MiB reads: md6 faster than RAID-Z2",
        ("md6 / raidz2", "read", LARGE_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "1 MiB reads: the bitmap changes nothing on md6",
        ("md6 without bitmap / md6 with bitmap", "read", LARGE_BYTES),
        0.9,
        1.1,
        true,
    ),
    (
        "1 MiB synchronous writes: the bitmap changes nothing on md6",
        ("md6 without bitmap / md6 with bitmap", "sync", LARGE_BYTES),
        0.9,
        1.1,
        true,
    ),
    (
        "4 KiB asynchronous writes: RAID-Z2 faster than md6",
        ("raidz2 / md6", "async", SMALL_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "4 KiB reads: md6 faster than RAID-Z2",
        ("md6 / raidz2", "read", SMALL_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "4 KiB asynchronous writes: the bitmap changes nothing on md6",
        ("md6 without bitmap / md6 with bitmap", "async", SMALL_BYTES),
        0.9,
        1.1,
        true,
    ),
    (
        "1 MiB synchronous writes: the bitmap costs a little on md10",
        (
            "md10 without bitmap / md10 with bitmap",
            "sync",
            LARGE_BYTES,
        ),
        1.0,
        1.5,
        true,
    ),
    (
        "1 MiB reads: the bitmap changes nothing on md10",
        (
            "md10 without bitmap / md10 with bitmap",
            "read",
            LARGE_BYTES,
        ),
        0.9,
        1.1,
        true,
    ),
    (
        "1 MiB asynchronous writes: mirrors faster than md10",
        ("zfs mirrors / md10", "async", LARGE_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "1 MiB reads: mirrors faster than md10",
        ("zfs mirrors / md10", "read", LARGE_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "4 KiB reads: md10 faster than mirrors",
        ("md10 / zfs mirrors", "read", SMALL_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "4 KiB asynchronous writes: mirrors faster than md10",
        ("zfs mirrors / md10", "async", SMALL_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "4 KiB synchronous writes: mirrors faster than md10",
        ("zfs mirrors / md10", "sync", SMALL_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "4 KiB asynchronous writes: the bitmap changes nothing on md10",
        (
            "md10 without bitmap / md10 with bitmap",
            "async",
            SMALL_BYTES,
        ),
        0.9,
        1.1,
        true,
    ),
    (
        "4 KiB asynchronous writes: md10 faster than md6",
        ("md10 / md6", "async", SMALL_BYTES),
        1.0,
        1e9,
        true,
    ),
    (
        "1 MiB reads: md6 a little less than twice RAID-Z2",
        ("md6 / raidz2", "read", LARGE_BYTES),
        1.5,
        2.0,
        false,
    ),
    (
        "1 MiB asynchronous writes: the bitmap costs 5 % or so on md10",
        (
            "md10 without bitmap / md10 with bitmap",
            "async",
            LARGE_BYTES,
        ),
        1.0,
        1.1,
        false,
    ),
];

pub(super) fn published(block: &str, operation: &str, words: &str) -> f64 {
    let rows = seed_rows(RATIOS);
    let is_it = |column: &str, wanted: &str, row: &BTreeMap<String, String>| {
        row.get(column).is_some_and(|cell| cell == wanted)
    };
    let row = rows.iter().find(|row| {
        is_it("block", block, row)
            && is_it("operation", operation, row)
            && is_it("ratio_of", words, row)
    });
    row.map_or(f64::NAN, |row| number(row, "value"))
}

const RATIOS: &str = include_str!("../../../../../fixtures/lab/seed-tables/e1_ars_ratios.csv");
