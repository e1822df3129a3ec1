//! `cargo xtask nightly`: what takes minutes to hours, so that no commit waits for it. Each step is a word of its own
//! somewhere else; here they stand one after another, each with its duration.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::ci;

/// A step.
struct Step {
    name: &'static str,
    /// Words of cargo.
    words: Vec<&'static str>,
    /// What it finds in its environment.
    environment: &'static [(&'static str, &'static str)],
}

/// What servers of guests find: how often they are killed, and how long that may take.
const GUESTS: &[(&str, &str)] = &[("PLEXUM_KILLS", "50"), ("PLEXUM_GUEST_S", "3600")];

/// What a whole Debian has beside the usual, as `cli/tests/system` asks for it.
const PACKAGES: &str = "smartmontools,initramfs-tools";

/// The shortest first, so that what fails at once is known at once.
fn steps() -> Vec<Step> {
    vec![
        step("daemon", &["xtask", "bench", "daemon"]),
        ignored("debian-12", ["plexum-cli", "system"], &["debian_12"]),
        ignored("debian-13", ["plexum-cli", "system"], &["debian_13"]),
        step("fuzz", &["xtask", "fuzz", "--seconds", "60"]),
        with_ignored("kernel", ["plexum-cli", "kernel"]),
        Step {
            environment: GUESTS,
            ..with_ignored("guest", ["plexum-cli", "guest"])
        },
        Step {
            environment: GUESTS,
            ..step("machine", &["xtask", "suite", "cli/tests/machine"])
        },
        step("hunt", &["xtask", "hunt"]),
        step("seeds", &["xtask", "fresh", "60"]),
        step(
            "kill",
            &["xtask", "kill", "--kills", "300", "--cuts", "100"],
        ),
        Step {
            environment: &[("PLEXUM_ZFS_ROUNDS", "200")],
            ..ignored("openzfs", ["plexum-pool", "all"], &[])
        },
    ]
}

fn step(name: &'static str, words: &[&'static str]) -> Step {
    Step {
        name,
        words: words.to_vec(),
        environment: &[],
    }
}

/// All tests of a package's test program, those that CI leaves out among them.
fn with_ignored(name: &'static str, [package, program]: [&'static str; 2]) -> Step {
    let of = ["test", "--locked", "-p", package, "--test", program];
    step(
        name,
        &[&of, ["--", "--include-ignored"].as_slice()].concat(),
    )
}

/// The ignored tests of a package's test program, or those with a name.
fn ignored(
    name: &'static str,
    [package, program]: [&'static str; 2],
    names: &[&'static str],
) -> Step {
    let of = ["test", "--locked", "-p", package, "--test", program];
    let words = [&of, names, &["--", "--ignored"]].concat();
    step(name, &words)
}

/// Fetches what the steps find nowhere else: kernels and systems of guests, once, into a cache.
///
/// # Errors
/// It cannot be fetched.
fn fetch(root: &Path, steps: &[Step]) -> Result<(), String> {
    let releases = steps
        .iter()
        .filter_map(|step| step.name.strip_prefix("debian-"));
    let releases: Vec<&str> = releases.collect();
    // The guests' own kernel every test run has; this one is for what only newer ones can do.
    let newest = steps
        .iter()
        .any(|step| step.name == "guest")
        .then_some("bpo");
    let kernels: Vec<&str> = releases.iter().copied().chain(newest).collect();
    if kernels.is_empty() {
        return Ok(());
    }
    println!("== kernels and images of Debian {}", kernels.join(", "));
    oracle(root, &["install", "--kernels", &kernels.join(",")])?;
    releases.iter().try_for_each(|release| {
        oracle(
            root,
            &["image", "--kernel", release, "--packages", PACKAGES],
        )
    })
}

fn oracle(root: &Path, words: &[&str]) -> Result<(), String> {
    let status = Command::new(root.join("oracle/vm-oracle"))
        .args(words)
        .status()
        .map_err(|error| format!("oracle/vm-oracle: {error}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!(
            "oracle/vm-oracle {} ended with {status}",
            words.join(" ")
        )),
    }
}

/// Runs all steps, or those that are named, also after one that failed.
///
/// # Errors
/// Which steps failed; a name that no step has.
pub fn run(root: &Path, names: &[&str]) -> Result<(), String> {
    let steps = chosen(names)?;
    fetch(root, &steps)?;
    let mut table = String::new();
    let mut failed = Vec::new();
    for step in steps {
        println!("== {}", step.name);
        let began = Instant::now();
        let outcome = ci::cargo_with(root, &step.words, step.environment);
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

fn chosen(names: &[&str]) -> Result<Vec<Step>, String> {
    let mut steps = steps();
    if names.is_empty() {
        return Ok(steps);
    }
    let known: Vec<&str> = steps.iter().map(|step| step.name).collect();
    let known = known.join(", ");
    let take = |name: &&str| {
        let place = steps.iter().position(|step| step.name == *name);
        let place = place.ok_or_else(|| format!("no such step: {name}; there are {known}"))?;
        Ok(steps.remove(place))
    };
    names.iter().map(take).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_steps_are_run_or_those_that_are_named_and_no_others() {
        let names = |words: &[&str]| -> Result<Vec<&str>, String> {
            Ok(chosen(words)?.iter().map(|step| step.name).collect())
        };
        assert_eq!(names(&[]).unwrap().len(), steps().len());
        assert_eq!(names(&["fuzz", "daemon"]).unwrap(), ["fuzz", "daemon"]);
        let words = |name: &str| chosen(&[name]).unwrap().remove(0).words.join(" ");
        assert_eq!(
            words("debian-13"),
            "test --locked -p plexum-cli --test system debian_13 -- --ignored"
        );
        assert_eq!(
            words("guest"),
            "test --locked -p plexum-cli --test guest -- --include-ignored"
        );
        assert_eq!(
            words("openzfs"),
            "test --locked -p plexum-pool --test all -- --ignored"
        );
        assert!(names(&["fuz"]).unwrap_err().contains("there are daemon"));
    }
}
