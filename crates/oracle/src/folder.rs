//! A temporary folder that removes itself.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A new folder below the system's temporary folder; removed, with all in it, when dropped.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder with `name` as a part of its name.
    ///
    /// # Errors
    /// Those of making a folder.
    pub fn new(name: &str) -> io::Result<Folder> {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("plexum-{name}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path)?;
        Ok(Folder { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `count` sparse member files of `size_bytes`: `m00`, `m01`, ...
    ///
    /// # Errors
    /// Those of making a file.
    pub fn members(&self, count: usize, size_bytes: u64) -> io::Result<Vec<PathBuf>> {
        (0..count)
            .map(|index| {
                let path = self.path.join(format!("m{index:02}"));
                std::fs::File::create(&path)?.set_len(size_bytes)?;
                Ok(path)
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What cannot be removed stays in the temporary folder: nothing depends on it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
