//! A narrow door for whoever builds something of whole volumes: plexes under a volume, two sizes of one plex. It shows
//! what they need to know of a volume, and lets nobody change what a room owns.

use crate::mutant::Mutant;
use crate::threshold::Thresholds;
use crate::volume::Volume;
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Device;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Its time.
    pub fn clock(&self) -> &C {
        self.base.clock()
    }

    /// Its buffers.
    pub fn pool(&self) -> &BufPool {
        self.base.pool()
    }

    /// From where on it does something else.
    pub fn thresholds(&self) -> Thresholds {
        self.base.thresholds()
    }

    /// Whether it has this deliberate bug; never in a release build.
    pub fn has_bug(&self, mutant: Mutant) -> bool {
        self.base.has(mutant)
    }

    /// Whether nobody serves this slot now.
    pub fn is_lost(&self, slot: usize) -> bool {
        let set = self.array.members();
        assert!(
            slot < set.slots.len(),
            "a slot is below the number of slots"
        );
        set.slots[slot].active.is_none()
    }

    /// How often something has come into doubt since it was opened; for `settle_all_unspoilt`.
    pub fn spoilt_count(&self) -> u64 {
        self.intent.regions().spoilt_count()
    }

    /// All of it was made consistent by somebody who asked `spoilt_count` before: nothing is in doubt any more, unless
    /// something has come into doubt since. Whether that is so.
    pub fn settle_all_unspoilt(&self, spoilt_count: u64) -> bool {
        self.intent.settle_all_unspoilt(spoilt_count)
    }
}
