//! Where members lie while they are measured: a folder on tmpfs that is gone afterwards.

use std::path::{Path, PathBuf};

use crate::{BenchError, BenchOptions};

/// Memory as a file system, where Linux has it.
const MEMORY: &str = "/dev/shm";

/// A folder that is removed with everything in it.
pub(crate) struct Place(PathBuf);

impl Place {
    pub fn make(options: &BenchOptions) -> Result<Self, BenchError> {
        let memory = Path::new(MEMORY);
        let base = match &options.folder {
            Some(folder) => folder.clone(),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        // Short: a socket's path has 107 bytes at most.
        let path = base.join(format!("plexum-bench-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path); // from a run with the same number that was killed
        let place = Self(path);
        std::fs::create_dir_all(&place.0).map_err(|error| place.told(&error))?;
        Ok(place)
    }

    /// A new folder of this name, with its blanks and commas made harmless.
    pub fn folder(&self, name: &str) -> Result<PathBuf, BenchError> {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).map_err(|error| self.told(&error))?;
        Ok(path)
    }

    fn told(&self, error: &std::io::Error) -> BenchError {
        BenchError(format!("{}: {error}", self.0.display()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // what is left is in the folder for temporary files
    }
}
