//! The experiments of docs/experiments can be run as they are, and show what they are there to show.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use plexum_lab::experiment::{Experiment, Run, read_results};
use plexum_lab::report::page::Report;
use plexum_lab::setup::Setup;
use plexum_lab::work::program::measure_program;
use plexum_lab::work::real::{On, measure_on};
use plexum_lab::work::{Measurement, Work, measure};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments")
}

/// The runs of a file with one seed and few requests.
fn short_runs(path: &Path) -> Vec<Run> {
    let text = std::fs::read_to_string(path).expect("the file can be read");
    let experiment =
        Experiment::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let first = experiment.runs.iter().map(|run| run.seed).min();
    let mut runs = experiment.runs;
    runs.retain(|run| Some(run.seed) == first);
    for run in &mut runs {
        run.work.requests = run.work.requests.min(40);
        run.work.seconds = run.work.seconds.min(1);
    }
    runs
}

fn seen(setup: &Setup, work: &Work, seed: u64) -> Measurement {
    measure(setup, work, seed).unwrap_or_else(|error| panic!("{}: {error}", setup.label()))
}

fn figure(seen: &Measurement, name: &str) -> f64 {
    let found = seen.figures.iter().find(|figure| figure.name == name);
    found.expect("the figure is there").value
}

#[test]
fn every_ready_made_experiment_runs() {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be listed").path())
        .collect();
    files.sort();
    assert!(files.len() >= 2, "{files:?}");
    for path in files {
        let runs = short_runs(&path);
        assert!(runs.len() > 3, "{}: nothing to compare", path.display());
        for run in runs {
            let seen = seen(&run.setup, &run.work, run.seed);
            assert!(!seen.figures.is_empty());
            for figure in &seen.figures {
                let label = run.setup.label();
                assert!(
                    figure.value.is_finite() && figure.value > 0.0,
                    "{label}: {figure:?}"
                );
            }
        }
    }
}

#[test]
fn sixteen_cylinders_a_group_put_all_superblocks_on_one_disk_and_seventeen_on_all() {
    let mut evenness: BTreeMap<(String, u64, u64), f64> = BTreeMap::new();
    for run in short_runs(&folder().join("superblocks.toml")) {
        let seen = seen(&run.setup, &run.work, run.seed);
        let of_one = figure(&seen, "evenness");
        let used = seen
            .members
            .iter()
            .filter(|row| row.reads_per_s + row.writes_per_s > 0.0);
        assert_eq!(
            used.count() == 1,
            (of_one - 25.0).abs() < 1e-9,
            "{}",
            seen.classic
        );
        let key = (
            run.setup.level,
            run.setup.strip_bytes >> 10,
            run.work.group_bytes >> 20,
        );
        evenness.insert(key, of_one);
    }
    let of = |level: &str, strip_kib, group_mib| {
        *evenness
            .get(&(level.to_owned(), strip_kib, group_mib))
            .expect("the experiment has it")
    };
    assert_eq!(of("0", 4096, 32), 25.0);
    assert!(of("0", 4096, 34) > 85.0, "{evenness:?}");
    assert_eq!(
        of("0", 256, 34),
        25.0,
        "strips that divide a cylinder are no better"
    );
    assert!(of("0", 492, 32) > 60.0, "{evenness:?}");
}

#[test]
fn a_database_on_ssds_of_its_own_is_faster_than_on_one_volume_over_unlike_disks() {
    let text = std::fs::read_to_string(folder().join("side-by-side.toml")).expect("it is there");
    let text = text
        .replace("repetitions = 5", "repetitions = 2\nsensitivity = false")
        .replace("seconds = 10", "seconds = 1");
    let experiment = Experiment::parse(&text).expect("it can be");
    let results = tempfile::tempdir().expect("a folder");
    experiment
        .run_in(results.path(), &|| 0.0, |_, _| true)
        .expect("it runs");
    let results = read_results(results.path()).expect("they are there");
    let report = Report::of("side by side", &text, &results, Vec::new());
    let together = &report.comparisons()[0];
    assert!(together.title.ends_with(": together"), "{}", together.title);
    let (best, runs) = together.ranked()[0];
    assert!(best.starts_with("disks: RAID-10 of 4"), "{best}");
    assert_eq!(runs.volumes.len(), 2);
    let last = together.rows.last().expect("there are some");
    assert!(together.rows[0].1.mean > 4.0 * last.1.mean, "{last:?}");
    // Beside those of one volume: between the two that have SSDs of their own two short runs do not decide.
    let mut rivals = together.clone();
    rivals
        .rows
        .retain(|(name, _)| !name.starts_with("disks: RAID-5"));
    let answer = rivals.answer();
    assert!(answer.contains("disks holds 24000 GB"), "{answer}");
    assert!(
        answer.contains("ssd holds 500 GB, survives the loss of any disk"),
        "{answer}"
    );
    for look in [report.text(), report.markdown(), report.html()] {
        assert!(look.contains("what each volume did"), "{look}");
        assert!(!look.contains("DISAGREE"), "{look}");
    }
    // One row for each volume of each arrangement: two with one, one with one of four disks, two with two.
    assert_eq!(together.volumes().rows.len(), 2 + 1 + 2 * 2);
    let rows = plexum_lab::report::results::table(&results).csv();
    assert!(rows.contains("volume ssd: requests"), "{rows}");
}

#[test]
fn volumes_over_volumes_use_the_strips_that_were_named() {
    let setup = Setup {
        disks: vec!["ssd-sata".to_owned()],
        members: 4,
        level: "1".to_owned(),
        has_bitmap: false,
        inner_volumes: 2,
        inner_level: "0".to_owned(),
        inner_strip_bytes: vec![32 << 10, 64 << 10],
        ..Setup::default()
    };
    assert_eq!(
        setup.label(),
        "RAID-1 of 4 load no bitmap over 2 RAID-0 (32K, 64K)"
    );
    let work = Work {
        kind: "sequential-write".to_owned(),
        block_bytes: 64 << 10,
        processes: 1,
        requests: 200,
        ..Work::default()
    };
    // A little less than a strip: the superblocks of the mirror are written, too.
    let strip_kib = |setup: &Setup| -> Vec<u64> {
        let seen = seen(setup, &work, 1);
        let of_one = |row: &plexum_lab::iostat::MemberRow| row.written_kib_per_s / row.writes_per_s;
        let means = seen.members.iter().map(of_one);
        means.map(|kib| (kib / 4.0).round() as u64 * 4).collect()
    };
    assert_eq!(strip_kib(&setup), [32, 32, 64, 64]);
    let last_is_repeated = Setup {
        inner_strip_bytes: vec![16 << 10],
        ..setup
    };
    assert_eq!(strip_kib(&last_is_repeated), [16; 4]);
}

#[test]
fn each_choice_of_inner_strips_is_an_arrangement_of_its_own() {
    let text = "repetitions = 1\n[setup]\nmembers = 4\nlevel = \"1\"\ninner_volumes = 2\n\
                inner_strip_bytes = [[\"32K\", \"64K\"], [\"64K\", \"64K\"]]\n";
    let mut labels: Vec<String> = Experiment::parse(text)
        .expect("it can be")
        .runs
        .iter()
        .map(|run| run.setup.label())
        .collect();
    labels.sort();
    assert_eq!(
        labels,
        ["32K, 64K", "64K, 64K"].map(|strips| format!("RAID-1 of 4 load over 2 RAID-0 ({strips})"))
    );
}

#[test]
fn superblocks_are_read_on_real_places_and_no_program_is_asked_for_them() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    file.as_file().set_len(4 << 20).expect("room");
    let name = file.path().to_str().expect("a plain path");
    let work = Work {
        kind: "superblocks".to_owned(),
        group_bytes: 1 << 20,
        read_percent: 100,
        requests: 20,
        ..Work::default()
    };
    let on = On {
        name,
        destroy: None,
    };
    let seen = measure_on(&on, &work, 1).expect("it runs");
    assert_eq!(
        (seen.reads.count, seen.reads.bytes, seen.writes.count),
        (80, 80 * 8192, 0)
    );
    let error = measure_program(&on, &work, 1).expect_err("no such program");
    assert!(error.to_string().contains("superblocks"), "{error}");
    // Updates write: only to what was named.
    let updates = Work {
        read_percent: 50,
        ..work
    };
    assert!(measure_on(&on, &updates, 1).is_err());
    let on = On {
        name,
        destroy: Some(name),
    };
    let seen = measure_on(&on, &updates, 1).expect("it runs");
    assert!(seen.writes.count > 0 && seen.reads.count > 0);
}
