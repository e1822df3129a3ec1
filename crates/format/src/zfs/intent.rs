//! The intent log: writes of a data set that were made durable before their transaction group was.
//!
//! A log block checks itself: the Fletcher sum of its used part, in which the words of the pointer stand for the stored
//! ones. The chain ends at the first block that does not.
//!
//! Source: zfs-raidz.md 2.8, zfs-write.md 1.7.

use super::blockptr::POINTER_BYTES;
use super::bytes::le64;
use super::checksum::{ChecksumKind, Digest, fletcher4};
use super::pointer_image::PointerImage;

/// Bytes of a log block before its records.
pub const CHAIN_BYTES: usize = 184;
/// Log blocks are multiples of this, and summed in units of it.
pub const LOG_UNIT_BYTES: usize = 4096;
/// Bytes of the header of the log, which an object set has behind its meta dnode.
pub const LOG_HEAD_BYTES: usize = 192;
/// Bytes of a record of a write before its data.
pub const WRITE_RECORD_BYTES: usize = 192;
/// Pointer to the next block, used bytes, magic and stored words.
const NEXT_OFFSET: usize = 8;
const USED_OFFSET: usize = NEXT_OFFSET + POINTER_BYTES;
const MAGIC_OFFSET: usize = USED_OFFSET + 8;
const STORED_OFFSET: usize = MAGIC_OFFSET + 8;
const MAGIC: u64 = 0x0210_da7a_b10c_7a11;
/// Shortest record: type, length, transaction group, sequence.
const RECORD_BYTES_MIN: usize = 32;
const TRIM_RECORD_BYTES: usize = 56;
/// Kinds of records; the highest bit says that names are compared without case.
const KIND_WRITE: u64 = 9;
const KIND_TRIM: u64 = 10;
const KIND_MASK: u64 = u64::MAX >> 1;
/// Flag of the header: the number of the last claimed record counts.
const FLAG_RECORD_CLAIMED: u64 = 2;

/// What a record does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogChange {
    /// Bytes at an offset.
    Write {
        /// Where.
        offset_bytes: u64,
        /// What.
        data: Vec<u8>,
    },
    /// A whole block that was written to a place of its own.
    Placed {
        /// Where in the object; the block of it that this lies in is meant.
        offset_bytes: u64,
        /// Bytes of the write, at most a block.
        length_bytes: u64,
        /// Where the block is.
        pointer: PointerImage,
    },
    /// A range that reads as zeroes.
    Trim {
        /// Where it begins.
        offset_bytes: u64,
        /// How long it is.
        length_bytes: u64,
    },
    /// One that only file systems have; its number.
    Other(u64),
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Transaction group that it belongs to: it counts when that was not committed.
    pub txg: u64,
    /// Rises through the whole log.
    pub sequence: u64,
    /// Number of the object that is changed.
    pub object: u64,
    /// What is done.
    pub change: LogChange,
}

/// A block of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// The next one, which may not have been written.
    pub next: PointerImage,
    /// Its records.
    pub records: Vec<LogRecord>,
}

/// The header of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Transaction group in which an importer took over the log; 0: none did.
    pub claim_txg: u64,
    /// Records up to this one were replayed.
    pub replayed_sequence: u64,
    /// The first block.
    pub first: PointerImage,
    /// The last block that was taken over.
    pub claimed_block: u64,
    /// The last record that was taken over.
    pub claimed_record: u64,
}

impl LogHead {
    /// Reads the header; `None` when it is cut off.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at| le64(bytes, at);
        let flags = word(152)?;
        let claim_txg = word(0)?;
        let is_claimed = claim_txg != 0;
        let has_record = is_claimed && flags & FLAG_RECORD_CLAIMED != 0;
        Some(Self {
            claim_txg,
            replayed_sequence: word(8)?,
            first: PointerImage::of(&bytes[16..]),
            claimed_block: if is_claimed { word(144)? } else { u64::MAX },
            claimed_record: if has_record { word(160)? } else { u64::MAX },
        })
    }

    /// The header of a log that nobody took over, which begins with this block.
    #[must_use]
    pub fn begin(first: &PointerImage) -> [u8; LOG_HEAD_BYTES] {
        let mut bytes = [0; LOG_HEAD_BYTES];
        bytes[16..16 + POINTER_BYTES].copy_from_slice(&first.0);
        bytes
    }
}

impl LogRecord {
    /// Bytes of the record.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        match &self.change {
            LogChange::Write { data, .. } => WRITE_RECORD_BYTES + data.len(),
            LogChange::Placed { .. } => WRITE_RECORD_BYTES,
            LogChange::Trim { .. } => TRIM_RECORD_BYTES,
            LogChange::Other(_) => 0,
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let (kind, offset, length, pointer, data): (_, _, _, _, &[u8]) = match &self.change {
            LogChange::Write { offset_bytes, data } => {
                let length = data.len() as u64;
                (KIND_WRITE, *offset_bytes, length, PointerImage::HOLE, data)
            }
            LogChange::Placed {
                offset_bytes,
                length_bytes,
                pointer,
            } => (KIND_WRITE, *offset_bytes, *length_bytes, *pointer, &[]),
            LogChange::Trim {
                offset_bytes,
                length_bytes,
            } => (
                KIND_TRIM,
                *offset_bytes,
                *length_bytes,
                PointerImage::HOLE,
                &[],
            ),
            // Only volumes are written.
            LogChange::Other(_) => return,
        };
        let length_bytes = self.encoded_bytes() as u64;
        let words = [
            kind,
            length_bytes,
            self.txg,
            self.sequence,
            self.object,
            offset,
            length,
        ];
        words.iter().for_each(|word| out.extend(word.to_le_bytes()));
        if kind == KIND_WRITE {
            out.extend([0; 8]);
            out.extend(pointer.0);
            out.extend(data);
        }
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |n: usize| le64(bytes, 8 * n);
        let kind = word(0)? & KIND_MASK;
        let change = match kind {
            KIND_WRITE => {
                let (offset_bytes, length_bytes) = (word(5)?, word(6)?);
                let data = bytes.get(WRITE_RECORD_BYTES..)?;
                if data.is_empty() {
                    LogChange::Placed {
                        offset_bytes,
                        length_bytes,
                        pointer: PointerImage::of(&bytes[64..]),
                    }
                } else {
                    let data = data.get(..usize::try_from(length_bytes).ok()?)?.to_vec();
                    LogChange::Write { offset_bytes, data }
                }
            }
            KIND_TRIM => LogChange::Trim {
                offset_bytes: word(5)?,
                length_bytes: word(6)?,
            },
            other => LogChange::Other(other),
        };
        let object = match change {
            LogChange::Other(_) => 0,
            _ => word(4)?,
        };
        Some(Self {
            txg: word(2)?,
            sequence: word(3)?,
            object,
            change,
        })
    }
}

/// A block of the log of `block_bytes`, a multiple of [`LOG_UNIT_BYTES`]; `digest` are the words of the pointer to it.
/// `None` when the records do not fit.
#[must_use]
pub fn encode(block: &LogBlock, digest: Digest, block_bytes: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; CHAIN_BYTES];
    bytes[NEXT_OFFSET..USED_OFFSET].copy_from_slice(&block.next.0);
    block
        .records
        .iter()
        .for_each(|record| record.encode(&mut bytes));
    let used = bytes.len();
    if used > block_bytes {
        return None;
    }
    bytes.resize(block_bytes, 0);
    bytes[USED_OFFSET..MAGIC_OFFSET].copy_from_slice(&(used as u64).to_le_bytes());
    bytes[MAGIC_OFFSET..STORED_OFFSET].copy_from_slice(&MAGIC.to_le_bytes());
    put_words(&mut bytes, digest);
    let sum = fletcher4(&bytes[..used.next_multiple_of(LOG_UNIT_BYTES).min(block_bytes)]);
    put_words(&mut bytes, sum);
    Some(bytes)
}

fn put_words(block: &mut [u8], words: Digest) {
    for (n, word) in words.iter().enumerate() {
        let at = STORED_OFFSET + 8 * n;
        block[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
}

/// Whether a block of the log is whole. `kind` and `digest` are those of the pointer to it.
#[must_use]
pub fn verify(kind: ChecksumKind, digest: Digest, block: &[u8]) -> bool {
    // The first form has its header at the end of the block; pools that still use it are very old.
    if kind != ChecksumKind::IntentLog2 || le64(block, MAGIC_OFFSET) != Some(MAGIC) {
        return false;
    }
    let used = le64(block, USED_OFFSET).and_then(|used| usize::try_from(used).ok());
    let summed = used.and_then(|used| used.checked_next_multiple_of(LOG_UNIT_BYTES));
    let Some(summed) = summed.and_then(|length| block.get(..length)) else {
        return false;
    };
    if summed.len() < CHAIN_BYTES {
        return false;
    }
    let stored = [0, 1, 2, 3].map(|n| le64(summed, STORED_OFFSET + 8 * n));
    let mut copy = summed.to_vec();
    put_words(&mut copy, digest);
    kind.compute(&copy).map(|sum| sum.map(Some)) == Some(stored)
}

/// Reads a block that [`verify`] accepted; `None` when its records make no sense.
#[must_use]
pub fn parse(block: &[u8]) -> Option<LogBlock> {
    let next = PointerImage::of(block.get(NEXT_OFFSET..USED_OFFSET)?);
    let used = usize::try_from(le64(block, USED_OFFSET)?).ok()?;
    let used = block.get(..used)?;
    let mut records = Vec::new();
    let mut at = CHAIN_BYTES;
    while at + RECORD_BYTES_MIN <= used.len() {
        let length = usize::try_from(le64(used, at + 8)?).ok()?;
        if length < RECORD_BYTES_MIN {
            break;
        }
        let end = at.checked_add(length)?;
        records.push(LogRecord::parse(used.get(at..end)?)?);
        at = end;
    }
    Some(LogBlock { next, records })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(sequence: u64, change: LogChange) -> LogRecord {
        LogRecord {
            txg: 7,
            sequence,
            object: 1,
            change,
        }
    }

    fn block() -> LogBlock {
        let placed = LogChange::Placed {
            offset_bytes: 1 << 20,
            length_bytes: 512,
            pointer: PointerImage([3; POINTER_BYTES]),
        };
        LogBlock {
            next: PointerImage([9; POINTER_BYTES]),
            records: vec![
                record(
                    1,
                    LogChange::Write {
                        offset_bytes: 4096,
                        data: vec![5; 512],
                    },
                ),
                record(
                    2,
                    LogChange::Trim {
                        offset_bytes: 0,
                        length_bytes: 1024,
                    },
                ),
                record(3, placed),
            ],
        }
    }

    #[test]
    fn a_block_reads_back_and_another_is_refused() {
        let digest = [1, 2, 3, 4];
        let kind = ChecksumKind::IntentLog2;
        let mut bytes = encode(&block(), digest, 8192).unwrap();
        assert!(verify(kind, digest, &bytes));
        assert!(
            !verify(kind, [1, 2, 3, 5], &bytes),
            "of another place in the chain"
        );
        assert_eq!(parse(&bytes), Some(block()));
        bytes[5000] ^= 1;
        assert!(verify(kind, digest, &bytes), "only what is used counts");
        bytes[300] ^= 1;
        assert!(!verify(kind, digest, &bytes));
        bytes[CHAIN_BYTES + 8..CHAIN_BYTES + 16].fill(0xff);
        assert_eq!(parse(&bytes), None);
        assert_eq!(parse(&bytes[..100]), None);
        let length: usize = block().records.iter().map(LogRecord::encoded_bytes).sum();
        assert_eq!(length, 704 + 56 + 192);
        let mut long = block();
        long.records.push(record(
            4,
            LogChange::Write {
                offset_bytes: 0,
                data: vec![1; 4096],
            },
        ));
        assert_eq!(encode(&long, digest, 4096), None);
    }

    #[test]
    fn the_header_of_a_log_that_nobody_took_over_has_no_end() {
        let first = PointerImage([4; POINTER_BYTES]);
        let mut bytes = LogHead::begin(&first);
        let head = LogHead::parse(&bytes).unwrap();
        assert_eq!((head.first, head.claimed_block), (first, u64::MAX));
        bytes[0] = 20;
        bytes[144] = 3;
        bytes[152] = 2;
        bytes[160] = 4;
        let head = LogHead::parse(&bytes).unwrap();
        assert_eq!(
            (head.claim_txg, head.claimed_block, head.claimed_record),
            (20, 3, 4)
        );
        assert_eq!(LogHead::parse(&bytes[..100]), None);
    }
}
