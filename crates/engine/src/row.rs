//! One row of a parity organisation: which slot has which block, and where it is on the members.

use std::ops::Range;

use plexum_layout::RowMap;
use plexum_parity::Block;
use smallvec::SmallVec;

/// Exponents of the data blocks of a row, in order.
pub(crate) type Exponents = SmallVec<[u8; 16]>;

/// Something of each block of a row, or of each data block, in order.
pub(crate) type PerBlock<T> = SmallVec<[T; 8]>;

/// One row with its map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub number: u64,
    pub map: RowMap,
    pub strip_bytes: u64,
}

impl Row {
    /// Slot of a block.
    pub fn slot(&self, block: Block) -> usize {
        match block {
            Block::Data(index) => self.map.data_slot(index),
            Block::P => self.map.p,
            Block::Q => self.map.q.expect("Q is asked of RAID-6 only"),
            Block::R => unreachable!("md organisations have no R"),
        }
    }

    /// Member range of a part of this row's strips.
    pub fn member_range(&self, part: &Range<u64>) -> Range<u64> {
        let start = self.number * self.strip_bytes;
        start + part.start..start + part.end
    }

    /// P, and Q where there is one.
    pub fn parities(&self) -> &'static [Block] {
        if self.map.q.is_some() {
            &[Block::P, Block::Q]
        } else {
            &[Block::P]
        }
    }

    /// All data blocks, then the parities.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        (0..self.map.data_count())
            .map(Block::Data)
            .chain(self.parities().iter().copied())
    }

    /// Exponents of the data blocks in Q.
    pub fn exponents(&self) -> Exponents {
        (0..self.map.data_count())
            .map(|index| self.map.exponent(index))
            .collect()
    }
}
