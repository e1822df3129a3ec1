//! Objects of the pool's own set that nothing refers to, and features that count things.

use std::collections::BTreeSet;

use plexum_block::device::Device;
use plexum_format::zfs::NvList;

use super::{Check, FindingKind};
use crate::dsl::{dir, kind, set};
use crate::error::PoolError;

/// Kinds of objects that are maps, whose numbers may be those of other objects.
const MAPS: [u8; 11] = [
    kind::OBJECT_DIRECTORY,
    kind::CHILDREN,
    kind::SNAPSHOT_NAMES,
    kind::NEXT_CLONES,
    kind::DEADLIST,
    kind::CLONES,
    kind::FEATURES,
    // Maps of other things: of the pool's properties, holds, dedup tables, and without a type.
    27,
    31,
    41,
    42,
];

/// The kinds of new objects say what they are made of: a map, whatever it is for.
const NEW_MAP: u8 = 0x84;

impl<D: Device> Check<D> {
    /// Compares the objects that are there with those that something refers to.
    pub(super) async fn objects(&mut self, objects: &[u64]) -> Result<(), PoolError> {
        let config = self.config().await?;
        let mut owned = std::mem::take(&mut self.owned);
        owned.insert(1);
        numbers_of(&config, &mut owned);
        for number in objects {
            self.references(*number, &mut owned).await?;
        }
        for number in objects.iter().filter(|number| !owned.contains(number)) {
            let kind = self.meta.dnode(&self.source, *number).await?.kind();
            self.find(
                FindingKind::Object,
                "the pool",
                format!("nothing refers to object {number}, of type {kind}"),
            );
        }
        if let Some(map) = self.entry("features_for_write").await? {
            let count = self
                .meta
                .zap_number(&self.source, map, "com.delphix:spacemap_histogram")
                .await?;
            if let Some(count) = count {
                let logged = self.entry("com.delphix:log_spacemap_zap").await?.is_some();
                // Space maps of members' dirty times count as well, and are not looked at here.
                if count < self.histograms || !logged && count == 0 && self.histograms > 0 {
                    self.expect(
                        count,
                        FindingKind::Count,
                        "the pool",
                        "the number of space maps with a histogram",
                        self.histograms,
                    );
                }
            }
        }
        Ok(())
    }

    /// Everything that an object refers to. Too much rather than too little: what is found missing is missing.
    async fn references(
        &mut self,
        number: u64,
        owned: &mut BTreeSet<u64>,
    ) -> Result<(), PoolError> {
        let dnode = self.meta.dnode(&self.source, number).await?;
        // An object that features extended has become a map by its own kind.
        match dnode.bonus_kind() {
            kind::DSL_DIR => {
                let words = [dir::HEAD, dir::CHILDREN, dir::PROPERTIES, dir::CLONES, 11];
                owned.extend(words.map(|word| dnode.bonus_word(word)));
            }
            kind::DSL_DATASET => {
                let words = [
                    set::SNAPSHOT_NAMES,
                    set::DEADLIST,
                    set::NEXT_CLONES,
                    set::PREVIOUS,
                    set::NEXT,
                    33,
                    34,
                ];
                owned.extend(words.map(|word| dnode.bonus_word(word)));
            }
            _ => {}
        }
        match dnode.kind() {
            kind::DEAD_BLOCKS => {
                let (below, count) = (dnode.bonus_word(4), dnode.bonus_word(5).min(1 << 17));
                if below != 0 {
                    owned.insert(below);
                    self.array(below, owned, count).await?;
                }
            }
            found if found == kind::OBJECT_ARRAY || found == 26 => {
                let blocks = dnode.block_id_max().saturating_add(1).min(1 << 10);
                let count = (blocks * dnode.block_bytes() / 8).min(1 << 20);
                self.array(number, owned, count).await?;
            }
            found if MAPS.contains(&found) || found & 0x9f == NEW_MAP => {
                let place = format!("map {number} of the pool");
                let entries = self.meta.zap(&self.source, number).await;
                for entry in self.read(&place, entries).unwrap_or_default() {
                    owned.extend(entry.number());
                }
            }
            _ => {}
        }
        Ok(())
    }

    async fn array(
        &mut self,
        number: u64,
        owned: &mut BTreeSet<u64>,
        count: u64,
    ) -> Result<(), PoolError> {
        let bytes = self.meta.bytes(number, &self.source, 8 * count).await?;
        let (numbers, _) = bytes.as_chunks::<8>();
        owned.extend(numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)));
        Ok(())
    }
}

/// All numbers in the configuration that may be those of objects.
fn numbers_of(config: &NvList, owned: &mut BTreeSet<u64>) {
    let mut work = vec![config];
    while let Some(list) = work.pop() {
        for name in [
            "metaslab_array",
            "DTL",
            "com.delphix:vdev_zap_top",
            "com.delphix:vdev_zap_leaf",
            "com.klarasystems:vdev_zap_root",
        ] {
            owned.extend(list.number(name));
        }
        work.extend(list.lists("children"));
        work.extend(list.list("vdev_tree"));
    }
}
