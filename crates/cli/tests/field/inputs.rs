//! The small inputs of the stories, and the content that they were filled with.

use std::path::Path;

use plexum_testkit::{Unpacked, fixtures, unpack};

/// Bytes of a block of the content.
pub const BLOCK_BYTES: usize = 4096;

/// Unpacks `fixtures/field/NAME.tar.zst` into a folder of its own.
pub fn unpack_story(name: &str) -> Unpacked {
    unpack(&fixtures().join(format!("field/{name}.tar.zst")))
}

/// Block `number` of the content: the little-endian word `number * 0x9E37 + seed`, repeated.
pub fn block(number: u64, seed: u64) -> Vec<u8> {
    let word = number.wrapping_mul(0x9E37).wrapping_add(seed);
    word.to_le_bytes().repeat(BLOCK_BYTES / 8)
}

/// Numbers of the blocks of a copied volume that differ from the content, out of the first `count`.
///
/// # Panics
/// When the file is shorter than that.
pub fn wrong_blocks(copy: &Path, seed: u64, count: u64) -> Vec<u64> {
    let bytes = std::fs::read(copy).unwrap();
    assert!(bytes.len() as u64 >= count * BLOCK_BYTES as u64);
    let blocks = (0..).zip(bytes.chunks_exact(BLOCK_BYTES));
    let wrong = blocks.filter(|(number, bytes)| *bytes != block(*number, seed));
    wrong
        .map(|(number, _)| number)
        .take_while(|number| *number < count)
        .collect()
}
