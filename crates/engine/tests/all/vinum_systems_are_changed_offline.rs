//! Changes of a Vinum system that nobody serves: each is whole or refused, and touches what it names alone.

use crate::common::vinum::{drives, system};
use plexum_format::vinum::{Config, Plex, PlexState, Subdisk, SubdiskState};
use plexum_freebsd::gvinum::edit::{
    Depth, Force, attach, detach, grow, move_subdisk, remove, rename, set_state,
};

const SIZE: usize = 135_680 + 256 * 1024;

fn config(text: &str) -> Config {
    system(&drives(text, SIZE)).config
}

/// Drives `a`, `b`, ... and a volume `v` with these plexes: organisation, and lengths of subdisks, one on each drive.
fn with(plexes: &[(&str, &[&str])]) -> Config {
    let names = ["a", "b", "c", "d"];
    let mut text = String::new();
    for name in names {
        text += &format!("drive {name} device /dev/{name}\n");
    }
    text += "volume v\n";
    for (organisation, lengths) in plexes {
        text += &format!("plex org {organisation}\n");
        for (name, length) in names.iter().zip(*lengths) {
            text += &format!("sd length {length} drive {name}\n");
        }
    }
    config(&text)
}

fn subdisk<'a>(config: &'a Config, name: &str) -> &'a Subdisk {
    config
        .subdisks
        .iter()
        .find(|subdisk| subdisk.name == name)
        .unwrap()
}

fn plex<'a>(config: &'a Config, name: &str) -> &'a Plex {
    config.plexes.iter().find(|plex| plex.name == name).unwrap()
}

fn state(config: &Config, name: &str) -> SubdiskState {
    subdisk(config, name).state
}

#[test]
fn names_have_one_to_63_visible_letters() {
    let before = with(&[("concat", &["64k"])]);
    for (name, is_fine) in [
        ("w".to_owned(), true),
        ("w".repeat(63), true),
        ("w".repeat(64), false),
        (String::new(), false),
        ("a b".to_owned(), false),
        ("\u{e4}".to_owned(), false),
        ("a#b".to_owned(), true),
        ("#b".to_owned(), false), // a comment for whoever reads it
        ("../x".to_owned(), false),
        ("a\\b".to_owned(), false),
    ] {
        let mut config = before.clone();
        let result = rename(&mut config, "v", &name, Depth::One);
        assert_eq!(result.is_ok(), is_fine, "{name:?}: {result:?}");
        assert_eq!(config == before, !is_fine, "{name:?}");
    }
}

#[test]
fn a_subdisk_that_is_removed_takes_no_other_with_it() {
    let mut config = with(&[("concat", &["64k", "64k"])]);
    let refused = remove(&mut config, "v.p0.s1", Depth::One).unwrap_err();
    assert_eq!(refused, "v.p0.s1 is part of v.p0; detach it first");
    detach(&mut config, "v.p0.s1", Force::Yes).unwrap();
    assert_eq!(subdisk(&config, "v.p0.s1").plex, None);
    assert!(
        subdisk(&config, "v.p0.s0").plex.is_some(),
        "the other one stays"
    );
    assert_eq!(
        detach(&mut config, "v.p0.s1", Force::Yes).unwrap_err(),
        "v.p0.s1 is detached already"
    );
    remove(&mut config, "v.p0.s1", Depth::One).unwrap();
    let left: Vec<&str> = config
        .subdisks
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(left, ["v.p0.s0"]);
    assert!(
        remove(&mut config, "v.p0.s1", Depth::One).is_err(),
        "it is gone"
    );
}

#[test]
fn a_plex_that_is_removed_takes_its_own_subdisks_with_it() {
    let mut config = with(&[("concat", &["64k", "64k"]), ("concat", &["64k", "64k"])]);
    detach(&mut config, "v.p1", Force::Yes).unwrap();
    assert!(
        remove(&mut config, "v.p1", Depth::One).is_err(),
        "it has subdisks"
    );
    remove(&mut config, "v.p1", Depth::All).unwrap();
    let mut left: Vec<&str> = config
        .subdisks
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    left.sort_unstable();
    assert_eq!(left, ["v.p0.s0", "v.p0.s1"]);
}

#[test]
fn up_is_a_word_only_where_nothing_else_holds_the_data() {
    use SubdiskState::{Down, Stale, Up};
    let one: &[(&str, &[&str])] = &[("concat", &["64k", "64k"])];
    let two: &[(&str, &[&str])] = &[("concat", &["64k"]), ("concat", &["64k"])];
    let parity: &[(&str, &[&str])] = &[("raid5 1k", &["64k", "64k", "64k"])];
    for (plexes, is_fine) in [(one, true), (two, false), (parity, false)] {
        let mut config = with(plexes);
        let refused = set_state(&mut config, "v.p0.s0", Down, Force::No).unwrap_err();
        assert!(refused.contains("would not be right"), "{refused}");
        set_state(&mut config, "v.p0.s0", Up, Force::No).unwrap(); // as it was
        for word in [Down, Stale] {
            set_state(&mut config, "v.p0.s0", word, Force::Yes).unwrap();
            assert_eq!(state(&config, "v.p0.s0"), word);
            let result = set_state(&mut config, "v.p0.s0", Up, Force::No);
            assert_eq!(result.is_ok(), is_fine, "{plexes:?}: {result:?}");
            set_state(&mut config, "v.p0.s0", Up, Force::Yes).unwrap();
        }
    }
    let mut config = with(one);
    let refused = set_state(&mut config, "v.p0.s0", SubdiskState::Reviving, Force::Yes);
    assert!(refused.unwrap_err().contains("by the system only"));
}

#[test]
fn what_moves_is_left_alone_and_the_rest_is_not() {
    let mut config = with(&[("striped 1k", &["64k", "64k"])]);
    grow(&mut config, "v.p0", "c", SIZE as u64, None).unwrap();
    for name in ["v.p0.s0", "v.p0.s1", "v.p0.s2"] {
        let refused = set_state(&mut config, name, SubdiskState::Down, Force::Yes).unwrap_err();
        assert_eq!(
            refused,
            "v.p0 is growing: serve it with --write until that has ended"
        );
        let refused = move_subdisk(&mut config, name, "d", SIZE as u64, Force::Yes).unwrap_err();
        assert!(refused.contains("is growing"), "{refused}");
    }
    let mut other = with(&[("striped 1k", &["64k", "64k"]), ("concat", &["64k"])]);
    detach(&mut other, "v.p1", Force::Yes).unwrap();
    grow(&mut other, "v.p0", "c", SIZE as u64, None).unwrap();
    set_state(&mut other, "v.p1.s0", SubdiskState::Down, Force::Yes).unwrap();
    assert!(
        attach(&mut other, "v.p1", "v", None).is_err(),
        "v has a plex that grows"
    );
}

#[test]
fn a_subdisk_is_attached_where_no_other_one_is() {
    let before = with(&[("concat", &["64k", "64k"])]);
    let free = {
        let mut config = before.clone();
        detach(&mut config, "v.p0.s1", Force::Yes).unwrap();
        config
    };
    let kib = 1024;
    for (offset, place) in [
        (None, Some(64 * kib)), // behind the last one
        (Some(64 * kib), Some(64 * kib)),
        (Some(128 * kib), Some(128 * kib)),
        (Some(63 * kib), None),
        (Some(0), None),
    ] {
        let mut config = free.clone();
        let result = attach(&mut config, "v.p0.s1", "v.p0", offset);
        assert_eq!(result.is_ok(), place.is_some(), "{offset:?}: {result:?}");
        let on = subdisk(&config, "v.p0.s1").plex.clone();
        assert_eq!(on.map(|(_, offset)| offset), place);
        if place.is_some() {
            assert_eq!(state(&config, "v.p0.s1"), SubdiskState::Stale);
        }
    }
    // In front of one that begins later, as long as it ends there.
    let mut config = free.clone();
    attach(&mut config, "v.p0.s1", "v.p0", Some(128 * kib)).unwrap();
    detach(&mut config, "v.p0.s0", Force::Yes).unwrap();
    let mut again = config.clone();
    assert!(
        attach(&mut again, "v.p0.s0", "v.p0", Some(65 * kib)).is_err(),
        "too long"
    );
    attach(&mut config, "v.p0.s0", "v.p0", Some(64 * kib)).unwrap();
}

#[test]
fn a_striped_place_is_a_column_and_taken_or_not() {
    let mut config = with(&[("striped 1k", &["64k", "64k"])]);
    detach(&mut config, "v.p0.s1", Force::Yes).unwrap();
    assert!(
        attach(&mut config, "v.p0.s1", "v.p0", Some(1000)).is_err(),
        "no column"
    );
    assert!(
        attach(&mut config, "v.p0.s1", "v.p0", Some(0)).is_err(),
        "taken"
    );
    attach(&mut config, "v.p0.s1", "v.p0", None).unwrap();
    assert_eq!(
        subdisk(&config, "v.p0.s1").plex,
        Some(("v.p0".into(), 1024))
    );
}

#[test]
fn a_second_plex_is_stale_and_the_first_one_never_becomes_so() {
    let mut config = with(&[("concat", &["64k"]), ("concat", &["64k"])]);
    detach(&mut config, "v.p1", Force::Yes).unwrap();
    attach(&mut config, "v.p1", "v", None).unwrap();
    assert_eq!(state(&config, "v.p1.s0"), SubdiskState::Stale);
    assert_eq!(state(&config, "v.p0.s0"), SubdiskState::Up);
    let mut config = with(&[("concat", &["64k"])]);
    detach(&mut config, "v.p0", Force::Yes).unwrap();
    attach(&mut config, "v.p0", "v", None).unwrap();
    assert_eq!(
        state(&config, "v.p0.s0"),
        SubdiskState::Up,
        "nobody else has its data"
    );
}

#[test]
fn a_plex_grows_when_its_rows_are_enough_to_keep_the_first_ones() {
    // Rows of data members, and as many again to keep what is written over: 2 + 2 * 3.
    for (organisation, lengths, new) in [
        ("striped 1k", vec!["LENGTH"; 2], "c"),
        ("raid5 1k", vec!["LENGTH"; 3], "d"),
    ] {
        for (length, is_enough) in [("8k", true), ("7k", false)] {
            let lengths: Vec<&str> = lengths.iter().map(|_| length).collect();
            let mut config = with(&[(organisation, &lengths)]);
            let result = grow(&mut config, "v.p0", new, SIZE as u64, None);
            if is_enough {
                result.unwrap();
                let (count, added) = (lengths.len() as u64, format!("v.p0.s{}", lengths.len()));
                assert_eq!(
                    subdisk(&config, &added).plex,
                    Some(("v.p0".into(), count * 1024))
                );
                assert_eq!(plex(&config, "v.p0").state, PlexState::Growable);
            } else {
                let text = "v.p0 is too small to be grown: 7 rows, 8 are needed";
                assert_eq!(result.unwrap_err(), text, "{organisation}");
            }
        }
    }
}

#[test]
fn a_plex_grows_only_alone_whole_and_onto_another_drive() {
    let mut config = with(&[("raid5 1k", &["64k", "64k", "64k"])]);
    let refused = grow(&mut config, "v.p0", "b", SIZE as u64, None).unwrap_err();
    assert_eq!(refused, "b holds a subdisk of v.p0 already");
    let mut config = with(&[("striped 1k", &["64k", "64k"])]);
    grow(&mut config, "v.p0", "b", SIZE as u64, None).unwrap(); // without parity nothing is lost by that
    let mut config = with(&[
        ("striped 1k", &["64k", "64k"]),
        ("striped 1k", &["64k", "64k"]),
    ]);
    let refused = grow(&mut config, "v.p0", "c", SIZE as u64, None).unwrap_err();
    assert!(refused.contains("has other plexes"), "{refused}");
    let mut config = with(&[("raid5 1k", &["64k", "64k", "64k"])]);
    set_state(&mut config, "v.p0.s0", SubdiskState::Down, Force::Yes).unwrap();
    let refused = grow(&mut config, "v.p0", "d", SIZE as u64, None).unwrap_err();
    assert!(refused.contains("it must be up"), "{refused}");
}

#[test]
fn what_is_up_is_detached_by_force_alone() {
    let mut config = with(&[("concat", &["64k", "64k"])]);
    let refused = detach(&mut config, "v.p0.s1", Force::No).unwrap_err();
    assert_eq!(refused, "v.p0.s1 is up; -f detaches it all the same");
    set_state(&mut config, "v.p0.s1", SubdiskState::Down, Force::Yes).unwrap();
    detach(&mut config, "v.p0.s1", Force::No).unwrap();
}
