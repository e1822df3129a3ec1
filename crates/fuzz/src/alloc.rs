//! An allocator that counts, for each thread, so that a parser cannot hide what it takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static USED: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator with a count.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator with the caller's own arguments; the count touches plain cells of
// the thread, which need no allocation and no destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller got `pointer` from `alloc` of this allocator, which is that of the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(bytes: isize) {
    // At the end of a thread the cells may be gone already; nothing is measured then.
    let _ = USED.try_with(|used| {
        used.set(used.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(used.get())));
    });
}

/// Runs `work` and says how many bytes this thread had more at most than before.
pub fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = USED.get();
    MOST.set(before);
    let result = work();
    (result, MOST.get().saturating_sub(before).unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_and_given_back_is_counted() {
        let (length, peak) = peak_bytes(|| vec![0_u8; 1 << 20].len());
        assert_eq!(length, 1 << 20);
        assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
        assert!(peak_bytes(|| 0).1 < 1 << 10);
    }
}
