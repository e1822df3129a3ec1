//! Writes that a member had no space for: how many, when the last one was, and whether it is news.

use std::cell::Cell;
use std::time::Duration;

use plexum_block::clock::Moment;

/// Refusals that come sooner one after the other are told once.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// What a member has refused for want of space.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    count: Cell<u64>,
    last: Cell<Option<Moment>>,
    told: Cell<Option<Moment>>,
}

impl Refusals {
    /// One more. Whether somebody should hear of it.
    pub(crate) fn note(&self, now: Moment) -> bool {
        self.count.set(self.count.get() + 1);
        self.last.set(Some(now));
        let told = self.told.get();
        let is_news = told.is_none_or(|told| now.since(told) >= TOLD_EVERY);
        if is_news {
            self.told.set(Some(now));
        }
        is_news
    }

    /// How many there were, and when the last one was.
    pub(crate) fn seen(&self) -> (u64, Option<Moment>) {
        (self.count.get(), self.last.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_all_counted_and_told_once_a_minute() {
        let refusals = Refusals::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        assert!(refusals.note(at(5)));
        assert!(!refusals.note(at(6)));
        assert!(!refusals.note(at(64)));
        assert!(refusals.note(at(65)));
        assert_eq!(refusals.seen(), (4, Some(at(65))));
    }
}
