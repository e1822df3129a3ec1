//! What an array becomes as it is opened, but for a reshape that begins: the superblocks as they are to be. Pure.
//!
//! Invariant: an array that is no longer what a change was planned for is left as it is.

use plexum_format::SECTOR_BYTES;
use plexum_format::md::{Role, Superblock};
use plexum_layout::Organisation;

use super::fields;
use super::shape::{Relabel, Shape};
use super::size::{Resize, data_room_sectors, resize};
use crate::adapter::Due;
use crate::open::{Found, OpenError};

/// What an array of md becomes as it is opened, but for a reshape that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alteration {
    /// It gets another name.
    Relabel(Relabel),
    /// The reshape that is under way goes back to where it came from; it rests where that is possible.
    TurnRound,
    /// Every member says how much it has for data.
    Room,
    /// Another part of each member is used. Its bitmap is no more: one of the new size is to be made.
    Resize(Resize),
}

impl Alteration {
    /// Whether an array is what this begins with.
    #[must_use]
    pub(crate) fn fits(&self, superblock: &Superblock) -> bool {
        let is_idle = superblock.reshape.is_none();
        match self {
            Alteration::Relabel(change) => is_idle && Shape::of(superblock) == Some(change.before),
            Alteration::TurnRound => !is_idle,
            Alteration::Room => is_idle,
            Alteration::Resize(change) => {
                is_idle && superblock.component_sectors == change.before_sectors
            }
        }
    }
}

impl Found {
    /// The superblock that describes the array.
    pub(super) fn newest(&self) -> Option<&Superblock> {
        let all = self.examined.iter().map(|member| &member.superblock);
        all.max_by_key(|superblock| superblock.events.0)
    }

    /// A mirror whose slots are not all filled: the others take the lowest ones.
    fn close_ranks(&mut self) {
        let Some(newest) = self.newest().cloned() else {
            return;
        };
        let mut complete: Vec<(u16, u32)> = Vec::new();
        for member in &self.examined {
            let own = &member.superblock;
            let is_fresh = own.events.is_fresh_beside(newest.events);
            let role = newest.role_of(own.dev_number);
            if let (true, Role::Active(slot), None) = (is_fresh, role, own.rebuild_offset_sectors)
                && own.array_uuid == newest.array_uuid
            {
                complete.push((slot.0, own.dev_number));
            }
        }
        complete.sort_unstable();
        let is_whole = (0..).zip(&complete).all(|(slot, (own, _))| slot == *own);
        if is_whole {
            return;
        }
        let numbers: Vec<u32> = complete.into_iter().map(|(_, number)| number).collect();
        let all = self.examined.iter().map(|member| member.superblock.clone());
        let mut superblocks: Vec<Superblock> = all.collect();
        fields::close_ranks(&mut superblocks, &numbers);
        for (member, superblock) in self.examined.iter_mut().zip(superblocks) {
            member.superblock = superblock;
        }
    }

    /// Whoever the last update left one event behind counts as the freshest does. That one may lose its slot: the array
    /// must not count from less than what a member has said.
    fn count_alike(&mut self) {
        let Some(newest) = self.newest().cloned() else {
            return;
        };
        for member in &mut self.examined {
            let own = &mut member.superblock;
            let is_member = newest.role_of(own.dev_number).slot().is_some();
            let is_fresh = own.events.is_fresh_beside(newest.events);
            if own.array_uuid == newest.array_uuid && is_member && is_fresh {
                own.events = newest.events;
            }
        }
    }

    /// The array becomes something else.
    ///
    /// # Errors
    /// `NotSupported`: it is not what that begins with; somebody else has changed it.
    pub(crate) fn alter(&mut self, alteration: &Alteration) -> Result<(), OpenError> {
        if !self.newest().is_some_and(|newest| alteration.fits(newest)) {
            return Err(not_as_planned());
        }
        if let Alteration::Relabel(change) = alteration
            && change.wants_agreement()
            && self
                .newest()
                .is_some_and(|newest| newest.resync_offset_sectors.is_some())
        {
            return Err(OpenError::NotSupported(
                "the array gets that name when its members agree: it is resynced first".to_owned(),
            ));
        }
        if let Alteration::Relabel(change) = alteration
            && change.before.organisation == Organisation::Raid1
        {
            self.close_ranks();
        }
        self.count_alike();
        let events = self.newest().map(|newest| newest.events);
        for member in &mut self.examined {
            let superblock = &mut member.superblock;
            // Who has left is not renamed with the others: what it says keeps it out.
            let has_left = events.is_some_and(|events| !superblock.events.is_fresh_beside(events));
            if has_left && superblock.role().slot().is_some() {
                continue;
            }
            match alteration {
                Alteration::Relabel(change) => fields::relabel(superblock, change),
                Alteration::TurnRound => fields::turn_round(superblock),
                Alteration::Room => {
                    let device_sectors = member.device_bytes / SECTOR_BYTES;
                    superblock.data_size_sectors = data_room_sectors(superblock, device_sectors);
                }
                Alteration::Resize(change) => {
                    resize(superblock, change);
                    member.bitmap = None;
                }
            }
        }
        self.due = Due::Yes;
        Ok(())
    }
}

pub(super) fn not_as_planned() -> OpenError {
    OpenError::NotSupported("the array is no longer what the change was planned for".to_owned())
}
