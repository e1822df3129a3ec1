//! Which transaction groups members missed: recorded in the pool as OpenZFS does, so that whoever has the members next
//! knows what to make good.
//!
//! Invariants:
//! - the root of a transaction group says of every member that did not get all of its blocks that it missed it: a
//!   commit in which a member is lost does not end with a root, the next one says so and has it;
//! - so a member that has neither the newest root nor the one before it was out; where nothing says what it missed, it
//!   missed everything since.
//!
//! Source: zfs-write.md 1.8.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use plexum_block::device::Device;
use plexum_format::zfs::spacemap::{Change, decode, encode};
use plexum_format::zfs::{NvList, NvValue};
use plexum_zfs::MemberState;

use crate::dsl::{kind, object};
use crate::error::PoolError;
use crate::mutant::Mutant;
use crate::numbers::{SPACE_MAP_BLOCK_BYTES, SPACE_MAP_HEAD_BYTES};
use crate::state::{ConfigState, WritablePool};
use crate::txgs::MissedTxgs;

/// Longest record of what a member missed that is read.
const MISSED_BYTES_MAX: u64 = 16 << 20;

/// What members missed as their roots tell, by their identity.
pub(crate) type Behind = BTreeMap<u64, Range<u64>>;

/// Compares the roots of the members of each plex: not every root is written to every plex.
pub(crate) fn members_behind_in_roots<D>(members: &[MemberState<D>]) -> Behind {
    let plex = |member: &MemberState<D>| member.label.plex.as_ref().map(|plex| plex.id);
    let mut roots: BTreeMap<Option<u64>, BTreeSet<u64>> = BTreeMap::new();
    for member in members {
        let all = member.roots.iter().map(|root| root.txg);
        roots.entry(plex(member)).or_default().extend(all);
    }
    let mut behind = Behind::new();
    for member in members {
        let all = &roots[&plex(member)];
        let own = member.roots.iter().map(|root| root.txg).max().unwrap_or(0);
        let mut newest = all.iter().rev();
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && own < *before
        {
            behind.insert(member.label.guid, own + 1..last + 1);
        }
    }
    behind
}

impl<D: Device> WritablePool<D> {
    /// Reads what members missed, and sees what the reader should not take from them.
    pub(crate) async fn load_missed(&mut self, behind: &Behind) -> Result<(), PoolError> {
        let newest_txg = self.txg;
        let guids: Vec<u64> = self.ground.leaves().map(|leaf| leaf.guid).collect();
        for guid in guids {
            let list = leaf_of(&self.config, guid);
            let number = list.and_then(|list| list.number("DTL")).unwrap_or(0);
            let mut missed = MissedTxgs {
                object: number,
                ..MissedTxgs::default()
            };
            if number != 0 {
                let dnode = self.meta.dnode(&self.source, number).await?;
                let length = dnode.bonus_word(1).min(MISSED_BYTES_MAX);
                let bytes = self.meta.bytes(number, &self.source, length).await?;
                for entry in decode(&bytes).unwrap_or_default() {
                    let range = entry.start..entry.start.saturating_add(entry.count);
                    match entry.change {
                        Change::Allocated => missed.add(range),
                        Change::Freed => {
                            missed.remove(&[range]);
                        }
                    }
                }
                missed.is_changed = false;
            }
            if let Some(range) = behind.get(&guid) {
                missed.add(range.clone());
            }
            let leaf = self.ground.leaves().find(|leaf| leaf.guid == guid);
            let leaf = leaf.expect("its identity is in the list");
            leaf.missed.set(missed.txgs.iter().collect());
            if let Some(reason) = leaf.out.take() {
                leaf.take_out(reason, newest_txg + 1);
            }
            self.missed.insert(guid, missed);
        }
        Ok(())
    }

    /// Notes what members that are out miss with this transaction group, and puts all that changed into the pool.
    pub(crate) async fn store_missed(&mut self, txg: u64) -> Result<(), PoolError> {
        for leaf in self.ground.leaves().filter(|leaf| !leaf.is_in()) {
            if self.bug.is(Mutant::MissedNotNoted) {
                continue;
            }
            let missed = self.missed.entry(leaf.guid).or_default();
            missed.add(leaf.out_since.get()..txg + 1);
        }
        let changed = self.missed.iter().filter(|(_, missed)| missed.is_changed);
        let changed: Vec<u64> = changed.map(|(guid, _)| *guid).collect();
        for guid in changed {
            let missed = self.missed.get_mut(&guid).expect("it is in the list");
            if missed.object == 0 {
                let new = object(
                    kind::SPACE_MAP,
                    SPACE_MAP_BLOCK_BYTES,
                    kind::SPACE_MAP_HEAD,
                    SPACE_MAP_HEAD_BYTES,
                );
                missed.object = self.meta.add(&self.source, &new).await?;
                let list = leaf_mut(&mut self.config, guid);
                let list = list
                    .ok_or_else(|| PoolError::invalid("configuration", "a member is not in it"))?;
                list.put_number("DTL", missed.object);
                self.config_state = ConfigState::Changed;
            }
            let mut bytes = Vec::new();
            for range in missed.txgs.iter() {
                if !encode(Change::Allocated, range, &mut bytes) {
                    return Err(PoolError::invalid(
                        "missed changes",
                        "a number is too large",
                    ));
                }
            }
            let (number, total) = (missed.object, missed.txgs.total_bytes());
            missed.is_changed = false;
            self.meta.write(number, &self.source, 0, &bytes).await?;
            let changed = self.meta.change(&self.source, number).await?;
            for (word, value) in [number, bytes.len() as u64, total].into_iter().enumerate() {
                changed.dnode.set_bonus_word(word, value);
            }
        }
        Ok(())
    }

    /// Members that are there and have to be given what they missed.
    #[must_use]
    pub fn members_behind(&self) -> Vec<String> {
        let leaves = self.ground.leaves().filter(|leaf| leaf.is_in());
        leaves
            .filter(|leaf| {
                let missed = self.missed.get(&leaf.guid);
                missed.is_some_and(|missed| !missed.txgs.is_empty())
            })
            .map(|leaf| leaf.name.clone())
            .collect()
    }

    /// Members that are not written, and why.
    #[must_use]
    pub fn members_out(&self) -> Vec<(String, String)> {
        let leaves = self.ground.leaves();
        leaves
            .filter_map(|leaf| Some((leaf.name.clone(), leaf.out.borrow().clone()?)))
            .collect()
    }
}

/// Where a member is in the tree of the configuration: numbers of children.
fn path_of(config: &NvList, guid: u64) -> Option<Vec<usize>> {
    let mut work: Vec<(Vec<usize>, &NvList)> = vec![(Vec::new(), config.list("vdev_tree")?)];
    while let Some((path, list)) = work.pop() {
        let children = list.lists("children");
        if children.is_empty() && list.number("guid") == Some(guid) {
            return Some(path);
        }
        for (n, child) in children.iter().enumerate() {
            let mut path = path.clone();
            path.push(n);
            work.push((path, child));
        }
    }
    None
}

/// A member in the configuration.
pub(crate) fn leaf_of(config: &NvList, guid: u64) -> Option<&NvList> {
    let path = path_of(config, guid)?;
    let root = config.list("vdev_tree")?;
    path.iter()
        .try_fold(root, |list, n| list.lists("children").get(*n))
}

/// A plex in the configuration.
pub(crate) fn plex_of(config: &NvList, id: u32) -> Option<&NvList> {
    let plexes = config.list("vdev_tree")?.lists("children");
    plexes
        .iter()
        .find(|one| one.number("id") == Some(u64::from(id)))
}

/// A plex in the configuration, to be changed.
pub(crate) fn plex_mut(config: &mut NvList, id: u32) -> Option<&mut NvList> {
    let mut plexes = plexes_mut(config)?.iter_mut();
    plexes.find(|one| one.number("id") == Some(u64::from(id)))
}

/// All plexes in the configuration, to be changed.
pub(crate) fn plexes_mut(config: &mut NvList) -> Option<&mut Vec<NvList>> {
    let root = match value_mut(config, "vdev_tree")? {
        NvValue::List(root) => root,
        _ => return None,
    };
    match value_mut(root, "children")? {
        NvValue::Lists(children) => Some(children),
        _ => None,
    }
}

/// A member in the configuration, to be changed.
pub(crate) fn leaf_mut(config: &mut NvList, guid: u64) -> Option<&mut NvList> {
    let path = path_of(config, guid)?;
    let mut list = match value_mut(config, "vdev_tree")? {
        NvValue::List(list) => list,
        _ => return None,
    };
    for n in path {
        list = match value_mut(list, "children")? {
            NvValue::Lists(children) => children.get_mut(n)?,
            _ => return None,
        };
    }
    Some(list)
}

fn value_mut<'a>(list: &'a mut NvList, name: &str) -> Option<&'a mut NvValue> {
    let mut pairs = list.pairs.iter_mut();
    pairs
        .find(|(found, _)| found == name)
        .map(|(_, value)| value)
}
