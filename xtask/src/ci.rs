//! What CI runs: stages one after another, each with its duration.

use std::path::{Path, PathBuf};
use std::time::Instant;

/// A stage: its name and what to call.
struct Stage {
    name: &'static str,
    run: fn(&Path) -> Result<(), String>,
}

const STAGES: &[Stage] = &[
    Stage {
        name: "tools",
        run: tools,
    },
    Stage {
        name: "format",
        run: format,
    },
    Stage {
        name: "tidy",
        run: crate::tidy::run,
    },
    Stage {
        name: "lints",
        run: lints,
    },
    Stage {
        name: "documents",
        run: documentation,
    },
    Stage {
        name: "build tests",
        run: |root| cargo(root, &["test", "--workspace", "--locked", "--no-run"]),
    },
    Stage {
        name: "tests",
        run: |root| crate::suite::run(root, &[]),
    },
    Stage {
        name: "fresh seeds",
        run: |root| crate::fresh::run(root, &[FRESH_MINUTES]),
    },
    Stage {
        name: "instructions",
        run: |root| crate::instructions::run(root, &[]),
    },
];

/// As many fresh seeds as fit in so long.
const FRESH_MINUTES: &str = "2";

/// Programs that judge; `scripts/packages.txt` has their packages.
const TOOLS: [&str; 35] = [
    "promtool",
    "curl",
    "udevadm",
    "python3",
    "linux.uml",
    "mdadm",
    "dmsetup",
    "modprobe",
    "nbdinfo",
    "nbdcopy",
    "qemu-img",
    "qemu-io",
    "qemu-nbd",
    "qemu-system-x86_64",
    "busybox",
    "cpio",
    "fio",
    "nbdkit",
    "fusermount3",
    "nbd-client",
    "nvme",
    "losetup",
    "mount",
    "blkid",
    "mkfs.ext4",
    "e2fsck",
    "mkfs.xfs",
    "xfs_repair",
    "mkfs.btrfs",
    "zstd",
    "valgrind",
    "systemd-nspawn",
    "nsenter",
    "lintian",
    "strip",
];

/// Runs all stages, also after one that failed, so that one run shows everything that is wrong.
///
/// # Errors
/// Which stages failed and why.
pub fn run(root: &Path) -> Result<(), String> {
    let started = Instant::now();
    let mut table = String::new();
    let mut failures = Vec::new();
    for stage in STAGES {
        println!("== {}", stage.name);
        let began = Instant::now();
        let outcome = (stage.run)(root);
        let seconds = began.elapsed().as_secs_f64();
        let mark = if outcome.is_ok() { "ok" } else { "FAILED" };
        table.push_str(&format!("{:<12} {seconds:>8.1} s  {mark}\n", stage.name));
        failures.extend(
            outcome
                .err()
                .map(|error| format!("{}: {error}", stage.name)),
        );
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("\n{table}{:<12} {seconds:>8.1} s", "all");
    if failures.is_empty() {
        return Ok(());
    }
    Err(format!("these stages failed:\n  {}", failures.join("\n  ")))
}

/// Formatting, lints and the rules of the house.
///
/// # Errors
/// What failed.
pub fn check(root: &Path) -> Result<(), String> {
    format(root)?;
    crate::tidy::run(root)?;
    lints(root)
}

fn format(root: &Path) -> Result<(), String> {
    cargo(root, &["fmt", "--all", "--check"])
}

fn lints(root: &Path) -> Result<(), String> {
    // With what the usual build leaves out: `build tests` compiles it without.
    cargo(
        root,
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--features",
            "plexum-lab/parquet",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
    )
}

/// A missing judge is a failure: a test that is skipped proves nothing.
fn tools(_root: &Path) -> Result<(), String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<_> = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .collect();
    let missing: Vec<&str> = TOOLS
        .into_iter()
        .filter(|tool| !folders.iter().any(|folder| folder.join(tool).is_file()))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "missing programs: {}; `./test` installs them",
        missing.join(", ")
    ))
}

/// Documentation without broken links.
///
/// # Errors
/// When rustdoc warns.
pub fn documentation(root: &Path) -> Result<(), String> {
    let arguments = ["doc", "--workspace", "--no-deps", "--locked"];
    cargo_with(root, &arguments, &[("RUSTDOCFLAGS", "-D warnings")])
}

/// Where cargo puts what it makes.
pub fn target(root: &Path) -> PathBuf {
    let told = std::env::var_os("CARGO_TARGET_DIR");
    told.map_or_else(|| root.join("target"), PathBuf::from)
}

/// What cargo says with `--message-format=json`: an object a line, other lines are passed over.
pub fn messages(stdout: &[u8]) -> Vec<serde_json::Value> {
    let text = String::from_utf8_lossy(stdout);
    let lines = text.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

/// Calls cargo in `root`.
///
/// # Errors
/// When it cannot be started or fails.
pub fn cargo(root: &Path, arguments: &[&str]) -> Result<(), String> {
    cargo_with(root, arguments, &[])
}

/// The same with variables of the environment.
///
/// # Errors
/// As `cargo`.
pub fn cargo_with(
    root: &Path,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<(), String> {
    println!("cargo {}", arguments.join(" "));
    let status = crate::cargo::plain()
        .args(arguments)
        .envs(variables.iter().copied())
        .current_dir(root)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("cargo {} ended with {status}", arguments.join(" ")))
}
