//! Figures over a parameter that an experiment varies: strip, members, queue depth, block, processes, requests under
//! way.
//!
//! Invariant: along a line nothing but the parameter differs.

use std::collections::BTreeMap;

use super::experiment::describe;
use super::svg;
use crate::experiment::RunResult;
use crate::setup::Setup;
use crate::stats::{Spread, spread};
use crate::work::{Figure, Work};

/// Lines of one chart; the best ones.
const LINES_MAX: usize = 8;

const BLOCK: &str = "bytes of a request";

/// A parameter: its name, its value, and how it is taken out of an arrangement and a workload.
struct Axis {
    name: &'static str,
    /// Whether it belongs to simulated and built volumes alone: something that is there already has none.
    is_of_setup: bool,
    value: fn(&Setup, &Work) -> f64,
    take_out: fn(&mut Setup, &mut Work),
    /// How a label says that it was taken out.
    remains: &'static str,
}

const AXES: [Axis; 6] = [
    Axis {
        name: "strip in bytes",
        is_of_setup: true,
        value: |setup, _| setup.strip_bytes as f64,
        take_out: |setup, _| setup.strip_bytes = 0,
        remains: " strip 0K",
    },
    Axis {
        name: "queue depth of a disk",
        is_of_setup: true,
        value: |setup, _| f64::from(setup.queue_depth),
        take_out: |setup, _| setup.queue_depth = 0,
        remains: "",
    },
    Axis {
        name: "members",
        is_of_setup: true,
        value: |setup, _| setup.members as f64,
        take_out: |setup, _| setup.members = 0,
        remains: " of 0",
    },
    Axis {
        name: BLOCK,
        is_of_setup: false,
        value: |_, work| work.block_bytes as f64,
        take_out: |_, work| work.block_bytes = 0,
        remains: " 0 KiB",
    },
    Axis {
        name: "processes",
        is_of_setup: false,
        value: |_, work| work.processes as f64,
        take_out: |_, work| work.processes = 0,
        remains: ", 0 processes",
    },
    Axis {
        name: "requests under way of each process",
        is_of_setup: false,
        value: |_, work| work.depth as f64,
        take_out: |_, work| work.depth = 0,
        remains: "",
    },
];

/// Points of a line: (value of the parameter, figure).
type Line = Vec<(f64, Spread)>;

/// One figure of one workload over one parameter.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Workload and figure, in words.
    pub title: String,
    /// Unit of the figure.
    pub unit: String,
    /// The parameter.
    pub axis: &'static str,
    /// Arrangements, the best first.
    pub lines: Vec<(String, Line)>,
}

impl Sweep {
    /// The chart.
    #[must_use]
    pub fn svg(&self) -> String {
        svg::lines(&self.title, &self.unit, self.axis, &self.lines)
    }
}

/// Values of each seed by (arrangement and workload without the parameter, their names), then by the parameter in bits.
type Groups = BTreeMap<(String, String), (String, BTreeMap<u64, Vec<f64>>)>;

fn lines_of(
    axis: &Axis,
    results: &[RunResult],
    figure: usize,
) -> BTreeMap<String, Vec<(String, Line)>> {
    let mut groups = Groups::new();
    for result in results {
        let is_wanted = |seen: &&Figure| match seen.name.as_str() {
            // One follows from the other: over the length of a request the rate says more, elsewhere their number.
            "requests" => axis.name != BLOCK,
            "rate" => axis.name == BLOCK,
            _ => true,
        };
        if axis.is_of_setup && !result.setup.on.is_empty() {
            continue;
        }
        let Some(seen) = result.figures.get(figure).filter(is_wanted) else {
            continue;
        };
        let value = (axis.value)(&result.setup, &result.work);
        let (mut setup, mut work) = (result.setup.clone(), result.work.clone());
        (axis.take_out)(&mut setup, &mut work);
        let key = serde_json::json!({"setup": setup, "work": work}).to_string();
        let without = |text: String| text.replacen(axis.remains, "", 1);
        let title = format!("{}: {}", without(describe(&work)), seen.name);
        let entry = groups.entry((title, key)).or_default();
        entry.0 = without(setup.full_name());
        // Bits of a number from 0 on are in its order.
        entry.1.entry(value.to_bits()).or_default().push(seen.value);
    }
    let mut charts: BTreeMap<String, Vec<(String, Line)>> = BTreeMap::new();
    for ((title, _), (name, points)) in groups {
        if points.len() > 1 {
            let line = points
                .iter()
                .map(|(x, values)| (f64::from_bits(*x), spread(values)));
            charts
                .entry(title)
                .or_default()
                .push((name, line.collect()));
        }
    }
    charts
}

/// All charts that results allow.
#[must_use]
pub fn sweeps(results: &[RunResult]) -> Vec<Sweep> {
    let figures = results.iter().map(|result| result.figures.len()).max();
    let mut all = Vec::new();
    for axis in &AXES {
        for figure in 0..figures.unwrap_or(0) {
            for (title, mut lines) in lines_of(axis, results, figure) {
                let best = |line: &Line| line.iter().map(|(_, one)| one.mean).fold(0.0, f64::max);
                lines.sort_by(|a, b| best(&b.1).total_cmp(&best(&a.1)));
                lines.truncate(LINES_MAX);
                let unit = results.iter().find_map(|result| result.figures.get(figure));
                all.push(Sweep {
                    title,
                    unit: unit.map_or_else(String::new, |figure| figure.unit.clone()),
                    axis: axis.name,
                    lines,
                });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    fn sweeps_of(setup: &str, work: &str) -> Vec<Sweep> {
        let text = format!(
            "repetitions = 2\nsensitivity = false\n[setup]\n{setup}\n[work]\nkind = \"random-read\"\nrequests = 10\n{work}"
        );
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(&text).unwrap();
        experiment
            .run_in(folder.path(), &|| 0.0, |_, _| true)
            .unwrap();
        sweeps(&crate::experiment::read_results(folder.path()).unwrap())
    }

    #[test]
    fn a_line_follows_one_parameter_while_others_vary_too() {
        let all = sweeps_of(
            "level = [\"0\", \"10\"]\nstrip_bytes = [\"64K\", \"128K\"]",
            "block_bytes = [\"4K\", \"16K\", \"64K\"]\nprocesses = [1, 4]",
        );
        let of = |axis: &'static str| all.iter().filter(move |one| one.axis == axis);
        // Blocks 3 x processes 2 over strips, processes 2 over blocks, blocks 3 over processes.
        assert_eq!(of("strip in bytes").count(), 6);
        assert_eq!(of(BLOCK).count(), 2);
        assert_eq!(of("processes").count(), 3);
        assert!(of(BLOCK).all(|one| one.title.ends_with(": rate")));
        assert_eq!(of("members").count(), 0);
        let blocks = of(BLOCK).next().unwrap();
        assert_eq!(blocks.lines.len(), 4, "two levels, two strips");
        for (name, points) in &blocks.lines {
            assert!(name.contains("strip"), "{name}");
            let xs: Vec<f64> = points.iter().map(|(x, _)| *x).collect();
            assert_eq!(xs, [4096.0, 16384.0, 65536.0]);
            assert!(points.iter().all(|(_, one)| one.count == 2));
        }
        let strips = of("strip in bytes").next().unwrap();
        assert!(
            strips.lines.iter().all(|(name, _)| !name.contains("strip")),
            "{strips:?}"
        );
        assert!(!of("processes").next().unwrap().title.contains("processes"));
    }

    #[test]
    fn depths_of_disks_and_processes_are_parameters() {
        let all = sweeps_of(
            "queue_depth = [1, 32]\ndisks = \"nas-12t\"",
            "depth = [1, 4, 16]",
        );
        let axes: Vec<&str> = all.iter().map(|one| one.axis).collect();
        assert!(axes.contains(&"queue depth of a disk"), "{axes:?}");
        assert!(
            axes.contains(&"requests under way of each process"),
            "{axes:?}"
        );
    }
}
