//! `cargo xtask suite [WORD]...`: the test programs, some of them side by side, then the examples of the documentation.
//! Cargo runs one program after the other; most of ours wait for a booting kernel, a disk or a server now and then.
//!
//! Invariants:
//! - every program that cargo builds is run, and each fails by itself;
//! - a program's output is in one piece: all of it when it failed, its last lines else.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use serde_json::Value;

use crate::ci;

/// Programs that take long begin first, the longest in front: parts of their sources' paths.
const LONG_ONES: [&str; 14] = [
    "sim/tests/all",
    "cli/tests/kernel",
    "cli/tests/guest",
    "cli/tests/all",
    "pool/tests/all",
    "cli/tests/package",
    "lab/src",
    "cli/tests/kill",
    "lab/tests/published_tables",
    "cli/tests/field",
    "engine/tests/all",
    "format/tests/all",
    "xtask/src",
    "oracle/tests",
];

/// So many programs more than there are processors run at a time: some are always waiting.
const WAITING: usize = 1;

/// A test program.
struct Program {
    /// The package that it belongs to.
    package: String,
    /// Where its source begins, from the repository's root.
    source: String,
    /// The words after `cargo test -p PACKAGE` that run it alone.
    target: String,
    executable: PathBuf,
    /// Where it is started: the package's folder, as cargo does.
    folder: PathBuf,
}

/// How a program ended.
struct Ended {
    source: String,
    again: String,
    seconds: f64,
    outcome: Result<Output, String>,
}

impl Ended {
    fn is_ok(&self) -> bool {
        self.outcome
            .as_ref()
            .is_ok_and(|output| output.status.success())
    }
}

/// Builds and runs all test programs, those whose source has one of `words` in it.
///
/// # Errors
/// What could not be built, and how to run what failed again.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let mut programs = programs(root)?;
    programs.retain(|program| {
        words.is_empty() || words.iter().any(|word| program.source.contains(word))
    });
    let count = programs.len();
    if count == 0 {
        return Err(format!(
            "no test program has one of these in its path: {}",
            words.join(" ")
        ));
    }
    programs.sort_by_key(|program| rank(&program.source));
    let ended = side_by_side(programs);
    let mut failed: Vec<String> = ended
        .iter()
        .filter(|ended| !ended.is_ok())
        .map(|ended| format!("  {}", ended.again))
        .collect();
    if words.is_empty() {
        let examples = ["test", "--workspace", "--locked", "--doc"];
        if ci::cargo(root, &examples).is_err() {
            failed.push(format!("  cargo {}", examples.join(" ")));
        }
    }
    let mut times: Vec<(f64, &str)> = ended
        .iter()
        .map(|ended| (ended.seconds, ended.source.as_str()))
        .collect();
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (seconds, source) in times.iter().take(12) {
        println!("{seconds:>8.1} s  {source}");
    }
    let ran = format!("{} of {count} programs ran", ended.len());
    println!("{ran}");
    if failed.is_empty() && ended.len() == count {
        return Ok(());
    }
    let failed = failed.join("\n");
    Err(format!("{ran}; to run what failed again:\n{failed}"))
}

/// Small numbers begin first.
fn rank(source: &str) -> usize {
    let place = LONG_ONES.iter().position(|part| source.contains(part));
    place.unwrap_or(LONG_ONES.len())
}

/// Runs each of them, some at a time.
fn side_by_side(programs: Vec<Program>) -> Vec<Ended> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(VecDeque::from(programs));
    let ended = Mutex::new(Vec::new());
    let next = || waiting.lock().ok()?.pop_front();
    std::thread::scope(|scope| {
        for _ in 0..processors + WAITING {
            scope.spawn(|| {
                while let Some(program) = next() {
                    let one = run_one(&program);
                    if let Ok(mut ended) = ended.lock() {
                        tell(&one);
                        ended.push(one);
                    }
                }
            });
        }
    });
    ended.into_inner().unwrap_or_default()
}

fn run_one(program: &Program) -> Ended {
    let began = Instant::now();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(&program.executable)
        .current_dir(&program.folder)
        .env("CARGO", cargo)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .stdin(Stdio::null())
        .output();
    Ended {
        source: program.source.clone(),
        again: format!("cargo test -p {} {}", program.package, program.target),
        seconds: began.elapsed().as_secs_f64(),
        outcome: output.map_err(|error| format!("{}: {error}", program.executable.display())),
    }
}

/// The lines of an output that are always shown: what failed has all of them.
fn shown(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    }
    let is_sum = |line: &&str| line.starts_with("test result:");
    let sums: Vec<&str> = text.lines().filter(is_sum).collect();
    match (sums.is_empty(), text.lines().last()) {
        (false, _) => sums.join("\n") + "\n",
        (true, Some(last)) => format!("{last}\n"),
        (true, None) => String::new(),
    }
}

fn tell(ended: &Ended) {
    let (how, text) = match &ended.outcome {
        Ok(output) => (output.status.to_string(), shown(output)),
        Err(error) => ("not started".to_owned(), format!("{error}\n")),
    };
    println!("== {}: {how}, {:.1} s", ended.source, ended.seconds);
    print!("{text}");
}

/// Builds the test programs, and asks cargo where they are.
fn programs(root: &Path) -> Result<Vec<Program>, String> {
    let words = ["test", "--workspace", "--locked", "--no-run"];
    println!("cargo {}", words.join(" "));
    let output = crate::cargo::plain()
        .args(words)
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo {} ended with {}",
            words.join(" "),
            output.status
        ));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    Ok(messages
        .filter_map(|message: Value| program(root, &message))
        .collect())
}

/// The test program that a message of cargo is about: cargo's "compiler-artifact" with an executable, built for tests.
fn program(root: &Path, message: &Value) -> Option<Program> {
    let executable = message["executable"].as_str()?;
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?;
    let source = Path::new(message["target"]["src_path"].as_str()?);
    let name = message["target"]["name"].as_str()?;
    let kind = message["target"]["kind"][0].as_str()?;
    let target = match kind {
        "test" => format!("--test {name}"),
        "bin" => format!("--bin {name}"),
        "example" => format!("--example {name}"),
        _ => "--lib".to_owned(),
    };
    let in_crates = folder.strip_prefix(root).ok()?;
    let package = match in_crates.file_name()?.to_str()? {
        "xtask" => "xtask".to_owned(),
        short => format!("plexum-{short}"),
    };
    Some(Program {
        package,
        source: source.strip_prefix(root).ok()?.display().to_string(),
        target,
        executable: PathBuf::from(executable),
        folder: folder.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_a_test_program_says_how_it_is_run_and_others_are_passed_over() {
        let message = |is_test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact",
                "manifest_path": "/r/crates/cli/Cargo.toml",
                "target": { "name": "kernel", "kind": ["test"], "src_path": "/r/crates/cli/tests/kernel/main.rs" },
                "profile": { "test": is_test },
                "executable": executable,
            })
        };
        let root = Path::new("/r");
        let found = program(root, &message(true, "/r/target/debug/deps/kernel-1".into())).unwrap();
        assert_eq!(found.package, "plexum-cli");
        assert_eq!(found.target, "--test kernel");
        assert_eq!(found.source, "crates/cli/tests/kernel/main.rs");
        assert_eq!(found.folder, Path::new("/r/crates/cli"));
        assert!(program(root, &message(false, "/r/target/debug/plexum".into())).is_none());
        assert!(program(root, &message(true, Value::Null)).is_none());
        assert!(program(root, &serde_json::json!({ "reason": "build-finished" })).is_none());
    }

    #[test]
    fn long_programs_begin_before_short_ones() {
        assert!(rank("crates/cli/tests/kernel/main.rs") < rank("crates/block/src/lib.rs"));
        assert!(rank("crates/sim/tests/all/main.rs") < rank("crates/lab/src/lib.rs"));
    }

    #[test]
    fn of_a_program_that_failed_everything_is_shown_and_of_one_that_did_not_its_sum() {
        use std::os::unix::process::ExitStatusExt;
        let output = |code: i32| Output {
            status: std::process::ExitStatus::from_raw(code << 8),
            stdout: b"running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed\n".to_vec(),
            stderr: b"why\n".to_vec(),
        };
        assert_eq!(shown(&output(0)), "test result: ok. 1 passed\n");
        assert!(
            shown(&output(1)).contains("test a ... ok") && shown(&output(1)).ends_with("why\n")
        );
    }
}
