//! Contents of a sector that names itself: who wrote it, for where, as which write.
//!
//! Invariants:
//! - the words are seed, address, sequence, a hash of the three, then a body made from the hash;
//! - the hash is not linear over XOR: what the write hole makes (the XOR of valid sectors) is no valid sector.

use std::fmt;

use crate::rng::{GOLDEN, mix};

/// Bytes in a sector of the volume, the atom of the contract.
pub const SECTOR_BYTES: usize = 512;

const WORDS: usize = SECTOR_BYTES / 8;

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Zero bytes: never written, or zeroed.
    Zero,
    /// The data of the write with this sequence number.
    Written(u64),
}

/// What was found in a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Zero bytes.
    Zero,
    /// A whole, valid sector.
    Valid {
        /// Seed of the world that wrote it.
        seed: u64,
        /// Sector number it was written for.
        address: u64,
        /// Sequence number of its write.
        sequence: u64,
    },
    /// Anything else: mixed, damaged, or the XOR of sectors.
    Garbage {
        /// First two words, for the report.
        words: [u64; 2],
    },
}

fn hash(seed: u64, address: u64, sequence: u64) -> u64 {
    let a = mix(seed.wrapping_add(GOLDEN));
    let b = mix(a ^ address.wrapping_mul(GOLDEN));
    mix(b.wrapping_add(sequence).wrapping_mul(GOLDEN | 1))
}

fn body(hash: u64, index: usize) -> u64 {
    hash.wrapping_add((index as u64).wrapping_mul(GOLDEN)) ^ (hash >> 17)
}

/// Writes the contents of one sector into `target` (512 bytes).
///
/// # Panics
/// When `target` is not one sector long.
pub fn fill(target: &mut [u8], seed: u64, address: u64, sequence: u64) {
    assert_eq!(target.len(), SECTOR_BYTES, "one sector is filled at a time");
    let hash = hash(seed, address, sequence);
    for (index, word) in target.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let value = match index {
            0 => seed,
            1 => address,
            2 => sequence,
            3 => hash,
            _ => body(hash, index),
        };
        *word = value.to_le_bytes();
    }
}

/// Tells what `sector` (512 bytes) holds.
#[must_use]
pub fn look(sector: &[u8]) -> Seen {
    let words = sector.as_chunks::<8>().0;
    let word = |index: usize| u64::from_le_bytes(words[index]);
    let [seed, address, sequence, found] = [word(0), word(1), word(2), word(3)];
    if found == 0 && sector.iter().all(|byte| *byte == 0) {
        return Seen::Zero;
    }
    let hash = hash(seed, address, sequence);
    let is_valid = found == hash && (4..WORDS).all(|index| word(index) == body(hash, index));
    if is_valid {
        Seen::Valid {
            seed,
            address,
            sequence,
        }
    } else {
        Seen::Garbage {
            words: [seed, address],
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Zero => f.write_str("zero"),
            Value::Written(sequence) => write!(f, "write {sequence}"),
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Zero => f.write_str("zero"),
            Seen::Valid {
                address, sequence, ..
            } => write!(f, "write {sequence} of sector {address}"),
            Seen::Garbage { words } => write!(f, "garbage {:016x} {:016x}", words[0], words[1]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(seed: u64, address: u64, sequence: u64) -> Vec<u8> {
        let mut bytes = vec![0; SECTOR_BYTES];
        fill(&mut bytes, seed, address, sequence);
        bytes
    }

    #[test]
    fn a_sector_names_itself_and_every_flipped_bit_shows() {
        let good = sector(1, 2, 3);
        assert_eq!(
            look(&good),
            Seen::Valid {
                seed: 1,
                address: 2,
                sequence: 3
            }
        );
        for bit in 0..SECTOR_BYTES * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(look(&bad), Seen::Garbage { .. }), "bit {bit}");
        }
    }

    #[test]
    fn the_xor_of_three_valid_sectors_is_garbage() {
        for sequence in 1..200 {
            let (a, b, c) = (
                sector(1, 8, sequence),
                sector(1, 8, sequence + 1),
                sector(1, 8, 3),
            );
            let xor: Vec<u8> = (0..SECTOR_BYTES).map(|i| a[i] ^ b[i] ^ c[i]).collect();
            let is_one_of_them = sequence == 3 || sequence + 1 == 3;
            assert!(is_one_of_them || matches!(look(&xor), Seen::Garbage { .. }));
        }
    }
}
