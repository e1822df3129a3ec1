//! What the members of a half-done reshape hold: the slow model of it, for the disks after every crash.
//!
//! Below the position (above it, where it goes backwards) rows lie as in the new geometry and count from the new data
//! offset, elsewhere as in the old one. The newest superblock's position counts; a member that the last update did not
//! reach is where the others are, for what the position stands for was flushed before.
//!
//! Source: md-reshape.md sections 3 and 8.

use std::ops::Range;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::{Reshape, Superblock};

use super::array::Array;
use super::plan::Plan;
use crate::finding::Finding;
use crate::md::checker::{self, Inspected};
use crate::md::reference::{Members, Reference};
use crate::md::{Level, Spec};
use crate::oracle::Violation;
use crate::world::Scene;
use plexum_disks::disk::SimDisk;
use plexum_disks::sector::{self, Seen, Value};

/// One of the two geometries, with what the members hold of it.
pub(super) struct Side {
    pub(super) spec: Spec,
    /// By slot, position among the inspected.
    pub(super) holders: Vec<Option<usize>>,
    pub(super) members: Members,
    bad: Vec<(usize, Range<u64>)>,
}

impl Side {
    pub(super) fn reference(&self) -> Reference {
        Reference::new(&self.spec).without_ranges(&self.bad)
    }

    /// What clients would read of this geometry alone, by sectors; `None`: it cannot be had.
    fn sectors(&self) -> Vec<Option<Vec<u8>>> {
        let strips = self.reference().strips(&self.members);
        let cut = |(at, bytes): (u64, Option<Vec<u8>>), next: u64| match bytes {
            Some(bytes) => bytes
                .chunks(512)
                .map(|sector| Some(sector.to_vec()))
                .collect(),
            None => vec![None; ((next - at) / SECTOR_BYTES) as usize],
        };
        let ends: Vec<u64> = strips
            .iter()
            .skip(1)
            .map(|(at, _)| *at)
            .chain([self.reference().volume_bytes()])
            .collect();
        strips
            .into_iter()
            .zip(ends)
            .flat_map(|(strip, end): (_, u64)| -> Vec<Option<Vec<u8>>> { cut(strip, end) })
            .collect()
    }

    fn is_whole(&self) -> bool {
        self.holders.iter().all(Option::is_some)
    }
}

/// A half-done reshape on the disks.
pub(super) struct Half {
    pub(super) newest: Superblock,
    pub(super) reshape: Reshape,
    pub(super) old: Side,
    pub(super) new: Side,
}

impl Half {
    /// Of what the members say; `None`: no reshape is under way.
    pub(super) fn of(all: &[Inspected], disks: &[SimDisk]) -> Option<Self> {
        let with_slot = all
            .iter()
            .filter(|member| member.superblock.role().slot().is_some());
        let newest = with_slot.max_by_key(|member| member.superblock.events)?;
        let newest = newest.superblock.clone();
        let reshape = newest.reshape?;
        let slots = i64::from(newest.member_count);
        let old_slots = slots - i64::from(reshape.member_count_change);
        let spec = |level: i32, layout: u32, slots: i64, strip_sectors: u32| Spec {
            level: level_of(level),
            layout,
            member_count: slots as usize, // a handful
            strip_bytes: u64::from(strip_sectors) * SECTOR_BYTES,
            component_bytes: newest.component_sectors * SECTOR_BYTES,
            region_bytes: None,
            log_bytes: None,
            is_write_back: false,
            has_ppl: false,
        };
        let old = spec(newest.level, newest.layout, old_slots, newest.strip_sectors);
        let new = spec(
            reshape.new_level,
            reshape.new_layout,
            slots,
            reshape.new_strip_sectors,
        );
        let found = Found {
            all,
            disks,
            newest: &newest,
            reshape,
        };
        let (old, new) = (found.side(old, false), found.side(new, true));
        Some(Self {
            newest,
            reshape,
            old,
            new,
        })
    }

    /// Data members of the new geometry.
    pub(super) fn new_data_count(&self) -> u64 {
        data_count(&self.new.spec)
    }

    /// Volume bytes up to which, or from which on, the new geometry holds.
    pub(super) fn position_bytes(&self) -> u64 {
        self.reshape.position_sectors.saturating_mul(SECTOR_BYTES)
    }

    /// What clients read, by sectors, as far as both geometries go; `None`: it cannot be had.
    pub(super) fn sectors(&self) -> Vec<Option<Vec<u8>>> {
        let position = self.position_bytes();
        let is_new = |at: u64| match self.reshape.is_backwards() {
            true => at >= position,
            false => at < position,
        };
        let (old, new) = (self.old.sectors(), self.new.sectors());
        let pairs = old.into_iter().zip(new);
        let chosen =
            (0u64..)
                .zip(pairs)
                .map(|(number, (old, new))| match is_new(number * SECTOR_BYTES) {
                    true => new,
                    false => old,
                });
        chosen.collect()
    }

    /// Whether parity may not say what is missing: writes were under way.
    fn is_unsure(&self) -> bool {
        let is_dirty = self.newest.resync_offset_sectors.is_some();
        is_dirty && !(self.old.is_whole() && self.new.is_whole())
    }
}

fn data_count(spec: &Spec) -> u64 {
    let parities = if spec.level == Level::Raid6 { 2 } else { 1 };
    spec.member_count as u64 - parities
}

fn level_of(number: i32) -> Level {
    match number {
        4 => Level::Raid4,
        6 => Level::Raid6,
        _ => Level::Raid5,
    }
}

/// What the superblocks say together.
struct Found<'a> {
    all: &'a [Inspected],
    disks: &'a [SimDisk],
    newest: &'a Superblock,
    reshape: Reshape,
}

impl Found<'_> {
    fn side(&self, spec: Spec, is_new: bool) -> Side {
        let holders: Vec<Option<usize>> = (0..spec.member_count)
            .map(|slot| {
                (0..self.all.len()).find(|position| self.holds(*position, slot, &spec, is_new))
            })
            .collect();
        let mut bad = Vec::new();
        let members = holders.iter().enumerate().map(|(slot, holder)| {
            let member = &self.all[(*holder)?];
            let shift = match is_new {
                true => self.shift_bytes(&member.superblock),
                false => 0,
            };
            let moved = |at: u64| at.saturating_add_signed(-shift);
            let ranges = member.bad.iter();
            bad.extend(ranges.map(|range| (slot, moved(range.start)..moved(range.end))));
            let start =
                (member.superblock.data_offset_sectors * SECTOR_BYTES).saturating_add_signed(shift);
            let mut bytes = vec![0; spec.component_bytes as usize];
            self.disks[member.disk as usize].peek(start, &mut bytes);
            Some(bytes)
        });
        let members = members.collect();
        Side {
            spec,
            holders,
            members,
            bad,
        }
    }

    /// How far a member's data move. One that has not heard of the reshape is where it was: so are the others' rows.
    fn shift_bytes(&self, own: &Superblock) -> i64 {
        let reshape = own.reshape.unwrap_or(self.reshape);
        i64::from(reshape.new_offset_sectors.unwrap_or(0)) * SECTOR_BYTES as i64
    }

    fn holds(&self, position: usize, slot: usize, spec: &Spec, is_new: bool) -> bool {
        let own = &self.all[position].superblock;
        let given = |table: &Superblock| {
            let role = table.role_of(own.dev_number);
            role.slot().map(|slot| usize::from(slot.0))
        };
        let is_fresh = own.events.is_fresh_beside(self.newest.events);
        let is_its = given(self.newest) == Some(slot) && given(own) == Some(slot);
        is_fresh && is_its && self.is_complete(own, spec, is_new)
    }

    /// Who is being filled has nothing of the old geometry, and of the new one what lies below the position.
    fn is_complete(&self, own: &Superblock, spec: &Spec, is_new: bool) -> bool {
        let Some(filled) = own.rebuild_offset_sectors else {
            return true;
        };
        let is_behind = own.events != self.newest.events;
        let needed = self.reshape.position_sectors / data_count(spec);
        is_new && !self.reshape.is_backwards() && (filled >= needed || is_behind)
    }
}

/// Bytes that clients have in both geometries of a plan.
pub(super) fn common_bytes(plan: &Plan) -> u64 {
    let size = |spec: &Spec| Reference::new(spec).volume_bytes();
    size(&plan.before).min(size(&plan.after))
}

/// First byte of the data of a disk, in the geometry that there was.
pub(super) fn data_offset_bytes(disk: &SimDisk) -> u64 {
    let member = checker::inspect(disk);
    member.map_or(0, |member| {
        member.superblock.data_offset_sectors * SECTOR_BYTES
    })
}

/// What is wrong with what the disks hold, where a reshape stands half-way.
pub(super) fn check(scene: &Scene<Array>) -> Option<Finding> {
    let present = scene.disks.iter().filter(|disk| disk.is_present());
    let all: Vec<Inspected> = present.filter_map(checker::inspect).collect();
    let half = Half::of(&all, &scene.disks)?;
    if half.is_unsure() || scene.volume_count() == 0 {
        return None;
    }
    scene.count("half-way images read", 1);
    let oracle = &scene.oracles.borrow()[0];
    let sectors = half.sectors();
    for (at, bytes) in (0..oracle.sector_count()).zip(sectors) {
        let Some(bytes) = bytes else {
            return Some(Finding::LostOnMembers {
                missing: missing(&half),
                violation: None,
            });
        };
        let seen = sector::look(&bytes);
        let allowed = oracle.allowed(at);
        let value = match seen {
            Seen::Zero => Some(Value::Zero),
            Seen::Valid {
                address, sequence, ..
            } if address == at => Some(Value::Written(sequence)),
            _ => None,
        };
        if !value.is_some_and(|value| allowed.contains(&value)) {
            return Some(Finding::LostOnMembers {
                missing: missing(&half),
                violation: Some(Violation {
                    sector: at,
                    seen,
                    allowed,
                    more: 0,
                }),
            });
        }
    }
    None
}

fn missing(half: &Half) -> Vec<usize> {
    let holders = half.new.holders.iter().enumerate();
    holders
        .filter(|(_, holder)| holder.is_none())
        .map(|(slot, _)| slot)
        .collect()
}
