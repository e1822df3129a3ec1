//! `plexum create`: what is written, what is refused, and that nothing else is touched.

use std::os::unix::fs::FileExt;

use crate::common::Place;
use crate::common::served::{Server, content, done, fill, status, wait_until};

const MIB: u64 = 1 << 20;

/// What mdadm counts in a member's bitmap: `3 dirty (1.2%)`. It reads bitmaps of plain files only from files of their
/// own.
fn dirty_bits(place: &Place, member: &str, format: &str) -> String {
    let start = if format == "1.2" { 8192 } else { 4096 };
    let mut area = vec![0; 4096];
    let file = std::fs::File::open(place.file(member)).unwrap();
    file.read_exact_at(&mut area, start).unwrap();
    let path = place.file(&format!("bitmap-{member}"));
    std::fs::write(&path, area).unwrap();
    let text = place.tool("mdadm", &format!("-X {}", path.display())).out;
    let line = text.lines().find(|line| line.contains("Bitmap :"));
    let words = line.unwrap_or_else(|| panic!("no bitmap: {text}"));
    words.split("chunks), ").nth(1).unwrap().to_owned()
}

#[test]
fn every_level_and_version_is_accepted_by_mdadm() {
    let place = Place::new("create-mdadm");
    let mut number = 0;
    for format in ["1.2", "1.1", "1.0", "0.90"] {
        for (level, members, shown) in [
            ("linear", 2, "linear"),
            ("0", 3, "raid0"),
            ("1", 2, "raid1"),
            ("4", 3, "raid4"),
            ("5", 4, "raid5"),
            ("6", 4, "raid6"),
            ("10", 4, "raid10"),
        ] {
            number += 1;
            let files: Vec<String> = (0..members).map(|n| format!("m{number}-{n}")).collect();
            let run = place.plexum(&format!(
                "create nas --level {level} --format md-{format} --strip 64K --member-size 16M --homehost box {}",
                files.join(" ")
            ));
            assert_eq!(run.exit, 0, "{format} {level}: {}", run.err);
            for file in &files {
                let examined = place.tool("mdadm", &format!("-E {file}"));
                assert_eq!(examined.exit, 0, "{format} {level}: {}", examined.err);
                let text = examined.out;
                assert!(text.contains(&format!("Raid Level : {shown}")), "{text}");
                assert!(text.contains("- correct"), "{text}");
                assert!(text.contains("State : clean"), "{text}");
                if format != "0.90" {
                    assert!(text.contains("Name : box:nas"), "{text}");
                }
                let has_bitmap = text.contains("Internal Bitmap");
                assert_eq!(
                    has_bitmap,
                    !matches!(level, "linear" | "0"),
                    "{format} {level} {text}"
                );
                if has_bitmap && matches!(format, "1.1" | "1.2") {
                    assert!(dirty_bits(&place, file, format).starts_with("0 dirty"));
                }
            }
        }
    }
}

#[test]
fn a_dry_run_shows_the_plan_and_changes_nothing() {
    let place = Place::new("create-dry");
    place.sparse("a", 16 * MIB);
    std::fs::write(place.file("b"), vec![7; 8 << 20]).unwrap();
    let before = place.snapshot();
    // Without the word it is refused as the real thing would be, after the plan was shown.
    let refused = place.plexum("create nas --level 1 a b new --member-size 16M --dry-run");
    assert_eq!(refused.exit, 3, "{}", refused.err);
    let run = place.plexum("create nas --level 1 a b new --member-size 16M --force --dry-run");
    assert_eq!(run.exit, 0, "{}", run.err);
    assert!(run.out.contains("create nas: raid1"), "{}", run.out);
    assert!(
        run.out
            .contains("DESTROYS b: unknown data in its first MiB"),
        "{}",
        run.out
    );
    assert!(run.out.contains("made as a sparse file"));
    assert!(place.snapshot() == before, "a byte was changed");

    let run = place.plexum("create nas --level 1 a b -n --json");
    let plan = &run.objects()[0];
    assert_eq!(
        (&plan["kind"], &plan["volume"]),
        (&"plan".into(), &"nas".into())
    );
    assert_eq!(plan["destroys"][0]["member"], "b");
    assert_eq!(plan["start"], "resync");
    assert!(place.snapshot() == before);
}

#[test]
fn members_with_something_on_them_need_force_and_an_answer() {
    let place = Place::new("create-found");
    place.sparse("fs", 16 * MIB);
    assert_eq!(place.tool("mkfs.ext4", "-q -L home fs").exit, 0);
    place.sparse("b", 16 * MIB);
    let before = place.snapshot();
    let refused = place.plexum("create nas --level 1 fs b");
    assert_eq!(refused.exit, 3, "{}", refused.err);
    assert!(
        refused
            .err
            .starts_with("error: fs is not empty: ext4 file system \"home\" found\n"),
        "{}",
        refused.err
    );
    assert!(refused.err.contains("--force"));
    assert_eq!(place.plexum("create nas --level 1 fs b --yes").exit, 3);
    let unasked = place.plexum("create nas --level 1 fs b --force --json");
    assert_eq!(unasked.exit, 3);
    assert!(unasked.err.contains("\"not_confirmed\""), "{}", unasked.err);
    assert!(place.snapshot() == before, "a refusal changed a member");

    let run = place.plexum("create nas --level 1 fs b --force --yes");
    assert_eq!(run.exit, 0, "{}", run.err);
    let left = place.tool("wipefs", "--no-act --noheadings fs");
    assert!(
        left.out.contains("linux_raid_member") && !left.out.contains("ext4"),
        "{}",
        left.out
    );

    let again = place.plexum("create other --level 1 fs b");
    assert_eq!(again.exit, 3);
    assert!(
        again.err.contains("md superblock 1.2 of array"),
        "{}",
        again.err
    );
}

#[test]
fn an_older_superblock_of_another_version_does_not_survive() {
    let place = Place::new("create-older");
    let run = place.plexum("create old --level 1 --format md-1.0 --member-size 16M a b");
    assert_eq!(run.exit, 0, "{}", run.err);
    let run = place.plexum("create new --level 1 a b --force --yes");
    assert_eq!(run.exit, 0, "{}", run.err);
    let examined = place.tool("mdadm", "-E a");
    assert!(
        examined.out.contains(":new") && examined.out.contains("Version : 1.2"),
        "{}",
        examined.out
    );
    assert!(
        !place
            .tool("mdadm", "-E --metadata=1.0 a")
            .out
            .contains(":old")
    );
}

#[test]
fn only_members_proven_all_zero_start_clean() {
    let place = Place::new("create-zero");
    place.sparse("a", 16 * MIB);
    place.sparse("b", 16 * MIB);
    place.sparse("c", 16 * MIB);
    // In the middle of the data, where nobody looks for file systems.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.file("b"))
        .unwrap();
    file.write_all_at(b"old data", 8 * MIB).unwrap();
    drop(file); // whoever has it open for writing is asked first
    let refused = place.plexum("create nas --level 5 --strip 64K a b c --assume-clean");
    assert_eq!(refused.exit, 3, "{}", refused.err);
    assert!(
        refused.err.contains("b is not known to be all zero"),
        "{}",
        refused.err
    );
    let run = place.plexum("create nas --level 5 --strip 64K a b c --json");
    assert_eq!(run.exit, 0, "{}", run.err);
    assert_eq!(run.objects()[0]["start"], "resync");
    let text = place.tool("mdadm", "-E a").out;
    assert!(text.contains("State : active"), "{text}");
    let bits = dirty_bits(&place, "a", "1.2");
    assert!(bits.contains("(100.0%)"), "{bits}");

    let forced =
        place.plexum("create nas --level 5 --strip 64K a b c --assume-clean --force --yes --json");
    assert_eq!(forced.objects()[0]["start"], "assumed_clean");
    let mut kept = [0; 8];
    let file = std::fs::File::open(place.file("b")).unwrap();
    file.read_exact_at(&mut kept, 8 * MIB).unwrap();
    assert_eq!(&kept, b"old data");
}

#[test]
fn a_full_file_system_leaves_no_half_made_member() {
    let place = Place::new("create-full");
    std::fs::create_dir(place.file("small")).unwrap();
    let mounted = place.tool("mount", "-t tmpfs -o size=256k none small");
    assert_eq!(
        mounted.exit, 0,
        "this test mounts a tmpfs, as root: {}",
        mounted.err
    );
    place.sparse("small/b", 16 * MIB);
    std::fs::write(place.file("small/filler"), vec![1; 248 << 10]).unwrap();
    place.sparse("a", 16 * MIB);
    let run =
        place.plexum("create nas --level 1 --bitmap-region 4K a small/b small/c --member-size 1G");
    let left = std::fs::read_dir(place.file("small")).unwrap().count();
    let b = std::fs::read(place.file("small/b")).unwrap();
    let unmounted = place.tool("umount", "small");
    assert_eq!(unmounted.exit, 0);
    assert_eq!(run.exit, 5, "{}{}", run.out, run.err);
    assert!(run.err.contains("no space"), "{}", run.err);
    assert_eq!(left, 2, "the new file is gone");
    assert!(b.iter().all(|byte| *byte == 0), "b is blank again");
    assert!(
        std::fs::read(place.file("a"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
}

#[test]
fn wrong_requests_say_what_is_wrong_and_touch_nothing() {
    let place = Place::new("create-wrong");
    place.sparse("a", 16 * MIB);
    place.sparse("b", 16 * MIB);
    place.sparse("tiny", 64 << 10);
    std::os::unix::fs::symlink("a", place.file("link")).unwrap();
    let before = place.snapshot();
    for (words, exit, message) in [
        ("nas --level 5 a b", 2, "raid5 needs at least 3 members"),
        ("nas --level 6 a b link", 4, "given twice"),
        ("nas --level 1 a a", 4, "given twice"),
        ("nas --level 1 a ./a --dry-run", 4, "given twice"),
        (
            "nas --level 1 new ./new --member-size 16M",
            4,
            "given twice",
        ),
        ("nas --level 1 a nowhere", 4, "nowhere does not exist"),
        (
            "nas --level 1 a nowhere/x --member-size 16M",
            4,
            "there is no folder nowhere",
        ),
        ("nas --level 1 a .", 2, "is a directory"),
        ("nas --level 1 a tiny", 4, "tiny: "),
        (
            "nas --level 1 missing missing",
            4,
            "every member is missing",
        ),
        ("nas --level 0 a missing", 4, "cannot do without 1"),
        ("nas --level 7 a b", 2, "is no level"),
        ("nas --level raidz a b", 2, "--level 5"),
        ("nas --level 10 --layout left-symmetric a b", 2, "no layout"),
        ("nas --level 0 --strip 64 a b", 2, "--strip 64K"),
        ("nas --level 10 --strip 96K a b", 2, "power of two"),
        ("nas --level 0 --spare x a b", 2, "no redundancy"),
        ("nas --level 0 --bitmap internal a b", 2, "no redundancy"),
        ("nas --level 1 --size 1T a b", 4, "--size asks for"),
        ("nas --level 1 --format zfs a b", 2, "is no format"),
        ("nas --level 5 --format gmirror a b", 2, "gmirror is raid1"),
        ("nas --level 1 --consistency log a b", 2, "stripe log"),
        (
            "nas --level 5 --consistency ppl --bitmap internal a b c",
            2,
            "ppl excludes",
        ),
        ("nas --level 1 --bitmap-region 5K a b", 2, "power of two"),
        (
            "nas --level 1 --write-mostly c a b",
            2,
            "not among the members",
        ),
        ("a.img --level 1 a b", 2, "name of the volume comes first"),
        ("a:b --level 1 a b", 2, "is no name"),
        (
            "averyveryveryverylongnamethatdoesnotfit --level 1 a b",
            2,
            "32",
        ),
    ] {
        let run = place.plexum(&format!("create {words}"));
        assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains(message), "{words}: {}", run.err);
        assert!(place.snapshot() == before, "{words} changed something");
    }
}

#[test]
fn an_empty_slot_and_a_spare_are_recorded() {
    let place = Place::new("create-missing");
    let run =
        place.plexum("create nas --level 5 a missing c --spare s --member-size 16M --strip 64K");
    assert_eq!(run.exit, 0, "{}", run.err);
    let text = place.tool("mdadm", "-E c").out;
    assert!(text.contains("Array State : A.A"), "{text}");
    assert!(text.contains("Device Role : Active device 2"), "{text}");
    assert!(
        place
            .tool("mdadm", "-E s")
            .out
            .contains("Device Role : spare")
    );
}

#[test]
fn a_locked_member_is_busy() {
    let place = Place::new("create-busy");
    let path = place.sparse("a", 16 * MIB);
    place.sparse("b", 16 * MIB);
    // What another engine does: a lock on the open file, taken by a program of its own.
    let script = "import fcntl,struct,sys,time\nf=open(sys.argv[1],'r+b')\n\
        fcntl.fcntl(f,37,struct.pack('hhqqi',fcntl.F_WRLCK,0,0,0,0))\nprint('locked',flush=True)\nsys.stdin.read()\n";
    let mut holder = place
        .command("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(holder.stdout.as_mut().unwrap()),
        &mut line,
    )
    .unwrap();
    let run = place.plexum("create nas --level 1 a b");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    assert_eq!(line.trim(), "locked");
    assert_eq!(run.exit, 6, "{}", run.err);
    assert!(run.err.contains("in use by another process"), "{}", run.err);
}

#[test]
fn a_raid6_with_one_empty_slot_makes_its_parity_right_by_filling_one_member() {
    for format in ["md-1.2", "md-0.90"] {
        let place = Place::new(&format!("create-fill-{format}"));
        let noise: Vec<u8> = (0..16_u32 << 18)
            .flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes())
            .collect();
        for (at, file) in ["a", "b", "d", "e"].into_iter().enumerate() {
            std::fs::write(place.file(file), &noise[at * 4..16 * MIB as usize]).unwrap();
            let file = std::fs::File::options().append(true).open(place.file(file));
            file.unwrap().set_len(16 * MIB).unwrap();
        }
        let words = format!("--level 6 --format {format} --strip 64K --yes --force");
        let run = place.plexum(&format!("create nas {words} a b missing d e"));
        assert_eq!(run.exit, 0, "{}", run.err);
        assert!(run.out.contains("filled from the others"), "{}", run.out);
        let server = Server::start(&place, "a b d e");
        wait_until(&place, "one member was filled", || {
            let status = status(&place);
            status["jobs"].as_array().unwrap().is_empty() && status["spare_failures"] == 1
        });
        fill(&place, 5);
        let before = content(&place);
        // Parity that was never made right would give other bytes now.
        done(&place, "fail nas a");
        assert!(content(&place) == before, "{format}: the content changed");
        server.stop(&place);
    }
}

#[test]
fn the_stored_name_is_host_and_name_cut_at_32_bytes() {
    for (words, stored, note) in [
        ("--homehost box", "box:nas", false),
        (
            "--homehost a-host-with-quite-a-long-name",
            "a-host-with-quite-a-long-name:na",
            true,
        ),
    ] {
        let place = Place::new("create-name");
        let run = place.plexum(&format!(
            "create nas --level 1 --member-size 16M {words} a b"
        ));
        assert_eq!(run.exit, 0, "{}", run.err);
        assert_eq!(run.err.contains("hold 32 bytes"), note, "{}", run.err);
        let text = place.tool("mdadm", "-E a").out;
        assert!(text.contains(&format!("Name : {stored}")), "{text}");
    }
}
