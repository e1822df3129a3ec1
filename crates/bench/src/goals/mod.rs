//! The goals: what must be reached and what the limits allow, for each metric, and whether it was.
//!
//! Invariants:
//! - a verdict needs figures of one run: nothing here is compared with figures of another day, but for the few limits
//!   that are plain values;
//! - what was not measured is said with its reason, never left out and never counted as reached.

mod table;

pub(crate) use table::GOALS;

use serde::Serialize;

/// Which way a figure should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Rates.
    Higher,
    /// Costs and times.
    Lower,
}

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// So many times the best peer of the run.
    Peers(f64),
    /// So many times this peer.
    Peer(f64, &'static str),
    /// So many times what the machine allows, measured in the run.
    Limit(f64),
    /// So many times the own figure of another metric in the same unit.
    Own(f64, &'static str),
    /// A plain value.
    Value(f64),
    /// A plain value where the machine allows it in the run, otherwise so many times what it allows.
    Allowed(f64, f64),
}

/// One line of the goals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    pub group: &'static str,
    pub metric: &'static str,
    pub unit: &'static str,
    pub better: Better,
    /// All must hold; empty: no such goal.
    pub must: &'static [Rule],
    pub aim: &'static [Rule],
}

/// Whether a goal was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "verdict", content = "reason", rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Reached,
    /// It does not.
    Missed,
    /// There is no figure to say so; why.
    NotMeasured(String),
    /// Nothing is demanded.
    NoGoal,
}

impl Verdict {
    /// The word of the table.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Reached => "reached",
            Verdict::Missed => "MISSED",
            Verdict::NotMeasured(_) => "not measured",
            Verdict::NoGoal => "-",
        }
    }
}

/// The figures of one run that rules ask for.
pub(crate) trait Figures {
    fn plexum(&self, metric: &str, unit: &str) -> Option<f64>;
    fn peer(&self, metric: &str, unit: &str, peer: &str) -> Option<f64>;
    fn best_peer(&self, metric: &str, unit: &str, better: Better) -> Option<(String, f64)>;
    fn limit(&self, metric: &str, unit: &str) -> Option<f64>;
}

impl Rule {
    /// The figure that is needed, or whose figure is missing.
    fn needed(self, goal: &Goal, figures: &dyn Figures) -> Result<f64, String> {
        let (metric, unit) = (goal.metric, goal.unit);
        match self {
            Rule::Value(value) => Ok(value),
            Rule::Peers(factor) => figures
                .best_peer(metric, unit, goal.better)
                .map(|(_, value)| factor * value)
                .ok_or_else(|| "no peer".to_owned()),
            Rule::Peer(factor, peer) => figures
                .peer(metric, unit, peer)
                .map(|value| factor * value)
                .ok_or_else(|| format!("no {peer}")),
            Rule::Limit(factor) => figures
                .limit(metric, unit)
                .map(|value| factor * value)
                .ok_or_else(|| "no limit".to_owned()),
            Rule::Allowed(value, factor) => figures
                .limit(metric, unit)
                .map(|limit| match goal.better {
                    Better::Higher => value.min(factor * limit),
                    Better::Lower => value.max(factor * limit),
                })
                .ok_or_else(|| "no limit".to_owned()),
            Rule::Own(factor, other) => figures
                .plexum(other, unit)
                .map(|value| factor * value)
                .ok_or_else(|| format!("no own {other}")),
        }
    }

    /// The rule in words, without the figure.
    pub fn words(self, better: Better) -> String {
        let sign = match better {
            Better::Higher => ">=",
            Better::Lower => "<=",
        };
        match self {
            Rule::Value(value) => format!("{sign} {value}"),
            Rule::Peers(factor) => format!("{sign} {factor} x peer"),
            Rule::Peer(factor, peer) => format!("{sign} {factor} x {peer}"),
            Rule::Limit(factor) => format!("{sign} {factor} x limit"),
            Rule::Allowed(value, factor) => format!("{sign} {value} or {factor} x limit"),
            Rule::Own(factor, other) => format!("{sign} {factor} x own {other}"),
        }
    }
}

/// Whether all `rules` hold for what was measured.
pub(crate) fn judge(goal: &Goal, rules: &[Rule], figures: &dyn Figures) -> Verdict {
    if rules.is_empty() {
        return Verdict::NoGoal;
    }
    let Some(plexum) = figures.plexum(goal.metric, goal.unit) else {
        return Verdict::NotMeasured("no figure of plexum".to_owned());
    };
    let mut missing = None;
    for rule in rules {
        match rule.needed(goal, figures) {
            Ok(needed) => {
                let holds = match goal.better {
                    Better::Higher => plexum >= needed,
                    Better::Lower => plexum <= needed,
                };
                if !holds {
                    return Verdict::Missed;
                }
            }
            Err(reason) => missing = Some(reason),
        }
    }
    missing.map_or(Verdict::Reached, Verdict::NotMeasured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Run {
        plexum: f64,
        peers: Vec<(&'static str, f64)>,
        limit: Option<f64>,
    }

    impl Figures for Run {
        fn plexum(&self, metric: &str, _unit: &str) -> Option<f64> {
            (metric != "absent").then_some(self.plexum)
        }
        fn peer(&self, _metric: &str, _unit: &str, peer: &str) -> Option<f64> {
            let found = self.peers.iter().find(|(name, _)| *name == peer);
            found.map(|(_, value)| *value)
        }
        fn best_peer(&self, _metric: &str, _unit: &str, _better: Better) -> Option<(String, f64)> {
            self.peers
                .first()
                .map(|(name, value)| ((*name).to_owned(), *value))
        }
        fn limit(&self, _metric: &str, _unit: &str) -> Option<f64> {
            self.limit
        }
    }

    const RATE: Goal = Goal {
        group: "served",
        metric: "raw",
        unit: "kIOPS",
        better: Better::Higher,
        must: &[Rule::Peers(2.0)],
        aim: &[],
    };

    #[test]
    fn a_rate_must_be_above_and_a_cost_below() {
        let run = Run {
            plexum: 10.0,
            peers: vec![("a", 4.0)],
            ..Run::default()
        };
        assert_eq!(judge(&RATE, RATE.must, &run), Verdict::Reached);
        let cost = Goal {
            better: Better::Lower,
            ..RATE
        };
        assert_eq!(judge(&cost, cost.must, &run), Verdict::Missed);
    }

    #[test]
    fn what_a_machine_does_not_allow_is_not_asked_for() {
        let verdict = |plexum, limit| {
            let run = Run {
                plexum,
                limit,
                ..Run::default()
            };
            judge(&RATE, &[Rule::Allowed(1.7, 0.9)], &run)
        };
        assert_eq!(verdict(1.69, Some(2.0)), Verdict::Missed);
        assert_eq!(verdict(1.71, Some(2.0)), Verdict::Reached);
        assert_eq!(verdict(1.36, Some(1.5)), Verdict::Reached);
        assert_eq!(verdict(1.34, Some(1.5)), Verdict::Missed);
        assert!(matches!(verdict(2.0, None), Verdict::NotMeasured(_)));
    }

    #[test]
    fn no_aim_is_easier_than_what_must_be() {
        for goal in GOALS {
            let (must, aim) = (goal.must.first(), goal.aim.first());
            if let (Some(Rule::Value(must)), Some(Rule::Value(aim))) = (must, aim) {
                let is_harder = match goal.better {
                    Better::Higher => aim >= must,
                    Better::Lower => aim <= must,
                };
                assert!(is_harder, "{}", goal.metric);
            }
        }
    }

    #[test]
    fn a_rule_without_its_peer_is_not_counted_as_reached() {
        let run = Run {
            plexum: 10.0,
            ..Run::default()
        };
        let rules = [Rule::Value(1.0), Rule::Peer(1.0, "b")];
        let verdict = judge(&RATE, &rules, &run);
        assert_eq!(verdict, Verdict::NotMeasured("no b".to_owned()));
    }

    #[test]
    fn one_rule_that_fails_is_a_miss_even_when_another_cannot_be_judged() {
        let run = Run {
            plexum: 10.0,
            ..Run::default()
        };
        let rules = [Rule::Peer(1.0, "b"), Rule::Value(11.0)];
        assert_eq!(judge(&RATE, &rules, &run), Verdict::Missed);
    }

    #[test]
    fn what_plexum_was_not_measured_at_is_no_miss() {
        let run = Run {
            plexum: 10.0,
            peers: vec![("a", 4.0)],
            ..Run::default()
        };
        let goal = Goal {
            metric: "absent",
            ..RATE
        };
        assert!(matches!(
            judge(&goal, goal.must, &run),
            Verdict::NotMeasured(_)
        ));
    }

    #[test]
    fn each_goal_has_a_metric_of_its_own() {
        for (index, goal) in GOALS.iter().enumerate() {
            let twin = GOALS[..index].iter().find(|other| {
                (other.group, other.metric, other.unit) == (goal.group, goal.metric, goal.unit)
            });
            assert!(twin.is_none(), "{} {}", goal.metric, goal.unit);
        }
    }

    #[test]
    fn a_rule_on_an_own_figure_names_a_metric_of_the_table() {
        for goal in GOALS {
            for rule in goal.must.iter().chain(goal.aim) {
                if let Rule::Own(_, other) = rule {
                    let is_there = GOALS
                        .iter()
                        .any(|known| (known.metric, known.unit) == (*other, goal.unit));
                    assert!(is_there, "{}: {other}", goal.metric);
                }
            }
        }
    }
}
