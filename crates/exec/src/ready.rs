//! The ready queue: the only part that other threads may touch.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Wake;

use crate::{Order, TaskId};

#[derive(Default)]
struct Queue {
    ids: VecDeque<TaskId>,
    /// The owner is about to block or blocks: the next entry calls the notifier.
    is_waiting: bool,
    is_closed: bool,
}

/// Ready tasks of one executor.
#[derive(Default)]
pub(crate) struct Ready {
    queue: Mutex<Queue>,
    notifier: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing below panics between two changes, so a poisoned queue is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, id: TaskId) {
        let mut queue = self.lock();
        if queue.is_closed {
            return;
        }
        queue.ids.push_back(id);
        let has_to_notify = std::mem::take(&mut queue.is_waiting);
        drop(queue);
        if has_to_notify && let Some(notifier) = self.notifier.get() {
            notifier();
        }
    }

    pub(crate) fn pop(&self, order: &mut impl Order) -> Option<TaskId> {
        let mut queue = self.lock();
        if queue.ids.is_empty() {
            return None;
        }
        let index = order.pick(queue.ids.len());
        let id = queue.ids.remove(index);
        assert!(id.is_some(), "an order picks an index below the length");
        id
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().ids.len()
    }

    pub(crate) fn set_notifier(&self, notifier: Box<dyn Fn() + Send + Sync>) {
        let is_first = self.notifier.set(notifier).is_ok();
        assert!(is_first, "an executor gets its notifier once");
    }

    pub(crate) fn begin_wait(&self) -> bool {
        let mut queue = self.lock();
        queue.is_waiting = queue.ids.is_empty();
        queue.is_waiting
    }

    pub(crate) fn end_wait(&self) {
        self.lock().is_waiting = false;
    }

    pub(crate) fn close(&self) {
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
