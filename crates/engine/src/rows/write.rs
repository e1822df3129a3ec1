//! Writing parts of rows: reads, parity, then data and parity together. The bitmap was marked before (W1).

use std::ops::{Deref, Range};
use std::rc::Rc;

use plexum_parity::Block;
use smallvec::SmallVec;

use super::collect::Run;
use super::plan::{DataView, ParityView, WritePlan, plan_write};
use crate::array::MemberSet;
use crate::array::io::MemberWrite;
use crate::intent::log::back::hold_all;
use crate::intent::log::{LogPart, StripeLog, split};
use crate::intent::ppl::{Ppl, PplPart};
use crate::mutant::Mutant;
use crate::row::{Exponents, PerBlock, Row};
use crate::rows::Rows;
use crate::stage::{Stage, Tag};
use crate::state::MemberId;
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::{Few, join_all};

/// A part of a row in which the same data blocks are touched from end to end.
struct Segment {
    /// Bytes of the strip.
    part: Range<u64>,
    /// New content by data index.
    new: PerBlock<Option<Buf>>,
}

/// What a segment wants written.
struct Prepared {
    part: Range<u64>,
    /// First to last data strip that is written; with a partial parity log none between them is left out.
    touched: Range<usize>,
    blocks: Few<(Block, Buf)>,
    /// New data that no member takes: only parity keeps them.
    homeless: Vec<(Block, Buf)>,
    /// After the write, parity agrees with the data there.
    makes_right: bool,
    /// Data are written without their parity: from then on they do not agree.
    makes_wrong: bool,
}

impl Segment {
    /// Indices of the data blocks that are written, ascending.
    fn touched(&self) -> impl DoubleEndedIterator<Item = usize> + '_ {
        (0..self.new.len()).filter(|index| self.new[*index].is_some())
    }

    fn span(&self) -> Range<usize> {
        let first = self.touched().next().unwrap_or(0);
        first..self.touched().next_back().map_or(first, |last| last + 1)
    }
}

impl Prepared {
    /// All new blocks, those without a member too: what a partial parity log reckons with.
    fn whole_part(&self, row: &Row) -> LogPart {
        let mut part = self.log_part(row);
        let homeless = self.homeless.iter();
        part.blocks
            .extend(homeless.map(|(block, data)| (row.slot(*block), data.clone())));
        part
    }

    fn log_part(&self, row: &Row) -> LogPart {
        let by_slot = |(block, data): &(Block, Buf)| (row.slot(*block), data.clone());
        LogPart {
            row: row.number,
            part: self.part.clone(),
            blocks: self.blocks.iter().map(by_slot).collect(),
        }
    }
}

impl<D: Device, C: Clock> Rows<D, C> {
    /// Writes these runs, ascending and without an overlap, within a row. The caller has the row's lock.
    pub(super) async fn write_runs(
        &self,
        row: &Row,
        runs: &[Run],
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        if !self.intent.has_ppl() {
            return self.write_locked(row, runs, fua, tag).await;
        }
        for run in runs {
            for alone in self.written_alone(row, run) {
                let place =
                    |at: u64| usize::try_from(at - run.at_bytes).expect("part of a request");
                let data = run.data.slice(place(alone.start)..place(alone.end));
                let at_bytes = alone.start;
                self.write_locked(row, &[Run { at_bytes, data }], fua, tag)
                    .await?;
            }
        }
        Ok(())
    }

    /// Parts of a run that are carried out one after the other. With a partial parity log a strip that cannot be read
    /// is written alone: then its parity is its only place, and each sector of it is old or new after a crash.
    fn written_alone(&self, row: &Row, run: &Run) -> Few<Range<u64>> {
        let (at_bytes, end) = (run.at_bytes, run.end_bytes());
        let set = self.array.members();
        let mut parts: Few<Range<u64>> = Few::new();
        let mut was_alone = true;
        let mut at = at_bytes;
        while at < end {
            let (index, start) = (at / row.strip_bytes, at % row.strip_bytes);
            let length = (row.strip_bytes - start).min(end - at);
            let block = Block::Data(usize::try_from(index).expect("a row has few strips"));
            let is_alone =
                !self
                    .array
                    .is_block_readable(&set, row, block, &(start..start + length));
            match parts.last_mut() {
                Some(last) if !is_alone && !was_alone => last.end = at + length,
                _ => parts.push(at..at + length),
            }
            (was_alone, at) = (is_alone, at + length);
        }
        parts
    }

    /// Writes within a row. The caller has the row's lock.
    async fn write_locked(
        &self,
        row: &Row,
        runs: &[Run],
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        debug_assert!(
            runs.windows(2)
                .all(|pair| pair[0].end_bytes() <= pair[1].at_bytes),
            "runs are ascending, and apart"
        );
        tag.enter(Stage::Read);
        let segments = cut(row, runs);
        let mut prepared: Few<Prepared> = Few::new();
        let results: Few<Result<Prepared, IoError>> = match &segments[..] {
            [segment] => std::iter::once(self.prepare(row, segment).await).collect(),
            _ => {
                let parts = segments.iter().map(|segment| self.prepare(row, segment));
                join_all(parts).await.into()
            }
        };
        for (segment, result) in segments.iter().zip(results) {
            match result {
                Ok(ready) => prepared.push(ready),
                Err(IoError::Medium) => self.prepare_by_sector(row, segment, &mut prepared).await?,
                Err(error) => return Err(error),
            }
        }
        self.put_prepared(row, &prepared, fua, tag).await
    }

    async fn put_prepared(
        &self,
        row: &Row,
        prepared: &[Prepared],
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        debug_assert!(
            !prepared
                .iter()
                .any(|segment| segment.makes_right && segment.makes_wrong),
            "parity agrees afterwards or does not"
        );
        for segment in prepared.iter().filter(|segment| segment.makes_wrong) {
            // Nothing may be recovered from this part until it is written whole (W8).
            self.intent.unprove(&row.member_range(&segment.part));
        }
        let is_whole = |segment: &Prepared| segment.blocks.len() == row.blocks().count();
        let skips_log = self.base.has(Mutant::FullRowNotLogged) && prepared.iter().all(is_whole);
        let ppl = self.intent.ppl();
        match (self.intent.stripe_log().filter(|_| !skips_log), ppl) {
            (Some(log), _) => self.write_logged(&log, row, prepared, fua, tag).await?,
            (None, Some(ppl)) => self.write_with_ppl(&ppl, row, prepared, tag).await?,
            (None, None) => {
                tag.enter(Stage::Write);
                let members = self.array.members_to_write();
                let mut writes = Few::new();
                for segment in prepared {
                    let blocks = segment.blocks.iter();
                    let by_slot = blocks.map(|(block, data)| (row.slot(*block), data));
                    self.add_writes(row, &segment.part, by_slot, &members, &mut writes);
                }
                self.write_in_place(writes, fua).await?;
            }
        }
        // Blocks that were not written may differ between a member and its replacement: that is left to the resync.
        let set = self.array.members();
        let has_replacement = set.slots.iter().any(|view| view.replacement().is_some());
        for segment in prepared {
            self.check_kept(row, segment)?;
            if segment.makes_right && !has_replacement {
                let part = row.member_range(&segment.part);
                self.intent.prove(&part);
                self.intent.settle_ppl_part(row, &segment.part).await?;
            }
        }
        Ok(())
    }

    /// L4: the records are durable, then the blocks go in place. The row's lock is held.
    async fn write_logged(
        &self,
        log: &StripeLog<D>,
        row: &Row,
        prepared: &[Prepared],
        fua: Fua,
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        if prepared.iter().any(|segment| segment.makes_wrong) {
            // Doubt that is new has to be durable before it is true: a replay would not end it.
            self.intent
                .write_log_headers(log, &self.array.slotted_drives())
                .await?;
        }
        let parts = prepared
            .iter()
            .map(|segment| segment.log_part(row))
            .collect();
        for submission in self.intent.log_submissions(log, parts) {
            let parts = submission.clone();
            if self.base.has(Mutant::InPlaceBeforeRecord) {
                let writes = self.writes_of(row, &parts, &self.array.members());
                self.write_in_place(writes, fua).await?;
            }
            let submission = if self.base.has(Mutant::RecordWithoutParity) {
                without_parity(row, submission)
            } else {
                submission
            };
            tag.enter(Stage::Log);
            let logged = self.intent.log_append(log, submission).await?;
            if log.is_write_back() {
                self.intent.keep_logged(log, row, &parts, &logged);
                continue;
            }
            tag.enter(Stage::Write);
            let writes = self.writes_of(row, &parts, &logged.members);
            let written: Vec<MemberId> = writes.iter().map(|(drive, _, _)| drive.id).collect();
            let result = self.write_in_place(writes, fua).await;
            // W3 before the record may be forgotten: a member that missed the block is durably out by then.
            self.array.settle().await?;
            if result.is_err() && !self.base.has(Mutant::RefusedRecordStays) {
                // Some members have the blocks, others had no space: later writes to this row build upon what is in
                // place, and a replay of this record under theirs would put parity and data of two moments together.
                log.refuse_to_follow();
            }
            self.intent.log_complete(log, logged.sequences, &written);
            result?;
        }
        Ok(())
    }

    /// The partial parity is durable, then the blocks go in place, durably: the parity member's next unit may follow.
    async fn write_with_ppl(
        &self,
        ppl: &Ppl,
        row: &Row,
        prepared: &[Prepared],
        tag: &Tag<'_>,
    ) -> Result<(), IoError> {
        let slot = row.slot(Block::P);
        let wrong = prepared.iter().filter(|segment| segment.makes_wrong);
        let wrong = wrong.flat_map(|segment| split(segment.log_part(row), ppl.unit_bytes));
        ppl.note_doubt(row, wrong.map(|piece| piece.part));
        self.intent.spread_ppl_doubt(ppl).await;
        let pieces = prepared.iter().flat_map(|segment| {
            let pieces = split(segment.whole_part(row), ppl.unit_bytes);
            pieces
                .into_iter()
                .map(|piece| (piece, segment.touched.clone()))
        });
        let mut pieces = pieces.peekable();
        while pieces.peek().is_some() {
            let (mut unit, mut parts, mut room) = (Vec::new(), Vec::new(), ppl.unit_bytes);
            while let Some((piece, touched)) = pieces.next_if(|(piece, _)| {
                piece.part.end - piece.part.start <= room && unit.len() < ppl.parts_max(slot)
            }) {
                room -= piece.part.end - piece.part.start;
                parts.extend(self.ppl_part(row, &piece, &touched));
                unit.push(piece);
            }
            tag.enter(Stage::Log);
            let lane = ppl.lane(slot).lock().await;
            self.intent.write_ppl_unit(ppl, row, &parts).await?;
            tag.enter(Stage::Write);
            let writes = self.writes_of(row, &unit, &self.array.members_to_write());
            let result = self.write_in_place(writes, Fua::Yes).await;
            if result.is_err() {
                let parts = unit.iter().map(|piece| piece.part.clone());
                ppl.note_doubt(row, parts);
            }
            // W3 before another unit takes this one's place: until it is durable that a member missed its block, only
            // this unit makes the row right when the member comes back (W4).
            let settled = self.array.settle().await;
            drop(lane);
            self.intent.spread_ppl_doubt(ppl).await;
            settled?;
            result?;
        }
        Ok(())
    }

    /// What the log has to keep of a piece; `None` when nobody holds its parity. A strip that is written without a
    /// member cannot be protected; its entry says after a crash that these rows are in doubt.
    fn ppl_part(&self, row: &Row, piece: &LogPart, touched: &Range<usize>) -> Option<PplPart> {
        let block = |slot: usize| piece.blocks.iter().find(|(own, _)| *own == slot);
        let mut data = Vec::new();
        for index in touched.clone() {
            data.extend(block(row.slot(Block::Data(index))).map(|(_, data)| data));
        }
        let (_, parity) = block(row.slot(Block::P))?;
        let is_whole = touched.len() == row.map.data_count();
        let partial_parity = (!is_whole).then(|| {
            let mut rest = self.base.pool().copy_of(parity);
            for new in data {
                plexum_parity::xor_into(&mut rest, new);
            }
            rest
        });
        Some(PplPart {
            part: piece.part.clone(),
            first: touched.start,
            count: touched.len(),
            partial_parity,
        })
    }

    /// Who gets what, by the members of one moment.
    fn writes_of(
        &self,
        row: &Row,
        parts: &[LogPart],
        members: &MemberSet<D>,
    ) -> Few<MemberWrite<D>> {
        let mut writes = Few::new();
        for part in parts {
            let blocks = part.blocks.iter().map(|(slot, data)| (*slot, data));
            self.add_writes(row, &part.part, blocks, members, &mut writes);
        }
        writes
    }

    fn add_writes<'a>(
        &self,
        row: &Row,
        part: &Range<u64>,
        blocks: impl Iterator<Item = (usize, &'a Buf)>,
        members: &MemberSet<D>,
        writes: &mut Few<MemberWrite<D>>,
    ) {
        for (slot, data) in blocks {
            for drive in self.array.write_targets(members, slot) {
                writes.push((Rc::clone(drive), row.member_range(part), data.clone()));
            }
        }
    }

    /// Different members may have lost different sectors of a segment: each sector is planned by itself.
    async fn prepare_by_sector(
        &self,
        row: &Row,
        segment: &Segment,
        prepared: &mut Few<Prepared>,
    ) -> Result<(), IoError> {
        let sector = u64::from(self.array.sector_bytes());
        if segment.part.end - segment.part.start <= sector {
            return Err(IoError::Medium);
        }
        let mut at = segment.part.start;
        while at < segment.part.end {
            let from = usize::try_from(at - segment.part.start).expect("inside the part");
            let cut = |new: &Option<Buf>| {
                new.as_ref()
                    .map(|new| new.slice(from..from + self.array.sector_bytes() as usize))
            };
            let piece = Segment {
                part: at..at + sector,
                new: segment.new.iter().map(cut).collect(),
            };
            prepared.push(self.prepare(row, &piece).await?);
            at += sector;
        }
        Ok(())
    }

    async fn prepare(&self, row: &Row, segment: &Segment) -> Result<Prepared, IoError> {
        let mut excluded: Vec<Block> = Vec::new();
        loop {
            if self.array.is_frozen() {
                return Err(IoError::Failed);
            }
            let set = self.array.members();
            let (data, parity) = self.views(&set, row, segment, &excluded);
            let sync = row.member_range(&segment.part);
            let is_proven = self.is_trusted(&sync) || self.base.has(Mutant::ModifyUnprovenParity);
            let plan = plan_write(&data, &parity, is_proven).map_err(|_| IoError::Medium)?;
            let parities = writable_parities(row, &parity);
            let computed = match plan {
                WritePlan::DataOnly | WritePlan::Blind => Some(Few::new()),
                WritePlan::Full => Some(self.parity_of::<Buf>(row, segment, &[], &parities)),
                WritePlan::Modify => {
                    self.modify(&set, row, segment, &parities, &mut excluded)
                        .await
                }
                WritePlan::Reconstruct => {
                    self.reconstruct(&set, row, segment, &parities, &mut excluded)
                        .await
                }
                WritePlan::Decode => {
                    self.decode(&set, row, segment, &parities, &mut excluded)
                        .await?
                }
            };
            let Some(mut blocks) = computed else { continue }; // `excluded` grew: bounded by the number of blocks
            if self.base.has(Mutant::DegradedWriteSkipsParity)
                && data.iter().any(|view| !view.is_writable)
            {
                blocks.clear();
            }
            let mut homeless = Vec::new();
            for (index, new) in segment.new.iter().enumerate() {
                let Some(new) = new.as_ref() else { continue };
                let block = (Block::Data(index), new.clone());
                if data[index].is_writable {
                    blocks.push(block);
                } else {
                    homeless.push(block);
                }
            }
            // What was modified was right before; the deliberate bug takes that for granted.
            let makes_right = match plan {
                WritePlan::Full | WritePlan::Reconstruct | WritePlan::Decode => true,
                WritePlan::Modify => self.base.has(Mutant::ModifyUnprovenParity),
                WritePlan::DataOnly | WritePlan::Blind => false,
            };
            return Ok(Prepared {
                part: segment.part.clone(),
                touched: segment.span(),
                blocks,
                homeless,
                makes_right,
                makes_wrong: plan == WritePlan::Blind,
            });
        }
    }

    fn views(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        segment: &Segment,
        excluded: &[Block],
    ) -> (PerBlock<DataView>, Few<ParityView>) {
        let is_readable = |block| {
            !excluded.contains(&block)
                && self.array.is_block_readable(set, row, block, &segment.part)
        };
        let is_writable = |block| set.slots[row.slot(block)].is_writable();
        let member = row.member_range(&segment.part);
        let has_memory = self.intent.answers_from_log();
        let is_in_memory = |block| {
            has_memory
                && hold_all(
                    &member,
                    &self.intent.logged_blocks(row.slot(block), &member),
                )
        };
        let data = segment.new.iter().enumerate().map(|(index, new)| {
            let block = Block::Data(index);
            DataView {
                is_touched: new.is_some(),
                is_readable: is_readable(block),
                is_writable: is_writable(block),
                is_in_memory: is_in_memory(block),
            }
        });
        let parity = row.parities().iter().map(|parity| ParityView {
            is_readable: is_readable(*parity),
            is_writable: is_writable(*parity),
            is_in_memory: is_in_memory(*parity),
        });
        (data.collect(), parity.collect())
    }

    /// Parity from the whole row: `others` are the untouched blocks in ascending order.
    fn parity_of<BufOf>(
        &self,
        row: &Row,
        segment: &Segment,
        others: &[BufOf],
        parities: &[Block],
    ) -> Few<(Block, Buf)>
    where
        BufOf: Deref<Target = [u8]>,
    {
        let mut others = others.iter();
        let columns: PerBlock<&[u8]> = segment
            .new
            .iter()
            .map(|new| match new {
                Some(new) => &**new,
                None => &**others.next().expect("every untouched block was read"),
            })
            .collect();
        let length = columns[0].len();
        let exponents = match row.map.q {
            Some(_) => self.base.q_exponents(row),
            None => Exponents::new(),
        };
        let mut computed = Few::new();
        match parities {
            [Block::P] => {
                let mut p = self.base.pool().take(length);
                plexum_parity::gen_p(&columns, &mut p);
                computed.push((Block::P, p.freeze()));
            }
            [Block::Q] => {
                let mut q = self.base.pool().take(length);
                plexum_parity::gen_q(&columns, &exponents, &mut q);
                computed.push((Block::Q, q.freeze()));
            }
            [] => {}
            _ => {
                let (mut p, mut q) = (self.base.pool().take(length), self.base.pool().take(length));
                plexum_parity::gen_pq(&columns, &exponents, &mut p, &mut q);
                computed.push((Block::P, p.freeze()));
                computed.push((Block::Q, q.freeze()));
            }
        }
        computed
    }

    async fn reconstruct(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        segment: &Segment,
        parities: &[Block],
        excluded: &mut Vec<Block>,
    ) -> Option<Few<(Block, Buf)>> {
        let untouched = untouched(segment);
        let others = self
            .read_blocks(set, row, &untouched, &segment.part, excluded)
            .await?;
        Some(self.parity_of(row, segment, &others, parities))
    }

    /// Reads the untouched blocks that can be read and recovers only the others: parity can stand in for few.
    async fn decode(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        segment: &Segment,
        parities: &[Block],
        excluded: &mut Vec<Block>,
    ) -> Result<Option<Few<(Block, Buf)>>, IoError> {
        let is_readable = |block: &Block| {
            !excluded.contains(block)
                && self
                    .array
                    .is_block_readable(set, row, *block, &segment.part)
        };
        let (present, lost): (Vec<Block>, Vec<Block>) =
            untouched(segment).into_iter().partition(is_readable);
        let read = self
            .read_blocks(set, row, &present, &segment.part, excluded)
            .await;
        let Some(read) = read else { return Ok(None) };
        let recovered = self
            .recover_blocks(row, &lost, &segment.part, excluded.clone())
            .await?;
        let (mut read, mut recovered) = (read.into_iter(), recovered.into_iter());
        let others = untouched(segment).into_iter().map(|block| {
            let found = if lost.contains(&block) {
                recovered.next()
            } else {
                read.next().map(BufMut::freeze)
            };
            found.expect("every untouched block was read or recovered")
        });
        let others: Vec<Buf> = others.collect();
        Ok(Some(self.parity_of(row, segment, &others[..], parities)))
    }

    async fn modify(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        segment: &Segment,
        parities: &[Block],
        excluded: &mut Vec<Block>,
    ) -> Option<Few<(Block, Buf)>> {
        let mut wanted: PerBlock<Block> = segment.touched().map(Block::Data).collect();
        let touched_count = wanted.len();
        wanted.extend(parities.iter().copied());
        let mut read = self
            .read_blocks(set, row, &wanted, &segment.part, excluded)
            .await?;
        let (old_data, old_parities) = read.split_at_mut(touched_count);
        for (index, old) in segment.touched().zip(old_data) {
            let new = segment.new[index]
                .as_ref()
                .expect("touched blocks have new content");
            let exponent = row.map.exponent(index);
            match (parities, &mut old_parities[..]) {
                ([Block::P], [p]) => plexum_parity::update_p(old, new, p),
                ([Block::Q], [q]) => {
                    let mut difference = self.base.pool().copy_of(old);
                    plexum_parity::xor_into(&mut difference, new);
                    plexum_parity::mul_add(
                        plexum_parity::gf::power(usize::from(exponent)),
                        &difference,
                        q,
                    );
                }
                (_, [p, q]) => plexum_parity::update_pq(old, new, exponent, p, q),
                _ => unreachable!("one or two parities"),
            }
        }
        let new_parities = read.drain(touched_count..).map(BufMut::freeze);
        Some(parities.iter().copied().zip(new_parities).collect())
    }

    async fn write_in_place(&self, writes: Few<MemberWrite<D>>, fua: Fua) -> Result<(), IoError> {
        let outcome = self.array.write_members(writes, fua).await;
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        if let Some(error) = outcome.refusal() {
            // Some members took it, others had no space: there the row is in doubt until a resync mends it. Not
            // elsewhere: a bad block of the full member comes from the rest of the row.
            if !self.base.has(Mutant::RefusedWriteForgotten) {
                outcome
                    .refused
                    .iter()
                    .for_each(|refused| self.intent.unprove(&refused));
            }
            return Err(error);
        }
        Ok(())
    }

    /// After bad blocks were recorded: are all data of this part still somewhere? Members may have lost different
    /// sectors of it.
    fn check_kept(&self, row: &Row, segment: &Prepared) -> Result<(), IoError> {
        if self.is_kept(row, segment, &segment.part) {
            return Ok(());
        }
        let sector = u64::from(self.array.sector_bytes());
        let mut sectors = segment
            .part
            .clone()
            .step_by(self.array.sector_bytes() as usize);
        if sectors.all(|at| self.is_kept(row, segment, &(at..at + sector))) {
            Ok(())
        } else {
            Err(IoError::Medium)
        }
    }

    fn is_kept(&self, row: &Row, segment: &Prepared, part: &Range<u64>) -> bool {
        let set = self.array.members();
        let lost = row
            .blocks()
            .filter(|block| !self.array.is_block_readable(&set, row, *block, part))
            .count();
        let blocks = segment.blocks.iter().chain(&segment.homeless);
        let mut data = blocks.filter(|(block, _)| matches!(block, Block::Data(_)));
        let has_lost_data = data.any(|(block, _)| {
            let view = &set.slots[row.slot(*block)];
            !view
                .writable()
                .any(|drive| !drive.is_bad(&row.member_range(part)))
        });
        !has_lost_data || lost <= row.parities().len()
    }
}

/// The deliberate bug of `Mutant::RecordWithoutParity`.
fn without_parity(row: &Row, mut parts: Vec<LogPart>) -> Vec<LogPart> {
    for part in &mut parts {
        let is_parity = |slot: usize| row.parities().iter().any(|block| row.slot(*block) == slot);
        part.blocks.retain(|(slot, _)| !is_parity(*slot));
    }
    parts.retain(|part| !part.blocks.is_empty());
    parts
}

fn untouched(segment: &Segment) -> PerBlock<Block> {
    (0..segment.new.len())
        .filter(|index| segment.new[*index].is_none())
        .map(Block::Data)
        .collect()
}

fn writable_parities(row: &Row, views: &[ParityView]) -> Few<Block> {
    row.parities()
        .iter()
        .zip(views)
        .filter(|(_, view)| view.is_writable)
        .map(|(parity, _)| *parity)
        .collect()
}

/// Cuts runs, ascending and without an overlap, into parts of the strip in which the same blocks are touched.
fn cut(row: &Row, runs: &[Run]) -> Few<Segment> {
    let strip = row.strip_bytes;
    let mut borders: SmallVec<[u64; 8]> = smallvec::smallvec![0, strip];
    for run in runs {
        let tail = run.end_bytes() % strip;
        borders.push(run.at_bytes % strip);
        borders.push(if tail == 0 { strip } else { tail });
    }
    borders.sort_unstable();
    let mut segments = Few::new();
    for pair in borders.windows(2) {
        let part = pair[0]..pair[1];
        if part.is_empty() {
            continue;
        }
        let new: PerBlock<Option<Buf>> = (0..row.map.data_count() as u64)
            .map(|index| {
                let (from, to) = (index * strip + part.start, index * strip + part.end);
                let place = runs.partition_point(|run| run.end_bytes() < to);
                let run = runs.get(place).filter(|run| run.at_bytes <= from)?;
                let inside =
                    |at: u64| usize::try_from(at - run.at_bytes).expect("a request fits memory");
                Some(run.data.slice(inside(from)..inside(to)))
            })
            .collect();
        if new.iter().any(Option::is_some) {
            segments.push(Segment { part, new });
        }
    }
    segments
}
