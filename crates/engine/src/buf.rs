//! Aligned, pooled byte buffers: `BufMut` is owned by one, `Buf` is shared and read-only.
//!
//! Invariants:
//! - the memory of a buffer starts at a multiple of `ALIGNMENT_BYTES`, so that whole buffers fit direct I/O;
//! - a `BufMut` is the only handle of its block; `freeze` ends its mutability;
//! - memory goes back to the pool when the last handle is dropped, and a pool never keeps more than its limit;
//! - a block that is used again brings its counter of handles along: taking, freezing and sharing a buffer allocates nothing.
//!
//! Handles are `Send`, because the thread runtime moves them to another thread for the length of one I/O.

use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use smallvec::SmallVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of every buffer, in bytes.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Smallest and largest size class of a pool, as powers of two in bytes: 4 KiB to 1 MiB. Larger buffers are not kept.
const CLASS_LOG_MIN: u32 = 12;
const CLASS_LOG_MAX: u32 = 20;
const CLASSES: usize = (CLASS_LOG_MAX - CLASS_LOG_MIN + 1) as usize;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT_BYTES]);

struct Home {
    shelves: Mutex<Shelves>,
    keep_bytes_max: usize,
}

#[derive(Default)]
struct Shelves {
    free: [Vec<Arc<Block>>; CLASSES],
    kept_bytes: usize,
}

/// A pool of aligned buffers. Clones share the same memory.
///
/// Anyone may take buffers at any time; `keep_bytes_max` bounds only what the pool keeps for reuse. How much may be
/// in use is the business of whoever accepts requests (tags, memory budget).
#[derive(Clone)]
pub struct BufPool {
    home: Arc<Home>,
}

impl BufPool {
    /// A pool that keeps at most `keep_bytes_max` bytes of unused buffers.
    #[must_use]
    pub fn new(keep_bytes_max: usize) -> Self {
        let shelves = Mutex::default();
        Self {
            home: Arc::new(Home {
                shelves,
                keep_bytes_max,
            }),
        }
    }

    /// A buffer of `length_bytes` with unspecified (old, but initialised) contents.
    #[must_use]
    pub fn take(&self, length_bytes: usize) -> BufMut {
        let pages = length_bytes.div_ceil(ALIGNMENT_BYTES).max(1);
        let class = class_of(pages);
        let reused = class.and_then(|class| {
            let mut shelves = self.home.shelves();
            let block = shelves.free[class].pop()?;
            shelves.kept_bytes -= block.memory.len() * ALIGNMENT_BYTES;
            Some(block)
        });
        let block = reused.unwrap_or_else(|| {
            let count = class.map_or(pages, |class| 1 << class);
            Arc::new(Block {
                memory: vec![Page([0; ALIGNMENT_BYTES]); count].into_boxed_slice(),
                home: Arc::downgrade(&self.home),
            })
        });
        BufMut {
            handle: Handle(Some(block)),
            length_bytes,
        }
    }

    /// A buffer of `length_bytes` zero bytes.
    #[must_use]
    pub fn take_zeroed(&self, length_bytes: usize) -> BufMut {
        let mut buf = self.take(length_bytes);
        buf.fill(0);
        buf
    }

    /// A buffer holding a copy of `bytes`.
    #[must_use]
    pub fn copy_of(&self, bytes: &[u8]) -> BufMut {
        let mut buf = self.take(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Home {
    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, block: Arc<Block>) {
        let Some(class) = class_of(block.memory.len()) else {
            return;
        };
        let mut shelves = self.shelves();
        let bytes = block.memory.len() * ALIGNMENT_BYTES;
        if shelves.kept_bytes + bytes <= self.keep_bytes_max {
            shelves.kept_bytes += bytes;
            shelves.free[class].push(block);
        }
    }
}

/// Size class for a number of pages; `None` above the largest class.
fn class_of(pages: usize) -> Option<usize> {
    let log = pages.next_power_of_two().trailing_zeros() as usize;
    (log < CLASSES).then_some(log)
}

struct Block {
    memory: Box<[Page]>,
    /// Where it goes when nobody uses it any more, if that is still there. Weak: blocks on the shelf do not keep it.
    home: Weak<Home>,
}

/// Keeps a block in use; `None` only while it is dropped. The last one puts the block back on its shelf. Of two that are
/// dropped at the same time on two threads neither may see that it is the last: then the memory is simply freed.
#[derive(Clone)]
struct Handle(Option<Arc<Block>>);

impl Handle {
    fn block(&self) -> &Block {
        self.0
            .as_ref()
            .expect("a handle has its block while it lives")
    }

    fn owned(&mut self) -> &mut Block {
        let block = self.0.as_mut().and_then(Arc::get_mut);
        block.expect("a buffer that may be written has one handle")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(block) = self.0.take() else {
            return;
        };
        // Whoever has the only handle cannot be overtaken: nobody else could make another one.
        if Arc::strong_count(&block) == 1
            && let Some(home) = block.home.upgrade()
        {
            home.give_back(block);
        }
    }
}

/// A buffer with one owner, who may write to it. `Deref`s to its bytes.
pub struct BufMut {
    handle: Handle,
    length_bytes: usize,
}

impl BufMut {
    /// Ends mutability: from now on the bytes can be shared and sliced.
    #[must_use]
    pub fn freeze(self) -> Buf {
        let end = self.length_bytes;
        Buf {
            handle: self.handle,
            start: 0,
            end,
        }
    }

    /// Shortens the buffer; no effect when it is not longer than `length_bytes`.
    pub fn truncate(&mut self, length_bytes: usize) {
        self.length_bytes = self.length_bytes.min(length_bytes);
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.handle.block().memory.as_bytes()[..self.length_bytes]
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.handle.owned().memory.as_mut_bytes()[..self.length_bytes]
    }
}

impl std::fmt::Debug for BufMut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BufMut({} bytes)", self.length_bytes)
    }
}

/// A shared, read-only view of a buffer. Cloning and slicing copy no bytes. `Deref`s to its bytes.
#[derive(Clone)]
pub struct Buf {
    handle: Handle,
    start: usize,
    end: usize,
}

impl Buf {
    /// The part `range` (bytes, relative to this view).
    ///
    /// # Panics
    /// When `range` is not inside the view: a broken invariant of the caller, never reachable from input.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Buf {
        assert!(
            range.start <= range.end && range.end <= self.end - self.start,
            "slice stays inside its buffer"
        );
        Buf {
            handle: self.handle.clone(),
            start: self.start + range.start,
            end: self.start + range.end,
        }
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.handle.block().memory.as_bytes()[self.start..self.end]
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.end - self.start)
    }
}

/// Consecutive pieces of data that together answer one read; the pieces are in ascending order without gaps.
#[derive(Clone, Debug, Default)]
pub struct Rope {
    /// The pieces, none of them empty. Most answers have one.
    pub pieces: SmallVec<[Buf; 2]>,
}

impl Rope {
    /// Total length in bytes.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.len()).sum()
    }

    /// All bytes in one new vector; for tests, metadata and small reads.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.length_bytes());
        for piece in &self.pieces {
            all.extend_from_slice(piece);
        }
        all
    }
}

impl From<Buf> for Rope {
    fn from(buf: Buf) -> Self {
        Rope {
            pieces: std::iter::once(buf).filter(|buf| !buf.is_empty()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_has_the_length_asked_for() {
        let pool = BufPool::new(1 << 20);
        for length in [0, 1, 511, 512, 4096, 4097, 1 << 20, (1 << 20) + 1] {
            let buf = pool.take(length);
            assert_eq!(buf.len(), length);
            assert_eq!(buf.as_ptr() as usize % ALIGNMENT_BYTES, 0);
        }
    }

    #[test]
    fn a_returned_buffer_is_used_again_and_the_pool_stays_bounded() {
        let pool = BufPool::new(8192);
        let first = pool.take(4096);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.take(100).as_ptr(), address);
        let many: Vec<_> = (0..8).map(|_| pool.take(4096)).collect();
        drop(many);
        assert_eq!(pool.home.shelves().kept_bytes, 8192);
    }

    #[test]
    fn a_slice_keeps_the_memory_alive_and_sees_its_part() {
        let pool = BufPool::new(0);
        let whole = pool.copy_of(&[1, 2, 3, 4, 5]).freeze();
        let part = whole.slice(1..4);
        drop(whole);
        assert_eq!(&*part, &[2, 3, 4]);
        assert_eq!(&*part.slice(2..3), &[4]);
    }
}
