//! Real time: the monotonic clock, and timers that the event loop waits for.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use plexum_block::clock::{Clock, Moment};

use crate::ticks::TickClock;
use crate::{Core, Waits};

/// Timers of one runtime, by time and then by age.
pub(crate) struct Timers {
    ticks: TickClock,
    pending: BTreeMap<(Moment, u64), Waker>,
    next_id: u64,
    /// Polls of tasks; more than one at a time when the event loop has waited.
    polls: Cell<u64>,
    /// The last reading, and in which poll it was taken.
    last: Cell<(u64, Moment)>,
}

/// A reading may be given again in the poll that took it and in the next one.
const RECENT_POLLS: u64 = 1;

impl Default for Timers {
    fn default() -> Self {
        Self {
            ticks: TickClock::new(),
            pending: BTreeMap::new(),
            next_id: 0,
            polls: Cell::new(RECENT_POLLS + 1),
            last: Cell::default(),
        }
    }
}

impl Timers {
    pub(crate) fn now(&self) -> Moment {
        let now = Moment(self.ticks.now_ns());
        self.last.set((self.polls.get(), now));
        now
    }

    fn recent(&self) -> Moment {
        let (taken, moment) = self.last.get();
        if self.polls.get() - taken <= RECENT_POLLS {
            moment
        } else {
            self.now()
        }
    }

    /// A task is about to be polled.
    pub(crate) fn begin_poll(&self) {
        self.polls.set(self.polls.get() + 1);
    }

    /// The event loop looks for events, and may wait for them: no reading of before is recent.
    pub(crate) fn begin_turn(&self) {
        self.polls.set(self.polls.get() + RECENT_POLLS + 1);
    }

    /// Time until the first timer; `None` without timers.
    pub(crate) fn until_next(&self) -> Option<Duration> {
        let ((due, _), _) = self.pending.first_key_value()?;
        Some(due.since(self.now()))
    }

    /// Removes and returns the wakers of all timers whose time has come.
    pub(crate) fn take_due(&mut self) -> Vec<Waker> {
        let mut due = Vec::new();
        if self.pending.is_empty() {
            return due;
        }
        let now = self.now();
        while let Some(entry) = self.pending.first_entry() {
            if entry.key().0 > now {
                break;
            }
            due.push(entry.remove());
        }
        due
    }
}

/// The `Clock` of the real world. Clones are cheap.
#[derive(Clone)]
pub struct RealClock {
    core: Rc<Core>,
}

impl RealClock {
    pub(crate) fn new(core: Rc<Core>) -> Self {
        Self { core }
    }

    /// How often its thread has waited so far.
    #[must_use]
    pub fn waits(&self) -> Waits {
        self.core.waiting.counts()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Moment {
        self.core.now()
    }

    fn recent(&self) -> Moment {
        self.core.timers.borrow().recent()
    }

    fn wall_seconds(&self) -> u64 {
        // A clock before 1970 is shown as 1970: nothing is decided by it.
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }

    async fn sleep(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let sleep = Sleep {
            core: &self.core,
            due: Moment(self.now().0.saturating_add(nanos)),
            id: Cell::new(None),
        };
        sleep.await;
    }
}

/// One timer. Spurious polls find it pending until its time has come; a drop removes it.
struct Sleep<'a> {
    core: &'a Core,
    due: Moment,
    id: Cell<Option<u64>>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut timers = self.core.timers.borrow_mut();
        if timers.now() >= self.due {
            return Poll::Ready(());
        }
        let id = self.id.get().unwrap_or_else(|| {
            timers.next_id += 1;
            self.id.set(Some(timers.next_id));
            timers.next_id
        });
        timers
            .pending
            .insert((self.due, id), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            self.core
                .timers
                .borrow_mut()
                .pending
                .remove(&(self.due, id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoChoice, Runtime};

    #[test]
    fn a_reading_is_recent_in_the_next_poll_and_not_in_the_one_after_nor_after_a_turn() {
        let timers = Timers::default();
        let is_new = || {
            let given = timers.recent();
            assert_eq!(given, timers.last.get().1, "the last one that was taken");
            timers.last.get().0 == timers.polls.get()
        };
        assert!(is_new(), "there was none");
        timers.begin_poll();
        assert!(!is_new(), "that of the poll before");
        timers.begin_poll();
        assert!(is_new(), "that one is too old");
        timers.begin_turn();
        assert!(is_new(), "who knows how long it took");
        timers.begin_poll();
        let exact = timers.now();
        timers.begin_poll();
        assert!(!is_new() && timers.recent() == exact, "whoever took it");
    }

    #[test]
    fn a_polled_and_dropped_timer_leaves_nothing_behind() {
        let runtime = Runtime::new(IoChoice::Threads).expect("a runtime");
        let core = Rc::clone(&runtime.handle.core);
        let clock = runtime.handle.clock();
        let mut context = Context::from_waker(Waker::noop());
        let mut sleeps: Vec<_> = (0..10)
            .map(|_| Box::pin(clock.sleep(Duration::from_secs(3600))))
            .collect();
        for sleep in &mut sleeps {
            for _spurious in 0..3 {
                assert!(sleep.as_mut().poll(&mut context).is_pending());
            }
        }
        assert_eq!(core.timers.borrow().pending.len(), 10);
        let wait = core.timers.borrow().until_next();
        assert!(wait.is_some_and(|wait| wait <= Duration::from_secs(3600)));
        drop(sleeps);
        assert_eq!(core.timers.borrow().until_next(), None);
    }
}
