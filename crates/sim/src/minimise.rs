//! Shrinks the scenario of a failing seed: the fewest wishes, lives, clients and requests that still fail the same way.
//!
//! Invariant: every step is kept only when a run of the shrunk scenario ends in a finding of the same kind.

use plexum_engine::mutant::Mutant;

use crate::scenario::{LifeEnd, Options, Scenario};
use crate::subject::Subject;
use crate::world::{Outcome, run_scenario};

/// The smallest failing scenario found, and how it ended. `None` when `scenario` does not fail at all.
///
/// At most `runs_max` runs are made.
#[must_use]
pub fn minimise<S: Subject>(
    scenario: &Scenario,
    options: &Options,
    mutant: Option<Mutant>,
    runs_max: usize,
) -> Option<(Scenario, Outcome)> {
    let outcome = run_scenario::<S>(scenario, options, mutant);
    let kind = outcome.findings.first()?.kind();
    let mut search = Search {
        best: scenario.clone(),
        outcome,
        runs_left: runs_max,
    };
    let mut try_one = |search: &mut Search, smaller: Scenario| -> bool {
        if search.runs_left == 0 {
            return false;
        }
        search.runs_left -= 1;
        let outcome = run_scenario::<S>(&smaller, options, mutant);
        let is_same = outcome
            .findings
            .first()
            .is_some_and(|finding| finding.kind() == kind);
        if is_same {
            (search.best, search.outcome) = (smaller, outcome);
        }
        is_same
    };
    loop {
        let before = search.best.to_string();
        shrink_requests(&mut search, &mut try_one);
        shrink_wishes(&mut search, &mut try_one);
        shrink_lives(&mut search, &mut try_one);
        for clients in 1..search.best.clients {
            let smaller = Scenario {
                clients,
                ..search.best.clone()
            };
            if try_one(&mut search, smaller) {
                break;
            }
        }
        if search.best.to_string() == before || search.runs_left == 0 {
            return Some((search.best, search.outcome));
        }
    }
}

struct Search {
    best: Scenario,
    outcome: Outcome,
    runs_left: usize,
}

type Try<'a> = &'a mut dyn FnMut(&mut Search, Scenario) -> bool;

fn shrink_requests(search: &mut Search, try_one: Try<'_>) {
    let mut cut = search.best.requests / 2;
    while cut > 0 {
        let smaller = Scenario {
            requests: search.best.requests - cut,
            ..search.best.clone()
        };
        if !try_one(search, smaller) {
            cut /= 2;
        }
        cut = cut.min(search.best.requests.saturating_sub(1));
    }
}

fn shrink_wishes(search: &mut Search, try_one: Try<'_>) {
    let mut at = 0;
    while at < search.best.wishes.len() {
        let mut smaller = search.best.clone();
        smaller.wishes.remove(at);
        if !try_one(search, smaller) {
            at += 1;
        }
    }
}

fn shrink_lives(search: &mut Search, try_one: Try<'_>) {
    let mut at = 0;
    while at < search.best.lives.len() {
        let mut smaller = search.best.clone();
        if smaller.lives[at] == LifeEnd::Finale {
            return;
        }
        smaller.lives.remove(at);
        if !try_one(search, smaller) {
            at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Level;
    use crate::toy::ToyMirror;

    #[test]
    fn a_failing_scenario_shrinks_and_still_fails_the_same_way() {
        let options = Options {
            levels: vec![Level::Raid1],
            requests: 300,
            has_faults: false,
            has_operations: false,
            ..Options::default()
        };
        let found = (0..50).find_map(|seed| {
            let scenario = Scenario::new(seed, &options);
            let small = minimise::<ToyMirror>(&scenario, &options, None, 60)?;
            Some((scenario, small))
        });
        let (scenario, (small, outcome)) = found.unwrap();
        assert!(small.requests < scenario.requests);
        let again = run_scenario::<ToyMirror>(&small, &options, None);
        assert_eq!(again.findings, outcome.findings);
    }
}
