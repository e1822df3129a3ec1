//! A walk over the whole pool that reads every copy and every column, and changes nothing.
//!
//! Invariants:
//! - every block is checked once, however many data sets and snapshots share it;
//! - trees of blocks are walked with a work list;
//! - damage that costs no data is reported by member and offset, damage that does by data set, object and block as
//!   well.

use std::collections::{BTreeMap, BTreeSet};

use plexum_block::device::Device;
use plexum_block::wait::join_all;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::{BlockPointer, Dnode, ObjectSetKind};

use crate::block::{Blocks, key};
use crate::cache::Key;
use crate::damage::Damage;
use crate::dataset::DatasetName;
use crate::error::ZfsError;
use crate::object::ObjectSet;
use crate::parts::Parts;
use crate::plex::Extent;
use crate::pool::Pool;

/// Blocks that are checked at once.
const AT_ONCE: usize = 16;
/// Most names that are looked up for damaged objects of one file system.
const NAMES_MAX: usize = 1_000_000;

/// An object that lost data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoiltObject {
    /// Data set, or `the pool` for its own structures.
    pub dataset: String,
    /// Number of the object.
    pub object: u64,
    /// Path of the file, where it has one.
    pub path: Option<String>,
    /// The first block that is lost.
    pub block_id: u64,
    /// Why.
    pub reason: String,
}

/// How far a scrub is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Blocks checked.
    pub blocks: u64,
    /// Their bytes, as stored.
    pub checked_bytes: u64,
}

/// What a scrub found.
#[derive(Clone, Debug, Default)]
pub struct ScrubReport {
    /// What was checked.
    pub progress: ScrubProgress,
    /// Places on members that are wrong.
    pub damage: Vec<Damage>,
    /// Objects that lost data.
    pub spoilt: Vec<SpoiltObject>,
    /// Objects of which a member has a wrong column or copy, but nothing is lost: data set, object, path.
    pub mended: Vec<(String, u64, Option<String>)>,
    /// Data sets that were refused.
    pub refused: Vec<String>,
}

impl ScrubReport {
    /// Nothing was wrong anywhere.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty() && self.spoilt.is_empty()
    }
}

/// The walk's memory.
struct Walk<'a, D> {
    blocks: &'a Blocks<D>,
    seen: BTreeSet<Key>,
    report: ScrubReport,
    tell: &'a mut dyn FnMut(&ScrubProgress),
}

impl<D: Device + 'static> Pool<D> {
    /// Checks everything. `tell` is called now and then with the progress.
    ///
    /// # Errors
    /// Why not even the tree of data sets can be read.
    pub async fn scrub(
        &self,
        tell: &mut dyn FnMut(&ScrubProgress),
    ) -> Result<ScrubReport, ZfsError> {
        let _old = self.blocks.take_damage();
        let mut walk = Walk {
            blocks: &*self.blocks,
            seen: BTreeSet::new(),
            report: ScrubReport::default(),
            tell,
        };
        walk.pointer(&self.report.root.root, "the pool", 0, 0).await;
        walk.set(&self.meta).await;
        let mut datasets = self.datasets().await?;
        // The oldest first, so that a shared block is reported under the snapshot that has had it longest.
        datasets.sort_by_key(|dataset| dataset.created_txg);
        for dataset in datasets {
            let name = dataset.name.to_string();
            match self.object_set(&dataset.name).await {
                Ok(set) => {
                    walk.set(&set).await;
                    self.name_files(&dataset.name, &set, &mut walk.report).await;
                }
                Err(error) if error.is_refusal() => walk.report.refused.push(error.to_string()),
                Err(error) => walk.report.spoilt.push(SpoiltObject {
                    dataset: name,
                    object: 0,
                    path: None,
                    block_id: 0,
                    reason: error.to_string(),
                }),
            }
        }
        let mut report = walk.report;
        report.damage.sort();
        report.damage.dedup();
        Ok(report)
    }

    /// Adds paths to the objects of a file system that were hit.
    async fn name_files(&self, name: &DatasetName, set: &ObjectSet, report: &mut ScrubReport) {
        let shown = name.to_string();
        let mut wanted: BTreeSet<u64> = BTreeSet::new();
        wanted.extend(
            report
                .spoilt
                .iter()
                .filter(|one| one.dataset == shown)
                .map(|one| one.object),
        );
        wanted.extend(
            report
                .mended
                .iter()
                .filter(|one| one.0 == shown)
                .map(|one| one.1),
        );
        if wanted.is_empty() || set.header.kind != ObjectSetKind::FileSystem {
            return;
        }
        let paths = self.paths(name, &wanted).await.unwrap_or_default();
        for one in report.spoilt.iter_mut().filter(|one| one.dataset == shown) {
            one.path = paths.get(&one.object).cloned();
        }
        for one in report.mended.iter_mut().filter(|one| one.0 == shown) {
            one.2 = paths.get(&one.1).cloned();
        }
    }

    /// Paths of the wanted objects; directories that cannot be read are passed over.
    async fn paths(
        &self,
        name: &DatasetName,
        wanted: &BTreeSet<u64>,
    ) -> Result<BTreeMap<u64, String>, ZfsError> {
        let system = self.file_system(name).await?;
        let mut paths = BTreeMap::new();
        let mut walk = system.walk(system.root());
        for _ in 0..NAMES_MAX {
            let Some((place, _)) = walk.next().await else {
                break;
            };
            if wanted.contains(&place.number()) {
                paths.entry(place.number()).or_insert_with(|| place.shown());
            }
        }
        Ok(paths)
    }
}

impl<D: Device> Walk<'_, D> {
    /// All objects of a set. Blocks of dnodes that it shares with a set that was walked before are passed over: their
    /// objects are the same.
    async fn set(&mut self, set: &ObjectSet) {
        let meta = &set.header.meta;
        let per_block = (meta.block_bytes / DNODE_BYTES as u64).max(1);
        let mut dnode_blocks = Vec::new();
        self.tree(meta, &set.name, 0, Some(&mut dnode_blocks)).await;
        for (block_id, pointer) in dnode_blocks {
            let what = format!("dnodes of {}", set.name);
            // What cannot be read was reported by the walk over the tree above.
            let Ok(block) = self.blocks.cached(&pointer, &what).await else {
                continue;
            };
            let mut slot = 0;
            while let Some(bytes) = block
                .get(slot * DNODE_BYTES..)
                .filter(|bytes| !bytes.is_empty())
            {
                let number = block_id.wrapping_mul(per_block).wrapping_add(slot as u64);
                slot += 1;
                match Dnode::parse(bytes) {
                    Ok(dnode) if dnode.is_free() => {}
                    Ok(dnode) => {
                        slot += usize::from(dnode.extra_slots);
                        self.tree(&dnode, &set.name, number, None).await;
                    }
                    Err(error) => self.spoilt(&set.name, number, 0, error.to_string()),
                }
            }
        }
    }

    fn spoilt(&mut self, dataset: &str, object: u64, block_id: u64, reason: String) {
        let is_known = |one: &SpoiltObject| one.dataset == dataset && one.object == object;
        if !self.report.spoilt.iter().rev().take(4).any(is_known) {
            self.report.spoilt.push(SpoiltObject {
                dataset: dataset.to_owned(),
                object,
                path: None,
                block_id,
                reason,
            });
        }
    }

    /// All blocks of an object. Those with data that are good are put into `data`.
    async fn tree(
        &mut self,
        dnode: &Dnode,
        dataset: &str,
        object: u64,
        mut data: Option<&mut Vec<(u64, BlockPointer)>>,
    ) {
        let shift = dnode.fanout_shift();
        let level = usize::from(dnode.levels) - 1;
        let width = |level: usize| 1_u64.checked_shl(shift * level as u32).unwrap_or(0);
        let mut work: Vec<(BlockPointer, usize, u64)> = Vec::new();
        for (n, pointer) in dnode.pointers.iter().enumerate() {
            work.push((
                pointer.clone(),
                level,
                (n as u64).wrapping_mul(width(level)),
            ));
        }
        work.extend(dnode.spill.iter().map(|pointer| (pointer.clone(), 0, 0)));
        while !work.is_empty() {
            // Data blocks that lie together are checked together, pointers one by one.
            let first_level = work.last().map_or(0, |(_, level, _)| *level);
            let most = if first_level == 0 { AT_ONCE } else { 1 };
            let mut batch = Vec::new();
            while batch.len() < most
                && work
                    .last()
                    .is_some_and(|(_, level, _)| *level == first_level)
            {
                batch.extend(work.pop());
            }
            let results = self.batch(batch, dataset, object).await;
            for (pointer, level, first_block, block) in results {
                if level == 0 {
                    data.iter_mut()
                        .for_each(|data| data.push((first_block, pointer.clone())));
                    continue;
                }
                let block = block.whole();
                let pointers = block.chunks_exact(POINTER_BYTES).enumerate();
                let mut below = Vec::new();
                for (n, bytes) in pointers {
                    let block_id =
                        first_block.wrapping_add((n as u64).wrapping_mul(width(level - 1)));
                    match BlockPointer::parse(bytes) {
                        Ok(pointer) if pointer.is_hole() => {}
                        Ok(pointer) => below.push((pointer, level - 1, block_id)),
                        Err(error) => self.spoilt(dataset, object, block_id, error.to_string()),
                    }
                }
                work.extend(below.into_iter().rev());
            }
        }
    }

    /// Checks blocks; gives those that could be read and were not seen before.
    async fn batch(
        &mut self,
        batch: Vec<(BlockPointer, usize, u64)>,
        dataset: &str,
        object: u64,
    ) -> Vec<(BlockPointer, usize, u64, Parts)> {
        let seen = &mut self.seen;
        let new: Vec<_> = batch
            .into_iter()
            .filter(|(pointer, _, _)| key(pointer).is_none_or(|key| seen.insert(key)))
            .collect();
        let blocks = self.blocks;
        let name = format!("object {object} of {dataset}");
        let reads = new.iter().map(|(pointer, level, block_id)| {
            let what = format!("{name}, block {block_id} (level {level})");
            async move { blocks.read(pointer, &what, Extent::All).await }
        });
        let results = join_all(reads).await;
        let damage = blocks.take_damage();
        let is_mended = !damage.is_empty() && results.iter().all(Result::is_ok);
        self.report.damage.extend(damage);
        let last = self.report.mended.last();
        if is_mended && last.is_none_or(|last| last.0 != dataset || last.1 != object) {
            self.report.mended.push((dataset.to_owned(), object, None));
        }
        let mut good = Vec::new();
        for ((pointer, level, block_id), result) in new.into_iter().zip(results) {
            self.report.progress.blocks += 1;
            self.report.progress.checked_bytes = self
                .report
                .progress
                .checked_bytes
                .saturating_add(stored_bytes(&pointer));
            match result {
                Ok(block) => good.push((pointer, level, block_id, block)),
                Err(error) if error.is_refusal() => {
                    let text = error.to_string();
                    if !self.report.refused.contains(&text) && self.report.refused.len() < 1000 {
                        self.report.refused.push(text);
                    }
                }
                Err(error) => self.spoilt(dataset, object, block_id, error.to_string()),
            }
        }
        (self.tell)(&self.report.progress);
        good
    }

    async fn pointer(
        &mut self,
        pointer: &BlockPointer,
        dataset: &str,
        level: usize,
        block_id: u64,
    ) {
        self.batch(vec![(pointer.clone(), level, block_id)], dataset, 0)
            .await;
    }
}

fn stored_bytes(pointer: &BlockPointer) -> u64 {
    match &pointer.payload {
        plexum_format::zfs::Payload::Stored { copies, .. } => copies
            .iter()
            .flatten()
            .map(|copy| copy.allocated_bytes)
            .sum(),
        _ => 0,
    }
}
