//! The portable kernel: eight bytes in a 64-bit word, whatever the machine.
//!
//! - Doubling works on all eight bytes at once: the top bits are masked out, shifted, and turned into the polynomial.
//! - A compiler that knows a vector unit turns these loops into vector code; correctness does not depend on it.
//!
//! Source of the doubling: zfs-raidz.md 1.2.

/// Eight bytes of a block.
type Vector = u64;
/// Bytes in a vector.
const VECTOR: usize = 8;
/// Vectors per step to generate P.
const STEP_P: usize = 8;
/// Vectors per step to check P and to solve.
const STEP: usize = 8;
/// Vectors per step to generate P with Q in the caches.
const STEP_PQ: usize = 8;
/// Vectors per step to generate P with Q past the caches, Q alone, and to check Q.
const STEP_Q: usize = 8;
/// Vectors per step for all that has R.
const STEP_R: usize = 4;
/// A coefficient in the form that `multiply` takes.
type Coefficient = u8;

#[inline(always)]
fn zero() -> Vector {
    0
}

/// # Safety
/// Eight bytes at `from` may be read.
#[inline(always)]
unsafe fn load(from: *const u8) -> Vector {
    // SAFETY: the caller's promise; alignment is not assumed.
    unsafe { from.cast::<u64>().read_unaligned() }
}

/// # Safety
/// Eight bytes at `to` may be written.
#[inline(always)]
unsafe fn store(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise; alignment is not assumed.
    unsafe { to.cast::<u64>().write_unaligned(value) }
}

/// # Safety
/// As `store`.
#[inline(always)]
unsafe fn stream(to: *mut u8, value: Vector) {
    // SAFETY: the caller's promise.
    unsafe { store(to, value) }
}

#[inline(always)]
fn fence() {}

#[inline(always)]
fn xor(a: Vector, b: Vector) -> Vector {
    a ^ b
}

#[inline(always)]
fn or(a: Vector, b: Vector) -> Vector {
    a | b
}

#[inline(always)]
fn is_zero(x: Vector) -> bool {
    x == 0
}

#[inline(always)]
fn double(x: Vector) -> Vector {
    let top = x & 0x8080_8080_8080_8080;
    // 0x80 becomes 0xff: top bits shifted out and in; no byte borrows from its neighbour, as each is 0x80 or 0.
    let mask = (top << 1).wrapping_sub(top >> 7);
    ((x << 1) & 0xfefe_fefe_fefe_fefe) ^ (mask & 0x1d1d_1d1d_1d1d_1d1d)
}

#[inline(always)]
fn biased(x: Vector) -> Vector {
    x
}

#[inline(always)]
fn double_add(x: Vector, data: Vector) -> Vector {
    double(x) ^ data
}

#[inline(always)]
fn quadruple_add(x: Vector, data: Vector) -> Vector {
    double(double(x)) ^ data
}

#[inline(always)]
fn coefficient(c: u8) -> Coefficient {
    c
}

#[inline(always)]
fn multiply(mut x: Vector, coefficient: &Coefficient) -> Vector {
    let (mut bits, mut product) = (*coefficient, 0);
    while bits != 0 {
        if bits & 1 != 0 {
            product ^= x;
        }
        x = double(x);
        bits >>= 1;
    }
    product
}

crate::loops::kernels!(crate::tail,);
