//! Intent logs that were left: what clients were told is durable becomes a part of the next commit.
//!
//! Invariants:
//! - a pool is opened for writing only when every log in it was replayed, or holds nothing: a commit would make the
//!   records of the others count as done;
//! - what a log reaches is not used for anything else before the commit that ends it;
//! - a log ends where its chain does, or at the first record whose block cannot be read: its flush was never answered.
//!
//! Source: zfs-write.md 1.7.

use plexum_block::device::Device;
use plexum_format::zfs::PointerImage;
use plexum_format::zfs::intent::{LogChange, LogHead, LogRecord};

use crate::dsl;
use crate::error::PoolError;
use crate::log::LOG_HEAD;
use crate::numbers::{DATA_OBJECT, SET_VOLUME, TYPE_OFFSET};
use crate::set::SetState;
use crate::state::WritablePool;
use crate::tree::Source;
use crate::volume::OpenVolume;

/// Most blocks of a log, and data sets of a pool, that are followed.
const MANY_MAX: usize = 1 << 17;

/// A data set that is not a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Its name, the pool's included.
    pub name: String,
    pub dataset: u64,
}

/// A log as it is on the members.
#[derive(Default)]
pub(crate) struct FoundLog {
    pub head: Option<LogHead>,
    /// Its blocks, the one that ends it included.
    pub blocks: Vec<PointerImage>,
    /// Records that are not in the data set yet.
    pub records: Vec<LogRecord>,
    /// Blocks that records name, whether they are in the data set or not, and that no root before had.
    pub placed: Vec<PointerImage>,
}

impl FoundLog {
    /// Everything that the log reaches.
    pub fn reached(&self) -> impl Iterator<Item = &PointerImage> {
        self.blocks.iter().chain(&self.placed)
    }

    /// Takes the records of a block; whether the log ends there. It does at the first that names a block which cannot
    /// be read: records and blocks of one flush are written at the same time, and this flush was cut off.
    async fn take<D: Device>(
        &mut self,
        source: &Source<D>,
        (head, first_txg): (&LogHead, u64),
        records: Vec<LogRecord>,
    ) -> bool {
        for record in records {
            if record.sequence > head.claimed_record {
                return true;
            }
            if let LogChange::Placed { pointer, .. } = &record.change
                && !pointer.is_hole()
                && pointer.birth_txg() >= first_txg
            {
                let block = source.read(pointer, "a block that a log names").await;
                // What somebody has taken over was there when he did.
                if block.is_err() && head.claim_txg == 0 {
                    return true;
                }
                self.placed.push(*pointer);
            }
            if record.txg >= first_txg && record.sequence > head.replayed_sequence {
                self.records.push(record);
            }
        }
        false
    }
}

/// Follows the log of an object set. `root_txg` is the last transaction group that was committed.
pub(crate) async fn find_log<D: Device>(
    source: &Source<D>,
    set_block: &[u8],
    root_txg: u64,
) -> FoundLog {
    let mut found = FoundLog::default();
    let head = LogHead::parse(set_block.get(LOG_HEAD).unwrap_or_default());
    let (Some(head), Some(pool)) = (head.filter(|head| !head.first.is_hole()), &source.pool) else {
        return found;
    };
    let first_txg = match head.claim_txg {
        0 => root_txg + 1,
        claimed => claimed,
    };
    found.head = Some(head);
    let mut pointer = head.first;
    while !pointer.is_hole()
        && pointer.digest()[3] <= head.claimed_block
        && found.blocks.len() < MANY_MAX
    {
        found.blocks.push(pointer);
        let Some(block) = pool.log_block(&pointer).await else {
            break;
        };
        if found.take(source, (&head, first_txg), block.records).await {
            break;
        }
        pointer = block.next;
    }
    found
}

impl<D: Device> WritablePool<D> {
    /// All data sets that are no snapshots, but for those of the pool itself.
    pub(crate) async fn heads(&self) -> Result<Vec<Head>, PoolError> {
        let mut found = Vec::new();
        let mut work = vec![(self.name.clone(), self.landmarks.root_dir)];
        while let Some((name, directory)) = work.pop() {
            if found.len() > MANY_MAX {
                return Err(PoolError::invalid(&name, "the pool has too many data sets"));
            }
            let dnode = self.meta.dnode(&self.source, directory).await?;
            let children = dnode.bonus_word(dsl::dir::CHILDREN);
            for entry in self.meta.zap(&self.source, children).await? {
                let child = entry.text();
                if let (Some(number), false) = (entry.number(), child.starts_with('$')) {
                    work.push((format!("{name}/{child}"), number));
                }
            }
            let dataset = dnode.bonus_word(dsl::dir::HEAD);
            found.push(Head { name, dataset });
        }
        Ok(found)
    }

    /// Replays all logs, in memory. Nothing is written here.
    pub(crate) async fn replay_logs(&mut self) -> Result<(), PoolError> {
        for head in self.heads().await? {
            let dataset = self.meta.dnode(&self.source, head.dataset).await?;
            let root = dsl::root_of(&dataset);
            if root.is_hole() {
                continue;
            }
            let set = SetState::open(&self.source, &root, &head.name).await?;
            let log = find_log(&self.source, &set.block, self.txg).await;
            if log.head.is_none() {
                continue;
            }
            let set_kind = set.block.get(TYPE_OFFSET).copied().unwrap_or(0);
            if u64::from(set_kind) != SET_VOLUME {
                if log.records.is_empty() {
                    continue;
                }
                return Err(PoolError::Refused(format!(
                    "{} has an intent log with {} records, which only OpenZFS can replay: import the pool there first",
                    head.name,
                    log.records.len()
                )));
            }
            self.sets.insert(head.dataset, set);
            self.hold(&log)?;
            let volume = self.open_volume(&head.name).await?;
            for record in &log.records {
                self.replay(&volume, record).await?;
            }
            let set = self.sets.get_mut(&head.dataset).expect("it was put there");
            set.block[LOG_HEAD].fill(0);
            set.touch();
        }
        Ok(())
    }

    /// Keeps what a log reaches from being used. What a root has allocated is given back by the next commit.
    fn hold(&mut self, log: &FoundLog) -> Result<(), PoolError> {
        let head = log.head.as_ref();
        let is_claimed = head.is_some_and(|head| head.claim_txg != 0);
        for pointer in log.reached() {
            for copy in pointer.copies() {
                if is_claimed || pointer.birth_txg() <= self.txg {
                    self.space.give_back(&copy)?;
                } else {
                    self.space.withhold(&copy)?;
                }
            }
        }
        Ok(())
    }

    async fn replay(&mut self, volume: &OpenVolume, record: &LogRecord) -> Result<(), PoolError> {
        let refuse = |what: String| {
            let (name, sequence) = (&volume.name, record.sequence);
            PoolError::Refused(format!(
                "record {sequence} of the intent log of {name} cannot be replayed: {what}"
            ))
        };
        let check = |end: Option<u64>| {
            let is_inside = end.is_some_and(|end| end <= volume.size_bytes);
            is_inside
                .then_some(())
                .ok_or_else(|| refuse("it is outside of the volume".into()))
        };
        if let LogChange::Other(kind) = record.change {
            return Err(refuse(format!("it is of kind {kind}")));
        }
        if record.object != DATA_OBJECT {
            return Err(refuse(format!("it is of object {}", record.object)));
        }
        match &record.change {
            LogChange::Write { offset_bytes, data } => {
                check(offset_bytes.checked_add(data.len() as u64))?;
                self.write(volume, *offset_bytes, data).await
            }
            LogChange::Trim {
                offset_bytes,
                length_bytes,
            } => {
                let end = offset_bytes.saturating_add(*length_bytes);
                let end = end.min(volume.size_bytes);
                self.trim(volume, (*offset_bytes).min(end)..end).await
            }
            LogChange::Placed {
                offset_bytes,
                pointer,
                ..
            } => {
                // Whatever its length says, a block stands for itself.
                let start = offset_bytes / volume.block_bytes * volume.block_bytes;
                if pointer.is_hole() {
                    let end = (start + volume.block_bytes).min(volume.size_bytes);
                    check(Some(start))?;
                    return self.trim(volume, start..end).await;
                }
                let what = format!("a block that the intent log of {} names", volume.name);
                let block = self.source.read(pointer, &what).await?;
                if block.len() as u64 != volume.block_bytes {
                    return Err(refuse(format!("its block has {} bytes", block.len())));
                }
                check(start.checked_add(volume.block_bytes))?;
                self.write(volume, start, &block).await
            }
            LogChange::Other(_) => Ok(()),
        }
    }
}
