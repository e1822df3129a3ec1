//! All results of an experiment as one table for other programs: a row for each figure of each run.
//!
//! Invariants:
//! - the columns and what they hold are the same for every experiment;
//! - a run that was skipped has one row, without a figure and with the reason.

use serde_json::{Value, json};

use super::table::Table;
use crate::experiment::RunResult;
use crate::work::Figure;
use crate::workload::jobs::VolumeRow;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Words.
    Text,
    /// Whole numbers.
    Whole,
    /// Other numbers.
    Real,
    /// Yes or no.
    Fact,
}

use Holds::{Fact, Real, Text, Whole};

/// The columns.
pub const COLUMNS: [(&str, Holds); 38] = [
    ("arrangement", Text),
    ("system", Text),
    ("on", Text),
    ("disks", Text),
    ("level", Text),
    ("layout", Text),
    ("members", Whole),
    ("strip_bytes", Whole),
    ("balance", Text),
    ("has_bitmap", Fact),
    ("consistency", Text),
    ("file_system", Text),
    ("through", Text),
    ("member_bytes", Whole),
    ("queue_depth", Whole),
    ("workload", Text),
    ("block_bytes", Whole),
    ("processes", Whole),
    ("depth", Whole),
    ("requests", Whole),
    ("read_percent", Whole),
    ("range_bytes", Whole),
    ("is_sync", Fact),
    ("seed", Whole),
    ("figure", Text),
    ("value", Real),
    ("unit", Text),
    ("real_s", Real),
    ("reads", Whole),
    ("read_mean_us", Real),
    ("read_p50_us", Real),
    ("read_p99_us", Real),
    ("writes", Whole),
    ("write_mean_us", Real),
    ("write_p50_us", Real),
    ("write_p99_us", Real),
    ("skipped", Text),
    ("group_bytes", Whole),
];

/// The table of these results.
#[must_use]
pub fn table(results: &[RunResult]) -> Table {
    let mut table = Table::new("", &COLUMNS.map(|(name, _)| name));
    for result in results {
        if result.figures.is_empty() {
            table.push(row(result, None));
        }
        for figure in &result.figures {
            table.push(row(result, Some(figure)));
        }
        // Of a volume that is the only one its figures say it all.
        if result.volumes.len() > 1 {
            for figure in result.volumes.iter().flat_map(of_volume) {
                table.push(row(result, Some(&figure)));
            }
        }
    }
    table
}

/// What one of several volumes did, as figures.
fn of_volume(volume: &VolumeRow) -> [Figure; 3] {
    let figure = |what: &str, value: f64, unit: &str| Figure {
        name: format!("volume {}: {what}", volume.name),
        value,
        unit: unit.to_owned(),
    };
    [
        figure("requests", volume.requests_per_s, "1/s"),
        figure("rate", volume.kib_per_s, "KiB/s"),
        figure("busy", volume.busy_percent, "%"),
    ]
}

fn row(result: &RunResult, figure: Option<&Figure>) -> Vec<Value> {
    let (setup, work) = (&result.setup, &result.work);
    let none_if_empty = |text: &str| match text {
        "" => Value::Null,
        text => json!(text),
    };
    // Jobs at the same time have each their own.
    let of_all = |value: Value| {
        if work.jobs.is_empty() {
            value
        } else {
            Value::Null
        }
    };
    let mut row = vec![
        json!(setup.label()),
        none_if_empty(&setup.system),
        none_if_empty(&setup.on),
        none_if_empty(&setup.disks.join(", ")),
        json!(setup.level_words()),
        none_if_empty(&setup.layout),
        json!(setup.members),
        json!(setup.strip_bytes),
        json!(setup.balance),
        json!(setup.has_bitmap),
        none_if_empty(&setup.consistency),
        none_if_empty(&setup.file_system),
        none_if_empty(&setup.through),
        json!(setup.member_bytes),
        json!(setup.queue_depth),
        json!(work.kind),
        of_all(json!(work.block_bytes)),
        of_all(json!(work.processes)),
        of_all(json!(work.depth)),
        of_all(json!(work.requests)),
        of_all(json!(work.read_percent)),
        of_all(json!(work.range_bytes)),
        of_all(json!(work.is_sync)),
        json!(result.seed),
        figure.map_or(Value::Null, |figure| json!(figure.name)),
        figure.map_or(Value::Null, |figure| json!(figure.value)),
        figure.map_or(Value::Null, |figure| json!(figure.unit)),
        json!(result.real_s),
    ];
    for latencies in [&result.reads, &result.writes] {
        for name in ["count", "mean_us", "p50_us", "p99_us"] {
            row.push(latencies[name].clone());
        }
    }
    row.push(none_if_empty(&result.skipped));
    row.push(match work.kind.as_str() {
        "superblocks" => json!(work.group_bytes),
        _ => Value::Null,
    });
    row
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn every_figure_has_a_row_whose_cells_are_of_the_kind_of_their_column() {
        let text = "repetitions = 2\n[setup]\nlevel = [\"0\", \"single\"]\n[work]\nkind = \"mixed\"\nrequests = 20\n";
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(text).unwrap();
        experiment
            .run_in(folder.path(), &|| 0.0, |_, _| true)
            .unwrap();
        let mut results = crate::experiment::read_results(folder.path()).unwrap();
        results[0].figures.clear();
        results[0].skipped = "not here".to_owned();
        let table = table(&results);
        assert_eq!(table.rows.len(), 1 + 3 * 2, "two figures each");
        for row in &table.rows {
            for (value, (name, holds)) in row.iter().zip(COLUMNS) {
                let fits = match holds {
                    Text => value.is_string(),
                    Whole => value.is_u64(),
                    Real => value.is_number(),
                    Fact => value.is_boolean(),
                };
                assert!(fits || value.is_null(), "{name}: {value}");
            }
        }
        let skipped = &table.rows[0];
        assert_eq!(skipped[36], "not here");
        assert_eq!((&skipped[24], &skipped[25]), (&Value::Null, &Value::Null));
    }
}
