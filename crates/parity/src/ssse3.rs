//! The SSSE3 kernel: 16 bytes per vector, products by two table shuffles.

use core::arch::x86_64::*;

/// 16 bytes of a block.
type Vector = __m128i;
/// Bytes in a vector.
const VECTOR: usize = 16;
/// Vectors per step to generate P.
const STEP_P: usize = 4;
/// Vectors per step to check P and to solve.
const STEP: usize = 4;
/// Vectors per step to generate P with Q in the caches.
const STEP_PQ: usize = 4;
/// Vectors per step to generate P with Q past the caches, Q alone, and to check Q.
const STEP_Q: usize = 4;
/// Vectors per step for all that has R.
const STEP_R: usize = 2;
/// Products with low and with high nibbles.
type Coefficient = [__m128i; 2];

#[target_feature(enable = "ssse3")]
#[inline]
fn zero() -> Vector {
    _mm_setzero_si128()
}

/// # Safety
/// 16 bytes at `from` may be read.
#[target_feature(enable = "ssse3")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm_loadu_si128(from.cast()) }
}

/// # Safety
/// 16 bytes at `to` may be written.
#[target_feature(enable = "ssse3")]
#[inline]
unsafe fn store(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm_storeu_si128(to.cast(), value) }
}

/// # Safety
/// 16 bytes at `to`, a multiple of that, may be written.
#[target_feature(enable = "ssse3")]
#[inline]
unsafe fn stream(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise.
    unsafe { _mm_stream_si128(to.cast(), value) }
}

#[target_feature(enable = "ssse3")]
#[inline]
fn fence() {
    _mm_sfence();
}

#[target_feature(enable = "ssse3")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[target_feature(enable = "ssse3")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    _mm_or_si128(a, b)
}

#[target_feature(enable = "ssse3")]
#[inline]
fn is_zero(x: Vector) -> bool {
    _mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_setzero_si128())) == 0xffff
}

#[target_feature(enable = "ssse3")]
#[inline]
fn biased(x: Vector) -> Vector {
    xor(x, _mm_set1_epi8(gf::BIAS as i8))
}

/// A shuffle gives 0 for bytes with the top bit set and the polynomial for all others: the reduction and the
/// polynomial, which the bias takes away again.
#[target_feature(enable = "ssse3")]
#[inline]
fn double_add(x: Vector, data: Vector) -> Vector {
    let reduction = _mm_shuffle_epi8(_mm_set1_epi8(gf::POLYNOMIAL as i8), x);
    xor(xor(_mm_add_epi8(x, x), data), reduction)
}

/// The two top bits choose one of four reductions (of 0, x^8, x^9 and both) by a shuffle.
#[target_feature(enable = "ssse3")]
#[inline]
fn quadruple_add(x: Vector, data: Vector) -> Vector {
    let top = _mm_and_si128(_mm_srli_epi16::<6>(x), _mm_set1_epi8(3));
    let reductions = _mm_set1_epi32(gf::REDUCTIONS_OF_4);
    let rest = _mm_and_si128(_mm_slli_epi16::<2>(x), _mm_set1_epi8(!3));
    xor(xor(rest, data), _mm_shuffle_epi8(reductions, top))
}

#[target_feature(enable = "ssse3")]
#[inline]
fn coefficient(c: u8) -> Coefficient {
    let table = gf::NIBBLES.of(c).as_ptr();
    // SAFETY: a table has 32 bytes, read as two halves of 16; the instruction takes any alignment.
    unsafe {
        [
            _mm_loadu_si128(table.cast()),
            _mm_loadu_si128(table.add(16).cast()),
        ]
    }
}

#[target_feature(enable = "ssse3")]
#[inline]
fn multiply(x: Vector, coefficient: &Coefficient) -> Vector {
    let mask = _mm_set1_epi8(15);
    let low = _mm_and_si128(x, mask);
    let high = _mm_and_si128(_mm_srli_epi16::<4>(x), mask);
    xor(
        _mm_shuffle_epi8(coefficient[0], low),
        _mm_shuffle_epi8(coefficient[1], high),
    )
}

crate::loops::kernels!(crate::scalar, #[target_feature(enable = "ssse3")]);
