//! What an array is now, and what is wished for, as plans ask for it; and why there is none. Pure.

use std::fmt;

use plexum_format::md::{MdVersion, Role, Superblock};
use plexum_format::stripe_log::area::front_end_sector;
use plexum_layout::Level;

use super::goal::GOAL_SECTORS;
use super::shape::Shape;

/// What is wished for; what is left out stays as it is, or follows from the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Slots.
    pub member_count: Option<u16>,
    /// Level.
    pub level: Option<Level>,
    /// Layout, by a word for it.
    pub layout: Option<String>,
    /// Bytes of a strip.
    pub strip_bytes: Option<u64>,
}

/// Whether an array has a stripe log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogNow {
    /// It has one.
    On,
    /// It has none.
    Off,
}

/// Free sectors of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Before its data, behind everything else that is there.
    pub front_sectors: u64,
    /// Behind the part of its data area that the array uses.
    pub back_sectors: u64,
}

/// What the array is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Situation {
    /// Its shape.
    pub shape: Shape,
    /// Sectors used of each member.
    pub component_sectors: u64,
    /// Of each member that has a slot or will have one.
    pub rooms: Vec<Room>,
    /// Members that are there, spares included, faulty ones not.
    pub member_count: u16,
    /// Slots without a complete member.
    pub missing_slots: Vec<u16>,
    /// Each member says how much of it is used for data: all but those of metadata 0.90.
    pub says_data_size: bool,
    /// It has a stripe log, which needs room as well.
    pub has_log: bool,
}

impl Situation {
    /// Complete members in their slots.
    #[must_use]
    pub fn complete_count(&self) -> u16 {
        let missing = u16::try_from(self.missing_slots.len()).unwrap_or(u16::MAX);
        self.shape.member_count.saturating_sub(missing)
    }
}

/// Why there is no such way; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// What is wrong, with the number that is missing.
    pub message: String,
    /// What would do.
    pub hint: Option<String>,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for PlanError {}

pub(super) fn refuse<T>(message: String, hint: Option<&str>) -> Result<T, PlanError> {
    Err(PlanError {
        message,
        hint: hint.map(str::to_owned),
    })
}

/// What the superblocks of all members say together, spares included. `bitmap_sectors`: what the bitmap takes, its
/// reserve included; 0 without one. `log`: whether it has a stripe log.
///
/// # Errors
/// `PlanError`: what has to end first, and what has no shape.
pub fn situation(
    members: &[&Superblock],
    bitmap_sectors: u64,
    log: LogNow,
) -> Result<Situation, PlanError> {
    let refuse = |message: &str, hint: Option<&str>| {
        Err(PlanError {
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
        })
    };
    let Some(newest) = members.iter().max_by_key(|member| member.events.0) else {
        return refuse("no member is there", None);
    };
    if newest.reshape.is_some() {
        return refuse(
            "a reshape is under way",
            Some("wait for its end:   plexum status VOLUME"),
        );
    }
    if newest.ppl.is_some() || newest.has_journal {
        return refuse(
            "a partial parity log or a journal excludes a reshape",
            Some("take it away first:   plexum set VOLUME consistency=bitmap"),
        );
    }
    let Some(shape) = Shape::of(newest) else {
        return refuse("its level has no shape that could be changed", None);
    };
    let is_there = |slot: u16| {
        let has = |member: &&&Superblock| {
            let role = newest.role_of(member.dev_number);
            matches!(role, Role::Active(own) if own.0 == slot)
        };
        let member = members.iter().find(has);
        member.is_some_and(|member| member.rebuild_offset_sectors.is_none())
    };
    let missing = (0..shape.member_count).filter(|slot| !is_there(*slot));
    let component_sectors = match shape.organisation.level() {
        Level::Raid0 => even_sectors(members, shape.strip_sectors)?,
        _ => newest.component_sectors,
    };
    let is_faulty = |member: &&&Superblock| newest.role_of(member.dev_number) == Role::Faulty;
    let here = members.iter().filter(|member| !is_faulty(member));
    let rooms = members.iter().map(|member| room(member, bitmap_sectors));
    Ok(Situation {
        shape,
        component_sectors,
        rooms: rooms.collect(),
        member_count: u16::try_from(here.count()).unwrap_or(u16::MAX),
        missing_slots: missing.collect(),
        says_data_size: newest.version != MdVersion::V090,
        has_log: log == LogNow::On,
    })
}

/// What a RAID-0 uses of a member, in whole strips.
fn used_of(superblock: &Superblock, strip_sectors: u32) -> u64 {
    let strip = u64::from(strip_sectors.max(1));
    superblock.data_size_sectors / strip * strip
}

/// What a RAID-0 uses of each member when that is the same of all.
fn even_sectors(members: &[&Superblock], strip_sectors: u32) -> Result<u64, PlanError> {
    let used = members.iter().map(|member| used_of(member, strip_sectors));
    let (least, most) = used.fold((u64::MAX, 0), |(least, most), one| {
        (one.min(least), one.max(most))
    });
    if least == most {
        return Ok(least);
    }
    refuse(
        format!(
            "its members give {} KiB and {} KiB: what lies behind the smallest one's end has no place in another level",
            least / 2,
            most / 2
        ),
        Some("a copy does it: create the new array, and copy the data"),
    )
}

/// Free sectors of one member.
fn room(superblock: &Superblock, bitmap_sectors: u64) -> Room {
    let component_sectors = match superblock.level {
        0 => used_of(superblock, superblock.strip_sectors),
        _ => superblock.component_sectors,
    };
    // The page where its goal is kept is no room.
    let front_end = front_end_sector(superblock, bitmap_sectors).next_multiple_of(GOAL_SECTORS);
    let front_end = front_end + GOAL_SECTORS;
    let front = superblock.data_offset_sectors.saturating_sub(front_end);
    let back = superblock
        .data_size_sectors
        .saturating_sub(component_sectors);
    // Other structures begin at whole pages.
    Room {
        front_sectors: front / 8 * 8,
        back_sectors: back / 8 * 8,
    }
}
