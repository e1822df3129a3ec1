//! Blocks of the intent log: which writes are not in the file system yet.
//!
//! A log block checks itself: the Fletcher sum of its used part, in which the words of the pointer stand for the stored
//! ones. The chain ends at the first block that does not.
//! Source: zfs-raidz.md 2.8.

use super::blockptr::{BlockPointer, POINTER_BYTES};
use super::bytes::le64;
use super::checksum::{ChecksumKind, Digest};

const HEADER_BYTES: usize = 192;
/// Pointer to the next block, used bytes, magic and stored words.
const NEXT_OFFSET: usize = 8;
const USED_OFFSET: usize = NEXT_OFFSET + POINTER_BYTES;
const MAGIC_OFFSET: usize = USED_OFFSET + 8;
const STORED_OFFSET: usize = MAGIC_OFFSET + 8;
const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// The used part is summed up to a multiple of this.
const SUMMED_UNIT_BYTES: usize = 4096;
/// Shortest record: type, length, transaction group, sequence.
const RECORD_BYTES_MIN: usize = 32;

/// A block of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// The next one, which may not have been written.
    pub next: BlockPointer,
    /// Transaction groups of its records.
    pub record_txgs: Vec<u64>,
}

/// Whether a block of the log is whole. `kind` and `digest` are those of the pointer to it.
#[must_use]
pub fn verify(kind: ChecksumKind, digest: Digest, block: &[u8]) -> bool {
    // The first form has its header at the end of the block; pools that still use it are very old.
    if kind != ChecksumKind::IntentLog2 || le64(block, MAGIC_OFFSET) != Some(MAGIC) {
        return false;
    }
    let used = le64(block, USED_OFFSET).and_then(|used| usize::try_from(used).ok());
    let summed = used.and_then(|used| used.checked_next_multiple_of(SUMMED_UNIT_BYTES));
    let Some(summed) = summed.and_then(|length| block.get(..length)) else {
        return false;
    };
    if summed.len() < HEADER_BYTES {
        return false;
    }
    let stored = [0, 1, 2, 3].map(|n| le64(summed, STORED_OFFSET + 8 * n));
    let mut copy = summed.to_vec();
    for (n, word) in digest.iter().enumerate() {
        let at = STORED_OFFSET + 8 * n;
        copy[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    kind.compute(&copy).map(|sum| sum.map(Some)) == Some(stored)
}

/// Reads a block that [`verify`] accepted; `None` when its records make no sense.
#[must_use]
pub fn parse(block: &[u8]) -> Option<LogBlock> {
    let next = BlockPointer::parse(block.get(NEXT_OFFSET..)?).ok()?;
    let used = usize::try_from(le64(block, USED_OFFSET)?).ok()?;
    let used = block.get(..used)?;
    let mut record_txgs = Vec::new();
    let mut at = HEADER_BYTES;
    while at + RECORD_BYTES_MIN <= used.len() {
        let length = usize::try_from(le64(used, at + 8)?).ok()?;
        if length < RECORD_BYTES_MIN {
            break;
        }
        record_txgs.push(le64(used, at + 16)?);
        at = at.checked_add(length)?;
    }
    Some(LogBlock { next, record_txgs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(txgs: &[u64], digest: Digest) -> Vec<u8> {
        let mut block = vec![0; 4096];
        block[USED_OFFSET..USED_OFFSET + 8]
            .copy_from_slice(&(HEADER_BYTES as u64 + 40 * txgs.len() as u64).to_le_bytes());
        block[MAGIC_OFFSET..STORED_OFFSET].copy_from_slice(&MAGIC.to_le_bytes());
        for (n, txg) in txgs.iter().enumerate() {
            let at = HEADER_BYTES + 40 * n;
            block[at + 8] = 40;
            block[at + 16..at + 24].copy_from_slice(&txg.to_le_bytes());
        }
        for (n, word) in digest.iter().enumerate() {
            block[STORED_OFFSET + 8 * n..STORED_OFFSET + 8 * n + 8]
                .copy_from_slice(&word.to_le_bytes());
        }
        let sum = ChecksumKind::IntentLog2.compute(&block).unwrap();
        for (n, word) in sum.iter().enumerate() {
            block[STORED_OFFSET + 8 * n..STORED_OFFSET + 8 * n + 8]
                .copy_from_slice(&word.to_le_bytes());
        }
        block
    }

    #[test]
    fn records_of_a_whole_block_are_found_and_another_block_is_refused() {
        let digest = [1, 2, 3, 4];
        let mut bytes = block(&[7, 9], digest);
        assert!(verify(ChecksumKind::IntentLog2, digest, &bytes));
        assert!(
            !verify(ChecksumKind::IntentLog2, [1, 2, 3, 5], &bytes),
            "of another place in the chain"
        );
        assert_eq!(parse(&bytes).unwrap().record_txgs, [7, 9]);
        bytes[300] ^= 1;
        assert!(!verify(ChecksumKind::IntentLog2, digest, &bytes));
        bytes[HEADER_BYTES + 8..HEADER_BYTES + 16].fill(0xff);
        assert_eq!(parse(&bytes), None);
        assert_eq!(parse(&bytes[..100]), None);
    }
}
