//! Whether a disk is busy with itself.

use serde::{Deserialize, Serialize};

/// Whether a disk tests itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SelfTest {
    /// It does not say.
    Unknown,
    /// It does not.
    Idle,
    /// It does: do not scrub beside it.
    Running {
        /// What remains, percent, if it says.
        remaining_percent: Option<u64>,
    },
}
