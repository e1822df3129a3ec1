//! Shrinks the scenario of a failing seed: the fewest wishes, lives, clients and requests that still fail the same way.
//!
//! Invariant: every step is kept only when a run of the shrunk scenario ends in a finding of the same kind.

use crate::course::{LifeEnd, Plan};
use crate::world::Outcome;

/// The smallest failing plan found, and how it ended. `None` when `plan` does not fail at all.
///
/// At most `runs_max` runs are made.
#[must_use]
pub fn minimise<P: Plan>(
    plan: &P,
    run: impl Fn(&P) -> Outcome,
    runs_max: usize,
) -> Option<(P, Outcome)> {
    let outcome = run(plan);
    let kind = outcome.findings.first()?.kind();
    let mut search = Search {
        best: plan.clone(),
        outcome,
        kind,
        run,
        runs_left: runs_max,
    };
    loop {
        let before = search.best.to_string();
        search.shrink_requests();
        search.shrink_wishes();
        search.shrink_lives();
        search.shrink_clients();
        if search.best.to_string() == before || search.runs_left == 0 {
            return Some((search.best, search.outcome));
        }
    }
}

struct Search<P, R> {
    best: P,
    outcome: Outcome,
    kind: &'static str,
    run: R,
    runs_left: usize,
}

impl<P: Plan, R: Fn(&P) -> Outcome> Search<P, R> {
    /// Takes what `shrink` makes of the plan when it still fails the same way. Whether it does.
    fn try_one(&mut self, shrink: impl FnOnce(&mut P)) -> bool {
        if self.runs_left == 0 {
            return false;
        }
        self.runs_left -= 1;
        let mut smaller = self.best.clone();
        shrink(&mut smaller);
        let outcome = (self.run)(&smaller);
        let first = outcome.findings.first();
        let is_same = first.is_some_and(|finding| finding.kind() == self.kind);
        if is_same {
            (self.best, self.outcome) = (smaller, outcome);
        }
        is_same
    }

    fn shrink_requests(&mut self) {
        let mut cut = self.best.course().requests / 2;
        while cut > 0 {
            if !self.try_one(|plan| plan.course_mut().requests -= cut) {
                cut /= 2;
            }
            cut = cut.min(self.best.course().requests.saturating_sub(1));
        }
    }

    fn shrink_wishes(&mut self) {
        let mut at = 0;
        while at < self.best.course().wishes.len() {
            let is_taken = self.try_one(|plan| {
                plan.course_mut().wishes.remove(at);
            });
            at += usize::from(!is_taken);
        }
    }

    fn shrink_lives(&mut self) {
        let mut at = 0;
        while at < self.best.course().lives.len() {
            if self.best.course().lives[at] == LifeEnd::Finale {
                return;
            }
            let is_taken = self.try_one(|plan| plan.remove_life(at));
            at += usize::from(!is_taken);
        }
    }

    fn shrink_clients(&mut self) {
        for clients in 1..self.best.course().clients {
            if self.try_one(|plan| plan.course_mut().clients = clients) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::md::scenario::{Options, Scenario};
    use crate::md::toy::ToyMirror;
    use crate::md::{Level, run_scenario};
    use crate::world::Tracing;

    #[test]
    fn a_failing_scenario_shrinks_and_still_fails_the_same_way() {
        let options = Options {
            levels: vec![Level::Raid1],
            requests: 300,
            has_faults: false,
            has_operations: false,
            ..Options::default()
        };
        let run = |scenario: &Scenario| run_scenario::<ToyMirror>(scenario, Tracing::Hash, None);
        let found = (0..50).find_map(|seed| {
            let scenario = Scenario::new(seed, &options);
            let small = minimise(&scenario, run, 60)?;
            Some((scenario, small))
        });
        let (scenario, (small, outcome)) = found.unwrap();
        assert!(small.course.requests < scenario.course.requests);
        let again = run(&small);
        assert_eq!(again.findings, outcome.findings);
    }
}
