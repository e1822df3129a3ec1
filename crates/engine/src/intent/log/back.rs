//! Write-back (L5): a write is answered when its record is durable, and the rows are written later, together.
//!
//! Invariants:
//! - every read of a row sees the blocks that are only in the log, whoever reads: client, parity, or work in the
//!   background (which puts the row in place first, under the row's lock);
//! - one task at a time puts rows in place, and needs no row lock: the content of a row does not change by it. So a
//!   full ring never waits for a writer that waits for the ring;
//! - blocks that are in place are kept in memory as long as nobody but us writes the members: not over work in the
//!   background on their row, and not over a change of the members;
//! - a record is complete only when its blocks, or newer ones, are in place, and whoever missed one is durably failed
//!   (W3);
//! - "clean" is written only when everything is in place and flushed (W2): until then the superblocks carry the bit
//!   with which the kernel refuses the members.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::overlay::Taken;
use super::{LogPart, Logged, StripeLog};
use crate::array::MemberSet;
use crate::intent::Intent;
use crate::mutant::Mutant;
use crate::row::Row;
use crate::state::{FailCause, MemberId};
use crate::threshold::Threshold;
use plexum_block::buf::{Buf, BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join_all;

/// Rows that are put in place at once: a slow one holds back nobody but itself.
const ROWS_AT_ONCE: usize = 64;

impl<D: Device> StripeLog<D> {
    /// Whether writes are answered before they are in place.
    pub(crate) fn is_write_back(&self) -> bool {
        self.is_write_back.get()
    }

    /// As the volume is made, or changed with nothing under way.
    pub(crate) fn set_write_back(&self, is_wanted: bool) {
        assert!(
            self.overlay.borrow().is_empty(),
            "the mode changes with every record in place"
        );
        self.overlay.borrow_mut().drop_all_kept();
        self.is_write_back.set(is_wanted);
    }

    /// Bytes that are durable in the log and not in place.
    pub(crate) fn logged_bytes(&self) -> u64 {
        self.overlay.borrow().bytes()
    }

    /// What is kept in memory counts only among the members it was written to.
    fn keep_among(&self, members: &Rc<MemberSet<D>>) {
        let mut among = self.kept_among.borrow_mut();
        if !among.as_ref().is_some_and(|old| Rc::ptr_eq(old, members)) {
            self.overlay.borrow_mut().drop_all_kept();
            *among = Some(Rc::clone(members));
        }
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// Whether answered writes may be in the log only.
    pub(crate) fn answers_from_log(&self) -> bool {
        let log = self.log.borrow();
        log.as_ref().is_some_and(|log| log.is_write_back())
    }

    /// The records are durable: their blocks are the content of the row from now on. The caller has the row's lock.
    pub(crate) fn keep_logged(
        &self,
        log: &StripeLog<D>,
        row: &Row,
        parts: &[LogPart],
        logged: &Logged<D>,
    ) {
        assert_eq!(
            parts.len() as u64,
            logged.sequences.end - logged.sequences.start,
            "each part has its record"
        );
        let mut overlay = log.overlay.borrow_mut();
        for (part, sequence) in parts.iter().zip(logged.sequences.clone()) {
            let range = row.member_range(&part.part);
            // The region counts as being written until the blocks are in place (W2).
            self.regions.borrow_mut().enter(&range);
            overlay.note(row.number, sequence..sequence + 1, range.clone());
            for (slot, block) in &part.blocks {
                overlay.put(*slot, range.start, self.base.pool().copy_of(block).freeze());
            }
        }
        drop(overlay);
        log.progress.notify(); // whoever waits for these records to come into place does that himself now
        if log.calls_for_tail() {
            self.base.changed().notify();
        }
    }

    /// Blocks of a member range that are only in the log. Take them before the member is read.
    pub(crate) fn logged_blocks(&self, slot: usize, member: &Range<u64>) -> Vec<(u64, Buf)> {
        let log = self.log.borrow();
        match log.as_ref().filter(|log| log.is_write_back()) {
            Some(log) if !self.base.has(Mutant::LoggedNotRead) => {
                if !self.base.has(Mutant::KeptOverRebuild) {
                    log.keep_among(&self.array.members());
                }
                log.overlay.borrow().covering(slot, member)
            }
            _ => Vec::new(),
        }
    }

    /// Reads one block of a row from its member, or from the log. A lost member is failed on the way.
    pub(crate) async fn read_block(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        block: plexum_parity::Block,
        part: &Range<u64>,
    ) -> Result<BufMut, IoError> {
        let (slot, member) = (row.slot(block), row.member_range(part));
        let Some(drive) = self.array.readable_drive(set, slot, &member, &member) else {
            return Err(IoError::Medium);
        };
        let length = usize::try_from(part.end - part.start).expect("a strip fits memory");
        let logged = self.logged_blocks(slot, &member);
        if hold_all(&member, &logged) {
            let mut read = self.base.pool().take(length);
            lay_over(&mut read, &member, &logged);
            return Ok(read);
        }
        let mut result = drive
            .read(self.base.pool(), self.base.clock(), member.start, length)
            .await;
        if let Ok(read) = &mut result {
            lay_over(read, &member, &logged);
        }
        if let Err(IoError::Gone) = result {
            self.array.fail_member(drive.id, FailCause::Gone);
        }
        result
    }

    /// Puts a row in place, for whoever is about to work on its members. The caller has the row's lock.
    ///
    /// # Errors
    /// `NoSpace`, and `Failed` when the volume is frozen.
    pub(crate) async fn destage_row(&self, row: u64) -> Result<(), IoError> {
        let Some(log) = self.stripe_log().filter(|log| log.is_write_back()) else {
            return Ok(());
        };
        let _turn = log.destager.lock().await;
        self.put_row_in_place(&log, row).await?;
        if !self.base.has(Mutant::KeptOverRebuild) {
            let row = self.base.row(row);
            let whole = row.member_range(&(0..row.strip_bytes));
            let slots = self.base.geometry().member_count();
            log.overlay.borrow_mut().drop_kept_of(slots, &whole);
        }
        Ok(())
    }

    /// Puts in place all that is only in the log now.
    ///
    /// # Errors
    /// As `destage_row`; what could not be put in place stays in the log.
    pub(crate) async fn destage(&self) -> Result<(), IoError> {
        let Some(log) = self.stripe_log().filter(|log| log.is_write_back()) else {
            return Ok(());
        };
        let _turn = log.destager.lock().await;
        let rows = log.overlay.borrow().rows();
        let rest = RefCell::new(rows.into_iter());
        let one_after_the_other = || async {
            loop {
                let next = rest.borrow_mut().next();
                let Some(row) = next else { return Ok(()) };
                self.put_row_in_place(&log, row).await?;
            }
        };
        let results = join_all((0..ROWS_AT_ONCE).map(|_| one_after_the_other())).await;
        results.into_iter().collect()
    }

    async fn put_row_in_place(&self, log: &StripeLog<D>, number: u64) -> Result<(), IoError> {
        debug_assert!(log.destager.is_locked(), "one task puts rows in place");
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        let row = self.base.row(number);
        let whole = row.member_range(&(0..row.strip_bytes));
        let slots = self.base.geometry().member_count();
        let taken = log.overlay.borrow_mut().take(number, slots, &whole);
        let Some(taken) = taken else {
            return Ok(());
        };
        let result = self.write_taken(&taken).await;
        match result {
            Ok(written) => {
                let kept_bytes_max = self.base.thresholds().log_kept_bytes_max;
                if log.overlay.borrow_mut().forget(&taken, kept_bytes_max) {
                    self.base.cross(Threshold::LogKept);
                }
                let mut regions = self.regions.borrow_mut();
                for range in &taken.pending.ranges {
                    regions.leave(range);
                }
                drop(regions);
                for sequences in taken.pending.sequences {
                    self.log_complete(log, sequences, &written);
                }
                Ok(())
            }
            Err(error) => {
                log.overlay.borrow_mut().put_back(number, taken);
                log.progress.notify(); // whoever waits for these records looks for himself now
                Err(error)
            }
        }
    }

    async fn write_taken(&self, taken: &Taken) -> Result<Vec<MemberId>, IoError> {
        let set = self.array.members_to_write();
        let mut writes = Vec::new();
        let is_next =
            |one: &Block, next: &Block| one.0 == next.0 && one.1 + one.2.len() as u64 == next.1;
        for neighbours in taken.blocks.chunk_by(is_next) {
            let (slot, start, _) = neighbours[0];
            let data = joined(neighbours, self.base.pool());
            for drive in self.array.write_targets(&set, slot) {
                let range = start..start + data.len() as u64;
                writes.push((Rc::clone(drive), range, data.clone()));
            }
        }
        if self.base.has(Mutant::DestageLost) {
            writes.clear();
        }
        let written = writes.iter().map(|(drive, _, _)| drive.id).collect();
        let outcome = self.array.write_members(writes, Fua::No).await;
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        if let Some(error) = outcome.refusal() {
            return Err(error);
        }
        // W3 before the records may be forgotten.
        self.array.settle().await?;
        Ok(written)
    }
}

/// Slot, first member byte, content.
type Block = (usize, u64, Buf);

/// Blocks that lie one behind the other on a member as one.
fn joined(neighbours: &[Block], pool: &BufPool) -> Buf {
    if let [(_, _, only)] = neighbours {
        return only.clone();
    }
    let mut whole = pool.take(neighbours.iter().map(|(_, _, data)| data.len()).sum());
    let mut rest = &mut whole[..];
    for (_, _, data) in neighbours {
        let (head, tail) = rest.split_at_mut(data.len());
        head.copy_from_slice(data);
        rest = tail;
    }
    whole.freeze()
}

/// Lays logged blocks over what was read of `member`.
pub(crate) fn lay_over(read: &mut BufMut, member: &Range<u64>, blocks: &[(u64, Buf)]) {
    for (start, data) in blocks {
        let end = start + data.len() as u64;
        let (from, to) = (member.start.max(*start), member.end.min(end));
        let place = |at: u64, base: u64| usize::try_from(at - base).expect("inside the part");
        read[place(from, member.start)..place(to, member.start)]
            .copy_from_slice(&data[place(from, *start)..place(to, *start)]);
    }
}

/// Whether logged blocks, ascending, hold all of `member`.
pub(crate) fn hold_all(member: &Range<u64>, blocks: &[(u64, Buf)]) -> bool {
    let mut at = member.start;
    for (start, data) in blocks {
        if *start > at {
            return false;
        }
        at = start + data.len() as u64;
    }
    at >= member.end && !blocks.is_empty()
}
