//! Plexes as a writer sees them: where a block goes on the members, labels, roots, flushes.
//!
//! Invariants:
//! - a block is written to every member of its plex that has a part of it, but for those that are out; a member that
//!   cannot be written is out from then on, as long as its plex can spare it, and the caller learns of it;
//! - what is written to a member is written to its successor, too, when it has one;
//! - a successor is not read, and when it fails it is the replacement that ends;
//! - a block is not read from a member that missed its transaction group;
//! - a write never leaves the member, nor the data area of the plex.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, Fua, IoError};
use plexum_block::wait::join_all;
use plexum_format::zfs::label_write::{NewUberblock, RING_OFFSET, encode_head, encode_uberblock};
use plexum_format::zfs::label_write::{slot_bytes, slot_count};
use plexum_format::zfs::{DATA_OFFSET_BYTES, Dva, LABEL_BYTES, NvList, PlexKind, label_offsets};
use plexum_layout::RaidzGeometry;
use plexum_zfs::{Missed, stripe_columns};

use crate::error::PoolError;
use crate::mutant::{DeliberateBug, Mutant};
use crate::numbers::FIRST_TXG;

/// Longest write to a member: what is adjacent is joined up to this.
const RUN_BYTES_MAX: usize = 1 << 20;

/// A member that is written.
pub struct Leaf<D> {
    /// What messages call it.
    pub name: String,
    /// Its identity.
    pub guid: u64,
    /// The device; `None`: it is missing.
    pub device: Option<Rc<D>>,
    /// The part of the device that is the member.
    pub place: Range<u64>,
    /// Transaction groups that it missed, as the reader knows them too.
    pub missed: Missed,
    /// Why it is not written, when it is not.
    pub out: RefCell<Option<String>>,
    /// The first transaction group that it missed, when it is out.
    pub out_since: Cell<u64>,
    /// Who is being given everything to take its place.
    pub successor: Option<Box<Leaf<D>>>,
}

impl<D> Leaf<D> {
    /// A member that is written.
    pub fn new(name: String, guid: u64, device: Rc<D>, place: Range<u64>) -> Self {
        Self {
            name,
            guid,
            device: Some(device),
            place,
            missed: Missed::default(),
            out: RefCell::new(None),
            out_since: Cell::new(0),
            successor: None,
        }
    }

    /// A member that is not there.
    pub fn missing(name: String, guid: u64) -> Self {
        Self {
            name,
            guid,
            device: None,
            place: 0..0,
            missed: Missed::default(),
            out: RefCell::new(Some("it is missing".into())),
            out_since: Cell::new(0),
            successor: None,
        }
    }

    /// It is not written from now on: from this transaction group on it has nothing.
    pub fn take_out(&self, reason: String, since_txg: u64) {
        *self.out.borrow_mut() = Some(reason);
        self.out_since.set(since_txg);
        self.missed.add(since_txg..u64::MAX);
    }

    /// A successor that cannot be written is none any more.
    fn fail(&self, error: IoError) {
        *self.out.borrow_mut() = Some(error.to_string());
    }

    /// Whether it is written.
    pub fn is_in(&self) -> bool {
        self.out.borrow().is_none()
    }

    /// Its device, when it is written.
    fn written(&self) -> Option<&Rc<D>> {
        self.device.as_ref().filter(|_| self.is_in())
    }

    /// Its successor with its device, when that is written.
    fn coming(&self) -> Option<(&Leaf<D>, &Rc<D>)> {
        let coming = self.successor.as_deref()?;
        Some((coming, coming.written()?))
    }

    /// Size of the member.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.place.end - self.place.start
    }
}

/// What follows from the kind and width of a plex: how much space blocks take.
#[derive(Clone, Debug)]
pub(crate) struct PlexShape {
    ashift: u32,
    geometry: Option<RaidzGeometry>,
    /// Units of 512 bytes that users see of 128 KiB: see zfs-write.md 1.3.
    deflate_ratio: u64,
}

impl PlexShape {
    pub fn new(id: u32, kind: &PlexKind, width: usize, ashift: u32) -> Result<Self, PoolError> {
        let refuse = |reason: String| PoolError::Refused(format!("plex {id}: {reason}"));
        let geometry = match kind {
            PlexKind::RaidZ { parity_count } => {
                let count = u16::try_from(width).unwrap_or(u16::MAX);
                let geometry = RaidzGeometry::new(count, *parity_count, ashift);
                Some(geometry.map_err(|error| refuse(error.to_string()))?)
            }
            PlexKind::Single | PlexKind::Mirror => None,
            other => return Err(refuse(format!("{other} is not known to a writer"))),
        };
        let mut shape = Self {
            ashift,
            geometry,
            deflate_ratio: 512,
        };
        let whole = shape.allocated_bytes(128 << 10);
        shape.deflate_ratio = (128 << 10) / (whole / 512);
        Ok(shape)
    }

    /// Space that a block takes: whole sectors, parity and padding.
    pub fn allocated_bytes(&self, length_bytes: u64) -> u64 {
        match &self.geometry {
            Some(geometry) => geometry
                .allocated_bytes(length_bytes)
                .expect("a block has at most 16 MiB"),
            None => length_bytes.next_multiple_of(1 << self.ashift),
        }
    }

    /// Parities of a block; 0 for mirrors and single members.
    pub fn parity_count(&self) -> usize {
        self.geometry
            .as_ref()
            .map_or(0, RaidzGeometry::parity_count)
    }

    /// What users see of an allocation.
    fn deflated(&self, allocated_bytes: u64) -> u64 {
        (allocated_bytes / 512).saturating_mul(self.deflate_ratio)
    }
}

/// The shapes of all plexes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shapes(pub BTreeMap<u32, PlexShape>);

impl Shapes {
    /// What users see of a block's copies.
    pub fn used_bytes(&self, copies: &[Dva]) -> u64 {
        let of = |copy: &Dva| {
            let shape = self.0.get(&copy.plex_id);
            shape.map_or(0, |shape| shape.deflated(copy.allocated_bytes))
        };
        copies.iter().map(of).fold(0, u64::saturating_add)
    }
}

/// A plex that is written.
pub(crate) struct PlexGround<D> {
    pub id: u32,
    pub ashift: u32,
    /// Its address space, parity included.
    pub size_bytes: u64,
    pub leaves: Vec<Leaf<D>>,
    pub shape: PlexShape,
}

impl<D: Device> PlexGround<D> {
    pub fn new(
        id: u32,
        kind: &PlexKind,
        ashift: u32,
        size_bytes: u64,
        leaves: Vec<Leaf<D>>,
    ) -> Result<Self, PoolError> {
        let shape = PlexShape::new(id, kind, leaves.len(), ashift)?;
        Ok(Self {
            id,
            ashift,
            size_bytes,
            leaves,
            shape,
        })
    }

    /// How many of its members it can do without.
    pub fn spare_count(&self) -> usize {
        match &self.shape.geometry {
            Some(geometry) => geometry.parity_count(),
            None => self.leaves.len() - 1,
        }
    }

    /// Members that are not written.
    pub fn out_count(&self) -> usize {
        self.leaves.iter().filter(|leaf| !leaf.is_in()).count()
    }

    /// Members beside this one that are not written, or have nothing yet of what was there when they came.
    fn lacking_count(&self, but: &Leaf<D>) -> usize {
        let others = self.leaves.iter().filter(|leaf| leaf.guid != but.guid);
        let is_lacking = |leaf: &&Leaf<D>| !leaf.is_in() || leaf.missed.has(FIRST_TXG);
        others.filter(is_lacking).count()
    }

    /// The parts of a block on the members: slot, offset in the data area, bytes.
    pub fn parts(
        &self,
        offset_bytes: u64,
        block: &[u8],
    ) -> Result<Vec<(usize, u64, Vec<u8>)>, PoolError> {
        let sector = 1_usize << self.ashift;
        let mut padded = block.to_vec();
        padded.resize(block.len().next_multiple_of(sector), 0);
        let Some(geometry) = &self.shape.geometry else {
            let copies = (0..self.leaves.len()).map(|slot| (slot, offset_bytes, padded.clone()));
            return Ok(copies.collect());
        };
        let map = geometry
            .map(offset_bytes, padded.len() as u64)
            .map_err(|error| PoolError::invalid(format!("plex {}", self.id), error.to_string()))?;
        let columns = stripe_columns(&map, &padded);
        let parts = map.columns().zip(columns).map(|(column, mut bytes)| {
            bytes.truncate(column.length_bytes as usize);
            (column.slot, column.member_offset_bytes, bytes)
        });
        Ok(parts.collect())
    }
}

/// All plexes of a pool that is written.
pub(crate) struct Ground<D> {
    pub plexes: BTreeMap<u32, PlexGround<D>>,
    pub shapes: Shapes,
    /// Members that went out since the pool was opened.
    pub losses: Cell<u64>,
    /// The transaction group that is being written.
    pub txg: Cell<u64>,
    /// Members that were written since they were flushed.
    unflushed: RefCell<BTreeSet<(u32, usize)>>,
    buffers: BufPool,
    pub bug: DeliberateBug,
}

/// Makes the configuration for a member of a plex.
type LabelOf<'a, D> = &'a dyn Fn(u32, &Leaf<D>) -> Result<NvList, PoolError>;

/// Who of a slot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Whom {
    /// The member, and its successor when it has one.
    Both,
    /// The successor, which is given what the member has.
    Successor,
}

/// What is adjacent on a member, by its offset.
type Runs = BTreeMap<u64, Vec<u8>>;

/// Blocks that are to be written, by plex, slot and offset on the member.
#[derive(Default)]
pub(crate) struct Writes {
    runs: BTreeMap<(u32, usize, Whom), Runs>,
    held_bytes: usize,
}

impl Writes {
    /// Bytes that wait.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }
}

impl<D: Device> Ground<D> {
    pub fn new(plexes: BTreeMap<u32, PlexGround<D>>, buffers: &BufPool) -> Self {
        let shapes = plexes.iter().map(|(id, plex)| (*id, plex.shape.clone()));
        Self {
            shapes: Shapes(shapes.collect()),
            plexes,
            losses: Cell::new(0),
            txg: Cell::new(0),
            unflushed: RefCell::default(),
            buffers: buffers.clone(),
            bug: DeliberateBug::NONE,
        }
    }

    pub fn plex(&self, id: u32) -> Result<&PlexGround<D>, PoolError> {
        let missing = || PoolError::invalid(format!("plex {id}"), "there is none of this number");
        self.plexes.get(&id).ok_or_else(missing)
    }

    /// Refuses when a plex has fewer members that are written than it needs: nothing would be anywhere.
    pub fn check_enough(&self) -> Result<(), PoolError> {
        let lacks = |plex: &&PlexGround<D>| plex.out_count() > plex.spare_count();
        match self.plexes.values().find(lacks) {
            None => Ok(()),
            Some(plex) => {
                let what = format!("plex {}", plex.id);
                Err(PoolError::invalid(
                    what,
                    "too few of its members are written",
                ))
            }
        }
    }

    /// Notes one copy of a block.
    pub fn put(&self, writes: &mut Writes, copy: &Dva, block: &[u8]) -> Result<(), PoolError> {
        let plex = self.plex(copy.plex_id)?;
        for (slot, offset, bytes) in plex.parts(copy.offset_bytes, block)? {
            self.put_part(writes, (plex.id, slot, Whom::Both), (offset, &bytes));
        }
        Ok(())
    }

    /// Notes the part of a block on one member: where it is, offset and bytes.
    pub fn put_part(&self, writes: &mut Writes, place: (u32, usize, Whom), part: (u64, &[u8])) {
        let (offset, bytes) = part;
        writes.held_bytes += bytes.len();
        let runs = writes.runs.entry(place).or_default();
        // A block that is shared is met more than once: what is noted behind it stays.
        if let Some(run) = runs.get_mut(&offset)
            && let Some(part) = run.get_mut(..bytes.len())
        {
            part.copy_from_slice(bytes);
            return;
        }
        let adjacent = runs.range_mut(..offset).next_back();
        if let Some((start, run)) = adjacent
            && start + run.len() as u64 == offset
            && run.len() + bytes.len() <= RUN_BYTES_MAX
        {
            run.extend_from_slice(bytes);
            return;
        }
        runs.insert(offset, bytes.to_vec());
    }

    /// Writes what was noted.
    pub async fn write_out(&self, writes: &mut Writes) -> Result<(), PoolError> {
        let writes = std::mem::take(writes);
        let mut jobs = Vec::new();
        for ((plex_id, slot, whom), runs) in writes.runs {
            let plex = self.plex(plex_id)?;
            jobs.push(async move {
                let leaf = &plex.leaves[slot];
                let is_skipped = whom == Whom::Both && self.bug.is(Mutant::SuccessorSkipped);
                if let Some((coming, device)) = leaf.coming().filter(|_| !is_skipped) {
                    self.unflushed.borrow_mut().insert((plex_id, slot));
                    let written = self.write_runs(coming, device, &runs).await;
                    written.unwrap_or_else(|error| coming.fail(error));
                }
                let Some(device) = leaf.written().filter(|_| whom == Whom::Both) else {
                    return Ok(());
                };
                self.unflushed.borrow_mut().insert((plex_id, slot));
                let result = self.write_runs(leaf, device, &runs).await;
                result.or_else(|error| self.lose(plex, leaf, error))
            });
        }
        join_all(jobs).await.into_iter().collect()
    }

    /// A member failed: it is out from now on, when the plex can spare it.
    fn lose(&self, plex: &PlexGround<D>, leaf: &Leaf<D>, error: IoError) -> Result<(), PoolError> {
        if leaf.is_in() {
            if plex.lacking_count(leaf) >= plex.spare_count() {
                return Err(io(leaf, error));
            }
            leaf.take_out(error.to_string(), self.txg.get());
            self.losses.set(self.losses.get() + 1);
        }
        Ok(())
    }

    async fn write_runs(&self, leaf: &Leaf<D>, device: &Rc<D>, runs: &Runs) -> Result<(), IoError> {
        let end = leaf.place.end - 2 * LABEL_BYTES as u64;
        for (offset, bytes) in runs {
            let at = leaf.place.start + DATA_OFFSET_BYTES + offset;
            if at + bytes.len() as u64 > end {
                return Err(IoError::OutOfRange);
            }
            let buf = self.buffers.copy_of(bytes).freeze();
            device.write(at, buf, Fua::No).await?;
        }
        Ok(())
    }

    /// Makes everything that was written durable on all members.
    pub async fn flush(&self) -> Result<(), PoolError> {
        let all = self.plexes.values().flat_map(|plex| {
            let slots = 0..plex.leaves.len();
            slots.map(|slot| (plex.id, slot))
        });
        self.unflushed.borrow_mut().extend(all);
        self.flush_written().await
    }

    /// Makes everything that was written durable, on the members that were written since their last flush.
    pub async fn flush_written(&self) -> Result<(), PoolError> {
        let written = std::mem::take(&mut *self.unflushed.borrow_mut());
        let mut jobs = Vec::new();
        for (plex_id, slot) in written {
            let plex = self.plex(plex_id)?;
            jobs.push(async move {
                let leaf = &plex.leaves[slot];
                if let Some((coming, device)) = leaf.coming() {
                    let flushed = device.flush().await;
                    flushed.unwrap_or_else(|error| coming.fail(error));
                }
                let Some(device) = leaf.written() else {
                    return Ok(());
                };
                let result = device.flush().await;
                result.or_else(|error| self.lose(plex, leaf, error))
            });
        }
        join_all(jobs).await.into_iter().collect()
    }

    pub fn leaves(&self) -> impl Iterator<Item = &Leaf<D>> {
        self.plexes.values().flat_map(|plex| &plex.leaves)
    }

    /// Writes the heads of two labels of every member. `list` makes the configuration for a member of a plex.
    pub async fn write_labels(
        &self,
        which: [usize; 2],
        list: LabelOf<'_, D>,
        meant: impl Fn(&Leaf<D>) -> bool,
    ) -> Result<(), PoolError> {
        for plex in self.plexes.values() {
            let leaves = plex.leaves.iter();
            for leaf in leaves.filter(|leaf| leaf.is_in() && meant(leaf)) {
                let list = list(plex.id, leaf)?;
                let offsets = label_offsets(leaf.size_bytes());
                for offset in which.iter().filter_map(|n| offsets.get(*n)) {
                    let head = encode_head(&list, *offset);
                    let too_long = || PoolError::invalid("label", "the configuration does not fit");
                    self.write((plex, leaf), *offset, &head.ok_or_else(too_long)?)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Clears what was in the rings of all labels, and behind the last one: roots of another pool, and what other
    /// formats have at the end of a member, must not be found there.
    pub async fn clear_rings(&self) -> Result<(), PoolError> {
        for plex in self.plexes.values() {
            for leaf in &plex.leaves {
                self.clear_ring(plex, leaf).await?;
            }
        }
        Ok(())
    }

    /// The same of one member.
    pub async fn clear_ring(&self, plex: &PlexGround<D>, leaf: &Leaf<D>) -> Result<(), PoolError> {
        let cleared = self.clear_old(leaf).await;
        cleared.or_else(|error| self.lose(plex, leaf, error))
    }

    /// The same of a member that may be none of a plex yet.
    pub async fn clear_old(&self, leaf: &Leaf<D>) -> Result<(), IoError> {
        let Some(device) = leaf.written() else {
            return Ok(());
        };
        for offset in label_offsets(leaf.size_bytes()) {
            let zeroes = vec![0; LABEL_BYTES - RING_OFFSET];
            self.write_at((leaf, device), offset + RING_OFFSET as u64, &zeroes)
                .await?;
        }
        let end = leaf.size_bytes() / LABEL_BYTES as u64 * LABEL_BYTES as u64;
        let rest = leaf.size_bytes() - end;
        if rest > 0 {
            self.write_at((leaf, device), end, &vec![0; rest as usize])
                .await?;
        }
        Ok(())
    }

    /// Writes a root into the rings of members that are `meant`.
    pub async fn write_root(
        &self,
        root: &NewUberblock,
        meant: impl Fn(&Leaf<D>) -> bool,
    ) -> Result<(), PoolError> {
        for plex in self.plexes.values() {
            let slot = root.txg % slot_count(plex.ashift);
            let in_label = RING_OFFSET as u64 + slot * slot_bytes(plex.ashift) as u64;
            let leaves = plex.leaves.iter();
            for leaf in leaves.filter(|leaf| leaf.is_in() && meant(leaf)) {
                for offset in label_offsets(leaf.size_bytes()) {
                    let at = offset + in_label;
                    let slot = encode_uberblock(root, plex.ashift, at);
                    self.write((plex, leaf), at, &slot).await?;
                }
            }
        }
        Ok(())
    }

    async fn write(
        &self,
        (plex, leaf): (&PlexGround<D>, &Leaf<D>),
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), PoolError> {
        let Some(device) = leaf.written() else {
            return Ok(());
        };
        let result = self.write_at((leaf, device), offset, bytes).await;
        result.or_else(|error| self.lose(plex, leaf, error))
    }

    async fn write_at(
        &self,
        (leaf, device): (&Leaf<D>, &Rc<D>),
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), IoError> {
        let at = leaf.place.start + offset;
        let buf = self.buffers.copy_of(bytes).freeze();
        device.write(at, buf, Fua::No).await
    }
}

fn io<D>(leaf: &Leaf<D>, error: IoError) -> PoolError {
    PoolError::Io {
        member: leaf.name.clone(),
        error,
    }
}
