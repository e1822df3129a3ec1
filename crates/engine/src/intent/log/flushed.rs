//! What a flush of all members says about the log: which records are covered, and where parity is right.
//!
//! Invariants:
//! - a flush covers what was in place, and right, when it began (W2);
//! - flushes overlap: one that began earlier takes nothing back from a later one that has ended before it.

use std::rc::Rc;

use super::{Book, StripeLog};
use crate::intent::Intent;
use plexum_block::clock::Clock;
use plexum_block::device::Device;

/// What a flush of all members will have covered when it ends.
pub(crate) struct FlushBegun<D> {
    log: Rc<StripeLog<D>>,
    floor: u64,
    covers: Vec<u64>,
    doubt: u64,
    doubts: u64,
}

impl Book {
    /// Parity may be wrong from here on.
    pub(super) fn lower_doubt(&mut self, from_bytes: u64) {
        self.doubts += 1;
        self.flushed_doubt = self.flushed_doubt.min(from_bytes);
    }

    /// A flush has ended that began when doubt had grown `doubts` times and reached from `doubt`; `now`: where it
    /// begins by now. Flushes overlap: one that began earlier takes nothing back from a later one that has ended before
    /// it.
    pub(super) fn raise_doubt(&mut self, doubts: u64, doubt: u64, now: u64) {
        if doubts == self.doubts {
            self.flushed_doubt = self.flushed_doubt.max(doubt);
        }
        self.flushed_doubt = self.flushed_doubt.min(now);
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// A flush of all members begins.
    pub(crate) fn before_flush(&self) -> Option<FlushBegun<D>> {
        let log = self.stripe_log()?;
        let doubt = self.regions.borrow().consistent_below_bytes();
        let (floor, covers, doubts) = {
            let book = log.book.borrow();
            (book.floor(), book.written(), book.doubts)
        };
        Some(FlushBegun {
            log,
            floor,
            covers,
            doubt: doubt.unwrap_or(u64::MAX),
            doubts,
        })
    }

    /// That flush has ended well on all live members.
    pub(crate) fn after_flush(&self, begun: Option<FlushBegun<D>>) {
        let Some(FlushBegun {
            log,
            floor,
            covers,
            doubt,
            doubts,
        }) = begun
        else {
            return;
        };
        let now = self
            .regions
            .borrow()
            .consistent_below_bytes()
            .unwrap_or(u64::MAX);
        let mut book = log.book.borrow_mut();
        for drive in self.array.live_drives() {
            book.note_flushed(drive.id, &covers);
        }
        book.covered = book.covered.max(floor);
        assert!(
            book.covered <= book.next_sequence,
            "no record is covered that was not given out"
        );
        book.raise_doubt(doubts, doubt, now);
    }
}
