//! How the thread waits when there is nothing to do: asleep, or awake for what is near. A thread that sleeps is woken
//! late, on a virtual machine by tens of microseconds.
//!
//! Who has answered the only request of a client mostly hears of the next one at once, and says so
//! (`Handle::expect_soon`). The wait after that looks for events awake, for as long as a sleep and its end would cost,
//! and sleeps only then. Where the last such wait was longer, the next one sleeps at once: a client that thinks costs
//! nothing.
//!
//! Looking costs no system call: the kernel sets a flag in the ring's memory (`IORING_SQ_TASKRUN`). The thread runtime
//! has no such flag and always sleeps at once.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::uring::Uring;
use crate::{Core, Reactor, Wait};

/// Looks between two readings of the clock.
const LOOKS: u32 = 16;

/// How often a runtime's thread has waited so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// It slept, and was woken.
    pub asleep: u64,
    /// Of these, what woke it was a timer that was due.
    pub for_timers: u64,
    /// It looked for events awake; mostly it did not sleep then.
    pub awake: u64,
}

/// Whether and how long a runtime waits awake.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Longest time awake; zero: never.
    limit: Cell<Duration>,
    is_expecting: Cell<bool>,
    /// The last wait with an expectation was longer than the limit.
    was_in_vain: Cell<bool>,
    counts: Cell<Waits>,
}

impl Waiting {
    pub(crate) fn set_spin(&self, limit: Duration) {
        self.limit.set(limit);
    }

    pub(crate) fn expect_soon(&self) {
        self.is_expecting.set(true);
    }

    pub(crate) fn counts(&self) -> Waits {
        self.counts.get()
    }

    fn count(&self, change: impl FnOnce(&mut Waits)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    /// The thread was woken by a timer that is due.
    pub(crate) fn note_timer(&self) {
        self.count(|counts| counts.for_timers += 1);
    }
}

impl Core {
    /// Blocks until an event comes or `time` is over (`None`: for ever); awake at first when one is expected. Says
    /// whether it has slept.
    pub(crate) fn wait(&self, time: Option<Duration>) -> bool {
        let waiting = &self.waiting;
        let is_expecting = waiting.is_expecting.replace(false);
        let limit = waiting.limit.get();
        match &self.reactor {
            Reactor::Uring(ring) if is_expecting && !limit.is_zero() => {
                self.wait_awake(ring, limit, time)
            }
            _ => self.sleep(time),
        }
    }

    fn sleep(&self, time: Option<Duration>) -> bool {
        self.waiting.count(|counts| counts.asleep += 1);
        self.enter(Wait::Until(time));
        true
    }

    fn wait_awake(&self, ring: &Uring, limit: Duration, time: Option<Duration>) -> bool {
        let waiting = &self.waiting;
        let started = Instant::now();
        let is_over = || time.is_some_and(|time| started.elapsed() >= time);
        if !waiting.was_in_vain.get() {
            waiting.count(|counts| counts.awake += 1);
            ring.enter(Wait::No);
            while !ring.has_event() && started.elapsed() < limit && !is_over() {
                (0..LOOKS).for_each(|_| std::hint::spin_loop());
            }
        }
        let has_slept = if ring.has_event() || is_over() {
            ring.enter(Wait::No);
            false
        } else {
            self.sleep(time.map(|time| time.saturating_sub(started.elapsed())))
        };
        waiting.was_in_vain.set(started.elapsed() > limit);
        has_slept
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoChoice, Runtime, mailbox::mailbox};
    use plexum_block::clock::Clock;

    const FOR_EVER: Duration = Duration::from_secs(3600);

    /// A runtime that waits awake for so long; `None` where the kernel refuses rings.
    fn runtime(limit: Duration) -> Option<Runtime> {
        let runtime = Runtime::new(IoChoice::Uring).ok()?;
        runtime.handle().set_spin(limit);
        Some(runtime)
    }

    fn sleep(runtime: &mut Runtime, is_expecting: bool) {
        let handle = runtime.handle();
        runtime.block_on(async {
            if is_expecting {
                handle.expect_soon();
            }
            handle.clock().sleep(Duration::from_millis(1)).await;
        });
    }

    #[test]
    fn a_timer_ends_a_wait_awake() {
        let Some(mut runtime) = runtime(FOR_EVER) else {
            return;
        };
        sleep(&mut runtime, true);
        sleep(&mut runtime, true);
        assert_eq!(runtime.handle().clock().waits().awake, 2);
    }

    #[test]
    fn an_event_of_another_thread_ends_a_wait_awake() {
        let Some(mut runtime) = runtime(FOR_EVER) else {
            return;
        };
        let handle = runtime.handle();
        let (sender, mut inbox) = mailbox(1);
        let heard = runtime.block_on(async {
            let other = std::thread::spawn(move || sender.send(7));
            handle.expect_soon();
            let heard = inbox.receive().await;
            other.join().expect("it ends").expect("somebody listens");
            heard
        });
        assert_eq!(heard, Some(7));
    }

    #[test]
    fn nobody_waits_awake_who_expects_nothing_or_was_told_not_to() {
        let Some(mut ready) = runtime(FOR_EVER) else {
            return;
        };
        sleep(&mut ready, false);
        assert_eq!(ready.handle().clock().waits().awake, 0);
        let Some(mut sleepy) = runtime(Duration::ZERO) else {
            return;
        };
        sleep(&mut sleepy, true);
        assert_eq!(sleepy.handle().clock().waits().awake, 0);
    }

    #[test]
    fn a_timer_that_wakes_the_thread_is_counted_as_one() {
        for choice in [IoChoice::Uring, IoChoice::Threads] {
            let Ok(mut runtime) = Runtime::new(choice) else {
                continue;
            };
            sleep(&mut runtime, false);
            let waits = runtime.handle().clock().waits();
            assert_eq!((waits.asleep, waits.for_timers), (1, 1), "{choice:?}");
        }
    }

    #[test]
    fn after_a_wait_in_vain_the_next_one_sleeps_at_once() {
        let Some(mut runtime) = runtime(Duration::from_nanos(1)) else {
            return;
        };
        sleep(&mut runtime, true);
        sleep(&mut runtime, true);
        assert_eq!(runtime.handle().clock().waits().awake, 1);
        // One that was short enough, though asleep, and the one after it is awake again.
        runtime.handle().set_spin(FOR_EVER);
        sleep(&mut runtime, true);
        assert_eq!(runtime.handle().clock().waits().awake, 1);
        sleep(&mut runtime, true);
        assert_eq!(runtime.handle().clock().waits().awake, 2);
    }
}
