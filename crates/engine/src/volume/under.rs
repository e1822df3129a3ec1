//! A narrow door for whoever builds something of whole volumes: plexes under a volume. It shows what they need to know
//! of a volume, and lets nobody change what a room owns.

use crate::volume::Volume;
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::Device;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Its buffers.
    pub fn pool(&self) -> &BufPool {
        self.base.pool()
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
}
