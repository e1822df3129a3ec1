//! The fault budget: what may be lost now without leaving the promise of the organisation.
//!
//! Invariants (within the promise):
//! - lost members plus members with latent errors in one place never exceed what the organisation tolerates;
//! - parity without a log promises nothing for a crash while a member is missing, nor for a loss while parity is in
//!   doubt: such a crash waits, or is followed by the refusal that the contract demands.

use std::ops::Range;

use plexum_block::device::IoError;

use super::scenario::Promise;
use super::slots::SlotArray;
use super::spec::Level;
use crate::world::Scene;
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::Fault;

/// Latent errors closer than this on two members count as one place.
const PLACE_BYTES: u64 = 65536;

impl<S: SlotArray> Scene<S> {
    /// Slots without a member that can be relied on, now and after a crash.
    pub(super) fn lost_slots(&self) -> usize {
        let status = self.subject().status();
        let struck = self.struck.borrow();
        let is_held = |disk: &u32| {
            let device = &self.disks[*disk as usize];
            // Bad blocks count wherever and as often as the disk is used again.
            !struck.contains(disk)
                && !status.unsure.contains(disk)
                && device.is_present()
                && !device.has_write_errors()
        };
        status
            .slots
            .iter()
            .filter(|slot| !slot.as_ref().is_some_and(is_held))
            .count()
    }

    /// Forgets struck disks that the array has dropped: their slot counts as lost by itself.
    pub(super) fn review_struck(&self) {
        let live = self.subject().status().live;
        self.struck.borrow_mut().retain(|disk| live.contains(disk));
    }

    /// Most other disks of the array with latent errors, or blocks on the list of bad ones (a disk that was filled
    /// while it was full), in one place near `range` (data offsets).
    fn crowded(&self, disk: u32, range: &Range<u64>) -> usize {
        let subject = self.subject();
        let status = subject.status();
        let near = range.start / PLACE_BYTES * PLACE_BYTES..range.end.next_multiple_of(PLACE_BYTES);
        let near = match self.plan.spec.level {
            Level::Raid10 => 0..u64::MAX / 2, // copies lie at different offsets: anywhere counts
            _ => near,
        };
        let has_bad = |other: u32| {
            let mut bad = status.bad_ranges.iter();
            bad.any(|(slot, range)| {
                let is_its = status.slots.get(*slot) == Some(&Some(other));
                is_its && range.start < near.end && near.start < range.end
            })
        };
        let others = status.live.iter().filter(|other| **other != disk);
        others
            .filter(|other| {
                let start = subject.data_offset_bytes(**other);
                let area = start + near.start..start + near.end;
                self.disks[**other as usize].has_read_errors(&area) || has_bad(**other)
            })
            .count()
    }

    pub(super) fn has_read_errors(&self) -> bool {
        let everywhere = 0..u64::MAX;
        self.disks
            .iter()
            .any(|disk| disk.has_read_errors(&everywhere))
    }

    /// Whether `fault` (ranges in data offsets) may strike `disk` now.
    pub(super) fn admits(&self, disk: u32, fault: &Fault) -> bool {
        let tolerates = self.plan.spec.tolerates();
        if self.memory.is_unplugged.get() {
            return false;
        }
        if self.plan.promise == Promise::Beyond {
            return true;
        }
        let whole = 0..self.plan.spec.component_bytes;
        let is_doubtful = self.plan.spec.level.has_parity() && self.subject().status().is_doubtful;
        let lost = self.lost_slots();
        match fault {
            Fault::Slow { .. } | Fault::Return => true,
            // A write that is refused half-way leaves its row in doubt: parity has nothing to spare then.
            Fault::NoSpace(_) => {
                !self.plan.spec.level.has_parity()
                    || !is_doubtful
                        && lost == 0
                        && self.struck.borrow().is_empty()
                        && self.reserved.borrow().is_empty()
                        && !self.has_read_errors()
            }
            _ if self.plan.spec.level.has_parity() && self.disks.iter().any(SimDisk::is_full) => {
                false
            }
            Fault::Retryable { .. } => !self.disks[disk as usize].has_retryable(),
            Fault::ReadError(range) if !self.may_cost_the_member(disk) => {
                !is_doubtful && lost + self.crowded(disk, range) < tolerates
            }
            Fault::ReadError(_)
            | Fault::WriteError(_)
            | Fault::TornWrite(_)
            | Fault::FlushError { .. }
            | Fault::Vanish
            | Fault::Hang => !is_doubtful && lost + self.crowded(disk, &whole) < tolerates,
            Fault::BitFlip { .. } | Fault::LostWrite(_) | Fault::MisdirectedWrite { .. } => false,
        }
    }

    /// Whether further read errors may end the membership of `disk`: a block that was written to be mended and cannot
    /// be read after that goes on the list of bad blocks, and superblocks of 0.90 have none. So it is with new errors
    /// in the middle of a mend.
    fn may_cost_the_member(&self, disk: u32) -> bool {
        let everywhere = 0..u64::MAX;
        self.plan.metadata == 90 && self.disks[disk as usize].has_read_errors(&everywhere)
    }

    /// Whether a crash now would meet the write hole: parity without a log, and a part of some row that only parity
    /// has.
    pub(super) fn has_hole(&self) -> bool {
        // With a log, rows that were being written are wholly old or new. Only what a resync has not reached is in
        // doubt.
        let has_log = self.plan.spec.log_bytes.is_some();
        self.plan.spec.level.has_parity()
            && (!has_log || self.subject().status().is_doubtful)
            && (self.lost_slots() > 0
                || !self.subject().status().bad_ranges.is_empty()
                || self.has_read_errors())
    }

    /// Whether an error answer is right now: anything beyond the promise, "no space" while a disk is full.
    pub(super) fn may_answer(&self, error: IoError) -> bool {
        let is_full = || self.disks.iter().any(SimDisk::is_full) || self.was_full.get();
        self.are_errors_allowed.get()
            || self.memory.is_unplugged.get()
            || error == IoError::NoSpace && is_full()
    }

    /// Whether a crash stays within the promise now.
    pub(super) fn may_crash(&self) -> bool {
        if self.plan.promise == Promise::Beyond || !self.plan.spec.level.has_parity() {
            return true;
        }
        if self.subject.borrow().is_none() {
            return true; // it is being assembled, and nothing has changed since the last crash
        }
        if self.memory.is_unplugged.get() {
            return true;
        }
        // Some seeds take the crash all the same and expect refusals and errors, never wrong data.
        self.plan.takes_holes || !self.has_hole()
    }
}
