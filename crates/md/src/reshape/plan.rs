//! What an array can become, by which stations, and whether there is room. Pure.
//!
//! Words: a *station* is one step that the superblocks can express: a relabel, where nothing moves, or a move of all
//! rows. The *shift* is how far the data begin nearer to the start of each member (negative) or farther from it
//! afterwards: that is the room in which rows are moved without ever being over themselves.
//!
//! Source: md-reshape.md sections 1 and 2.

use std::fmt;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::Superblock;
use plexum_layout::{Geometry, GeometrySpec, Level, Organisation, Raid5Layout, Raid6Layout};

use plexum_engine::migrate::{Direction, Window, WindowSpec};

/// Sectors that a stripe log needs before the data, its header and the bytes that it spares included (L1).
const LOG_ROOM_SECTORS: u64 = 640;

/// Most sectors of a shift: more would only be taken from the next reshape.
const SHIFT_SECTORS_MAX: u64 = 32 << 11;

/// How an array is laid out, as its superblocks say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Level and layout.
    pub organisation: Organisation,
    /// Slots.
    pub member_count: u16,
    /// Sectors of a strip.
    pub strip_sectors: u32,
}

impl Shape {
    /// That of an array without a reshape under way, or before the one that is. `None`: no shape that a reshape knows.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let organisation = Organisation::from_md(superblock.level, superblock.layout).ok()?;
        let change = superblock
            .reshape
            .map_or(0, |reshape| reshape.member_count_change);
        let member_count = i64::from(superblock.member_count) - i64::from(change);
        Some(Self {
            organisation,
            member_count: u16::try_from(member_count).ok()?,
            strip_sectors: superblock.strip_sectors,
        })
    }

    /// Address map over members that each give `component_sectors`. `None`: there is none.
    #[must_use]
    pub fn geometry(&self, component_sectors: u64) -> Option<Geometry> {
        Geometry::new(&GeometrySpec {
            organisation: self.organisation,
            member_count: self.member_count,
            strip_bytes: u64::from(self.strip_sectors) * SECTOR_BYTES,
            component_bytes: component_sectors.checked_mul(SECTOR_BYTES)?,
            member_sizes_bytes: Vec::new(),
        })
        .ok()
    }

    fn parity_count(&self) -> u16 {
        match self.organisation.level() {
            Level::Raid6 => 2,
            Level::Raid4 | Level::Raid5 => 1,
            _ => 0,
        }
    }

    /// Members' worth of data in a row.
    #[must_use]
    pub fn data_count(&self) -> u64 {
        u64::from(self.member_count.saturating_sub(self.parity_count()))
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of {} members",
            self.organisation.level(),
            self.member_count
        )?;
        if let Some(layout) = self.organisation.layout_name() {
            write!(f, ", {layout}")?;
        }
        write!(f, ", strips of {} KiB", self.strip_sectors / 2)
    }
}

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
    /// Members that are there, spares included.
    pub member_count: u16,
    /// It has a stripe log, which needs room as well.
    pub has_log: bool,
}

/// Another name for the same places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relabel {
    /// As it was.
    pub before: Shape,
    /// As it will be.
    pub after: Shape,
}

impl Relabel {
    /// The way back.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            before: self.after,
            after: self.before,
        }
    }

    /// From a RAID-6 whose Q has a member of its own to the RAID-5 of the others. `None`: it has none.
    #[must_use]
    pub fn without_q(before: &Shape) -> Option<Self> {
        let layouts = Raid5Layout::ALL.iter().map(|(layout, ..)| *layout);
        let organisations = layouts.map(Organisation::Raid5);
        let organisation = organisations
            .filter(|organisation| with_q(*organisation) == Some(before.organisation))
            .next()?;
        Some(Self {
            before: *before,
            after: Shape {
                organisation,
                member_count: before.member_count.checked_sub(1)?,
                ..*before
            },
        })
    }

    /// Whether an array of that address map stands where this begins: one that has not moved yet, or is labelled so
    /// already, does not.
    #[must_use]
    pub fn is_due(&self, geometry: &Geometry) -> bool {
        self.before.organisation == geometry.organisation()
            && usize::from(self.before.member_count) == geometry.member_count()
            && u64::from(self.before.strip_sectors) * SECTOR_BYTES == geometry.strip_bytes()
    }
}

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

/// Finds the way.
///
/// # Errors
/// `PlanError`: md cannot express it, there is no room, or too few members.
pub fn plan(now: &Situation, wish: &Wish) -> Result<Plan, PlanError> {
    let before = now.shape;
    let after = wished(&before, wish)?;
    if before == after {
        return refuse(format!("it is {before} already"), None);
    }
    let (first, from) = first_station(&before, &after)?;
    let (last, to) = last_station(&from, &after)?;
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
    let shift = movement
        .as_ref()
        .map_or(0, |movement| i64::from(movement.shift_sectors));
    let room = now
        .rooms
        .iter()
        .map(|room| room.front_sectors.saturating_add_signed(shift))
        .min();
    Ok(Plan {
        lacking_members: to.member_count.saturating_sub(now.member_count),
        has_room_for_log: room.is_some_and(|room| room >= LOG_ROOM_SECTORS),
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

/// What is wished for, with what follows from it.
fn wished(before: &Shape, wish: &Wish) -> Result<Shape, PlanError> {
    let level = wish.level.unwrap_or(before.organisation.level());
    if !before.organisation.level().has_parity() || !level.has_parity() {
        return refuse(
            format!(
                "{} does not become {level} in place yet",
                before.organisation.level()
            ),
            Some("a copy does it: create the new array, and \"plexum convert\" or copy the data"),
        );
    }
    let organisation = match &wish.layout {
        Some(word) => Organisation::from_words(level, Some(word)).map_err(|error| PlanError {
            message: error.to_string(),
            hint: None,
        })?,
        None => same_layout(before.organisation, level)?,
    };
    let more =
        i32::from(level == Level::Raid6) - i32::from(before.organisation.level() == Level::Raid6);
    let member_count = wish
        .member_count
        .map_or(i32::from(before.member_count) + more, i32::from);
    let strip_sectors = match wish.strip_bytes {
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

/// The layout of a level in which data lie as they do now, as far as there is one.
fn same_layout(before: Organisation, level: Level) -> Result<Organisation, PlanError> {
    if before.level() == level {
        return Ok(before);
    }
    let number = match before {
        Organisation::Raid4 => Raid5Layout::ParityLast as u32,
        Organisation::Raid5(layout) => layout as u32,
        Organisation::Raid6(layout) => match layout as u32 {
            number @ (0..=5) => number,
            number @ (16..=20) => number - 16,
            _ => Raid5Layout::LeftSymmetric as u32,
        },
        _ => 0,
    };
    let number = if level == Level::Raid4 { 0 } else { number };
    Organisation::from_md(level.md_number(), number).map_err(|error| PlanError {
        message: error.to_string(),
        hint: None,
    })
}

/// The RAID-6 layout in which a RAID-5 lies with Q on a member of its own.
fn with_q(organisation: Organisation) -> Option<Organisation> {
    let number = match organisation {
        Organisation::Raid4 => 5,
        Organisation::Raid5(Raid5Layout::ParityLast) => 5, // md has one number for both
        Organisation::Raid5(layout) => layout as u32 + 16,
        _ => return None,
    };
    let found = Raid6Layout::ALL
        .iter()
        .find(|(layout, ..)| *layout as u32 == number);
    found.map(|(layout, ..)| Organisation::Raid6(*layout))
}

/// The relabel that comes first, and what it makes of the array.
fn first_station(before: &Shape, after: &Shape) -> Result<(Option<Relabel>, Shape), PlanError> {
    let (from, to) = (before.organisation.level(), after.organisation.level());
    let relabelled = match (from, to) {
        (Level::Raid4, Level::Raid5) => Shape {
            organisation: Organisation::Raid5(Raid5Layout::ParityLast),
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
fn last_station(from: &Shape, after: &Shape) -> Result<(Option<Relabel>, Shape), PlanError> {
    let before = match (from.organisation.level(), after.organisation.level()) {
        (Level::Raid6, Level::Raid5 | Level::Raid4) => Shape {
            organisation: with_q(after.organisation).expect("each RAID-5 has such a layout"),
            member_count: after.member_count + 1,
            ..*after
        },
        (Level::Raid5, Level::Raid4) => Shape {
            organisation: Organisation::Raid5(Raid5Layout::ParityLast),
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

fn check_strips(now: &Situation, to: &Shape) -> Result<(), PlanError> {
    let strip = u64::from(to.strip_sectors);
    if now.component_sectors.is_multiple_of(strip) {
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
