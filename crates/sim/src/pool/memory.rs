//! What the rules of pools remember from one life to the next.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use plexum_pool::GroupKind;

use crate::oracle::Oracle;

/// Something that no client changes: a snapshot, or a volume that was made of one.
pub(super) struct Frozen {
    /// Its whole name.
    pub name: String,
    /// The volume that it was taken of, or the snapshot that it was made of.
    pub of: String,
    /// What it holds.
    pub oracle: Oracle,
}

impl Frozen {
    /// Whether it is a snapshot, not a volume that was made of one.
    pub fn is_snapshot(&self) -> bool {
        self.name.contains('@')
    }
}

/// What an administrator has begun and may not have finished.
pub(super) enum Begun {
    /// This may be there.
    Making(Frozen),
    /// What is called so may be gone.
    Removing(String),
}

/// What these rules remember.
#[derive(Default)]
pub struct PoolMemory {
    /// Lives so far.
    pub(super) lives: Cell<usize>,
    /// The last transaction group that is known to be on all members which are not out.
    pub(super) committed_txg: Cell<u64>,
    /// Kind and number of members of each group.
    pub(super) groups: RefCell<Vec<(GroupKind, usize)>>,
    /// By slot: the disk that has it.
    pub(super) roles: RefCell<Vec<Option<u32>>>,
    /// Disks that do not have everything: out, or behind.
    pub(super) behind: RefCell<BTreeSet<u32>>,
    /// Disks that hold something else than they were given, until a scrub has mended them.
    pub(super) silent: RefCell<BTreeSet<u32>>,
    /// What no client changes.
    pub(super) frozen: RefCell<Vec<Frozen>>,
    /// What an administrator had begun when the machine went off.
    pub(super) begun: RefCell<Option<Begun>>,
    /// Things that were named so far.
    pub(super) names: Cell<u64>,
}

impl PoolMemory {
    /// Whether everything is there without these slots.
    pub(super) fn is_enough(&self, lost: &[usize]) -> bool {
        let mut first = 0;
        self.groups.borrow().iter().all(|(kind, count)| {
            let slots = first..first + count;
            first += count;
            let spare = match kind {
                GroupKind::Single => 0,
                GroupKind::Mirror => count - 1,
                GroupKind::RaidZ(parities) => usize::from(*parities),
            };
            lost.iter().filter(|slot| slots.contains(slot)).count() <= spare
        })
    }

    /// The group that a slot is in, and its slots.
    pub(super) fn group_of(&self, slot: usize) -> Option<(GroupKind, std::ops::Range<usize>)> {
        let mut first = 0;
        for (kind, count) in self.groups.borrow().iter() {
            let slots = first..first + count;
            if slots.contains(&slot) {
                return Some((*kind, slots));
            }
            first = slots.end;
        }
        None
    }

    /// Who has which slot, and how the groups are made up: sides come and go, and groups come. By slot: the disk, and
    /// the number of the group.
    pub(super) fn note_slots(&self, slots: &[(Option<u32>, u32)]) {
        let roles = slots.iter().map(|(disk, _)| *disk);
        *self.roles.borrow_mut() = roles.collect();
        let mut counts: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, group) in slots {
            *counts.entry(*group).or_default() += 1;
        }
        let known = self.groups.take();
        let groups = counts.into_values().enumerate().map(|(at, count)| {
            let kind = match known.get(at) {
                Some((GroupKind::RaidZ(parities), _)) => GroupKind::RaidZ(*parities),
                _ if count == 1 => GroupKind::Single,
                _ => GroupKind::Mirror,
            };
            (kind, count)
        });
        *self.groups.borrow_mut() = groups.collect();
    }
}
