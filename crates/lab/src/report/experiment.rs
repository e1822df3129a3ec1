//! The figures of an experiment beside each other: which arrangement is best, by how much, and where the time went.
//!
//! Invariant: a winner is named only when its confidence interval does not overlap the next one's.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::table::Table;
use crate::experiment::RunResult;
use crate::sensitivity::Winner;
use crate::stats::{Spread, spread};
use crate::work::Work;
use crate::workload::jobs::Job;
use crate::worth::Worth;

/// Means that differ by less than this share of the best are alike.
const ALIKE: f64 = 0.9;
/// Arrangements that an answer names.
const NAMED_MAX: usize = 3;

/// One figure of one workload, over all arrangements.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Workload and figure, in words.
    pub title: String,
    /// Unit.
    pub unit: String,
    /// The workload.
    pub work: Work,
    /// Whether it is the main figure of its workload.
    pub is_main: bool,
    /// Arrangements with their spread, the best first.
    pub rows: Vec<(String, Spread)>,
    /// The result of each arrangement whose seed is lowest: what its disks did.
    samples: BTreeMap<String, RunResult>,
}

/// A workload in words.
pub(crate) fn describe(work: &Work) -> String {
    match work.kind.as_str() {
        "rawio" | "rebuild" => work.kind.clone(),
        "bonnie" | "bonnie++" => match work.host.as_str() {
            "" => work.kind.clone(),
            host => format!(
                "{} on {host}, blocks of {}",
                work.kind,
                size(work.block_bytes)
            ),
        },
        "fio" | "trace" => format!("{} {}", work.kind, work.file),
        "jobs" => {
            let of_one = |job: &Job| format!("{} ({})", job.name, describe(&alone(job)));
            let all: Vec<String> = work.jobs.iter().map(of_one).collect();
            format!(
                "{} at the same time for {} s",
                all.join(" and "),
                work.seconds
            )
        }
        "superblocks" => format!(
            "superblocks of groups of {}, {} processes, {} % reads",
            size(work.group_bytes),
            work.processes,
            work.read_percent
        ),
        kind => {
            let mut text = format!("{kind} {}", size(work.block_bytes));
            if !kind.contains("dd") {
                let many = if work.processes == 1 { "" } else { "es" };
                text += &format!(", {} process{many}", work.processes);
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

/// A job as a workload of its own.
fn alone(job: &Job) -> Work {
    Work {
        kind: job.kind.clone(),
        block_bytes: job.block_bytes,
        processes: job.processes,
        depth: job.depth,
        is_sync: job.is_sync,
        ..Work::default()
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

/// What was not run, with the reason, each once: of all workloads, or of some with their names.
#[must_use]
pub fn skipped(results: &[RunResult]) -> Vec<String> {
    let works: BTreeSet<String> = results.iter().map(|one| describe(&one.work)).collect();
    let mut by_reason: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for result in results.iter().filter(|result| !result.skipped.is_empty()) {
        let of_reason = by_reason.entry(&result.skipped).or_default();
        of_reason.insert(describe(&result.work));
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
        let work = describe(&result.work);
        for (index, figure) in result.figures.iter().enumerate() {
            let key = (
                work.clone(),
                index,
                figure.name.clone(),
                figure.unit.clone(),
            );
            let values = groups.entry(key).or_default();
            values
                .entry(result.setup.full_name())
                .or_default()
                .push(figure.value);
        }
        let sample = samples.entry((work, result.setup.full_name()));
        let sample = sample.or_insert_with(|| result.clone());
        if result.seed < sample.seed {
            *sample = result.clone();
        }
    }
    groups
        .into_iter()
        .map(|((work, index, name, unit), values)| {
            let mut rows: Vec<(String, Spread)> = values
                .into_iter()
                .map(|(name, values)| (name, spread(&values)))
                .collect();
            rows.sort_by(|a, b| b.1.mean.total_cmp(&a.1.mean));
            let of_work = samples
                .iter()
                .filter(|((sample, _), _)| *sample == work)
                .map(|((_, name), result)| (name.clone(), result.clone()));
            let samples: BTreeMap<String, RunResult> = of_work.collect();
            let of_first = samples.values().next().map(|result| result.work.clone());
            Comparison {
                work: of_first.unwrap_or_default(),
                is_main: index == 0,
                title: format!("{work}: {name}"),
                unit,
                rows,
                samples,
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
        let Some((next, second)) = self.rows.get(1) else {
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
        if self.winner() == Winner::None {
            let near: Vec<&str> = self
                .rows
                .iter()
                .filter(|(_, row)| row.is_near(first))
                .map(|(name, _)| name.as_str())
                .collect();
            return match near.len() {
                // Margins that touch because they are wide say that too little was measured, not that all is the same.
                count if count > NAMED_MAX && self.lowest_of(count) < ALIKE * first.mean => {
                    format!(
                        "no clear winner: {count} of {} arrangements cannot be told apart with {} repetitions, although their means \
                        go from {:.1} to {:.1} {}; more repetitions would tell",
                        self.rows.len(),
                        first.count,
                        self.lowest_of(count),
                        first.mean,
                        self.unit
                    )
                }
                count if count == self.rows.len() && count > NAMED_MAX => {
                    format!("no clear winner: all {count} arrangements are alike")
                }
                count if count > NAMED_MAX => format!(
                    "no clear winner among {} and {} more",
                    near[..NAMED_MAX].join("; "),
                    count - NAMED_MAX
                ),
                _ => format!("no clear winner among {}", near.join("; ")),
            };
        }
        let times = first.mean / second.mean.max(1e-12);
        let error = times
            * ((first.margin / first.mean).powi(2)
                + (second.margin / second.mean.max(1e-12)).powi(2))
            .sqrt();
        let answer = format!("{best}: {times:.2} times the next best (margin {error:.2})");
        match (self.worth(best), self.worth(next)) {
            (Some(one), Some(other)) if one == other && one.unused_bytes == 0 => answer,
            _ => match (self.worth_words(best), self.worth_words(next)) {
                (Some(one), Some(other)) => format!("{answer}; it {one}; the next best {other}"),
                _ => answer,
            },
        }
    }

    /// Whether one arrangement is clearly better than all others.
    #[must_use]
    pub fn winner(&self) -> Winner {
        match (self.rows.first(), self.rows.get(1)) {
            (Some((_, first)), Some((_, second))) if second.is_near(first) => Winner::None,
            _ => Winner::Clear,
        }
    }

    /// The lowest mean of those that may be as good as the best, which are `count`.
    fn lowest_of(&self, count: usize) -> f64 {
        let best = self.rows.first().map(|(_, row)| row);
        let near = |row: &&Spread| best.is_some_and(|best| row.is_near(best));
        let near = self.rows.iter().map(|(_, row)| row).filter(near);
        near.take(count)
            .map(|row| row.mean)
            .fold(f64::INFINITY, f64::min)
    }

    /// What an arrangement holds and survives.
    fn worth(&self, name: &str) -> Option<Worth> {
        Worth::of(&self.samples.get(name)?.setup)
    }

    /// The same in words.
    fn worth_words(&self, name: &str) -> Option<String> {
        Worth::words_of(&self.samples.get(name)?.setup)
    }

    /// The volumes of each arrangement and what each did in the run of the lowest seed; empty where no jobs were shared
    /// out to several.
    #[must_use]
    pub fn volumes(&self) -> Table {
        let columns = [
            "arrangement",
            "volume",
            "what",
            "jobs",
            "requests_per_s",
            "kib_per_s",
            "busy_percent",
            "holds_gb",
            "survives_losses",
        ];
        let title = format!("{}: what each volume did", self.title);
        let mut table = Table::new(&title, &columns);
        let ranked = self.ranked();
        if ranked.iter().all(|(_, result)| result.volumes.len() < 2) {
            return table;
        }
        for (name, result) in ranked {
            for row in &result.volumes {
                let worth = Worth::of_volume(&result.setup, &row.name);
                table.push(vec![
                    json!(name),
                    json!(row.name),
                    json!(row.what),
                    json!(row.jobs.join(", ")),
                    json!(row.requests_per_s),
                    json!(row.kib_per_s),
                    json!(row.busy_percent),
                    json!(worth.map(|worth| worth.usable_gb().round())),
                    json!(worth.map(|worth| worth.losses)),
                ]);
            }
        }
        table
    }

    /// Arrangements with the run of the lowest seed, the best first.
    #[must_use]
    pub fn ranked(&self) -> Vec<(&str, &RunResult)> {
        let of_row = |(name, _): &'_ (String, Spread)| self.samples.get_key_value(name);
        let found = self.rows.iter().filter_map(of_row);
        found
            .map(|(name, result)| (name.as_str(), result))
            .collect()
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
                "holds_gb",
                "unused_gb",
                "survives_losses",
            ],
        );
        let best = self.rows.first().map_or(1.0, |(_, row)| row.mean);
        let round = |value: f64| (value * 100.0).round() / 100.0;
        for (name, row) in &self.rows {
            let worth = self.worth(name);
            table.push(vec![
                json!(name),
                json!(round(row.mean)),
                json!(round(row.margin)),
                json!(round(row.min)),
                json!(round(row.max)),
                json!((row.mean / best.max(1e-12) * 100.0).round()),
                json!(row.count),
                json!(worth.map(|worth| worth.usable_gb().round())),
                json!(worth.map(|worth| worth.unused_gb().round())),
                json!(worth.map(|worth| worth.losses)),
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
        let told = two.answer();
        assert!(told.contains("times the next best"), "{told}");
        assert_eq!(two.winner(), Winner::Clear);
        // A faster one that holds more or survives less is said to.
        assert!(told.contains("survives the loss of no disk"), "{told}");
        assert_eq!(two.table().rows[0].len(), 10);
    }

    #[test]
    fn arrangements_whose_margins_are_wide_are_not_said_to_be_alike() {
        let mut comparison = compare(&results()).remove(0);
        let row = |mean: f64, margin: f64| Spread {
            count: 2,
            mean,
            margin,
            min: mean - margin,
            max: mean + margin,
        };
        let rows = |means: &[(f64, f64)]| {
            let named = means.iter().enumerate();
            let one =
                |(n, (mean, margin)): (usize, &(f64, f64))| (format!("a{n}"), row(*mean, *margin));
            named.map(one).collect::<Vec<_>>()
        };
        comparison.rows = rows(&[
            (50_069.0, 45_000.0),
            (40_000.0, 9.0),
            (20_000.0, 9.0),
            (9_516.0, 9.0),
        ]);
        let told = comparison.answer();
        assert!(!told.contains("alike"), "{told}");
        assert!(told.contains("9516.0 to 50069.0"), "{told}");
        comparison.rows = rows(&[(1000.0, 50.0), (990.0, 9.0), (980.0, 9.0), (970.0, 9.0)]);
        assert!(comparison.answer().contains("are alike"));
        assert_eq!(comparison.winner(), Winner::None);
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
