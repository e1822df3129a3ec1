//! What keeps something in a pool from being read.

use plexum_block::device::IoError;
use plexum_format::FormatError;

/// Why something could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the sentences say it
pub enum ZfsError {
    #[error("{member}: {error}")]
    Io { member: String, error: IoError },
    #[error("{0}")]
    Format(#[from] FormatError),
    #[error("{what}: no copy of the block has its checksum ({copies})")]
    Damaged { what: String, copies: String },
    #[error("{what}: {reason}")]
    Unsupported { what: String, reason: String },
    #[error("{0}")]
    NotFound(String),
    #[error("{what}: {problem}")]
    Invalid { what: String, problem: String },
    #[error("{0}")]
    Members(String),
    #[error("{0}")]
    OtherPool(String),
    #[error("{0}")]
    Roots(String),
}

impl ZfsError {
    /// The same error, which now says what was being read: `file tank/home:/a: ...`.
    #[must_use]
    pub fn inside(self, outer: &str) -> Self {
        match self {
            Self::Damaged { what, copies } => Self::Damaged {
                what: format!("{outer}: {what}"),
                copies,
            },
            Self::Unsupported { what, reason } => Self::Unsupported {
                what: format!("{outer}: {what}"),
                reason,
            },
            Self::Invalid { what, problem } => Self::Invalid {
                what: format!("{outer}: {what}"),
                problem,
            },
            Self::Format(error) => Self::Invalid {
                what: outer.to_owned(),
                problem: error.to_string(),
            },
            Self::Io { member, error } => Self::Invalid {
                what: outer.to_owned(),
                problem: format!("{member}: {error}"),
            },
            other => other,
        }
    }

    /// Whether the thing is refused for what it is, not for what happened to it.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }
}
