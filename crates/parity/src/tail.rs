//! The same sums one byte at a time, by tables: for the last bytes of a block that fill no vector.
//!
//! - The functions have the form of a kernel's and work on bytes `from` .. length; the kernel has done those before.

use crate::gf;
use crate::terms::{Found, Outputs, Row, Store, Terms};

/// The sums P, Q, R of byte `at` of all blocks.
fn sums(terms: &Terms<'_>, at: usize) -> [u8; 3] {
    let [mut p, mut q, mut r] = [0; 3];
    let blocks = terms.blocks();
    let Some(order) = terms.order() else {
        for block in blocks.iter().rev() {
            let data = block[at];
            (p, q, r) = (
                p ^ data,
                gf::double(q) ^ data,
                gf::double(gf::double(r)) ^ data,
            );
        }
        return [p, q, r];
    };
    for step in order.steps() {
        let data = blocks[usize::from(step.index)][at];
        (p, q, r) = (
            p ^ data,
            raise(q, step.gap) ^ data,
            raise(raise(r, step.gap), step.gap) ^ data,
        );
    }
    let tail = order.tail();
    [p, raise(q, tail), raise(raise(r, tail), tail)]
}

/// 2^`exponent` times `x`.
fn raise(x: u8, exponent: u8) -> u8 {
    gf::mul(x, gf::power(usize::from(exponent)))
}

/// Stores or adds the sums of the bytes from `from` on.
pub(crate) fn generate(
    _set: u8,
    terms: &Terms<'_>,
    from: usize,
    outputs: &mut Outputs<'_>,
    store: Store,
) {
    for at in from..terms.length() {
        for (output, sum) in outputs.iter_mut().zip(sums(terms, at)) {
            if let Some(output) = output {
                output[at] = if store == Store::Add {
                    output[at] ^ sum
                } else {
                    sum
                };
            }
        }
    }
}

/// The first byte from `from` on where a parity that is there is not the sum of the blocks.
pub(crate) fn check(terms: &Terms<'_>, from: usize, found: &Found<'_>) -> Option<usize> {
    (from..terms.length()).find(|&at| {
        let sums = sums(terms, at);
        found
            .iter()
            .zip(sums)
            .any(|(found, sum)| found.is_some_and(|found| found[at] != sum))
    })
}

/// Computes the targets of the bytes from `from` on.
pub(crate) fn solve(
    _set: u8,
    terms: &Terms<'_>,
    from: usize,
    found: &Found<'_>,
    rows: &[Row],
    targets: &mut [&mut [u8]],
) {
    for at in from..terms.length() {
        let mut values = [0; 6];
        for (value, (sum, found)) in values
            .iter_mut()
            .zip(sums(terms, at).into_iter().zip(found))
        {
            *value = sum ^ found.map_or(0, |found| found[at]);
        }
        for (number, row) in rows.iter().enumerate() {
            let shares = row.shares().iter();
            let result = shares.fold(0, |sum, share| {
                sum ^ gf::mul(share.coefficient, values[usize::from(share.value)])
            });
            values[3 + number] = result;
            targets[usize::from(row.target)][at] = result;
        }
    }
}
