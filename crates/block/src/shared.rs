//! A lock that is held by one alone, or by several who only look. First come, first served.
//!
//! Invariants:
//! - who holds it alone is the only holder;
//! - who looks waits for everybody who came earlier and wants it alone, so that nobody starves;
//! - a spurious poll takes nothing; a waiter or guard that is dropped frees its place.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// How the lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Shared,
    Alone,
}

/// A lock for sequences that await: of one that changes, or of many that look.
#[derive(Default)]
pub struct SharedLock {
    inner: RefCell<Holding>,
}

#[derive(Default)]
struct Holding {
    holders: usize,
    /// Whether the one holder has it alone.
    is_alone: bool,
    next_ticket: u64,
    queue: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    way: Way,
    waker: Option<Waker>,
}

impl Holding {
    fn admits(&self, way: Way) -> bool {
        match way {
            Way::Shared => !self.is_alone,
            Way::Alone => self.holders == 0,
        }
    }

    /// The waker of who is next, when it may have the lock now.
    fn next(&mut self) -> Option<Waker> {
        let way = self.queue.front()?.way;
        let is_next = self.admits(way);
        let waiter = self.queue.front_mut().filter(|_| is_next)?;
        waiter.waker.take()
    }
}

impl SharedLock {
    /// A lock that nobody holds.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits until nobody has it alone, nor has asked for that before. It is given back when the guard is dropped.
    pub fn shared(&self) -> SharedWait<'_> {
        self.wait(Way::Shared)
    }

    /// Waits until nobody has it, nor has asked for it before. It is given back when the guard is dropped.
    pub fn alone(&self) -> SharedWait<'_> {
        self.wait(Way::Alone)
    }

    fn wait(&self, way: Way) -> SharedWait<'_> {
        SharedWait {
            lock: self,
            way,
            ticket: None,
        }
    }

    fn wake_next(&self) {
        let waker = self.inner.borrow_mut().next();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Future of [`SharedLock::shared`] and [`SharedLock::alone`].
pub struct SharedWait<'a> {
    lock: &'a SharedLock,
    way: Way,
    ticket: Option<u64>,
}

impl<'a> Future for SharedWait<'a> {
    type Output = SharedGuard<'a>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<SharedGuard<'a>> {
        let (lock, way) = (self.lock, self.way);
        let mut inner = lock.inner.borrow_mut();
        let ticket = *self.ticket.get_or_insert_with(|| {
            let ticket = inner.next_ticket;
            inner.next_ticket += 1;
            let waker = None;
            inner.queue.push_back(Waiter { ticket, way, waker });
            ticket
        });
        let is_first = inner
            .queue
            .front()
            .is_some_and(|first| first.ticket == ticket);
        if !is_first || !inner.admits(way) {
            let waiter = inner.queue.iter_mut().find(|one| one.ticket == ticket);
            let waiter = waiter.expect("who waits stays queued until it is served or dropped");
            waiter.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        inner.queue.pop_front();
        inner.holders += 1;
        inner.is_alone = way == Way::Alone;
        drop(inner);
        self.ticket = None;
        // Who looks lets the next one in who looks.
        lock.wake_next();
        Poll::Ready(SharedGuard { lock })
    }
}

impl Drop for SharedWait<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let mut inner = self.lock.inner.borrow_mut();
        inner.queue.retain(|waiter| waiter.ticket != ticket);
        drop(inner);
        self.lock.wake_next();
    }
}

/// Proof of holding a [`SharedLock`].
pub struct SharedGuard<'a> {
    lock: &'a SharedLock,
}

impl Drop for SharedGuard<'_> {
    fn drop(&mut self) {
        let mut inner = self.lock.inner.borrow_mut();
        inner.holders -= 1;
        inner.is_alone = false;
        drop(inner);
        self.lock.wake_next();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn poll<'a>(wait: &mut Pin<&mut SharedWait<'a>>) -> Option<SharedGuard<'a>> {
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => Some(guard),
            Poll::Pending => None,
        }
    }

    #[test]
    fn several_look_at_a_time_and_one_alone_waits_for_all_of_them() {
        let lock = SharedLock::new();
        let (mut a, mut b) = (pin!(lock.shared()), pin!(lock.shared()));
        let (first, second) = (poll(&mut a).unwrap(), poll(&mut b).unwrap());
        let mut alone = pin!(lock.alone());
        assert!(poll(&mut alone).is_none());
        drop(first);
        assert!(poll(&mut alone).is_none());
        drop(second);
        let held = poll(&mut alone).unwrap();
        let (mut c, mut d) = (pin!(lock.shared()), pin!(lock.alone()));
        assert!(poll(&mut c).is_none() && poll(&mut d).is_none());
        drop(held);
        assert!(poll(&mut d).is_none(), "the other one came first");
        assert!(poll(&mut c).is_some());
        assert!(poll(&mut d).is_some());
    }

    #[test]
    fn who_looks_waits_for_one_that_came_earlier_and_wants_it_alone() {
        let lock = SharedLock::new();
        let (mut a, mut b, mut c) = (pin!(lock.shared()), pin!(lock.alone()), pin!(lock.shared()));
        let first = poll(&mut a).unwrap();
        assert!(poll(&mut b).is_none() && poll(&mut c).is_none());
        drop(first);
        let alone = poll(&mut b).unwrap();
        assert!(poll(&mut c).is_none());
        drop(alone);
        assert!(poll(&mut c).is_some());
    }

    #[test]
    fn a_waiter_that_is_dropped_lets_those_behind_it_in() {
        let lock = SharedLock::new();
        let mut a = pin!(lock.shared());
        let first = poll(&mut a).unwrap();
        let mut alone = Box::pin(lock.alone());
        assert!(poll(&mut alone.as_mut()).is_none());
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut behind = pin!(lock.shared());
        assert!(
            behind
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(alone);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(poll(&mut behind).is_some());
        drop(first);
        let mut last = pin!(lock.alone());
        assert!(poll(&mut last).is_some());
    }

    #[test]
    fn all_who_look_are_woken_one_by_the_other_when_one_alone_has_ended() {
        let lock = SharedLock::new();
        let mut alone = pin!(lock.alone());
        let held = poll(&mut alone).unwrap();
        let woken = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut waits = [Box::pin(lock.shared()), Box::pin(lock.shared())];
        let mut context = Context::from_waker(&waker);
        for wait in &mut waits {
            assert!(wait.as_mut().poll(&mut context).is_pending());
        }
        drop(held);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(first) = waits[0].as_mut().poll(&mut context) else {
            panic!("it is its turn");
        };
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(waits[1].as_mut().poll(&mut context).is_ready());
        drop(first);
    }

    #[test]
    fn nobody_is_forgotten_whoever_looks_changes_or_gives_up() {
        use crate::wait::{join_all, yield_once};
        use std::cell::Cell;
        for seed in 1..2000_u64 {
            let lock = SharedLock::new();
            let (looking, alone) = (Cell::new(0), Cell::new(0));
            let client = |number: u64| {
                let (lock, looking, alone) = (&lock, &looking, &alone);
                let mut noise = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number << 32;
                async move {
                    for _ in 0..20 {
                        noise ^= noise << 13;
                        noise ^= noise >> 7;
                        noise ^= noise << 17;
                        if noise.is_multiple_of(11) {
                            // One that asks, and goes away.
                            let mut wait = Box::pin(lock.alone());
                            let _ = std::future::poll_fn(|cx| {
                                Poll::Ready(wait.as_mut().poll(cx).is_ready())
                            })
                            .await;
                            continue;
                        }
                        let is_alone = noise.is_multiple_of(3);
                        let _turn = match is_alone {
                            true => lock.alone().await,
                            false => lock.shared().await,
                        };
                        let mine = if is_alone { alone } else { looking };
                        mine.set(mine.get() + 1);
                        assert!(alone.get() == 0 || alone.get() == 1 && looking.get() == 0);
                        for _ in 0..noise % 4 {
                            yield_once().await;
                        }
                        mine.set(mine.get() - 1);
                    }
                }
            };
            let woken = Arc::new(Count::default());
            let waker = Waker::from(Arc::clone(&woken));
            let mut all = pin!(join_all((0..7).map(client)));
            let mut seen = 0;
            while all
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
            {
                let now = woken.0.load(Ordering::Relaxed);
                assert!(now > seen, "seed {seed}: nobody is woken any more");
                seen = now;
            }
        }
    }
}
