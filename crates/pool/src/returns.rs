//! Members that were missing or failed, and are there again while the pool is open.
//!
//! Invariants:
//! - what a member may have missed is known as missed before anything is read from it or written to it;
//! - a member that was written elsewhere since is not taken: nobody knows which of the two has the data.
//!
//! Source: zfs-write.md 1.8.

use std::rc::Rc;

use plexum_block::device::Device;
use plexum_zfs::MemberState;

use crate::error::PoolError;
use crate::ground::Leaf;
use crate::members::Place;
use crate::missed::{leaf_mut, leaf_of};
use crate::mutant::Mutant;
use crate::open::ROOTS_OF_ABSENT_MAX;
use crate::spans::Spans;
use crate::state::{ConfigState, WritablePool};

impl<D: Device> WritablePool<D> {
    /// Takes a member back that is missing or failed, as it was found on a device that may be another than before:
    /// committed when this returns. `path` is where it is, when that is to be recorded. What it missed it still has to
    /// be given by a [`walk`](Self::walk); one that is on its way has to begin again.
    ///
    /// # Errors
    /// `Refused` when it is none of this pool, is there already, was taken offline, was written elsewhere since, or is
    /// smaller than it was: the pool stays what it was.
    pub async fn take_back(
        &mut self,
        member: &MemberState<D>,
        path: Option<&str>,
        wall_s: u64,
    ) -> Result<(), PoolError> {
        self.check_frozen()?;
        let (place, missed_since) = self.check_return(member)?;
        if self.is_rehearsal {
            return Ok(());
        }
        let guid = member.label.guid;
        let mut leaf = Leaf::new(
            member.name.clone(),
            guid,
            Rc::clone(member.device()),
            member.place(),
        );
        let missed = self.missed.entry(guid).or_default();
        // Blocks of the transaction group that is open were written before it came, those of intent logs among them.
        missed.add(missed_since..self.txg + 2);
        if self.bug.is(Mutant::ReturnTakenForWhole) {
            missed.txgs = Spans::default();
        }
        leaf.missed.set(missed.txgs.iter().collect());
        let plex = self.ground.plexes.get_mut(&place.0);
        let slot = plex.and_then(|plex| plex.leaves.get_mut(place.1));
        let slot = slot.expect("its place was just found");
        leaf.successor = slot.successor.take();
        *slot = leaf;
        self.end_hold_for_newcomer();
        if let (Some(path), Some(list)) = (path, leaf_mut(&mut self.config, guid)) {
            list.put_text("path", path);
        }
        self.config_state = ConfigState::Changed;
        let read = self.read_as_configured(place.0, &[guid]);
        self.freeze_after(read)?;
        self.commit(wall_s).await
    }

    /// Where a member belongs that has returned, and the first transaction group that it may have missed.
    fn check_return(&self, member: &MemberState<D>) -> Result<(Place, u64), PoolError> {
        let (name, label) = (&member.name, &member.label);
        let refuse = |reason: String| Err(PoolError::Refused(format!("{name} {reason}")));
        let place = match label.pool_guid == self.guid {
            true => self.place_of_guid(label.guid),
            false => None,
        };
        let Some(place) = place else {
            return refuse(format!("is no member of pool {}", self.name));
        };
        let leaf = &self.ground.plexes[&place.0].leaves[place.1];
        if leaf.is_in() {
            return refuse(format!("says it is {}, which is there", leaf.name));
        }
        let list = leaf_of(&self.config, label.guid);
        if list.is_some_and(|list| list.number("offline").is_some_and(|value| value != 0)) {
            return refuse("was taken offline: bring it online first".into());
        }
        let range = member.place();
        self.check_device(
            place,
            name,
            (range.end - range.start, member.device().info()),
        )?;
        let newest = member.roots.iter().map(|root| root.txg).max().unwrap_or(0);
        let out_since = leaf.out_since.get();
        let known = self.missed.get(&label.guid);
        let known = known.and_then(|missed| missed.txgs.iter().last());
        let is_one = |known: &std::ops::Range<u64>| known.end >= out_since;
        let missed_since = known
            .filter(is_one)
            .map_or(out_since, |known| known.start.min(out_since));
        if newest >= missed_since + ROOTS_OF_ABSENT_MAX {
            return refuse(format!(
                "was written elsewhere: its newest transaction group is {newest}, and pool {} went on without it from \
                 {missed_since} on",
                self.name
            ));
        }
        Ok((place, missed_since.min(newest + 1)))
    }

    pub(crate) fn place_of_guid(&self, guid: u64) -> Option<Place> {
        self.ground.plexes.values().find_map(|plex| {
            let slot = plex.leaves.iter().position(|leaf| leaf.guid == guid)?;
            Some((plex.id, slot))
        })
    }
}
