//! From one geometry to another while clients are served: two volumes over the same members, and a border between them
//! that moves, upwards or downwards.
//!
//! Invariants:
//! - behind the border an address is where the new geometry puts it, ahead of it where the old one does; a request over
//!   the border is cut there;
//! - a window is copied under its lock, flushed, and only then the border is made durable, before anybody may read or
//!   write there (R2, R4). What may or may not be durable is answered with an error: a later start may take either;
//! - a window never writes over the old place of what is not behind the border on the members (R3). The critical
//!   section, of which that cannot be said, is kept elsewhere until it is in place (R6);
//! - new space reads as zeroes, with the parity of zeroes (R11);
//! - nothing else works on the members: no resync, no rebuild, no scrub of either volume. After a crash parity is made
//!   anew on both sides before the border moves, or, where the halves are bound, by a resync when all has moved;
//! - a member that fails is lost until the migration has ended.
//!
//! All requests go through the one migration, on the home shard (W12): it has no part that could be lent.
//!
//! Source: md-reshape.md section 8.

mod halves;
mod position;
mod run;
#[cfg(test)]
mod tests;
mod window;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

pub use halves::Bond;
use halves::{Halves, Side};
pub use position::{Direction, Position, Unfit};
pub use window::{Window, WindowSpec};

use crate::upkeep::{JobKind, JobStatus};
use crate::volume::Volume;
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::lock::{RangeGuard, RangeLocks};
use plexum_block::wait::Signal;

/// Where the position is durable, and what is kept of the critical section: a format's part of a migration. Who writes
/// is the migration alone, one call after the other.
#[allow(async_fn_in_trait)] // one thread owns a volume; its futures are never sent
pub trait Ledger {
    /// Makes a position durable: on every member, or on so many that no loss the volume survives takes it away. What
    /// was written before has been flushed, and what was given to `keep`.
    ///
    /// # Errors
    /// Nobody knows whether a later start will find it.
    async fn save(&self, position: Position) -> Result<(), IoError>;

    /// All has moved, and is flushed: makes durable that there is but the new geometry (R10).
    ///
    /// # Errors
    /// As `save`.
    async fn end(&self) -> Result<(), IoError>;

    /// Keeps a part of the critical section, where nothing is that either geometry needs until it is in place.
    ///
    /// # Errors
    /// It could not be written.
    async fn keep(&self, at_bytes: u64, data: Buf) -> Result<(), IoError>;

    /// Makes durable what `keep` has written.
    ///
    /// # Errors
    /// It is not.
    async fn flush_kept(&self) -> Result<(), IoError>;

    /// Reads a part of what is kept, all of it.
    ///
    /// # Errors
    /// It could not be read.
    async fn kept(&self, range: Range<u64>) -> Result<Buf, IoError>;

    /// Parity is right on both sides of the border: the next `save` may say so.
    fn note_proven(&self);
}

/// What a migration is made of.
pub struct MigrationParts<D: Device, C: Clock, L: Ledger> {
    /// The volume as it was, over the members that are there; nothing of it runs in the background.
    pub before: Volume<D, C>,
    /// The volume as it will be, over the same members and new ones.
    pub after: Rc<Volume<D, C>>,
    /// Who makes durable what the old one learns of its members.
    pub bond: Bond,
    /// How their rows lie over each other.
    pub window: Window,
    /// Where the position is durable.
    pub ledger: L,
    /// What it says.
    pub position: Position,
    /// Writes were under way when it was left: parity may be wrong on both sides.
    pub is_doubtful: bool,
}

/// A volume between two geometries; to clients it has the smaller size. One thread owns it.
pub struct Migration<D: Device, C: Clock, L: Ledger> {
    halves: Halves<D, C>,
    /// Size of the old volume.
    old_bytes: u64,
    size_bytes: Cell<u64>,
    window: Window,
    ledger: L,
    is_doubtful: bool,
    locks: RangeLocks,
    border_bytes: Cell<u64>,
    kept_bytes: Cell<u64>,
    /// What a position stands for that was given to the ledger, and that nobody knows to be durable.
    unsure: RefCell<Range<u64>>,
    is_stopping: Cell<bool>,
    /// It stops where it can be turned round.
    is_turning: Cell<bool>,
    is_running: Cell<bool>,
    /// An error stopped it.
    has_failed: Cell<bool>,
    /// When it began to run, and the border then.
    begun: Cell<Option<(Moment, u64)>>,
    changed: Signal,
}

impl<D: Device, C: Clock, L: Ledger> Migration<D, C, L> {
    /// Puts it together; nothing is read or written yet.
    ///
    /// # Errors
    /// `Unfit`: a position that no migration ever made durable, or downwards.
    pub fn new(parts: MigrationParts<D, C, L>) -> Result<Self, Unfit> {
        let window = parts.window;
        let is_down = window.direction() == Direction::Down;
        if is_down && window.critical_bytes() > 0 {
            return Err(Unfit::DownwardsInPlace);
        }
        window.check(parts.position)?;
        let (old_bytes, new_bytes) = (parts.before.size_bytes(), parts.after.size_bytes());
        assert_eq!(
            window.all_bytes(),
            new_bytes,
            "the window is that of these two volumes"
        );
        assert!(
            if is_down {
                new_bytes <= old_bytes
            } else {
                old_bytes <= new_bytes
            },
            "upwards a volume gets larger, downwards smaller, or it stays"
        );
        Ok(Self {
            halves: Halves::new(parts.before, parts.after, parts.bond),
            old_bytes,
            size_bytes: Cell::new(old_bytes.min(new_bytes)),
            window,
            ledger: parts.ledger,
            is_doubtful: parts.is_doubtful,
            locks: RangeLocks::new(),
            border_bytes: Cell::new(parts.position.border_bytes),
            kept_bytes: Cell::new(parts.position.kept_bytes),
            unsure: RefCell::new(0..0),
            is_stopping: Cell::new(false),
            is_turning: Cell::new(false),
            is_running: Cell::new(false),
            has_failed: Cell::new(false),
            begun: Cell::new(None),
            changed: Signal::new(),
        })
    }

    /// Size as clients see it. It changes once, at the end, where the members are bound; elsewhere whoever stands on it
    /// sees the new size at the next start.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.get()
    }

    /// Returns the size when it is no longer `known_bytes`.
    pub async fn resized(&self, known_bytes: u64) -> u64 {
        let size_bytes = || self.size_bytes.get();
        self.changed.until(|| size_bytes() != known_bytes).await;
        size_bytes()
    }

    /// The volume as it will be.
    pub fn after(&self) -> &Rc<Volume<D, C>> {
        self.halves.after()
    }

    /// The volume as it was, until all has moved.
    pub fn before(&self) -> Option<Rc<Volume<D, C>>> {
        self.halves.before()
    }

    /// Whether all has moved, durably.
    pub fn has_ended(&self) -> bool {
        self.border_bytes.get() == self.window.end_bytes()
    }

    /// Whether an error has stopped it.
    pub fn has_failed(&self) -> bool {
        self.has_failed.get()
    }

    /// Unit of requests, in bytes.
    pub fn sector_bytes(&self) -> u32 {
        let before = self.before().map_or(0, |before| before.sector_bytes());
        self.after().sector_bytes().max(before)
    }

    /// Where its position is durable.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// Whether too much was lost, on either side of the border.
    pub fn is_frozen(&self) -> bool {
        self.halves.is_frozen()
    }

    /// Volume bytes that have moved, and how many will have.
    pub fn progress(&self) -> (u64, u64) {
        let (border, all) = (self.border_bytes.get(), self.window.all_bytes());
        match self.window.direction() {
            Direction::Up => (border, all),
            Direction::Down => (all - border, all),
        }
    }

    /// How far it is, until it has ended or an error has stopped it.
    pub fn job(&self) -> Option<JobStatus> {
        let (done_bytes, total_bytes) = self.progress();
        if self.has_ended() || self.has_failed.get() {
            return None;
        }
        let not_begun = (self.after().base().clock().now(), done_bytes);
        let (started, moved_then) = self.begun.get().unwrap_or(not_begun);
        Some(JobStatus {
            kind: JobKind::Reshape,
            done_bytes,
            total_bytes,
            started,
            worked_bytes: done_bytes.saturating_sub(moved_then),
        })
    }

    /// Waits until it has ended, or will not go on in this process. It counts as going on before `run` was called.
    pub async fn ended(&self) {
        let has_left = || {
            let may_begin = self.begun.get().is_none() && !self.is_stopping.get();
            !self.is_running.get() && !may_begin
        };
        self.changed.until(|| self.has_ended() || has_left()).await;
    }

    /// The lock of a request, once no byte of it is between two places.
    async fn admit(&self, range: Range<u64>) -> Result<RangeGuard<'_>, IoError> {
        if range.end > self.size_bytes() {
            return Err(IoError::OutOfRange);
        }
        loop {
            self.changed
                .until(|| range.start >= self.kept_bytes.get() || self.has_failed.get())
                .await;
            let lock = self
                .locks
                .lock(range.start..range.end.max(range.start + 1))
                .await;
            let unsure = self.unsure.borrow().clone();
            if range.start < unsure.end && unsure.start < range.end {
                return Err(IoError::Failed); // a later start may find the border here or there
            }
            if range.start >= self.kept_bytes.get() {
                return Ok(lock);
            }
            if self.has_failed.get() {
                return Err(IoError::Failed); // between two places, for as long as nobody moves it
            }
        }
    }

    /// The parts of a range, each with the side that has it now. The range is locked.
    fn sides(&self, range: &Range<u64>) -> [(Side, Range<u64>); 2] {
        let low = match self.window.direction() {
            Direction::Up => Side::After,
            Direction::Down => Side::Before,
        };
        if self.has_ended() {
            return [
                (Side::After, range.clone()),
                (Side::After, range.end..range.end),
            ];
        }
        Halves::<D, C>::cut(range, self.border_bytes.get(), low)
    }

    /// Reads `length_bytes`. `answered` hears of each part, and of the volume that has answered it.
    ///
    /// # Errors
    /// As `Volume::read`; `Failed` for what is between two places when the migration has ended with an error.
    pub async fn read(
        &self,
        at_bytes: u64,
        length_bytes: usize,
        answered: impl Fn(&Volume<D, C>, Range<u64>),
    ) -> Result<Rope, IoError> {
        let range = range_of(at_bytes, length_bytes)?;
        let base = self.after().base();
        self.after().traffic().note_request(base.clock().recent());
        let _lock = self.admit(range.clone()).await?;
        let mut rope = Rope::default();
        for (side, part) in self.sides(&range) {
            if part.is_empty() {
                continue;
            }
            let length = (part.end - part.start) as usize; // a part of the request
            let (read, volume) = self.halves.read(side, part.start, length).await?;
            rope.pieces.extend(read.pieces);
            answered(&volume, part);
        }
        Ok(rope)
    }

    /// Writes `data`. `answered` as in `read`.
    ///
    /// # Errors
    /// As `Volume::write`; `Failed` as in `read`.
    pub async fn write(
        &self,
        at_bytes: u64,
        data: Buf,
        fua: Fua,
        answered: impl Fn(&Volume<D, C>, Range<u64>),
    ) -> Result<(), IoError> {
        let range = range_of(at_bytes, data.len())?;
        let _lock = self.admit(range.clone()).await?;
        for (side, part) in self.sides(&range) {
            if part.is_empty() {
                continue;
            }
            let from = (part.start - at_bytes) as usize; // at most the length of the buffer
            let length = (part.end - part.start) as usize;
            let data = data.slice(from..from + length);
            let volume = self.halves.write(side, part.start, data, fua).await?;
            answered(&volume, part);
        }
        Ok(())
    }

    /// Makes durable what was answered.
    ///
    /// # Errors
    /// As `Volume::flush`.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.halves.flush().await
    }

    /// Whether the rows can be moved back: with a critical section, which is kept elsewhere, they cannot.
    pub fn can_turn(&self) -> bool {
        self.window.critical_bytes() == 0
    }

    /// Moves on, at any pace, to where the rows can be moved back from, and rests there: the next start may do that.
    /// `false`: it has ended before, or will not go on.
    pub async fn turn(&self) -> bool {
        self.is_turning.set(true);
        self.changed.notify();
        self.after().base().changed().notify(); // it may wait for its pace
        let rests = || {
            let has_begun = self.begun.get().is_some() || self.is_stopping.get();
            has_begun && !self.is_running.get()
        };
        self.changed.until(rests).await;
        let border = self.border_bytes.get();
        !self.has_failed.get() && !self.has_ended() && self.window.is_turnable(border)
    }

    /// Ends both volumes cleanly, between two windows (R13).
    ///
    /// # Errors
    /// As `Volume::stop`.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.is_stopping.set(true);
        self.changed.notify();
        self.after().base().changed().notify(); // it may wait for its pace
        self.changed.until(|| !self.is_running.get()).await;
        let before = match self.before() {
            Some(before) if !self.halves.is_bound() => before.stop().await,
            _ => Ok(()),
        };
        before.and(self.after().stop().await)
    }
}

/// The border, with nothing that is kept.
fn at_border(border_bytes: u64) -> Position {
    Position {
        border_bytes,
        kept_bytes: 0,
    }
}

/// The range of a request.
///
/// # Errors
/// `OutOfRange` when it has no end.
fn range_of(at_bytes: u64, length: usize) -> Result<Range<u64>, IoError> {
    let end = at_bytes.checked_add(length as u64);
    Ok(at_bytes..end.ok_or(IoError::OutOfRange)?)
}
