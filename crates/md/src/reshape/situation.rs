//! What an array is now, as a plan asks for it. Pure.

use plexum_format::md::{Role, Superblock};
use plexum_format::stripe_log::area::front_end_sector;

use super::plan::{PlanError, Room, Shape, Situation};
use crate::adapter::bitmap_sectors;
use crate::assemble::Examined;

/// What the members say together, spares included.
///
/// # Errors
/// `PlanError`: what has to end first, and what has no shape.
pub fn situation(examined: &[Examined]) -> Result<Situation, PlanError> {
    let refuse = |message: &str, hint: Option<&str>| {
        Err(PlanError {
            message: message.to_owned(),
            hint: hint.map(str::to_owned),
        })
    };
    let newest = examined
        .iter()
        .max_by_key(|member| member.superblock.events.0);
    let Some(newest) = newest.map(|member| &member.superblock) else {
        return refuse("no member is there", None);
    };
    if newest.reshape.is_some() {
        return refuse(
            "a reshape is under way",
            Some("wait for its end, or revert it"),
        );
    }
    if newest.ppl.is_some() || newest.has_journal {
        return refuse(
            "a partial parity log or a journal excludes a reshape",
            Some("take it away first: plexum set VOLUME consistency=bitmap"),
        );
    }
    let Some(shape) = Shape::of(newest) else {
        return refuse("its level has no shape that could be changed", None);
    };
    let is_there = |slot: u16| {
        let has = |member: &&Examined| matches!(newest.role_of(member.superblock.dev_number), Role::Active(own) if own.0 == slot);
        examined
            .iter()
            .find(has)
            .is_some_and(|member| member.superblock.rebuild_offset_sectors.is_none())
    };
    let missing = (0..shape.member_count)
        .filter(|slot| !is_there(*slot))
        .count();
    if missing > 0 {
        return refuse(
            &format!("{missing} of its members are missing or being filled"),
            Some("replace what is missing first: a reshape keeps no more redundancy than there is"),
        );
    }
    let component_sectors = newest.component_sectors;
    Ok(Situation {
        shape,
        component_sectors,
        rooms: examined
            .iter()
            .map(|member| room(member, component_sectors))
            .collect(),
        member_count: u16::try_from(examined.len()).unwrap_or(u16::MAX),
        has_log: examined.iter().any(|member| member.log.is_some()),
    })
}

/// Free sectors of one member.
fn room(member: &Examined, component_sectors: u64) -> Room {
    let superblock: &Superblock = &member.superblock;
    let bitmap = member.bitmap.as_ref().map_or(0, bitmap_sectors);
    // Another structure may come to lie on whole pages only.
    let front = superblock
        .data_offset_sectors
        .saturating_sub(front_end_sector(superblock, bitmap));
    Room {
        front_sectors: front / 8 * 8,
        back_sectors: superblock
            .data_size_sectors
            .saturating_sub(component_sectors)
            / 8
            * 8,
    }
}
