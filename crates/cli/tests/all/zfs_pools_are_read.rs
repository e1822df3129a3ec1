//! `plexum pool`, `examine`, `scan`, `serve --dataset` and `attach --dataset` on pools that OpenZFS wrote.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::common::Place;
use plexum_testkit::tiny_pool::{
    DIRECTORY, DIRECTORY_ENTRY, FILE, FILE_ENTRY, Tiny, dnode, zap, znode,
};
use plexum_testkit::{Unpacked, unpack_zfs_case, zfs_cases};
use serde_json::Value;

fn case(id: &str) -> Value {
    zfs_cases()
        .into_iter()
        .find(|case| case["id"] == id)
        .unwrap()
}

fn members(unpacked: &Unpacked, files: &[&str]) -> String {
    let paths: Vec<String> = files
        .iter()
        .map(|file| unpacked.path(file).display().to_string())
        .collect();
    paths.join(" ")
}

fn sha256(place: &Place, file: PathBuf) -> String {
    let run = place.tool("sha256sum", &file.display().to_string());
    run.out.split(' ').next().unwrap().to_owned()
}

#[test]
fn a_pool_is_recognised_with_what_is_missing() {
    let place = Place::new("zfs-examine");
    let unpacked = unpack_zfs_case("z07_twomirrors_snap_zstd");
    let words = members(&unpacked, &["d0", "d2"]);
    let run = place.plexum(&format!("examine --json {words}"));
    assert_eq!(run.exit, 0, "{}", run.err);
    let objects = run.objects();
    let pool = objects
        .iter()
        .find(|object| object["kind"] == "pool")
        .unwrap();
    assert_eq!(pool["volume"], "z07_twomirrors_snap_zstd");
    let slots = pool["slots"].as_array().unwrap();
    let found = slots
        .iter()
        .filter(|slot| slot["member"].is_string())
        .count();
    assert_eq!((slots.len(), found), (4, 2));
    let features = objects[0]["zfs"][0]["features_for_read"].as_array();
    assert!(features.is_some_and(|features| !features.is_empty()));
    assert!(objects[0]["zfs"][0]["newest_written_s"].as_u64().unwrap() > 1_700_000_000);
    let text = place.plexum(&format!("examine {words}"));
    assert!(
        text.out.contains("plex 0 (mirror) slot 0 of ZFS pool"),
        "{}",
        text.out
    );
    assert!(text.out.contains("missing"), "{}", text.out);
    let scan = place.plexum(&format!("scan --json {}", unpacked.folder().display()));
    assert_eq!(scan.objects()[0]["slots"].as_array().unwrap().len(), 4);
    assert_eq!(scan.exit, 1, "d3 is missing");
}

#[test]
fn everything_is_copied_out_and_no_byte_of_a_member_changes() {
    let place = Place::new("zfs-cp");
    let case = case("z01_single_a12");
    let unpacked = unpack_zfs_case("z01_single_a12");
    let before = unpacked.read("d0");
    let words = members(&unpacked, &["d0"]);
    let list = place.plexum(&format!("pool list --json {words}"));
    let volume = list
        .objects()
        .into_iter()
        .find(|one| one["name"] == "z01_single_a12/vol")
        .unwrap();
    assert_eq!(
        (&volume["dataset_kind"], &volume["volume_bytes"]),
        (&"volume".into(), &(8 << 20).into())
    );
    let run = place.plexum(&format!(
        "pool cp -r --checksums z01_single_a12:/ copy {words}"
    ));
    assert_eq!((run.exit, run.err.as_str()), (0, ""));
    for (path, object) in case["contents"]["z01_single_a12"].as_object().unwrap() {
        let file = place.file("copy").join(path.trim_start_matches('/'));
        if object["kind"] == "link" {
            let target = std::fs::read_link(&file).unwrap();
            assert_eq!(target.to_str(), object["target"].as_str(), "{path}");
            continue;
        }
        assert_eq!(
            sha256(&place, file),
            object["sha256"].as_str().unwrap(),
            "{path}"
        );
        let is_listed = run
            .out
            .contains(&format!("{}  ", object["sha256"].as_str().unwrap()));
        assert!(
            is_listed || path.contains("hard") || path == "/small.bin",
            "{path}: {}",
            run.out
        );
    }
    use std::os::unix::fs::MetadataExt;
    let small = std::fs::metadata(place.file("copy/small.bin")).unwrap();
    let hard = std::fs::metadata(place.file("copy/dir/hard.bin")).unwrap();
    assert_eq!(small.ino(), hard.ino(), "a hard link stays one");
    assert!(small.mtime() > 1_700_000_000 && small.mtime() < 1_800_000_000);
    let again = place.plexum(&format!(
        "pool cp z01_single_a12:/small.bin copy/small.bin {words}"
    ));
    assert_eq!(again.exit, 3, "{}", again.err);
    let cat = place.plexum(&format!("pool cat z01_single_a12:/tiny.txt {words}"));
    assert_eq!(cat.out.len(), 90);
    let ls = place.plexum(&format!("pool ls z01_single_a12:/dir {words}"));
    assert!(ls.out.contains("link -> ../text.txt"), "{}", ls.out);
    let scrub = place.plexum(&format!("pool scrub --read-only {words}"));
    assert_eq!(scrub.exit, 0, "{}", scrub.out);
    assert!(unpacked.read("d0") == before, "a member was changed");
}

#[test]
fn what_cannot_be_done_is_said_with_its_exit_code() {
    let place = Place::new("zfs-errors");
    let unpacked = unpack_zfs_case("z02_mirror2_a9_lz4");
    let good = members(&unpacked, &["d0", "d1"]);
    for (words, exit, text) in [
        (
            format!("pool ls z02_mirror2_a9_lz4:/nowhere {good}"),
            4,
            "does not exist",
        ),
        (
            format!("pool ls other:/ {good}"),
            4,
            "no data set of that name",
        ),
        (
            format!("pool cat z02_mirror2_a9_lz4 {good}"),
            4,
            "is not a volume",
        ),
        (
            format!("pool cp z02_mirror2_a9_lz4:/ out {good}"),
            2,
            "add:   -r",
        ),
        (
            format!("pool scrub --read-only --repair {good}"),
            2,
            "cannot be used with",
        ),
        (
            format!("pool list --txg 1 {good}"),
            4,
            "no root of transaction group 1",
        ),
        ("pool list /dev/null".into(), 2, "/dev/null"),
    ] {
        let run = place.plexum(&words);
        assert_eq!(run.exit, exit, "{words}: {}", run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
    }
    place.sparse("blank", 8 << 20);
    assert_eq!(place.plexum("pool list blank").exit, 4);
    let alone = place.plexum(&format!("pool list {}", members(&unpacked, &["d0"])));
    assert_ne!(alone.exit, 0, "its data area was overwritten");
    let damaged = place.plexum(&format!("pool scrub --read-only --json {good}"));
    assert_eq!(damaged.exit, 1);
    let report = damaged.objects().pop().unwrap();
    assert!(report["lost"].as_array().unwrap().is_empty());
    assert!(
        report["damage"][0]["member"]
            .as_str()
            .unwrap()
            .ends_with("d0")
    );
}

#[test]
fn the_copy_of_everything_else_goes_on_when_a_file_is_lost() {
    use std::os::unix::fs::FileExt;
    let place = Place::new("zfs-lost");
    let unpacked = unpack_zfs_case("z07_twomirrors_snap_zstd");
    // Data of a file lie once, on one of two mirrors; the second one has lost its other half already.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(unpacked.path("d2"))
        .unwrap();
    file.write_all_at(&vec![0xee; 2 << 20], (4 << 20) + (512 << 10))
        .unwrap();
    let words = members(&unpacked, &["d0", "d1", "d2"]);
    let run = place.plexum(&format!(
        "pool cp -r z07_twomirrors_snap_zstd@before:/ out {words}"
    ));
    let case = case("z07_twomirrors_snap_zstd");
    let mut whole = 0;
    for (path, object) in case["contents"]["z07_twomirrors_snap_zstd@before"]
        .as_object()
        .unwrap()
    {
        let file = place.file("out").join(path.trim_start_matches('/'));
        if file.exists() {
            assert_eq!(
                sha256(&place, file),
                object["sha256"].as_str().unwrap(),
                "{path}"
            );
            whole += 1;
        } else {
            assert!(
                run.err.contains(&format!("@before:{path}")),
                "{path}: {}",
                run.err
            );
        }
    }
    assert!(whole < 3 || run.exit == 0, "{}", run.err);
    assert_eq!(run.exit, i32::from(whole < 3), "{}", run.err);
}

/// A server that is ready, and where.
fn served(place: &Place, words: &str) -> (Child, String) {
    let mut server = place
        .command(env!("CARGO_BIN_EXE_plexum"))
        .args(words.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let uri = line.split_whitespace().last().unwrap().to_owned();
    (server, uri)
}

#[test]
fn a_volume_of_a_degraded_pool_is_served_to_nbd_clients() {
    let place = Place::new("zfs-serve");
    let unpacked = unpack_zfs_case("z05_raidz2_5_a12_lz4");
    let words = members(&unpacked, &["d0", "d2", "d4"]);
    let args = format!("serve --dataset z05_raidz2_5_a12_lz4/v64k {words}");
    let wrong = place.plexum(&format!("serve --dataset z05_raidz2_5_a12_lz4 {words}"));
    assert_eq!(wrong.exit, 4);
    assert!(
        wrong.err.contains("plexum attach --dataset"),
        "{}",
        wrong.err
    );
    let (mut server, uri) = served(&place, &args);
    let info = place.tool("nbdinfo", &uri);
    assert!(
        info.out.contains("is_read_only: true"),
        "{uri} {} {}",
        info.out,
        info.err
    );
    let copy = place.tool("nbdcopy", &format!("{uri} copy"));
    assert_eq!(copy.exit, 0, "{}", copy.err);
    let expected = case("z05_raidz2_5_a12_lz4");
    let expected = &expected["contents"]["z05_raidz2_5_a12_lz4/v64k"][""]["sha256"];
    assert_eq!(
        sha256(&place, place.file("copy")),
        expected.as_str().unwrap()
    );
    let status = place.plexum("status --json");
    assert_eq!(status.objects()[0]["format"], "zfs");
    assert_eq!(place.plexum("stop v64k").exit, 0);
    assert_eq!(server.wait().unwrap().code(), Some(0));
}

#[test]
fn a_file_system_is_shown_as_a_tree_that_cannot_be_changed() {
    let place = Place::new("zfs-attach");
    let case = case("z08_legacy28_raidz2_4");
    let unpacked = unpack_zfs_case("z08_legacy28_raidz2_4");
    let words = members(&unpacked, &["d1", "d2"]);
    std::fs::create_dir(place.file("tree")).unwrap();
    let run = place.plexum(&format!(
        "attach --dataset z08_legacy28_raidz2_4 tree {words}"
    ));
    assert_eq!(run.exit, 0, "{}", run.err);
    let mut right = 0;
    for (path, object) in case["contents"]["z08_legacy28_raidz2_4"]
        .as_object()
        .unwrap()
    {
        let file = place.file("tree").join(path.trim_start_matches('/'));
        if object["kind"] == "link" {
            assert_eq!(
                std::fs::read_link(&file).unwrap().to_str(),
                object["target"].as_str()
            );
        } else {
            assert_eq!(
                std::fs::metadata(&file).unwrap().len(),
                object["size"].as_u64().unwrap()
            );
            assert_eq!(
                sha256(&place, file),
                object["sha256"].as_str().unwrap(),
                "{path}"
            );
        }
        right += 1;
    }
    assert!(right > 5);
    assert!(std::fs::write(place.file("tree/new"), "x").is_err());
    assert!(std::fs::remove_file(place.file("tree/tiny.txt")).is_err());
    let many = std::fs::read_dir(place.file("tree")).unwrap().count();
    let listed = place.plexum(&format!("pool ls z08_legacy28_raidz2_4:/ {words}"));
    assert_eq!(many, listed.out.lines().count());
    let detached = place.plexum("detach tree");
    assert_eq!(detached.exit, 0, "{}", detached.err);
    assert_eq!(std::fs::read_dir(place.file("tree")).unwrap().count(), 0);
}

/// Bytes and time of the last change.
fn state(unpacked: &Unpacked, files: &[&str]) -> Vec<(Vec<u8>, std::time::SystemTime)> {
    let one = |file: &&str| {
        let metadata = std::fs::metadata(unpacked.path(file)).unwrap();
        (unpacked.read(file), metadata.modified().unwrap())
    };
    files.iter().map(one).collect()
}

/// How the process has the members open: the access mode of each descriptor.
fn access_of(pid: u32, unpacked: &Unpacked) -> Vec<u32> {
    let folder = std::fs::canonicalize(unpacked.folder()).unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let entry = entry.unwrap();
        let is_member =
            std::fs::read_link(entry.path()).is_ok_and(|path| path.starts_with(&folder));
        if !is_member {
            continue;
        }
        let number = entry.file_name();
        let info = format!("/proc/{pid}/fdinfo/{}", number.to_str().unwrap());
        let info = std::fs::read_to_string(info).unwrap();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        found.push(u32::from_str_radix(flags.unwrap().trim(), 8).unwrap() & 3);
    }
    found
}

#[test]
fn no_command_changes_a_member_and_they_are_open_for_reading_only() {
    let place = Place::new("zfs-unchanged");
    // One member was overwritten, so that there is something to repair; another is missing in some commands.
    let id = "z06_raidz3_6_a12_sha";
    let files = ["d0", "d1", "d2", "d3", "d4", "d5"];
    let unpacked = unpack_zfs_case(id);
    let before = state(&unpacked, &files);
    let all = members(&unpacked, &files);
    let some = members(&unpacked, &files[1..]);
    let folder = unpacked.folder().display().to_string();
    for words in [
        format!("scan {folder}"),
        format!("examine {all}"),
        format!("examine --json {some}"),
        format!("pool list {all}"),
        format!("pool list --json {some}"),
        format!("pool list --txg 10 {all}"),
        format!("pool ls {id}:/ {some}"),
        format!("pool cat {id}:/text.txt {some}"),
        format!("pool cp -r --checksums {id}:/ out {some}"),
        format!("pool scrub --read-only {all}"),
        format!("pool scrub {all}"),
    ] {
        let run = place.plexum(&words);
        assert!(run.exit < 64, "{words}: {}", run.err);
        assert!(
            state(&unpacked, &files) == before,
            "{words} changed a member"
        );
    }
    std::fs::create_dir(place.file("tree")).unwrap();
    let run = place.plexum(&format!("attach --dataset {id} tree {some}"));
    assert_eq!(run.exit, 0, "{}", run.err);
    let _ = std::fs::read(place.file("tree/text.txt")).unwrap();
    assert!(std::fs::write(place.file("tree/text.txt"), "x").is_err());
    let detached = place.plexum("detach tree");
    assert_eq!(detached.exit, 0, "{}", detached.err);
    assert!(
        state(&unpacked, &files) == before,
        "attach changed a member"
    );
}

#[test]
fn a_served_volume_holds_its_members_open_for_reading_only() {
    let place = Place::new("zfs-serve-ro");
    let unpacked = unpack_zfs_case("z05_raidz2_5_a12_lz4");
    let files = ["d0", "d1", "d2", "d4"];
    let before = state(&unpacked, &files);
    let words = members(&unpacked, &files);
    let words = format!("serve --dataset z05_raidz2_5_a12_lz4/v4k {words}");
    let (mut server, uri) = served(&place, &words);
    assert_eq!(access_of(server.id(), &unpacked), [0; 4], "0 is O_RDONLY");
    let write = place.tool(
        "nbdcopy",
        &format!("{} {uri}", place.sparse("zeroes", 8 << 20).display()),
    );
    assert_ne!(write.exit, 0, "it can be written to");
    assert_eq!(place.plexum("stop v4k").exit, 0);
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(state(&unpacked, &files) == before, "serve changed a member");
}

/// Constructed: no recorded pool has extended attributes. This one is an entry of a hidden directory.
#[test]
fn extended_attributes_and_modes_are_copied_and_folders_linked_twice_are_named() {
    let place = Place::new("zfs-xattrs");
    let mut tiny = Tiny::new(7);
    let file = tiny.block(&[b'x'; 512], 0);
    let value = tiny.block(&[b'v'; 512], 0);
    let root = zap(&[("a", FILE_ENTRY | 4), ("again", DIRECTORY_ENTRY | 3)]);
    let root = tiny.block(&root, 0);
    let hidden = tiny.block(&zap(&[("user.why", FILE_ENTRY | 6)]), 0);
    let mut with = znode(FILE & !0o777 | 0o640, 300);
    with[104] = 5; // the object of the hidden directory
    let system = tiny.file_system(&[
        vec![0; 512],
        dnode(20, 512, &[root], 17, &znode(DIRECTORY, 2)),
        dnode(19, 512, &[file], 17, &with),
        dnode(20, 512, &[hidden], 17, &znode(DIRECTORY, 1)),
        dnode(19, 512, &[value], 17, &znode(FILE, 5)),
    ]);
    tiny.finish_with(system, None);
    std::fs::write(place.file("member"), &tiny.member).unwrap();
    let run = place.plexum("pool cp -r --json tiny:/ out member");
    assert_eq!(run.exit, 1, "{}", run.err);
    assert!(
        run.err
            .contains("tiny:/again: it is linked into the tree twice"),
        "{}",
        run.err
    );
    let copied = place.file("out/a");
    assert_eq!(std::fs::read(&copied).unwrap(), [b'x'; 300]);
    let mode = std::fs::metadata(&copied).unwrap().permissions();
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&mode) & 0o7777,
        0o640
    );
    let mut found = [0; 16];
    match rustix::fs::lgetxattr(&copied, "user.why", &mut found) {
        Ok(length) => assert_eq!(&found[..length], b"vvvvv"),
        // Where the destination takes none, they are counted.
        Err(_) => assert_eq!(run.objects().last().unwrap()["xattrs_lost"], 1),
    }
}

#[test]
fn wrong_words_get_one_clear_line() {
    let place = Place::new("zfs-wrong-words");
    let unpacked = unpack_zfs_case("z05_raidz2_5_a12_lz4");
    let other = unpack_zfs_case("z01_single_a12");
    let three = unpack_zfs_case("z03_raidz1_3_a12_gzip");
    let words = members(&unpacked, &["d0", "d1", "d2", "d4"]);
    let stranger = members(&other, &["d0"]);
    let id = "z05_raidz2_5_a12_lz4";
    place.sparse("blank", 8 << 20);
    std::fs::create_dir(place.file("folder")).unwrap();
    for (words, exit, text) in [
        (
            format!("pool ls {id}/nothing:/ {words}"),
            4,
            "no data set \"nothing\" in pool",
        ),
        (
            format!("pool ls {id}@never:/ {words}"),
            4,
            "no snapshot \"never\"",
        ),
        (format!("pool cat {id}:/ {words}"), 2, "is no plain file"),
        (format!("pool cat {id}:/dir {words}"), 2, "is no plain file"),
        (
            format!("pool cp {id}:/dir folder {words}"),
            2,
            "is a folder",
        ),
        (format!("pool cp {id} folder {words}"), 2, "has no path"),
        (
            format!("pool cp {id}:/text.txt none/at/all {words}"),
            4,
            "none/at",
        ),
        (
            format!("pool ls {id}/v4k:/ {words}"),
            4,
            "is not a file system",
        ),
        (
            format!("pool list {words} {stranger}"),
            4,
            "belongs to pool",
        ),
        (
            format!("pool list {}", members(&three, &["d0"])),
            4,
            "of plex 0 too many members are missing (",
        ),
        ("pool list nowhere".to_owned(), 4, "nowhere"),
        ("pool list folder".to_owned(), 2, "folder"),
        ("pool list blank".to_owned(), 4, "no label of a pool"),
        (
            "pool list missing missing".to_owned(),
            4,
            "no members were given",
        ),
        (
            format!("serve --dataset {id}/none {words}"),
            4,
            "no data set \"none\"",
        ),
        (format!("pool list --txg x {words}"), 2, "--txg"),
    ] {
        let run = place.plexum(&words);
        assert!(run.err.contains(text), "{words}: {} {}", run.exit, run.err);
        assert_eq!(run.exit, exit, "{words}: {}", run.err);
        let errors = run
            .err
            .lines()
            .filter(|line| line.starts_with("error"))
            .count();
        assert_eq!(errors, 1, "{words}: {}", run.err);
        assert!(run.out.is_empty(), "{words}: {}", run.out);
    }
    let left_out = place.plexum(&format!("pool list {words} blank"));
    assert_eq!(left_out.exit, 0, "{}", left_out.err);
    assert!(
        left_out
            .err
            .contains("blank: no label of a pool was found; it is left out")
    );
}
