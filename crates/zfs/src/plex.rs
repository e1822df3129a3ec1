//! One plex: verified reads of a range, whichever members are there and whatever they hold.
//!
//! Invariant: bytes are only given when `verify` said yes to them.

use std::cell::RefCell;
use std::rc::Rc;

use plexum_block::device::Device;
use plexum_format::zfs::{PlexConfig, PlexKind};
use plexum_layout::RaidzGeometry;

use crate::damage::{Damage, DamageKind};
use crate::member::MemberState;
use crate::parts::Parts;
use crate::raidz;

/// Copies of a mirror are read in turns of this many bytes, so that a long read uses all members.
const TURN_BYTES: u64 = 1 << 20;

/// A plex with the members that are there.
pub(crate) struct Plex<D> {
    pub(crate) config: PlexConfig,
    /// The members of each slot that are there.
    pub(crate) slots: Vec<Vec<Rc<MemberState<D>>>>,
    pub(crate) geometry: Option<RaidzGeometry>,
    /// Slots that were wrong the last time: tried first.
    pub(crate) culprits: RefCell<Vec<usize>>,
}

/// How much of the redundancy a read looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What is needed for the answer.
    Needed,
    /// Every copy and every column, for a scrub.
    All,
}

/// Whether a block, in pieces, is the one that was written.
pub(crate) type Verify<'a> = &'a dyn Fn(&[&[u8]]) -> bool;

/// What a read is asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: usize,
    /// When the block was written: members that missed that are asked last.
    pub(crate) birth_txg: u64,
    pub(crate) verify: Verify<'a>,
    pub(crate) extent: Extent,
}

impl<D: Device> Plex<D> {
    pub(crate) fn new(config: PlexConfig, members: &[Rc<MemberState<D>>]) -> Self {
        let find = |guid: u64| {
            members
                .iter()
                .find(|member| member.label.guid == guid)
                .cloned()
        };
        let slots: Vec<Vec<_>> = config
            .slots
            .iter()
            .map(|slot| slot.iter().filter_map(|leaf| find(leaf.guid)).collect())
            .collect();
        let geometry = match config.kind {
            PlexKind::RaidZ { parity_count } => {
                let member_count = u16::try_from(slots.len()).ok();
                member_count
                    .and_then(|count| RaidzGeometry::new(count, parity_count, config.ashift).ok())
            }
            _ => None,
        };
        Self {
            config,
            slots,
            geometry,
            culprits: RefCell::default(),
        }
    }

    /// The member of a slot that may have a block of this transaction group.
    pub(crate) fn member(&self, slot: usize, birth_txg: u64) -> Option<&Rc<MemberState<D>>> {
        let has = |member: &&Rc<MemberState<D>>| !member.missed.has(birth_txg);
        self.slots[slot].iter().find(has)
    }

    /// The member of a slot that has missed this transaction group. It may have been given the block since, by a walk
    /// whose end was cut off; what it holds counts when the checksum says so.
    pub(crate) fn late_member(&self, slot: usize, birth_txg: u64) -> Option<&Rc<MemberState<D>>> {
        let is_late = |member: &&Rc<MemberState<D>>| member.missed.has(birth_txg);
        match self.member(slot, birth_txg) {
            Some(_) => None,
            None => self.slots[slot].iter().find(is_late),
        }
    }

    /// Reads a range that `verify` accepts. What was wrong on the way is added to `damage`.
    ///
    /// # Errors
    /// Why not, in a few words.
    pub(crate) async fn read(
        &self,
        wanted: &Wanted<'_>,
        damage: &mut Vec<Damage>,
    ) -> Result<Parts, String> {
        let sector = 1_u64 << self.config.ashift;
        let rounded = (wanted.length_bytes as u64).next_multiple_of(sector);
        let end = wanted.offset_bytes.checked_add(rounded);
        if !wanted.offset_bytes.is_multiple_of(sector)
            || end.is_none_or(|end| self.config.size_bytes != 0 && end > self.config.size_bytes)
        {
            let (id, at) = (self.config.id, wanted.offset_bytes);
            return Err(format!("address {at} is not in plex {id}"));
        }
        match &self.geometry {
            Some(geometry) => raidz::read(self, geometry, wanted, damage).await,
            None => self.read_copies(wanted, damage).await,
        }
    }

    async fn read_copies(
        &self,
        wanted: &Wanted<'_>,
        damage: &mut Vec<Damage>,
    ) -> Result<Parts, String> {
        let members = self.slots.iter().flatten();
        let (late, members): (Vec<&Rc<MemberState<D>>>, Vec<_>) =
            members.partition(|member| member.missed.has(wanted.birth_txg));
        let turn = (wanted.offset_bytes / TURN_BYTES) as usize;
        let order = (0..members.len()).map(|n| members[(n + turn) % members.len()]);
        let (offset, length) = (wanted.offset_bytes, wanted.length_bytes);
        let mut good = None;
        for member in order {
            let kind = match member.read(offset, length).await {
                Ok(bytes) if (wanted.verify)(&[&bytes]) => {
                    good.get_or_insert_with(|| Parts::of(vec![bytes]));
                    if wanted.extent == Extent::Needed {
                        break;
                    }
                    continue;
                }
                Ok(_) => DamageKind::Checksum,
                Err(error) => DamageKind::io(error),
            };
            damage.push(Damage::new(member, offset, length as u64, kind));
        }
        // Nothing is wrong with those that do not have it.
        for member in late {
            if good.is_some() {
                break;
            }
            let read = member.read(offset, length).await.ok();
            good = read
                .filter(|bytes| (wanted.verify)(&[bytes]))
                .map(|bytes| Parts::of(vec![bytes]));
        }
        let id = self.config.id;
        good.ok_or_else(|| match members.len() {
            0 => format!("no member of plex {id} is there"),
            1 => format!("plex {id}: the only member there is wrong"),
            n => format!("plex {id}: all {n} members are wrong"),
        })
    }
}
