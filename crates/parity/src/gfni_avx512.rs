//! The GFNI kernel on AVX-512 (F and BW): 64 bytes per vector.
//!
//! - A product by a constant is an affine map over bits, so `gf2p8affineqb` does it for any polynomial, in one
//!   instruction.

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
/// The bit matrix of a product, in every eighth byte group of a vector.
type Coefficient = __m512i;

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

/// # Safety
/// 64 bytes at `from` may be read.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm512_loadu_si512(from.cast()) }
}

/// # Safety
/// 64 bytes at `to` may be written.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn store(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm512_storeu_si512(to.cast(), value) }
}

/// # Safety
/// 64 bytes at `to`, a multiple of that, may be written.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
unsafe fn stream(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise.
    unsafe { _mm512_stream_si512(to.cast(), value) }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn fence() {
    _mm_sfence();
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    _mm512_or_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn is_zero(x: Vector) -> bool {
    _mm512_test_epi8_mask(x, x) == 0
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn biased(x: Vector) -> Vector {
    x
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn double_add(x: Vector, data: Vector) -> Vector {
    xor(multiply(x, &coefficient(2)), data)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn quadruple_add(x: Vector, data: Vector) -> Vector {
    xor(multiply(x, &coefficient(4)), data)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn coefficient(c: u8) -> Coefficient {
    _mm512_set1_epi64(gf::MATRICES[usize::from(c)] as i64)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn multiply(x: Vector, coefficient: &Coefficient) -> Vector {
    _mm512_gf2p8affine_epi64_epi8::<0>(x, *coefficient)
}

crate::loops::kernels!(crate::scalar, #[target_feature(enable = "avx512f,avx512bw,gfni")]);
