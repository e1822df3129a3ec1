//! The GFNI kernel on AVX2: 32 bytes per vector.
//!
//! - A product by a constant is an affine map over bits, so `gf2p8affineqb` does it for any polynomial, in one
//!   instruction.

use core::arch::x86_64::*;

/// 32 bytes of a block.
type Vector = __m256i;
/// Bytes in a vector.
const VECTOR: usize = 32;
/// Vectors per step to generate P.
const STEP_P: usize = 12;
/// Vectors per step to check P and to solve.
const STEP: usize = 4;
/// Vectors per step to generate P with Q in the caches.
const STEP_PQ: usize = 4;
/// Vectors per step to generate P with Q past the caches, Q alone, and to check Q.
const STEP_Q: usize = 4;
/// Vectors per step for all that has R.
const STEP_R: usize = 2;
/// The bit matrix of a product, in every eighth byte group of a vector.
type Coefficient = __m256i;

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

/// # Safety
/// 32 bytes at `from` may be read.
#[target_feature(enable = "avx2,gfni")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm256_loadu_si256(from.cast()) }
}

/// # Safety
/// 32 bytes at `to` may be written.
#[target_feature(enable = "avx2,gfni")]
#[inline]
unsafe fn store(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { _mm256_storeu_si256(to.cast(), value) }
}

/// # Safety
/// 32 bytes at `to`, a multiple of that, may be written.
#[target_feature(enable = "avx2,gfni")]
#[inline]
unsafe fn stream(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise.
    unsafe { _mm256_stream_si256(to.cast(), value) }
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn fence() {
    _mm_sfence();
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    _mm256_or_si256(a, b)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn is_zero(x: Vector) -> bool {
    _mm256_testz_si256(x, x) != 0
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn biased(x: Vector) -> Vector {
    x
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn double_add(x: Vector, data: Vector) -> Vector {
    xor(multiply(x, &coefficient(2)), data)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn quadruple_add(x: Vector, data: Vector) -> Vector {
    xor(multiply(x, &coefficient(4)), data)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn coefficient(c: u8) -> Coefficient {
    _mm256_set1_epi64x(gf::MATRICES[usize::from(c)] as i64)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn multiply(x: Vector, coefficient: &Coefficient) -> Vector {
    _mm256_gf2p8affine_epi64_epi8::<0>(x, *coefficient)
}

crate::loops::kernels!(crate::scalar, #[target_feature(enable = "avx2,gfni")]);
