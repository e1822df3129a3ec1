//! One line of the comparison: metric, Plexum, each peer, ratio, limit, must and aim reached or not.

use std::fmt::Write as _;

use serde::Serialize;

use crate::compare::{Role, Samples};
use crate::goals::{Better, Figures, GOALS, Goal, Rule, Verdict, judge};

/// A peer's figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeerFigure {
    /// Its name.
    pub name: String,
    /// Median of its rounds.
    pub value: f64,
}

/// A goal, and what it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Held {
    /// The rules in words; empty: no goal.
    pub rule: String,
    /// Whether they hold.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Group.
    pub group: String,
    /// What was measured.
    pub metric: String,
    /// Unit of all figures of the line.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// Plexum's median; none where it was not measured.
    pub plexum: Option<f64>,
    /// All peers' medians.
    pub peers: Vec<PeerFigure>,
    /// The best of them.
    pub best_peer: Option<String>,
    /// Plexum's figure divided by the best peer's.
    pub ratio: Option<f64>,
    /// What the machine allows, where that was measured.
    pub limit: Option<f64>,
    /// What is needed.
    pub must: Held,
    /// What the limits should allow.
    pub aim: Held,
    /// Measurements that the medians are of.
    pub rounds: usize,
    /// It is not in the list of goals: JSON shows it, the table does not (but for `log`, which is short).
    pub is_beside: bool,
}

impl Line {
    fn of(goal: &Goal, metric: &str, samples: &Samples) -> Self {
        let (unit, better) = (goal.unit, goal.better);
        let peers = samples.medians(metric, unit, Role::Peer);
        let best = samples.best_peer(metric, unit, better);
        let plexum = samples.plexum(metric, unit);
        let held = |rules: &[Rule]| Held {
            rule: rules
                .iter()
                .map(|rule| rule.words(better))
                .collect::<Vec<_>>()
                .join(" and "),
            verdict: match judge(goal, rules, samples) {
                Verdict::NotMeasured(_) if plexum.is_none() => {
                    Verdict::NotMeasured(why_not(metric, samples))
                }
                verdict => verdict,
            },
        };
        Self {
            group: goal.group.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            better,
            plexum,
            ratio: best
                .as_ref()
                .filter(|(_, value)| *value > 0.0)
                .and_then(|(_, value)| plexum.map(|own| own / value)),
            best_peer: best.map(|(name, _)| name),
            peers: peers
                .into_iter()
                .map(|(name, value)| PeerFigure { name, value })
                .collect(),
            limit: samples.limit(metric, unit),
            must: held(goal.must),
            aim: held(goal.aim),
            rounds: samples.rounds(metric, unit),
            is_beside: goal.metric.is_empty() && goal.group != "log",
        }
    }
}

/// Why Plexum has no figure at this metric.
fn why_not(metric: &str, samples: &Samples) -> String {
    let skipped = samples
        .skipped
        .iter()
        .find(|skipped| skipped.name == "plexum" && metric.starts_with(&skipped.task));
    skipped
        .map_or("no figure", |skipped| &skipped.reason)
        .to_owned()
}

/// The lines of a group: its goals in their order, then what was measured beside them.
pub(crate) fn lines(group: &'static str, samples: &Samples) -> Vec<Line> {
    let goals: Vec<&Goal> = GOALS.iter().filter(|goal| goal.group == group).collect();
    let mut lines: Vec<Line> = goals
        .iter()
        .map(|goal| Line::of(goal, goal.metric, samples))
        .collect();
    for (metric, unit) in samples.metrics() {
        if goals
            .iter()
            .any(|goal| goal.metric == metric && goal.unit == unit)
        {
            continue;
        }
        let better = if matches!(unit, "kIOPS" | "GB/s") {
            Better::Higher
        } else {
            Better::Lower
        };
        let goal = Goal {
            group,
            metric: "",
            unit,
            better,
            must: &[],
            aim: &[],
        };
        lines.push(Line::of(&goal, &metric, samples));
    }
    lines
}

/// A figure with three digits that mean something.
pub(crate) fn figure(value: f64) -> String {
    match value.abs() {
        value_abs if value_abs >= 100.0 => format!("{value:.0}"),
        value_abs if value_abs >= 10.0 => format!("{value:.1}"),
        value_abs if value_abs >= 1.0 || value == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn or_dash(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), figure)
}

fn held(held: &Held) -> String {
    match &held.verdict {
        Verdict::NoGoal => "-".to_owned(),
        Verdict::NotMeasured(reason) => format!("{} (not measured: {reason})", held.rule),
        verdict => format!("{} ({})", verdict.word(), held.rule),
    }
}

fn cells(line: &Line) -> [String; 8] {
    let peers = line
        .peers
        .iter()
        .map(|peer| format!("{} {}", peer.name, figure(peer.value)))
        .collect::<Vec<_>>();
    [
        line.metric.clone(),
        line.unit.clone(),
        or_dash(line.plexum),
        if peers.is_empty() {
            "-".to_owned()
        } else {
            peers.join(", ")
        },
        or_dash(line.ratio),
        or_dash(line.limit),
        held(&line.must),
        held(&line.aim),
    ]
}

const HEADS: [&str; 8] = [
    "METRIC", "UNIT", "PLEXUM", "PEERS", "RATIO", "LIMIT", "MUST", "AIM",
];

/// The lines as an aligned text table, one block a group.
#[must_use]
pub fn goals_table(lines: &[Line]) -> String {
    let lines: Vec<&Line> = lines.iter().filter(|line| !line.is_beside).collect();
    let rows: Vec<[String; 8]> = lines.iter().map(|line| cells(line)).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0).max(HEADS[column].len())
    };
    let widths: [usize; 8] = std::array::from_fn(width);
    let mut text = String::new();
    let mut put = |cells: [&str; 8]| {
        let mut row = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let pad = width - cell.chars().count();
            let is_number = matches!(column, 2 | 4 | 5);
            let (before, after) = if is_number { (pad, 0) } else { (0, pad) };
            let _ = write!(row, "{:before$}{cell}{:after$}  ", "", ""); // a String takes everything
        }
        text += row.trim_end();
        text.push('\n');
    };
    let mut group = "";
    for (line, row) in lines.iter().zip(&rows) {
        if line.group != group {
            group = &line.group;
            put([group, "", "", "", "", "", "", ""]);
            put(HEADS);
        }
        put(std::array::from_fn(|column| row[column].as_str()));
    }
    text
}

/// The same as a table of Markdown, for the documents.
#[must_use]
pub fn goals_markdown(lines: &[Line]) -> String {
    let mut text = String::new();
    let mut group = "";
    for line in lines.iter().filter(|line| !line.is_beside) {
        if line.group != group {
            group = &line.group;
            let _ = write!(
                text,
                "\n### {group}\n\n| metric | unit | Plexum | peers | ratio | limit | must | aim |\n|---|---|---|---|---|---|---|---|\n"
            );
        }
        let _ = writeln!(text, "| {} |", cells(line).join(" | "));
    }
    text.trim_start().to_owned()
}

/// How many goals were reached, missed and not measured: first what must be, then the aims.
#[must_use]
pub fn tally(lines: &[Line]) -> String {
    let count = |what: &str, held: fn(&Line) -> &Held| {
        let of = |wanted: fn(&Verdict) -> bool| {
            lines
                .iter()
                .filter(|line| wanted(&held(line).verdict))
                .count()
        };
        format!(
            "{what}: {} reached, {} missed, {} not measured",
            of(|verdict| *verdict == Verdict::Reached),
            of(|verdict| *verdict == Verdict::Missed),
            of(|verdict| matches!(verdict, Verdict::NotMeasured(_)))
        )
    };
    format!(
        "{}; {}",
        count("must", |line| &line.must),
        count("aim", |line| &line.aim)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_best_peer_the_ratio_and_the_verdict() {
        let mut samples = Samples::default();
        let metric = "raw: 4K read, depth 32";
        for (role, name, value) in [
            (Role::Plexum, "plexum", 9.0),
            (Role::Peer, "nbdkit file", 10.0),
            (Role::Peer, "qemu-nbd", 30.0),
            (Role::Limit, "bare server", 8.0),
        ] {
            samples.add(role, name, (metric.to_owned(), "us CPU", value));
        }
        let all = lines("served", &samples);
        let line = all
            .iter()
            .find(|line| line.metric == metric && line.unit == "us CPU")
            .unwrap();
        assert_eq!(line.best_peer.as_deref(), Some("nbdkit file"));
        assert_eq!((line.ratio, line.limit), (Some(0.9), Some(8.0)));
        assert_eq!(line.must.verdict, Verdict::Missed);
        assert_eq!(line.aim.verdict, Verdict::Reached);
        assert!(goals_table(&all).contains("MISSED (<= 0.8 x nbdkit file)"));
    }

    #[test]
    fn a_goal_that_was_not_measured_says_why() {
        let mut samples = Samples::default();
        samples.skip("plexum", "mirror of 2", "no room");
        let all = lines("scrub", &samples);
        let line = all
            .iter()
            .find(|line| line.metric == "mirror of 2")
            .unwrap();
        assert_eq!(
            line.must.verdict,
            Verdict::NotMeasured("no room".to_owned())
        );
        assert!(tally(&all).starts_with("must: 0 reached, 0 missed, 4 not"));
    }
}
