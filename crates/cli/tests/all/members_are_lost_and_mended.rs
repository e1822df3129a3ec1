//! Members of a volume that is served: lost, taken back, replaced, compared.

use std::os::unix::fs::FileExt;

use crate::common::Place;
use crate::serve::{Server, create, qemu_io};

#[test]
fn a_degraded_volume_says_so_in_words_json_and_exit_codes() {
    let place = Place::new("serve-degraded");
    create(&place, "--level 5 a missing c");
    let _server = Server::start(&place, "a c");
    let run = place.plexum("status");
    assert_eq!(run.exit, 1, "{}", run.err);
    assert!(
        run.out.starts_with("nas      DEGRADED  raid5"),
        "{}",
        run.out
    );
    assert!(
        run.out.contains("ONE MORE FAILURE LOSES THE VOLUME"),
        "{}",
        run.out
    );
    assert!(
        run.out.contains("Next:   plexum add nas MEMBER"),
        "{}",
        run.out
    );
    let status = place.plexum("status --json").objects().remove(0);
    assert_eq!(
        (&status["verdict"], &status["spare_failures"]),
        (&"degraded".into(), &0.into())
    );
    assert_eq!(status["members"][1]["state"], "missing");
    let refused = place.plexum("fail nas 0");
    assert_eq!(refused.exit, 3, "{}", refused.err);
    assert!(refused.err.contains("would lose data"), "{}", refused.err);
    let explained = place.plexum("explain nas --if 0");
    assert_eq!(explained.exit, 1);
    assert!(explained.out.contains("LOST"), "{}", explained.out);
    place.sparse("tiny", 4 << 20);
    let tiny = place.plexum("add nas ./tiny");
    assert_eq!(tiny.exit, 4, "{}", tiny.err);
    std::fs::write(place.file("full"), vec![9; 24 << 20]).unwrap();
    let full = place.plexum("add nas full");
    assert_eq!(full.exit, 3, "{}", full.err);
    assert!(full.err.contains("full is not empty"), "{}", full.err);
    let unasked = place.plexum("add nas full --force");
    assert_eq!(unasked.exit, 3, "{}", unasked.err);
    assert!(unasked.err.contains("--yes"), "{}", unasked.err);
    let planned = place.plexum("add nas full --force --dry-run");
    assert!(
        planned.exit == 0 && planned.out.contains("DESTROYS full"),
        "{}",
        planned.out
    );
    place.sparse("new", 24 << 20);
    let added = place.plexum("add nas new --wait");
    assert_eq!(added.exit, 0, "{}{}", added.out, added.err);
    assert_eq!(place.plexum("status").exit, 0);
    let events = place.plexum("events --json").objects();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["name"].as_str().unwrap())
        .collect();
    for name in ["started", "rebuild_started", "rebuild_finished"] {
        assert!(names.contains(&name), "{names:?}");
    }
}

#[test]
fn a_member_that_was_away_is_refused_as_stale_and_taken_back_by_re_add() {
    let place = Place::new("serve-stale");
    create(&place, "--level 1 a b --bitmap-region 1M");
    let server = Server::start(&place, "a b");
    assert_eq!(place.plexum("fail nas b").exit, 0);
    assert_eq!(qemu_io(&place, &["write -P 7 1M 64k"]).exit, 0);
    assert_eq!(place.plexum("stop").exit, 0);
    assert_eq!(server.wait(), 0);

    let examined = place.plexum("examine a b --json");
    let set = examined.objects().pop().unwrap();
    assert_eq!(set["kind"], "set");
    assert_eq!(set["members"][1]["state"], "stale", "{set}");
    let server = Server::start(&place, "a b --json");
    let ready: serde_json::Value = serde_json::from_str(&server.line).unwrap();
    assert_eq!(
        (&ready["kind"], &ready["verdict"]),
        (&"ready".into(), &"degraded".into())
    );
    assert!(ready["notes"].to_string().contains("stale"), "{ready}");
    let back = place.plexum("re-add nas b --wait --json");
    assert_eq!(back.exit, 0, "{}", back.err);
    let stats = place.plexum("stats --json").objects().remove(0);
    let members = stats["members"].as_array().unwrap();
    let written = members
        .iter()
        .find(|member| member["member"].as_str().unwrap().ends_with("/b"))
        .unwrap()["written_bytes"]
        .as_u64()
        .unwrap();
    assert!(
        written <= 1 << 20,
        "only what it missed is copied, not {written} bytes"
    );
    assert_eq!(place.plexum("stop").exit, 0);
    assert_eq!(server.wait(), 0);
    let (a, b) = (
        std::fs::File::open(place.file("a")).unwrap(),
        std::fs::File::open(place.file("b")).unwrap(),
    );
    let mut parts = [vec![0; 4 << 20], vec![0; 4 << 20]];
    a.read_exact_at(&mut parts[0], 1 << 20).unwrap();
    b.read_exact_at(&mut parts[1], 1 << 20).unwrap();
    assert!(parts[0] == parts[1], "the copies differ");
}

#[test]
fn a_failed_member_that_cannot_catch_up_is_not_let_go_of() {
    let place = Place::new("serve-no-bitmap");
    create(&place, "--level 1 a b --bitmap none");
    let server = Server::start(&place, "a b");
    assert_eq!(place.plexum("fail nas b").exit, 0);
    let before = place.plexum("status --json").out;
    for words in ["re-add nas b -n", "re-add nas b"] {
        let refused = place.plexum(words);
        assert_ne!(refused.exit, 0, "{words}");
        assert!(refused.err.contains("plexum add nas "), "{}", refused.err);
    }
    let members = |text: &str| {
        let status: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let list = status["members"].as_array().unwrap().clone();
        let of_one = |one: serde_json::Value| (one["member"].to_string(), one["state"].to_string());
        list.into_iter().map(of_one).collect::<Vec<_>>()
    };
    let after = place.plexum("status --json").out;
    assert_eq!(
        members(&after),
        members(&before),
        "it is a failed member still"
    );
    assert_eq!(place.plexum("stop").exit, 0);
    assert_eq!(server.wait(), 0);
}

#[test]
fn replace_copies_while_the_old_one_serves() {
    let place = Place::new("serve-replace");
    create(&place, "--level 1 a b");
    let server = Server::start(&place, "a b");
    assert_eq!(qemu_io(&place, &["write -P 3 0 8M"]).exit, 0);
    place.sparse("new", 24 << 20);
    let replaced = place.plexum("replace nas a new --wait");
    assert_eq!(replaced.exit, 0, "{}{}", replaced.out, replaced.err);
    let status = place.plexum("status --json").objects().remove(0);
    let slot0 = &status["members"][0];
    assert!(
        slot0["path"].as_str().unwrap().ends_with("/new"),
        "{status}"
    );
    assert_eq!(slot0["state"], "active");
    assert_eq!(qemu_io(&place, &["read -P 3 0 8M"]).exit, 0);
    assert_eq!(place.plexum("stop").exit, 0);
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_scrub_names_the_places_and_on_raid6_the_member() {
    let place = Place::new("serve-scrub");
    create(&place, "--level 6 a b c d");
    let server = Server::start(&place, "a b c d");
    assert_eq!(qemu_io(&place, &["write -P 3 0 8M"]).exit, 0);
    assert_eq!(place.plexum("stop").exit, 0);
    assert_eq!(server.wait(), 0);
    let examined = place.plexum("examine c --json").objects().remove(0);
    let data = examined["superblock"]["data_offset_sectors"]
        .as_u64()
        .unwrap()
        * 512;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.file("c"))
        .unwrap();
    file.write_all_at(&[0xee; 4096], data + (1 << 20)).unwrap();

    let server = Server::start(&place, "a b c d");
    let found = place.plexum("scrub --wait --json");
    assert_eq!(found.exit, 1, "{}{}", found.out, found.err);
    let report = found.objects().pop().unwrap();
    assert_eq!(
        (&report["kind"], &report["is_complete"]),
        (&"scrub".into(), &true.into())
    );
    assert_eq!(report["ranges"][0]["slot"], 2, "{report}");
    assert_eq!(report["ranges"][0]["member_offset_bytes"], 1 << 20);
    let words = place.plexum("status").out;
    assert!(
        words.contains("plexum scrub nas --repair --wait"),
        "{words}"
    );
    let repaired = place.plexum("scrub nas --repair --wait");
    assert!(
        repaired.out.contains("slot 2"),
        "{}{}",
        repaired.out,
        repaired.err
    );
    let again = place.plexum("scrub nas --wait");
    assert_eq!(
        (again.exit, again.out.as_str()),
        (0, "nas: no differences\n")
    );
    let set = place.plexum("set balance=round-robin rebuild-max=10M");
    assert_eq!(
        set.exit, 2,
        "parity has nothing to balance: {}{}",
        set.out, set.err
    );
    assert_eq!(place.plexum("set rebuild-max=10M").exit, 0);
    assert_eq!(place.plexum("set nonsense=1").exit, 2);
    assert_eq!(place.plexum("stop").exit, 0);
    assert_eq!(server.wait(), 0);
}
