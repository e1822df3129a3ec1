//! Time by the processor's own counter, a reading of which costs a third of what the operating system's clock does.
//!
//! The operating system's monotonic clock stays the truth. It is asked once a millisecond, and in between the counter
//! says how much has passed since. How fast the counter runs is learned from two readings of both; until they lie far
//! enough apart the operating system is asked each time, so that nothing waits for it at start.
//!
//! Invariants:
//! - time never goes back;
//! - the counter is believed for [`TRUSTED_NS`] at most. What befalls it (a virtual machine that is moved, a computer
//!   that sleeps) is forgotten then, and its rate is learned anew;
//! - it is believed only where the kernel itself keeps time by it: there it runs evenly, and alike on all processors.

use std::cell::Cell;
use std::sync::OnceLock;
use std::time::Instant;

/// For how long the counter is believed without asking the operating system, nanoseconds.
const TRUSTED_NS: u64 = 1_000_000;

/// Two readings of both must lie this far apart for the rate: to take a pair lasts a 20,000th of it.
const BASELINE_NS: u64 = 2_000_000;

/// After this the rate is learned from a newer pair, because the operating system's clock is itself steered, by up to
/// 500 in a million.
const BASELINE_LONGEST_NS: u64 = 1_000_000_000;

/// Taking a pair lasted longer than this: it was interrupted, and its halves are too far apart to learn from.
const INTERRUPTED_TICKS: u64 = 2_000;

/// A rate that differs by more than one in this many from the one before is another counter's.
const STEADY_ONE_IN: u64 = 512;

/// Nanoseconds since it was made. Each thread has its own.
pub(crate) struct TickClock {
    start: Instant,
    has_counter: bool,
    counting: Counting,
    latest_ns: Cell<u64>,
}

impl TickClock {
    /// Begins at zero.
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
            has_counter: is_kernels_clock(),
            counting: Counting::default(),
            latest_ns: Cell::new(0),
        }
    }

    /// Nanoseconds since the clock was made; never less than it said before.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        let ns = if self.has_counter {
            let counted = self.counting.ns_at(ticks());
            counted.unwrap_or_else(|| self.ask())
        } else {
            self.system_ns()
        };
        let latest = self.latest_ns.get().max(ns);
        self.latest_ns.set(latest);
        latest
    }

    /// The operating system's time, from which the counter goes on.
    #[cold]
    fn ask(&self) -> u64 {
        let before = ticks();
        let ns = self.system_ns();
        let after = ticks();
        if after.wrapping_sub(before) <= INTERRUPTED_TICKS {
            self.counting.learn(Pair { ns, ticks: after });
        }
        ns
    }

    fn system_ns(&self) -> u64 {
        // 2^64 ns are 584 years of uptime.
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Both clocks at the same time.
#[derive(Clone, Copy)]
struct Pair {
    ns: u64,
    ticks: u64,
}

/// What is known of the counter. All zeroes: nothing.
#[derive(Default)]
struct Counting {
    /// From here the counter goes on.
    anchor_ns: Cell<u64>,
    anchor_ticks: Cell<u64>,
    /// So many ticks of it are believed; none while the rate is not known.
    trusted_ticks: Cell<u64>,
    /// Nanoseconds for 2^32 ticks.
    rate: Cell<u64>,
    /// Where learning the rate began.
    base: Cell<Option<Pair>>,
}

impl Counting {
    /// The time at this reading of the counter; `None` when the operating system is to be asked.
    #[inline]
    fn ns_at(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.anchor_ticks.get());
        // Fewer than 2^20 ns, so that the product has room: `trusted_ticks` comes from the rate.
        (passed < self.trusted_ticks.get())
            .then(|| self.anchor_ns.get() + ((passed * self.rate.get()) >> 32))
    }

    /// A pair of readings was taken.
    fn learn(&self, pair: Pair) {
        let Some(base) = self.base.get() else {
            return self.begin_at(pair);
        };
        let passed_ns = pair.ns.saturating_sub(base.ns);
        if passed_ns >= BASELINE_NS {
            let passed_ticks = pair.ticks.wrapping_sub(base.ticks);
            let Some(rate) = self.steady_rate(passed_ns, passed_ticks) else {
                return self.begin_at(pair);
            };
            self.rate.set(rate);
            self.trusted_ticks.set((TRUSTED_NS << 32) / rate);
            if passed_ns >= BASELINE_LONGEST_NS {
                self.base.set(Some(pair));
            }
        }
        self.anchor_ns.set(pair.ns);
        self.anchor_ticks.set(pair.ticks);
    }

    /// The rate between two pairs; `None` when the counter cannot have run like this.
    fn steady_rate(&self, passed_ns: u64, passed_ticks: u64) -> Option<u64> {
        let rate = (u128::from(passed_ns) << 32).checked_div(u128::from(passed_ticks))?;
        // A counter that went back has passed nearly 2^64 ticks; one of less than 1 MHz is none that a processor has.
        let rate = u64::try_from(rate)
            .ok()
            .filter(|rate| (1..1 << 42).contains(rate))?;
        let known = self.rate.get();
        (known == 0 || rate.abs_diff(known) <= known / STEADY_ONE_IN).then_some(rate)
    }

    /// Nothing is known but this pair.
    fn begin_at(&self, pair: Pair) {
        self.base.set(Some(pair));
        self.rate.set(0);
        self.trusted_ticks.set(0);
    }
}

/// The processor's counter.
#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: the instruction reads a counter, touches no memory, and is part of every x86-64 processor. Where a
    // process is forbidden it, the kernel's own clock in user space, which is the condition for asking
    // (`is_kernels_clock`), would not work either.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// There is none that would be asked.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    0
}

/// The kernel keeps time by the counter. It does where it found the counter even and alike on all processors, and it
/// goes on watching it.
fn is_kernels_clock() -> bool {
    const PATH: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        cfg!(target_arch = "x86_64")
            && std::fs::read_to_string(PATH).is_ok_and(|name| name.trim_end() == "tsc")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter of 2 GHz that stood at this when the clock began.
    const FIRST_TICKS: u64 = 77_000_000_000;

    fn at(ns: u64) -> Pair {
        let ticks = FIRST_TICKS + 2 * ns;
        Pair { ns, ticks }
    }

    /// One that knows the rate, its anchor at 3 ms.
    fn learned() -> Counting {
        let counting = Counting::default();
        counting.learn(at(0));
        counting.learn(at(3_000_000));
        counting
    }

    #[test]
    fn the_counter_goes_on_from_the_last_reading_of_the_system_for_a_millisecond() {
        let counting = learned();
        assert_eq!(counting.ns_at(at(3_000_000).ticks), Some(3_000_000));
        let almost = counting.ns_at(at(3_999_000).ticks).expect("trusted");
        assert!(almost.abs_diff(3_999_000) <= 1, "{almost}");
        assert_eq!(counting.ns_at(at(4_001_000).ticks), None, "too long ago");
        counting.learn(at(9_000_000));
        let later = counting.ns_at(at(9_500_000).ticks).expect("trusted again");
        assert!(later.abs_diff(9_500_000) <= 1, "{later}");
    }

    #[test]
    fn nothing_is_counted_before_the_rate_is_known() {
        let counting = Counting::default();
        assert_eq!(counting.ns_at(FIRST_TICKS), None);
        counting.learn(at(0));
        assert_eq!(counting.ns_at(at(10).ticks), None, "one pair");
        counting.learn(at(BASELINE_NS - 1));
        assert_eq!(counting.ns_at(at(BASELINE_NS).ticks), None, "too near");
    }

    #[test]
    fn a_counter_that_jumped_is_not_believed_and_its_rate_is_learned_anew() {
        for jumped in [5, u64::MAX / 2, FIRST_TICKS + 90_000_000] {
            let counting = learned();
            let moved = |ns: u64| Pair {
                ns,
                ticks: jumped.wrapping_add(ns),
            };
            counting.learn(moved(8_000_000));
            assert_eq!(counting.ns_at(moved(8_000_010).ticks), None, "{jumped}");
            counting.learn(moved(11_000_000));
            let later = counting.ns_at(moved(11_000_500).ticks).expect("learned");
            assert!(later.abs_diff(11_000_500) <= 1, "{jumped}: {later}");
        }
    }

    #[test]
    fn a_system_clock_that_is_steered_is_followed() {
        let counting = learned();
        // The system's clock runs 100 in a million faster than the counter says, for ten seconds.
        let steered = |ms: u64| Pair {
            ns: ms * 1_000_100,
            ticks: at(ms * 1_000_000).ticks,
        };
        for ms in 4..10_000 {
            counting.learn(steered(ms));
        }
        let (from, to) = (steered(9_999), steered(10_000));
        let counted = counting.ns_at(to.ticks - 2_000).expect("trusted") - from.ns;
        assert!(counted.abs_diff(1_000_100 - 1_000) <= 2, "{counted}");
    }

    #[test]
    fn time_never_goes_back_and_stays_beside_the_systems() {
        let clock = TickClock::new();
        let mut last = 0;
        loop {
            let before = clock.system_ns();
            let now = clock.now_ns();
            assert!(now >= last);
            last = now;
            // A pair is taken within two microseconds of a slow processor, and the rate is off by as much at most.
            assert!(now + 5_000 >= before, "{now} is behind {before}");
            if now > 20_000_000 {
                break;
            }
        }
    }
}
