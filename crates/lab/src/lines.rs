//! Results as JSON lines, one for each run that has ended: what was there before a kill is kept, half a line is left
//! out.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::LabError;

fn told(path: &Path, error: &std::io::Error) -> LabError {
    LabError::Io(format!("{}: {error}", path.display()))
}

/// All whole lines of a file; none when it is not there.
///
/// # Errors
/// `Io` when it cannot be read.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, LabError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(told(path, &error)),
    }
}

/// A file that lines are added to.
pub(crate) struct Lines {
    path: PathBuf,
    file: File,
}

impl Lines {
    /// Opens or makes the file. A run that was killed may have left half a line: the next one begins on its own.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    pub(crate) fn append(path: &Path) -> Result<Self, LabError> {
        let open = || {
            let mut file = File::options().create(true).append(true).open(path)?;
            let text = std::fs::read(path)?;
            if text.last().is_some_and(|byte| *byte != b'\n') {
                file.write_all(b"\n")?;
            }
            Ok(file)
        };
        Ok(Self {
            path: path.to_owned(),
            file: open().map_err(|error| told(path, &error))?,
        })
    }

    /// Adds one line.
    ///
    /// # Errors
    /// `Io` when it cannot be written.
    pub(crate) fn add(&mut self, value: &impl Serialize) -> Result<(), LabError> {
        let line =
            serde_json::to_string(value).map_err(|error| LabError::Bug(error.to_string()))?;
        writeln!(self.file, "{line}").map_err(|error| told(&self.path, &error))
    }
}
