//! Sets of FreeBSD that lose a part, are nested, or are found beside one that cannot start.

use crate::common::{Place, ok, uri};

const PLEX_BYTES: usize = 3 << 20;

fn write(place: &Place, volume: &str, content: &[u8]) -> i32 {
    std::fs::write(place.file("content"), content).unwrap();
    place
        .tool("nbdcopy", &format!("content {}", uri(place, volume)))
        .exit
}

fn read(place: &Place, volume: &str) -> Vec<u8> {
    let copied = place.tool("nbdcopy", &format!("{} copy", uri(place, volume)));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    std::fs::read(place.file("copy")).unwrap()
}

/// Blocks that differ from each other.
fn content(bytes: usize) -> Vec<u8> {
    let words =
        (0..bytes as u64 / 8).map(|number| (number / 64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    words.flat_map(u64::to_le_bytes).collect()
}

/// Four drives of a plex that is filled and stopped; they are in `d`.
fn filled(place: &Place, organisation: &str) -> Vec<u8> {
    std::fs::create_dir(place.file("d")).unwrap();
    let mut text = String::new();
    for number in 0..4 {
        place.sparse(&format!("d/d{number}"), 2 << 20);
        text += &format!("drive d{number} device d/d{number}\n");
    }
    text += &format!("volume v\nplex org {organisation} 64k\n");
    for number in 0..4 {
        text += &format!("sd length 1m drive d{number}\n");
    }
    std::fs::write(place.file("v.conf"), text).unwrap();
    ok(place, "gvinum create v.conf");
    ok(place, "serve --background --write d/d0 d/d1 d/d2 d/d3");
    let content = content(PLEX_BYTES);
    assert_eq!(write(place, "v", &content), 0);
    ok(place, "stop v");
    content
}

fn plex_line(place: &Place) -> String {
    let list = ok(place, "gvinum list --in d");
    list.lines()
        .find(|line| line.starts_with("P "))
        .unwrap()
        .to_owned()
}

#[test]
fn a_raid5_plex_keeps_the_place_of_a_subdisk_that_was_taken_away() {
    // In the middle, where the offsets show it, and at the end, where they do not.
    for (gone, others) in [(1, "d/d0 d/d2 d/d3"), (3, "d/d0 d/d1 d/d2")] {
        let place = Place::in_memory(&format!("field-plex-keeps-{gone}"));
        let content = filled(&place, "raid5");
        std::fs::rename(place.file(&format!("d/d{gone}")), place.file("away")).unwrap();
        ok(&place, &format!("gvinum detach v.p0.s{gone} --in d"));
        assert!(
            plex_line(&place).contains("degraded"),
            "{}",
            plex_line(&place)
        );
        ok(&place, &format!("gvinum rm v.p0.s{gone} --in d"));
        let line = plex_line(&place);
        assert!(
            line.contains("degraded") && line.contains("3072 kB"),
            "{line}"
        );
        ok(&place, &format!("serve --background {others}"));
        assert!(read(&place, "v") == content, "without {gone}");
        ok(&place, "stop v");
        let grown = place.plexum("gvinum grow v.p0 d/d0 --in d");
        assert_ne!(grown.exit, 0, "a plex with a free place does not grow");
        place.sparse("d/new", 2 << 20);
        let text = "drive new device d/new\nsd name v.p0.new drive new length 1m plex v.p0\n";
        std::fs::write(place.file("new.conf"), text).unwrap();
        ok(&place, "gvinum create new.conf --in d");
        let list = ok(&place, "gvinum list -v v.p0.new --in d");
        let offset = format!("Plex v.p0 at offset {}", gone * 65536);
        assert!(
            list.contains(&offset) && list.contains("Drive new (new) at offset"),
            "{list}"
        );
        ok(
            &place,
            &format!("serve --background --write {others} d/new"),
        );
        assert!(read(&place, "v") == content, "with a new one for {gone}");
        ok(&place, "stop v");
    }
}

#[test]
fn no_word_takes_the_last_copy_unless_forced() {
    let place = Place::in_memory("field-last-copy");
    let content = filled(&place, "striped");
    let before = place.snapshot();
    for words in ["rm -r d1", "detach v.p0.s1", "detach v.p0", "rm -r v.p0"] {
        let refused = place.plexum(&format!("gvinum {words} --in d"));
        assert_eq!(refused.exit, 4, "{words}: {}", refused.err);
    }
    assert!(place.snapshot() == before);
    ok(&place, "serve --background d/d0 d/d1 d/d2 d/d3");
    assert!(read(&place, "v")[..PLEX_BYTES] == content);
    ok(&place, "stop v");
    ok(&place, "gvinum rm -r -f d1 --in d");
    let line = plex_line(&place);
    assert!(line.contains("down") && line.contains("4096 kB"), "{line}");
    let gone = place.plexum("serve --background d/d0 d/d2 d/d3");
    assert_eq!(gone.exit, 4, "{}", gone.err);
}

#[test]
fn a_member_that_nobody_can_replace_stays_when_it_refuses_writes() {
    for format in ["gmirror", "md-0.90"] {
        let place = Place::in_memory(&format!("field-refuses-{format}"));
        place.sparse("a", 4 << 20);
        place.sparse("b", 4 << 20);
        ok(&place, &format!("create m --level 1 --format {format} a b"));
        let socket = place.file("a.nbd");
        let refuses = place.file("refuse");
        let mut server = place
            .command("nbdkit")
            .args(["-f", "--filter=error", "-U"])
            .arg(&socket)
            .args(["file", "a", "error-pwrite=EIO", "error-pwrite-rate=100%"])
            .arg(format!("error-pwrite-file={}", refuses.display()))
            .spawn()
            .unwrap();
        while !socket.exists() {
            std::thread::yield_now();
        }
        let member = format!("nbd+unix:///?socket={}", socket.display());
        // md 0.90 keeps no name.
        ok(
            &place,
            &format!("serve --background --write --name m {member} b"),
        );
        let old = content(1 << 20);
        assert_eq!(write(&place, "m", &old), 0);
        ok(&place, "fail m b");
        std::fs::write(&refuses, "").unwrap();
        assert_ne!(
            write(&place, "m", &[7; 65536]),
            0,
            "{format}: it cannot be written"
        );
        assert!(
            read(&place, "m")[65536..1 << 20] == old[65536..],
            "{format}: it is read"
        );
        let status = place.plexum("status m");
        assert!(status.out.contains("DEGRADED"), "{}", status.out);
        assert!(status.out.contains("stays: nobody else"), "{}", status.out);
        std::fs::remove_file(&refuses).unwrap();
        assert_eq!(
            write(&place, "m", &[8; 65536]),
            0,
            "{format}: the error is over"
        );
        assert!(read(&place, "m")[..65536] == [8; 65536]);
        ok(&place, "stop m");
        server.kill().unwrap();
        server.wait().unwrap();
    }
}

#[test]
fn the_second_copy_of_a_configuration_is_used_and_mends_the_first() {
    use std::os::unix::fs::FileExt;
    for all in [true, false] {
        let place = Place::in_memory(&format!("field-second-copy-{all}"));
        let content = filled(&place, "striped");
        let drives = if all { 0..4 } else { 2..3 };
        for number in drives {
            let path = place.file(&format!("d/d{number}"));
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.write_all_at(&[0; 65536], 4608).unwrap();
        }
        let scan = ok(&place, "scan d");
        assert!(scan.contains("4 found"), "{scan}");
        ok(&place, "serve --background --write d/d0 d/d1 d/d2 d/d3");
        assert!(read(&place, "v")[..PLEX_BYTES] == content);
        ok(&place, "stop v");
        let mended = std::fs::read(place.file("d/d2")).unwrap();
        assert!(mended[4608..].starts_with(b"volume v state up"));
    }
}

#[test]
fn a_set_that_cannot_start_does_not_keep_the_others_down() {
    let place = Place::in_memory("field-scan-some");
    std::fs::create_dir(place.file("d")).unwrap();
    for name in ["d/g0", "d/g1", "d/b0", "d/b1"] {
        place.sparse(name, 2 << 20);
    }
    ok(&place, "create good --level 1 --format gmirror d/g0 d/g1");
    ok(&place, "gmirror label -h bound d/b0 d/b1");
    std::fs::rename(place.file("d/b0"), place.file("d/c0")).unwrap();
    std::fs::rename(place.file("d/b1"), place.file("d/c1")).unwrap();
    let run = place.plexum("serve --background --scan d");
    assert_eq!(run.exit, 4, "not everything is served: {}", run.err);
    assert!(run.out.starts_with("good "), "{}", run.out);
    assert!(
        run.err.contains("c0: its label is bound to b0"),
        "{}",
        run.err
    );
    assert!(run.err.contains("add:   --force"), "{}", run.err);
    assert!(place.plexum("status good").out.starts_with("good "));
    ok(&place, "stop good");
    std::fs::remove_file(place.file("d/g1")).unwrap();
    let run = place.plexum("serve --background --write --force --scan d");
    assert_eq!(run.exit, 3, "{}", run.err);
    assert!(run.out.starts_with("bound "), "{}", run.out);
    assert!(
        run.err.contains("good: 1 of 2 components are here"),
        "{}",
        run.err
    );
    ok(&place, "stop bound");
}

#[test]
fn a_stripe_over_mirrors_is_found_and_served_by_the_commands_that_scan_gives() {
    for bound in ["", "-h "] {
        let place = Place::in_memory(&format!("field-nested{}", bound.len()));
        for name in ["ada0", "ada1", "ada2", "ada3"] {
            place.sparse(name, 2 << 20);
        }
        ok(&place, "create gm0 --level 1 --format gmirror ada0 ada1");
        ok(&place, "create gm1 --level 1 --format gmirror ada2 ada3");
        ok(&place, "serve --background --write ada0 ada1 ada2 ada3");
        let content = content(1 << 20);
        let (half, label) = ((2 << 20) - 512, ["outer0", "outer1"]);
        for name in label {
            place.sparse(name, half);
        }
        ok(
            &place,
            "create st0 --level 0 --format gstripe --strip 64K outer0 outer1",
        );
        ok(&place, "serve --background --write outer0 outer1");
        assert_eq!(write(&place, "st0", &content), 0);
        ok(&place, "stop st0");
        for (mirror, name) in ["gm0", "gm1"].iter().zip(label) {
            let mut bytes = std::fs::read(place.file(name)).unwrap();
            if !bound.is_empty() {
                bind(&mut bytes, &format!("mirror/{mirror}"));
            }
            assert_eq!(write(&place, mirror, &bytes), 0);
            std::fs::remove_file(place.file(name)).unwrap();
        }
        ok(&place, "stop gm0");
        ok(&place, "stop gm1");
        let scan = ok(&place, "scan ada0 ada1 ada2 ada3");
        assert!(scan.contains("inside of the mirrors gm0 gm1"), "{scan}");
        let commands = scan
            .lines()
            .filter_map(|line| line.trim().strip_prefix("plexum "));
        let mut count = 0;
        for command in commands {
            ok(&place, &command.replace('\'', ""));
            count += 1;
        }
        assert_eq!(count, 2, "{scan}");
        assert!(read(&place, "st0")[..1 << 20] == content);
        for name in ["st0", "gm0", "gm1"] {
            ok(&place, &format!("stop {name}"));
        }
    }
}

/// Binds the gstripe label at the end of a member to a provider: the checksum follows.
fn bind(bytes: &mut [u8], provider: &str) {
    let at = bytes.len() - 512;
    let label = &bytes[at..];
    let mut made =
        plexum_format::gstripe::StripeLabel::parse(label, at as u64, bytes.len() as u64).unwrap();
    made.provider = provider.to_owned();
    let encoded = made.encode();
    bytes[at..at + encoded.len()].copy_from_slice(&encoded);
}

/// A new component is filled first: what is stopped before has one whole component.
fn wait_until_whole(place: &Place, volume: &str) {
    let status = || place.plexum(&format!("status {volume}"));
    let is_whole = (0..2000).any(|_| status().exit == 0);
    assert!(is_whole, "{}", status().out);
}

#[test]
fn halves_that_were_written_apart_are_never_mixed() {
    let place = Place::in_memory("field-halves");
    place.sparse("a", 2 << 20);
    place.sparse("b", 2 << 20);
    ok(&place, "create gm --level 1 --format gmirror a b");
    ok(&place, "serve --background --write a b");
    wait_until_whole(&place, "gm");
    ok(&place, "stop gm");
    for (name, byte) in [("a", 1), ("b", 2)] {
        let alone = place.plexum(&format!("serve --background --read-only {name}"));
        assert_eq!(alone.exit, 3, "a half alone is asked for: {}", alone.err);
        assert!(alone.err.contains("--run-degraded"), "{}", alone.err);
        ok(
            &place,
            &format!("serve --background --write --run-degraded {name}"),
        );
        assert_eq!(write(&place, "gm", &[byte; 1 << 20]), 0);
        ok(&place, "stop gm");
    }
    let asked = place.plexum("serve --background --write a b");
    assert_eq!(asked.exit, 4, "{}", asked.err);
    assert!(asked.err.contains("differ in"), "{}", asked.err);
    let read_only = place.plexum("serve --background a b");
    assert!(
        read_only.err.contains("all is read from"),
        "{}",
        read_only.err
    );
    let content = read(&place, "gm");
    assert!(content[..1 << 20].iter().all(|byte| *byte == content[0]));
    ok(&place, "stop gm");
}

#[test]
fn a_component_that_left_is_behind_whatever_the_order_of_words() {
    let place = Place::in_memory("field-left");
    std::fs::create_dir(place.file("d")).unwrap();
    for name in ["d/a", "d/b", "d/c"] {
        place.sparse(name, 2 << 20);
    }
    ok(&place, "create gm --level 1 --format gmirror d/a d/b d/c");
    ok(&place, "serve --background --write d/a d/b d/c");
    ok(&place, "fail gm d/c");
    ok(&place, "remove gm d/c");
    ok(&place, "stop gm");
    std::fs::rename(place.file("d/c"), place.file("c")).unwrap();
    ok(&place, "gmirror forget --in d gm");
    ok(&place, "serve --background --write d/a d/b");
    assert_eq!(write(&place, "gm", &[5; 65536]), 0);
    ok(&place, "stop gm");
    let id_of = |name: &str| {
        let dump = ok(&place, &format!("examine {name}"));
        let at = dump.find("sync id ").unwrap() + "sync id ".len();
        let digits: String = dump[at..]
            .chars()
            .take_while(char::is_ascii_digit)
            .collect();
        digits.parse::<u32>().unwrap()
    };
    assert!(id_of("d/a") > id_of("c"), "{} {}", id_of("d/a"), id_of("c"));
}

#[test]
fn another_disk_under_the_name_of_a_dead_drive_is_refused() {
    let place = Place::in_memory("field-dead-name");
    filled(&place, "raid5");
    std::fs::remove_file(place.file("d/d2")).unwrap();
    place.sparse("d/new", 2 << 20);
    std::fs::write(place.file("new.conf"), "drive d2 device d/new\n").unwrap();
    let refused = place.plexum("gvinum create --force new.conf --in d");
    assert_eq!(refused.exit, 2, "{}", refused.err);
    assert!(
        refused.err.contains("plexum gvinum rm -r d2"),
        "{}",
        refused.err
    );
    ok(&place, "gvinum rm -r d2 --in d");
    ok(&place, "gvinum create --force new.conf --in d");
}

#[test]
fn a_component_that_comes_back_without_autosync_waits_and_is_filled_on_request() {
    let place = Place::new("noautosync");
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 4M a b",
    );
    ok(&place, "gmirror configure -n gm0 --in .");
    ok(&place, "serve --background --write a b");
    ok(&place, "fail gm0 b");
    let content = content(1 << 20);
    assert_eq!(write(&place, "gm0", &content), 0);
    ok(&place, "stop gm0");
    let before = std::fs::read(place.file("b")).unwrap();
    let run = place.plexum("serve --background --write a b");
    assert_eq!(run.exit, 0, "{}", run.err);
    assert!(
        run.err.contains("b is behind and is not used"),
        "{}",
        run.err
    );
    let way = run
        .err
        .lines()
        .find(|line| line.contains("plexum gmirror rebuild"));
    let way = way.unwrap().split_once("plexum ").unwrap().1.to_owned();
    let status = place.plexum("status gm0");
    assert_eq!(status.exit, 1, "{}", status.out);
    assert!(read(&place, "gm0").starts_with(&content));
    ok(&place, "stop gm0");
    let after = std::fs::read(place.file("b")).unwrap();
    let label = before.len() - 512;
    assert!(
        after[..label] == before[..label],
        "nothing is filled by itself"
    );
    ok(&place, &way);
    ok(&place, "serve --background --write a b");
    wait_until_whole(&place, "gm0");
    ok(&place, "stop gm0");
    ok(&place, "serve --background --read-only --run-degraded b");
    assert!(read(&place, "gm0").starts_with(&content));
    ok(&place, "stop gm0");
}

#[test]
fn a_component_that_was_failed_is_told_how_it_comes_back_and_comes_back() {
    let place = Place::in_memory("field-comes-back");
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 4M a b",
    );
    place.sparse("blank", 4 << 20);
    ok(&place, "serve --background --write a b");
    wait_until_whole(&place, "gm0");
    ok(&place, "fail gm0 a");
    let status = place.plexum("status gm0").out;
    assert!(!status.contains("re-add"), "it would be refused: {status}");
    for words in ["re-add gm0 a --dry-run", "re-add gm0 a"] {
        let refused = place.plexum(words);
        assert_eq!(refused.exit, 4, "{words}: {}", refused.err);
        let is_told = refused
            .err
            .contains("/a was a member of gm0, and cannot catch up");
        assert!(
            is_told && refused.err.contains("gmirror has no bitmap"),
            "{}",
            refused.err
        );
        assert!(!refused.err.contains("never"), "{}", refused.err);
    }
    let blank = place.plexum("re-add gm0 blank");
    assert_eq!(blank.exit, 4, "{}", blank.err);
    let is_new = blank.err.contains("as a new member:   plexum add gm0 ");
    assert!(is_new && !blank.err.contains("--force"), "{}", blank.err);
    let held = place.plexum("add gm0 a --force --yes");
    assert!(held.err.contains("plexum remove gm0 "), "{}", held.err);
    // Each command of the refusal is taken, in its order.
    let refused = place.plexum("re-add gm0 a").err;
    let commands = refused
        .lines()
        .filter_map(|line| line.split_once("plexum "));
    let commands: Vec<&str> = commands.map(|(_, command)| command).collect();
    let [remove, add] = commands.as_slice() else {
        panic!("{refused}");
    };
    ok(&place, remove);
    let gone = place.plexum("re-add gm0 a");
    assert!(gone.err.contains("was a member of gm0"), "{}", gone.err);
    assert!(!gone.err.contains("plexum remove"), "{}", gone.err);
    ok(&place, &format!("{add} --yes --wait"));
    wait_until_whole(&place, "gm0");
    ok(&place, "stop gm0");
}

#[test]
fn a_label_beside_a_superblock_is_found_and_cleared_when_that_is_known() {
    let place = Place::in_memory("field-label-beside");
    ok(&place, "create nas --level 1 --member-size 8M a b");
    let array = std::fs::read(place.file("a")).unwrap();
    let none = place.plexum("gmirror clear a");
    assert_eq!(none.exit, 4, "{}", none.err);
    for told in [
        "a: no gmirror metadata in its last sector",
        "array nas (md-1.2)",
        "plexum examine a",
    ] {
        assert!(none.err.contains(told), "{told}: {}", none.err);
    }
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 8M x y",
    );
    let label = std::fs::read(place.file("x")).unwrap();
    let (at, end) = (array.len() - 512, label.len() - 512);
    let mut both = array.clone();
    both[at..].copy_from_slice(&label[end..]);
    std::fs::write(place.file("a"), &both).unwrap();
    assert!(ok(&place, "gmirror dump a").contains("gm0"));
    let asked = place.plexum("gmirror clear a");
    assert_eq!(asked.exit, 3, "{}", asked.err);
    assert!(
        asked.err.contains("sets claim") && asked.err.contains("--yes"),
        "{}",
        asked.err
    );
    assert!(
        std::fs::read(place.file("a")).unwrap() == both,
        "nothing was written"
    );
    ok(&place, "gmirror clear a --yes");
    assert!(
        std::fs::read(place.file("a")).unwrap() == array,
        "the label is gone, the array is not"
    );
    ok(&place, "serve --background a b");
    ok(&place, "stop nas");
}
