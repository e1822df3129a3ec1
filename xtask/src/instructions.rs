//! `cargo xtask instructions`: how many instructions one request costs in the engine, counted by callgrind, beside the
//! committed figures. Counts do not depend on how busy the machine is; seconds do.
//!
//! Each path runs twice, with N and with 2 N requests: the difference is free of the start and of the warming up.
//! callgrind shows programs a processor without AVX-512, so that machines with and without it count alike.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::ci;

/// The committed figures: a path and its instructions in each line.
const FIGURES: &str = "crates/engine/instructions.txt";

/// A rise above this, in percent, fails.
const RISE_MAX_PERCENT: u64 = 5;

/// `hot` makes a tenth more requests than it is told, to warm up.
const WARM_PART: u64 = 10;

/// What `hot` is asked for, but for the count; and the count.
const PATHS: [(&str, u64); 11] = [
    ("raid0 later none read 4096 32 random", 4000),
    ("raid0 later none write 4096 32 random", 4000),
    ("raid1 later none read 4096 32 random", 4000),
    ("raid1 later bitmap write 4096 32 random", 4000),
    ("raid10 later none read 4096 32 random", 4000),
    ("raid5 later bitmap read 4096 32 random", 4000),
    ("raid5 later bitmap write 4096 32 random", 2000),
    ("raid5 later log write 4096 32 random", 1000),
    ("raid6 later bitmap write 4096 32 random", 2000),
    ("raid5 later bitmap write 196608 8 seq", 200),
    ("raid6 later bitmap write 262144 8 seq", 200),
];

/// Counts all paths and compares them; with `--write` the figures become the committed ones.
///
/// # Errors
/// A path that costs over 5 % more than what is committed; no valgrind; figures that cannot be read or written.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let is_write = match arguments {
        [] => false,
        ["--write"] => true,
        other => return Err(format!("unknown: {}; --write", other.join(" "))),
    };
    let build = [
        "build",
        "--release",
        "--locked",
        "--package",
        "plexum-engine",
        "--example",
        "hot",
    ];
    ci::cargo(root, &build)?;
    let hot = ci::target(root).join("release/examples/hot");
    let counted = count_all(&hot)?;
    let file = root.join(FIGURES);
    if is_write {
        return std::fs::write(&file, page(&counted)?)
            .map_err(|error| format!("{FIGURES}: {error}"));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{FIGURES}: {error}"))?;
    let risen = compare(&committed(&text)?, &counted)?;
    if risen.is_empty() {
        return Ok(());
    }
    Err(format!(
        "over {RISE_MAX_PERCENT} % more instructions than {FIGURES} says: {}; where that is wanted: cargo xtask instructions --write",
        risen.join(", ")
    ))
}

/// Instructions a request of each path, counted on every processor at once: counts do not depend on it.
fn count_all(hot: &Path) -> Result<Vec<(&'static str, u64)>, String> {
    let next = AtomicUsize::new(0);
    let counted = Mutex::new(Vec::new());
    let work = || -> Result<(), String> {
        // The longest ones are at the end of the list, and begin first.
        while let Some((path, count)) = PATHS.iter().rev().nth(next.fetch_add(1, Ordering::Relaxed))
        {
            let once = collected(hot, path, *count)?;
            let twice = collected(hot, path, 2 * count)?;
            let requests = count + count / WARM_PART;
            let figure = (*path, twice.saturating_sub(once) / requests);
            counted
                .lock()
                .map_err(|error| error.to_string())?
                .push(figure);
        }
        Ok(())
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let mut results = workers.into_iter().map(|worker| worker.join());
        results.try_for_each(|result| {
            result.unwrap_or_else(|_| Err("a worker ended early".to_owned()))
        })
    })?;
    let mut counted = counted.into_inner().map_err(|error| error.to_string())?;
    let place = |path: &str| PATHS.iter().position(|(name, _)| *name == path);
    counted.sort_by_key(|(path, _)| place(path));
    Ok(counted)
}

/// Instructions that a run of the whole program takes.
fn collected(hot: &Path, path: &str, count: u64) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(hot)
        .args(path.split(' '))
        .arg(count.to_string())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr);
    let count = told
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    count
        .and_then(|count| count.trim().parse().ok())
        .filter(|_| output.status.success())
        .ok_or_else(|| format!("hot {path} under valgrind: {told}"))
}

/// The committed figures: lines of `INSTRUCTIONS PATH`; `#` begins a comment.
fn committed(text: &str) -> Result<Vec<(&str, u64)>, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (count, path) = line.trim_start().split_once(' ')?;
            Some((path, count.parse().ok()?))
        })
        .map(|figure| figure.ok_or_else(|| format!("{FIGURES}: lines are INSTRUCTIONS PATH")))
        .collect()
}

/// Prints each path beside its figure; says which have risen by more than they may.
fn compare(committed: &[(&str, u64)], counted: &[(&str, u64)]) -> Result<Vec<String>, String> {
    let mut risen = Vec::new();
    for (path, now) in counted {
        let before = committed.iter().find(|(name, _)| name == path);
        let Some((_, before)) = before else {
            return Err(format!(
                "{FIGURES}: no figure for \"{path}\"; cargo xtask instructions --write"
            ));
        };
        let percent = *now as f64 * 100.0 / *before as f64 - 100.0;
        println!("{now:>8} instructions ({percent:+.1} %)  {path}");
        if now * 100 > before * (100 + RISE_MAX_PERCENT) {
            risen.push(format!("{path} ({before} -> {now})"));
        }
    }
    Ok(risen)
}

/// The figures as a file.
fn page(counted: &[(&str, u64)]) -> Result<String, String> {
    let compiler = Command::new("rustc").arg("--version").output();
    let compiler = compiler.map_err(|error| format!("rustc: {error}"))?.stdout;
    let mut page = format!(
        "# Instructions a request, counted by callgrind: `cargo xtask instructions` compares, `--write` makes this file.\n\
         # Each line is one path of crates/engine/examples/hot.rs. {}",
        String::from_utf8_lossy(&compiler)
    );
    for (path, count) in counted {
        writeln!(page, "{count:>8} {path}").map_err(|error| error.to_string())?;
    }
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rise_of_more_than_a_twentieth_fails() {
        let before = committed("# a comment\n    1000 a b\n   20000 c\n").unwrap();
        assert_eq!(before, [("a b", 1000), ("c", 20_000)]);
        let risen = |a, c| compare(&before, &[("a b", a), ("c", c)]).unwrap();
        assert!(risen(1050, 10_000).is_empty());
        assert_eq!(risen(1051, 21_000), ["a b (1000 -> 1051)"]);
        assert!(
            compare(&before, &[("d", 1)]).is_err(),
            "a path without a figure"
        );
        assert!(committed("many a\n").is_err());
    }
}
