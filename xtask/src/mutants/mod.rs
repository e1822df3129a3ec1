//! `cargo xtask mutants`: every mutant that cargo-mutants knows of, with one build instead of a thousand.
//!
//! All mutants of the chosen files are woven into one copy of the sources, where a number from the environment chooses
//! which of them runs (`weave.rs`). Each test is run once without a mutant to see which mutants it reaches; then each
//! mutant meets the tests that reach it, the quick ones first, until one fails. What the compiler does not take is told
//! apart and listed. Results are kept, so that a run can be stopped, and goes on with what was not caught yet.
//! `--again` tries what was caught instead, by the test that caught it first; `--tests` lets survivors meet only tests
//! with this word in their names.

mod build;
mod list;
mod report;
mod sites;
mod units;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use build::Copy;
use list::Mutant;
use report::{Before, Outcome, Results};
use units::{End, Unit};

/// State and intent: what the requirement is about, with the formats, which are asked for by their folders
/// (`crates/md/src`, `crates/freebsd/src`).
const FILES: [&str; 2] = ["crates/engine/src/array", "crates/engine/src/intent"];

/// The packages whose tests are run, besides the one with the mutants.
const TESTED_BY: [&str; 2] = ["plexum-engine", "plexum-sim"];

/// Seeds of the simulator that a mutant meets, unless told otherwise.
const SEEDS: u64 = 200;

/// A test that takes this many times longer than without a mutant hangs; never less than some seconds.
const TIME_OUT_FACTOR: u32 = 10;
const TIME_OUT_MIN: Duration = Duration::from_secs(3);

/// Tests that take longer than this without a mutant are left out, and told.
const COST_MAX: Duration = Duration::from_secs(20);

struct Arguments {
    files: Vec<String>,
    seeds: u64,
    is_fresh: bool,
    is_again: bool,
    /// Words in the names of the tests that are run; none: all tests.
    tests: Vec<String>,
    is_report: bool,
}

/// Runs `cargo xtask mutants [FILE or FOLDER]... [--seeds N] [--fresh] [--again] [--tests WORD] [--report]`.
///
/// # Errors
/// A sentence when something other than a mutant fails.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let arguments = arguments(words)?;
    let place = place(root);
    std::fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    let folder = folder_of(&arguments.files)?;
    let package = package_in(&folder);
    let mutants = list::ask(root, &package, &arguments.files)?;
    let before = match arguments.is_fresh {
        true => Before::Removed,
        false => Before::Kept,
    };
    let mut results = Results::open(&place, before)?;
    if arguments.is_report {
        print!("{}", results.report(&mutants));
        return Ok(());
    }
    println!("{} mutants", mutants.len());
    let mut copy = Copy::new(root, &place, &folder, &mutants)?;
    let mut dropped = results.dropped(&mutants);
    copy.settle(&package, &mutants, &mut dropped)?;
    for (number, mutant) in (1..).zip(&mutants) {
        if let Some(reason) = dropped.get(&number) {
            results.put(mutant, Outcome::NotWoven, reason)?;
        }
    }
    println!("{} are woven in", mutants.len() - dropped.len());
    let programs = copy.programs(&tested_by(&package))?;
    let mut units = units::all(&programs, arguments.seeds)?;
    let is_wanted = |unit: &Unit| arguments.tests.iter().any(|word| unit.name.contains(word));
    units.retain(|unit| arguments.tests.is_empty() || is_wanted(unit));
    let mut field = Field::new(&place, units)?;
    field.baseline(mutants.len())?;
    let mut woven: Vec<(u32, &Mutant)> = (1..)
        .zip(&mutants)
        .filter(|(number, _)| !dropped.contains_key(number))
        .collect();
    // In the order in which files were asked for.
    woven.sort_by_key(|(_, mutant)| {
        let begins = |file: &String| mutant.file.starts_with(file.as_str());
        arguments.files.iter().position(begins)
    });
    woven.retain(|(_, mutant)| results.catcher(mutant).is_some() == arguments.is_again);
    field.meet(&woven, &mut results, arguments.tests.is_empty())?;
    print!("{}", results.report(&mutants));
    Ok(())
}

fn arguments(words: &[&str]) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        files: Vec::new(),
        seeds: SEEDS,
        is_fresh: false,
        is_again: false,
        tests: Vec::new(),
        is_report: false,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match *word {
            "--fresh" => arguments.is_fresh = true,
            "--again" => arguments.is_again = true,
            "--report" => arguments.is_report = true,
            "--tests" => {
                let word = words.next().ok_or("--tests wants a word")?;
                arguments.tests.push((*word).to_owned());
            }
            "--seeds" => {
                let number = words.next().and_then(|word| word.parse().ok());
                arguments.seeds = number.ok_or("--seeds wants a number")?;
            }
            word if word.starts_with("--") => return Err(format!("no such option: {word}")),
            file => arguments.files.push(file.trim_end_matches('/').to_owned()),
        }
    }
    if arguments.files.is_empty() {
        arguments.files = FILES.map(str::to_owned).to_vec();
    }
    Ok(arguments)
}

/// The folder of the one crate that all these files are in: mutants are woven into one crate at a time.
fn folder_of(files: &[String]) -> Result<String, String> {
    let folder = |file: &String| {
        let mut parts = file.split('/');
        match (parts.next(), parts.next()) {
            (Some("crates"), Some(name)) if !name.is_empty() => Ok(format!("crates/{name}")),
            _ => Err(format!("{file}: not in a crate; name crates/NAME/...")),
        }
    };
    let first = files.first().ok_or("no files")?;
    let first = folder(first)?;
    for file in files {
        let other = folder(file)?;
        if other != first {
            return Err(format!(
                "{other} and {first}: mutants of one crate at a time"
            ));
        }
    }
    Ok(first)
}

/// The package in a folder of a crate.
fn package_in(folder: &str) -> String {
    folder.replace("crates/", "plexum-")
}

/// The packages whose tests meet mutants of `package`, each once.
fn tested_by(package: &str) -> Vec<&str> {
    let others = TESTED_BY.into_iter().filter(|other| *other != package);
    std::iter::once(package).chain(others).collect()
}

/// Where the copy, its build and the results are.
fn place(root: &Path) -> PathBuf {
    crate::ci::target(root).join("mutants")
}

/// The tests, and which mutants each of them reaches.
struct Field {
    place: PathBuf,
    units: Vec<Unit>,
    /// For each mutant, the units that reach it.
    reached_by: Vec<Vec<usize>>,
    /// For each function, the units that caught a mutant of it, the last one first.
    catchers: BTreeMap<(String, String), Vec<usize>>,
}

impl Field {
    fn new(place: &Path, units: Vec<Unit>) -> Result<Field, String> {
        let field = Field {
            place: place.to_owned(),
            units,
            reached_by: Vec::new(),
            catchers: BTreeMap::new(),
        };
        field.clear_scratch()?;
        Ok(field)
    }

    fn scratch(&self) -> PathBuf {
        self.place.join("scratch")
    }

    /// Tests that were killed leave files.
    fn clear_scratch(&self) -> Result<(), String> {
        let scratch = self.scratch();
        // The first time there is none.
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))
    }

    /// Runs every unit without a mutant: what fails says nothing, and what reaches a mutant is noted.
    fn baseline(&mut self, mutants: usize) -> Result<(), String> {
        self.reached_by = vec![Vec::new(); mutants + 1];
        let record = self.place.join("reached.txt");
        let began = Instant::now();
        for (index, unit) in self.units.iter_mut().enumerate() {
            // There is none before the first.
            let _ = std::fs::remove_file(&record);
            let started = Instant::now();
            let end = unit.run(0, Some(&record), COST_MAX, &self.place.join("scratch"))?;
            unit.cost = started.elapsed();
            if end != End::Passed {
                println!("left out, {end:?} without a mutant: {}", unit.name);
                continue;
            }
            let reached = std::fs::read_to_string(&record).unwrap_or_default();
            for number in reached
                .lines()
                .filter_map(|line| line.trim().parse::<usize>().ok())
            {
                self.reached_by[number].push(index);
            }
        }
        println!("{} tests in {:.0?}", self.units.len(), began.elapsed());
        for units in &mut self.reached_by {
            units.sort_by_key(|unit| self.units[*unit].cost);
        }
        Ok(())
    }

    /// Lets each mutant meet its tests. Not `has_all` of them: only what they catch is news.
    fn meet(
        &mut self,
        mutants: &[(u32, &Mutant)],
        results: &mut Results,
        has_all: bool,
    ) -> Result<(), String> {
        for &(number, mutant) in mutants {
            let catcher = results.catcher(mutant).and_then(|by| self.unit(by));
            let began = Instant::now();
            let (outcome, by) = self.judge(number, mutant, catcher)?;
            if has_all || outcome.is_caught() {
                results.put(mutant, outcome, &by)?;
            }
            let seconds = began.elapsed().as_secs_f32();
            println!("{seconds:>6.1} s {outcome}: {}; {by}", mutant.name);
        }
        self.clear_scratch()
    }

    /// The unit of this name, as results have it.
    fn unit(&self, name: &str) -> Option<usize> {
        let is_it = |unit: &Unit| unit.full_name() == name;
        self.units.iter().position(is_it)
    }

    fn judge(
        &mut self,
        number: u32,
        mutant: &Mutant,
        catcher: Option<usize>,
    ) -> Result<(Outcome, String), String> {
        let key = (mutant.file.clone(), mutant.function.clone());
        let reaching = &self.reached_by[number as usize];
        if reaching.is_empty() {
            return Ok((Outcome::Unreached, String::new()));
        }
        // Who caught a neighbour catches this one as well, often.
        let mut order: Vec<usize> = catcher.into_iter().collect();
        let neighbours = self.catchers.get(&key).into_iter().flatten();
        order.extend(neighbours.filter(|unit| Some(**unit) != catcher));
        order.retain(|unit| reaching.contains(unit));
        order.truncate(4);
        let first: BTreeSet<usize> = order.iter().copied().collect();
        order.extend(reaching.iter().filter(|unit| !first.contains(unit)));
        for index in order {
            let unit = &self.units[index];
            let time_out = (unit.cost * TIME_OUT_FACTOR).max(TIME_OUT_MIN);
            let end = unit.run(number, None, time_out, &self.scratch())?;
            if end == End::Passed {
                continue;
            }
            let outcome = if end == End::TimedOut {
                self.clear_scratch()?;
                Outcome::TimedOut
            } else {
                Outcome::Caught
            };
            let by = unit.full_name();
            let catchers = self.catchers.entry(key).or_default();
            catchers.retain(|catcher| *catcher != index);
            catchers.insert(0, index);
            return Ok((outcome, by));
        }
        Ok((Outcome::Survived, String::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_of_any_one_crate_and_meet_its_tests_the_engine_s_and_the_simulator_s() {
        let folder = |files: &[&str]| {
            let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
            folder_of(&files)
        };
        let md = folder(&["crates/md/src/open.rs", "crates/md/src/assemble"]).expect("one crate");
        assert_eq!(
            (md.as_str(), package_in(&md).as_str()),
            ("crates/md", "plexum-md")
        );
        assert_eq!(
            tested_by("plexum-md"),
            ["plexum-md", "plexum-engine", "plexum-sim"]
        );
        assert_eq!(tested_by("plexum-engine"), ["plexum-engine", "plexum-sim"]);
        assert!(folder(&["crates/md/src", "crates/engine/src/array"]).is_err());
        assert!(folder(&["docs/words.md"]).is_err());
        assert_eq!(folder(&FILES).as_deref(), Ok("crates/engine"));
    }
}
