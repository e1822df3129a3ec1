//! ZFS pools as people have them: log devices that were removed, expanded RAID-Z, spares and cache devices.
#![allow(clippy::unwrap_used)]

use plexum_testkit::Unpacked;

use crate::common::{Place, Run};
use crate::inputs::unpack_story;

fn words(story: &Unpacked, files: &[&str]) -> String {
    let path = |file: &&str| story.path(file).display().to_string();
    files.iter().map(path).collect::<Vec<_>>().join(" ")
}

/// Whether `hpool/vol` is read from these members as it was written.
fn reads_the_volume(place: &Place, members: &str) -> (Run, Vec<u8>) {
    let run = place.plexum(&format!("pool list {members}"));
    assert_eq!(run.exit, 0, "{}", run.err);
    assert!(run.out.contains("hpool/vol"), "{}", run.out);
    let command = format!("pool cat hpool/vol {members}");
    let words: Vec<&str> = command.split(' ').collect();
    let mut command = place.command(env!("CARGO_BIN_EXE_plexum"));
    let bytes = command.args(words).output().unwrap().stdout;
    (run, bytes)
}

#[test]
fn a_pool_whose_log_device_was_removed_is_read_and_nothing_counts_as_missing() {
    let place = Place::new("field-zfs-hole");
    let story = unpack_story("zfs-number-arrays-in-labels-hole");
    let want = story.read("want");
    for files in [&["m0", "m1", "n0"][..], &["n0", "m1"]] {
        let (run, bytes) = reads_the_volume(&place, &words(&story, files));
        assert!(bytes == want, "contents differ");
        assert!(!run.err.contains("plex 1"), "{}", run.err);
    }
    let members = words(&story, &["m0", "m1", "n0"]);
    let run = place.plexum(&format!("scan {members}"));
    assert!(run.out.contains("complete"), "{}", run.out);
    assert_eq!(run.exit, 0);
    let run = place.plexum(&format!("examine {members}"));
    assert!(run.out.contains("of ZFS pool hpool"), "{}", run.out);
    assert!(!run.out.contains("no member of plex"), "{}", run.out);
}

#[test]
fn an_expanded_raidz_is_refused_by_name() {
    let place = Place::new("field-zfs-expanded");
    let story = unpack_story("zfs-number-arrays-in-labels-expanded");
    let members = words(&story, &["d0", "d1", "d2"]);
    let run = place.plexum(&format!("pool list {members}"));
    assert_ne!(run.exit, 0);
    assert!(
        run.err.contains("it is RAID-Z that was expanded"),
        "{}",
        run.err
    );
    let run = place.plexum(&format!("scan {members}"));
    assert!(
        run.out.contains("it is RAID-Z that was expanded"),
        "{}",
        run.out
    );
}

#[test]
fn spares_and_cache_devices_among_the_members_are_named_and_refuse_nothing() {
    let place = Place::new("field-zfs-spare");
    let story = unpack_story("zfs-spare-or-cache-refuses-the-pool");
    let all = ["cache", "m0", "m1", "spare"];
    let (alone, want) = reads_the_volume(&place, &words(&story, &["m0", "m1"]));
    assert!(!want.is_empty() && !alone.err.contains("spare"));
    let (run, bytes) = reads_the_volume(&place, &words(&story, &all));
    assert!(bytes == want, "contents differ");
    for note in [
        "spare is a spare: it holds no data",
        "cache is a cache device: it holds no data",
    ] {
        assert!(
            run.err.contains(note) || run.out.contains(note),
            "{}{}",
            run.out,
            run.err
        );
    }
    let run = place.plexum(&format!("scan {}", story.folder().display()));
    assert_eq!(run.exit, 0, "{}", run.out);
    assert!(!run.out.contains("members missing"), "{}", run.out);
    assert!(
        run.out.contains("cache: cache device of a ZFS pool"),
        "{}",
        run.out
    );
    let run = place.plexum(&format!("examine {}", words(&story, &["spare"])));
    assert!(run.out.contains("spare of a ZFS pool"), "{}", run.out);
    // By themselves they are no pool: said so, and why.
    let run = place.plexum(&format!("pool list {}", words(&story, &["spare", "cache"])));
    assert_ne!(run.exit, 0);
    assert!(
        run.err.contains("no member with data of a pool"),
        "{}",
        run.err
    );
}
