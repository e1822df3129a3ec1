//! Rules of states and discovery over small systems; the recorded systems are in `tests/all/golden_freebsd.rs`.

use plexum_format::vinum::{
    Config, DriveHeader, Organisation, PlexState, SubdiskState, VolumeState,
};

use super::*;

const DRIVE_BYTES: u64 = 400_000 / 512 * 512;

fn drive(key: usize, name: &str, updated: (u64, u64), text: &str) -> FoundDrive {
    let mut header = DriveHeader::create("host", name, (1, 0)).unwrap();
    header.updated = updated;
    let config = Config::parse(text.as_bytes(), 0).unwrap();
    let copy = config.encode().unwrap();
    FoundDrive {
        key,
        device: format!("da{key}"),
        size_bytes: DRIVE_BYTES,
        header,
        copies: [copy.clone(), copy],
    }
}

fn mirror_text(states: [&str; 3]) -> String {
    let mut text = "volume m state up\n".to_owned();
    for (index, state) in states.iter().enumerate() {
        let plex = if *state == "up" { "up" } else { "down" };
        text += &format!("plex name m.p{index} org concat vol m state {plex}\n");
        text += &format!(
            "sd name m.p{index}.s0 drive d{index} len 100s driveoffset 265s plex m.p{index} plexoffset 0s state {state}\n"
        );
    }
    text
}

fn states(system: &System) -> Vec<(String, SubdiskState)> {
    let mut states: Vec<(String, SubdiskState)> = system
        .config
        .subdisks
        .iter()
        .map(|subdisk| (subdisk.name.clone(), subdisk.state))
        .collect();
    states.sort_by(|a, b| a.0.cmp(&b.0));
    states
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for order in orders(count - 1) {
        for at in 0..=order.len() {
            let mut longer = order.clone();
            longer.insert(at, count - 1);
            all.push(longer);
        }
    }
    all
}

/// Defects 1 and 2: with three ages, five of six orders of discovery gave a wrong result upstream.
#[test]
fn the_newest_of_three_ages_counts_in_every_order_of_discovery() {
    let drives = [
        drive(0, "d0", (30, 0), &mirror_text(["up", "down", "down"])),
        drive(1, "d1", (20, 0), &mirror_text(["up", "up", "down"])),
        drive(2, "d2", (10, 0), &mirror_text(["up", "up", "up"])),
    ];
    for order in orders(3) {
        let found: Vec<FoundDrive> = order.iter().map(|index| drives[*index].clone()).collect();
        let system = assemble(&found).unwrap();
        let found: Vec<SubdiskState> = states(&system)
            .into_iter()
            .map(|(_, state)| state)
            .collect();
        use SubdiskState::{Stale, Up};
        assert_eq!(found, [Up, Stale, Stale], "order {order:?}");
    }
}

/// Defect 8: the second copy was never read.
#[test]
fn the_second_copy_counts_where_the_first_is_damaged() {
    let mut newest = drive(0, "d0", (30, 0), &mirror_text(["up", "down", "up"]));
    newest.copies[0][20] = 0xff;
    let old = drive(1, "d1", (20, 0), &mirror_text(["up", "up", "up"]));
    let third = drive(2, "d2", (30, 0), &mirror_text(["up", "down", "up"]));
    for drives in [vec![newest.clone(), old.clone()], vec![old, newest, third]] {
        let system = assemble(&drives).unwrap();
        let second = states(&system)[1].1;
        assert_eq!(second, SubdiskState::Stale);
        assert!(
            system
                .notes
                .iter()
                .any(|note| note.contains("first copy is damaged"))
        );
    }
}

/// Unknown words are passed over, so what stands for a copy that cannot be read is no words.
#[test]
fn a_copy_that_cannot_be_read_says_nothing() {
    let whole = drive(0, "d0", (30, 0), &mirror_text(["up", "up", "up"]));
    for copy in [0, 1] {
        let mut half = whole.clone();
        half.copies[copy] = UNREADABLE_COPY.to_vec();
        let system = assemble(&[half]).unwrap();
        assert_eq!(system.recorded.subdisks.len(), 3, "copy {copy}");
    }
    let mut none = whole;
    none.copies = [UNREADABLE_COPY.to_vec(), UNREADABLE_COPY.to_vec()];
    let error = assemble(&[none]).unwrap_err();
    assert!(
        matches!(error, SystemError::NoConfiguration { .. }),
        "{error}"
    );
}

#[test]
fn contradicting_copies_of_an_interrupted_save_leave_the_doubt() {
    let doubtful = drive(0, "d0", (30, 0), &mirror_text(["up", "down", "up"]));
    let certain = drive(0, "d0", (30, 0), &mirror_text(["up", "up", "up"]));
    for copies in [
        [doubtful.copies[0].clone(), certain.copies[0].clone()],
        [certain.copies[0].clone(), doubtful.copies[0].clone()],
    ] {
        let mut first = doubtful.clone();
        first.copies = copies;
        let second = drive(1, "d1", (20, 0), &mirror_text(["up", "up", "up"]));
        let system = assemble(&[first, second]).unwrap();
        assert_eq!(states(&system)[1].1, SubdiskState::Stale);
    }
    // Also between drives of one age.
    let other = drive(1, "d1", (30, 0), &mirror_text(["up", "up", "up"]));
    for drives in [[doubtful.clone(), other.clone()], [other, doubtful]] {
        assert_eq!(
            states(&assemble(&drives).unwrap())[1].1,
            SubdiskState::Stale
        );
    }
}

/// A save that a power cut tore: the lines of the new text are shifted against those of the old one, and what is left
/// of both still makes sense.
#[test]
fn of_two_copies_that_make_sense_the_one_counts_that_another_drive_has_as_well() {
    let whole = mirror_text(["up", "up", "up"]);
    let torn = whole.replacen("len 100s", "len 10s", 1);
    assert_ne!(whole, torn);
    let copy = |text: &str| drive(0, "d0", (30, 0), text).copies[0].clone();
    for copies in [[copy(&torn), copy(&whole)], [copy(&whole), copy(&torn)]] {
        let mut first = drive(0, "d0", (30, 0), &whole);
        first.copies = copies;
        let second = drive(1, "d1", (30, 0), &whole);
        for drives in [
            vec![first.clone(), second.clone()],
            vec![second.clone(), first.clone()],
        ] {
            let system = assemble(&drives).unwrap();
            let lengths: Vec<u64> = system
                .config
                .subdisks
                .iter()
                .map(|subdisk| subdisk.length_bytes)
                .collect();
            assert_eq!(lengths, [100 * 512; 3]);
            assert!(system.notes[0].contains("copies of the configuration differ"));
        }
    }
}

/// Defect 7: what was detached was dropped, and its space counted as free.
#[test]
fn detached_objects_stay_and_keep_their_space() {
    let text = "plex name loose.p0 org concat  state down\n\
        sd name lone drive d0 len 100s driveoffset 300s state stale\n";
    let system = assemble(&[drive(0, "d0", (1, 0), text)]).unwrap();
    assert_eq!(
        (system.config.plexes.len(), system.config.subdisks.len()),
        (1, 1)
    );
    assert_eq!(
        system.free_areas("d0"),
        [(265 * 512, 35 * 512), (400 * 512, DRIVE_BYTES - 400 * 512)]
    );
}

#[test]
fn a_drive_too_small_for_its_pieces_is_not_believed() {
    let mut small = drive(0, "d0", (9, 0), &mirror_text(["up", "up", "up"]));
    small.size_bytes = 300 * 512;
    let error = assemble(&[small.clone()]).unwrap_err();
    assert!(error.to_string().contains("m.p0.s0"), "{error}");
    // Nor what others say about it.
    let other = drive(1, "d1", (8, 0), &mirror_text(["up", "up", "up"]));
    assert!(assemble(&[small, other]).is_err());
}

#[test]
fn removed_drives_and_copies_of_drives_do_not_count() {
    let mut removed = drive(0, "d0", (9, 0), &mirror_text(["up", "down", "up"]));
    removed.header.is_removed = true;
    let kept = drive(1, "d1", (8, 0), &mirror_text(["up", "up", "up"]));
    let mut copy = kept.clone();
    copy.key = 7;
    copy.header.updated = (7, 0);
    for drives in [
        vec![removed.clone(), kept.clone(), copy.clone()],
        vec![copy, kept, removed.clone()],
    ] {
        let system = assemble(&drives).unwrap();
        assert_eq!(system.drive("d1").unwrap().key, Some(1));
        assert_eq!(states(&system)[1].1, SubdiskState::Up);
        assert_eq!(system.notes.len(), 2, "{:?}", system.notes);
    }
    assert_eq!(assemble(&[removed]), Err(SystemError::NoDrive));
    assert_eq!(assemble(&[]), Err(SystemError::NoDrive));
}

#[test]
fn a_plex_that_was_down_got_no_writes_whatever_its_subdisks_say() {
    let text = "volume v state up\n\
        plex name v.p0 org striped 8s vol v state down\n\
        plex name v.p1 org concat vol v state up\n\
        sd name v.p0.s0 drive d0 len 80s driveoffset 265s plex v.p0 plexoffset 0s state down\n\
        sd name v.p0.s1 drive d1 len 80s driveoffset 265s plex v.p0 plexoffset 8s state up\n\
        sd name v.p1.s0 drive d2 len 160s driveoffset 265s plex v.p1 plexoffset 0s state up\n";
    let drives = [0, 1, 2].map(|key| drive(key, &format!("d{key}"), (1, 0), text));
    let system = assemble(&drives).unwrap();
    use SubdiskState::{Stale, Up};
    let found: Vec<SubdiskState> = states(&system)
        .into_iter()
        .map(|(_, state)| state)
        .collect();
    assert_eq!(found, [Stale, Stale, Up]);
}

/// All plexes of three subdisks: every combination of states.
#[test]
fn plex_states_follow_from_their_subdisks() {
    use SubdiskState::{Down, Initializing, Reviving, Stale, Up};
    let nothing = Beside::default();
    let growable = Beside {
        was_growable: true,
        ..nothing
    };
    let filling = Beside {
        is_filling: true,
        ..nothing
    };
    let all = [Down, Stale, Initializing, Reviving, Up];
    let strip_bytes = 512;
    let raid5 = Organisation::Raid5 { strip_bytes };
    for a in all {
        for b in all {
            for c in all {
                let subdisks = [a, b, c];
                for organisation in [Organisation::Concat, Organisation::Striped { strip_bytes }] {
                    let state = derive_plex(organisation, &subdisks, &nothing);
                    let is_up = subdisks == [Up, Up, Up];
                    let expected = if is_up {
                        PlexState::Up
                    } else {
                        PlexState::Down
                    };
                    assert_eq!(state, expected, "{subdisks:?}");
                }
                let state = derive_plex(raid5, &subdisks, &nothing);
                let not_up: Vec<SubdiskState> =
                    subdisks.into_iter().filter(|state| *state != Up).collect();
                let expected = match not_up.as_slice() {
                    [] => PlexState::Up,
                    [Down | Stale] => PlexState::Degraded,
                    _ => PlexState::Down,
                };
                assert_eq!(state, expected, "{subdisks:?}");
                assert_eq!(derive_plex(raid5, &subdisks, &growable), PlexState::Down);
            }
        }
    }
    assert_eq!(derive_plex(raid5, &[Up, Up], &nothing), PlexState::Down);
    assert_eq!(
        derive_plex(raid5, &[Up, Up, Reviving], &filling),
        PlexState::Degraded
    );
    let striped = Organisation::Striped { strip_bytes };
    assert_eq!(derive_plex(striped, &[Up], &nothing), PlexState::Down);
    assert_eq!(
        derive_plex(Organisation::Concat, &[], &nothing),
        PlexState::Down
    );
    let degraded = [(striped, PlexState::Degraded)];
    assert_eq!(derive_volume(&degraded), VolumeState::Down);
    assert_eq!(
        derive_volume(&[(raid5, PlexState::Degraded)]),
        VolumeState::Up
    );
}

#[test]
fn a_concat_plex_with_a_hole_keeps_its_places() {
    let text = "volume v state up\nplex name v.p0 org concat vol v state up\n\
        sd name a drive d0 len 10s driveoffset 265s plex v.p0 plexoffset 0s state up\n\
        sd name b drive d0 len 10s driveoffset 275s plex v.p0 plexoffset 12s state up\n";
    let config = Config::parse(text.as_bytes(), 0).unwrap();
    let map = plex_map(&config, "v.p0").unwrap();
    let lengths: Vec<u64> = map
        .subdisks
        .iter()
        .map(|one| one.length_bytes / 512)
        .collect();
    assert_eq!(lengths, [10, 2, 10]);
    assert_eq!(volume_bytes(&config, "v"), 22 * 512);
}

/// A plex of four as FreeBSD wrote it, without what was taken away.
fn raid5_of(lines: &[(&str, &str)]) -> Config {
    let mut text =
        "volume v state up\nplex name v.p0 org raid5 8s vol v state degraded\n".to_owned();
    for (index, (name, place)) in lines.iter().enumerate() {
        text +=
            &format!("sd name {name} drive d{index} len 80s driveoffset 265s {place} state up\n");
    }
    let mut config = Config::parse(text.as_bytes(), 0).unwrap();
    settle(&mut config, |_| false);
    config
}

#[test]
fn a_plex_has_the_places_that_its_offsets_and_names_say() {
    let at = |sectors: u64| format!("plex v.p0 plexoffset {sectors}s");
    let (first, second, third, fourth) = (at(0), at(8), at(16), at(24));
    let middle = raid5_of(&[
        ("v.p0.s0", &first),
        ("v.p0.s2", &third),
        ("v.p0.s3", &fourth),
    ]);
    let head = raid5_of(&[
        ("v.p0.s1", &second),
        ("v.p0.s2", &third),
        ("v.p0.s3", &fourth),
    ]);
    // Detached, and called after its plex: nothing else says that there were four.
    let last = raid5_of(&[
        ("v.p0.s0", &first),
        ("v.p0.s1", &second),
        ("v.p0.s2", &third),
        ("v.p0.s3", ""),
    ]);
    for (config, hole) in [(middle, 1), (head, 0), (last, 3)] {
        let map = plex_map(&config, "v.p0").unwrap();
        let free: Vec<usize> = (0..4)
            .filter(|slot| is_free(&map.subdisks[*slot]))
            .collect();
        assert_eq!(free, [hole]);
        assert_eq!(volume_bytes(&config, "v"), 3 * 80 * 512);
        assert_eq!(config.plexes[0].state, PlexState::Degraded);
    }
}

#[test]
fn offsets_that_only_join_the_lengths_say_the_order_and_contradicting_ones_nothing() {
    let at = |sectors: u64| format!("plex v.p0 plexoffset {sectors}s");
    let (first, second, third) = (at(0), at(80), at(160));
    let joined = raid5_of(&[("a", &first), ("b", &second), ("c", &third)]);
    assert_eq!(volume_bytes(&joined, "v"), 2 * 80 * 512);
    let odd = at(9);
    for places in [[&first, &first, &third], [&first, &odd, &third]] {
        let config = raid5_of(&[("a", places[0]), ("b", places[1]), ("c", places[2])]);
        assert!(plex_map(&config, "v.p0").is_err());
        assert_eq!(config.plexes[0].state, PlexState::Down);
    }
}

/// The lines of a text the other way round: the same objects.
fn turned(text: &str) -> String {
    let lines: Vec<&str> = text.lines().rev().collect();
    lines.join("\n") + "\n"
}

#[test]
fn drives_that_say_the_same_in_another_order_do_not_differ() {
    let text = mirror_text(["up", "up", "down"]);
    let drives = [
        drive(0, "d0", (10, 0), &text),
        drive(1, "d1", (10, 0), &text),
    ];
    let notes = assemble(&drives).unwrap().notes;
    assert!(notes.is_empty(), "{notes:?}");
    let mut drives = drives;
    let other = drive(1, "d1", (10, 0), &text);
    let config = turned(&String::from_utf8_lossy(&other.copies[0]).replace('\0', ""));
    if Config::parse(config.as_bytes(), 0).is_ok() {
        let mut bytes = config.into_bytes();
        bytes.resize(other.copies[0].len(), 0);
        drives[1].copies = [bytes.clone(), bytes];
        let notes = assemble(&drives).unwrap().notes;
        assert!(notes.is_empty(), "{notes:?}");
    } else {
        panic!("plexes may follow their subdisks");
    }
}

/// Of what is as new and as much in doubt, the first one counts: nobody knows better.
#[test]
fn of_two_that_know_as_much_the_first_one_counts() {
    let (one, other) = (
        mirror_text(["up", "down", "up"]),
        mirror_text(["up", "up", "down"]),
    );
    let state = |system: &System, at: usize| {
        system.recorded.subdisks.iter().any(|subdisk| {
            subdisk.name == format!("m.p{at}.s0") && subdisk.state == SubdiskState::Down
        })
    };
    let system = assemble(&[
        drive(0, "d0", (10, 0), &one),
        drive(1, "d1", (10, 0), &other),
    ])
    .unwrap();
    assert!(state(&system, 1) && !state(&system, 2));
    assert!(
        system.notes[0].contains("equally old and differ"),
        "{:?}",
        system.notes
    );
    // The two copies on one drive.
    let mut torn = drive(0, "d0", (10, 0), &one);
    torn.copies[1] = drive(0, "d0", (10, 0), &other).copies[0].clone();
    let system = assemble(&[torn]).unwrap();
    assert!(state(&system, 1) && !state(&system, 2));
    // Two drives of one name.
    let twins = [
        drive(0, "d0", (10, 0), &one),
        drive(1, "d0", (10, 0), &other),
    ];
    let system = assemble(&twins).unwrap();
    assert_eq!(system.drives[0].key, Some(0));
    assert!(
        system.notes[0].starts_with("da1 is not used"),
        "{:?}",
        system.notes
    );
}

#[test]
fn who_has_an_older_configuration_is_told() {
    let text = mirror_text(["up", "up", "up"]);
    let drives = [
        drive(0, "d0", (10, 0), &text),
        drive(1, "d1", (9, 0), &text),
        drive(2, "d2", (10, 0), &text),
    ];
    let notes = assemble(&drives).unwrap().notes;
    assert_eq!(notes, ["da1 (d1) has an older configuration than da0"]);
}

/// The offsets of what a save writes to a drive, in order.
fn order_of_save(system: &System, drive: &str) -> Vec<u64> {
    let writes = Store::new(system).writes(drive);
    writes.iter().map(|write| write.at_bytes).collect()
}

/// Found by a crash in the save that followed a crash in a save: both copies were torn, and an older drive counted.
#[test]
fn a_save_begins_with_the_copy_that_does_not_count() {
    use plexum_format::vinum::{CONFIG_OFFSETS_BYTES, HEADER_OFFSET_BYTES};
    let [first, second] = CONFIG_OFFSETS_BYTES;
    let whole = drive(0, "d0", (10, 0), &mirror_text(["up", "down", "up"]));
    let old = drive(0, "d0", (10, 0), &mirror_text(["up", "up", "up"]));
    let with = |copies: [&Vec<u8>; 2]| {
        let mut drive = whole.clone();
        drive.copies = copies.map(Clone::clone);
        assemble(&[drive]).unwrap()
    };
    let (new, old) = (&whole.copies[0], &old.copies[0]);
    let torn = &vec![0xff; new.len()];
    let blank = &vec![0; new.len()];
    for (copies, order) in [
        ([new, new], [first, second]),
        ([torn, new], [first, second]),
        ([blank, new], [first, second]),
        ([old, new], [first, second]), // the one with more in doubt counts
        ([new, torn], [second, first]),
        ([new, blank], [second, first]),
        ([new, old], [second, first]),
    ] {
        let system = with(copies);
        let written = order_of_save(&system, "d0");
        assert_eq!(written, [order[0], order[1], HEADER_OFFSET_BYTES]);
    }
}

#[test]
fn a_drive_that_was_written_last_and_has_lost_what_it_said_is_told() {
    let text = mirror_text(["up", "up", "up"]);
    let mut lost = drive(0, "d0", (12, 0), &mirror_text(["up", "down", "down"]));
    lost.copies = [vec![0xff; 100], vec![0xff; 100]];
    let others = [
        drive(1, "d1", (10, 0), &text),
        drive(2, "d2", (10, 0), &text),
    ];
    let system = assemble(&[vec![lost.clone()], others.to_vec()].concat()).unwrap();
    assert_eq!(system.unreadable_newer.as_deref(), Some("da0"));
    assert_eq!(system.updated, (12, 0), "the next save is later than it");
    assert!(system.is_uneven);
    // Of one that is no newer nothing is lost.
    lost.header.updated = (10, 0);
    let system = assemble(&[vec![lost], others.to_vec()].concat()).unwrap();
    assert_eq!(system.unreadable_newer, None);
}
