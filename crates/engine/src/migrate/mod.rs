//! From one geometry to another while clients are served: two volumes over the same members, and a border between them
//! that moves. Only upwards is carried out so far.
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
//!   anew on both sides before the border moves;
//! - a member that fails is lost until the migration has ended.
//!
//! All requests go through the one migration, on the home shard (W12): it has no part that could be lent.
//!
//! Source: md-reshape.md section 8.

mod position;
#[cfg(test)]
mod tests;
mod window;

use std::cell::{Cell, RefCell};
use std::ops::Range;

pub use position::{Direction, Position, Unfit};
pub use window::{Window, WindowSpec};

use crate::mutant::Mutant;
use crate::upkeep::{JobKind, JobStatus};
use crate::volume::Volume;
use plexum_block::buf::{Buf, BufMut};
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
    pub after: Volume<D, C>,
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
    before: Volume<D, C>,
    after: Volume<D, C>,
    window: Window,
    ledger: L,
    is_doubtful: bool,
    locks: RangeLocks,
    border_bytes: Cell<u64>,
    kept_bytes: Cell<u64>,
    /// What a position stands for that was given to the ledger, and that nobody knows to be durable.
    unsure: RefCell<Range<u64>>,
    is_stopping: Cell<bool>,
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
        if window.direction() == Direction::Down {
            return Err(Unfit::Downwards);
        }
        window.check(parts.position)?;
        assert_eq!(
            window.end_bytes(),
            parts.after.size_bytes(),
            "the window is that of these two volumes"
        );
        assert!(
            parts.before.size_bytes() <= parts.after.size_bytes(),
            "upwards a volume gets larger, or stays"
        );
        Ok(Self {
            before: parts.before,
            after: parts.after,
            window,
            ledger: parts.ledger,
            is_doubtful: parts.is_doubtful,
            locks: RangeLocks::new(),
            border_bytes: Cell::new(parts.position.border_bytes),
            kept_bytes: Cell::new(parts.position.kept_bytes),
            unsure: RefCell::new(0..0),
            is_stopping: Cell::new(false),
            is_running: Cell::new(false),
            has_failed: Cell::new(false),
            begun: Cell::new(None),
            changed: Signal::new(),
        })
    }

    /// Size as clients see it until it has ended.
    pub fn size_bytes(&self) -> u64 {
        self.before.size_bytes()
    }

    /// Unit of requests, in bytes.
    pub fn sector_bytes(&self) -> u32 {
        self.before.sector_bytes()
    }

    /// Where its position is durable.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// Whether too much was lost, on either side of the border.
    pub fn is_frozen(&self) -> bool {
        self.before.is_frozen() || self.after.is_frozen()
    }

    /// Volume bytes that have moved, and how many will have.
    pub fn progress(&self) -> (u64, u64) {
        (self.border_bytes.get(), self.window.end_bytes())
    }

    /// How far it is, until it has ended or an error has stopped it.
    pub fn job(&self) -> Option<JobStatus> {
        let (done_bytes, total_bytes) = self.progress();
        if done_bytes >= total_bytes || self.has_failed.get() {
            return None;
        }
        let not_begun = (self.after.base().clock().now(), done_bytes);
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
        let has_ended = || self.border_bytes.get() >= self.window.end_bytes();
        self.changed.until(|| has_ended() || has_left()).await;
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

    /// The parts of a range, each with the volume that has it now. The range is locked.
    fn sides(&self, range: &Range<u64>) -> [(&Volume<D, C>, Range<u64>); 2] {
        let border = self.border_bytes.get().clamp(range.start, range.end);
        [
            (&self.after, range.start..border),
            (&self.before, border..range.end),
        ]
    }

    /// Reads `buf.len()` bytes. `answered` hears of each part, and of the volume that has answered it.
    ///
    /// # Errors
    /// As `Volume::read`; `Failed` for what is between two places when the migration has ended with an error.
    pub async fn read(
        &self,
        at_bytes: u64,
        mut buf: BufMut,
        answered: impl Fn(&Volume<D, C>, Range<u64>),
    ) -> Result<BufMut, IoError> {
        let range = range_of(at_bytes, buf.len())?;
        let _lock = self.admit(range.clone()).await?;
        let mut from = 0;
        for (volume, part) in self.sides(&range) {
            if part.is_empty() {
                continue;
            }
            let length = (part.end - part.start) as usize; // a part of the buffer
            for piece in volume.read(part.start, length).await?.pieces {
                buf[from..from + piece.len()].copy_from_slice(&piece);
                from += piece.len();
            }
            answered(volume, part);
        }
        assert_eq!(from, buf.len(), "the sides make up the whole range");
        Ok(buf)
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
        for (volume, part) in self.sides(&range) {
            if part.is_empty() {
                continue;
            }
            let from = (part.start - at_bytes) as usize; // at most the length of the buffer
            let length = (part.end - part.start) as usize;
            volume
                .write(part.start, data.slice(from..from + length), fua)
                .await?;
            answered(volume, part);
        }
        Ok(())
    }

    /// Makes durable what was answered.
    ///
    /// # Errors
    /// As `Volume::flush`.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.before.flush().await?;
        self.after.flush().await
    }

    /// Moves everything that has not moved, until `stop`. An error leaves it as it is: a later start goes on.
    pub async fn run(&self) {
        self.is_running.set(true);
        let now = self.after.base().clock().now();
        self.begun.set(Some((now, self.border_bytes.get())));
        self.has_failed.set(self.work().await.is_err());
        self.is_running.set(false);
        self.changed.notify();
    }

    async fn work(&self) -> Result<(), IoError> {
        if self.is_doubtful {
            self.make_parity().await?;
            if !self.is_stopping.get() {
                self.ledger.note_proven(); // saved with the next step
            }
        }
        if self.kept_bytes.get() > 0 {
            self.put_back().await?;
        }
        if self.border_bytes.get() == self.window.end_bytes() {
            return self.ledger.end().await; // it was cut before it could say so (R10)
        }
        while !self.is_stopping.get() {
            let at = self.border_bytes.get();
            if at == self.window.end_bytes() {
                break;
            }
            if at < self.window.critical_bytes() {
                self.keep_critical().await?;
                self.put_back().await?;
            } else {
                self.step(at).await?;
            }
            self.changed.notify();
        }
        Ok(())
    }

    /// Ends both volumes cleanly, between two windows (R13).
    ///
    /// # Errors
    /// As `Volume::stop`.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.is_stopping.set(true);
        self.changed.notify();
        self.changed.until(|| !self.is_running.get()).await;
        let before = self.before.stop().await;
        before.and(self.after.stop().await)
    }

    /// Both sides of the border: rows are read and written as they are, which makes their parity. The row that the
    /// border cuts is made whole with the stale blocks that are in it (R5).
    async fn make_parity(&self) -> Result<(), IoError> {
        if self.before.geometry().parity_count() == 0 {
            return Ok(());
        }
        let (old, new) = (self.window.old_row_bytes(), self.window.new_row_bytes());
        let border = self.border_bytes.get();
        let sides = [
            (&self.after, 0..border, new),
            (
                &self.before,
                border / old * old..self.before.size_bytes(),
                old,
            ),
        ];
        for (volume, range, row) in sides {
            while !self.is_stopping.get() {
                // A write that a drive refused leaves its row in doubt again: then once more.
                let spoilt_count = volume.intent().regions().spoilt_count();
                self.write_rows_again(volume, range.clone(), row).await?;
                if self.is_stopping.get() {
                    break;
                }
                if volume.intent().settle_all_unspoilt(spoilt_count) {
                    break; // no row on the other side of the border is read by its parity
                }
            }
        }
        Ok(())
    }

    async fn write_rows_again(
        &self,
        volume: &Volume<D, C>,
        range: Range<u64>,
        row: u64,
    ) -> Result<(), IoError> {
        let mut at = range.start;
        while at < range.end && !self.is_stopping.get() {
            let upto = at + row;
            let _lock = self.locks.lock(at..upto).await;
            let length = (upto.min(volume.size_bytes()) - at) as usize; // one row
            let data = volume.read(at, length).await?.to_vec();
            let data = self.after.pool().copy_of(&data).freeze();
            volume.write(at, data, Fua::No).await?;
            at = upto;
        }
        volume.flush().await
    }

    /// The critical section is copied to where the ledger keeps it (R6).
    async fn keep_critical(&self) -> Result<(), IoError> {
        let row = self.window.new_row_bytes();
        let end = self.window.critical_bytes();
        assert_eq!(self.border_bytes.get(), 0, "the critical section is first");
        assert_eq!(self.kept_bytes.get(), 0, "it is kept once");
        let _lock = self.locks.lock(0..end).await;
        for at in (0..end).step_by(row as usize) {
            let data = self.old_data(at..at + row).await?;
            self.ledger.keep(at, data).await?;
        }
        self.ledger.flush_kept().await?;
        let kept = Position {
            border_bytes: 0,
            kept_bytes: end,
        };
        self.save(kept, 0..end).await
    }

    /// What is kept goes into its new place.
    async fn put_back(&self) -> Result<(), IoError> {
        let row = self.window.new_row_bytes();
        let end = self.kept_bytes.get();
        assert_eq!(
            end,
            self.window.critical_bytes(),
            "all of the critical section is kept, or none"
        );
        let lock = self.locks.lock(0..end).await;
        for at in (0..end).step_by(row as usize) {
            let kept = self.ledger.kept(at..at + row).await?;
            self.after.write(at, kept, Fua::No).await?;
        }
        self.after.flush().await?;
        self.save(at_border(end), 0..end).await?;
        drop(lock);
        self.changed.notify();
        Ok(())
    }

    /// One window: copied, flushed, and then the border is behind it (R2).
    async fn step(&self, at: u64) -> Result<(), IoError> {
        let total = self.window.end_bytes();
        let data_end = self.before.size_bytes();
        let has_parity = self.before.geometry().parity_count() > 0;
        if at >= data_end && !has_parity {
            return self.save(at_border(total), at..total).await; // what is new there was never anybody's
        }
        let window = self.window.next(at);
        assert!(
            window.start == at && window.end > at,
            "behind the critical section there is always room"
        );
        assert!(
            window.end <= self.window.limit(self.border_bytes.get()),
            "what the border on the members needs is not written over"
        );
        let _lock = self.locks.lock(window.clone()).await;
        if self.before.base().has(Mutant::GrowthBorderAheadOfData) {
            self.ledger_save(at_border(window.end)).await?;
        }
        let row = self.window.new_row_bytes();
        let mut from = at;
        while from < window.end {
            let upto = (from + row).min(window.end);
            let data = self.old_data(from..upto).await?;
            self.after.write(from, data, Fua::No).await?;
            from = upto;
        }
        self.after.flush().await?;
        self.save(at_border(window.end), window).await
    }

    /// What is at a range in the old geometry; zeroes behind its end (R11).
    async fn old_data(&self, range: Range<u64>) -> Result<Buf, IoError> {
        let data_end = self.before.size_bytes();
        let mut data = Vec::new();
        if range.start < data_end {
            let length = (range.end.min(data_end) - range.start) as usize; // at most a row
            data = self.before.read(range.start, length).await?.to_vec();
        }
        data.resize((range.end - range.start) as usize, 0);
        Ok(self.after.pool().copy_of(&data).freeze())
    }

    /// The position is durable, then it counts. Meanwhile, and after an error, nobody knows on which side `range` is.
    async fn save(&self, position: Position, range: Range<u64>) -> Result<(), IoError> {
        assert!(
            self.window.check(position).is_ok(),
            "what is saved is believed when it is read"
        );
        assert!(
            position.border_bytes >= self.border_bytes.get(),
            "the border moves one way"
        );
        self.unsure.replace(range);
        self.ledger_save(position).await?;
        self.unsure.replace(0..0);
        self.border_bytes.set(position.border_bytes);
        self.kept_bytes.set(position.kept_bytes);
        Ok(())
    }

    async fn ledger_save(&self, position: Position) -> Result<(), IoError> {
        if position.border_bytes == self.window.end_bytes() {
            self.ledger.end().await
        } else {
            self.ledger.save(position).await
        }
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
