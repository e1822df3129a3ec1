//! A night of seeds runs in the memory of one: nothing of a world outlives its run.
#![forbid(unsafe_code)]

use plexum_sim::md::scenario::{Options, Scenario};
use plexum_sim::seeds::Seeded;
use plexum_sim::world::Tracing;

#[test]
fn a_run_leaves_no_memory_behind() {
    let options = Options::default();
    let bytes_left = |seed: u64| {
        let run = || {
            let outcome = Scenario::new(seed, &options).run(Tracing::Hash, None);
            assert!(
                outcome.findings.is_empty(),
                "seed {seed}: {:?}",
                outcome.findings
            );
        };
        allocation_counter::measure(run).bytes_current
    };
    bytes_left(0); // what is kept for the whole program is there from now on
    for seed in 1..40 {
        assert_eq!(bytes_left(seed), 0, "seed {seed}");
    }
}
