//! A check of everything that a pool says about itself: what zdb looks at, and the sums that it does not.
//!
//! Every pointer is followed, data blocks alone are not read: their checksums are the business of a scrub. Compared
//! are: fills and births of pointers, the space that objects take, sums of data sets, deadlists and directories,
//! numbers of clones, space maps against all blocks that something reaches, features that count things, objects
//! without an owner.
//!
//! Invariants: nothing is written; what cannot be read is a finding, and the check goes on.
//!
//! Source: zfs-write.md 1.3 to 1.5 and 2.4.

mod maps;
mod owners;
mod sums;
#[cfg(test)]
mod tests;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::PointerImage;
use plexum_zfs::Pool;

use crate::create::tree_guids;
use crate::error::PoolError;
use crate::ground::{PlexShape, Shapes};
use crate::set::SetState;
use crate::spans::Spans;
use crate::tree::Source;

/// Most findings that are kept; those after them are counted only.
const FINDINGS_MAX: usize = 1000;

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingKind {
    /// Something cannot be read.
    Unreadable,
    /// A pointer cannot be: level, birth, or fill.
    Pointer,
    /// Space is used by two blocks.
    UsedTwice,
    /// A block lies in space that the maps call free.
    UsedButFree,
    /// The maps call space in use that nothing reaches.
    Leaked,
    /// A space map contradicts itself, its sum or its histogram.
    SpaceMap,
    /// The space that an object takes is another.
    ObjectUsed,
    /// A sum of a data set, a deadlist or a directory is another.
    Sum,
    /// A number of clones, or of things that have a feature, is another.
    Count,
    /// An object that nothing refers to.
    Object,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind.
    pub kind: FindingKind,
    /// Where.
    pub place: String,
    /// What was found, and what was expected.
    pub problem: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.problem)
    }
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// What is wrong, at most a thousand findings.
    pub findings: Vec<Finding>,
    /// Findings that are not in the list.
    pub more: u64,
    /// What was not compared, and why.
    pub notes: Vec<String>,
    /// Blocks that were followed.
    pub blocks: u64,
    /// Space that something reaches, parity and padding included.
    pub allocated_bytes: u64,
    /// Transaction group of the root that was checked.
    pub txg: u64,
}

impl CheckReport {
    /// Nothing was wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty()
    }
}

/// The memory of a check.
struct Check<D> {
    source: Source<D>,
    shapes: Shapes,
    meta: SetState,
    report: CheckReport,
    /// Space that a block was found in, by plex.
    claimed: BTreeMap<u32, Spans>,
    /// Blocks that were found, by their first address and birth.
    seen: BTreeSet<(u32, u64, u64)>,
    /// Those of the set that is being walked.
    in_set: BTreeSet<(u32, u64, u64)>,
    /// Objects of the pool's own set that something refers to.
    owned: BTreeSet<u64>,
    /// Space maps with a histogram.
    histograms: u64,
    /// A log of space maps, or an intent log, was not followed to its end.
    is_space_known: bool,
}

/// Checks a pool that is open for reading.
///
/// # Errors
/// Why not even its own object set can be read, or a plex of a kind whose space is not known.
pub async fn check_pool<D: Device>(pool: Pool<D>) -> Result<CheckReport, PoolError> {
    check_shared(Rc::new(pool)).await
}

/// As [`check_pool`], of a pool that others have too.
pub(crate) async fn check_shared<D: Device>(pool: Rc<Pool<D>>) -> Result<CheckReport, PoolError> {
    let mut shapes = Shapes::default();
    for (config, slots) in pool.plexes() {
        let id = u32::try_from(config.id).unwrap_or(u32::MAX);
        shapes.0.insert(
            id,
            PlexShape::new(id, &config.kind, slots.len(), config.ashift)?,
        );
    }
    let (root, txg) = (pool.report.root.root_image, pool.report.root.txg);
    let guid_sum = pool.report.root.guid_sum;
    let features = pool.report.features.clone();
    let source = Source { pool: Some(pool) };
    let meta = SetState::open(&source, &root, "the pool").await?;
    let mut check = Check {
        source,
        shapes,
        meta,
        report: CheckReport {
            txg,
            ..CheckReport::default()
        },
        claimed: BTreeMap::new(),
        seen: BTreeSet::new(),
        in_set: BTreeSet::new(),
        owned: BTreeSet::new(),
        histograms: 0,
        is_space_known: true,
    };
    if features.iter().any(|name| name == "com.datto:encryption") {
        check
            .report
            .notes
            .push("fills of encrypted data sets are not compared".into());
    }
    check.everything(&root).await?;
    let config = check.config().await?;
    if let Some(tree) = config.list("vdev_tree") {
        let sum = tree_guids(tree);
        check.expect(
            guid_sum,
            FindingKind::Count,
            "the root",
            "the sum of all identities",
            sum,
        );
    }
    Ok(check.report)
}

impl<D: Device> Check<D> {
    async fn everything(&mut self, root: &PointerImage) -> Result<(), PoolError> {
        let own = self.set("the pool", root).await;
        self.data_sets(own.sums).await?;
        self.space_maps().await?;
        self.objects(&own.objects).await?;
        self.report.allocated_bytes = self.claimed.values().map(Spans::total_bytes).sum();
        Ok(())
    }

    fn find(&mut self, kind: FindingKind, place: impl Into<String>, problem: impl Into<String>) {
        if self.report.findings.len() >= FINDINGS_MAX {
            self.report.more += 1;
            return;
        }
        let (place, problem) = (place.into(), problem.into());
        self.report.findings.push(Finding {
            kind,
            place,
            problem,
        });
    }

    /// Compares a number with what it should be.
    fn expect(&mut self, found: u64, kind: FindingKind, place: &str, what: &str, expected: u64) {
        if found != expected {
            self.find(
                kind,
                place,
                format!("{what} is {found}, but should be {expected}"),
            );
        }
    }

    /// The value of an operation; `None`, and a finding, when something cannot be read.
    fn read<T>(&mut self, place: &str, result: Result<T, PoolError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.find(FindingKind::Unreadable, place, error.to_string());
                None
            }
        }
    }

    async fn entry(&self, name: &str) -> Result<Option<u64>, PoolError> {
        self.meta.zap_number(&self.source, 1, name).await
    }
}
