//! What a command has overwritten is put back, as long as nobody has used what it made.

use std::path::PathBuf;

use crate::common::served::{Server, done};
use crate::common::{Place, Run, uri};

const SIZE_BYTES: usize = 24 << 20;

/// Members with something on every byte.
fn used(name: &str, members: &[&str]) -> Place {
    let place = Place::new(name);
    for (number, member) in members.iter().enumerate() {
        let byte = |at: usize| (at / 512 + at % 251 + number) as u8;
        let bytes: Vec<u8> = (0..SIZE_BYTES).map(byte).collect();
        std::fs::write(place.file(member), bytes).unwrap();
    }
    place
}

fn refused(place: &Place, words: &str, why: &str) -> Run {
    let before = place.snapshot();
    let run = place.plexum(words);
    assert_eq!(run.exit, 4, "{words}: {}{}", run.out, run.err);
    assert!(run.err.contains(why), "{words}: {}", run.err);
    assert!(place.snapshot() == before, "{words} changed something");
    run
}

fn state_of(place: &Place, number: usize) -> String {
    let changes = place.plexum("history --json").objects();
    changes[number - 1]["state"].as_str().unwrap().to_owned()
}

fn document(place: &Place, number: usize) -> PathBuf {
    place.file(&format!("state/plexum/changes/{number:06}.json"))
}

#[test]
fn what_create_has_overwritten_is_put_back_byte_for_byte() {
    let place = used("changes-create", &["a", "b"]);
    let before = place.snapshot();
    for words in ["--level 1", "--level 0", "--level 1 --format gmirror"] {
        done(
            &place,
            &format!("create nas a b {words} --force -y --why a-try"),
        );
        assert!(place.snapshot() != before, "{words}");
        let number = place.plexum("history --json").objects().len();
        assert_eq!(state_of(&place, number), "done");
        let shown = done(&place, &format!("undo {number} -n"));
        assert!(shown.out.contains("would put"), "{}", shown.out);
        assert!(place.snapshot() != before, "a dry run of {words}");
        done(&place, &format!("undo {number}"));
        assert!(place.snapshot() == before, "{words}");
        assert_eq!(state_of(&place, number), "undone");
        refused(&place, &format!("undo {number}"), "was undone already");
    }
    let shown = place.plexum("history");
    let command = "plexum create nas a b --level 1 --force -y";
    assert!(shown.out.contains(command), "{}", shown.out);
    assert!(shown.out.contains("why: a-try"), "{}", shown.out);
}

#[test]
fn the_number_to_undo_is_told_where_something_was_overwritten_and_members_may_be_named_from_anywhere()
 {
    let place = used("changes-told", &["a", "b"]);
    done(&place, "-y gmirror label gm0 a b");
    let array = done(&place, "create nas a b --level 1 --force -y");
    assert!(array.out.contains("plexum undo 2"), "{}", array.out);
    let mut elsewhere = place.command(env!("CARGO_BIN_EXE_plexum"));
    elsewhere.current_dir("/").args(["undo", "2"]);
    assert!(elsewhere.status().unwrap().success());
    // The label is there again.
    assert!(place.plexum("examine a").out.contains("gmirror"));
}

#[test]
fn what_was_used_since_stays() {
    let place = used("changes-used", &["a", "b"]);
    std::fs::write(place.file("data"), [7; 1 << 20]).unwrap();
    done(&place, "create nas a b --level 1 --assume-clean --force -y");
    let server = Server::start(&place, "a b");
    let copied = place.tool("nbdcopy", &format!("data {}", uri(&place, "nas")));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    // The server may write to them at this moment as well: when nobody has written for a while they are clean.
    let run = place.plexum("undo 1");
    assert_eq!(run.exit, 6, "{}{}", run.out, run.err);
    assert!(run.err.contains("in use"), "{}", run.err);
    let there = place.tool("nbdcopy", &format!("{} there", uri(&place, "nas")));
    assert_eq!(there.exit, 0, "{}", there.err);
    let there = std::fs::read(place.file("there")).unwrap();
    assert!(there[..1 << 20] == [7; 1 << 20], "undo 1 changed something");
    server.stop(&place);
    refused(&place, "undo 1", "has changed since");
    refused(&place, "undo 1 -n", "has changed since");
    refused(&place, "undo 7", "there is no change 7");
}

#[test]
fn an_undo_that_was_cut_goes_on() {
    let place = used("changes-cut", &["a", "b", "c"]);
    let before = place.snapshot();
    done(&place, "create nas a b c --level 5 --force -y");
    let made = place.snapshot();
    let change = std::fs::read(document(&place, 1)).unwrap();
    done(&place, "undo 1");
    // A crash behind the superblock of c: the rest of c, and all of a and b, are as the change wrote them.
    for (path, bytes) in &made[..2] {
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::write(document(&place, 1), change).unwrap();
    done(&place, "undo 1");
    assert!(place.snapshot() == before);
}

#[test]
fn a_conversion_in_place_is_undone_and_an_edit_of_a_label_is_only_told() {
    let place = Place::new("changes-convert");
    done(
        &place,
        "create gm0 --level 1 --format gmirror --assume-clean --member-size 2M a b",
    );
    done(&place, "gmirror resize --in . -s 4000 gm0");
    let before = place.snapshot();
    done(&place, "convert a b --to md-1.0");
    assert!(place.plexum("examine a").out.contains("md superblock 1.0"));
    done(&place, "undo 3");
    assert!(place.snapshot() == before);
    assert_eq!(state_of(&place, 2), "done");
    let run = refused(&place, "undo 2", "cannot be undone");
    let command = "plexum gmirror resize --in . -s 4000 gm0";
    assert!(run.err.contains(command), "{}", run.err);
}

#[test]
fn where_nothing_can_be_kept_the_change_is_made_and_that_is_told() {
    let place = used("changes-unkept", &["a", "b"]);
    std::fs::write(place.file("state"), "a file").unwrap();
    let made = done(&place, "create nas a b --level 1 --force -y");
    assert!(made.err.contains("cannot be undone later"), "{}", made.err);
    assert!(!made.out.contains("plexum undo"), "{}", made.out);
}

#[test]
fn bytes_that_are_damaged_are_not_put_back() {
    let place = used("changes-damaged", &["a", "b"]);
    done(&place, "create nas a b --level 1 --force -y");
    let kept = place.file("state/plexum/changes/000001.bytes");
    let whole = std::fs::read(&kept).unwrap();
    std::fs::write(&kept, &whole[..whole.len() / 2]).unwrap();
    let before = place.snapshot();
    let run = place.plexum("undo 1");
    assert!(
        run.exit > 0 && run.err.contains("000001.bytes"),
        "{}",
        run.err
    );
    assert!(place.snapshot() == before);
}
