//! What an array is to become, and the relabels before and after the rows move. Pure.
//!
//! Source: md-reshape.md section 1.

use plexum_format::SECTOR_BYTES;
use plexum_layout::{Level, Organisation, Raid5Layout};

use super::shape::{Relabel, Shape, with_q};
use super::situation::{PlanError, Situation, Wish, refuse};
use super::take_over::{PARITY_LAST, as_many, before_plain, is_take_over, near_two, take_over};

/// Bytes of a strip where there was none and nobody asks for one, when they divide what is used of each member.
const STRIP_BYTES: u64 = 64 << 10;
/// Bytes of md's smallest strip.
const STRIP_BYTES_MIN: u64 = 4 << 10;

/// What is wished for, with what follows from it.
pub(super) fn wished(now: &Situation, wish: &Wish) -> Result<Shape, PlanError> {
    let before = &now.shape;
    let was = before.organisation.level();
    let level = wish.level.unwrap_or(was);
    check_levels(before, level)?;
    let organisation = match &wish.layout {
        Some(word) => Organisation::from_words(level, Some(word)).map_err(|error| PlanError {
            message: error.to_string(),
            hint: None,
        })?,
        None => same_layout(before.organisation, level)?,
    };
    let member_count = match wish.member_count {
        Some(count) => i32::from(count),
        None => members_of(before, level),
    };
    let strip_sectors = match wish.strip_bytes {
        _ if level == Level::Raid1 => 0,
        None if was == Level::Raid1 => first_strip(now.component_sectors),
        None => before.strip_sectors,
        Some(bytes) if bytes.is_power_of_two() && (4096..=1 << 30).contains(&bytes) => {
            (bytes / SECTOR_BYTES) as u32
        } // at most 2^21
        Some(bytes) => {
            return refuse(
                format!("a strip of {bytes} bytes cannot be: it is a power of two, 4 KiB at least"),
                None,
            );
        }
    };
    let shape = Shape {
        organisation,
        member_count: u16::try_from(member_count).unwrap_or(0),
        strip_sectors,
    };
    let least = if level == Level::Raid6 { 4 } else { 2 };
    if shape.member_count < least || shape.data_count() == 0 {
        return refuse(
            format!("{level} needs {least} members at least, this would leave {member_count}"),
            None,
        );
    }
    Ok(shape)
}

/// Members that an array of a level has where nobody says so.
fn members_of(before: &Shape, level: Level) -> i32 {
    let was = before.level();
    let more = i32::from(level == Level::Raid6) - i32::from(was == Level::Raid6);
    match (was, level) {
        (Level::Raid4 | Level::Raid5, Level::Raid1) => 2,
        _ => match as_many(before, level) {
            Some(count) => i32::from(count),
            None => i32::from(before.member_count) + more,
        },
    }
}

/// Levels that md can turn into each other in place, at least by way of another one.
fn check_levels(before: &Shape, level: Level) -> Result<(), PlanError> {
    let was = before.level();
    if is_take_over(was, level) {
        return Ok(());
    }
    let has_place = |level: Level| level.has_parity() || level == Level::Raid1;
    match (was, level) {
        (Level::Raid4 | Level::Raid5, Level::Raid0) => Ok(()),
        (Level::Raid0, Level::Raid6) => refuse(
            format!("{was} becomes {level} by way of a raid5"),
            Some("first:   plexum grow VOLUME --level 5 --add MEMBER"),
        ),
        (Level::Raid6, Level::Raid0) => refuse(
            format!("{was} becomes {level} by way of a raid5"),
            Some("first:   plexum grow VOLUME --level 5"),
        ),
        (Level::Raid10, Level::Raid4 | Level::Raid5)
        | (Level::Raid4 | Level::Raid5, Level::Raid10) => refuse(
            format!("{was} becomes {level} by way of a raid0, which has no redundancy"),
            Some("first, with a backup at hand:   plexum grow VOLUME --level 0"),
        ),
        _ if !has_place(was) || !has_place(level) => refuse(
            format!("{was} does not become {level} in place yet"),
            Some("a copy does it: create the new array, and \"plexum convert\" or copy the data"),
        ),
        (Level::Raid1, Level::Raid6) => refuse(
            format!("{was} becomes {level} by way of a raid5"),
            Some("first:   plexum grow VOLUME --level 5 --members 3, with a third member"),
        ),
        (Level::Raid6, Level::Raid1) => refuse(
            format!("{was} becomes {level} by way of a raid5"),
            Some("first:   plexum grow VOLUME --level 5"),
        ),
        _ => Ok(()),
    }
}

/// Strips for what had none.
fn first_strip(component_sectors: u64) -> u32 {
    let mut strip_bytes = STRIP_BYTES;
    while strip_bytes > STRIP_BYTES_MIN
        && !component_sectors.is_multiple_of(strip_bytes / SECTOR_BYTES)
    {
        strip_bytes /= 2;
    }
    (strip_bytes / SECTOR_BYTES) as u32 // at most 128
}

/// The layout of a level in which data lie as they do now, as far as there is one.
fn same_layout(before: Organisation, level: Level) -> Result<Organisation, PlanError> {
    if before.level() == level {
        return Ok(before);
    }
    let number = match before {
        Organisation::Raid4 | Organisation::Raid0(_) => Raid5Layout::ParityLast as u32,
        Organisation::Raid5(layout) => layout as u32,
        Organisation::Raid6(layout) => match layout as u32 {
            number @ (0..=5) => number,
            number @ (16..=20) => number - 16,
            _ => Raid5Layout::LeftSymmetric as u32,
        },
        _ => Raid5Layout::LeftSymmetric as u32,
    };
    let number = match level {
        Level::Raid4 | Level::Raid1 => 0,
        Level::Raid0 => 1,
        Level::Raid10 => near_two().md_layout(),
        _ => number,
    };
    Organisation::from_md(level.md_number(), number).map_err(|error| PlanError {
        message: error.to_string(),
        hint: None,
    })
}

/// The relabel that comes first, and what it makes of the array.
pub(super) fn first_station(
    before: &Shape,
    after: &Shape,
) -> Result<(Option<Relabel>, Shape), PlanError> {
    let (from, to) = (before.organisation.level(), after.organisation.level());
    // Of two members with one member's worth of data each has all: any layout and strip is one of the same places.
    let as_pair = Shape {
        member_count: 2,
        ..*after
    };
    let relabelled = match (from, to) {
        (Level::Raid10, Level::Raid0) => return Ok((None, *before)),
        (from, to) if is_take_over(from, to) => take_over(before, after)?,
        (Level::Raid1, Level::Raid1) => *after,
        (Level::Raid1, Level::Raid4 | Level::Raid5) => as_pair,
        (Level::Raid4 | Level::Raid5, Level::Raid4 | Level::Raid5)
            if before.is_pair() && as_pair != *before =>
        {
            as_pair
        }
        (Level::Raid4, Level::Raid5) => Shape {
            organisation: PARITY_LAST,
            ..*before
        },
        (Level::Raid4 | Level::Raid5, Level::Raid6) => Shape {
            organisation: with_q(before.organisation).expect("each RAID-5 has such a layout"),
            member_count: before.member_count + 1,
            ..*before
        },
        _ => return Ok((None, *before)),
    };
    let relabel = Relabel {
        before: *before,
        after: relabelled,
    };
    Ok((Some(relabel), relabelled))
}

/// The relabel that comes last, and what it has to find.
pub(super) fn last_station(
    from: &Shape,
    after: &Shape,
) -> Result<(Option<Relabel>, Shape), PlanError> {
    let before = match (from.organisation.level(), after.organisation.level()) {
        (Level::Raid4 | Level::Raid5, Level::Raid0) => before_plain(from, after),
        (Level::Raid10, Level::Raid0) => {
            take_over(from, after)?;
            *from
        }
        (Level::Raid4 | Level::Raid5, Level::Raid1) => Shape {
            member_count: 2,
            ..*from
        },
        (Level::Raid6, Level::Raid5 | Level::Raid4) => Shape {
            organisation: with_q(after.organisation).expect("each RAID-5 has such a layout"),
            member_count: after.member_count + 1,
            ..*after
        },
        (Level::Raid5, Level::Raid4) => Shape {
            organisation: PARITY_LAST,
            ..*after
        },
        _ => return Ok((None, *after)),
    };
    let relabel = Relabel {
        before,
        after: *after,
    };
    Ok((Some(relabel), before))
}
