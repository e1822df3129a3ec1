//! Single-thread executor; the order of ready tasks is a parameter.
//!
//! Both worlds stand on it: the runtime with `Fifo`, the simulator with `Seeded`.
//!
//! Invariants:
//! - a task is in the ready queue at most once; a wake during its own poll queues it again;
//! - the same order, seed and sequence of wakes give the same sequence of polls;
//! - waking a finished task does nothing, from any thread, also after the executor is gone;
//! - dropping the executor drops every future (a simulated crash), and futures spawned by those drops as well.
#![forbid(unsafe_code)]

mod join;
pub mod mailbox;
mod order;
mod ready;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use join::{Aborted, JoinHandle};
pub use order::{Fifo, Order, Seeded};
use ready::{Ready, TaskWaker};

/// Names a task of one executor; never used again for another task of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TaskId {
    index: u32,
    generation: u32,
}

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A future together with the waker it is polled with; both leave the slot while it is polled.
struct Task {
    future: LocalFuture,
    waker: Waker,
    shared: Arc<TaskWaker>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    task: Option<Task>,
}

#[derive(Default)]
struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct LiveTasks {
    tasks: RefCell<Tasks>,
    live_count: Cell<usize>,
    is_closed: Cell<bool>,
    ready: Arc<Ready>,
}

impl LiveTasks {
    fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let (handle, outcome) = join::pair();
        if self.is_closed.get() {
            return handle; // `outcome` is dropped here: the handle says `Aborted`
        }
        let future: LocalFuture = Box::pin(async move { outcome.set(future.await) });
        let mut tasks = self.tasks.borrow_mut();
        let index = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(Slot::default());
            u32::try_from(tasks.slots.len() - 1).expect("fewer than 2^32 tasks")
        });
        let slot = &mut tasks.slots[index as usize];
        let id = TaskId {
            index,
            generation: slot.generation,
        };
        let shared = Arc::new(TaskWaker::new(id, Arc::clone(&self.ready)));
        slot.task = Some(Task {
            future,
            waker: Waker::from(Arc::clone(&shared)),
            shared: Arc::clone(&shared),
        });
        drop(tasks);
        self.live_count.set(self.live_count.get() + 1);
        shared.make_ready();
        handle
    }

    /// The task `id`, if it has not ended.
    fn take(&self, id: TaskId) -> Option<Task> {
        let mut tasks = self.tasks.borrow_mut();
        let slot = tasks.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.task.take()
    }

    fn put_back(&self, id: TaskId, task: Task) {
        let mut tasks = self.tasks.borrow_mut();
        let slot = &mut tasks.slots[id.index as usize];
        assert!(
            slot.generation == id.generation && slot.task.is_none(),
            "the slot of a task waits for it while it is polled"
        );
        slot.task = Some(task);
    }

    /// Frees the slot of a task that has ended.
    fn retire(&self, id: TaskId) {
        let mut tasks = self.tasks.borrow_mut();
        let slot = &mut tasks.slots[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        tasks.free.push(id.index);
        self.live_count.set(self.live_count.get() - 1);
    }

    fn close(&self) {
        self.is_closed.set(true);
        self.ready.close();
        let slots = std::mem::take(&mut self.tasks.borrow_mut().slots);
        self.live_count.set(0);
        drop(slots); // no borrow is held: a destructor may spawn (refused) or wake (ignored)
    }
}

/// Runs futures on the thread that owns it, one poll at a time.
pub struct Executor<O: Order = Fifo> {
    inner: Rc<LiveTasks>,
    order: O,
}

impl<O: Order> Executor<O> {
    /// An executor without tasks that takes ready tasks in `order`.
    #[must_use]
    pub fn new(order: O) -> Self {
        Self {
            inner: Rc::new(LiveTasks {
                tasks: RefCell::default(),
                live_count: Cell::new(0),
                is_closed: Cell::new(false),
                ready: Arc::new(Ready::new()),
            }),
            order,
        }
    }

    /// Adds a task; it is first polled by a later `poll_one`.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.inner.spawn(future)
    }

    /// A cloneable handle for spawning from inside of tasks.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        Spawner {
            inner: Rc::clone(&self.inner),
        }
    }

    /// Polls one ready task. `false` when none is ready.
    ///
    /// A panic of the task passes through; the task then counts as ended (its handle says `Aborted`) and the
    /// executor can go on.
    pub fn poll_one(&mut self) -> bool {
        while let Some(id) = self.inner.ready.pop(&mut self.order) {
            // An ended task may still be queued when it woke itself in its last poll.
            let Some(mut task) = self.inner.take(id) else {
                continue;
            };
            task.shared.begin_poll();
            let mut retire = RetireOnDrop {
                inner: &self.inner,
                id: Some(id),
            };
            let poll = task
                .future
                .as_mut()
                .poll(&mut Context::from_waker(&task.waker));
            if poll.is_pending() {
                retire.id = None;
                self.inner.put_back(id, task);
            } else {
                task.shared.end();
            }
            return true;
        }
        false
    }

    /// Polls ready tasks until none is ready; returns the number of polls.
    ///
    /// Does not return while tasks keep waking themselves; a caller with other duties uses `poll_one`.
    pub fn run_until_stalled(&mut self) -> u64 {
        let mut polls = 0;
        while self.poll_one() {
            polls += 1;
        }
        polls
    }

    /// Number of tasks that have not ended.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.inner.live_count.get()
    }

    /// Number of entries in the ready queue.
    #[must_use]
    pub fn ready_count(&self) -> usize {
        self.inner.ready.count()
    }

    /// Sets the hook that `begin_wait` arms. It may be called from any thread and must not block.
    pub fn set_notifier(&self, notifier: impl Fn() + Send + Sync + 'static) {
        self.inner.ready.set_notifier(Box::new(notifier));
    }

    /// To be called before the thread blocks. `true`: nothing is ready, and the first wake from now on calls the
    /// notifier, once. `false`: something is ready, do not block.
    #[must_use]
    pub fn begin_wait(&self) -> bool {
        self.inner.ready.begin_wait()
    }

    /// To be called after the thread has blocked: wakes no longer call the notifier.
    pub fn end_wait(&self) {
        self.inner.ready.end_wait();
    }
}

impl<O: Order> Drop for Executor<O> {
    fn drop(&mut self) {
        self.inner.close();
    }
}

/// Retires a task after its last poll, also when that poll panicked.
struct RetireOnDrop<'a> {
    inner: &'a LiveTasks,
    id: Option<TaskId>,
}

impl Drop for RetireOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.inner.retire(id);
        }
    }
}

/// Spawns tasks on an executor; clones are cheap. Stays valid after the executor is gone, but then drops what it gets.
#[derive(Clone)]
pub struct Spawner {
    inner: Rc<LiveTasks>,
}

impl Spawner {
    /// Adds a task; it is first polled by a later `poll_one`. After the executor's end the future is dropped at
    /// once and the handle says `Aborted`.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.inner.spawn(future)
    }
}

/// Lets every other ready task be polled once (with `Fifo`) before it goes on.
pub async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests;
