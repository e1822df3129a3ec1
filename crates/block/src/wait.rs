//! The few hand-written leaf futures of the engine: signal, mutex, join.
//!
//! Invariants:
//! - a poll without a reason (spurious wake-up) changes nothing: every future looks at the shared state, never at the
//!   fact that it was woken;
//! - a waiter that is dropped leaves no trace that could block others;
//! - order of waiting is order of service (first in, first out).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

/// Wakes everybody who waits for "something changed". Waiters check their condition themselves.
#[derive(Default)]
pub struct Signal {
    generation: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl Signal {
    /// A signal nobody waits for yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes all who wait.
    pub fn notify(&self) {
        self.generation.set(self.generation.get() + 1);
        if self.wakers.borrow().is_empty() {
            return;
        }
        for waker in self.wakers.take() {
            waker.wake();
        }
    }

    /// Waits until `condition` holds; it is tried now and after each `notify`.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        while !condition() {
            self.changed().await;
        }
    }

    /// Waits for the next `notify` after this call.
    pub fn changed(&self) -> Changed<'_> {
        Changed {
            signal: self,
            seen: self.generation.get(),
        }
    }
}

/// Future of [`Signal::changed`].
pub struct Changed<'a> {
    signal: &'a Signal,
    seen: u64,
}

impl Future for Changed<'_> {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.generation.get() != self.seen {
            return Poll::Ready(());
        }
        let mut wakers = self.signal.wakers.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A mutual exclusion for sequences that await, first come, first served.
#[derive(Default)]
pub struct Mutex {
    inner: RefCell<MutexInner>,
}

#[derive(Default)]
struct MutexInner {
    is_locked: bool,
    next_ticket: u64,
    queue: VecDeque<(u64, Option<Waker>)>,
}

impl Mutex {
    /// An unlocked mutex.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for the lock; it is given back when the guard is dropped.
    pub fn lock(&self) -> Lock<'_> {
        Lock {
            mutex: self,
            ticket: None,
        }
    }

    /// Whether somebody holds the lock now.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.inner.borrow().is_locked
    }

    fn wake_head(&self) {
        let waker = self
            .inner
            .borrow_mut()
            .queue
            .front_mut()
            .and_then(|(_, waker)| waker.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Future of [`Mutex::lock`].
pub struct Lock<'a> {
    mutex: &'a Mutex,
    ticket: Option<u64>,
}

impl<'a> Future for Lock<'a> {
    type Output = MutexGuard<'a>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<MutexGuard<'a>> {
        let mutex = self.mutex;
        let mut inner = mutex.inner.borrow_mut();
        let ticket = match self.ticket {
            Some(ticket) => ticket,
            None => {
                let ticket = inner.next_ticket;
                inner.next_ticket += 1;
                inner.queue.push_back((ticket, None));
                self.ticket = Some(ticket);
                ticket
            }
        };
        let is_first = inner
            .queue
            .front()
            .is_some_and(|(first, _)| *first == ticket);
        if is_first && !inner.is_locked {
            inner.queue.pop_front();
            inner.is_locked = true;
            self.ticket = None;
            return Poll::Ready(MutexGuard { mutex });
        }
        let place = inner.queue.iter_mut().find(|(queued, _)| *queued == ticket);
        place
            .expect("a waiting ticket stays queued until it is served or dropped")
            .1 = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        self.mutex
            .inner
            .borrow_mut()
            .queue
            .retain(|(queued, _)| *queued != ticket);
        if !self.mutex.is_locked() {
            self.mutex.wake_head();
        }
    }
}

/// Proof of holding a [`Mutex`].
pub struct MutexGuard<'a> {
    mutex: &'a Mutex,
}

impl Drop for MutexGuard<'_> {
    fn drop(&mut self) {
        self.mutex.inner.borrow_mut().is_locked = false;
        self.mutex.wake_head();
    }
}

/// Lets everybody else who is ready run first.
pub async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A short list that needs no memory of its own until it grows beyond what most arrays need.
pub type Few<T> = SmallVec<[T; FEW]>;

/// Entries that a `Few` holds in place: what a request of one strip has to do with in most arrays.
const FEW: usize = 4;

/// As `join_all`, for `count` futures that are few and small: up to four live in the caller's own future, so that
/// nothing is allocated, and are made where they stay: moving one costs more than the rest of this.
pub async fn join_few<F: Future>(count: usize, make: impl Fn(usize) -> F) -> Few<F::Output> {
    join_few_then(count, make, || (), |output, ()| output).await
}

/// As `join_few`; each output goes through `finish`, with what `stamp` says. Of the first four those that are found to
/// have ended together share one stamp: a reading of the clock, say.
pub async fn join_few_then<F: Future, S: Copy, T>(
    count: usize,
    make: impl Fn(usize) -> F,
    stamp: impl Fn() -> S,
    finish: impl Fn(F::Output, S) -> T,
) -> Few<T> {
    let (mut a, mut b) = (pin!(made(&make, 0)), pin!(made(&make, 1)));
    let (mut c, mut d) = (pin!(made(&make, 2)), pin!(made(&make, 3)));
    let mut rest: Vec<_> = match count {
        0..=FEW => Vec::new(),
        _ => (FEW..count)
            .map(|index| {
                let future = make(index);
                Part::Running(Box::pin(async { finish(future.await, stamp()) }))
            })
            .collect(),
    };
    let mut outputs: [Option<T>; FEW] = [const { None }; FEW];
    std::future::poll_fn(|cx| {
        let mut is_done = true;
        let mut has_ended = false;
        let mut ended: [Option<F::Output>; FEW] = [const { None }; FEW];
        let arms = [a.as_mut(), b.as_mut(), c.as_mut(), d.as_mut()];
        let arms = arms.into_iter().take(count);
        for (arm, (ended, output)) in arms.zip(ended.iter_mut().zip(&outputs)) {
            if output.is_some() {
                continue; // it has ended before
            }
            match arm.poll(cx) {
                Poll::Ready(output) => {
                    *ended = Some(output);
                    has_ended = true;
                }
                Poll::Pending => is_done = false,
            }
        }
        if has_ended {
            let stamp = stamp();
            for (output, ended) in outputs.iter_mut().zip(ended).take(count) {
                if let Some(ended) = ended {
                    *output = Some(finish(ended, stamp));
                }
            }
        }
        if (rest.is_empty() || poll_parts(&mut rest, cx)) && is_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    let mut all: Few<T> = Few::new();
    for output in outputs.into_iter().take(count).flatten() {
        all.push(output);
    }
    if !rest.is_empty() {
        all.extend(rest.into_iter().map(Part::output));
    }
    all
}

/// A future that is made by the first poll, where it stays.
async fn made<F: Future>(make: &impl Fn(usize) -> F, index: usize) -> F::Output {
    make(index).await
}

/// Runs all futures in one task and returns their outputs in order.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut parts: Vec<Part<F>> = futures
        .into_iter()
        .map(|future| Part::Running(Box::pin(future)))
        .collect();
    std::future::poll_fn(|cx| {
        if poll_parts(&mut parts, cx) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    parts.into_iter().map(Part::output).collect()
}

/// Polls whoever has not ended; says whether all have.
pub fn poll_parts<'a, F: Future + 'a>(
    parts: impl IntoIterator<Item = &'a mut Part<F>>,
    cx: &mut Context<'_>,
) -> bool
where
    F::Output: 'a,
{
    let mut is_done = true;
    for part in parts {
        if let Part::Running(future) = part {
            match future.as_mut().poll(cx) {
                Poll::Ready(output) => *part = Part::Done(output),
                Poll::Pending => is_done = false,
            }
        }
    }
    is_done
}

/// A future that runs beside others, or what came out of it.
pub enum Part<F: Future> {
    /// It still runs.
    Running(Pin<Box<F>>),
    /// What came out.
    Done(F::Output),
}

impl<F: Future> Part<F> {
    fn output(self) -> F::Output {
        match self {
            Part::Done(output) => output,
            Part::Running(_) => unreachable!("outputs are taken only after every part was done"),
        }
    }
}

/// Waits for the first of two futures and drops the other: only for what does no I/O.
pub async fn first(one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    std::future::poll_fn(|cx| {
        if one.as_mut().poll(cx).is_ready() || other.as_mut().poll(cx).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

/// Runs two futures in one task.
pub async fn join<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(|cx| {
        if a.is_none()
            && let Poll::Ready(output) = first.as_mut().poll(cx)
        {
            a = Some(output);
        }
        if b.is_none()
            && let Poll::Ready(output) = second.as_mut().poll(cx)
        {
            b = Some(output);
        }
        if a.is_some() && b.is_some() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    (a.expect("first is done"), b.expect("second is done"))
}

/// A counter that somebody can wait on to become zero.
#[derive(Default)]
pub struct Gauge {
    count: Cell<u64>,
    signal: Signal,
}

impl Gauge {
    /// Adds one until the returned guard is dropped.
    #[must_use]
    pub fn enter(self: &Rc<Self>) -> GaugeGuard {
        self.count.set(self.count.get() + 1);
        GaugeGuard {
            gauge: Rc::clone(self),
        }
    }

    /// Current count.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Waits until the count is zero.
    pub async fn empty(&self) {
        self.signal.until(|| self.count.get() == 0).await;
    }
}

/// One unit of a [`Gauge`].
pub struct GaugeGuard {
    gauge: Rc<Gauge>,
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.count.set(self.gauge.count.get() - 1);
        if self.gauge.count.get() == 0 {
            self.gauge.signal.notify();
        }
    }
}

/// Polls once with a waker that does nothing, for tests of what waits: every such poll may be spurious.
pub fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spurious_poll_of_a_mutex_does_not_give_the_lock_twice() {
        let mutex = Mutex::new();
        let mut first = pin!(mutex.lock());
        let Poll::Ready(guard) = poll_once(first.as_mut()) else {
            panic!("free mutex")
        };
        let mut second = pin!(mutex.lock());
        let mut third = pin!(mutex.lock());
        for _ in 0..3 {
            assert!(poll_once(second.as_mut()).is_pending());
            assert!(poll_once(third.as_mut()).is_pending());
        }
        drop(guard);
        assert!(
            poll_once(third.as_mut()).is_pending(),
            "the third must not overtake the second"
        );
        let Poll::Ready(_guard) = poll_once(second.as_mut()) else {
            panic!("second is next")
        };
        assert!(poll_once(third.as_mut()).is_pending());
    }

    #[test]
    fn a_dropped_waiter_does_not_block_those_behind_it() {
        let mutex = Mutex::new();
        let mut first = pin!(mutex.lock());
        let Poll::Ready(guard) = poll_once(first.as_mut()) else {
            panic!("free mutex")
        };
        let mut second = Box::pin(mutex.lock());
        let mut third = pin!(mutex.lock());
        assert!(poll_once(second.as_mut()).is_pending());
        assert!(poll_once(third.as_mut()).is_pending());
        drop(guard);
        drop(second);
        assert!(poll_once(third.as_mut()).is_ready());
    }

    #[test]
    fn a_signal_ignores_spurious_polls_and_wakes_after_notify() {
        let signal = Signal::new();
        let mut waiting = pin!(signal.changed());
        assert!(poll_once(waiting.as_mut()).is_pending());
        assert!(poll_once(waiting.as_mut()).is_pending());
        signal.notify();
        assert!(poll_once(waiting.as_mut()).is_ready());
    }

    #[test]
    fn join_all_keeps_order_and_survives_spurious_polls() {
        let signal = Signal::new();
        let flags = [Cell::new(false), Cell::new(false)];
        let wait = |i: usize| {
            let (signal, flags) = (&signal, &flags);
            async move {
                signal.until(|| flags[i].get()).await;
                i
            }
        };
        let mut all = pin!(join_all([wait(0), wait(1)]));
        assert!(poll_once(all.as_mut()).is_pending());
        flags[1].set(true);
        signal.notify();
        assert!(poll_once(all.as_mut()).is_pending());
        assert!(poll_once(all.as_mut()).is_pending());
        flags[0].set(true);
        signal.notify();
        assert_eq!(poll_once(all.as_mut()), Poll::Ready(vec![0, 1]));
    }

    /// Every number of futures around the border between those in place and those in boxes, ending in any order.
    #[test]
    fn join_few_keeps_order_polls_nobody_who_has_ended_and_survives_spurious_polls() {
        for count in 0..=FEW + 2 {
            for first_to_end in 0..count.max(1) {
                let signal = Signal::new();
                let flags: Vec<Cell<bool>> = (0..count).map(|_| Cell::new(false)).collect();
                let wait = |i: usize| {
                    let (signal, flags) = (&signal, &flags);
                    async move {
                        signal.until(|| flags[i].get()).await;
                        i
                    }
                };
                let stamps = Cell::new(0);
                let stamp = || stamps.replace(stamps.get() + 1);
                let mut all = pin!(join_few_then(count, wait, stamp, |i, at| (i, at)));
                for step in 0..count {
                    assert!(poll_once(all.as_mut()).is_pending());
                    assert!(poll_once(all.as_mut()).is_pending(), "spurious");
                    flags[(first_to_end + step) % count].set(true);
                    signal.notify();
                }
                let Poll::Ready(outputs) = poll_once(all.as_mut()) else {
                    panic!("all {count} have ended");
                };
                let one_by_one = |i| (i, (i + count - first_to_end) % count);
                let expected: Vec<_> = (0..count).map(one_by_one).collect();
                assert_eq!(outputs.to_vec(), expected);
            }
        }
    }

    #[test]
    fn those_that_are_found_to_have_ended_together_share_a_stamp() {
        let stamps = Cell::new(0);
        let stamp = || stamps.replace(stamps.get() + 1);
        let io = |i: usize| async move {
            if i == 1 {
                yield_once().await;
            }
        };
        let mut all = pin!(join_few_then(FEW, io, stamp, |(), at| at));
        assert!(poll_once(all.as_mut()).is_pending());
        let Poll::Ready(stamps) = poll_once(all.as_mut()) else {
            panic!("all have ended");
        };
        assert_eq!(stamps.to_vec(), [0, 1, 0, 0]);
    }
}
