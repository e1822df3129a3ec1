//! What an array can become, by which stations, and whether there is room. Pure.
//!
//! Words: a *station* is one step that the superblocks can express: a relabel, where nothing moves, or a move of all
//! rows. The *shift* is how far the data begin nearer to the start of each member (negative) or farther from it
//! afterwards: that is the room in which rows are moved without ever being over themselves.
//!
//! Source: md-reshape.md sections 1 and 2.

use plexum_format::SECTOR_BYTES;
use plexum_layout::Level;

use super::shape::{Relabel, Shape};
use super::situation::{PlanError, Room, Situation, Wish, refuse};
use super::stations::{first_station, last_station, wished};
use super::take_over::check_plain;
use plexum_engine::migrate::{Direction, Window, WindowSpec};

/// Sectors that a stripe log needs before the data, its header and the bytes that it spares included (L1).
const LOG_ROOM_SECTORS: u64 = 640;

/// Most sectors of a shift: more would only be taken from the next reshape.
const SHIFT_SECTORS_MAX: u64 = 32 << 11;

/// All rows are moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// As it was.
    pub before: Shape,
    /// As it will be.
    pub after: Shape,
    /// Which way the border moves.
    pub direction: Direction,
    /// Where it begins, in sectors of the array.
    pub start_sectors: u64,
    /// How far the data offset of each member moves.
    pub shift_sectors: i32,
}

/// The way from what an array is to what it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// As it is.
    pub before: Shape,
    /// As it will be.
    pub after: Shape,
    /// Sectors used of each member.
    pub component_sectors: u64,
    /// At once, before anything moves.
    pub first: Option<Relabel>,
    /// What moves.
    pub movement: Option<Move>,
    /// At once, when all has moved.
    pub last: Option<Relabel>,
    /// Members that have to be added before it begins.
    pub lacking_members: u16,
    /// Size of the volume now, in bytes.
    pub before_bytes: u64,
    /// And then.
    pub after_bytes: u64,
    /// Whether a stripe log has room again at the end.
    pub has_room_for_log: bool,
}

/// Finds the way.
///
/// # Errors
/// `PlanError`: md cannot express it, there is no room, or too few members.
pub fn plan(now: &Situation, wish: &Wish) -> Result<Plan, PlanError> {
    let before = now.shape;
    let after = wished(now, wish)?;
    if before == after {
        check_complete(now, &after, None)?;
        return refuse(format!("it is {before} already"), None);
    }
    let (first, from) = first_station(&before, &after)?;
    let (last, to) = last_station(&from, &after)?;
    check_complete(now, &after, last.as_ref().filter(|_| from == to))?;
    check_plain(now, &to, &after)?;
    check_strips(now, &to)?;
    let size = |shape: &Shape| {
        let geometry = shape.geometry(now.component_sectors);
        geometry
            .map(|geometry| geometry.volume_bytes())
            .ok_or_else(|| PlanError {
                message: format!(
                    "{shape} over {} KiB of each member cannot be",
                    now.component_sectors / 2
                ),
                hint: None,
            })
    };
    let (before_bytes, after_bytes) = (size(&before)?, size(&after)?);
    let movement = match from == to {
        true => None,
        false => Some(movement(now, &from, &to)?),
    };
    // Whom a relabel lets go of may be gone before.
    let needed = match &last {
        Some(last) if movement.is_none() && last.after.level() == Level::Raid0 => {
            after.member_count
        }
        _ => to.member_count.max(after.member_count),
    };
    let shift = movement
        .as_ref()
        .map_or(0, |movement| i64::from(movement.shift_sectors));
    let room = now
        .rooms
        .iter()
        .map(|room| room.front_sectors.saturating_add_signed(shift))
        .min();
    Ok(Plan {
        lacking_members: needed.saturating_sub(now.member_count),
        has_room_for_log: after.organisation.level().has_parity()
            && room.is_some_and(|room| room >= LOG_ROOM_SECTORS),
        before,
        after,
        component_sectors: now.component_sectors,
        first,
        movement,
        last,
        before_bytes,
        after_bytes,
    })
}

/// A mirror that lacks members may get fewer slots, and who is let go of by `last`, which comes at once, may be gone;
/// everything else adds no redundancy that is not there.
fn check_complete(now: &Situation, after: &Shape, last: Option<&Relabel>) -> Result<(), PlanError> {
    let (before, complete) = (now.shape, now.complete_count());
    let are_let_go = last.and_then(|last| last.let_go(&now.missing_slots));
    // A stripe log is not taken away while a member is missing.
    if are_let_go.is_some() && (now.missing_slots.is_empty() || !now.has_log) {
        return Ok(());
    }
    let is_mirror = |shape: &Shape| shape.organisation.level() == Level::Raid1;
    let is_smaller = is_mirror(&before) && is_mirror(after) && after.member_count <= complete;
    if complete == before.member_count || is_smaller {
        return Ok(());
    }
    refuse(
        format!(
            "{} of its members are missing or being filled",
            before.member_count - complete
        ),
        Some("replace what is missing first: a reshape adds no redundancy that is not there"),
    )
}

fn check_strips(now: &Situation, to: &Shape) -> Result<(), PlanError> {
    let strip = u64::from(to.strip_sectors);
    if strip == 0 || now.component_sectors.is_multiple_of(strip) {
        return Ok(());
    }
    let rest = now.component_sectors % strip;
    refuse(
        format!(
            "strips of {} KiB do not divide the {} KiB that are used of each member: {} KiB are left over",
            strip / 2,
            now.component_sectors / 2,
            rest / 2
        ),
        Some("choose a smaller strip"),
    )
}

/// Finds the room for a move, and its direction.
fn movement(now: &Situation, before: &Shape, after: &Shape) -> Result<Move, PlanError> {
    let unit = u64::from(before.strip_sectors.max(after.strip_sectors));
    let all = |of: fn(&Room) -> u64| now.rooms.iter().map(of).min().unwrap_or(0);
    let (front, back) = (
        all(|room| room.front_sectors),
        all(|room| room.back_sectors),
    );
    let (old, new) = (before.data_count(), after.data_count());
    let may_go_up = new >= old && front >= unit;
    let may_go_down = new <= old && back >= unit;
    // With as many data members as before each window is as long as the shift: the larger room is better. Who has
    // nothing in the old geometry is complete as far as it has come upwards alone (R12).
    // What a relabel has just added has nothing in the old geometry.
    let is_filled = now.shape != *before;
    let takes_up = may_go_up && (!may_go_down || front >= back || is_filled);
    let direction = match (may_go_up, may_go_down) {
        (true, _) if takes_up => Direction::Up,
        (_, true) => Direction::Down,
        _ => return no_room(unit, [front, back], [old, new]),
    };
    let shift = match direction {
        // What is not needed is left for the next time: with more data members windows grow by themselves.
        Direction::Up if new > old => unit,
        Direction::Up => {
            let keeps = if now.has_log { LOG_ROOM_SECTORS } else { 0 };
            let most = front.saturating_sub(keeps).min(SHIFT_SECTORS_MAX) / unit * unit;
            most.max(unit)
        }
        Direction::Down if new < old => unit,
        Direction::Down => (back.min(SHIFT_SECTORS_MAX) / unit * unit).max(unit),
    };
    let signed = match direction {
        Direction::Up => -(shift as i64),
        Direction::Down => shift as i64,
    };
    let window = window(now.component_sectors, before, after, direction, shift)?;
    Ok(Move {
        before: *before,
        after: *after,
        direction,
        start_sectors: window.start_bytes() / SECTOR_BYTES,
        shift_sectors: signed as i32, // at most SHIFT_SECTORS_MAX
    })
}

/// How the rows lie over each other.
fn window(
    component_sectors: u64,
    before: &Shape,
    after: &Shape,
    direction: Direction,
    gap_sectors: u64,
) -> Result<Window, PlanError> {
    let geometry = |shape: &Shape| shape.geometry(component_sectors);
    let (Some(old), Some(new)) = (geometry(before), geometry(after)) else {
        return refuse(format!("{before} does not become {after}"), None);
    };
    let window = Window::new(&WindowSpec {
        before: &old,
        after: &new,
        direction,
        gap_bytes: gap_sectors * SECTOR_BYTES,
        step_bytes: 0,
    });
    window.or_else(|unfit| refuse(unfit.to_string(), None))
}

fn no_room<T>(unit: u64, [front, back]: [u64; 2], [old, new]: [u64; 2]) -> Result<T, PlanError> {
    let (place, there) = match new.cmp(&old) {
        std::cmp::Ordering::Greater => ("before the data", front),
        std::cmp::Ordering::Less => ("behind the data", back),
        std::cmp::Ordering::Equal => ("before or behind the data", front.max(back)),
    };
    let message = format!(
        "there is no room to move rows in: each member needs {} KiB free {place}, and one has {} KiB",
        unit / 2,
        there / 2
    );
    refuse(
        message,
        Some(
            "a smaller strip needs less; else create a new array and copy, which \"plexum convert\" does",
        ),
    )
}
