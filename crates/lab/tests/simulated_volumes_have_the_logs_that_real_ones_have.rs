//! `consistency` of simulated volumes: what each costs, and what no level can have.

use plexum_lab::experiment::Experiment;
use plexum_lab::setup::Setup;
use plexum_lab::work::{Measurement, Work, measure};

fn arrangement(level: &str, consistency: &str) -> Setup {
    Setup {
        level: level.to_owned(),
        members: 4,
        strip_bytes: 64 << 10,
        member_bytes: 1 << 30,
        consistency: consistency.to_owned(),
        ..Setup::default()
    }
}

fn writes() -> Work {
    Work {
        kind: "random-write".to_owned(),
        requests: 100,
        is_sync: true,
        ..Work::default()
    }
}

fn seen(level: &str, consistency: &str) -> Measurement {
    measure(&arrangement(level, consistency), &writes(), 3).expect("it runs")
}

fn written_kib_per_request(seen: &Measurement) -> f64 {
    let rate: f64 = seen.members.iter().map(|row| row.written_kib_per_s).sum();
    rate * seen.elapsed_s / seen.writes.count as f64
}

#[test]
fn a_log_costs_virtual_time_and_bytes() {
    for level in ["5", "6"] {
        let [bitmap, log, back] = ["bitmap", "log", "write-back"].map(|how| seen(level, how));
        assert!(
            log.elapsed_s > 1.1 * bitmap.elapsed_s,
            "RAID-{level}: {} s with a log, {} s without",
            log.elapsed_s,
            bitmap.elapsed_s
        );
        assert!(
            back.elapsed_s < log.elapsed_s,
            "RAID-{level}: answered from the log"
        );
        // Each write is in the log as well: data and parity, and a page that says so.
        let (log_kib, plain_kib) = (
            written_kib_per_request(&log),
            written_kib_per_request(&bitmap),
        );
        assert!(
            log_kib > 1.8 * plain_kib,
            "RAID-{level}: {log_kib} {plain_kib}"
        );
    }
}

#[test]
fn the_usual_is_a_bitmap_and_no_log() {
    let told = |how: &str| serde_json::to_string(&seen("5", how)).expect("numbers");
    assert_eq!(told(""), told("bitmap"));
    let with = |consistency: &str, has_bitmap| {
        let setup = Setup {
            has_bitmap,
            ..arrangement("5", consistency)
        };
        let seen = measure(&setup, &writes(), 3).expect("it runs");
        serde_json::to_string(&seen).expect("numbers")
    };
    assert_eq!(with("resync", true), with("", false));
    assert_ne!(with("resync", true), with("bitmap", true));
    assert_ne!(with("log", true), with("log", false));
    assert_ne!(with("ppl", true), with("resync", true));
}

#[test]
fn a_label_says_which_log_there_is() {
    for (consistency, has_bitmap, end) in [
        ("", true, "strip 64K"),
        ("", false, "strip 64K no bitmap"),
        ("log", true, "strip 64K log"),
        ("log", false, "strip 64K log no bitmap"),
        ("ppl", false, "strip 64K ppl"),
        ("resync", false, "strip 64K resync"),
    ] {
        let setup = Setup {
            has_bitmap,
            ..arrangement("5", consistency)
        };
        assert_eq!(setup.label(), format!("RAID-5 of 4 {end}"));
    }
}

#[test]
fn what_no_level_can_have_is_refused_before_anything_runs() {
    for (level, consistency, has_bitmap, why) in [
        ("1", "log", true, "for parity, not for raid1"),
        ("10", "write-back", true, "for parity, not for raid10"),
        ("6", "ppl", true, "for raid5, not for raid6"),
        ("0", "bitmap", true, "raid0 has no redundancy"),
        ("single", "log", true, "a single disk"),
        ("5", "bitmap", false, "left out"),
        ("5", "hope", true, "log, write-back, ppl"),
    ] {
        let setup = Setup {
            has_bitmap,
            ..arrangement(level, consistency)
        };
        let error = measure(&setup, &writes(), 1)
            .expect_err("it cannot be")
            .to_string();
        assert!(
            error.contains(why) && !error.contains('\n'),
            "{level} {consistency}: {error}"
        );
        let text = format!(
            "[setup]\nlevel = [\"5\", \"{level}\"]\nconsistency = [\"\", \"{consistency}\"]\n\
             has_bitmap = {has_bitmap}\n[work]\nkind = \"random-write\""
        );
        let error = Experiment::parse(&text)
            .expect_err("it cannot be")
            .to_string();
        assert!(
            error.contains(why) && !error.contains('\n'),
            "{level} {consistency}: {error}"
        );
    }
}

#[test]
fn an_experiment_compares_logs_on_simulated_disks() {
    let text = "[setup]\nlevel = \"5\"\nmember_bytes = \"1G\"\nconsistency = [\"log\", \"ppl\", \"resync\"]\n\
                [work]\nkind = \"random-write\"";
    let runs = Experiment::parse(text).expect("it can be").runs;
    assert_eq!(runs.len(), 3 * 5);
}
