//! Transaction groups that a member missed.

use std::ops::Range;

use crate::spans::Spans;

/// What a member missed.
#[derive(Clone, Debug, Default)]
pub(crate) struct MissedTxgs {
    pub txgs: Spans,
    /// The object that says so; 0: none yet.
    pub object: u64,
    /// Whether it says something else.
    pub is_changed: bool,
}

impl MissedTxgs {
    /// Adds transaction groups, whether they are in it already or not.
    pub fn add(&mut self, range: Range<u64>) {
        let known: u64 = self
            .txgs
            .within(&range)
            .iter()
            .map(|part| part.end - part.start)
            .sum();
        if known == range.end - range.start {
            return;
        }
        for part in self.txgs.within(&range) {
            let _ = self.txgs.take(part);
        }
        let _ = self.txgs.add(range);
        self.is_changed = true;
    }

    /// Takes transaction groups out that it has now; `false`: none of them was missed.
    pub fn remove(&mut self, given: &[Range<u64>]) -> bool {
        let parts: Vec<Range<u64>> = given
            .iter()
            .flat_map(|range| self.txgs.within(range))
            .collect();
        for part in &parts {
            let _ = self.txgs.take(part.clone());
        }
        self.is_changed |= !parts.is_empty();
        !parts.is_empty()
    }
}
