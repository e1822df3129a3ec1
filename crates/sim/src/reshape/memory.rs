//! What the rules of a reshape remember from one life to the next.

use std::cell::Cell;

/// What these rules remember.
#[derive(Default)]
pub struct ReshapeMemory {
    /// Highest event count that was ever seen on a disk.
    pub(super) highest_count: Cell<u64>,
}
