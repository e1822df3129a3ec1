//! The intent log of a volume that is written: what clients flush becomes durable without a commit.
//!
//! What was written and trimmed since the last flush is kept as ranges; a flush takes the contents out of memory, so
//! that a block that was written often is logged once. Whole large blocks go to their final places at once, and the log
//! has pointers to them.
//!
//! Invariants:
//! - the first block of a chain is allocated by a root that is on the members; those after it by none, so that who
//!   takes over the pool after a crash finds them by the chain alone;
//! - a block of the chain points to the next one, which is allocated before it is written;
//! - what a chain may reach is not used for anything else until a root has been written that begins a later one.
//!
//! Source: zfs-write.md 1.7.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::PointerImage;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::intent::{
    CHAIN_BYTES, LOG_HEAD_BYTES, LOG_UNIT_BYTES, LogBlock, LogChange, LogHead, LogRecord,
    WRITE_RECORD_BYTES, encode,
};

use crate::chain::Log;
use crate::dsl::kind;
use crate::error::PoolError;
use crate::ground::Writes;
use crate::numbers::DATA_OBJECT;
use crate::space::Purpose;
use crate::state::{ConfigState, WritablePool};
use crate::tree::pointer_for;
use crate::volume::OpenVolume;

/// Where an object set has the header of its log.
pub(crate) const LOG_HEAD: Range<usize> = DNODE_BYTES..DNODE_BYTES + LOG_HEAD_BYTES;
/// Largest block of the log.
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The first block of a chain: one write of 4 KiB fits.
const FIRST_BLOCK_BYTES: usize = 8 << 10;
/// Smallest piece of a write that a block is filled up with.
const PIECE_BYTES_MIN: usize = 512;
/// Blocks of at least this size that were written as a whole are not copied into the log.
const PLACED_BYTES_MIN: u64 = 32 << 10;
/// More than this is not copied into the log: a commit writes it once instead of twice.
const COPIED_BYTES_MAX: u64 = 1 << 20;
/// A log of one transaction group that became this long is ended by a commit.
const CHAIN_BYTES_MAX: u64 = 32 << 20;

/// How a flush was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logged {
    /// Everything is durable.
    Durable,
    /// The log does not serve for it: it takes a commit.
    NeedsCommit,
}

/// Bytes of a log block for so many bytes of records.
fn block_bytes_for(records_bytes: usize) -> usize {
    let wanted = (CHAIN_BYTES + records_bytes).next_multiple_of(LOG_UNIT_BYTES);
    wanted.clamp(LOG_UNIT_BYTES, BLOCK_BYTES_MAX)
}

impl<D: Device> WritablePool<D> {
    /// From now on flushes of a volume may use an intent log, which the next commit begins.
    pub fn use_log(&mut self, volume: &OpenVolume) {
        self.use_log_of(volume.dataset);
    }

    /// The same of the volume with this data set.
    pub(crate) fn use_log_of(&mut self, dataset: u64) {
        let seed = self.guid ^ self.txg.rotate_left(32) ^ dataset.rotate_left(48);
        let log = self.logs.entry(dataset);
        log.or_insert_with(|| Log::new(seed));
    }

    /// Makes what was written to volumes with a log durable in their logs.
    ///
    /// # Errors
    /// What kept it from being written: a commit has to follow.
    pub async fn log(&mut self) -> Result<Logged, PoolError> {
        self.check_frozen()?;
        let has_to_commit = !self.meta.changed.is_empty() || self.has_unrecorded_losses();
        if has_to_commit || self.config_state == ConfigState::Changed {
            return Ok(Logged::NeedsCommit);
        }
        let mut copied_bytes = 0;
        for (dataset, set) in &self.sets {
            if set.changed.is_empty() {
                continue;
            }
            let Some(log) = self.logs.get(dataset) else {
                return Ok(Logged::NeedsCommit);
            };
            if log.next.is_hole() && !log.is_clean() || log.used_bytes > CHAIN_BYTES_MAX {
                return Ok(Logged::NeedsCommit);
            }
            copied_bytes += log.written.total_bytes();
        }
        let block_bytes = self.logged_block_bytes().await?;
        let placed: Vec<(u64, u64)> = self.placeable(&block_bytes);
        let placed_bytes: u64 = placed.iter().map(|(dataset, _)| block_bytes[dataset]).sum();
        copied_bytes -= placed_bytes;
        if copied_bytes > COPIED_BYTES_MAX || placed_bytes > CHAIN_BYTES_MAX {
            return Ok(Logged::NeedsCommit);
        }
        // What waits for the commit keeps its room.
        let wanted = self.pending.wanted_bytes + self.worst_bytes(2 * copied_bytes + (1 << 20));
        if wanted > self.space.usable_bytes() {
            return Ok(Logged::NeedsCommit);
        }
        let result = self.write_logs(&block_bytes, &placed).await;
        if result.is_err() {
            // They may not be where their pointers say.
            for (dataset, id) in placed {
                self.unplace(dataset, id..id + 1)?;
            }
        }
        result
    }

    async fn write_logs(
        &mut self,
        block_bytes: &BTreeMap<u64, u64>,
        placed: &[(u64, u64)],
    ) -> Result<Logged, PoolError> {
        let losses = self.ground.losses.get();
        let mut writes = Writes::default();
        for block in placed {
            self.place_block(*block, &mut writes).await?;
        }
        for (dataset, block_bytes) in block_bytes {
            self.log_volume((*dataset, *block_bytes), &mut writes)
                .await?;
        }
        self.ground.write_out(&mut writes).await?;
        self.ground.flush_written().await?;
        // What a lost member missed is recorded before anything is answered.
        if self.ground.losses.get() != losses {
            return Ok(Logged::NeedsCommit);
        }
        self.logs.values_mut().for_each(Log::clean);
        Ok(Logged::Durable)
    }

    /// Blocks that are changed once more do not stay where they were placed. Their space waits, as all that is given
    /// back: the log may have pointers to it.
    pub(crate) fn unplace(&mut self, dataset: u64, blocks: Range<u64>) -> Result<(), PoolError> {
        let set = self.sets.get_mut(&dataset);
        let changed = set.and_then(|set| set.changed.get_mut(&DATA_OBJECT));
        let Some(changed) = changed else {
            return Ok(());
        };
        let ids: Vec<u64> = changed.placed.range(blocks).map(|(id, _)| *id).collect();
        for id in ids {
            let pointer = changed.placed.remove(&id);
            for copy in pointer.iter().flat_map(PointerImage::copies) {
                self.space.give_back(&copy)?;
            }
        }
        Ok(())
    }

    fn worst_bytes(&self, length_bytes: u64) -> u64 {
        let plexes = self.ground.plexes.values();
        let factors = plexes.map(|plex| plex.shape.allocated_bytes(4096).div_ceil(4096));
        length_bytes * factors.max().unwrap_or(1)
    }

    /// Blocks of the volumes with something to log.
    async fn logged_block_bytes(&self) -> Result<BTreeMap<u64, u64>, PoolError> {
        let mut found = BTreeMap::new();
        for (dataset, log) in self.logs.iter().filter(|(_, log)| !log.is_clean()) {
            if let (Some(set), false) = (self.sets.get(dataset), log.next.is_hole()) {
                let dnode = set.dnode(&self.source, DATA_OBJECT).await?;
                found.insert(*dataset, dnode.block_bytes());
            }
        }
        Ok(found)
    }

    /// Large blocks that were written as a whole.
    fn placeable(&self, block_bytes: &BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
        let large = block_bytes
            .iter()
            .filter(|(_, bytes)| **bytes >= PLACED_BYTES_MIN);
        let mut found = Vec::new();
        for (dataset, bytes) in large {
            for range in self.logs[dataset].written.iter() {
                let whole = range.start.div_ceil(*bytes)..range.end / bytes;
                found.extend(whole.map(|id| (*dataset, id)));
            }
        }
        found
    }

    /// Writes a block of a volume to its final place.
    async fn place_block(
        &mut self,
        (dataset, id): (u64, u64),
        writes: &mut Writes,
    ) -> Result<(), PoolError> {
        let set = self.sets.get_mut(&dataset).expect("it has changes");
        let changed = set.change(&self.source, DATA_OBJECT).await?;
        let Some(Some(block)) = changed.blocks.get(&id).cloned() else {
            return Ok(());
        };
        if changed.placed.contains_key(&id) {
            return Ok(());
        }
        let length = block.len() as u64;
        let copies = self
            .space
            .allocate(&self.ground, length, 1, Purpose::Data)?;
        for copy in copies.iter().flatten() {
            self.ground.put(writes, copy, &block)?;
        }
        let pointer = pointer_for(copies, &block, kind::VOLUME, self.txg + 1);
        changed.placed.insert(id, pointer);
        Ok(())
    }

    /// Writes the records of a volume.
    async fn log_volume(
        &mut self,
        (dataset, block_bytes): (u64, u64),
        writes: &mut Writes,
    ) -> Result<(), PoolError> {
        let changes = self.changes_of((dataset, block_bytes)).await?;
        let txg = self.txg + 1;
        let log = self
            .logs
            .get_mut(&dataset)
            .expect("it has something to log");
        let mut left: usize = changes.iter().map(record_bytes).sum();
        let all_bytes = left;
        let mut queue: std::collections::VecDeque<LogChange> = changes.into();
        while !queue.is_empty() {
            let room = log.next.logical_bytes() as usize - CHAIN_BYTES;
            let mut records = Vec::new();
            let mut used = 0;
            while let Some(change) = queue.pop_front() {
                let (now, later) = fit(change, room - used);
                if let Some(later) = later {
                    queue.push_front(later);
                }
                let Some(change) = now else { break };
                log.sequence += 1;
                let record = LogRecord {
                    txg,
                    sequence: log.sequence,
                    object: DATA_OBJECT,
                    change,
                };
                used += record.encoded_bytes();
                records.push(record);
            }
            left = left.saturating_sub(used);
            // The next one is for what is left, or for as much again.
            let next_bytes = block_bytes_for(if queue.is_empty() { all_bytes } else { left });
            let words = log.next.digest();
            let next = new_block(
                &mut self.space,
                &self.ground,
                next_bytes,
                [words[0], words[1], words[2], words[3] + 1],
                txg,
            )?;
            let place = log.next;
            log.used.push(place);
            log.used_bytes += place.logical_bytes();
            log.next = next;
            let block = LogBlock { next, records };
            let bytes = encode(&block, place.digest(), place.logical_bytes() as usize);
            let bytes = bytes.expect("records were chosen to fit");
            for copy in place.copies() {
                self.ground.put(writes, &copy, &bytes)?;
            }
        }
        Ok(())
    }

    /// What has to be logged of a volume, in any order: the parts do not overlap.
    async fn changes_of(
        &self,
        (dataset, block_bytes): (u64, u64),
    ) -> Result<Vec<LogChange>, PoolError> {
        let (log, set) = (&self.logs[&dataset], &self.sets[&dataset]);
        let placed = set.changed.get(&DATA_OBJECT).map(|changed| &changed.placed);
        let mut changes = Vec::new();
        for range in log.trimmed.iter() {
            changes.push(LogChange::Trim {
                offset_bytes: range.start,
                length_bytes: range.end - range.start,
            });
        }
        for range in log.written.iter() {
            let mut at = range.start;
            let mut data: Vec<u8> = Vec::new();
            while at < range.end {
                let (id, inside) = (at / block_bytes, at % block_bytes);
                let step = (block_bytes - inside).min(range.end - at);
                let pointer = placed.and_then(|placed| placed.get(&id));
                if let Some(pointer) = pointer.filter(|_| step == block_bytes) {
                    flush_data(&mut changes, at, &mut data);
                    changes.push(LogChange::Placed {
                        offset_bytes: at,
                        length_bytes: step,
                        pointer: *pointer,
                    });
                } else {
                    let block: Rc<Vec<u8>> = set.block(DATA_OBJECT, &self.source, id).await?;
                    let part = block.get(inside as usize..(inside + step) as usize);
                    let short = || PoolError::invalid("intent log", "a block is too short");
                    data.extend_from_slice(part.ok_or_else(short)?);
                }
                at += step;
            }
            flush_data(&mut changes, at, &mut data);
        }
        Ok(changes)
    }

    /// Before a commit: logs begin at the block that is still empty, and what was in them is given back. A volume that
    /// has none yet gets one.
    pub(crate) fn move_logs(&mut self, txg: u64) -> Result<(), PoolError> {
        for (dataset, log) in &mut self.logs {
            let Some(set) = self.sets.get_mut(dataset) else {
                continue;
            };
            if log.next.is_hole() {
                let words = [log.words[0], log.words[1], *dataset, 1];
                let bytes = FIRST_BLOCK_BYTES;
                match new_block(&mut self.space, &self.ground, bytes, words, txg) {
                    Ok(block) => log.next = block,
                    // Flushes are commits then.
                    Err(PoolError::NoSpace { .. }) => continue,
                    Err(error) => return Err(error),
                }
            } else if log.used.is_empty() {
                continue;
            }
            for block in log.used.drain(..) {
                for copy in block.copies() {
                    self.space.give_back(&copy)?;
                }
            }
            log.used_bytes = 0;
            set.block[LOG_HEAD].copy_from_slice(&LogHead::begin(&log.next));
            set.touch();
        }
        self.logs.values_mut().for_each(Log::clean);
        Ok(())
    }

    /// Ends the logs: the next commit leaves none. A data set has none in its snapshots, nor when the pool is exported.
    pub(crate) fn end_logs(&mut self, which: impl Fn(u64) -> bool) -> Result<(), PoolError> {
        let ended: Vec<u64> = self
            .logs
            .keys()
            .copied()
            .filter(|one| which(*one))
            .collect();
        for dataset in ended {
            let log = self
                .logs
                .remove(&dataset)
                .expect("its number is in the list");
            let all = log.used.iter().chain([&log.next]);
            for copy in all.flat_map(PointerImage::copies) {
                self.space.give_back(&copy)?;
            }
            if let Some(set) = self.sets.get_mut(&dataset) {
                set.block[LOG_HEAD].fill(0);
                set.touch();
            }
        }
        Ok(())
    }
}

/// Bytes of the record of a change.
fn record_bytes(change: &LogChange) -> usize {
    match change {
        LogChange::Write { data, .. } => WRITE_RECORD_BYTES + data.len(),
        _ => WRITE_RECORD_BYTES,
    }
}

/// Ends a run of data that is copied.
fn flush_data(changes: &mut Vec<LogChange>, end_bytes: u64, data: &mut Vec<u8>) {
    if !data.is_empty() {
        changes.push(LogChange::Write {
            offset_bytes: end_bytes - data.len() as u64,
            data: std::mem::take(data),
        });
    }
}

/// The part of a change whose record fits into `room_bytes`, and the rest.
fn fit(change: LogChange, room_bytes: usize) -> (Option<LogChange>, Option<LogChange>) {
    if record_bytes(&change) <= room_bytes {
        return (Some(change), None);
    }
    match change {
        LogChange::Write {
            offset_bytes,
            mut data,
        } if room_bytes >= WRITE_RECORD_BYTES + PIECE_BYTES_MIN => {
            let length = (room_bytes - WRITE_RECORD_BYTES) / PIECE_BYTES_MIN * PIECE_BYTES_MIN;
            let rest = data.split_off(length);
            let later = LogChange::Write {
                offset_bytes: offset_bytes + length as u64,
                data: rest,
            };
            let now = LogChange::Write { offset_bytes, data };
            (Some(now), Some(later))
        }
        other => (None, Some(other)),
    }
}

/// A new block of a chain.
fn new_block<D: Device>(
    space: &mut crate::space::Space,
    ground: &crate::ground::Ground<D>,
    length_bytes: usize,
    words: [u64; 4],
    txg: u64,
) -> Result<PointerImage, PoolError> {
    let length_bytes = length_bytes as u64;
    let copies = space.allocate(ground, length_bytes, 1, Purpose::Data)?;
    let copy = copies[0].expect("one copy was asked for");
    Ok(PointerImage::of_log(copy, length_bytes, words, txg))
}
