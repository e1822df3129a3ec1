//! Lists of dead blocks and the deadlists made of them: which blocks died between a snapshot and what comes after it,
//! by the snapshots that had them first.
//!
//! A deadlist has a list for each earlier snapshot: key k holds blocks that were born after transaction group k, and
//! not after the next key.
//!
//! Source: zfs-write.md 1.3.

use std::collections::BTreeMap;

use plexum_block::device::Device;
use plexum_format::zfs::PointerImage;
use plexum_format::zfs::blockptr::POINTER_BYTES;

use crate::dsl::{self, add_word};
use crate::error::PoolError;
use crate::ground::Shapes;
use crate::seed::Seed;
use crate::set::SetState;
use crate::tree::{Source, Sums};

/// Most blocks, lists and keys that are read.
const BLOCKS_MAX: u64 = 1 << 24;
const LISTS_MAX: usize = 1 << 17;

/// A deadlist as it is in the pool.
pub(crate) struct Deadlist {
    pub object: u64,
    /// Lists by their keys.
    pub lists: BTreeMap<u64, u64>,
}

/// What is in a list of dead blocks and in the lists in it.
#[derive(Default)]
pub(crate) struct DeadBlocks {
    pub blocks: Vec<PointerImage>,
    /// The list's own number, those of the lists in it, and those of the objects that name them.
    objects: Vec<u64>,
}

impl DeadBlocks {
    /// Reads a list.
    pub async fn read<D: Device>(
        meta: &SetState,
        source: &Source<D>,
        list: u64,
    ) -> Result<Self, PoolError> {
        let mut found = Self::default();
        let mut work = vec![list];
        while let Some(number) = work.pop() {
            let what = format!("list of dead blocks {number}");
            if found.objects.len() > LISTS_MAX || found.objects.contains(&number) {
                return Err(PoolError::invalid(
                    what,
                    "it is in itself, or too many are in it",
                ));
            }
            found.objects.push(number);
            let head = meta.dnode(source, number).await?;
            let count = head.bonus_word(0);
            if count > BLOCKS_MAX {
                return Err(PoolError::invalid(what, format!("it has {count} blocks")));
            }
            let bytes = meta
                .bytes(number, source, count * POINTER_BYTES as u64)
                .await?;
            let blocks = bytes.chunks_exact(POINTER_BYTES);
            found.blocks.extend(blocks.map(PointerImage::of));
            let (below, below_count) = (head.bonus_word(4), head.bonus_word(5));
            if below != 0 {
                found.objects.push(below);
                let bytes = meta
                    .bytes(below, source, 8 * below_count.min(LISTS_MAX as u64))
                    .await?;
                let (numbers, _) = bytes.as_chunks::<8>();
                work.extend(numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)));
            }
        }
        Ok(found)
    }

    /// What the blocks add up to.
    pub fn sums(&self, shapes: &Shapes) -> Sums {
        let mut sums = Sums::default();
        self.blocks
            .iter()
            .for_each(|block| sums.add(Sums::of(shapes, block)));
        sums
    }

    /// Removes the list and all in it; the blocks are the caller's.
    pub async fn remove<D: Device>(
        &self,
        meta: &mut SetState,
        source: &Source<D>,
    ) -> Result<(), PoolError> {
        for number in &self.objects {
            meta.remove(source, *number).await?;
        }
        Ok(())
    }
}

/// What it takes to change deadlists.
pub(crate) struct Lists<'a, D> {
    pub meta: &'a mut SetState,
    pub source: &'a Source<D>,
    pub shapes: &'a Shapes,
    pub wall_s: u64,
}

impl<D: Device> Lists<'_, D> {
    /// Finds a deadlist.
    pub async fn open(&self, object: u64) -> Result<Deadlist, PoolError> {
        let mut lists = BTreeMap::new();
        for entry in self.meta.zap(self.source, object).await? {
            let key = u64::from_str_radix(&entry.text(), 16).ok();
            let (Some(key), Some(list)) = (key, entry.number()) else {
                let what = format!("deadlist {object}");
                return Err(PoolError::invalid(what, "it has an entry that is none"));
            };
            lists.insert(key, list);
        }
        Ok(Deadlist { object, lists })
    }

    /// The blocks of one list.
    pub async fn read(&self, list: u64) -> Result<DeadBlocks, PoolError> {
        DeadBlocks::read(self.meta, self.source, list).await
    }

    fn seed(&mut self) -> Seed<'_, D> {
        Seed {
            meta: &mut *self.meta,
            source: self.source,
            wall_s: self.wall_s,
        }
    }

    /// A new deadlist with empty lists for these keys.
    pub async fn create(&mut self, keys: impl Iterator<Item = u64>) -> Result<u64, PoolError> {
        let deadlist = self.seed().deadlist(None).await?;
        for key in keys {
            let list = self.seed().list().await?;
            let name = format!("{key:x}");
            self.meta
                .zap_put(self.source, deadlist, &name, list)
                .await?;
        }
        Ok(deadlist)
    }

    /// Adds to what a deadlist says of itself.
    async fn add_sums(&mut self, deadlist: u64, sums: Sums) -> Result<(), PoolError> {
        let changed = self.meta.change(self.source, deadlist).await?;
        for (word, sum) in [sums.used, sums.stored, sums.plain].into_iter().enumerate() {
            add_word(&mut changed.dnode, word, sum);
        }
        Ok(())
    }

    /// What the blocks of the keys from `first` on, below `end`, add up to.
    pub async fn sums(
        &self,
        deadlist: &Deadlist,
        keys: std::ops::Range<u64>,
    ) -> Result<Sums, PoolError> {
        let mut sums = Sums::default();
        if keys.start >= keys.end {
            return Ok(sums);
        }
        for (_, list) in deadlist.lists.range(keys) {
            sums.add(self.read(*list).await?.sums(self.shapes));
        }
        Ok(sums)
    }

    /// Takes the lists of all keys from `first` on away: their blocks.
    pub async fn take_from(
        &mut self,
        deadlist: &mut Deadlist,
        first: u64,
    ) -> Result<Vec<PointerImage>, PoolError> {
        let taken = deadlist.lists.split_off(&first);
        let mut blocks = Vec::new();
        for (key, list) in taken {
            let found = self.read(list).await?;
            self.add_sums(deadlist.object, found.sums(self.shapes).negative())
                .await?;
            found.remove(self.meta, self.source).await?;
            let name = format!("{key:x}");
            self.meta
                .zap_remove(self.source, deadlist.object, &name)
                .await?;
            blocks.extend(found.blocks);
        }
        Ok(blocks)
    }

    /// Moves the blocks of a key to the one before it.
    pub async fn fold(&mut self, deadlist: &mut Deadlist, key: u64) -> Result<(), PoolError> {
        let Some(list) = deadlist.lists.remove(&key) else {
            return Ok(());
        };
        let found = self.read(list).await?;
        found.remove(self.meta, self.source).await?;
        let name = format!("{key:x}");
        self.meta
            .zap_remove(self.source, deadlist.object, &name)
            .await?;
        self.append(deadlist, key, &found.blocks).await
    }

    /// Puts all blocks of a deadlist into another, and removes it.
    pub async fn merge(&mut self, into: &Deadlist, from: &Deadlist) -> Result<(), PoolError> {
        for (key, list) in &from.lists {
            let found = self.read(*list).await?;
            let sums = found.sums(self.shapes);
            self.append(into, *key, &found.blocks).await?;
            self.add_sums(into.object, sums).await?;
        }
        self.remove(from).await
    }

    /// Adds blocks to the list of the last key up to `key`.
    async fn append(
        &mut self,
        deadlist: &Deadlist,
        key: u64,
        blocks: &[PointerImage],
    ) -> Result<(), PoolError> {
        if blocks.is_empty() {
            return Ok(());
        }
        let place = deadlist.lists.range(..=key).next_back();
        let what = || format!("deadlist {}", deadlist.object);
        let (_, list) =
            place.ok_or_else(|| PoolError::invalid(what(), "it has no place for old blocks"))?;
        let blocks: Vec<&PointerImage> = blocks.iter().collect();
        dsl::append_dead(self.meta, self.source, self.shapes, *list, &blocks).await
    }

    /// Removes a deadlist and its lists; the blocks in them are the caller's.
    pub async fn remove(&mut self, deadlist: &Deadlist) -> Result<(), PoolError> {
        for list in deadlist.lists.values() {
            let found = self.read(*list).await?;
            found.remove(self.meta, self.source).await?;
        }
        self.meta.remove(self.source, deadlist.object).await
    }
}
