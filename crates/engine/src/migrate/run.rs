//! What a migration does by itself: one window after the other, until all has moved.

use std::cell::Cell;
use std::ops::Range;

use super::{Direction, Ledger, Migration, Position, at_border};
use crate::mutant::Mutant;
use crate::volume::Volume;
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join;

/// Volume bytes that are read while the ones before them are written, where a row is not longer.
const PIECE_BYTES: u64 = 4 << 20;

impl<D: Device, C: Clock, L: Ledger> Migration<D, C, L> {
    /// Moves everything that has not moved, until `stop`. An error leaves it as it is: a later start goes on.
    pub async fn run(&self) {
        self.is_running.set(true);
        let now = self.after().base().clock().now();
        self.begun.set(Some((now, self.progress().0)));
        let is_over = Cell::new(false);
        let work = async {
            self.has_failed.set(self.work().await.is_err());
            is_over.set(true);
            if let Some(before) = self.before() {
                before.base().changed().notify();
            }
        };
        let watch = async {
            // Its members hang like any others, and nobody else looks after them.
            if let Some(before) = self.before().filter(|_| self.halves.is_bound()) {
                before.upkeep().watch_members(|| is_over.get()).await;
            }
        };
        // In boxes: what a request holds is not made larger by what runs beside it.
        join(Box::pin(work), Box::pin(watch)).await;
        if self.has_ended() {
            self.halves.end();
            if self.halves.is_bound() {
                self.size_bytes.set(self.after().size_bytes());
            }
        }
        self.is_running.set(false);
        self.changed.notify();
    }

    async fn work(&self) -> Result<(), IoError> {
        if self.halves.is_bound() {
            self.after().array().commit_all().await?; // R1: what the start says is durable before the first row moves
        }
        // Where the members are bound the doubt stays with both volumes, and the new one resyncs when all has moved.
        if self.is_doubtful && !self.halves.is_bound() {
            self.make_parity().await?;
            if !self.is_stopping.get() {
                self.ledger.note_proven(); // saved with the next step
            }
        }
        if self.kept_bytes.get() > 0 {
            self.put_back().await?;
        }
        if self.has_ended() {
            return self.ledger.end().await; // it was cut before it could say so (R10)
        }
        while !self.is_stopping.get() {
            let at = self.border_bytes.get();
            let is_turned = self.is_turning.get() && self.window.is_turnable(at);
            if self.has_ended() || is_turned {
                break;
            }
            if self.window.direction() == Direction::Up && at < self.window.critical_bytes() {
                self.keep_critical().await?;
                self.put_back().await?;
            } else {
                let begun = self.after().base().clock().now();
                let moved = self.step(at).await?;
                if self.halves.is_bound() && !self.has_ended() && !self.is_turning.get() {
                    self.rest(moved, begun).await;
                }
            }
            self.changed.notify();
        }
        Ok(())
    }

    /// Holds back as the pace says, or until it is to stop.
    async fn rest(&self, moved_bytes: u64, begun: plexum_block::clock::Moment) {
        let members = self.after().geometry().data_count() as u64;
        let throttle = self.after().upkeep().throttle(moved_bytes / members, begun);
        let stop = self
            .changed
            .until(|| self.is_stopping.get() || self.is_turning.get());
        plexum_block::wait::first(throttle, stop).await;
    }

    /// Both sides of the border: rows are read and written as they are, which makes their parity. The row that the
    /// border cuts is made whole with the stale blocks that are in it (R5).
    async fn make_parity(&self) -> Result<(), IoError> {
        let Some(before) = self.before() else {
            return Ok(());
        };
        if before.geometry().parity_count() == 0 {
            return Ok(());
        }
        let (old, new) = (self.window.old_row_bytes(), self.window.new_row_bytes());
        let border = self.border_bytes.get();
        let sides = [
            (&**self.after(), 0..border, new),
            (&*before, border / old * old..before.size_bytes(), old),
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
            let data = self.after().pool().copy_of(&data).freeze();
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
            self.halves.put(at, kept).await?;
        }
        self.after().flush().await?;
        self.save(at_border(end), 0..end).await?;
        drop(lock);
        self.changed.notify();
        Ok(())
    }

    /// One window: copied, flushed, and then the border is behind it (R2). Gives how much has moved.
    async fn step(&self, at: u64) -> Result<u64, IoError> {
        let total = self.window.end_bytes();
        let has_parity = self.after().geometry().parity_count() > 0;
        let is_new_space = self.window.direction() == Direction::Up && at >= self.old_bytes;
        if is_new_space && !has_parity {
            self.save(at_border(total), at..total).await?; // what is new there was never anybody's
            return Ok(0);
        }
        let window = self.window.next(at);
        assert!(
            !window.is_empty() && (window.start == at || window.end == at),
            "behind the critical section there is always room"
        );
        let (border, limit) = (
            self.border_bytes.get(),
            self.window.limit(self.border_bytes.get()),
        );
        let (behind, keeps_all) = match self.window.direction() {
            Direction::Up => (window.end, window.end <= limit),
            Direction::Down => (window.start, window.start >= limit),
        };
        assert!(
            keeps_all,
            "what the border {border} on the members needs is not written over"
        );
        let _lock = self.locks.lock(window.clone()).await;
        if self.after().base().has(Mutant::GrowthBorderAheadOfData) {
            self.ledger_save(at_border(behind)).await?;
        }
        Box::pin(self.copy(&window)).await?;
        self.after().flush().await?;
        let moved = window.end - window.start;
        self.save(at_border(behind), window).await?;
        Ok(moved)
    }

    /// Copies whole new rows, in pieces: the next one is read while one is written.
    async fn copy(&self, window: &Range<u64>) -> Result<(), IoError> {
        let row = self.window.new_row_bytes();
        let piece = (PIECE_BYTES / row).max(1) * row;
        let piece_at = |at: u64| at..(at + piece).min(window.end);
        debug_assert!(piece.is_multiple_of(row), "rows are copied as a whole");
        let mut range = piece_at(window.start);
        let mut data = self.old_data(range.clone()).await?;
        while range.start < window.end {
            let next = piece_at(range.end);
            // What is read next is in its old place until this window's border is durable: nothing written here is
            // over it.
            let reading = async {
                match next.is_empty() {
                    true => Ok(data.slice(0..0)),
                    false => self.old_data(next.clone()).await,
                }
            };
            let writing = Box::pin(self.halves.put(range.start, data.clone()));
            let (written, read) = join(writing, Box::pin(reading)).await;
            written?;
            (data, range) = (read?, next);
        }
        Ok(())
    }

    /// What is at a range in the old geometry; zeroes behind its end (R11).
    async fn old_data(&self, range: Range<u64>) -> Result<Buf, IoError> {
        debug_assert!(!range.is_empty(), "something is read");
        let mut data = Vec::new();
        if range.start < self.old_bytes {
            let length = (range.end.min(self.old_bytes) - range.start) as usize; // at most a piece
            let (read, _) = self
                .halves
                .read(super::Side::Before, range.start, length)
                .await?;
            data = read.to_vec();
        }
        data.resize((range.end - range.start) as usize, 0);
        Ok(self.after().pool().copy_of(&data).freeze())
    }

    /// The position is durable, then it counts. Meanwhile, and after an error, nobody knows on which side `range` is.
    async fn save(&self, position: Position, range: Range<u64>) -> Result<(), IoError> {
        assert!(
            self.window.check(position).is_ok(),
            "what is saved is believed when it is read"
        );
        let (from, to) = (self.border_bytes.get(), position.border_bytes);
        assert!(
            match self.window.direction() {
                Direction::Up => to >= from,
                Direction::Down => to <= from,
            },
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
