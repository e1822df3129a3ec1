//! The real engine under faults, crashes, operations and a foreign driver, by seed: the first ones until whatever can
//! meet has met, and fresh ones in every run. What seeds of the past have found is in `bugs_of_the_past.rs`.

use std::ops::ControlFlow;

use plexum_sim::md::Level;
use plexum_sim::md::drill::Drill;
use plexum_sim::md::scenario::{Options, Scenario};
use plexum_sim::seeds::{Seeded, run_seeds};
use plexum_sim::world::Tracing;

/// Seeds of the run that everything is expected of: so many aim at what they have left empty, too.
const SEEDS: u64 = 400;

/// Seeds of mirrors that are read in streams.
const STREAM_SEEDS: u64 = 40;

/// Seeds that no run has seen before.
const FRESH_SEEDS: u64 = 60;

#[test]
fn seeds_have_no_finding_and_whatever_can_meet_has_met() {
    let options = Options::default();
    let report = run_seeds(0..SEEDS, &options, None, &mut |report| {
        if report.violations > 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    assert_eq!(report.violations, 0, "{report}");
    assert!(report.crashes > 50 && report.nested_crashes > 5, "{report}");
    assert_eq!(report.contradictions, [""; 0], "{report}");
    // Most of these seeds aim at what is empty. Long streams of reads are none of that: they are a run of their own.
    let streams = Options {
        levels: vec![Level::Raid1, Level::Raid10],
        drill: Some(Drill::Streams),
        ..options
    };
    let with_streams = run_seeds(0..STREAM_SEEDS, &streams, None, &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(with_streams.violations, 0, "{with_streams}");
    let is_met_nowhere = |cell: &&String| with_streams.empty_cells.contains(*cell);
    let never: Vec<&String> = report.empty_cells.iter().filter(is_met_nowhere).collect();
    assert_eq!(never, [""; 0], "{report}");
}

#[test]
fn fresh_seeds_have_no_finding() {
    // Other ones in every run; the message names the seed that makes a failure come back.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let first = now.as_secs() * 1000;
    let options = Options::default();
    let report = run_seeds(first..first + FRESH_SEEDS, &options, None, &mut |_| {
        ControlFlow::Continue(())
    });
    assert_eq!(report.violations, 0, "{report}");
}

#[test]
fn a_run_that_ends_early_is_not_good() {
    let report = run_seeds(0..3, &Options::default(), None, &mut |_| {
        ControlFlow::Break(())
    });
    assert!(!report.is_good() && report.seeds == 1, "{report}");
}

#[test]
fn two_runs_of_a_seed_of_the_engine_give_one_hash() {
    let options = Options {
        requests: 300,
        ..Options::default()
    };
    for seed in 0..12 {
        let run = || Scenario::new(seed, &options).run(Tracing::Hash, None);
        assert_eq!(run().hash, run().hash, "seed {seed}");
    }
}
