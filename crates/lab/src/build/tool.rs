//! Programs of the system: found, run and waited for; processes told apart from later ones with their number.
//!
//! Invariant: a program runs in a process group of its own, so that Ctrl-C at the terminal reaches this process alone,
//! which then ends what it started in order.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plexum_runtime::process::start_ticks;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::place::interrupt;

/// How often it is looked whether something has happened.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time that a server has to end by itself.
const END_TIME_MAX: Duration = Duration::from_secs(60);
/// Where programs are that are for the administrator; not every PATH has them.
const MORE_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Whether a wait ends when the user asks for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heeds {
    Interrupts,
    Nothing,
}

/// Where a program is.
///
/// # Errors
/// `Skipped` when it is not installed.
pub(super) fn find(program: &str) -> Result<PathBuf, LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(MORE_FOLDERS.map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| LabError::Skipped(format!("{program} is not installed")))
}

/// Runs a program whose words go to files in `folder`; what it wrote.
///
/// # Errors
/// `Io` with its complaint on one line; `Interrupted`.
pub(super) fn run(command: &mut Command, folder: &Path, heeds: Heeds) -> Result<String, LabError> {
    let (out, err) = (folder.join("out"), folder.join("err"));
    let program = command.get_program().to_os_string();
    let name = Path::new(&program).file_name().unwrap_or(&program);
    let name = name.to_string_lossy().into_owned();
    let told = |error: std::io::Error| LabError::Io(format!("{name}: {error}"));
    let child = command
        .stdin(Stdio::null())
        .stdout(fs::File::create(&out).map_err(told)?)
        .stderr(fs::File::create(&err).map_err(told)?)
        .process_group(0)
        .spawn();
    let mut child = child.map_err(told)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(told)? {
            break status;
        }
        if heeds == Heeds::Interrupts && interrupt::was_asked() {
            let _ = child.kill(); // ended already is as good
            let _ = child.wait();
            return Err(LabError::Interrupted);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if status.success() {
        return Ok(fs::read_to_string(&out).map_err(told)?.trim().to_owned());
    }
    Err(LabError::Io(format!("{name} failed: {}", one_line(&err))))
}

/// What a program complained about, on one line.
pub(super) fn one_line(file: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(file).unwrap_or_default()).into_owned();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match lines.collect::<Vec<_>>().join("; ") {
        empty if empty.is_empty() => "without a word".to_owned(),
        words => words,
    }
}

/// A process, told apart from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Process {
    pid: i32,
    start_ticks: u64,
}

impl Process {
    /// The process of a child.
    pub(super) fn of(child: &Child) -> Option<Self> {
        Self::find(i32::try_from(child.id()).ok()?)
    }

    fn find(pid: i32) -> Option<Self> {
        let start_ticks = start_ticks(u32::try_from(pid).ok()?)?;
        Some(Self { pid, start_ticks })
    }

    pub(super) fn is_running(&self) -> bool {
        Self::find(self.pid).as_ref() == Some(self)
    }

    /// Asks it to end, waits, and ends it when it does not.
    pub(super) fn end(&self) -> Result<(), LabError> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(());
        };
        for signal in [Signal::TERM, Signal::KILL] {
            if self.is_running() {
                let _ = kill_process(pid, signal); // ended meanwhile is as good
            }
            if wait_until(END_TIME_MAX, || !self.is_running()) {
                // Ours or, after a death of who started it, not: then there is nothing to ask.
                let _ = waitpid(Some(pid), WaitOptions::NOHANG);
                return Ok(());
            }
        }
        Err(LabError::Io(format!("process {} does not end", self.pid)))
    }
}

/// Waits until it is so; whether it came.
pub(super) fn wait_until(time_max: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    loop {
        if is_so() {
            return true;
        }
        if started.elapsed() > time_max {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_says_what_it_wrote_or_why_it_failed_on_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let shell = |words: &str| {
            let mut command = Command::new(find("sh").unwrap());
            run(command.args(["-c", words]), folder.path(), Heeds::Nothing)
        };
        assert_eq!(shell("echo ' done '").unwrap(), "done");
        let error = shell("echo one >&2; echo; echo ' two' >&2; exit 3").unwrap_err();
        assert_eq!(error.to_string(), "sh failed: one; two");
        let error = shell("exit 1").unwrap_err();
        assert_eq!(error.to_string(), "sh failed: without a word");
        assert!(matches!(find("no-such-program"), Err(LabError::Skipped(_))));
    }

    #[test]
    fn a_process_is_told_apart_from_a_later_one_with_its_number_and_ended() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::of(&child).unwrap();
        let earlier = Process {
            start_ticks: process.start_ticks - 1,
            ..process.clone()
        };
        earlier.end().unwrap();
        assert!(process.is_running(), "a stranger was ended");
        process.end().unwrap();
        assert!(!process.is_running());
        let _ = child.wait(); // asked already
    }
}
