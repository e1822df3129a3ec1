//! XOR and Reed-Solomon parity over GF(2^8): P, Q and R, by instruction set.
//!
//! P is the XOR of the data blocks, Q the sum of 2^e D_e, R the sum of 4^e D_e, where e is the exponent of a block: for
//! RAID-6 its place in md's or DDF's Q order, for RAID-Z counted down from the last column (linux-md.md 7 and 8,
//! zfs-raidz.md 1.2). The functions take blocks of one length, any length and alignment, and allocate nothing.
//!
//! - [`gen_p`], [`gen_pq`], [`gen_pqr`] and [`gen_q`] compute parity; [`check_p`], [`check_pq`], [`check_pqr`] compare
//!   it.
//! - [`update_p`], [`update_pq`], [`update_pqr`] bring it up to date by difference; [`add_p`], [`add_pq`], [`add_pqr`]
//!   do so for several blocks at once.
//! - [`RecoverPlan`] restores up to three missing blocks; [`locate`] names a single wrong one.
//! - [`Fletcher4`] sums the words of blocks, which ZFS verifies them by.
//! - [`describe`] shows the [`Kernel`] that runs, [`set_kernel`] forces one, [`kernels`] lists what the machine can
//!   run.
//!
//! The GFNI and AVX-512 kernels run on few machines: their tests run where the instructions are, and [`self_test()`] at
//! any user's start.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod cache;
mod dispatch;
pub mod gf;
mod locate;
mod loops;
#[cfg(feature = "null-kernel")]
mod null;
mod recover;
pub mod reference;
mod row;
mod scalar;
mod self_test;
mod short;
mod sums;
mod tail;
mod terms;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod gfni_avx2;
#[cfg(target_arch = "x86_64")]
mod gfni_avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod ssse3;

pub use dispatch::{Kernel, KernelUnavailable, Kernels, chosen, describe, kernels, set_kernel};
pub use locate::{Located, locate};
#[cfg(feature = "null-kernel")]
pub use null::NullKernel;
pub use recover::{Block, RecoverError, RecoverPlan};
pub use row::BLOCKS_MAX;
pub use self_test::{SelfTestError, self_test};
pub use sums::{Fletcher4, Sums};

/// Adds (XOR) `source` to `target`, by the chosen kernel.
/// # Panics
/// As [`Kernels::xor_into`], where the details are.
#[inline]
pub fn xor_into(target: &mut [u8], source: &[u8]) {
    chosen().xor_into(target, source);
}

/// P = the XOR of all `sources`, by the chosen kernel.
/// # Panics
/// As [`Kernels::gen_p`], where the details are.
#[inline]
pub fn gen_p(sources: &[&[u8]], p: &mut [u8]) {
    chosen().gen_p(sources, p);
}

/// Q = the sum of 2^exponent times source, by the chosen kernel.
/// # Panics
/// As [`Kernels::gen_q`], where the details are.
#[inline]
pub fn gen_q(sources: &[&[u8]], exponents: &[u8], q: &mut [u8]) {
    chosen().gen_q(sources, exponents, q);
}

/// P and Q in one pass, by the chosen kernel.
/// # Panics
/// As [`Kernels::gen_pq`], where the details are.
#[inline]
pub fn gen_pq(sources: &[&[u8]], exponents: &[u8], p: &mut [u8], q: &mut [u8]) {
    chosen().gen_pq(sources, exponents, p, q);
}

/// P, Q and R in one pass, by the chosen kernel.
/// # Panics
/// As [`Kernels::gen_pqr`], where the details are.
#[inline]
pub fn gen_pqr(sources: &[&[u8]], exponents: &[u8], p: &mut [u8], q: &mut [u8], r: &mut [u8]) {
    chosen().gen_pqr(sources, exponents, p, q, r);
}

/// Adds the share of all `sources` to P, by the chosen kernel.
/// # Panics
/// As [`Kernels::add_p`], where the details are.
#[inline]
pub fn add_p(sources: &[&[u8]], p: &mut [u8]) {
    chosen().add_p(sources, p);
}

/// Adds the shares of the sources to P and Q, by the chosen kernel.
/// # Panics
/// As [`Kernels::add_pq`], where the details are.
#[inline]
pub fn add_pq(sources: &[&[u8]], exponents: &[u8], p: &mut [u8], q: &mut [u8]) {
    chosen().add_pq(sources, exponents, p, q);
}

/// Adds the shares of the sources to P, Q and R, by the chosen kernel.
/// # Panics
/// As [`Kernels::add_pqr`], where the details are.
#[inline]
pub fn add_pqr(sources: &[&[u8]], exponents: &[u8], p: &mut [u8], q: &mut [u8], r: &mut [u8]) {
    chosen().add_pqr(sources, exponents, p, q, r);
}

/// Brings P up to date after one block changed from `old` to `new`, by the chosen kernel.
/// # Panics
/// As [`Kernels::update_p`], where the details are.
#[inline]
pub fn update_p(old: &[u8], new: &[u8], p: &mut [u8]) {
    chosen().update_p(old, new, p);
}

/// Brings P and Q up to date after the block with this exponent changed from `old` to `new`, by the chosen kernel.
/// # Panics
/// As [`Kernels::update_pq`], where the details are.
#[inline]
pub fn update_pq(old: &[u8], new: &[u8], exponent: u8, p: &mut [u8], q: &mut [u8]) {
    chosen().update_pq(old, new, exponent, p, q);
}

/// Brings P, Q and R up to date after the block with this exponent changed from `old` to `new`, by the chosen kernel.
/// # Panics
/// As [`Kernels::update_pqr`], where the details are.
#[inline]
pub fn update_pqr(old: &[u8], new: &[u8], exponent: u8, p: &mut [u8], q: &mut [u8], r: &mut [u8]) {
    chosen().update_pqr(old, new, exponent, p, q, r);
}

/// Adds `coefficient` times `source` to `target`, by the chosen kernel.
/// # Panics
/// As [`Kernels::mul_add`], where the details are.
#[inline]
pub fn mul_add(coefficient: u8, source: &[u8], target: &mut [u8]) {
    chosen().mul_add(coefficient, source, target);
}

/// The first offset at which `p` is not the XOR of all `sources`, by the chosen kernel.
/// # Panics
/// As [`Kernels::check_p`], where the details are.
#[inline]
pub fn check_p(sources: &[&[u8]], p: &[u8]) -> Option<usize> {
    chosen().check_p(sources, p)
}

/// The first offset at which P or Q is wrong, by the chosen kernel.
/// # Panics
/// As [`Kernels::check_pq`], where the details are.
#[inline]
pub fn check_pq(sources: &[&[u8]], exponents: &[u8], p: &[u8], q: &[u8]) -> Option<usize> {
    chosen().check_pq(sources, exponents, p, q)
}

/// The first offset at which P, Q or R is wrong, by the chosen kernel.
/// # Panics
/// As [`Kernels::check_pqr`], where the details are.
#[inline]
pub fn check_pqr(
    sources: &[&[u8]],
    exponents: &[u8],
    p: &[u8],
    q: &[u8],
    r: &[u8],
) -> Option<usize> {
    chosen().check_pqr(sources, exponents, p, q, r)
}
