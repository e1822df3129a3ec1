//! Scrub: reads everything, compares copies or parity, reports ranges; with repair it mends what it can name.
//!
//! Invariants:
//! - a row or range is compared under its lock;
//! - what is in doubt or incomplete is not compared: resync and rebuild have it;
//! - without repair nothing is changed but unreadable blocks (as any read error);
//! - a wrong member is named only when P and Q agree on it, or a majority of copies does.

use std::ops::Range;
use std::rc::Rc;

use plexum_parity::{Block, Located, locate};

use crate::array::io::MemberWrite;
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::news::Announcement;
use crate::row::{PerBlock, Row};
use crate::upkeep::JobKind;
use crate::upkeep::steps::Steps;
use crate::upkeep::{Progress, Upkeep};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::join_all;

/// Unit of comparison in bytes.
const UNIT: usize = 4096;

/// Most ranges listed in a report; the counts go on.
const MISMATCHES_MAX: usize = 10_000;

/// Whether a scrub may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubMode {
    /// Report only.
    #[default]
    Check,
    /// Mend: the named member where one is named, else parity or the later copies.
    Repair,
}

/// A range that does not agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The member that is wrong, by slot, where that can be said.
    pub slot: Option<u16>,
    /// Its name.
    pub member: Option<String>,
    /// Range of the member's data area (the same on all members of the row, or of the first copy).
    pub member_range: Range<u64>,
    /// Ranges of the volume that the data there belong to.
    pub volume_ranges: Vec<Range<u64>>,
    /// Whether it was mended.
    pub is_repaired: bool,
}

/// Result of a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Whether it could write.
    pub mode: ScrubMode,
    /// What does not agree, ascending, neighbours merged; at most 10,000.
    pub mismatches: Vec<Mismatch>,
    /// All bytes of members that do not agree.
    pub mismatch_bytes: u64,
    /// Of these, bytes that were mended.
    pub repaired_bytes: u64,
    /// Bytes that could not be compared (in doubt, incomplete or unreadable).
    pub skipped_bytes: u64,
    /// Whether the scrub went to the end.
    pub is_complete: bool,
    /// Where it began: 0 but for a scrub of a part.
    pub from_bytes: u64,
    /// How far it came, of `total_bytes`: nothing is known of what lies behind.
    pub done_bytes: u64,
    /// What there is to compare, in bytes of the sync space.
    pub total_bytes: u64,
    /// When it ended, in seconds since 1970.
    pub ended_s: u64,
    /// Bytes that the last scrub which went to the end found and nobody mended; only where this one did not get there.
    pub mismatch_bytes_before: u64,
}

impl ScrubReport {
    /// Bytes that are known to differ: those found and not mended, and those of an earlier scrub that none has looked
    /// at since.
    #[must_use]
    pub fn unmended_bytes(&self) -> u64 {
        let own = self.mismatch_bytes.saturating_sub(self.repaired_bytes);
        own.max(self.mismatch_bytes_before)
    }

    /// Adds what the next step found.
    fn add(&mut self, step: ScrubReport) {
        self.mismatch_bytes += step.mismatch_bytes;
        self.repaired_bytes += step.repaired_bytes;
        self.skipped_bytes += step.skipped_bytes;
        for mismatch in step.mismatches {
            self.add_mismatch(mismatch);
        }
    }

    fn add_mismatch(&mut self, mismatch: Mismatch) {
        if let Some(last) = self.mismatches.last_mut()
            && last.slot == mismatch.slot
            && last.member_range.end == mismatch.member_range.start
            && last.is_repaired == mismatch.is_repaired
        {
            last.member_range.end = mismatch.member_range.end;
            merge(&mut last.volume_ranges, mismatch.volume_ranges);
            return;
        }
        if self.mismatches.len() < MISMATCHES_MAX {
            self.mismatches.push(mismatch);
        }
    }
}

/// What a scrub is to do.
#[derive(Clone, Debug)]
pub(super) struct ScrubWish {
    mode: ScrubMode,
    /// The part of the sync space to compare; none for all of it.
    part: Option<Range<u64>>,
}

/// What the scrub task is asked and what it says.
#[derive(Clone, Debug, Default)]
pub struct ScrubState {
    pub(super) wanted: Option<ScrubWish>,
    pub(super) is_running: bool,
    is_stop_asked: bool,
}

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Starts a scrub; says `false` when one is running or the organisation has nothing to compare.
    pub(crate) fn start_scrub(&self, mode: ScrubMode) -> bool {
        self.wish_scrub(ScrubWish { mode, part: None })
    }

    /// Starts a scrub of a part of the sync space, as `start_scrub`; what lies beyond its end is not there.
    pub(crate) fn start_scrub_part(&self, part: Range<u64>) -> bool {
        let mode = ScrubMode::Check;
        self.wish_scrub(ScrubWish {
            mode,
            part: Some(part),
        })
    }

    fn wish_scrub(&self, wish: ScrubWish) -> bool {
        let mut scrub = self.book.scrub.borrow_mut();
        if scrub.is_running
            || wish.mode == ScrubMode::Repair && self.base.is_read_only()
            || scrub.wanted.is_some()
            || !self.base.has_redundancy()
            || self.array.is_frozen()
            || self.traffic.is_switching()
        {
            return false;
        }
        scrub.wanted = Some(wish);
        scrub.is_stop_asked = false;
        drop(scrub);
        self.base.changed().notify();
        true
    }

    /// Asks a running scrub to end.
    pub(crate) fn stop_scrub(&self) {
        self.book.scrub.borrow_mut().is_stop_asked = true;
        self.base.changed().notify();
    }

    /// Whether the scrub that runs has been asked to end.
    pub(crate) fn is_scrub_to_stop(&self) -> bool {
        let scrub = self.book.scrub.borrow();
        scrub.is_running && scrub.is_stop_asked
    }

    /// Whether a scrub is running or about to.
    pub(crate) fn is_scrubbing(&self) -> bool {
        self.book.is_scrubbing()
    }

    /// The report of the last scrub that ended.
    pub(crate) fn scrub_report(&self) -> Option<ScrubReport> {
        self.book.last_scrub.borrow().clone()
    }

    /// The report of the last scrub of a part that ended.
    pub(crate) fn scrub_part_report(&self) -> Option<ScrubReport> {
        self.book.last_part.borrow().clone()
    }

    /// What there is to compare, in bytes of the sync space: of the volume where it has copies, else of each member.
    pub(crate) fn scrub_bytes(&self) -> u64 {
        match self.base.has_copies() {
            true => self.base.size_bytes(),
            false => self.base.geometry().row_count() * self.base.geometry().strip_bytes(),
        }
    }

    /// Waits until no scrub runs.
    pub(crate) async fn scrub_ended(&self) {
        self.base
            .changed()
            .until(|| !self.is_scrubbing() || self.array.is_ended())
            .await;
    }

    pub(crate) async fn run_scrubs(&self) {
        while !self.array.is_ended() {
            let wanted = {
                let mut scrub = self.book.scrub.borrow_mut();
                let wanted = scrub.wanted.take();
                scrub.is_running = wanted.is_some();
                wanted
            };
            match wanted {
                Some(ScrubWish { mode, part }) => {
                    let report = self.run_scrub(mode, part.clone()).await;
                    if part.is_some() {
                        // Whoever asked for the part puts parts together.
                        *self.book.last_part.borrow_mut() = Some(report);
                    } else {
                        self.base.announce(announcement_of(&report));
                        *self.book.last_scrub.borrow_mut() = Some(report);
                    }
                    let mut scrub = self.book.scrub.borrow_mut();
                    scrub.is_running = false;
                    drop(scrub);
                    self.base.changed().notify();
                }
                None => self.base.changed().changed().await,
            }
        }
        let mut scrub = self.book.scrub.borrow_mut();
        scrub.is_running = false;
        scrub.wanted = None;
    }

    async fn run_scrub(&self, mode: ScrubMode, part: Option<Range<u64>>) -> ScrubReport {
        let mut report = ScrubReport::default();
        let total = self.scrub_bytes();
        let range = part.map_or(0..total, |part| part.start.min(total)..part.end.min(total));
        report.from_bytes = range.start;
        self.begin_job(
            if mode == ScrubMode::Check {
                JobKind::Scrub
            } else {
                JobKind::Repair
            },
            total,
        );
        let (mut at, mut ahead) = (range.start, range.clone());
        let mut steps = Steps::new();
        let mut since = self.base.clock().now();
        while at < range.end && !self.array.is_ended() && !self.book.scrub.borrow().is_stop_asked {
            let end_of = |at| self.sync_step_end(at, range.end);
            self.begin_steps(&mut steps, &mut ahead, end_of, |step| {
                self.scrub_step(step, mode)
            });
            let Some((step, found)) = steps.next().await else {
                break;
            };
            report.add(found);
            at += step;
            self.book.advance_job(Progress {
                done_bytes: at,
                step_bytes: step,
            });
            steps.during(self.throttle(step, since)).await;
            since = self.base.clock().now();
        }
        // What is still under way when it is to stop may mend something.
        while let Some((step, found)) = steps.next().await {
            report.add(found);
            at += step;
        }
        report.mode = mode;
        (report.done_bytes, report.total_bytes) = (at.min(total), total);
        report.is_complete = range.start == 0 && at >= total;
        report.ended_s = self.base.clock().wall_seconds();
        if !report.is_complete {
            let before = self.book.last_scrub.borrow();
            report.mismatch_bytes_before = before.as_ref().map_or(0, ScrubReport::unmended_bytes);
        }
        self.end_job();
        report
    }

    /// Compares one step, a range of the sync space; says how long it was and what was found.
    async fn scrub_step(&self, range: Range<u64>, mode: ScrubMode) -> (u64, ScrubReport) {
        let mut report = ScrubReport::default();
        let step = range.end - range.start;
        if self.base.has_copies() {
            let length = usize::try_from(step).expect("a step fits memory");
            self.scrub_copies(range.start, length, mode, &mut report)
                .await;
        } else {
            self.scrub_rows(&range, mode, &mut report).await;
        }
        (step, report)
    }

    /// Compares what lies in a member range: several rows, or a part of one.
    async fn scrub_rows(&self, member: &Range<u64>, mode: ScrubMode, report: &mut ScrubReport) {
        let _lock = self.lock_rows(member).await;
        if self.rows_agree(member).await {
            return;
        }
        for (number, part) in self.row_parts(member) {
            self.scrub_row(number, part, mode, report).await;
        }
    }

    /// Whether several whole rows are as they should be, each member asked for one long piece. `false`: somebody has to
    /// look closer.
    async fn rows_agree(&self, member: &Range<u64>) -> bool {
        let Some(numbers) = self.whole_rows(member) else {
            return false;
        };
        for number in numbers.clone() {
            if !self.is_row_in_place(number).await {
                return false;
            }
        }
        if !self.intent.is_proven(member) {
            return false;
        }
        let Some((rows, read)) = self.read_whole_rows(numbers).await else {
            return false;
        };
        let is_right = |(index, row)| self.is_row_right(row, &read.row(index));
        rows.iter().enumerate().all(is_right)
    }

    /// Whether all of a row is where it belongs, and not only in the log. Where nothing may be written it stays in the
    /// log.
    async fn is_row_in_place(&self, number: u64) -> bool {
        if self.base.is_read_only() {
            return self
                .intent
                .stripe_log()
                .is_none_or(|log| !log.is_write_back());
        }
        self.intent.destage_row(number).await.is_ok()
    }

    /// Compares a part of one row, whose lock the caller holds.
    async fn scrub_row(
        &self,
        number: u64,
        part: Range<u64>,
        mode: ScrubMode,
        report: &mut ScrubReport,
    ) {
        let row = self.base.row(number);
        let sync = row.member_range(&part);
        let data_count = row.map.data_count();
        if !self.is_row_in_place(number).await || !self.intent.is_proven(&sync) {
            report.skipped_bytes += part.end - part.start;
            return;
        }
        let Some(columns) = self.read_or_mend(&row, &part).await else {
            report.skipped_bytes += part.end - part.start;
            return;
        };
        let blocks: PerBlock<&[u8]> = columns.iter().map(|column| &**column).collect();
        if self.is_row_right(&row, &blocks) {
            return; // one pass, nearly always
        }
        let expected = self.row_parity(&row, &blocks[..data_count]);
        for unit in 0..columns[0].len().div_ceil(UNIT) {
            let bytes = unit * UNIT..((unit + 1) * UNIT).min(columns[0].len());
            let here = part.start + bytes.start as u64..part.start + bytes.end as u64;
            let Some(wrong) = judge(&row, &columns, &expected, &bytes) else {
                continue;
            };
            let is_repaired =
                mode == ScrubMode::Repair && self.repair_row(&row, &here, wrong).await.is_ok();
            self.report_row(report, &row, &here, wrong, is_repaired);
        }
    }

    /// All blocks of the row; one that cannot be read is recovered and mended. `None` when the row is incomplete.
    async fn read_or_mend(&self, row: &Row, part: &Range<u64>) -> Option<PerBlock<BufMut>> {
        let set = self.array.members();
        let blocks: Vec<Block> = row.blocks().collect();
        if blocks
            .iter()
            .any(|block| !self.array.is_block_readable(&set, row, *block, part))
        {
            return None;
        }
        let mut failed = Vec::new();
        if let Some(read) = self
            .rows
            .read_blocks(&set, row, &blocks, part, &mut failed)
            .await
        {
            return Some(read);
        }
        for block in failed {
            let recovered = self
                .rows
                .recover_blocks(row, &[block], part, vec![block])
                .await
                .ok()?;
            let member = row.member_range(part);
            let drive = self
                .array
                .readable_drive(&set, row.slot(block), &member, &member)?
                .clone();
            self.array
                .mend(&drive, member, recovered.first()?)
                .await
                .ok()?;
        }
        let mut failed = Vec::new();
        self.rows
            .read_blocks(&self.array.members(), row, &blocks, part, &mut failed)
            .await
    }

    /// W1 for a repair: dirty and marked before anything is written.
    async fn begin_repair(
        &self,
        sync: Range<u64>,
    ) -> Result<
        (
            plexum_block::wait::GaugeGuard,
            crate::intent::bitmap::Mark<'_, D, C>,
        ),
        IoError,
    > {
        let guard = self.traffic.enter_write(self.base.clock().now()).await?;
        let mark = self.intent.mark(sync).await?;
        Ok((guard, mark))
    }

    async fn repair_row(&self, row: &Row, part: &Range<u64>, wrong: Wrong) -> Result<(), IoError> {
        let member = row.member_range(part);
        let mark = self.begin_repair(member.clone()).await?;
        let mut writes: Vec<MemberWrite<D>> = Vec::new();
        let blocks: Vec<Block> = match wrong {
            Wrong::Block(block) => vec![block],
            Wrong::Unknown => row.parities().to_vec(),
        };
        let contents = match wrong {
            Wrong::Block(block) => {
                self.rows
                    .recover_blocks(row, &[block], part, vec![block])
                    .await?
            }
            Wrong::Unknown => {
                self.rows
                    .recover_blocks(row, row.parities(), part, row.parities().to_vec())
                    .await?
            }
        };
        let set = self.array.members();
        for (block, content) in blocks.iter().zip(contents) {
            for drive in self.array.write_targets(&set, row.slot(*block)) {
                writes.push((Rc::clone(drive), member.clone(), content.clone()));
            }
        }
        let outcome = self.array.write_members(writes, Fua::No).await;
        drop(mark);
        self.array.settle().await?;
        outcome.refusal().map_or(Ok(()), Err)
    }

    fn report_row(
        &self,
        report: &mut ScrubReport,
        row: &Row,
        part: &Range<u64>,
        wrong: Wrong,
        is_repaired: bool,
    ) {
        let strip = row.strip_bytes;
        let row_start = row.number * strip * row.map.data_count() as u64;
        let volume = |index: usize| {
            let start = row_start + index as u64 * strip;
            start + part.start..start + part.end
        };
        let (slot, volume_ranges) = match wrong {
            Wrong::Block(Block::Data(index)) => {
                (Some(row.map.data_slot(index)), vec![volume(index)])
            }
            Wrong::Block(block) => (Some(row.slot(block)), Vec::new()),
            Wrong::Unknown => (None, (0..row.map.data_count()).map(volume).collect()),
        };
        let member = row.member_range(part);
        self.note(report, slot, member, volume_ranges, is_repaired);
    }

    fn note(
        &self,
        report: &mut ScrubReport,
        slot: Option<usize>,
        member_range: Range<u64>,
        volume_ranges: Vec<Range<u64>>,
        is_repaired: bool,
    ) {
        if self.base.has(Mutant::ScrubOverlooks) {
            return;
        }
        let length = member_range.end - member_range.start;
        report.mismatch_bytes += length;
        report.repaired_bytes += if is_repaired { length } else { 0 };
        let set = self.array.members();
        let member = slot.and_then(|slot| {
            set.slots[slot]
                .active
                .as_ref()
                .map(|drive| drive.name.clone())
        });
        let slot = slot.map(|slot| u16::try_from(slot).expect("slots are few"));
        report.add_mismatch(Mismatch {
            slot,
            member,
            member_range,
            volume_ranges,
            is_repaired,
        });
    }

    async fn scrub_copies(
        &self,
        at: u64,
        length: usize,
        mode: ScrubMode,
        report: &mut ScrubReport,
    ) {
        let sync = at..at + length as u64;
        let _lock = self.base.locks().lock(sync.clone()).await;
        if !self.intent.is_proven(&sync) {
            report.skipped_bytes += length as u64;
            return;
        }
        let set = self.array.members();
        let mut copies: Vec<(usize, Rc<Drive<D>>, u64)> = Vec::new();
        for place in self.base.geometry().copies_of(at).iter() {
            let range = crate::copies::member_range(&place, length);
            if let Some(drive) = self.array.readable_drive(&set, place.slot, &range, &sync) {
                copies.push((place.slot, Rc::clone(drive), place.member_offset_bytes));
            }
        }
        if copies.len() < 2 {
            report.skipped_bytes += length as u64;
            return;
        }
        let reads = copies.iter().map(|(_, drive, offset)| {
            drive.read(self.base.pool(), self.base.clock(), *offset, length)
        });
        let results = join_all(reads).await;
        let Some(contents) = self.all_read(&copies, results, length).await else {
            report.skipped_bytes += length as u64;
            return;
        };
        if contents.windows(2).all(|pair| *pair[0] == *pair[1]) {
            return; // at the speed of memory, nearly always
        }
        for unit in 0..length.div_ceil(UNIT) {
            let bytes = unit * UNIT..((unit + 1) * UNIT).min(length);
            let parts: Vec<&[u8]> = contents
                .iter()
                .map(|content| &content[bytes.clone()])
                .collect();
            if parts.windows(2).all(|pair| pair[0] == pair[1]) {
                continue;
            }
            self.report_copies(&copies, &contents, at, bytes, mode, report)
                .await;
        }
    }

    /// Contents of all copies; one that could not be read is mended from another.
    async fn all_read(
        &self,
        copies: &[(usize, Rc<Drive<D>>, u64)],
        results: Vec<Result<BufMut, IoError>>,
        length: usize,
    ) -> Option<Vec<Buf>> {
        let contents: Vec<Option<Buf>> = results
            .into_iter()
            .map(|result| result.ok().map(BufMut::freeze))
            .collect();
        let good = contents.iter().flatten().next()?.clone();
        let mut all = Vec::new();
        for ((_, drive, offset), content) in copies.iter().zip(contents) {
            match content {
                Some(content) => all.push(content),
                None if self.base.is_read_only() => return None, // nothing is mended, so nothing was compared
                None => {
                    self.array
                        .mend(drive, *offset..*offset + length as u64, &good)
                        .await
                        .ok()?;
                    all.push(good.clone());
                }
            }
        }
        Some(all)
    }

    async fn report_copies(
        &self,
        copies: &[(usize, Rc<Drive<D>>, u64)],
        contents: &[Buf],
        at: u64,
        bytes: Range<usize>,
        mode: ScrubMode,
        report: &mut ScrubReport,
    ) {
        let parts: Vec<&[u8]> = contents
            .iter()
            .map(|content| &content[bytes.clone()])
            .collect();
        let right = majority(&parts);
        let source = right.unwrap_or(0);
        let volume = at + bytes.start as u64..at + bytes.end as u64;
        for (index, (slot, drive, offset)) in copies.iter().enumerate() {
            if parts[index] == parts[source] {
                continue;
            }
            let member = offset + bytes.start as u64..offset + bytes.end as u64;
            let mut is_repaired = false;
            if mode == ScrubMode::Repair {
                let data = contents[source].slice(bytes.clone());
                is_repaired = self
                    .repair_copy(drive, volume.clone(), member.clone(), data)
                    .await
                    .is_ok();
            }
            let named = right.is_some().then_some(*slot);
            self.note(report, named, member, vec![volume.clone()], is_repaired);
        }
    }

    async fn repair_copy(
        &self,
        drive: &Rc<Drive<D>>,
        sync: Range<u64>,
        member: Range<u64>,
        data: Buf,
    ) -> Result<(), IoError> {
        let _unread = self.copies.unread(sync.clone());
        let mark = self.begin_repair(sync).await?;
        let outcome = self
            .array
            .write_members(vec![(Rc::clone(drive), member, data)], Fua::No)
            .await;
        drop(mark);
        self.array.settle().await?;
        outcome.refusal().map_or(Ok(()), Err)
    }
}

/// What is told about the end of a scrub: only one that got there has a result.
fn announcement_of(report: &ScrubReport) -> Announcement {
    let (mismatch_bytes, skipped_bytes) = (report.mismatch_bytes, report.skipped_bytes);
    if report.is_complete {
        return Announcement::ScrubFinished {
            mismatch_bytes,
            skipped_bytes,
        };
    }
    Announcement::ScrubStopped {
        done_bytes: report.done_bytes,
        total_bytes: report.total_bytes,
        mismatch_bytes,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Block(Block),
    Unknown,
}

/// Compares parity on disk with what the data say, in one unit. `None`: it agrees.
fn judge(
    row: &Row,
    columns: &[BufMut],
    expected: &[(Block, BufMut)],
    bytes: &Range<usize>,
) -> Option<Wrong> {
    let data_count = row.map.data_count();
    let on_disk = |index: usize| &columns[data_count + index][bytes.clone()];
    if expected
        .iter()
        .enumerate()
        .all(|(index, (_, right))| right[bytes.clone()] == *on_disk(index))
    {
        return None;
    }
    let [(_, p), (_, q)] = expected else {
        return Some(Wrong::Unknown);
    };
    let difference = |right: &[u8], found: &[u8]| -> Vec<u8> {
        right.iter().zip(found).map(|(a, b)| a ^ b).collect()
    };
    let p_sum = difference(&p[bytes.clone()], on_disk(0));
    let q_sum = difference(&q[bytes.clone()], on_disk(1));
    match locate(&p_sum, &q_sum, &row.exponents()) {
        Located::Block(block) => Some(Wrong::Block(block)),
        _ => Some(Wrong::Unknown),
    }
}

/// Index of a copy that more than half of the copies agree with.
fn majority(parts: &[&[u8]]) -> Option<usize> {
    (0..parts.len())
        .find(|index| parts.iter().filter(|part| **part == parts[*index]).count() * 2 > parts.len())
}

fn merge(into: &mut Vec<Range<u64>>, more: Vec<Range<u64>>) {
    let mut set = RangeSet::new();
    for range in into.drain(..).chain(more) {
        set.insert(range);
    }
    into.extend(set.iter());
}
