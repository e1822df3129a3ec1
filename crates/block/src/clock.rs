//! Time as the engine sees it: a monotonic clock for delays and rates, a wall clock only for what is displayed or
//! stored.

use std::time::Duration;

/// Nanoseconds since an arbitrary start; never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// Nanoseconds passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    #[inline]
    pub fn ns_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The engine's only source of time. The simulator's clock is virtual.
#[allow(async_fn_in_trait)] // one thread owns a shard; its futures are never sent
pub trait Clock: 'static {
    /// Monotonic now.
    fn now(&self) -> Moment;

    /// When the present step of work began, or shortly before: for what begins now. A reading that somebody took just
    /// before may be given again, because a reading costs as much as a tenth of a read from memory; never for when
    /// something ended.
    #[inline]
    fn recent(&self) -> Moment {
        self.now()
    }

    /// Seconds since 1970, for superblock times. May jump; nothing is decided by it.
    fn wall_seconds(&self) -> u64;

    /// Returns after `duration`. A dropped future leaves nothing behind.
    async fn sleep(&self, duration: Duration);
}

impl<T: Clock + ?Sized> Clock for std::rc::Rc<T> {
    fn now(&self) -> Moment {
        (**self).now()
    }
    fn recent(&self) -> Moment {
        (**self).recent()
    }
    fn wall_seconds(&self) -> u64 {
        (**self).wall_seconds()
    }
    async fn sleep(&self, duration: Duration) {
        (**self).sleep(duration).await;
    }
}
