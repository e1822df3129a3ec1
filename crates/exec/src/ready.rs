//! The ready queue: the only part that other threads may touch.
//!
//! Nearly all wakes come from the executor's own thread: they go to a queue that this thread alone sees, and lock
//! nothing. Those of other threads wait in a queue of their own until the executor looks for ready tasks, and line up
//! behind.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Wake;

use crate::{Order, TaskId};

/// Tasks that other threads have woken.
#[derive(Default)]
struct Queue {
    ids: VecDeque<TaskId>,
    /// The owner is about to block or blocks: the next entry calls the notifier.
    is_waiting: bool,
    is_closed: bool,
}

/// Tasks of one executor that its own thread has woken.
struct Own {
    /// Of the executor's `Ready`.
    number: u64,
    ids: VecDeque<TaskId>,
    /// As in `Queue`: meanwhile wakes of this thread take the way of those of others.
    is_waiting: bool,
}

thread_local! {
    /// Of the executors of this thread: mostly one.
    static OWN: RefCell<Vec<Own>> = const { RefCell::new(Vec::new()) };
}

/// Ready tasks of one executor.
pub(crate) struct Ready {
    number: u64,
    queue: Mutex<Queue>,
    /// Whether `queue` has entries.
    has_others: AtomicBool,
    notifier: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Ready {
    /// For an executor of the calling thread.
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        OWN.with_borrow_mut(|all| {
            all.push(Own {
                number,
                ids: VecDeque::new(),
                is_waiting: false,
            });
        });
        Self {
            number,
            queue: Mutex::default(),
            has_others: AtomicBool::new(false),
            notifier: OnceLock::new(),
        }
    }

    /// Does something with this thread's own queue; `None` on other threads, and when the executor is gone.
    #[inline]
    fn own<T>(&self, act: impl FnOnce(&mut Own) -> T) -> Option<T> {
        let done = OWN.try_with(|all| {
            let mut all = all.try_borrow_mut().ok()?;
            let own = all.iter_mut().find(|own| own.number == self.number)?;
            Some(act(own))
        });
        done.ok().flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing below panics between two changes, so a poisoned queue is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, id: TaskId) {
        let is_pushed = self.own(|own| {
            if !own.is_waiting {
                own.ids.push_back(id);
            }
            !own.is_waiting
        });
        if is_pushed == Some(true) {
            return;
        }
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        queue.ids.push_back(id);
        self.has_others.store(true, Ordering::Release);
        let has_to_notify = std::mem::take(&mut queue.is_waiting);
        drop(queue);
        if has_to_notify && let Some(notifier) = self.notifier.get() {
            notifier();
        }
    }

    /// On the executor's thread.
    pub(crate) fn pop(&self, order: &mut impl Order) -> Option<TaskId> {
        self.own(|own| {
            if self.has_others.load(Ordering::Acquire) {
                let mut queue = self.lock();
                self.has_others.store(false, Ordering::Release);
                own.ids.append(&mut queue.ids);
            }
            if own.ids.is_empty() {
                return None;
            }
            let index = order.pick(own.ids.len());
            let id = match index {
                0 => own.ids.pop_front(),
                index => own.ids.remove(index),
            };
            assert!(id.is_some(), "an order picks an index below the length");
            id
        })
        .flatten()
    }

    pub(crate) fn count(&self) -> usize {
        let own = self.own(|own| own.ids.len());
        own.unwrap_or_default() + self.lock().ids.len()
    }

    pub(crate) fn set_notifier(&self, notifier: Box<dyn Fn() + Send + Sync>) {
        let is_first = self.notifier.set(notifier).is_ok();
        assert!(is_first, "an executor gets its notifier once");
    }

    /// On the executor's thread.
    pub(crate) fn begin_wait(&self) -> bool {
        let begun = self.own(|own| {
            let mut queue = self.lock();
            own.is_waiting = own.ids.is_empty() && queue.ids.is_empty();
            queue.is_waiting = own.is_waiting;
            own.is_waiting
        });
        begun.unwrap_or_default()
    }

    /// On the executor's thread.
    pub(crate) fn end_wait(&self) {
        self.own(|own| own.is_waiting = false);
        self.lock().is_waiting = false;
    }

    /// On the executor's thread: nothing is ready from now on.
    pub(crate) fn close(&self) {
        let _ = OWN.try_with(|all| all.borrow_mut().retain(|own| own.number != self.number));
        let mut queue = self.lock();
        queue.is_closed = true;
        queue.ids.clear();
    }
}

/// What a task's waker points to.
pub(crate) struct TaskWaker {
    id: TaskId,
    /// Set while the task is queued, and for ever once it has ended.
    is_queued: AtomicBool,
    ready: Arc<Ready>,
}

impl TaskWaker {
    pub(crate) fn new(id: TaskId, ready: Arc<Ready>) -> Self {
        Self {
            id,
            is_queued: AtomicBool::new(false),
            ready,
        }
    }

    /// Queues the task unless it is queued.
    pub(crate) fn make_ready(&self) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.id);
        }
    }

    /// From now on a wake queues the task again: it may come after what the poll has looked at.
    pub(crate) fn begin_poll(&self) {
        // A swap, not a store: it also acquires what the wakers that found the flag set have released.
        self.is_queued.swap(false, Ordering::AcqRel);
    }

    /// The task has ended: wakes are ignored.
    pub(crate) fn end(&self) {
        self.is_queued.store(true, Ordering::Release);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.make_ready();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.make_ready();
    }
}
