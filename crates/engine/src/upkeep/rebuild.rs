//! Rebuild: members that take a slot are filled, from the rest of the row or from another copy.
//!
//! Invariants:
//! - every row or range is filled under its lock, from members other than the target;
//! - the cursor in memory moves after the write and over no step that is under way, the one on the members after a
//!   flush (W2);
//! - what cannot be had is put on the target's bad-block list, and the rebuild goes on (reliability.md 3, fault 7).

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_parity::Block;

use crate::array::Filling;
use crate::base::Base;
use crate::copies::member_range;
use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::news::Announcement;
use crate::row::Row;
use crate::rows::reconstruct::recover_into;
use crate::state::{Event, Standing};
use crate::threshold::Threshold;
use crate::upkeep::JobKind;
use crate::upkeep::steps::Steps;
use crate::upkeep::{Progress, Upkeep};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};

/// A checkpoint is due when that of before has taken less than this part of the time since: disks whose flushes take a
/// tenth of a second lost a tenth of the rebuild to one checkpoint a second.
const CHECKPOINT_PART: u32 = 32;

/// Time after which a checkpoint is due, however long the last one took: what a crash costs at most.
const CHECKPOINT_PERIOD_MAX: Duration = Duration::from_secs(60);

/// How a pass over the members ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Done,
    /// Another member is to be filled with them.
    Joined,
    Stopped,
}

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Fills everybody who is being filled now, together. `false`: something was in the way, try again later.
    pub(crate) async fn rebuild_pass(&self) -> bool {
        let targets: Vec<Rc<Filling<D>>> = self.array.fillings().clone();
        let component = targets
            .iter()
            .map(|target| self.needed_bytes(target))
            .max()
            .unwrap_or(0);
        let begin = targets
            .iter()
            .map(|target| target.valid_below_bytes.get())
            .min()
            .unwrap_or(0);
        self.begin_job(JobKind::Rebuild, component);
        let lost = RefCell::default();
        let outcome = self.fill_all(&targets, begin..component, &lost).await;
        self.end_job();
        let mut is_done = outcome == Pass::Done;
        if is_done {
            is_done = self.finish_rebuild(&targets).await.is_ok();
        }
        lost.take().announce(&self.base);
        is_done || outcome == Pass::Joined
    }

    /// Step after step, on disks several at once; a checkpoint is made durable beside them, for each flushes all
    /// members.
    async fn fill_all(
        &self,
        targets: &[Rc<Filling<D>>],
        member: Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Pass {
        let component = member.end;
        let limits = self.base.thresholds();
        let period_min = limits.checkpoint_period_min;
        let checkpoint_step = (component / 16).max(limits.checkpoint_bytes_min);
        let (mut at, mut checkpoint, mut ahead) = (member.start, member.start, member);
        let (mut steps, mut saving) = (Steps::new(), Steps::new());
        let mut since = self.base.clock().now();
        let (mut asked, mut saved, mut period) = (since, since, period_min);
        let outcome = loop {
            if at >= component {
                break Pass::Done;
            }
            // A second loss: its spare joins, and both are filled together from where the new one begins.
            self.take_spares();
            if self.array.fillings().len() > targets.len() {
                break Pass::Joined;
            }
            if self.array.is_ended() || !self.any_filling(targets) {
                break Pass::Stopped;
            }
            let end_of = |at| self.step_end(targets, at, component);
            self.begin_steps(&mut steps, &mut ahead, end_of, |range| async move {
                let filled = self.fill(targets, range.clone(), lost).await;
                (range, filled)
            });
            let Some((range, Ok(()))) = saving.during(steps.next()).await else {
                break Pass::Stopped;
            };
            self.advance_cursors(targets, &range);
            assert_eq!(
                at, range.start,
                "steps end in the order in which they began"
            );
            at = range.end;
            let step = range.end - range.start;
            self.book.advance_job(Progress {
                done_bytes: at,
                step_bytes: step,
            });
            match saving.take_done() {
                Some(Err(_)) => break Pass::Stopped,
                Some(Ok(())) => {
                    saved = self.base.clock().now();
                    period = checkpoint_period(saved.since(asked), period_min);
                }
                None => {}
            }
            let is_due = saving.is_empty() && at - checkpoint >= checkpoint_step;
            if is_due && self.base.clock().now().since(saved) >= period {
                asked = self.base.clock().now();
                self.base.cross(Threshold::Checkpoint);
                saving.push(self.save_cursors());
                checkpoint = at;
            }
            let throttle = self.throttle(step, since);
            saving.during(steps.during(throttle)).await;
            since = self.base.clock().now();
        };
        saving.during(steps.rest()).await;
        match saving.next().await {
            Some(Err(_)) => Pass::Stopped,
            _ => outcome,
        }
    }

    fn any_filling(&self, targets: &[Rc<Filling<D>>]) -> bool {
        let state = self.array.state();
        targets.iter().any(|target| {
            matches!(
                state.record(target.drive.id).standing,
                Standing::Rebuilding { .. }
            )
        })
    }

    /// Bytes of the target's slot that hold data.
    fn needed_bytes(&self, target: &Filling<D>) -> u64 {
        let slot = self.array.state().record(target.drive.id).slot;
        slot.map_or(0, |slot| self.base.geometry().used_bytes(usize::from(slot)))
    }

    /// End of the step that begins at member byte `at`: rows for parity, a strip or a step for copies, less in memory.
    /// A member that comes back by bitmap gets its stale regions and nothing of their neighbours, however large the
    /// strips are.
    fn step_end(&self, targets: &[Rc<Filling<D>>], at: u64, component: u64) -> u64 {
        let strip = self.base.geometry().strip_bytes();
        let strip_end = match at.checked_div(strip) {
            Some(number) => (number + 1) * strip,
            None => component,
        };
        let piece_end = (at / self.piece_bytes() + 1) * self.piece_bytes();
        let end = if self.base.has_copies() || self.array.is_in_memory() {
            piece_end.min(strip_end)
        } else {
            self.rows_end(at, self.rows_at_once(component))
        };
        let end = end.min(component);
        if self.base.has_copies() || targets.iter().all(|target| target.stale.is_none()) {
            return end;
        }
        let region_bytes = self.intent.regions().region_bytes();
        let region = region_bytes.max(u64::from(self.array.sector_bytes()));
        end.min((at / region + 1) * region)
    }

    async fn fill(
        &self,
        targets: &[Rc<Filling<D>>],
        member: Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Result<(), IoError> {
        if self.base.has_copies() {
            for target in targets {
                self.fill_copy(target, member.clone(), lost).await?;
            }
            return Ok(());
        }
        let _lock = self.lock_rows(&member).await;
        for (number, _) in self.row_parts(&member) {
            self.intent.destage_row(number).await?;
        }
        if self.fill_rows(targets, &member).await? {
            return Ok(());
        }
        for (number, part) in self.row_parts(&member) {
            self.fill_row(targets, &self.base.row(number), part, lost)
                .await?;
        }
        Ok(())
    }

    /// Fills several rows together, each member asked for one long piece; `false`: nothing was done, for it is not as
    /// simple as that.
    async fn fill_rows(
        &self,
        targets: &[Rc<Filling<D>>],
        member: &Range<u64>,
    ) -> Result<bool, IoError> {
        let Some(rows) = self.whole_rows(member) else {
            return Ok(false);
        };
        let lacks = |target: &&Rc<Filling<D>>| self.lacks(target, member, member);
        let lacking: Vec<&Rc<Filling<D>>> = targets.iter().filter(lacks).collect();
        if lacking.is_empty() {
            return Ok(false);
        }
        let Some(contents) = self.contents_of_rows(&lacking, rows).await else {
            return Ok(false);
        };
        let mut writes = Vec::new();
        for (target, content) in lacking.into_iter().zip(contents) {
            writes.push((Rc::clone(&target.drive), member.clone(), content));
        }
        self.array.write_members(writes, Fua::No).await;
        if self.array.is_frozen() {
            Err(IoError::Failed)
        } else {
            Ok(true)
        }
    }

    /// What targets should hold in several whole rows.
    async fn contents_of_rows(
        &self,
        lacking: &[&Rc<Filling<D>>],
        rows: Range<u64>,
    ) -> Option<Vec<Buf>> {
        let strip = self.base.geometry().strip_bytes();
        let set = self.array.members();
        let mut wanted = Vec::new();
        let mut plans = Vec::new();
        for number in rows {
            let (row, part) = (self.base.row(number), 0..strip);
            let blocks: Vec<Block> = lacking
                .iter()
                .map(|target| self.block_on(&row, target))
                .collect();
            let is_there = |block: &Block| self.array.is_block_readable(&set, &row, *block, &part);
            if blocks.iter().all(is_there) {
                // `replace`: the member that is being replaced is the first source.
                plans.push(None);
                wanted.push((row, blocks.into()));
            } else if blocks.iter().any(is_there) {
                return None;
            } else {
                let plan = self
                    .rows
                    .recover_plan(&set, &row, &blocks, &part, &[])
                    .ok()?;
                wanted.push((row, plan.sources().into()));
                plans.push(Some(plan));
            }
        }
        let read = self.read_rows(&wanted).await?;
        let strip = usize::try_from(strip).expect("a strip fits memory");
        let length = plans.len() * strip;
        let mut made: Vec<BufMut> = lacking
            .iter()
            .map(|_| self.base.pool().take(length))
            .collect();
        for (index, plan) in plans.iter().enumerate() {
            let here = index * strip..(index + 1) * strip;
            let mut targets: Vec<&mut [u8]> = made
                .iter_mut()
                .map(|made| &mut made[here.clone()])
                .collect();
            match plan {
                Some(plan) => recover_into(self.base.pool(), plan, &read.row(index), targets),
                None => {
                    for (target, source) in targets.iter_mut().zip(read.row(index)) {
                        target.copy_from_slice(source);
                    }
                }
            }
        }
        Some(made.into_iter().map(BufMut::freeze).collect())
    }

    /// The block of a row that lies on a member which is being filled.
    fn block_on(&self, row: &Row, target: &Filling<D>) -> Block {
        let slot = self.array.state().record(target.drive.id).slot;
        let slot = usize::from(slot.expect("a rebuilding member has a slot"));
        row.blocks()
            .find(|block| row.slot(*block) == slot)
            .expect("every slot holds a block")
    }

    /// Whether the target still lacks this member range, given in the sync space as well.
    fn lacks(&self, target: &Filling<D>, member: &Range<u64>, sync: &Range<u64>) -> bool {
        let is_rebuilding = matches!(
            self.array.state().record(target.drive.id).standing,
            Standing::Rebuilding { .. }
        );
        is_rebuilding && !target.is_valid(member, sync)
    }

    /// Fills a part of one row, whose lock the caller holds.
    async fn fill_row(
        &self,
        targets: &[Rc<Filling<D>>],
        row: &Row,
        part: Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Result<(), IoError> {
        let member = row.member_range(&part);
        let mut wanted: Vec<(Block, Rc<Filling<D>>)> = Vec::new();
        for target in targets
            .iter()
            .filter(|target| self.lacks(target, &member, &member))
        {
            wanted.push((self.block_on(row, target), Rc::clone(target)));
        }
        if !wanted.is_empty() && !self.fill_part(row, &wanted, &part, lost).await? {
            // Only some sectors may be lost: everything else is rebuilt, sector by sector.
            let sector = u64::from(self.array.sector_bytes());
            let mut at = part.start;
            while at < part.end {
                self.fill_sector(row, &wanted, at..at + sector, lost)
                    .await?;
                at += sector;
            }
        }
        Ok(())
    }

    /// Fills a part as a whole; `false` when some of it cannot be had.
    async fn fill_part(
        &self,
        row: &Row,
        wanted: &[(Block, Rc<Filling<D>>)],
        part: &Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Result<bool, IoError> {
        let contents = self.row_contents(row, wanted, part).await?;
        if contents.iter().any(Option::is_none) {
            return Ok(false);
        }
        for ((_, target), content) in wanted.iter().zip(contents) {
            self.put(target, &row.member_range(part), content, lost)
                .await?;
        }
        Ok(true)
    }

    async fn fill_sector(
        &self,
        row: &Row,
        wanted: &[(Block, Rc<Filling<D>>)],
        sector: Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Result<(), IoError> {
        let contents = self.row_contents(row, wanted, &sector).await?;
        for ((_, target), content) in wanted.iter().zip(contents) {
            self.put(target, &row.member_range(&sector), content, lost)
                .await?;
        }
        Ok(())
    }

    /// What the targets should hold; `None` where it is lost.
    async fn row_contents(
        &self,
        row: &Row,
        wanted: &[(Block, Rc<Filling<D>>)],
        part: &Range<u64>,
    ) -> Result<Vec<Option<Buf>>, IoError> {
        let mut contents: Vec<Option<Buf>> = vec![None; wanted.len()];
        let set = self.array.members();
        // `replace`: the member that is being replaced is the first source.
        for (content, (block, _)) in contents.iter_mut().zip(wanted) {
            if let Ok(buf) = self.intent.read_block(&set, row, *block, part).await {
                *content = Some(buf.freeze());
            }
        }
        let open: Vec<usize> = (0..wanted.len())
            .filter(|index| contents[*index].is_none())
            .collect();
        let blocks: Vec<Block> = open.iter().map(|index| wanted[*index].0).collect();
        if blocks.is_empty() {
            return Ok(contents);
        }
        match self
            .rows
            .recover_blocks(row, &blocks, part, blocks.clone())
            .await
        {
            Ok(recovered) => {
                for (index, buf) in open.into_iter().zip(recovered) {
                    contents[index] = Some(buf);
                }
                return Ok(contents);
            }
            Err(IoError::Failed) => return Err(IoError::Failed),
            Err(_) => {}
        }
        // Together they are lost; one of them alone may not be, and the loss may be only a few sectors.
        for index in open {
            contents[index] = self
                .rows
                .recover_blocks(row, &[wanted[index].0], part, vec![wanted[index].0])
                .await
                .ok()
                .and_then(|mut recovered| recovered.pop());
        }
        if self.array.is_frozen() {
            Err(IoError::Failed)
        } else {
            Ok(contents)
        }
    }

    async fn fill_copy(
        &self,
        target: &Rc<Filling<D>>,
        member: Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Result<(), IoError> {
        let slot = self.array.state().record(target.drive.id).slot;
        let Some(slot) = slot else { return Ok(()) };
        let mut at = member.start;
        while at < member.end {
            let Some((offset_bytes, room)) =
                self.base.geometry().volume_offset_of(usize::from(slot), at)
            else {
                // Nothing of the volume lies here up to the end of the strip.
                let unit = self.base.geometry().strip_bytes().max(1);
                at = ((at / unit + 1) * unit).min(member.end);
                continue;
            };
            let length = room.min(member.end - at);
            let length = self.within_region(target, offset_bytes, length);
            let part = at..at + length;
            let sync = offset_bytes..offset_bytes + length;
            let _lock = self.base.locks().lock(sync.clone()).await;
            if self.lacks(target, &part, &sync) {
                let length_bytes = usize::try_from(length).expect("a step fits memory");
                let content = self
                    .copy_content(target, offset_bytes, length_bytes)
                    .await?;
                if content.is_some() {
                    self.put(target, &part, content, lost).await?;
                } else {
                    self.fill_copy_by_sector(target, offset_bytes, &part, lost)
                        .await?;
                }
            }
            at = part.end;
        }
        Ok(())
    }

    /// A member that comes back by bitmap gets its stale regions and nothing of their neighbours.
    fn within_region(&self, target: &Filling<D>, sync_bytes: u64, length_bytes: u64) -> u64 {
        if target.stale.is_none() {
            return length_bytes;
        }
        let region_bytes = self.intent.regions().region_bytes();
        let unit = region_bytes.max(u64::from(self.array.sector_bytes()));
        length_bytes.min(unit - sync_bytes % unit)
    }

    /// Only some sectors may be lost: everything else is copied, sector by sector.
    async fn fill_copy_by_sector(
        &self,
        target: &Filling<D>,
        offset_bytes: u64,
        member: &Range<u64>,
        lost: &RefCell<RangesLost>,
    ) -> Result<(), IoError> {
        let sector = self.array.sector_bytes() as usize;
        for start in (0..member.end - member.start).step_by(sector) {
            let part = member.start + start..member.start + start + sector as u64;
            let content = self
                .copy_content(target, offset_bytes + start, sector)
                .await?;
            self.put(target, &part, content, lost).await?;
        }
        Ok(())
    }

    /// Any copy of a range but the target's own; `None` when none can be read.
    async fn copy_content(
        &self,
        target: &Filling<D>,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Option<Buf>, IoError> {
        let sync = offset_bytes..offset_bytes + length_bytes as u64;
        if !self.intent.is_proven(&sync) {
            // W6: in doubt, all copies become equal, the target's as well.
            return match self.copies.equalise(offset_bytes, length_bytes).await {
                Ok(data) => Ok(Some(data)),
                Err(IoError::Medium) => Ok(None),
                Err(error) => Err(error),
            };
        }
        let set = self.array.members();
        for place in self.base.geometry().copies_of(offset_bytes).iter() {
            let range = member_range(&place, length_bytes);
            let Some(drive) = self
                .array
                .readable_drive(&set, place.slot, &range, &sync)
                .cloned()
            else {
                continue;
            };
            if drive.id == target.drive.id {
                continue;
            }
            if let Ok(buf) = drive
                .read(
                    self.base.pool(),
                    self.base.clock(),
                    range.start,
                    length_bytes,
                )
                .await
            {
                return Ok(Some(buf.freeze()));
            }
        }
        if self.array.is_frozen() {
            Err(IoError::Failed)
        } else {
            Ok(None)
        }
    }

    /// Writes a recovered part to the target, or records that it is lost.
    async fn put(
        &self,
        target: &Filling<D>,
        member: &Range<u64>,
        content: Option<Buf>,
        lost: &RefCell<RangesLost>,
    ) -> Result<(), IoError> {
        match content {
            Some(data) => {
                let writes = vec![(Rc::clone(&target.drive), member.clone(), data)];
                self.array.write_members(writes, Fua::No).await;
            }
            None if self.base.has(Mutant::LostRangeNotRecorded) => {}
            None => {
                lost.borrow_mut().add(&target.drive, member);
                let _ = self.array.record_bad(&target.drive, member.clone()); // one that is filled is not needed
                self.array.settle().await?;
            }
        }
        if self.array.is_frozen() {
            Err(IoError::Failed)
        } else {
            Ok(())
        }
    }

    fn advance_cursors(&self, targets: &[Rc<Filling<D>>], member: &Range<u64>) {
        for target in targets {
            if target.valid_below_bytes.get() >= member.start {
                target
                    .valid_below_bytes
                    .set(target.valid_below_bytes.get().max(member.end));
            }
        }
    }

    /// W2: flushes, then records how far each member is filled.
    pub(crate) async fn save_cursors(&self) -> Result<(), IoError> {
        let targets: Vec<Rc<Filling<D>>> = self.array.fillings().clone();
        if targets.is_empty() {
            return Ok(());
        }
        let reached = || -> Vec<u64> {
            let cursors = targets.iter();
            cursors
                .map(|target| target.valid_below_bytes.get())
                .collect()
        };
        assert!(
            targets.iter().all(|target| target.stale.is_none()
                || target.valid_below_bytes.get() <= self.needed_bytes(target)),
            "a cursor stays inside of its member"
        );
        let mut covered = reached();
        if !self.base.has(Mutant::CheckpointAheadOfData) {
            self.intent.flush_members().await?;
        }
        if self.base.has(Mutant::CheckpointTakenAfterFlush) {
            covered = reached();
        }
        for (target, valid_below_bytes) in targets.iter().zip(covered) {
            let ahead = if self.base.has(Mutant::CheckpointAheadOfData) {
                1 << 20
            } else {
                0
            };
            let valid_below_bytes = (valid_below_bytes + ahead).min(self.needed_bytes(target));
            self.array.apply(&Event::RebuildCheckpoint {
                member: target.drive.id,
                valid_below_bytes,
            });
        }
        self.array.commit_all().await
    }

    async fn finish_rebuild(&self, targets: &[Rc<Filling<D>>]) -> Result<(), IoError> {
        self.intent.flush_members().await?;
        for target in targets {
            let member = target.drive.id;
            let slot = self.array.state().record(member).slot;
            let is_rebuilding = matches!(
                self.array.state().record(member).standing,
                Standing::Rebuilding { .. }
            );
            let is_complete = target.valid_below_bytes.get() >= self.needed_bytes(target);
            if let (true, true, Some(slot)) = (is_rebuilding, is_complete, slot) {
                assert!(
                    self.array
                        .fillings()
                        .iter()
                        .any(|filling| filling.drive.id == member),
                    "whoever becomes complete was being filled"
                );
                self.array.apply(&Event::RebuildDone { member });
                self.array.commit_all().await?;
                self.base.announce(Announcement::RebuildFinished {
                    member: self.array.member_name(member),
                    slot,
                });
            }
        }
        Ok(())
    }
}

/// Time from a checkpoint that took so long to the next one.
fn checkpoint_period(took: Duration, least: Duration) -> Duration {
    let period = took.saturating_mul(CHECKPOINT_PART);
    period.clamp(least, CHECKPOINT_PERIOD_MAX)
}

/// What a rebuild could not recover, told once at its end.
#[derive(Default)]
struct RangesLost {
    by_member: Vec<(String, u64)>,
}

impl RangesLost {
    fn add<D: Device>(&mut self, drive: &Drive<D>, member: &Range<u64>) {
        let bytes = member.end - member.start;
        match self
            .by_member
            .iter_mut()
            .find(|(name, _)| *name == drive.name)
        {
            Some((_, lost)) => *lost += bytes,
            None => self.by_member.push((drive.name.clone(), bytes)),
        }
    }

    fn announce<C>(self, base: &Base<C>) {
        for (member, lost_bytes) in self.by_member {
            base.announce(Announcement::RangesLost { member, lost_bytes });
        }
    }
}
