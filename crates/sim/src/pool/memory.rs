//! What the rules of pools remember from one life to the next.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

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
