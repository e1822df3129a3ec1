//! A pool that is written: what is in memory of it.

use std::collections::{BTreeMap, BTreeSet};

use plexum_format::zfs::NvList;
use plexum_format::zfs::label_write::NewUberblock;

use crate::chain::Log;
use crate::ground::Ground;
use crate::mutant::DeliberateBug;
use crate::set::SetState;
use crate::space::Space;
use crate::tree::Source;
use crate::txgs::MissedTxgs;

/// What the configuration in labels has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigState {
    /// As it is on the members.
    Written,
    /// The next commit writes it everywhere.
    Changed,
}

/// A root that a crash may have left on some members alone.
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    pub root: NewUberblock,
    /// Members that have everything that it reaches, but not the root, by their identity.
    pub lacking: BTreeSet<u64>,
    /// Members without a good label behind the root, by their identity.
    pub unlabelled: BTreeSet<u64>,
    /// What the labels say of the pool, and its state in them.
    pub config: NvList,
    pub label_state: u64,
}

/// Numbers of the objects that a writer needs again and again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Landmarks {
    pub config: u64,
    pub root_dir: u64,
    pub own_dir: u64,
    pub origin_snapshot: u64,
    pub origin_dir: u64,
}

/// A pool that is written.
pub struct WritablePool<D> {
    pub(crate) name: String,
    pub(crate) guid: u64,
    pub(crate) version: u64,
    /// The configuration that the pool keeps of itself.
    pub(crate) config: NvList,
    pub(crate) config_state: ConfigState,
    /// Labels say that the pool is in use (0) or exported (1).
    pub(crate) label_state: u64,
    pub(crate) guid_sum: u64,
    pub(crate) source: Source<D>,
    pub(crate) ground: Ground<D>,
    pub(crate) space: Space,
    pub(crate) meta: SetState,
    /// Object sets that were changed, by the number of their data set.
    pub(crate) sets: BTreeMap<u64, SetState>,
    /// Objects with the numbers of space maps, by plex.
    pub(crate) arrays: BTreeMap<u32, u64>,
    pub(crate) landmarks: Landmarks,
    /// The last transaction group that is on the members.
    pub(crate) txg: u64,
    pub(crate) frozen: Option<String>,
    /// How many numbers before the next transaction group were left out: see [`open`](Self::open).
    pub(crate) skipped_txgs: u64,
    pub(crate) bug: DeliberateBug,
    /// The root that it was opened with, until it is on all members.
    pub(crate) unsettled: Option<Unsettled>,
    /// Members that went out, as far as a root says so: see `Ground::losses`.
    pub(crate) recorded_losses: u64,
    /// Commits are left out: see [`rehearse`](Self::rehearse).
    pub(crate) is_rehearsal: bool,
    pub(crate) pending: Pending,
    /// Intent logs of volumes that are written, by the number of their data set.
    pub(crate) logs: BTreeMap<u64, Log>,
    /// Transaction groups that members missed, by their identity.
    pub(crate) missed: BTreeMap<u64, MissedTxgs>,
}

impl<D> WritablePool<D> {
    /// From now on commits do nothing: what is asked for is checked, and nothing is written.
    pub fn rehearse(&mut self) {
        self.is_rehearsal = true;
    }
}

/// What waits for the next commit.
#[derive(Default)]
pub(crate) struct Pending {
    pub wanted_bytes: u64,
    /// Indirect blocks that change, by data set.
    pub parents: BTreeSet<(u64, u64)>,
}
