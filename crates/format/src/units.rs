//! Units that the whole project shares: sectors, event counts, slots.
//!
//! Invariants:
//! - an on-disk sector number always counts sectors of 512 bytes, whatever the device's own sector size is;
//! - an event count never mixes with other integers by accident;
//! - a slot is a position in an array, never an index into a table of devices.

use std::fmt;

/// Bytes of the sector that every on-disk sector number in this crate counts.
pub const SECTOR_BYTES: u64 = 512;

/// Number of superblock commits of an array: the higher, the fresher the member.
///
/// Source: linux-md.md section 10 (events).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct EventCount(pub u64);

impl EventCount {
    /// The count of the next superblock commit. Saturates: at one commit a nanosecond that takes 584 years.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Whether a member with this count is at most one commit behind `newest`, as a crash between two superblock
    /// writes leaves it. A count above `newest` is fresh too (the caller picked `newest` badly, not the member).
    ///
    /// Source: linux-md.md section 9, rule 2.
    #[must_use]
    pub fn is_fresh_beside(self, newest: Self) -> bool {
        self.next() >= newest
    }
}

impl fmt::Display for EventCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Position of a member in an array, from 0 (md: role).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index into a table that has one entry for each slot.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_one_commit_behind_is_fresh_and_two_behind_is_not() {
        assert!(EventCount(41).is_fresh_beside(EventCount(42)));
        assert!(EventCount(42).is_fresh_beside(EventCount(42)));
        assert!(!EventCount(40).is_fresh_beside(EventCount(42)));
        assert!(EventCount(u64::MAX).is_fresh_beside(EventCount(u64::MAX)));
    }
}
