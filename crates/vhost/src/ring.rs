//! A split ring: what a guest offers, what was done, and who wants to be told of it.
//!
//! Source: the virtio specification 1.2, sections 2.7.5 to 2.7.13. All is little-endian. Two rings and a table lie in
//! the guest's memory:
//!
//! | | bytes | content |
//! |---|---|---|
//! | descriptors | 16 each | `chain` |
//! | available | 2, 2, 2 each, 2 | flags (1: no events are wanted), next entry, heads, event index |
//! | used | 2, 2, 8 each, 2 | flags (1: no kicks are wanted), next entry, head and bytes written, kick index |
//!
//! Where indexes are agreed on, flags count no more: an event, or a kick, is wanted when that entry is filled.
//!
//! Invariants:
//! - no index that a guest has written is used before it was compared with the size of the ring;
//! - a head is given out once, until it was given back.

use std::sync::atomic::{Ordering, fence};

use crate::config::QUEUE_SIZE_MAX;
use crate::peer::Mapping;
use crate::table::{Piece, Table, TableError};
use crate::wire::RingPlace;

const NO_EVENTS: u16 = 1;
const HEAD_BYTES: usize = 4;
const USED_ENTRY_BYTES: usize = 8;
/// Size in bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;

/// Why a ring cannot be worked on any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// Descriptors are a power of two, up to `QUEUE_SIZE_MAX`.
    #[error("a ring of {0} descriptors is none")]
    BadSize(u32),
    /// It does not lie in the machine's memory.
    #[error(transparent)]
    Table(#[from] TableError),
    /// More is offered than the ring has room for.
    #[error("{0} entries are offered at once, which are more than the ring has")]
    Jump(u16),
    /// There is no such descriptor.
    #[error("descriptor {0} is not in the ring")]
    NoDescriptor(u16),
    /// What is under way is offered again.
    #[error("descriptor {0} is offered while it is under way")]
    OfferedTwice(u16),
    /// Descriptors that do not make a chain.
    #[error("the chain of descriptor {head}: {what}")]
    BadChain {
        /// Its first descriptor.
        head: u16,
        /// What is wrong.
        what: &'static str,
    },
}

impl From<plexum_front::memory::MemoryError> for RingError {
    fn from(error: plexum_front::memory::MemoryError) -> Self {
        Self::Table(error.into())
    }
}

/// How a ring is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSetup {
    /// How many descriptors it has.
    pub descriptors: u16,
    /// Where it lies.
    pub place: RingPlace,
    /// Events are told by index.
    pub has_event_index: bool,
}

/// A ring that is worked on.
pub struct Ring {
    setup: RingSetup,
    /// Next entry of the available ring that is looked at.
    next_available: u16,
    /// Next entry of the used ring that is filled.
    next_used: u16,
    /// What the used index was when the guest was last told, or looked whether to.
    told_used: u16,
    is_under_way: Vec<bool>,
    under_way: usize,
}

/// Checks how many descriptors a ring is to have.
///
/// # Errors
/// `BadSize`.
pub fn check_size(descriptors: u32) -> Result<u16, RingError> {
    let fits = u16::try_from(descriptors).ok();
    let fits = fits.filter(|count| count.is_power_of_two() && *count <= QUEUE_SIZE_MAX);
    fits.ok_or(RingError::BadSize(descriptors))
}

impl Ring {
    /// A ring whose next entry to be done is `next_available`.
    ///
    /// # Errors
    /// It does not lie in the machine's memory, or not at even addresses.
    pub fn begin<M: Mapping>(
        setup: RingSetup,
        next_available: u16,
        table: &Table<M>,
    ) -> Result<Self, RingError> {
        let mut ring = Self {
            setup,
            next_available,
            next_used: 0,
            told_used: 0,
            is_under_way: vec![false; usize::from(setup.descriptors)],
            under_way: 0,
        };
        table.piece(setup.place.descriptors, ring.size() * DESCRIPTOR_BYTES)?;
        ring.available(table)?.load_u16(2)?;
        ring.next_used = ring.used(table)?.load_u16(2)?;
        ring.told_used = ring.next_used;
        Ok(ring)
    }

    /// Descriptors.
    #[must_use]
    pub fn size(&self) -> usize {
        usize::from(self.setup.descriptors)
    }

    /// Where it lies.
    #[must_use]
    pub fn place(&self) -> &RingPlace {
        &self.setup.place
    }

    /// The next entry to be done.
    #[must_use]
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// The next entry to be filled with what was done.
    #[must_use]
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// Heads that were given out and not given back.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    fn available<'a, M: Mapping>(&self, table: &'a Table<M>) -> Result<Piece<'a, M>, RingError> {
        let bytes = HEAD_BYTES + 2 * self.size() + 2;
        Ok(table.piece(self.setup.place.available, bytes)?)
    }

    fn used<'a, M: Mapping>(&self, table: &'a Table<M>) -> Result<Piece<'a, M>, RingError> {
        let bytes = HEAD_BYTES + USED_ENTRY_BYTES * self.size() + 2;
        Ok(table.piece(self.setup.place.used, bytes)?)
    }

    fn slot(&self, index: u16) -> usize {
        usize::from(index) % self.size()
    }

    /// The descriptor `index`, as it is now.
    ///
    /// # Errors
    /// `NoDescriptor`; the memory is gone.
    pub fn descriptor<M: Mapping>(
        &self,
        table: &Table<M>,
        index: u16,
    ) -> Result<[u8; DESCRIPTOR_BYTES], RingError> {
        if usize::from(index) >= self.size() {
            return Err(RingError::NoDescriptor(index));
        }
        let all = table.piece(self.setup.place.descriptors, self.size() * DESCRIPTOR_BYTES)?;
        let mut bytes = [0; DESCRIPTOR_BYTES];
        all.load(usize::from(index) * DESCRIPTOR_BYTES, &mut bytes)?;
        Ok(bytes)
    }

    /// Takes the next head that is offered, when there is one.
    ///
    /// # Errors
    /// The guest has written what cannot be; the ring is of no use any more.
    pub fn take<M: Mapping>(&mut self, table: &Table<M>) -> Result<Option<u16>, RingError> {
        let available = self.available(table)?;
        let offered = available.load_u16(2)?.wrapping_sub(self.next_available);
        if offered == 0 {
            return Ok(None);
        }
        if offered > self.setup.descriptors {
            return Err(RingError::Jump(offered));
        }
        let head = available.load_u16(HEAD_BYTES + 2 * self.slot(self.next_available))?;
        self.note_under_way(head)?;
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    /// A head that is under way: it was taken now, or by an earlier session.
    ///
    /// # Errors
    /// `NoDescriptor`, `OfferedTwice`.
    pub fn note_under_way(&mut self, head: u16) -> Result<(), RingError> {
        let place = self.is_under_way.get_mut(usize::from(head));
        match place {
            None => Err(RingError::NoDescriptor(head)),
            Some(true) => Err(RingError::OfferedTwice(head)),
            Some(place) => {
                *place = true;
                self.under_way += 1;
                Ok(())
            }
        }
    }

    /// Gives a head back that was taken, with the number of bytes that were written into its buffers.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn give_back<M: Mapping>(
        &mut self,
        table: &Table<M>,
        head: u16,
        written_bytes: u32,
    ) -> Result<(), RingError> {
        let place = &mut self.is_under_way[usize::from(head)];
        assert!(*place, "a head is given back once");
        *place = false;
        self.under_way -= 1;
        let used = self.used(table)?;
        let mut entry = [0; USED_ENTRY_BYTES];
        entry[..4].copy_from_slice(&u32::from(head).to_le_bytes());
        entry[4..].copy_from_slice(&written_bytes.to_le_bytes());
        used.store(
            HEAD_BYTES + USED_ENTRY_BYTES * self.slot(self.next_used),
            &entry,
        )?;
        self.next_used = self.next_used.wrapping_add(1);
        used.store_u16(2, self.next_used)?;
        Ok(())
    }

    /// Forgets a head that was taken and cannot be given back: its chain is none.
    pub fn abandon(&mut self, head: u16) {
        if std::mem::take(&mut self.is_under_way[usize::from(head)]) {
            self.under_way -= 1;
        }
    }

    /// Whether the guest wants to be told of what was given back since the last question.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn wants_event<M: Mapping>(&mut self, table: &Table<M>) -> Result<bool, RingError> {
        let before = std::mem::replace(&mut self.told_used, self.next_used);
        let given = self.next_used.wrapping_sub(before);
        if given == 0 {
            return Ok(false);
        }
        // The index that was stored has to be there before it is read what the guest wants: it writes that, and then
        // looks at the index.
        fence(Ordering::SeqCst);
        let available = self.available(table)?;
        if !self.setup.has_event_index {
            return Ok(available.load_u16(0)? & NO_EVENTS == 0);
        }
        let wanted = available.load_u16(HEAD_BYTES + 2 * self.size())?;
        // Entry `wanted` is among those that were filled since.
        Ok(self.next_used.wrapping_sub(wanted).wrapping_sub(1) < given)
    }

    /// Kicks are wanted from the next entry on; says whether one is there by now.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn want_kicks<M: Mapping>(&mut self, table: &Table<M>) -> Result<bool, RingError> {
        let used = self.used(table)?;
        match self.setup.has_event_index {
            true => used.store_u16(
                HEAD_BYTES + USED_ENTRY_BYTES * self.size(),
                self.next_available,
            )?,
            false => used.store_u16(0, 0)?,
        }
        fence(Ordering::SeqCst); // as in `wants_event`, the other way round
        Ok(self.available(table)?.load_u16(2)? != self.next_available)
    }

    /// Kicks are not wanted: the ring is being looked at.
    ///
    /// # Errors
    /// The memory is gone.
    pub fn want_no_kicks<M: Mapping>(&mut self, table: &Table<M>) -> Result<(), RingError> {
        if !self.setup.has_event_index {
            self.used(table)?.store_u16(0, NO_EVENTS)?;
        }
        // With the index, an entry that lies behind is never reached again before it is set anew.
        Ok(())
    }
}
