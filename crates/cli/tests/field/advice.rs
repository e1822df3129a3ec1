//! Advice does what it says: each is typed as it was printed, and its outcome looked at. That every advised command is
//! one that the parser takes is a test of the command itself (src/advised.rs).

use super::common::served::{Server, done, status, wait_until, wait_until_clean};
use super::common::{Place, Run};

/// What follows `introduction` in the answer to a command that is refused, as it is to be typed: a command, or options
/// to add to the one that was typed.
fn advised(place: &Place, typed: &str, introduction: &str) -> String {
    let run = place.plexum(typed);
    assert_ne!(run.exit, 0, "plexum {typed} was to be refused: {}", run.out);
    let mut lines = run.err.lines().map(str::trim_start);
    let found = lines.find_map(|line| line.strip_prefix(introduction));
    let found =
        found.unwrap_or_else(|| panic!("plexum {typed}: no {introduction:?}:\n{}", run.err));
    match found.trim().strip_prefix("plexum ") {
        Some(command) => command.to_owned(),
        None => format!("{typed} {}", found.trim()),
    }
}

/// Types what was advised; it must be done. `NEW` and `MEMBER` are what a reader would put in their place.
fn follow(place: &Place, typed: &str, introduction: &str, own: &str) -> Run {
    let command = advised(place, typed, introduction);
    let command = command.replace("NEW", own).replace("MEMBER", own);
    done(place, &command)
}

fn state_of(place: &Place, member: &str) -> String {
    let path = place.file(member).display().to_string();
    let status = status(place);
    let members = status["members"].as_array().unwrap();
    let found = members.iter().find(|one| one["path"] == *path);
    found.map_or("gone".into(), |one| one["state"].as_str().unwrap().into())
}

#[test]
fn members_that_hold_data_are_looked_at_or_overwritten_as_the_refusal_says() {
    let place = Place::in_memory("advice-create");
    done(&place, "create old --level 1 --member-size 24M a b");
    let again = "create nas --level 5 --member-size 24M a b c --yes";
    let seen = follow(&place, again, "to look at it:", "");
    assert!(seen.out.contains("old"), "{}", seen.out);
    follow(&place, again, "to overwrite it all the same, add:", "");
    assert!(done(&place, "examine a").out.contains("nas"));
    let two = "create x --level 5 --member-size 24M p q";
    let mirror = advised(&place, two, "for a mirror:");
    let mirror = mirror.replacen("--level 5", "", 1);
    done(&place, &mirror);
    assert!(done(&place, "examine p").out.contains("raid1"));
}

#[test]
fn a_volume_that_lacks_a_member_starts_as_the_refusal_says() {
    let place = Place::in_memory("advice-start");
    done(&place, "create nas --level 5 --member-size 24M a b c");
    let run = place.plexum("serve a b");
    assert!(run.err.contains("or add --run-degraded"), "{}", run.err);
    let served = done(&place, "serve a b --run-degraded --background");
    assert!(served.out.contains("DEGRADED raid5"), "{}", served.out);
    let all = follow_anyway(&place, "serve a b c", "to see what is served:");
    assert!(all.out.contains("nas"), "{}", all.out);
    done(&place, "stop nas");
}

#[test]
fn a_member_in_use_is_taken_out_replaced_and_taken_back_as_the_refusal_says() {
    let place = Place::in_memory("advice-members");
    done(&place, "create nas --level 1 --member-size 24M a b");
    place.sparse("new", 24 << 20);
    let _server = Server::start(&place, "a b");
    wait_until_clean(&place);
    follow(&place, "remove nas b", "to take it out of use first:", "");
    assert_eq!(state_of(&place, "b"), "faulty");
    let last = follow_anyway(&place, "fail nas a", "to see what is missing:");
    assert!(last.out.contains("faulty"), "{}", last.out);
    follow(&place, "add nas b", "if it has failed:", "");
    wait_until(&place, "b is back", || {
        let status = status(&place);
        status["members"][1]["state"] == "active"
    });
    follow(
        &place,
        "remove nas b",
        "to replace it while it serves:",
        "new",
    );
    wait_until(&place, "new is in its place", || {
        let status = status(&place);
        let path = status["members"][1]["path"].as_str().unwrap_or_default();
        path.ends_with("/new") && status["members"][1]["state"] == "active"
    });
}

/// As `follow`, for what shows a state that has an exit code of its own.
fn follow_anyway(place: &Place, typed: &str, introduction: &str) -> Run {
    let command = advised(place, typed, introduction);
    place.plexum(&command)
}

#[test]
fn a_scrub_that_runs_is_stopped_and_a_bitmap_of_another_size_taken_off_as_the_refusal_says() {
    let place = Place::in_memory("advice-scrub");
    done(&place, "create nas --level 1 --member-size 24M a b");
    let _server = Server::start(&place, "a b");
    wait_until_clean(&place);
    done(&place, "set nas rebuild=pause");
    done(&place, "scrub nas");
    let shown = follow(&place, "set nas bitmap=none", "to see what runs:", "");
    assert!(shown.out.contains("scrub"), "{}", shown.out);
    let stopped = follow(&place, "scrub nas", "to stop it:", "");
    assert!(stopped.out.contains("stopped at"), "{}", stopped.out);
    done(&place, "set nas bitmap=internal bitmap-region=64K");
    let other = "set nas bitmap=internal bitmap-region=128K";
    follow(&place, other, "to take it off first:", "");
    done(&place, other);
    assert_eq!(status(&place)["bitmap"]["region_bytes"], 128 << 10);
}

#[test]
fn a_degraded_volume_keeps_its_bitmap_until_it_is_completed_as_the_refusal_says() {
    let place = Place::in_memory("advice-complete");
    done(&place, "create nas --level 1 --member-size 24M a b");
    place.sparse("new", 24 << 20);
    let _server = Server::start(&place, "a b");
    wait_until_clean(&place);
    done(&place, "fail nas b");
    done(&place, "remove nas b");
    follow(
        &place,
        "set nas bitmap=none",
        "to complete it first:",
        "new",
    );
    wait_until(&place, "new is filled", || {
        let status = status(&place);
        status["verdict"] == "ok" && status["jobs"].as_array().unwrap().is_empty()
    });
    done(&place, "set nas bitmap=none");
}

#[test]
fn an_attached_volume_is_detached_or_stopped_all_the_same_as_the_refusal_says() {
    let place = Place::new("advice-attached");
    done(&place, "create nas --level 1 --member-size 24M a b");
    let server = Server::start(&place, "a b");
    done(&place, "attach nas");
    follow(&place, "stop nas", "to undo that first:", "");
    done(&place, "attach nas");
    follow(&place, "stop nas", "to stop it all the same:", "");
    drop(server);
    place.plexum("detach nas");
    let run = place.plexum("attach nas");
    assert!(run.err.contains("plexum serve MEMBER..."), "{}", run.err);
    let _server = Server::start(&place, "a b");
    done(&place, "status nas");
}

#[test]
fn codes_are_listed_and_files_looked_through_as_the_refusal_says() {
    let place = Place::in_memory("advice-codes");
    let codes = follow(&place, "explain nothing", "to see all codes:", "");
    let first = codes.out.lines().nth(1).unwrap().split_whitespace().next();
    done(&place, &format!("explain {}", first.unwrap()));
    done(&place, "create nas --level 1 --member-size 24M a b");
    std::fs::create_dir(place.file("folder")).unwrap();
    let scanned = advised(&place, "examine folder", "to look for sets in a folder:");
    done(&place, &scanned);
}
