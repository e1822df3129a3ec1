//! New objects of the pool's own set: maps, directories, data sets.
//!
//! Source: zfs-write.md 1.2 and 1.3.

use plexum_block::device::Device;
use plexum_format::zfs::zap_write::{MicroHead, NORMALISED_UPPER};

use crate::dsl::{self, add_word, kind, object};
use crate::error::PoolError;
use crate::set::SetState;
use crate::state::Landmarks;
use crate::tree::Source;

const OBJECT_DIRECTORY: u64 = 1;

/// A new pool's objects, before its first commit.
pub(crate) struct Seed<'a, D> {
    pub meta: &'a mut SetState,
    pub source: &'a Source<D>,
    pub wall_s: u64,
}

impl<D: Device> Seed<'_, D> {
    pub async fn map(&mut self, kind: u8, entries: &[(&str, u64)]) -> Result<u64, PoolError> {
        let norm_flags = if kind == kind::SNAPSHOT_NAMES {
            NORMALISED_UPPER
        } else {
            0
        };
        let salt = 0x5A1D ^ self.wall_s << 16 | 1;
        self.meta
            .add_zap(
                self.source,
                &object(kind, 512, 0, 0),
                MicroHead { salt, norm_flags },
                entries,
            )
            .await
    }

    pub async fn features(&mut self) -> Result<u64, PoolError> {
        self.map(kind::FEATURES, &[]).await
    }

    pub async fn clones(&mut self, kind: u8) -> Result<u64, PoolError> {
        self.map(kind, &[]).await
    }

    pub async fn list(&mut self) -> Result<u64, PoolError> {
        self.meta.add(self.source, &dsl::dead_blocks()).await
    }

    /// A directory below another (0: the root), without a data set.
    pub async fn directory(
        &mut self,
        parent: u64,
        properties: &[(&str, u64)],
    ) -> Result<u64, PoolError> {
        let number = self
            .meta
            .add(
                self.source,
                &object(kind::DSL_DIR, 512, kind::DSL_DIR, dsl::DIR_BYTES),
            )
            .await?;
        let properties = self.map(kind::PROPERTIES, properties).await?;
        let children = self.map(kind::CHILDREN, &[]).await?;
        let words = [
            (dsl::dir::CREATED_S, self.wall_s),
            (dsl::dir::PARENT, parent),
            (dsl::dir::CHILDREN, children),
            (dsl::dir::PROPERTIES, properties),
            (dsl::dir::FLAGS, dsl::FLAG_BREAKDOWN),
        ];
        self.set_words(number, &words).await?;
        Ok(number)
    }

    /// A deadlist; one that data sets begin with has a list for everything.
    pub async fn deadlist(&mut self, key: Option<&str>) -> Result<u64, PoolError> {
        let list = match key {
            None => Vec::new(),
            Some(key) => vec![(key, self.list().await?)],
        };
        let new = object(
            kind::DEADLIST,
            512,
            kind::DEADLIST_HEAD,
            dsl::DEADLIST_BYTES,
        );
        let salt = 0xDEAD ^ self.wall_s << 16 | 1;
        self.meta
            .add_zap(
                self.source,
                &new,
                MicroHead {
                    salt,
                    norm_flags: 0,
                },
                &list,
            )
            .await
    }

    /// A data set of a directory.
    pub async fn dataset(&mut self, words: &[(usize, u64)]) -> Result<u64, PoolError> {
        let new = object(
            kind::DSL_DATASET,
            512,
            kind::DSL_DATASET,
            dsl::DATASET_BYTES,
        );
        let number = self.meta.add(self.source, &new).await?;
        self.set_words(
            number,
            &[
                (dsl::set::CREATED_S, self.wall_s),
                (dsl::set::FLAGS, dsl::FLAG_UNIQUE_ACCURATE),
            ],
        )
        .await?;
        self.set_words(number, words).await?;
        Ok(number)
    }

    pub async fn set_words(
        &mut self,
        number: u64,
        words: &[(usize, u64)],
    ) -> Result<(), PoolError> {
        let changed = self.meta.change(self.source, number).await?;
        words
            .iter()
            .for_each(|(word, value)| changed.dnode.set_bonus_word(*word, *value));
        Ok(())
    }

    /// A plain data set, head of a directory, that begins with nothing: a file system or a volume.
    pub async fn head(
        &mut self,
        directory: u64,
        marks: &Landmarks,
        txg: u64,
        guids: [u64; 2],
    ) -> Result<u64, PoolError> {
        let names = self.map(kind::SNAPSHOT_NAMES, &[]).await?;
        let deadlist = self.deadlist(Some("0")).await?;
        let words = [
            (dsl::set::DIR, directory),
            (dsl::set::PREVIOUS, marks.origin_snapshot),
            (dsl::set::PREVIOUS_TXG, 1),
            (dsl::set::SNAPSHOT_NAMES, names),
            (dsl::set::CREATED_TXG, txg),
            (dsl::set::DEADLIST, deadlist),
            (dsl::set::FSID, guids[0] >> 8),
            (dsl::set::GUID, guids[1]),
        ];
        let number = self.dataset(&words).await?;
        self.set_words(
            directory,
            &[
                (dsl::dir::HEAD, number),
                (dsl::dir::ORIGIN, marks.origin_snapshot),
            ],
        )
        .await?;
        let origin = self.meta.dnode(self.source, marks.origin_snapshot).await?;
        let clones = self
            .meta
            .dnode(self.source, marks.origin_dir)
            .await?
            .bonus_word(dsl::dir::CLONES);
        let key = format!("{number:x}");
        self.meta
            .zap_put(
                self.source,
                origin.bonus_word(dsl::set::NEXT_CLONES),
                &key,
                number,
            )
            .await?;
        self.meta.zap_put(self.source, clones, &key, number).await?;
        let changed = self.meta.change(self.source, marks.origin_snapshot).await?;
        add_word(&mut changed.dnode, dsl::set::CHILD_COUNT, 1);
        Ok(number)
    }

    /// The pool's object directory, which has to be object 1.
    pub async fn object_directory(&mut self, entries: &[(&str, u64)]) -> Result<(), PoolError> {
        for (name, number) in entries {
            self.meta
                .zap_put(self.source, OBJECT_DIRECTORY, name, *number)
                .await?;
        }
        Ok(())
    }
}
