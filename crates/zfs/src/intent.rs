//! The intent log of a data set: how many of its records are not in the data set yet. They are counted, never replayed.

use plexum_block::device::Device;
use plexum_format::zfs::{BlockPointer, Payload, intent};

use crate::block::Blocks;
use crate::object::ObjectSet;

/// Most blocks of a log that are followed.
const LOG_BLOCKS_MAX: usize = 1 << 14;

impl<D: Device> Blocks<D> {
    /// Records of transaction groups after `root_txg`.
    pub(crate) async fn pending_records(&self, set: &ObjectSet, root_txg: u64) -> u64 {
        let mut pointer = set.header.intent_log.clone();
        let mut pending = 0;
        for _ in 0..LOG_BLOCKS_MAX {
            let Some(block) = self.log_block(pointer.as_ref()).await else {
                break;
            };
            let newer = block.record_txgs.iter().filter(|txg| **txg > root_txg);
            pending += newer.count() as u64;
            pointer = Some(block.next);
        }
        pending
    }

    /// The block of the log at a pointer; `None` at the end of the chain.
    async fn log_block(&self, pointer: Option<&BlockPointer>) -> Option<intent::LogBlock> {
        let pointer = pointer.filter(|pointer| !pointer.is_encrypted)?;
        let Payload::Stored {
            checksum, digest, ..
        } = &pointer.payload
        else {
            return None;
        };
        let verify = |bytes: &[u8]| intent::verify(*checksum, *digest, bytes);
        // The end of a chain looks like damage, and is none.
        let bytes = self.read_verified(pointer, &verify).await?;
        intent::parse(&bytes)
    }
}
