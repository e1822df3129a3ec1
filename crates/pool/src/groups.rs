//! One more group of members for a pool that is there: another plex, whose space can be used at once.
//!
//! Invariant: nothing of the new plex is reached by a root whose labels do not name it.
//!
//! Source: zfs-write.md 1.1 and 1.8.

use plexum_block::device::Device;
use plexum_format::zfs::{NvList, NvValue};

use crate::create::{
    GroupKind, NewGroup, check_count, check_group, check_member_size, metaslabs_of, new_plex,
};
use crate::error::PoolError;
use crate::missed::plexes_mut;
use crate::numbers::Identities;
use crate::snapshot::Now;
use crate::state::WritablePool;

/// Whether a group may hold its data in another way than those that are there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mixed {
    /// Not: the pool would be as weak as its weakest group, and a group cannot be taken out again.
    #[default]
    Refused,
    /// The user said so.
    Accepted,
}

impl<D: Device> WritablePool<D> {
    /// Whether a group of so many members can be added.
    ///
    /// # Errors
    /// `Refused` when it can do without another number of members than the groups that there are, or is of another
    /// kind, and that was not accepted.
    fn check_mixed(&self, kind: GroupKind, count: usize, mixed: Mixed) -> Result<(), PoolError> {
        if mixed == Mixed::Accepted {
            return Ok(());
        }
        let new = (kind_word(kind), spare_count(kind, count));
        for plex in self.ground.plexes.values() {
            let is = plex.kind();
            let own = (kind_word(is), spare_count(is, plex.leaves.len()));
            if own != new {
                return Err(PoolError::Refused(format!(
                    "group {} of pool {} is a {} that can do without {} members, the new one a {} that can do without {}; \
                     a group cannot be taken out again",
                    plex.id, self.name, own.0, own.1, new.0, new.1
                )));
            }
        }
        Ok(())
    }

    /// Whether members of these names and sizes can become a group.
    ///
    /// # Errors
    /// Those of [`add_group`](Self::add_group) that are known before anything is written.
    pub fn check_add(
        &self,
        kind: GroupKind,
        members: &[(&str, u64)],
        mixed: Mixed,
    ) -> Result<(), PoolError> {
        check_count(kind, members.len())?;
        let mut sizes = members.iter();
        sizes.try_for_each(|(name, size_bytes)| check_member_size(name, *size_bytes))?;
        self.check_mixed(kind, members.len(), mixed)
    }

    /// Adds a group; committed when this returns.
    ///
    /// # Errors
    /// `Refused` when it is of another kind than the groups that there are, or can do without another number of
    /// members, and that was not accepted; for members that cannot be. The pool stays what it was.
    pub async fn add_group(
        &mut self,
        group: NewGroup<D>,
        mixed: Mixed,
        now: Now,
    ) -> Result<(), PoolError> {
        self.check_frozen()?;
        self.check_mixed(group.kind, group.members.len(), mixed)?;
        let last = self.ground.plexes.last_key_value();
        let id = last.map_or(0, |(id, _)| id + 1);
        let sectors = self.ground.plexes.values().map(|plex| plex.ashift);
        let ashift = sectors.max().unwrap_or(12);
        check_group(id, &group, ashift)?;
        if self.is_rehearsal {
            return Ok(());
        }
        let mut identities = Identities(now.seed ^ self.guid);
        let (mut plex, tree) = new_plex(id, group, ashift, &mut identities)?;
        let leaves = std::mem::take(&mut plex.leaves);
        self.ground.shapes.0.insert(id, plex.shape.clone());
        self.ground.plexes.insert(id, plex);
        if let Err(error) = self.come(id, leaves).await {
            self.ground.plexes.remove(&id);
            self.ground.shapes.0.remove(&id);
            return Err(error);
        }
        let result = self.use_group(id, tree, now.wall_s).await;
        self.freeze_after(result)
    }

    /// The group becomes a part of the pool, with empty metaslabs.
    async fn use_group(&mut self, id: u32, mut tree: NvList, wall_s: u64) -> Result<(), PoolError> {
        let plex = self.ground.plex(id)?;
        let (size_bytes, empty) = (plex.size_bytes, metaslabs_of(plex));
        let guids: Vec<u64> = plex.leaves.iter().map(|leaf| leaf.guid).collect();
        let array = self.plant_array(id, size_bytes).await?;
        let txg = self.txg + 1;
        tree.put_number("metaslab_array", array);
        tree.put_number("create_txg", txg);
        if let Some(map) = self.add_member_map().await? {
            tree.put_number("com.delphix:vdev_zap_top", map);
        }
        let mut members = tree.lists("children").to_vec();
        for member in &mut members {
            member.put_number("create_txg", txg);
            if let Some(map) = self.add_member_map().await? {
                member.put_number("com.delphix:vdev_zap_leaf", map);
            }
        }
        match members.is_empty() {
            true => {
                if let Some(map) = self.add_member_map().await? {
                    tree.put_number("com.delphix:vdev_zap_leaf", map);
                }
            }
            false => tree.put("children", NvValue::Lists(members)),
        }
        let missing = || PoolError::invalid("configuration", "it has no plexes");
        let plexes = plexes_mut(&mut self.config).ok_or_else(missing)?;
        plexes.push(tree);
        let count = plexes.len() as u64;
        self.config.put_number("vdev_children", count);
        self.space.metaslabs.extend(empty);
        self.reconfigured(id, &guids)?;
        self.commit(wall_s).await
    }
}

fn kind_word(kind: GroupKind) -> &'static str {
    match kind {
        GroupKind::Single => "single member",
        GroupKind::Mirror => "mirror",
        GroupKind::RaidZ(_) => "RAID-Z",
    }
}

/// How many of its members a group can do without.
fn spare_count(kind: GroupKind, count: usize) -> usize {
    match kind {
        GroupKind::Single | GroupKind::Mirror => count.saturating_sub(1),
        GroupKind::RaidZ(parities) => usize::from(parities),
    }
}
