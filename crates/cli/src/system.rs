//! What `attach` and `detach` ask of the system: its tools, its table of mounts, its processes, and to wait for them.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plexum_export::process;
use plexum_runtime::process::start_ticks;
use serde::{Deserialize, Serialize};

/// How often, and how many times, it is looked whether the kernel or a process has let go of something.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 250;
/// How often it is looked whether something has come that may take minutes.
const LOOK_SELDOM_EVERY: Duration = Duration::from_millis(250);
/// How many times a file system that is busy is asked: a program that has just been started holds, until it has closed
/// it, what whoever started it had open, and desktops look into what was mounted.
pub const BUSY_LOOKS_MAX: u32 = 25;

/// A process, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began, in ticks since the system's start.
    pub start_ticks: u64,
}

impl Process {
    /// The running process `pid`.
    #[must_use]
    pub fn find(pid: u32) -> Option<Self> {
        let start_ticks = start_ticks(pid)?;
        Some(Self { pid, start_ticks })
    }

    /// Whether it runs still.
    #[must_use]
    pub fn is_running(&self) -> bool {
        Self::find(self.pid).as_ref() == Some(self)
    }
}

/// Waits for the process to end by itself, as it does when its file system is unmounted; then ends it.
pub fn end(process: &Process) {
    if !wait_until(|| !process.is_running()) {
        process::kill(process.pid);
        wait_until(|| !process.is_running());
    }
}

/// Looks until it is so, for 5 s at most; whether it is.
pub fn wait_until(is_so: impl FnMut() -> bool) -> bool {
    wait_at_most(LOOKS_MAX, is_so)
}

/// Looks until it is so, so many times at most; whether it is.
pub fn wait_at_most(looks: u32, mut is_so: impl FnMut() -> bool) -> bool {
    for _ in 0..looks {
        if is_so() {
            return true;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    false
}

/// Looks until it is so, for so long at most, and once at least.
pub fn wait_for(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() && began.elapsed() < limit {
        std::thread::sleep(LOOK_SELDOM_EVERY);
    }
}

/// Runs a program of the system; its output, or its words when it failed.
///
/// # Errors
/// What it wrote to standard error, on one line.
pub fn tool(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound => format!("{program} is not installed or not in PATH"),
            _ => format!("{program}: {error}"),
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    Err(format!("{program} failed: {}", lines.join(" ")))
}

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    /// Where it is mounted.
    pub folder: PathBuf,
    /// What is mounted.
    pub source: PathBuf,
}

/// All mounted file systems.
#[must_use]
pub fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse_mount).collect()
}

/// A line of `/proc/self/mountinfo`: the folder is field 5, the source the second one after a single dash.
fn parse_mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    Some(Mount {
        folder: PathBuf::from(unescape(front.split(' ').nth(4)?)),
        source: PathBuf::from(unescape(back.split(' ').nth(1)?)),
    })
}

/// Undoes the kernel's `\040` for blanks and the like.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let code = behind
            .get(..3)
            .filter(|_| first == b'\\')
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { &behind[3..] } else { behind };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_line_of_the_mount_table_is_understood() {
        let line = "36 35 98:0 / /mnt/a\\040b\\134 rw,noatime shared:1 - ext4 /dev/loop0 rw";
        let mount = parse_mount(line).unwrap();
        assert_eq!(mount.folder, Path::new("/mnt/a b\\"));
        assert_eq!(mount.source, Path::new("/dev/loop0"));
        assert_eq!(parse_mount("36 35 98:0 / /mnt"), None);
        assert_eq!(unescape("\\9x\\"), "\\9x\\");
    }

    #[test]
    fn a_process_is_told_apart_from_a_later_one_with_its_number() {
        let own = Process::find(std::process::id()).unwrap();
        assert!(own.is_running());
        let earlier = Process {
            start_ticks: own.start_ticks - 1,
            ..own
        };
        assert!(!earlier.is_running());
    }
}
