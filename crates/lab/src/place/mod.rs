//! Something real that a workload runs on: a device, a file, a folder of a file system, or a volume served over NBD.
//!
//! Invariants:
//! - nothing is written to a device, file or export that was not named as the one that may be destroyed;
//! - in a folder of somebody else's only one folder of ours is made, and it is removed again, after an interruption
//!   too;
//! - a request that does not lie in the place is refused, never cut.

mod file;
pub(crate) mod files;
mod folder;
pub mod interrupt;
pub(crate) mod lanes;
mod nbd;

use std::path::Path;
use std::time::Duration;

pub use folder::FOLDER_PREFIX;

use crate::error::LabError;
use crate::workload::{IoRequest, Outcome, Process};

/// Requests under way at most, all processes together.
pub const LANES_MAX: usize = 1024;

/// Requests of a replayed trace under way at most.
const TRACE_DEPTH: usize = 64;

/// A request with the time after the start before which it does not go out.
pub type Timed = (Option<u64>, IoRequest);

/// One process: its requests, each with a time when it has one.
pub struct Actor {
    /// Requests under way at most.
    pub depth: usize,
    /// Its requests.
    pub requests: Box<dyn Iterator<Item = Timed> + Send>,
}

impl Actor {
    /// A process without times.
    #[must_use]
    pub fn of(process: Process) -> Self {
        Self {
            depth: process.depth.max(1),
            requests: Box::new(process.requests.map(|request| (None, request))),
        }
    }

    /// A trace.
    #[must_use]
    pub fn replay(trace: Vec<(u64, IoRequest)>) -> Self {
        Self {
            depth: TRACE_DEPTH.min(trace.len()).max(1),
            requests: Box::new(trace.into_iter().map(|(at, request)| (Some(at), request))),
        }
    }
}

/// What is wanted of a place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish<'a> {
    /// Whether the workload writes.
    pub writes: bool,
    /// The name that was given as the one whose content may be lost.
    pub destroy: Option<&'a str>,
    /// Bytes of the file in a folder; 0 = as many as usual.
    pub range_bytes: u64,
    /// Whether the page cache is left out where that can be.
    pub is_direct: bool,
    /// Whether the file in a folder has content before the workload begins.
    pub has_content: bool,
}

enum Kind {
    File(file::FilePlace),
    Folder(folder::Folder),
    Nbd(nbd::NbdPlace),
}

/// Something real.
pub struct RealPlace {
    kind: Kind,
    /// What a reader of the figures should know.
    pub notes: Vec<String>,
}

impl RealPlace {
    /// Opens what `name` says: a folder, a device, a file or an NBD URI.
    ///
    /// # Errors
    /// `WouldDestroy` when it would be written to and was not named as the one that may be destroyed; `Usage` when it
    /// is not there, in use, or too small.
    pub fn open(name: &str, wish: Wish) -> Result<Self, LabError> {
        let mut notes = Vec::new();
        let told = |error: std::io::Error| LabError::Usage(format!("{name}: {error}"));
        if name.contains("://") {
            may_write(name, wish)?;
            let kind = Kind::Nbd(nbd::NbdPlace::open(name, &wish)?);
            return Ok(Self { kind, notes });
        }
        let path = Path::new(name);
        if std::fs::metadata(path).map_err(told)?.is_dir() {
            if wish.destroy.is_some() {
                return Err(not_destroyed(name));
            }
            let folder = folder::Folder::make(path, &wish)?;
            notes.extend(folder.note());
            let kind = Kind::Folder(folder);
            return Ok(Self { kind, notes });
        }
        may_write(name, wish)?;
        let file = file::FilePlace::open(path, &wish)?;
        if wish.is_direct && !file.is_direct {
            notes.push(format!(
                "{name}: requests go through the page cache here; what is measured is memory as much as the disk"
            ));
        }
        let kind = Kind::File(file);
        Ok(Self { kind, notes })
    }

    /// What `open` would be refused for; nothing is made. The size, where there is one before it is made.
    ///
    /// # Errors
    /// As `open`.
    pub fn rehearse(name: &str, wish: Wish) -> Result<Option<u64>, LabError> {
        if !name.contains("://") && Path::new(name).is_dir() {
            return match wish.destroy {
                Some(_) => Err(not_destroyed(name)),
                None => Ok(None),
            };
        }
        Self::open(name, wish).map(|place| Some(place.size_bytes())) // opened, and nothing is written
    }

    /// Its size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        match &self.kind {
            Kind::File(file) => file.size_bytes,
            Kind::Folder(folder) => folder.file.size_bytes,
            Kind::Nbd(export) => export.size_bytes,
        }
    }

    /// The folder of ours, when it is one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Folder(folder) => Some(&folder.path),
            _ => None,
        }
    }

    /// Runs all processes until their requests end or, when `limit` is given, no request starts after that time.
    ///
    /// # Errors
    /// The first request that failed; `Usage` for too many at once; `Interrupted`.
    pub fn run(&self, actors: Vec<Actor>, limit: Option<Duration>) -> Result<Outcome, LabError> {
        let lanes: usize = actors.iter().map(|actor| actor.depth).sum();
        if lanes == 0 || lanes > LANES_MAX {
            return Err(LabError::Usage(format!(
                "{lanes} requests at once; 1 to {LANES_MAX} are possible on something real"
            )));
        }
        match &self.kind {
            Kind::File(file) => lanes::run(file, actors, limit),
            Kind::Folder(folder) => lanes::run(&folder.file, actors, limit),
            Kind::Nbd(export) => export.run(actors, limit),
        }
    }
}

/// The size of a block device that nobody uses; opened for writing, and nothing is written.
///
/// # Errors
/// `Usage` when it is none, not there, or in use.
pub(crate) fn look_at_device(path: &Path) -> Result<u64, LabError> {
    let shown = path.display();
    let kind = std::fs::metadata(path)
        .map_err(|error| LabError::Usage(format!("{shown}: {error}")))?
        .file_type();
    if !std::os::unix::fs::FileTypeExt::is_block_device(&kind) {
        return Err(LabError::Usage(format!("{shown} is no block device")));
    }
    let wish = Wish {
        writes: true,
        ..Wish::default()
    };
    Ok(file::FilePlace::open(path, &wish)?.size_bytes)
}

fn not_destroyed(name: &str) -> LabError {
    LabError::Usage(format!(
        "{name} is a folder: nothing in it is destroyed, leave out --destroy"
    ))
}

fn may_write(name: &str, wish: Wish) -> Result<(), LabError> {
    match wish.destroy {
        Some(other) if other != name => Err(LabError::Usage(format!(
            "--destroy names \"{other}\", the workload runs on \"{name}\""
        ))),
        None if wish.writes => Err(LabError::WouldDestroy(format!(
            "this workload writes, and what is on {name} would be lost"
        ))),
        _ => Ok(()),
    }
}

/// Why a request failed, in one line.
fn failed(request: &IoRequest, error: impl std::fmt::Display) -> LabError {
    LabError::Io(format!(
        "{:?} of {} bytes at byte {}: {error}",
        request.operation, request.length_bytes, request.offset_bytes
    ))
}

/// Refuses what does not lie in the place.
fn check(request: &IoRequest, size_bytes: u64) -> Result<usize, LabError> {
    let end = request.offset_bytes.checked_add(request.length_bytes);
    let length = usize::try_from(request.length_bytes).unwrap_or(usize::MAX);
    if end.is_none_or(|end| end > size_bytes) || length > crate::target::REQUEST_BYTES_MAX {
        return Err(failed(request, "it does not fit"));
    }
    Ok(length)
}

#[cfg(test)]
mod tests;
