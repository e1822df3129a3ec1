//! A new member takes the place of another.
//!
//! Invariants:
//! - a new member is a part of the pool when it has every block: until then the pool is what it was, on the disks too;
//! - from the beginning on the new member is written whatever the old one is, so that one walk over what was there is
//!   enough, however long it takes and whatever clients write meanwhile.
//!
//! Source: zfs-write.md 1.8.

use std::rc::Rc;

use plexum_block::device::Device;

use crate::create::NewMember;
use crate::error::PoolError;
use crate::ground::Leaf;
use crate::members::clear_labels;
use crate::missed::leaf_mut;
use crate::mutant::Mutant;
use crate::numbers::Identities;
use crate::snapshot::Now;
use crate::state::{ConfigState, WritablePool};
use crate::txgs::MissedTxgs;
use crate::upkeep::{Task, UpkeepReport};

/// A replacement that was begun.
#[derive(Clone, Debug)]
pub struct Replacement {
    /// What the old member was called.
    member: String,
    old: u64,
    new: u64,
    path: String,
    is_disk: bool,
}

impl Replacement {
    /// What a walk has to do for it.
    #[must_use]
    pub fn task(&self) -> Task {
        Task::Fill(self.new)
    }
}

impl<D: Device> WritablePool<D> {
    /// Whether a member can be replaced by a new one of this size.
    ///
    /// # Errors
    /// Those of [`replace`](Self::replace) that are known before anything is written.
    pub fn check_replace(&self, member: &str, new: &str, size_bytes: u64) -> Result<(), PoolError> {
        let place = self.place_of_member(member)?;
        self.check_size(place, new, size_bytes)
    }

    /// Puts a new member in the place of another, which may be missing: it is given everything, and then the pool is
    /// changed. The labels of the old one are cleared. `tell` hears of the progress.
    ///
    /// # Errors
    /// Those of [`begin_replace`](Self::begin_replace) and [`end_replace`](Self::end_replace).
    pub async fn replace(
        &mut self,
        member: &str,
        new: NewMember<D>,
        now: Now,
        tell: &mut dyn FnMut(&UpkeepReport),
    ) -> Result<UpkeepReport, PoolError> {
        let replacement = self.begin_replace(member, new, now).await?;
        let filled = self.walk_all(replacement.task(), tell).await;
        self.end_replace(&replacement, filled, now.wall_s).await
    }

    /// Begins to put a new member in the place of another: from now on it is written with it. What is there already it
    /// has to be given by a [`walk`](Self::walk); then [`end_replace`](Self::end_replace) makes it the member.
    ///
    /// # Errors
    /// `Refused` when there is no such member, it is being replaced already, or the new one is too small; what kept the
    /// new one from being written.
    pub async fn begin_replace(
        &mut self,
        member: &str,
        new: NewMember<D>,
        now: Now,
    ) -> Result<Replacement, PoolError> {
        self.check_frozen()?;
        let place = self.place_of_member(member)?;
        self.check_new(place, &new)?;
        let leaf = &self.ground.plexes[&place.0].leaves[place.1];
        if let Some(coming) = &leaf.successor {
            return Err(PoolError::Refused(format!(
                "{member} is being replaced already, by {}",
                coming.name
            )));
        }
        // Nothing waits that was written before the new one came, so that the last root reaches all of it.
        self.commit(now.wall_s).await?;
        let guid = Identities(now.seed ^ self.guid).next();
        let size_bytes = new.device.info().size_bytes;
        let leaf = Leaf::new(new.name, guid, Rc::clone(&new.device), 0..size_bytes);
        let cleared = self.ground.clear_old(&leaf).await;
        cleared.map_err(|error| PoolError::Io {
            member: leaf.name.clone(),
            error,
        })?;
        let plex = self.ground.plexes.get_mut(&place.0);
        let slot = plex.and_then(|plex| plex.leaves.get_mut(place.1));
        let slot = slot.expect("its place was just found");
        slot.successor = Some(Box::new(leaf));
        Ok(Replacement {
            member: member.to_owned(),
            old: slot.guid,
            new: guid,
            path: new.path,
            is_disk: new.is_disk,
        })
    }

    /// Ends a replacement: when the walk could give the new member everything it is the member now, committed when this
    /// returns, and the labels of the old one are cleared. Else the pool is what it was, and that is the error.
    ///
    /// # Errors
    /// Why the new member was not given everything: of the walk, of what could not be read, of the new member itself;
    /// of the commit.
    pub async fn end_replace(
        &mut self,
        replacement: &Replacement,
        filled: Result<UpkeepReport, PoolError>,
        wall_s: u64,
    ) -> Result<UpkeepReport, PoolError> {
        let Some((leaf, place)) = self.take_successor(replacement) else {
            return Err(replacement.not_done("it was taken out of the pool meanwhile"));
        };
        let report = filled?;
        self.check_frozen()?;
        if report.lost_count > 0 {
            let reason = report.lost.first().map_or("", String::as_str);
            return Err(replacement.not_done(reason));
        }
        if let Some(reason) = leaf.out.borrow().as_deref() {
            return Err(replacement.not_done(&format!("{} failed: {reason}", leaf.name)));
        }
        let plex = self.ground.plexes.get_mut(&place.0);
        let slot = plex.and_then(|plex| plex.leaves.get_mut(place.1));
        let old = std::mem::replace(slot.expect("it had the successor"), leaf);
        let result = self.install(replacement, place.0);
        self.freeze_after(result)?;
        self.commit(wall_s).await?;
        clear_labels(&old).await;
        Ok(report)
    }

    /// The successor, which is none any more, and whose.
    fn take_successor(&mut self, replacement: &Replacement) -> Option<(Leaf<D>, (u32, usize))> {
        let place = self.place_of_guid(replacement.old)?;
        let leaf = self.ground.plexes.get_mut(&place.0)?;
        let leaf = leaf.leaves.get_mut(place.1)?;
        let coming = leaf.successor.take_if(|one| one.guid == replacement.new)?;
        Some((*coming, place))
    }

    /// The configuration has the new member in the place of the old one.
    fn install(&mut self, replacement: &Replacement, plex_id: u32) -> Result<(), PoolError> {
        let Replacement { old, new, .. } = *replacement;
        let list = leaf_mut(&mut self.config, old);
        let list =
            list.ok_or_else(|| PoolError::invalid("configuration", "a member is not in it"))?;
        let word = if replacement.is_disk { "disk" } else { "file" };
        list.put_text("type", word);
        list.put_number("guid", new);
        list.put_text("path", &replacement.path);
        ["offline", "devid", "phys_path", "not_present"]
            .iter()
            .for_each(|name| list.remove(name));
        if !self.bug.is(Mutant::ReplacedMemberRead) {
            self.read_as_configured(plex_id, &[new])?;
        }
        self.guid_sum = self.guid_sum.wrapping_sub(old).wrapping_add(new);
        let before = self.missed.remove(&old).unwrap_or_default();
        let missed = MissedTxgs {
            object: before.object,
            is_changed: before.object != 0,
            ..MissedTxgs::default()
        };
        self.missed.insert(new, missed);
        self.config_state = ConfigState::Changed;
        Ok(())
    }
}

impl Replacement {
    fn not_done(&self, reason: &str) -> PoolError {
        PoolError::invalid(
            &self.member,
            format!(
                "it is not replaced, since the new member could not be given everything: {reason}"
            ),
        )
    }
}
