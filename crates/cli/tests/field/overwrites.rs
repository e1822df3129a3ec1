//! What is on a member before it becomes one of a set, or before its metadata are written: it is looked for by every
//! command.

use crate::common::Place;
use crate::common::served::done;
use crate::serving::Server;

#[test]
fn an_array_is_not_called_converted_to_a_version_that_it_has_not() {
    let place = Place::new("other-version");
    for format in ["md-1.2", "md-1.1", "md-1.0", "md-0.90"] {
        done(
            &place,
            &format!("create v --level 1 --member-size 8M --format {format} a b"),
        );
        let before = place.snapshot();
        for to in ["md-1.2", "md-1.1", "md-1.0", "md-0.90"] {
            let run = place.plexum(&format!("convert a b --to {to}"));
            if to == format {
                assert_eq!(run.exit, 0, "{}", run.err);
                continue;
            }
            assert_eq!(run.exit, 4, "{format} to {to}: {}{}", run.out, run.err);
            assert!(run.err.contains(&format!("is {format}")), "{}", run.err);
            assert!(
                run.err.contains(&format!("--to {to} --onto")),
                "{}",
                run.err
            );
        }
        assert!(place.snapshot() == before);
        std::fs::remove_file(place.file("a")).unwrap();
        std::fs::remove_file(place.file("b")).unwrap();
    }
}

#[test]
fn a_conversion_that_was_cut_is_not_ended_as_another_one() {
    let place = Place::new("cut-version");
    done(
        &place,
        "create v --level 1 --format gmirror --member-size 8M a b",
    );
    done(&place, "gmirror resize --in . -s 16000 v");
    let labels = ["a", "b"].map(|name| std::fs::read(place.file(name)).unwrap());
    done(&place, "convert a b --to md-1.0");
    // As it was when the new superblocks were there: the old labels on one member, then on both.
    for (name, old) in ["a", "b"].iter().zip(&labels) {
        let mut bytes = std::fs::read(place.file(name)).unwrap();
        let at = bytes.len() - 512;
        bytes[at..].copy_from_slice(&old[at..]);
        std::fs::write(place.file(name), bytes).unwrap();
        let before = place.snapshot();
        let run = place.plexum("convert a b --to md-0.90");
        assert_eq!(run.exit, 4, "{}{}", run.out, run.err);
        assert!(run.err.contains("--to md-1.0"), "{}", run.err);
        assert!(place.snapshot() == before);
    }
    done(&place, "convert a b --to md-1.0");
    done(&place, "serve --background a b");
    done(&place, "stop v");
}

/// Files with something on them that is no metadata of a RAID.
fn used(place: &Place) -> Vec<&'static str> {
    for name in ["ext4", "table", "bytes"] {
        place.sparse(name, 24 << 20);
    }
    assert_eq!(place.tool("mkfs.ext4", "-q ext4").exit, 0);
    let mut table = vec![0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 16].copy_from_slice(&[0, 8, 0, 0, 0, 64, 0, 0]);
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    table.resize(24 << 20, 0);
    std::fs::write(place.file("table"), table).unwrap();
    let mut bytes = vec![0; 24 << 20];
    bytes[700_000] = 7;
    std::fs::write(place.file("bytes"), bytes).unwrap();
    vec!["ext4", "table", "bytes"]
}

#[test]
fn a_member_that_joins_a_mirror_or_a_system_is_looked_at_as_create_does() {
    let place = Place::new("joins");
    std::fs::create_dir(place.file("gv")).unwrap();
    std::fs::create_dir(place.file("gm")).unwrap();
    let text = "drive d0 device gv/d0\nvolume v\n  plex org concat\n    sd length 1m drive d0\n";
    std::fs::write(place.file("conf"), text).unwrap();
    done(&place, "create -f conf --member-size 24M");
    done(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 24M gm/a gm/b",
    );
    place.sparse("free1", 24 << 20);
    place.sparse("free2", 24 << 20);
    for file in used(&place) {
        let before = place.snapshot();
        for command in [
            "gvinum concat FILE --in gv",
            "gvinum stripe free1 FILE --in gv",
            "gvinum raid5 free1 free2 FILE --in gv",
            "gvinum mirror free1 FILE --in gv",
            "gvinum hotspare FILE --in gv",
            "gvinum grow v.p0 FILE --in gv",
            "gvinum move FILE v.p0.s0 --in gv",
            "gmirror insert gm0 FILE --in gm",
        ] {
            let words = command.replace("FILE", file);
            for words in [words.clone(), format!("{words} --dry-run")] {
                let run = place.plexum(&words);
                assert_eq!(run.exit, 3, "{words}: {}{}", run.out, run.err);
                let is_told = run.err.contains(&format!("{file} is not empty: "));
                assert!(
                    is_told && run.err.contains("--force"),
                    "{words}: {}",
                    run.err
                );
            }
        }
        assert!(place.snapshot() == before, "{file}");
    }
    let asked = place.plexum("gvinum concat ext4 --in gv --force");
    assert_eq!(asked.exit, 3, "nobody can be asked: {}", asked.err);
    done(&place, "gvinum concat ext4 --in gv --force --yes");
    done(&place, "gmirror insert gm0 bytes --in gm --force --yes");
}

#[test]
fn labels_of_a_member_that_two_sets_claim_are_written_when_that_is_known() {
    let place = Place::new("two-owners");
    done(&place, "create inner --level 1 --member-size 24M a b");
    // A label of gmirror behind an array: one of the two is left over.
    done(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 24M x y",
    );
    for (own, label) in [("a", "x"), ("b", "y")] {
        let label = std::fs::read(place.file(label)).unwrap();
        let mut bytes = std::fs::read(place.file(own)).unwrap();
        let at = bytes.len() - 512;
        bytes[at..].copy_from_slice(&label[at..]);
        std::fs::write(place.file(own), bytes).unwrap();
    }
    for name in ["x", "y"] {
        std::fs::remove_file(place.file(name)).unwrap();
    }
    let before = place.snapshot();
    for words in [
        "gmirror configure -b prefer gm0 --in .",
        "gmirror deactivate gm0 a --in .",
        "gmirror destroy gm0 --in .",
    ] {
        for words in [words.to_owned(), format!("{words} --dry-run")] {
            let run = place.plexum(&words);
            assert_ne!(run.exit, 0, "{words}: {}{}", run.out, run.err);
            assert!(run.err.contains("sets claim"), "{words}: {}", run.err);
        }
    }
    assert!(place.snapshot() == before);
    done(&place, "gmirror configure -b prefer gm0 --in . --yes");
}

#[test]
fn a_member_that_two_sets_claim_does_not_come_back_unasked() {
    let place = Place::new("two-owners-back");
    done(&place, "create nas --level 1 --member-size 24M a b");
    done(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 24M x y",
    );
    let server = Server::start(&place, "a b");
    done(&place, "fail nas b");
    done(&place, "remove nas b");
    // Somebody made it a member of another set meanwhile.
    let label = std::fs::read(place.file("x")).unwrap();
    let mut bytes = std::fs::read(place.file("b")).unwrap();
    let at = bytes.len() - 512;
    bytes[at..].copy_from_slice(&label[at..]);
    std::fs::write(place.file("b"), &bytes).unwrap();
    for words in [
        "re-add nas b",
        "add nas b",
        "re-add nas b -n",
        "add nas b -n",
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 3, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains("sets claim"), "{words}: {}", run.err);
        assert!(run.err.contains("b --force"), "{}", run.err);
    }
    assert!(std::fs::read(place.file("b")).unwrap() == bytes);
    done(&place, "add nas b --force --yes");
    drop(server);
}

#[test]
fn a_dry_run_of_a_scan_says_what_would_be_left_out() {
    let place = Place::new("scan-dry");
    std::fs::create_dir(place.file("d")).unwrap();
    done(&place, "create fine --level 1 --member-size 8M d/a d/b");
    done(&place, "create lacking --level 0 --member-size 8M d/c d/e");
    std::fs::remove_file(place.file("d/e")).unwrap();
    let dry = place.plexum("serve --scan d -n");
    let real = place.plexum("serve --scan d --background");
    assert_eq!((dry.exit, real.exit), (4, 4), "{}{}", dry.err, real.err);
    let told = |err: &str| -> Vec<String> {
        let lines = err.lines().skip_while(|line| !line.contains("not served"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(told(&dry.err), told(&real.err));
    assert!(!told(&dry.err).is_empty());
    assert!(dry.out.contains("would serve d/a d/b"), "{}", dry.out);
    assert!(!dry.out.contains("d/c"), "{}", dry.out);
    done(&place, "stop fine");
}
