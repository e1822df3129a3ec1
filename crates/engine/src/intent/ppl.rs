//! md's partial parity log, RAID-5 only: what makes parity right again after a crash, on the member that holds the
//! parity.
//!
//! Invariants:
//! - the unit (header and partial parities) is durable on every member that takes the parity before the first write in
//!   place (W1), and a member that could not take it is durably failed (W3);
//! - a member's next unit is written only after the blocks of its last one are durable in place: each is at the area's
//!   start, so only the newest exists. What differs between two headers lies in one sector (W10), so a header is never
//!   torn; a torn partial parity says that nothing had begun;
//! - a strip that is written together with others while its member is lost is not protected: that is the limit of this
//!   log. Without the strip's member it is therefore written alone, and a start finds such rows and asks for force;
//! - rows in doubt stay in every further unit as rows written whole, until they were (W8). Doubt that does not fit
//!   leaves no header at all: then, as for the kernel, all parity is in doubt after a crash.
//!
//! Source: linux-md.md section 5.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plexum_format::md::ppl::{HEADER_BYTES, crc32c, find_newest};
use plexum_format::md::{PplEntry, PplGeometry, PplHeader, ReplayRow};
use plexum_format::{SECTOR_BYTES, Slot};
use plexum_parity::Block;

use crate::drive::Drive;
use crate::intent::Intent;
use crate::mutant::Mutant;
use crate::row::Row;
use crate::state::{FailCause, MemberId};
use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::{Few, Mutex, join_all};

/// Most bytes of partial parity in one unit, as in the kernel.
const UNIT_BYTES_MAX: u64 = 128 << 10;

/// Most entries of one unit: they end inside the header's second sector, the only one that ever changes.
const ENTRIES_MAX: usize = 20;

/// Most ranges in doubt that one member's unit carries along.
const KEPT_MAX: usize = 16;

/// The log of one volume.
pub(crate) struct Ppl {
    /// By slot: one unit of a parity member at a time.
    lanes: Vec<Mutex>,
    generation: Cell<u64>,
    /// Most bytes of partial parity that every member's area takes.
    pub unit_bytes: u64,
    signature: u32,
    geometry: PplGeometry,
    /// Ranges in doubt, which every unit of their parity's member names.
    kept: RefCell<Vec<Kept>>,
    /// There is doubt that units do not name: no member has a header.
    is_unsure: Cell<bool>,
    /// There is doubt that units cannot name, and headers still say otherwise.
    overflows: Cell<bool>,
}

/// A part of a row in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    row: u64,
    /// Slot of the row's parity.
    slot: usize,
    part: Range<u64>,
}

/// A part of a row that is about to be written: touched data strips and their partial parity.
pub(crate) struct PplPart {
    /// Bytes of the strip.
    pub part: Range<u64>,
    /// Index of the first touched data strip, and how many follow one another.
    pub first: usize,
    pub count: usize,
    /// XOR of the data that stay as they are; `None`: the row is written whole.
    pub partial_parity: Option<BufMut>,
}

/// Why a log could not be taken over; nothing was written in the first case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PplError {
    /// Rows may be wrong, and a member is missing.
    Doubt,
    /// The members could not be written.
    Io(IoError),
}

/// The newest unit of a member.
struct Unit<D> {
    drive: Rc<Drive<D>>,
    area: BufMut,
    offset: usize,
    header: PplHeader,
}

/// An entry's rows as the log's owner has to treat them.
struct EntryRow {
    row: Row,
    part: Range<u64>,
    replay: ReplayRow,
}

impl Ppl {
    /// The turn of a slot's parity.
    pub(crate) fn lane(&self, slot: usize) -> &Mutex {
        &self.lanes[slot]
    }

    /// Most parts of a row in one unit of this slot.
    pub(crate) fn parts_max(&self, slot: usize) -> usize {
        let kept = self.kept.borrow();
        ENTRIES_MAX - kept.iter().filter(|kept| kept.slot == slot).count()
    }

    /// Notes that parts of a row are in doubt, before they are or before anything else may follow them in the log.
    /// `spread_ppl_doubt` has to come after it.
    pub(crate) fn note_doubt(&self, row: &Row, parts: impl Iterator<Item = Range<u64>>) {
        for part in parts {
            let (row, slot) = (row.number, row.slot(Block::P));
            if !self.keep(Kept { row, slot, part }) {
                self.overflows.set(true);
            }
        }
    }

    /// Notes doubt. `false`: there is too much of it to be named.
    fn keep(&self, kept: Kept) -> bool {
        let mut all = self.kept.borrow_mut();
        if all.contains(&kept) {
            return true;
        }
        if all.iter().filter(|one| one.slot == kept.slot).count() == KEPT_MAX {
            return false;
        }
        all.push(kept);
        true
    }

    /// A part of a row is right and durable. Says whether something was named there.
    fn settle(&self, row: u64, part: &Range<u64>) -> bool {
        let mut all = self.kept.borrow_mut();
        let before = all.len();
        let mut room = all.iter().fold(BTreeMap::new(), |mut room, kept| {
            *room.entry(kept.slot).or_insert(KEPT_MAX) -= 1;
            room
        });
        let mut rest = Vec::new();
        for kept in all.drain(..) {
            let covers =
                kept.row == row && kept.part.start < part.end && part.start < kept.part.end;
            let splits = kept.part.start < part.start && part.end < kept.part.end;
            let room = room.entry(kept.slot).or_insert(KEPT_MAX);
            if !covers || splits && *room == 0 {
                rest.push(kept); // without room for two, what is right now stays in doubt with the rest
                continue;
            }
            *room -= usize::from(splits);
            for left in [kept.part.start..part.start, part.end..kept.part.end] {
                if left.start < left.end {
                    let (row, slot) = (kept.row, kept.slot);
                    rest.push(Kept {
                        row,
                        slot,
                        part: left,
                    });
                }
            }
        }
        *all = rest;
        all.len() != before || all.iter().any(|kept| kept.row == row)
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// Takes over md's log when the superblocks name one.
    pub(crate) fn adopt_ppl(&self) {
        let drives = self.array.slotted_drives();
        let place = |drive: &Rc<Drive<D>>| self.array.metadata().ppl_place(drive.id);
        let rooms = drives.iter().map(place);
        let rooms = rooms.map(|place| place.map(|(place, _)| place.end - place.start));
        let Some(room) = rooms.min().flatten() else {
            return;
        };
        let signature = drives
            .first()
            .and_then(place)
            .map(|(_, signature)| signature);
        let strip_sectors = self.base.geometry().strip_bytes() / SECTOR_BYTES;
        let data_members = self.base.geometry().member_count().saturating_sub(1);
        let unit_bytes = room.saturating_sub(HEADER_BYTES as u64).min(UNIT_BYTES_MAX);
        let ppl = Ppl {
            lanes: (0..self.base.geometry().member_count())
                .map(|_| Mutex::new())
                .collect(),
            generation: Cell::new(0),
            unit_bytes: unit_bytes / HEADER_BYTES as u64 * HEADER_BYTES as u64,
            signature: signature.unwrap_or(0),
            geometry: PplGeometry {
                strip_sectors: u32::try_from(strip_sectors).unwrap_or(u32::MAX),
                data_members: u32::try_from(data_members).unwrap_or(u32::MAX),
                array_sectors: self.base.size_bytes() / SECTOR_BYTES,
            },
            kept: RefCell::default(),
            is_unsure: Cell::new(false),
            overflows: Cell::new(false),
        };
        assert!(ppl.unit_bytes > 0, "assembly refuses smaller areas");
        *self.ppl.borrow_mut() = Some(Rc::new(ppl));
    }

    /// Makes the unit durable on every member that takes this row's parity. The caller has the lane.
    ///
    /// # Errors
    /// `NoSpace`, with nothing written in place; `Failed` when the volume is frozen.
    pub(crate) async fn write_ppl_unit(
        &self,
        ppl: &Ppl,
        row: &Row,
        parts: &[PplPart],
    ) -> Result<(), IoError> {
        if self.base.has(Mutant::PplNotWritten) {
            return Ok(());
        }
        let slot = row.slot(Block::P);
        // Without a part the unit is written all the same: it ends what the last one says.
        let unit = self.encode_unit(ppl, Some(slot), row, parts);
        let drives: Few<Rc<Drive<D>>> = self
            .array
            .write_targets(&self.array.members(), slot)
            .cloned()
            .collect();
        let results = join_all(
            drives
                .iter()
                .map(|drive| self.put_unit(drive, unit.clone())),
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
                Err(error) => self.fail_for_ppl(drive.id, error),
            }
        }
        if self.array.is_frozen() {
            return Err(IoError::Failed); // without the unit nothing may change in place
        }
        self.array.settle().await?; // W3: whoever lacks the unit is durably out before anything changes in place
        refused.map_or(Ok(()), Err)
    }

    /// A frozen array keeps the units it has: they tell what was being written when too many members went (W4).
    async fn put_unit(&self, drive: &Drive<D>, unit: Buf) -> Result<(), IoError> {
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        let place = self.array.metadata().ppl_place(drive.id);
        let (place, _) = place.ok_or(IoError::OutOfRange)?;
        assert!(
            unit.len() as u64 <= place.end - place.start,
            "a unit fits its area"
        );
        drive.write_device(place.start, unit, Fua::Yes).await
    }

    fn fail_for_ppl(&self, member: MemberId, error: IoError) {
        let cause = match error {
            IoError::Gone => FailCause::Gone,
            _ => FailCause::WriteError,
        };
        self.array.fail_member(member, cause);
    }

    /// A unit: what is in doubt first, for a replay goes by their order.
    fn encode_unit(&self, ppl: &Ppl, slot: Option<usize>, row: &Row, parts: &[PplPart]) -> Buf {
        if ppl.is_unsure.get() {
            return self.base.pool().take_zeroed(HEADER_BYTES).freeze();
        }
        let kept = ppl.kept.borrow();
        let kept = kept.iter().filter(|kept| Some(kept.slot) == slot);
        let mut entries: Vec<PplEntry> = kept
            .map(|kept| {
                let part = PplPart {
                    part: kept.part.clone(),
                    first: 0,
                    count: row.map.data_count(),
                    partial_parity: None,
                };
                entry_of(&self.base.row(kept.row), &part, kept.slot)
            })
            .collect();
        let own = parts.iter();
        entries.extend(own.map(|part| entry_of(row, part, row.slot(Block::P))));
        assert!(entries.len() <= ENTRIES_MAX, "parts were cut to fit a unit");
        ppl.generation.set(ppl.generation.get() + 1);
        let header = PplHeader::new(ppl.signature, ppl.generation.get(), entries);
        let length = usize::try_from(header.unit_bytes()).expect("a unit is small");
        let mut unit = self.base.pool().take(length);
        unit[..HEADER_BYTES].copy_from_slice(&header.encode());
        let mut next = HEADER_BYTES;
        for parity in parts.iter().filter_map(|part| part.partial_parity.as_ref()) {
            unit[next..next + parity.len()].copy_from_slice(parity);
            next += parity.len();
        }
        unit.freeze()
    }

    /// Doubt that does not fit the units is durable as the want of headers. The caller has no lane.
    pub(crate) async fn spread_ppl_doubt(&self, ppl: &Ppl) {
        if ppl.overflows.replace(false) && !ppl.is_unsure.replace(true) {
            self.write_ppl_headers(ppl).await;
        }
    }

    /// This part of a row is right now, durably: units name it no more. The caller has the row's lock.
    ///
    /// # Errors
    /// As `write_ppl_unit`.
    pub(crate) async fn settle_ppl_part(
        &self,
        row: &Row,
        part: &Range<u64>,
    ) -> Result<(), IoError> {
        let Some(ppl) = self.ppl.borrow().clone() else {
            return Ok(());
        };
        if !ppl.settle(row.number, part) {
            return Ok(());
        }
        let _lane = ppl.lane(row.slot(Block::P)).lock().await;
        self.write_ppl_unit(&ppl, row, &[]).await
    }

    /// Nothing is in doubt any more: after a flush (W2) units say so.
    pub(crate) async fn settle_ppl_doubt(&self) {
        let Some(ppl) = self.ppl.borrow().clone() else {
            return;
        };
        if !ppl.is_unsure.get() && ppl.kept.borrow().is_empty() {
            return;
        }
        if self.flush_members().await.is_err() || self.regions.borrow().doubtful_count() > 0 {
            return;
        }
        ppl.kept.borrow_mut().clear();
        ppl.is_unsure.set(false);
        self.write_ppl_headers(&ppl).await;
    }

    /// Gives a member that joins a header: what lay there counts no more.
    ///
    /// # Errors
    /// Of the device.
    pub(crate) async fn clear_ppl(&self, drive: &Drive<D>) -> Result<(), IoError> {
        let Some(ppl) = self.ppl.borrow().clone() else {
            return Ok(());
        };
        let unit = self.encode_unit(&ppl, None, &self.base.row(0), &[]);
        self.put_unit(drive, unit).await
    }

    /// Headers of a log that begins.
    pub(crate) async fn begin_ppl(&self) {
        let ppl = self.ppl.borrow().clone();
        if let Some(ppl) = ppl {
            self.write_ppl_headers(&ppl).await;
        }
    }

    /// Every live member's header as things are now, with no write under way in it.
    async fn write_ppl_headers(&self, ppl: &Ppl) {
        let drives = self.array.live_drives();
        let writes = drives.iter().map(|drive| async {
            let slot = self.array.state().record(drive.id).slot.map(usize::from);
            let _lane = match slot {
                Some(slot) => Some(ppl.lane(slot).lock().await),
                None => None,
            };
            let unit = self.encode_unit(ppl, slot, &self.base.row(0), &[]);
            self.put_unit(drive, unit).await
        });
        let results = join_all(writes).await;
        for (drive, result) in drives.iter().zip(results) {
            if let Err(error) = result {
                self.fail_for_ppl(drive.id, error);
            }
        }
        let _ = self.array.settle().await; // whoever goes on meets a failure again
    }

    /// Reads every member's area: the newest generation counts on, and after an unclean stop parity is made right for
    /// what the newest units name. `is_dirty`: there was one.
    ///
    /// # Errors
    /// `Doubt` without `is_forced` when a member is missing and rows may be wrong.
    pub(crate) async fn start_ppl(&self, is_dirty: bool, is_forced: bool) -> Result<(), PplError> {
        let Some(ppl) = self.ppl.borrow().clone() else {
            return Ok(());
        };
        let drives = self.array.slotted_drives();
        let mut units = Vec::new();
        for drive in &drives {
            if let Some(unit) = self.newest_unit(&ppl, drive).await {
                ppl.generation
                    .set(ppl.generation.get().max(unit.header.generation));
                units.push(unit);
            }
        }
        let is_complete = units.len() == drives.len();
        ppl.is_unsure
            .set(self.regions.borrow().doubtful_count() > 0);
        if is_dirty {
            self.replay_units(&ppl, &units, is_complete, is_forced)
                .await?;
        }
        if is_dirty || !is_complete || ppl.is_unsure.get() {
            self.flush_members().await.map_err(PplError::Io)?;
            self.array.settle().await.map_err(PplError::Io)?;
            self.write_ppl_headers(&ppl).await;
        }
        Ok(())
    }

    async fn replay_units(
        &self,
        ppl: &Ppl,
        units: &[Unit<D>],
        is_complete: bool,
        is_forced: bool,
    ) -> Result<(), PplError> {
        let is_degraded = self.array.lost_slots().contains(&true);
        let mut doubtful: Vec<Kept> = units
            .iter()
            .flat_map(|unit| self.doubtful_parts(ppl, unit))
            .collect();
        if is_degraded && !is_forced && !(is_complete && doubtful.is_empty()) {
            return Err(PplError::Doubt);
        }
        if !is_complete {
            // A member without a header: nobody knows what was being written.
            self.regions.borrow_mut().doubt_from(0);
            ppl.is_unsure.set(true);
            return Ok(());
        }
        if self.base.has(Mutant::PplNotReplayed) {
            return Ok(());
        }
        for unit in units {
            for (replay, partial) in self.rows_of(ppl, unit) {
                let (lost, refused) = match self.replay_row(unit, &replay, partial).await {
                    Ok(lost) => (lost, false),
                    // Parity has no space now: the row stays in doubt until it has.
                    Err(IoError::NoSpace) => (true, true),
                    Err(error) => return Err(PplError::Io(error)),
                };
                let (row, slot) = (replay.row.number, replay.row.slot(Block::P));
                let is_in = |kept: &Kept| {
                    kept.row == row
                        && kept.part.start <= replay.part.start
                        && replay.part.end <= kept.part.end
                };
                let is_hole = refused || replay.replay.data_sectors.len() > 1;
                if lost && is_hole && !doubtful.iter().any(is_in) {
                    let part = replay.part.clone();
                    push_joined(&mut doubtful, Kept { row, slot, part });
                }
            }
        }
        for kept in doubtful {
            self.doubt_part(ppl, &self.base.row(kept.row), kept.part);
        }
        Ok(())
    }

    fn doubt_part(&self, ppl: &Ppl, row: &Row, part: Range<u64>) {
        self.regions.borrow_mut().unprove(&row.member_range(&part));
        let (row, slot) = (row.number, row.slot(Block::P));
        if !ppl.keep(Kept { row, slot, part }) {
            ppl.is_unsure.set(true);
        }
    }

    async fn newest_unit(&self, ppl: &Ppl, drive: &Rc<Drive<D>>) -> Option<Unit<D>> {
        let (place, _) = self.array.metadata().ppl_place(drive.id)?;
        let length = usize::try_from(place.end - place.start).ok()?; // at most 32 MiB
        let area = drive
            .read_device(self.base.pool(), place.start, length)
            .await
            .ok()?;
        let is_ring = self.array.metadata().is_ppl_ring(drive.id);
        let (offset, header) = find_newest(&area, place.start, ppl.signature, is_ring)?;
        Some(Unit {
            drive: Rc::clone(drive),
            area,
            offset: usize::try_from(offset).ok()?,
            header,
        })
    }

    /// The rows that a unit's whole entries name, of those that have their parity on that member, with the entry's
    /// partial parity. A torn entry's writes had not begun.
    fn rows_of<'a>(&self, ppl: &Ppl, unit: &'a Unit<D>) -> Vec<(EntryRow, &'a [u8])> {
        let own = self.array.state().record(unit.drive.id).slot;
        let bytes = &unit.area[unit.offset..];
        let ranges = unit.header.partial_parity_ranges();
        let mut rows = Vec::new();
        for (entry, range) in unit.header.entries.iter().zip(ranges) {
            let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
            let Some(partial) = bytes.get(place(range.start)..place(range.end)) else {
                continue;
            };
            if !entry.matches(partial) || own != Some(entry.parity_slot.0) {
                continue;
            }
            let Ok(replays) = entry.replay_rows(&ppl.geometry) else {
                continue; // it describes no rows of this array: nothing that we or the kernel wrote
            };
            for replay in replays {
                let first = replay.data_sectors.first().copied().unwrap_or(0) * SECTOR_BYTES;
                let (number, in_row) = self.base.geometry().row_of(first);
                let row = self.base.row(number);
                let start = in_row % self.base.geometry().strip_bytes();
                let part = start..start + replay.length_sectors * SECTOR_BYTES;
                if row.slot(Block::P) == entry.parity_slot.index() {
                    rows.push((EntryRow { row, part, replay }, partial));
                }
            }
        }
        rows
    }

    /// Rows of which several strips were written together, one of which cannot be read: neither the strip nor what the
    /// parity stands for is known.
    fn doubtful_parts(&self, ppl: &Ppl, unit: &Unit<D>) -> Vec<Kept> {
        let set = self.array.members();
        let mut doubtful = Vec::new();
        for (EntryRow { row, part, replay }, _) in self.rows_of(ppl, unit) {
            let is_lost = |sector: &u64| {
                !self
                    .array
                    .is_block_readable(&set, &row, self.block_at(*sector), &part)
            };
            if replay.data_sectors.len() > 1 && replay.data_sectors.iter().any(is_lost) {
                let slot = row.slot(Block::P);
                push_joined(
                    &mut doubtful,
                    Kept {
                        row: row.number,
                        slot,
                        part,
                    },
                );
            }
        }
        doubtful
    }

    fn block_at(&self, sector: u64) -> Block {
        let (_, in_row) = self.base.geometry().row_of(sector * SECTOR_BYTES);
        let index = in_row / self.base.geometry().strip_bytes();
        Block::Data(usize::try_from(index).expect("a row has few strips"))
    }

    /// Makes parity right. `true`: a strip could not be read, and parity stands for its old or its new content.
    async fn replay_row(
        &self,
        unit: &Unit<D>,
        entry: &EntryRow,
        partial_parity: &[u8],
    ) -> Result<bool, IoError> {
        let EntryRow { row, part, replay } = entry;
        let length = usize::try_from(part.end - part.start).expect("a page at most");
        let mut parity = self.base.pool().take_zeroed(length);
        if let Some(at) = replay.partial_parity_offset_bytes {
            let at = usize::try_from(at).unwrap_or(usize::MAX);
            let Some(partial) = partial_parity.get(at..at.saturating_add(length)) else {
                return Ok(false);
            };
            parity.copy_from_slice(partial);
        }
        let set = self.array.members();
        for sector in &replay.data_sectors {
            let block = self.block_at(*sector);
            match self.read_block(&set, row, block, part).await {
                Ok(data) => plexum_parity::xor_into(&mut parity, &data),
                Err(_) => return Ok(true),
            }
        }
        let writes = vec![(
            Rc::clone(&unit.drive),
            row.member_range(part),
            parity.freeze(),
        )];
        let outcome = self.array.write_members(writes, Fua::No).await;
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        outcome.refusal().map_or(Ok(false), Err)
    }
}

/// Neighbours become one: a unit names few.
fn push_joined(all: &mut Vec<Kept>, kept: Kept) {
    match all.last_mut() {
        Some(last) if last.row == kept.row && last.part.end == kept.part.start => {
            last.part.end = kept.part.end;
        }
        _ => all.push(kept),
    }
}

fn entry_of(row: &Row, part: &PplPart, slot: usize) -> PplEntry {
    let strips = row.map.data_count() as u64;
    let start = (row.number * strips + part.first as u64) * row.strip_bytes + part.part.start;
    let length = part.part.end - part.part.start;
    let parity = part.partial_parity.as_deref();
    let bytes = |bytes: u64| u32::try_from(bytes).expect("parts were cut to fit a unit");
    PplEntry {
        data_sector: start / SECTOR_BYTES,
        partial_parity_bytes: bytes(parity.map_or(0, |parity| parity.len() as u64)),
        data_bytes: bytes(length * part.count as u64),
        parity_slot: Slot(u16::try_from(slot).expect("slots are few")),
        checksum: parity.map_or(0, crc32c),
    }
}

#[cfg(test)]
mod tests;
