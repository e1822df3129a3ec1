//! What people of FreeBSD type: words that are missing, unknown or too many; mirrors that are served; systems that get
//! more.

use crate::common::{Place, ok, uri};

fn mirror(place: &Place) {
    ok(
        place,
        "create gm0 --level 1 --format gmirror --member-size 2M a.img b.img",
    );
}

/// A volume of two plexes, and a drive with nothing on it.
fn system(place: &Place) {
    let text = "drive a device a.img\ndrive b device b.img\ndrive c device c.img\nvolume v setupstate\n \
                plex org concat\n  sd length 1m drive a\n plex org concat\n  sd length 1m drive b\n";
    std::fs::write(place.file("text"), text).unwrap();
    ok(place, "create -f text --member-size 4M");
}

#[test]
fn words_that_are_missing_unknown_or_too_many_are_told_with_the_usage_and_nothing_is_done() {
    let place = Place::new("words-usage");
    mirror(&place);
    let before = place.snapshot();
    for (words, expected) in [
        ("gmirror", "a command is missing"),
        (
            "gmirror frobnicate",
            "plexum gmirror has no command frobnicate",
        ),
        (
            "gmirror frobnicate x --in .",
            "its commands are:   activate clear",
        ),
        (
            "gmirror isnert --in . gm0 c.img",
            "the nearest one is:   insert",
        ),
        (
            "gmirror insert --in . gm0",
            "usage:   plexum gmirror insert [-fhiv] [-p priority] name prov ...",
        ),
        (
            "gmirror remove --in . gm0",
            "usage:   plexum gmirror remove",
        ),
        (
            "gmirror activate --in . gm0",
            "usage:   plexum gmirror activate",
        ),
        (
            "gmirror deactivate --in . gm0",
            "usage:   plexum gmirror deactivate",
        ),
        (
            "gmirror rebuild --in . gm0",
            "usage:   plexum gmirror rebuild",
        ),
        ("gmirror forget --in .", "usage:   plexum gmirror forget"),
        ("gmirror destroy --in .", "usage:   plexum gmirror destroy"),
        ("gmirror stop", "usage:   plexum gmirror stop"),
        ("gmirror clear", "usage:   plexum gmirror clear"),
        ("gmirror dump", "usage:   plexum gmirror dump"),
        ("gmirror label gm1", "usage:   plexum gmirror label"),
        (
            "gmirror configure --in . -z gm0",
            "-z is no option of plexum gmirror configure",
        ),
        (
            "gmirror configure --in . -p 3 gm0",
            "-p is for one component",
        ),
        (
            "gmirror configure --in . -a -n gm0",
            "-a and -n exclude each other",
        ),
        (
            "gmirror configure --in . gm0 a.img",
            "a component is named with -p only",
        ),
        (
            "gmirror insert --in . -p 300 gm0 c.img",
            "300: a priority is 0 to 255",
        ),
        (
            "gmirror resize --in . -s many gm0",
            "many: a number of sectors",
        ),
        (
            "gvinum frobnicate",
            "plexum gvinum has no command frobnicate",
        ),
        ("gvinum renmae --in . v w", "the nearest one is:   rename"),
        (
            "gvinum rename --in . v",
            "usage:   plexum gvinum rename [-rv] object name",
        ),
        ("gvinum rename v w x", "x is one word too many"),
        ("gvinum rm", "usage:   plexum gvinum rm"),
        ("gvinum start", "usage:   plexum gvinum start"),
        ("gvinum setstate down", "usage:   plexum gvinum setstate"),
        ("gvinum move a", "usage:   plexum gvinum move"),
        ("gvinum grow v.p0", "usage:   plexum gvinum grow"),
        ("gvinum attach v.p0", "usage:   plexum gvinum attach"),
        ("gvinum detach", "usage:   plexum gvinum detach"),
        ("gvinum create", "usage:   plexum gvinum create"),
        ("gvinum raid5 -s", "-s needs a value"),
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 2, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains(expected), "{words}: {}", run.err);
        assert_eq!(
            run.err.matches("error: ").count(),
            1,
            "{words}: {}",
            run.err
        );
    }
    assert!(place.snapshot() == before, "nothing was done");
    let help = ok(&place, "gmirror help");
    assert!(
        help.starts_with("usage: plexum gmirror activate [-v] name prov ..."),
        "{help}"
    );
    assert!(ok(&place, "gvinum help").contains("plexum gvinum setstate [-fv] state object ..."));
    for known in ["gmirror", "gvinum"] {
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plexum"), place.file(known)).unwrap();
        let run = place.tool(place.file(known).to_str().unwrap(), "--help");
        assert_eq!(
            (run.exit, run.out.starts_with("usage: plexum ")),
            (0, true),
            "{}",
            run.out
        );
    }
}

#[test]
fn what_is_named_and_not_there_is_told_and_nothing_is_written() {
    let place = Place::new("words-not-there");
    mirror(&place);
    place.sparse("c.img", 2 << 20);
    let before = place.snapshot();
    for (words, exit, expected) in [
        ("gmirror status --in . gm7", 4, "no mirror gm7 was found"),
        ("gmirror list --in . gm7", 4, "no mirror gm7 was found"),
        (
            "gmirror forget --in . gm0 gm7",
            4,
            "no mirror gm7 was found",
        ),
        (
            "gmirror insert --in . gm0 nowhere",
            4,
            "nowhere does not exist",
        ),
        (
            "gmirror insert --in . gm0 c.img c.img",
            4,
            "c.img is given twice",
        ),
        (
            "gmirror insert --in . gm0 a.img",
            4,
            "a.img is a component already",
        ),
        (
            "gmirror remove --in . gm0 c.img",
            4,
            "c.img is no component",
        ),
        (
            "gmirror resize --in . -s 9999999 gm0",
            4,
            "has room for 4095 sectors",
        ),
        ("gmirror dump c.img", 4, "c.img: no gmirror metadata"),
        ("gmirror stop gm0", 7, "no volume gm0 is served"),
        ("gvinum list --in . v", 4, "there is no v"),
        ("gvinum rename --in . v w", 4, "no Vinum drives were found"),
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains(expected), "{words}: {}", run.err);
        assert!(!run.err.contains("slot empty"), "{words}: {}", run.err);
    }
    assert!(place.snapshot() == before, "nothing was written");
}

#[test]
fn scripts_read_the_status_of_a_mirror_line_by_line_or_as_json() {
    let place = Place::new("words-status");
    mirror(&place);
    assert_eq!(
        ok(&place, "gmirror status --in ."),
        "      Name    Status  Components\n\
         mirror/gm0  COMPLETE  b.img (ACTIVE)\n                      a.img (ACTIVE)\n"
    );
    assert_eq!(
        ok(&place, "gmirror status -s --in . mirror/gm0"),
        "mirror/gm0  COMPLETE  b.img (ACTIVE)\nmirror/gm0  COMPLETE  a.img (ACTIVE)\n"
    );
    assert_eq!(
        ok(&place, "gmirror status -gs --in .").lines().next(),
        Some(" gm0  COMPLETE  b.img (ACTIVE)")
    );
    let value = place
        .plexum("gmirror status --in . --json")
        .objects()
        .remove(0);
    assert_eq!(
        (&value["kind"], &value["volume"], &value["state"]),
        (&"mirror".into(), &"gm0".into(), &"COMPLETE".into())
    );
    assert_eq!(value["components"][1]["provider"], "a.img");
    let dump = place
        .plexum("--json gmirror dump a.img")
        .objects()
        .remove(0);
    assert_eq!(dump["label"]["name"], "gm0", "{dump}");
}

#[test]
fn a_label_is_made_with_every_option_of_the_original() {
    let place = Place::new("words-label");
    for name in ["a.img", "b.img", "a-much-longer-name.img"] {
        place.sparse(name, 2 << 20);
    }
    let said = ok(
        &place,
        "gmirror label -Fhnv -b split -s 8192 gm1 a.img b.img",
    );
    assert!(
        said.contains("Metadata value stored on a.img.") && said.ends_with("Done.\n"),
        "{said}"
    );
    let list = ok(&place, "gmirror list --in . gm1");
    for words in [
        "Balance: split",
        "Slice: 8192",
        "Flags: NOAUTOSYNC, NOFAILSYNC",
        "HARDCODED",
    ] {
        assert!(list.contains(words), "{words}: {list}");
    }
    // Although nobody is filled by himself, the ones that were labelled as different are.
    ok(&place, "serve --background --write a.img b.img");
    while place.plexum("status gm1").exit != 0 {}
    assert_eq!(ok(&place, "gmirror stop gm1"), "");
    let moved = place.file("c.img");
    std::fs::rename(place.file("b.img"), &moved).unwrap();
    let run = place.plexum("serve --write a.img c.img");
    assert_ne!(run.exit, 0, "its label is bound to the name b.img");
    std::fs::rename(&moved, place.file("b.img")).unwrap();
    let long = place.plexum("gmirror label -h gm2 a-much-longer-name.img");
    assert_eq!(long.exit, 2, "{}", long.err);
    assert!(long.err.contains("at most 15"), "{}", long.err);
    assert_eq!(
        ok(&place, "gmirror clear -v a.img"),
        "Metadata cleared on a.img.\nDone.\n"
    );
    assert_eq!(
        ok(&place, "gmirror clear b.img"),
        "",
        "without -v nothing is said"
    );
}

#[test]
fn a_mirror_that_is_served_is_changed_through_its_server() {
    let place = Place::new("words-live");
    mirror(&place);
    place.sparse("c.img", 2 << 20);
    ok(&place, "serve --background --write a.img b.img");
    // It is found by its name alone.
    assert!(ok(&place, "gmirror status gm0").contains("mirror/gm0  COMPLETE"));
    let before = std::fs::read(place.file("a.img")).unwrap();
    for words in [
        "insert gm0 c.img",
        "remove gm0 b.img",
        "rebuild gm0 b.img",
        "forget gm0",
        "configure -n gm0",
        "resize -s 8 gm0",
        "destroy gm0",
    ] {
        let run = place.plexum(&format!("gmirror {words}"));
        assert_eq!(run.exit, 6, "{words}: {}{}", run.out, run.err);
        assert!(
            run.err.contains("gm0 is served") && run.err.contains("plexum gmirror stop gm0"),
            "{words}: {}",
            run.err
        );
    }
    assert!(
        std::fs::read(place.file("a.img")).unwrap() == before,
        "nothing was written"
    );
    ok(&place, "gmirror configure -b round-robin gm0");
    assert!(
        place
            .plexum("status gm0 --json")
            .out
            .contains("round-robin")
    );
    // Put aside, it says so itself; the status is the server's.
    assert_eq!(
        ok(&place, "gmirror deactivate -v gm0 b.img"),
        "Done.\n",
        "once"
    );
    let status = ok(&place, "gmirror status gm0");
    assert!(
        status.contains("DEGRADED  a.img (ACTIVE)") && !status.contains("b.img"),
        "{status}"
    );
    assert!(ok(&place, "gmirror dump b.img").contains("is_inactive: yes"));
    let last = place.plexum("gmirror deactivate gm0 a.img");
    assert_eq!(last.exit, 3, "{}", last.err);
    std::fs::write(place.file("pattern"), vec![7; 4096]).unwrap();
    let run = place.tool("nbdcopy", &format!("pattern {}", uri(&place, "gm0")));
    assert_eq!(run.exit, 0, "{}", run.err);
    ok(&place, "gmirror activate gm0 b.img");
    assert!(ok(&place, "gmirror dump b.img").contains("is_inactive: no"));
    ok(&place, "gmirror stop gm0");
    // What it missed is filled at the next start.
    ok(&place, "serve --background --write a.img b.img");
    while place.plexum("status gm0").exit != 0 {}
    ok(&place, "gmirror stop gm0");
    assert_eq!(
        std::fs::read(place.file("b.img")).unwrap()[..4096],
        [7; 4096]
    );
    // A new component takes the place of one that is lost.
    ok(&place, "serve --background --write --run-degraded a.img");
    ok(&place, "gmirror insert gm0 c.img");
    while place.plexum("status gm0").exit != 0 {}
    // What its server has dropped is no component, although its label does not say so.
    ok(&place, "fail gm0 c.img");
    let status = ok(&place, "gmirror status gm0");
    assert!(
        status.contains("DEGRADED  a.img (ACTIVE)") && !status.contains("c.img"),
        "{status}"
    );
    ok(&place, "gmirror stop gm0");
    assert_eq!(
        std::fs::read(place.file("c.img")).unwrap()[..4096],
        [7; 4096]
    );
}

#[test]
fn a_system_of_vinum_drives_gets_more_volumes_plexes_and_drives() {
    let place = Place::new("words-more");
    system(&place);
    for name in ["e.img", "f.img"] {
        std::fs::write(place.file(name), vec![9; 4 << 20]).unwrap();
    }
    std::fs::write(
        place.file("more"),
        "volume w\n plex org concat\n  sd length 1m drive c\n",
    )
    .unwrap();
    let refused = place.plexum("gvinum create more");
    assert_eq!(refused.exit, 2, "{}", refused.err);
    assert!(refused.err.contains("names no drive"), "{}", refused.err);
    let said = ok(&place, "gvinum create -v --in . more");
    assert!(
        said.contains("2 volumes:") && said.contains("V w "),
        "{said}"
    );
    assert!(
        ok(&place, "gvinum dump a.img").contains("w.p0.s0"),
        "on every drive"
    );
    // A plex that joins a volume is filled before it is read.
    std::fs::write(
        place.file("plex"),
        "drive e device e.img\nplex name v.p2 org concat volume v\nsd length 1m drive e\n",
    )
    .unwrap();
    let asked = place.plexum("gvinum create --in . plex");
    assert_eq!(asked.exit, 3, "what is on it: {}", asked.err);
    ok(&place, "gvinum create -f --yes --in . plex");
    assert!(ok(&place, "gvinum ls --in . v.p2.s0").contains("State: stale"));
    ok(&place, "serve --background --write a.img b.img c.img e.img");
    while place.plexum("status v").exit != 0 {}
    ok(&place, "gvinum stop v w");
    let filled = std::fs::read(place.file("e.img")).unwrap();
    assert!(
        filled[135_680..][..1 << 20].iter().all(|byte| *byte == 0),
        "as the others are"
    );
    // A shortcut counts on: names of drives and of volumes.
    ok(&place, "gvinum concat -f --yes --in . f.img");
    assert!(ok(&place, "gvinum lv --in .").contains("V gvinumvolume0 "));
    assert!(ok(&place, "gvinum ld --in .").contains("D gvinumdrive0 "));
    let before = place.snapshot();
    for (text, expected) in [
        (
            "drive a device g.img\nvolume x\n",
            "line 1: a drive a exists",
        ),
        ("volume v\n", "a volume v exists"),
        (
            "sd name v.p0.s9 length 1m drive c plex v.p0\n",
            "plexum gvinum grow v.p0",
        ),
        (
            "volume x\n plex org concat\n  sd length 99m drive c\n",
            "not enough space",
        ),
        ("drive g device f.img\n", "is a member of something already"),
    ] {
        std::fs::write(place.file("wrong"), text).unwrap();
        let run = place.plexum("gvinum create --in . wrong");
        assert!(
            run.exit != 0 && run.err.contains(expected),
            "{text}: {}",
            run.err
        );
        std::fs::remove_file(place.file("wrong")).unwrap();
    }
    assert!(place.snapshot() == before, "nothing was written");
    // With -f what exists is passed over.
    std::fs::write(
        place.file("again"),
        "volume v\nvolume x\n plex org concat\n  sd length 512k drive c\n",
    )
    .unwrap();
    ok(&place, "gvinum create -f --in . again");
    assert!(ok(&place, "gvinum lv --in .").contains("V x "));
}

#[test]
fn objects_are_attached_under_a_new_name_and_drives_are_renamed() {
    let place = Place::new("words-rename");
    system(&place);
    ok(&place, "gvinum rename --in . c spare");
    assert!(ok(&place, "gvinum dump c.img").contains("drive: spare"));
    ok(&place, "gvinum rename --in . b second");
    assert!(ok(&place, "gvinum ls --in . v.p1.s0").contains("D: second"));
    ok(&place, "gvinum detach --in . -f v.p1");
    ok(&place, "gvinum rename --in . -r v.p1 other.p7");
    ok(&place, "gvinum attach --in . other.p7 v rename");
    let list = ok(&place, "gvinum list --in .");
    assert!(
        list.contains("P v.p1 ") && list.contains("S v.p1.s0 ") && !list.contains("other"),
        "{list}"
    );
    assert!(
        ok(&place, "gvinum ls --in . v.p1.s0").contains("State: stale"),
        "it missed nothing, but nobody knows"
    );
    // The states of what is below, by one word.
    ok(&place, "gvinum setstate --in . -f up v.p1");
    assert!(ok(&place, "gvinum lp --in . v.p1").contains("State: up"));
    for name in ["../x", "/etc/x", "#x"] {
        let run = place.plexum(&format!("gvinum rename --in . v {name}"));
        assert_eq!(run.exit, 4, "{name}: {}", run.err);
    }
    ok(&place, "serve --background a.img b.img c.img");
    let busy = place.plexum("gvinum rename --in . v w");
    assert_eq!(busy.exit, 6, "{}", busy.err);
    assert!(
        ok(&place, "gvinum list --in . v").contains("V v "),
        "looking is free"
    );
    ok(&place, "gvinum stop v");
    assert!(
        ok(&place, "gvinum list --in text")
            .starts_with("0 drives:\n0 volumes:\n0 plexes:\n0 subdisks:\n")
    );
}

#[test]
fn a_volume_with_a_path_for_a_name_makes_no_file_elsewhere() {
    let place = Place::new("words-path");
    system(&place);
    let escaped = format!("escaped-{}", std::process::id());
    let name = format!("../../../{escaped}");
    for drive in ["a.img", "b.img", "c.img"] {
        let mut bytes = std::fs::read(place.file(drive)).unwrap();
        for at in [4608, 70_144] {
            // Written as gvinum writes it: the text, and zeroes over Plexum's seal.
            let copy = &mut bytes[at..at + 65_536];
            let text: Vec<u8> = copy.iter().copied().take_while(|byte| *byte != 0).collect();
            let text = String::from_utf8(text).unwrap();
            let changed = text.replace("volume v ", &format!("volume {name} "));
            let changed = changed.replace("vol v ", &format!("vol {name} "));
            copy.fill(0);
            copy[..changed.len()].copy_from_slice(changed.as_bytes());
        }
        std::fs::write(place.file(drive), bytes).unwrap();
    }
    ok(&place, "serve --background a.img b.img c.img");
    let parent = place.folder.parent().unwrap();
    for folder in [parent, parent.parent().unwrap(), place.folder.as_path()] {
        for extension in ["nbd", "control", "log"] {
            let path = folder.join(format!("{escaped}.{extension}"));
            assert!(!path.exists(), "{} was made", path.display());
        }
    }
    ok(&place, &format!("stop {name}"));
}

/// Which members were read while the volume was copied out once.
fn members_read(place: &Place, volume: &str) -> Vec<bool> {
    ok(place, &format!("stats {volume} --reset"));
    let run = place.tool("nbdcopy", &format!("{} copy", uri(place, volume)));
    assert_eq!(run.exit, 0, "{}", run.err);
    let stats = place.plexum(&format!("stats {volume} --json"));
    let stats = stats.objects().remove(0);
    let members = stats["members"].as_array().unwrap().iter();
    members
        .map(|member| member["reads"].as_u64() > Some(0))
        .collect()
}

#[test]
fn a_balance_that_is_changed_while_it_is_served_spreads_the_next_reads() {
    let made = [
        ("--level 1 --format gmirror", "a b c", 3),
        ("--level 1 --format gvinum", "a b", 2),
        ("--level 10 --format md-1.2", "a b c d", 4),
    ];
    for (how, members, count) in made {
        let place = Place::new("words-balance");
        ok(
            &place,
            &format!("create v {how} --member-size 8M {members}"),
        );
        ok(
            &place,
            &format!("serve --background --write --balance prefer {members}"),
        );
        std::fs::write(place.file("pattern"), vec![7; 4 << 20]).unwrap();
        let run = place.tool("nbdcopy", &format!("pattern {}", uri(&place, "v")));
        assert_eq!(run.exit, 0, "{}", run.err);
        // One copy of everything: of RAID-10 one member of each pair.
        let first = members_read(&place, "v");
        let copies = first.iter().filter(|is_read| **is_read).count();
        assert_eq!(copies, if count == 4 { 2 } else { 1 }, "{how}: {first:?}");
        ok(&place, "set v balance=round-robin");
        assert_eq!(members_read(&place, "v"), vec![true; count], "{how}");
        ok(&place, "set v balance=prefer");
        assert_eq!(members_read(&place, "v"), first, "{how}: and back");
        ok(&place, "stop v");
    }
}
