//! `cargo xtask nightly`: what takes minutes to hours, so that no commit waits for it. Each step is a word of its own
//! somewhere else; here they stand one after another, each with its duration.

use std::path::Path;
use std::time::Instant;

use crate::ci;

/// A step.
struct Step {
    name: &'static str,
    /// Words of cargo.
    words: &'static [&'static str],
    /// What it finds in its environment.
    environment: &'static [(&'static str, &'static str)],
}

/// The shortest first, so that what fails at once is known at once.
const STEPS: &[Step] = &[
    Step {
        name: "daemon",
        words: &["xtask", "bench", "daemon"],
        environment: &[],
    },
    Step {
        name: "debian-12",
        words: &[
            "test",
            "--locked",
            "-p",
            "plexum-cli",
            "--test",
            "system",
            "debian_12",
            "--",
            "--ignored",
        ],
        environment: &[],
    },
    Step {
        name: "debian-13",
        words: &[
            "test",
            "--locked",
            "-p",
            "plexum-cli",
            "--test",
            "system",
            "debian_13",
            "--",
            "--ignored",
        ],
        environment: &[],
    },
    Step {
        name: "fuzz",
        words: &["xtask", "fuzz", "--seconds", "60"],
        environment: &[],
    },
    Step {
        name: "guest",
        words: &["xtask", "suite", "cli/tests/guest"],
        environment: &[("PLEXUM_KILLS", "50"), ("PLEXUM_GUEST_S", "3600")],
    },
    Step {
        name: "machine",
        words: &["xtask", "suite", "cli/tests/machine"],
        environment: &[("PLEXUM_KILLS", "50"), ("PLEXUM_GUEST_S", "3600")],
    },
    Step {
        name: "hunt",
        words: &["xtask", "hunt"],
        environment: &[],
    },
    Step {
        name: "seeds",
        words: &["xtask", "fresh", "60"],
        environment: &[],
    },
    Step {
        name: "kill",
        words: &["xtask", "kill", "--kills", "300", "--cuts", "100"],
        environment: &[],
    },
    Step {
        name: "openzfs",
        words: &[
            "test",
            "--locked",
            "-p",
            "plexum-pool",
            "--test",
            "openzfs_and_plexum_take_turns",
            "--",
            "--ignored",
        ],
        environment: &[("PLEXUM_ZFS_ROUNDS", "200")],
    },
];

/// Runs all steps, or those that are named, also after one that failed.
///
/// # Errors
/// Which steps failed; a name that no step has.
pub fn run(root: &Path, names: &[&str]) -> Result<(), String> {
    let steps = chosen(names)?;
    let mut table = String::new();
    let mut failed = Vec::new();
    for step in steps {
        println!("== {}", step.name);
        let began = Instant::now();
        let outcome = ci::cargo_with(root, step.words, step.environment);
        let seconds = began.elapsed().as_secs_f64();
        let mark = if outcome.is_ok() { "ok" } else { "FAILED" };
        table.push_str(&format!("{:<12} {seconds:>8.1} s  {mark}\n", step.name));
        failed.extend(outcome.err().map(|error| format!("{}: {error}", step.name)));
    }
    println!("\n{table}");
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("these steps failed:\n  {}", failed.join("\n  "))),
    }
}

fn chosen(names: &[&str]) -> Result<Vec<&'static Step>, String> {
    if names.is_empty() {
        return Ok(STEPS.iter().collect());
    }
    let find = |name: &&str| {
        let known = STEPS.iter().map(|step| step.name);
        let known: Vec<&str> = known.collect();
        let step = STEPS.iter().find(|step| step.name == *name);
        step.ok_or_else(|| format!("no such step: {name}; there are {}", known.join(", ")))
    };
    names.iter().map(find).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_run_or_those_that_are_named_and_no_others() {
        let names = |words: &[&str]| -> Result<Vec<&str>, String> {
            Ok(chosen(words)?.iter().map(|step| step.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), STEPS.len());
        assert_eq!(names(&["fuzz", "daemon"]).unwrap(), ["fuzz", "daemon"]);
        assert!(names(&["fuz"]).unwrap_err().contains("there are daemon"));
    }
}
