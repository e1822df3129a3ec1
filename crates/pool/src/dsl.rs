//! Directories, data sets, and lists of dead blocks: their sums when blocks are born and die.
//!
//! Source: zfs-write.md 1.3.

use plexum_block::device::Device;
use plexum_format::zfs::{DnodeImage, NewObject, PointerImage};

use crate::error::PoolError;
use crate::ground::Shapes;
use crate::mutant::{DeliberateBug, Mutant};
use crate::set::{SMALL_INDIRECT_SHIFT, SetState};
use crate::space::Space;
use crate::tree::{Outcome, Source, Sums};

/// Types of objects.
pub(crate) mod kind {
    pub const OBJECT_DIRECTORY: u8 = 1;
    pub const OBJECT_ARRAY: u8 = 2;
    pub const PACKED_LIST: u8 = 3;
    pub const PACKED_LIST_BYTES: u8 = 4;
    pub const DEAD_BLOCKS: u8 = 5;
    pub const DEAD_BLOCKS_HEAD: u8 = 6;
    pub const SPACE_MAP_HEAD: u8 = 7;
    pub const SPACE_MAP: u8 = 8;
    pub const DSL_DIR: u8 = 12;
    pub const CHILDREN: u8 = 13;
    pub const SNAPSHOT_NAMES: u8 = 14;
    pub const PROPERTIES: u8 = 15;
    pub const DSL_DATASET: u8 = 16;
    pub const VOLUME: u8 = 23;
    pub const VOLUME_PROPERTIES: u8 = 24;
    pub const NEXT_CLONES: u8 = 37;
    pub const DEADLIST: u8 = 50;
    pub const DEADLIST_HEAD: u8 = 51;
    pub const CLONES: u8 = 52;
    pub const FEATURES: u8 = 0xC4;
}

/// Words of a directory.
pub(crate) mod dir {
    pub const CREATED_S: usize = 0;
    pub const HEAD: usize = 1;
    pub const PARENT: usize = 2;
    pub const ORIGIN: usize = 3;
    pub const CHILDREN: usize = 4;
    pub const USED: usize = 5;
    pub const STORED: usize = 6;
    pub const PLAIN: usize = 7;
    pub const QUOTA: usize = 8;
    pub const RESERVED: usize = 9;
    pub const PROPERTIES: usize = 10;
    pub const FLAGS: usize = 12;
    pub const BY_HEAD: usize = 13;
    pub const BY_SNAPSHOTS: usize = 14;
    pub const BY_CHILDREN: usize = 15;
    pub const BY_OWN_RESERVATION: usize = 17;
    pub const CLONES: usize = 18;
}

/// Words of a data set.
pub(crate) mod set {
    pub const DIR: usize = 0;
    pub const PREVIOUS: usize = 1;
    pub const PREVIOUS_TXG: usize = 2;
    pub const NEXT: usize = 3;
    pub const SNAPSHOT_NAMES: usize = 4;
    pub const CHILD_COUNT: usize = 5;
    pub const CREATED_S: usize = 6;
    pub const CREATED_TXG: usize = 7;
    pub const DEADLIST: usize = 8;
    pub const REFERENCED: usize = 9;
    pub const STORED: usize = 10;
    pub const PLAIN: usize = 11;
    pub const UNIQUE: usize = 12;
    pub const FSID: usize = 13;
    pub const GUID: usize = 14;
    pub const FLAGS: usize = 15;
    pub const ROOT: usize = 16;
    pub const NEXT_CLONES: usize = 32;
}

/// "The parts of the used space are recorded", and "unique is exact".
pub(crate) const FLAG_BREAKDOWN: u64 = 1;
pub(crate) const FLAG_UNIQUE_ACCURATE: u64 = 4;
/// Bytes of the bonus areas.
pub(crate) const DIR_BYTES: usize = 256;
pub(crate) const DATASET_BYTES: usize = 320;
pub(crate) const DEADLIST_BYTES: usize = 320;
pub(crate) const DEAD_BLOCKS_BYTES: usize = 48;
/// Bytes of a block of a list of dead blocks, and of an entry.
const DEAD_BLOCK_BYTES: u64 = 128 << 10;
const ENTRY_BYTES: u64 = 128;
/// Most directories above another.
const DEPTH_MAX: usize = 64;

/// A new object of a type, with a bonus area of another.
pub(crate) fn object(kind: u8, block_bytes: u64, bonus_kind: u8, bonus_bytes: usize) -> NewObject {
    NewObject {
        kind,
        block_bytes,
        indirect_shift: SMALL_INDIRECT_SHIFT,
        bonus_kind,
        bonus_bytes,
    }
}

/// A new list of dead blocks.
pub(crate) fn dead_blocks() -> NewObject {
    object(
        kind::DEAD_BLOCKS,
        DEAD_BLOCK_BYTES,
        kind::DEAD_BLOCKS_HEAD,
        DEAD_BLOCKS_BYTES,
    )
}

/// The root pointer of a data set.
pub(crate) fn root_of(dataset: &DnodeImage) -> PointerImage {
    PointerImage::of(dataset.bonus().get(8 * set::ROOT..).unwrap_or_default())
}

/// Adds to a word of a bonus area; the sums never go below zero on a sound pool, and stop there on another.
pub(crate) fn add_word(dnode: &mut DnodeImage, word: usize, delta: i64) {
    let sum = dnode.bonus_word(word).cast_signed().saturating_add(delta);
    dnode.set_bonus_word(word, sum.max(0).cast_unsigned());
}

fn add_dir(dnode: &mut DnodeImage, part: usize, sums: Sums) {
    add_word(dnode, dir::USED, sums.used);
    add_word(dnode, dir::STORED, sums.stored);
    add_word(dnode, dir::PLAIN, sums.plain);
    if dnode.bonus_word(dir::FLAGS) & FLAG_BREAKDOWN != 0 {
        add_word(dnode, part, sums.used);
    }
}

/// Adds sums to a directory, as a part of its data set, and to all above it.
pub(crate) async fn use_space<D: Device>(
    meta: &mut SetState,
    source: &Source<D>,
    directory: u64,
    sums: Sums,
) -> Result<(), PoolError> {
    use_space_by(meta, source, (directory, dir::BY_HEAD), sums).await
}

/// The same, as any part.
pub(crate) async fn use_space_by<D: Device>(
    meta: &mut SetState,
    source: &Source<D>,
    (directory, part): (u64, usize),
    sums: Sums,
) -> Result<(), PoolError> {
    let (mut number, mut part) = (directory, part);
    for _ in 0..DEPTH_MAX {
        let changed = meta.change(source, number).await?;
        add_dir(&mut changed.dnode, part, sums);
        number = changed.dnode.bonus_word(dir::PARENT);
        part = dir::BY_CHILDREN;
        if number == 0 {
            return Ok(());
        }
    }
    Err(PoolError::invalid(
        format!("directory {directory}"),
        "too many others are above it",
    ))
}

/// Enters into the sums of a data set what a commit did to it: births and deaths of its blocks.
pub(crate) async fn account<D: Device>(
    meta: &mut SetState,
    source: &Source<D>,
    shapes: &Shapes,
    space: &mut Space,
    dataset: u64,
    outcome: &Outcome,
) -> Result<(), PoolError> {
    let dnode = meta.dnode(source, dataset).await?;
    let previous = dnode.bonus_word(set::PREVIOUS);
    let previous_txg = dnode.bonus_word(set::PREVIOUS_TXG);
    let directory = dnode.bonus_word(set::DIR);
    let mut here = outcome.born;
    let (mut unique, mut owned) = (outcome.born.used, outcome.born);
    let mut kept = Vec::new();
    for dead in &outcome.dead {
        let sums = Sums::of(shapes, dead).negative();
        here.add(sums);
        if dead.birth_txg() > previous_txg {
            unique += sums.used;
            owned.add(sums);
            for copy in dead.copies() {
                space.give_back(&copy)?;
            }
        } else {
            kept.push(*dead);
        }
    }
    let changed = meta.change(source, dataset).await?;
    add_word(&mut changed.dnode, set::REFERENCED, here.used);
    add_word(&mut changed.dnode, set::STORED, here.stored);
    add_word(&mut changed.dnode, set::PLAIN, here.plain);
    add_word(&mut changed.dnode, set::UNIQUE, unique);
    use_space(meta, source, directory, counted(owned, space.bug)).await?;
    if kept.is_empty() {
        return Ok(());
    }
    keep_dead(meta, source, (shapes, space.bug), dataset, &kept).await?;
    let before = meta.dnode(source, previous).await?;
    let is_ours = before.bonus_word(set::NEXT) == dataset;
    let before_txg = before.bonus_word(set::PREVIOUS_TXG);
    let origin = meta.dnode(source, directory).await?.bonus_word(dir::ORIGIN);
    let origin_txg = match origin {
        0 => 0,
        origin => meta
            .dnode(source, origin)
            .await?
            .bonus_word(set::CREATED_TXG),
    };
    let (mut alone, mut moved) = (0, 0);
    for dead in &kept {
        let used = Sums::of(shapes, dead).used;
        if is_ours && dead.birth_txg() > before_txg {
            alone += used;
        }
        if dead.birth_txg() > origin_txg {
            moved += used;
        }
    }
    if alone != 0 {
        let changed = meta.change(source, previous).await?;
        add_word(&mut changed.dnode, set::UNIQUE, alone);
    }
    let changed = meta.change(source, directory).await?;
    if changed.dnode.bonus_word(dir::FLAGS) & FLAG_BREAKDOWN != 0 {
        add_word(&mut changed.dnode, dir::BY_HEAD, -moved);
        add_word(&mut changed.dnode, dir::BY_SNAPSHOTS, moved);
    }
    Ok(())
}

/// What is counted of these sums: all, but for the bug `SumsSkipped`.
fn counted(sums: Sums, bug: DeliberateBug) -> Sums {
    match bug.is(Mutant::SumsSkipped) {
        true => Sums::default(),
        false => sums,
    }
}

/// Puts blocks that snapshots still reach into the data set's deadlist.
async fn keep_dead<D: Device>(
    meta: &mut SetState,
    source: &Source<D>,
    (shapes, bug): (&Shapes, DeliberateBug),
    dataset: u64,
    dead: &[PointerImage],
) -> Result<(), PoolError> {
    let deadlist = meta.dnode(source, dataset).await?.bonus_word(set::DEADLIST);
    let what = || format!("deadlist {deadlist}");
    let mut keys: Vec<(u64, u64)> = Vec::new();
    for entry in meta.zap(source, deadlist).await? {
        let key = u64::from_str_radix(&entry.text(), 16).ok();
        let (Some(key), Some(list)) = (key, entry.number()) else {
            return Err(PoolError::invalid(what(), "it has an entry that is none"));
        };
        keys.push((key, list));
    }
    keys.sort_unstable();
    let mut total = Sums::default();
    let mut parts: Vec<Vec<&PointerImage>> = vec![Vec::new(); keys.len()];
    for pointer in dead {
        let place = keys.iter().rposition(|(key, _)| *key < pointer.birth_txg());
        let place =
            place.ok_or_else(|| PoolError::invalid(what(), "it has no place for an old block"))?;
        let is_off = bug.is(Mutant::DeadlistKeyOff);
        parts[place.saturating_sub(usize::from(is_off))].push(pointer);
        total.add(Sums::of(shapes, pointer));
    }
    let empty = meta.zap_number(source, 1, "empty_bpobj").await?;
    for ((key, list), part) in keys.into_iter().zip(parts) {
        if part.is_empty() {
            continue;
        }
        if Some(list) == empty {
            return Err(PoolError::Refused(format!(
                "{}: list {key:x} is one that several share, which is not written here yet",
                what()
            )));
        }
        append_dead(meta, source, shapes, list, &part).await?;
    }
    let changed = meta.change(source, deadlist).await?;
    add_word(&mut changed.dnode, 0, total.used);
    add_word(&mut changed.dnode, 1, total.stored);
    add_word(&mut changed.dnode, 2, total.plain);
    Ok(())
}

/// Adds blocks to a list of dead ones.
pub(crate) async fn append_dead<D: Device>(
    meta: &mut SetState,
    source: &Source<D>,
    shapes: &Shapes,
    list: u64,
    dead: &[&PointerImage],
) -> Result<(), PoolError> {
    let count = meta.dnode(source, list).await?.bonus_word(0);
    let bytes: Vec<u8> = dead
        .iter()
        .flat_map(|pointer| pointer.as_dead().0)
        .collect();
    meta.write(list, source, count * ENTRY_BYTES, &bytes)
        .await?;
    let mut sums = Sums::default();
    dead.iter()
        .for_each(|pointer| sums.add(Sums::of(shapes, pointer)));
    let changed = meta.change(source, list).await?;
    add_word(&mut changed.dnode, 0, dead.len() as i64);
    add_word(&mut changed.dnode, 1, sums.used);
    add_word(&mut changed.dnode, 2, sums.stored);
    add_word(&mut changed.dnode, 3, sums.plain);
    Ok(())
}
