//! Sides of mirrors: one more is attached, one is detached.
//!
//! Invariants:
//! - a new side is in the pool at once, with everything until then as missed: it is not read for that, the pool says so
//!   in the same root, and whoever has the pool next goes on giving it what it lacks;
//! - no side is detached without which none would be whole;
//! - the labels of a side are cleared after the root that does without it.
//!
//! Source: zfs-write.md 1.1 and 1.8.

use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::{NvList, NvValue};

use crate::create::{Guid, NewMember, leaf_list, tree_guids};
use crate::error::PoolError;
use crate::ground::Leaf;
use crate::members::{Place, clear_labels};
use crate::missed::plex_mut;
use crate::mutant::Mutant;
use crate::numbers::{FIRST_TXG, Identities};
use crate::snapshot::Now;
use crate::state::{ConfigState, WritablePool};
use crate::txgs::MissedTxgs;

/// Most sides of a mirror.
const SIDES_MAX: usize = 255;
/// What the list of a plex says and that of a member does not.
const OF_PLEXES: [&str; 6] = [
    "metaslab_array",
    "metaslab_shift",
    "ashift",
    "asize",
    "is_log",
    "com.delphix:vdev_zap_top",
];

impl<D: Device> WritablePool<D> {
    /// Whether a new member of this size can become a side beside `member`.
    ///
    /// # Errors
    /// Those of [`attach`](Self::attach) that are known before anything is written.
    pub fn check_attach(&self, member: &str, new: &str, size_bytes: u64) -> Result<(), PoolError> {
        let place = self.place_of_member(member)?;
        let plex = &self.ground.plexes[&place.0];
        if plex.shape.parity_count() > 0 {
            return Err(PoolError::Refused(format!(
                "{new} cannot be attached to {member}: plex {} is RAID-Z, whose width stays; a mirror or a single member gets one side more",
                place.0
            )));
        }
        if plex.leaves.len() >= SIDES_MAX {
            return Err(PoolError::Refused(format!(
                "{new} cannot be attached: plex {} has {SIDES_MAX} sides already",
                place.0
            )));
        }
        self.check_size(place, new, size_bytes)
    }

    /// Makes a new member a side of the mirror that `member` is in, or of one that it becomes: committed when this
    /// returns. What it lacks it has to be given by a [`walk`](Self::walk), and one that is on its way has to begin
    /// again; then the next commit says that it has all.
    ///
    /// # Errors
    /// `Refused` when there is no such member, it is of RAID-Z, or the new one is too small: the pool stays what it
    /// was.
    pub async fn attach(
        &mut self,
        member: &str,
        new: NewMember<D>,
        now: Now,
    ) -> Result<(), PoolError> {
        self.check_frozen()?;
        let size_bytes = new.device.info().size_bytes;
        self.check_attach(member, &new.name, size_bytes)?;
        let place = self.place_of_member(member)?;
        self.check_new(place, &new)?;
        if self.is_rehearsal {
            return Ok(());
        }
        self.attach_side(place, new, now).await
    }

    async fn attach_side(
        &mut self,
        (plex_id, _): Place,
        new: NewMember<D>,
        now: Now,
    ) -> Result<(), PoolError> {
        let mut identities = Identities(now.seed ^ self.guid);
        let (guid, top_guid) = (identities.next(), identities.next());
        let size_bytes = new.device.info().size_bytes;
        let leaf = Leaf::new(
            new.name.clone(),
            guid,
            Rc::clone(&new.device),
            0..size_bytes,
        );
        self.come(plex_id, vec![leaf]).await?;
        let result = self.use_side(plex_id, &new, [guid, top_guid]).await;
        self.freeze_after(result)?;
        self.commit(now.wall_s).await
    }

    /// The new side is in the configuration, with all that it lacks.
    async fn use_side(
        &mut self,
        plex_id: u32,
        new: &NewMember<D>,
        [guid, top_guid]: [u64; 2],
    ) -> Result<(), PoolError> {
        let zap = self.add_member_map().await?;
        let list = plex_mut(&mut self.config, plex_id).ok_or_else(unknown)?;
        if list.lists("children").is_empty() {
            *list = mirror_of(list, plex_id, top_guid);
        }
        let mut sides = list.lists("children").to_vec();
        let mut side = leaf_list(new, sides.len() as u64, &Guid(guid));
        let made_txg = sides.first().and_then(|one| one.number("create_txg"));
        side.put_number("create_txg", made_txg.unwrap_or(FIRST_TXG));
        if let Some(zap) = zap {
            side.put_number("com.delphix:vdev_zap_leaf", zap);
        }
        sides.push(side);
        list.put("children", NvValue::Lists(sides));
        // Blocks of the transaction group that is open were written before it came, those of intent logs among them.
        let mut missed = MissedTxgs::default();
        if !self.bug.is(Mutant::SideTakenForWhole) {
            missed.add(FIRST_TXG..self.txg + 2);
        }
        let leaves = &self.ground.plex(plex_id)?.leaves;
        let leaf = leaves.last().expect("it has just come");
        leaf.missed.set(missed.txgs.iter().collect());
        self.missed.insert(guid, missed);
        self.end_hold_for_newcomer();
        self.reconfigured(plex_id, &[guid])
    }

    /// Whether a member can be detached.
    ///
    /// # Errors
    /// Those of [`detach`](Self::detach).
    pub fn check_detach(&self, member: &str) -> Result<Place, PoolError> {
        let place = self.place_of_member(member)?;
        let refuse = |reason: &str| {
            Err(PoolError::Refused(format!(
                "{member} cannot be detached: {reason}"
            )))
        };
        let plex = &self.ground.plexes[&place.0];
        if plex.shape.parity_count() > 0 {
            return refuse("it is a member of RAID-Z, which needs all of its members");
        }
        if plex.leaves.len() < 2 {
            return refuse("it is the only one of its plex");
        }
        let is_whole = |leaf: &Leaf<D>| {
            let missed = self.missed.get(&leaf.guid);
            leaf.is_in() && missed.is_none_or(|missed| missed.txgs.is_empty())
        };
        let mut others = plex.leaves.iter().enumerate();
        if !others.any(|(slot, leaf)| slot != place.1 && is_whole(leaf)) {
            return refuse("no other side of its mirror is whole");
        }
        Ok(place)
    }

    /// Takes a side out of its mirror for good; one side alone is a single member again. Committed when this returns;
    /// then its labels are cleared.
    ///
    /// # Errors
    /// `Refused` when there is no such member, or no other side is whole.
    pub async fn detach(&mut self, member: &str, wall_s: u64) -> Result<(), PoolError> {
        self.check_frozen()?;
        self.check_detach(member)?;
        if self.is_rehearsal {
            return Ok(());
        }
        // Nothing is under way to it: slots behind it move. It may be the only one that is left after that.
        self.ground.flush().await?;
        let (plex_id, slot) = self.check_detach(member)?;
        let plex = self.ground.plexes.get_mut(&plex_id);
        let plex = plex.expect("its place was just found");
        let gone = plex.leaves.remove(slot);
        let result = self.forget_side(plex_id, gone.guid).await;
        self.freeze_after(result)?;
        self.commit(wall_s).await?;
        clear_labels(&gone).await;
        Ok(())
    }

    /// The configuration does without a side, and nothing is left of what the pool kept for it.
    async fn forget_side(&mut self, plex_id: u32, guid: u64) -> Result<(), PoolError> {
        let list = plex_mut(&mut self.config, plex_id).ok_or_else(unknown)?;
        let mut sides = list.lists("children").to_vec();
        let at = sides
            .iter()
            .position(|one| one.number("guid") == Some(guid));
        let old = sides.remove(at.ok_or_else(unknown)?);
        for (number, side) in sides.iter_mut().enumerate() {
            side.put_number("id", number as u64);
        }
        match sides.as_slice() {
            [only] => *list = single_of(list, only),
            _ => list.put("children", NvValue::Lists(sides)),
        }
        if let Some(missed) = self.missed.remove(&guid)
            && missed.object != 0
        {
            self.meta.remove(&self.source, missed.object).await?;
        }
        let map = old.number("com.delphix:vdev_zap_leaf").unwrap_or(0);
        if map != 0 {
            self.remove_member_map(map).await?;
        }
        self.reconfigured(plex_id, &[])
    }

    /// New members come to a plex: what another pool or format has left on them is cleared. When one of them cannot be
    /// written they go again, and nothing has changed.
    pub(crate) async fn come(&mut self, plex_id: u32, new: Vec<Leaf<D>>) -> Result<(), PoolError> {
        let count = new.len();
        let plex = self.ground.plexes.get_mut(&plex_id);
        let plex = plex.expect("the caller has found the plex");
        plex.leaves.extend(new);
        let losses = self.ground.losses.get();
        let plex = &self.ground.plexes[&plex_id];
        let first = plex.leaves.len() - count;
        let mut result = Ok(());
        for leaf in &plex.leaves[first..] {
            let cleared = self.ground.clear_ring(plex, leaf).await;
            let lost = leaf.out.borrow().clone();
            let lost = lost.map_or(Ok(()), |reason| Err(PoolError::invalid(&leaf.name, reason)));
            result = result.and(cleared).and(lost);
        }
        if result.is_err() {
            let plex = self.ground.plexes.get_mut(&plex_id);
            plex.expect("it was just there").leaves.truncate(first);
            self.ground.losses.set(losses);
        }
        result
    }

    /// The configuration has changed: reads go by it, and the next commit writes it.
    pub(crate) fn reconfigured(&mut self, plex_id: u32, new: &[u64]) -> Result<(), PoolError> {
        self.read_as_configured(plex_id, new)?;
        let tree = self.config.list("vdev_tree");
        self.guid_sum = tree.map_or(self.guid_sum, tree_guids);
        self.config_state = ConfigState::Changed;
        Ok(())
    }
}

/// The configuration is not that of the members.
fn unknown() -> PoolError {
    PoolError::invalid("configuration", "a plex or a member is not in it")
}

/// A plex of one member as a mirror of one side.
fn mirror_of(single: &NvList, id: u32, guid: u64) -> NvList {
    let mut mirror = NvList::default();
    mirror.put_text("type", "mirror");
    mirror.put_number("id", u64::from(id));
    mirror.put_number("guid", guid);
    let (own, of_side): (Vec<_>, Vec<_>) =
        (single.pairs.iter().cloned()).partition(|(name, _)| OF_PLEXES.contains(&name.as_str()));
    mirror.pairs.extend(own);
    mirror.put_number(
        "create_txg",
        single.number("create_txg").unwrap_or(FIRST_TXG),
    );
    let mut side = NvList { pairs: of_side };
    side.put_number("id", 0);
    mirror.put("children", NvValue::Lists(vec![side]));
    mirror
}

/// The only side that a mirror has left as a plex of one member.
fn single_of(mirror: &NvList, only: &NvList) -> NvList {
    let mut single = only.clone();
    single.put_number("id", mirror.number("id").unwrap_or(0));
    for name in OF_PLEXES {
        if let Some(value) = mirror.get(name) {
            single.put(name, value.clone());
        }
    }
    single
}
