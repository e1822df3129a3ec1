//! A commit: everything that was changed becomes the next root, all of it or nothing.
//!
//! The order (zfs-write.md 1.6): data sets are written first, whatever places they get. Then it is planned, without any
//! write, which blocks of the pool's own set change: a space map for every metaslab that gives or takes, the old block
//! of everything that changes is freed, which may touch further metaslabs, until nothing is added any more. Then all
//! places are known, the space maps are written as they will be true, and the root follows after a flush.
//!
//! Invariants:
//! - a root is written after a flush of everything that it reaches, to all labels of all members that are in;
//! - a commit that loses a member does not end with a root; another follows at once, which says what it missed; one
//!   follows as well when a member is lost while the root is written, or was lost between commits: nothing is answered
//!   before a root says who is out;
//! - before anything is written, the root that a pool was opened with is on all members that have what it reaches, and
//!   durable: what it freed is free for the first commit, and whoever has the root before it only must not need that;
//! - of each member one label is good at any time: before the two in front of a root are written, one behind it is;
//! - a commit is none when a plex has too few members that are written: they are checked before it, and whoever is lost
//!   in it is spared or ends it;
//! - after an error in a commit nothing more is written: the last root stays what the members hold.

use std::collections::{BTreeMap, BTreeSet};

use plexum_block::device::Device;
use plexum_format::zfs::label_write::NewUberblock;
use plexum_format::zfs::{NewObject, NvList, NvValue, PointerImage};

use crate::dsl::{self, kind, object};
use crate::error::PoolError;
use crate::ground::{Leaf, Shapes, Writes};
use crate::mutant::Mutant;
use crate::numbers::{SPACE_MAP_BLOCK_BYTES, SPACE_MAP_HEAD_BYTES};
use crate::set::SetState;
use crate::space::{Copies, Purpose};
use crate::state::{ConfigState, Pending, Unsettled, WritablePool};
use crate::tree::{Addresses, BlockKey, SET_BLOCK, Sums, Writer, grow, pointer_to, touched};

/// Copies of the pool's own blocks, of other metadata, and of data.
const OWN_COPIES: usize = 3;
const METADATA_COPIES: usize = 2;
const DATA_COPIES: usize = 1;
/// Rounds of planning: each adds something, and one or two are usual.
const ROUNDS_MAX: usize = 64;

impl<D: Device> WritablePool<D> {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The last transaction group that is on the members.
    #[must_use]
    pub fn txg(&self) -> u64 {
        self.txg - self.skipped_txgs
    }

    /// Bytes, parity included, that users may still take.
    #[must_use]
    pub fn usable_bytes(&self) -> u64 {
        self.space.usable_bytes()
    }

    /// Whether a commit would write something.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        let has_sets = self.sets.values().any(|set| !set.changed.is_empty());
        has_sets
            || !self.meta.changed.is_empty()
            || self.config_state == ConfigState::Changed
            || self.has_unrecorded_losses()
    }

    /// Whether a member went out and no root says so yet.
    pub(crate) fn has_unrecorded_losses(&self) -> bool {
        let is_recorded = self.ground.losses.get() == self.recorded_losses;
        !is_recorded && !self.bug.is(Mutant::LossNotRecorded)
    }

    /// Why nothing is written any more: a commit failed, and how far it got nobody knows. `None`: it goes on.
    #[must_use]
    pub fn why_frozen(&self) -> Option<&str> {
        self.frozen.as_deref()
    }

    /// Refuses when nothing is written any more.
    pub(crate) fn check_frozen(&self) -> Result<(), PoolError> {
        match &self.frozen {
            None => Ok(()),
            Some(reason) => Err(PoolError::Frozen {
                pool: self.name.clone(),
                reason: reason.clone(),
            }),
        }
    }

    /// Commits what was changed; without a change nothing is written.
    ///
    /// # Errors
    /// What kept it from being written. The pool is frozen then: the last root is what the members hold.
    pub async fn commit(&mut self, wall_s: u64) -> Result<(), PoolError> {
        self.check_frozen()?;
        if !self.has_changes() || self.is_rehearsal {
            return Ok(());
        }
        let result = match self.ground.check_enough() {
            Ok(()) => self.commit_changes(wall_s).await,
            Err(error) => Err(error),
        };
        result.map_err(|error| {
            let error = match error {
                PoolError::NoSpace {
                    wanted_bytes,
                    free_bytes,
                    ..
                } => PoolError::NoSpace {
                    pool: self.name.clone(),
                    wanted_bytes,
                    free_bytes,
                },
                other => other,
            };
            self.frozen = Some(error.to_string());
            error
        })
    }

    /// Puts the root that the pool was opened with on all members: see the invariants.
    async fn settle_root(&mut self) -> Result<(), PoolError> {
        let Some(unsettled) = self.unsettled.take() else {
            return Ok(());
        };
        if self.bug.is(Mutant::RootNotSettled) {
            return Ok(());
        }
        let Unsettled {
            root,
            lacking,
            unlabelled,
            config,
            label_state,
        } = &unsettled;
        self.ground.txg.set(self.txg + 1);
        let is_meant = |leaf: &Leaf<D>| lacking.contains(&leaf.guid);
        self.ground.write_root(root, is_meant).await?;
        if !unlabelled.is_empty() {
            let list = |plex: u32, leaf: &Leaf<D>| {
                label_list((config, *label_state), plex, leaf, root.txg)
            };
            let is_meant = |leaf: &Leaf<D>| unlabelled.contains(&leaf.guid);
            self.ground.write_labels([1, 3], &list, is_meant).await?;
        }
        // Of a process that was killed nobody knows what is durable.
        self.ground.flush().await
    }

    async fn commit_changes(&mut self, wall_s: u64) -> Result<(), PoolError> {
        self.settle_root().await?;
        if self.bug.is(Mutant::LogHeadMovedEarly) {
            self.move_heads_early(wall_s).await?;
        }
        self.commit_groups(wall_s).await
    }

    /// The bug `LogHeadMovedEarly`: a root says that logs are done, and the next one has what is in them.
    async fn move_heads_early(&mut self, wall_s: u64) -> Result<(), PoolError> {
        if self.logs.values().all(|log| log.used.is_empty()) {
            return Ok(());
        }
        let take = |set: &mut SetState| std::mem::take(&mut set.changed);
        let sets = self.sets.iter_mut();
        let held: Vec<(u64, _)> = sets.map(|(dataset, set)| (*dataset, take(set))).collect();
        self.commit_groups(wall_s).await?;
        for (dataset, changed) in held {
            if let Some(set) = self.sets.get_mut(&dataset) {
                set.changed.extend(changed);
            }
        }
        Ok(())
    }

    async fn commit_groups(&mut self, wall_s: u64) -> Result<(), PoolError> {
        loop {
            let losses = self.ground.losses.get();
            let txg = self.txg + 1;
            self.write_group(txg).await?;
            let root = NewUberblock {
                version: self.version,
                txg,
                guid_sum: self.guid_sum,
                written_s: wall_s,
                root: self.meta.root,
            };
            let is_rooted = self.write_root(&root, losses).await?;
            self.space.committed()?;
            self.txg = txg;
            self.skipped_txgs = 0;
            if is_rooted {
                self.recorded_losses = losses;
            }
            // One that was lost while the root was written is recorded by the next one.
            if is_rooted && !self.has_unrecorded_losses() {
                break;
            }
        }
        self.pending = Pending::default();
        self.config_state = ConfigState::Written;
        Ok(())
    }

    /// Writes everything that the root of a transaction group reaches.
    async fn write_group(&mut self, txg: u64) -> Result<(), PoolError> {
        self.ground.txg.set(txg);
        let mut writes = Writes::default();
        self.move_logs(txg)?;
        self.write_sets(txg, &mut writes).await?;
        self.store_missed(txg).await?;
        if self.config_state == ConfigState::Changed {
            self.store_config(txg).await?;
        }
        // Its sums change with the commit itself.
        self.meta
            .change(&self.source, self.landmarks.own_dir)
            .await?;
        self.meta
            .change(&self.source, self.landmarks.root_dir)
            .await?;
        let plan = self.plan().await?;
        let sums = plan.sums;
        dsl::use_space(&mut self.meta, &self.source, self.landmarks.own_dir, sums).await?;
        self.fill_space_maps().await?;
        let addresses = Addresses::Chosen(plan.places);
        let mut writer = Writer {
            source: &self.source,
            ground: &self.ground,
            space: &mut self.space,
            writes: &mut writes,
            txg,
            addresses: &addresses,
            outcome: crate::tree::Outcome::default(),
        };
        self.meta.write_out(&mut writer).await?;
        let mut born = writer.outcome.born;
        writer
            .outcome
            .dead
            .iter()
            .for_each(|dead| born.add(Sums::of(&self.ground.shapes, dead).negative()));
        if born != sums {
            return Err(PoolError::invalid(
                "commit",
                "it wrote other blocks than were planned",
            ));
        }
        self.ground.write_out(&mut writes).await?;
        if self.bug.is(Mutant::RootBeforeFlush) {
            return Ok(());
        }
        self.ground.flush().await
    }

    /// Labels and the root, in the order that leaves one whole set whatever happens in between. `false`: a member was
    /// lost since `losses` were counted, and no root was written.
    async fn write_root(&mut self, root: &NewUberblock, losses: u64) -> Result<bool, PoolError> {
        let is_config_new = self.config_state == ConfigState::Changed;
        let told = (&self.config, self.label_state);
        let list = |plex: u32, leaf: &Leaf<D>| label_list(told, plex, leaf, root.txg);
        if is_config_new && self.ground.losses.get() == losses {
            self.ground.write_labels([0, 2], &list, |_| true).await?;
            self.ground.flush().await?;
        }
        if self.ground.losses.get() != losses {
            return Ok(false);
        }
        self.ground.write_root(root, |_| true).await?;
        self.ground.flush().await?;
        if is_config_new {
            self.ground.write_labels([1, 3], &list, |_| true).await?;
            self.ground.flush().await?;
        }
        Ok(true)
    }

    async fn store_config(&mut self, txg: u64) -> Result<(), PoolError> {
        self.config.put_number("txg", txg);
        self.config.put_number("state", self.label_state);
        let bytes = self.config.encode();
        let bytes =
            bytes.ok_or_else(|| PoolError::invalid("configuration", "it cannot be written"))?;
        let number = self.landmarks.config;
        self.meta.write(number, &self.source, 0, &bytes).await?;
        let changed = self.meta.change(&self.source, number).await?;
        changed.dnode.set_bonus_word(0, bytes.len() as u64);
        Ok(())
    }

    /// Writes all changed data sets, and enters what that did to their sums.
    async fn write_sets(&mut self, txg: u64, writes: &mut Writes) -> Result<(), PoolError> {
        let addresses = Addresses::Take {
            data_copies: DATA_COPIES,
            other_copies: METADATA_COPIES,
        };
        for (dataset, set) in &mut self.sets {
            if set.changed.is_empty() {
                continue;
            }
            let mut writer = Writer {
                source: &self.source,
                ground: &self.ground,
                space: &mut self.space,
                writes,
                txg,
                addresses: &addresses,
                outcome: crate::tree::Outcome::default(),
            };
            set.write_out(&mut writer).await?;
            let outcome = writer.outcome;
            let changed = self.meta.change(&self.source, *dataset).await?;
            changed.dnode.set_bonus_pointer(dsl::set::ROOT, &set.root);
            dsl::account(
                &mut self.meta,
                &self.source,
                &self.ground.shapes,
                &mut self.space,
                *dataset,
                &outcome,
            )
            .await?;
        }
        Ok(())
    }

    /// Chooses the places of all blocks of the pool's own set that change; see the top of this file.
    async fn plan(&mut self) -> Result<Plan, PoolError> {
        let mut plan = Plan::default();
        for gone in &self.meta.removed {
            for copy in gone.copies() {
                self.space.give_back(&copy)?;
            }
            let sums = Sums::of(&self.ground.shapes, gone);
            plan.sums.add(sums.negative());
        }
        for _ in 0..ROUNDS_MAX {
            self.touch_space_maps().await?;
            let missing = self.unplanned(&plan).await?;
            if missing.is_empty() {
                return Ok(plan);
            }
            for (key, length_bytes, old) in missing {
                let copies =
                    self.space
                        .allocate(&self.ground, length_bytes, OWN_COPIES, Purpose::Upkeep)?;
                for copy in old.copies() {
                    self.space.give_back(&copy)?;
                }
                plan.sums
                    .add(own_sums(&self.ground.shapes, &copies, length_bytes));
                plan.sums
                    .add(Sums::of(&self.ground.shapes, &old).negative());
                plan.places.insert(key, copies);
            }
        }
        Err(PoolError::invalid("commit", "its plan comes to no end"))
    }

    /// Makes sure that each changed metaslab has a space map, whose blocks for the new entries are marked as changed.
    async fn touch_space_maps(&mut self) -> Result<(), PoolError> {
        let changed: Vec<(u32, u64)> = self
            .space
            .metaslabs
            .iter()
            .filter(|(_, one)| one.is_changed())
            .map(|(key, _)| *key)
            .collect();
        for key in changed {
            if self.space.metaslabs[&key].map_object == 0 {
                let new: NewObject = object(
                    kind::SPACE_MAP,
                    SPACE_MAP_BLOCK_BYTES,
                    kind::SPACE_MAP_HEAD,
                    SPACE_MAP_HEAD_BYTES,
                );
                let number = self.meta.add(&self.source, &new).await?;
                self.meta
                    .change(&self.source, number)
                    .await?
                    .dnode
                    .set_bonus_word(0, number);
                let array = self.arrays.get(&key.0).copied();
                let array = array.ok_or_else(|| {
                    PoolError::invalid(format!("plex {}", key.0), "it has no space maps")
                })?;
                self.meta
                    .write(array, &self.source, 8 * key.1, &number.to_le_bytes())
                    .await?;
                self.space
                    .metaslabs
                    .get_mut(&key)
                    .expect("its key is in the list")
                    .map_object = number;
            }
            let one = &self.space.metaslabs[&key];
            let (number, start, length) = (one.map_object, one.map_bytes, one.change_bytes());
            let block_bytes = self
                .meta
                .dnode(&self.source, number)
                .await?
                .block_bytes()
                .max(512);
            for id in start / block_bytes..=(start + length.max(1) - 1) / block_bytes {
                let is_there = self
                    .meta
                    .changed
                    .get(&number)
                    .is_some_and(|changed| changed.blocks.contains_key(&id));
                if !is_there {
                    let block = self.meta.block(number, &self.source, id).await?;
                    self.meta
                        .change(&self.source, number)
                        .await?
                        .blocks
                        .insert(id, Some(block));
                }
            }
        }
        Ok(())
    }

    /// Blocks of the pool's own set that change and have no place yet: length, and the pointer that is replaced.
    async fn unplanned(
        &self,
        plan: &Plan,
    ) -> Result<Vec<((u64, BlockKey), u64, PointerImage)>, PoolError> {
        let mut found = Vec::new();
        for (number, changed) in &self.meta.changed {
            let Some((last, _)) = changed.blocks.last_key_value() else {
                continue;
            };
            let mut dnode = changed.dnode.clone();
            let grown = grow(&mut dnode, *last);
            for key in touched(&dnode, &grown, changed.blocks.keys().copied()) {
                if plan.places.contains_key(&(*number, key)) {
                    continue;
                }
                let old = pointer_to(&self.source, &dnode, &grown, key).await?;
                let stored = changed
                    .blocks
                    .get(&key.1)
                    .and_then(Option::as_ref)
                    .filter(|_| key.0 == 0);
                let length = stored.map_or(dnode.indirect_bytes(), |block| block.len() as u64);
                found.push(((*number, key), length, old));
            }
        }
        let ids: BTreeSet<u64> = self
            .meta
            .changed
            .keys()
            .map(|number| self.meta.dnode_block_of(*number))
            .collect();
        let mut dnode = self.meta.meta();
        let grown = grow(&mut dnode, ids.last().copied().unwrap_or(0));
        for key in touched(&dnode, &grown, ids.into_iter()) {
            if plan.places.contains_key(&(0, key)) {
                continue;
            }
            let old = pointer_to(&self.source, &dnode, &grown, key).await?;
            let length = if key.0 == 0 {
                dnode.block_bytes()
            } else {
                dnode.indirect_bytes()
            };
            found.push(((0, key), length, old));
        }
        if !plan.places.contains_key(&SET_BLOCK) {
            found.push((SET_BLOCK, self.meta.block.len() as u64, self.meta.root));
        }
        Ok(found)
    }

    /// Writes the entries of the open transaction group into the space maps, whose blocks are planned.
    async fn fill_space_maps(&mut self) -> Result<(), PoolError> {
        for one in self
            .space
            .metaslabs
            .values_mut()
            .filter(|one| one.is_changed())
        {
            let entries = one.encode_changes(self.bug)?;
            let (number, at) = (one.map_object, one.map_bytes);
            self.meta.write(number, &self.source, at, &entries).await?;
            one.mapped(entries.len() as u64);
            let changed = self.meta.change(&self.source, number).await?;
            changed.dnode.set_bonus_word(1, one.map_bytes);
            changed.dnode.set_bonus_word(2, one.allocated_bytes);
        }
        Ok(())
    }
}

/// The places of the blocks of the pool's own set, and what they change its sums by.
#[derive(Default)]
struct Plan {
    places: BTreeMap<(u64, BlockKey), Copies>,
    sums: Sums,
}

fn own_sums(shapes: &Shapes, copies: &Copies, length_bytes: u64) -> Sums {
    let copies: Vec<_> = copies.iter().flatten().copied().collect();
    Sums {
        used: shapes.used_bytes(&copies).cast_signed(),
        stored: length_bytes.cast_signed(),
        plain: length_bytes.cast_signed(),
    }
}

/// The configuration in the label of a member.
fn label_list<D>(
    (config, label_state): (&NvList, u64),
    plex: u32,
    leaf: &Leaf<D>,
    txg: u64,
) -> Result<NvList, PoolError> {
    let tree = config.list("vdev_tree").map(|tree| tree.lists("children"));
    let mut own = tree
        .unwrap_or_default()
        .iter()
        .filter(|child| child.number("id") == Some(u64::from(plex)));
    let own = own
        .next()
        .ok_or_else(|| PoolError::invalid("configuration", "a plex is missing in it"))?;
    let mut list = NvList::default();
    for (name, value) in &config.pairs {
        match name.as_str() {
            "vdev_children" => {
                list.put_number("top_guid", own.number("guid").unwrap_or(0));
                list.put_number("guid", leaf.guid);
                list.put(name, value.clone());
            }
            "vdev_tree" => list.put(name, NvValue::List(own.clone())),
            "com.delphix:has_per_vdev_zaps" => {}
            _ => list.put(name, value.clone()),
        }
    }
    list.put_number("state", label_state);
    list.put_number("txg", txg);
    Ok(list)
}
