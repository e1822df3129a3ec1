//! Location of one wrong block by P and Q, for every block of every small row.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Random, exponent_lists, parities, slices};
use plexum_parity::{Block, Located, locate};

/// How far the row's P and Q disagree with its data.
fn disagreement(data: &[&[u8]], exponents: &[u8], p: &[u8], q: &[u8]) -> [Vec<u8>; 2] {
    let [computed_p, computed_q, _] = parities(data, exponents, p.len());
    [(p, computed_p), (q, computed_q)]
        .map(|(found, computed)| found.iter().zip(computed).map(|(a, b)| a ^ b).collect())
}

#[test]
fn whichever_it_is_and_however_few_bytes_are_wrong() {
    let mut random = Random(77);
    for count in (1..=12).chain([100, 255]) {
        for exponents in exponent_lists(count, &mut random) {
            let length = 40;
            let blocks = random.blocks(count, length);
            let [p, q, _] = parities(&slices(&blocks), &exponents, length);
            let [ps, qs] = disagreement(&slices(&blocks), &exponents, &p, &q);
            assert_eq!(locate(&ps, &qs, &exponents), Located::Nothing);
            for wrong in 0..count {
                let mut damaged = blocks.clone();
                for _ in 0..1 + random.below(length) {
                    damaged[wrong].get_mut()[random.below(length)] ^= 1 + random.below(255) as u8;
                }
                if damaged[wrong].get() == blocks[wrong].get() {
                    continue;
                }
                let [ps, qs] = disagreement(&slices(&damaged), &exponents, &p, &q);
                assert_eq!(
                    locate(&ps, &qs, &exponents),
                    Located::Block(Block::Data(wrong))
                );
            }
        }
    }
}

#[test]
fn a_wrong_parity_is_told_from_wrong_data() {
    assert_eq!(
        locate(&[0, 5, 6], &[0; 3], &[0, 1]),
        Located::Block(Block::P)
    );
    assert_eq!(
        locate(&[0; 3], &[0, 5, 6], &[0, 1]),
        Located::Block(Block::Q)
    );
}

#[test]
fn two_wrong_blocks_are_not_taken_for_one() {
    // Both parities, each in another byte; two data blocks, each in another byte; one data block and a parity.
    assert_eq!(locate(&[1, 0], &[0, 1], &[0, 1]), Located::Several);
    assert_eq!(locate(&[1, 1], &[1, 2], &[0, 1]), Located::Several);
    assert_eq!(locate(&[1, 1], &[1, 0], &[0, 1]), Located::Several);
    // A quotient that is no block's.
    assert_eq!(locate(&[1], &[4], &[0, 1]), Located::Several);
    assert_eq!(locate(&[1], &[4], &[0, 2]), Located::Block(Block::Data(1)));
}
