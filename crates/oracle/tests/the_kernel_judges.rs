//! The judge itself: what it creates it reads back, and what is wrong it finds.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use plexum_oracle::{Batch, Create, Ending, Expected, Folder, Job, Judge, survivable_losses};

const MIB: u64 = 1 << 20;

fn members(folder: &Folder, count: usize) -> Vec<PathBuf> {
    folder.members(count, 4 * MIB).unwrap()
}

/// Turns one byte of a file around.
fn damage(path: &PathBuf, offset_bytes: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset_bytes).unwrap();
    file.write_all_at(&[!byte[0]], offset_bytes).unwrap();
}

/// Member files of a mirror (seed 1), a RAID-5 (seed 2) and a RAID-6 (seed 3) made by the kernel in one guest.
fn make_three(folders: &[Folder]) -> [Vec<PathBuf>; 3] {
    let [mirror, raid5, raid6] =
        [(0, 2), (1, 3), (2, 4)].map(|(n, count)| members(&folders[n], count));
    let create = |level: &str, options: &[&str], seed| Create::new(level, options, seed);
    let right = ["--chunk=16", "--layout=right-symmetric"];
    let mut batch = Batch::new();
    batch.add(Job::create(
        "mirror",
        &mirror,
        &create("1", &["--bitmap=internal"], 1),
    ));
    batch.add(Job::create("raid5", &raid5, &create("5", &right, 2)));
    batch.add(Job::create(
        "raid6",
        &raid6,
        &create("6", &["--size=1024"], 3),
    ));
    let made = batch.run_faultless();
    assert!(
        made.iter()
            .all(|report| report.value("made.sha256").len() == 64)
    );
    assert_eq!(made[0].members[0].dirty_bits, Some(0));
    assert_eq!(made[1].members[2].role, "Active device 2");
    [mirror, raid5, raid6]
}

#[test]
fn what_is_right_has_no_fault_and_what_is_wrong_has_its_own() {
    let folders: Vec<_> = (0..4).map(|_| Folder::new("judge").unwrap()).collect();
    let [mirror, raid5, raid6] = make_three(&folders);
    let spoiled: Vec<_> = (0..3)
        .map(|n| folders[3].path().join(format!("{n}")))
        .collect();
    for (from, to) in raid5.iter().zip(&spoiled) {
        std::fs::copy(from, to).unwrap();
    }
    damage(&spoiled[1], 3 * MIB);

    let judge = |seed, without: &[&[usize]]| Judge {
        without: without.iter().map(|members| members.to_vec()).collect(),
        ..Judge::new(Expected::Seed(seed))
    };
    let any_two = Judge {
        without: survivable_losses(4, |lost| lost.len() <= 2),
        ..Judge::new(Expected::Seed(3))
    };
    let mut batch = Batch::new();
    batch.add(Job::judge("mirror", &mirror, &judge(1, &[&[], &[0], &[1]])));
    batch.add(Job::judge("raid6", &raid6, &any_two));
    batch.add(Job::judge("wrong seed", &mirror, &judge(4, &[&[]])));
    batch.add(Job::judge(
        "damaged",
        &spoiled,
        &Judge::new(Expected::Anything),
    ));
    batch.add(Job::judge("too few", &raid5, &judge(2, &[&[0, 1]])));
    let reports = batch.run();
    let faults: Vec<_> = reports.iter().map(|report| report.faults()).collect();
    assert_eq!(faults[0], [""; 0]);
    assert_eq!(faults[1], [""; 0]);
    assert_eq!(faults[2].len(), 2, "{:?}", faults[2]); // read, and read after the scrub
    assert!(faults[2][0].contains("expected"));
    assert_eq!(faults[3].len(), 1, "{:?}", faults[3]);
    assert!(faults[3][0].contains("check found") && reports[3].mismatch_sectors() > Some(0));
    assert_eq!(faults[4].len(), 1, "{:?}", faults[4]);
    assert!(faults[4][0].contains("refused"));
}

#[test]
fn a_power_cut_leaves_dirty_metadata_and_the_other_jobs_whole() {
    let folders: Vec<_> = (0..3).map(|_| Folder::new("judge").unwrap()).collect();
    let (cut, whole, failing) = (
        members(&folders[0], 2),
        members(&folders[1], 2),
        members(&folders[2], 1),
    );
    let create = Create {
        then: "md_set $MD safe_mode_delay 60; fill 5 65536 65536".to_owned(),
        ending: Ending::Crash,
        ..Create::new("1", &["--bitmap=internal"], 5)
    };
    let mut batch = Batch::new();
    batch.add(Job::create("cut", &cut, &create));
    batch.add(Job::create(
        "whole",
        &whole,
        &Create::new("0", &["--chunk=64"], 6),
    ));
    batch.add(Job::script("failing", &failing, "echo seen; exit 7"));
    let reports = batch.run();
    assert_eq!(reports[0].faults(), [""; 0]);
    assert_eq!(reports[1].faults(), [""; 0]);
    assert_eq!(
        (reports[2].exit_code, reports[2].stdout.as_str()),
        (Some(7), "seen\n")
    );
    assert_eq!(reports[2].faults().len(), 1);

    let mut batch = Batch::new();
    batch.add(Job::judge("cut", &cut, &Judge::new(Expected::Seed(5))));
    batch.add(Job::judge("whole", &whole, &Judge::new(Expected::Seed(6))));
    let judged = batch.run();
    let faults = judged[0].faults();
    assert!(
        faults
            .iter()
            .all(|fault| fault.contains("not clean") || fault.contains("dirty bits")),
        "{faults:?}"
    );
    assert!(faults.len() >= 2, "{faults:?}");
    assert_eq!(judged[1].faults(), [""; 0]);
}

#[test]
fn a_job_that_takes_too_long_is_a_fault() {
    let folder = Folder::new("judge").unwrap();
    let job = Job::script("slow", &members(&folder, 1), "sleep 1000").with_limit(0);
    let mut batch = Batch::new().with_boot_limit(8);
    batch.add(job);
    let faults = batch.run()[0].faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].contains("ran out of its"), "{faults:?}");
}
