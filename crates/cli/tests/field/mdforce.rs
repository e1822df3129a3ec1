//! Starts of md arrays that are damaged, forced, or half reshaped.

use plexum_testkit::Unpacked;

use crate::common::{Place, Run};
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
