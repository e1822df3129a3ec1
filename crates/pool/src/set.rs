//! An object set that is being changed: objects and blocks in memory, on top of what is on the members.
//!
//! Invariants:
//! - a changed object is held until it is written: what is read here is what will be there;
//! - small ZAPs are written again as a whole; one that became a hash table is read, and refused for writing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::blockptr::POINTER_BYTES;
use plexum_format::zfs::dnode::DNODE_BYTES;
use plexum_format::zfs::zap::{Table, ZapEntry, ZapHead, leaf_ids, parse_head, parse_leaf};
use plexum_format::zfs::zap_write::{MicroHead, encode_micro, micro_head};
use plexum_format::zfs::{DnodeImage, NewObject, PointerImage};

use crate::error::PoolError;
use crate::numbers::TYPE_OFFSET;
use crate::tree::{Changes, Grown, KIND_DNODES, Source, Writer, pointer_to};

/// Bytes of the block of a new object set.
const SET_BYTES: usize = 4096;
/// Bytes of a block of dnodes, and of the pointers to them in new sets.
const DNODE_BLOCK_BYTES: u64 = 16 << 10;
const DNODE_INDIRECT_SHIFT: u8 = 14;
/// Most entries and leaves of a hash table.
const LEAVES_MAX: usize = 1 << 16;

/// Indirect blocks of the small objects here.
pub(crate) const SMALL_INDIRECT_SHIFT: u8 = 14;

/// An object with what was changed in it.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    pub dnode: DnodeImage,
    pub blocks: Changes,
    /// Those of the blocks that were written to their final places already.
    pub placed: BTreeMap<u64, PointerImage>,
}

impl Changed {
    fn of(dnode: DnodeImage) -> Self {
        Self {
            dnode,
            blocks: Changes::new(),
            placed: BTreeMap::new(),
        }
    }
}

/// An object set.
#[derive(Clone)]
pub(crate) struct SetState {
    /// What messages call it.
    pub name: String,
    /// Its block, the meta dnode first.
    pub block: Vec<u8>,
    /// Where that block is; a hole: nowhere yet.
    pub root: PointerImage,
    pub changed: BTreeMap<u64, Changed>,
    /// Blocks of objects that were removed.
    pub removed: Vec<PointerImage>,
    /// Where the search for a free number begins.
    next_number: u64,
}

impl SetState {
    /// A new set without objects. `kind`: 1 the pool's own, 2 a file system, 3 a volume.
    pub fn new(name: &str, kind: u64) -> Self {
        let mut meta = DnodeImage::new(&NewObject {
            kind: KIND_DNODES,
            block_bytes: DNODE_BLOCK_BYTES,
            indirect_shift: DNODE_INDIRECT_SHIFT,
            bonus_kind: 0,
            bonus_bytes: 0,
        });
        meta.set_plain();
        let mut block = vec![0; SET_BYTES];
        block[..DNODE_BYTES].copy_from_slice(&meta.0);
        block[TYPE_OFFSET..TYPE_OFFSET + 8].copy_from_slice(&kind.to_le_bytes());
        Self {
            name: name.to_owned(),
            block,
            root: PointerImage::HOLE,
            changed: BTreeMap::new(),
            removed: Vec::new(),
            next_number: 1,
        }
    }

    /// The set at a pointer.
    pub async fn open<D: Device>(
        source: &Source<D>,
        root: &PointerImage,
        name: &str,
    ) -> Result<Self, PoolError> {
        let block = source.read(root, &format!("object set of {name}")).await?;
        if block.len() < 1024 || block[0] != KIND_DNODES {
            return Err(PoolError::invalid(name, "its object set is none"));
        }
        DnodeImage::checked(&block[..DNODE_BYTES])?;
        Ok(Self {
            name: name.to_owned(),
            block: block.to_vec(),
            root: *root,
            changed: BTreeMap::new(),
            removed: Vec::new(),
            next_number: 1,
        })
    }

    /// Lets the set be written although no object of it is changed: the free slot 0 counts as one.
    pub fn touch(&mut self) {
        self.changed
            .entry(0)
            .or_insert_with(|| Changed::of(DnodeImage::free()));
    }

    /// The dnode whose data are all others.
    pub fn meta(&self) -> DnodeImage {
        DnodeImage(self.block[..DNODE_BYTES].to_vec())
    }

    fn per_block(&self) -> u64 {
        (self.meta().block_bytes() / DNODE_BYTES as u64).max(1)
    }

    /// Number of the dnode block that an object is in.
    pub fn dnode_block_of(&self, number: u64) -> u64 {
        number / self.per_block()
    }

    /// An object as it is now; `None` when there is none.
    pub async fn find<D: Device>(
        &self,
        source: &Source<D>,
        number: u64,
    ) -> Result<Option<DnodeImage>, PoolError> {
        if let Some(changed) = self.changed.get(&number) {
            return Ok(Some(changed.dnode.clone()).filter(|dnode| dnode.kind() != 0));
        }
        self.stored_dnode(source, number).await
    }

    /// An object as it is on the members; `None` when there is none.
    pub async fn stored_dnode<D: Device>(
        &self,
        source: &Source<D>,
        number: u64,
    ) -> Result<Option<DnodeImage>, PoolError> {
        let block = self
            .stored_block(source, &self.meta(), number / self.per_block())
            .await?;
        let Some(block) = block else {
            return Ok(None);
        };
        let at = (number % self.per_block()) as usize * DNODE_BYTES;
        Ok(DnodeImage::checked(block.get(at..).unwrap_or_default())?)
    }

    /// An object that has to be there.
    pub async fn dnode<D: Device>(
        &self,
        source: &Source<D>,
        number: u64,
    ) -> Result<DnodeImage, PoolError> {
        let found = self.find(source, number).await?;
        let missing = || {
            PoolError::invalid(
                format!("object {number} of {}", self.name),
                "it does not exist",
            )
        };
        found.ok_or_else(missing)
    }

    /// An object, to be changed.
    pub async fn change<D: Device>(
        &mut self,
        source: &Source<D>,
        number: u64,
    ) -> Result<&mut Changed, PoolError> {
        if !self.changed.contains_key(&number) {
            let dnode = self.dnode(source, number).await?;
            self.changed.insert(number, Changed::of(dnode));
        }
        Ok(self
            .changed
            .get_mut(&number)
            .expect("it was just put there"))
    }

    /// A new object.
    pub async fn add<D: Device>(
        &mut self,
        source: &Source<D>,
        new: &NewObject,
    ) -> Result<u64, PoolError> {
        let mut number = self.next_number;
        while self.is_taken(source, number).await? {
            number += 1;
        }
        self.next_number = number + 1;
        let mut dnode = DnodeImage::new(new);
        dnode.set_plain();
        self.changed.insert(number, Changed::of(dnode));
        Ok(number)
    }

    /// Removes an object: its blocks are given back by the commit.
    pub async fn remove<D: Device>(
        &mut self,
        source: &Source<D>,
        number: u64,
    ) -> Result<(), PoolError> {
        let now = self.dnode(source, number).await?;
        if let Some(stored) = self.stored_dnode(source, number).await? {
            let mut work: Vec<PointerImage> = (0..stored.pointer_count())
                .map(|n| stored.pointer(n))
                .chain(stored.spill())
                .collect();
            while let Some(pointer) = work.pop() {
                if pointer.is_hole() {
                    continue;
                }
                if pointer.level() > 0 && !pointer.is_embedded() {
                    let block = source.read(&pointer, "pointers").await?;
                    work.extend(block.chunks_exact(POINTER_BYTES).map(PointerImage::of));
                }
                self.removed.push(pointer);
            }
        }
        let free = DnodeImage(vec![0; now.slots() * DNODE_BYTES]);
        self.changed.insert(number, Changed::of(free));
        Ok(())
    }

    /// Whether a slot is a dnode's, or a part of one that takes several.
    async fn is_taken<D: Device>(
        &self,
        source: &Source<D>,
        number: u64,
    ) -> Result<bool, PoolError> {
        if self.changed.contains_key(&number) {
            return Ok(true);
        }
        let per_block = self.per_block();
        let Some(block) = self
            .stored_block(source, &self.meta(), number / per_block)
            .await?
        else {
            return Ok(false);
        };
        let wanted = (number % per_block) as usize;
        let mut slot = 0;
        while slot <= wanted && slot * DNODE_BYTES < block.len() {
            let at = slot * DNODE_BYTES;
            let slots = if block[at] == 0 {
                1
            } else {
                usize::from(block[at + 12]) + 1
            };
            if wanted < slot + slots {
                return Ok(block[at] != 0);
            }
            slot += slots;
        }
        Ok(false)
    }

    /// A data block as it is on the members.
    async fn stored_block<D: Device>(
        &self,
        source: &Source<D>,
        dnode: &DnodeImage,
        id: u64,
    ) -> Result<Option<Rc<Vec<u8>>>, PoolError> {
        if source.pool.is_none() || id > dnode.block_id_max() {
            return Ok(None);
        }
        let pointer = pointer_to(source, dnode, &Grown::default(), (0, id)).await?;
        if pointer.is_hole() {
            return Ok(None);
        }
        let what = format!("block {id} of an object of {}", self.name);
        let block = source.read(&pointer, &what).await?;
        if block.len() as u64 != dnode.block_bytes() {
            let (found, expected) = (block.len(), dnode.block_bytes());
            return Err(PoolError::invalid(
                what,
                format!("it has {found} bytes, not {expected}"),
            ));
        }
        Ok(Some(block))
    }

    /// A data block of an object as it is now; zeroes where nothing is.
    pub async fn block<D: Device>(
        &self,
        number: u64,
        source: &Source<D>,
        id: u64,
    ) -> Result<Rc<Vec<u8>>, PoolError> {
        let dnode = self.dnode(source, number).await?;
        let changed = self
            .changed
            .get(&number)
            .and_then(|changed| changed.blocks.get(&id));
        let found = match changed {
            Some(change) => change.clone(),
            None => self.stored_block(source, &dnode, id).await?,
        };
        let zeroes = || Rc::new(vec![0; dnode.block_bytes() as usize]);
        Ok(found.unwrap_or_else(zeroes))
    }

    /// Bytes of an object as they are now.
    pub async fn bytes<D: Device>(
        &self,
        number: u64,
        source: &Source<D>,
        length_bytes: u64,
    ) -> Result<Vec<u8>, PoolError> {
        let block_bytes = self.dnode(source, number).await?.block_bytes().max(1);
        let mut out = Vec::new();
        for id in 0..length_bytes.div_ceil(block_bytes) {
            out.extend_from_slice(&self.block(number, source, id).await?);
        }
        out.truncate(length_bytes as usize);
        Ok(out)
    }

    /// Changes bytes of an object, block by block.
    pub async fn write<D: Device>(
        &mut self,
        number: u64,
        source: &Source<D>,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), PoolError> {
        let block_bytes = self.dnode(source, number).await?.block_bytes().max(1);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset_bytes + done as u64;
            let (id, inside) = (at / block_bytes, (at % block_bytes) as usize);
            let step = (block_bytes as usize - inside).min(bytes.len() - done);
            let mut block = self.block(number, source, id).await?.to_vec();
            block.resize(block_bytes as usize, 0);
            block[inside..inside + step].copy_from_slice(&bytes[done..done + step]);
            let changed = self.change(source, number).await?;
            changed.blocks.insert(id, Some(Rc::new(block)));
            done += step;
        }
        Ok(())
    }

    /// All entries of a ZAP.
    pub async fn zap<D: Device>(
        &self,
        source: &Source<D>,
        number: u64,
    ) -> Result<Vec<ZapEntry>, PoolError> {
        let first = self.block(number, source, 0).await?;
        let fat = match parse_head(&first)? {
            ZapHead::Micro(entries) => return Ok(entries),
            ZapHead::Fat(fat) => fat,
        };
        let leaves = match fat.table {
            Table::Inside(leaves) => leaves,
            Table::Blocks { first, count } => {
                let mut leaves = Vec::new();
                for id in (0..count.min(LEAVES_MAX as u64)).map(|n| first.saturating_add(n)) {
                    leaves.extend(leaf_ids(&self.block(number, source, id).await?));
                }
                leaves.sort_unstable();
                leaves.dedup();
                leaves
            }
        };
        let mut entries = Vec::new();
        for leaf in leaves.into_iter().take(LEAVES_MAX) {
            entries.extend(parse_leaf(&self.block(number, source, leaf).await?)?);
        }
        if entries.len() as u64 != fat.entry_count {
            return Err(PoolError::invalid(
                format!("map {number} of {}", self.name),
                "entries are missing in it",
            ));
        }
        Ok(entries)
    }

    /// The number of a name in a ZAP.
    pub async fn zap_number<D: Device>(
        &self,
        source: &Source<D>,
        number: u64,
        name: &str,
    ) -> Result<Option<u64>, PoolError> {
        let entries = self.zap(source, number).await?;
        let entry = entries.iter().find(|entry| entry.name == name.as_bytes());
        Ok(entry.and_then(ZapEntry::number))
    }

    /// A new ZAP with these entries.
    pub async fn add_zap<D: Device>(
        &mut self,
        source: &Source<D>,
        new: &NewObject,
        head: MicroHead,
        entries: &[(&str, u64)],
    ) -> Result<u64, PoolError> {
        let number = self.add(source, new).await?;
        let entries: Vec<(Vec<u8>, u64)> = entries
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), *value))
            .collect();
        self.set_zap(number, &entries, head)?;
        Ok(number)
    }

    fn set_zap(
        &mut self,
        number: u64,
        entries: &[(Vec<u8>, u64)],
        head: MicroHead,
    ) -> Result<(), PoolError> {
        let name = self.name.clone();
        let too_large = || {
            PoolError::Refused(format!(
                "map {number} of {name} would become too large to be written here"
            ))
        };
        let block = encode_micro(entries, head).ok_or_else(too_large)?;
        let changed = self
            .changed
            .get_mut(&number)
            .expect("the caller has changed the object");
        changed.dnode.set_block_bytes(block.len() as u64);
        changed.blocks.insert(0, Some(Rc::new(block)));
        Ok(())
    }

    /// Sets a name in a small ZAP.
    pub async fn zap_put<D: Device>(
        &mut self,
        source: &Source<D>,
        number: u64,
        name: &str,
        value: u64,
    ) -> Result<(), PoolError> {
        let block = self.block(number, source, 0).await?;
        let head = micro_head(&block).ok_or_else(|| self.is_table(number))?;
        let entries = self.zap(source, number).await?;
        let mut entries: Vec<(Vec<u8>, u64)> = entries
            .into_iter()
            .map(|entry| (entry.name.clone(), entry.number().unwrap_or(0)))
            .collect();
        match entries
            .iter_mut()
            .find(|(found, _)| found == name.as_bytes())
        {
            Some(entry) => entry.1 = value,
            None => entries.push((name.as_bytes().to_vec(), value)),
        }
        self.change(source, number).await?;
        self.set_zap(number, &entries, head)
    }

    /// Takes a name out of a small ZAP; `false`: it was not in it.
    pub async fn zap_remove<D: Device>(
        &mut self,
        source: &Source<D>,
        number: u64,
        name: &str,
    ) -> Result<bool, PoolError> {
        let block = self.block(number, source, 0).await?;
        let head = micro_head(&block).ok_or_else(|| self.is_table(number))?;
        let entries = self.zap(source, number).await?;
        let count = entries.len();
        let left: Vec<(Vec<u8>, u64)> = entries
            .into_iter()
            .filter(|entry| entry.name != name.as_bytes())
            .map(|entry| (entry.name.clone(), entry.number().unwrap_or(0)))
            .collect();
        if left.len() == count {
            return Ok(false);
        }
        self.change(source, number).await?;
        self.set_zap(number, &left, head)?;
        Ok(true)
    }

    fn is_table(&self, number: u64) -> PoolError {
        PoolError::Refused(format!(
            "map {number} of {} is a hash table, which is not written here yet",
            self.name
        ))
    }

    /// The blocks of dnodes that change with the changed objects, as they become. Objects are in their last state.
    pub async fn dnode_blocks<D: Device>(&self, source: &Source<D>) -> Result<Changes, PoolError> {
        let (meta, per_block) = (self.meta(), self.per_block());
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (number, changed) in &self.changed {
            let id = number / per_block;
            let block = match blocks.entry(id) {
                Entry::Occupied(block) => block.into_mut(),
                Entry::Vacant(place) => {
                    let stored = self.stored_block(source, &meta, id).await?;
                    let zeroes = || vec![0; meta.block_bytes() as usize];
                    place.insert(stored.map_or_else(zeroes, |block| block.to_vec()))
                }
            };
            let at = (number % per_block) as usize * DNODE_BYTES;
            let image = &changed.dnode.0;
            block[at..at + image.len()].copy_from_slice(image);
        }
        Ok(blocks
            .into_iter()
            .map(|(id, block)| (id, Some(Rc::new(block))))
            .collect())
    }

    /// Writes everything that was changed, and the set's own block.
    pub async fn write_out<D: Device>(
        &mut self,
        writer: &mut Writer<'_, D>,
    ) -> Result<(), PoolError> {
        let numbers: Vec<u64> = self.changed.keys().copied().collect();
        for number in numbers {
            let changed = self
                .changed
                .get_mut(&number)
                .expect("its number is in the list");
            let blocks = std::mem::take(&mut changed.blocks);
            let placed = std::mem::take(&mut changed.placed);
            writer
                .write_object(number, &mut changed.dnode, &blocks, &placed)
                .await?;
        }
        writer.outcome.dead.append(&mut self.removed);
        let blocks = self.dnode_blocks(writer.source).await?;
        let mut meta = self.meta();
        writer
            .write_object(0, &mut meta, &blocks, &BTreeMap::new())
            .await?;
        self.block[..DNODE_BYTES].copy_from_slice(&meta.0);
        let fill = (0..meta.pointer_count())
            .map(|n| meta.pointer(n).fill())
            .fold(0, u64::wrapping_add);
        let old = self.root;
        self.root = writer.write_set_block(&self.block, fill, &old).await?;
        self.changed.clear();
        Ok(())
    }
}
