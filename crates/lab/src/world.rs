//! Virtual time: one executor and one clock. Nothing sleeps; when no task is ready, time jumps to the next event.
//!
//! Invariants:
//! - the same experiment with the same seed gives the same times, byte for byte;
//! - `run` ends when its future has ended, whatever background tasks still wait for;
//! - parity is not computed while a world runs whose disks all keep metadata alone, and always outside of `run`.

use std::cell::{Cell, RefCell};
use std::future::Future;

use plexum_block::buf::BufPool;
use plexum_disks::clock::SimClock;
use plexum_exec::{Executor, Fifo, JoinHandle, Spawner};
use plexum_parity::NullKernel;

/// Whether bytes move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only metadata is kept.
    Timing,
    /// Everything is kept: the run also proves contents.
    Data,
}

/// Memory that the buffers of a world may keep, in bytes.
const POOL_BYTES: usize = 64 << 20;

/// A world of its own: executor, clock, buffers.
pub struct World {
    executor: RefCell<Executor<Fifo>>,
    spawner: Spawner,
    clock: SimClock,
    pool: BufPool,
    /// What its disks keep; data when one of them keeps data. `None`: it has no disks yet.
    mode: Cell<Option<Mode>>,
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
            mode: Cell::new(None),
        }
    }

    /// Disks of that mode belong to it from now on.
    pub(crate) fn add_disks(&self, mode: Mode) {
        if self.mode.get() != Some(Mode::Data) {
            self.mode.set(Some(mode));
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
        let is_timing = self.mode.get() == Some(Mode::Timing);
        let _no_parity = is_timing.then(NullKernel::on_this_thread);
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

#[cfg(test)]
mod tests {
    use plexum_disks::disk::mechanical_spec::DiskSpec;
    use plexum_parity::{Kernel, chosen};

    use super::*;
    use crate::array::DiskSet;
    use crate::preset;

    fn disk() -> DiskSpec {
        preset::find("ssd-sata").expect("the preset is there")
    }

    fn computes(world: &World) -> bool {
        let seen = world.run(async { chosen().kernel() }).expect("it ends");
        assert_ne!(chosen().kernel(), Kernel::Null, "never outside of a run");
        seen != Kernel::Null
    }

    #[test]
    fn parity_is_left_out_only_while_a_world_runs_that_keeps_no_data() {
        let (bare, timing, data) = (World::new(), World::new(), World::new());
        let set = DiskSet::of(&disk(), 1);
        set.make(&timing, 1, Mode::Timing).expect("a disk");
        set.make(&data, 1, Mode::Data).expect("a disk");
        assert!(computes(&bare));
        assert!(!computes(&timing));
        assert!(computes(&data));
        assert!(!computes(&timing));
    }

    #[test]
    fn one_disk_that_keeps_data_is_enough_for_parity() {
        for modes in [[Mode::Timing, Mode::Data], [Mode::Data, Mode::Timing]] {
            let world = World::new();
            for mode in modes {
                let set = DiskSet::of(&disk(), 1);
                set.make(&world, 1, mode).expect("a disk");
            }
            assert!(computes(&world));
        }
    }

    #[test]
    fn a_run_that_stalls_or_panics_leaves_nothing_behind() {
        let world = World::new();
        let set = DiskSet::of(&disk(), 1);
        set.make(&world, 1, Mode::Timing).expect("a disk");
        assert!(world.run(std::future::pending::<()>()).is_err());
        assert_ne!(chosen().kernel(), Kernel::Null);
        let world = std::panic::AssertUnwindSafe(world);
        let panicked = std::panic::catch_unwind(|| world.run(async { panic!("in between") }));
        assert!(panicked.is_err());
        assert_ne!(chosen().kernel(), Kernel::Null);
    }
}
