//! Where a stretch of a volume is, by its organisation.

use plexum_layout::{CopyMap, Place};

/// Where a stretch of a volume is, up to the end of its strip.
pub(crate) enum Spot<'a> {
    /// In one place.
    Flat(Place),
    /// On several members.
    Copies(CopyMap<'a>),
    /// In a row with parity: the strip `index`, from `start` on.
    Row {
        row: u64,
        index: usize,
        start: u64,
        length_bytes: u64,
    },
}

impl Spot<'_> {
    pub(crate) fn length_bytes(&self) -> u64 {
        match self {
            Spot::Flat(place) => place.length_bytes,
            Spot::Copies(map) => map.length_bytes,
            Spot::Row { length_bytes, .. } => *length_bytes,
        }
    }
}
