//! The daemon knows members by what is on them: disks get other names, come late, or missed writes.

use std::fs;

use serde_json::Value;

use super::common::Place;
use super::common::served::{done, wait_until};
use super::daemon::{Daemon, names, served, two_sets};

/// The daemon served both sets once, and has ended.
fn known(name: &str) -> Place {
    let place = two_sets(name);
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "serve c d e");
    daemon.end(&place);
    place
}

fn rename(place: &Place, from: &str, to: &str) {
    fs::rename(place.file(from), place.file(to)).unwrap();
}

/// Names of the files that are members of a volume now, by slot.
fn members(place: &Place, volume: &str) -> Vec<String> {
    let status = done(place, &format!("status {volume} --json"))
        .objects()
        .remove(0);
    let members = status["members"].as_array().unwrap();
    let name = |member: &Value| {
        let path = member["path"].as_str().unwrap();
        path.rsplit('/').next().unwrap().to_owned()
    };
    members.iter().map(name).collect()
}

/// What is told of a volume that is not served.
fn waiting(place: &Place, volume: &str) -> Value {
    let told = place.plexum("status --json").objects();
    let mut waiting = told.into_iter().filter(|one| one["kind"] == "waiting");
    waiting.find(|one| one["volume"] == volume).unwrap()
}

fn qemu_io(place: &Place, volume: &str, command: &str) -> bool {
    let uri = super::common::uri(place, volume);
    let run = place
        .command("qemu-io")
        .args(["-f", "raw", "-c", command, &uri])
        .output();
    run.unwrap().status.success()
}

#[test]
fn members_that_changed_their_names_are_found_at_the_next_start() {
    let place = known("finds-names");
    // Two have changed places, one is elsewhere, and where it was is a disk of another set.
    for (from, to) in [("a", "x"), ("b", "a"), ("x", "b"), ("d", "z"), ("e", "y")] {
        rename(&place, from, to);
    }
    fs::copy(place.file("a"), place.file("d")).unwrap();
    let daemon = Daemon::start(&place, "--degraded never");
    assert_eq!(served(&place), ["nas", "vault"]);
    assert_eq!(members(&place, "nas"), ["b", "a"]);
    assert_eq!(members(&place, "vault"), ["c", "z", "y"]);
    daemon.end(&place);
    // And from there to somewhere else.
    rename(&place, "z", "w");
    let _daemon = Daemon::start(&place, "--degraded never");
    assert_eq!(members(&place, "vault"), ["c", "w", "y"]);
}

#[test]
fn a_late_member_completes_its_volume_by_any_name_and_a_running_one_gets_its_own_back() {
    let place = known("finds-late");
    rename(&place, "b", "away");
    rename(&place, "d", "gone");
    fs::create_dir(place.file("elsewhere")).unwrap();
    for name in ["away", "gone"] {
        rename(&place, name, &format!("elsewhere/{name}"));
    }
    let daemon = Daemon::start(&place, "--degraded never");
    assert_eq!(served(&place), [""; 0]);
    rename(&place, "elsewhere/gone", "late");
    wait_until(&place, "the late member completes its volume", || {
        served(&place) == ["vault"]
    });
    assert_eq!(members(&place, "vault"), ["c", "late", "e"]);
    daemon.end(&place);
    let _daemon = Daemon::start(&place, "--wait 0");
    wait_until(&place, "the other one starts without its member", || {
        served(&place) == ["nas", "vault"]
    });
    assert!(qemu_io(&place, "nas", "write -P 9 0 64k"));
    rename(&place, "elsewhere/away", "back");
    wait_until(&place, "the member is back and complete", || {
        let status = place.plexum("status nas --json").objects().remove(0);
        status["verdict"] == "ok" && status["jobs"].as_array().unwrap().is_empty()
    });
    assert_eq!(members(&place, "nas"), ["a", "back"]);
}

#[test]
fn of_two_copies_of_a_lost_member_none_is_taken_and_they_are_named() {
    let place = known("finds-copies");
    for member in ["a", "b"] {
        fs::copy(place.file(member), place.file(&format!("{member}.one"))).unwrap();
        rename(&place, member, &format!("{member}.two"));
    }
    let daemon = Daemon::start(&place, "--wait 0");
    assert_eq!(served(&place), ["vault"]);
    let told = waiting(&place, "nas")["problem"].to_string();
    assert!(
        told.contains("a.one") && told.contains("same member"),
        "{told}"
    );
    for member in ["a", "b"] {
        fs::remove_file(place.file(&format!("{member}.one"))).unwrap();
    }
    wait_until(&place, "one of each is left", || {
        served(&place) == ["nas", "vault"]
    });
    drop(daemon);
}

#[test]
fn those_who_missed_writes_are_not_started_alone_while_the_newer_are_away() {
    let place = known("finds-newer");
    fs::create_dir(place.file("elsewhere")).unwrap();
    rename(&place, "b", "elsewhere/b");
    let daemon = Daemon::start(&place, "--wait 0");
    wait_until(&place, "nas goes on with a alone", || {
        served(&place).len() == 2
    });
    assert!(qemu_io(&place, "nas", "write -P 9 0 64k"));
    let folder = place.file("state/plexum/volumes");
    wait_until(&place, "it is known that b is behind", || {
        let files = fs::read_dir(&folder).unwrap().flatten();
        let mut texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
        served(&place).len() == 2 && texts.any(|text| text.contains("is_behind"))
    });
    daemon.kill();
    // Next time b is there and a is not.
    rename(&place, "a", "elsewhere/a");
    rename(&place, "elsewhere/b", "b");
    let daemon = Daemon::start(&place, "--wait 0");
    assert_eq!(served(&place), ["vault"]);
    let told = waiting(&place, "nas")["problem"].to_string();
    assert!(told.contains("newer data"), "{told}");
    daemon.end(&place);
    let daemon = Daemon::start(&place, "--wait 0 --degraded always");
    assert_eq!(
        served(&place),
        ["nas", "vault"],
        "that is what always means"
    );
    drop(daemon);
}

#[test]
fn a_volume_that_was_not_stopped_cleanly_and_lacks_a_member_starts_by_itself_only_if_always() {
    let place = Place::in_memory("finds-always");
    done(
        &place,
        "create vault --level 5 --consistency resync --member-size 16M c d e --assume-clean -y",
    );
    let daemon = Daemon::start(&place, "");
    done(&place, "serve c d e");
    assert!(qemu_io(&place, "vault", "write -P 9 0 64k"));
    daemon.kill();
    fs::remove_file(place.file("d")).unwrap();
    let daemon = Daemon::start(&place, "--wait 0");
    assert_eq!(served(&place), [""; 0]);
    let told = waiting(&place, "vault")["problem"].to_string();
    assert!(told.contains("not stopped cleanly"), "{told}");
    daemon.end(&place);
    let _daemon = Daemon::start(&place, "--wait 0 --degraded always");
    assert_eq!(served(&place), ["vault"]);
}

#[test]
fn two_volumes_of_one_name_are_told_apart() {
    let place = two_sets("finds-names-twice");
    done(
        &place,
        "create nas --level 1 --member-size 16M f g --assume-clean -y",
    );
    let daemon = Daemon::start(&place, "");
    done(&place, "serve a b");
    done(&place, "stop nas");
    done(&place, "serve f g");
    assert_eq!(members(&place, "nas"), ["f", "g"]);
    assert_eq!(names(&place).1, [("nas".to_owned(), "stopped".to_owned())]);
    let first = waiting(&place, "nas")["uuid"].as_str().unwrap().to_owned();
    daemon.end(&place);
    let _daemon = Daemon::start(&place, "");
    assert_eq!(
        members(&place, "nas"),
        ["f", "g"],
        "the one that was stopped stays so"
    );
    // The one that is served is stopped, the other one is forgotten.
    done(&place, "stop nas");
    let both = place.plexum("forget nas");
    assert_eq!(both.exit, 2, "{}", both.err);
    assert!(both.err.contains(&first), "{}", both.err);
    done(&place, &format!("forget {first}"));
    done(&place, "serve nas");
    assert_eq!(members(&place, "nas"), ["f", "g"]);
    assert_eq!(names(&place).1, []);
}

#[test]
fn udev_is_told_of_the_daemons_sets_until_they_are_forgotten_and_of_nothing_else() {
    let place = two_sets("finds-udev");
    let told = |member: &str| done(&place, &format!("udev-claim {member}")).out;
    let daemon = Daemon::start(&place, "");
    assert_eq!(told("a"), "");
    done(&place, "serve a b");
    let lines = told("a");
    assert!(lines.starts_with("ID_FS_TYPE=plexum_member\n"), "{lines}");
    assert!(lines.contains("PLEXUM_VOLUME=\"nas\"\n"), "{lines}");
    assert_eq!(told("c"), "", "nobody gave it that one");
    assert_eq!(told("not-there"), "");
    let list = fs::read_to_string(place.file("state/plexum/claims")).unwrap();
    assert!(
        list.ends_with(" nas\n") && list.lines().count() == 1,
        "{list}"
    );
    done(&place, "stop nas");
    daemon.end(&place);
    assert_ne!(told("a"), "", "also while it is stopped and no daemon runs");
    let _daemon = Daemon::start(&place, "");
    done(&place, "forget nas");
    assert_eq!(told("a"), "");
    assert_eq!(
        fs::read_to_string(place.file("state/plexum/claims")).unwrap(),
        ""
    );
}
