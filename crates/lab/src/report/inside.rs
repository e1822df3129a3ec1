//! The inside of the runs of one workload: how long requests took with the best arrangements, the disks of the best one
//! over time, and whether the books agree.

use serde_json::json;

use super::svg;
use super::table::Table;
use crate::experiment::RunResult;
use crate::inside::Check;

/// Lines of a distribution; the best arrangements.
const LINES_MAX: usize = 6;

/// Charts of one workload. `best` names arrangements, the best first, each with its run.
#[must_use]
pub fn charts(title: &str, best: &[(&str, &RunResult)]) -> Vec<String> {
    let mut all = Vec::new();
    for (word, is_read) in [("reads", true), ("writes", false)] {
        let shares = best.iter().map(|(name, result)| {
            let inside = &result.inside;
            let points = if is_read {
                &inside.reads
            } else {
                &inside.writes
            };
            ((*name).to_owned(), points.as_slice())
        });
        let series: Vec<_> = shares
            .filter(|(_, points)| !points.is_empty())
            .take(LINES_MAX)
            .collect();
        if !series.is_empty() {
            all.push(svg::distributions(
                &format!("{title}: how long {word} took"),
                &series,
            ));
        }
    }
    let simulated = best.iter().find_map(|(name, result)| {
        let timeline = result.inside.timeline.as_ref();
        Some((
            name,
            timeline.filter(|timeline| !timeline.disks.is_empty())?,
        ))
    });
    if let Some((name, timeline)) = simulated {
        all.push(svg::timeline(&format!("disks of {name}"), timeline));
    }
    all
}

/// Books that disagree, and how many were compared.
#[must_use]
pub fn wrong<'a>(results: impl Iterator<Item = &'a RunResult>) -> (Vec<&'a Check>, usize) {
    let checks = results.flat_map(|result| &result.inside.checks);
    let all: Vec<&Check> = checks.collect();
    let count = all.len();
    (
        all.into_iter().filter(|check| !check.is_right).collect(),
        count,
    )
}

/// Comparisons of books as a table.
#[must_use]
pub fn checks_table(checks: &[&Check]) -> Table {
    let mut table = Table::new("self-check", &["what", "seen", "expected", "verdict"]);
    for check in checks {
        let verdict = if check.is_right {
            "agrees"
        } else {
            "DISAGREES"
        };
        table.push(vec![
            json!(check.what),
            json!(check.seen),
            json!(check.expected),
            json!(verdict),
        ]);
    }
    table
}
