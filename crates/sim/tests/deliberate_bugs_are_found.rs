//! Each deliberate bug of the engine is found by the oracle or a checker within a bounded number of seeds.

use plexum_engine::mutant::{ALL, Mutant};
use plexum_sim::engine::Engine;
use plexum_sim::mutants::hunt;

/// Seeds within which each must be found.
const SEEDS_MAX: u64 = 300;

fn hunt_every_third(first: usize) {
    let some: Vec<Mutant> = ALL.iter().skip(first).step_by(3).copied().collect();
    for mutant in some {
        let result = hunt::<Engine>(mutant, 0, SEEDS_MAX);
        assert!(
            result.seed.is_some(),
            "{mutant:?} survived {} seeds",
            result.seeds
        );
    }
}

#[test]
fn the_first_third_of_them_is_found() {
    hunt_every_third(0);
}

#[test]
fn the_second_third_of_them_is_found() {
    hunt_every_third(1);
}

#[test]
fn the_last_third_of_them_is_found() {
    hunt_every_third(2);
}
