//! XOR that is faster in vectors of 32 bytes on processors that have some of 64.

use std::sync::LazyLock;

use crate::cache::is_past_cache;

/// Fewer blocks are not faster.
const BLOCKS_MIN: usize = 5;
/// Nor are rows of fewer bytes.
const BYTES_MIN: usize = 256 << 10;

/// Whether XOR of so many blocks of this length, all in the second-level cache, is faster in vectors of 32 bytes than
/// of 64.
///
/// Measured on Zen 5 (docs/notes/parity.md): 5 to 7 blocks of 64 KiB 10 to 25 % faster, 8 blocks 6 %; fewer or shorter
/// ones are not. Intel's processors were not measured, and keep their long vectors.
#[inline]
pub(crate) fn takes_short_vectors(blocks: usize, length: usize) -> bool {
    let is_long = blocks >= BLOCKS_MIN && blocks * length >= BYTES_MIN;
    is_long && !is_past_cache(blocks, length) && *IS_AMD
}

/// Whether the processor is one of AMD's; asked once: in a virtual machine each question costs a microsecond and more.
static IS_AMD: LazyLock<bool> = LazyLock::new(|| vendor_name() == *b"AuthenticAMD");

/// Who made the processor, as it says.
///
/// Source: CPUID function 0, EBX, EDX, ECX.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // safe to call from Rust 1.94 on
fn vendor_name() -> [u8; 12] {
    // SAFETY: every processor of this architecture has the instruction and this function of it, which reads no memory.
    let says = unsafe { core::arch::x86_64::__cpuid(0) };
    let mut name = [0; 12];
    for (part, word) in name.chunks_exact_mut(4).zip([says.ebx, says.edx, says.ecx]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    name
}

#[cfg(not(target_arch = "x86_64"))]
fn vendor_name() -> [u8; 12] {
    [0; 12]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::past_cache_bytes;

    #[test]
    fn short_vectors_are_for_many_long_blocks_that_fit_the_second_level_cache() {
        assert_eq!(takes_short_vectors(5, 64 << 10), *IS_AMD);
        assert!(!takes_short_vectors(4, 64 << 10), "few blocks");
        assert!(!takes_short_vectors(8, 16 << 10), "short ones");
        assert!(
            !takes_short_vectors(8, past_cache_bytes() / 8),
            "what fits no cache"
        );
        #[cfg(target_arch = "x86_64")]
        assert!(vendor_name().iter().all(u8::is_ascii_graphic));
    }
}
