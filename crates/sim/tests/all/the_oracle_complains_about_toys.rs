//! The harness proves itself: a trivially right disk passes, engines without locks do not.

use plexum_sim::md::scenario::Options;
use plexum_sim::md::toy::{Single, ToyMirror, ToyParity};
use plexum_sim::md::{Level, SlotArray, run_seed};

fn options(has_crashes: bool) -> Options {
    Options {
        levels: vec![Level::Raid1, Level::Raid4],
        requests: 400,
        has_crashes,
        has_faults: false,
        has_operations: false,
        ..Options::default()
    }
}

/// Seeds until the first finding; its text.
fn first_finding<S: SlotArray>(options: &Options, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        let outcome = run_seed::<S>(seed, options, None);
        outcome
            .findings
            .first()
            .map(|finding| (seed, finding.to_string()))
    })
}

#[test]
fn a_single_disk_passes_with_crashes() {
    assert_eq!(first_finding::<Single>(&options(true), 150), None);
}

#[test]
fn a_mirror_without_locks_is_caught_without_any_crash() {
    let (_, text) = first_finding::<ToyMirror>(&options(false), 20).expect("copies drift apart");
    assert!(
        text.contains("wrong data") || text.contains("disagree"),
        "{text}"
    );
}

#[test]
fn a_mirror_without_resync_is_caught_after_crashes() {
    assert!(first_finding::<ToyMirror>(&options(true), 20).is_some());
}

#[test]
fn parity_without_row_locks_is_caught_without_any_crash() {
    let (_, text) = first_finding::<ToyParity>(&options(false), 20).expect("parity drifts");
    assert!(text.contains("disagree"), "{text}");
}

#[test]
fn two_runs_of_a_seed_give_one_hash_and_two_seeds_two() {
    let run = |seed| run_seed::<ToyMirror>(seed, &options(true), None);
    for seed in 0..10 {
        let (one, other) = (run(seed), run(seed));
        assert_eq!(one.hash, other.hash);
        assert_eq!(one.findings, other.findings);
        assert_ne!(one.hash, run(seed + 1000).hash);
    }
}
