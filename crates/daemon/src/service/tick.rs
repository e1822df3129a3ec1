//! The daemon's second: one timer for everything that it does again and again, so that an idle one wakes up seldom.

use std::cell::Cell;

use plexum_block::wait::Signal;

/// Counts seconds for whoever waits for them.
#[derive(Default)]
pub(super) struct Tick {
    seconds: Cell<u64>,
    passed: Signal,
}

impl Tick {
    /// One more has passed.
    pub(super) fn pass(&self) {
        self.seconds.set(self.seconds.get() + 1);
        self.passed.notify();
    }

    /// Waits for so many of them.
    pub(super) async fn after(&self, seconds: u64) {
        let until = self.seconds.get() + seconds;
        self.passed.until(|| self.seconds.get() >= until).await;
    }
}
