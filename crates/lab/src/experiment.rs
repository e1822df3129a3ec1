//! Experiment files: a matrix of arrangements and workloads, run in random order, repeated, resumable.
//!
//! Invariants:
//! - everything is checked before the first run: unknown names, impossible arrangements, workloads that do not fit;
//! - a result is one line of `results.jsonl`, written when the run has ended; a run whose line exists is not run again;
//! - the order is random by the seed, so that a drift of the machine does not favour what comes first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use plexum_disks::rng::Rng;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::array::Mode;
use crate::build::{self, Workshop};
use crate::error::LabError;
use crate::inside::Inside;
use crate::lines::{self, Lines};
use crate::place::interrupt;
use crate::setup::Setup;
use crate::work::real::may_write;
use crate::work::{Figure, Measurement, Work, check_assignment, check_room, measure};
use crate::workload::jobs::VolumeRow;

/// Runs an experiment may have.
const RUNS_MAX: usize = 100_000;
/// Name of the results in a folder.
const RESULTS: &str = "results.jsonl";
/// Keys of `[setup]` that make sense for volumes that are built.
const BUILT_KEYS: [&str; 3] = ["members_on", "file_system", "through"];
/// Keys of a file.
const KEYS: [&str; 6] = [
    "name",
    "seed",
    "repetitions",
    "sensitivity",
    "setup",
    "work",
];
/// Keys whose list is one choice.
const LIST_KEYS: [&str; 5] = ["slow", "members_on", "destroy", "buses", "bus_of"];
/// Name of the copy of the experiment file.
const FILE: &str = "experiment.toml";

/// One run of the matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Arrangement.
    pub setup: Setup,
    /// Workload.
    pub work: Work,
    /// Seed.
    pub seed: u64,
}

impl Run {
    /// What names it among results.
    pub(crate) fn key(&self) -> String {
        let value = serde_json::json!({"setup": self.setup, "work": self.work, "seed": self.seed});
        value.to_string()
    }
}

/// What a run gave; one line of the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Arrangement.
    pub setup: Setup,
    /// Workload.
    pub work: Work,
    /// Seed.
    pub seed: u64,
    /// Figures, the main one first.
    pub figures: Vec<Figure>,
    /// Why it was not run; empty when it was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub skipped: String,
    /// Latencies.
    pub reads: serde_json::Value,
    /// The same of writes.
    pub writes: serde_json::Value,
    /// Members.
    pub members: serde_json::Value,
    /// The volumes that jobs were shared out to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRow>,
    /// Distributions, disks over time, books; of the first seed only, to keep the file small.
    #[serde(default)]
    pub inside: Inside,
    /// Real time it took.
    pub real_s: f64,
}

/// An experiment that makes sense.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// Its text, kept beside the results.
    pub text: String,
    /// All runs in the order in which they are run.
    pub runs: Vec<Run>,
    /// Whether the best arrangements are compared once more with changed disks.
    pub has_sensitivity: bool,
    /// Where volumes are built; experiments with real ones need it.
    pub workshop: Option<Workshop>,
}

fn refused(text: impl Into<String>) -> LabError {
    LabError::Usage(text.into())
}

/// `64K`, `1M` and plain numbers.
fn bytes(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit = match text[digits.len()..].trim().to_ascii_uppercase().as_str() {
        "" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(unit)
}

fn plain(key: &str, value: &Value) -> Result<Value, LabError> {
    match (key, value) {
        ("disks", Value::String(names)) => {
            let names = names
                .split(',')
                .map(|name| Value::String(name.trim().to_owned()));
            Ok(Value::Array(names.collect()))
        }
        ("inner_strip_bytes", Value::Array(list)) => {
            let sizes: Result<Vec<Value>, LabError> =
                list.iter().map(|size| plain("strip_bytes", size)).collect();
            Ok(Value::Array(sizes?))
        }
        ("inner_strip_bytes", size) => Ok(Value::Array(vec![plain("strip_bytes", size)?])),
        ("volumes" | "jobs", Value::Array(list)) => {
            let tables: Result<Vec<Value>, LabError> = list.iter().map(plain_table).collect();
            Ok(Value::Array(tables?))
        }
        (key, Value::String(text)) if key.ends_with("_bytes") => bytes(text)
            .map(Value::Integer)
            .ok_or_else(|| refused(format!("{key} = \"{text}\" is no size"))),
        ("level", Value::Integer(level)) => Ok(Value::String(level.to_string())),
        (_, value) => Ok(value.clone()),
    }
}

/// A volume or a job: sizes and levels in it are written as elsewhere, and nothing in it is varied.
fn plain_table(value: &Value) -> Result<Value, LabError> {
    let Value::Table(table) = value else {
        return Ok(value.clone()); // of the wrong kind, which is told with its name
    };
    let fields = table
        .iter()
        .map(|(key, value)| match (key.as_str(), value) {
            ("disks" | "jobs", value) => Ok((key.clone(), value.clone())),
            (key, value) => Ok((key.to_owned(), plain(key, value)?)),
        });
    let fields: Result<Table, LabError> = fields.collect();
    Ok(Value::Table(fields?))
}

/// Whether a list is one choice: volumes or jobs, each a table of its own.
fn is_one_choice(key: &str, list: &[Value]) -> bool {
    LIST_KEYS.contains(&key)
        || matches!(key, "volumes" | "jobs") && list.first().is_some_and(Value::is_table)
}

/// Every combination of the values of a section.
fn combinations(section: &Table) -> Result<Vec<Table>, LabError> {
    let mut all = vec![Table::new()];
    for (key, value) in section {
        let choices: Vec<Value> = match value {
            Value::Array(list) if !is_one_choice(key, list) => list.clone(),
            other => vec![other.clone()],
        };
        if choices.is_empty() {
            return Err(refused(format!("{key} is an empty list")));
        }
        let mut wider = Vec::new();
        for table in &all {
            for choice in &choices {
                let mut table = table.clone();
                table.insert(key.clone(), plain(key, choice)?);
                wider.push(table);
            }
        }
        if wider.len() > RUNS_MAX {
            return Err(refused(format!("more than {RUNS_MAX} combinations")));
        }
        all = wider;
    }
    Ok(all)
}

/// What the text of an experiment is called; `None` when it does not say, or is none.
#[must_use]
pub fn name_of(text: &str) -> Option<String> {
    let file: Table = toml::from_str(text).ok()?;
    let name = file.get("name").and_then(Value::as_str)?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

impl Experiment {
    /// Reads and checks an experiment file.
    ///
    /// # Errors
    /// `Usage` with the name of what does not fit; nothing was run.
    pub fn parse(text: &str) -> Result<Self, LabError> {
        let file: Table = toml::from_str(text).map_err(|error| refused(error.to_string()))?;
        for key in file.keys() {
            if !KEYS.contains(&key.as_str()) {
                return Err(refused(format!(
                    "unknown key \"{key}\": name, seed, repetitions, sensitivity, [setup] and [work] are known"
                )));
            }
        }
        let number = |key: &str, default: i64| match file.get(key) {
            None => Ok(default),
            Some(Value::Integer(number)) if *number >= 0 => Ok(*number),
            Some(_) => Err(refused(format!("{key} is not a number from 0"))),
        };
        let section = |key: &str| match file.get(key) {
            None => Ok(Table::new()),
            Some(Value::Table(table)) => Ok(table.clone()),
            Some(_) => Err(refused(format!("[{key}] is not a section"))),
        };
        let repetitions = number("repetitions", 5)?.clamp(1, 1000) as u64;
        let seed = number("seed", 1)? as u64;
        let mut runs = Vec::new();
        let mut seen = BTreeSet::new();
        for setup in combinations(&section("setup")?)? {
            let setup: Setup = setup
                .try_into()
                .map_err(|e: toml::de::Error| refused(format!("[setup]: {e}")))?;
            for work in combinations(&section("work")?)? {
                let work: Work = work
                    .try_into()
                    .map_err(|e: toml::de::Error| refused(format!("[work]: {e}")))?;
                work.check()?;
                if !seen.insert((
                    setup.label(),
                    format!("{:?}{:?}{work:?}", setup.disks, setup.volumes),
                )) {
                    continue; // differs only in what this level ignores
                }
                for repetition in 0..repetitions {
                    runs.push(Run {
                        setup: setup.clone(),
                        work: work.clone(),
                        seed: seed + repetition,
                    });
                }
            }
        }
        if runs.len() > RUNS_MAX {
            return Err(refused(format!("more than {RUNS_MAX} runs")));
        }
        check_keys(&section("setup")?, &runs)?;
        check_arrangements(&runs)?;
        Rng::new(seed ^ 0x0de5).shuffle(&mut runs);
        Ok(Self {
            name: match file.get("name") {
                Some(Value::String(name)) => name.clone(),
                _ => "experiment".to_owned(),
            },
            text: text.to_owned(),
            has_sensitivity: match file.get("sensitivity") {
                None => true,
                Some(Value::Boolean(has)) => *has,
                Some(_) => return Err(refused("sensitivity is true or false")),
            },
            runs,
            workshop: None,
        })
    }

    /// Runs without a result in `folder`, in their order.
    ///
    /// # Errors
    /// `Io` when the folder cannot be read.
    pub fn pending(&self, folder: &Path) -> Result<Vec<&Run>, LabError> {
        let done: BTreeSet<String> = read_results(folder)?
            .into_iter()
            .map(|result| {
                let RunResult {
                    setup, work, seed, ..
                } = result;
                Run { setup, work, seed }.key()
            })
            .collect();
        let is_pending = |run: &&Run| !done.contains(&run.key());
        Ok(self.runs.iter().filter(is_pending).collect())
    }

    /// Seconds that `runs` will take, from a short one of each system and workload.
    ///
    /// # Errors
    /// As a run.
    pub fn estimate_s(&self, runs: &[&Run], now_s: &dyn Fn() -> f64) -> Result<f64, LabError> {
        let mut by_kind: BTreeMap<String, f64> = BTreeMap::new();
        let mut sum = 0.0;
        for run in runs {
            let Setup {
                on,
                system,
                file_system,
                ..
            } = &run.setup;
            let kind = format!("{on} {system} {file_system} {}", run.work.kind);
            let each = match by_kind.get(&kind) {
                Some(seconds) => *seconds,
                None => {
                    let seconds = self.estimate_one_s(run, now_s)?;
                    by_kind.insert(kind, seconds);
                    seconds
                }
            };
            sum += each;
        }
        Ok(sum)
    }

    /// Building takes as long each time; the work takes longer with each request.
    fn estimate_one_s(&self, run: &Run, now_s: &dyn Fn() -> f64) -> Result<f64, LabError> {
        let requests = run.work.requests;
        let part = (requests / 10).max(10).min(requests);
        let work = Work {
            requests: part,
            ..run.work.clone()
        };
        let short = Run {
            work,
            ..run.clone()
        };
        let started = now_s();
        let (seen, _) = self.measure_or_skip(&short)?;
        let took = now_s() - started;
        let is_built = !run.setup.system.is_empty() && run.setup.on.is_empty();
        let fixed = match is_built {
            true => (took - seen.elapsed_s).max(0.0),
            false => 0.0,
        };
        Ok(fixed + (took - fixed) * requests as f64 / part.max(1) as f64)
    }

    /// Whether the folder holds this experiment already; changes nothing.
    ///
    /// # Errors
    /// `Usage` when it holds another one; it is something else than a folder.
    pub fn check_folder(&self, folder: &Path) -> Result<bool, LabError> {
        let shown = folder.display();
        if folder.exists() && !folder.is_dir() {
            return Err(LabError::Io(format!("{shown}: File exists (os error 17)")));
        }
        match std::fs::read_to_string(folder.join(FILE)) {
            Ok(text) if text != self.text => Err(refused(format!(
                "{shown} holds another experiment; take another folder"
            ))),
            Ok(_) => Ok(true),
            Err(_) => Ok(false),
        }
    }

    /// Runs what has no result in `folder` yet. `tell` hears (done, all) and says whether to go on.
    ///
    /// # Errors
    /// `Io` when the folder cannot be written; a run that failed. Results so far are kept.
    pub fn run_in(
        &self,
        folder: &Path,
        now_s: &dyn Fn() -> f64,
        mut tell: impl FnMut(usize, usize) -> bool,
    ) -> Result<(), LabError> {
        let told = |error: std::io::Error| LabError::Io(format!("{}: {error}", folder.display()));
        std::fs::create_dir_all(folder).map_err(told)?;
        if !self.check_folder(folder)? {
            std::fs::write(folder.join(FILE), &self.text).map_err(told)?;
        }
        let results = folder.join(RESULTS);
        let pending = self.pending(folder)?;
        let mut lines = Lines::append(&results)?;
        let first_seed = self.runs.iter().map(|run| run.seed).min();
        let done = self.runs.len() - pending.len();
        for (index, run) in pending.into_iter().enumerate() {
            interrupt::check()?;
            let started = now_s();
            let (seen, skipped) = self.measure_or_skip(run)?;
            let mut line = serde_json::json!({
                "setup": run.setup, "work": run.work, "seed": run.seed,
                "figures": seen.figures, "reads": seen.reads, "writes": seen.writes,
                "members": seen.members, "real_s": now_s() - started,
            });
            if !seen.volumes.is_empty() {
                line["volumes"] = serde_json::json!(seen.volumes);
            }
            if first_seed == Some(run.seed) {
                line["inside"] = serde_json::json!(seen.inside);
            }
            if !skipped.is_empty() {
                line["skipped"] = skipped.into();
            }
            lines.add(&line)?;
            if !tell(done + index + 1, self.runs.len()) {
                break;
            }
        }
        Ok(())
    }

    /// Runs it. Something real that is not there, or where the workload cannot be, is skipped with the reason.
    fn measure_or_skip(&self, run: &Run) -> Result<(Measurement, String), LabError> {
        let Run { setup, work, seed } = run;
        let measured = match &self.workshop {
            _ if setup.system.is_empty() || !setup.on.is_empty() => measure(setup, work, *seed),
            Some(workshop) => build::measure(workshop, setup, work, *seed),
            None => Err(LabError::Bug("nowhere to build volumes".to_owned())),
        };
        or_skipped(setup, measured)
    }

    /// Lines about what experiments that died have left; what can be removed safely is removed.
    ///
    /// # Errors
    /// The folder of the journals cannot be read.
    pub fn clear_leftovers(&self) -> Result<Vec<String>, LabError> {
        let mut lines = match &self.workshop {
            Some(workshop) => workshop.clear_leftovers()?,
            None => Vec::new(),
        };
        let strays = self.runs.iter().flat_map(|run| build::strays(&run.setup));
        lines.extend(strays.collect::<BTreeSet<String>>());
        Ok(lines)
    }
}

/// A run, or the reason for which it is no result while the experiment goes on.
fn or_skipped(
    setup: &Setup,
    measured: Result<Measurement, LabError>,
) -> Result<(Measurement, String), LabError> {
    match measured {
        Ok(seen) => Ok((seen, String::new())),
        Err(LabError::Skipped(reason)) => Ok((Measurement::default(), reason)),
        // One arrangement that fails does not take the results of the others along. Simulated, it would fail again.
        Err(LabError::MemberLost(reason) | LabError::Io(reason)) if setup.is_simulated() => {
            let told = format!("{}: {reason}", setup.full_name());
            Ok((Measurement::default(), told))
        }
        Err(LabError::Usage(reason)) if !setup.on.is_empty() => {
            Ok((Measurement::default(), reason))
        }
        Err(error) => Err(error),
    }
}

/// Keys of volumes that are built are refused where none is.
fn check_keys(setup: &Table, runs: &[Run]) -> Result<(), LabError> {
    let is_built = runs.iter().any(|run| !run.setup.system.is_empty());
    let odd = BUILT_KEYS.iter().find(|key| setup.contains_key(**key));
    match odd {
        Some(key) if !is_built => Err(refused(format!(
            "{key} is for volumes that are built: name their system, for example system = \"plexum\""
        ))),
        _ => Ok(()),
    }
}

/// Builds every arrangement once, and nothing more.
fn check_arrangements(runs: &[Run]) -> Result<(), LabError> {
    let mut seen = BTreeSet::new();
    for run in runs {
        if !run.setup.on.is_empty() {
            may_write(&run.setup.on, &run.setup.destroy, &run.work)?;
        } else if !run.setup.system.is_empty() {
            if seen.insert(format!("{:?}{:?}", run.setup, run.work)) {
                build::check(&run.setup, &run.work)?;
            }
        } else if seen.insert(format!("{:?}{:?}", run.setup, run.work.jobs)) {
            let started = check_assignment(&run.setup, &run.work)
                .and_then(|()| run.setup.start(run.seed, 0, Mode::Timing))
                .and_then(|running| check_room(&running, &run.work));
            started.map_err(|error| refused(format!("{}: {error}", run.setup.label())))?;
        }
    }
    Ok(())
}

/// The results of a folder; half a line at the end (a run that was killed) is left out.
///
/// # Errors
/// `Io` when the folder cannot be read.
pub fn read_results(folder: &Path) -> Result<Vec<RunResult>, LabError> {
    lines::read(&folder.join(RESULTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_TEXT: &str = r#"
name = "strips"
repetitions = 2
[setup]
disks = "ssd-sata"
level = ["0", 1]
members = 2
strip_bytes = ["64K", "128K"]
[work]
kind = "random-read"
block_bytes = ["4K", "64K"]
requests = 20
"#;

    fn clock() -> f64 {
        0.0
    }

    #[test]
    fn a_matrix_is_every_combination_once() {
        let experiment = Experiment::parse(FILE_TEXT).unwrap();
        // RAID-0 with two strips, RAID-1 (whose strip is ignored) once; two blocks; two repetitions.
        assert_eq!(experiment.runs.len(), 3 * 2 * 2);
        let orders: Vec<u64> = experiment.runs.iter().map(|run| run.seed).collect();
        assert_ne!(
            orders,
            [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2],
            "the order is random"
        );
    }

    #[test]
    fn what_is_unknown_or_impossible_is_refused_by_name() {
        for (from, to, word) in [
            ("strip_bytes", "stripe_bytes", "stripe_bytes"),
            ("random-read", "random-reed", "random-reed"),
            ("name =", "nome =", "nome"),
            ("\"ssd-sata\"", "\"ssd-stat\"", "ssd-stat"),
            ("members = 2", "members = 0", "64 disks"),
            ("\"64K\", \"128K\"", "\"64Q\"", "64Q"),
        ] {
            let result = Experiment::parse(&FILE_TEXT.replace(from, to));
            let error = result.expect_err(to).to_string();
            assert!(error.contains(word), "{to}: {error}");
        }
    }

    /// Two disks and an SSD; what comes behind `members = 3` in `[setup]` is for the test.
    const JOBS: &str = r#"
repetitions = 1
[setup]
disks = "nas-12t, nas-12t, ssd-sata"
members = 3
level = ["0", "1"]
VOLUMES
[work]
kind = "jobs"
seconds = 1
[[work.jobs]]
name = "small"
range_bytes = "1G"
[[work.jobs]]
name = "large"
kind = "sequential-write"
block_bytes = "1M"
"#;

    const BESIDE: &str = r#"[{ name = "hdd", disks = [0, 1], level = 0, strip_bytes = "32K", jobs = ["large"] },
        { name = "ssd", disks = [2], level = "single", jobs = ["small"] }]"#;

    #[test]
    fn volumes_side_by_side_are_choices_like_any_other() {
        let labels = |volumes: &str| -> Vec<String> {
            let experiment = Experiment::parse(&JOBS.replace("VOLUMES", volumes)).unwrap();
            let mut labels: Vec<String> = experiment
                .runs
                .iter()
                .map(|run| run.setup.label())
                .collect();
            labels.sort();
            labels
        };
        let beside =
            "hdd: RAID-0 of 2 strip 32K (disks 0 1; large) + ssd: single disk (disks 2; small)";
        // Its volumes say their levels, so that those of one volume make no difference.
        assert_eq!(labels(&format!("volumes = {BESIDE}")), [beside]);
        let (raid0, raid1) = ("RAID-0 of 3 strip 512K", "RAID-1 of 3 load");
        assert_eq!(
            labels(&format!("volumes = [[], {BESIDE}]")),
            [raid0, raid1, beside]
        );
        let other = BESIDE.replace("[0, 1]", "[1, 0]");
        assert_eq!(
            labels(&format!("volumes = [{BESIDE}, {other}]")).len(),
            2,
            "other disks are another arrangement"
        );
        let sections =
            "[[setup.volumes]]\nname = \"all\"\ndisks = [0, 1, 2]\njobs = [\"small\", \"large\"]\n";
        assert_eq!(labels(sections).len(), 2, "level is the arrangement's");
        assert_eq!(labels(""), [raid0, raid1]);
    }

    #[test]
    fn what_volumes_and_jobs_cannot_be_is_refused_by_name_before_anything_runs() {
        for (from, to, word) in [
            ("disks = [2]", "disks = [1]", "disk 1 is in two"),
            ("\"single\"", "\"5\"", "ssd: "),
            ("[\"small\"]", "[\"tiny\"]", "none carries the job small"),
            ("strip_bytes = \"32K\"", "strip_bytes = \"32Q\"", "32Q"),
            ("strip_bytes", "stripe_bytes", "stripe_bytes"),
            ("\"1G\"", "\"2T\"", "volume ssd has"),
            ("seconds = 1", "seconds = 0", "seconds are at least 1"),
            (
                "kind = \"jobs\"",
                "kind = \"random-read\"",
                "kind = \"jobs\"",
            ),
            (
                "name = \"large\"",
                "name = \"large\"\nrequests = 5",
                "requests",
            ),
        ] {
            let text = JOBS.replace("VOLUMES", &format!("volumes = [[], {BESIDE}]"));
            assert!(text.contains(from), "{from}");
            let error = Experiment::parse(&text.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(word), "{to}: {error}");
        }
    }

    #[test]
    fn something_real_is_run_beside_simulated_disks_and_skipped_with_the_reason() {
        let place = tempfile::tempdir().unwrap();
        let on = place.path().to_str().unwrap();
        let text = FILE_TEXT
            .replace(
                "[setup]",
                &format!("[setup]\non = [\"\", \"{on}\", \"/nowhere\"]"),
            )
            .replace("requests = 20", "requests = 20\nrange_bytes = \"1M\"");
        let experiment = Experiment::parse(&text).unwrap();
        assert_eq!(experiment.runs.len(), (3 + 1 + 1) * 2 * 2);
        let folder = tempfile::tempdir().unwrap();
        experiment
            .run_in(folder.path(), &clock, |_, _| true)
            .unwrap();
        let results = read_results(folder.path()).unwrap();
        for result in &results {
            let is_missing = result.setup.on == "/nowhere";
            assert_eq!(result.figures.is_empty(), is_missing, "{result:?}");
            assert_eq!(
                result.skipped.contains("/nowhere: "),
                is_missing,
                "{result:?}"
            );
        }
        assert_eq!(std::fs::read_dir(on).unwrap().count(), 0, "cleaned up");

        // What would be written to is named, or nothing runs at all.
        let file = place.path().join("disk");
        std::fs::write(&file, [7; 4096]).unwrap();
        let name = file.to_str().unwrap();
        let writes = text
            .replace("/nowhere", name)
            .replace("random-read", "random-write");
        let refused = Experiment::parse(&writes).unwrap_err();
        assert!(matches!(refused, LabError::WouldDestroy(_)), "{refused}");
        let named = writes.replace("[setup]", &format!("[setup]\ndestroy = \"{name}\""));
        assert!(Experiment::parse(&named).is_ok());
    }

    #[test]
    fn an_arrangement_that_fails_is_named_with_the_reason_and_the_others_go_on() {
        let setup = Setup::default();
        for failed in [
            LabError::MemberLost("disk1 left".to_owned()),
            LabError::Io("disk1 left".to_owned()),
        ] {
            let (seen, reason) = or_skipped(&setup, Err(failed)).unwrap();
            assert!(seen.figures.is_empty());
            assert!(
                reason.contains("RAID-10 of 4") && reason.contains("disk1 left"),
                "{reason}"
            );
        }
        // Something real may be mended, and is then run again.
        let real = Setup {
            on: "/dev/sdx".to_owned(),
            ..Setup::default()
        };
        assert!(or_skipped(&real, Err(LabError::Io("gone".to_owned()))).is_err());
        assert!(or_skipped(&setup, Err(LabError::Interrupted)).is_err());
    }

    #[test]
    fn an_interrupted_experiment_goes_on_where_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(FILE_TEXT).unwrap();
        experiment
            .run_in(folder.path(), &clock, |done, _| done < 5)
            .unwrap();
        let path = folder.path().join(RESULTS);
        assert_eq!(read_results(folder.path()).unwrap().len(), 5);
        let half: String = std::fs::read_to_string(&path).unwrap() + "{\"setup\":";
        std::fs::write(&path, half).unwrap();
        experiment
            .run_in(folder.path(), &clock, |_, _| true)
            .unwrap();
        let all = read_results(folder.path()).unwrap();
        assert_eq!(all.len(), 12);
        let whole = tempfile::tempdir().unwrap();
        experiment
            .run_in(whole.path(), &clock, |_, _| true)
            .unwrap();
        let figures = |results: Vec<RunResult>| -> Vec<String> {
            results
                .iter()
                .map(|result| format!("{:?}", result.figures))
                .collect()
        };
        assert_eq!(figures(all), figures(read_results(whole.path()).unwrap()));
        let other = Experiment::parse(&FILE_TEXT.replace("20", "21")).unwrap();
        assert!(other.run_in(whole.path(), &clock, |_, _| true).is_err());
    }
}
