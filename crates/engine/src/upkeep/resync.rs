//! Resync: doubtful regions are made consistent, one after the other. And the loop that decides what to do next.
//!
//! Invariants:
//! - a region is settled only when every row or range of it was made consistent under its lock;
//! - data are taken as right, parity is computed anew; for copies the first copy in md's order is the source
//!   (linux-md.md 11);
//! - a row that cannot be made consistent (a data block is missing) leaves its region in doubt.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use plexum_parity::Block;

use crate::array::MemberSet;
use crate::array::io::MemberWrite;
use crate::mutant::Mutant;
use crate::news::Announcement;
use crate::row::{PerBlock, Row};
use crate::state::{Event, spare};
use crate::upkeep::JobKind;
use crate::upkeep::steps::Steps;
use crate::upkeep::{Progress, Upkeep};
use plexum_block::buf::BufMut;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};

/// Rest after a step that could not be done, before it is tried again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Keeps the array redundant: spares take empty slots, doubtful regions are resynced, members are rebuilt.
    pub(crate) async fn keep_redundant(&self) {
        let mut stuck: BTreeSet<usize> = BTreeSet::new();
        let mut stuck_version = 0;
        while !self.array.is_ended() && self.base.has_redundancy() {
            self.take_spares();
            let version = self.array.state().version;
            if version != stuck_version {
                stuck.clear(); // the members changed: what was stuck may go on
                stuck_version = version;
            }
            if let Some(region) = self.next_region(&stuck) {
                self.resync(region, &mut stuck).await;
            } else if self.array.fillings().is_empty() {
                self.base.changed().changed().await;
            } else if !self.rebuild_pass().await {
                self.base.clock().sleep(RETRY_AFTER).await;
            }
        }
    }

    fn next_region(&self, stuck: &BTreeSet<usize>) -> Option<usize> {
        let regions = self.intent.regions();
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
                let state = self.array.state();
                let needed = |slot: u16| self.base.geometry().used_bytes(usize::from(slot));
                spare::pick(&state, |member| {
                    self.array.drive(member).is_some_and(|drive| {
                        (0..state.slot_count).all(|slot| drive.data_size_bytes >= needed(slot))
                    })
                })
            };
            let Some((member, slot)) = picked else { return };
            self.array.apply(&Event::RebuildStarted {
                member,
                slot,
                is_replacement: false,
                by_bitmap: false,
            });
            self.base.announce(Announcement::RebuildStarted {
                member: self.array.member_name(member),
                slot,
            });
        }
    }

    async fn resync(&self, first: usize, stuck: &mut BTreeSet<usize>) {
        self.base.announce(Announcement::ResyncStarted);
        self.begin_job(JobKind::Resync, self.intent.regions().sync_bytes());
        let mut region = first;
        loop {
            let generation = self.intent.regions().generation();
            self.intent.begin_settling(region);
            let result = self.resync_region(region).await;
            if self.intent.regions().generation() != generation {
                break; // regions have another size now; what was proven stays proven
            }
            match result {
                Ok(true) => self.intent.settle_unspoilt(region),
                Ok(false) => {
                    stuck.insert(region);
                }
                Err(_) => {
                    if self.array.is_ended() {
                        return;
                    }
                    self.base.clock().sleep(RETRY_AFTER).await; // no space, or a member was lost: look again
                }
            }
            let _ = self.array.settle().await;
            let next = self.next_region(stuck);
            match next.filter(|_| !self.array.is_ended()) {
                Some(next) => region = next,
                None => break,
            }
        }
        self.end_job();
        if self.intent.regions().doubtful_count() == 0 {
            self.intent.settle_log_doubt().await;
            self.intent.settle_ppl_doubt().await;
            self.base.announce(Announcement::ResyncFinished);
        }
    }

    /// Makes one region consistent, on disks several steps at once; `false` when some row of it cannot be.
    async fn resync_region(&self, region: usize) -> Result<bool, IoError> {
        let mut ahead = self.intent.regions().range(region);
        let (mut at, end) = (ahead.start, ahead.end);
        let mut is_right = true;
        let mut steps = Steps::new();
        let mut since = self.base.clock().now();
        let result = loop {
            if self.array.is_ended() {
                break Err(IoError::Failed);
            }
            let end_of = |at| self.sync_step_end(at, end);
            self.begin_steps(&mut steps, &mut ahead, end_of, |range| async move {
                let made = self.resync_step(&range).await;
                (range.end - range.start, made)
            });
            let Some((step, made)) = steps.next().await else {
                break Ok(()); // all of it
            };
            match made {
                Ok(right) => is_right &= right,
                Err(error) => break Err(error),
            }
            at += step;
            self.book.advance_job(Progress {
                done_bytes: at,
                step_bytes: step,
            });
            steps.during(self.throttle(step, since)).await;
            since = self.base.clock().now();
        };
        steps.rest().await;
        result?;
        if self.base.has_copies() && self.base.has(Mutant::ProvenBeforeFlush) {
            self.intent.settle_unspoilt(region);
        }
        if self.base.has_copies() && !self.base.has(Mutant::EqualWithoutFlush) {
            self.intent.flush_members().await?; // W6: only then may reads answer from any copy
        }
        Ok(is_right)
    }

    /// Makes one step consistent, a range of the sync space; `false` when some row of it cannot be.
    async fn resync_step(&self, range: &Range<u64>) -> Result<bool, IoError> {
        if self.base.has_copies() {
            self.resync_copies(range).await?;
            return Ok(true);
        }
        let _lock = self.lock_rows(range).await;
        if self.resync_rows(range).await? {
            return Ok(true);
        }
        let mut is_right = true;
        for (number, part) in self.row_parts(range) {
            is_right &= self.resync_row(number, part).await?;
        }
        Ok(is_right)
    }

    /// Makes the copies of a range inside one strip equal.
    async fn resync_copies(&self, range: &Range<u64>) -> Result<(), IoError> {
        if range.start >= self.base.size_bytes() {
            return Ok(()); // the sync space may be rounded up beyond the volume
        }
        let _lock = self.base.locks().lock(range.clone()).await;
        let length_bytes = usize::try_from(range.end - range.start).expect("a step fits memory");
        match self.copies.equalise(range.start, length_bytes).await {
            // No copy can be read: nothing to make equal, reads will say so.
            Ok(_) | Err(IoError::Medium) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Compares several whole rows, each member asked for one long piece, and writes the parity of those where it is
    /// wrong. The caller holds their locks. `false`: nothing was done, for it is not as simple as that.
    async fn resync_rows(&self, member: &Range<u64>) -> Result<bool, IoError> {
        let Some(numbers) = self.whole_rows(member) else {
            return Ok(false);
        };
        for number in numbers.clone() {
            self.intent.destage_row(number).await?;
        }
        if self.intent.is_proven(member) {
            return Ok(true);
        }
        let set = self.array.members();
        if set.slots.iter().any(|slot| slot.replacement().is_some()) {
            return Ok(false); // which has to become equal as well
        }
        let Some((rows, read)) = self.read_whole_rows(numbers).await else {
            return Ok(false);
        };
        let set = self.array.members(); // who may have been lost meanwhile
        let part = 0..self.base.geometry().strip_bytes();
        let is_there = |row: &Row| {
            let mut blocks = row.blocks();
            blocks.all(|block| self.array.is_block_readable(&set, row, block, &part))
        };
        if !rows.iter().all(is_there) {
            return Ok(false);
        }
        let is_believed = self.base.has(Mutant::ResyncBelievesRows);
        let looked_at = if is_believed { 1 } else { rows.len() };
        let mut writes: Vec<MemberWrite<D>> = Vec::new();
        for (index, row) in rows[..looked_at].iter().enumerate() {
            let blocks = read.row(index);
            if !self.is_row_right(row, &blocks) {
                let data = &blocks[..row.map.data_count()];
                writes.extend(self.parity_writes(&set, row, &part, data));
            }
        }
        self.write_parity(writes, member).await?;
        Ok(true)
    }

    /// Computes the parity of a part of a row, whose lock the caller holds, from its data and writes it.
    async fn resync_row(&self, number: u64, part: Range<u64>) -> Result<bool, IoError> {
        if number >= self.base.geometry().row_count() {
            return Ok(true); // the sync space may be rounded up beyond the last row
        }
        let row = self.base.row(number);
        self.intent.destage_row(number).await?;
        let set = self.array.members();
        let sync = row.member_range(&part);
        if self.intent.is_proven(&sync) {
            return Ok(true);
        }
        let data: Vec<Block> = (0..row.map.data_count()).map(Block::Data).collect();
        let mut failed = Vec::new();
        let Some(read) = self
            .rows
            .read_blocks(&set, &row, &data, &part, &mut failed)
            .await
        else {
            return Ok(false); // in doubt and incomplete: reads answer an error, not a guess
        };
        if data
            .iter()
            .any(|block| !self.array.is_block_readable(&set, &row, *block, &part))
        {
            return Ok(false);
        }
        let columns: PerBlock<&[u8]> = read.iter().map(|column| &**column).collect();
        let set = self.array.members();
        let mut writes = self.parity_writes(&set, &row, &part, &columns);
        drop(columns);
        // A member and its replacement are copies of each other: a crash may have left them different.
        for (block, content) in data.iter().zip(read) {
            if let Some(filling) = set.slots[row.slot(*block)].replacement()
                && !self.base.has(Mutant::ResyncForgetsReplacement)
            {
                let drive = Rc::clone(&filling.drive);
                writes.push((drive, sync.clone(), content.freeze()));
            }
        }
        self.write_parity(writes, &sync).await?;
        Ok(true)
    }

    /// The writes that give a part of a row the parity of these data.
    fn parity_writes(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        part: &Range<u64>,
        data: &[&[u8]],
    ) -> Vec<MemberWrite<D>> {
        let mut writes = Vec::new();
        for (block, bytes) in self.row_parity(row, data) {
            let bytes = bytes.freeze();
            for drive in self.array.write_targets(set, row.slot(block)) {
                writes.push((Rc::clone(drive), row.member_range(part), bytes.clone()));
            }
        }
        writes
    }

    /// Writes what makes a member range consistent, which from then on is.
    async fn write_parity(
        &self,
        writes: Vec<MemberWrite<D>>,
        member: &Range<u64>,
    ) -> Result<(), IoError> {
        assert!(member.start < member.end, "rows were looked at");
        let outcome = self.array.write_members(writes, Fua::No).await;
        if let Some(error) = outcome.refusal() {
            return Err(error);
        }
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        self.intent.prove(member);
        Ok(())
    }

    /// P (and Q) of a row from all its data, columns of one length.
    pub(crate) fn row_parity(&self, row: &Row, data: &[&[u8]]) -> Vec<(Block, BufMut)> {
        let length = data[0].len();
        assert!(
            data.iter().all(|column| column.len() == length),
            "columns of a row are of one length"
        );
        let mut p = self.base.pool().take(length);
        if row.map.q.is_none() {
            plexum_parity::gen_p(data, &mut p);
            return vec![(Block::P, p)];
        }
        let mut q = self.base.pool().take(length);
        plexum_parity::gen_pq(data, &self.base.q_exponents(row), &mut p, &mut q);
        vec![(Block::P, p), (Block::Q, q)]
    }
}
