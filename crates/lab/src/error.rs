//! Why an experiment was refused or failed.

use plexum_block::device::IoError;

use crate::world::Stalled;

/// An experiment that cannot be, or that went wrong.
#[derive(Debug)]
#[non_exhaustive]
pub enum LabError {
    /// It makes no sense as asked; nothing was touched.
    Usage(String),
    /// It would write to something that may hold data; nothing was touched.
    WouldDestroy(String),
    /// This one cannot be run here, with the reason; others can.
    Skipped(String),
    /// A request failed.
    Io(String),
    /// A member left the volume while it was measured: the figures would be those of another arrangement.
    MemberLost(String),
    /// Somebody asked for the end; what was made was removed.
    Interrupted,
    /// A bug of the laboratory.
    Bug(String),
}

impl std::fmt::Display for LabError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LabError::Usage(text)
            | LabError::WouldDestroy(text)
            | LabError::Skipped(text)
            | LabError::Io(text)
            | LabError::MemberLost(text)
            | LabError::Bug(text) => f.write_str(text),
            LabError::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for LabError {}

impl From<IoError> for LabError {
    fn from(error: IoError) -> Self {
        LabError::Io(format!("a request failed: {error}"))
    }
}

impl From<Stalled> for LabError {
    fn from(error: Stalled) -> Self {
        LabError::Bug(error.to_string())
    }
}
