//! Memory that is somebody else's: a queue's buffer, a guest's pages.
//!
//! A server that is given such memory with each request answers a read by filling it, and takes the data of a write
//! from it.
//!
//! Invariants:
//! - the owner may change such memory at any time: the data of a write are copied once, before anybody computes with
//!   them, so that parity, checksums and all copies are of the same bytes;
//! - a read is answered when all of its memory is filled, or not at all.

use std::ops::Range;

use plexum_block::buf::{Buf, BufPool, Rope};

/// Memory of somebody else; ranges count from its beginning.
pub trait Memory {
    /// Its length.
    fn length_bytes(&self) -> usize;

    /// Copies what is there now to `into`.
    ///
    /// # Errors
    /// The range is outside, or the memory is gone.
    fn load(&self, offset_bytes: usize, into: &mut [u8]) -> Result<(), MemoryError>;

    /// Puts `from` there.
    ///
    /// # Errors
    /// As `load`.
    fn store(&self, offset_bytes: usize, from: &[u8]) -> Result<(), MemoryError>;
}

/// Why memory of somebody else cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A range does not lie in it.
    #[error("bytes {} to {} are not in memory of {length_bytes} bytes", .range.0, .range.1)]
    Outside {
        /// Begin and end.
        range: (usize, usize),
        /// Length of the memory.
        length_bytes: usize,
    },
    /// Its owner has taken it back.
    #[error("the memory of a request was taken back by its owner")]
    Gone,
    /// A read gave less or more than there is memory for.
    #[error("{found_bytes} bytes were read for memory of {length_bytes} bytes")]
    WrongLength {
        /// Bytes read.
        found_bytes: usize,
        /// Length of the memory.
        length_bytes: usize,
    },
}

/// A part of some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub offset_bytes: usize,
    /// How many bytes it has.
    pub count: usize,
}

/// Checks that a part lies in memory of a length, without wrapping.
///
/// # Errors
/// `Outside`.
pub fn check_inside(length_bytes: usize, part: Part) -> Result<Range<usize>, MemoryError> {
    let end = part.offset_bytes.saturating_add(part.count);
    if end > length_bytes {
        return Err(MemoryError::Outside {
            range: (part.offset_bytes, end),
            length_bytes,
        });
    }
    Ok(part.offset_bytes..end)
}

/// The data of a write: a copy that nobody else changes.
///
/// # Errors
/// The memory is gone.
pub fn copy_of(memory: &impl Memory, pool: &BufPool) -> Result<Buf, MemoryError> {
    let mut copy = pool.take(memory.length_bytes());
    memory.load(0, &mut copy)?;
    Ok(copy.freeze())
}

/// Memory that waits for what is read.
pub struct Fill<M> {
    memory: M,
}

impl<M: Memory> Fill<M> {
    /// The memory of one read.
    #[must_use]
    pub fn new(memory: M) -> Self {
        Self { memory }
    }

    /// How much is to be read.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.memory.length_bytes()
    }

    /// Fills it with what was read, and gives it back.
    ///
    /// # Errors
    /// The memory is gone, or not as long as what was read; nothing or a part of it is filled then.
    pub fn with(self, rope: &Rope) -> Result<M, MemoryError> {
        let (found_bytes, length_bytes) = (rope.length_bytes(), self.length_bytes());
        if found_bytes != length_bytes {
            return Err(MemoryError::WrongLength {
                found_bytes,
                length_bytes,
            });
        }
        let mut filled = 0;
        for piece in &rope.pieces {
            self.memory.store(filled, piece)?;
            filled += piece.len();
        }
        Ok(self.memory)
    }
}
