//! The real engine under faults, crashes and operations, by seed: fresh ones, and for ever those that once failed.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;

use plexum_sim::engine::Engine;
use plexum_sim::run::run;
use plexum_sim::scenario::Options;
use plexum_sim::world::run_seed;

/// Seeds of the run that must fill the coverage matrix: at least, and at most.
const SEEDS_MIN: u64 = 200;
const SEEDS_MAX: u64 = 1500;

/// Seeds that no run has seen before.
const FRESH_SEEDS: u64 = 200;

/// Seeds that found a bug of the engine, with what it was.
const SEEDS_OF_THE_PAST: [(u64, &str); 8] = [
    (
        148,
        "two interrupted commits left a member two events behind",
    ),
    (146, "a rebuild on 0.90 metadata could not be encoded"),
    (
        80,
        "a degraded write that met a latent error recovered more than parity can",
    ),
    (371, "a row written without its parity stayed proven"),
    (26, "copies were proven equal before they were flushed"),
    (654, "two members added at once took the same id"),
    (599, "a crash between the end of a rebuild and its commit"),
    (184, "a trim that was taken back by a crash"),
];

fn check(seed: u64, what: &str) {
    // They are from before the stripe log, which would hide what some of them found.
    let options = Options {
        logs_of_256: 0,
        ..Options::default()
    };
    let outcome = run_seed::<Engine>(seed, &options, None);
    let findings: Vec<String> = outcome.findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "seed {seed} ({what}): {findings:?}");
    assert!(outcome.counts.answers > 0, "seed {seed} did something");
}

#[test]
fn seeds_of_the_past_stay_right() {
    for (seed, what) in SEEDS_OF_THE_PAST {
        check(seed, what);
    }
}

#[test]
fn seeds_have_no_finding_and_whatever_can_meet_has_met() {
    let options = Options::default();
    let report = run::<Engine>(0..SEEDS_MAX, &options, None, &mut |report| {
        let is_full = report.seeds % 50 == 0 && report.missing_pairs(&options.levels).is_empty();
        if report.violations > 0 || report.seeds >= SEEDS_MIN && is_full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(report.violations, 0, "{report}");
    assert!(report.empty_cells.is_empty(), "{report}");
    assert!(report.crashes > 50 && report.nested_crashes > 5, "{report}");
    assert!(
        report.faults_hit["read-error"] > 0 && report.faults_put["vanish"] > 0,
        "{report}"
    );
}

#[test]
fn fresh_seeds_have_no_finding() {
    // Other ones in every run; the message names the seed that makes a failure come back.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let first = now.as_secs() * 1000;
    let options = Options::default();
    let report = run::<Engine>(first..first + FRESH_SEEDS, &options, None, &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(report.violations, 0, "{report}");
}

#[test]
fn two_runs_of_a_seed_of_the_engine_give_one_hash() {
    for seed in 0..6 {
        let run = || {
            run_seed::<Engine>(
                seed,
                &Options {
                    requests: 300,
                    ..Options::default()
                },
                None,
            )
        };
        assert_eq!(run().hash, run().hash, "seed {seed}");
    }
}
