//! Reads a file or volume from front to back, several blocks at once.
//!
//! Invariants:
//! - the pieces come in order and without gaps, up to the length asked for;
//! - at most [`AHEAD_BYTES`] (and at least two blocks) are being read at any time;
//! - a stretch of holes is one piece, however long: an empty file of exabytes is read at once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use plexum_engine::device::Device;

use crate::block::Blocks;
use crate::error::ZfsError;
use crate::object::{Found, Keep, Object};

/// Bytes that are being read at once.
const AHEAD_BYTES: u64 = 4 << 20;
/// Most blocks that are being read at once.
const AHEAD_BLOCKS_MAX: u64 = 64;

type Outcome = Result<Found, ZfsError>;

enum Slot {
    Running(Pin<Box<dyn Future<Output = Outcome>>>),
    Done(Outcome),
}

/// A piece of what is being read.
pub enum Piece {
    /// Bytes.
    Data(Rc<Vec<u8>>, usize),
    /// So many zeroes.
    Zeroes(u64),
}

impl Piece {
    /// The bytes of a piece with data; none for zeroes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Piece::Data(block, used) => &block[..*used],
            Piece::Zeroes(_) => &[],
        }
    }
}

/// The reader.
pub struct ReadAhead<D> {
    blocks: Rc<Blocks<D>>,
    object: Rc<Object>,
    length_bytes: u64,
    /// Blocks on their way; the first is that at `at_block`.
    queue: VecDeque<Slot>,
    at_block: u64,
    next_block: u64,
}

impl<D: Device + 'static> ReadAhead<D> {
    pub(crate) fn new(blocks: Rc<Blocks<D>>, object: Rc<Object>, length_bytes: u64) -> Self {
        Self {
            blocks,
            object,
            length_bytes,
            queue: VecDeque::new(),
            at_block: 0,
            next_block: 0,
        }
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// Why a block cannot be read; the piece after it may be asked for.
    pub async fn next(&mut self) -> Result<Option<Piece>, ZfsError> {
        let block_bytes = self.object.block_bytes();
        let start = self.at_block.saturating_mul(block_bytes);
        if start >= self.length_bytes {
            return Ok(None);
        }
        self.fill(block_bytes);
        let outcome = self.first().await;
        match outcome {
            Ok(Found::Data(block)) => {
                self.at_block += 1;
                let used = (self.length_bytes - start).min(block_bytes) as usize;
                Ok(Some(Piece::Data(block, used)))
            }
            Ok(Found::Hole { end_block }) => {
                self.skip_to(end_block);
                let end = end_block.saturating_mul(block_bytes).min(self.length_bytes);
                Ok(Some(Piece::Zeroes(end - start)))
            }
            Err(error) => {
                self.at_block += 1;
                Err(error)
            }
        }
    }

    fn fill(&mut self, block_bytes: u64) {
        let wanted = (AHEAD_BYTES / block_bytes).clamp(2, AHEAD_BLOCKS_MAX) as usize;
        let end = self.length_bytes.div_ceil(block_bytes);
        while self.queue.len() < wanted && self.next_block < end {
            let (blocks, object) = (Rc::clone(&self.blocks), Rc::clone(&self.object));
            let id = self.next_block;
            let read = async move {
                blocks
                    .data_block(&object.dnode, id, &object.name, Keep::No)
                    .await
            };
            self.queue.push_back(Slot::Running(Box::pin(read)));
            self.next_block += 1;
        }
    }

    /// Waits for the first block; the others go on meanwhile.
    async fn first(&mut self) -> Outcome {
        let queue = &mut self.queue;
        std::future::poll_fn(|cx| {
            for slot in queue.iter_mut() {
                if let Slot::Running(read) = slot
                    && let Poll::Ready(outcome) = read.as_mut().poll(cx)
                {
                    *slot = Slot::Done(outcome);
                }
            }
            match queue.front() {
                Some(Slot::Done(_)) => Poll::Ready(()),
                _ => Poll::Pending,
            }
        })
        .await;
        match self.queue.pop_front() {
            Some(Slot::Done(outcome)) => outcome,
            _ => unreachable!("the first block is done"),
        }
    }

    /// Forgets what is being read before `block`. Nothing but holes lies there.
    fn skip_to(&mut self, block: u64) {
        self.at_block += 1;
        while self.at_block < block && self.queue.pop_front().is_some() {
            self.at_block += 1;
        }
        self.at_block = self.at_block.max(block);
        self.next_block = self.next_block.max(self.at_block);
    }
}
