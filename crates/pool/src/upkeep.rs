//! Members are given what they missed, and what is wrong on them is made good: a walk over every block that the last
//! root reaches.
//!
//! Invariants:
//! - a block is written in place only with contents that have its checksum;
//! - space that is freed while a walk is on its way is not given out before its end: a pointer that was found earlier
//!   never leads to another block; who needs the space ends the walk, which begins again;
//! - a member has all that it missed before the pool says so: a walk has given what was missed when it began, to those
//!   that were there; who comes later ends it, and it begins again.
//!
//! Source: zfs-write.md 1.8.

use std::collections::BTreeSet;
use std::ops::Range;

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::{DATA_OFFSET_BYTES, DnodeImage, Dva, PointerImage};
use plexum_zfs::{Damage, StoredExtent, ZfsError};

use crate::dsl::{dir, kind, root_of};
use crate::error::PoolError;
use crate::ground::{Leaf, Whom, Writes};
use crate::mutant::Mutant;
use crate::state::{ConfigState, WritablePool};
use crate::tree::{KIND_DNODES, KIND_SET};

/// Where an object set has dnodes beside its own.
const DNODES_IN_SET: [usize; 4] = [0, 1024, 1536, 2048];
/// Most reasons that are kept.
const REASONS_MAX: usize = 100;

/// What a walk does with each block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Gives members what they missed.
    Rebuild,
    /// Reads all copies and columns, and writes those again that are wrong.
    Scrub,
    /// Gives the successor of this identity everything that the member has whose place it is to take.
    Fill(u64),
}

/// What a walk has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpkeepReport {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Their bytes, as stored in one copy.
    pub bytes: u64,
    /// Bytes that were written to members.
    pub repaired_bytes: u64,
    /// What could not be read or repaired: the first hundred of them.
    pub lost: Vec<String>,
    /// All of them.
    pub lost_count: u64,
}

/// A walk on its way.
pub struct Walk {
    task: Task,
    work: Vec<PointerImage>,
    /// Blocks with pointers that were followed.
    seen: BTreeSet<(u32, u64, u64)>,
    /// What members that were there when it began had missed: nothing else is given by it for certain.
    given: Vec<(u64, Vec<Range<u64>>)>,
    /// What was done.
    pub report: UpkeepReport,
}

impl Walk {
    /// Whether there is nothing more to do.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.work.is_empty()
    }

    fn lose(&mut self, reason: String) {
        self.report.lost_count += 1;
        if self.report.lost.len() < REASONS_MAX {
            self.report.lost.push(reason);
        }
    }
}

impl<D: Device> WritablePool<D> {
    /// Begins a walk over what the last root reaches.
    pub fn begin_walk(&mut self, task: Task) -> Walk {
        self.space.hold();
        Walk {
            task,
            work: vec![self.meta.root],
            seen: BTreeSet::new(),
            given: self.missed_now(),
            report: UpkeepReport::default(),
        }
    }

    /// Goes on with a walk for `count` blocks. `false`: it was ended, since its space was needed or a member
    /// has returned, and has to begin again.
    ///
    /// # Errors
    /// Of writing to members that cannot be spared.
    pub async fn walk(&mut self, walk: &mut Walk, count: usize) -> Result<bool, PoolError> {
        self.check_frozen()?;
        if !self.space.is_held() {
            return Ok(false);
        }
        // Nobody is to be given anything any more: whoever began it is told by the end.
        let has_end = |new| !self.ground.leaves().any(|leaf| is_coming(leaf, new));
        if matches!(walk.task, Task::Fill(new) if has_end(new)) {
            walk.work.clear();
        }
        let mut writes = Writes::default();
        for _ in 0..count {
            let Some(pointer) = walk.work.pop() else {
                break;
            };
            self.visit(walk, &pointer, &mut writes).await?;
        }
        self.ground.write_out(&mut writes).await?;
        Ok(true)
    }

    /// Bytes of the blocks of all data sets, as stored in one copy.
    pub(crate) async fn stored_bytes(&self) -> Result<u64, PoolError> {
        self.word(self.landmarks.root_dir, dir::STORED).await
    }

    /// Ends what keeps freed space from being given out: a walk that is on its way has to begin again.
    pub fn end_hold(&mut self) {
        self.space.release();
    }

    /// Somebody has come for whom a walk that is on its way has passed blocks already: it has to begin again.
    pub(crate) fn end_hold_for_newcomer(&mut self) {
        if !self.bug.is(Mutant::WalkCreditsAll) {
            self.end_hold();
        }
    }

    /// What members that are there are known to have missed.
    fn missed_now(&self) -> Vec<(u64, Vec<Range<u64>>)> {
        let there = self.ground.leaves().filter(|leaf| leaf.is_in());
        let missed = there.filter_map(|leaf| {
            let missed = self.missed.get(&leaf.guid)?;
            Some((leaf.guid, missed.txgs.iter().collect()))
        });
        missed.collect()
    }

    /// Ends a walk that is done. What was missed by members that have all of it now is a part of the next commit.
    ///
    /// # Errors
    /// Of flushing members that cannot be spared.
    pub async fn end_walk(&mut self, walk: Walk) -> Result<UpkeepReport, PoolError> {
        self.ground.flush().await?;
        let is_whole = self.space.is_held() && walk.is_done() && walk.report.lost_count == 0;
        self.space.release();
        if walk.task == Task::Rebuild && is_whole {
            let given = match self.bug.is(Mutant::WalkCreditsAll) {
                true => self.missed_now(),
                false => walk.given,
            };
            for (guid, given) in &given {
                let leaf = self.ground.leaves().find(|leaf| leaf.guid == *guid);
                let Some(leaf) = leaf.filter(|leaf| leaf.is_in()) else {
                    continue;
                };
                let Some(missed) = self.missed.get_mut(guid) else {
                    continue;
                };
                if missed.remove(given) {
                    leaf.missed.set(missed.txgs.iter().collect());
                    self.config_state = ConfigState::Changed;
                }
            }
        }
        Ok(walk.report)
    }

    /// A whole walk at once; `tell` hears of its progress.
    ///
    /// # Errors
    /// As [`walk`](Self::walk).
    pub async fn walk_all(
        &mut self,
        task: Task,
        tell: &mut dyn FnMut(&UpkeepReport),
    ) -> Result<UpkeepReport, PoolError> {
        const STEP: usize = 256;
        let mut walk = self.begin_walk(task);
        while !walk.is_done() {
            self.walk(&mut walk, STEP).await?;
            tell(&walk.report);
        }
        self.end_walk(walk).await
    }

    async fn visit(
        &mut self,
        walk: &mut Walk,
        pointer: &PointerImage,
        writes: &mut Writes,
    ) -> Result<(), PoolError> {
        if pointer.is_hole() || pointer.is_embedded() || !self.concerns(walk.task, pointer) {
            return Ok(());
        }
        walk.report.blocks += 1;
        walk.report.bytes += pointer.physical_bytes();
        match self.repair(walk.task, pointer, writes).await {
            Ok(bytes) => walk.report.repaired_bytes += bytes,
            Err(error @ PoolError::Io { .. }) => return Err(error),
            Err(error) => walk.lose(error.to_string()),
        }
        let kind = pointer.object_type();
        if pointer.level() == 0 && kind != KIND_DNODES && kind != KIND_SET {
            return Ok(());
        }
        let first = pointer.copies().first().copied();
        let key = first.map(|copy| (copy.plex_id, copy.offset_bytes, pointer.birth_txg()));
        if key.is_some_and(|key| !walk.seen.insert(key)) {
            return Ok(());
        }
        // What cannot be read was counted above.
        if let Ok(block) = self.source.read(pointer, "a block with pointers").await {
            walk.work.extend(below(pointer, &block));
        }
        Ok(())
    }

    /// Whether the block, or something below it, is to be looked at: nothing below was born later.
    fn concerns(&self, task: Task, pointer: &PointerImage) -> bool {
        if task != Task::Rebuild {
            return true;
        }
        let missed = self.missed.values().filter_map(|missed| {
            let first = missed.txgs.iter().next()?;
            Some(first.start)
        });
        missed
            .min()
            .is_some_and(|first| pointer.birth_txg() >= first)
    }

    /// Notes the parts of a block that have to be written again; gives their bytes.
    async fn repair(
        &self,
        task: Task,
        pointer: &PointerImage,
        writes: &mut Writes,
    ) -> Result<u64, PoolError> {
        let Some(pool) = &self.source.pool else {
            return Ok(0);
        };
        let birth = match pointer.word(9) {
            0 => pointer.birth_txg(),
            physical => physical,
        };
        let lacks = |leaf: &Leaf<D>| match task {
            Task::Fill(new) => is_coming(leaf, new).then_some(Whom::Successor),
            Task::Rebuild => {
                let missed = self.missed.get(&leaf.guid).filter(|_| leaf.is_in());
                let is_behind =
                    missed.is_some_and(|missed| missed.txgs.overlaps(&(birth..birth + 1)));
                is_behind.then_some(Whom::Both)
            }
            Task::Scrub => None,
        };
        let wanted = task == Task::Scrub || self.ground.leaves().any(|leaf| lacks(leaf).is_some());
        if !wanted {
            return Ok(0);
        }
        let parsed = pointer.parse()?;
        let what = format!(
            "a block of type {}, level {}, of transaction group {birth}",
            pointer.object_type(),
            pointer.level()
        );
        let extent = match task {
            Task::Scrub => StoredExtent::All,
            _ => StoredExtent::Needed,
        };
        let _old = pool.take_damage();
        let block = pool.stored(&parsed, &what, extent).await?;
        let damage = pool.take_damage();
        let mut repaired = 0;
        for copy in pointer.copies() {
            let one = Part {
                copy: &copy,
                block: &block,
                damage: &damage,
            };
            repaired += self.write_parts(&one, &lacks, writes)?;
        }
        Ok(repaired)
    }

    fn write_parts(
        &self,
        part: &Part<'_>,
        lacks: &dyn Fn(&Leaf<D>) -> Option<Whom>,
        writes: &mut Writes,
    ) -> Result<u64, PoolError> {
        let Part {
            copy,
            block,
            damage,
        } = *part;
        if copy.is_gang {
            let what = format!("the gang block at byte {}", copy.offset_bytes);
            return Err(PoolError::Zfs(ZfsError::Unsupported {
                what,
                reason: "its parts are not written again here".into(),
            }));
        }
        let plex = self.ground.plex(copy.plex_id)?;
        let mut repaired = 0;
        for (slot, offset, bytes) in plex.parts(copy.offset_bytes, block)? {
            let leaf = &plex.leaves[slot];
            let at = leaf.place.start + DATA_OFFSET_BYTES + offset;
            let is_wrong = |one: &Damage| one.member == leaf.name && one.offset_bytes == at;
            let whom = match leaf.is_in() && damage.iter().any(is_wrong) {
                true => Some(Whom::Both),
                false => lacks(leaf),
            };
            if let Some(whom) = whom {
                repaired += bytes.len() as u64;
                self.ground
                    .put_part(writes, (plex.id, slot, whom), (offset, &bytes));
            }
        }
        Ok(repaired)
    }

    /// Blocks that a read found wrong on some member are written there again.
    pub(crate) async fn heal(&self, pointers: &[PointerImage]) -> Result<(), PoolError> {
        let mut writes = Writes::default();
        for pointer in pointers {
            if !pointer.is_hole() && !pointer.is_embedded() {
                // What cannot be mended was an error of the read, or stays as it is.
                let _ = self.repair(Task::Scrub, pointer, &mut writes).await;
            }
        }
        self.ground.write_out(&mut writes).await
    }
}

/// Whether the member has this successor, and it can be written.
fn is_coming<D>(leaf: &Leaf<D>, guid: u64) -> bool {
    let coming = leaf.successor.as_deref();
    coming.is_some_and(|one| one.guid == guid && one.is_in())
}

/// One copy of a block, and what was found wrong with the block.
struct Part<'a> {
    copy: &'a Dva,
    block: &'a [u8],
    damage: &'a [Damage],
}

/// What a block points to.
pub(crate) fn below(pointer: &PointerImage, block: &[u8]) -> Vec<PointerImage> {
    if pointer.level() > 0 {
        let pointers = block.chunks_exact(POINTER_BYTES).rev();
        return pointers.map(PointerImage::of).collect();
    }
    let mut found = Vec::new();
    let mut take = |bytes: &[u8]| {
        let Ok(Some(dnode)) = DnodeImage::checked(bytes) else {
            return 1;
        };
        found.extend((0..dnode.pointer_count()).map(|n| dnode.pointer(n)));
        found.extend(dnode.spill());
        // Data sets are objects of the pool's own set.
        if dnode.bonus_kind() == kind::DSL_DATASET {
            found.push(root_of(&dnode));
        }
        dnode.slots()
    };
    if pointer.object_type() == KIND_SET {
        let sets = DNODES_IN_SET.iter();
        sets.filter_map(|at| block.get(*at..at + DNODE_BYTES))
            .for_each(|bytes| {
                take(bytes);
            });
        return found;
    }
    let mut slot = 0;
    while let Some(bytes) = block
        .get(slot * DNODE_BYTES..)
        .filter(|rest| !rest.is_empty())
    {
        slot += take(bytes);
    }
    found
}
