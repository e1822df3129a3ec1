//! What the superblocks say when a reshape begins, turns round, and has ended. Pure.
//!
//! Source: md-reshape.md section 3.

use plexum_format::md::{MdVersion, Reshape, Role, Superblock};
use plexum_format::{SECTOR_BYTES, Slot};
use plexum_layout::Organisation;

use super::plan::Move;
use super::shape::{Relabel, Shape};
use plexum_engine::migrate::Direction;

/// Another name for the same places of data: level, layout and number of slots change, nothing moves.
pub(super) fn relabel(superblock: &mut Superblock, change: &Relabel) {
    let after = &change.after;
    let strip_sectors = u64::from(after.strip_sectors.max(1));
    match (superblock.level, after.organisation.md_level()) {
        // A RAID-0 says what it uses of a member by the size of its data area; nobody has made copies agree.
        (0, 1..) => {
            superblock.component_sectors =
                superblock.data_size_sectors / strip_sectors * strip_sectors;
            superblock.resync_offset_sectors = None;
        }
        (1.., 0) => {
            superblock.data_size_sectors = superblock.component_sectors;
            superblock.component_sectors = 0;
            superblock.bitmap_offset_sectors = None;
        }
        _ => {}
    }
    superblock.has_raid0_layout =
        after.organisation.md_level() == 0 && superblock.version != MdVersion::V090;
    superblock.level = after.organisation.md_level();
    superblock.layout = after.organisation.md_layout();
    superblock.member_count = u32::from(after.member_count);
    superblock.strip_sectors = after.strip_sectors;
    for role in &mut superblock.roles {
        if let Role::Active(slot) = role {
            *role = match change.slot_after(slot.0) {
                Some(slot) => Role::Active(Slot(slot)),
                None => Role::Spare,
            };
        }
    }
    if superblock.role() == Role::Spare {
        superblock.rebuild_offset_sectors = None;
    }
}

/// Slots of a mirror that lacks members, counted without the empty ones: the numbers of who is complete, in the order
/// of the slots, as the superblock that describes the array and those of all members say.
pub(super) fn close_ranks(superblocks: &mut [Superblock], complete: &[u32]) {
    for superblock in superblocks {
        for number in 0..superblock.roles.len() {
            let slot = complete.iter().position(|own| *own as usize == number);
            let is_active = matches!(superblock.roles[number], Role::Active(_));
            superblock.roles[number] = match slot {
                Some(slot) => Role::Active(Slot(slot as u16)), // members are few
                None if is_active => Role::Faulty,
                None => superblock.roles[number],
            };
        }
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

/// R15: the same rows move the other way; what was the old geometry is the new one. A reshape that has moved nothing is
/// struck out. What was filled on the way stays so (R12): its rows that have moved are complete, and so they are when
/// they have moved back.
pub(super) fn turn_round(superblock: &mut Superblock) {
    let Some(reshape) = superblock.reshape else {
        return;
    };
    if has_moved_nothing(superblock, &reshape) {
        strike_out(superblock);
        return;
    }
    let shift = i64::from(reshape.new_offset_sectors.unwrap_or(0));
    let change = reshape.member_count_change;
    // Behind the end of the old volume there is only new space: it goes back with the first row.
    let old_sectors = old_volume_sectors(superblock);
    let position_sectors = match reshape.is_backwards() {
        true => reshape.position_sectors,
        false => old_sectors.map_or(reshape.position_sectors, |end| {
            end.min(reshape.position_sectors)
        }),
    };
    superblock.member_count = superblock.member_count.saturating_add_signed(-change);
    superblock.reshape = Some(Reshape {
        position_sectors,
        member_count_change: -change,
        new_level: superblock.level,
        new_layout: superblock.layout,
        new_strip_sectors: superblock.strip_sectors,
        new_offset_sectors: reshape.new_offset_sectors.map(|shift| -shift),
        is_marked_backwards: change == 0 && !reshape.is_marked_backwards,
    });
    superblock.layout = reshape.new_layout;
    superblock.strip_sectors = reshape.new_strip_sectors;
    superblock.data_offset_sectors = superblock.data_offset_sectors.saturating_add_signed(shift);
    superblock.data_size_sectors = superblock.data_size_sectors.saturating_add_signed(-shift);
}

/// There is but the old geometry.
pub(super) fn strike_out(superblock: &mut Superblock) {
    let Some(reshape) = superblock.reshape.take() else {
        return;
    };
    let count = superblock
        .member_count
        .saturating_add_signed(-reshape.member_count_change);
    superblock.member_count = count;
    for role in &mut superblock.roles {
        if matches!(role, Role::Active(slot) if u32::from(slot.0) >= count) {
            *role = Role::Spare;
        }
    }
    superblock.rebuild_offset_sectors = match superblock.role() {
        Role::Active(_) => superblock.rebuild_offset_sectors.map(|_| 0),
        _ => None,
    };
}

/// Whether its position is where a reshape begins.
fn has_moved_nothing(superblock: &Superblock, reshape: &Reshape) -> bool {
    let start = match reshape.is_backwards() {
        true => new_volume_sectors(superblock, reshape),
        false => Some(0),
    };
    start == Some(reshape.position_sectors)
}

fn old_volume_sectors(superblock: &Superblock) -> Option<u64> {
    volume_sectors(superblock, &Shape::of(superblock)?)
}

fn new_volume_sectors(superblock: &Superblock, reshape: &Reshape) -> Option<u64> {
    let organisation = Organisation::from_md(reshape.new_level, reshape.new_layout).ok()?;
    let shape = Shape {
        organisation,
        member_count: u16::try_from(superblock.member_count).ok()?,
        strip_sectors: reshape.new_strip_sectors,
    };
    volume_sectors(superblock, &shape)
}

fn volume_sectors(superblock: &Superblock, shape: &Shape) -> Option<u64> {
    let geometry = shape.geometry(superblock.component_sectors)?;
    Some(geometry.volume_bytes() / SECTOR_BYTES)
}
