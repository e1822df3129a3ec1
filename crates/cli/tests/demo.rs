//! `plexum demo` as a user runs it.
#![allow(clippy::unwrap_used)]

mod common;

use common::Place;

/// One test for each level, because they mostly wait and so go well together.
fn holds(name: &str, words: &str) {
    let place = Place::new(name);
    let run = place.plexum(&format!("demo --json {words}"));
    let objects = run.objects();
    assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
    let last = objects.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["is_good"]),
        (&"demo".into(), &true.into())
    );
    let checks = objects
        .iter()
        .filter(|object| object["kind"] == "demo_check");
    assert!(checks.count() >= 8, "{words}");
}

#[test]
fn the_demo_holds_for_raid6() {
    holds("demo-6", "");
}

#[test]
fn the_demo_holds_for_raid5() {
    holds("demo-5", "--level 5 --seed 2");
}

#[test]
fn the_demo_holds_for_raid4() {
    holds("demo-4", "--level 4 --seed 3");
}

#[test]
fn the_demo_holds_for_three_copies() {
    holds("demo-1", "--level 1 --members 3 --seed 4");
}

#[test]
fn the_demo_holds_for_raid10() {
    holds("demo-10", "--level 10 --seed 5");
}

#[test]
fn sabotage_is_noticed_and_kept_members_are_an_md_array() {
    let place = Place::new("demo-sabotage");
    let run = place.plexum("demo --sabotage");
    assert_eq!(run.exit, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("FAILED"), "{}", run.out);
    let kept = place.plexum("demo --keep disks --level 1");
    assert_eq!(kept.exit, 0, "{}{}", kept.out, kept.err);
    let files: Vec<String> = std::fs::read_dir(place.file("disks"))
        .unwrap()
        .map(|entry| entry.unwrap().path().display().to_string())
        .collect();
    assert_eq!(files.len(), 2, "two of four disks died: {files:?}");
    for file in files {
        let text = place.tool("mdadm", &format!("-E {file}")).out;
        assert!(
            text.contains("State : clean") && text.contains("Array State : AA"),
            "{text}"
        );
    }
}
