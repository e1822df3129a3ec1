//! `plexum lab run` with real volumes: built, measured, taken apart; with the kernel's loop devices, FUSE, ext4, XFS
//! and btrfs. Needs root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::Place;
use serde_json::Value;

/// Looks at something before a test gives up.
const LOOKS_MAX: usize = 2_000_000;

/// A place in memory for members, runtime folder and results.
fn place(name: &str) -> Place {
    let place = Place::in_memory(&format!("lab-{name}"));
    std::fs::create_dir(place.file("members")).unwrap();
    place
}

/// An experiment over 64 MiB of each workload, unless `work` says otherwise.
fn experiment(place: &Place, setup: &str, work: &str) {
    let text = format!(
        "name = \"built\"\nrepetitions = 1\n[setup]\n{setup}\n[work]\nrequests = 50\nrange_bytes = \"24M\"\n{work}\n"
    );
    std::fs::write(place.file("built.toml"), text).unwrap();
}

fn members_on(place: &Place) -> String {
    format!("members_on = \"{}\"", place.file("members").display())
}

fn results(place: &Place) -> Vec<Value> {
    let text = std::fs::read_to_string(place.file("built/results.jsonl")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Loop devices, mounts and processes that name the place; files of ours.
fn leavings(place: &Place) -> Vec<String> {
    let here = place.folder.display().to_string();
    let mut tables = vec![
        place.tool("losetup", "--all").out,
        std::fs::read_to_string("/proc/self/mountinfo").unwrap(),
    ];
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        tables.push(String::from_utf8_lossy(&words).replace('\0', " "));
    }
    let lines = tables.iter().flat_map(|table| table.lines());
    let mut left: Vec<String> = lines
        .filter(|line| line.contains(&here))
        .map(str::to_owned)
        .collect();
    for folder in ["members", "plexum/lab"] {
        for entry in std::fs::read_dir(place.file(folder)).into_iter().flatten() {
            left.push(entry.unwrap().path().display().to_string());
        }
    }
    left
}

#[test]
fn volumes_are_built_formatted_measured_and_taken_apart() {
    let place = place("built");
    let setup = format!(
        "{}\nsystem = [\"plexum\", \"btrfs\"]\nlevel = [\"1\", \"5\"]\nmembers = 3\nmember_bytes = \"320M\"\n\
         strip_bytes = \"64K\"\nfile_system = [\"\", \"ext4\", \"xfs\", \"btrfs\"]",
        members_on(&place)
    );
    experiment(&place, &setup, "kind = [\"mixed\", \"bonnie++\"]");
    let run = place.plexum("lab run built.toml");
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    assert!(!run.out.contains("skipped"), "{}", run.out);
    let results = results(&place);
    // Plexum's two with four file systems each; btrfs' two, which are file systems themselves.
    assert_eq!(results.len(), (2 * 4 + 2) * 2);
    let table = std::fs::read_to_string(place.file("built/results.csv")).unwrap();
    let figures = results
        .iter()
        .map(|one| one["figures"].as_array().unwrap().len());
    assert_eq!(table.lines().count(), 1 + figures.sum::<usize>(), "{table}");
    for result in &results {
        let figure = &result["figures"][0]["value"];
        assert!(figure.as_f64().unwrap() > 0.0, "{result}");
    }
    for row in [
        "plexum RAID-5 of 3 strip 64K, ext4 ",
        "plexum RAID-1 of 3 load, xfs ",
        "btrfs RAID-5 of 3 ",
    ] {
        assert!(run.out.contains(row), "{row}: {}", run.out);
    }
    assert_eq!(leavings(&place), [""; 0]);
}

#[test]
fn a_peer_that_is_not_there_is_a_row_with_the_reason() {
    let place = place("peers");
    let setup = format!(
        "{}\nsystem = [\"plexum\", \"gmirror\", \"btrfs\"]\nlevel = [\"1\", \"4\"]\nmembers = 3\nmember_bytes = \"128M\"",
        members_on(&place)
    );
    experiment(&place, &setup, "kind = \"random-read\"");
    let run = place.plexum("lab run built.toml");
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    for line in [
        "skipped: gmirror RAID-1 of 3: gmirror is FreeBSD's",
        "skipped: btrfs RAID-4 of 3: btrfs has no ",
    ] {
        assert!(run.out.contains(line), "{line}: {}", run.out);
    }
    let is_measured = |result: &&Value| result.get("skipped").is_none();
    assert_eq!(results(&place).iter().filter(is_measured).count(), 3);
    assert_eq!(leavings(&place), [""; 0]);
}

/// Starts an experiment that lasts until it is ended, and waits until its volume is mounted.
fn start_long(place: &Place) -> Child {
    let setup = format!(
        "{}\nsystem = \"plexum\"\nlevel = \"5\"\nmembers = 3\nmember_bytes = \"64M\"\nfile_system = \"ext4\"",
        members_on(place)
    );
    std::fs::write(
        place.file("long.fio"),
        "[a]\nrw=randread\nbs=4k\nsize=1m\nruntime=600\ntime_based\n",
    )
    .unwrap();
    experiment(place, &setup, "kind = \"fio\"\nfile = \"long.fio\"");
    let child = place
        .command(env!("CARGO_BIN_EXE_plexum"))
        .args(["lab", "run", "built.toml"])
        .process_group(0)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mounted = place.file(&format!("plexum/lab/{}/mnt/lost+found", child.id()));
    let mut looks = 0;
    while !mounted.exists() {
        looks += 1;
        assert!(looks < LOOKS_MAX, "{} never came", mounted.display());
        std::thread::yield_now();
    }
    child
}

/// Sends a signal to it, or to its group as the terminal does (`-`), and waits for its end.
fn signal(place: &Place, word: &str, group: &str, child: Child) -> std::process::Output {
    let killed = place.tool("kill", &format!("-s {word} -- {group}{}", child.id()));
    assert_eq!(killed.exit, 0, "{}", killed.err);
    child.wait_with_output().unwrap()
}

#[test]
fn ctrl_c_leaves_no_mount_device_file_or_process() {
    let place = place("interrupt");
    let child = start_long(&place);
    let ended = signal(&place, "INT", "-", child);
    assert!(!ended.status.success());
    let words = String::from_utf8_lossy(&ended.stderr);
    assert!(words.contains("interrupted"), "{words}");
    assert_eq!(leavings(&place), [""; 0]);
}

#[test]
fn what_a_killed_experiment_left_is_removed_by_the_next_one() {
    let place = place("killed");
    let child = start_long(&place);
    signal(&place, "KILL", "", child);
    let left = leavings(&place);
    for what in ["/dev/loop", "members/plexum-lab-", "plexum serve", " ext4 "] {
        let is_there = left.iter().any(|line| line.contains(what));
        assert!(is_there, "{what}: {left:?}");
    }
    experiment(
        &place,
        &format!(
            "{}\nsystem = \"plexum\"\nlevel = \"1\"\nmembers = 2\nmember_bytes = \"64M\"",
            members_on(&place)
        ),
        "kind = \"random-read\"",
    );
    let run = place.plexum("lab run built.toml --out other");
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    assert!(run.err.contains("an experiment was killed"), "{}", run.err);
    assert_eq!(leavings(&place), [""; 0]);
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_touched() {
    let place = place("refused");
    place.sparse("disk0", 128 << 20);
    place.sparse("disk1", 128 << 20);
    let attach = |name: &str| {
        let run = place.tool("losetup", &format!("--find --show {name}"));
        assert_eq!(run.exit, 0, "{}", run.err);
        run.out.trim().to_owned()
    };
    let disks = [attach("disk0"), attach("disk1")];
    let list = format!("[\"{}\", \"{}\"]", disks[0], disks[1]);
    let folder = members_on(&place);
    let base = "system = \"plexum\"\nlevel = \"1\"\nmembers = 2\n";
    for (setup, work, exit, text) in [
        (
            "level = \"5\"\nfile_system = \"ext4\"".to_owned(),
            "",
            2,
            "file_system is for volumes that are built",
        ),
        (
            format!("{base}{folder}\nmember_bytes = \"900G\""),
            "",
            2,
            "are free",
        ),
        (
            format!("{base}{folder}\nmember_bytes = \"64M\""),
            "range_bytes = \"1G\"",
            2,
            "the workload wants",
        ),
        (
            format!("{base}{folder}\nmember_bytes = \"64M\""),
            "kind = \"rebuild\"",
            2,
            "simulated disks only",
        ),
        (base.to_owned(), "", 2, "members_on is missing"),
        (
            format!("{base}members_on = \"/nowhere\""),
            "",
            2,
            "/nowhere",
        ),
        (format!("{base}members_on = {list}"), "", 3, "in destroy"),
        (
            format!("{base}members_on = {list}\ndestroy = \"{}\"", disks[0]),
            "",
            3,
            &disks[1],
        ),
        (
            format!("{base}members_on = {list}\ndestroy = {list}\nmember_bytes = \"1G\""),
            "",
            2,
            "the smallest device has",
        ),
        (
            format!(
                "{base}members_on = [\"{0}\", \"{0}\"]\ndestroy = \"{0}\"",
                disks[0]
            ),
            "",
            2,
            "named twice",
        ),
        (
            format!("{base}members_on = {list}\ndestroy = {list}")
                .replace("members = 2", "members = 3"),
            "",
            2,
            "2 devices are too few",
        ),
    ] {
        let kind = if work.contains("kind") {
            ""
        } else {
            "kind = \"random-read\"\n"
        };
        let text_of = format!("[setup]\n{setup}\n[work]\n{kind}{work}\n");
        std::fs::write(place.file("built.toml"), text_of).unwrap();
        let run = place.plexum("lab run built.toml");
        assert_eq!(run.exit, exit, "{setup}: {}", run.err);
        assert!(run.err.contains(text), "{setup}: {}", run.err);
        assert!(!Path::new(&place.file("built")).exists(), "{setup}");
    }

    // A device that is mounted is in use.
    let made = place.tool("mkfs.ext4", &format!("-q {}", disks[1]));
    assert_eq!(made.exit, 0, "{}", made.err);
    std::fs::create_dir(place.file("mnt")).unwrap();
    assert_eq!(place.tool("mount", &format!("{} mnt", disks[1])).exit, 0);
    experiment(
        &place,
        &format!("{base}members_on = {list}\ndestroy = {list}"),
        "kind = \"random-read\"",
    );
    let run = place.plexum("lab run built.toml");
    assert_eq!(place.tool("umount", "mnt").exit, 0);
    for disk in &disks {
        assert_eq!(place.tool("losetup", &format!("-d {disk}")).exit, 0);
    }
    assert_eq!(run.exit, 2, "{}", run.err);
    assert!(run.err.contains("is in use"), "{}", run.err);
    let disk = std::fs::read(place.file("disk0")).unwrap();
    assert!(disk.iter().all(|byte| *byte == 0), "it was written to");
}

#[test]
fn devices_that_were_named_are_members_and_carry_nothing_afterwards() {
    let place = place("devices");
    let mut disks = Vec::new();
    for name in ["disk0", "disk1", "disk2"] {
        place.sparse(name, 192 << 20);
        let run = place.tool("losetup", &format!("--find --show {name}"));
        assert_eq!(run.exit, 0, "{}", run.err);
        disks.push(run.out.trim().to_owned());
    }
    let list = format!("[\"{}\"]", disks.join("\", \""));
    let setup = format!(
        "system = [\"plexum\", \"btrfs\"]\nlevel = \"5\"\nmembers = 3\nmembers_on = {list}\ndestroy = {list}\n\
         member_bytes = [0, \"160M\"]\nfile_system = \"ext4\""
    );
    experiment(&place, &setup, "kind = \"random-write\"");
    let run = place.plexum("lab run built.toml");
    let left: Vec<String> = disks
        .iter()
        .map(|disk| place.tool("blkid", &format!("--probe {disk}")).out)
        .collect();
    for disk in &disks {
        assert_eq!(place.tool("losetup", &format!("-d {disk}")).exit, 0);
    }
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    assert!(!run.out.contains("skipped"), "{}", run.out);
    assert_eq!(left, [""; 3]);
    assert_eq!(leavings(&place), [""; 0]);
}

/// Runs an experiment where the kernel has md and an NBD client: in a guest, whose devices are the members.
const IN_THE_GUEST: &str = r#"
export XDG_RUNTIME_DIR=$OUT XDG_STATE_HOME=$OUT
for module in nbd fuse loop; do /run/modprobe $module; done
list="\"$D0\", \"$D1\", \"$D2\""
cat >$OUT/md.toml <<END
repetitions = 1
[setup]
system = ["md", "plexum", "btrfs"]
through = ["device", "kernel-nbd"]
members_on = [$list]
destroy = [$list]
level = ["1", "5"]
members = 3
strip_bytes = "64K"
file_system = ["", "ext4"]
[work]
kind = "random-write"
range_bytes = "24M"
requests = 50
END
PLEXUM lab run $OUT/md.toml --out $OUT/md || exit 1
cat /proc/mdstat >$OUT/mdstat
ls -d /sys/block/nbd*/pid /sys/block/loop*/loop >$OUT/devices 2>/dev/null
for device in $DEVS; do blkid -p $device; done >$OUT/left
find $OUT/plexum/lab -mindepth 1 >>$OUT/left
exit 0
"#;

#[test]
fn the_kernels_md_and_its_nbd_client_are_set_up_measured_and_stopped() {
    let place = Place::new("lab-md");
    for name in ["m0", "m1", "m2"] {
        place.sparse(name, 128 << 20);
    }
    let program = env!("CARGO_BIN_EXE_plexum");
    let script = IN_THE_GUEST.replace("PLEXUM", program);
    let oracle = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/md-oracle");
    let output = place
        .command(oracle)
        .args(["--timeout", "180", "run", "--out", "out", "-c", &script])
        .args(["m0", "m1", "m2"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{words}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for row in [
        "md RAID-1 of 3 ",
        "md RAID-1 of 3, ext4 ",
        "md RAID-5 of 3 strip 64K ",
        "md RAID-5 of 3 strip 64K, ext4 ",
        "plexum RAID-5 of 3 strip 64K, device ",
        "plexum RAID-5 of 3 strip 64K, kernel NBD ",
        "plexum RAID-1 of 3 load, ext4 ",
        "plexum RAID-1 of 3 load, ext4, kernel NBD ",
        "btrfs RAID-5 of 3 ",
    ] {
        assert!(text.contains(row), "{row}: {text}{words}");
    }
    assert!(!text.contains("skipped"), "{text}");
    let arrays = std::fs::read_to_string(place.file("out/mdstat")).unwrap();
    assert!(!arrays.contains("active"), "{arrays}");
    for list in ["left", "devices"] {
        let left = std::fs::read_to_string(place.file(&format!("out/{list}"))).unwrap();
        assert_eq!(left, "");
    }
}
