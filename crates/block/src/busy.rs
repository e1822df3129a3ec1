//! Time with at least one request under way: requests that overlap count once.
//!
//! Invariants:
//! - a request that has begun ends once, also when whoever waited for it is dropped;
//! - no time counts twice, even when a request says that it began before the last one ended;
//! - requests give the clock readings that they take anyway; only one that is dropped costs another.

use std::cell::Cell;

use crate::clock::{Clock, Moment};

/// How long at least one request was under way, and how many are now.
#[derive(Debug, Default)]
pub struct BusyTime {
    under_way: Cell<u32>,
    /// When the present span began; while nothing is under way, when the last one ended.
    since: Cell<Moment>,
    done_ns: Cell<u64>,
}

/// A request under way.
pub struct UnderWay<'a, C: Clock> {
    busy: &'a BusyTime,
    clock: &'a C,
}

impl BusyTime {
    /// A request begins at `started`, which is now.
    #[inline]
    pub fn begin<'a, C: Clock>(&'a self, clock: &'a C, started: Moment) -> UnderWay<'a, C> {
        let under_way = self.under_way.get();
        if under_way == 0 {
            self.since.set(self.since.get().max(started));
        }
        self.under_way.set(under_way + 1);
        UnderWay { busy: self, clock }
    }

    /// A request was under way from `started` to `ended`, which is now, and nobody could have asked meanwhile.
    #[inline]
    pub fn note(&self, started: Moment, ended: Moment) {
        if self.under_way.get() == 0 {
            let since = self.since.replace(ended).max(started);
            self.done_ns.set(self.done_ns.get() + ended.ns_since(since));
        }
    }

    #[inline]
    fn end(&self, ended: Moment) {
        let under_way = self.under_way.get() - 1;
        self.under_way.set(under_way);
        if under_way == 0 {
            let span_ns = ended.0.saturating_sub(self.since.replace(ended).0);
            self.done_ns.set(self.done_ns.get() + span_ns);
        }
    }

    /// Requests under way.
    pub fn under_way(&self) -> u32 {
        self.under_way.get()
    }

    /// Nanoseconds with something under way, up to `now`.
    pub fn until_ns(&self, now: Moment) -> u64 {
        let present = match self.under_way.get() {
            0 => 0,
            _ => now.0.saturating_sub(self.since.get().0),
        };
        self.done_ns.get() + present
    }
}

impl<C: Clock> UnderWay<'_, C> {
    /// It has ended, now.
    #[inline]
    pub fn end(self, ended: Moment) {
        self.busy.end(ended);
        std::mem::forget(self);
    }
}

impl<C: Clock> Drop for UnderWay<'_, C> {
    fn drop(&mut self) {
        self.busy.end(self.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says what it is told to.
    #[derive(Default)]
    struct Told(Cell<u64>);

    impl Clock for Told {
        fn now(&self) -> Moment {
            Moment(self.0.get())
        }
        fn wall_seconds(&self) -> u64 {
            0
        }
        async fn sleep(&self, _duration: std::time::Duration) {}
    }

    #[test]
    fn requests_that_overlap_count_once_and_the_pause_between_two_does_not() {
        let (busy, clock) = (BusyTime::default(), Told::default());
        let first = busy.begin(&clock, Moment(10));
        let second = busy.begin(&clock, Moment(20));
        assert_eq!((busy.under_way(), busy.until_ns(Moment(25))), (2, 15));
        first.end(Moment(30));
        second.end(Moment(50));
        assert_eq!((busy.under_way(), busy.until_ns(Moment(90))), (0, 40));
        busy.begin(&clock, Moment(100)).end(Moment(101));
        assert_eq!(busy.until_ns(Moment(200)), 41);
    }

    #[test]
    fn a_request_that_says_it_began_earlier_counts_no_time_twice() {
        let (busy, clock) = (BusyTime::default(), Told::default());
        busy.begin(&clock, Moment(10)).end(Moment(30));
        busy.begin(&clock, Moment(15)).end(Moment(40));
        assert_eq!(busy.until_ns(Moment(40)), 30);
    }

    #[test]
    fn a_request_that_nobody_waits_for_any_more_has_ended() {
        let (busy, clock) = (BusyTime::default(), Told::default());
        let request = busy.begin(&clock, Moment(10));
        clock.0.set(60);
        drop(request);
        assert_eq!((busy.under_way(), busy.until_ns(Moment(90))), (0, 50));
    }
}
