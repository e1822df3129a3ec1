//! What happened is not forgotten with the server: events, scrubs, failed members, settings, words of the log.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use super::common::Place;
use super::common::served::{Server, done, mirror, status};

fn names_of_events(place: &Place) -> Vec<String> {
    let events = place.plexum("events nas --json").objects();
    events
        .iter()
        .map(|event| event["name"].as_str().unwrap().to_owned())
        .collect()
}

fn has_finding(status: &Value, code: &str) -> bool {
    let findings = status["findings"].as_array().unwrap();
    findings.iter().any(|finding| finding["code"] == code)
}

#[test]
fn events_scrubs_failures_and_settings_are_there_after_a_restart_and_after_a_kill() {
    let (place, server) = mirror("restart-known");
    done(&place, "scrub nas --wait");
    let scrub = status(&place)["last_scrub"].clone();
    assert_eq!(scrub["is_complete"], true);
    done(&place, "set nas balance=load rebuild-max=7M");
    done(&place, "fail nas b");
    server.stop(&place);
    let first = ["started"];
    let then = ["scrub_finished", "member_failed", "stopped"];
    let server = Server::start(&place, "a b --run-degraded");
    let names = names_of_events(&place);
    for name in first.iter().chain(&then) {
        assert!(names.iter().any(|other| other == name), "{name}: {names:?}");
    }
    assert_eq!(names.last().unwrap(), "started");
    let now = status(&place);
    assert_eq!(now["last_scrub"], scrub);
    assert_eq!(now["balance"], "load");
    let slot = now["members"].as_array().unwrap();
    let slot = slot.iter().find(|slot| slot["slot"] == 1).unwrap();
    let member = place.file("b").display().to_string();
    assert_eq!(slot["was"], *member);
    assert_eq!(slot["failed_because"], "as asked");
    let shown = place.plexum("status nas").out;
    let words = format!("(was {member}: as asked)");
    assert!(shown.contains(&words), "{shown}");
    assert!(shown.contains("Last scrub"), "{shown}");
    let pace = done(&place, "set nas rebuild-min=1M --json");
    assert_eq!(
        pace.objects()[0]["answer"]["rebuild_max_bytes_per_s"],
        7 << 20
    );
    // A server that is killed has kept what it knew by then.
    server.kill();
    let _server = Server::start(&place, "a b --run-degraded --balance round-robin");
    assert_eq!(
        status(&place)["balance"],
        "round-robin",
        "what is said now counts"
    );
    let starts = names_of_events(&place);
    assert_eq!(starts.iter().filter(|name| *name == "started").count(), 3);
    let pace = done(&place, "set nas rebuild=resume --json");
    assert_eq!(
        pace.objects()[0]["answer"]["rebuild_min_bytes_per_s"],
        1 << 20
    );
}

#[test]
fn damage_that_a_scrub_found_is_known_until_one_that_got_through_finds_none() {
    let (place, server) = mirror("restart-damaged");
    server.stop(&place);
    let mut bytes = std::fs::read(place.file("a")).unwrap();
    let at = bytes.len() - (1 << 20);
    bytes[at] ^= 0xff;
    std::fs::write(place.file("a"), bytes).unwrap();
    let server = Server::start(&place, "a b");
    place.plexum("scrub nas --wait");
    assert_eq!(place.plexum("status nas").exit, 1);
    server.stop(&place);
    let server = Server::start(&place, "a b");
    assert_eq!(status(&place)["verdict"], "damaged");
    done(&place, "set nas rebuild=pause");
    done(&place, "scrub nas");
    done(&place, "scrub nas --stop");
    assert_eq!(
        status(&place)["verdict"],
        "damaged",
        "it has not been everywhere"
    );
    done(&place, "set nas rebuild=resume");
    assert_eq!(place.plexum("scrub nas --repair --wait").exit, 1);
    assert_eq!(status(&place)["verdict"], "ok");
    server.stop(&place);
    let _server = Server::start(&place, "a b");
    assert_eq!(status(&place)["verdict"], "ok");
}

#[test]
fn a_volume_is_served_where_nothing_can_be_kept_and_that_is_told() {
    let place = Place::in_memory("restart-unkept");
    done(&place, "create nas --level 1 --member-size 24M a b");
    std::fs::remove_dir_all(place.file("state")).unwrap(); // the change is kept there
    std::fs::write(place.file("state"), "a file in the way").unwrap();
    let started = done(&place, "serve a b --background");
    let all = format!("{}{}", started.out, started.err);
    assert!(all.contains("are not kept for the next start: "), "{all}");
    done(&place, "stop nas");
    std::fs::remove_file(place.file("state")).unwrap();
    done(&place, "serve a b --background");
    let history = place.file("state/plexum/history");
    std::fs::remove_dir_all(&history).unwrap();
    std::fs::write(&history, "a file in the way").unwrap();
    done(&place, "fail nas b");
    let mut looks = 0;
    while !has_finding(&status(&place), "not_kept") {
        looks += 1;
        assert!(looks < 1000, "never told");
    }
    done(&place, "explain not_kept");
    done(&place, "stop nas");
}

#[test]
fn a_dry_run_keeps_nothing_and_the_folder_is_the_users_alone() {
    let place = Place::in_memory("restart-dry");
    done(&place, "create nas --level 1 --member-size 24M a b");
    std::fs::remove_dir_all(place.file("state")).unwrap(); // the change is kept there
    done(&place, "serve a b -n");
    assert!(!place.file("state").exists());
    done(&place, "serve a b --background");
    done(&place, "stop nas");
    let folder = place.file("state/plexum");
    let mode = std::fs::metadata(folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_earlier_servers_said_stays_beside_the_log() {
    let place = Place::in_memory("restart-log");
    done(&place, "create nas --level 1 --member-size 24M a b");
    let log = place.file("plexum/nas.log");
    for text in ["first\n", "second\n"] {
        done(&place, "serve a b --background");
        std::fs::write(&log, text).unwrap();
        done(&place, "stop nas");
    }
    done(&place, "serve a b --background");
    let earlier = std::fs::read_to_string(place.file("plexum/nas.log.1")).unwrap();
    assert_eq!(earlier, "first\nsecond\n");
    done(&place, "stop nas");
}
