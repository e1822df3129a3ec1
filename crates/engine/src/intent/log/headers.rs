//! Headers of the rings: what binds the log to the superblocks (L6), and where a chain begins (W2).

use std::rc::Rc;

use plexum_format::stripe_log::{LogHeader, next_log_id};

use super::StripeLog;
use super::ring::{ChainStart, Ring};
use crate::drive::Drive;
use crate::intent::Intent;
use crate::state::{ArrayState, FailCause, MemberId};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::{MutexGuard, join_all};

impl<D: Device> StripeLog<D> {
    /// The superblock that is on a member now, by its hash.
    pub(crate) fn bind(&self, member: MemberId, hash: [u8; 16]) {
        self.set_binding(member, hash, [0; 16]);
    }

    /// The superblock that is about to be written.
    pub(crate) fn announce_superblock(&self, member: MemberId, hash: [u8; 16]) {
        let present = self.binding(member).0;
        self.set_binding(member, present, hash);
    }

    fn binding(&self, member: MemberId) -> ([u8; 16], [u8; 16]) {
        let book = self.book.borrow();
        book.bindings
            .get(usize::from(member.0))
            .copied()
            .unwrap_or_default()
    }

    fn set_binding(&self, member: MemberId, present: [u8; 16], next: [u8; 16]) {
        let mut book = self.book.borrow_mut();
        let index = usize::from(member.0);
        if book.bindings.len() <= index {
            book.bindings.resize(index + 1, Default::default());
        }
        book.bindings[index] = (present, next);
    }

    /// Nobody writes headers while the guard lives.
    pub(crate) async fn hold_headers(&self) -> MutexGuard<'_> {
        self.header_writer.lock().await
    }

    /// Everything before was written in order and nothing waits for the log: what has gone on without it is in place.
    pub(crate) fn note_clean(&self) {
        self.has_unlogged.set(false);
        self.overlay.borrow_mut().drop_all_kept(); // a volume at rest holds no memory
    }

    /// A new life: nothing that the rings hold counts from the first header of it on. The caller knows that nothing of
    /// it is needed: it was replayed, the array was clean, or somebody else had it (L6).
    pub(crate) fn new_life(&self) {
        let mut book = self.book.borrow_mut();
        let first = book.bindings.iter().find(|(hash, _)| *hash != [0; 16]);
        let hash = first.map_or([0; 16], |(hash, _)| *hash);
        book.epoch += 1;
        book.log_id = next_log_id(book.log_id, book.epoch, &hash);
        book.is_ready = false;
        book.next_sequence = 1;
        book.covered = 1;
        assert!(
            book.outstanding.is_empty(),
            "a new life begins with nothing on its way"
        );
        let start = ChainStart {
            position: 0,
            number: 0,
        };
        for ring in book.rings.iter_mut().flatten() {
            *ring = Ring::new(ring.area, 0, start);
        }
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// L6: the log's headers name the superblocks that are about to be written, before any of them is. `false`: a
    /// member could not be written and was failed.
    pub(in crate::intent) async fn bind_log(
        &self,
        state: &ArrayState,
        drives: &[Rc<Drive<D>>],
    ) -> bool {
        let Some(log) = self.stripe_log() else {
            return true;
        };
        for drive in drives {
            let hash = self.array.metadata().superblock_hash(drive.id);
            log.announce_superblock(drive.id, hash);
        }
        let mut slotted = drives.to_vec();
        slotted.retain(|drive| state.record(drive.id).is_slotted());
        !self.put_log_headers(&log, &slotted).await
    }

    /// Gives a member that joined a ring, empty up to now. Its batches are numbered behind all that any ring has had.
    pub(super) fn ensure_ring(&self, log: &StripeLog<D>, member: MemberId) {
        if log.book.borrow().ring(member).is_some() {
            return;
        }
        let header = self.array.metadata().log_header(member, None);
        let Ok(header) = header else {
            return self.array.fail_member(member, FailCause::SuperblockError);
        };
        let mut book = log.book.borrow_mut();
        // Not larger than the others: groups are cut for the smallest.
        let least = book
            .rings
            .iter()
            .flatten()
            .map(|ring| ring.area.ring_bytes)
            .min();
        let area = least.map_or(header.area, |least| header.area.shrunk(least));
        let index = usize::from(member.0);
        if book.rings.len() <= index {
            book.rings.resize(index + 1, None);
        }
        let joined = book.next_sequence;
        // What the device has in this place may be of the same life of the log, from when it was a member before. Every
        // batch holds a record of its own, so none of those has this number or a higher one, and none is taken for one
        // of ours.
        let start = ChainStart {
            position: 0,
            number: joined,
        };
        book.rings[index] = Some(Ring::new(area, joined, start));
    }

    /// Parity may be wrong wherever the bitmap says so, or anywhere without a bitmap.
    pub(crate) fn doubt_all_marked(&self) {
        let mut regions = self.regions.borrow_mut();
        if !regions.is_persistent {
            regions.doubt_from(0);
        } else {
            let marked: Vec<usize> = regions.wanted().iter().collect();
            marked.into_iter().for_each(|index| regions.doubt(index));
        }
        let from = regions.consistent_below_bytes();
        if let Some(log) = self.stripe_log() {
            log.lower_doubt(from.unwrap_or(u64::MAX));
        }
    }

    /// Everything is right now: the log's headers say so, after a flush (W2), without waiting for the next commit.
    pub(crate) async fn settle_log_doubt(&self) {
        if let Some(log) = self.stripe_log()
            && self.flush_members().await.is_ok()
        {
            let _ = self
                .write_log_headers(&log, &self.array.slotted_drives())
                .await;
        }
    }

    /// Makes the headers of this life durable on all members, before the first record.
    pub(super) async fn begin_log_life(&self, log: &StripeLog<D>) -> Result<(), IoError> {
        self.write_log_headers(log, &self.array.slotted_drives())
            .await
    }

    /// Writes the headers of `drives` as things are now: tail, chain, bindings, doubt.
    ///
    /// # Errors
    /// `Failed` when the volume is frozen, or freezes because of members that could not be written.
    pub(crate) async fn write_log_headers(
        &self,
        log: &StripeLog<D>,
        drives: &[Rc<Drive<D>>],
    ) -> Result<(), IoError> {
        let failed = self.put_log_headers(log, drives).await;
        if !failed {
            return Ok(());
        }
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        self.array.settle().await
    }

    /// As `write_log_headers`, for whoever commits anyway: says whether a member was failed.
    pub(crate) async fn put_log_headers(
        &self,
        log: &StripeLog<D>,
        drives: &[Rc<Drive<D>>],
    ) -> bool {
        let _turn = log.header_writer.lock().await;
        if !self
            .stripe_log()
            .is_some_and(|now| std::ptr::eq(Rc::as_ptr(&now), log))
        {
            return false; // it was turned off meanwhile, and its headers are gone for good
        }
        let is_all = self
            .array
            .slotted_drives()
            .iter()
            .all(|one| drives.iter().any(|d| d.id == one.id));
        let mut composed = Vec::new();
        for drive in drives {
            self.ensure_ring(log, drive.id);
            if let Some((header, start)) = self.compose(log, drive.id) {
                composed.push((drive, header, start));
            }
        }
        let life = log.book.borrow().log_id;
        let doubts = composed
            .iter()
            .map(|(_, header, _)| header.doubt_from_bytes);
        let is_sure = doubts.into_iter().all(|doubt| doubt.is_none());
        let writes = composed.iter().map(|(drive, header, _)| {
            let page = self.base.pool().copy_of(&header.encode()).freeze();
            drive.write_device(header.area.header_offset_bytes(), page, Fua::Yes)
        });
        let results = join_all(writes).await;
        let mut has_failed = false;
        for ((drive, _, start), result) in composed.iter().zip(results) {
            match result {
                Ok(()) => {
                    let mut book = log.book.borrow_mut();
                    if let Some(ring) = book.ring_mut(drive.id) {
                        ring.release(*start);
                    }
                }
                Err(error) => {
                    has_failed = true;
                    let cause = match error {
                        IoError::Gone => FailCause::Gone,
                        _ => FailCause::SuperblockError,
                    };
                    self.array.fail_member(drive.id, cause);
                }
            }
        }
        let mut book = log.book.borrow_mut();
        if is_all && book.log_id == life {
            book.is_ready = true; // whoever could not be written is failed
            book.is_sure = is_sure;
        }
        has_failed
    }

    fn compose(&self, log: &StripeLog<D>, member: MemberId) -> Option<(LogHeader, ChainStart)> {
        debug_assert!(
            log.header_writer.is_locked(),
            "one writer of headers at a time"
        );
        let (superblock, next_superblock) = log.binding(member);
        let now = self.regions.borrow().consistent_below_bytes();
        let mut book = log.book.borrow_mut();
        // What a resync has made right counts only after a flush (W2).
        let now = now.unwrap_or(u64::MAX);
        if now < book.flushed_doubt {
            book.lower_doubt(now);
        }
        let doubt = if log.has_unlogged.get() {
            0
        } else {
            book.flushed_doubt
        };
        let ring = book.ring(member)?;
        let start = ring.start_for(book.covered);
        let header = LogHeader {
            log_id: book.log_id,
            epoch: book.epoch,
            tail_sequence: book.covered,
            joined_sequence: ring.joined_sequence,
            start_position: start.position,
            start_batch: start.number,
            superblock,
            next_superblock,
            doubt_from_bytes: (doubt != u64::MAX).then_some(doubt),
            is_write_back: log.is_write_back(),
            ..self
                .array
                .metadata()
                .log_header(member, Some(ring.area))
                .ok()?
        };
        Some((header, start))
    }
}
