//! The NEON kernel of AArch64: 16 bytes per vector, products by two table look-ups.

use core::arch::aarch64::*;

/// 16 bytes of a block.
type Vector = uint8x16_t;
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
const STEP_R: usize = 4;
/// Products with low and with high nibbles.
type Coefficient = [uint8x16_t; 2];

#[target_feature(enable = "neon")]
#[inline]
fn zero() -> Vector {
    vdupq_n_u8(0)
}

/// # Safety
/// 16 bytes at `from` may be read.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { vld1q_u8(from) }
}

/// # Safety
/// 16 bytes at `to` may be written.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn store(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise; the instruction takes any alignment.
    unsafe { vst1q_u8(to, value) }
}

/// # Safety
/// As `store`.
#[target_feature(enable = "neon")]
#[inline]
unsafe fn stream(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise.
    unsafe { store(to, value) }
}

#[target_feature(enable = "neon")]
#[inline]
fn fence() {}

#[target_feature(enable = "neon")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    veorq_u8(a, b)
}

#[target_feature(enable = "neon")]
#[inline]
fn or(a: Vector, b: Vector) -> Vector {
    vorrq_u8(a, b)
}

#[target_feature(enable = "neon")]
#[inline]
fn is_zero(x: Vector) -> bool {
    vmaxvq_u8(x) == 0
}

#[target_feature(enable = "neon")]
#[inline]
fn biased(x: Vector) -> Vector {
    x
}

/// An arithmetic shift makes a mask of the top bit, the mask selects the polynomial.
#[target_feature(enable = "neon")]
#[inline]
fn double_add(x: Vector, data: Vector) -> Vector {
    let top = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(x)));
    let reduction = vandq_u8(top, vdupq_n_u8(gf::POLYNOMIAL));
    xor(xor(vshlq_n_u8::<1>(x), data), reduction)
}

/// The two top bits choose one of four reductions (of 0, x^8, x^9 and both) by a table look-up.
#[target_feature(enable = "neon")]
#[inline]
fn quadruple_add(x: Vector, data: Vector) -> Vector {
    let reductions = vreinterpretq_u8_s32(vdupq_n_s32(gf::REDUCTIONS_OF_4));
    let reduction = vqtbl1q_u8(reductions, vshrq_n_u8::<6>(x));
    xor(xor(vshlq_n_u8::<2>(x), data), reduction)
}

#[target_feature(enable = "neon")]
#[inline]
fn coefficient(c: u8) -> Coefficient {
    let table = gf::NIBBLES.of(c).as_ptr();
    // SAFETY: a table has 32 bytes, read as two halves of 16; the instruction takes any alignment.
    unsafe { [vld1q_u8(table), vld1q_u8(table.add(16))] }
}

#[target_feature(enable = "neon")]
#[inline]
fn multiply(x: Vector, coefficient: &Coefficient) -> Vector {
    let low = vandq_u8(x, vdupq_n_u8(15));
    let high = vshrq_n_u8::<4>(x);
    xor(
        vqtbl1q_u8(coefficient[0], low),
        vqtbl1q_u8(coefficient[1], high),
    )
}

crate::loops::kernels!(crate::scalar, #[target_feature(enable = "neon")]);
