//! Snapshots of who serves which slot, and how far a member that is being filled can be read.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use super::state::{ArrayState, Standing};
use crate::drive::Drive;

use plexum_block::bits::Bits;
use plexum_block::device::Device;

/// A member that is being filled: it takes part in every write and is read where it is valid already.
pub struct Filling<D> {
    /// Its drive.
    pub drive: Rc<Drive<D>>,
    /// Member bytes below this are valid; ahead of what is durably recorded.
    pub valid_below_bytes: Cell<u64>,
    /// Re-add by bitmap: what is still stale; everything else is valid.
    pub stale: Option<Stale>,
}

/// Regions that a member has missed writes to.
pub struct Stale {
    bits: RefCell<Bits>,
    /// Bytes of the sync space that one bit stands for; they do not change while a member is being filled.
    region_bytes: u64,
}

impl Stale {
    /// Bits of regions of so many bytes of the sync space.
    #[must_use]
    pub fn new(bits: Bits, region_bytes: u64) -> Self {
        Self {
            bits: RefCell::new(bits),
            region_bytes,
        }
    }

    /// Whether a sync range is in none of them.
    #[must_use]
    pub fn is_apart(&self, sync: &Range<u64>) -> bool {
        let index = |at: u64| usize::try_from(at / self.region_bytes).expect("inside the regions");
        let last = index(sync.end.saturating_sub(1).max(sync.start));
        let bits = self.bits.borrow();
        (index(sync.start)..=last).all(|index| !bits.get(index))
    }

    /// A region is stale no more. Whether it was.
    pub fn clear(&self, region: usize) -> bool {
        self.bits.borrow_mut().set(region, false)
    }
}

impl<D: Device> Filling<D> {
    pub(crate) fn new(drive: Rc<Drive<D>>, valid_below_bytes: u64, stale: Option<Stale>) -> Self {
        Self {
            drive,
            valid_below_bytes: Cell::new(valid_below_bytes),
            stale,
        }
    }

    /// Whether the member's data are right in the whole range, given in member bytes and in bytes of the sync space.
    pub fn is_valid(&self, member: &Range<u64>, sync: &Range<u64>) -> bool {
        member.end <= self.valid_below_bytes.get()
            || self
                .stale
                .as_ref()
                .is_some_and(|stale| stale.is_apart(sync))
    }
}

/// Who serves one slot.
pub struct SlotView<D> {
    /// Holds the slot's data completely.
    pub active: Option<Rc<Drive<D>>>,
    /// Is being filled for it.
    pub filling: Option<Rc<Filling<D>>>,
    /// Whether it should be read only when nobody else can answer.
    pub is_write_mostly: bool,
}

impl<D: Device> SlotView<D> {
    /// The drive that can be read in this range, if any; `sync` is the same in the sync space. Bad blocks count as not
    /// readable.
    #[inline]
    pub fn readable(&self, member: &Range<u64>, sync: &Range<u64>) -> Option<&Rc<Drive<D>>> {
        let active = self.active.as_ref().filter(|drive| !drive.is_bad(member));
        active.or_else(|| {
            let filling = self.filling.as_ref()?;
            (filling.is_valid(member, sync) && !filling.drive.is_bad(member))
                .then_some(&filling.drive)
        })
    }

    /// Who is being filled while the member that it replaces still serves.
    pub fn replacement(&self) -> Option<&Rc<Filling<D>>> {
        self.filling.as_ref().filter(|_| self.active.is_some())
    }

    /// Drives that every write to this slot has to reach.
    pub fn writable(&self) -> impl Iterator<Item = &Rc<Drive<D>>> {
        self.active
            .iter()
            .chain(self.filling.as_ref().map(|filling| &filling.drive))
    }

    /// Whether a write to this slot reaches anybody.
    pub fn is_writable(&self) -> bool {
        self.active.is_some() || self.filling.is_some()
    }
}

/// Who serves which slot, as of one moment.
pub struct MemberSet<D> {
    /// By slot.
    pub slots: Vec<SlotView<D>>,
}

impl<D: Device> MemberSet<D> {
    pub(crate) fn empty(slot_count: usize) -> Self {
        let nobody = || SlotView {
            active: None,
            filling: None,
            is_write_mostly: false,
        };
        Self {
            slots: (0..slot_count).map(|_| nobody()).collect(),
        }
    }

    /// The deliberate bug of one spare for two slots: empty slots get the drive that is being filled for another one.
    pub(crate) fn lend_fillings(&mut self) {
        let Some(lent) = self.slots.iter().find_map(|view| view.filling.clone()) else {
            return;
        };
        for view in &mut self.slots {
            if view.active.is_none() && view.filling.is_none() {
                view.filling = Some(Rc::clone(&lent));
            }
        }
    }

    pub(crate) fn of(
        state: &ArrayState,
        drives: &[Option<Rc<Drive<D>>>],
        fillings: &[Rc<Filling<D>>],
    ) -> Self {
        let mut set = Self::empty(usize::from(state.slot_count));
        for (record, drive) in state.members.iter().zip(drives) {
            let (Some(slot), Some(drive)) = (record.slot, drive) else {
                continue;
            };
            let view = &mut set.slots[usize::from(slot)];
            match record.standing {
                Standing::Active => {
                    assert!(view.active.is_none(), "a slot has one active member");
                    view.active = Some(Rc::clone(drive));
                    view.is_write_mostly = record.is_write_mostly;
                }
                Standing::Rebuilding { .. } => {
                    view.filling = fillings
                        .iter()
                        .find(|filling| filling.drive.id == drive.id)
                        .cloned();
                    if view.active.is_none() {
                        view.is_write_mostly = record.is_write_mostly;
                    }
                }
                _ => {}
            }
        }
        set
    }
}
