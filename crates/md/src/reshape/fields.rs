//! What the superblocks say when a reshape begins, has ended, or was interrupted while they were written. Pure.
//!
//! Source: md-reshape.md section 3.

use plexum_format::Slot;
use plexum_format::md::{Reshape, Role, Superblock};
use plexum_layout::{Level, Organisation};

use super::plan::{Move, Relabel, Shape};
use crate::assemble::Examined;
use plexum_engine::migrate::Direction;

/// Another name for the same places of data: level, layout and number of slots change, nothing moves.
pub(super) fn relabel(superblock: &mut Superblock, change: &Relabel) {
    let after = &change.after;
    superblock.level = after.organisation.md_level();
    superblock.layout = after.organisation.md_layout();
    superblock.member_count = u32::from(after.member_count);
    superblock.strip_sectors = after.strip_sectors;
    for role in &mut superblock.roles {
        if matches!(role, Role::Active(slot) if slot.0 >= after.member_count) {
            *role = Role::Spare;
        }
    }
    if superblock.role() == Role::Spare {
        superblock.rebuild_offset_sectors = None;
    }
}

/// R1: the old fields stay, but for the number of slots; the new ones stand beside them.
pub(super) fn begin(superblock: &mut Superblock, change: &Move) {
    let (before, after) = (&change.before, &change.after);
    let more = i32::from(after.member_count) - i32::from(before.member_count);
    let is_down = change.direction == Direction::Down;
    superblock.member_count = u32::from(after.member_count);
    superblock.reshape = Some(Reshape {
        position_sectors: change.start_sectors,
        member_count_change: more,
        new_level: superblock.level, // kernels refuse any other
        new_layout: after.organisation.md_layout(),
        new_strip_sectors: after.strip_sectors,
        new_offset_sectors: Some(change.shift_sectors),
        is_marked_backwards: is_down && more == 0,
    });
}

/// R1: who takes a slot that had nobody: new slots, and those that the old geometry lacks.
pub(super) fn give_slots(superblocks: &mut [Superblock], new: &[(u32, u16)]) {
    for superblock in superblocks {
        for (dev_number, slot) in new {
            // The number was checked when the member joined.
            let _ = superblock.set_role(*dev_number, Role::Active(Slot(*slot)));
        }
    }
}

/// R10: there is but the new geometry.
pub(crate) fn end(superblock: &mut Superblock) {
    let Some(reshape) = superblock.reshape.take() else {
        return;
    };
    let shift = i64::from(reshape.new_offset_sectors.unwrap_or(0));
    superblock.level = reshape.new_level;
    superblock.layout = reshape.new_layout;
    superblock.strip_sectors = reshape.new_strip_sectors;
    // Where they lie was checked when the superblock was read, or planned.
    superblock.data_offset_sectors = superblock.data_offset_sectors.saturating_add_signed(shift);
    superblock.data_size_sectors = superblock.data_size_sectors.saturating_add_signed(-shift);
    superblock.rebuild_offset_sectors = None;
    for role in &mut superblock.roles {
        if matches!(role, Role::Active(slot) if u32::from(slot.0) >= superblock.member_count) {
            *role = Role::Spare;
        }
    }
}

/// A superblock says of the array what another one says: its shape, and a reshape that is under way. A member that
/// joins meanwhile has no data yet, and keeps its own place for them: so does one that stood by, and was not told.
pub(crate) fn follow(own: &mut Superblock, other: &Superblock) {
    own.level = other.level;
    own.layout = other.layout;
    own.has_raid0_layout = other.has_raid0_layout;
    own.strip_sectors = other.strip_sectors;
    own.member_count = other.member_count;
    own.component_sectors = other.component_sectors;
    let new_offset_sectors = own.reshape.and_then(|own| own.new_offset_sectors);
    own.reshape = other.reshape.map(|reshape| Reshape {
        new_offset_sectors,
        ..reshape
    });
}

/// First data sector of a member in the new geometry.
pub(crate) fn reshaped_offset_sectors(superblock: &Superblock) -> u64 {
    let shift = superblock
        .reshape
        .and_then(|reshape| reshape.new_offset_sectors);
    superblock
        .data_offset_sectors
        .saturating_add_signed(i64::from(shift.unwrap_or(0)))
}

/// The members with those that an interrupted update left one event behind brought to where the freshest is; event
/// counts stay. `None`: there are none.
pub(crate) fn levelled(examined: &[Examined]) -> Option<Vec<Examined>> {
    let newest = examined
        .iter()
        .map(|member| &member.superblock)
        .max_by_key(|own| own.events.0)?;
    let is_behind = |own: &Superblock| {
        own.events.0 + 1 == newest.events.0
            && own.array_uuid == newest.array_uuid
            && own.version == newest.version
    };
    if !examined
        .iter()
        .any(|member| is_behind(&member.superblock) && differs(&member.superblock, newest))
    {
        return None;
    }
    let mut levelled = examined.to_vec();
    for member in &mut levelled {
        if is_behind(&member.superblock)
            && let Some(superblock) = level_with(&member.superblock, newest)
        {
            member.superblock = superblock;
        }
    }
    Some(levelled)
}

/// Whether both describe arrays of other shapes, or one of them a reshape that the other does not know.
pub(crate) fn contradicts(own: &Superblock, newest: &Superblock) -> bool {
    let shape = |superblock: &Superblock| {
        let reshape = superblock.reshape.map(|reshape| {
            (
                reshape.member_count_change,
                reshape.new_layout,
                reshape.new_strip_sectors,
            )
        });
        (
            superblock.level,
            superblock.layout,
            superblock.strip_sectors,
            superblock.member_count,
            reshape,
        )
    };
    shape(own) != shape(newest)
}

/// Whether an update that reached the freshest would have changed more of this one than its position.
fn differs(own: &Superblock, newest: &Superblock) -> bool {
    let position =
        |superblock: &Superblock| superblock.reshape.map(|reshape| reshape.position_sectors);
    let is_filled_less = own.rebuild_offset_sectors.is_some() && position(own) != position(newest);
    contradicts(own, newest) || is_filled_less
}

/// A superblock as it would be, had the update that made the freshest reached it. `None`: no update makes the one of
/// the other.
fn level_with(own: &Superblock, newest: &Superblock) -> Option<Superblock> {
    let mut made = own.clone();
    if made.reshape.is_some() && newest.reshape.is_none() {
        end(&mut made);
    }
    match (made.reshape, newest.reshape) {
        (None, Some(begun)) => {
            // Nothing has moved before all members said so: only a reshape that has just begun is not known to one.
            let start = if begun.is_backwards() { None } else { Some(0) };
            if start.is_some_and(|start| begun.position_sectors != start) {
                return None;
            }
            if made.data_offset_sectors != newest.data_offset_sectors
                && begun.new_offset_sectors.is_none()
            {
                return None;
            }
            made.reshape = Some(begun);
        }
        (Some(before), Some(after)) => {
            if before.member_count_change != after.member_count_change {
                return None;
            }
            // R9: what the newest position stands for was flushed on every member before any of them said so.
            let data_count = new_data_count(newest)?;
            if made.rebuild_offset_sectors.is_some() && !after.is_backwards() {
                made.rebuild_offset_sectors = Some(after.position_sectors / data_count);
            }
            made.reshape = Some(plexum_format::md::Reshape {
                position_sectors: after.position_sectors,
                ..before
            });
        }
        (None, None) => {
            let is_mirror = newest.level == 1;
            let is_renamed = (made.level, made.layout) != (newest.level, newest.layout);
            let is_same = made.strip_sectors == newest.strip_sectors
                && made.member_count == newest.member_count;
            if !is_same && !is_renamed && !is_mirror {
                return None; // no update changes these alone
            }
        }
        (Some(_), None) => {}
    }
    if (made.level, made.layout) != (newest.level, newest.layout) && !is_same_places(&made, newest)
    {
        return None;
    }
    made.level = newest.level;
    made.layout = newest.layout;
    made.has_raid0_layout = newest.has_raid0_layout;
    made.strip_sectors = newest.strip_sectors;
    made.member_count = newest.member_count;
    if newest.component_sectors > 0 && made.component_sectors == 0 {
        made.component_sectors = newest.component_sectors;
    }
    Some(made)
}

/// Data members of the geometry that a reshape leads to. `None`: it leads to none that there is.
fn new_data_count(superblock: &Superblock) -> Option<u64> {
    let reshape = superblock.reshape?;
    let organisation = Organisation::from_md(reshape.new_level, reshape.new_layout).ok()?;
    let shape = Shape {
        organisation,
        member_count: u16::try_from(superblock.member_count).ok()?,
        strip_sectors: reshape.new_strip_sectors,
    };
    Some(shape.data_count()).filter(|count| *count > 0)
}

/// Whether one is another name of the other: data lie where they did.
fn is_same_places(own: &Superblock, newest: &Superblock) -> bool {
    let strips = own.strip_sectors == newest.strip_sectors;
    let (Some(one), Some(other)) = (Shape::of(own), Shape::of(newest)) else {
        return false;
    };
    let pair = |from: &Shape, to: &Shape| match (from.organisation.level(), to.organisation.level())
    {
        (Level::Raid5, Level::Raid6) => {
            to.organisation.md_layout() % 16 == from.organisation.md_layout() % 16
        }
        (Level::Raid4, Level::Raid5) => to.organisation.md_layout() == 5,
        (Level::Raid4, Level::Raid6) => to.organisation.md_layout() == 5,
        (Level::Raid0, Level::Raid4) => true,
        (Level::Raid0, Level::Raid5) => to.organisation.md_layout() == 5,
        _ => false,
    };
    strips && (pair(&one, &other) || pair(&other, &one))
}
