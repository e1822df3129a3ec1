//! A folder of ours in a file system, with one file: made for a workload, removed with everything in it.

use std::path::{Path, PathBuf};

use super::file::FilePlace;
use super::{Wish, interrupt};
use crate::error::LabError;
use crate::workload::{IoRequest, Operation};

/// How the folder's name begins; a number follows.
pub const FOLDER_PREFIX: &str = "plexum-lab-";

/// File when nothing else is said.
const FILE_BYTES: u64 = 100 << 20;
/// Length of the writes that give it content.
const FILL_BYTES: u64 = 1 << 20;
/// Space that stays free.
const SPARE_BYTES: u64 = 16 << 20;

/// The folder. Dropping it removes it.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) file: FilePlace,
    asks_direct: bool,
}

/// Removes the folder when making it fails half-way.
struct Made(Option<PathBuf>);

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            let _ = std::fs::remove_dir_all(path);
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Folder {
    pub(super) fn make(parent: &Path, wish: &Wish) -> Result<Self, LabError> {
        let told =
            |error: std::io::Error| LabError::Usage(format!("{}: {error}", parent.display()));
        let size_bytes = match wish.range_bytes {
            0 => FILE_BYTES,
            bytes => bytes,
        };
        let space = rustix::fs::statvfs(parent).map_err(|error| told(error.into()))?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if size_bytes.saturating_add(SPARE_BYTES) > free {
            return Err(LabError::Usage(format!(
                "{}: a file of {size_bytes} bytes is wanted, {free} are free",
                parent.display()
            )));
        }
        let path = parent.join(format!("{FOLDER_PREFIX}{}", std::process::id()));
        std::fs::create_dir(&path).map_err(told)?;
        let mut made = Made(Some(path.clone()));
        let file = FilePlace::create(&path.join("data"), size_bytes, wish)?;
        if wish.has_content {
            let mut lane = file.lane(0);
            let mut at = 0;
            while at < size_bytes {
                interrupt::check()?;
                let length = FILL_BYTES.min(size_bytes - at);
                let operation = Operation::Write;
                lane.carry_out(&IoRequest {
                    operation,
                    ..IoRequest::read(at, length)
                })?;
                at += length;
            }
            file.forget()?;
        }
        made.0 = None;
        Ok(Self {
            path,
            file,
            asks_direct: wish.is_direct,
        })
    }

    /// What a reader of the figures should know.
    pub(super) fn note(&self) -> Option<String> {
        (!self.asks_direct || !self.file.is_direct).then(|| {
            "the file goes through the page cache, as this program does: \
            with a file smaller than twice the memory it is memory that is measured"
                .to_owned()
        })
    }
}
