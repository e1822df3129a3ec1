//! All entries of a ZAP object.

use std::collections::BTreeSet;

use plexum_block::device::Device;
use plexum_format::zfs::zap::{Table, ZapEntry, ZapHead, leaf_ids, parse_head, parse_leaf};

use crate::block::Blocks;
use crate::error::ZfsError;
use crate::object::{Object, invalid};

/// Most entries of a directory or another map.
const ENTRIES_MAX: u64 = 1 << 24;
/// Most blocks of a table of leaves: 2^25 leaves in blocks of 16 KiB.
const TABLE_BLOCKS_MAX: u64 = 1 << 14;

impl<D: Device> Blocks<D> {
    /// All entries. Their number is checked against the header of a hash table.
    pub(crate) async fn zap(&self, object: &Object) -> Result<Vec<ZapEntry>, ZfsError> {
        let name = &object.name;
        let first = self.zap_block(object, 0).await?;
        let fat = match parse_head(&first).map_err(|error| invalid(name, error))? {
            ZapHead::Micro(entries) => return Ok(entries),
            ZapHead::Fat(fat) => fat,
        };
        let leaves = match fat.table {
            Table::Inside(leaves) => leaves,
            Table::Blocks { first, count } => self.table(object, first, count).await?,
        };
        let mut entries = Vec::new();
        for leaf in leaves {
            let block = self.zap_block(object, leaf).await?;
            entries.extend(parse_leaf(&block).map_err(|error| invalid(name, error))?);
            if entries.len() as u64 > fat.entry_count.min(ENTRIES_MAX) {
                break;
            }
        }
        if entries.len() as u64 != fat.entry_count {
            let (found, expected) = (entries.len(), fat.entry_count);
            return Err(ZfsError::Invalid {
                what: name.clone(),
                problem: format!("it has {found} entries, its header says {expected}"),
            });
        }
        Ok(entries)
    }

    /// The number of this name.
    pub(crate) async fn zap_number(
        &self,
        object: &Object,
        name: &str,
    ) -> Result<Option<u64>, ZfsError> {
        let entries = self.zap(object).await?;
        let entry = entries.iter().find(|entry| entry.name == name.as_bytes());
        Ok(entry.and_then(ZapEntry::number))
    }

    async fn table(&self, object: &Object, first: u64, count: u64) -> Result<Vec<u64>, ZfsError> {
        if count > TABLE_BLOCKS_MAX {
            return Err(ZfsError::Invalid {
                what: object.name.clone(),
                problem: format!("its table has {count} blocks"),
            });
        }
        let mut leaves = BTreeSet::new();
        for block_id in (0..count).map(|n| first.saturating_add(n)) {
            leaves.extend(leaf_ids(&self.zap_block(object, block_id).await?));
        }
        Ok(leaves.into_iter().collect())
    }

    async fn zap_block(
        &self,
        object: &Object,
        block_id: u64,
    ) -> Result<std::rc::Rc<Vec<u8>>, ZfsError> {
        let block = self.data_block(&object.dnode, block_id, &object.name);
        block.await?.ok_or_else(|| ZfsError::Invalid {
            what: object.name.clone(),
            problem: format!("its block {block_id} is not there"),
        })
    }
}
