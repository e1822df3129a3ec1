//! Hands of a simulated volume: what they are given is done at a drawn moment, in any order, and now and then not at all.

use std::cell::RefCell;
use std::time::Duration;

use plexum_engine::background::hands::{Hands, Work};
use plexum_engine::clock::Clock;
use plexum_exec::Spawner;

use crate::clock::SimClock;
use crate::rng::Rng;
use crate::subject::Context;

/// Longest time of a step.
const TIME_MAX: Duration = Duration::from_millis(20);

/// One in so many steps is dropped.
const DROPS_ONE_IN: u64 = 32;

/// Tasks in the place of threads.
pub struct SimHands {
    count: usize,
    clock: SimClock,
    spawner: Spawner,
    rng: RefCell<Rng>,
}

impl SimHands {
    /// As many as the context says.
    #[must_use]
    pub fn new(context: &Context, spawner: &Spawner) -> Self {
        Self {
            count: context.hands,
            clock: context.clock.clone(),
            spawner: spawner.clone(),
            rng: RefCell::new(Rng::new(context.seed).fork(31)),
        }
    }
}

impl Hands for SimHands {
    fn count(&self) -> usize {
        self.count
    }

    fn give(&self, work: Work) {
        let mut rng = self.rng.borrow_mut();
        if rng.below(DROPS_ONE_IN) == 0 {
            return;
        }
        let longest_ns = u64::try_from(TIME_MAX.as_nanos()).unwrap_or(u64::MAX);
        let time = Duration::from_nanos(rng.below(longest_ns));
        let clock = self.clock.clone();
        let _detached = self.spawner.spawn(async move {
            clock.sleep(time).await;
            work();
        });
    }
}
