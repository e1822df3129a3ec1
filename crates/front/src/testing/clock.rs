//! A clock that stands still until a test moves it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plexum_block::clock::{Clock, Moment};

/// Virtual time; clones share it.
#[derive(Clone, Default)]
pub struct TestClock(Rc<Hands>);

#[derive(Default)]
struct Hands {
    now: Cell<u64>,
    tickets: Cell<u64>,
    sleepers: RefCell<BTreeMap<(u64, u64), Waker>>,
}

impl TestClock {
    /// A clock at 0.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves time on and wakes whoever slept until then.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("tests last less than 500 years");
        self.0.now.set(self.0.now.get() + by);
        let due = {
            let mut sleepers = self.0.sleepers.borrow_mut();
            let later = sleepers.split_off(&(self.0.now.get() + 1, 0));
            std::mem::replace(&mut *sleepers, later)
        };
        for waker in due.into_values() {
            waker.wake();
        }
    }

    /// How many sleep.
    #[must_use]
    pub fn sleepers(&self) -> usize {
        self.0.sleepers.borrow().len()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment(self.0.now.get())
    }

    fn wall_seconds(&self) -> u64 {
        self.0.now.get() / 1_000_000_000
    }

    async fn sleep(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let ticket = self.0.tickets.get();
        self.0.tickets.set(ticket + 1);
        Sleep {
            clock: self,
            key: (self.0.now.get().saturating_add(nanoseconds), ticket),
        }
        .await;
    }
}

struct Sleep<'a> {
    clock: &'a TestClock,
    key: (u64, u64),
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let hands = &self.clock.0;
        if hands.now.get() >= self.key.0 {
            return Poll::Ready(());
        }
        hands
            .sleepers
            .borrow_mut()
            .insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.0.sleepers.borrow_mut().remove(&self.key);
    }
}
