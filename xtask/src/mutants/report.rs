//! What became of each mutant: kept in a file, one line each, and told as a table.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::list::Mutant;

/// What became of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// A test failed.
    Caught,
    /// A test did not end.
    TimedOut,
    /// All tests that reach it passed.
    Survived,
    /// No test reaches it.
    Unreached,
    /// It does not compile, or cannot be chosen at run time.
    NotWoven,
}

impl Outcome {
    const ALL: [Outcome; 5] = [
        Outcome::Caught,
        Outcome::TimedOut,
        Outcome::Survived,
        Outcome::Unreached,
        Outcome::NotWoven,
    ];

    fn word(self) -> &'static str {
        match self {
            Outcome::Caught => "caught",
            Outcome::TimedOut => "timed out",
            Outcome::Survived => "survived",
            Outcome::Unreached => "unreached",
            Outcome::NotWoven => "not woven",
        }
    }

    /// Whether a test has seen it.
    pub fn is_caught(self) -> bool {
        matches!(self, Outcome::Caught | Outcome::TimedOut)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.word())
    }
}

/// What becomes of results that are there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// They count.
    Kept,
    /// All begins anew.
    Removed,
}

/// The results of all runs; the last one counts.
pub struct Results {
    path: PathBuf,
    by_name: BTreeMap<String, (Outcome, String)>,
}

impl Results {
    /// Reads the results below `place`, or begins anew.
    ///
    /// # Errors
    /// When the old ones cannot be removed.
    pub fn open(place: &Path, before: Before) -> Result<Results, String> {
        let path = place.join("results.jsonl");
        if before == Before::Removed && path.exists() {
            std::fs::remove_file(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut by_name = BTreeMap::new();
        for line in std::fs::read_to_string(&path).unwrap_or_default().lines() {
            let Ok(value) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
            let outcome = Outcome::ALL
                .into_iter()
                .find(|known| known.word() == text("outcome"));
            if let Some(outcome) = outcome {
                by_name.insert(text("name"), (outcome, text("by")));
            }
        }
        Ok(Results { path, by_name })
    }

    /// Notes what became of a mutant.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn put(&mut self, mutant: &Mutant, outcome: Outcome, by: &str) -> Result<(), String> {
        let now = (outcome, by.to_owned());
        if self.by_name.get(&mutant.name) == Some(&now) {
            return Ok(());
        }
        let line = json!({ "name": mutant.name, "outcome": outcome.word(), "by": by });
        let fail = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let mut options = std::fs::OpenOptions::new();
        let mut file = options
            .append(true)
            .create(true)
            .open(&self.path)
            .map_err(fail)?;
        writeln!(file, "{line}").map_err(fail)?;
        self.by_name.insert(mutant.name.clone(), now);
        Ok(())
    }

    /// The test that has caught it.
    pub fn catcher(&self, mutant: &Mutant) -> Option<&str> {
        let (outcome, by) = self.by_name.get(&mutant.name)?;
        outcome.is_caught().then_some(by)
    }

    /// The numbers of those that are known not to compile, with the reason.
    pub fn dropped(&self, mutants: &[Mutant]) -> BTreeMap<u32, String> {
        (1..)
            .zip(mutants)
            .filter_map(|(number, mutant)| match self.by_name.get(&mutant.name) {
                Some((Outcome::NotWoven, reason)) => Some((number, reason.clone())),
                _ => None,
            })
            .collect()
    }

    /// A table by file, who caught them, and a line for each that nobody caught.
    pub fn report(&self, mutants: &[Mutant]) -> String {
        let mut by_file: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
        let mut by_stage: BTreeMap<&str, usize> = BTreeMap::new();
        let mut rest = String::new();
        for mutant in mutants {
            let Some((outcome, by)) = self.by_name.get(&mutant.name) else {
                continue;
            };
            let counts = by_file.entry(mutant.file.as_str()).or_default();
            counts[*outcome as usize] += 1;
            if outcome.is_caught() {
                let stage = by.split(": ").next().unwrap_or_default();
                *by_stage.entry(stage).or_default() += 1;
            } else {
                // Writing into a string does not fail.
                let _ = writeln!(rest, "{outcome:<9} {} {by}", mutant.name);
            }
        }
        let mut text = rest;
        let mut sum = [0; 5];
        for (file, counts) in &by_file {
            text.push_str(&row(file, counts));
            for (all, count) in sum.iter_mut().zip(counts) {
                *all += count;
            }
        }
        text.push_str(&row("all", &sum));
        for (stage, count) in by_stage {
            let _ = writeln!(text, "{count:>6} by {stage}");
        }
        text
    }
}

fn row(name: &str, counts: &[usize; 5]) -> String {
    let mut text = format!("{name:<50}");
    for (outcome, count) in Outcome::ALL.iter().zip(counts) {
        let _ = write!(text, " {count:>5} {outcome}");
    }
    let viable = counts[..4].iter().sum::<usize>();
    let caught = counts[0] + counts[1];
    if viable > 0 {
        let _ = write!(text, "  {:.1} %", 100.0 * caught as f64 / viable as f64);
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::list::parse;

    #[test]
    fn results_outlive_the_run_and_the_last_one_counts() {
        let list = r#"[{"file": "a.rs", "genre": "UnaryOperator", "name": "a.rs:1:2: delete !",
            "span": {"start": {"line": 1, "column": 2}}}]"#;
        let mutants = parse(list).expect("the list is well-formed");
        let place = std::env::temp_dir().join(format!("mutants-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("a folder can be made");
        let mut results = Results::open(&place, Before::Removed).expect("nothing is there");
        let mut put = |outcome, by| {
            results
                .put(&mutants[0], outcome, by)
                .expect("it is written")
        };
        put(Outcome::Survived, "");
        put(Outcome::Caught, "unit tests: engine: it_is_so");
        let results = Results::open(&place, Before::Kept).expect("it is read");
        let catcher = results.catcher(&mutants[0]);
        assert_eq!(catcher, Some("unit tests: engine: it_is_so"));
        let report = results.report(&mutants);
        assert!(report.contains("100.0 %"), "{report}");
        assert!(report.contains("1 by unit tests"), "{report}");
        std::fs::remove_dir_all(&place).expect("the folder is removed");
    }
}
