//! Members that an interrupted update of the superblocks left one event behind. Pure.
//!
//! Invariant: nobody is brought to where the freshest is, but by what an update can have changed: data lie where they
//! did, or have been moved before any member said so (R9).
//!
//! Source: md-reshape.md section 8.

use plexum_format::md::{Reshape, Superblock};
use plexum_layout::{Level, Organisation};

use super::fields::{end, relabel, strike_out, turn_round};
use super::shape::{Relabel, Shape};
use super::take_over::{as_many, near_two};
use crate::assemble::Examined;

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
            superblock.component_sectors,
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
    let has_moved_bitmap = own.bitmap_offset_sectors != newest.bitmap_offset_sectors;
    contradicts(own, newest) || has_moved_bitmap || is_filled_less
}

/// A superblock as it would be, had the update that made the freshest reached it. `None`: no update makes the one of
/// the other.
fn level_with(own: &Superblock, newest: &Superblock) -> Option<Superblock> {
    let mut made = own.clone();
    if made.reshape.is_some() && newest.reshape.is_none() {
        match is_struck_out(own, newest) {
            true => strike_out(&mut made),
            false => end(&mut made),
        }
    }
    if is_turned(own, newest) {
        turn_round(&mut made);
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
            made.reshape = Some(Reshape {
                position_sectors: after.position_sectors,
                ..before
            });
        }
        (None, None) => {
            let is_same = made.strip_sectors == newest.strip_sectors
                && made.member_count == newest.member_count;
            if !is_same && newest.level != 1 && !is_same_places(&made, newest) {
                return None; // no update changes these alone
            }
        }
        (Some(_), None) => {}
    }
    if (made.level, made.layout) != (newest.level, newest.layout) && !is_same_places(&made, newest)
    {
        return None;
    }
    take_over(&mut made, newest);
    made.level = newest.level;
    made.layout = newest.layout;
    made.has_raid0_layout = newest.has_raid0_layout;
    made.strip_sectors = newest.strip_sectors;
    made.member_count = newest.member_count;
    if newest.component_sectors > made.data_size_sectors {
        return None; // room is made before it is used
    }
    if newest.component_sectors > 0 {
        made.component_sectors = newest.component_sectors;
    }
    made.bitmap_offset_sectors = newest.bitmap_offset_sectors;
    Some(made)
}

/// Slots and sizes of a superblock as the relabel has made them that led to a RAID-0, or from one, where one has.
fn take_over(made: &mut Superblock, newest: &Superblock) {
    if let (Some(before), Some(after)) = (Shape::of(made), Shape::of(newest))
        && (made.level == 0) != (newest.level == 0)
    {
        relabel(made, &Relabel { before, after });
    }
}

/// What of a superblock a reshape changes, but for what is each member's own.
type Outline = (u32, u32, i64);

fn outline(superblock: &Superblock) -> Outline {
    (
        superblock.layout,
        superblock.strip_sectors,
        i64::from(superblock.member_count),
    )
}

/// As it was before the reshape that is under way.
fn old_outline(superblock: &Superblock, reshape: &Reshape) -> Outline {
    let (layout, strip, count) = outline(superblock);
    (
        layout,
        strip,
        count - i64::from(reshape.member_count_change),
    )
}

/// As it will be.
fn new_outline(superblock: &Superblock, reshape: &Reshape) -> Outline {
    let count = i64::from(superblock.member_count);
    (reshape.new_layout, reshape.new_strip_sectors, count)
}

/// Whether a reshape that one knows was given up before anything had moved.
fn is_struck_out(own: &Superblock, newest: &Superblock) -> bool {
    own.reshape.is_some_and(|reshape| {
        let (old, new) = (old_outline(own, &reshape), new_outline(own, &reshape));
        outline(newest) == old && old != new
    })
}

/// Whether the freshest goes back with the reshape that the other goes forward with.
fn is_turned(own: &Superblock, newest: &Superblock) -> bool {
    let (Some(before), Some(after)) = (own.reshape, newest.reshape) else {
        return false;
    };
    before.is_backwards() != after.is_backwards()
        && old_outline(own, &before) == new_outline(newest, &after)
        && new_outline(own, &before) == old_outline(newest, &after)
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
    let (Some(one), Some(other)) = (Shape::of(own), Shape::of(newest)) else {
        return false;
    };
    let strips = one.strip_sectors == other.strip_sectors;
    let pair = |from: &Shape, to: &Shape| match (from.organisation.level(), to.organisation.level())
    {
        (Level::Raid1, _) if to.is_pair() => true,
        _ if from.is_pair() && to.is_pair() => true,
        (Level::Raid5, Level::Raid6) => {
            strips && to.organisation.md_layout() % 16 == from.organisation.md_layout() % 16
        }
        (Level::Raid4, Level::Raid5 | Level::Raid6) => strips && to.organisation.md_layout() == 5,
        (Level::Raid0, Level::Raid4 | Level::Raid5 | Level::Raid10) => {
            let has_places = match to.organisation.level() {
                Level::Raid5 => to.organisation.md_layout() == 5,
                Level::Raid10 => to.organisation == near_two(),
                _ => true,
            };
            strips && has_places && as_many(from, to.organisation.level()) == Some(to.member_count)
        }
        (Level::Raid1, Level::Raid10) => {
            to.organisation == near_two() && [from.member_count, to.member_count] == [2, 2]
        }
        _ => false,
    };
    pair(&one, &other) || pair(&other, &one)
}
