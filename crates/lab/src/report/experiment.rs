//! The report of an experiment: which arrangement is best, by how much, and why; text, Markdown, HTML with charts.
//!
//! Invariants:
//! - a winner is named only when its confidence interval does not overlap the next one's;
//! - the HTML file needs no network and no script.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::svg;
use super::table::{Table, escape};
use crate::experiment::RunResult;
use crate::stats::{Spread, spread};

/// One figure of one workload, over all arrangements.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Workload and figure, in words.
    pub title: String,
    /// Unit.
    pub unit: String,
    /// Arrangements with their spread, the best first.
    pub rows: Vec<(String, Spread)>,
    /// The result of each arrangement whose seed is lowest: what its disks did.
    samples: BTreeMap<String, RunResult>,
}

fn describe(result: &RunResult) -> String {
    let work = &result.work;
    match work.kind.as_str() {
        "rawio" | "bonnie" | "rebuild" => work.kind.clone(),
        kind => {
            let mut text = format!("{kind} {}", size(work.block_bytes));
            if !kind.contains("dd") {
                text += &format!(", {} processes", work.processes);
                if work.depth > 1 {
                    text += &format!(" x {}", work.depth);
                }
            }
            if work.is_sync {
                text += ", sync";
            }
            text
        }
    }
}

fn size(bytes: u64) -> String {
    if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) {
        format!("{} MiB", bytes >> 20)
    } else if bytes.is_multiple_of(1024) {
        format!("{} KiB", bytes >> 10)
    } else {
        format!("{bytes} bytes")
    }
}

fn name_of(result: &RunResult) -> String {
    if is_real(result) {
        return result.setup.label();
    }
    format!(
        "{} ({})",
        result.setup.label(),
        result.setup.disks.join(", ")
    )
}

fn is_real(result: &RunResult) -> bool {
    !result.setup.on.is_empty() || !result.setup.system.is_empty()
}

/// What was not run, with the reason, each once: of all workloads, or of some with their names.
#[must_use]
pub fn skipped(results: &[RunResult]) -> Vec<String> {
    let works: BTreeSet<String> = results.iter().map(describe).collect();
    let mut by_reason: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for result in results.iter().filter(|result| !result.skipped.is_empty()) {
        let of_reason = by_reason.entry(&result.skipped).or_default();
        of_reason.insert(describe(result));
    }
    let told = |(reason, skipped): (&str, BTreeSet<String>)| {
        if skipped == works {
            return vec![reason.to_owned()];
        }
        let of_one = |work: String| format!("{work}: {reason}");
        skipped.into_iter().map(of_one).collect()
    };
    by_reason.into_iter().flat_map(told).collect()
}

/// Groups results by workload and figure.
#[must_use]
pub fn compare(results: &[RunResult]) -> Vec<Comparison> {
    type Values = BTreeMap<String, Vec<f64>>;
    let mut groups: BTreeMap<(String, usize, String, String), Values> = BTreeMap::new();
    let mut samples: BTreeMap<(String, String), RunResult> = BTreeMap::new();
    for result in results {
        let work = describe(result);
        for (index, figure) in result.figures.iter().enumerate() {
            let key = (
                work.clone(),
                index,
                figure.name.clone(),
                figure.unit.clone(),
            );
            let values = groups.entry(key).or_default();
            values
                .entry(name_of(result))
                .or_default()
                .push(figure.value);
        }
        let sample = samples.entry((work, name_of(result)));
        let sample = sample.or_insert_with(|| result.clone());
        if result.seed < sample.seed {
            *sample = result.clone();
        }
    }
    groups
        .into_iter()
        .map(|((work, _, name, unit), values)| {
            let mut rows: Vec<(String, Spread)> = values
                .into_iter()
                .map(|(name, values)| (name, spread(&values)))
                .collect();
            rows.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
            let of_work = samples
                .iter()
                .filter(|((sample, _), _)| *sample == work)
                .map(|((_, name), result)| (name.clone(), result.clone()));
            Comparison {
                title: format!("{work}: {name}"),
                unit,
                rows,
                samples: of_work.collect(),
            }
        })
        .collect()
}

impl Comparison {
    /// The answer in one sentence.
    #[must_use]
    pub fn answer(&self) -> String {
        let Some((best, first)) = self.rows.first() else {
            return "nothing was measured".to_owned();
        };
        let Some((_, second)) = self.rows.get(1) else {
            return format!(
                "{best}: {:.1} {} (nothing to compare with)",
                first.mean, self.unit
            );
        };
        if first.count < 2 {
            return format!(
                "{best} was fastest, but with a single repetition nothing can be said about chance"
            );
        }
        let is_clear = first.mean - first.margin > second.mean + second.margin;
        if !is_clear {
            let near: Vec<&str> = self
                .rows
                .iter()
                .filter(|(_, row)| row.mean + row.margin >= first.mean - first.margin)
                .map(|(name, _)| name.as_str())
                .collect();
            return format!("no clear winner among {}", near.join("; "));
        }
        let times = first.mean / second.mean.max(1e-12);
        let error = times
            * ((first.margin / first.mean).powi(2)
                + (second.margin / second.mean.max(1e-12)).powi(2))
            .sqrt();
        format!("{best}: {times:.2} times the next best (margin {error:.2})")
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut table = Table::new(
            &format!("{} ({})", self.title, self.unit),
            &[
                "arrangement",
                "mean",
                "margin",
                "lowest",
                "highest",
                "of_best_percent",
                "runs",
            ],
        );
        let best = self.rows.first().map_or(1.0, |(_, row)| row.mean);
        let round = |value: f64| (value * 100.0).round() / 100.0;
        for (name, row) in &self.rows {
            table.push(vec![
                json!(name),
                json!(round(row.mean)),
                json!(round(row.margin)),
                json!(round(row.min)),
                json!(round(row.max)),
                json!((row.mean / best.max(1e-12) * 100.0).round()),
                json!(row.count),
            ]);
        }
        table
    }

    /// Where the time of the disks went, mean over the disks of an arrangement.
    #[must_use]
    pub fn reasons(&self) -> Table {
        let columns = [
            "arrangement",
            "busy_percent",
            "seek_percent",
            "rotation_percent",
            "transfer_percent",
            "overhead_percent",
            "interface_percent",
            "queue_percent",
            "buffered_percent",
        ];
        let mut table = Table::new(
            &format!("{}: where the time of the disks went", self.title),
            &columns,
        );
        for (name, _) in &self.rows {
            let Some(members) = self
                .samples
                .get(name)
                .and_then(|result| result.members.as_array())
            else {
                continue;
            };
            if members.is_empty() {
                continue; // something real: its disks are not seen
            }
            let mut row = vec![json!(name)];
            for column in &columns[1..] {
                let sum: f64 = members
                    .iter()
                    .filter_map(|member| member[column].as_f64())
                    .sum();
                row.push(json!(
                    (sum / members.len().max(1) as f64 * 10.0).round() / 10.0
                ));
            }
            table.push(row);
        }
        table
    }

    /// A bar of letters for the terminal.
    #[must_use]
    pub fn plot(&self) -> String {
        const WIDTH: f64 = 40.0;
        let best = self
            .rows
            .first()
            .map_or(1.0, |(_, row)| row.mean)
            .max(1e-12);
        let mut text = String::new();
        for (name, row) in &self.rows {
            let length = (row.mean / best * WIDTH).round().max(0.0) as usize;
            text += &format!("{:<40} {} {:.1}\n", "#".repeat(length), name, row.mean);
        }
        text
    }

    /// Series over a parameter that varies: (axis, lines).
    fn sweep(&self) -> Option<String> {
        let axes: [(&str, Parameter); 3] = [
            ("strip in bytes", |result| result.setup.strip_bytes as f64),
            ("queue depth of a disk", |result| {
                f64::from(result.setup.queue_depth)
            }),
            ("members", |result| result.setup.members as f64),
        ];
        for (axis, value) in axes {
            let mut series: BTreeMap<String, Vec<(f64, Spread)>> = BTreeMap::new();
            for (name, row) in &self.rows {
                let Some(result) = self.samples.get(name) else {
                    continue;
                };
                if !result.setup.on.is_empty() {
                    continue; // something real has no such parameter
                }
                let setup = &result.setup;
                let words = [
                    &setup.system,
                    "level",
                    &setup.level,
                    &setup.layout,
                    &setup.file_system,
                ];
                let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
                let line = words.join(" ");
                series.entry(line).or_default().push((value(result), *row));
            }
            let is_sweep = |points: &Vec<(f64, Spread)>| {
                let mut xs: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
                xs.sort_by(f64::total_cmp);
                xs.windows(2).all(|pair| pair[0] < pair[1]) && xs.len() > 1
            };
            series.retain(|_, points| is_sweep(points));
            if series.is_empty() {
                continue;
            }
            for points in series.values_mut() {
                points.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
            let list: Vec<_> = series.into_iter().collect();
            return Some(svg::lines(&self.title, &self.unit, axis, &list));
        }
        None
    }
}

/// A number of an arrangement that may vary.
type Parameter = fn(&RunResult) -> f64;

/// For the terminal.
#[must_use]
pub fn text(name: &str, comparisons: &[Comparison], skipped: &[String]) -> String {
    let mut out = format!("{name}\n\n");
    for comparison in comparisons {
        out += &format!("{}\n  {}\n", comparison.title, comparison.answer());
    }
    for reason in skipped {
        out += &format!("skipped: {reason}\n");
    }
    for comparison in comparisons {
        out += &format!("\n{}{}", comparison.table().text(), comparison.plot());
        let reasons = comparison.reasons();
        if !reasons.rows.is_empty() {
            out += &format!("\n{}", reasons.text());
        }
    }
    out
}

/// For a page of text; the charts are files beside it.
#[must_use]
pub fn markdown(name: &str, comparisons: &[Comparison], skipped: &[String]) -> String {
    let mut out = format!("# {name}\n\n");
    for comparison in comparisons {
        out += &format!("- **{}**: {}\n", comparison.title, comparison.answer());
    }
    for reason in skipped {
        out += &format!("- skipped: {reason}\n");
    }
    for (index, comparison) in comparisons.iter().enumerate() {
        out += &format!(
            "\n{}\n![{}](chart{index}.svg)\n\n{}",
            comparison.table().markdown(),
            comparison.title,
            comparison.reasons().markdown()
        );
    }
    out
}

/// The charts: one SVG text for each comparison.
#[must_use]
pub fn charts(comparisons: &[Comparison]) -> Vec<String> {
    comparisons
        .iter()
        .map(|comparison| svg::bars(&comparison.title, &comparison.unit, &comparison.rows))
        .collect()
}

const STYLE: &str = "body{font-family:sans-serif;max-width:60em;margin:1em auto;padding:0 1em;line-height:1.4}\
table{border-collapse:collapse;display:block;overflow-x:auto}td,th{border:1px solid #ccc;padding:.2em .5em;text-align:left}\
td.n{text-align:right}svg{width:100%;max-width:34em;height:auto;display:block}figure{margin:1em 0}figcaption{font-weight:bold}\
pre{overflow-x:auto;background:#f4f4f4;padding:.5em}@media print{svg,table{break-inside:avoid}}";

/// One file with everything, for a phone, a desk and a printer.
#[must_use]
pub fn html(name: &str, file: &str, comparisons: &[Comparison], skipped: &[String]) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style></head>\
         <body><h1>{0}</h1>\n<ul>\n",
        escape(name)
    );
    for comparison in comparisons {
        out += &format!(
            "<li><b>{}</b>: {}</li>\n",
            escape(&comparison.title),
            escape(&comparison.answer())
        );
    }
    for reason in skipped {
        out += &format!("<li>skipped: {}</li>\n", escape(reason));
    }
    out += "</ul>\n";
    for comparison in comparisons {
        out += &format!("<h2>{}</h2>\n", escape(&comparison.title));
        out += &svg::bars(&comparison.title, &comparison.unit, &comparison.rows);
        if let Some(lines) = comparison.sweep() {
            out += &lines;
        }
        out += &comparison.table().html();
        let reasons = comparison.reasons();
        if !reasons.rows.is_empty() {
            out += &reasons.html();
        }
    }
    out + &format!(
        "<h2>To run it again</h2><p>Save as <code>experiment.toml</code>, then <code>plexum lab run experiment.toml</code></p>\
         <pre>{}</pre></body></html>\n",
        escape(file)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    const FILE: &str = "name = \"demo\"\nrepetitions = 3\n[setup]\nlevel = [\"0\", \"single\"]\nstrip_bytes = [\"64K\", \"128K\"]\n\
        [work]\nkind = \"random-read\"\nblock_bytes = \"4K\"\nprocesses = 8\nrequests = 60\n";

    fn results() -> Vec<RunResult> {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(FILE).unwrap();
        experiment
            .run_in(folder.path(), &|| 0.0, |_, _| true)
            .unwrap();
        crate::experiment::read_results(folder.path()).unwrap()
    }

    #[test]
    fn a_report_names_the_winner_only_when_it_is_clear() {
        let comparisons = compare(&results());
        let requests = &comparisons[0];
        assert_eq!(requests.rows.len(), 3, "a single disk ignores the strip");
        assert!(
            requests.rows[2].0.starts_with("single disk"),
            "{:?}",
            requests.rows
        );
        assert!(
            requests.answer().contains("no clear winner"),
            "{}",
            requests.answer()
        );
        let mut two = requests.clone();
        two.rows.remove(0);
        assert!(
            two.answer().contains("times the next best"),
            "{}",
            two.answer()
        );
    }

    #[test]
    fn the_html_file_needs_no_network_and_no_script() {
        let comparisons = compare(&results());
        let page = html("demo", FILE, &comparisons, &[]);
        assert!(page.contains("<svg") && page.contains("To run it again"));
        for foreign in ["<script", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http"), "no address but the name of SVG");
        assert!(
            text("demo", &comparisons, &[]).contains("random-read 4 KiB, 8 processes: requests")
        );
        assert_eq!(charts(&comparisons).len(), comparisons.len());
    }

    #[test]
    fn what_was_skipped_is_said_once_for_all_workloads_or_by_name_for_some() {
        let mut results = results();
        for result in &mut results {
            result.skipped = "md: not here".to_owned();
        }
        assert_eq!(skipped(&results), ["md: not here"]);
        let mut other = results[0].clone();
        other.work.block_bytes = 65536;
        other.skipped.clear();
        results.push(other);
        assert_eq!(
            skipped(&results),
            ["random-read 4 KiB, 8 processes: md: not here"]
        );
    }
}
