//! Virtual time. Nothing sleeps: when no task is ready, time jumps to the next event.
//!
//! Invariants:
//! - events fire in order of (moment, order of scheduling); two runs fire them in the same order;
//! - time moves only in `advance`, and never back;
//! - a dropped sleep neither fires nor moves time; `clear` (a crash) drops everything that was pending.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plexum_block::clock::{Clock, Moment};

/// Wall clock at virtual time zero, in seconds since 1970.
const WALL_START_SECONDS: u64 = 1_700_000_000;

type Call = Box<dyn FnOnce()>;

enum Action {
    Wake(Weak<Timer>),
    Call(Call),
}

struct Event {
    moment_ns: u64,
    order: u64,
    action: Action,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.moment_ns, self.order) == (other.moment_ns, other.order)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    /// Reversed, because the heap gives its greatest and the earliest is wanted.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.moment_ns, other.order).cmp(&(self.moment_ns, self.order))
    }
}

#[derive(Default)]
struct Timeline {
    now_ns: Cell<u64>,
    order: Cell<u64>,
    events: RefCell<BinaryHeap<Event>>,
}

/// The clock of one simulated world. Clones show the same time.
#[derive(Clone, Default)]
pub struct SimClock {
    inner: Rc<Timeline>,
}

impl SimClock {
    /// A clock at zero with nothing scheduled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Nanoseconds since the world began.
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.inner.now_ns.get()
    }

    /// Lets `call` happen `delay_ns` from now, whether or not a task still waits for it.
    pub fn call_after(&self, delay_ns: u64, call: impl FnOnce() + 'static) {
        self.schedule(delay_ns, Action::Call(Box::new(call)));
    }

    /// Jumps to the next pending event and fires it. False when nothing is pending: time stands still.
    ///
    /// Called by the harness only, when no task is ready.
    pub fn advance(&self) -> bool {
        loop {
            let Some(event) = self.inner.events.borrow_mut().pop() else {
                return false;
            };
            let action = match event.action {
                Action::Wake(timer) => match timer.upgrade() {
                    Some(timer) => {
                        self.jump_to(event.moment_ns);
                        timer.fire();
                        return true;
                    }
                    None => continue, // the sleep was dropped: it does not even move time
                },
                Action::Call(call) => call,
            };
            self.jump_to(event.moment_ns);
            action();
            return true;
        }
    }

    /// Drops every pending event: what a crash does to I/O in flight and to sleeping tasks.
    pub fn clear(&self) {
        // The events are moved out first, because dropping one may look at this clock.
        let dropped = std::mem::take(&mut *self.inner.events.borrow_mut());
        drop(dropped);
    }

    fn jump_to(&self, moment_ns: u64) {
        assert!(moment_ns >= self.now_ns(), "virtual time never goes back");
        self.inner.now_ns.set(moment_ns);
    }

    fn schedule(&self, delay_ns: u64, action: Action) {
        let order = self.inner.order.get();
        self.inner.order.set(order + 1);
        self.inner.events.borrow_mut().push(Event {
            moment_ns: self.now_ns().saturating_add(delay_ns),
            order,
            action,
        });
    }
}

impl Clock for SimClock {
    fn now(&self) -> Moment {
        Moment(self.now_ns())
    }

    fn wall_seconds(&self) -> u64 {
        WALL_START_SECONDS + self.now_ns() / 1_000_000_000
    }

    async fn sleep(&self, duration: Duration) {
        let timer = Rc::new(Timer::default());
        let delay_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.schedule(delay_ns, Action::Wake(Rc::downgrade(&timer)));
        Sleep { timer }.await;
    }
}

#[derive(Default)]
struct Timer {
    has_fired: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Timer {
    fn fire(&self) {
        self.has_fired.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

struct Sleep {
    timer: Rc<Timer>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.timer.has_fired.get() {
            return Poll::Ready(());
        }
        *self.timer.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// A value that arrives later; the far end of one simulated I/O. Spurious polls are harmless.
pub(crate) struct Slot<T> {
    value: RefCell<Option<T>>,
    waker: RefCell<Option<Waker>>,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            value: RefCell::new(None),
            waker: RefCell::new(None),
        })
    }

    /// Puts the value in and wakes whoever waits.
    pub(crate) fn fill(&self, value: T) {
        let before = self.value.borrow_mut().replace(value);
        assert!(before.is_none(), "an I/O is answered once");
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    pub(crate) fn wait(self: &Rc<Self>) -> Wait<T> {
        Wait {
            slot: Rc::clone(self),
        }
    }
}

pub(crate) struct Wait<T> {
    slot: Rc<Slot<T>>,
}

impl<T> Future for Wait<T> {
    type Output = T;
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if let Some(value) = self.slot.value.borrow_mut().take() {
            return Poll::Ready(value);
        }
        *self.slot.waker.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    use plexum_block::wait::poll_once;

    #[test]
    fn time_jumps_to_the_next_event_in_order() {
        let clock = SimClock::new();
        let seen = Rc::new(RefCell::new(Vec::new()));
        for delay in [30, 10, 20, 10] {
            let (seen, clock_inside) = (Rc::clone(&seen), clock.clone());
            clock.call_after(delay, move || seen.borrow_mut().push(clock_inside.now_ns()));
        }
        while clock.advance() {}
        assert_eq!(*seen.borrow(), [10, 10, 20, 30]);
    }

    #[test]
    fn a_sleep_ends_at_its_moment_and_not_by_a_spurious_poll() {
        let clock = SimClock::new();
        let mut sleep = pin!(clock.sleep(Duration::from_micros(5)));
        assert!(poll_once(sleep.as_mut()).is_pending());
        assert!(poll_once(sleep.as_mut()).is_pending());
        assert!(clock.advance());
        assert_eq!(clock.now_ns(), 5000);
        assert!(poll_once(sleep.as_mut()).is_ready());
    }

    #[test]
    fn a_dropped_sleep_does_not_move_time() {
        let clock = SimClock::new();
        {
            let mut sleep = pin!(clock.sleep(Duration::from_secs(30)));
            assert!(poll_once(sleep.as_mut()).is_pending());
        }
        assert!(!clock.advance());
        assert_eq!(clock.now_ns(), 0);
    }
}
