//! The pattern that arrays are filled with: every 8-byte little-endian word is its byte offset in the array XOR a seed.

use std::io::{self, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// Bytes made at a time.
const STEP_BYTES: u64 = 1 << 20;

/// `length_bytes` of the pattern of `seed`, from byte `offset_bytes` of the array on; both multiples of 8.
///
/// # Panics
/// When one of them is no multiple of 8.
#[must_use]
pub fn pattern_bytes(seed: u64, offset_bytes: u64, length_bytes: usize) -> Vec<u8> {
    assert!(
        offset_bytes.is_multiple_of(8) && length_bytes.is_multiple_of(8),
        "the pattern consists of words of 8 bytes"
    );
    let words = (0..length_bytes as u64 / 8).map(|word| (offset_bytes + word * 8) ^ seed);
    words.flat_map(u64::to_le_bytes).collect()
}

/// SHA-256, in lower-case hexadecimal, of the first `size_bytes` of the pattern; a multiple of 8.
#[must_use]
pub fn pattern_sha256(seed: u64, size_bytes: u64) -> String {
    let mut hash = Sha256::new();
    for (offset, length) in steps(size_bytes) {
        hash.update(pattern_bytes(seed, offset, length));
    }
    hex(&hash.finalize())
}

/// SHA-256 of `bytes` in lower-case hexadecimal.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Writes the first `size_bytes` of the pattern to a new file.
pub(crate) fn write_pattern(path: &Path, seed: u64, size_bytes: u64) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    for (offset, length) in steps(size_bytes) {
        file.write_all(&pattern_bytes(seed, offset, length))?;
    }
    Ok(())
}

fn steps(size_bytes: u64) -> impl Iterator<Item = (u64, usize)> {
    let offsets = (0..size_bytes).step_by(STEP_BYTES as usize);
    offsets.map(move |offset| (offset, STEP_BYTES.min(size_bytes - offset) as usize))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_its_offset_and_the_seed() {
        let bytes = pattern_bytes(0x1234, 0x1_0000_0008, 16);
        assert_eq!(bytes[..8], [0x3c, 0x12, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bytes[8..], [0x24, 0x12, 0, 0, 1, 0, 0, 0]);
    }

    #[test]
    fn a_hash_in_steps_is_the_hash_of_the_whole() {
        let size = (STEP_BYTES + 4096) as usize;
        assert_eq!(
            pattern_sha256(7, size as u64),
            sha256(&pattern_bytes(7, 0, size))
        );
        assert_ne!(pattern_sha256(7, 4096), pattern_sha256(8, 4096));
    }
}
