//! The stripe log: what a write will put on each member is durable in that member's ring before anything changes in
//! place.
//!
//! Invariants:
//! - a record is durable on every touched live member, and a member that could not take it is durably failed, before
//!   the first write in place (L2, W1, W3);
//! - records of one row are in the order of its writes: the row's lock is held from the record to the last write in
//!   place;
//! - many writes share one group: whoever has the turn writes for all who wait, and there is no timer (L3);
//! - the tail, and with it a place in a ring, moves only behind records that are in place on all members and flushed
//!   (W2);
//! - a superblock is committed only after headers that name its hash are durable (L6);
//! - no device ever has two batches of one number in one life of the log: what a member has in its ring from when it
//!   was a member before is never taken for what it has now.

pub(crate) mod back;
mod flushed;
mod headers;
mod overlay;
mod replay;
mod ring;
mod status;
mod tail;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

use smallvec::SmallVec;

use plexum_format::stripe_log::{
    BATCH_RECORDS_MAX, Batch, LogArea, LogHeader, PAGE_BYTES, Record, Slots, batch_bytes,
    block_checksum,
};

use crate::array::MemberSet;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::mutant::Mutant;
use crate::state::{FailCause, MemberId};
use crate::threshold::Threshold;
use plexum_block::buf::Buf;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::{Mutex, MutexGuard, Signal, join_all, yield_once};

pub(crate) use flushed::FlushBegun;
pub use replay::ReplayError;
use ring::{ChainStart, Ring};
pub use status::LogStatus;

/// Longest batch for members in memory that is copied into one buffer: there a copy is all that a write costs.
const COPIED_TO_MEMORY_BYTES_MAX: u64 = 128 << 10;

/// One part of a row, as it will be written: the blocks by slot.
#[derive(Clone)]
pub(crate) struct LogPart {
    pub row: u64,
    /// Bytes of the strip.
    pub part: Range<u64>,
    pub blocks: Vec<(usize, Buf)>,
}

impl LogPart {
    fn length_bytes(&self) -> u32 {
        u32::try_from(self.part.end - self.part.start).expect("parts were cut to fit a ring")
    }
}

/// Records that are durable. `members`: who has to get the blocks in place.
pub(crate) struct Logged<D> {
    pub sequences: Range<u64>,
    pub members: Rc<MemberSet<D>>,
}

struct Submission<D> {
    parts: Vec<LogPart>,
    outcome: RefCell<Option<Result<Logged<D>, IoError>>>,
    waker: RefCell<Option<Waker>>,
}

impl<D> Submission<D> {
    fn answer(&self, outcome: Result<Logged<D>, IoError>) {
        self.outcome.replace(Some(outcome));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The log of one volume.
pub(crate) struct StripeLog<D> {
    queue: RefCell<VecDeque<Rc<Submission<D>>>>,
    /// The turn to write a group.
    writer: Mutex,
    /// One writer of headers: an older header never lands on a newer one.
    header_writer: Mutex,
    /// Records came into place, or the array froze.
    pub progress: Rc<Signal>,
    book: RefCell<Book>,
    /// Writes that began without the log may be under way: what the log does not know may be wrong, until "clean".
    has_unlogged: Cell<bool>,
    /// L5: writes are answered when they are durable here.
    is_write_back: Cell<bool>,
    overlay: RefCell<overlay::Overlay>,
    /// The members that blocks which are kept in memory were written to.
    kept_among: RefCell<Option<Rc<MemberSet<D>>>>,
    /// One task at a time puts rows in place.
    destager: Mutex,
    /// The tail is being moved in the background.
    is_tail_moving: Cell<bool>,
}

struct Book {
    log_id: u64,
    epoch: u64,
    /// Headers of this life are on all members.
    is_ready: bool,
    /// The headers say that the log makes every row right.
    is_sure: bool,
    /// A group was refused, or could not be carried out whole: nothing may follow it in the rings before the tail is
    /// behind it.
    must_reset: bool,
    next_sequence: u64,
    /// Records that are durable but not all in place.
    outstanding: BTreeSet<u64>,
    /// Every record below is in place on all members, and flushed.
    covered: u64,
    /// Sync bytes below which parity is right and flushed but for the log; `u64::MAX`: everywhere.
    flushed_doubt: u64,
    /// How often doubt has grown: a flush that began before knows nothing of it.
    doubts: u64,
    /// Counts completions, for `Ring::written`.
    moment: u64,
    /// By `MemberId`.
    rings: Vec<Option<Ring>>,
    /// Hash of the superblock on each member, and of the one on its way (zero: none).
    bindings: Vec<([u8; 16], [u8; 16])>,
}

/// What a group will take of one member's ring.
#[derive(Clone, Copy)]
struct Need {
    member: MemberId,
    records: usize,
    block_bytes: u64,
}

/// By member, in the order in which they were met.
type Needs = SmallVec<[Need; 8]>;

fn add_need(needs: &mut Needs, member: MemberId, length_bytes: u32) {
    let place = needs.iter().position(|need| need.member == member);
    let place = place.unwrap_or_else(|| {
        needs.push(Need {
            member,
            records: 0,
            block_bytes: 0,
        });
        needs.len() - 1
    });
    needs[place].records += 1;
    needs[place].block_bytes += u64::from(length_bytes);
}

/// What a group writes to one member.
struct MemberBatch<D> {
    drive: Rc<Drive<D>>,
    records: Vec<(Record, Buf)>,
}

impl Book {
    fn ring(&self, member: MemberId) -> Option<&Ring> {
        self.rings.get(usize::from(member.0))?.as_ref()
    }

    fn ring_mut(&mut self, member: MemberId) -> Option<&mut Ring> {
        self.rings.get_mut(usize::from(member.0))?.as_mut()
    }

    /// What a flush that begins now will cover of each member.
    fn written(&self) -> Vec<u64> {
        let of = |ring: &Option<Ring>| ring.as_ref().map_or(0, |ring| ring.written);
        self.rings.iter().map(of).collect()
    }

    /// A flush of this member that covered all up to `written` has ended.
    fn note_flushed(&mut self, member: MemberId, written: &[u64]) {
        let covers = written.get(usize::from(member.0)).copied().unwrap_or(0);
        if let Some(ring) = self.ring_mut(member) {
            ring.flushed = ring.flushed.max(covers);
        }
    }

    /// Every record below is in place.
    fn floor(&self) -> u64 {
        self.outstanding
            .first()
            .copied()
            .unwrap_or(self.next_sequence)
    }
}

impl<D: Device> StripeLog<D> {
    /// The log as the members' headers have it; `doubt_from` as the regions have it now.
    pub(crate) fn new(headers: &[Option<LogHeader>], has_unlogged: bool) -> Self {
        let known = || headers.iter().flatten();
        let newest = known().max_by_key(|header| header.epoch);
        let tail = known()
            .filter(|header| Some(header.log_id) == newest.map(|newest| newest.log_id))
            .map(|header| header.tail_sequence)
            .max();
        let ring = |header: &LogHeader| {
            let start = ChainStart {
                position: header.start_position,
                number: header.start_batch,
            };
            Ring::new(header.area, header.joined_sequence, start)
        };
        let book = Book {
            log_id: newest.map_or(0, |header| header.log_id),
            epoch: newest.map_or(0, |header| header.epoch),
            is_ready: false,
            is_sure: true,
            must_reset: false,
            next_sequence: tail.unwrap_or(1),
            outstanding: BTreeSet::new(),
            covered: tail.unwrap_or(1),
            flushed_doubt: 0,
            doubts: 0,
            moment: 0,
            rings: headers
                .iter()
                .map(|header| header.as_ref().map(ring))
                .collect(),
            bindings: vec![Default::default(); headers.len()],
        };
        Self {
            queue: RefCell::default(),
            writer: Mutex::new(),
            header_writer: Mutex::new(),
            progress: Rc::default(),
            book: RefCell::new(book),
            has_unlogged: Cell::new(has_unlogged),
            is_write_back: Cell::new(newest.is_some_and(|header| header.is_write_back)),
            overlay: RefCell::default(),
            kept_among: RefCell::default(),
            destager: Mutex::new(),
            is_tail_moving: Cell::new(false),
        }
    }

    /// Longest part of a row that one submission may have, in bytes of each member.
    fn submission_bytes_max(&self) -> u64 {
        let book = self.book.borrow();
        let least = book.rings.iter().flatten().map(Ring::group_bytes_max).min();
        least.unwrap_or(u64::MAX) - PAGE_BYTES as u64
    }

    /// Place of a member's ring.
    pub(crate) fn area(&self, member: MemberId) -> Option<LogArea> {
        self.book.borrow().ring(member).map(|ring| ring.area)
    }

    /// A record was not carried out whole: the next one waits until the tail is behind it. Before `log_complete`.
    pub(crate) fn refuse_to_follow(&self) {
        self.book.borrow_mut().must_reset = true;
    }

    /// Rows written without their parity, or on some members only: from here on parity may be wrong.
    pub(crate) fn lower_doubt(&self, from_bytes: u64) {
        self.book.borrow_mut().lower_doubt(from_bytes);
    }

    /// Whether the headers could say by now that the log makes every row right, and do not.
    pub(crate) fn is_sure_late(&self) -> bool {
        !self.has_unlogged.get() && !self.book.borrow().is_sure
    }
}

impl<D: Device, C: Clock> Intent<D, C> {
    /// Takes over a log: the members' headers, by member. `has_unlogged`: writes that do not use it may be under way.
    pub(crate) fn adopt_log(&self, headers: &[Option<LogHeader>], has_unlogged: bool) {
        let log = StripeLog::new(headers, has_unlogged);
        let doubt = self.regions.borrow().consistent_below_bytes();
        log.book.borrow_mut().flushed_doubt = doubt.unwrap_or(u64::MAX);
        // Whoever waits for older writes waits for nothing once the array is frozen.
        self.array.ring_when_frozen(&log.progress);
        *self.log.borrow_mut() = Some(Rc::new(log));
        for drive in self.array.live_drives() {
            let hash = self.array.metadata().superblock_hash(drive.id);
            self.stripe_log()
                .expect("it was just put there")
                .bind(drive.id, hash);
        }
    }

    /// The log, when the volume has one.
    pub(crate) fn stripe_log(&self) -> Option<Rc<StripeLog<D>>> {
        self.log.borrow().clone()
    }

    /// Cuts parts of a row so that each submission fits every ring: a row larger than that goes in parts, one after the
    /// other, each of them logged, then in place. The sector is the atom (W10), so nobody may rely on more.
    pub(crate) fn log_submissions(
        &self,
        log: &StripeLog<D>,
        parts: Vec<LogPart>,
    ) -> Vec<Vec<LogPart>> {
        let limit = log.submission_bytes_max() / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let mut submissions: Vec<Vec<LogPart>> = Vec::new();
        let mut room = 0;
        for part in parts.into_iter().flat_map(|part| split(part, limit)) {
            let length = part.part.end - part.part.start;
            let is_full = submissions
                .last()
                .is_none_or(|last| last.len() == BATCH_RECORDS_MAX);
            if is_full || length > room {
                submissions.push(Vec::new());
                room = limit;
            }
            room -= length;
            submissions.last_mut().expect("one was pushed").push(part);
        }
        submissions
    }

    /// L2, L3: returns when the parts are durable on all touched members.
    ///
    /// # Errors
    /// `NoSpace` when a ring could not be written for want of space, `Failed` when the volume is frozen. Nothing was
    /// written in place.
    pub(crate) async fn log_append(
        &self,
        log: &StripeLog<D>,
        parts: Vec<LogPart>,
    ) -> Result<Logged<D>, IoError> {
        let submission = Rc::new(Submission {
            parts,
            outcome: RefCell::default(),
            waker: RefCell::default(),
        });
        log.queue.borrow_mut().push_back(Rc::clone(&submission));
        // Requests that came with this one reach the log in the same turn, and share its write and its flush.
        yield_once().await;
        loop {
            let turn = turn_or_outcome(log, &submission).await;
            if let Some(outcome) = submission.outcome.take() {
                return outcome;
            }
            self.write_group(log).await;
            drop(turn);
        }
    }

    /// Writes the records of whoever waits, as many as fit a group. The caller has the turn.
    async fn write_group(&self, log: &StripeLog<D>) {
        let (group, members) = loop {
            match self.room_for_group(log).await {
                Ok(Some(ready)) => break ready,
                Ok(None) => {}
                Err(error) => return answer_all(log, error),
            }
        };
        // From the snapshot of the members to the numbers of the records nothing awaits: a member that joins later
        // needs none of these records, one that had joined gets them all.
        let sequences = number_records(log, &group);
        let batches = self.batches(log, &group, &members, &sequences);
        let result = self.write_batches(log, batches).await;
        if result.is_err() {
            let mut book = log.book.borrow_mut();
            book.must_reset = true; // nothing in place: the records are void, and must be behind the tail first
            for sequence in sequences.iter().cloned().flatten() {
                book.outstanding.remove(&sequence);
            }
        }
        for (submission, sequences) in group.iter().zip(sequences) {
            let logged = result.map(|()| Logged {
                sequences,
                members: Rc::clone(&members),
            });
            submission.answer(logged);
        }
    }

    /// The next group, when the rings have room for it; else makes some room (`None`: look again).
    #[allow(clippy::type_complexity)] // one caller
    async fn room_for_group(
        &self,
        log: &StripeLog<D>,
    ) -> Result<Option<(Vec<Rc<Submission<D>>>, Rc<MemberSet<D>>)>, IoError> {
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        if !log.book.borrow().is_ready {
            self.begin_log_life(log).await?;
        }
        if self.base.has(Mutant::RingReusedBeforeFlush) {
            let mut book = log.book.borrow_mut();
            book.covered = book.floor();
            for ring in book.rings.iter_mut().flatten() {
                ring.flushed = ring.written;
            }
        }
        if log.book.borrow().must_reset {
            self.reset_rings(log).await?;
        }
        if !self.array.is_settled() && !self.base.has(Mutant::RecordBeforeFailureCommit) {
            // W3, L2: a record names the slots that have it. Without a member whose loss is not durable it would count
            // as whole after a crash, with that member back as fresh as the others and its block old.
            self.array.settle().await?;
            return Ok(None);
        }
        let members = self.array.members_to_write();
        let (group, needed) = self.select(log, &members);
        let short: Vec<MemberId> = {
            let book = log.book.borrow();
            let has_room = |need: &&Need| {
                book.ring(need.member)
                    .is_some_and(|ring| ring.has_room(batch_bytes(need.block_bytes)))
            };
            let lacking = needed.iter().filter(|need| !has_room(need));
            lacking.map(|need| need.member).collect()
        };
        if short.is_empty() {
            let mut queue = log.queue.borrow_mut();
            for _ in &group {
                queue.pop_front();
            }
            return Ok(Some((group, members)));
        }
        self.make_room(log, &short).await?;
        Ok(None)
    }

    /// Submissions from the front of the queue that go together, and what each member's batch will take.
    fn select(
        &self,
        log: &StripeLog<D>,
        members: &MemberSet<D>,
    ) -> (Vec<Rc<Submission<D>>>, Needs) {
        let mut group: Vec<Rc<Submission<D>>> = Vec::new();
        let mut needs = Needs::new();
        for submission in log.queue.borrow().iter() {
            let mut with = needs.clone();
            for part in &submission.parts {
                for (slot, _) in &part.blocks {
                    for drive in self.array.write_targets(members, *slot) {
                        self.ensure_ring(log, drive.id);
                        add_need(&mut with, drive.id, part.length_bytes());
                    }
                }
            }
            let book = log.book.borrow();
            let fits = with.iter().all(|need| {
                let limit = book.ring(need.member).map_or(0, Ring::group_bytes_max);
                need.records <= BATCH_RECORDS_MAX && batch_bytes(need.block_bytes) <= limit
            });
            if !fits && !group.is_empty() {
                break;
            }
            needs = with;
            group.push(Rc::clone(submission));
        }
        (group, needs)
    }

    fn batches(
        &self,
        log: &StripeLog<D>,
        group: &[Rc<Submission<D>>],
        members: &MemberSet<D>,
        sequences: &[Range<u64>],
    ) -> Vec<(MemberBatch<D>, Batch)> {
        let mut batches: Vec<MemberBatch<D>> = Vec::new();
        for (submission, sequences) in group.iter().zip(sequences) {
            for (part, sequence) in submission.parts.iter().zip(sequences.clone()) {
                self.add_records(part, sequence, members, &mut batches);
            }
        }
        let mut book = log.book.borrow_mut();
        let log_id = book.log_id;
        let mut placed = Vec::with_capacity(batches.len());
        for batch in batches {
            let records: Vec<Record> = batch.records.iter().map(|(record, _)| *record).collect();
            let lengths = records.iter().map(|record| u64::from(record.length_bytes));
            let length = batch_bytes(lengths.sum());
            let last = records.last().expect("a batch has a record").sequence;
            let ring = book
                .ring_mut(batch.drive.id)
                .expect("rings were made before");
            let start = ring.take(length, last);
            let page = Batch {
                log_id,
                number: start.number,
                position: start.position,
                records,
            };
            placed.push((batch, page));
        }
        placed
    }

    fn add_records(
        &self,
        part: &LogPart,
        sequence: u64,
        members: &MemberSet<D>,
        batches: &mut Vec<MemberBatch<D>>,
    ) {
        let mut touched = Slots::default();
        for (slot, _) in &part.blocks {
            if members.slots[*slot].is_writable() {
                touched.insert(*slot);
            }
        }
        for (slot, block) in &part.blocks {
            let record = Record {
                sequence,
                row: part.row,
                start_bytes: u32::try_from(part.part.start).expect("a strip is below 4 GiB"),
                length_bytes: part.length_bytes(),
                checksum: block_checksum(block),
                slot: u16::try_from(*slot).expect("slots are few"),
                touched,
            };
            for drive in self.array.write_targets(members, *slot) {
                let place = batches.iter().position(|batch| batch.drive.id == drive.id);
                let place = place.unwrap_or_else(|| {
                    batches.push(MemberBatch {
                        drive: Rc::clone(drive),
                        records: Vec::new(),
                    });
                    batches.len() - 1
                });
                batches[place].records.push((record, block.clone()));
            }
        }
    }

    /// Whether a batch is written at once.
    fn is_copied(&self, drive: &Drive<D>, page: &Batch) -> bool {
        let most = self.base.thresholds().log_copied_bytes_max;
        let most = match drive.is_in_memory() {
            true => most.min(COPIED_TO_MEMORY_BYTES_MAX),
            false => most,
        };
        page.length_bytes() <= most
    }

    /// Makes the batches durable. Small ones are written so that they are durable when they are answered: one round
    /// trip. Large ones are written and flushed, and members with blocks in place since their last flush are flushed
    /// along: the tail can follow (W2).
    async fn write_batches(
        &self,
        log: &StripeLog<D>,
        batches: Vec<(MemberBatch<D>, Batch)>,
    ) -> Result<(), IoError> {
        let flushes = !batches
            .iter()
            .all(|(batch, page)| self.is_copied(&batch.drive, page));
        if flushes {
            self.base.cross(Threshold::LogUncopied);
        }
        let (floor, covers, idle) = {
            let book = log.book.borrow();
            let is_written =
                |drive: &Rc<Drive<D>>| batches.iter().any(|(b, _)| b.drive.id == drive.id);
            let is_unflushed = |ring: &Ring| ring.written > ring.flushed;
            let mut idle = self.array.slotted_drives();
            idle.retain(|drive| {
                flushes && !is_written(drive) && book.ring(drive.id).is_some_and(is_unflushed)
            });
            (book.floor(), book.written(), idle)
        };
        let fua = if flushes { Fua::No } else { Fua::Yes };
        let writes = batches
            .iter()
            .map(|(batch, page)| self.write_batch(log, batch, page, fua));
        let flushed = idle.iter().map(|drive| self.flush_for_log(drive));
        let (written, flushed) =
            plexum_block::wait::join(join_all(writes), join_all(flushed)).await;
        let drives = batches.iter().map(|(batch, _)| &batch.drive).chain(&idle);
        let mut refused = None;
        let mut is_whole = true;
        for (drive, result) in drives.zip(written.into_iter().chain(flushed)) {
            match result {
                Ok(()) if flushes => log.book.borrow_mut().note_flushed(drive.id, &covers),
                Ok(()) => {}
                Err((IoError::NoSpace, _)) => {
                    self.array.note_no_space(drive);
                    refused = Some(IoError::NoSpace);
                }
                Err((error, cause)) => {
                    is_whole = false;
                    let cause = if error == IoError::Gone {
                        FailCause::Gone
                    } else {
                        cause
                    };
                    self.array.fail_member(drive.id, cause);
                }
            }
        }
        if self.array.is_frozen() {
            return Err(IoError::Failed);
        }
        if !is_whole {
            // W3, L2: whoever lacks the record must be durably out before anything changes in place; else a restart
            // would take it for a record that nobody had begun to carry out.
            self.array.settle().await?;
        }
        if let Some(error) = refused {
            return Err(error);
        }
        if flushes {
            let mut book = log.book.borrow_mut();
            book.covered = book.covered.max(floor);
        }
        Ok(())
    }

    async fn write_batch(
        &self,
        log: &StripeLog<D>,
        batch: &MemberBatch<D>,
        page: &Batch,
        fua: Fua,
    ) -> Result<(), (IoError, FailCause)> {
        let failed = |error| (error, FailCause::WriteError);
        let fua = match self.base.has(Mutant::RecordNotFlushed) {
            true => Fua::No,
            false => fua,
        };
        let at = {
            let book = log.book.borrow();
            let area = book
                .ring(batch.drive.id)
                .expect("rings were made before")
                .area;
            let shift = if self.base.has(Mutant::LogOverlapsData) {
                2 * PAGE_BYTES as u64
            } else {
                0
            };
            area.offset_bytes(page.position) + shift
        };
        if self.is_copied(&batch.drive, page) {
            let whole = self.copied(batch, page);
            let written = batch.drive.write_device(at, whole, fua).await;
            written.map_err(failed)?;
        } else {
            let mut writes = vec![(at, self.base.pool().copy_of(&page.encode_page()).freeze())];
            for ((_, block), position) in batch.records.iter().zip(page.block_positions()) {
                writes.push((at + (position - page.position), block.clone()));
            }
            let writes = writes.into_iter();
            let writes = writes.map(|(at, data)| batch.drive.write_device(at, data, fua));
            let written: Result<Vec<()>, IoError> = join_all(writes).await.into_iter().collect();
            written.map_err(failed)?;
        }
        if fua == Fua::Yes || self.base.has(Mutant::RecordNotFlushed) {
            return Ok(());
        }
        self.flush_for_log(&batch.drive).await
    }

    /// A batch in one buffer.
    fn copied(&self, batch: &MemberBatch<D>, page: &Batch) -> Buf {
        let length = usize::try_from(page.length_bytes()).expect("a small batch");
        let mut whole = self.base.pool().take(length);
        whole[..PAGE_BYTES].copy_from_slice(&page.encode_page());
        let mut next = PAGE_BYTES;
        for (_, block) in &batch.records {
            whole[next..next + block.len()].copy_from_slice(block);
            next += block.len();
        }
        whole[next..].fill(0);
        whole.freeze()
    }

    async fn flush_for_log(&self, drive: &Drive<D>) -> Result<(), (IoError, FailCause)> {
        drive
            .flush()
            .await
            .map_err(|error| (error, FailCause::FlushError))
    }

    /// The blocks of these records are in place, and whoever missed one is durably failed (W3).
    pub(crate) fn log_complete(
        &self,
        log: &StripeLog<D>,
        sequences: Range<u64>,
        written: &[MemberId],
    ) {
        let mut book = log.book.borrow_mut();
        for sequence in sequences {
            book.outstanding.remove(&sequence);
        }
        book.moment += 1;
        let moment = book.moment;
        for member in written {
            if let Some(ring) = book.ring_mut(*member) {
                ring.written = moment;
            }
        }
        drop(book);
        log.progress.notify();
        if log.calls_for_tail() {
            self.base.changed().notify();
        }
    }
}

/// Gives every part of the group its number.
fn number_records<D>(log: &StripeLog<D>, group: &[Rc<Submission<D>>]) -> Vec<Range<u64>> {
    let mut book = log.book.borrow_mut();
    let mut numbered = Vec::with_capacity(group.len());
    for submission in group {
        let first = book.next_sequence;
        book.next_sequence += submission.parts.len() as u64;
        let sequences = first..book.next_sequence;
        book.outstanding.extend(sequences.clone());
        numbered.push(sequences);
    }
    numbered
}

/// The turn to write a group, unless somebody else has written this submission: whoever has the turn may be waiting for
/// it to come into place.
async fn turn_or_outcome<'a, D>(
    log: &'a StripeLog<D>,
    submission: &Submission<D>,
) -> Option<MutexGuard<'a>> {
    let mut turn = pin!(log.writer.lock());
    poll_fn(|cx| {
        if submission.outcome.borrow().is_some() {
            return Poll::Ready(None);
        }
        submission.waker.replace(Some(cx.waker().clone()));
        turn.as_mut().poll(cx).map(Some)
    })
    .await
}

fn answer_all<D>(log: &StripeLog<D>, error: IoError) {
    for submission in log.queue.borrow_mut().drain(..) {
        submission.answer(Err(error));
    }
}

/// Cuts a part into pieces of at most `limit` bytes of each member.
pub(crate) fn split(part: LogPart, limit: u64) -> Vec<LogPart> {
    if part.part.end - part.part.start <= limit {
        return vec![part];
    }
    let mut pieces = Vec::new();
    let mut at = part.part.start;
    while at < part.part.end {
        let end = part.part.end.min(at + limit);
        let place = |at: u64| usize::try_from(at - part.part.start).expect("inside the part");
        let cut = |(slot, block): &(usize, Buf)| (*slot, block.slice(place(at)..place(end)));
        pieces.push(LogPart {
            row: part.row,
            part: at..end,
            blocks: part.blocks.iter().map(cut).collect(),
        });
        at = end;
    }
    pieces
}

#[cfg(test)]
mod tests;
