//! Members that come back by themselves, and how often they may.

use std::collections::BTreeMap;
use std::time::Duration;

use plexum_block::clock::Moment;

/// A member is taken back by itself so often at most, within so long.
const RETURNS_MAX: usize = 3;
const RETURNS_WITHIN: Duration = Duration::from_secs(600);

/// When members of a volume were taken back, by slot.
#[derive(Default)]
pub(super) struct Returns(BTreeMap<u32, Vec<Moment>>);

impl Returns {
    /// Whether a member may be taken back now, which is noted: one that comes and goes wears out the others.
    pub(super) fn may(&mut self, slot: u32, now: Moment) -> bool {
        let times = self.0.entry(slot).or_default();
        let age = |time: &Moment| Duration::from_nanos(now.ns_since(*time));
        times.retain(|time| age(time) < RETURNS_WITHIN);
        if times.len() >= RETURNS_MAX {
            return false;
        }
        times.push(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_that_comes_and_goes_is_left_alone_after_the_third_return() {
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        let mut returns = Returns::default();
        let told: Vec<bool> = (0..5).map(|n| returns.may(1, at(n * 60))).collect();
        assert_eq!(told, [true, true, true, false, false]);
        assert!(returns.may(2, at(300)), "another slot counts for itself");
        assert!(returns.may(1, at(601)), "the first return is long ago");
        assert!(!returns.may(1, at(602)));
    }
}
