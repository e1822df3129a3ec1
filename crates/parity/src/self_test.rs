//! Checks a kernel on this very machine, against the bit loop: at a start or before a benchmark, in milliseconds.
//!
//! - Covers every function, every coefficient, whole steps, whole vectors and single bytes.
//! - A machine with a kernel that no test of this program ever ran on finds a mistake before it reaches a disk.

use std::fmt;

use crate::dispatch::{Kernel, Kernels};
use crate::recover::{Block, RecoverPlan};
use crate::reference;

/// A kernel computes something else than the definition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfTestError {
    /// The kernel.
    pub kernel: Kernel,
    /// The function that was called.
    pub function: &'static str,
    /// Bytes of each block in this call.
    pub length_bytes: usize,
}

impl fmt::Display for SelfTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SelfTestError {
            kernel,
            function,
            length_bytes,
        } = self;
        write!(
            f,
            "parity kernel {kernel}: {function} of {length_bytes} bytes is wrong on this machine; force another kernel"
        )
    }
}

impl std::error::Error for SelfTestError {}

/// Lengths with steps, vectors and single bytes of every kernel, and multiples of the usual sector.
const LENGTHS: [usize; 4] = [1, 63, 512, 1024 + 64 + 32 + 16 + 8 + 5];

/// Compares every function of `kernels` with the bit loop.
/// # Errors
/// [`SelfTestError`] for the first function that differs.
pub fn self_test(kernels: &Kernels) -> Result<(), SelfTestError> {
    for length_bytes in LENGTHS {
        let fail = |function| SelfTestError {
            kernel: kernels.kernel(),
            function,
            length_bytes,
        };
        for exponents in [[0, 1, 2, 3, 4], [7, 3, 254, 0, 4]] {
            let row = Row::new(&exponents, length_bytes);
            row.test_generation(kernels)
                .and_then(|()| row.test_recover(kernels))
                .map_err(fail)?;
        }
        test_products(kernels, length_bytes).map_err(fail)?;
    }
    Ok(())
}

/// Five data blocks, one byte off any alignment, with the parities of the bit loop.
struct Row<'a> {
    exponents: &'a [u8; 5],
    length: usize,
    bytes: Vec<u8>,
    parities: [Vec<u8>; 3],
}

impl<'a> Row<'a> {
    fn new(exponents: &'a [u8; 5], length: usize) -> Self {
        // A multiplicative sequence: all byte values, no period that fits a vector.
        let bytes = (0..5 * length as u64 + 1)
            .map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as u8)
            .collect();
        let mut row = Row {
            exponents,
            length,
            bytes,
            parities: Default::default(),
        };
        row.parities = [1, 2, 4].map(|base| {
            let mut target = vec![0; length];
            reference::generate(base, &row.data(), exponents, &mut target);
            target
        });
        row
    }

    fn data(&self) -> [&[u8]; 5] {
        std::array::from_fn(|index| &self.bytes[1 + index * self.length..][..self.length])
    }

    fn get(&self, block: Block) -> &[u8] {
        match block {
            Block::Data(index) => self.data()[index],
            Block::P => &self.parities[0],
            Block::Q => &self.parities[1],
            Block::R => &self.parities[2],
        }
    }

    fn test_generation(&self, kernels: &Kernels) -> Result<(), &'static str> {
        let data = self.data();
        let [mut p, mut q, mut r] = [(); 3].map(|()| vec![0x77; self.length]);
        kernels.gen_p(&data, &mut p);
        kernels.gen_q(&data, self.exponents, &mut q);
        expect(p == self.parities[0], "gen_p")?;
        expect(q == self.parities[1], "gen_q")?;
        kernels.add_pq(&data, self.exponents, &mut p, &mut q);
        expect(p.iter().chain(&q).all(|&byte| byte == 0), "add_pq")?;
        kernels.gen_pq(&data, self.exponents, &mut p, &mut q);
        expect(p == self.parities[0] && q == self.parities[1], "gen_pq")?;
        kernels.gen_pqr(&data, self.exponents, &mut p, &mut q, &mut r);
        expect([&p, &q, &r].into_iter().eq(&self.parities), "gen_pqr")?;
        expect(kernels.check_p(&data, &p).is_none(), "check_p")?;
        let last = self.length - 1;
        q[last] ^= 1;
        expect(
            kernels.check_pq(&data, self.exponents, &p, &q) == Some(last),
            "check_pq",
        )?;
        expect(
            kernels
                .check_pqr(&data, self.exponents, &p, &self.parities[1], &r)
                .is_none(),
            "check_pqr",
        )?;
        kernels.update_pqr(data[2], data[0], self.exponents[2], &mut p, &mut q, &mut r);
        kernels.update_pqr(data[0], data[2], self.exponents[2], &mut p, &mut q, &mut r);
        q[last] ^= 1;
        expect([&p, &q, &r].into_iter().eq(&self.parities), "update_pqr")
    }

    fn test_recover(&self, kernels: &Kernels) -> Result<(), &'static str> {
        use Block::{Data, P, Q, R};
        let losses: [(&[Block], &[Block]); 8] = [
            (&[Data(1)], &[P]),
            (&[Data(0)], &[R]),
            (&[Data(2), P], &[Q]),
            (&[Data(2), Q], &[P]),
            (&[Data(0), Data(3)], &[P, Q]),
            (&[Data(1), Data(2)], &[P, R]),
            (&[Data(4), Data(2), P], &[Q, R]),
            (&[Data(0), Data(4), Data(2)], &[P, Q, R]),
        ];
        for (missing, available) in losses {
            let plan = RecoverPlan::new(self.exponents, missing, available)
                .expect("a loss that can be restored");
            let sources: Vec<_> = plan
                .sources()
                .iter()
                .map(|&block| self.get(block))
                .collect();
            let mut found = vec![vec![0; self.length]; missing.len()];
            let mut targets: Vec<_> = found.iter_mut().map(|block| &mut block[..]).collect();
            plan.recover_with(kernels, &sources, &mut targets);
            expect(
                missing
                    .iter()
                    .zip(&found)
                    .all(|(&block, found)| self.get(block) == found),
                "recover",
            )?;
        }
        Ok(())
    }
}

/// Every coefficient times as many byte values as fit.
fn test_products(kernels: &Kernels, length: usize) -> Result<(), &'static str> {
    for coefficient in 0..=255 {
        let source: Vec<u8> = (0..length).map(|i| i as u8 ^ coefficient).collect();
        let mut target = vec![0x5a; length];
        kernels.mul_add(coefficient, &source, &mut target);
        let right = |(&found, &x)| found == 0x5a ^ reference::mul(coefficient, x);
        expect(target.iter().zip(&source).all(right), "mul_add")?;
    }
    Ok(())
}

/// The function's name as the error where a fact does not hold.
fn expect(fact: bool, function: &'static str) -> Result<(), &'static str> {
    if fact { Ok(()) } else { Err(function) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_of_this_machine_passes() {
        for kernels in crate::kernels() {
            assert_eq!(self_test(kernels), Ok(()));
            println!("{} passed", kernels.kernel());
        }
    }

    #[test]
    fn the_error_names_kernel_function_and_length() {
        let error = SelfTestError {
            kernel: Kernel::Neon,
            function: "gen_pq",
            length_bytes: 63,
        };
        assert_eq!(
            error.to_string(),
            "parity kernel neon: gen_pq of 63 bytes is wrong on this machine; force another kernel"
        );
    }
}
