//! What an array is now, as a plan asks for it. Pure.

use plexum_format::md::{Role, Superblock};
use plexum_format::stripe_log::area::front_end_sector;

use super::goal::GOAL_SECTORS;
use super::plan::{LogNow, PlanError, Room, Shape, Situation};

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
    let missing = (0..shape.member_count)
        .filter(|slot| !is_there(*slot))
        .count();
    if missing > 0 {
        return refuse(
            &format!("{missing} of its members are missing or being filled"),
            Some("replace what is missing first: a reshape adds no redundancy that is not there"),
        );
    }
    let component_sectors = newest.component_sectors;
    let rooms = members.iter().map(|member| room(member, bitmap_sectors));
    Ok(Situation {
        shape,
        component_sectors,
        rooms: rooms.collect(),
        member_count: u16::try_from(members.len()).unwrap_or(u16::MAX),
        has_log: log == LogNow::On,
    })
}

/// Free sectors of one member.
fn room(superblock: &Superblock, bitmap_sectors: u64) -> Room {
    // The page where its goal is kept is no room.
    let front_end = front_end_sector(superblock, bitmap_sectors).next_multiple_of(GOAL_SECTORS);
    let front_end = front_end + GOAL_SECTORS;
    let front = superblock.data_offset_sectors.saturating_sub(front_end);
    let back = superblock
        .data_size_sectors
        .saturating_sub(superblock.component_sectors);
    // Other structures begin at whole pages.
    Room {
        front_sectors: front / 8 * 8,
        back_sectors: back / 8 * 8,
    }
}
