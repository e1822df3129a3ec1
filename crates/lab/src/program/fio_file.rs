//! What fio wrote by itself (`--output-format=json`), as one more result beside those of an experiment.
//!
//! Invariants:
//! - clones and jobs of one group count together, whether fio was told to report them so or not;
//! - what fio did not measure is not made up: several jobs have no percentiles together.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::fio::{self, Seen};
use super::unread;
use crate::error::LabError;
use crate::experiment::RunResult;
use crate::inside::Inside;
use crate::setup::Setup;
use crate::stats::LatencySummary;
use crate::work::{Figure, Work};
use crate::workload::fio as jobs;

/// Reads a file of fio's. Where a result in `beside` is of the same jobs, the two are compared.
///
/// # Errors
/// `Io` when it cannot be read, is none of fio's, or a job of it failed.
pub fn read(path: &Path, beside: &[RunResult]) -> Result<RunResult, LabError> {
    let told = |what: String| LabError::Io(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| told(error.to_string()))?;
    let (seen, percentiles) = seen(&text).map_err(|error| told(error.to_string()))?;
    let like = beside.iter().find(|one| is_like(one, &seen.figures));
    let names = seen.figures.iter().filter_map(|figure| parts(&figure.name));
    let mut names: Vec<&str> = names.map(|(group, _)| group).collect();
    names.dedup();
    let work = match like {
        Some(like) => like.work.clone(),
        None => Work {
            kind: "fio".to_owned(),
            file: names.join(", "),
            ..Work::default()
        },
    };
    let figures = match like {
        None => seen.figures,
        Some(like) => in_the_order_of(&like.figures, seen.figures),
    };
    let [reads, writes] = seen.latencies.map(|one| known(&one));
    let [read_shares, write_shares] = percentiles;
    Ok(RunResult {
        setup: Setup {
            on: format!("fio: {}", path.display()),
            ..Setup::default()
        },
        work,
        seed: 0,
        figures,
        skipped: String::new(),
        reads,
        writes,
        members: Value::Null,
        volumes: Vec::new(),
        inside: Inside {
            reads: read_shares,
            writes: write_shares,
            ..Inside::default()
        },
        real_s: seen.elapsed_s,
    })
}

/// Points of a distribution: (microseconds, percent that took at most so long).
type Shares = Vec<(f64, f64)>;

fn seen(text: &str) -> Result<(Seen, [Shares; 2]), LabError> {
    let (object, _) = fio::object_of(text)?;
    let jobs = object["jobs"].as_array().map(Vec::as_slice);
    let jobs = jobs.unwrap_or_default();
    if jobs.is_empty() {
        return Err(unread("fio", "it has no jobs"));
    }
    let groups = together(jobs);
    let names: Vec<String> = groups
        .iter()
        .map(|group| name_of(group).to_owned())
        .collect();
    let shares = match groups.as_slice() {
        [only] => ["read", "write"].map(|word| percentiles(&only[word])),
        _ => Default::default(),
    };
    Ok((fio::figures_of(&groups, &names)?, shares))
}

fn name_of(job: &Value) -> &str {
    job["jobname"].as_str().unwrap_or("job")
}

/// Jobs by their group, each group as one job.
fn together(jobs: &[Value]) -> Vec<Value> {
    let mut groups: Vec<Vec<&Value>> = Vec::new();
    for job in jobs {
        let found = groups
            .iter_mut()
            .find(|group| group[0]["groupid"] == job["groupid"]);
        match found {
            Some(group) => group.push(job),
            None => groups.push(vec![job]),
        }
    }
    groups.iter().map(|group| as_one(group)).collect()
}

/// The jobs of a group: rates are added, the longest time counts.
fn as_one(group: &[&Value]) -> Value {
    if let [only] = group {
        return (*only).clone();
    }
    let name = jobs::group_name(group.iter().map(|job| name_of(job)));
    let errors = group.iter().map(|job| &job["error"]);
    let mut one = Map::new();
    one.insert("jobname".into(), name.into());
    let error = errors.clone().find(|error| error.as_u64() != Some(0));
    one.insert("error".into(), error.unwrap_or(&json!(0)).clone());
    for word in ["read", "write"] {
        let numbers =
            |key: &'static str| group.iter().filter_map(move |job| job[word][key].as_f64());
        let sum = |key| numbers(key).sum::<f64>();
        let count: u64 = group
            .iter()
            .filter_map(|job| job[word]["total_ios"].as_u64())
            .sum();
        let longest = numbers("runtime").fold(0.0, f64::max);
        let part =
            json!({"total_ios": count, "bw": sum("bw"), "iops": sum("iops"), "runtime": longest});
        one.insert(word.into(), part);
    }
    Value::Object(one)
}

/// The distribution as far as fio tells it.
fn percentiles(part: &Value) -> Shares {
    let Some(all) = part["clat_ns"]["percentile"].as_object() else {
        return Vec::new();
    };
    let point =
        |(percent, ns): (&String, &Value)| Some((ns.as_f64()? / 1e3, percent.parse().ok()?));
    let mut shares: Shares = all.iter().filter_map(point).collect();
    shares.retain(|(us, _)| *us > 0.0);
    shares.sort_by(|one, other| one.1.total_cmp(&other.1));
    shares
}

/// Latencies, where they were told.
fn known(latency: &LatencySummary) -> Value {
    match latency.mean_us > 0.0 {
        true => json!(latency),
        false => Value::Null,
    }
}

/// Group and kind of a figure, as in `a+b reads`.
fn parts(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once(' ')
}

/// Whether two figures are of the same group and kind. A group is called after all its jobs; fio may have named the
/// first one alone.
fn is_same(one: &Figure, other: &Figure) -> bool {
    let (Some(one), Some(other)) = (parts(&one.name), parts(&other.name)) else {
        return false;
    };
    let first = |group: &str| group.split('+').next().map(str::to_owned);
    one.1 == other.1 && first(one.0) == first(other.0)
}

/// Whether a result is of the same jobs: fio has all its figures, and perhaps more.
fn is_like(result: &RunResult, figures: &[Figure]) -> bool {
    let is_there = |theirs: &Figure| figures.iter().any(|own| is_same(theirs, own));
    result.work.kind == "fio" && !result.figures.is_empty() && result.figures.iter().all(is_there)
}

/// What `theirs` has comes first, in its order and by its names.
fn in_the_order_of(theirs: &[Figure], mut own: Vec<Figure>) -> Vec<Figure> {
    let mut ordered = Vec::new();
    for like in theirs {
        if let Some(at) = own.iter().position(|figure| is_same(like, figure)) {
            let figure = own.remove(at);
            ordered.push(Figure {
                name: like.name.clone(),
                ..figure
            });
        }
    }
    ordered.extend(own);
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = include_str!("../../../../fixtures/lab/programs/fio.txt");

    fn job(name: &str, group: u64, iops: f64) -> Value {
        let part = json!({"total_ios": 10, "bw": iops * 4.0, "iops": iops, "runtime": 2000,
            "lat_ns": {"mean": 5000.0, "max": 9000},
            "clat_ns": {"percentile": {"50.000000": 4000, "99.000000": 8000}}});
        json!({"jobname": name, "groupid": group, "error": 0, "read": part, "write": {"total_ios": 0}})
    }

    fn read_text(text: &str, beside: &[RunResult]) -> Result<RunResult, LabError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.json");
        std::fs::write(&path, text).unwrap();
        read(&path, beside)
    }

    #[test]
    fn clones_and_jobs_of_a_group_count_together() {
        let jobs = [
            job("a", 0, 100.0),
            job("a", 0, 50.0),
            job("b", 0, 7.0),
            job("a", 0, 3.0),
            job("c", 1, 1.0),
        ];
        let result = read_text(&json!({"jobs": jobs}).to_string(), &[]).unwrap();
        let figures: Vec<(&str, f64)> = result
            .figures
            .iter()
            .map(|one| (one.name.as_str(), one.value))
            .collect();
        let expected = [
            ("a+b read", 640.0),
            ("a+b reads", 160.0),
            ("c read", 4.0),
            ("c reads", 1.0),
        ];
        assert_eq!(figures, expected);
        assert_eq!((result.work.file.as_str(), result.real_s), ("a+b, c", 4.0));
        assert!(
            result.reads.is_null(),
            "several jobs have no percentiles together"
        );
        let one = read_text(&json!({"jobs": [job("a", 0, 100.0)]}).to_string(), &[]).unwrap();
        assert_eq!(one.inside.reads, [(4.0, 50.0), (8.0, 99.0)]);
        assert_eq!(one.reads["p99_us"], 8.0);
    }

    #[test]
    fn a_file_is_read_with_or_without_what_fio_says_around_it() {
        let result = read_text(PRINTED, &[]).unwrap();
        assert_eq!(result.figures.len(), 6);
        let mut simulated = result.clone();
        simulated.setup = Setup::default();
        simulated.work.file = "jobs.fio".to_owned();
        simulated.figures[0].name = "a+other read".to_owned();
        let beside = read_text(PRINTED, &[simulated.clone()]).unwrap();
        assert_eq!(beside.work, simulated.work, "they are compared");
        assert_eq!(beside.figures[0].name, "a+other read");
        assert_eq!(beside.figures[0].value, result.figures[0].value);
    }

    #[test]
    fn what_is_no_answer_of_fio_is_refused_by_name() {
        let failed = json!({"jobs": [{"jobname": "a", "groupid": 0, "error": 5}]}).to_string();
        for text in ["", "{}", "[1]", "no", "{\n\"jobs\": []\n}", &failed] {
            let error = read_text(text, &[]).unwrap_err().to_string();
            assert!(
                error.contains("out.json") && error.contains("fio"),
                "{error}"
            );
        }
    }
}
