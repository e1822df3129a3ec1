//! Why devices do not make a volume.

use plexum_format::FormatError;

use crate::assemble::AssembleError;
use plexum_block::device::IoError;

/// Why devices do not make a volume.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A device could not be read.
    Io {
        /// Index of the device as given.
        index: usize,
        /// What happened.
        error: IoError,
    },
    /// A device holds no metadata we know.
    NothingFound {
        /// Index of the device as given.
        index: usize,
    },
    /// A device holds damaged metadata.
    Format {
        /// Index of the device as given.
        index: usize,
        /// What is wrong.
        error: Box<FormatError>,
    },
    /// The members do not fit together.
    Assemble(Box<AssembleError>),
    /// The stripe log could not be replayed.
    Log(String),
    /// mdadm's backup file is of no use; its name comes first.
    Backup(String),
    /// The array was stopped in the middle of a reshape, or has writes in a journal only: `open_pieces` reads it.
    InPieces,
    /// The assembly can only be read, and this was not asked for, or cannot be read by this version.
    NotSupported(String),
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Io { index, error } => write!(f, "member {index}: {error}"),
            OpenError::NothingFound { index } => {
                write!(f, "member {index}: no array metadata found")
            }
            OpenError::Format { index, error } => write!(f, "member {index}: {error}"),
            OpenError::Assemble(error) => f.write_str(&error.message),
            OpenError::InPieces => {
                f.write_str("the array has to be read from several places; add --read-only")
            }
            OpenError::NotSupported(reason)
            | OpenError::Log(reason)
            | OpenError::Backup(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    /// The same of the member with this index.
    pub(crate) fn of_member(self, index: usize) -> Self {
        match self {
            OpenError::Io { error, .. } => OpenError::Io { index, error },
            OpenError::Format { error, .. } => OpenError::Format { index, error },
            other => other,
        }
    }
}
