//! Rows of the parity organisations: what to read and write for a request, and doing it.

pub(crate) mod collect;
pub(crate) mod expect;
pub mod plan;
mod read;
pub(crate) mod reconstruct;
mod write;

use std::ops::Range;

use plexum_parity::Block;
use smallvec::SmallVec;

use crate::volume::{MemberSet, Volume};
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_layout::RowMap;

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

impl<D: Device, C: Clock> Volume<D, C> {
    pub(crate) fn row(&self, number: u64) -> Row {
        Row {
            number,
            map: self.geometry.row_map(number),
            strip_bytes: self.geometry.strip_bytes(),
        }
    }

    /// Indices of the regions that a sync range touches.
    pub(crate) fn region_indices(&self, sync: &Range<u64>) -> Range<usize> {
        let region_bytes = self.regions.borrow().region_bytes();
        let index = |at: u64| {
            usize::try_from(at / region_bytes)
                .expect("regions were bounded when the bitmap was made")
        };
        index(sync.start)..index(sync.end.saturating_sub(1).max(sync.start)) + 1
    }

    /// Whether a block of the row can be read in `part`.
    pub(crate) fn is_block_readable(
        &self,
        set: &MemberSet<D>,
        row: &Row,
        block: Block,
        part: &Range<u64>,
    ) -> bool {
        self.readable_drive(
            set,
            row.slot(block),
            &row.member_range(part),
            &row.member_range(part),
        )
        .is_some()
    }
}
