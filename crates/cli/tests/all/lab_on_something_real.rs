//! `plexum lab work --on`: workloads on files, folders and served volumes, and what they leave behind.

use std::process::Stdio;

use crate::common::Place;
use crate::common::served::{Server, done, uri};

/// Looks at something before a test gives up.
const LOOKS_MAX: usize = 2_000_000;

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.file(folder)).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_file_with_content_is_not_written_to_until_it_is_named() {
    let place = Place::new("lab-on-file");
    let bytes = vec![7_u8; 8 << 20];
    std::fs::write(place.file("disk"), &bytes).unwrap();
    for kind in [
        "random-write",
        "mixed",
        "rawio",
        "bonnie",
        "iozone",
        "dd-write",
    ] {
        let words = format!("lab work {kind} --on disk --range 4M --requests 16");
        let refused = place.plexum(&words);
        assert_eq!(refused.exit, 3, "{kind}: {}", refused.err);
        assert!(refused.err.contains("--destroy"), "{kind}: {}", refused.err);
    }
    let read = place.plexum("lab work random-read --on disk --requests 50 --format csv");
    assert_eq!(read.exit, 0, "{}", read.err);
    assert!(
        read.out
            .starts_with("arrangement,workload,figure,value,unit\ndisk,random-read,requests,")
    );
    assert!(
        std::fs::read(place.file("disk")).unwrap() == bytes,
        "it was written to"
    );

    let written = place
        .plexum("lab work random-write --on disk --destroy disk --range 4M --requests 50 --json");
    assert_eq!(written.exit, 0, "{}", written.err);
    let result = &written.objects()[0]["result"];
    assert_eq!(result["writes"]["count"], 200);
    let after = std::fs::read(place.file("disk")).unwrap();
    assert!(after[..4 << 20] != bytes[..4 << 20], "nothing was written");
    assert!(after[4 << 20..] == bytes[4 << 20..], "beyond the range");
}

#[test]
fn every_program_runs_in_a_folder_and_leaves_nothing_there() {
    let place = Place::new("lab-on-folder");
    std::fs::create_dir(place.file("mnt")).unwrap();
    std::fs::write(place.file("mnt/theirs"), "data").unwrap();
    std::fs::write(
        place.file("jobs.fio"),
        "[global]\nsize=256k\nbs=4k\n[a]\nrw=randread\nnumjobs=2\n[b]\nstonewall\nrw=randwrite\nend_fsync=1\n",
    )
    .unwrap();
    std::fs::write(
        place.file("trace"),
        "0 R 0 4096\n0.001 W 8192 4096\n0.002 F 0 0\n",
    )
    .unwrap();
    for (words, look) in [
        ("random-read", "reads: 2000 requests"),
        ("mixed --sync", "writes:"),
        ("sequential-write --depth 4", "writes: 2000 requests"),
        ("dd-write --block 16K", "500+0 records out"),
        ("random-dd --requests 20", "20+0 records in"),
        ("rawio --requests 20", "Random read"),
        ("bonnie", "-Rewrite--"),
        ("bonnie++ --files 1:3K", "--Random Create--"),
        ("bonnie++ --files 0", "--Seeks---"),
        ("iozone", "reclen"),
        ("fio --file jobs.fio", "b:\n  write: IOPS="),
        ("trace --file trace", "writes: 1 requests"),
    ] {
        let range = if words.contains("dd-write") || words.contains("fio") {
            ""
        } else {
            " --range 4M"
        };
        let run = place.plexum(&format!("lab work {words} --on mnt{range}"));
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
        assert!(run.out.contains(look), "{words}: {}", run.out);
        assert_eq!(names(&place, "mnt"), ["theirs"], "{words}");
    }
    assert_eq!(std::fs::read(place.file("mnt/theirs")).unwrap(), b"data");
}

#[test]
fn iozone_goes_through_all_files_and_bonnie_fills_folders_as_their_options_say() {
    let place = Place::new("lab-auto");
    std::fs::create_dir(place.file("mnt")).unwrap();
    for words in [
        "lab work iozone -a --range 128K --on mnt",
        "lab work iozone --auto --range 128K --level 1 --members 2",
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
        for figure in ["64K/4K write", "64K/64K freread", "128K/128K stride read"] {
            assert!(run.out.contains(figure), "{words}: {figure}: {}", run.out);
        }
        let heads = run.out.lines().position(|line| line.contains("reclen"));
        let lines = run.out.lines().skip(heads.unwrap() + 1);
        let rows = lines.take_while(|line| !line.trim().is_empty()).count();
        assert_eq!(rows, 5 + 6, "{words}: files of 64 KiB and of 128 KiB");
    }
    // Folders may be more than files: the program makes them all.
    for files in ["1:1024:0:16", "1:0:0:2K"] {
        let run = place.plexum(&format!(
            "lab work bonnie++ --files {files} --range 4M --on mnt"
        ));
        assert_eq!(run.exit, 0, "{}", run.err);
        assert!(run.out.contains("--Random Create--"), "{}", run.out);
    }
    assert!(names(&place, "mnt").is_empty());
    for (words, told) in [
        (
            "iozone -a --range 32K --on mnt",
            "smallest file has 65536 bytes, more than the range of 32768",
        ),
        ("random-read -a --on mnt", "is for iozone"),
        ("bonnie++ --files 1:0:5 --on mnt", "least size"),
        ("bonnie++ --files 1:5:0:2:9 --on mnt", "one too many"),
        ("bonnie++ --files 1:5:0:0 --on mnt", "1 folder at least"),
        (
            "bonnie++ --files 1:5:0:98K --on mnt",
            "100352 folders; at most 99999",
        ),
    ] {
        let run = place.plexum(&format!("lab work {words}"));
        assert_eq!(run.exit, 2, "{words}: {}", run.err);
        assert!(run.err.contains(told), "{words}: {}", run.err);
    }
}

#[test]
fn an_interrupted_workload_removes_its_folder() {
    let place = Place::new("lab-on-interrupt");
    std::fs::create_dir(place.file("mnt")).unwrap();
    std::fs::write(
        place.file("long.fio"),
        "[a]\nrw=randread\nbs=4k\nsize=1m\nruntime=600\ntime_based\n",
    )
    .unwrap();
    for (words, inside) in [
        ("fio --file long.fio", ""),
        ("bonnie++ --range 1M --files 200", "files"),
    ] {
        let mut child = place
            .command(env!("CARGO_BIN_EXE_plexum"))
            .args(format!("lab work {words} --on mnt").split(' '))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut looks = 0;
        let has_come = |folder: &String| place.file(&format!("mnt/{folder}/{inside}")).exists();
        while !names(&place, "mnt").iter().any(has_come) {
            looks += 1;
            assert!(looks < LOOKS_MAX, "{words}: the folder never came");
            std::thread::yield_now();
        }
        let killed = place.tool("kill", &format!("-INT {}", child.id()));
        assert_eq!(killed.exit, 0, "{}", killed.err);
        let status = child.wait().unwrap();
        assert!(!status.success(), "{words}");
        assert!(
            names(&place, "mnt").is_empty(),
            "{words}: {:?}",
            names(&place, "mnt")
        );
    }
}

#[test]
fn phases_with_many_files_are_in_a_folder_only_and_a_note_says_so() {
    let place = Place::new("lab-on-many-files");
    std::fs::create_dir(place.file("mnt")).unwrap();
    std::fs::write(place.file("disk"), vec![0; 4 << 20]).unwrap();
    let run = place.plexum("lab work bonnie++ --range 1M --files 1:100 --on mnt --json");
    assert_eq!(run.exit, 0, "{}", run.err);
    let result = &run.objects()[0]["result"];
    let unit = |one: &&serde_json::Value| one["unit"] == "files/s";
    let figures = result["figures"].as_array().unwrap().iter().filter(unit);
    let figures: Vec<&str> = figures.map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(figures.len(), 6, "{result}");
    assert_eq!(figures[0], "sequential create");
    assert!(result["files"][5]["worst_us"].as_f64().unwrap() > 0.0);
    for on in ["--on disk --destroy disk", "--disk scsi-10k"] {
        let words = format!("lab work bonnie++ --range 1M {on}");
        let run = place.plexum(&words);
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
        assert!(run.err.contains("are left out"), "{words}: {}", run.err);
        assert!(!run.out.contains("files/s"), "{words}: {}", run.out);
        let run = place.plexum(&format!("{words} --files 0"));
        assert!(!run.err.contains("are left out"), "{words}: {}", run.err);
    }
    let refused = place.plexum("lab work bonnie++ --range 1M --files 1M --on mnt");
    assert_eq!(refused.exit, 2, "{}", refused.err);
    assert!(names(&place, "mnt").is_empty());
}

#[test]
fn a_served_volume_is_measured_over_nbd_and_only_written_to_when_named() {
    let place = Place::new("lab-on-nbd");
    done(&place, "create nas --level 5 --member-size 32M a b c");
    let server = Server::start(&place, "a b c");
    let name = uri(&place);
    let refused = place.plexum(&format!("lab work rawio --on {name}"));
    assert_eq!(refused.exit, 3, "{}", refused.err);
    for (words, look) in [
        (
            "random-read --depth 8 --requests 100",
            "reads: 400 requests",
        ),
        ("rawio --requests 20", "nas"),
        ("bonnie --range 4M", "nas"),
        ("mixed --processes 2 --depth 4 --sync", "writes:"),
    ] {
        let destroy = if words.starts_with("random-read") {
            String::new()
        } else {
            format!("--destroy {name}")
        };
        let run = place.plexum(&format!("lab work {words} --on {name} {destroy}"));
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
        assert!(run.out.contains(look), "{words}: {}", run.out);
    }
    // A member of a running volume is in use.
    let member = place.plexum("lab work random-write --on a --destroy a");
    assert_eq!(member.exit, 2, "{}", member.err);
    assert!(member.err.contains("a is in use"), "{}", member.err);
    server.stop(&place);
}

#[test]
fn the_real_programs_give_their_figures_and_leave_nothing() {
    let place = Place::new("lab-real-programs");
    std::fs::create_dir(place.file("mnt")).unwrap();
    place.sparse("disk", 16 << 20);
    std::fs::write(
        place.file("jobs.fio"),
        "[a]\nrw=randread\nbs=4k\nsize=1m\nnumjobs=2\n[b]\nstonewall\nrw=write\nbs=64k\nsize=1m\n",
    )
    .unwrap();
    for (words, figures) in [
        ("fio --file jobs.fio --on mnt", &["a read", "b write"][..]),
        (
            "fio --file jobs.fio --on disk --destroy disk",
            &["a read", "b write"],
        ),
        (
            "random-read --depth 4 --range 4M --on mnt",
            &["random-read read"],
        ),
        (
            "mixed --sync --on disk --destroy disk",
            &["mixed read", "mixed write"],
        ),
        (
            "sequential-read --on disk --requests 16",
            &["sequential-read read"],
        ),
        (
            "dd-read --block 16K --requests 100 --on disk",
            &["requests", "rate"],
        ),
        (
            "dd-write --block 16K --requests 100 --on mnt",
            &["requests", "rate"],
        ),
        (
            "random-dd --requests 10 --range 1M --on mnt",
            &["requests", "rate"],
        ),
        ("bonnie++ --range 2M --on mnt", &[]),
    ] {
        let run = place.plexum(&format!("lab work {words} --real --json"));
        assert_eq!(run.exit, 0, "{words}: {}", run.err);
        let result = run.objects().remove(0)["result"].clone();
        for name in figures {
            let mut all = result["figures"].as_array().unwrap().iter();
            let value = all
                .find(|one| one["name"] == *name)
                .map(|one| one["value"].as_f64());
            assert!(
                value.flatten().is_some_and(|value| value > 0.0),
                "{words}: {result}"
            );
        }
        assert!(!result["classic"].as_str().unwrap().is_empty(), "{words}");
        assert!(
            names(&place, "mnt").is_empty(),
            "{words}: {:?}",
            names(&place, "mnt")
        );
    }
    for (words, text) in [
        ("rawio --on mnt", "no program is known"),
        ("bonnie++ --on disk --destroy disk", "name a folder"),
        ("dd-read --on nbd+unix:///v?socket=s", "knows no NBD"),
        ("random-write --on disk", "would be lost"),
        ("iozone --on disk --destroy disk", "iozone"),
    ] {
        let run = place.plexum(&format!("lab work {words} --real"));
        assert!(matches!(run.exit, 2 | 3), "{words}: {}", run.err);
        assert!(run.err.contains(text), "{words}: {}", run.err);
    }
    // Without the program: one line.
    let run = place
        .command(env!("CARGO_BIN_EXE_plexum"))
        .args("lab work random-read --on disk --real".split(' '))
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(2));
    let told = String::from_utf8(run.stderr).unwrap();
    assert!(told.starts_with("error: fio is not installed"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn fio_measures_a_served_volume() {
    let place = Place::new("lab-real-nbd");
    done(&place, "create nas --level 1 --member-size 32M a b");
    let server = Server::start(&place, "a b");
    let name = uri(&place);
    let words = format!("lab work mixed --real --depth 4 --on {name} --destroy {name} --json");
    let run = place.plexum(&words);
    assert_eq!(run.exit, 0, "{}", run.err);
    let result = run.objects().remove(0)["result"].clone();
    let count = |word: &str| result[word]["count"].as_u64().unwrap();
    assert_eq!(count("reads") + count("writes"), 2000, "{result}");
    server.stop(&place);
}
