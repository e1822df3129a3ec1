//! Restores up to three missing blocks of a row from what is left.
//!
//! - A plan holds the solved equations of one layout and one loss; it serves any number of stripes of any length.
//! - One pass over the survivors: their sums, with the parities added, are what the missing blocks contribute to each
//!   parity; the inverse of the missing blocks' coefficients turns them into the blocks themselves.
//! - The equations always have a solution: the coefficients 2^e (4^e) of different exponents below 255 differ, so those
//!   of P and Q, P and R, Q and R, and P, Q and R form (scaled) Vandermonde matrices.
//!
//! Source: linux-md.md 8, zfs-raidz.md 1.3.

use std::fmt;

use crate::dispatch::{Kernels, chosen};
use crate::gf;
use crate::terms::{Found, Order, P, Row, Step, Terms, sort};

/// A block of a row by its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Block {
    /// The data block of this index: the place of its exponent in the list.
    Data(usize),
    /// The first parity.
    P,
    /// The second parity.
    Q,
    /// The third parity.
    R,
}

impl Block {
    /// 0, 1, 2 for P, Q, R.
    fn parity(self) -> Option<usize> {
        match self {
            Block::Data(_) => None,
            Block::P => Some(0),
            Block::Q => Some(1),
            Block::R => Some(2),
        }
    }
}

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Block::Data(index) => write!(f, "data block {index}"),
            Block::P => f.write_str("P"),
            Block::Q => f.write_str("Q"),
            Block::R => f.write_str("R"),
        }
    }
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoverError {
    /// More than 255 data blocks, or none.
    BlockCount {
        /// How many.
        count: usize,
    },
    /// An exponent over 254, or one that two blocks share.
    Exponent {
        /// The (second) block that has it.
        index: usize,
        /// The exponent.
        exponent: u8,
    },
    /// The missing block is not part of the row, is named twice, or is a parity that is said to be available.
    Missing {
        /// The block.
        block: Block,
    },
    /// More data blocks are missing than parities are available: the data is lost.
    TooMany {
        /// Missing data blocks.
        missing: usize,
        /// Available parities.
        parities: usize,
    },
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoverError::BlockCount { count } => {
                write!(f, "parity row: {count} data blocks; 1 to 255 are possible")
            }
            RecoverError::Exponent { index, exponent } => {
                write!(
                    f,
                    "parity row: data block {index} has exponent {exponent}, which is over 254 or used twice"
                )
            }
            RecoverError::Missing { block } => {
                write!(
                    f,
                    "parity row: missing block {block} is not in the row, named twice, or also available"
                )
            }
            RecoverError::TooMany { missing, parities } => {
                write!(
                    f,
                    "parity row: {missing} data blocks are missing and {parities} parities available; restore data from a backup"
                )
            }
        }
    }
}

impl std::error::Error for RecoverError {}

/// How to restore given blocks of a row.
#[derive(Clone, Debug)]
pub struct RecoverPlan {
    /// What `recover` reads, in its order.
    sources: Vec<Block>,
    /// What `recover` writes, in its order.
    missing: Vec<Block>,
    /// How many of the sources are data blocks; the rest are parities.
    data_count: usize,
    /// Exponents of these data blocks, highest first.
    steps: Vec<Step>,
    tail: u8,
    /// Parities of which sums are needed.
    set: u8,
    rows: Vec<Row>,
}

impl RecoverPlan {
    /// Plans the restoration of `missing` blocks of a row whose data blocks have these `exponents`.
    ///
    /// `available` names the parities that may be read. A parity in neither list is left alone. Of the available
    /// parities the plan reads as many as data blocks are missing, P before Q before R.
    /// # Errors
    /// [`RecoverError`] if the lists contradict each other or more data is missing than parities can restore.
    pub fn new(
        exponents: &[u8],
        missing: &[Block],
        available: &[Block],
    ) -> Result<RecoverPlan, RecoverError> {
        check_exponents(exponents)?;
        check_missing(exponents.len(), missing, available)?;
        let lost: Vec<usize> = missing
            .iter()
            .filter_map(|block| data_index(*block))
            .collect();
        let parities: Vec<usize> = (0..3)
            .filter(|&i| available.iter().any(|block| block.parity() == Some(i)))
            .collect();
        let used = parities.get(..lost.len());
        let used = used.ok_or(RecoverError::TooMany {
            missing: lost.len(),
            parities: parities.len(),
        })?;

        let survivors: Vec<usize> = (0..exponents.len())
            .filter(|index| !lost.contains(index))
            .collect();
        let survivor_exponents: Vec<u8> = survivors.iter().map(|&index| exponents[index]).collect();
        let mut steps = vec![Step::default(); survivors.len()];
        let tail = sort(&survivor_exponents, &mut steps).tail();
        let wanted = missing.iter().filter_map(|block| block.parity());
        let set = used
            .iter()
            .copied()
            .chain(wanted)
            .fold(0, |set, i| set | 1 << i);
        let sources = survivors.iter().map(|&index| Block::Data(index));
        let sources = sources
            .chain(used.iter().map(|&i| [Block::P, Block::Q, Block::R][i]))
            .collect();
        Ok(RecoverPlan {
            sources,
            missing: missing.to_vec(),
            data_count: survivors.len(),
            steps,
            tail,
            set,
            rows: rows(exponents, missing, used),
        })
    }

    /// The blocks to hand to [`recover`](RecoverPlan::recover), in this order: surviving data, then parities.
    pub fn sources(&self) -> &[Block] {
        &self.sources
    }

    /// The blocks that [`recover`](RecoverPlan::recover) writes, in this order: as they were given to `new`.
    pub fn missing(&self) -> &[Block] {
        &self.missing
    }

    /// Restores the missing blocks of one stripe with the chosen kernel: see
    /// [`recover_with`](RecoverPlan::recover_with).
    /// # Panics
    /// As `recover_with`.
    pub fn recover(&self, sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        self.recover_with(chosen(), sources, targets);
    }

    /// Restores the missing blocks of one stripe: `sources` as [`sources`](RecoverPlan::sources) lists them, `targets`
    /// as [`missing`](RecoverPlan::missing) lists them. Allocates nothing.
    /// # Panics
    /// If the lists have not these numbers of blocks, or the blocks not all the same length.
    pub fn recover_with(&self, kernels: &Kernels, sources: &[&[u8]], targets: &mut [&mut [u8]]) {
        assert_eq!(
            sources.len(),
            self.sources.len(),
            "as many sources as the plan lists"
        );
        assert_eq!(
            targets.len(),
            self.missing.len(),
            "as many targets as blocks are missing"
        );
        let Some(first) = targets.first() else { return };
        let length = first.len();
        if self.set == P {
            // One block is missing and P is enough, or P itself is missing: an XOR of all sources either way.
            return kernels.gen_p(sources, &mut *targets[0]);
        }
        let (data, parities) = sources.split_at(self.data_count);
        let mut found: Found<'_> = [None; 3];
        for (block, bytes) in self.sources[self.data_count..].iter().zip(parities) {
            found[block.parity().expect("parities follow the data")] = Some(bytes);
        }
        let terms = Terms::ordered(data, length, Order::of(&self.steps, self.tail));
        kernels.solve(self.set, &terms, &found, &self.rows, targets);
    }
}

/// The index of a data block.
fn data_index(block: Block) -> Option<usize> {
    if let Block::Data(index) = block {
        Some(index)
    } else {
        None
    }
}

fn check_exponents(exponents: &[u8]) -> Result<(), RecoverError> {
    if !(1..=255).contains(&exponents.len()) {
        return Err(RecoverError::BlockCount {
            count: exponents.len(),
        });
    }
    for (index, &exponent) in exponents.iter().enumerate() {
        if exponent == 255 || exponents[..index].contains(&exponent) {
            return Err(RecoverError::Exponent { index, exponent });
        }
    }
    Ok(())
}

fn check_missing(
    data_count: usize,
    missing: &[Block],
    available: &[Block],
) -> Result<(), RecoverError> {
    for (place, &block) in missing.iter().enumerate() {
        let outside = data_index(block).is_some_and(|index| index >= data_count);
        if outside || missing[..place].contains(&block) || available.contains(&block) {
            return Err(RecoverError::Missing { block });
        }
    }
    let stray = available.iter().find(|block| data_index(**block).is_some());
    stray.map_or(Ok(()), |&block| Err(RecoverError::Missing { block }))
}

/// 1, 2 or 4 to the power of `exponent`: the coefficient of a data block in parity 0, 1 or 2.
fn coefficient(parity: usize, exponent: u8) -> u8 {
    gf::power(parity * usize::from(exponent))
}

/// The computation of each missing block: data blocks first, as the parities are computed from them.
fn rows(exponents: &[u8], missing: &[Block], used: &[usize]) -> Vec<Row> {
    let lost: Vec<(usize, u8)> = (missing.iter().enumerate())
        .filter_map(|(target, block)| data_index(*block).map(|index| (target, exponents[index])))
        .collect();
    let mut matrix = [[0; 3]; 3];
    for (row, &parity) in matrix.iter_mut().zip(used) {
        for (cell, &(_, exponent)) in row.iter_mut().zip(&lost) {
            *cell = coefficient(parity, exponent);
        }
    }
    let inverse = invert(matrix, lost.len());
    let mut rows = Vec::with_capacity(missing.len());
    for (number, &(target, _)) in lost.iter().enumerate() {
        let mut row = Row::new(target);
        if used[0] == 0 && number + 1 == lost.len() {
            // The sum of P is the sum of all missing data: additions instead of products for the last one.
            row.add(0, 1);
            (0..number).for_each(|earlier| row.add(3 + earlier, 1));
        } else {
            (used.iter().zip(inverse[number]))
                .for_each(|(&parity, factor)| row.add(parity, factor));
        }
        rows.push(row);
    }
    for (target, block) in missing.iter().enumerate() {
        let Some(parity) = block.parity() else {
            continue;
        };
        let mut row = Row::new(target);
        row.add(parity, 1);
        for (number, &(_, exponent)) in lost.iter().enumerate() {
            row.add(3 + number, coefficient(parity, exponent));
        }
        rows.push(row);
    }
    rows
}

/// The inverse of the upper left `size` x `size` part, by Gauss and Jordan.
///
/// No rows need to be exchanged: the upper left parts of the (scaled) Vandermonde matrices are of the same kind.
fn invert(mut matrix: [[u8; 3]; 3], size: usize) -> [[u8; 3]; 3] {
    let mut result = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    for column in 0..size {
        let factor =
            gf::inverse(matrix[column][column]).expect("different exponents: never singular");
        for cell in matrix[column].iter_mut().chain(&mut result[column]) {
            *cell = gf::mul(*cell, factor);
        }
        for row in (0..size).filter(|&row| row != column) {
            let factor = matrix[row][column];
            for cell in 0..3 {
                matrix[row][cell] ^= gf::mul(factor, matrix[column][cell]);
                result[row][cell] ^= gf::mul(factor, result[column][cell]);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_matrix_of_two_different_exponents_has_an_inverse() {
        for parities in [[0, 1], [0, 2], [1, 2]] {
            for x in 0..255 {
                for y in (0..255).filter(|&y| y != x) {
                    let [a, b] =
                        parities.map(|parity| [coefficient(parity, x), coefficient(parity, y), 0]);
                    let inverse = invert([a, b, [0; 3]], 2);
                    for (row, unit) in inverse.iter().zip([[1, 0], [0, 1]]).take(2) {
                        let product = [0, 1].map(|i| gf::mul(row[0], a[i]) ^ gf::mul(row[1], b[i]));
                        assert_eq!(product, unit, "{parities:?} {x} {y}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_matrix_of_three_different_exponents_has_an_inverse() {
        // Multiplying all by a power shifts all exponents: the lowest one may be taken as 0.
        for y in 1..255 {
            for z in (1..255).filter(|&z| z != y) {
                let matrix =
                    [0, 1, 2].map(|parity| [0, y, z].map(|exponent| coefficient(parity, exponent)));
                let inverse = invert(matrix, 3);
                let cell = |row: [u8; 3], i: usize| {
                    (0..3).fold(0, |sum, j| sum ^ gf::mul(row[j], matrix[j][i]))
                };
                assert_eq!(
                    inverse.map(|row| [0, 1, 2].map(|i| cell(row, i))),
                    [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
                );
            }
        }
    }
}
