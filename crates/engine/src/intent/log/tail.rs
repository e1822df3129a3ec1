//! The tail of the log: room in the rings comes back behind records that are in place on all members and flushed (W2).
//!
//! Invariants:
//! - nobody flushes for the tail on the way of a write while there is room: the tail follows in the background once
//!   more than a quarter of a ring may still be needed;
//! - a writer that finds no room makes it himself, and waits for nobody but older writes.

use std::cell::Cell;
use std::rc::Rc;

use super::StripeLog;
use super::ring::Ring;
use crate::intent::Intent;
use crate::state::MemberId;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};

/// Rest after rows could not be put in place.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// True while it lives.
struct Flag<'a>(&'a Cell<bool>);

impl<'a> Flag<'a> {
    fn raise(cell: &'a Cell<bool>) -> Self {
        cell.set(true);
        Self(cell)
    }
}

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: Device> StripeLog<D> {
    /// Whether a ring fills, so that the tail should follow soon.
    pub(super) fn is_pressed(&self) -> bool {
        let book = self.book.borrow();
        book.rings.iter().flatten().any(Ring::is_filling)
    }

    /// Whether the tail should follow, and nobody is at it.
    pub(super) fn calls_for_tail(&self) -> bool {
        !self.is_tail_moving.get() && self.is_pressed()
    }

    /// Whether the tail could follow now.
    #[cfg(test)]
    pub(super) fn can_follow(&self) -> bool {
        let book = self.book.borrow();
        let gains = |ring: &Ring| ring.gains(book.covered);
        !self.overlay.borrow().is_empty()
            || book.floor() > book.covered
            || book.rings.iter().flatten().any(gains)
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// Moves the tail when the rings fill, so that writers seldom wait for it.
    pub(crate) async fn run_tail(&self) {
        while !self.array.is_ended() {
            self.base
                .changed()
                .until(|| self.array.is_ended() || self.is_tail_due())
                .await;
            if self.array.is_ended() {
                break;
            }
            let before = self.tail_places();
            let has_followed = self.follow().await.is_ok() && self.tail_places() != before;
            if !has_followed && !self.array.is_ended() {
                self.base.clock().sleep(RETRY_AFTER).await;
            }
        }
    }

    /// Whether the ring of a member that is here fills, and the tail could follow. A lost member's ring stays as it
    /// was.
    fn is_tail_due(&self) -> bool {
        let log = self.log.borrow();
        let Some(log) = log.as_ref() else {
            return false;
        };
        let drives = self.array.slotted_drives();
        let book = log.book.borrow();
        let rings = || drives.iter().filter_map(|drive| book.ring(drive.id));
        rings().any(Ring::is_filling)
            && (!log.overlay.borrow().is_empty()
                || book.floor() > book.covered
                || rings().any(|ring| ring.gains(book.covered)))
    }

    /// Where the tail is: up to what is covered, and by ring from where on it is needed.
    fn tail_places(&self) -> (u64, Vec<u64>) {
        let log = self.log.borrow();
        log.as_ref().map_or_else(Default::default, |log| {
            let book = log.book.borrow();
            let places = book.rings.iter().flatten().map(Ring::needed_from);
            (book.covered, places.collect())
        })
    }

    /// Puts the tail behind all that was durable when it began, as far as it is in place by itself or by us (L5).
    async fn follow(&self) -> Result<(), IoError> {
        let Some(log) = self.stripe_log() else {
            return Ok(());
        };
        let _flag = Flag::raise(&log.is_tail_moving);
        self.destage().await?;
        let is_behind = {
            let book = log.book.borrow();
            book.floor() > book.covered
        };
        if is_behind {
            self.flush_members().await?; // W2: the tail may follow
        }
        if self.stripe_log().is_some_and(|now| Rc::ptr_eq(&now, &log)) {
            self.write_log_headers(&log, &self.array.slotted_drives())
                .await?;
        }
        Ok(())
    }

    /// Back-pressure: makes room in the rings of `short`, or waits for what is in the way.
    pub(super) async fn make_room(
        &self,
        log: &StripeLog<D>,
        short: &[MemberId],
    ) -> Result<(), IoError> {
        let (can_release, floor, covered) = {
            let book = log.book.borrow();
            let gains = |member: &MemberId| {
                let ring = book.ring(*member);
                ring.is_some_and(|ring| ring.gains(book.covered))
            };
            (short.iter().any(gains), book.floor(), book.covered)
        };
        if can_release {
            let mut drives = self.array.slotted_drives();
            drives.retain(|drive| short.contains(&drive.id));
            return self.write_log_headers(log, &drives).await;
        }
        if floor > covered {
            return self.flush_members().await; // W2: the tail may follow
        }
        if !log.overlay.borrow().is_empty() {
            return self.destage().await; // L5: what is in the way waits for nobody but us
        }
        let progress = log.progress.changed();
        if log.book.borrow().floor() == floor && !self.array.is_frozen() {
            progress.await; // an older write is still on its way in place
        }
        Ok(())
    }

    /// Waits until every record is in place, flushes, and puts the tail behind them all.
    pub(super) async fn reset_rings(&self, log: &StripeLog<D>) -> Result<(), IoError> {
        loop {
            if self.array.is_frozen() {
                return Err(IoError::Failed);
            }
            self.destage().await?;
            let progress = log.progress.changed();
            if log.book.borrow().outstanding.is_empty() {
                break;
            }
            progress.await;
        }
        self.flush_members().await?; // W2: the tail may follow
        self.write_log_headers(log, &self.array.slotted_drives())
            .await?;
        log.book.borrow_mut().must_reset = false;
        Ok(())
    }
}
