//! Names the one wrong block of a row with P and Q, from how far both disagree with the data.
//!
//! - If data block j is off by e, P disagrees by e and Q by 2^j e: their quotient names j, in every byte where e is not
//!   0.
//! - The answer is a conclusion, not a proof: two wrong blocks can look like one other in single bytes, hardly in many.
//!
//! Source: linux-md.md 8.

use crate::gf;
use crate::recover::Block;

/// What the disagreements of P and Q say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Located {
    /// P and Q agree with the data.
    Nothing,
    /// One wrong block explains all disagreements.
    Block(Block),
    /// No single wrong block does: at least two are wrong.
    Several,
}

/// Names the block that is wrong.
///
/// `p_sum` is P added (XOR) to the XOR of all data blocks, `q_sum` Q added to the Q of all data blocks: both zero where
/// the row is right. `exponents` are those of the data blocks; a block is named by its place in this list.
/// # Panics
/// If the two sums differ in length.
pub fn locate(p_sum: &[u8], q_sum: &[u8], exponents: &[u8]) -> Located {
    assert_eq!(
        p_sum.len(),
        q_sum.len(),
        "both sums have the blocks' length"
    );
    let mut located = Located::Nothing;
    for pair in p_sum.iter().zip(q_sum) {
        let here = match pair {
            (0, 0) => continue,
            (_, 0) => Block::P,
            (0, _) => Block::Q,
            (&p, &q) => match data_block(p, q, exponents) {
                Some(index) => Block::Data(index),
                None => return Located::Several,
            },
        };
        if located != Located::Nothing && located != Located::Block(here) {
            return Located::Several;
        }
        located = Located::Block(here);
    }
    located
}

/// The data block whose error disturbs P by `p` and Q by `q` (neither 0).
fn data_block(p: u8, q: u8, exponents: &[u8]) -> Option<usize> {
    let quotient = gf::mul(q, gf::inverse(p)?);
    let exponent = gf::logarithm(quotient)?;
    exponents.iter().position(|&e| e == exponent)
}
