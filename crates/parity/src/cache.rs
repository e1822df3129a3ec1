//! From which size on the blocks of a row push each other out of the processor's second-level cache.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Second-level caches of all processors that matter are so large at least.
const BYTES_MIN: usize = 512 << 10;
/// Larger ones were not measured, and what a virtual machine's host says may be anything. Where the processor tells
/// nothing, this too.
const BYTES_MAX: usize = 2 << 20;

/// What was found; 0 before somebody asked.
static FOUND: AtomicUsize = AtomicUsize::new(0);

/// Whether rows of so many blocks of this length do not stay in the second-level cache. Their parity goes past the
/// caches: a store that goes through them reads what it overwrites first, and pushes the next blocks out. Measured:
/// docs/notes/parity.md.
#[inline]
pub(crate) fn is_past_cache(blocks: usize, length: usize) -> bool {
    blocks * length >= past_cache_bytes()
}

/// From so many bytes of data on.
#[inline]
pub(crate) fn past_cache_bytes() -> usize {
    match FOUND.load(Ordering::Relaxed) {
        0 => find(),
        found => found,
    }
}

#[cold]
fn find() -> usize {
    let bytes = match second_level_bytes() {
        0 => BYTES_MAX,
        found => found.clamp(BYTES_MIN, BYTES_MAX),
    };
    FOUND.store(bytes, Ordering::Relaxed);
    bytes
}

/// Size of the second-level cache as the processor tells it, 0 if it does not.
///
/// Source: CPUID function 0x8000_0006, ECX bits 31 to 16, in KiB, with AMD and Intel alike.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // both are safe to call from Rust 1.94 on
fn second_level_bytes() -> usize {
    use core::arch::x86_64::{__cpuid, __get_cpuid_max};
    const FUNCTION: u32 = 0x8000_0006;
    // SAFETY: every processor of this architecture has the instruction, which reads no memory; the function is asked
    // for only if there.
    let kib = unsafe {
        let (last, _) = __get_cpuid_max(0x8000_0000);
        if last < FUNCTION {
            0
        } else {
            __cpuid(FUNCTION).ecx >> 16
        }
    };
    (kib as usize) << 10
}

#[cfg(not(target_arch = "x86_64"))]
fn second_level_bytes() -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_level_cache_is_of_a_size_that_such_caches_have() {
        let found = past_cache_bytes();
        assert!((BYTES_MIN..=BYTES_MAX).contains(&found), "{found}");
        assert_eq!(found, past_cache_bytes(), "asked again");
    }
}
