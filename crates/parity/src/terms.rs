//! What one call of a kernel works on: data blocks in the order of Horner's rule, and outputs, all of one length.
//!
//! - Every block of a [`Terms`] has exactly its length, and every index of its order names a block: the kernels' unsafe
//!   loads rely on this, so the fields are private and checked when made.
//! - Horner's rule: Q = (...(D_last) * 2 + ...) * 2 + D_first; where exponents leave a gap, more than one doubling.

use std::slice;

/// Which of P, Q and R a call works on: a sum of these bits.
pub(crate) const P: u8 = 1;
/// See [`P`].
pub(crate) const Q: u8 = 2;
/// See [`P`].
pub(crate) const R: u8 = 4;

/// One block of a sum whose exponents are not simply 0, 1, 2, ...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Which of the blocks.
    pub(crate) index: u8,
    /// By how much the exponent of the block before exceeds this one's; 0 for the first.
    pub(crate) gap: u8,
}

/// Blocks in descending order of their exponents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order<'a> {
    steps: &'a [Step],
    tail: u8,
}

impl<'a> Order<'a> {
    /// An order that [`sort`] made before: its steps and tail.
    pub(crate) fn of(steps: &'a [Step], tail: u8) -> Self {
        Order { steps, tail }
    }

    /// The blocks, highest exponent first.
    #[inline(always)]
    pub(crate) fn steps(&self) -> slice::Iter<'_, Step> {
        self.steps.iter()
    }

    /// The lowest exponent: by how much everything is multiplied at the end.
    #[inline(always)]
    pub(crate) fn tail(&self) -> u8 {
        self.tail
    }
}

/// Sorts `exponents` (each 0 ..= 254, repeats allowed) into `steps`, which has the same length, and returns the order.
pub(crate) fn sort<'a>(exponents: &[u8], steps: &'a mut [Step]) -> Order<'a> {
    assert!(exponents.len() == steps.len() && steps.len() <= 255);
    // Insertion, from the back: exponents mostly ascend, then every block is in place at once.
    for (place, index) in (0..exponents.len()).rev().enumerate() {
        let exponent = exponents[index];
        assert!(exponent < 255, "exponents run from 0 to 254");
        let mut hole = place;
        while hole > 0 && exponents[usize::from(steps[hole - 1].index)] < exponent {
            steps[hole] = steps[hole - 1];
            hole -= 1;
        }
        steps[hole] = Step {
            index: index as u8,
            gap: 0,
        };
    }
    for place in 1..steps.len() {
        let [before, here] =
            [steps[place - 1], steps[place]].map(|step| exponents[usize::from(step.index)]);
        steps[place].gap = before - here;
    }
    let tail = steps
        .last()
        .map_or(0, |step| exponents[usize::from(step.index)]);
    Order { steps, tail }
}

/// Data blocks of equal length with their exponents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    blocks: &'a [&'a [u8]],
    length: usize,
    order: Option<Order<'a>>,
}

impl<'a> Terms<'a> {
    /// Blocks whose exponents are 0, 1, 2, ... in turn.
    pub(crate) fn contiguous(blocks: &'a [&'a [u8]], length: usize) -> Self {
        check_lengths(blocks, length);
        Terms {
            blocks,
            length,
            order: None,
        }
    }

    /// Blocks in any order: `steps` and `tail` as [`sort`] made them for as many exponents as there are blocks.
    pub(crate) fn ordered(blocks: &'a [&'a [u8]], length: usize, order: Order<'a>) -> Self {
        check_lengths(blocks, length);
        assert!(
            order
                .steps()
                .all(|step| usize::from(step.index) < blocks.len())
        );
        Terms {
            blocks,
            length,
            order: Some(order),
        }
    }

    /// The blocks, each of [`length`](Terms::length) bytes.
    #[inline(always)]
    pub(crate) fn blocks(&self) -> &'a [&'a [u8]] {
        self.blocks
    }

    /// Bytes in each block.
    #[inline(always)]
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The order of the blocks; `None` if they simply have the exponents 0, 1, 2, ...
    #[inline(always)]
    pub(crate) fn order(&self) -> Option<&Order<'a>> {
        self.order.as_ref()
    }
}

/// Stops on blocks that have not the length of the call.
fn check_lengths(blocks: &[&[u8]], length: usize) {
    assert!(
        blocks.iter().all(|block| block.len() == length),
        "all blocks of a call have one length"
    );
}

/// Where P, Q and R go; only those of the call's set are there.
pub(crate) type Outputs<'a> = [Option<&'a mut [u8]>; 3];

/// P, Q and R as they are found; only those of the call's set are there.
pub(crate) type Found<'a> = [Option<&'a [u8]>; 3];

/// Whether outputs are overwritten or added to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// The sums replace what was there.
    Set,
    /// The sums are added (XOR) to what was there.
    Add,
}

/// One value that goes into a [`Row`], with its coefficient.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// 0, 1, 2: sum of P, Q, R; 3, 4, 5: what rows 0, 1, 2 gave.
    pub(crate) value: u8,
    /// What the value is multiplied by; never 0.
    pub(crate) coefficient: u8,
}

/// How one target is computed from the sums of a column: the sum of its shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    shares: [Share; 5],
    count: u8,
    /// Which of the call's targets this is.
    pub(crate) target: u8,
}

impl Row {
    /// A row for `target`, with no shares yet.
    pub(crate) fn new(target: usize) -> Self {
        Row {
            target: u8::try_from(target).expect("at most three targets"),
            ..Row::default()
        }
    }

    /// Adds `coefficient` times `value`; a coefficient of 0 adds nothing.
    pub(crate) fn add(&mut self, value: usize, coefficient: u8) {
        if coefficient != 0 {
            let value = u8::try_from(value).expect("at most six values");
            self.shares[usize::from(self.count)] = Share { value, coefficient };
            self.count += 1;
        }
    }

    /// The shares, each of a sum or of an earlier row.
    #[inline(always)]
    pub(crate) fn shares(&self) -> &[Share] {
        &self.shares[..usize::from(self.count)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(exponents: &[u8]) -> (Vec<(u8, u8)>, u8) {
        let mut steps = vec![Step::default(); exponents.len()];
        let order = sort(exponents, &mut steps);
        (
            order.steps().map(|step| (step.index, step.gap)).collect(),
            order.tail(),
        )
    }

    #[test]
    fn blocks_are_sorted_by_falling_exponent_with_gaps() {
        assert_eq!(sorted(&[]), (vec![], 0));
        assert_eq!(sorted(&[9]), (vec![(0, 0)], 9));
        assert_eq!(sorted(&[0, 1, 2]), (vec![(2, 0), (1, 1), (0, 1)], 0));
        assert_eq!(sorted(&[5, 254, 2]), (vec![(1, 0), (0, 249), (2, 3)], 2));
        assert_eq!(sorted(&[3, 3, 0]), (vec![(1, 0), (0, 0), (2, 3)], 0));
    }

    #[test]
    #[should_panic(expected = "exponents run from 0 to 254")]
    fn exponent_255_is_refused() {
        sorted(&[0, 255]);
    }

    #[test]
    #[should_panic(expected = "one length")]
    fn blocks_of_unequal_length_are_refused() {
        Terms::contiguous(&[&[0; 4], &[0; 5]], 4);
    }
}
