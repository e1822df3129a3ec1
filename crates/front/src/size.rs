//! The size of an export that may change while it is open.
//!
//! Invariants: whoever waits with a size that is not the present one goes on at once, so no change is missed.

use std::cell::Cell;

use plexum_block::wait::Signal;

/// A size in bytes, and who waits for another one.
#[derive(Default)]
pub struct Size {
    bytes: Cell<u64>,
    changed: Signal,
}

impl Size {
    /// A size at its beginning.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self {
            bytes: Cell::new(bytes),
            changed: Signal::new(),
        }
    }

    /// The size now, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// It is `bytes` from now on; wakes whoever waits when that is another one.
    pub fn set(&self, bytes: u64) {
        if self.bytes.replace(bytes) != bytes {
            self.changed.notify();
        }
    }

    /// Returns the size when it is no longer `known_bytes`.
    pub async fn other_than(&self, known_bytes: u64) -> u64 {
        self.changed.until(|| self.bytes.get() != known_bytes).await;
        self.bytes.get()
    }
}
