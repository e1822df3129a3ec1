//! Starts of md arrays that are damaged, forced, or half reshaped.

use plexum_testkit::Unpacked;

use crate::common::{Place, Run, uri};
use crate::inputs::{unpack_story, wrong_blocks};

/// Paths of files of a story, in one line.
fn paths(story: &Unpacked, names: &str) -> String {
    let path = |name: &str| story.path(name).display().to_string();
    names.split(' ').map(path).collect::<Vec<_>>().join(" ")
}

fn serve(place: &Place, words: &str) -> Run {
    place.plexum(&format!("serve --name v --background {words}"))
}

/// Copies the volume and stops it; the blocks that are wrong.
fn wrong_of_served(place: &Place, seed: u64, count: u64) -> Vec<u64> {
    let folder = place.folder.display();
    let copied = place.tool(
        "nbdcopy",
        &format!("--no-extents nbd+unix:///v?socket={folder}/plexum/v.nbd copy"),
    );
    assert_eq!(copied.exit, 0, "{}", copied.err);
    assert_eq!(place.plexum("stop v").exit, 0);
    wrong_blocks(&place.file("copy"), seed, count)
}

#[test]
fn of_members_lost_one_after_another_the_least_stale_are_taken_when_they_are_named_by_force() {
    let story = unpack_story("md-two-members-lost-one-after-another");
    let place = Place::new("two-lost");
    for (names, seed) in [
        ("a b c d", 0x32),
        ("a c d", 0x32),
        ("r10-a r10-b r10-c r10-d", 0x31),
    ] {
        let files = paths(&story, names);
        let before: Vec<_> = names.split(' ').map(|name| story.read(name)).collect();
        let refused = serve(&place, &format!("--read-only {files}"));
        assert_eq!(refused.exit, 4, "{}", refused.err);
        let way = refused.err.lines().last().unwrap();
        let words = way.split_once("plexum serve ").unwrap().1;
        let run = serve(&place, words);
        assert_eq!(run.exit, 0, "{names}: {}{}", run.out, run.err);
        assert!(run.err.contains("may mix two times"), "{}", run.err);
        assert_eq!(place.plexum("status v").exit, 1, "a slot stays empty");
        assert_eq!(wrong_of_served(&place, seed, 1024), [0; 0], "{names}");
        for (name, before) in names.split(' ').zip(before) {
            assert!(story.read(name) == before, "{name} was changed");
        }
    }
}

#[test]
fn a_stale_member_that_a_scan_found_is_not_taken_and_writing_to_it_needs_a_word_of_its_own() {
    let story = unpack_story("md-two-members-lost-one-after-another");
    let place = Place::new("two-lost-written");
    let files = paths(&story, "a b c d");
    let folder = story.path("a").parent().unwrap().to_owned();
    for name in ["r10-a", "r10-b", "r10-c", "r10-d"] {
        std::fs::remove_file(story.path(name)).unwrap();
    }
    let scanned = serve(&place, &format!("--scan {} --force", folder.display()));
    assert_eq!(scanned.exit, 4, "{}", scanned.err);
    let before = story.read("c");
    let run = serve(&place, &format!("--force {files}"));
    assert_eq!(run.exit, 0, "{}", run.err);
    assert!(
        run.err.contains("to write to it as well, add:   --write"),
        "{}",
        run.err
    );
    assert_eq!(place.plexum("stop v").exit, 0);
    assert!(story.read("c") == before, "nothing is written unasked");
    let events = |name: &str| {
        let run = place.plexum(&format!("examine {} --json", story.path(name).display()));
        run.objects()[0]["superblock"]["event_count"].as_u64()
    };
    let stale = events("b");
    assert_eq!(serve(&place, &format!("--force --write {files}")).exit, 0);
    let folder = place.folder.display();
    let uri = format!("nbd+unix:///v?socket={folder}/plexum/v.nbd");
    std::fs::write(place.file("new"), vec![7; 65536]).unwrap();
    assert_eq!(place.tool("nbdcopy", &format!("new {uri}")).exit, 0);
    assert_eq!(place.plexum("stop v").exit, 0);
    assert_eq!(
        events("a"),
        events("c"),
        "the first commit raises its count"
    );
    assert_eq!(events("b"), stale, "who is not taken stays as he was");
}

/// First byte of a mebibyte.
const MEBIBYTE: usize = 1 << 20;

#[test]
fn an_array_is_made_again_over_its_members_and_their_data_stay_as_they_are() {
    let place = Place::new("recreate");
    for (words, has_content) in [("--data-offset 1M", true), ("", false)] {
        let story = unpack_story("md-recreate-as-the-hint-says");
        let files = paths(&story, "a b c");
        let create =
            format!("create rec --level 5 --strip 64K {files} --assume-clean {words} --yes");
        let refused = place.plexum(&create);
        assert_eq!(refused.exit, 3, "{}", refused.err);
        for advice in ["--force --data-offset SIZE", "--try --data-offset SIZE"] {
            assert!(refused.err.contains(advice), "{}", refused.err);
        }
        let before: Vec<_> = ["a", "b", "c"]
            .iter()
            .map(|name| story.read(name))
            .collect();
        let made = place.plexum(&format!("{create} --force"));
        assert_eq!(made.exit, 0, "{}", made.err);
        let same = |before: &[Vec<u8>]| {
            for (name, before) in ["a", "b", "c"].iter().zip(before) {
                assert!(
                    story.read(name)[MEBIBYTE..] == before[MEBIBYTE..],
                    "{words} {name}"
                );
            }
        };
        same(&before);
        let run = serve(&place, &format!("--read-only {files}"));
        assert_eq!(run.exit, 0, "{}", run.err);
        if has_content {
            assert_eq!(wrong_of_served(&place, 0x82, 1024), [0; 0]);
        } else {
            assert_eq!(place.plexum("stop v").exit, 0);
        }
        // Served for writing, nothing but what clients write lands on the data.
        assert_eq!(serve(&place, &files).exit, 0);
        assert_eq!(place.plexum("stop v").exit, 0);
        same(&before);
    }
    let odd = unpack_story("md-recreate-as-the-hint-says");
    let files = paths(&odd, "a b c");
    for words in [
        "--data-offset 4K",
        "--data-offset 1000001",
        "--data-offset 64M",
        "--data-offset 1M --format md-1.0",
    ] {
        let run = place.plexum(&format!(
            "create rec --level 5 {files} --assume-clean --force --yes {words}"
        ));
        assert_eq!(run.exit, 2, "{words}: {}", run.err);
    }
}

#[test]
fn an_array_is_tried_before_it_is_made_again_and_nothing_is_written() {
    let place = Place::new("tried");
    let story = unpack_story("md-recreate-as-the-hint-says");
    let before = ["a", "b", "c"].map(|name| story.read(name));
    let files = paths(&story, "a b c");
    let swapped = paths(&story, "b a c");
    let one_less = format!("{} missing", paths(&story, "a b"));
    let wanted = |files: &str, words: &str| {
        format!("create v --level 5 --strip 64K {files} --assume-clean --try {words}")
    };
    for (files, words, is_right) in [
        (files.as_str(), "--data-offset 1M", true),
        (one_less.as_str(), "--data-offset 1M", true),
        (files.as_str(), "", false),
        (swapped.as_str(), "--data-offset 1M", false),
    ] {
        let dry = place.plexum(&format!("{} -n", wanted(files, words)));
        assert_eq!(dry.exit, 0, "{}", dry.err);
        let run = place.plexum(&format!("{} --background", wanted(files, words)));
        assert_eq!(run.exit, 0, "{}", run.err);
        assert!(run.err.contains("nothing is written"), "{}", run.err);
        let status = place.plexum("status v --json").objects().remove(0);
        assert_eq!(status["is_read_only"], true, "{status}");
        let wrong = wrong_of_served(&place, 0x82, 1024);
        assert_eq!(wrong.is_empty(), is_right, "{files} {words}");
    }
    assert!(["a", "b", "c"].map(|name| story.read(name)) == before);
    for words in [
        format!("{} --force", wanted(&files, "")),
        format!("create v --level 5 {files} --try"),
        format!("create v --level 1 {files} --assume-clean --try --format gmirror"),
    ] {
        assert_eq!(place.plexum(&words).exit, 2, "{words}");
    }
    // With a slot that is empty no log is made over what the others hold, either.
    let made = place.plexum(&format!(
        "create v --level 5 --strip 64K {one_less} --assume-clean --force --yes"
    ));
    assert_eq!(made.exit, 0, "{}", made.err);
    for (name, before) in ["a", "b"].iter().zip(&before) {
        assert!(
            story.read(name)[MEBIBYTE..] == before[MEBIBYTE..],
            "{name}: data were written over"
        );
    }
}

/// Whether status tells of this.
fn has_finding(status: &serde_json::Value, code: &str) -> bool {
    let findings = status["findings"].as_array().unwrap();
    findings.iter().any(|finding| finding["code"] == code)
}

#[test]
fn what_a_reshape_in_place_was_moving_is_never_served_as_good() {
    let story = unpack_story("md-in-place-reshape-critical-section");
    let place = Place::new("in-place");
    let files = paths(&story, "a b c");
    let scanned = place.plexum(&format!("scan {files}"));
    assert_eq!(scanned.exit, 1, "{}", scanned.out);
    let refused = serve(&place, &format!("--read-only {files}"));
    assert_eq!(refused.exit, 3, "{}", refused.err);
    assert!(
        refused.err.contains("--backup-file FILE"),
        "{}",
        refused.err
    );
    let forced = serve(&place, &format!("--read-only --force {files}"));
    assert_eq!(forced.exit, 0, "{}", forced.err);
    let copied = place.tool(
        "nbdcopy",
        &format!("--no-extents {} copy", uri(&place, "v")),
    );
    assert_ne!(copied.exit, 0, "bytes in doubt answer with errors");
    assert_eq!(place.plexum("stop v").exit, 0);
    let forced = serve(&place, &format!("--read-only --force --force-data {files}"));
    assert_eq!(forced.exit, 0, "{}", forced.err);
    assert!(!wrong_of_served(&place, 0x71, 4032).is_empty());
}

#[test]
fn a_backup_file_of_another_array_or_without_a_section_is_refused() {
    let story = unpack_story("md-in-place-reshape-critical-section");
    let place = Place::new("wrong-backup");
    let files = paths(&story, "a b c");
    let golden = plexum_testkit::unpack_case("s47_raid5_backup_critical");
    let other = golden.path("backup.bin");
    place.sparse("empty", 1 << 20);
    let words = [
        other.display().to_string(),
        "empty".to_owned(),
        story.path("a").display().to_string(),
    ];
    for backup in words {
        let run = serve(
            &place,
            &format!("--read-only --backup-file {backup} {files}"),
        );
        assert_eq!(run.exit, 3, "{}", run.err);
        assert!(run.err.contains(&backup), "{}", run.err);
    }
    let whole = unpack_story("md-two-members-lost-one-after-another");
    let files = paths(&whole, "r10-a r10-b");
    let run = serve(
        &place,
        &format!("--read-only --run-degraded --backup-file empty {files}"),
    );
    assert_ne!(run.exit, 0);
}

#[test]
fn a_raid0_that_was_being_grown_is_read_from_both_halves() {
    let story = unpack_story("md-raid0-grow-interrupted");
    let place = Place::new("raid0-grow");
    let files = paths(&story, "a b c");
    let run = serve(&place, &format!("--read-only {files}"));
    assert_eq!(run.exit, 0, "{}", run.err);
    let status = place.plexum("status v --json").objects().remove(0);
    assert_eq!(status["spare_failures"], 0);
    let explained = place.plexum(&format!("explain v --if {}", story.path("c").display()));
    assert_eq!(explained.exit, 1, "{}", explained.out);
    assert_eq!(wrong_of_served(&place, 0x73, 3584), [0; 0]);
}

#[test]
fn status_and_advice_speak_of_both_halves_of_a_reshape() {
    let story = unpack_story("md-half-reshaped-array-looks-whole");
    let place = Place::new("half-reshaped");
    let scanned = place.plexum(&format!("scan {}", paths(&story, "a b c")));
    assert!(
        scanned.out.contains("in the middle of a reshape"),
        "{}",
        scanned.out
    );
    let run = serve(
        &place,
        &format!("--read-only --run-degraded {}", paths(&story, "a b")),
    );
    assert_eq!(run.exit, 0, "{}", run.err);
    let shown = place.plexum("status v");
    assert_eq!(shown.exit, 1, "{}", shown.out);
    let status = place.plexum("status v --json").objects().remove(0);
    assert_eq!(
        (&status["verdict"], &status["spare_failures"]),
        (&"degraded".into(), &0.into())
    );
    let members = status["members"].as_array().unwrap();
    assert!(
        members
            .iter()
            .any(|m| m["slot"] == 2 && m["state"] == "missing"),
        "{status}"
    );
    assert!(has_finding(&status, "reshape_interrupted"), "{status}");
    let advice = place.plexum(&format!("explain v --if {}", story.path("a").display()));
    assert_eq!(advice.exit, 1, "{}", advice.out);
    assert!(advice.out.contains("would be LOST"), "{}", advice.out);
    assert_eq!(place.plexum("stop v").exit, 0);
    let whole = serve(&place, &format!("--read-only {}", paths(&story, "a b c")));
    assert_eq!(whole.exit, 0, "{}", whole.err);
    assert_eq!(place.plexum("status v").exit, 0);
    let advice = place.plexum(&format!("explain v --if {}", story.path("c").display()));
    assert_eq!(advice.exit, 0, "{}", advice.out);
    assert_eq!(place.plexum("stop v").exit, 0);
}

/// Whether the served volume has what was written; ten blocks were written last, and answered.
fn has_answered_writes(place: &Place) -> bool {
    let copied = place.tool("nbdcopy", &format!("--no-extents {} copy", uri(place, "v")));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    let bytes = std::fs::read(place.file("copy")).unwrap();
    let mut has_new = true;
    for (offset, block) in (0u64..).step_by(4096).zip(bytes.chunks_exact(4096)) {
        let is_written = offset % 65536 == 8192 && offset / 65536 < 10;
        let expected = |seed| plexum_oracle::pattern_bytes(seed, offset, 4096);
        if is_written {
            has_new &= block == expected(2);
        } else {
            assert!(block == expected(1), "block at {offset}");
        }
    }
    has_new
}

#[test]
fn writes_that_are_only_in_a_write_journal_are_read_from_there_or_the_start_is_refused() {
    let place = Place::new("journal");
    for mode in ["write-back", "write-through"] {
        let story = unpack_story(&format!("md-write-journal-{mode}"));
        // With every member, and with each one missing: never the old data.
        for names in ["a b c j", "b c j", "a c j", "a b j"] {
            let files = paths(&story, names);
            let run = serve(&place, &format!("--read-only --run-degraded {files}"));
            assert_eq!(run.exit, 0, "{mode} {names}: {}", run.err);
            assert!(
                run.err.contains("are read from the write journal"),
                "{}",
                run.err
            );
            assert!(has_answered_writes(&place), "{mode} {names}");
            let status = place.plexum("status v --json").objects().remove(0);
            assert!(has_finding(&status, "journal_not_replayed"), "{status}");
            let scrub = place.plexum("scrub v");
            assert_eq!(scrub.exit, 4, "{}", scrub.err);
            assert!(scrub.err.contains("write journal"), "{}", scrub.err);
            assert!(!scrub.err.contains("reshape"), "{}", scrub.err);
            assert_eq!(place.plexum("stop v").exit, 0);
        }
        let files = paths(&story, "a b c");
        let scanned = place.plexum(&format!("scan {files}"));
        assert!(!scanned.out.contains("clean"), "{}", scanned.out);
        let refused = serve(&place, &format!("--read-only {files}"));
        assert_eq!(refused.exit, 3, "{}", refused.err);
        let forced = serve(&place, &format!("--read-only --force {files}"));
        assert_eq!(forced.exit, 0, "{}", forced.err);
        assert!(forced.err.contains("journal is not here"), "{}", forced.err);
        assert_eq!(has_answered_writes(&place), mode == "write-through");
        assert_eq!(place.plexum("stop v").exit, 0);
        assert_eq!(
            serve(&place, &format!("--force {files}")).exit,
            4,
            "never to be written"
        );
    }
}
