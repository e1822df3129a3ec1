//! Resync: doubtful regions are made consistent, one after the other. And the loop that decides what to do next.
//!
//! Invariants:
//! - a region is settled only when every row or range of it was made consistent under its lock;
//! - data are taken as right, parity is computed anew; for copies the first copy in md's order is the source (linux-md.md 11);
//! - a row that cannot be made consistent (a data block is missing) leaves its region in doubt.

use std::collections::BTreeSet;
use std::rc::Rc;

use plexum_parity::Block;

use crate::buf::{BufMut, BufPool};
use crate::clock::Clock;
use crate::device::{Device, Fua, IoError};
use crate::member_io::MemberWrite;
use crate::mutant::Mutant;
use crate::state::{Event, spare};
use crate::stripe::Row;
use crate::volume::{Announcement, JobKind, Volume};

/// Bytes of the sync space that one step of background work covers at most.
pub(crate) const STEP_BYTES: u64 = 1 << 20;

/// Rest after a step that could not be done, before it is tried again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

impl<D: Device, C: Clock> Volume<D, C> {
    /// Keeps the array redundant: spares take empty slots, doubtful regions are resynced, members are rebuilt.
    pub(crate) async fn keep_redundant(&self) {
        let mut stuck: BTreeSet<usize> = BTreeSet::new();
        let mut stuck_version = 0;
        while !self.is_ended() && self.has_redundancy() {
            self.take_spares();
            let version = self.state.borrow().version;
            if version != stuck_version {
                stuck.clear(); // the members changed: what was stuck may go on
                stuck_version = version;
            }
            if let Some(region) = self.next_region(&stuck) {
                self.resync(region, &mut stuck).await;
            } else if self.fillings.borrow().is_empty() {
                self.changed.changed().await;
            } else if !self.rebuild_pass().await {
                self.clock.sleep(RETRY_AFTER).await;
            }
        }
    }

    fn next_region(&self, stuck: &BTreeSet<usize>) -> Option<usize> {
        let regions = self.regions.borrow();
        let mut from = 0;
        while let Some(region) = regions.next_doubtful(from) {
            if !stuck.contains(&region) {
                return Some(region);
            }
            from = region + 1;
        }
        None
    }

    /// Gives empty slots to spares.
    pub(crate) fn take_spares(&self) {
        loop {
            let picked = {
                let state = self.state.borrow();
                let needed = |slot: u16| self.geometry.used_bytes(usize::from(slot));
                spare::pick(&state, |member| {
                    self.drive(member).is_some_and(|drive| {
                        (0..state.slot_count).all(|slot| drive.data_size_bytes >= needed(slot))
                    })
                })
            };
            let Some((member, slot)) = picked else { return };
            self.apply(&Event::RebuildStarted {
                member,
                slot,
                is_replacement: false,
                by_bitmap: false,
            });
            self.announce(Announcement::RebuildStarted {
                member: self.member_name(member),
                slot,
            });
        }
    }

    async fn resync(&self, first: usize, stuck: &mut BTreeSet<usize>) {
        self.announce(Announcement::ResyncStarted);
        self.begin_job(JobKind::Resync, self.regions.borrow().sync_bytes());
        let mut region = first;
        loop {
            let generation = self.regions.borrow().generation();
            self.regions.borrow_mut().begin_settling(region);
            let result = self.resync_region(region).await;
            if self.regions.borrow().generation() != generation {
                break; // regions have another size now; what was proven stays proven
            }
            match result {
                Ok(true) => self.regions.borrow_mut().settle_unspoilt(region),
                Ok(false) => {
                    stuck.insert(region);
                }
                Err(_) => {
                    if self.is_ended() {
                        return;
                    }
                    self.clock.sleep(RETRY_AFTER).await; // no space, or a member was lost: look again
                }
            }
            let _ = self.settle().await;
            let next = self.next_region(stuck);
            match next.filter(|_| !self.is_ended()) {
                Some(next) => region = next,
                None => break,
            }
        }
        self.end_job();
        if self.regions.borrow().doubtful_count() == 0 {
            self.settle_log_doubt().await;
            self.settle_ppl_doubt().await;
            self.announce(Announcement::ResyncFinished);
        }
    }

    /// Makes one region consistent; `false` when some row of it cannot be.
    async fn resync_region(&self, region: usize) -> Result<bool, IoError> {
        let range = self.regions.borrow().range(region);
        let mut is_right = true;
        let mut at = range.start;
        while at < range.end {
            if self.is_ended() {
                return Err(IoError::Failed);
            }
            let started = self.clock.now();
            let step = if self.has_copies() {
                self.resync_copies(at, range.end).await?
            } else {
                let strip = self.geometry.strip_bytes();
                let row = at / strip;
                let end = range.end.min((row + 1) * strip);
                is_right &= self.resync_row(row, at % strip..end - row * strip).await?;
                end - at
            };
            at += step;
            self.advance_job(at, step);
            self.throttle(step, started).await;
        }
        if self.has_copies() && !self.has(Mutant::EqualWithoutFlush) {
            self.flush_members().await?; // W6: only then may reads answer from any copy
        }
        Ok(is_right)
    }

    /// Copies from `at` to the end of the strip, at most one step; returns its length.
    async fn resync_copies(&self, at: u64, end: u64) -> Result<u64, IoError> {
        let volume_end = self.size_bytes().min(end);
        if at >= volume_end {
            return Ok(end - at); // the sync space may be rounded up beyond the volume
        }
        let length = self
            .geometry
            .copies_of(at)
            .length_bytes
            .min(volume_end - at)
            .min(STEP_BYTES);
        let _lock = self.locks.lock(at..at + length).await;
        let length_bytes = usize::try_from(length).expect("a step fits memory");
        match self.equalise(at, length_bytes).await {
            // No copy can be read: nothing to make equal, reads will say so.
            Ok(_) | Err(IoError::Medium) => Ok(length),
            Err(error) => Err(error),
        }
    }

    /// Computes the parity of a part of a row from its data and writes it where it is wrong.
    async fn resync_row(&self, number: u64, part: std::ops::Range<u64>) -> Result<bool, IoError> {
        if number >= self.geometry.row_count() {
            return Ok(true); // the sync space may be rounded up beyond the last row
        }
        let row = self.row(number);
        let _lock = self.locks.row(number).await;
        self.destage_row(number).await?;
        let set = self.members();
        let sync = row.member_range(&part);
        if self.regions.borrow().is_proven(&sync) {
            return Ok(true);
        }
        let data: Vec<Block> = (0..row.map.data_count()).map(Block::Data).collect();
        let mut failed = Vec::new();
        let Some(read) = self
            .read_blocks(&set, &row, &data, &part, &mut failed)
            .await
        else {
            return Ok(false); // in doubt and incomplete: reads answer an error, not a guess
        };
        if data
            .iter()
            .any(|block| !self.is_block_readable(&set, &row, *block, &part))
        {
            return Ok(false);
        }
        let parity = self.row_parity(&row, &read);
        let set = self.members();
        let mut writes: Vec<MemberWrite<D>> = Vec::new();
        // A member and its replacement are copies of each other: a crash may have left them different.
        for (block, content) in data.iter().zip(read) {
            if let Some(filling) = set.slots[row.slot(*block)].replacement()
                && !self.has(Mutant::ResyncForgetsReplacement)
            {
                let drive = Rc::clone(&filling.drive);
                writes.push((drive, row.member_range(&part), content.freeze()));
            }
        }
        for (block, bytes) in parity {
            let bytes = bytes.freeze();
            for drive in self.write_targets(&set, row.slot(block)) {
                writes.push((Rc::clone(drive), row.member_range(&part), bytes.clone()));
            }
        }
        let outcome = self.write_members(writes, Fua::No).await;
        if let Some(error) = outcome.refusal() {
            return Err(error);
        }
        if self.is_frozen() {
            return Err(IoError::Failed);
        }
        self.regions.borrow_mut().prove(&sync);
        Ok(true)
    }

    /// P (and Q) of a row from all its data.
    pub(crate) fn row_parity(&self, row: &Row, data: &[BufMut]) -> Vec<(Block, BufMut)> {
        let exponents = row.map.q.map(|_| self.q_exponents(row));
        parity_of(&self.pool, exponents.as_deref(), data)
    }
}

/// P of data columns of one length, and Q if it has `exponents`.
fn parity_of(pool: &BufPool, exponents: Option<&[u8]>, data: &[BufMut]) -> Vec<(Block, BufMut)> {
    let columns: Vec<&[u8]> = data.iter().map(|column| &**column).collect();
    let length = columns[0].len();
    let mut p = pool.take(length);
    let Some(exponents) = exponents else {
        plexum_parity::gen_p(&columns, &mut p);
        return vec![(Block::P, p)];
    };
    let mut q = pool.take(length);
    plexum_parity::gen_pq(&columns, exponents, &mut p, &mut q);
    vec![(Block::P, p), (Block::Q, q)]
}
