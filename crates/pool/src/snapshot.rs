//! Snapshots of volumes: taken, and destroyed in any order.
//!
//! Invariants:
//! - a snapshot is taken of what is on the members, when nothing of the volume waits and its log is ended;
//! - a block is given back when neither the volume nor any snapshot or clone has it: the deadlists say so, by when it
//!   was born;
//! - everything that can be refused is refused before anything is changed; an error after that freezes the pool, whose
//!   last root stays.
//!
//! Source: zfs-write.md 1.3.

use plexum_block::device::Device;
use plexum_format::zfs::{DnodeImage, PointerImage};

use crate::deadlist::Lists;
use crate::dsl::{self, add_word, dir, kind, root_of, set};
use crate::error::PoolError;
use crate::numbers::Identities;
use crate::seed::Seed;
use crate::state::WritablePool;
use crate::tree::Sums;

/// Word of a data set: its properties, and who holds it.
pub(crate) const PROPERTIES: usize = 33;
const HOLDS: usize = 34;

/// What new things are made with.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Seconds since 1970.
    pub wall_s: u64,
    /// Where identities come from.
    pub seed: u64,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Its name after the `@`.
    pub name: String,
    /// When it was taken, in seconds since 1970.
    pub created_s: u64,
    /// Transaction group in which it was taken.
    pub created_txg: u64,
    /// Bytes that it references.
    pub referenced_bytes: u64,
    /// Bytes that nothing but it has.
    pub unique_bytes: u64,
    /// Volumes that were made of it.
    pub clone_count: u64,
}

/// A snapshot that was found.
pub(crate) struct Found {
    pub object: u64,
    pub dnode: DnodeImage,
    /// The data set that it is of.
    head: u64,
}

/// `POOL/VOLUME@SNAPSHOT` taken apart.
pub(crate) fn split(name: &str) -> Result<(&str, &str), PoolError> {
    name.split_once('@')
        .filter(|(volume, snapshot)| !volume.is_empty() && !snapshot.is_empty())
        .ok_or_else(|| {
            PoolError::Refused(format!(
                "{name} is no snapshot: its name is that of a volume, @, and its own"
            ))
        })
}

impl<D: Device> WritablePool<D> {
    pub(crate) fn lists(&mut self, wall_s: u64) -> Lists<'_, D> {
        Lists {
            meta: &mut self.meta,
            source: &self.source,
            shapes: &self.ground.shapes,
            wall_s,
        }
    }

    /// An operation that began to change things and failed leaves them half changed in memory.
    pub(crate) fn freeze_after<T>(&mut self, result: Result<T, PoolError>) -> Result<T, PoolError> {
        if let Err(error) = &result {
            self.frozen.get_or_insert_with(|| error.to_string());
        }
        result
    }

    pub(crate) async fn word(&self, object: u64, word: usize) -> Result<u64, PoolError> {
        Ok(self
            .meta
            .dnode(&self.source, object)
            .await?
            .bonus_word(word))
    }

    pub(crate) async fn set_words(
        &mut self,
        object: u64,
        words: &[(usize, u64)],
    ) -> Result<(), PoolError> {
        let changed = self.meta.change(&self.source, object).await?;
        words
            .iter()
            .for_each(|(word, value)| changed.dnode.set_bonus_word(*word, *value));
        Ok(())
    }

    pub(crate) async fn add_words(
        &mut self,
        object: u64,
        words: &[(usize, i64)],
    ) -> Result<(), PoolError> {
        let changed = self.meta.change(&self.source, object).await?;
        words
            .iter()
            .for_each(|(word, delta)| add_word(&mut changed.dnode, *word, *delta));
        Ok(())
    }

    /// Features may keep more of a data set than is known here: it is a map then.
    pub(crate) async fn check_plain(&self, object: u64, name: &str) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, object).await?;
        if matches!(dnode.kind(), kind::DSL_DATASET | kind::DSL_DIR) {
            return Ok(());
        }
        Err(PoolError::Refused(format!(
            "{name} has features or bookmarks of its own, which are not written here"
        )))
    }

    pub(crate) async fn find_snapshot(&self, name: &str) -> Result<Found, PoolError> {
        let (volume, snapshot) = split(name)?;
        let directory = self.directory_of(volume).await?;
        let head = self.word(directory, dir::HEAD).await?;
        let names = self.word(head, set::SNAPSHOT_NAMES).await?;
        let object = self.meta.zap_number(&self.source, names, snapshot).await?;
        let object =
            object.ok_or_else(|| PoolError::Refused(format!("there is no {name} in the pool")))?;
        let dnode = self.meta.dnode(&self.source, object).await?;
        Ok(Found {
            object,
            dnode,
            head,
        })
    }

    /// The snapshots of a data set, the oldest first.
    ///
    /// # Errors
    /// `Refused` when there is none of that name.
    pub async fn snapshots(&self, volume: &str) -> Result<Vec<SnapshotInfo>, PoolError> {
        let directory = self.directory_of(volume).await?;
        let head = self.word(directory, dir::HEAD).await?;
        let names = self.word(head, set::SNAPSHOT_NAMES).await?;
        let mut found = Vec::new();
        for entry in self.meta.zap(&self.source, names).await? {
            let number = entry.number().unwrap_or(0);
            let dnode = self.meta.dnode(&self.source, number).await?;
            found.push(SnapshotInfo {
                name: entry.text(),
                created_s: dnode.bonus_word(set::CREATED_S),
                created_txg: dnode.bonus_word(set::CREATED_TXG),
                referenced_bytes: dnode.bonus_word(set::REFERENCED),
                unique_bytes: dnode.bonus_word(set::UNIQUE),
                clone_count: dnode.bonus_word(set::CHILD_COUNT).saturating_sub(1),
            });
        }
        found.sort_by_key(|one| one.created_txg);
        Ok(found)
    }

    /// Ends the log of a volume and commits what waits: the data set is as the members have it.
    pub(crate) async fn come_to_rest(
        &mut self,
        volume: &str,
        wall_s: u64,
    ) -> Result<u64, PoolError> {
        self.check_frozen()?;
        let open = self.open_volume(volume).await?;
        self.end_logs(|dataset| dataset == open.dataset)?;
        self.commit(wall_s).await?;
        Ok(open.dataset)
    }

    /// Takes a snapshot, and commits it.
    ///
    /// # Errors
    /// `Refused` for names that cannot be or are taken, and volumes that are not written.
    pub async fn snapshot(&mut self, name: &str, now: Now) -> Result<(), PoolError> {
        let (volume, snapshot) = split(name)?;
        check_component(name, snapshot)?;
        let head = self.come_to_rest(volume, now.wall_s).await?;
        self.check_plain(head, volume).await?;
        let names = self.word(head, set::SNAPSHOT_NAMES).await?;
        let taken = self.meta.zap_number(&self.source, names, snapshot).await?;
        if taken.is_some() {
            return Err(PoolError::Refused(format!("{name} is there already")));
        }
        let result = self.take(head, snapshot, now).await;
        self.freeze_after(result)?;
        self.commit(now.wall_s).await
    }

    async fn take(&mut self, head: u64, snapshot: &str, now: Now) -> Result<(), PoolError> {
        let txg = self.txg + 1;
        let before = self.meta.dnode(&self.source, head).await?;
        let (previous, previous_txg) = (
            before.bonus_word(set::PREVIOUS),
            before.bonus_word(set::PREVIOUS_TXG),
        );
        let mut identities = Identities(now.seed ^ self.guid ^ txg);
        let copied = [
            set::DIR,
            set::PREVIOUS,
            set::PREVIOUS_TXG,
            set::DEADLIST,
            set::REFERENCED,
            set::STORED,
            set::PLAIN,
            set::FLAGS,
        ];
        let mut words: Vec<(usize, u64)> = copied
            .iter()
            .map(|word| (*word, before.bonus_word(*word)))
            .collect();
        words.extend([
            (set::NEXT, head),
            (set::CHILD_COUNT, 1),
            (set::CREATED_TXG, txg),
            (set::FSID, identities.next() >> 8),
            (set::GUID, identities.next()),
        ]);
        let mut seed = Seed {
            meta: &mut self.meta,
            source: &self.source,
            wall_s: now.wall_s,
        };
        let number = seed.dataset(&words).await?;
        let changed = self.meta.change(&self.source, number).await?;
        changed
            .dnode
            .set_bonus_pointer(set::ROOT, &root_of(&before));
        self.follow(previous, (head, number)).await?;
        let mut lists = self.lists(now.wall_s);
        let old = lists.open(before.bonus_word(set::DEADLIST)).await?;
        let mut keys: std::collections::BTreeSet<u64> = old.lists.keys().copied().collect();
        keys.insert(previous_txg);
        let deadlist = lists.create(keys.into_iter()).await?;
        let words = [
            (set::DEADLIST, deadlist),
            (set::PREVIOUS, number),
            (set::PREVIOUS_TXG, txg),
            (set::UNIQUE, 0),
        ];
        self.set_words(head, &words).await?;
        let names = before.bonus_word(set::SNAPSHOT_NAMES);
        self.meta
            .zap_put(&self.source, names, snapshot, number)
            .await
    }

    /// After a snapshot comes another than before: `old` gives its place to `new` (0: to nothing).
    pub(crate) async fn follow(
        &mut self,
        snapshot: u64,
        (old, new): (u64, u64),
    ) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, snapshot).await?;
        if dnode.bonus_word(set::NEXT) == old {
            return self.set_words(snapshot, &[(set::NEXT, new)]).await;
        }
        let clones = dnode.bonus_word(set::NEXT_CLONES);
        if clones == 0 {
            return Ok(());
        }
        let name = format!("{old:x}");
        self.meta.zap_remove(&self.source, clones, &name).await?;
        if new != 0 {
            let name = format!("{new:x}");
            self.meta.zap_put(&self.source, clones, &name, new).await?;
        }
        Ok(())
    }

    /// Destroys a snapshot, and commits that.
    ///
    /// # Errors
    /// `Refused` when there is none of that name, volumes were made of it, or somebody holds it.
    pub async fn destroy_snapshot(&mut self, name: &str, wall_s: u64) -> Result<(), PoolError> {
        self.check_frozen()?;
        self.commit(wall_s).await?;
        let found = self.find_snapshot(name).await?;
        self.check_plain(found.object, name).await?;
        let clones = found.dnode.bonus_word(set::CHILD_COUNT).saturating_sub(1);
        if clones > 0 {
            return Err(PoolError::Refused(format!(
                "{name} is not destroyed: {clones} volumes were made of it"
            )));
        }
        if found.dnode.bonus_word(HOLDS) != 0 {
            return Err(PoolError::Refused(format!(
                "{name} is not destroyed: somebody holds it"
            )));
        }
        let (_, snapshot) = split(name)?;
        let result = self.drop_snapshot(&found, snapshot, wall_s).await;
        self.freeze_after(result)?;
        self.commit(wall_s).await
    }

    async fn drop_snapshot(
        &mut self,
        found: &Found,
        name: &str,
        wall_s: u64,
    ) -> Result<(), PoolError> {
        let gone = &found.dnode;
        let (number, next) = (found.object, gone.bonus_word(set::NEXT));
        let (previous, previous_txg) = (
            gone.bonus_word(set::PREVIOUS),
            gone.bonus_word(set::PREVIOUS_TXG),
        );
        let before = self.meta.dnode(&self.source, previous).await?;
        let is_branch = before.bonus_word(set::NEXT) != number;
        self.follow(previous, (number, next)).await?;
        let words = [(set::PREVIOUS, previous), (set::PREVIOUS_TXG, previous_txg)];
        self.set_words(next, &words).await?;
        let later = self.word(next, set::DEADLIST).await?;
        let own = gone.bonus_word(set::DEADLIST);
        let before_txg = before.bonus_word(set::PREVIOUS_TXG);
        let mut lists = self.lists(wall_s);
        let mut later = lists.open(later).await?;
        let own = lists.open(own).await?;
        let shared = lists.sums(&later, before_txg..previous_txg).await?;
        let freed = lists.take_from(&mut later, previous_txg).await?;
        lists.merge(&later, &own).await?;
        if !is_branch {
            self.add_words(previous, &[(set::UNIQUE, shared.used)])
                .await?;
        }
        let directory = gone.bonus_word(set::DIR);
        self.free(&freed, (directory, dir::BY_SNAPSHOTS)).await?;
        self.fold_clones(directory, (gone.bonus_word(set::CREATED_TXG), wall_s))
            .await?;
        self.adjust_next(found, (next, wall_s)).await?;
        let names = self.word(found.head, set::SNAPSHOT_NAMES).await?;
        self.meta.zap_remove(&self.source, names, name).await?;
        for word in [set::NEXT_CLONES, PROPERTIES] {
            let object = gone.bonus_word(word);
            if object != 0 {
                self.meta.remove(&self.source, object).await?;
            }
        }
        self.meta.remove(&self.source, number).await
    }

    /// What comes after a snapshot that is gone has more for itself.
    async fn adjust_next(
        &mut self,
        found: &Found,
        (next, wall_s): (u64, u64),
    ) -> Result<(), PoolError> {
        let gone = &found.dnode;
        let after = self.word(next, set::NEXT).await?;
        if after == 0 {
            return self.count_alone(next).await;
        }
        let range = gone.bonus_word(set::PREVIOUS_TXG)..gone.bonus_word(set::CREATED_TXG);
        let deadlist = self.word(after, set::DEADLIST).await?;
        let lists = self.lists(wall_s);
        let deadlist = lists.open(deadlist).await?;
        let shared = lists.sums(&deadlist, range.clone()).await?;
        self.add_words(next, &[(set::UNIQUE, shared.used)]).await?;
        let head = self.word(found.head, set::DEADLIST).await?;
        let mut lists = self.lists(wall_s);
        let mut head = lists.open(head).await?;
        lists.fold(&mut head, range.end).await
    }

    /// What a head has alone: all that it references, but for what its last snapshot has and it has not lost since.
    async fn count_alone(&mut self, head: u64) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, head).await?;
        let previous = self
            .word(dnode.bonus_word(set::PREVIOUS), set::REFERENCED)
            .await?;
        let dead = self.word(dnode.bonus_word(set::DEADLIST), 0).await?;
        let shared = previous.saturating_sub(dead);
        let alone = dnode.bonus_word(set::REFERENCED).saturating_sub(shared);
        self.set_words(head, &[(set::UNIQUE, alone)]).await
    }

    /// The key of a snapshot that is gone is folded away in all volumes that were made of later ones.
    async fn fold_clones(
        &mut self,
        directory: u64,
        (key, wall_s): (u64, u64),
    ) -> Result<(), PoolError> {
        let mut work = vec![directory];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(directory) = work.pop() {
            let clones = self.word(directory, dir::CLONES).await?;
            if clones == 0 || !seen.insert(directory) {
                continue;
            }
            for entry in self.meta.zap(&self.source, clones).await? {
                let Some(clone) = entry.number() else {
                    continue;
                };
                let own = self.word(clone, set::DIR).await?;
                let origin = self.word(own, dir::ORIGIN).await?;
                if self.word(origin, set::CREATED_TXG).await? <= key {
                    continue;
                }
                let deadlist = self.word(clone, set::DEADLIST).await?;
                let mut lists = self.lists(wall_s);
                let mut deadlist = lists.open(deadlist).await?;
                lists.fold(&mut deadlist, key).await?;
                work.push(own);
            }
        }
        Ok(())
    }

    /// Gives blocks back, which were a part of a directory.
    pub(crate) async fn free(
        &mut self,
        blocks: &[PointerImage],
        part: (u64, usize),
    ) -> Result<Sums, PoolError> {
        let mut sums = Sums::default();
        for block in blocks {
            sums.add(Sums::of(&self.ground.shapes, block));
            for copy in block.copies() {
                self.space.give_back(&copy)?;
            }
        }
        dsl::use_space_by(&mut self.meta, &self.source, part, sums.negative()).await?;
        Ok(sums)
    }
}

/// Whether this can be the name of a snapshot.
pub(crate) fn check_component(name: &str, part: &str) -> Result<(), PoolError> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.: ".contains(letter);
    if name.len() > 255 || part.is_empty() || !part.chars().all(is_plain) {
        return Err(PoolError::Refused(format!(
            "{name:?} cannot be a name: only letters, digits and - _ . : are allowed"
        )));
    }
    Ok(())
}
