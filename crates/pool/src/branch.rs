//! Volumes that go back to a snapshot, are made of one, or end.
//!
//! The invariants of `snapshot.rs` are those here, too.
//!
//! Source: zfs-write.md 1.3.

use plexum_block::device::Device;
use plexum_format::zfs::PointerImage;

use crate::dsl::{self, dir, kind, root_of, set};
use crate::error::PoolError;
use crate::numbers::Identities;
use crate::seed::Seed;
use crate::snapshot::{Found, Now, PROPERTIES, split};
use crate::state::WritablePool;
use crate::tree::{KIND_DNODES, KIND_SET, Sums};
use crate::upkeep::below;

impl<D: Device> WritablePool<D> {
    /// The blocks of a tree that were born after a transaction group, that of its set included.
    async fn born_after(
        &self,
        root: &PointerImage,
        txg: u64,
    ) -> Result<Vec<PointerImage>, PoolError> {
        let (mut found, mut work) = (Vec::new(), vec![*root]);
        while let Some(pointer) = work.pop() {
            if pointer.is_hole() || pointer.birth_txg() <= txg {
                continue;
            }
            found.push(pointer);
            let has_more =
                pointer.level() > 0 || matches!(pointer.object_type(), KIND_DNODES | KIND_SET);
            if has_more && !pointer.is_embedded() {
                let block = self.source.read(&pointer, "a block with pointers").await?;
                work.extend(below(&pointer, &block));
            }
        }
        Ok(found)
    }

    /// Makes a volume what its last snapshot is, and commits that.
    ///
    /// # Errors
    /// `Refused` when there is none of that name, or others were taken after it.
    pub async fn rollback(&mut self, name: &str, wall_s: u64) -> Result<(), PoolError> {
        let (volume, _) = split(name)?;
        let head = self.come_to_rest(volume, wall_s).await?;
        let found = self.find_snapshot(name).await?;
        if found.dnode.bonus_word(set::NEXT) != head {
            let all = self.snapshots(volume).await?;
            let txg = found.dnode.bonus_word(set::CREATED_TXG);
            let later = all.iter().filter(|one| one.created_txg > txg);
            let later: Vec<&str> = later.map(|one| one.name.as_str()).collect();
            return Err(PoolError::Refused(format!(
                "{volume} does not go back to {name}: destroy what was taken after it first ({})",
                later.join(", ")
            )));
        }
        let result = self.go_back(head, &found, wall_s).await;
        self.freeze_after(result)?;
        self.commit(wall_s).await
    }

    async fn go_back(&mut self, head: u64, found: &Found, wall_s: u64) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, head).await?;
        let directory = dnode.bonus_word(set::DIR);
        let txg = found.dnode.bonus_word(set::CREATED_TXG);
        let young = self.born_after(&root_of(&dnode), txg).await?;
        self.free(&young, (directory, dir::BY_HEAD)).await?;
        let origin = self.word(directory, dir::ORIGIN).await?;
        let origin_txg = match origin {
            0 => 0,
            origin => self.word(origin, set::CREATED_TXG).await?,
        };
        let mut lists = self.lists(wall_s);
        let mut deadlist = lists.open(dnode.bonus_word(set::DEADLIST)).await?;
        let keys: Vec<u64> = deadlist.lists.keys().copied().collect();
        // What died since is alive again.
        let back = lists.take_from(&mut deadlist, 0).await?;
        lists.remove(&deadlist).await?;
        let empty = lists.create(keys.into_iter()).await?;
        let moved: i64 = back
            .iter()
            .filter(|block| block.birth_txg() > origin_txg)
            .map(|block| Sums::of(&self.ground.shapes, block).used)
            .sum();
        let has_parts = self.word(directory, dir::FLAGS).await? & dsl::FLAG_BREAKDOWN != 0;
        if has_parts {
            let words = [(dir::BY_HEAD, moved), (dir::BY_SNAPSHOTS, -moved)];
            self.add_words(directory, &words).await?;
        }
        let copied = [set::REFERENCED, set::STORED, set::PLAIN];
        let mut words: Vec<(usize, u64)> = copied
            .iter()
            .map(|word| (*word, found.dnode.bonus_word(*word)))
            .collect();
        words.extend([(set::UNIQUE, 0), (set::DEADLIST, empty)]);
        self.set_words(head, &words).await?;
        let changed = self.meta.change(&self.source, head).await?;
        changed
            .dnode
            .set_bonus_pointer(set::ROOT, &root_of(&found.dnode));
        // All that it has, the volume has too.
        self.set_words(found.object, &[(set::UNIQUE, 0)]).await?;
        self.sets.remove(&head);
        Ok(())
    }

    /// Makes a volume out of a snapshot, and commits it: they share everything until it is written.
    ///
    /// # Errors
    /// `Refused` when there is no such snapshot, and for names that cannot be or are taken.
    pub async fn clone_snapshot(
        &mut self,
        name: &str,
        new: &str,
        now: Now,
    ) -> Result<(), PoolError> {
        self.check_frozen()?;
        self.commit(now.wall_s).await?;
        let found = self.find_snapshot(name).await?;
        self.check_plain(found.object, name).await?;
        let place = self.new_place(new).await?;
        let result = self.branch(&found, &place, now).await;
        self.freeze_after(result)?;
        self.commit(now.wall_s).await
    }

    async fn branch(
        &mut self,
        found: &Found,
        (parent, name): &(u64, String),
        now: Now,
    ) -> Result<(), PoolError> {
        let txg = self.txg + 1;
        let origin = &found.dnode;
        let created = origin.bonus_word(set::CREATED_TXG);
        let mut identities = Identities(now.seed ^ self.guid ^ txg);
        let mut lists = self.lists(now.wall_s);
        let old = lists.open(origin.bonus_word(set::DEADLIST)).await?;
        let keys: Vec<u64> = old.lists.range(..created).map(|(key, _)| *key).collect();
        let deadlist = lists.create(keys.into_iter()).await?;
        let mut seed = Seed {
            meta: &mut self.meta,
            source: &self.source,
            wall_s: now.wall_s,
        };
        let directory = seed.directory(*parent, &[]).await?;
        let names = seed.map(kind::SNAPSHOT_NAMES, &[]).await?;
        let words = [
            (set::DIR, directory),
            (set::PREVIOUS, found.object),
            (set::PREVIOUS_TXG, created),
            (set::SNAPSHOT_NAMES, names),
            (set::CREATED_TXG, txg),
            (set::DEADLIST, deadlist),
            (set::REFERENCED, origin.bonus_word(set::REFERENCED)),
            (set::STORED, origin.bonus_word(set::STORED)),
            (set::PLAIN, origin.bonus_word(set::PLAIN)),
            (set::FSID, identities.next() >> 8),
            (set::GUID, identities.next()),
        ];
        let number = seed.dataset(&words).await?;
        let next_clones = match origin.bonus_word(set::NEXT_CLONES) {
            0 => seed.clones(kind::NEXT_CLONES).await?,
            object => object,
        };
        let origin_dir = origin.bonus_word(set::DIR);
        let clones = seed
            .meta
            .dnode(seed.source, origin_dir)
            .await?
            .bonus_word(dir::CLONES);
        let clones = match clones {
            0 => seed.clones(kind::CLONES).await?,
            object => object,
        };
        let changed = self.meta.change(&self.source, number).await?;
        changed.dnode.set_bonus_pointer(set::ROOT, &root_of(origin));
        let words = [(dir::HEAD, number), (dir::ORIGIN, found.object)];
        self.set_words(directory, &words).await?;
        self.set_words(found.object, &[(set::NEXT_CLONES, next_clones)])
            .await?;
        self.set_words(origin_dir, &[(dir::CLONES, clones)]).await?;
        self.add_words(found.object, &[(set::CHILD_COUNT, 1)])
            .await?;
        let key = format!("{number:x}");
        let children = self.word(*parent, dir::CHILDREN).await?;
        for (map, key, value) in [
            (next_clones, key.as_str(), number),
            (clones, key.as_str(), number),
            (children, name.as_str(), directory),
        ] {
            self.meta.zap_put(&self.source, map, key, value).await?;
        }
        Ok(())
    }

    /// Destroys a volume, and commits that: everything that no snapshot has is given back.
    ///
    /// # Errors
    /// `Refused` when there is none of that name, it has snapshots, or something is below it.
    pub async fn destroy_volume(&mut self, name: &str, wall_s: u64) -> Result<(), PoolError> {
        let head = self.come_to_rest(name, wall_s).await?;
        let directory = self.word(head, set::DIR).await?;
        self.check_plain(head, name).await?;
        self.check_plain(directory, name).await?;
        let refuse = |why: String| {
            Err(PoolError::Refused(format!(
                "{name} is not destroyed: {why}"
            )))
        };
        let snapshots = self.snapshots(name).await?;
        if !snapshots.is_empty() {
            let names: Vec<String> = snapshots.into_iter().map(|one| one.name).collect();
            return refuse(format!("it has snapshots ({})", names.join(", ")));
        }
        let children = self.word(directory, dir::CHILDREN).await?;
        if !self.meta.zap(&self.source, children).await?.is_empty() {
            return refuse("something is below it".into());
        }
        let result = self.drop_head(head, name, wall_s).await;
        self.freeze_after(result)?;
        self.commit(wall_s).await
    }

    async fn drop_head(&mut self, head: u64, name: &str, wall_s: u64) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, head).await?;
        let directory = dnode.bonus_word(set::DIR);
        let origin = dnode.bonus_word(set::PREVIOUS);
        let txg = dnode.bonus_word(set::PREVIOUS_TXG);
        let young = self.born_after(&root_of(&dnode), txg).await?;
        self.free(&young, (directory, dir::BY_HEAD)).await?;
        let mut lists = self.lists(wall_s);
        let deadlist = lists.open(dnode.bonus_word(set::DEADLIST)).await?;
        lists.remove(&deadlist).await?;
        self.follow(origin, (head, 0)).await?;
        self.add_words(origin, &[(set::CHILD_COUNT, -1)]).await?;
        let origin_dir = self.word(origin, set::DIR).await?;
        let clones = self.word(origin_dir, dir::CLONES).await?;
        if clones != 0 {
            let key = format!("{head:x}");
            self.meta.zap_remove(&self.source, clones, &key).await?;
        }
        let own = self.meta.dnode(&self.source, directory).await?;
        let above = self
            .word(own.bonus_word(dir::PARENT), dir::CHILDREN)
            .await?;
        let last = name.rsplit('/').next().unwrap_or(name);
        self.meta.zap_remove(&self.source, above, last).await?;
        let owned = [
            dnode.bonus_word(set::SNAPSHOT_NAMES),
            dnode.bonus_word(PROPERTIES),
            own.bonus_word(dir::CHILDREN),
            own.bonus_word(dir::PROPERTIES),
            own.bonus_word(dir::CLONES),
            head,
            directory,
        ];
        for object in owned.into_iter().filter(|object| *object != 0) {
            self.meta.remove(&self.source, object).await?;
        }
        self.sets.remove(&head);
        Ok(())
    }
}
