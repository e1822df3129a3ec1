//! `cargo xtask way [--write]`: the way of one write, recorded and compared with the one in ARCHITECTURE.md.
//!
//! A mirror of two files is served by the unoptimised program, one write of 4 KiB comes by NBD, and gdb says who waits
//! for whom: once while the payload is received, once when a member is written. Who waits is on the stack, because a
//! task polls what it waits for. Left out are the executor, the session's loop, and what only waits for several things
//! (`block/wait.rs`).

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::ci;

const FILE: &str = "ARCHITECTURE.md";
/// The block of text between these lines is the way.
const BEGIN: &str = "```way";
const END: &str = "```";

/// Writes of superblocks and bitmap come before the data: so many stops at a member's write are looked at.
const STOPS_MAX: usize = 24;

/// One function that a write goes through.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    /// Path of its source, from `crates/` on.
    file: String,
    function: String,
}

/// Records the way and compares it, or writes it down.
///
/// # Errors
/// gdb or qemu-io is missing, the way could not be recorded, or it is another one than ARCHITECTURE.md says.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let is_to_be_written = match words {
        [] => false,
        ["--write"] => true,
        _ => return Err(format!("unknown: {}; --write or nothing", words.join(" "))),
    };
    let found = table(&record(root)?);
    let path = root.join(FILE);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
    let (before, told, after) = parts(&text)?;
    if is_to_be_written {
        let text = format!("{before}{found}{after}");
        return std::fs::write(&path, text).map_err(|error| format!("{FILE}: {error}"));
    }
    print!("{found}");
    match told == found {
        true => Ok(()),
        false => Err(format!(
            "{FILE} tells another way; `cargo xtask way --write` puts this one there"
        )),
    }
}

/// What stands before, in and behind the block of the way.
fn parts(text: &str) -> Result<(&str, &str, &str), String> {
    let missing = || format!("{FILE} has no block {BEGIN}");
    let begin = format!("{BEGIN}\n");
    let start = text.find(&begin).ok_or_else(missing)? + begin.len();
    let length = text[start..].find(END).ok_or_else(missing)?;
    Ok((
        &text[..start],
        &text[start..start + length],
        &text[start + length..],
    ))
}

/// A line for each step, and how many there are in how many files.
fn table(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        // The text of a String takes everything.
        let _ = writeln!(text, "{:<32} {}", step.file, step.function);
    }
    let mut files: Vec<&str> = steps.iter().map(|step| step.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    let _ = writeln!(text, "{} functions in {} files", steps.len(), files.len());
    text
}

fn record(root: &Path) -> Result<Vec<Step>, String> {
    ci::cargo(
        root,
        &[
            "build",
            "--locked",
            "--quiet",
            "--package",
            "plexum-cli",
            "--bin",
            "plexum",
        ],
    )?;
    let plexum = ci::target(root).join("debug/plexum");
    let folder = std::env::temp_dir().join(format!("plexum-way-{}", std::process::id()));
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let recorded = record_in(root, &folder, &plexum);
    // What is left of it disturbs nobody.
    let _ = std::fs::remove_dir_all(&folder);
    recorded
}

fn record_in(root: &Path, folder: &Path, plexum: &Path) -> Result<Vec<Step>, String> {
    let symbols = output(Command::new("nm").arg(plexum))?;
    let receives = symbol(
        &symbols,
        &["plexum_nbd7session7receive", "13write_payload28_"],
    )?;
    let writes = symbol(&symbols, &["plexum_runtime..file..FileDevice", "5write28_"])?;
    let quiet = |words: &[&str]| {
        let mut command = Command::new(plexum);
        command.current_dir(folder).env("XDG_RUNTIME_DIR", folder);
        command.env("XDG_STATE_HOME", folder).args(words);
        command
    };
    let create = [
        "create",
        "v",
        "--level",
        "1",
        "a",
        "b",
        "--member-size",
        "64M",
    ];
    output(quiet(&create).args(["--assume-clean", "--yes", "--quiet"]))?;
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-q",
        "-batch",
        "-ex",
        "set pagination off",
        "-ex",
        "set confirm off",
    ]);
    gdb.args(["-ex", "set breakpoint pending on"]);
    for at in receives.iter().chain(&writes) {
        gdb.args(["-ex", &format!("break {at}")]);
    }
    let client = format!(
        "shell (while [ ! -S s ]; do sleep 0.1; done; \
         exec qemu-io -f raw -c 'write 64k 4k' 'nbd+unix:///v?socket={}/s') > client 2>&1 &",
        folder.display()
    );
    gdb.args(["-ex", &client, "-ex", "run"]);
    for _ in 0..STOPS_MAX {
        gdb.args(["-ex", "bt", "-ex", "continue"]);
    }
    gdb.args(["-ex", "kill", "--args"]).arg(plexum);
    gdb.args(["serve", "a", "b", "--socket", "s", "--quiet"]);
    gdb.current_dir(folder)
        .env("XDG_RUNTIME_DIR", folder)
        .env("XDG_STATE_HOME", folder);
    let stacks = output(&mut gdb)?;
    way(root, &stacks)
}

/// Mangled names that hold all of `words`, but for those of destructors.
fn symbol(symbols: &str, words: &[&str]) -> Result<Vec<String>, String> {
    let names = symbols
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let names = names.filter(|name| words.iter().all(|word| name.contains(word)));
    let names = names.filter(|name| name.contains("closure") && !name.contains("drop_in_place"));
    let names: Vec<String> = names.map(str::to_owned).collect();
    match names.is_empty() {
        true => Err(format!("the program has no function {}", words.join(" "))),
        false => Ok(names),
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{name}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{name}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// The way in what gdb said: the first stack of each kind that is one of a client's data.
fn way(root: &Path, stacks: &str) -> Result<Vec<Step>, String> {
    let stacks: Vec<Vec<Step>> = stacks
        .split("\n#0 ")
        .skip(1)
        .map(|stack| stack.lines().filter_map(|line| step(root, line)).collect())
        .collect();
    let mut steps = Vec::new();
    for (file, first, within) in [
        ("nbd/session/receive.rs", "receive", "write_payload"),
        ("front/perform.rs", "work", "write_copies"),
    ] {
        let found = stacks.iter().find_map(|stack| {
            let is_it = stack.iter().any(|step| step.function == within);
            let end = stack
                .iter()
                .position(|step| step.file == file && step.function == first)?;
            is_it.then(|| stack[..=end].iter().rev().cloned().collect::<Vec<Step>>())
        });
        steps.extend(found.ok_or_else(|| format!("no stack had {within} in it"))?);
    }
    steps.dedup(); // a function and a closure of it that is polled
    Ok(steps)
}

/// The function of a line of a stack, if it is one of the product and not one that only waits.
fn step(root: &Path, line: &str) -> Option<Step> {
    let line = line.split(" in ").last()?.trim();
    let line = line.strip_suffix(" ()").unwrap_or(line);
    let start = line.find("plexum_")?;
    if !line[..start].chars().all(|letter| letter == '<') {
        return None; // a function of the standard library, with one of ours as its argument
    }
    let name = line[start + "plexum_".len()..]
        .split("::{{closure}}")
        .next()?;
    let function = name.rsplit("::").next()?;
    let function = function.split("::h").next()?.to_owned();
    let mut words = name
        .split("::")
        .map(|word| word.split(['<', '>', ' ']).next().unwrap_or(word));
    let krate = words.next()?;
    if ["exec", "cli"].contains(&krate) {
        return None;
    }
    let mut file = None;
    let mut path = format!("{krate}/src");
    for word in words {
        path.push('/');
        path.push_str(word);
        for end in [".rs", "/mod.rs"] {
            if root.join("crates").join(format!("{path}{end}")).is_file() {
                file = Some(format!("{path}{end}"));
            }
        }
    }
    let file = file?.replacen("/src", "", 1);
    (file != "block/wait.rs").then_some(Step { file, function })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn a_line_of_a_stack_names_the_function_and_its_file() {
        let lines = [
            "0x00 in plexum_engine::drive::requests::Slots::run::{{closure}}::{{closure}}::hfc9bf5487f317d01 ()",
            "0x0 in <plexum_daemon::open::AnyDevice as plexum_block::device::Device>::write::{{closure}}::hd57 ()",
            "0x0 in plexum_engine::volume::write::<impl plexum_engine::volume::Volume<D,C>>::write::{{closure}}::h3 ()",
        ];
        let found: Vec<(String, String)> = lines
            .iter()
            .map(|line| {
                step(&root(), line)
                    .map(|step| (step.file, step.function))
                    .unwrap_or_default()
            })
            .collect();
        let told = [
            ("engine/drive/requests.rs", "run"),
            ("daemon/open.rs", "write"),
            ("engine/volume/write.rs", "write"),
        ];
        assert_eq!(
            found,
            told.map(|(file, function)| (file.to_owned(), function.to_owned()))
        );
    }

    #[test]
    fn what_only_waits_or_is_not_ours_is_no_step() {
        for line in [
            "0x0 in plexum_block::wait::join_few_then::{{closure}}::h24dc77be48861d88 ()",
            "0x0 in <alloc::rc::Rc<T> as plexum_block::device::Device>::write::{{closure}}::h9c46 ()",
            "0x0 in core::ops::function::FnOnce::call_once::h0a6d ()",
        ] {
            assert_eq!(step(&root(), line), None, "{line}");
        }
    }
}
