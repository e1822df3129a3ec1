//! The stripe log for people.

use super::StripeLog;
use plexum_block::device::Device;

/// The stripe log as status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStatus {
    /// Length of a member's ring.
    pub ring_bytes: u64,
    /// Records that are durable and not yet in place.
    pub records_under_way: usize,
    /// An unclean stop now would leave no row in doubt, with or without further members.
    pub is_sure: bool,
    /// Writes are answered when they are durable in the log (L5).
    pub is_write_back: bool,
    /// Bytes of blocks that are in the log and not in place.
    pub logged_bytes: u64,
}

impl<D: Device> StripeLog<D> {
    /// For status.
    pub(crate) fn status(&self) -> LogStatus {
        let book = self.book.borrow();
        let rings = book.rings.iter().flatten().map(|ring| ring.area.ring_bytes);
        LogStatus {
            ring_bytes: rings.min().unwrap_or(0),
            records_under_way: book.outstanding.len(),
            is_sure: book.is_sure,
            is_write_back: self.is_write_back(),
            logged_bytes: self.logged_bytes(),
        }
    }
}
