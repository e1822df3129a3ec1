//! Replay at start: what the rings hold is brought in place, so that every row is wholly new or wholly old.
//!
//! Invariants:
//! - a record counts when every touched slot has it, of those whose member is here and had joined by then (L2);
//! - one that does not count was never begun in place, so no later record of its row can exist: if one does, a ring is
//!   damaged and nothing is replayed;
//! - each place gets its last content only, so that at no moment older data lie where newer ones were (L7);
//! - who is missing is durable before the first write: a member that lacks a record cannot come back as fresh (W3);
//! - a new life of the log begins only after the flush of what was replayed (W2): a crash before repeats the replay.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plexum_format::stripe_log::{Batch, LogHeader, PAGE_BYTES, Record, Slots};

use super::StripeLog;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::mutant::Mutant;
use crate::state::MemberId;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::join_all;

/// Why a log could not be replayed; nothing was written in the first case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayError {
    /// A record is missing in the middle of a ring.
    Damaged,
    /// The members could not be written.
    Io(IoError),
}

/// Where one member holds a record's block.
struct Holder {
    member: MemberId,
    slot: u16,
    offset_bytes: u64,
    record: Record,
}

struct Candidate {
    row: u64,
    part: Range<u64>,
    touched: Slots,
    holders: Vec<Holder>,
}

impl Candidate {
    fn overlaps(&self, other: &Candidate) -> bool {
        self.row == other.row
            && self.part.start < other.part.end
            && other.part.start < self.part.end
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// Replays what the rings hold. `headers` by `MemberId`; all of them are bound to their superblocks (L6).
    ///
    /// # Errors
    /// `Damaged` when the rings contradict themselves: the caller treats the array as one without a log.
    pub(crate) async fn replay_log(
        &self,
        log: &StripeLog<D>,
        headers: &[Option<LogHeader>],
    ) -> Result<(), ReplayError> {
        let mut found = self.collect(log, headers).await;
        self.verify(&mut found).await;
        let counts = |sequence: u64, candidate: &Candidate| {
            self.base.has(Mutant::ReplayTornRecords) || self.is_whole(headers, sequence, candidate)
        };
        let (whole, torn): (BTreeMap<_, _>, BTreeMap<_, _>) = found
            .into_iter()
            .partition(|(sequence, candidate)| counts(*sequence, candidate));
        for (sequence, candidate) in &torn {
            let later = whole.range(sequence..).chain(torn.range(sequence + 1..));
            if later
                .into_iter()
                .any(|(_, other)| candidate.overlaps(other))
            {
                return Err(ReplayError::Damaged);
            }
        }
        self.put_in_place(&whole).await.map_err(ReplayError::Io)
    }

    /// All records from the tail on, from every member that is here.
    async fn collect(
        &self,
        log: &StripeLog<D>,
        headers: &[Option<LogHeader>],
    ) -> BTreeMap<u64, Candidate> {
        let (log_id, tail) = {
            let book = log.book.borrow();
            (book.log_id, book.covered)
        };
        let drives = self.array.slotted_drives();
        let chains = drives.iter().map(|drive| async {
            let header = headers.get(usize::from(drive.id.0)).cloned().flatten();
            match header.filter(|header| header.log_id == log_id) {
                Some(header) => self.read_chain(drive, &header).await,
                None => Vec::new(),
            }
        });
        let chains = join_all(chains).await;
        let mut found: BTreeMap<u64, Candidate> = BTreeMap::new();
        for holder in chains.into_iter().flatten() {
            let record = holder.record;
            if record.sequence < tail {
                continue;
            }
            let start = u64::from(record.start_bytes);
            let candidate = found.entry(record.sequence).or_insert_with(|| Candidate {
                row: record.row,
                part: start..start + u64::from(record.length_bytes),
                touched: record.touched,
                holders: Vec::new(),
            });
            candidate.holders.push(holder);
        }
        found
    }

    async fn read_chain(&self, drive: &Rc<Drive<D>>, header: &LogHeader) -> Vec<Holder> {
        let mut holders = Vec::new();
        let (mut position, mut number) = (header.start_position, header.start_batch);
        let ring = header.area.ring_bytes;
        let end = header.start_position + 2 * ring; // a chain is shorter than a round, its gaps included
        while position < end {
            let Some(batch) = self.read_batch(drive, header, number, position).await else {
                break;
            };
            for (record, at) in batch.records.iter().zip(batch.block_positions()) {
                holders.push(Holder {
                    member: drive.id,
                    slot: record.slot,
                    offset_bytes: header.area.offset_bytes(at),
                    record: *record,
                });
            }
            position = batch.position + batch.length_bytes();
            number += 1;
        }
        holders
    }

    /// The batch that lies at `position`, or at the ring's front when it did not fit there.
    async fn read_batch(
        &self,
        drive: &Rc<Drive<D>>,
        header: &LogHeader,
        number: u64,
        position: u64,
    ) -> Option<Batch> {
        let front = position.next_multiple_of(header.area.ring_bytes);
        for at in [position, front] {
            let offset = header.area.offset_bytes(at);
            let page = drive
                .read_device(self.base.pool(), offset, PAGE_BYTES)
                .await
                .ok()?;
            if let Ok(batch) = Batch::parse(&page, header, number, at) {
                return Some(batch);
            }
        }
        None
    }

    /// Forgets holders whose block is not what was logged: a torn write.
    async fn verify(&self, found: &mut BTreeMap<u64, Candidate>) {
        for candidate in found.values_mut() {
            let blocks =
                join_all(candidate.holders.iter().map(|holder| self.block_of(holder))).await;
            let mut blocks = blocks.into_iter();
            let expected = (candidate.row, candidate.touched, candidate.part.clone());
            candidate.holders.retain(|holder| {
                let start = u64::from(holder.record.start_bytes);
                let part = start..start + u64::from(holder.record.length_bytes);
                let is_same = (holder.record.row, holder.record.touched, part) == expected;
                blocks.next().is_some_and(|block| block.is_some()) && is_same
            });
        }
    }

    async fn block_of(&self, holder: &Holder) -> Option<plexum_block::buf::Buf> {
        let drive = self.array.drive(holder.member)?;
        let length = usize::try_from(holder.record.length_bytes).ok()?;
        let read = drive
            .read_device(self.base.pool(), holder.offset_bytes, length)
            .await;
        let block = read.ok()?.freeze();
        holder.record.matches(&block).then_some(block)
    }

    /// L2: whether everybody who is here, touched, and was a member by then has the record.
    fn is_whole(
        &self,
        headers: &[Option<LogHeader>],
        sequence: u64,
        candidate: &Candidate,
    ) -> bool {
        let state = self.array.state();
        let is_needed = |drive: &Rc<Drive<D>>| {
            let header = headers
                .get(usize::from(drive.id.0))
                .and_then(Option::as_ref);
            let had_joined = header.is_none_or(|header| header.joined_sequence <= sequence);
            let slot = state.record(drive.id).slot.map(usize::from);
            had_joined && slot.is_some_and(|slot| candidate.touched.contains(slot))
        };
        let drives = self.array.slotted_drives();
        let mut needed = drives.iter().filter(|drive| is_needed(drive));
        needed.all(|drive| {
            candidate
                .holders
                .iter()
                .any(|holder| holder.member == drive.id)
        })
    }

    /// L7: newest first, and of each place only what no newer record covers.
    async fn put_in_place(&self, whole: &BTreeMap<u64, Candidate>) -> Result<(), IoError> {
        if self.base.has(Mutant::LogNotReplayed) || whole.is_empty() {
            return Ok(());
        }
        // Who is missing must be durable first (W3): a member that lacks a record would otherwise come back after a
        // crash in here as fresh as the others, the record would count as torn, and the row would stay half replayed.
        if !self.base.has(Mutant::ReplayBeforeCommit) {
            self.array.settle().await?;
        }
        let mut done: BTreeMap<MemberId, RangeSet> = BTreeMap::new();
        for candidate in whole.values().rev() {
            let row = self.base.row(candidate.row);
            let member = row.member_range(&candidate.part);
            let mut writes = Vec::new();
            for holder in &candidate.holders {
                let Some(drive) = self.array.drive(holder.member) else {
                    continue;
                };
                let is_its_slot =
                    self.array.state().record(holder.member).slot == Some(holder.slot);
                if !is_its_slot {
                    continue;
                }
                let done = done.entry(holder.member).or_default();
                let gaps = done.gaps(&member);
                done.insert(member.clone());
                if gaps.is_empty() {
                    continue;
                }
                let block = self.block_of(holder).await.ok_or(IoError::Medium)?;
                for gap in gaps {
                    let place = |at: u64| usize::try_from(at - member.start).expect("inside");
                    let piece = block.slice(place(gap.start)..place(gap.end));
                    writes.push((Rc::clone(&drive), gap, piece));
                }
            }
            let outcome = self.array.write_members(writes, Fua::No).await;
            if let Some(error) = outcome.refusal() {
                return Err(error);
            }
            if self.array.is_frozen() {
                return Err(IoError::Failed);
            }
        }
        Ok(())
    }

    /// L7, W2: what was replayed is flushed, and whoever could not take it is durably failed; only then the rings are
    /// given up for a new life.
    pub(crate) async fn finish_replay(&self, log: &StripeLog<D>) -> Result<(), IoError> {
        if self.base.has(Mutant::ReplayForgottenBeforeFlush) {
            log.new_life();
            return self.begin_log_life(log).await;
        }
        self.flush_members().await?;
        self.array.settle().await?;
        log.new_life();
        self.begin_log_life(log).await
    }
}
