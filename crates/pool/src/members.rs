//! Members that are taken out and come back, and who can be one.
//!
//! Invariant: no member is taken out that its plex cannot spare.
//!
//! Source: zfs-write.md 1.8.

use std::rc::Rc;

use plexum_block::device::{Device, DeviceInfo};
use plexum_format::zfs::{LABEL_BYTES, PlexConfig, label_offsets};
use plexum_zfs::Successor;

use crate::create::{GroupKind, NewMember, group_bytes};
use crate::error::PoolError;
use crate::ground::Leaf;
use crate::missed::{leaf_mut, leaf_of, plex_of};
use crate::state::{ConfigState, WritablePool};

/// Where a member is: plex and slot.
pub(crate) type Place = (u32, usize);

/// What is known of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// As it was given; of one that is missing, where it was last.
    pub name: String,
    /// Its identity.
    pub guid: u64,
    /// Number of its plex.
    pub plex_id: u32,
    /// Its slot.
    pub slot: usize,
    /// Whether there is a device of it.
    pub is_there: bool,
    /// Why it is not written, when it is not.
    pub out: Option<String>,
    /// Transaction groups whose blocks it does not have.
    pub missed_groups: u64,
    /// Who is being given everything to take its place.
    pub successor: Option<String>,
}

impl<D: Device> WritablePool<D> {
    /// All members.
    #[must_use]
    pub fn members(&self) -> Vec<MemberInfo> {
        let leaves = self.ground.plexes.values().flat_map(|plex| {
            let leaves = plex.leaves.iter().enumerate();
            leaves.map(|(slot, leaf)| (plex.id, slot, leaf))
        });
        let info = leaves.map(|(plex_id, slot, leaf)| MemberInfo {
            name: leaf.name.clone(),
            guid: leaf.guid,
            plex_id,
            slot,
            is_there: leaf.device.is_some(),
            out: leaf.out.borrow().clone(),
            missed_groups: self
                .missed
                .get(&leaf.guid)
                .map_or(0, |missed| missed.txgs.total_bytes()),
            successor: leaf.successor.as_ref().map(|coming| coming.name.clone()),
        });
        info.collect()
    }

    /// The devices of the members that are there, with their names.
    #[must_use]
    pub fn devices(&self) -> Vec<(String, Rc<D>)> {
        let leaves = self.ground.leaves();
        let there = leaves.filter_map(|leaf| Some((leaf.name.clone(), leaf.device.clone()?)));
        there.collect()
    }

    /// The member of this name, path or identity.
    pub(crate) fn place_of_member(&self, word: &str) -> Result<Place, PoolError> {
        let is_it = |leaf: &Leaf<D>| {
            let list = leaf_of(&self.config, leaf.guid);
            let path = list.and_then(|list| list.text("path"));
            leaf.name == word || path == Some(word) || leaf.guid.to_string() == word
        };
        let mut found = Vec::new();
        for plex in self.ground.plexes.values() {
            let slots = plex.leaves.iter().enumerate();
            found.extend(slots.filter_map(|(slot, leaf)| is_it(leaf).then_some((plex.id, slot))));
        }
        match found[..] {
            [place] => Ok(place),
            [] => {
                let names: Vec<String> = self.members().into_iter().map(|one| one.name).collect();
                let (pool, names) = (&self.name, names.join(", "));
                Err(PoolError::Refused(format!(
                    "pool {pool} has no member {word}; it has {names}"
                )))
            }
            _ => Err(PoolError::Refused(format!(
                "several members of pool {} are called {word}: name one by its identity",
                self.name
            ))),
        }
    }

    fn leaf(&self, (plex, slot): Place) -> &Leaf<D> {
        &self.ground.plexes[&plex].leaves[slot]
    }

    /// Takes a member out; a part of the next commit. It is not written until it is [`online`](Self::online).
    ///
    /// # Errors
    /// `Refused` when there is none of that name, or its plex cannot spare it.
    pub async fn offline(&mut self, member: &str, wall_s: u64) -> Result<(), PoolError> {
        self.check_frozen()?;
        let place = self.place_of_member(member)?;
        let plex = &self.ground.plexes[&place.0];
        let leaf = self.leaf(place);
        if leaf.is_in() && plex.out_count() >= plex.spare_count() {
            return Err(PoolError::Refused(format!(
                "{member} cannot be taken offline: plex {} cannot do without it",
                place.0
            )));
        }
        let behind: Vec<String> = self.members_behind();
        if let Some(other) = behind.iter().find(|other| **other != leaf.name) {
            return Err(PoolError::Refused(format!(
                "{member} cannot be taken offline: {other} is not whole yet"
            )));
        }
        leaf.take_out("it is offline".into(), self.txg + 1);
        self.set_offline(place, 1)?;
        self.commit(wall_s).await
    }

    fn set_offline(&mut self, place: Place, value: u64) -> Result<(), PoolError> {
        let guid = self.leaf(place).guid;
        let list = leaf_mut(&mut self.config, guid);
        let list =
            list.ok_or_else(|| PoolError::invalid("configuration", "a member is not in it"))?;
        match value {
            0 => list.remove("offline"),
            value => list.put_number("offline", value),
        }
        self.config_state = ConfigState::Changed;
        Ok(())
    }

    /// Lets a member be written again that is offline. What it missed it still has to be given by a
    /// [`walk`](Self::walk); one that is on its way has to begin again.
    ///
    /// # Errors
    /// `Refused` when there is none of that name, or it is missing.
    pub async fn online(&mut self, member: &str, wall_s: u64) -> Result<(), PoolError> {
        self.check_frozen()?;
        let place = self.place_of_member(member)?;
        let leaf = self.leaf(place);
        if leaf.device.is_none() {
            return Err(PoolError::Refused(format!(
                "{member} is missing: give it with the others"
            )));
        }
        let (guid, out_since) = (leaf.guid, leaf.out_since.get());
        if leaf.out.take().is_some() {
            // Blocks of the transaction group that is open may have been written without it.
            let missed = self.missed.entry(guid).or_default();
            missed.add(out_since..self.txg + 2);
            let txgs = missed.txgs.iter().collect();
            self.leaf(place).missed.set(txgs);
            self.end_hold_for_newcomer();
        }
        self.set_offline(place, 0)?;
        self.commit(wall_s).await
    }

    /// From now on a plex is read as the configuration has it, members that have just come to it included.
    pub(crate) fn read_as_configured(
        &mut self,
        plex_id: u32,
        new: &[u64],
    ) -> Result<(), PoolError> {
        let Some(pool) = self.source.pool.as_ref() else {
            return Ok(());
        };
        let leaves = self.ground.plex(plex_id)?.leaves.iter();
        let come = leaves.filter(|leaf| new.contains(&leaf.guid));
        let successor = |leaf: &Leaf<D>| {
            Some(Successor {
                name: leaf.name.clone(),
                guid: leaf.guid,
                device: Rc::clone(leaf.device.as_ref()?),
                place: leaf.place.clone(),
                missed: leaf.missed.clone(),
            })
        };
        let new: Vec<Successor<D>> = come.filter_map(successor).collect();
        let list = plex_of(&self.config, plex_id);
        let list =
            list.ok_or_else(|| PoolError::invalid("configuration", "a plex is not in it"))?;
        let pool = pool.with_plex(PlexConfig::parse(list)?, &new);
        let pool =
            pool.ok_or_else(|| PoolError::invalid(&self.name, "a plex of it is not known"))?;
        self.source.pool = Some(Rc::new(pool));
        Ok(())
    }

    pub(crate) fn check_size(
        &self,
        (plex_id, _): Place,
        name: &str,
        size_bytes: u64,
    ) -> Result<(), PoolError> {
        let plex = &self.ground.plexes[&plex_id];
        let width = match plex.shape.parity_count() {
            0 => 1,
            _ => plex.leaves.len() as u64,
        };
        let offered = group_bytes(GroupKind::Single, &[size_bytes]);
        if offered < plex.size_bytes / width {
            return Err(PoolError::Refused(format!(
                "{name} is too small: it has {size_bytes} bytes"
            )));
        }
        Ok(())
    }

    pub(crate) fn check_new(&self, place: Place, new: &NewMember<D>) -> Result<(), PoolError> {
        let info = new.device.info();
        self.check_device(place, &new.name, (info.size_bytes, info))
    }

    /// Whether a device, of which so many bytes are for the pool, can be there.
    pub(crate) fn check_device(
        &self,
        place: Place,
        name: &str,
        (size_bytes, info): (u64, DeviceInfo),
    ) -> Result<(), PoolError> {
        self.check_size(place, name, size_bytes)?;
        if u64::from(info.sector_bytes) > 1 << self.ground.plexes[&place.0].ashift {
            return Err(PoolError::Refused(format!(
                "{name} has sectors of {} bytes, which are larger than the pool's",
                info.sector_bytes
            )));
        }
        Ok(())
    }
}

/// A member that was replaced or detached is none any more. Nothing depends on it: the pool does not know it.
pub(crate) async fn clear_labels<D: Device>(leaf: &Leaf<D>) {
    let Some(device) = &leaf.device else {
        return;
    };
    let buffers = plexum_block::buf::BufPool::new(0);
    for offset in label_offsets(leaf.size_bytes()) {
        let buf = buffers.take_zeroed(LABEL_BYTES).freeze();
        let at = leaf.place.start + offset;
        let _ = device.write(at, buf, plexum_block::device::Fua::No).await;
    }
    let _ = device.flush().await;
}
