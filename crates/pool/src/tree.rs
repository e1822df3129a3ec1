//! Trees of blocks: an object's blocks are read through all levels, and written again from the leaves up.
//!
//! Invariants:
//! - nothing that a root reaches is overwritten: a changed block, and every block above it, gets a new place;
//! - the fill of a pointer is the sum of those below it; the space that an object takes is that of its pointers;
//! - what is replaced is reported to the caller once, who decides what becomes of it.
//!
//! Source: zfs-write.md 1.4.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::{DNODE_BYTES, LEVELS_MAX};
use plexum_format::zfs::{DnodeImage, NewPointer, PointerImage};
use plexum_zfs::{Pool, fletcher4_of};

use crate::error::PoolError;
use crate::ground::{Ground, Shapes, Writes};
use crate::space::{Copies, Purpose, Space};

/// Type of the objects whose data are dnodes.
pub(crate) const KIND_DNODES: u8 = 10;
/// What waits for the members is written when it becomes this much.
const HELD_BYTES_MAX: usize = 16 << 20;

/// A block of an object: level and number.
pub(crate) type BlockKey = (u8, u64);
/// New contents of data blocks; `None`: a hole.
pub(crate) type Changes = BTreeMap<u64, Option<Rc<Vec<u8>>>>;

/// Where blocks that are on the members are read.
pub(crate) struct Source<D> {
    /// `None` while a pool is made: there is nothing to read.
    pub pool: Option<Rc<Pool<D>>>,
}

impl<D: Device> Source<D> {
    pub async fn read(&self, pointer: &PointerImage, what: &str) -> Result<Rc<Vec<u8>>, PoolError> {
        let Some(pool) = &self.pool else {
            return Err(PoolError::invalid(what, "nothing is on the members yet"));
        };
        Ok(pool.block(&pointer.parse()?, what).await?)
    }
}

/// Sums over blocks: space that users see, bytes as stored, bytes as users wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sums {
    pub used: i64,
    pub stored: i64,
    pub plain: i64,
}

impl Sums {
    pub fn of(shapes: &Shapes, pointer: &PointerImage) -> Self {
        let is_data = pointer.level() == 0 && !is_metadata(pointer.object_type());
        // What is in its pointer is stored nowhere.
        let stored = if pointer.is_embedded() {
            0
        } else {
            pointer.physical_bytes()
        };
        let plain = if is_data {
            pointer.logical_bytes()
        } else {
            stored
        };
        Self {
            used: shapes.used_bytes(&pointer.copies()).cast_signed(),
            stored: stored.cast_signed(),
            plain: plain.cast_signed(),
        }
    }

    pub fn add(&mut self, other: Self) {
        // On a damaged pool they may be anything; a sound one never comes near the limit.
        self.used = self.used.wrapping_add(other.used);
        self.stored = self.stored.wrapping_add(other.stored);
        self.plain = self.plain.wrapping_add(other.plain);
    }

    pub fn negative(self) -> Self {
        Self {
            used: self.used.wrapping_neg(),
            stored: self.stored.wrapping_neg(),
            plain: self.plain.wrapping_neg(),
        }
    }
}

/// Whether objects of a type hold metadata; see zfs-write.md 1.3.
fn is_metadata(kind: u8) -> bool {
    match kind {
        // Files, volumes, and what programs store without a type.
        19 | 23 | 25 | 26 => false,
        kind if kind & 0x80 != 0 => kind & 0x40 != 0,
        _ => true,
    }
}

/// What a commit did to an object set.
#[derive(Default)]
pub(crate) struct Outcome {
    /// Sums of all new blocks.
    pub born: Sums,
    /// What is no longer reached.
    pub dead: Vec<PointerImage>,
}

/// How new blocks get their places.
pub(crate) enum Addresses {
    /// As they come; so many copies of data blocks.
    Take {
        data_copies: usize,
        other_copies: usize,
    },
    /// They were chosen before, by object, level and number.
    Chosen(BTreeMap<(u64, BlockKey), Copies>),
}

/// What is needed to write blocks of one object set.
pub(crate) struct Writer<'a, D> {
    pub source: &'a Source<D>,
    pub ground: &'a Ground<D>,
    pub space: &'a mut Space,
    pub writes: &'a mut Writes,
    pub txg: u64,
    pub addresses: &'a Addresses,
    pub outcome: Outcome,
}

/// Levels that an object needs for its highest block.
fn levels_for(dnode: &DnodeImage, block_id_max: u64) -> u8 {
    let mut levels = dnode.levels().max(1);
    let reach = |levels: u8| {
        let shift = dnode.fanout_shift() * u32::from(levels - 1);
        (dnode.pointer_count() as u64)
            .checked_shl(shift)
            .unwrap_or(u64::MAX)
    };
    while levels < LEVELS_MAX && reach(levels) <= block_id_max {
        levels += 1;
    }
    levels
}

/// An object's tree while it gets more levels: what the blocks above the old ones begin with.
#[derive(Default)]
pub(crate) struct Grown(BTreeMap<u8, Vec<u8>>);

/// Gives the object the levels it needs for block `block_id_max`. Its old pointers move into a new block.
pub(crate) fn grow(dnode: &mut DnodeImage, block_id_max: u64) -> Grown {
    let mut grown = Grown::default();
    let levels = levels_for(dnode, block_id_max);
    for level in dnode.levels()..levels {
        let mut block = vec![0; dnode.indirect_bytes() as usize];
        for n in 0..dnode.pointer_count() {
            let pointer = dnode.pointer(n);
            block[n * POINTER_BYTES..(n + 1) * POINTER_BYTES].copy_from_slice(&pointer.0);
            dnode.set_pointer(n, &PointerImage::HOLE);
        }
        grown.0.insert(level, block);
        dnode.set_levels(level + 1);
    }
    dnode.set_block_id_max(dnode.block_id_max().max(block_id_max));
    grown
}

impl Grown {
    /// New blocks that hold something.
    fn filled(&self) -> impl Iterator<Item = u8> {
        let filled = self
            .0
            .iter()
            .filter(|(_, block)| block.iter().any(|byte| *byte != 0));
        filled.map(|(level, _)| *level)
    }
}

/// All blocks that are written again when these data blocks are.
pub(crate) fn touched(
    dnode: &DnodeImage,
    grown: &Grown,
    ids: impl Iterator<Item = u64>,
) -> BTreeSet<BlockKey> {
    let shift = dnode.fanout_shift();
    let mut found: BTreeSet<BlockKey> = ids.map(|id| (0, id)).collect();
    found.extend(grown.filled().map(|level| (level, 0)));
    for level in 1..dnode.levels() {
        let below: Vec<u64> = found
            .range((level - 1, 0)..(level, 0))
            .map(|key| key.1 >> shift)
            .collect();
        found.extend(below.into_iter().map(|id| (level, id)));
    }
    found
}

/// The pointer to a block of an object, which is a hole when one above it is.
pub(crate) async fn pointer_to<D: Device>(
    source: &Source<D>,
    dnode: &DnodeImage,
    grown: &Grown,
    key: BlockKey,
) -> Result<PointerImage, PoolError> {
    let (level, id) = key;
    let (shift, top) = (dnode.fanout_shift(), dnode.levels().saturating_sub(1));
    let index = |at: u8| id.checked_shr(shift * u32::from(at - level)).unwrap_or(0);
    if level > top {
        return Ok(PointerImage::HOLE);
    }
    let mut pointer = usize::try_from(index(top)).map_or(PointerImage::HOLE, |n| dnode.pointer(n));
    for above in (level + 1..=top).rev() {
        let inside = (index(above - 1) & ((1 << shift) - 1)) as usize * POINTER_BYTES;
        if index(above) == 0
            && let Some(block) = grown.0.get(&above)
        {
            pointer = PointerImage::of(&block[inside..]);
            continue;
        }
        if pointer.is_hole() {
            return Ok(PointerImage::HOLE);
        }
        let what = format!("pointers of level {above}");
        if pointer.is_embedded() || pointer.level() != above {
            return Err(PoolError::invalid(
                what,
                "a pointer of another level stands there",
            ));
        }
        let block = source.read(&pointer, &what).await?;
        pointer = PointerImage::of(block.get(inside..).unwrap_or_default());
    }
    Ok(pointer)
}

fn new_pointer(copies: Copies, block: &[u8], kind: u8, birth_txg: u64) -> NewPointer {
    NewPointer {
        copies,
        length_bytes: block.len() as u64,
        digest: fletcher4_of(block),
        object_type: kind,
        level: 0,
        birth_txg,
        fill: 1,
    }
}

/// The pointer to a data block.
pub(crate) fn pointer_for(copies: Copies, block: &[u8], kind: u8, birth_txg: u64) -> PointerImage {
    PointerImage::new(&new_pointer(copies, block, kind, birth_txg))
}

/// The object that is being written, as it was before.
#[derive(Clone, Copy)]
struct Walked<'a> {
    object: u64,
    dnode: &'a DnodeImage,
    grown: &'a Grown,
}

impl<D: Device> Writer<'_, D> {
    /// Writes the changed blocks of an object and all above them, but for those that were placed before; the dnode is
    /// what it becomes.
    pub async fn write_object(
        &mut self,
        object: u64,
        dnode: &mut DnodeImage,
        changes: &Changes,
        placed: &BTreeMap<u64, PointerImage>,
    ) -> Result<(), PoolError> {
        let Some((last, _)) = changes.last_key_value() else {
            return Ok(());
        };
        let grown = grow(dnode, *last);
        let (before, kind) = (dnode.clone(), dnode.kind());
        let mut used = dnode.used_bytes().cast_signed();
        let mut news: BTreeMap<u64, PointerImage> = BTreeMap::new();
        for (id, change) in changes {
            let old = pointer_to(self.source, &before, &grown, (0, *id)).await?;
            let new = match (change, placed.get(id)) {
                (None, _) => PointerImage::HOLE,
                (Some(_), Some(pointer)) => *pointer,
                (Some(block), None) => {
                    let fill = if kind == KIND_DNODES {
                        dnodes_in(block)
                    } else {
                        1
                    };
                    self.put(object, kind, (0, *id), block, fill).await?
                }
            };
            used = used.wrapping_add(self.replaced(&old, &new));
            news.insert(*id, new);
        }
        let shift = dnode.fanout_shift();
        for level in 1..dnode.levels() {
            let mut parents: BTreeMap<u64, Vec<(usize, PointerImage)>> = BTreeMap::new();
            if grown.filled().any(|filled| filled == level) {
                parents.insert(0, Vec::new());
            }
            for (id, pointer) in std::mem::take(&mut news) {
                let index = (id & ((1 << shift) - 1)) as usize;
                parents
                    .entry(id >> shift)
                    .or_default()
                    .push((index, pointer));
            }
            for (id, updates) in parents {
                let walked = Walked {
                    object,
                    dnode: &before,
                    grown: &grown,
                };
                let (old, new) = self.write_parent(&walked, (level, id), &updates).await?;
                used = used.wrapping_add(self.replaced(&old, &new));
                news.insert(id, new);
            }
        }
        for (id, pointer) in news {
            if id >= dnode.pointer_count() as u64 {
                let what = format!("object {object}");
                return Err(PoolError::invalid(what, "it cannot have as many blocks"));
            }
            dnode.set_pointer(id as usize, &pointer);
        }
        dnode.set_used_bytes(u64::try_from(used).unwrap_or(0));
        Ok(())
    }

    /// Writes a block of pointers with some of them replaced: the pointer to it before and now.
    async fn write_parent(
        &mut self,
        walked: &Walked<'_>,
        key: BlockKey,
        updates: &[(usize, PointerImage)],
    ) -> Result<(PointerImage, PointerImage), PoolError> {
        let Walked {
            object,
            dnode,
            grown,
        } = *walked;
        let old = pointer_to(self.source, dnode, grown, key).await?;
        let mut block = match grown.0.get(&key.0) {
            Some(block) if key.1 == 0 => block.clone(),
            _ if old.is_hole() => vec![0; dnode.indirect_bytes() as usize],
            _ => self.source.read(&old, "pointers").await?.to_vec(),
        };
        for (index, pointer) in updates {
            let at = index * POINTER_BYTES;
            block[at..at + POINTER_BYTES].copy_from_slice(&pointer.0);
        }
        // A block of nothing but holes that were never written is none.
        if block.iter().all(|byte| *byte == 0) {
            return Ok((old, PointerImage::HOLE));
        }
        let pointers = block.chunks_exact(POINTER_BYTES).map(PointerImage::of);
        let fill = pointers
            .map(|pointer| pointer.fill())
            .fold(0, u64::wrapping_add);
        let new = self.put(object, dnode.kind(), key, &block, fill).await?;
        Ok((old, new))
    }

    /// What an object's space changes by when a pointer is replaced; the sums of the set are kept.
    fn replaced(&mut self, old: &PointerImage, new: &PointerImage) -> i64 {
        let (gone, come) = (
            Sums::of(&self.ground.shapes, old),
            Sums::of(&self.ground.shapes, new),
        );
        self.outcome.born.add(come);
        if !old.is_hole() {
            self.outcome.dead.push(*old);
        }
        come.used.wrapping_sub(gone.used)
    }

    /// Writes a block to its new place.
    async fn put(
        &mut self,
        object: u64,
        kind: u8,
        key: BlockKey,
        block: &[u8],
        fill: u64,
    ) -> Result<PointerImage, PoolError> {
        let length_bytes = block.len() as u64;
        let copies = match self.addresses {
            Addresses::Take {
                data_copies,
                other_copies,
            } => {
                let is_data = key.0 == 0 && !is_metadata(kind);
                let count = if is_data { *data_copies } else { *other_copies };
                let space = &mut *self.space;
                space.allocate(self.ground, length_bytes, count, Purpose::Upkeep)?
            }
            Addresses::Chosen(chosen) => {
                let copies = chosen.get(&(object, key)).copied();
                copies.expect("the plan has every block that is written")
            }
        };
        for copy in copies.iter().flatten() {
            self.ground.put(self.writes, copy, block)?;
        }
        if self.writes.held_bytes() > HELD_BYTES_MAX {
            self.ground.write_out(self.writes).await?;
        }
        Ok(PointerImage::new(&NewPointer {
            level: key.0,
            fill,
            ..new_pointer(copies, block, kind, self.txg)
        }))
    }

    /// Writes the block of an object set, which is not in an object; `old` is the one that it replaces.
    pub async fn write_set_block(
        &mut self,
        block: &[u8],
        fill: u64,
        old: &PointerImage,
    ) -> Result<PointerImage, PoolError> {
        let new = self
            .put(SET_BLOCK.0, KIND_SET, SET_BLOCK.1, block, fill)
            .await?;
        let _ = self.replaced(old, &new);
        Ok(new)
    }
}

/// Type of the block of an object set, and the name under which its place is planned: no object has this number.
pub(crate) const KIND_SET: u8 = 11;
pub(crate) const SET_BLOCK: (u64, BlockKey) = (u64::MAX, (0, 0));

/// Objects in a block of dnodes.
pub(crate) fn dnodes_in(block: &[u8]) -> u64 {
    let (mut at, mut count) = (0, 0);
    while at + DNODE_BYTES <= block.len() {
        if block[at] != 0 {
            count += 1;
            at += usize::from(block[at + 12]) * DNODE_BYTES;
        }
        at += DNODE_BYTES;
    }
    count
}
