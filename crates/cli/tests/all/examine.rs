//! `plexum examine` and `scan` on arrays that the Linux kernel made.

use crate::common::Place;
use plexum_format::md::{MdVersion, Superblock};
use plexum_testkit::{md_cases, unpack_case};

#[test]
fn every_golden_array_is_described_as_its_manifest_says() {
    let place = Place::new("examine-golden");
    for case in md_cases() {
        let unpacked = unpack_case(&case.id);
        let files: Vec<String> = case
            .members
            .iter()
            .map(|member| unpacked.path(&member.file).display().to_string())
            .collect();
        let run = place.plexum(&format!("examine --json {}", files.join(" ")));
        let objects = run.objects();
        assert_eq!(objects.len(), files.len() + 1, "{}: {}", case.id, run.err);
        for (object, member) in objects.iter().zip(&case.members) {
            assert_eq!(object["kind"], "member");
            if !member.superblock_ok {
                assert!(
                    object["superblock"].is_null() && run.exit == 4,
                    "{}",
                    case.id
                );
                assert_ne!(object["damaged"], serde_json::json!([]), "{}", case.id);
                continue;
            }
            let superblock = &object["superblock"];
            assert_eq!(
                superblock["member_count"].as_u64(),
                Some(u64::from(case.raid_disks)),
                "{} {}",
                case.id,
                member.file
            );
            assert_eq!(
                superblock["event_count"].as_u64(),
                Some(member.events),
                "{} {}",
                case.id,
                member.file
            );
        }
        let set = objects.last().unwrap();
        assert_eq!(set["kind"], "set", "{}", case.id);
        let members = set["members"].as_array();
        for stale in &case.stale {
            let members = members.unwrap_or_else(|| panic!("{}: {set}", case.id));
            let found = members
                .iter()
                .find(|member| member["member"].as_str().unwrap().ends_with(stale.as_str()))
                .unwrap();
            assert_ne!(found["state"], "active", "{}: {stale}", case.id);
            assert!(found["reason"].is_string(), "{}: {stale} says why", case.id);
        }
        let text = place.plexum(&format!("examine {}", files.join(" ")));
        assert_eq!(text.exit, run.exit, "{}", case.id);
        assert!(text.out.contains("superblock"), "{}", case.id);
    }
}

#[test]
fn a_blank_a_foreign_and_a_damaged_member_are_told_apart() {
    let place = Place::new("examine-odd");
    place.sparse("blank", 8 << 20);
    place.sparse("fs", 8 << 20);
    assert_eq!(place.tool("mkfs.ext4", "-q fs").exit, 0);
    for (name, words) in [("one", "a b"), ("two", "x y")] {
        let run = place.plexum(&format!("create {name} --level 1 --member-size 8M {words}"));
        assert_eq!(run.exit, 0, "{}", run.err);
    }
    let blank = place.plexum("examine blank");
    assert_eq!(blank.exit, 4);
    assert_eq!(blank.out, "blank: 8M, nothing that plexum knows\n");
    let fs = place.plexum("examine fs");
    assert!(fs.out.contains("ext4 file system found"), "{}", fs.out);
    let mixed = place.plexum("examine a b x");
    assert_eq!(mixed.exit, 4, "{}", mixed.out);
    assert!(mixed.out.contains("cannot start as it is"), "{}", mixed.out);
    let whole = place.plexum("examine b a");
    assert_eq!(whole.exit, 0, "{}", whole.out);
    assert!(
        whole.out.contains("to serve it:   plexum serve b a"),
        "{}",
        whole.out
    );
    let raw = place.plexum("examine a --raw");
    assert!(raw.out.contains("00001000  fc4e2ba9"), "{}", raw.out);
    let half = place.plexum("examine a");
    assert_eq!(half.exit, 0);
    assert!(half.out.contains("--run-degraded"), "{}", half.out);
    let nowhere = place.plexum("examine nowhere");
    assert_eq!(nowhere.exit, 4);
    assert!(
        nowhere.err.contains("nowhere does not exist"),
        "{}",
        nowhere.err
    );
    let folder = place.plexum("examine .");
    assert_eq!(folder.exit, 2);
    assert!(folder.err.contains("plexum scan ."), "{}", folder.err);
    let sets = place.plexum("scan . --json").objects();
    let names: Vec<&str> = sets
        .iter()
        .map(|set| set["volume"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(sets[0]["state"], "clean");
}

#[test]
fn a_remote_member_is_examined_like_a_file() {
    let place = Place::new("examine-remote");
    let run = place.plexum("create nas --level 1 --member-size 16M a b");
    assert_eq!(run.exit, 0, "{}", run.err);
    let here = place.plexum("examine a b --json");
    let server = place
        .command("qemu-nbd")
        .arg("-k")
        .arg(place.file("a.sock"))
        .args([
            "-f",
            "raw",
            "-t",
            "-r",
            "--fork",
            "--pid-file",
            "pid",
            "-x",
            "m",
            "a",
        ])
        .status()
        .expect("qemu-nbd must be installed");
    assert!(server.success());
    let socket = place.file("a.sock");
    let uri = format!("nbd+unix:///m?socket={}", socket.display());
    let there = place.plexum(&format!("examine {uri} b --json"));
    let pid = std::fs::read_to_string(place.file("pid")).unwrap();
    assert_eq!(place.tool("kill", pid.trim()).exit, 0);
    assert_eq!((here.exit, there.exit), (0, 0), "{}", there.err);
    assert_eq!(
        there.objects()[0]["superblock"],
        here.objects()[0]["superblock"]
    );
    assert_eq!(there.objects()[0]["bitmap"], here.objects()[0]["bitmap"]);
    let gone = place.plexum("examine nbd+unix:///m?socket=nothing.sock");
    assert_eq!(gone.exit, 5, "{}", gone.err);
    assert!(gone.err.contains("cannot connect"), "{}", gone.err);
}

/// Makes the superblocks of `files` say that writes were under way.
fn mark_dirty(unpacked: &plexum_testkit::Unpacked, files: &[&str]) {
    for file in files {
        let mut bytes = unpacked.read(file);
        let sectors = bytes.len() as u64 / 512;
        let area = &mut bytes[4096..8192];
        let mut superblock = Superblock::parse(area, 8, sectors, MdVersion::V12).unwrap();
        superblock.resync_offset_sectors = Some(0);
        area.copy_from_slice(&superblock.encode());
        std::fs::write(unpacked.path(file), bytes).unwrap();
    }
}

#[test]
fn an_array_with_a_journal_that_was_not_stopped_is_described_and_refused() {
    let unpacked = unpack_case("s35_raid5_journal");
    let files = ["m0.img", "m1.img", "m2.img", "m3.img"];
    mark_dirty(&unpacked, &files);
    let before: Vec<Vec<u8>> = files.iter().map(|file| unpacked.read(file)).collect();
    let paths = files.map(|file| unpacked.path(file).display().to_string());
    let paths = paths.join(" ");
    let place = Place::new("examine-journal");
    let run = place.plexum(&format!("examine {paths} --json"));
    let objects = run.objects();
    let journal = objects.iter().find(|object| !object["journal"].is_null());
    let journal = &journal.expect("one member is the journal")["journal"];
    assert!(journal["sequence"].as_u64().unwrap() > 0, "{journal}");
    let set = objects.last().unwrap();
    assert_eq!(set["kind"], "set", "{set}");
    let problem = set["problem"]["message"].as_str().unwrap();
    assert!(
        problem.contains("write journal and was not stopped"),
        "{set}"
    );
    for words in ["serve --read-only", "serve", "serve --force"] {
        let run = place.plexum(&format!("{words} --background --json {paths}"));
        assert_eq!(run.exit, 4, "{words}: {}{}", run.out, run.err);
        let error: serde_json::Value = serde_json::from_str(run.err.trim()).unwrap();
        assert_eq!(error["error"]["code"], "unsupported_feature", "{error}");
        assert!(
            error["error"]["why"][0]
                .as_str()
                .unwrap()
                .contains("replay"),
            "{error}"
        );
    }
    for (file, before) in files.iter().zip(before) {
        assert!(unpacked.read(file) == before, "{file} was changed");
    }
}

#[test]
fn what_a_set_is_whether_it_can_be_used_and_what_to_do_is_said_before_its_fields() {
    let place = Place::new("examine-verdict");
    for words in [
        "create nas --level 1 --member-size 8M a b",
        "create two --level 1 --member-size 8M x y",
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{}", run.err);
    }
    let first = |words: &str| {
        let run = place.plexum(words);
        run.out.lines().next().unwrap().to_owned()
    };
    let whole = first("examine b a");
    assert!(
        whole.starts_with("nas: raid1")
            && whole.contains(", md-1.2, ")
            && whole.contains("clean; usable;"),
        "{whole}"
    );
    let (_, command) = whole.split_once("to serve it:   plexum ").unwrap();
    assert_eq!(command, "serve b a");
    assert_eq!(
        place.plexum(&format!("{command} -n")).exit,
        0,
        "the advice is accepted"
    );
    let half = first("examine a");
    assert!(
        half.contains("degraded")
            && half.contains("; not usable as it is: ")
            && half.contains("--run-degraded"),
        "{half}"
    );
    assert!(first("examine a b x").contains("not usable as it is"));
    let label = place.plexum("create gm0 --level 1 --format gmirror --member-size 8M g h");
    assert_eq!(label.exit, 0, "{}", label.err);
    let mirror = first("examine g h");
    assert!(
        mirror.starts_with("gm0: mirror, gmirror, ")
            && mirror.ends_with("to serve it:   plexum serve g h"),
        "{mirror}"
    );
    // Programs are told the same, and of what is in no set what it is.
    place.sparse("blank", 8 << 20);
    let run = place.plexum("examine a b blank --json");
    let objects = run.objects();
    let words: Vec<&str> = objects
        .iter()
        .filter_map(|one| one["verdict"].as_str())
        .collect();
    assert_eq!(words, ["member", "member", "unknown", "usable"]);
    assert_eq!(objects[3]["next"], "to serve it:   plexum serve a b");
    let text = objects[3]["verdict_text"].as_str().unwrap();
    assert!(
        text.starts_with("nas: raid1") && text.contains("; usable; "),
        "{text}"
    );
    let refused = place.plexum("examine a --json").objects().remove(1);
    assert_eq!(refused["verdict"], "refused");
}

#[test]
fn sets_that_are_named_together_have_a_command_each_with_their_own_members() {
    let place = Place::new("examine-sets");
    for words in [
        "create gm0 --level 1 --format gmirror --member-size 8M g h",
        "create gm1 --level 1 --format gmirror --member-size 8M i j",
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
    }
    std::fs::rename(place.file("g"), place.file("a g")).unwrap();
    let mut command = place.command(env!("CARGO_BIN_EXE_plexum"));
    let run = command.args(["examine", "i", "h", "j", "a g"]).output();
    let run = run.unwrap();
    let text = String::from_utf8_lossy(&run.stdout).into_owned();
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    assert!(line("gm0: ").ends_with("plexum serve h 'a g'"), "{text}");
    assert!(line("gm1: ").ends_with("plexum serve i j"), "{text}");
}
