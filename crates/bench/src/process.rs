//! Programs that are measured: started, asked for their CPU time and memory, and ended.

use std::fs;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::BenchError;

/// Time a server has to take its first connection.
const START_TIME_MAX: Duration = Duration::from_secs(10);

/// CPU times in /proc count in hundredths of a second, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// A program that runs until this is dropped.
pub(crate) struct Process {
    child: Child,
    name: String,
}

impl Process {
    pub fn start(name: &str, command: &mut Command) -> Result<Self, BenchError> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| BenchError(format!("{name} does not start: {error}")))?;
        let name = name.to_owned();
        Ok(Self { child, name })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until somebody listens at `socket`.
    pub fn wait_for_socket(&mut self, socket: &Path) -> Result<(), BenchError> {
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Ok(Some(status)) = self.child.try_wait() {
                let complaint = self.complaint();
                return Err(BenchError(format!(
                    "{} ended with {status}: {complaint}",
                    self.name
                )));
            }
            if started.elapsed() > START_TIME_MAX {
                return Err(BenchError(format!("{} takes no connection", self.name)));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// First line that it wrote to standard error; it must have ended.
    fn complaint(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            let _ = stderr.read_to_string(&mut text); // what is there is what is said
        }
        first_line(&text)
    }

    /// CPU seconds so far, of all threads and of children that serve for it.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.id())
    }

    /// Resident bytes.
    pub fn resident_bytes(&self) -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        Some(field(&text, "VmRSS:")? << 10)
    }

    /// How often its threads have waited for something, so far.
    pub fn wake_ups(&self) -> u64 {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.id())) else {
            return 0;
        };
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
            .filter_map(|text| field(&text, "voluntary_ctxt_switches:"))
            .sum()
    }

    /// Asks it to end and waits; after a while it is not asked any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let id = self.id().to_string();
        let _ = Command::new("kill").arg(&id).status(); // the wait below tells whether it ended
        let started = Instant::now();
        while started.elapsed() < START_TIME_MAX {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
        }
    }
}

/// The number behind `label` in a status file.
fn field(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(label))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("without a word").to_owned()
}

fn cpu_seconds_of(id: u32) -> f64 {
    let own = fs::read_to_string(format!("/proc/{id}/stat"))
        .ok()
        .and_then(|text| cpu_ticks(&text))
        .map_or(0.0, |ticks| ticks as f64 / TICKS_PER_SECOND);
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = children.unwrap_or_default();
    let of_children = children.split_whitespace().flat_map(str::parse);
    own + of_children.map(cpu_seconds_of).sum::<f64>()
}

/// User and system time of a process and of its children that have ended.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?; // a program's name may have blanks
    let words: Vec<&str> = rest.split_whitespace().collect();
    let numbers = words.get(11..15)?;
    numbers.iter().map(|word| word.parse::<u64>().ok()).sum()
}

/// CPU seconds of this process' children that have ended and been waited for.
pub(crate) fn children_cpu_seconds() -> f64 {
    let ticks = fs::read_to_string("/proc/self/stat").ok().and_then(|text| {
        let (_, rest) = text.rsplit_once(')')?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let numbers = words.get(13..15)?;
        numbers.iter().map(|word| word.parse::<u64>().ok()).sum()
    });
    ticks.unwrap_or(0u64) as f64 / TICKS_PER_SECOND
}

/// CPU seconds of the kernel's own threads: file systems and loop devices work there.
pub(crate) fn kernel_cpu_seconds() -> f64 {
    let Ok(entries) = fs::read_dir("/proc") else {
        return 0.0;
    };
    let of_kernel = entries.flatten().filter_map(|entry| {
        let text = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = text.rsplit_once(')')?;
        let parent = rest.split_whitespace().nth(1)?;
        (parent == "2").then(|| cpu_ticks(&text)).flatten()
    });
    of_kernel.sum::<u64>() as f64 / TICKS_PER_SECOND
}

/// Runs a program to its end; what it wrote to standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, BenchError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| BenchError(format!("{name} does not start: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(BenchError(format!(
            "{name}: {}: {}",
            output.status,
            first_line(&said)
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Where a program is, if it is installed.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let beside = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(beside)
        .map(|folder| folder.join(name))
        .find(|program| program.is_file())
}

/// The program, or the reason for skipping who needs it.
pub(crate) fn need_program(name: &str) -> Result<PathBuf, BenchError> {
    find_program(name).ok_or_else(|| BenchError(format!("{name} is not installed")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_blanks_and_brackets() {
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0";
        assert_eq!(cpu_ticks(stat), Some(127));
        assert_eq!(cpu_ticks("12 (a) S 1"), None);
    }

    #[test]
    fn a_program_that_ends_at_once_is_reported_with_what_it_said() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such thing >&2; exit 3"]);
        let mut process = Process::start("sh", &mut command).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let error = process
            .wait_for_socket(&folder.path().join("x"))
            .unwrap_err();
        assert!(error.0.contains("no such thing"), "{error}");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = need_program("no-such-program-anywhere").unwrap_err();
        assert_eq!(error.0, "no-such-program-anywhere is not installed");
    }
}
