//! Reads a file or volume from front to back, several blocks at once.
//!
//! Invariants:
//! - the pieces come in order and without gaps, up to the length asked for;
//! - at most [`AHEAD_BYTES`] (and at least two blocks) are being read at any time;
//! - what devices give at once (files in memory) is not read ahead: it would only leave the processor's cache again;
//! - a stretch of holes is one piece, however long: an empty file of exabytes is read at once.

use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use plexum_block::device::Device;

use crate::block::Blocks;
use crate::error::ZfsError;
use crate::object::{BlockPlace, Object};
use crate::parts::Parts;
use crate::plex::Extent;

/// Bytes that are being read at once.
const AHEAD_BYTES: u64 = 4 << 20;
/// Most blocks that are being read at once.
const AHEAD_BLOCKS_MAX: u64 = 64;

/// What was read of a block.
enum Read {
    Data(Parts),
    Hole { end_block: u64 },
}

type Outcome = Result<Read, ZfsError>;

enum Slot {
    Running(Pin<Box<dyn Future<Output = Outcome>>>, Arc<Bell>),
    Done(Outcome),
}

impl Slot {
    /// Looks at the block if there is a reason to.
    fn go_on(&mut self, reader: &Waker) {
        let Slot::Running(read, bell) = self else {
            return;
        };
        bell.answer_to(reader);
        if !bell.has_rung.swap(false, Ordering::AcqRel) {
            return;
        }
        let waker = Waker::from(Arc::clone(bell));
        if let Poll::Ready(outcome) = read.as_mut().poll(&mut Context::from_waker(&waker)) {
            *self = Slot::Done(outcome);
        }
    }
}

/// Wakes the reader, and remembers for which block: the others need not be looked at.
struct Bell {
    has_rung: AtomicBool,
    reader: Mutex<Waker>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.wake_by_ref();
    }
}

impl Bell {
    /// From now on it wakes this one.
    fn answer_to(&self, waker: &Waker) {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.clone_from(waker);
    }
}

/// A piece of what is being read.
pub enum Piece {
    /// Bytes.
    Data(Parts),
    /// So many zeroes.
    Zeroes(u64),
}

impl Piece {
    /// The bytes of a piece with data, in their order; none for zeroes.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let parts = match self {
            Piece::Data(parts) => Some(parts),
            Piece::Zeroes(_) => None,
        };
        parts.into_iter().flat_map(Parts::slices)
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
    /// Blocks that may be on their way now: more when they have to be waited for, fewer when they are there at once.
    window: usize,
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
            window: 1,
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
        let outcome = self.first(block_bytes).await;
        match outcome {
            Ok(Read::Data(mut block)) => {
                self.at_block += 1;
                block.truncate((self.length_bytes - start).min(block_bytes) as usize);
                Ok(Some(Piece::Data(block)))
            }
            Ok(Read::Hole { end_block }) => {
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

    /// Begins with the blocks that may be on their way.
    fn fill(&mut self, block_bytes: u64) {
        let most = (AHEAD_BYTES / block_bytes).clamp(2, AHEAD_BLOCKS_MAX) as usize;
        self.window = self.window.clamp(1, most);
        let end = self.length_bytes.div_ceil(block_bytes);
        while self.queue.len() < self.window && self.next_block < end {
            let (blocks, object) = (Rc::clone(&self.blocks), Rc::clone(&self.object));
            let id = self.next_block;
            let read = async move {
                match blocks.place(&object.dnode, id, &object.name).await? {
                    BlockPlace::Hole { end_block } => Ok(Read::Hole { end_block }),
                    BlockPlace::Stored(pointer, what) => {
                        let block = blocks.read(&pointer, &what, Extent::Needed).await?;
                        Ok(Read::Data(block))
                    }
                }
            };
            let bell = Arc::new(Bell {
                has_rung: AtomicBool::new(true),
                reader: Mutex::new(Waker::noop().clone()),
            });
            self.queue.push_back(Slot::Running(Box::pin(read), bell));
            self.next_block += 1;
        }
    }

    /// Waits for the first block; the others go on meanwhile.
    async fn first(&mut self, block_bytes: u64) -> Outcome {
        let begun = self.queue.len();
        self.fill(block_bytes);
        let is_new = self.queue.len() > begun;
        let mut is_first_look = true;
        std::future::poll_fn(|cx| {
            let reader = cx.waker();
            self.queue.iter_mut().for_each(|slot| slot.go_on(reader));
            let is_done = |slot: Option<&Slot>| matches!(slot, Some(Slot::Done(_)));
            let is_ready = is_done(self.queue.front());
            if std::mem::take(&mut is_first_look) {
                match (is_ready, is_new && is_done(self.queue.back())) {
                    (false, _) => self.window *= 2,
                    (true, true) => self.window /= 2,
                    (true, false) => {}
                }
            }
            if is_ready {
                Poll::Ready(())
            } else {
                Poll::Pending
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
