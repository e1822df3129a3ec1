//! The real programs: how each is called for a workload, and how its answer is read.
//!
//! Invariants:
//! - a figure is what the program printed; what it did not print has no figure;
//! - a program that is not installed is one line, and nothing was touched.

pub mod bonnie;
pub mod dd;
pub mod fio;
pub mod fio_file;
pub mod iozone;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::LabError;
use crate::place::interrupt;

/// Time between two looks at a program that runs. Its own clock gives the figures.
const LOOK: Duration = Duration::from_millis(20);

/// What a program printed.
#[derive(Clone, Debug, Default)]
pub struct Printed {
    /// On standard output.
    pub out: String,
    /// On standard error.
    pub err: String,
}

/// Whether the program is there.
///
/// # Errors
/// `Usage` when it is not.
pub fn find(program: &str) -> Result<(), LabError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|folder| folder.join(program).is_file()) {
        return Ok(());
    }
    Err(LabError::Usage(format!(
        "{program} is not installed; without --real its requests are made by the laboratory itself"
    )))
}

/// Runs it to its end; ends it when the end is asked for.
///
/// # Errors
/// `Usage` when it is not there; `Io` with its first words when it fails; `Interrupted`.
pub fn run(command: &mut Command) -> Result<Printed, LabError> {
    let name = command.get_program().to_string_lossy().into_owned();
    find(&name)?;
    let told = |error: std::io::Error| LabError::Io(format!("{name}: {error}"));
    let mut child = command
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(told)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (status, out, err) = std::thread::scope(|scope| {
        let (out, err) = (scope.spawn(|| all_of(out)), scope.spawn(|| all_of(err)));
        let status = loop {
            if interrupt::was_asked() {
                let _ = child.kill();
            }
            match child.try_wait() {
                Ok(None) => std::thread::sleep(LOOK),
                Ok(Some(status)) => break Ok(status),
                Err(error) => break Err(error),
            }
        };
        let text = |thread: std::thread::ScopedJoinHandle<'_, String>| thread.join();
        (status, text(out), text(err))
    });
    interrupt::check()?;
    let status = status.map_err(told)?;
    let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
    if !status.success() {
        let mut lines = err.lines().chain(out.lines()).map(str::trim);
        let why = lines.find(|line| !line.is_empty()).unwrap_or("no word");
        return Err(LabError::Io(format!("{name} ended with {status}: {why}")));
    }
    Ok(Printed { out, err })
}

fn all_of(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let _ = stream.read_to_end(&mut bytes); // what was read until then counts
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// An answer that is not understood.
fn unread(program: &str, what: &str) -> LabError {
    LabError::Io(format!("{program}: its answer is not understood: {what}"))
}
