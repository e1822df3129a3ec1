//! Plexum writes under load, is killed, starts again and stops; then the real md driver reads and checks the members.

use crate::common::Place;
use crate::common::served::{
    Server, check_sectors, content, done, examined, fill, kill_under_load, stats, wait_until_clean,
};
use plexum_oracle::{Batch, Expected, Job, Judge, sha256};

/// Seed of the pattern below the load.
const SEED: u64 = 0x5eed_0001;

/// Arrays that Plexum wrote, to be judged together.
#[derive(Default)]
struct Arrays {
    batch: Batch,
    places: Vec<Place>,
}

impl Arrays {
    /// An array of `sizes_mib.len()` members, created with `words`. `lost` are the members that the kernel does
    /// without, too: none of an organisation without redundancy.
    fn add(&mut self, words: &str, sizes_mib: &[u64], lost: &[usize]) {
        let name = format!("kr-{}-{}", words.replace([' ', '-'], ""), sizes_mib.len());
        let place = Place::new(&name);
        let members: Vec<_> = (0..sizes_mib.len()).map(|n| format!("m{n}")).collect();
        let files = members.iter().zip(sizes_mib);
        let files: Vec<_> = files
            .map(|(member, size_mib)| place.sparse(member, size_mib << 20))
            .collect();
        let members = members.join(" ");
        done(&place, &format!("create nas --level {words} {members}"));
        let server = Server::start(&place, &members);
        fill(&place, SEED);
        // A clean stop empties the bitmap.
        server.stop(&place);
        let is_redundant = !lost.is_empty();
        let content = killed_and_served_again(&place, &members, is_redundant);
        let mut judge = Judge::new(Expected::Sha256(content));
        if is_redundant {
            judge.without.push(lost.to_vec());
        }
        self.batch.add(Job::judge(&name, &files, &judge));
        self.places.push(place);
    }

    /// Each is clean, has an empty bitmap, reads as written whole and with members missing, and `check` finds nothing.
    fn are_judged(self) {
        let reports = self.batch.run_faultless();
        assert_eq!(reports.len(), self.places.len());
    }
}

/// Random writes, SIGKILL in the middle of them, a second life until all is clean, stop. The answer is the content's
/// hash.
fn killed_and_served_again(place: &Place, members: &str, is_redundant: bool) -> String {
    let server = Server::start(place, members);
    let area = kill_under_load(place, server);

    let limit = is_redundant.then(|| limit_bytes(place, members));
    let server = Server::start(place, members);
    wait_until_clean(place);
    if let Some(limit) = limit {
        check_resynced(place, limit * units_in_a_region(place, members));
    }
    let found = content(place);
    server.stop(place);
    check_sectors(place, &found, &area, SEED);
    sha256(&found)
}

/// Bytes for which the bitmap is set after the kill: some, not all.
fn limit_bytes(place: &Place, members: &str) -> u64 {
    let first = members.split(' ').next().unwrap();
    let number = |field| examined(place, first, "bitmap", field).as_u64().unwrap();
    let (dirty, regions) = (number("region_count_set"), number("region_count"));
    assert!(dirty > 0 && dirty < regions, "{dirty} of {regions} regions");
    dirty * number("region_bytes")
}

/// Nothing but the regions that were dirty has been read or written; parity that was right need not be written. A
/// stripe log leaves nothing to resync at all.
fn check_resynced(place: &Place, limit: u64) {
    let stats = stats(place);
    let status = crate::common::served::status(place);
    let has_log = status["consistency"] == "log";
    let has_parity = ["raid4", "raid5", "raid6"].contains(&status["level"].as_str().unwrap());
    let members = stats["members"].as_array().unwrap();
    for direction in ["read_bytes", "written_bytes"] {
        let moved = members.iter().map(|m| m[direction].as_u64().unwrap());
        let moved: u64 = moved.sum();
        let may_be_none = has_log || has_parity && direction == "written_bytes";
        assert!(
            moved <= limit && (moved > 0 || may_be_none),
            "{}: {direction} {moved} in the resync, the bitmap allows {limit}",
            place.folder.display()
        );
    }
}

/// How often a region's size is on the members: once on each; in RAID-10, where regions are of the volume, once a copy.
fn units_in_a_region(place: &Place, members: &str) -> u64 {
    let status = crate::common::served::status(place);
    match (status["level"].as_str(), status["layout"].as_str()) {
        (Some("raid10"), Some(layout)) => {
            let numbers = layout.split(|c: char| !c.is_ascii_digit());
            numbers
                .filter_map(|number| number.parse::<u64>().ok())
                .product()
        }
        _ => members.split(' ').count() as u64,
    }
}

#[test]
fn concatenations_stripes_mirrors_raid4_and_older_metadata() {
    let mut arrays = Arrays::default();
    arrays.add("linear", &[4, 5, 6], &[]);
    arrays.add("0 --strip 16K", &[4, 4, 4], &[]);
    arrays.add("0 --strip 16K --layout original", &[4, 6, 8], &[]);
    arrays.add("0 --strip 16K --layout alternate", &[4, 6, 8], &[]);
    arrays.add("1", &[4, 4], &[0]);
    arrays.add("1 --bitmap-region 32K", &[4, 4, 4], &[0, 1]);
    arrays.add("1 --format md-0.90", &[4, 4], &[1]);
    arrays.add("4 --strip 16K", &[4; 4], &[1]);
    arrays.add("4 --strip 4K --format md-1.1", &[4; 3], &[2]);
    arrays.add("4 --strip 16K --consistency bitmap", &[4; 4], &[2]);
    arrays.add("5 --strip 16K --consistency bitmap", &[4; 4], &[0]);
    arrays.add("6 --strip 16K --consistency bitmap", &[4; 5], &[1, 2]);
    arrays.add("5 --strip 64K --format md-0.90", &[4; 3], &[1]);
    arrays.add("5 --strip 32K --format md-1.0", &[4; 5], &[3]);
    arrays.add("6 --strip 16K --format md-1.0", &[4; 4], &[0, 3]);
    arrays.are_judged();
}

#[test]
fn every_layout_of_raid5() {
    let mut arrays = Arrays::default();
    for (number, layout) in ["ls", "la", "rs", "ra", "pf", "pl"].iter().enumerate() {
        arrays.add(
            &format!("5 --strip 16K --layout {layout}"),
            &[4; 4],
            &[number % 4],
        );
    }
    arrays.are_judged();
}

#[test]
fn the_usual_layouts_of_raid6() {
    raid6(&["ls", "ddf-zero-restart", "ls-6"]);
}

#[test]
#[ignore = "a minute and a half: cargo xtask nightly kernel"]
fn every_other_layout_of_raid6() {
    raid6(&[
        "la",
        "rs",
        "ra",
        "pf",
        "pl",
        "ddf-N-restart",
        "ddf-N-continue",
        "la-6",
        "rs-6",
        "ra-6",
        "pf-6",
    ]);
}

fn raid6(layouts: &[&str]) {
    let mut arrays = Arrays::default();
    for (number, layout) in layouts.iter().enumerate() {
        let lost = [number % 5, (number + 1 + number / 5) % 5];
        arrays.add(&format!("6 --strip 16K --layout {layout}"), &[4; 5], &lost);
    }
    arrays.are_judged();
}

#[test]
#[ignore = "a minute: cargo xtask nightly kernel"]
fn near_far_and_offset_layouts_of_raid10() {
    let mut arrays = Arrays::default();
    arrays.add("10 --strip 16K --layout n2", &[4; 4], &[0, 2]);
    arrays.add("10 --strip 16K --layout n3", &[4; 3], &[0, 1]);
    arrays.add("10 --strip 16K --layout f2", &[4; 4], &[1]);
    arrays.add("10 --strip 16K --layout o2", &[4; 4], &[2]);
    arrays.add("10 --strip 16K --layout n2 --format md-1.1", &[4; 5], &[3]);
    arrays.add("10 --strip 32K --layout f2 --format md-1.0", &[4; 3], &[1]);
    arrays.add(
        "10 --strip 16K --layout o2 --bitmap-region 32K",
        &[4; 5],
        &[4],
    );
    // Far sets: mdadm has no word for them, but the driver obeys the superblock.
    arrays.add("10 --strip 16K --layout f2s2", &[4; 4], &[1]);
    arrays.add("10 --strip 16K --layout f2s2", &[4; 5], &[0]);
    arrays.add("10 --strip 16K --layout f3", &[4; 5], &[1, 3]);
    arrays.are_judged();
}
