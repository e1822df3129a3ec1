//! `plexum demo` as a user runs it; what it keeps is read by nbdcopy and judged by the real md driver.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;

use crate::common::Place;
use crate::common::served::{Server, content};
use plexum_oracle::{Batch, Expected, Job, Judge, sha256};

/// One test for each level, because they mostly wait and so go well together.
fn holds(name: &str, words: &str) {
    holds_at(&Place::new(name), words);
}

fn holds_at(place: &Place, words: &str) {
    let run = place.plexum(&format!("demo --json {words}"));
    let objects = run.objects();
    assert_eq!(run.exit, 0, "{words}: {}{}", run.out, run.err);
    let last = objects.last().unwrap();
    assert_eq!(
        (&last["kind"], &last["is_good"]),
        (&"demo".into(), &true.into())
    );
    let checks = objects
        .iter()
        .filter(|object| object["kind"] == "demo_check");
    assert!(checks.count() >= 8, "{words}");
}

/// Members that `--keep disks` has left, those that died are gone.
fn kept(place: &Place) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(place.file("disks")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn the_demo_holds_for_raid6_and_the_kernel_finds_its_result_right() {
    let place = Place::new("demo-6");
    holds_at(&place, "--keep disks");
    let files = kept(&place);
    assert_eq!(files.len(), 6, "two of eight disks died: {files:?}");
    let words: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
    let server = Server::start(&place, &format!("--read-only {}", words.join(" ")));
    let found = content(&place);
    server.stop(&place);
    assert!(
        found.iter().any(|&byte| byte != 0),
        "the demo wrote something"
    );

    // Any two missing must give the same content: the spares were filled by the demo's rebuilds.
    let mut judge = Judge::new(Expected::Sha256(sha256(&found)));
    judge.without = vec![vec![], vec![0, 3]];
    let mut batch = Batch::new();
    batch.add(Job::judge("demo", &files, &judge));
    let reports = batch.run_faultless();
    assert_eq!(reports[0].mismatch_sectors(), Some(0));
}

#[test]
fn the_demo_holds_for_raid5() {
    holds("demo-5", "--level 5 --seed 2");
}

#[test]
fn the_demo_holds_for_raid4() {
    holds("demo-4", "--level 4 --seed 3");
}

#[test]
fn the_demo_holds_for_three_copies() {
    holds("demo-1", "--level 1 --members 3 --seed 4");
}

#[test]
fn the_demo_holds_for_raid10() {
    holds("demo-10", "--level 10 --seed 5");
}

/// A folder of members in the folder for temporary files, and a server in it, are what a demo makes.
#[test]
fn a_demo_that_is_stopped_leaves_no_server_and_no_folder() {
    let place = Place::new("demo-stopped");
    std::fs::create_dir(place.file("tmp")).unwrap();
    let mut command = place.command(env!("CARGO_BIN_EXE_plexum"));
    command.arg("demo").env("TMPDIR", place.file("tmp"));
    let mut demo = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(demo.stdout.take().unwrap());
    let mut line = String::new();
    told.read_line(&mut line).unwrap();
    let made = || std::fs::read_dir(place.file("tmp")).unwrap().count();
    while made() == 0 {
        std::thread::yield_now();
    }
    assert_eq!(place.tool("kill", &format!("-INT {}", demo.id())).exit, 0);
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    assert_eq!(demo.wait().unwrap().code(), Some(1), "{line}{rest}");
    assert!(rest.contains("the demo was stopped"), "{rest}");
    assert_eq!(made(), 0);
    let folder = place.file("tmp").display().to_string();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut commands =
        processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    assert!(!commands.any(|command| String::from_utf8_lossy(&command).contains(&folder)));
}

#[test]
fn sabotage_is_noticed_and_kept_members_are_an_md_array() {
    let place = Place::new("demo-sabotage");
    let run = place.plexum("demo --sabotage");
    assert_eq!(run.exit, 1, "{}{}", run.out, run.err);
    assert!(run.out.contains("FAILED"), "{}", run.out);
    let run = place.plexum("demo --keep disks --level 1");
    assert_eq!(run.exit, 0, "{}{}", run.out, run.err);
    let files = kept(&place);
    assert_eq!(files.len(), 2, "two of four disks died: {files:?}");
    for file in files {
        let text = place.tool("mdadm", &format!("-E {}", file.display())).out;
        assert!(
            text.contains("State : clean") && text.contains("Array State : AA"),
            "{text}"
        );
    }
}
