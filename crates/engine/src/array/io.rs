//! Member I/O that all organisations share: who can be read, writing to several members, recording what failed.

use std::ops::Range;
use std::rc::Rc;

use super::state::{Event, FailCause, Standing};
use super::{Array, MemberSet};
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::news::Announcement;
use crate::row::Row;
use crate::threshold::Threshold;
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{Few, join_all, join_few_then};
use plexum_parity::Block;

/// One write to one member, in member data bytes.
pub(crate) type MemberWrite<D> = (Rc<Drive<D>>, Range<u64>, Buf);

/// What became of writes to several members. Failed members and bad blocks are in the state already.
#[derive(Debug, Default)]
pub(crate) struct WriteOutcome {
    /// Ranges of members' data that one had no space for, or could not write although nobody else holds what is on it:
    /// an error that concerns the request and not the member. What is on the member's bad-block list is not among them:
    /// it counted for nothing before.
    pub refused: RangeSet,
    /// Some of them failed, on a member that the volume needs: the last copy is never dropped.
    pub has_failed: bool,
    /// How many writes reached their member.
    pub reached: usize,
}

impl WriteOutcome {
    /// What the request is answered with, when it was refused.
    pub fn refusal(&self) -> Option<IoError> {
        let error = if self.has_failed {
            IoError::Medium
        } else {
            IoError::NoSpace
        };
        (!self.refused.is_empty()).then_some(error)
    }
}

impl<D: Device, C: Clock> Array<D, C> {
    /// The drive of a slot that can be read in this range, if any.
    pub(crate) fn readable_drive<'a>(
        &self,
        set: &'a MemberSet<D>,
        slot: usize,
        member: &Range<u64>,
        sync: &Range<u64>,
    ) -> Option<&'a Rc<Drive<D>>> {
        let view = &set.slots[slot];
        if self.base.has(Mutant::ForgetBadBlocks) && view.active.is_some() {
            return view.active.as_ref();
        }
        if self.base.has(Mutant::ReadWhileRebuilding) {
            return view
                .active
                .as_ref()
                .or(view.filling.as_ref().map(|filling| &filling.drive));
        }
        view.readable(member, sync)
    }

    /// Whether a block of the row can be read in `part`.
    pub(crate) fn is_block_readable(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        block: Block,
        part: &Range<u64>,
    ) -> bool {
        let range = row.member_range(part);
        let slot = row.slot(block);
        self.readable_drive(set, slot, &range, &range).is_some()
    }

    /// Everybody a write to this slot has to reach.
    pub(crate) fn write_targets<'a>(
        &self,
        set: &'a MemberSet<D>,
        slot: usize,
    ) -> impl Iterator<Item = &'a Rc<Drive<D>>> + use<'a, D, C> {
        let view = &set.slots[slot];
        let filling = view.filling.as_ref().map(|filling| &filling.drive);
        let is_skipped = self.base.has(Mutant::WriteSkipsRebuildTarget);
        view.active
            .iter()
            .chain(filling.filter(move |_| !is_skipped))
    }

    /// Writes to several members at once; failures are recorded in the state, not yet durable: the answer waits for
    /// `settle`. Those that are answered together share a reading of the clock.
    pub(crate) async fn write_members(
        &self,
        writes: impl Into<Few<MemberWrite<D>>>,
        fua: Fua,
    ) -> WriteOutcome {
        let writes = writes.into();
        let fua = self.fua_of(fua);
        debug_assert!(
            writes
                .iter()
                .all(|(_, range, data)| !data.is_empty()
                    && range.end - range.start == data.len() as u64),
            "each member range is as long as its data, and empty requests are answered before"
        );
        let clock = self.base.clock();
        let now = clock.recent();
        let write = |index: usize| {
            let (drive, range, data) = &writes[index];
            drive.write_since(clock, now, range.start, data, fua)
        };
        let results: Few<Result<(), IoError>> = if self.base.has(Mutant::AnswerAfterFirstCopy) {
            let note = async |index| write(index).await.note(clock.now());
            let all = (0..writes.len()).map(note);
            crate::mutant::join_first(all).await.into()
        } else {
            let end = || clock.now();
            join_few_then(writes.len(), write, end, |written, now| written.note(now)).await
        };
        if results.iter().any(Result::is_err) {
            // Boxed: what is seldom needed does not make every write larger.
            return Box::pin(self.record_failures(writes, results, fua)).await;
        }
        for (drive, range, _) in &writes {
            self.note_written(drive, range, fua);
        }
        WriteOutcome {
            reached: writes.len(),
            ..WriteOutcome::default()
        }
    }

    fn fua_of(&self, fua: Fua) -> Fua {
        if self.base.has(Mutant::IgnoreFua) {
            Fua::No
        } else {
            fua
        }
    }

    /// Some of the writes have failed: the state learns it, and what may be written in smaller pieces is.
    async fn record_failures(
        &self,
        writes: Few<MemberWrite<D>>,
        results: Few<Result<(), IoError>>,
        fua: Fua,
    ) -> WriteOutcome {
        assert_eq!(writes.len(), results.len(), "each write has its result");
        let mut outcome = WriteOutcome::default();
        let mut failed = Vec::new();
        for ((drive, range, data), result) in writes.into_iter().zip(results) {
            match result {
                Ok(()) => {
                    outcome.reached += 1;
                    self.note_written(&drive, &range, fua);
                }
                Err(IoError::NoSpace) if !self.is_filling(&drive) => {
                    self.note_no_space(&drive);
                    insert_all(&mut outcome.refused, &drive.good_ranges(&range));
                }
                Err(IoError::Gone) => self.fail_member(drive.id, FailCause::Gone),
                Err(error) if self.keeps_bad_blocks(&drive) => {
                    self.note_unfilled(&drive, error);
                    failed.push((drive, range, data));
                }
                Err(_) => {}
            }
        }
        let again = failed
            .iter()
            .map(|(drive, range, data)| self.write_by_halves(drive, range, data, fua));
        for (refused, bad) in join_all(again).await {
            insert_all(&mut outcome.refused, &refused);
            outcome.has_failed |= !bad.is_empty();
            insert_all(&mut outcome.refused, &bad);
        }
        outcome
    }

    #[inline]
    fn note_written(&self, drive: &Drive<D>, range: &Range<u64>, fua: Fua) {
        if !drive.has_bad() {
            return;
        }
        let is_durable = fua == Fua::Yes || self.base.has(Mutant::BadEntryClearedWithoutFlush);
        if drive.clear_bad(range, is_durable) {
            self.apply(&Event::BadBlocksChanged {
                member: drive.id,
                is_urgent: false,
            });
        }
    }

    /// A write has failed, mostly because of few of its sectors: it is tried again in halves of halves, and what still
    /// fails is recorded. Bounded: after `write_failures_max` more failures the rest that failed is recorded as it is.
    /// Gives what was refused for want of space, and what failed and could not be recorded on a member that is needed.
    async fn write_by_halves(
        &self,
        drive: &Rc<Drive<D>>,
        range: &Range<u64>,
        data: &Buf,
        fua: Fua,
    ) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        debug_assert_eq!(range.end - range.start, data.len() as u64);
        let sector = u64::from(self.sector_bytes());
        let (mut doubtful, mut bad) = (vec![range.clone()], RangeSet::default());
        let mut refused = Vec::new();
        let mut failures_left = self.base.thresholds().write_failures_max;
        while let Some(whole) = doubtful.pop() {
            let middle = whole.start + (whole.end - whole.start) / 2 / sector * sector;
            if middle != whole.start && failures_left == 0 {
                self.base.cross(Threshold::WriteFailures);
            }
            if middle == whole.start || failures_left == 0 {
                bad.insert(whole);
                continue;
            }
            for half in [whole.start..middle, middle..whole.end] {
                let place = |at: u64| usize::try_from(at - range.start).expect("part of a request");
                let part = data.slice(place(half.start)..place(half.end));
                match drive.write(self.base.clock(), half.start, &part, fua).await {
                    Ok(()) => self.note_written(drive, &half, fua),
                    Err(IoError::Gone) => {
                        self.fail_member(drive.id, FailCause::Gone);
                        return (refused, Vec::new());
                    }
                    Err(IoError::NoSpace) if !self.is_filling(drive) => {
                        self.note_no_space(drive);
                        refused.extend(drive.good_ranges(&half));
                    }
                    Err(_) => {
                        failures_left = failures_left.saturating_sub(1);
                        doubtful.push(half);
                    }
                }
            }
        }
        let mut kept = Vec::new();
        for range in bad.iter() {
            if self.record_bad(drive, range.clone()) == Recorded::No {
                kept.push(range.clone());
            }
        }
        (refused, kept)
    }

    /// Flushes every live member; one whose flush fails is failed (W13), not durably yet.
    ///
    /// # Errors
    /// `Failed` when that was one too many.
    pub(crate) async fn flush_drives(&self) -> Result<(), IoError> {
        let drives = self.live_drives();
        let marks: Vec<u64> = drives.iter().map(|drive| drive.healed_mark()).collect();
        let results = join_all(drives.iter().map(|drive| drive.flush())).await;
        for ((drive, mark), result) in drives.iter().zip(marks).zip(results) {
            if result.is_ok() && drive.forget_healed(mark) {
                self.apply(&Event::BadBlocksChanged {
                    member: drive.id,
                    is_urgent: false,
                });
            }
            if let Err(error) = result {
                if self.base.has(Mutant::IgnoreFlushError) && error != IoError::Gone {
                    continue;
                }
                let cause = match error {
                    IoError::Gone => FailCause::Gone,
                    _ => FailCause::FlushError,
                };
                self.fail_member(drive.id, cause);
            }
        }
        match self.is_frozen() {
            true => Err(IoError::Failed),
            false => Ok(()),
        }
    }

    /// A member had no space for a write: somebody should hear of it, once.
    pub(crate) fn note_no_space(&self, drive: &Drive<D>) {
        if drive.refusals.note(self.base.clock().now()) {
            let member = drive.name.clone();
            self.base.announce(Announcement::NoSpace { member });
        }
    }

    /// What a member that is being filled has no space for is bad on it, since nobody waits for an answer; it is told
    /// all the same.
    fn note_unfilled(&self, drive: &Drive<D>, error: IoError) {
        if error == IoError::NoSpace {
            self.note_no_space(drive);
        }
    }

    fn is_filling(&self, drive: &Drive<D>) -> bool {
        matches!(
            self.state.borrow().record(drive.id).standing,
            Standing::Rebuilding { .. }
        )
    }

    fn keeps_bad_blocks(&self, drive: &Drive<D>) -> bool {
        self.base.has_redundancy() && self.state.borrow().record(drive.id).is_slotted()
    }

    /// A range of a member does not hold what it should: a bad-block entry where there is room, else the member is
    /// failed. One that is needed stays: nobody else holds what is on it, and whoever wrote hears of the error.
    pub(crate) fn record_bad(&self, drive: &Rc<Drive<D>>, range: Range<u64>) -> Recorded {
        if !self.keeps_bad_blocks(drive) {
            return Recorded::Yes;
        }
        assert!(!range.is_empty(), "a bad range has a sector at least");
        assert!(
            range.end <= drive.data_size_bytes,
            "bad blocks are inside of the data area"
        );
        let mut bad = drive.bad_ranges_to_record();
        bad.insert(range.clone());
        if self.metadata.borrow().has_room_for_bad(drive.id, &bad) {
            drive.mark_bad(range);
            self.apply(&Event::BadBlocksChanged {
                member: drive.id,
                is_urgent: true,
            });
        } else if self.is_needed(drive.id) {
            return Recorded::No;
        } else {
            self.fail_member(drive.id, FailCause::WriteError);
        }
        Recorded::Yes
    }
}

/// Whether it is known from now on that a range of a member does not hold what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It is on a list, or the member is out.
    Yes,
    /// No: the member has no list and is needed.
    No,
}

fn insert_all(set: &mut RangeSet, ranges: &[Range<u64>]) {
    for range in ranges {
        set.insert(range.clone());
    }
}
