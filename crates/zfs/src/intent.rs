//! The intent log of a data set: how many of its records are not in the data set yet. They are counted here;
//! the crate `pool` replays them.

use plexum_block::device::Device;
use plexum_format::zfs::{Payload, PointerImage, intent};

use crate::block::Blocks;
use crate::object::ObjectSet;

/// Most blocks of a log that are followed.
const LOG_BLOCKS_MAX: usize = 1 << 14;

impl<D: Device> Blocks<D> {
    /// Records of transaction groups after `root_txg`.
    pub(crate) async fn pending_records(&self, set: &ObjectSet, root_txg: u64) -> u64 {
        let Some(head) = &set.header.intent_log else {
            return 0;
        };
        let first_txg = match head.claim_txg {
            0 => root_txg + 1,
            claimed => claimed,
        };
        let (mut pointer, mut pending) = (head.first, 0);
        for _ in 0..LOG_BLOCKS_MAX {
            if pointer.digest()[3] > head.claimed_block {
                break;
            }
            let Some(block) = self.log_block(&pointer).await else {
                break;
            };
            let is_pending = |record: &&intent::LogRecord| {
                record.sequence > head.replayed_sequence
                    && record.sequence <= head.claimed_record
                    && record.txg >= first_txg
            };
            pending += block.records.iter().filter(is_pending).count() as u64;
            pointer = block.next;
        }
        pending
    }

    /// The block of the log at a pointer; `None` at the end of the chain.
    pub(crate) async fn log_block(&self, pointer: &PointerImage) -> Option<intent::LogBlock> {
        if pointer.is_hole() {
            return None;
        }
        let pointer = pointer.parse().ok()?;
        let Payload::Stored {
            checksum, digest, ..
        } = &pointer.payload
        else {
            return None;
        };
        if pointer.is_encrypted {
            return None;
        }
        let verify = |bytes: &[u8]| intent::verify(*checksum, *digest, bytes);
        // The end of a chain looks like damage, and is none.
        let bytes = self.read_verified(&pointer, &verify).await?;
        intent::parse(&bytes)
    }
}
