//! Settings of a volume that is served: what changes at once, what the members say afterwards, what is refused.

use crate::common::Place;
use crate::common::served::{Server, done, examined, fill_part, status};

fn create_and_serve(place: &Place, words: &str, members: &str) -> Server {
    done(
        place,
        &format!("create nas --member-size 24M {words} {members}"),
    );
    Server::start(place, members)
}

/// What mdadm says about the bitmap of a member: its superblock names one, and the bitmap itself is understood.
fn mdadm_sees_a_bitmap(place: &Place, member: &str) -> bool {
    let text = place.tool("mdadm", &format!("-E {member}")).out;
    assert!(text.contains("Array UUID"), "{text}");
    text.contains("Internal Bitmap")
}

#[test]
fn the_bitmap_is_turned_off_and_on_while_the_volume_is_served() {
    let place = Place::new("settings-bitmap");
    let server = create_and_serve(
        &place,
        "--level 5 --strip 64K --consistency bitmap",
        "a b c",
    );
    fill_part(&place, 1, 0, 1 << 20);
    assert!(status(&place)["bitmap"]["dirty_regions"].as_u64().unwrap() > 0);
    done(&place, "set nas bitmap=none");
    assert_eq!(status(&place)["consistency"], "resync");
    for member in ["a", "b", "c"] {
        assert!(!mdadm_sees_a_bitmap(&place, member), "{member}");
    }
    fill_part(&place, 2, 1 << 20, 1 << 20);
    done(&place, "set nas bitmap=internal bitmap-region=128K");
    assert_eq!(status(&place)["bitmap"]["region_bytes"], 131_072);
    fill_part(&place, 3, 4 << 20, 65_536);
    for member in ["a", "b", "c"] {
        assert!(mdadm_sees_a_bitmap(&place, member), "{member}");
        let set = examined(&place, member, "bitmap", "region_count_set");
        assert!(set.as_u64().unwrap() > 0, "{member}");
    }
    server.stop(&place);
    // Started again after a clean stop, nothing is left to make agree.
    let server = Server::start(&place, "a b c");
    let status = status(&place);
    assert_eq!(status["bitmap"]["doubtful_regions"], 0, "{status}");
    server.stop(&place);
}

#[test]
fn the_stripe_log_is_turned_on_and_off_while_the_volume_is_served() {
    let place = Place::new("settings-log");
    let words = "--level 6 --strip 64K --consistency bitmap";
    let server = create_and_serve(&place, words, "a b c d");
    assert_eq!(status(&place)["consistency"], "bitmap");
    fill_part(&place, 1, 0, 1 << 20);
    done(&place, "set nas consistency=log");
    assert_eq!(status(&place)["consistency"], "log");
    fill_part(&place, 2, 1 << 20, 1 << 20);
    for member in ["a", "b", "c", "d"] {
        let bound = examined(&place, member, "stripe_log", "is_bound");
        assert_eq!(bound, true, "{member}");
    }
    server.stop(&place);
    let server = Server::start(&place, "a b c d");
    assert_eq!(status(&place)["consistency"], "log", "it is on the members");
    done(&place, "set nas consistency=bitmap");
    assert_eq!(status(&place)["consistency"], "bitmap");
    server.stop(&place);
    let server = Server::start(&place, "a b c d");
    assert_eq!(status(&place)["consistency"], "bitmap");
    server.stop(&place);
}

#[test]
fn each_consistency_is_turned_into_the_others_and_kept() {
    let place = Place::new("settings-each");
    let server = create_and_serve(&place, "--level 5 --strip 64K", "a b c");
    let steps = [
        ("consistency=ppl", "ppl"),
        ("consistency=bitmap", "bitmap"),
        ("consistency=ppl", "ppl"),
        ("consistency=resync", "resync"),
        ("consistency=ppl", "ppl"),
        ("consistency=log", "log"),
        ("consistency=log log=write-back", "log"),
    ];
    for (seed, (words, consistency)) in (3..).zip(steps) {
        done(&place, &format!("set nas {words}"));
        assert_eq!(status(&place)["consistency"], consistency, "{words}");
        fill_part(&place, seed, 0, 1 << 20);
        // The stripe log leaves the bitmap as it is.
        if consistency != "log" {
            let has_bitmap = !status(&place)["bitmap"].is_null();
            assert_eq!(has_bitmap, consistency == "bitmap", "{words}");
        }
    }
    assert_eq!(status(&place)["log"]["is_write_back"], true);
    server.stop(&place);
    let server = Server::start(&place, "a b c");
    assert_eq!(
        status(&place)["log"]["is_write_back"],
        true,
        "it is on the members"
    );
    done(&place, "set nas log=write-through");
    assert_eq!(status(&place)["log"]["is_write_back"], false);
    let run = place.plexum("set nas log=sideways");
    assert_eq!(run.exit, 2, "{}", run.err);
    done(&place, "set nas consistency=ppl");
    let run = place.plexum("set nas log=write-back");
    assert_eq!(run.exit, 2, "{}", run.err);
    assert!(
        run.err.contains("only a volume with a stripe log"),
        "{}",
        run.err
    );
    server.stop(&place);
    let server = Server::start(&place, "a b c");
    assert_eq!(status(&place)["consistency"], "ppl");
    server.stop(&place);
}

#[test]
fn mirrors_and_members_without_room_get_no_stripe_log_and_the_reason() {
    let place = Place::new("settings-no-log");
    let server = create_and_serve(&place, "--level 1", "a b");
    let run = place.plexum("set nas consistency=log");
    assert_eq!(run.exit, 2, "{}", run.err);
    assert!(run.err.contains("only RAID-4"), "{}", run.err);
    server.stop(&place);
    let words = "create tail --level 5 --format md-1.0 --member-size 24M e f g";
    let run = place.plexum(words);
    assert_eq!(run.exit, 0, "{}", run.err);
    let said = format!("{}{}", run.out, run.err);
    assert!(said.contains("no stripe log: md 1.0"), "{said}");
}

#[test]
fn what_the_bitmap_cannot_be_is_refused_with_the_way_out() {
    let place = Place::new("settings-refused");
    let server = create_and_serve(&place, "--level 1", "a b c");
    for (words, exit, text) in [
        ("bitmap=maybe", 2, "internal or none"),
        ("bitmap-region=64K", 2, "goes with bitmap=internal"),
        ("bitmap=internal bitmap-region=3K", 2, "power of two"),
        ("bitmap=internal bitmap-region=1M", 4, "bitmap=none"),
    ] {
        let run = place.plexum(&format!("set nas {words}"));
        assert_eq!(run.exit, exit, "{words}: {}", run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
    }
    done(&place, "fail nas c");
    let run = place.plexum("set nas bitmap=none");
    assert_eq!(run.exit, 3, "{}", run.err);
    assert!(
        run.err.contains("degraded") && run.err.contains("plexum add nas"),
        "{}",
        run.err
    );
    server.stop(&place);
    let place = Place::new("settings-stripe");
    let server = create_and_serve(&place, "--level 0", "a b");
    let run = place.plexum("set nas bitmap=internal");
    assert_eq!(run.exit, 2, "{}", run.err);
    server.stop(&place);
}
