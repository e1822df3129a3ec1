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

/// Time that a program has to end when it is asked to.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// CPU times in /proc count in hundredths of a second, whatever the kernel's own clock.
const TICKS_PER_SECOND: f64 = 100.0;

/// A program that runs until this is dropped.
pub(crate) struct Process {
    work: Work,
    name: String,
}

/// Whose child it is.
enum Work {
    /// Ours.
    Child(Child),
    /// It has gone to the background, and is somebody else's child by now.
    Daemon(Known),
}

/// A process, also when another one has got its number meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    id: u32,
    /// When it began, in ticks since the machine was started.
    began: u64,
}

impl Known {
    fn look(id: u32) -> Option<Self> {
        let text = stat(id)?;
        let began = words_behind_name(&text)?.nth(19)?.parse().ok()?;
        Some(Self { id, began })
    }

    /// Whether it runs. One that has ended stays in the table until whoever is its parent has looked.
    fn runs(self) -> bool {
        let state = |text: String| words_behind_name(&text)?.next().map(str::to_owned);
        Self::look(self.id) == Some(self) && stat(self.id).and_then(state).is_some_and(|s| s != "Z")
    }

    fn signal(self, signal: &str) {
        if self.runs() {
            // Whoever asks for this looks afterwards whether it ended.
            let _ = Command::new("kill")
                .args([signal, &self.id.to_string()])
                .stderr(Stdio::null())
                .status();
        }
    }
}

impl Process {
    pub fn start(name: &str, command: &mut Command) -> Result<Self, BenchError> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| BenchError(format!("{name} does not start: {error}")))?;
        let (work, name) = (Work::Child(child), name.to_owned());
        Ok(Self { work, name })
    }

    /// Starts a program that goes to the background and writes its number to `number_file`.
    pub fn start_in_background(
        name: &str,
        command: &mut Command,
        number_file: &Path,
    ) -> Result<Self, BenchError> {
        output(command)?;
        let started = Instant::now();
        loop {
            let text = fs::read_to_string(number_file).unwrap_or_default();
            // Half a number has no end of the line yet.
            let id = text.strip_suffix('\n').and_then(|id| id.parse().ok());
            if let Some(id) = id {
                let known = Known::look(id)
                    .ok_or_else(|| BenchError(format!("{name} ended in the background")))?;
                let (work, name) = (Work::Daemon(known), name.to_owned());
                return Ok(Self { work, name });
            }
            if started.elapsed() > START_TIME_MAX {
                return Err(BenchError(format!("{name} does not say its number")));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn id(&self) -> u32 {
        match &self.work {
            Work::Child(child) => child.id(),
            Work::Daemon(known) => known.id,
        }
    }

    /// Waits until somebody listens at `socket`.
    pub fn wait_for_socket(&mut self, socket: &Path) -> Result<(), BenchError> {
        let started = Instant::now();
        while UnixStream::connect(socket).is_err() {
            if let Some(how) = self.has_ended() {
                return Err(BenchError(format!("{} ended {how}", self.name)));
            }
            if started.elapsed() > START_TIME_MAX {
                return Err(BenchError(format!("{} takes no connection", self.name)));
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    /// How it ended, if it has: with the first line that it wrote to standard error.
    fn has_ended(&mut self) -> Option<String> {
        match &mut self.work {
            Work::Child(child) => {
                let status = child.try_wait().ok().flatten()?;
                let mut text = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    let _ = stderr.read_to_string(&mut text); // what is there is what is said
                }
                Some(format!("with {status}: {}", first_line(&text)))
            }
            Work::Daemon(known) => (!known.runs()).then(|| "in the background".to_owned()),
        }
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

    /// Asks it and its children to end and waits; after a while nobody is asked any more.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // Looked for now: when their parent has ended, nobody knows any more whose they were.
        let own = Known::look(self.id());
        let all: Vec<Known> = own.into_iter().chain(descendants(self.id())).collect();
        for signal in ["-TERM", "-KILL"] {
            all.iter().for_each(|known| known.signal(signal));
            let started = Instant::now();
            while started.elapsed() < END_TIME_MAX {
                // The first question also takes a child of ours off the table of processes.
                if self.has_ended().is_some() && !all.iter().any(|known| known.runs()) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_ended().is_none() {
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

/// What the kernel says of a process in one line.
fn stat(id: u32) -> Option<String> {
    fs::read_to_string(format!("/proc/{id}/stat")).ok()
}

/// The words of that line behind the program's name, which may have blanks: the state first.
fn words_behind_name(stat: &str) -> Option<std::str::SplitWhitespace<'_>> {
    let (_, rest) = stat.rsplit_once(')')?;
    Some(rest.split_whitespace())
}

fn children_of(id: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{id}/task")) else {
        return Vec::new();
    };
    let of_thread = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).ok();
    let texts: Vec<String> = threads.flatten().filter_map(of_thread).collect();
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

/// Children, and children of children.
fn descendants(id: u32) -> Vec<Known> {
    let of_child = |child| Known::look(child).into_iter().chain(descendants(child));
    children_of(id).into_iter().flat_map(of_child).collect()
}

fn cpu_seconds_of(id: u32) -> f64 {
    let ticks = stat(id).and_then(|text| cpu_ticks(&text)).unwrap_or(0);
    let of_children = children_of(id).into_iter().map(cpu_seconds_of);
    ticks as f64 / TICKS_PER_SECOND + of_children.sum::<f64>()
}

/// User and system time of a process and of its children that have ended and been waited for.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut words = words_behind_name(stat)?.skip(11);
    (0..4).try_fold(0, |sum, _| Some(sum + words.next()?.parse::<u64>().ok()?))
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

    /// A program in the background with a child that has worked and ended, and one that works for ever; and its number
    /// file.
    fn with_children(folder: &Path) -> Process {
        let file = folder.join("number");
        let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let script = format!(
            "({busy}) & wait; touch {}/worked; while :; do :; done & echo $$ > {}; wait",
            folder.display(),
            file.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &format!("sh -c '{script}' >/dev/null 2>&1 &")]);
        Process::start_in_background("sh", &mut command, &file).unwrap()
    }

    #[test]
    fn a_program_in_the_background_has_the_time_of_its_children_also_of_those_that_ended() {
        let folder = tempfile::tempdir().unwrap();
        let process = with_children(folder.path());
        assert!(folder.path().join("worked").exists());
        let own = stat(process.id()).unwrap();
        let ended = cpu_ticks(&own).unwrap() as f64 / TICKS_PER_SECOND;
        assert!(ended > 0.0, "of the child that ended: {own}");
        // The other child works on: its time is seen sooner or later.
        let started = Instant::now();
        while process.cpu_seconds() <= ended && started.elapsed() < START_TIME_MAX {
            std::thread::yield_now();
        }
        assert!(process.cpu_seconds() > ended);
        process.stop();
    }

    #[test]
    fn a_program_in_the_background_ends_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let process = with_children(folder.path());
        let own = Known::look(process.id()).unwrap();
        let children = descendants(process.id());
        assert_eq!(children.len(), 1);
        assert!(own.runs() && children[0].runs());
        drop(process);
        assert!(!own.runs() && !children[0].runs());
    }

    #[test]
    fn a_number_that_somebody_else_has_got_is_not_the_same_process() {
        let own = Known::look(std::process::id()).unwrap();
        let before = Known {
            began: own.began - 1,
            ..own
        };
        assert!(own.runs() && !before.runs());
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
