//! Aligned, pooled byte buffers: `BufMut` is owned by one, `Buf` is shared and read-only.
//!
//! Invariants:
//! - the memory of a buffer starts at a multiple of `ALIGNMENT_BYTES`, so that whole buffers fit direct I/O;
//! - a `BufMut` is the only handle of its block; `freeze` ends its mutability, and `into_mut` gives it back to whoever
//!   has the only view;
//! - memory goes back to the pool when the last handle is dropped, and a pool never keeps more than its limit;
//! - a block that is used again brings its counter of handles along: taking, freezing and sharing a buffer allocates
//!   nothing;
//! - each thread has a few blocks of one pool at hand, so that the usual take and give back lock nothing: they count as
//!   kept;
//! - large blocks of a pool with an [`Advice`] are cut from slabs of 2 MiB, each at a multiple of that: one page, where
//!   the system has such. A disk is then told of few long pieces of memory instead of many of 4 KiB.
//!
//! Handles are `Send`, because the thread runtime moves them to another thread for the length of one I/O.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::BytesMut;
use smallvec::SmallVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of every buffer, in bytes.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Smallest and largest size class of a pool, as powers of two in bytes: 4 KiB to 1 MiB. Larger buffers are not kept.
const CLASS_LOG_MIN: u32 = 12;
const CLASS_LOG_MAX: u32 = 20;
const CLASSES: usize = (CLASS_LOG_MAX - CLASS_LOG_MIN + 1) as usize;

/// What is cut into blocks at once, and its alignment: a large page of nearly every processor.
const SLAB_BYTES: usize = 2 << 20;

/// The smallest class that is cut from slabs: what a disk takes in one request. Whoever asks for less never has the
/// memory of a slab.
const SLAB_CLASS_MIN: usize = 18 - CLASS_LOG_MIN as usize;

/// Told of each slab before its first use: asks the system for large pages. It changes no byte.
pub type Advice = fn(&mut [u8]);

/// What a thread may have at hand, in bytes, and how much larger than that a pool has to be.
const NEAR_BYTES: usize = 512 << 10;
const NEAR_PART: usize = 4;

#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT_BYTES]);

struct Home {
    shelves: Mutex<Shelves>,
    keep_bytes_max: usize,
    advice: Option<Advice>,
}

#[derive(Default)]
struct Shelves {
    free: Free,
    /// With all that threads may have at hand.
    kept_bytes: usize,
}

type Free = [Vec<Arc<Block>>; CLASSES];

/// Blocks of one pool that this thread has at hand.
struct Near {
    /// Whose they are.
    home: Weak<Home>,
    free: Free,
    bytes: usize,
}

thread_local! {
    static NEAR: RefCell<Near> = const {
        RefCell::new(Near {
            home: Weak::new(),
            free: [const { Vec::new() }; CLASSES],
            bytes: 0,
        })
    };
}

impl Near {
    fn take(&mut self, home: &Arc<Home>, class: usize) -> Option<Arc<Block>> {
        if self.home.as_ptr() != Arc::as_ptr(home) {
            return None;
        }
        let block = self.free[class].pop()?;
        self.bytes -= block.bytes();
        Some(block)
    }

    /// Gives the block back when it is another pool's, or one too many.
    fn put(&mut self, class: usize, block: Arc<Block>) -> Option<Arc<Block>> {
        let bytes = self.bytes + block.bytes();
        if self.home.as_ptr() != block.home.as_ptr() || bytes > NEAR_BYTES {
            return Some(block);
        }
        self.bytes = bytes;
        self.free[class].push(block);
        None
    }

    /// From now on this thread has blocks of `home` at hand, unless it has those of a larger pool. The largest pool is
    /// the one that requests are served from.
    fn change(&mut self, home: &Arc<Home>) {
        if home.keep_bytes_max < NEAR_PART * NEAR_BYTES || self.home.as_ptr() == Arc::as_ptr(home) {
            return;
        }
        if let Some(before) = self.home.upgrade() {
            if before.keep_bytes_max >= home.keep_bytes_max {
                return;
            }
            before.shelves().kept_bytes -= NEAR_BYTES;
        }
        let mut shelves = home.shelves();
        let is_room = shelves.kept_bytes + NEAR_BYTES <= home.keep_bytes_max;
        shelves.kept_bytes += if is_room { NEAR_BYTES } else { 0 };
        self.home = if is_room {
            Arc::downgrade(home)
        } else {
            Weak::new()
        };
        self.free = Free::default();
        self.bytes = 0;
    }
}

impl Near {
    /// Nothing is at hand any more, and nobody's.
    fn leave(&mut self) -> (Weak<Home>, Free) {
        self.bytes = 0;
        (
            std::mem::take(&mut self.home),
            std::mem::take(&mut self.free),
        )
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        if let Some(home) = self.home.upgrade() {
            home.shelves().kept_bytes -= NEAR_BYTES;
        }
    }
}

impl Drop for Home {
    /// What the thread that ends the pool has at hand goes with it. What other threads have, goes with them or when
    /// they get a larger pool's.
    fn drop(&mut self) {
        let of_this = near(|near| {
            let is_this = std::ptr::eq(near.home.as_ptr(), self);
            is_this.then(|| near.leave())
        });
        drop(of_this); // outside of the borrow
    }
}

/// Does something with what this thread has at hand; nothing while the thread ends.
fn near<T>(act: impl FnOnce(&mut Near) -> T) -> Option<T> {
    let done = NEAR.try_with(|near| near.try_borrow_mut().ok().map(|mut near| act(&mut near)));
    done.ok().flatten()
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
        Self::build(keep_bytes_max, None)
    }

    /// The same for whoever hands buffers to disks: `advice` makes the memory of large ones what they like.
    #[must_use]
    pub fn with_advice(keep_bytes_max: usize, advice: Advice) -> Self {
        Self::build(keep_bytes_max, Some(advice))
    }

    fn build(keep_bytes_max: usize, advice: Option<Advice>) -> Self {
        let shelves = Mutex::default();
        Self {
            home: Arc::new(Home {
                shelves,
                keep_bytes_max,
                advice,
            }),
        }
    }

    /// A buffer of `length_bytes` with unspecified (old, but initialised) contents.
    #[must_use]
    #[inline]
    pub fn take(&self, length_bytes: usize) -> BufMut {
        let pages = length_bytes.div_ceil(ALIGNMENT_BYTES).max(1);
        let class = class_of(pages);
        let at_hand = class.and_then(|class| near(|near| near.take(&self.home, class))?);
        let reused = at_hand.or_else(|| {
            let class = class?;
            let mut shelves = self.home.shelves();
            let block = shelves.free[class].pop()?;
            shelves.kept_bytes -= block.bytes();
            Some(block)
        });
        let block = reused.unwrap_or_else(|| self.new_block(pages, class));
        BufMut {
            handle: Handle(Some(block)),
            length_bytes,
        }
    }

    fn new_block(&self, pages: usize, class: Option<usize>) -> Arc<Block> {
        if let (Some(advice), Some(class)) = (self.home.advice, class)
            && class >= SLAB_CLASS_MIN
        {
            return self.cut_slab(class, advice);
        }
        let count = class.map_or(pages, |class| 1 << class);
        let memory = vec![Page([0; ALIGNMENT_BYTES]); count].into_boxed_slice();
        self.block(Memory::Own(memory))
    }

    /// A new slab: one block of it for the caller, the others for the shelf.
    fn cut_slab(&self, class: usize, advice: Advice) -> Arc<Block> {
        let block_bytes = ALIGNMENT_BYTES << class;
        // Memory that is not touched is not there: that around the slab costs nothing.
        let mut slab = BytesMut::zeroed(2 * SLAB_BYTES);
        let before = slab.as_ptr().align_offset(SLAB_BYTES);
        drop(slab.split_to(before));
        slab.truncate(SLAB_BYTES);
        advice(&mut slab);
        let first = slab.split_to(block_bytes);
        while !slab.is_empty() {
            let block = self.block(Memory::Part(slab.split_to(block_bytes)));
            self.home.give_back(class, block);
        }
        self.block(Memory::Part(first))
    }

    fn block(&self, memory: Memory) -> Arc<Block> {
        let home = Arc::downgrade(&self.home);
        Arc::new(Block { memory, home })
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

    fn give_back(&self, class: usize, block: Arc<Block>) {
        let mut shelves = self.shelves();
        let bytes = block.bytes();
        if shelves.kept_bytes + bytes <= self.keep_bytes_max {
            shelves.kept_bytes += bytes;
            shelves.free[class].push(block);
        }
    }
}

/// Nobody uses the block any more: back to the shelf that is nearest.
fn put_back(class: usize, block: Arc<Block>) {
    let mut left = Some(block);
    near(|near| left = left.take().and_then(|block| near.put(class, block)));
    let Some(block) = left else {
        return;
    };
    let Some(home) = block.home.upgrade() else {
        return;
    };
    near(|near| near.change(&home));
    home.give_back(class, block);
}

/// Size class for a number of pages; `None` above the largest class.
fn class_of(pages: usize) -> Option<usize> {
    let log = pages.next_power_of_two().trailing_zeros() as usize;
    (log < CLASSES).then_some(log)
}

enum Memory {
    Own(Box<[Page]>),
    /// Of a slab, whose memory goes back to the system with its last block.
    Part(BytesMut),
}

struct Block {
    memory: Memory,
    /// Where it goes when nobody uses it any more, if that is still there. Weak: blocks on the shelf do not keep it.
    home: Weak<Home>,
}

impl Block {
    fn bytes(&self) -> usize {
        self.as_bytes().len()
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(pages) => pages.as_bytes(),
            Memory::Part(part) => part,
        }
    }

    #[inline]
    fn as_mut_bytes(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(pages) => pages.as_mut_bytes(),
            Memory::Part(part) => part,
        }
    }
}

/// Keeps a block in use; `None` only while it is dropped. The last one puts the block back on its shelf. Of two that
/// are dropped at the same time on two threads neither may see that it is the last: then the memory is simply freed.
#[derive(Clone)]
struct Handle(Option<Arc<Block>>);

impl Handle {
    fn block(&self) -> &Block {
        self.0
            .as_ref()
            .expect("a handle has its block while it lives")
    }

    /// Whether nobody else has the block: then nobody else can get it either.
    #[inline]
    fn is_only(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|block| Arc::strong_count(block) == 1)
    }

    fn owned(&mut self) -> &mut Block {
        let block = self.0.as_mut().and_then(Arc::get_mut);
        block.expect("a buffer that may be written has one handle")
    }
}

impl Drop for Handle {
    #[inline]
    fn drop(&mut self) {
        let Some(block) = self.0.take() else {
            return;
        };
        // Whoever has the only handle cannot be overtaken: nobody else could make another one.
        if Arc::strong_count(&block) == 1
            && let Some(class) = class_of(block.bytes() / ALIGNMENT_BYTES)
        {
            put_back(class, block);
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
    #[inline]
    pub fn freeze(self) -> Buf {
        let end = self.length_bytes;
        Buf {
            handle: self.handle,
            start: 0,
            end,
        }
    }

    /// Length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.length_bytes
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length_bytes == 0
    }

    /// Shortens the buffer; no effect when it is not longer than `length_bytes`.
    pub fn truncate(&mut self, length_bytes: usize) {
        self.length_bytes = self.length_bytes.min(length_bytes);
    }
}

impl Deref for BufMut {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.handle.block().as_bytes()[..self.length_bytes]
    }
}

impl DerefMut for BufMut {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.handle.owned().as_mut_bytes()[..self.length_bytes]
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
    /// Length in bytes.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The same bytes for writing, without a copy, when nobody else has a view of the buffer and this one starts where
    /// it does.
    ///
    /// # Errors
    /// The view as it was.
    pub fn into_mut(self) -> Result<BufMut, Buf> {
        if self.start == 0 && self.handle.is_only() {
            let length_bytes = self.end;
            Ok(BufMut {
                handle: self.handle,
                length_bytes,
            })
        } else {
            Err(self)
        }
    }

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
        &self.handle.block().as_bytes()[self.start..self.end]
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
    #[inline]
    fn from(buf: Buf) -> Self {
        let mut pieces = SmallVec::new();
        if !buf.is_empty() {
            pieces.push(buf);
        }
        Rope { pieces }
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
    fn the_only_view_of_a_buffer_can_be_written_again_where_it_is_and_no_other_can() {
        let pool = BufPool::new(1 << 20);
        let mut buf = pool.take_zeroed(8192);
        buf[4095] = 7;
        let address = buf.as_ptr();
        let whole = buf.freeze();
        let front = whole.slice(0..4096);
        let whole = whole.into_mut().expect_err("there are two views");
        drop(whole);
        let mut again = front.into_mut().expect("it is the only one now");
        assert_eq!(
            (again.as_ptr(), again.len(), again[4095]),
            (address, 4096, 7)
        );
        again[0] = 1;
        let back = again.freeze().slice(512..1024);
        assert!(back.into_mut().is_err(), "it starts inside of the buffer");
    }

    /// In a thread of its own, which has nothing at hand.
    fn in_a_new_thread(act: impl FnOnce() + Send + 'static) {
        std::thread::spawn(act).join().expect("no assertion failed");
    }

    #[test]
    fn what_a_thread_has_at_hand_counts_as_kept_until_the_thread_or_a_larger_pool_comes_to_it() {
        let pool = BufPool::new(NEAR_PART * NEAR_BYTES);
        let kept = |pool: &BufPool| pool.home.shelves().kept_bytes;
        let same = pool.clone();
        in_a_new_thread(move || {
            drop(same.take(4096));
            assert_eq!(kept(&same), NEAR_BYTES + 4096, "the first is on the shelf");
            let first = same.take(4096);
            let address = first.as_ptr();
            drop(first.freeze());
            assert_eq!(kept(&same), NEAR_BYTES, "now it is at hand");
            assert_eq!(same.take(4000).as_ptr(), address);
            let large = BufPool::new(2 * NEAR_PART * NEAR_BYTES);
            drop(large.take(4096));
            assert_eq!((kept(&same), kept(&large)), (0, NEAR_BYTES + 4096));
            drop(same.take(4096));
            drop(large.take(4096));
            assert_eq!((kept(&same), kept(&large)), (4096, NEAR_BYTES));
            assert_eq!(near(|near| near.bytes), Some(4096));
            drop(large);
            assert_eq!(
                near(|near| (near.home.strong_count(), near.bytes)),
                Some((0, 0))
            );
            drop(same.take(4096));
            assert_eq!(kept(&same), NEAR_BYTES + 4096, "the large one is gone");
        });
        assert_eq!(kept(&pool), 4096, "so is the thread");
    }

    #[test]
    fn a_pool_keeps_no_more_than_it_may_whatever_threads_have_at_hand() {
        let limit = NEAR_PART * NEAR_BYTES;
        let pool = BufPool::new(limit);
        in_a_new_thread(move || {
            drop(pool.take(4096));
            for length in [4096, 1 << 16, 1 << 20, 1 << 21] {
                drop(Vec::from_iter(
                    (0..2 * limit / length).map(|_| pool.take(length)),
                ));
                let on_shelves = pool.home.shelves().kept_bytes - NEAR_BYTES;
                let at_hand = near(|near| near.bytes).unwrap();
                assert!(at_hand <= NEAR_BYTES && on_shelves + at_hand <= limit);
            }
            let at_hand = near(|near| near.bytes).unwrap();
            assert_eq!(at_hand, NEAR_BYTES, "4 KiB each");
        });
    }

    #[test]
    fn large_buffers_of_a_pool_with_advice_share_slabs_that_the_system_is_told_of_once() {
        thread_local!(static TOLD: RefCell<Vec<(usize, usize)>> = RefCell::default());
        let advice: Advice = |slab| {
            let slab = (slab.as_ptr() as usize, slab.len());
            TOLD.with_borrow_mut(|told| told.push(slab));
        };
        let pool = BufPool::with_advice(8 << 20, advice);
        drop((
            pool.take(4096),
            pool.take(200 << 10 >> 1),
            pool.take(2 << 20),
        ));
        assert_eq!(TOLD.take(), [], "too small, or not kept");
        let mut bufs: Vec<BufMut> = (0..5).map(|_| pool.take(512 << 10)).collect();
        let told = TOLD.take();
        assert_eq!(told.len(), 2, "the fifth is of another slab");
        for (index, buf) in bufs.iter_mut().enumerate() {
            let (start, length) = told[index / 4];
            assert!(start % SLAB_BYTES == 0 && length == SLAB_BYTES);
            assert!((start..start + length).contains(&(buf.as_ptr() as usize)));
            assert!(buf.iter().all(|byte| *byte == 0));
            buf.fill(index as u8 + 1);
        }
        let is_own =
            |(index, buf): (usize, &BufMut)| buf.iter().all(|byte| *byte == index as u8 + 1);
        assert!(bufs.iter().enumerate().all(is_own), "none overlaps another");
        drop(bufs);
        let again: Vec<BufMut> = (0..8).map(|_| pool.take(512 << 10)).collect();
        assert_eq!(TOLD.take(), [], "both slabs serve again");
        drop(pool);
        assert_eq!(again.len(), 8, "buffers outlive their pool");
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
