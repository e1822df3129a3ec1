//! An array between two geometries, as whoever serves it sees it.

use std::ops::Range;

use super::ledger::Superblocks;
use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join;
use plexum_engine::migrate::Migration;
use plexum_engine::volume::{JobStatus, Volume};
use plexum_layout::Geometry;

/// Zeroes that are written at once, in bytes.
const ZERO_SLICE_BYTES: u64 = 1 << 20;

/// An array between two geometries; when all has moved, the array in the new one. One thread owns it.
pub struct Reshaping<D: Device, C: Clock> {
    pub(super) migration: Migration<D, C, Superblocks<D, C>>,
}

impl<D: Device, C: Clock> Reshaping<D, C> {
    /// The array as it will be, which has all members; what is said of members and of the array is said by it.
    #[must_use]
    pub fn after(&self) -> &Volume<D, C> {
        self.migration.after()
    }

    /// The geometry that is left, until all has moved.
    #[must_use]
    pub fn before_geometry(&self) -> Option<Geometry> {
        let before = self.migration.before()?;
        Some(before.geometry().clone())
    }

    /// Size as clients see it; it changes at the end.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.migration.size_bytes()
    }

    /// Returns the size when it is no longer `known_bytes`.
    pub async fn resized(&self, known_bytes: u64) -> u64 {
        self.migration.resized(known_bytes).await
    }

    /// How far it is, until it has ended or an error has stopped it.
    #[must_use]
    pub fn job(&self) -> Option<JobStatus> {
        self.migration.job()
    }

    /// Volume bytes that have moved, and how many will have.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        self.migration.progress()
    }

    /// Whether all has moved, durably.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.migration.has_ended()
    }

    /// Whether an error has stopped it: it goes on at the next start.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.migration.has_failed()
    }

    /// Waits until it has ended, or will not go on in this process.
    pub async fn ended(&self) {
        self.migration.ended().await;
    }

    /// Whether the last slot of the geometry that is left holds nothing complete: one that only has a place for Q.
    #[must_use]
    pub fn lacks_q(&self) -> bool {
        let lost = self.migration.before().map(|before| before.lost_slots());
        lost.is_some_and(|lost| lost.last() == Some(&true))
    }

    /// Whether it can be turned round.
    #[must_use]
    pub fn can_turn(&self) -> bool {
        self.migration.can_turn()
    }

    /// Moves on to where it can be turned round, and rests there; stopped, it is opened with `Alteration::TurnRound`.
    /// `false`: it has ended before, or an error has stopped it.
    pub async fn turn(&self) -> bool {
        self.migration.turn().await
    }

    /// Reads `length_bytes`.
    ///
    /// # Errors
    /// As `Volume::read`; `Failed` for what is between two places when an error has stopped it.
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Rope, IoError> {
        self.migration
            .read(offset_bytes, length_bytes, |_, _| {})
            .await
    }

    /// Writes `data`.
    ///
    /// # Errors
    /// As `Volume::write`; `Failed` as in `read`.
    pub async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.migration
            .write(offset_bytes, data, fua, |_, _| {})
            .await
    }

    /// Makes a range read as zeroes, which are written.
    ///
    /// # Errors
    /// As `write`.
    pub async fn zero(&self, range: Range<u64>, fua: Fua) -> Result<(), IoError> {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(ZERO_SLICE_BYTES - at % ZERO_SLICE_BYTES);
            let zeroes = self.after().pool().take_zeroed(length as usize); // at most a slice
            self.write(at, zeroes.freeze(), fua).await?;
            at += length;
        }
        Ok(())
    }

    /// Makes durable what was answered.
    ///
    /// # Errors
    /// As `Volume::flush`.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.migration.flush().await
    }

    /// Moves everything that has not moved, and looks after the members, until `stop`.
    pub async fn run(&self) {
        join(
            Box::pin(self.after().run_background()),
            Box::pin(self.migration.run()),
        )
        .await;
    }

    /// Ends it cleanly, between two windows (R13).
    ///
    /// # Errors
    /// As `Volume::stop`.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.migration.stop().await
    }
}
