//! Volumes of ZFS pools in the daemon: they come and go, share their pool, and are there again after its end.

use super::alarms::{configure_own, wait_for_messages};
use super::common::served::{done, wait_until};
use super::common::{Place, uri};
use super::daemon::{Daemon, names, served};
use super::zfs_pools_are_made::assert_sound;

const MEMBERS: &str = "d/a d/b d/c";

/// A folder with a pool `tank` of three members and its volumes `one` and `two`; nothing is served.
pub(super) fn pool(name: &str) -> Place {
    let place = Place::new(name);
    std::fs::create_dir(place.file("d")).unwrap();
    done(
        &place,
        &format!("pool create tank raidz1 --member-size 96M {MEMBERS}"),
    );
    for volume in ["one", "two"] {
        done(
            &place,
            &format!("pool create-volume tank/{volume} 8M {MEMBERS}"),
        );
    }
    place
}

/// Fills a volume that is served.
pub(super) fn fill(place: &Place, volume: &str, value: u8) -> Vec<u8> {
    let data = vec![value; 8 << 20];
    std::fs::write(place.file("data"), &data).unwrap();
    let uri = uri(place, volume);
    let copy = place.tool("nbdcopy", &format!("--flush data {uri}"));
    assert_eq!(copy.exit, 0, "{}", copy.err);
    data
}

#[track_caller]
pub(super) fn assert_holds(place: &Place, volume: &str, data: &[u8]) {
    let uri = uri(place, volume);
    let copy = place.tool("nbdcopy", &format!("{uri} back"));
    assert_eq!(copy.exit, 0, "{}", copy.err);
    let back = std::fs::read(place.file("back")).unwrap();
    assert!(back == data, "{volume}: other bytes came back");
}

pub(super) fn verdict(place: &Place, volume: &str) -> String {
    let told = place.plexum(&format!("status {volume} --json")).objects();
    told[0]["verdict"].as_str().unwrap_or_default().to_owned()
}

/// How many more members a volume survives the loss of, and how many when none is missing.
fn losses_left(place: &Place, volume: &str) -> (Option<u64>, Option<u64>) {
    let told = place.plexum(&format!("status {volume} --json")).objects();
    let number = |key: &str| told[0][key].as_u64();
    (number("spare_failures"), number("designed_spare_failures"))
}

/// The same, both served by a daemon that waits for nobody at its start and tells what is wrong; what is in `one`.
fn told_pool(name: &str) -> (Place, Daemon, Vec<u8>) {
    let place = pool(name);
    configure_own(&place, "[start]\nwait = \"0s\"\n");
    let daemon = Daemon::start(&place, "");
    done(
        &place,
        &format!("serve --write --dataset tank/one --dataset tank/two {MEMBERS}"),
    );
    let one = fill(&place, "one", 1);
    (place, daemon, one)
}

#[test]
fn volumes_of_a_pool_come_and_go_and_are_there_after_an_end_and_a_kill() {
    let place = pool("daemon-pool");
    let daemon = Daemon::start(&place, "");
    let ready = done(
        &place,
        &format!("serve --write --dataset tank/one {MEMBERS}"),
    );
    assert!(ready.out.contains("one.nbd"), "{}", ready.out);
    // The daemon has the pool: its name is enough.
    done(&place, "serve --write --dataset tank/two");
    assert_eq!(served(&place), ["one", "two"]);
    let (one, two) = (fill(&place, "one", 1), fill(&place, "two", 2));
    done(&place, "stop one");
    assert_eq!(served(&place), ["two"]);
    assert_holds(&place, "two", &two);
    daemon.kill();
    let daemon = Daemon::start(&place, "");
    assert_eq!(served(&place), ["two"], "one was stopped");
    assert_holds(&place, "two", &two);
    done(&place, "serve one");
    assert_holds(&place, "one", &one);
    daemon.end(&place);
    assert_sound(&place);
    let daemon = Daemon::start(&place, "");
    assert!(daemon.said.contains("2 volumes served"), "{}", daemon.said);
    done(&place, "stop one");
    done(&place, "stop two");
    // The last one has left: the pool is free.
    done(&place, &format!("pool check {MEMBERS}"));
    done(&place, &format!("pool snapshot tank/one@first {MEMBERS}"));
    done(&place, "forget one");
    assert_eq!(
        names(&place),
        (vec![], vec![("two".into(), "stopped".into())])
    );
    daemon.end(&place);
    assert_sound(&place);
}

#[test]
fn a_pool_lacks_a_member_and_one_incident_tells_of_it_until_it_is_back() {
    let (place, daemon, one) = told_pool("daemon-pool-lacks");
    assert_eq!(losses_left(&place, "one"), (Some(1), Some(1)));
    daemon.end(&place);
    std::fs::rename(place.file("d/b"), place.file("away")).unwrap();
    let daemon = Daemon::start(&place, "");
    wait_until(&place, "both are served", || served(&place).len() == 2);
    assert_eq!(verdict(&place, "one"), "degraded");
    assert_eq!(losses_left(&place, "one"), (Some(0), Some(1)));
    let told = wait_for_messages(&place, 1);
    let subject = &told[0].subject;
    assert!(
        subject.contains(" tank: ONE MORE FAILURE"),
        "both volumes are one message: {subject}"
    );
    assert_holds(&place, "one", &one);
    let two = fill(&place, "two", 2);
    daemon.end(&place);
    // It has missed what was written meanwhile, and is given it.
    std::fs::rename(place.file("away"), place.file("d/b")).unwrap();
    let daemon = Daemon::start(&place, "");
    wait_until(&place, "it has everything", || {
        verdict(&place, "two") == "ok"
    });
    let told = wait_for_messages(&place, 2);
    assert_eq!((told.len(), &*told[1].kind), (2, "closed"), "{told:?}");
    assert_holds(&place, "two", &two);
    daemon.end(&place);
    assert_sound(&place);
}

#[test]
fn a_member_that_returns_while_its_pool_is_served_is_taken_back_wherever_it_is() {
    let (place, daemon, one) = told_pool("daemon-pool-returns");
    daemon.end(&place);
    let is_whole = || verdict(&place, "one") == "ok" && verdict(&place, "two") == "ok";
    // The first comes back to where it was, the second elsewhere.
    for (member, back, value) in [("d/b", "d/b", 2), ("d/c", "d/z", 3)] {
        std::fs::rename(place.file(member), place.file("away")).unwrap();
        let daemon = Daemon::start(&place, "");
        wait_until(&place, "both are served", || served(&place).len() == 2);
        assert_eq!(verdict(&place, "one"), "degraded");
        let two = fill(&place, "two", value);
        std::fs::rename(place.file("away"), place.file(back)).unwrap();
        wait_until(&place, "it is whole", is_whole);
        let told = done(&place, "events two");
        let path = place.file(back).display().to_string();
        assert!(
            told.out.contains(" is back, and is given what it missed"),
            "{}",
            told.out
        );
        let shown = place.plexum("status two --json").objects();
        let members = shown[0]["members"].to_string();
        assert!(members.contains(&path), "{members}");
        assert_holds(&place, "one", &one);
        assert_holds(&place, "two", &two);
        daemon.end(&place);
        assert_sound(&place);
    }
    // It is relied on: another one is away now.
    std::fs::rename(place.file("d/a"), place.file("away")).unwrap();
    let daemon = Daemon::start(&place, "");
    wait_until(&place, "both are served", || served(&place).len() == 2);
    assert_holds(&place, "one", &one);
    assert_holds(&place, "two", &[3; 8 << 20]);
    daemon.end(&place);
}

#[test]
fn a_pool_that_is_not_there_is_one_message_and_members_that_moved_are_found() {
    let (place, daemon, one) = told_pool("daemon-pool-absent");
    daemon.end(&place);
    std::fs::create_dir(place.file("away")).unwrap();
    for member in ["a", "b", "c"] {
        let from = place.file(&format!("d/{member}"));
        std::fs::rename(from, place.file(&format!("away/{member}"))).unwrap();
    }
    let daemon = Daemon::start(&place, "");
    let told = wait_for_messages(&place, 1);
    let subject = &told[0].subject;
    assert!(subject.contains("tank: IS NOT THERE"), "{subject}");
    for (member, now) in [("a", "x"), ("b", "y"), ("c", "z")] {
        let from = place.file(&format!("away/{member}"));
        std::fs::rename(from, place.file(&format!("d/{now}"))).unwrap();
    }
    wait_until(&place, "both are served", || served(&place).len() == 2);
    assert_eq!(verdict(&place, "one"), "ok");
    assert_holds(&place, "one", &one);
    let told = wait_for_messages(&place, 2);
    assert_eq!((told.len(), &*told[1].kind), (2, "closed"), "{told:?}");
    daemon.end(&place);
    assert_sound(&place);
}

#[test]
fn what_cannot_be_served_of_a_pool_is_refused_and_its_pool_stays_free() {
    let place = pool("daemon-pool-refused");
    done(
        &place,
        "create one --level 1 --member-size 16M m n --assume-clean -y",
    );
    let daemon = Daemon::start(&place, "");
    done(&place, "serve m n");
    let refused = |words: &str, says: &str| {
        let run = place.plexum(&format!("serve {words}"));
        assert!(
            run.exit != 0 && run.err.contains(says),
            "{words}: {}{}",
            run.out,
            run.err
        );
    };
    let before = std::fs::read(place.file("d/a")).unwrap();
    refused(
        &format!("--write --dataset tank/two --dataset tank/two {MEMBERS}"),
        "two of the volumes are called two",
    );
    assert!(
        std::fs::read(place.file("d/a")).unwrap() == before,
        "it was written"
    );
    refused("--dataset tank/two", "its members must be named");
    refused(
        &format!("--write --dataset tank/one {MEMBERS}"),
        "called one",
    );
    refused(&format!("--write --dataset tank/none {MEMBERS}"), "none");
    refused(&format!("--write --dataset lake/three {MEMBERS}"), "lake");
    refused(
        &format!("--write --dataset tank/two --dataset lake/one {MEMBERS}"),
        "lake/one",
    );
    refused(
        &format!("--write --dataset tank/two {MEMBERS} --listen 127.0.0.1:0"),
        "--listen",
    );
    assert_eq!(served(&place), ["one"]);
    done(&place, &format!("pool check {MEMBERS}"));
    // Only read: whoever wants to write has to stop that first.
    done(&place, &format!("serve --dataset tank/two {MEMBERS}"));
    refused(
        &format!("--write --dataset tank/one --name other {MEMBERS}"),
        "open for reading only",
    );
    let act = place.plexum("scrub two");
    assert!(act.exit != 0 && act.err.contains("ZFS pool"), "{}", act.err);
    daemon.end(&place);
    assert_sound(&place);
}

/// Copies from one to the other: files, or volumes that are served.
fn copy(place: &Place, from: &str, to: &str) {
    let run = place.tool("nbdcopy", &format!("--flush {from} {to}"));
    assert_eq!(run.exit, 0, "{from} to {to}: {}", run.err);
}

#[test]
fn arrays_of_each_format_are_copied_into_a_pool_and_back() {
    let place = pool("daemon-pool-copies");
    let daemon = Daemon::start(&place, "");
    done(
        &place,
        &format!("serve --write --dataset tank/one {MEMBERS}"),
    );
    for (name, make, serve) in [
        ("nas", "--level 5 --member-size 4M m0 m1 m2 -y", "m0 m1 m2"),
        (
            "gm0",
            "--level 1 --format gmirror --member-size 4M g0 g1 -y",
            "--write g0 g1",
        ),
        (
            "v",
            "--level 5 --format gvinum --strip 16k --member-size 2M v0 v1 v2 -y",
            "--write v0 v1 v2",
        ),
    ] {
        done(&place, &format!("create {name} {make}"));
        done(&place, &format!("serve {serve}"));
        let told = place.plexum(&format!("status {name} --json")).objects();
        let size = told[0]["size_bytes"].as_u64().unwrap() as usize;
        let data: Vec<u8> = (0..size).map(|n| (n / 512 * 7 + n) as u8).collect();
        std::fs::write(place.file("data"), &data).unwrap();
        copy(&place, "data", &uri(&place, name));
        copy(&place, &uri(&place, name), &uri(&place, "one"));
        done(&place, &format!("stop {name}"));
        // And away from the pool again, onto new members.
        let back = format!("back-{name}");
        done(
            &place,
            &format!("create {back} --level 1 --member-size 16M {name}-x {name}-y -y"),
        );
        done(&place, &format!("serve {name}-x {name}-y"));
        copy(&place, &uri(&place, "one"), &uri(&place, &back));
        copy(&place, &uri(&place, &back), "back");
        let there = std::fs::read(place.file("back")).unwrap();
        assert!(there[..size] == data, "{name}: other bytes came back");
        done(&place, &format!("stop {back}"));
    }
    daemon.end(&place);
    assert_sound(&place);
}
