//! What a Vinum script makes of drives, which areas are free, and what a save says: exact to the sector and the
//! microsecond.

use crate::common::vinum::{drives, system};
use plexum_engine::metadata::Metadata as _;
use plexum_engine::metadata::PlainMetadata;
use plexum_format::Slot;
use plexum_format::gstripe::StripeLabel;
use plexum_format::vinum::{
    Config, DATA_OFFSET_BYTES, DriveHeader, Growth, HEADER_OFFSET_BYTES, Mark, PlexState, Script,
    SubdiskState,
};
use plexum_freebsd::gvinum::{
    Room, Shortcut, Store, build, free_areas, print_config, volume_bytes,
};
use plexum_freebsd::stripe_concat::{JoinedFormat, Labelled, join_stripe};

const KIB: u64 = 1024;
const SIZE: usize = 135_680 + 256 * 1024;

fn rooms(script: &Script, bytes: u64) -> Vec<Room> {
    let room = |name: &str| Room {
        name: name.to_owned(),
        size_bytes: DATA_OFFSET_BYTES + bytes,
    };
    script
        .drives
        .iter()
        .map(|drive| room(&drive.name))
        .collect()
}

/// A configuration over drives with 256 KiB of room; or the line and the words of the refusal.
fn made(text: &str, existing: &Config) -> Result<Config, String> {
    let script = Script::parse(text.as_bytes()).unwrap();
    let rooms = rooms(&script, 256 * KIB);
    build(&script, &rooms, existing).map_err(|error| error.message)
}

const DRIVES: &str = "drive a device /dev/a\ndrive b device /dev/b\n";

fn lengths(config: &Config) -> Vec<(String, u64, u64)> {
    let each = config.subdisks.iter();
    let mut all: Vec<_> = each
        .map(|one| {
            (
                one.name.clone(),
                one.drive_offset_bytes - DATA_OFFSET_BYTES,
                one.length_bytes,
            )
        })
        .collect();
    all.sort();
    all
}

#[test]
fn columns_of_a_new_plex_are_cut_to_the_smallest_and_to_whole_strips() {
    let text = format!(
        "{DRIVES}volume v\nplex org striped 4k\nsd length 66k drive a\nsd length 40k drive b\n"
    );
    let config = made(&text, &Config::default()).unwrap();
    let found: Vec<u64> = lengths(&config)
        .iter()
        .map(|(_, _, length)| *length)
        .collect();
    assert_eq!(found, [40 * KIB, 40 * KIB]);
    let text = format!("{DRIVES}volume v\nplex org striped 4k\nsd length 3k drive a\n");
    let refused = made(&text, &Config::default()).unwrap_err();
    assert!(
        refused.contains("smaller than a stripe of 4096 bytes"),
        "{refused}"
    );
}

#[test]
fn a_plex_that_joins_a_volume_has_nothing_of_it_yet() {
    let text = format!("{DRIVES}volume v\nplex org concat\nsd length 64k drive a\n");
    let before = made(&text, &Config::default()).unwrap();
    let more = format!("{DRIVES}plex name v.p1 org concat volume v\nsd length 64k drive b\n");
    let after = made(&more, &before).unwrap();
    let state = |name: &str| {
        after
            .subdisks
            .iter()
            .find(|one| one.name == name)
            .unwrap()
            .state
    };
    assert_eq!(state("v.p0.s0"), SubdiskState::Up);
    assert_eq!(state("v.p1.s0"), SubdiskState::Stale);
    let other = made(
        &format!("{DRIVES}volume w\nplex org concat\nsd length 64k drive b\n"),
        &before,
    );
    let subdisks = other.unwrap().subdisks;
    assert!(
        subdisks.iter().all(|one| one.state == SubdiskState::Up),
        "a volume of its own"
    );
}

#[test]
fn a_column_that_comes_later_has_what_the_others_have() {
    let text = format!(
        "{DRIVES}volume v\nplex name p org striped 4k volume v\nsd plex p length 64k drive a\n"
    );
    let mut before = made(&text, &Config::default()).unwrap();
    // Where data are, one column more would give them other addresses.
    let more = format!("{DRIVES}sd name late plex p length 64k drive b\n");
    let refused = made(&more, &before).unwrap_err();
    assert!(refused.contains("plexum gvinum grow p"), "{refused}");
    before.subdisks[0].state = SubdiskState::Stale;
    for (length, expected) in [
        ("64k", Ok(64 * KIB)),
        ("80k", Ok(64 * KIB)),
        ("60k", Err(())),
    ] {
        let more = format!("{DRIVES}sd name late plex p length {length} drive b\n");
        let result = made(&more, &before);
        match (result, expected) {
            (Ok(config), Ok(bytes)) => {
                let late = config
                    .subdisks
                    .iter()
                    .find(|one| one.name == "late")
                    .unwrap();
                assert_eq!(late.length_bytes, bytes, "{length}");
                assert_eq!(late.state, SubdiskState::Stale, "it has nothing yet");
                assert_eq!(late.plex, Some(("p".into(), 4 * KIB)));
            }
            (Err(text), Err(())) => {
                assert_eq!(text, "late has 61440 bytes, 65536 are needed");
            }
            (result, _) => panic!("{length}: {result:?}"),
        }
    }
}

#[test]
fn a_place_on_the_drive_is_taken_as_asked_and_has_to_be_free() {
    let at = |offset: u64, length: &str| {
        let text = format!(
            "{DRIVES}volume v\nplex org concat\nsd length 64k drive a\nsd {length} driveoffset {}s drive a\n",
            (DATA_OFFSET_BYTES + offset) / 512
        );
        made(&text, &Config::default()).map(|config| lengths(&config)[1].clone())
    };
    let name = || "v.p0.s1".to_owned();
    assert_eq!(at(64 * KIB, "length 64k"), Ok((name(), 64 * KIB, 64 * KIB)));
    assert_eq!(
        at(192 * KIB, "length 64k"),
        Ok((name(), 192 * KIB, 64 * KIB)),
        "up to the end"
    );
    assert!(at(192 * KIB, "length 65k").is_err(), "over the end");
    assert!(at(63 * KIB, "length 64k").is_err(), "over the first");
    assert_eq!(
        at(128 * KIB, "length 0"),
        Ok((name(), 128 * KIB, 128 * KIB)),
        "all the rest"
    );
}

#[test]
fn free_areas_lie_between_the_subdisks_of_a_drive_and_behind_them() {
    let text = format!(
        "{DRIVES}volume v\nplex org concat\nsd length 64k drive a\nsd length 64k drive a\n"
    );
    let mut config = made(&text, &Config::default()).unwrap();
    let end = DATA_OFFSET_BYTES + 256 * KIB;
    let areas = |config: &Config, end: u64| {
        let areas = free_areas(config, "a", end).into_iter();
        areas
            .map(|(at, length)| (at - DATA_OFFSET_BYTES, length))
            .collect::<Vec<_>>()
    };
    assert_eq!(areas(&config, end), [(128 * KIB, 128 * KIB)]);
    assert_eq!(
        areas(&config, end + 511),
        [(128 * KIB, 128 * KIB)],
        "whole sectors"
    );
    config.subdisks.retain(|one| one.name != "v.p0.s0");
    assert_eq!(areas(&config, end), [(0, 64 * KIB), (128 * KIB, 128 * KIB)]);
    assert_eq!(
        areas(&config, DATA_OFFSET_BYTES + 128 * KIB),
        [(0, 64 * KIB)]
    );
    assert_eq!(
        areas(&config, DATA_OFFSET_BYTES + 32 * KIB),
        [(0, 32 * KIB)],
        "a smaller drive"
    );
}

#[test]
fn shortcuts_want_as_many_devices_as_their_plexes_need() {
    let devices = |count: usize| -> Vec<String> {
        (0..count)
            .map(|number| format!("/dev/da{number}"))
            .collect()
    };
    let strip_bytes = 64 * KIB;
    for (shortcut, counts, plexes, text) in [
        (
            Shortcut::Concat,
            [0, 1],
            1,
            "at least 1 members are needed; 0 are given",
        ),
        (
            Shortcut::Stripe { strip_bytes },
            [1, 2],
            1,
            "at least 2 members are needed; 1 are given",
        ),
        (
            Shortcut::Raid5 { strip_bytes },
            [2, 3],
            1,
            "at least 3 members are needed; 2 are given",
        ),
        (
            Shortcut::Mirror,
            [3, 4],
            2,
            "at least 2 members are needed, an even number; 3 are given",
        ),
        (
            Shortcut::StripedMirror { strip_bytes },
            [2, 4],
            2,
            "at least 4 members are needed, an even number; 2 are given",
        ),
    ] {
        assert_eq!(
            shortcut.script("v", &devices(counts[0]), 0).unwrap_err(),
            text
        );
        let script = shortcut.script("v", &devices(counts[1]), 3).unwrap();
        assert_eq!(script.matches("plex org").count(), plexes, "{script}");
        assert_eq!(script.matches("sd length 0").count(), counts[1], "{script}");
        assert!(
            script.contains("drive gvinumdrive3 device /dev/da0"),
            "{script}"
        );
    }
}

#[test]
fn a_hot_spare_is_told_of_once_with_its_drive() {
    let text = format!("{DRIVES}volume v\nplex org concat\nsd length 64k drive a\n");
    let mut config = made(&text, &Config::default()).unwrap();
    config.spares = vec!["b".to_owned()];
    let named = [("a", "/dev/a"), ("b", "/dev/b")];
    let named = named.map(|(name, device)| (name.to_owned(), device.to_owned()));
    let printed = print_config(&config, &named);
    assert_eq!(printed.matches("hotspare").count(), 1, "{printed}");
    assert!(
        printed.contains("drive b device /dev/b hotspare\n"),
        "{printed}"
    );
}

const RAID5: &str = "drive a device /dev/a\ndrive b device /dev/b\ndrive c device /dev/c\n\
    volume v\nplex org raid5 1k\nsd length 64k drive a\nsd length 64k drive b\nsd length 64k drive c\n";

fn header(store: &Store) -> DriveHeader {
    let writes = store.writes("a");
    let last = writes.last().unwrap();
    assert_eq!(last.at_bytes, HEADER_OFFSET_BYTES, "the header comes last");
    DriveHeader::parse(&last.bytes, last.at_bytes).unwrap()
}

#[test]
fn every_save_is_later_than_the_one_before() {
    let mut system = system(&drives(RAID5, SIZE));
    system.updated = (2000, 999_998);
    let mut store = Store::new(&system);
    let mut after = |wall_seconds: u64| {
        store.next_save(wall_seconds);
        header(&store).updated
    };
    assert_eq!(after(1999), (2000, 999_999), "a clock that went back");
    assert_eq!(after(2000), (2001, 0), "no microsecond is left");
    assert_eq!(after(2001), (2001, 1), "the same second");
    assert_eq!(after(2002), (2002, 0), "a later one");
    assert!(store.writes("nobody").is_empty());
}

#[test]
fn drives_are_settled_when_every_volume_is() {
    let system = system(&drives(RAID5, SIZE));
    let mut store = Store::new(&system);
    assert_eq!(header(&store).mark, Mark::Settled);
    store.clear_settled("v");
    assert_eq!(header(&store).mark, Mark::Writing);
    store.mark_settled("v");
    assert_eq!(header(&store).mark, Mark::Settled);
}

#[test]
fn a_plex_whose_growth_has_ended_is_up_and_another_one_stays_as_it_is() {
    let system = system(&drives(RAID5, SIZE));
    let mut store = Store::new(&system);
    let growth = Growth {
        subdisk_count: 3,
        moved_bytes: 0,
        backup_bytes: 0,
    };
    store.config.plexes[0].state = PlexState::Growable;
    store.set_growth("v.p0", Some(growth));
    assert_eq!(store.config.plexes[0].growth, Some(growth));
    assert_eq!(
        store.config.plexes[0].state,
        PlexState::Growable,
        "it goes on"
    );
    store.set_growth("other", None);
    assert_eq!(
        store.config.plexes[0].growth,
        Some(growth),
        "of another plex"
    );
    store.set_growth("v.p0", None);
    assert_eq!(store.config.plexes[0].growth, None);
    assert_eq!(store.config.plexes[0].state, PlexState::Up);
}

#[test]
fn a_system_is_asked_for_its_drives_and_plexes() {
    let system = system(&drives(RAID5, SIZE));
    let drive = system.drive("b").unwrap();
    assert!(drive.is_up());
    assert_eq!(drive.usable_bytes(), SIZE as u64 - DATA_OFFSET_BYTES);
    let plexes: Vec<&str> = system
        .plexes_of("v")
        .iter()
        .map(|plex| plex.name.as_str())
        .collect();
    assert_eq!(plexes, ["v.p0"]);
    assert!(system.plexes_of("w").is_empty());
    assert_eq!(
        system.free_areas("b"),
        [(DATA_OFFSET_BYTES + 64 * KIB, 192 * KIB)]
    );
    assert_eq!(volume_bytes(&system.config, "v"), 128 * KIB);
}

#[test]
fn a_format_without_metadata_of_its_own_writes_none_and_takes_nobody() {
    let mut plain = PlainMetadata::new("gstripe");
    assert_eq!(plain.format_name(), "gstripe");
    assert!(!plain.has_commits());
    let memory = crate::common::Memory::new(vec![0; 4096]);
    let info = plexum_block::device::Device::info(&memory);
    let member = plexum_engine::state::MemberId(0);
    let refused = plain.add_member(member, [0; 16], &info).unwrap_err();
    assert_eq!(refused, "a gstripe volume takes no other members");
}

/// A stripe label of member `slot` of two.
fn labelled(slot: u16) -> Labelled<StripeLabel> {
    let bytes = 1 << 20;
    Labelled {
        index: usize::from(slot),
        name: format!("/dev/da{slot}"),
        size_bytes: bytes,
        usable_bytes: bytes - 512,
        label: StripeLabel::create("s", 7, (Slot(slot), 2), 4096, bytes).unwrap(),
    }
}

#[test]
fn stripes_are_joined_when_every_label_says_the_same() {
    let both = || [labelled(0), labelled(1)];
    assert!(join_stripe(&both()).is_ok());
    type Change = (&'static str, fn(&mut StripeLabel));
    let changes: [Change; 6] = [
        ("belongs to t with id 7", |label| {
            label.name = "t".to_owned()
        }),
        ("belongs to s with id 8", |label| label.volume_id = 8),
        ("contradicts that of", |label| label.member_count = 3),
        ("contradicts that of", |label| label.strip_bytes = 8192),
        ("another member has number 0 too", |label| {
            label.slot = Slot(0)
        }),
        ("bound to da9", |label| label.provider = "da9".to_owned()),
    ];
    for (text, change) in changes {
        let mut members = both();
        change(&mut members[1].label);
        let error = join_stripe(&members).unwrap_err();
        assert!(error.message.contains(text), "{text}: {}", error.message);
    }
    let mut bound = both();
    bound[1].label.provider = "da1".to_owned();
    assert!(join_stripe(&bound).is_ok(), "its own name");
    assert_eq!(JoinedFormat::Stripe.name(), "gstripe");
    assert_eq!(JoinedFormat::Concat.name(), "gconcat");
}
