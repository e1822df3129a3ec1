//! The AVX-512 kernel (F and BW): 64 bytes per vector, masks for doubling, three-operand logic.

use core::arch::x86_64::*;

/// 64 bytes of a block.
type Vector = __m512i;
/// Bytes in a vector.
const VECTOR: usize = 64;
/// Vectors per step to generate P.
const STEP_P: usize = 2;
/// Vectors per step to check P and to solve.
const STEP: usize = 4;
/// Vectors per step to generate P with Q in the caches.
const STEP_PQ: usize = 4;
/// Vectors per step to generate P with Q past the caches, Q alone, and to check Q.
const STEP_Q: usize = 4;
/// Vectors per step for all that has R.
const STEP_R: usize = 4;
/// Products with low and with high nibbles, in all four quarters of a vector.
type Coefficient = [__m512i; 2];
/// The truth table of a ^ b ^ c for `ternarylogic`.
const XOR_3: i32 = 0x96;
/// The truth table of (a & b) ^ c for `ternarylogic`.
const AND_XOR: i32 = 0x6a;

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

/// # Safety
/// 64 bytes at `from` may be read.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

/// # Safety
/// 64 bytes at `to` may be written.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn store(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm512_storeu_si512(to.cast(), value) }
}

/// # Safety
/// 64 bytes at `to`, a multiple of that, may be written.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
unsafe fn stream(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise.
    unsafe { _mm512_stream_si512(to.cast(), value) }
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn fence() {
    _mm_sfence();
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    _mm512_or_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn is_zero(x: Vector) -> bool {
    _mm512_test_epi8_mask(x, x) == 0
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn biased(x: Vector) -> Vector {
    x
}

/// The top bits go to a mask register, which selects the polynomial; one instruction adds it and the data.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn double_add(x: Vector, data: Vector) -> Vector {
    let top = _mm512_movepi8_mask(x);
    let reduction = _mm512_maskz_mov_epi8(top, _mm512_set1_epi8(gf::POLYNOMIAL as i8));
    _mm512_ternarylogic_epi64::<XOR_3>(_mm512_add_epi8(x, x), reduction, data)
}

/// The two top bits choose one of four reductions (of 0, x^8, x^9 and both) by a shuffle.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn quadruple_add(x: Vector, data: Vector) -> Vector {
    let top = _mm512_and_si512(_mm512_srli_epi16::<6>(x), _mm512_set1_epi8(3));
    let reduction = _mm512_shuffle_epi8(_mm512_set1_epi32(gf::REDUCTIONS_OF_4), top);
    let sum = _mm512_xor_si512(reduction, data);
    _mm512_ternarylogic_epi64::<AND_XOR>(_mm512_slli_epi16::<2>(x), _mm512_set1_epi8(!3), sum)
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn coefficient(c: u8) -> Coefficient {
    let table = gf::NIBBLES.of(c).as_ptr();
    // SAFETY: a table has 32 bytes, read as two halves of 16; the instruction takes any alignment.
    let halves = unsafe {
        [
            _mm_loadu_si128(table.cast()),
            _mm_loadu_si128(table.add(16).cast()),
        ]
    };
    [
        _mm512_broadcast_i32x4(halves[0]),
        _mm512_broadcast_i32x4(halves[1]),
    ]
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn multiply(x: Vector, coefficient: &Coefficient) -> Vector {
    let mask = _mm512_set1_epi8(15);
    let low = _mm512_and_si512(x, mask);
    let high = _mm512_and_si512(_mm512_srli_epi16::<4>(x), mask);
    xor(
        _mm512_shuffle_epi8(coefficient[0], low),
        _mm512_shuffle_epi8(coefficient[1], high),
    )
}

crate::loops::kernels!(crate::scalar, #[target_feature(enable = "avx512f,avx512bw")]);
