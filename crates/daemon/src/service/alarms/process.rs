//! A program that takes a message: started with a time limit, what it says is kept short.
//!
//! Invariants:
//! - nobody waits longer than the limit: whoever exceeds it is killed, with all that it has started;
//! - it gets no shell, and what it says is one line.

use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How often it is looked whether a program has ended: the end of its output says nothing, others may hold that open.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What is read of a program's output, in bytes; the rest is passed over.
const OUTPUT_BYTES_MAX: usize = 4096;

/// How a program ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its exit.
    status: ExitStatus,
    /// The first of what it wrote, to either output.
    output: String,
}

impl Ended {
    /// What it said, in a line, when it has succeeded.
    ///
    /// # Errors
    /// How it ended, and the last line that it said.
    pub(super) fn answer(self, program: &str) -> Result<String, String> {
        let mut lines = self.output.lines().map(str::trim);
        let last = lines.rfind(|line| !line.is_empty()).unwrap_or_default();
        match (self.status.success(), last.is_empty()) {
            (true, true) => Ok(format!("{program}: done")),
            (true, false) => Ok(last.to_owned()),
            (false, true) => Err(format!("{program}: {}", self.status)),
            (false, false) => Err(format!("{program}: {}: {last}", self.status)),
        }
    }
}

/// Runs a program with `input` on its standard input, for `limit` at most.
///
/// # Errors
/// One line: it cannot be started, or took too long.
pub(super) fn run(mut command: Command, input: String, limit: Duration) -> Result<Ended, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let told = |error: io::Error| format!("{program}: {}", crate::problem::words_of(&error));
    let deadline = Instant::now() + limit;
    let (reader, writer) = io::pipe().map_err(told)?;
    command
        .stdin(Stdio::piped())
        .stdout(writer.try_clone().map_err(told)?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn().map_err(told)?;
    drop(command); // it holds the output open
    if let Some(mut stdin) = child.stdin.take() {
        let write = move || drop(stdin.write_all(input.as_bytes())); // who does not read it does not want it
        let _ = std::thread::Builder::new().spawn(write);
    }
    let output = read_in_background(reader);
    match wait(&mut child, deadline) {
        Ok(status) => {
            kill_all(&child); // what it has left behind
            let output = output.recv_timeout(LOOK_EVERY * 10).unwrap_or_default();
            Ok(Ended { status, output })
        }
        Err(error) => {
            kill_all(&child);
            let _ = child.kill();
            let _ = child.wait();
            Err(match error {
                Some(error) => told(error),
                None => format!(
                    "{program}: no end after {} s, it was killed",
                    limit.as_secs()
                ),
            })
        }
    }
}

/// Kills the group that the program leads.
fn kill_all(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

fn read_in_background(mut reader: PipeReader) -> Receiver<String> {
    let (sender, output) = channel();
    let read = move || {
        let mut kept = Vec::new();
        let _ = (&mut reader)
            .take(OUTPUT_BYTES_MAX as u64)
            .read_to_end(&mut kept);
        let _ = sender.send(String::from_utf8_lossy(&kept).into_owned());
        let _ = io::copy(&mut reader, &mut io::sink());
    };
    let _ = std::thread::Builder::new().spawn(read);
    output
}

/// The program's exit; an error of waiting, or none when the deadline is over.
fn wait(child: &mut Child, deadline: Instant) -> Result<ExitStatus, Option<io::Error>> {
    loop {
        if let Some(status) = child.try_wait().map_err(Some)? {
            return Ok(status);
        }
        if Instant::now() >= deadline {
            return Err(None);
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<String, String> {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        run(command, "input".into(), limit).and_then(|ended| ended.answer("sh"))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn the_last_line_that_a_program_says_is_its_answer() {
        assert_eq!(shell("cat; echo; echo taken >&2", LONG).unwrap(), "taken");
        assert_eq!(shell("true", LONG).unwrap(), "sh: done");
        let failed = shell("echo no room; exit 3", LONG).unwrap_err();
        assert_eq!(failed, "sh: exit status: 3: no room");
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let error = run(Command::new("/nothere"), String::new(), LONG).unwrap_err();
        assert_eq!(error, "/nothere: no such file or directory");
    }

    #[test]
    fn who_takes_too_long_is_killed_with_all_that_it_has_started() {
        let limit = Duration::from_millis(50);
        let error = shell("sleep 1000 & sleep 1000", limit).unwrap_err();
        assert!(error.contains("it was killed"), "{error}");
        // What is left behind does not hold the answer up.
        assert_eq!(shell("sleep 1000 & echo started", LONG).unwrap(), "started");
    }

    #[test]
    fn much_output_and_unread_input_hold_nobody_up() {
        let much = shell("head -c 1000000 /dev/zero | tr '\\0' '\\n'; exit 0", LONG);
        assert_eq!(much.unwrap(), "sh: done");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "exit 0"]);
        let ended = run(command, "x".repeat(1 << 20), LONG).unwrap();
        assert_eq!(ended.answer("sh").unwrap(), "sh: done");
    }
}
