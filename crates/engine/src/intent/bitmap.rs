//! The bitmap on the members: bits durable before data (W1), cleared after a flush (W2).
//!
//! Invariants:
//! - only the holder of `bitmap_writer` writes blocks, so that an older block never lands on a newer one;
//! - marks that meet share one write (group commit);
//! - nothing is cleared while the array is degraded (linux-md.md 3, writer's rule 3).

use std::ops::Range;
use std::rc::Rc;

use crate::drive::Drive;
use crate::intent::Intent;
use crate::mutant::Mutant;
use crate::state::FailCause;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join_all;

/// Longest write of neighbouring blocks.
const RUN_BYTES_MAX: u64 = 1 << 20;

/// A write in flight over a range of the sync space; leaving is dropping.
pub(crate) struct Mark<'a, D: Device, C: Clock> {
    intent: &'a Intent<D, C>,
    range: Range<u64>,
}

impl<'a, D: Device, C: Clock> Mark<'a, D, C> {
    /// The mark of a shard on another thread, in place of that of a write here.
    pub(crate) fn lend(self) -> LentMark<'a, D, C> {
        self.intent.regions.borrow_mut().lend(&self.range);
        LentMark {
            intent: self.intent,
            range: self.range.clone(),
        }
    }
}

impl<D: Device, C: Clock> Drop for Mark<'_, D, C> {
    fn drop(&mut self) {
        self.intent.regions.borrow_mut().leave(&self.range);
    }
}

/// A mark that a shard has until this is dropped.
pub(crate) struct LentMark<'a, D: Device, C: Clock> {
    intent: &'a Intent<D, C>,
    range: Range<u64>,
}

impl<D: Device, C: Clock> Drop for LentMark<'_, D, C> {
    fn drop(&mut self) {
        self.intent.regions.borrow_mut().take_back(&self.range);
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// W1: returns when the regions of `range` are marked durably on all live members.
    #[inline]
    pub(crate) async fn mark(&self, range: Range<u64>) -> Result<Mark<'_, D, C>, IoError> {
        let is_durable = {
            let mut regions = self.regions.borrow_mut();
            regions.enter(&range);
            regions.is_durable(&range)
        };
        let mark = Mark {
            intent: self,
            range: range.clone(),
        };
        if !is_durable && !self.base.has(Mutant::BitmapAfterData) {
            // Boxed: what is seldom needed does not make every write larger.
            Box::pin(self.make_durable(&range)).await?;
        }
        Ok(mark)
    }

    async fn make_durable(&self, range: &Range<u64>) -> Result<(), IoError> {
        while !self.regions.borrow().is_durable(range) {
            if self.array.is_frozen() {
                return Err(IoError::Failed);
            }
            let _turn = self.bitmap_writer.lock().await;
            if !self.regions.borrow().is_durable(range) {
                self.write_bitmap_blocks().await?;
            }
        }
        Ok(())
    }

    /// Writes what differs. The caller holds `bitmap_writer`.
    async fn write_bitmap_blocks(&self) -> Result<(), IoError> {
        debug_assert!(
            self.bitmap_writer.is_locked(),
            "one writer of blocks at a time"
        );
        let (blocks, pending) = self.regions.borrow_mut().take_unwritten();
        let result = self.write_blocks(&blocks).await;
        let mut regions = self.regions.borrow_mut();
        match result {
            Ok(()) => regions.set_durable(&pending),
            Err(_) => regions.put_back(&blocks),
        }
        result
    }

    async fn write_blocks(&self, blocks: &[u64]) -> Result<(), IoError> {
        let drives = self.array.slotted_drives();
        let results = join_all(
            drives
                .iter()
                .map(|drive| self.write_blocks_to(drive, blocks)),
        )
        .await;
        let mut refused = None;
        for (drive, result) in drives.iter().zip(results) {
            match result {
                Ok(()) => {}
                Err(IoError::NoSpace) => {
                    self.array.note_no_space(drive);
                    refused = Some(IoError::NoSpace);
                }
                Err(IoError::Gone) => self.array.fail_member(drive.id, FailCause::Gone),
                // Nothing is written that the bitmap does not announce, and the last copy stays.
                Err(_) if self.array.is_needed(drive.id) => refused = Some(IoError::Medium),
                Err(_) => self.array.fail_member(drive.id, FailCause::WriteError),
            }
        }
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        refused.map_or(Ok(()), Err)
    }

    pub(crate) async fn write_blocks_to(
        &self,
        drive: &Rc<Drive<D>>,
        blocks: &[u64],
    ) -> Result<(), IoError> {
        let Some(start) = self.array.metadata().bitmap_offset_bytes(drive.id) else {
            return Ok(());
        };
        let block_bytes = self.regions.borrow().block_bytes();
        for run in runs(blocks, RUN_BYTES_MAX / block_bytes) {
            let mut bytes = Vec::with_capacity(run.len() * block_bytes as usize);
            for &block in run {
                let mut encoded = self.regions.borrow().encode_block(block);
                self.put_header(block, &mut encoded);
                bytes.extend(encoded);
            }
            debug_assert_eq!(bytes.len() as u64, run.len() as u64 * block_bytes);
            let data = self.base.pool().copy_of(&bytes).freeze();
            let at = start + run[0] * block_bytes;
            drive.write_device(at, data, Fua::Yes).await?;
        }
        Ok(())
    }

    fn put_header(&self, block: u64, bytes: &mut [u8]) {
        if block == 0 {
            let header = self
                .array
                .metadata()
                .bitmap_header(self.array.event_count());
            bytes[..header.len()].copy_from_slice(&header);
        }
    }

    /// Writes the bitmap's superblock with `event_count`, before the members' superblocks.
    pub(crate) async fn write_bitmap_header(&self, event_count: u64) -> Result<(), IoError> {
        if !self.regions.borrow().is_persistent {
            return Ok(());
        }
        let _turn = self.bitmap_writer.lock().await;
        assert_eq!(
            event_count,
            self.array.event_count(),
            "the header carries the count of the commit under way"
        );
        // Bits that changed meanwhile go along; they only become durable by `write_bitmap_blocks`.
        match self.write_blocks(&[0]).await {
            Err(IoError::NoSpace) => Ok(()), // the area was written when the array was made; the superblock will tell
            other => other,
        }
    }

    /// Gives a new or returning member the whole bitmap, before any superblock names it.
    pub(crate) async fn copy_bitmap_to(&self, drive: &Rc<Drive<D>>) -> Result<(), IoError> {
        if !self.regions.borrow().is_persistent {
            return Ok(());
        }
        let _turn = self.bitmap_writer.lock().await;
        let (area_bytes, block_bytes) = {
            let regions = self.regions.borrow();
            (regions.area_bytes(), regions.block_bytes())
        };
        let blocks: Vec<u64> = (0..area_bytes / block_bytes).collect();
        self.write_blocks_to(drive, &blocks).await
    }

    /// Whether a member is away that will need the bits.
    fn keeps_bits(&self) -> bool {
        self.array.state().is_degraded() && !self.base.has(Mutant::ClearWhileDegraded)
    }

    /// One step of the lazy cleaner: bits that were idle for a whole period are cleared, after a flush (W2).
    pub(crate) async fn clear_idle_bits(&self, is_stopping: bool) -> Result<(), IoError> {
        if self.keeps_bits() || self.array.is_frozen() {
            self.regions.borrow_mut().age();
            return Ok(());
        }
        let generation = self.regions.borrow().generation();
        let idle = if is_stopping {
            let mut regions = self.regions.borrow_mut();
            regions.reset_touched();
            regions.idle()
        } else {
            self.regions.borrow_mut().age()
        };
        if idle.is_empty() {
            return Ok(());
        }
        if !self.base.has(Mutant::BitClearedWithoutFlush) {
            self.flush_members().await?;
        }
        if self.keeps_bits() {
            return Ok(());
        }
        let _turn = self.bitmap_writer.lock().await;
        if self.regions.borrow().generation() != generation {
            return Ok(()); // the bitmap began meanwhile: these are numbers of other regions
        }
        if !self.regions.borrow().is_persistent {
            self.regions.borrow_mut().clear(&idle);
            return Ok(());
        }
        // events_cleared has to be on disk before the bit that it allows to clear (linux-md.md 3, rule 5).
        // While a member is away they are cleared by a deliberate bug alone, which notes nothing either.
        let is_whole = !self.array.state().is_degraded();
        let event_count = self.array.event_count();
        if is_whole && self.array.metadata_mut().note_whole(event_count) {
            self.write_blocks(&[0]).await?;
        }
        if self.keeps_bits() {
            return Ok(()); // a member failed meanwhile: its missed writes need these bits
        }
        debug_assert!(
            !self.array.state().is_degraded() || self.base.has(Mutant::ClearWhileDegraded),
            "whoever is away needs the bits"
        );
        if self.regions.borrow_mut().clear(&idle) > 0 {
            self.write_bitmap_blocks().await?;
        }
        Ok(())
    }
}

/// Neighbours among ascending blocks, at most `blocks_max` together: one write each. A block is valid for itself, so
/// that a write that a crash tears loses nothing that one after the other would have kept.
fn runs(blocks: &[u64], blocks_max: u64) -> impl Iterator<Item = &[u64]> {
    let chunks = blocks.chunk_by(|one, next| one + 1 == *next);
    chunks.flat_map(move |run| run.chunks(usize::try_from(blocks_max).unwrap_or(usize::MAX).max(1)))
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn neighbours_go_together_as_far_as_a_write_may_reach() {
        let runs: Vec<&[u64]> = runs(&[0, 1, 2, 3, 4, 7, 9, 10], 3).collect();
        assert_eq!(runs, [&[0, 1, 2][..], &[3, 4], &[7], &[9, 10]]);
    }
}
