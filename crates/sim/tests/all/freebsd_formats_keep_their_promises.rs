//! gmirror and gvinum under faults, crashes, operations, lost drives and drives that come back, by seed: the first
//! ones, and fresh ones in every run.

use std::ops::ControlFlow;

use plexum_sim::bsd::{Format, Plan};
use plexum_sim::run::Report;
use plexum_sim::seeds::{Seeded, run_seeds_of};
use plexum_sim::world::Tracing;

/// Seeds of the run that everything is expected of.
const SEEDS: u64 = 300;

/// Seeds that no run has seen before.
const FRESH_SEEDS: u64 = 100;

fn run(format: Format, first: u64, count: u64) -> Report {
    let report = run_seeds_of(first..first + count, format, None, &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(report.violations, 0, "{report}");
    report
}

/// What must have come up: crashes in each stage, and operations.
fn expect(report: &Report, format: Format, stages: &[&str], operations: &[&str]) {
    for stage in stages {
        let cell = format!("{} / PowerCut / {stage}", format.name());
        assert!(report.coverage.contains_key(&cell), "{cell}: {report}");
    }
    for operation in operations {
        let count = report.operations.get(operation).copied();
        assert!(count.unwrap_or(0) > 5, "{operation}: {report}");
    }
    assert!(
        report.crashes > 300 && report.nested_crashes > 30,
        "{report}"
    );
}

#[test]
fn mirrors_of_gmirror_keep_their_promises() {
    let report = run(Format::Gmirror, 0, SEEDS);
    let stages = ["assembly", "idle", "requests", "degraded", "rebuild"];
    let operations = [
        "add",
        "fail",
        "replace",
        "hidden",
        "scrub",
        "deactivate",
        "activate",
    ];
    expect(&report, Format::Gmirror, &stages, &operations);
}

#[test]
fn volumes_of_gvinum_keep_their_promises() {
    let report = run(Format::Gvinum, 0, SEEDS);
    let stages = [
        "assembly", "idle", "requests", "degraded", "rebuild", "resync", "growth",
    ];
    let operations = ["fail", "hidden", "move", "grow", "scrub"];
    expect(&report, Format::Gvinum, &stages, &operations);
    assert!(report.forced_starts > 5, "{report}");
}

#[test]
fn fresh_seeds_have_no_finding() {
    // Other ones in every run; the message names the seed that makes a failure come back.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    for format in Format::ALL {
        run(format, now.as_secs() * 1000, FRESH_SEEDS);
    }
}

#[test]
fn seeds_that_once_had_a_finding_have_none() {
    let mirrors = [
        1_795_355_152_020_003_209, // an insertion cut off after its own label
        1_795_361_000_000_006_943, // a replacement while another component was missing
        1_795_371_000_000_004_100, // the same, cut off
        1_795_371_000_000_038_431, // a replacement that could not be read where it had been filled
        // A replacement that could not be written where it had been filled, another component lost.
        1_795_629_954_020_001_994,
        1_795_631_705_030_002_453, // a mirror wider than it was made, which lacked one
    ];
    let systems = [
        1_795_372_000_000_000_748, // the other plex was lost before it was durable that this one is filled
        1_795_372_000_000_018_392, // drives of one age that differ after a save was cut off
        1_795_371_263_000_117, // a drive was lost inside a plex while that was filled: it was taken as filled as well
        1_795_373_693_002_085, // striped drives that differ after the last save of a growth was cut off
        1_795_371_263_007_690, // a growth that had not begun to go on counted as ended
        1_795_631_612_064, // a slow drive's block was made from parity that a growth was about to make anew
    ];
    let mirrors = mirrors.map(|seed| (Format::Gmirror, seed));
    let systems = systems.map(|seed| (Format::Gvinum, seed));
    for (format, seed) in mirrors.into_iter().chain(systems) {
        let mut plan = Plan::new(seed, format);
        plan.course.has_small_thresholds = false; // they are older than those
        let findings = plan.run(Tracing::Hash, None).findings;
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}

#[test]
fn seeds_that_had_a_finding_with_small_thresholds_have_none() {
    // What was filled, and checkpointed, was believed after a crash with writes under way.
    let mirrors = [
        5, 49, 71, 88, 190, 204, 212, 245, 287, 293, 471, 20056, 31123,
    ]
    .map(|seed| (Format::Gmirror, seed));
    let systems = [
        184,     // a slow drive's block was made from parity that a growth was about to make anew
        701_142, // two crashes in saves tore both copies of the newest configuration, and an older one counted
        1_795_695_487_050_000_872, // a copy failed while it was read, and the other one had older data
    ];
    let systems = systems.map(|seed| (Format::Gvinum, seed));
    for (format, seed) in mirrors.into_iter().chain(systems) {
        let findings = Plan::new(seed, format).run(Tracing::Hash, None).findings;
        assert!(findings.is_empty(), "seed {seed}: {findings:?}");
    }
}

#[test]
fn two_runs_of_a_seed_give_one_hash() {
    for seed in 0..20 {
        for format in Format::ALL {
            let plan = Plan::new(seed, format);
            let hash = || plan.run(Tracing::Hash, None).hash;
            assert_eq!(hash(), hash(), "seed {seed}");
        }
    }
}
