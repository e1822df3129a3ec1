//! md metadata that newer kernels, older tools and NAS vendors write, and members that must not or cannot be written.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use plexum_testkit::{Unpacked, md_cases, unpack_case};

use crate::common::served::done;
use crate::common::{Place, Run, uri};
use crate::inputs::{unpack_story, wrong_blocks};

/// Where superblock and bitmap of the stories' members begin.
const SUPERBLOCK_AT: usize = 4096;
const BITMAP_AT: usize = 8192;

fn paths(files: &Unpacked, names: &str) -> String {
    let path = |name: &str| files.path(name).display().to_string();
    names.split(' ').map(path).collect::<Vec<_>>().join(" ")
}

fn serve(place: &Place, words: &str) -> Run {
    place.plexum(&format!("serve --name v --background {words}"))
}

/// Copies the volume to `copy` and stops it.
fn copy_served(place: &Place) {
    let copied = place.tool("nbdcopy", &format!("--no-extents {} copy", uri(place, "v")));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    assert_eq!(place.plexum("stop v").exit, 0);
}

fn change(path: &Path, edit: impl FnOnce(&mut [u8])) {
    let mut bytes = std::fs::read(path).unwrap();
    edit(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

/// Edits the superblock (md 1.x) at a byte of a member and puts its checksum right.
fn change_superblock(path: &Path, at: usize, edit: impl FnOnce(&mut [u8])) {
    change(path, |bytes| {
        let superblock = &mut bytes[at..at + 4096];
        edit(superblock);
        let number = |at: usize, from: &[u8]| {
            u64::from(u32::from_le_bytes(from[at..at + 4].try_into().unwrap()))
        };
        let covered = 256 + 2 * number(220, superblock) as usize;
        superblock[216..220].fill(0);
        let sum: u64 = (0..covered)
            .step_by(4)
            .map(|at| number(at, superblock))
            .sum();
        let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
        superblock[216..220].copy_from_slice(&sum.to_le_bytes());
    });
}

fn refused(run: &Run, exit: i32, words: &[&str]) {
    assert_eq!(run.exit, exit, "{}{}", run.out, run.err);
    for word in words {
        assert!(run.err.contains(word), "{word} is not in: {}", run.err);
    }
}

fn started(run: &Run) {
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
}

#[test]
fn a_lockless_bitmap_is_read_and_keeps_the_array_from_being_written() {
    let story = unpack_story("md-lockless-bitmap-unwritten-parity");
    let place = Place::new("lockless");
    let (all, without_a) = (paths(&story, "a b c d e f"), paths(&story, "b c d e f"));
    let before: Vec<_> = ["a", "b", "c", "d", "e", "f"]
        .map(|name| story.read(name))
        .into();
    for force in ["", "--force --force-data"] {
        let run = serve(&place, &format!("{force} {all}"));
        refused(&run, 4, &["lockless", "add --read-only to read it"]);
    }
    let run = place.plexum(&format!("scan {all}"));
    assert!(run.out.contains("lockless"), "{}", run.out);
    let run = place.plexum(&format!("examine {}", paths(&story, "a")));
    assert!(!run.out.contains("damaged"), "{}", run.out);

    started(&serve(&place, &format!("--read-only {all}")));
    copy_served(&place);
    // What the lost member held was never written: parity does not tell it, and whoever wants it all the same says so.
    let read = format!("-r -f raw -c 'read 0 4k' {}", uri(&place, "v"));
    let run = serve(&place, &format!("--read-only --run-degraded {without_a}"));
    started(&run);
    assert!(run.err.contains("--force-data"), "{}", run.err);
    let shell = |place: &Place| {
        place
            .command("sh")
            .args(["-c", &format!("qemu-io {read}")])
            .output()
            .unwrap()
    };
    assert!(!shell(&place).status.success());
    assert_eq!(place.plexum("stop v").exit, 0);
    let force = "--read-only --run-degraded --force --force-data";
    started(&serve(&place, &format!("{force} {without_a}")));
    assert!(shell(&place).status.success());
    assert_eq!(place.plexum("stop v").exit, 0);
    for (name, before) in ["a", "b", "c", "d", "e", "f"].iter().zip(before) {
        assert!(story.read(name) == before, "{name} was changed");
    }
}

#[test]
fn a_bitmap_of_a_version_or_with_flags_that_are_not_known_keeps_the_array_from_being_written() {
    let place = Place::new("unknown-bitmap");
    for (version, state) in [(3_u32, 0_u32), (5, 0), (7, 0), (4, 1 << 8), (6, 1 << 9)] {
        for holders in [&["a"][..], &["a", "b", "c", "d", "e", "f"]] {
            let story = unpack_story("md-lockless-bitmap-unwritten-parity");
            for name in ["a", "b", "c", "d", "e", "f"] {
                let is_holder = holders.contains(&name);
                let (version, state) = if is_holder { (version, state) } else { (4, 0) };
                change(&story.path(name), |bytes| {
                    bytes[BITMAP_AT + 4..][..4].copy_from_slice(&version.to_le_bytes());
                    bytes[BITMAP_AT + 48..][..4].copy_from_slice(&state.to_le_bytes());
                });
            }
            let all = paths(&story, "a b c d e f");
            let run = serve(&place, &all);
            refused(&run, 4, &["not supported", "add --read-only to read it"]);
            started(&serve(&place, &format!("--read-only {all}")));
            assert_eq!(place.plexum("stop v").exit, 0);
        }
    }
}

#[test]
fn the_logical_block_size_of_newer_kernels_is_announced_and_kept() {
    let place = Place::new("logical-block-size");
    for block_bytes in [512_u32, 4096] {
        let story = unpack_story("md-linux-6.19-logical-block-size");
        let field = SUPERBLOCK_AT + 224..SUPERBLOCK_AT + 228;
        for name in ["a", "b"] {
            change_superblock(&story.path(name), SUPERBLOCK_AT, |superblock| {
                superblock[224..228].copy_from_slice(&block_bytes.to_le_bytes());
            });
        }
        let files = paths(&story, "a b");
        assert_eq!(place.plexum(&format!("examine {files}")).exit, 0);
        let run = place.plexum(&format!("scan {files}"));
        assert_eq!(run.exit, 0, "{}", run.out);
        started(&serve(
            &place,
            &format!("--run-degraded {}", paths(&story, "a")),
        ));
        let info = place.tool("nbdinfo", &format!("--json {}", uri(&place, "v")));
        let info: serde_json::Value = serde_json::from_str(&info.out).unwrap();
        let export = &info["exports"][0];
        assert_eq!(export["block_size_minimum"], block_bytes, "{info}");
        // A member that is added says the same.
        let new = place.sparse("new", 3 << 20);
        let run = place.plexum(&format!("add v {} --wait --yes", new.display()));
        assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
        assert_eq!(place.plexum("stop v").exit, 0);
        for path in [story.path("a"), new] {
            let bytes = std::fs::read(path).unwrap();
            assert_eq!(bytes[field.clone()], block_bytes.to_le_bytes());
        }
    }
}

#[test]
fn a_bad_block_log_of_zeroes_names_no_block_and_a_damaged_one_costs_its_member_alone() {
    let story = unpack_story("md-bad-block-log-of-zero-length");
    let place = Place::new("bad-block-log");
    let (both, b) = (paths(&story, "a b"), paths(&story, "b"));
    for words in [&both, &b] {
        started(&serve(
            &place,
            &format!("--read-only --run-degraded {words}"),
        ));
        copy_served(&place);
        let count = std::fs::metadata(place.file("copy")).unwrap().len() / 4096;
        assert_eq!(wrong_blocks(&place.file("copy"), 0x33, count), [0; 0]);
    }
    started(&serve(&place, &both));
    assert_eq!(place.plexum("stop v").exit, 0);

    let story = unpack_story("md-bad-block-log-of-zero-length");
    change(&story.path("b"), |bytes| {
        bytes[12_288..12_296].copy_from_slice(&(2048_u64 << 10 | 600).to_le_bytes());
    });
    let both = paths(&story, "a b");
    let run = serve(&place, &both);
    refused(&run, 3, &["b is left out: md bad block log at byte 12288"]);
    let run = serve(&place, &format!("--read-only --run-degraded {both}"));
    started(&run);
    assert!(run.err.contains("md bad block log"), "{}", run.err);
    copy_served(&place);
    let run = serve(&place, &format!("--run-degraded {}", paths(&story, "b")));
    refused(&run, 4, &["too few", "md bad block log at byte 12288"]);
}

#[test]
fn a_damaged_bitmap_of_one_member_is_made_anew_from_the_others() {
    let place = Place::new("one-bitmap");
    for file in ["m0.img", "m1.img"] {
        let case = unpack_case("s04_raid1_bitmap");
        change(&case.path(file), |bytes| {
            bytes[BITMAP_AT..BITMAP_AT + 512].fill(0)
        });
        let files = paths(&case, "m0.img m1.img");
        started(&serve(&place, &files));
        let write = format!("-f raw -c write\\ -P\\ 7\\ 0\\ 4k {}", uri(&place, "v"));
        let mut shell = place.command("sh");
        let written = shell.args(["-c", &format!("qemu-io {write}")]).output();
        assert!(written.unwrap().status.success());
        assert_eq!(place.plexum("stop v").exit, 0);
        for file in ["m0.img", "m1.img"] {
            let run = place.plexum(&format!("examine {}", paths(&case, file)));
            assert!(!run.out.contains("damaged"), "{file}: {}", run.out);
        }
    }
}

#[test]
fn a_disk_error_flag_of_a_nas_is_a_flag_and_not_a_slot() {
    let story = unpack_story("md-synology-disk-error-flag");
    let place = Place::new("disk-error-flag");
    for names in ["a b c", "a b"] {
        let files = paths(&story, names);
        let run = serve(&place, &format!("--run-degraded {files}"));
        refused(&run, 4, &["disk error flag", "add --read-only to read it"]);
        let run = serve(&place, &format!("--read-only --run-degraded {files}"));
        started(&run);
        assert!(run.err.contains("disk error flag"), "{}", run.err);
        copy_served(&place);
        assert_eq!(wrong_blocks(&place.file("copy"), 0xd1, 1024), [0; 0]);
    }
    let run = place.plexum(&format!("scan {}", paths(&story, "a b c")));
    assert!(run.out.contains("3 of 3"), "{}", run.out);
    assert!(run.out.contains("disk error flag"), "{}", run.out);
}

#[test]
fn a_member_that_is_read_only_is_refused_before_anything_is_written() {
    let story = unpack_story("md-write-blocked-disk");
    let place = Place::new("write-blocked");
    let (a, b) = (story.path("a"), story.path("b"));
    let before = (story.read("a"), story.read("b"));
    let attach = |path: &Path| {
        let run = place.tool("losetup", &format!("--show -r -f {}", path.display()));
        assert_eq!(run.exit, 0, "{}", run.err);
        run.out.trim().to_owned()
    };
    let device = attach(&b);
    let words = format!("{} {device}", a.display());
    let (run, reading) = (
        serve(&place, &words),
        serve(&place, &format!("--read-only {words}")),
    );
    let stopped = place.plexum("stop v");
    assert_eq!(place.tool("losetup", &format!("-d {device}")).exit, 0);
    refused(&run, 3, &["is read-only", "--read-only"]);
    started(&reading);
    assert_eq!(stopped.exit, 0);

    std::fs::set_permissions(&b, std::fs::Permissions::from_mode(0o444)).unwrap();
    let words = paths(&story, "a b");
    refused(
        &serve(&place, &words),
        3,
        &["b is read-only", "--read-only"],
    );
    started(&serve(&place, &format!("--read-only {words}")));
    // An export that takes no writes is no member to be written either.
    let inner = format!("volume:v {}", a.display());
    let run = place.plexum(&format!("serve --name w --background {inner}"));
    refused(&run, 3, &["volume:v is read-only"]);
    assert_eq!(place.plexum("stop v").exit, 0);
    assert!((story.read("a"), story.read("b")) == before);
}

/// The content of a golden image, served with these words, is what its manifest says.
fn reads_as_recorded(place: &Place, id: &str, words: &str) {
    started(&serve(place, words));
    copy_served(place);
    let case = md_cases().into_iter().find(|case| case.id == id).unwrap();
    let sum = place.tool("sha256sum", "copy").out;
    assert!(sum.starts_with(&case.sha256), "{id}: content differs");
}

#[test]
fn the_layout_of_a_raid_0_that_does_not_record_it_can_be_told() {
    let place = Place::new("raid0-layout");
    for (id, layout) in [
        ("s02_raid0_original", "original"),
        ("s03_raid0_alternate", "alternate"),
    ] {
        let case = md_cases().into_iter().find(|case| case.id == id).unwrap();
        let images = unpack_case(id);
        for member in &case.members {
            let at = usize::try_from(member.super_offset_sectors * 512).unwrap();
            change_superblock(&images.path(&member.file), at, |superblock| {
                superblock[9] &= !0x10; // feature 0x1000
                superblock[76..80].fill(0);
            });
        }
        let files: Vec<&str> = case.members.iter().map(|m| m.file.as_str()).collect();
        let files = paths(&images, &files.join(" "));
        let run = serve(&place, &format!("--read-only {files}"));
        refused(
            &run,
            4,
            &["--raid0-layout original", "--raid0-layout alternate"],
        );
        let run = serve(&place, &format!("--raid0-layout other {files}"));
        refused(&run, 2, &["original or alternate"]);
        reads_as_recorded(&place, id, &format!("--raid0-layout {layout} {files}"));
    }
}

#[test]
fn a_disk_whose_metadata_were_cut_off_with_its_end_is_told_as_that() {
    for (format, level, metadata) in [
        ("md-1.0", "5", "md-1.0 "),
        ("md-0.90", "5", "md-0.90 "),
        ("gmirror", "1", "gmirror v"),
    ] {
        let place = Place::new(&format!("cut-end-{format}"));
        let words = format!("create v --level {level} --format {format} --member-size 8M a b c");
        started(&place.plexum(&words));
        let uncut = place.snapshot();
        for cut in [512, 4096, 65536, 1 << 20] {
            for (path, bytes) in &uncut {
                std::fs::write(path, bytes).unwrap();
            }
            let bytes = std::fs::read(place.file("b")).unwrap();
            std::fs::write(place.file("b"), &bytes[..bytes.len() - cut]).unwrap();
            for words in ["a b c", "b c a", "--read-only a b c"] {
                let run = serve(&place, words);
                assert_eq!(run.exit, 4, "{format} {cut}: {}", run.err);
                let told = [
                    metadata,
                    "stand at the end of its members",
                    "b is shorter than ",
                ];
                for told in told {
                    assert!(run.err.contains(told), "{format} {cut}: {}", run.err);
                }
                assert!(
                    run.err.contains("--read-only --run-degraded"),
                    "{}",
                    run.err
                );
            }
            started(&serve(&place, "--read-only --run-degraded a c"));
            started(&place.plexum("stop v"));
        }
        // As long as the others, with nothing on it: nothing of this is said.
        std::fs::write(place.file("b"), vec![0; uncut[0].1.len()]).unwrap();
        let run = serve(&place, "a b c");
        assert!(run.exit == 4 && !run.err.contains("shorter"), "{}", run.err);
    }
}

#[test]
fn a_disk_that_was_cut_behind_what_the_array_uses_is_read_whole() {
    let place = Place::new("clipped");
    let id = "s07_raid5_ls";
    let case = md_cases().into_iter().find(|case| case.id == id).unwrap();
    let images = unpack_case(id);
    let member = &case.members[1];
    let used = (member.data_offset_sectors + case.component_sectors) * 512;
    assert!(used < member.bytes, "something can be cut");
    let cut = |bytes: u64| {
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).open(images.path(&member.file)).unwrap();
        file.set_len(bytes).unwrap();
    };
    cut(used);
    let files: Vec<&str> = case.members.iter().map(|m| m.file.as_str()).collect();
    let files = paths(&images, &files.join(" "));
    let run = serve(&place, &files);
    refused(
        &run,
        4,
        &["shorter than its superblock says", "add --read-only"],
    );
    reads_as_recorded(&place, id, &format!("--read-only {files}"));
    // Cut into what is used, it is damaged and left out.
    cut(used - 512);
    let run = serve(&place, &format!("--read-only {files}"));
    refused(&run, 3, &["data_size is"]);
    reads_as_recorded(&place, id, &format!("--read-only --run-degraded {files}"));
}

/// Made on files of blocks of 512 bytes, read on devices of blocks of 4096.
#[test]
fn a_volume_whose_size_is_no_multiple_of_its_block_is_served_but_for_its_end() {
    let place = Place::new("mdread-odd-size");
    let size_bytes = 24 << 20;
    for name in ["a", "b"] {
        place.sparse(name, size_bytes + 512);
    }
    done(&place, "create odd --level linear a b");
    let devices = ["a", "b"].map(|name| {
        let file = std::fs::File::options()
            .write(true)
            .open(place.file(name))
            .unwrap();
        file.set_len(size_bytes + 4096).unwrap();
        let device = place.tool(
            "losetup",
            &format!("--sector-size 4096 --find --show {name}"),
        );
        assert_eq!(device.exit, 0, "{}", device.err);
        device.out.trim().to_owned()
    });
    let served = place.plexum(&format!("serve --background {}", devices.join(" ")));
    let size = place.tool(
        "nbdinfo",
        &format!(
            "--size nbd+unix:///odd?socket={}",
            place.file("plexum/odd.nbd").display()
        ),
    );
    let stopped = place.plexum("stop odd");
    for device in devices {
        assert_eq!(place.tool("losetup", &format!("-d {device}")).exit, 0);
    }
    let note =
        "note: the last 1024 bytes of odd cannot be reached: its members have blocks of 4096 bytes";
    assert!(
        served.exit == 0 && served.err.contains(note),
        "{}",
        served.err
    );
    let size: u64 = size.out.trim().parse().unwrap();
    assert!(size > 40 << 20 && size.is_multiple_of(4096), "{size}");
    assert_eq!(stopped.exit, 0, "{}", stopped.err);
}
