//! The real world: one thread with an io_uring or a thread pool below it, files, block devices, sockets, timers, locks.
//!
//! Invariants:
//! - everything here but `mailbox` stays on the thread that made the `Runtime`;
//! - both reactors behave alike; only their speed differs;
//! - no task keeps the thread for itself: work that is done inline is charged to a budget for each turn of the loop.

mod blockdev;
pub mod clock;
pub mod durable;
mod event;
pub mod file;
mod kernel;
pub mod lock;
pub use plexum_exec::mailbox;
mod op;
mod open;
mod options;
pub mod process;
mod processors;
pub mod signals;
pub mod socket;
mod threads;
mod ticks;
pub mod ublk;
pub mod uevent;
mod uring;
pub mod users;
pub mod vhost;
mod wait;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use plexum_block::clock::Moment;
pub use plexum_exec::{Aborted, JoinHandle, yield_now};
use plexum_exec::{Executor, Fifo, Spawner};
pub use wait::Waits;

use clock::{RealClock, Timers};
use event::EventFd;
use op::Slots;
use threads::Threads;
use uring::Uring;
use wait::Waiting;

/// Polls of tasks between two looks at the reactor: enough to submit in batches, few enough to stay responsive.
const POLLS_PER_TURN_MAX: usize = 128;

/// Bytes that all tasks together may move inline (memory speed, about 1 ms) between two looks at the reactor.
const INLINE_BYTES_PER_TURN: usize = 4 << 20;

/// What an inline call costs beside its bytes, in bytes: about the time of one system call.
const INLINE_CALL_BYTES: usize = 4 << 10;

/// A thread that has copied so much without a rest leaves large copies to others. It is more than one request of a
/// client that waits for each answer mostly takes: other threads would have to be woken for that one, which lasts
/// longer than its copies.
const RESTLESS_BYTES: usize = 512 << 10;

/// Which reactor is wanted (`--io`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring where the kernel allows it, otherwise threads.
    #[default]
    Auto,
    /// io_uring or nothing.
    Uring,
    /// The thread pool.
    Threads,
}

/// Which reactor runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoKind {
    /// An io_uring.
    Uring,
    /// A pool of threads for files, `poll` for sockets.
    Threads,
}

impl std::fmt::Display for IoKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            IoKind::Uring => "uring",
            IoKind::Threads => "threads",
        })
    }
}

/// What runs, and why: for `status` and for the one warning line of a fallback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoStatus {
    /// The reactor in use.
    pub kind: IoKind,
    /// Why `Auto` did not take io_uring.
    pub fallback_reason: Option<String>,
}

/// Why a runtime could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// `IoChoice::Uring` was asked for and the kernel refuses it.
    #[error("io_uring cannot be used here: {0}; use --io=auto or --io=threads")]
    Uring(std::io::Error),
    /// The process is out of file descriptors or memory.
    #[error("cannot start the I/O threads: {0}; look at the limits of open files and of memory")]
    Resources(std::io::Error),
}

/// How long the reactor may block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    No,
    /// Until an event comes or the time is over (`None`: for ever).
    Until(Option<Duration>),
}

#[allow(clippy::large_enum_variant)] // there is one, in an Rc
pub(crate) enum Reactor {
    Uring(Uring),
    Threads(Threads),
}

/// What a runtime's thread shares: reactor, I/O slots, timers.
pub(crate) struct Core {
    reactor: Reactor,
    /// The ring has served a device of the kernel: see [`ublk`].
    has_devices: Cell<bool>,
    slots: RefCell<Slots>,
    timers: RefCell<Timers>,
    status: IoStatus,
    turn: Turn,
    /// What was copied inline since the thread last had nothing to do.
    restless_bytes: Cell<usize>,
    waiting: Waiting,
    /// Nothing is written to members.
    is_rehearsal: Cell<bool>,
}

/// The inline budget of the current turn and who waits for the next one.
#[derive(Default)]
struct Turn {
    number: Cell<u64>,
    spent_bytes: Cell<usize>,
    waiters: RefCell<Vec<Waker>>,
}

impl Turn {
    fn spend(&self, length_bytes: usize) {
        let cost_bytes = length_bytes.saturating_add(INLINE_CALL_BYTES);
        let spent_bytes = self.spent_bytes.get();
        self.spent_bytes.set(spent_bytes.saturating_add(cost_bytes));
    }
}

impl Core {
    /// The time of this runtime's clock.
    fn now(&self) -> Moment {
        self.timers.borrow().now()
    }

    /// To be awaited before moving `length_bytes` inline: returns at once while the turn has budget, otherwise in
    /// the next turn. Without it a task that never has to wait (tmpfs, a flooding peer) would starve all others.
    pub(crate) async fn charge(&self, length_bytes: usize) {
        let turn = &self.turn;
        if turn.spent_bytes.get() >= INLINE_BYTES_PER_TURN {
            let number = turn.number.get();
            std::future::poll_fn(|context| {
                if turn.number.get() != number {
                    return Poll::Ready(());
                }
                turn.waiters.borrow_mut().push(context.waker().clone());
                Poll::Pending
            })
            .await;
        }
        turn.spend(length_bytes);
    }

    /// So much was copied between a file in memory and a buffer by this thread.
    pub(crate) fn note_copied(&self, length_bytes: usize) {
        let copied_bytes = self.restless_bytes.get().saturating_add(length_bytes);
        self.restless_bytes.set(copied_bytes);
    }

    /// Whether this thread has copied so much without a rest that others had better do some of it.
    pub(crate) fn is_restless(&self) -> bool {
        self.restless_bytes.get() >= RESTLESS_BYTES
    }

    /// The thread has nothing to do, unless something has come by now or transfers that it started are under way.
    fn note_rest(&self) {
        let has_event = matches!(&self.reactor, Reactor::Uring(ring) if ring.has_event());
        if !has_event && self.slots.borrow().running_transfers() == 0 {
            self.restless_bytes.set(0);
        }
    }

    fn begin_turn(&self) {
        self.turn.number.set(self.turn.number.get() + 1);
        self.turn.spent_bytes.set(0);
        let waiters = self.turn.waiters.take();
        waiters.into_iter().for_each(Waker::wake);
    }

    fn enter(&self, wait: Wait) {
        match &self.reactor {
            Reactor::Uring(ring) => ring.enter(wait),
            Reactor::Threads(threads) => threads.enter(wait, &self.slots),
        }
    }

    fn reap(&self) {
        match &self.reactor {
            Reactor::Uring(ring) => ring.reap(&self.slots),
            Reactor::Threads(threads) => threads.reap(&self.slots),
        }
    }
}

/// Longest time that the end of a runtime waits for the next completion of I/O in flight.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

impl Drop for Core {
    /// Lets transfers in flight end, because they use the memory of their slots.
    fn drop(&mut self) {
        if let Reactor::Uring(ring) = &self.reactor
            && self.has_devices.get()
        {
            ring.close_with_process();
        }
        for key in self.slots.borrow().waiting_for_readiness() {
            if let Reactor::Uring(ring) = &self.reactor {
                ring.cancel(key);
            }
        }
        let mut running = self.slots.borrow().running_transfers();
        let mut last_progress = Instant::now();
        while running > 0 {
            let waited = last_progress.elapsed();
            if waited > SHUTDOWN_PATIENCE {
                self.leak();
                return;
            }
            self.enter(Wait::Until(Some(SHUTDOWN_PATIENCE - waited)));
            self.reap();
            let left = self.slots.borrow().running_transfers();
            if left < running {
                last_progress = Instant::now();
            }
            running = left;
        }
    }
}

impl Core {
    /// A member hangs: its I/O may still come back and write to the memory of its slot, which must stay as it is.
    fn leak(&self) {
        std::mem::forget(self.slots.take());
    }
}

/// A thread's event loop: tasks, timers, files and sockets.
pub struct Runtime {
    executor: Executor<Fifo>, // dropped first: its futures still use the core
    handle: Handle,
}

/// What a task needs from its runtime; clones are cheap.
#[derive(Clone)]
pub struct Handle {
    pub(crate) core: Rc<Core>,
    spawner: Spawner,
}

impl Handle {
    /// Starts a task. A panic in it ends only the task (its handle says `Aborted`).
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.spawner.spawn(future)
    }

    /// The clock of this runtime.
    #[must_use]
    pub fn clock(&self) -> RealClock {
        RealClock::new(Rc::clone(&self.core))
    }

    /// How long the thread looks for an event awake before it sleeps, when one is expected; zero at first: it never
    /// does. To be of use it is about what a sleep and its end cost (tens of microseconds), and there is more than one
    /// processor.
    pub fn set_spin(&self, limit: Duration) {
        self.core.waiting.set_spin(limit);
    }

    /// The next event is near: a client's only request has just been answered. A hint for the next wait alone.
    pub fn expect_soon(&self) {
        self.core.waiting.expect_soon();
    }

    /// From now on members are opened and locked as ever, and writes to them are answered as done, but no byte of them
    /// changes: a dry run meets all that the real thing would meet up to its first write.
    pub fn rehearse(&self) {
        self.core.is_rehearsal.set(true);
    }

    /// Whether `rehearse` was called.
    #[must_use]
    pub fn is_rehearsal(&self) -> bool {
        self.core.is_rehearsal.get()
    }

    /// Which reactor runs and why.
    #[must_use]
    pub fn status(&self) -> &IoStatus {
        &self.core.status
    }
}

impl Runtime {
    /// A runtime for the calling thread.
    ///
    /// # Errors
    /// `Uring` only for `IoChoice::Uring`; `Auto` falls back and says why in `status`.
    pub fn new(choice: IoChoice) -> Result<Self, StartError> {
        static ONCE: Once = Once::new();
        ONCE.call_once(signals::survive_file_size_limit);
        let wake = Arc::new(EventFd::new().map_err(StartError::Resources)?);
        let mut fallback_reason = None;
        let ring = match choice {
            IoChoice::Threads => None,
            IoChoice::Uring => Some(Uring::new(Arc::clone(&wake)).map_err(StartError::Uring)?),
            IoChoice::Auto => match Uring::new(Arc::clone(&wake)) {
                Ok(ring) => Some(ring),
                Err(error) => {
                    fallback_reason = Some(format!("io_uring cannot be used here: {error}"));
                    None
                }
            },
        };
        let (reactor, kind) = match ring {
            Some(ring) => (Reactor::Uring(ring), IoKind::Uring),
            None => {
                let threads = Threads::new(Arc::clone(&wake));
                (Reactor::Threads(threads), IoKind::Threads)
            }
        };
        let executor = Executor::new(Fifo);
        executor.set_notifier(move || wake.signal());
        let core = Core {
            has_devices: Cell::new(false),
            reactor,
            slots: RefCell::default(),
            timers: RefCell::default(),
            status: IoStatus {
                kind,
                fallback_reason,
            },
            turn: Turn::default(),
            restless_bytes: Cell::new(0),
            waiting: Waiting::default(),
            is_rehearsal: Cell::new(false),
        };
        let handle = Handle {
            core: Rc::new(core),
            spawner: executor.spawner(),
        };
        Ok(Self { executor, handle })
    }

    /// A handle for tasks.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `future` and all spawned tasks until `future` is ready. Spawned tasks stay and go on in the next call.
    ///
    /// # Panics
    /// When `future` panics.
    pub fn block_on<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        // A task stands for `future`: its waker queues the task, and the task's poll asks for a poll of `future`.
        let gate = Rc::new(Gate::default());
        let proxy = Rc::clone(&gate);
        let _detached = self.executor.spawn(std::future::poll_fn(move |context| {
            proxy.pass(context.waker())
        }));
        loop {
            let mut polls = 0;
            loop {
                // Before a turn, which may sleep: a future that was woken is not in the queue of tasks.
                if !gate.is_woken.replace(false) {
                    polls += 1;
                    if polls <= POLLS_PER_TURN_MAX && self.poll_one() {
                        continue;
                    }
                    break;
                }
                let waker = gate.waker.borrow().clone();
                let waker = waker.expect("the proxy was polled");
                self.handle.core.timers.borrow().begin_poll();
                let poll = future.as_mut().poll(&mut Context::from_waker(&waker));
                if let Poll::Ready(output) = poll {
                    gate.is_done.set(true);
                    waker.wake();
                    return output;
                }
            }
            self.turn();
        }
    }

    /// Polls one task; a panic ends that task only (the panic hook has printed it).
    fn poll_one(&mut self) -> bool {
        self.handle.core.timers.borrow().begin_poll();
        // Unwind safety: the executor retires a task that panicked; what the task shared with others is guarded
        // by its own destructors, as with any early return.
        catch_unwind(AssertUnwindSafe(|| self.executor.poll_one())).unwrap_or(true)
    }

    fn turn(&mut self) {
        let core = &*self.handle.core;
        core.begin_turn();
        let has_slept = if self.executor.begin_wait() {
            core.note_rest();
            let until_next = core.timers.borrow().until_next();
            core.wait(until_next)
        } else {
            core.enter(Wait::No);
            false
        };
        self.executor.end_wait(); // from here on this thread looks by itself
        core.reap();
        core.timers.borrow().begin_turn();
        let due = core.timers.borrow_mut().take_due();
        if has_slept && !due.is_empty() {
            core.waiting.note_timer();
        }
        due.into_iter().for_each(Waker::wake);
    }
}

/// Joins the future of `block_on` to its task in the executor.
#[derive(Default)]
struct Gate {
    is_woken: Cell<bool>,
    is_done: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Gate {
    fn pass(&self, waker: &Waker) -> Poll<()> {
        if self.is_done.get() {
            return Poll::Ready(());
        }
        self.waker.borrow_mut().get_or_insert_with(|| waker.clone());
        self.is_woken.set(true);
        Poll::Pending
    }
}
