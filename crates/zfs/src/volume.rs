//! A volume of a pool: a range of bytes.

use std::rc::Rc;

use plexum_block::device::Device;

use crate::ahead::ReadAhead;
use crate::block::Blocks;
use crate::error::ZfsError;
use crate::object::{Object, ObjectSet};

/// Objects of a volume's set: its data, and its properties.
const DATA_OBJECT: u64 = 1;
const PROPERTIES_OBJECT: u64 = 2;

/// A volume.
pub struct Volume<D> {
    blocks: Rc<Blocks<D>>,
    object: Rc<Object>,
    size_bytes: u64,
}

impl<D: Device + 'static> Volume<D> {
    pub(crate) async fn open(blocks: Rc<Blocks<D>>, set: &ObjectSet) -> Result<Self, ZfsError> {
        let properties = blocks.object(set, PROPERTIES_OBJECT).await?;
        let size = blocks.zap_number(&properties, "size").await?;
        let size_bytes = size.filter(|size| *size <= i64::MAX as u64);
        let size_bytes = size_bytes.ok_or_else(|| ZfsError::Invalid {
            what: set.name.clone(),
            problem: "the volume has no size".into(),
        })?;
        let mut object = blocks.object(set, DATA_OBJECT).await?;
        object.name.clone_from(&set.name);
        Ok(Self {
            blocks,
            object: Rc::new(object),
            size_bytes,
        })
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Bytes of its blocks.
    #[must_use]
    pub fn block_bytes(&self) -> u64 {
        self.object.block_bytes()
    }

    /// A reader from front to back.
    #[must_use]
    pub fn reader(&self) -> ReadAhead<D> {
        ReadAhead::new(
            Rc::clone(&self.blocks),
            Rc::clone(&self.object),
            self.size_bytes,
        )
    }

    /// The bytes of a range inside of the volume.
    ///
    /// # Errors
    /// Why a block cannot be read; `Invalid` for a range outside.
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Vec<u8>, ZfsError> {
        let end = offset_bytes.checked_add(length_bytes as u64);
        if end.is_none_or(|end| end > self.size_bytes) {
            return Err(ZfsError::Invalid {
                what: self.object.name.clone(),
                problem: format!("byte {offset_bytes} is outside of the volume"),
            });
        }
        // Blocks may be larger than a request, so the last few are worth keeping.
        self.blocks
            .read_range(&self.object, offset_bytes, length_bytes)
            .await
    }
}
