//! Where members lie while they are measured: a folder on tmpfs, or on a real file system, that is gone afterwards.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::{BenchError, BenchOptions};

/// Memory as a file system, where Linux has it.
const MEMORY: &str = "/dev/shm";

/// Temporary files that survive a restart, and so are on a disk.
const DISK: &str = "/var/tmp";

/// File systems that are memory, and take direct I/O without doing it: tmpfs and ramfs, by `statfs(2)`.
const MEMORY_FILE_SYSTEMS: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// A folder that is removed with everything in it.
pub(crate) struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    pub fn make(options: &BenchOptions) -> Result<Self, BenchError> {
        let memory = Path::new(MEMORY);
        let base = match &options.folder {
            Some(folder) => folder.clone(),
            None if memory.is_dir() => memory.to_owned(),
            None => std::env::temp_dir(),
        };
        Self::below(&base)
    }

    /// On a file system that takes direct I/O.
    ///
    /// # Errors
    /// Why it does not.
    pub fn on_disk(options: &BenchOptions) -> Result<Self, BenchError> {
        let base = options.disk_folder.as_deref().unwrap_or(Path::new(DISK));
        let told = |error: std::io::Error| BenchError(format!("{}: {error}", base.display()));
        let system = rustix::fs::statfs(base).map_err(|error| told(error.into()))?;
        if MEMORY_FILE_SYSTEMS.contains(&(system.f_type as u32)) {
            return Err(BenchError(format!(
                "{} is in memory, past which no O_DIRECT goes: see --disk-folder",
                base.display()
            )));
        }
        let place = Self::below(base)?;
        let mut open = std::fs::OpenOptions::new();
        open.write(true).create(true).custom_flags(direct_flag());
        open.open(place.0.join("direct")).map_err(|error| {
            BenchError(format!(
                "{} takes no O_DIRECT ({error}): see --disk-folder",
                base.display()
            ))
        })?;
        Ok(place)
    }

    fn below(base: &Path) -> Result<Self, BenchError> {
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

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // what is left is in the folder for temporary files
    }
}

/// The flag of `open` that asks for direct I/O.
pub(crate) fn direct_flag() -> i32 {
    i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0)
}
