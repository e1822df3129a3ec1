//! What a writer of pools stands on: verified blocks by their pointers, members and where they are, columns of a
//! stripe.
//!
//! Nothing is written here either. Holes and embedded blocks are stored nowhere: they are not asked for here.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::intent::LogBlock;
use plexum_format::zfs::{BlockPointer, Digest, Label, PlexConfig, PointerImage};
use plexum_layout::RaidzMap;
use plexum_parity::Fletcher4;

use crate::block::Blocks;
use crate::error::ZfsError;
use crate::member::{MemberState, Missed};
use crate::plex::{Extent, Plex};
use crate::pool::Pool;
use crate::raidz::columns_of;

/// How much of the redundancy of a stored block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredExtent {
    /// What is needed for the answer.
    Needed,
    /// Every copy and every column.
    All,
}

/// A member that comes to a pool.
pub struct Successor<D> {
    /// What messages call it.
    pub name: String,
    /// Its identity.
    pub guid: u64,
    /// The device.
    pub device: Rc<D>,
    /// The part of the device that is the member.
    pub place: Range<u64>,
    /// What it does not have.
    pub missed: Missed,
}

impl<D> MemberState<D> {
    /// The device that the member is on.
    #[must_use]
    pub fn device(&self) -> &Rc<D> {
        &self.device
    }

    /// The part of the device that is the member.
    #[must_use]
    pub fn place(&self) -> Range<u64> {
        self.place.clone()
    }

    /// What it missed.
    #[must_use]
    pub fn missed(&self) -> &Missed {
        &self.missed
    }
}

impl<D: Device + 'static> Pool<D> {
    /// The block of a pointer, verified and decompressed; it is kept for a while. `what` is for messages.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn block(&self, pointer: &BlockPointer, what: &str) -> Result<Rc<Vec<u8>>, ZfsError> {
        self.blocks.cached(pointer, what).await
    }

    /// The bytes of a block as they are stored, verified. With [`StoredExtent::All`] every copy and every column is
    /// looked at, and what is wrong is in the damage.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub async fn stored(
        &self,
        pointer: &BlockPointer,
        what: &str,
        extent: StoredExtent,
    ) -> Result<Vec<u8>, ZfsError> {
        let extent = match extent {
            StoredExtent::Needed => Extent::Needed,
            StoredExtent::All => Extent::All,
        };
        let parts = self.blocks.read_stored(pointer, what, extent).await?;
        Ok(parts.into_vec())
    }

    /// The block of an intent log at a pointer; `None` at the end of its chain.
    pub async fn log_block(&self, pointer: &PointerImage) -> Option<LogBlock> {
        self.blocks.log_block(pointer).await
    }

    /// The same pool in which a plex, by its number, is this one, whether there was one of that number or not; members
    /// of it that are new are given with it. Its report says so. Nothing is kept of what was read before.
    /// `None`: the number is too large, or the pool has no member at all.
    #[must_use]
    pub fn with_plex(&self, config: PlexConfig, new: &[Successor<D>]) -> Option<Self> {
        let all = self.blocks.plexes.values();
        let any = all.flat_map(|plex| plex.slots.iter().flatten()).next()?;
        let member = |new: &Successor<D>| {
            Rc::new(MemberState {
                name: new.name.clone(),
                label: Label {
                    guid: new.guid,
                    ..any.label.clone()
                },
                roots: Vec::new(),
                device: Rc::clone(&new.device),
                place: new.place.clone(),
                missed: new.missed.clone(),
                ..MemberState::clone(any)
            })
        };
        let number = u32::try_from(config.id).ok()?;
        let mut plexes = BTreeMap::new();
        for (id, plex) in self.blocks.plexes.iter().filter(|(id, _)| **id != number) {
            let members: Vec<_> = plex.slots.iter().flatten().cloned().collect();
            plexes.insert(*id, Plex::new(plex.config.clone(), &members));
        }
        let before = self.blocks.plexes.get(&number);
        let before = before
            .into_iter()
            .flat_map(|plex| plex.slots.iter().flatten().cloned())
            .filter(|member| !new.iter().any(|new| new.guid == member.label.guid));
        let members: Vec<_> = before.chain(new.iter().map(member)).collect();
        let mut report = self.report.clone();
        report.change_plex(&config, &members);
        plexes.insert(number, Plex::new(config, &members));
        let mut blocks = Blocks::new(plexes);
        blocks.is_expanding = self.blocks.is_expanding;
        Some(Self {
            report,
            blocks: Rc::new(blocks),
            meta: self.meta.clone(),
            directory: self.directory.clone(),
        })
    }

    /// The plexes that are known, and for each slot the members that are there.
    pub fn plexes(&self) -> impl Iterator<Item = (&PlexConfig, &[Vec<Rc<MemberState<D>>>])> {
        let plexes = self.blocks.plexes.values();
        plexes.map(|plex| (&plex.config, plex.slots.as_slice()))
    }
}

/// All columns of a block, parity first, each as long as parity: what the members hold, with zeroes behind short ones.
///
/// # Panics
/// When the block is longer than its map.
#[must_use]
pub fn stripe_columns(map: &RaidzMap, block: &[u8]) -> Vec<Vec<u8>> {
    columns_of(map, block)
}

/// The Fletcher sum of a block whose length is a multiple of four, by the vectors of the machine.
#[must_use]
pub fn fletcher4_of(block: &[u8]) -> Digest {
    let mut sum = Fletcher4::default();
    sum.add(block);
    sum.sums()
}
