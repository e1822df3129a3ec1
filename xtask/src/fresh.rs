//! `cargo xtask fresh MINUTES`: seeds that no run has met before, on every processor, for so long. What one of them
//! finds comes back with its number: `plexum sim --seed N --trace`.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::ci;

/// Each processor spends so much of the time, in parts of the whole, on arrays of a kind.
const KINDS: [(&str, f64); 5] = [
    ("all", 0.55),
    ("reshape", 0.15),
    ("pool", 0.15),
    ("gmirror", 0.075),
    ("gvinum", 0.075),
];

/// More seeds than any processor gets through.
const SEEDS_MAX: u64 = 10_000_000;

/// Runs fresh seeds.
///
/// # Errors
/// A seed has a finding, or nothing could be run.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let minutes: f64 = match arguments {
        [minutes] => minutes
            .parse()
            .map_err(|_| format!("no number of minutes: {minutes}"))?,
        _ => return Err("cargo xtask fresh MINUTES".to_owned()),
    };
    // As the tests build it: nothing is compiled again after them, and what is asserted for tests is asserted here too.
    let build = ["build", "--workspace", "--locked", "--example", "seeds"];
    ci::cargo(root, &build)?;
    let seeds = ci::target(root).join("debug/examples/seeds");
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut first = now.map_err(|error| error.to_string())?.as_secs() * 1_000_000_000;
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut has_findings = false;
    for (kind, part) in KINDS {
        let mut running = Vec::new();
        for _ in 0..processors {
            running.push(start(&seeds, kind, first, minutes * part)?);
            first += SEEDS_MAX;
        }
        for mut child in running {
            let status = child.wait().map_err(|error| format!("seeds: {error}"))?;
            has_findings |= !status.success();
        }
    }
    match has_findings {
        true => Err("fresh seeds have findings, see above".to_owned()),
        false => Ok(()),
    }
}

fn start(seeds: &Path, kind: &str, first: u64, minutes: f64) -> Result<Child, String> {
    let mut command = Command::new(seeds);
    command.args([&first.to_string(), &SEEDS_MAX.to_string(), kind]);
    command.arg(format!("minutes={minutes}"));
    command
        .spawn()
        .map_err(|error| format!("{}: {error}", seeds.display()))
}
