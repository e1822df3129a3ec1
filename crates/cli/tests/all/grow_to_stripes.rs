//! A RAID-0 gets redundancy under its clients, and an array with redundancy becomes a RAID-0.

use super::common::Place;
use super::common::served::{Server, content, done, fill, size_bytes, status, wait_until};
use plexum_oracle::pattern_bytes;

const SEED: u64 = 0x5eed_0041;

/// A folder with an array `nas` of so many members with content, served; and two more files.
fn array(name: &str, words: &str, count: usize) -> (Place, Server) {
    let place = Place::in_memory(name);
    let members: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    let members = members.join(" ");
    done(
        &place,
        &format!("create nas {words} --member-size 8M {members} -y"),
    );
    let server = Server::start(&place, &members);
    fill(&place, SEED);
    for more in ["n0", "n1", "n2"] {
        std::fs::write(place.file(more), vec![0; 8 << 20]).unwrap();
    }
    (place, server)
}

fn refused(place: &Place, words: &str, what: &str) {
    let run = place.plexum(words);
    assert_ne!(run.exit, 0, "{words}: {}", run.out);
    assert!(run.err.contains(what), "{words}: {}", run.err);
}

fn is(place: &Place, level: &str, slots: usize, verdict: &str) {
    let told = status(place);
    assert_eq!(told["level"], level, "{told}");
    assert_eq!(told["slots"], slots, "{told}");
    assert_eq!(told["verdict"], verdict, "{told}");
}

fn check(place: &Place) {
    let there = content(place);
    assert!(there == pattern_bytes(SEED, 0, there.len()));
}

/// All members are complete, as soon as that is so.
fn filled(place: &Place) {
    wait_until(place, "its new members are filled", || {
        status(place)["verdict"] == "ok"
    });
}

#[test]
fn a_raid0_becomes_a_raid5_and_its_new_member_is_filled() {
    let (place, server) = array("stripes-to-5", "--level 0 --strip 64K", 3);
    let size = size_bytes(&place);
    refused(&place, "grow nas --level 5", "needs 1 more member");
    refused(&place, "grow nas --level 6 --add n0", "by way of a raid5");
    refused(
        &place,
        "grow nas --level 5 --layout left-symmetric --add n0",
        "at first, where nothing moves",
    );
    place.sparse("small", 7 << 20);
    refused(&place, "grow nas --level 5 --add small", "needed");
    let shown = done(&place, "grow nas --level 5 --add n0 --dry-run");
    assert!(shown.out.contains("parity-last"), "{}", shown.out);
    assert!(shown.out.contains("filled"), "{}", shown.out);
    let blank = std::fs::read(place.file("n0")).unwrap();
    assert!(blank.iter().all(|byte| *byte == 0), "nothing is written");
    is(&place, "raid0", 3, "ok");
    done(&place, "grow nas --level 5 --add n0");
    filled(&place);
    is(&place, "raid5", 4, "ok");
    assert_eq!(size_bytes(&place), size);
    check(&place);
    done(&place, "fail nas m1");
    check(&place);
    server.stop(&place);
    let server = Server::start(&place, "m0 m2 n0");
    is(&place, "raid5", 4, "degraded");
    check(&place);
    server.stop(&place);
}

#[test]
fn a_raid0_becomes_a_raid4_whose_rows_move_when_its_parity_is_there() {
    let (place, server) = array("stripes-to-4", "--level 0 --strip 16K", 2);
    done(&place, "grow nas --level 4 --add n0");
    filled(&place);
    is(&place, "raid4", 3, "ok");
    check(&place);
    done(&place, "grow nas --level 5 --layout left-symmetric");
    wait_until(&place, "rows lie where they are wished", || {
        status(&place)["layout"] == "left-symmetric" && status(&place)["verdict"] == "ok"
    });
    check(&place);
    done(&place, "fail nas m0");
    check(&place);
    server.stop(&place);
}

#[test]
fn members_of_two_sizes_are_refused_by_name() {
    let place = Place::in_memory("stripes-uneven");
    place.sparse("m0", 8 << 20);
    place.sparse("m1", 12 << 20);
    done(&place, "create nas --level 0 --strip 64K m0 m1 -y");
    let server = Server::start(&place, "m0 m1");
    place.sparse("n0", 12 << 20);
    refused(
        &place,
        "grow nas --level 5 --add n0",
        "behind the smallest one's end",
    );
    is(&place, "raid0", 2, "ok");
    server.stop(&place);
}

/// Members that are in, by file.
fn members(place: &Place) -> Vec<String> {
    let told = status(place);
    let members = told["members"].as_array().unwrap().iter();
    let paths = members.filter_map(|member| member["path"].as_str());
    paths
        .map(|path| path.rsplit('/').next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_raid5_with_its_parity_last_becomes_a_raid0_and_lets_go_of_it() {
    let words = "--level 5 --layout parity-last --strip 64K --consistency bitmap";
    let (place, server) = array("stripes-from-5", words, 4);
    let size = size_bytes(&place);
    done(&place, "add nas n0");
    refused(&place, "grow nas --level 0", "no spares");
    done(&place, "remove nas n0");
    let shown = done(&place, "grow nas --level 0 --dry-run");
    assert!(shown.out.contains("m3 is let go of"), "{}", shown.out);
    is(&place, "raid5", 4, "ok");
    assert!(status(&place)["bitmap"].is_object());
    let said = done(&place, "grow nas --level 0");
    assert!(said.out.contains("it is raid0 of 3"), "{}", said.out);
    assert_eq!(status(&place)["level"], "raid0");
    assert_eq!(members(&place), ["m0", "m1", "m2"]);
    assert_eq!(size_bytes(&place), size);
    check(&place);
    server.stop(&place);
    let server = Server::start(&place, "m0 m1 m2");
    check(&place);
    done(&place, "grow nas --level 5 --add n1");
    filled(&place);
    done(&place, "fail nas m2");
    check(&place);
    server.stop(&place);
}

#[test]
fn a_raid5_that_lacks_its_parity_becomes_a_raid0_and_one_that_lacks_data_does_not() {
    let (place, server) = array(
        "stripes-lacking",
        "--level 4 --strip 64K --consistency bitmap",
        3,
    );
    done(&place, "fail nas m1");
    refused(&place, "grow nas --level 0", "missing");
    done(&place, "remove nas m1");
    done(&place, "add nas n0");
    filled(&place);
    done(&place, "fail nas m2");
    done(&place, "grow nas --level 0");
    assert_eq!(status(&place)["level"], "raid0");
    check(&place);
    server.stop(&place);
}

#[test]
fn a_raid5_of_another_layout_becomes_a_raid0_when_its_rows_have_moved_also_by_the_next_server() {
    let (place, server) = array("stripes-moved", "--level 5 --strip 64K --size 6M", 4);
    let size = size_bytes(&place);
    done(&place, "set nas rebuild-min=1M rebuild-max=1M");
    done(&place, "grow nas --level 0");
    wait_until(&place, "some has moved", || {
        status(&place)["jobs"][0]["done_bytes"].as_u64() > Some(2 << 20)
    });
    server.kill();
    let server = Server::start(&place, "m0 m1 m2 m3");
    done(&place, "set nas rebuild-max=0");
    wait_until(&place, "it is a RAID-0", || {
        status(&place)["level"] == "raid0"
    });
    assert_eq!(members(&place), ["m0", "m1", "m2"]);
    assert_eq!(size_bytes(&place), size);
    check(&place);
    server.stop(&place);
    let server = Server::start(&place, "m0 m1 m2");
    check(&place);
    server.stop(&place);
}

#[test]
fn a_raid0_becomes_a_raid10_and_a_raid0_again() {
    let (place, server) = array("stripes-to-10", "--level 0 --strip 64K", 3);
    let size = size_bytes(&place);
    refused(
        &place,
        "grow nas --level 10 --add n0",
        "needs 2 more members",
    );
    done(&place, "grow nas --level 10 --add n0 n1 n2");
    filled(&place);
    is(&place, "raid10", 6, "ok");
    assert_eq!(size_bytes(&place), size);
    check(&place);
    for member in ["m0", "m2"] {
        done(&place, &format!("fail nas {member}"));
    }
    check(&place);
    done(&place, "grow nas --level 0");
    assert_eq!(status(&place)["level"], "raid0");
    assert_eq!(status(&place)["slots"], 3);
    check(&place);
    server.stop(&place);
}

#[test]
fn a_mirror_of_two_becomes_a_raid10_and_a_mirror_again() {
    let (place, server) = array("stripes-mirror", "--level 1 --consistency bitmap", 2);
    let size = size_bytes(&place);
    refused(
        &place,
        "grow nas --level 10 --members 4 --add n0 n1",
        "at first, where nothing moves",
    );
    refused(&place, "grow nas --level 0", "does not become raid0");
    done(&place, "grow nas --level 10");
    is(&place, "raid10", 2, "ok");
    assert!(status(&place)["bitmap"].is_object(), "it stays");
    assert_eq!(size_bytes(&place), size);
    check(&place);
    done(&place, "grow nas --level 1");
    is(&place, "raid1", 2, "ok");
    check(&place);
    server.stop(&place);
}
