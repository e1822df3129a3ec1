//! What is run against a mutant: single tests and short ranges of seeds, each a process of its own.

use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::build::Program;

/// Seeds are run in ranges of this many.
const SEEDS_AT_ONCE: u64 = 10;

/// Besides seeds of everything: half as many of what the others seldom or never meet, by the words of the example.
const RARE: [&[&str]; 4] = [
    &["raid5", "ppls"],
    &["parity", "write-backs"],
    &["gmirror"],
    &["gvinum"],
];

/// A process may have this much address space: some mutants allocate without end.
const KIB_MAX: u64 = 6 << 20;

/// The simulator's example that runs seeds.
const SEEDS: &str = "sim seeds";

/// Tests that say nothing of a mutant: they run seeds as we do, ask for the time, or hunt bugs of their own.
const LEFT_OUT: [&str; 3] = [
    "sim the_engine_keeps_its_promises",
    "sim freebsd_formats_keep_their_promises",
    "sim deliberate_bugs_are_found",
];

/// Something that passes or fails.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Its program's place in the list of programs.
    program: Program,
    /// Arguments.
    arguments: Vec<String>,
    /// What people call it.
    pub name: String,
    /// How long it took without a mutant.
    pub cost: Duration,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Passed,
    /// With a failure.
    Failed,
    /// Not at all.
    TimedOut,
}

impl Unit {
    /// Kind of test, as the report counts them.
    pub fn stage(&self) -> &'static str {
        match (self.program.name.as_str(), self.program.kind.as_str()) {
            (SEEDS, _) => "seeds",
            (name, "lib") if !name.starts_with("sim ") => "unit tests",
            (name, _) if name.starts_with("sim ") => "scripts of the simulator",
            _ => "integration tests",
        }
    }

    /// Kind and name, as results have it.
    pub fn full_name(&self) -> String {
        format!("{}: {}", self.stage(), self.name)
    }

    /// Runs it against a mutant, or 0 for none; a time-out counts from now.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(
        &self,
        mutant: u32,
        record: Option<&Path>,
        time_out: Duration,
        scratch: &Path,
    ) -> Result<End, String> {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -v {KIB_MAX}; exec \"$@\""), "sh"])
            .arg(&self.program.path)
            .args(&self.arguments)
            .current_dir(&self.program.folder)
            .env("PLEXUM_MUTANT", mutant.to_string())
            .env("TMPDIR", scratch)
            .env_remove("PLEXUM_MUTANTS_REACHED")
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let told = scratch.join("told.txt");
        let fail = |error: std::io::Error| format!("{}: {error}", self.name);
        command.stderr(std::fs::File::create(&told).map_err(fail)?);
        if let Some(record) = record {
            command.env("PLEXUM_MUTANTS_REACHED", record);
        }
        let mut child = command.spawn().map_err(fail)?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(fail)? {
                // The example that runs seeds ends well whatever it finds, but tells it.
                let is_silent = std::fs::metadata(&told).is_ok_and(|told| told.len() == 0);
                let is_good = self.program.name != SEEDS || is_silent;
                return Ok(end(status, is_good));
            }
            if began.elapsed() > time_out {
                child.kill().map_err(fail)?;
                child.wait().map_err(fail)?;
                return Ok(End::TimedOut);
            }
            std::thread::sleep(pause(began.elapsed()));
        }
    }
}

/// How long to wait before looking again.
fn pause(elapsed: Duration) -> Duration {
    (elapsed / 10).clamp(Duration::from_micros(500), Duration::from_millis(20))
}

fn end(status: ExitStatus, is_good: bool) -> End {
    if status.success() && is_good {
        End::Passed
    } else {
        End::Failed
    }
}

/// All units of these programs: their tests one by one, and seeds `0..seeds`.
///
/// # Errors
/// When a program does not list its tests.
pub fn all(programs: &[Program], seeds: u64) -> Result<Vec<Unit>, String> {
    let mut units = Vec::new();
    for program in programs {
        if LEFT_OUT.contains(&program.name.as_str()) {
            continue;
        }
        if program.kind == "example" {
            if program.name == SEEDS {
                units.extend(ranges(program, seeds, &[]));
                for words in RARE {
                    units.extend(ranges(program, seeds / 2, words));
                }
            }
            continue;
        }
        let output = Command::new(&program.path)
            .args(["--list", "--format", "terse"])
            .current_dir(&program.folder)
            .output()
            .map_err(|error| format!("{}: {error}", program.name))?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            if let Some(test) = line.strip_suffix(": test") {
                units.push(Unit {
                    program: program.clone(),
                    arguments: vec!["--exact".into(), test.into(), "--test-threads=1".into()],
                    name: format!("{}: {test}", program.name),
                    cost: Duration::ZERO,
                });
            }
        }
    }
    Ok(units)
}

fn ranges(program: &Program, seeds: u64, words: &[&str]) -> Vec<Unit> {
    (0..seeds)
        .step_by(SEEDS_AT_ONCE as usize)
        .map(|first| {
            let count = SEEDS_AT_ONCE.min(seeds - first);
            let words = words.iter().map(|word| (*word).to_owned());
            let name = format!("seeds {first} to {}", first + count - 1);
            let kind: Vec<String> = words.clone().collect();
            Unit {
                program: program.clone(),
                arguments: [first.to_string(), count.to_string()]
                    .into_iter()
                    .chain(words)
                    .collect(),
                name: [name, kind.join(" ")].join(" ").trim_end().to_owned(),
                cost: Duration::ZERO,
            }
        })
        .collect()
}
