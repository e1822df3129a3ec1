//! Damaged and contradicting disks, and texts that make no sense: one clear line each, and nothing is written.

use crate::common::{Place, ok};

/// The command fails with exit code `exit`, one error that says `expected`, and no file has changed.
fn refused(place: &Place, words: &str, exit: i32, expected: &str) {
    let before = place.snapshot();
    let run = place.plexum(words);
    assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
    let mut lines = run.err.lines().filter(|line| !line.starts_with("note: "));
    let first = lines.next().unwrap_or_default();
    assert!(first.starts_with("error: "), "{words}: {}", run.err);
    assert_eq!(
        run.err.matches("error: ").count(),
        1,
        "{words}: {}",
        run.err
    );
    assert!(
        run.err.contains(expected),
        "{words}: {expected}: {}",
        run.err
    );
    assert!(run.err.len() < 20_000, "{words}: a few words are enough");
    assert!(place.snapshot() == before, "{words} has written");
}

/// Puts bytes into the label at the end of a file; `is_summed`: with the right MD5 of a gmirror label of version 4.
fn patch(place: &Place, name: &str, at: usize, bytes: &[u8], is_summed: bool) {
    let path = place.file(name);
    let mut all = std::fs::read(&path).unwrap();
    let label = all.len() - 512;
    all[label + at..label + at + bytes.len()].copy_from_slice(bytes);
    if is_summed {
        std::fs::write(place.file("label"), &all[label..label + 119]).unwrap();
        let sum = place.tool("md5sum", "label").out;
        std::fs::remove_file(place.file("label")).unwrap();
        for (byte, digits) in sum.as_bytes()[..32].chunks(2).enumerate() {
            let digits = std::str::from_utf8(digits).unwrap();
            all[label + 119 + byte] = u8::from_str_radix(digits, 16).unwrap();
        }
    }
    std::fs::write(path, all).unwrap();
}

#[test]
fn absurd_numbers_in_labels_are_refused_with_the_field() {
    let place = Place::new("bad-numbers");
    for (format, level) in [("gstripe", "0"), ("gconcat", "linear")] {
        ok(
            &place,
            &format!("create v --level {level} --format {format} --member-size 1M a.img b.img"),
        );
        let whole = std::fs::read(place.file("a.img")).unwrap();
        let mut cases: Vec<(usize, Vec<u8>, &str)> = vec![
            (16, 99_u32.to_le_bytes().into(), "version"),
            (40, 65_535_u16.to_le_bytes().into(), "member number"),
            (42, 0_u16.to_le_bytes().into(), "number of members"),
            (42, 65_535_u16.to_le_bytes().into(), "contradicts"),
        ];
        if format == "gstripe" {
            cases.push((44, 0_u32.to_le_bytes().into(), "stripe size"));
            cases.push((44, 4097_u32.to_le_bytes().into(), "stripe size"));
            cases.push((44, (1_u32 << 31).to_le_bytes().into(), "contradicts"));
        }
        for (at, bytes, expected) in cases {
            patch(&place, "a.img", at, &bytes, false);
            refused(&place, "serve --write a.img b.img", 4, expected);
            std::fs::write(place.file("a.img"), &whole).unwrap();
        }
        for name in ["a.img", "b.img"] {
            std::fs::remove_file(place.file(name)).unwrap();
        }
    }
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 1M a.img b.img",
    );
    let whole = std::fs::read(place.file("a.img")).unwrap();
    for (at, bytes, expected) in [
        (16, vec![5, 0, 0, 0], "version"),
        (44, vec![0], "number of components"),
        (58, vec![9], "balance"),
        (59, vec![255; 8], "media size"),
        (67, vec![0; 4], "sector size"),
        (79, vec![255; 8], "mirror flags"),
        (87, vec![255; 8], "component flags"),
        (111, vec![9; 8], "provider size"),
    ] {
        patch(&place, "a.img", at, &bytes, true);
        refused(&place, "serve --write a.img", 4, expected);
        // With the other one it is a start without a component, and told why.
        refused(&place, "serve --write a.img b.img", 3, expected);
        std::fs::write(place.file("a.img"), &whole).unwrap();
    }
    patch(&place, "a.img", 50, &[77], false);
    refused(&place, "serve --write a.img b.img", 3, "md5");
    refused(&place, "gmirror forget --in a.img gm0", 4, "no mirror gm0");
}

#[test]
fn members_that_contradict_each_other_are_refused_with_the_reason() {
    let place = Place::new("bad-contradiction");
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 1M a.img b.img",
    );
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 1M x.img y.img",
    );
    std::fs::copy(place.file("a.img"), place.file("copy.img")).unwrap();
    refused(
        &place,
        "serve --write a.img x.img",
        3,
        "x.img does not count: another mirror of this name",
    );
    refused(&place, "serve --write a.img copy.img", 3, "one is a copy");
    refused(&place, "serve --write a.img a.img", 4, "given twice");
    // Each says another number of components, balance, size: the newest one counts, and both are as new.
    patch(&place, "b.img", 44, &[3], true);
    refused(
        &place,
        "serve --write a.img b.img",
        3,
        "b.img does not count: its settings differ",
    );
    ok(
        &place,
        "create s --level 0 --format gstripe --member-size 1M s0.img s1.img",
    );
    ok(
        &place,
        "create t --level 0 --format gstripe --member-size 1M t0.img t1.img",
    );
    refused(
        &place,
        "serve --write s0.img t1.img",
        4,
        "t1.img belongs to t",
    );
    std::fs::copy(place.file("s0.img"), place.file("s0b.img")).unwrap();
    refused(
        &place,
        "serve --write s0.img s0b.img",
        4,
        "another member has number 0 too",
    );
    // Formats that do not go together.
    refused(
        &place,
        "serve --write a.img s0.img",
        4,
        "carries no gmirror metadata",
    );
}

#[test]
fn texts_with_loops_dangling_names_and_absurd_sizes_make_nothing() {
    let place = Place::new("bad-text");
    place.sparse("a.img", 4 << 20);
    place.sparse("b.img", 4 << 20);
    let volume = "drive a device a.img\nvolume v\n plex org concat\n";
    let many = format!("{volume}{}", "  sd length 512 drive a\n".repeat(3000));
    let volumes =
        (0..700).map(|n| format!("volume v{n}\n plex org concat\n  sd length 512 drive a\n"));
    let outgrown = format!("drive a device a.img\n{}", volumes.collect::<String>());
    let cases = [
        (
            "a plex in itself",
            "drive a device a.img\nvolume v\nplex name v.p0 org concat volume v.p0\n".to_owned(),
            "there is no volume v.p0",
        ),
        (
            "a subdisk in itself",
            format!("{volume}  sd name s length 1m drive a plex s\n"),
            "there is no plex s",
        ),
        (
            "a drive on its volume",
            "drive a device volume:v\nvolume v\n plex org concat\n  sd length 1m drive a\n"
                .to_owned(),
            "volume:v",
        ),
        (
            "no such drive",
            format!("{volume}  sd length 1m drive z\n"),
            "there is no drive z",
        ),
        (
            "one drive twice",
            format!("drive b device a.img\n{volume}  sd length 1m drive a\n"),
            "given twice",
        ),
        (
            "one name twice",
            format!("drive a device b.img\n{volume}  sd length 1m drive a\n"),
            "two drives are called a",
        ),
        (
            "two volumes of a name",
            format!("{volume}  sd length 1m drive a\nvolume v\n"),
            "a volume v exists",
        ),
        (
            "no stripe",
            "drive a device a.img\nvolume v\n plex org raid5 0k\n".to_owned(),
            "a stripe size above 0",
        ),
        (
            "more than there is",
            format!("{volume}  sd length 8388607t drive a\n"),
            "length",
        ),
        (
            "a hundred digits",
            format!("{volume}  sd length {} drive a\n", "9".repeat(100)),
            "length",
        ),
        (
            "behind the end",
            format!("{volume}  sd length 1m driveoffset 18446744073709551104 drive a\n"),
            "drive",
        ),
        (
            "in the header",
            format!("{volume}  sd length 1m driveoffset 4096 drive a\n"),
            "drive",
        ),
        ("three thousand subdisks", many, "members, not 3000"),
        ("longer than the place on a drive", outgrown, "does not fit"),
        (
            "a name of a thousand letters",
            format!("drive a device a.img\nvolume {}\n", "v".repeat(1000)),
            "at most 63",
        ),
        (
            "a path for a name",
            "drive a device a.img\nvolume ../v\n".to_owned(),
            "no slash",
        ),
        ("nothing", String::new(), "names no drive"),
    ];
    for (what, text, expected) in cases {
        std::fs::write(place.file("text"), text).unwrap();
        let before = place.snapshot();
        let run = place.plexum("create -f text");
        assert!(
            matches!(run.exit, 2..=7),
            "{what}: {} {}{}",
            run.exit,
            run.out,
            run.err
        );
        assert!(
            run.err.contains(expected),
            "{what}: {expected}: {}",
            run.err
        );
        assert_eq!(run.err.matches("error: ").count(), 1, "{what}: {}", run.err);
        assert!(place.snapshot() == before, "{what}: something was written");
    }
    // 128 KiB of garbage: letters, and anything.
    let mut state = 7_u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        (state >> 40) as u8
    };
    let anything: Vec<u8> = (0..128 << 10).map(|_| next()).collect();
    let words = [
        "volume", "plex", "sd", "drive", "org", "raid5", "length", "7", "\n", "#", "-1m",
    ];
    let mut letters = String::new();
    while letters.len() < 128 << 10 {
        letters.push_str(words[usize::from(next()) % words.len()]);
        letters.push(' ');
    }
    for (name, text) in [("anything", anything), ("letters", letters.into_bytes())] {
        std::fs::write(place.file(name), text).unwrap();
        refused(&place, &format!("create -f {name}"), 2, "line 1");
        refused(&place, &format!("config {name}"), 2, "line 1");
        refused(&place, &format!("gvinum create {name}"), 2, "line 1");
    }
}

/// A drive whose both copies say `text`.
fn drive_that_says(place: &Place, name: &str, text: &[u8]) {
    ok(
        place,
        &format!("create v --level linear --format gvinum --member-size 1M {name}"),
    );
    let mut bytes = std::fs::read(place.file(name)).unwrap();
    for at in [4608, 70_144] {
        bytes[at..at + 65_536].fill(0);
        bytes[at..at + text.len()].copy_from_slice(text);
    }
    std::fs::write(place.file(name), bytes).unwrap();
}

#[test]
fn damaged_disks_are_refused_with_their_reason_and_not_touched() {
    let place = Place::new("foreign-damage");
    let garbage: Vec<u8> = (0..65_536_u32)
        .map(|at| (at * 7919 % 251) as u8 | 1)
        .collect();
    let subdisk = "sd name v.p0.s0 drive gvinumdrive0 len 512s driveoffset 265s plex v.p0 plexoffset 0s state up";
    let top = "volume v state up\nplex name v.p0 org concat vol v state up\n";
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("garbage", garbage, "makes sense"),
        (
            "dangling-plex",
            format!("volume v state up\n{subdisk}\n").into(),
            "plex of a subdisk",
        ),
        (
            "dangling-volume",
            "plex name v.p0 org concat vol x state up\n".into(),
            "volume of a plex",
        ),
        (
            "twice",
            format!("{top}{subdisk}\n{subdisk}\n").into(),
            "names",
        ),
        (
            "absurd-length",
            format!(
                "{top}{}\n",
                subdisk.replace("512s", "99999999999999999999s")
            )
            .into(),
            "len",
        ),
        (
            "beyond",
            format!("{top}{}\n", subdisk.replace("512s", "9999999s")).into(),
            "driveoffset",
        ),
        (
            "in-the-header",
            format!("{top}{}\n", subdisk.replace("265s", "8s")).into(),
            "driveoffset",
        ),
        (
            "no-strip",
            "plex name v.p0 org striped 0s vol v state up\n".into(),
            "stripe size",
        ),
        (
            "half-grown",
            format!("{top}{subdisk}\n")
                .replace(
                    "vol v state up",
                    "vol v state growable # grows from 7 at 8s backup 0s",
                )
                .into(),
            "growth",
        ),
    ];
    for (name, text, expected) in cases {
        let image = format!("{name}.img");
        drive_that_says(&place, &image, &text);
        let before = place.snapshot();
        for command in [
            "serve --write",
            "convert --to md-1.1",
            "gvinum saveconfig --in",
        ] {
            let run = place.plexum(&format!("{command} {image}"));
            assert_ne!(run.exit, 0, "{command} {name}");
            assert_eq!(
                run.err.matches("error: ").count(),
                1,
                "{command} {name}: {}",
                run.err
            );
            if command.starts_with("serve") {
                assert!(run.err.contains(expected), "{name}: {}", run.err);
            }
        }
        assert!(place.snapshot() == before, "{name} was written to");
        std::fs::remove_file(place.file(&image)).unwrap();
    }
    // Sectors that are not there any more.
    ok(
        &place,
        "create g --level 1 --format gmirror --member-size 1M m0.img m1.img",
    );
    ok(
        &place,
        "create c --level linear --format gconcat --member-size 1M c0.img c1.img",
    );
    ok(
        &place,
        "create w --level linear --format gvinum --member-size 1M w0.img",
    );
    for (name, length) in [
        ("m0.img", 1_048_064),
        ("c0.img", 1_000_000),
        ("w0.img", 100_000),
    ] {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(place.file(name))
            .unwrap();
        file.set_len(length).unwrap();
    }
    let before = place.snapshot();
    for (files, exit) in [("m0.img m1.img", 4), ("c0.img c1.img", 4), ("w0.img", 4)] {
        let run = place.plexum(&format!("serve --write {files}"));
        assert_eq!(run.exit, exit, "{files}: {}", run.err);
        assert_eq!(
            run.err.matches("error: ").count(),
            1,
            "{files}: {}",
            run.err
        );
    }
    assert!(place.snapshot() == before, "nothing was written");
}
