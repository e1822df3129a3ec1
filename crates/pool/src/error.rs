//! What keeps a pool from being made, opened for writing, or written.

use plexum_block::device::IoError;
use plexum_format::FormatError;
use plexum_zfs::ZfsError;

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the sentences say it
pub enum PoolError {
    #[error("{0}")]
    Zfs(#[from] ZfsError),
    #[error("{0}")]
    Format(#[from] FormatError),
    #[error("{member}: {error}")]
    Io { member: String, error: IoError },
    #[error(
        "pool {pool} has no space left for this: {wanted_bytes} bytes are wanted, {free_bytes} are free"
    )]
    NoSpace {
        pool: String,
        wanted_bytes: u64,
        free_bytes: u64,
    },
    #[error("{0}")]
    Refused(String),
    #[error("{what}: {problem}")]
    Invalid { what: String, problem: String },
    #[error("pool {pool} was not written since an error, and is not written any more: {reason}")]
    Frozen { pool: String, reason: String },
}

impl PoolError {
    pub(crate) fn invalid(what: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Invalid {
            what: what.into(),
            problem: problem.into(),
        }
    }
}
