//! How a member is opened, and why it could not be.

use std::io;
use std::path::PathBuf;

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// Through the reactor.
    Queued,
    /// By plain calls on the runtime's thread: for files in memory (tmpfs), where a ring or a thread costs more.
    Inline,
}

/// What a member is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Nothing is changed; several readers may have it open.
    ReadOnly,
    /// For this process alone.
    ReadWrite,
}

/// Whether transfers bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Where the file system takes it.
    #[default]
    Auto,
    /// Never.
    Off,
}

/// How to open a member.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// What for.
    pub access: Access,
    /// Whether to bypass the page cache.
    pub direct_io: DirectIo,
    /// `None`: inline for files in memory, otherwise queued.
    pub route: Option<Route>,
    /// The bytes that are used, when that is only a part of it: nobody else may have those. `None`: all.
    pub part: Option<Part>,
}

/// A part of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub start_bytes: u64,
    /// How long it is, above 0.
    pub length_bytes: u64,
}

impl OpenOptions {
    /// For reading and writing, alone, direct where possible.
    #[must_use]
    pub fn read_write() -> Self {
        Self {
            access: Access::ReadWrite,
            direct_io: DirectIo::Auto,
            route: None,
            part: None,
        }
    }

    /// For reading only, beside other readers.
    #[must_use]
    pub fn read_only() -> Self {
        Self {
            access: Access::ReadOnly,
            ..Self::read_write()
        }
    }
}

/// Why a member could not be opened. The text is one line: what, where, and what to do where that is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file does not exist, may not be opened, or a call on it failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    System {
        /// The file as given.
        path: PathBuf,
        /// The verb: what was tried.
        action: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{}: is {found}; a member is a regular file or a block device", path.display())]
    NotAMember {
        /// The file as given.
        path: PathBuf,
        /// What it is instead, with its article.
        found: &'static str,
    },
    /// It was to be written, and can only be read.
    #[error("{}: is read-only: {why}", path.display())]
    ReadOnly {
        /// The file as given.
        path: PathBuf,
        /// Who says so, as a clause.
        why: &'static str,
    },
    /// Another process, or another member of this one, has it.
    #[error("{}: in use by {}", path.display(), user_of(*pid))]
    InUse {
        /// The file as given.
        path: PathBuf,
        /// The process, where the kernel tells.
        pid: Option<u32>,
    },
    /// The kernel has it: a block device that is mounted, swap, or part of an array; a file behind a loop device, or
    /// swap.
    #[error("{}: in use by {}", path.display(), holders_of(holders))]
    Busy {
        /// The device as given.
        path: PathBuf,
        /// Each holder with how to end its use, as far as known.
        holders: Vec<String>,
    },
}

impl OpenError {
    /// Whether somebody else uses the member (exit code 6).
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, OpenError::InUse { .. } | OpenError::Busy { .. })
    }
}

fn holders_of(holders: &[String]) -> String {
    if holders.is_empty() {
        "another process or the kernel (mounted, swap, or opened exclusively)".to_owned()
    } else {
        holders.join(", ")
    }
}

fn user_of(pid: Option<u32>) -> String {
    match pid {
        Some(pid) if pid == std::process::id() => {
            "this process already (was it given twice?)".to_owned()
        }
        Some(pid) => format!("another process ({pid})"),
        None => "another process".to_owned(),
    }
}
