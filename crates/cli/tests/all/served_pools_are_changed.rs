//! Words of `plexum pool` on a pool whose volumes are served: the server makes the change while clients go on.

use super::common::served::{done, wait_until};
use super::common::{Place, Run, uri};
use super::daemon::{Daemon, names, served};
use super::daemon_has_pools::{assert_holds, fill, pool, verdict};
use super::zfs_pools_are_made::assert_sound;

/// The pool `tank` on `members`, and a daemon that serves `one` of it.
fn serve_one(name: &str) -> (Place, Daemon, Vec<u8>) {
    let place = pool(name);
    let daemon = Daemon::start(&place, "");
    done(&place, "serve --write --dataset tank/one d/a d/b d/c");
    let one = fill(&place, "one", 1);
    (place, daemon, one)
}

/// A word that is refused: what it says.
#[track_caller]
fn refused(place: &Place, words: &str, exit: i32) -> String {
    let run: Run = place.plexum(words);
    assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
    run.err
}

#[test]
fn snapshots_and_volumes_of_a_served_pool_are_made_and_what_is_served_stays_what_it_is() {
    let (place, daemon, one) = serve_one("served-pool-snapshots");
    let plan = done(&place, "pool snapshot -n tank/one@first").out;
    assert!(plan.contains("tank/one@first: taken"), "{plan}");
    done(&place, "pool snapshot --why trial tank/one@first");
    let said = refused(&place, "pool snapshot tank/one@first", 4);
    assert!(said.contains("is there already"), "{said}");
    let events = done(&place, "events one").out;
    let asked = "asked: pool snapshot tank/one@first (why: trial)";
    assert!(events.contains(asked), "{events}");
    let two = fill(&place, "one", 2);
    done(&place, "pool clone tank/one@first tank/copy");
    let made = done(&place, "pool create-volume tank/new 1M").out;
    assert!(made.contains("blocks of 16K"), "{made}");
    for words in [
        "pool rollback --yes --force tank/one@first",
        "pool rollback -n --force tank/one@first",
        "pool destroy-volume --yes --force tank/one",
        "pool rename tank/one tank/other",
        "pool resize --yes --shrink tank/one 1M",
        "pool resize tank/one 1M",
    ] {
        let said = refused(&place, words, 4);
        assert!(said.contains("tank/one is served"), "{words}: {said}");
        assert!(said.contains("plexum stop one"), "{words}: {said}");
    }
    done(&place, "serve --write --dataset tank/copy");
    assert_holds(&place, "copy", &one);
    assert_holds(&place, "one", &two);
    let said = refused(&place, "pool destroy-snapshot tank/one@first", 3);
    assert!(said.contains("the snapshot would be lost"), "{said}");
    // What is not served is changed, what is served no more too.
    done(&place, "pool rename tank/new tank/newer");
    done(&place, "pool resize tank/newer 2M");
    done(&place, "pool destroy-volume --yes --force tank/newer");
    done(&place, "stop one");
    done(&place, "pool rollback --yes --force tank/one@first");
    done(&place, "serve --write --dataset tank/one");
    assert_holds(&place, "one", &one);
    daemon.end(&place);
    assert_sound(&place);
}

#[test]
fn a_volume_of_a_pool_becomes_larger_while_it_is_served() {
    let (place, daemon, mut one) = serve_one("served-pool-grows");
    let size = || done(&place, "status one --json").objects()[0]["size_bytes"].as_u64();
    done(&place, "pool resize -n tank/one 24M");
    assert_eq!(size(), Some(8 << 20), "only a plan");
    done(&place, "pool resize tank/one 24M");
    assert_eq!(size(), Some(24 << 20));
    one.resize(24 << 20, 0);
    assert_holds(&place, "one", &one);
    one.fill(3);
    std::fs::write(place.file("data"), &one).unwrap();
    let copy = place.tool("nbdcopy", &format!("--flush data {}", uri(&place, "one")));
    assert_eq!(copy.exit, 0, "{}", copy.err);
    daemon.end(&place);
    assert_sound(&place);
    let daemon = Daemon::start(&place, "");
    wait_until(&place, "it is served again", || {
        served(&place).contains(&"one".to_owned())
    });
    assert_holds(&place, "one", &one);
    assert_eq!(size(), Some(24 << 20));
    daemon.end(&place);
}

#[test]
fn a_member_of_a_served_pool_is_replaced_and_the_next_start_looks_for_the_new_one() {
    let (place, daemon, _) = serve_one("served-pool-replace");
    let said = refused(&place, "pool replace d/b d/tiny tank --member-size 64M", 4);
    assert!(said.contains("too small"), "{said}");
    assert!(!place.file("d/tiny").exists(), "it was made for nothing");
    for file in ["f1", "f2"] {
        let file = std::fs::File::create(place.file(file)).unwrap();
        file.set_len(96 << 20).unwrap();
    }
    done(&place, "create full --level raid1 --size 8M f1 f2");
    let said = refused(&place, "pool replace d/b f1 tank", 3);
    assert!(said.contains("is not empty"), "{said}");
    let plan = done(&place, "pool replace -n d/b d/new tank --member-size 96M").out;
    assert!(
        plan.contains("d/new is a member in the place of d/b"),
        "{plan}"
    );
    assert!(!place.file("d/new").exists(), "a dry run makes nothing");
    let told = done(&place, "pool replace d/b d/new tank --member-size 96M").out;
    assert!(told.contains("begun"), "{told}");
    let two = fill(&place, "one", 2);
    let is_replaced = || {
        done(&place, "events one")
            .out
            .contains("is a member in the place of")
    };
    wait_until(&place, "it is replaced", is_replaced);
    assert_eq!(verdict(&place, "one"), "ok");
    let members = place.plexum("status one --json").objects()[0]["members"].to_string();
    assert!(
        members.contains("/d/new") && !members.contains("/d/b"),
        "{members}"
    );
    let shown = done(&place, "pool status tank").out;
    assert!(shown.contains("whole"), "{shown}");
    // A new start serves it without the old one, and at once.
    daemon.end(&place);
    std::fs::rename(place.file("d/b"), place.file("gone")).unwrap();
    let daemon = Daemon::start(&place, "");
    wait_until(&place, "it is served", || served(&place).len() == 1);
    assert_eq!(verdict(&place, "one"), "ok");
    assert_holds(&place, "one", &two);
    daemon.end(&place);
    std::fs::rename(place.file("d/new"), place.file("d/b")).unwrap();
    assert_sound(&place);
}

#[test]
fn members_of_a_served_pool_go_offline_come_back_and_get_company() {
    let place = Place::new("served-pool-sides");
    std::fs::create_dir(place.file("d")).unwrap();
    done(&place, "pool create tank --member-size 96M d/a");
    done(&place, "pool create-volume tank/one 8M d/a");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve --write --dataset tank/one d/a");
    fill(&place, "one", 1);
    done(&place, "pool attach d/a d/b tank --member-size 96M");
    let is_whole =
        || verdict(&place, "one") == "ok" && done(&place, "status one").out.contains("mirror");
    wait_until(&place, "the new side has everything", is_whole);
    done(&place, "pool offline d/a tank");
    assert_eq!(verdict(&place, "one"), "degraded");
    let two = fill(&place, "one", 2);
    let said = refused(&place, "pool detach d/b tank", 4);
    assert!(
        said.contains("no other side of its mirror is whole"),
        "{said}"
    );
    done(&place, "pool online d/a tank");
    wait_until(&place, "it has what it missed", is_whole);
    done(&place, "pool detach d/a tank");
    done(&place, "pool scrub --repair tank");
    wait_until(&place, "all is read", || {
        done(&place, "events one").out.contains("scrubbed: ")
    });
    done(&place, "pool add d/c --to tank --member-size 96M");
    daemon.end(&place);
    // Who was detached is not waited for, and who was added is.
    let daemon = Daemon::start(&place, "");
    wait_until(&place, "it is served", || served(&place).len() == 1);
    assert_holds(&place, "one", &two);
    daemon.end(&place);
    std::fs::rename(place.file("d/a"), place.file("gone")).unwrap();
    assert_sound(&place);
}

#[test]
fn whose_pool_is_meant_is_said_in_one_line() {
    let place = pool("served-pool-whose");
    let said = refused(&place, "pool snapshot tank/one@x", 7);
    assert!(said.contains("no server has a pool tank"), "{said}");
    let said = refused(&place, "pool status nothing", 7);
    assert!(said.contains("no server has a pool nothing"), "{said}");
    let daemon = Daemon::start(&place, "");
    done(&place, "serve --dataset tank/one d/a d/b d/c");
    let said = refused(&place, "pool snapshot tank/one@x", 3);
    assert!(said.contains("open for reading only"), "{said}");
    let said = refused(&place, "pool scrub --repair d/a d/b d/c", 6);
    assert!(said.contains("in use"), "{said}");
    assert_eq!(names(&place).0, ["one"]);
    let said = refused(&place, "pool status tank", 3);
    assert!(said.contains("open for reading only"), "{said}");
    daemon.end(&place);
}
