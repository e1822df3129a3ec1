//! Virtual time: one executor and one clock. Nothing sleeps; when no task is ready, time jumps to the next event.
//!
//! Invariants:
//! - the same experiment with the same seed gives the same times, byte for byte;
//! - `run` ends when its future has ended, whatever background tasks still wait for.

use std::cell::RefCell;
use std::future::Future;

use plexum_engine::buf::BufPool;
use plexum_exec::{Executor, Fifo, JoinHandle, Spawner};
use plexum_sim::clock::SimClock;

/// Memory that the buffers of a world may keep, in bytes.
const POOL_BYTES: usize = 64 << 20;

/// A world of its own: executor, clock, buffers.
pub struct World {
    executor: RefCell<Executor<Fifo>>,
    spawner: Spawner,
    clock: SimClock,
    pool: BufPool,
}

/// Every task waits for something that never comes: a bug of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled;

impl std::fmt::Display for Stalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the experiment waits for something that never comes")
    }
}

impl std::error::Error for Stalled {}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl World {
    /// A world at time zero.
    #[must_use]
    pub fn new() -> Self {
        let executor = Executor::new(Fifo);
        Self {
            spawner: executor.spawner(),
            executor: RefCell::new(executor),
            clock: SimClock::new(),
            pool: BufPool::new(POOL_BYTES),
        }
    }

    /// Its clock.
    #[must_use]
    pub fn clock(&self) -> &SimClock {
        &self.clock
    }

    /// Its buffers.
    #[must_use]
    pub fn pool(&self) -> &BufPool {
        &self.pool
    }

    /// Adds a task.
    pub fn spawn<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        self.spawner.spawn(future)
    }

    /// Spawns tasks from inside of tasks.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Runs until `future` has ended. Not to be called from inside of it.
    ///
    /// # Errors
    /// `Stalled` when nothing can happen any more and it has not.
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Result<T, Stalled> {
        let handle = self.spawn(future);
        let mut executor = self.executor.borrow_mut();
        loop {
            while executor.poll_one() {
                if handle.is_finished() {
                    return handle.try_take().ok_or(Stalled);
                }
            }
            if !self.clock.advance() {
                return Err(Stalled);
            }
        }
    }
}
