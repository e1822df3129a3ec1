//! Reads that are not copied: the ranges that a read would choose, put into the client's stream by their devices (`parked`).
//!
//! Invariants: whatever a read would have to wait for, recover, mend or look up elsewhere is left to it.

use crate::clock::Clock;
use crate::device::Device;
use crate::parked::Parked;
use crate::plex::layout::Organisation;
use crate::volume::Volume;
use crate::volume::read::Spot;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Reads as `read` does, into `parked` and at once. `false`: not this way; `parked` is to be dropped, and `read` says more.
    pub fn park(&self, offset_bytes: u64, length_bytes: usize, parked: &mut dyn Parked) -> bool {
        let length = length_bytes as u64;
        if self.check_request(offset_bytes, length).is_err()
            || self.reads_wait.get()
            || !self.is_place_for_all()
            || !self.members_park()
        {
            return false;
        }
        let now = self.clock.recent();
        self.last_request.set(now);
        let end = offset_bytes + length;
        let mut at = offset_bytes;
        while at < end {
            let length = (end - at).min(self.contiguous_bytes(at));
            let is_parked = match self.spot(at) {
                Spot::Flat(place) => {
                    let set = self.members();
                    let drive = set.slots[place.slot].active.as_ref();
                    let start = place.member_offset_bytes;
                    let drive = drive.filter(|drive| !drive.is_bad(&(start..start + length)));
                    let length = usize::try_from(length).expect("part of a request");
                    drive.is_some_and(|drive| drive.park(&self.clock, now, start, length, parked))
                }
                Spot::Copies(map) => self.park_copies(&map, &(at..at + length), now, parked),
                Spot::Row { .. } => false,
            };
            if !is_parked {
                return false;
            }
            at += length;
        }
        true
    }

    /// Whether members hold the same whatever slot they have, or never change it: one of a row that is lost and comes back in
    /// another slot is filled anew, while a client may still be to fetch what was parked of it.
    fn is_place_for_all(&self) -> bool {
        match self.geometry.organisation() {
            Organisation::Linear | Organisation::Raid0(_) | Organisation::Raid1 => true,
            Organisation::Raid10(_)
            | Organisation::Raid4
            | Organisation::Raid5(_)
            | Organisation::Raid6(_) => false,
        }
    }

    /// Whether all members with a slot can be expected to park: who could not would be asked in vain each time.
    fn members_park(&self) -> bool {
        self.with_slotted_drives(|mut drives| Iterator::all(&mut drives, |it| it.parks()))
    }
}
