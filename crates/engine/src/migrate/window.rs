//! How far rows may be moved before the position must be made durable (R3, R5, R6). Pure.
//!
//! Words: a *row* is one strip of each member; the *border* is an address of the volume, on one side of which the new
//! geometry holds what clients have, on the other side the old one; the *gap* is how far the data begin nearer to the
//! start of each member (upwards) or farther from it (downwards) in the new geometry; the *critical section* is what
//! cannot be moved without being kept elsewhere first, for its new place is its own old one.
//!
//! Invariants:
//! - a window ends where new rows begin to lie over old rows that the border on the members still needs: rounded to
//!   whole old rows, so that the row which the border cuts is whole for its parity (R5);
//! - a border is a multiple of the unit, or the end: nothing else was ever made durable.
//!
//! Source: md-reshape.md sections 4 and 8.

use std::ops::Range;

use plexum_layout::{Geometry, Organisation};

use super::position::{Direction, Position, Unfit};

/// What is needed to know how far a migration may go.
#[derive(Clone, Copy, Debug)]
pub struct WindowSpec<'a> {
    /// The geometry that there was.
    pub before: &'a Geometry,
    /// The geometry that there will be.
    pub after: &'a Geometry,
    /// Which way the border moves.
    pub direction: Direction,
    /// Bytes between the beginnings of the data in the two geometries: of all members the smallest number.
    pub gap_bytes: u64,
    /// Most volume bytes that are moved before the border follows, where a unit is not larger.
    pub step_bytes: u64,
}

/// How the rows of two geometries lie over each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    direction: Direction,
    old: Rows,
    new: Rows,
    gap_bytes: u64,
    step_bytes: u64,
    /// Member bytes of a unit: whole strips of both geometries.
    unit_member_bytes: u64,
    critical_bytes: u64,
}

/// Rows of one geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rows {
    strip_bytes: u64,
    data_count: u64,
    volume_bytes: u64,
}

impl Rows {
    fn of(geometry: &Geometry) -> Result<Self, Unfit> {
        let organisation = geometry.organisation();
        let rows = Self {
            strip_bytes: geometry.strip_bytes(),
            data_count: geometry.data_count() as u64,
            volume_bytes: geometry.volume_bytes(),
        };
        let has_rows = matches!(
            organisation,
            Organisation::Raid0(_)
                | Organisation::Raid4
                | Organisation::Raid5(_)
                | Organisation::Raid6(_)
        );
        // RAID-0 over members of several sizes has rows of several lengths.
        let each = rows.volume_bytes / rows.data_count;
        let is_even = (0..geometry.member_count()).all(|slot| geometry.used_bytes(slot) == each);
        if has_rows && is_even {
            Ok(rows)
        } else {
            Err(Unfit::NoRows(organisation))
        }
    }

    /// Data bytes of a row.
    fn row_bytes(&self) -> u64 {
        self.strip_bytes * self.data_count
    }
}

fn greatest_divisor(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        greatest_divisor(other, one % other)
    }
}

impl Window {
    /// Compares two geometries over the same members.
    ///
    /// # Errors
    /// `Unfit`: no rows of strips, a direction in which there is never room, or members that are too small for it.
    pub fn new(spec: &WindowSpec<'_>) -> Result<Self, Unfit> {
        let (old, new) = (Rows::of(spec.before)?, Rows::of(spec.after)?);
        let divisor = greatest_divisor(old.strip_bytes, new.strip_bytes);
        let unit = (old.strip_bytes / divisor).checked_mul(new.strip_bytes);
        let mut window = Self {
            direction: spec.direction,
            gap_bytes: spec.gap_bytes,
            step_bytes: spec.step_bytes,
            unit_member_bytes: unit.ok_or(Unfit::TooSmall)?,
            critical_bytes: 0,
            old,
            new,
        };
        window.check_sizes()?;
        window.critical_bytes = window.critical()?;
        Ok(window)
    }

    fn check_sizes(&self) -> Result<(), Unfit> {
        let (before, after) = (self.old.volume_bytes, self.new.volume_bytes);
        let keeps_all = match self.direction {
            Direction::Up => after >= before,
            Direction::Down => after <= before,
        };
        if !keeps_all {
            return Err(Unfit::Sizes { before, after });
        }
        let unit = self.unit_member_bytes.checked_mul(self.new.data_count);
        match unit {
            Some(unit) if unit <= after => Ok(()),
            _ => Err(Unfit::TooSmall),
        }
    }

    /// From a border of `n` units the next unit can be moved when `n * more * strips >= data_count * lacking`: the old
    /// rows that are needed are `strips * data_count_new / data_count_old` a unit, the new ones `strips`, and what is
    /// rounded and compared are whole strips.
    fn critical(&self) -> Result<u64, Unfit> {
        let strips = self.unit_member_bytes / self.old.strip_bytes;
        let lacking = strips.saturating_sub(self.gap_bytes / self.old.strip_bytes);
        let (old, new) = (self.old.data_count, self.new.data_count);
        let more = match self.direction {
            Direction::Up => new.checked_sub(old),
            Direction::Down => old.checked_sub(new),
        };
        let more = more.ok_or(Unfit::NoRoom)?;
        if lacking == 0 {
            return Ok(0);
        }
        if more == 0 {
            return Err(Unfit::NoRoom); // every row would be written over itself
        }
        let all = lacking.checked_mul(old).ok_or(Unfit::TooSmall)?;
        let each = strips.checked_mul(more).ok_or(Unfit::TooSmall)?;
        let units = match self.direction {
            Direction::Up => all.div_ceil(each),
            Direction::Down => all.div_ceil(each) - 1, // the last one that can be moved ends here
        };
        let critical = units.checked_mul(self.unit_bytes());
        // Kept somewhere, it is put into new rows: those must be there.
        let critical = critical.filter(|bytes| *bytes <= self.new.volume_bytes);
        critical.ok_or(Unfit::TooSmall)
    }

    /// Which way the border moves.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// What the border moves by: volume bytes of whole new rows, which begin and end with whole strips of both
    /// geometries.
    #[must_use]
    pub fn unit_bytes(&self) -> u64 {
        self.unit_member_bytes * self.new.data_count
    }

    /// Volume bytes of whole rows of both geometries: a border at a multiple of it cuts no row.
    #[must_use]
    pub fn whole_bytes(&self) -> u64 {
        let (one, other) = (
            self.unit_bytes(),
            self.unit_member_bytes * self.old.data_count,
        );
        (one / greatest_divisor(one, other)).saturating_mul(other)
    }

    /// Whether the same rows can be moved back from here: the border is one in the other direction as well.
    #[must_use]
    pub fn is_turnable(&self, border_bytes: u64) -> bool {
        // Behind the end of the old volume there is nothing but new space.
        let is_behind = self.direction == Direction::Up && border_bytes >= self.old.volume_bytes;
        let has_room = self.critical_bytes == 0;
        has_room && (is_behind || border_bytes.is_multiple_of(self.whole_bytes()))
    }

    /// Volume bytes from address 0 on that are kept elsewhere while their rows are written; 0 when there is room.
    #[must_use]
    pub fn critical_bytes(&self) -> u64 {
        self.critical_bytes
    }

    /// Member bytes of the new rows of the critical section.
    #[must_use]
    pub fn critical_member_bytes(&self) -> u64 {
        self.critical_bytes / self.new.data_count
    }

    /// Data bytes of an old row.
    #[must_use]
    pub fn old_row_bytes(&self) -> u64 {
        self.old.row_bytes()
    }

    /// Data bytes of a new row.
    #[must_use]
    pub fn new_row_bytes(&self) -> u64 {
        self.new.row_bytes()
    }

    /// Where the border is before anything has moved.
    #[must_use]
    pub fn start_bytes(&self) -> u64 {
        match self.direction {
            Direction::Up => 0,
            Direction::Down => self.new.volume_bytes,
        }
    }

    /// Size of the new volume: what there is to move.
    #[must_use]
    pub fn all_bytes(&self) -> u64 {
        self.new.volume_bytes
    }

    /// Where it is when all has moved.
    #[must_use]
    pub fn end_bytes(&self) -> u64 {
        match self.direction {
            Direction::Up => self.new.volume_bytes,
            Direction::Down => 0,
        }
    }

    /// Whether a migration has ever made this position durable. What is read from members is asked this first.
    ///
    /// # Errors
    /// `Unfit::Position`.
    pub fn check(&self, position: Position) -> Result<(), Unfit> {
        let border = position.border_bytes;
        let critical = self.critical_bytes;
        let kept_at = match self.direction {
            Direction::Up => 0,
            Direction::Down => critical,
        };
        let is_on_grid =
            border.is_multiple_of(self.unit_bytes()) || border == self.new.volume_bytes;
        let is_outside = border == 0 || border >= critical;
        let is_kept = critical > 0 && position.kept_bytes == critical && border == kept_at;
        let is_plain = position.kept_bytes == 0 && border <= self.new.volume_bytes;
        if is_kept || is_plain && is_on_grid && is_outside {
            Ok(())
        } else {
            Err(Unfit::Position(position))
        }
    }

    /// The farthest border up to which rows may be written while this one is on the members: nothing that it still
    /// needs is written over (R3).
    #[must_use]
    pub fn limit(&self, committed_bytes: u64) -> u64 {
        let row = self.old.row_bytes();
        let unit = self.unit_member_bytes;
        match self.direction {
            // All that was there has moved.
            Direction::Up if committed_bytes >= self.old.volume_bytes => self.new.volume_bytes,
            Direction::Up => {
                let needed = committed_bytes / row * self.old.strip_bytes;
                let room = needed.saturating_add(self.gap_bytes) / unit;
                let limit = room.saturating_mul(self.unit_bytes());
                limit.min(self.new.volume_bytes)
            }
            Direction::Down => {
                let needed = committed_bytes.div_ceil(row) * self.old.strip_bytes;
                let room = needed.saturating_sub(self.gap_bytes).div_ceil(unit);
                room.saturating_mul(self.unit_bytes())
            }
        }
    }

    /// What is moved next, as volume addresses: not more than a step, nor than there is room for, and up to where no
    /// row is cut where that is on the way. Empty at the end, and where the critical section comes next, which has to
    /// be kept first.
    #[must_use]
    pub fn next(&self, committed_bytes: u64) -> Range<u64> {
        assert!(
            committed_bytes <= self.new.volume_bytes,
            "a border was checked before it is used"
        );
        let unit = self.unit_bytes();
        let most = (self.step_bytes / unit).max(1) * unit;
        let (limit, cut) = (self.limit(committed_bytes), self.whole_bytes());
        match self.direction {
            Direction::Up => {
                let end = committed_bytes.saturating_add(most).min(limit);
                let end = match end / cut * cut {
                    whole if whole > committed_bytes && end < self.new.volume_bytes => whole,
                    _ => end,
                };
                committed_bytes..end.max(committed_bytes)
            }
            Direction::Down => {
                let whole = committed_bytes.next_multiple_of(unit); // the first one may be cut by the end
                let start = whole.saturating_sub(most).max(limit);
                let start = match start.next_multiple_of(cut) {
                    whole if whole < committed_bytes => whole,
                    _ => start,
                };
                start.min(committed_bytes)..committed_bytes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests

    use std::collections::BTreeSet;

    use super::*;
    use plexum_layout::{GeometrySpec, Raid0Layout, Raid5Layout};

    /// A multiple of every strip here.
    const MEMBER_BYTES: u64 = 8 * 3072;

    fn striped(members: u16, strip_bytes: u64) -> Geometry {
        Geometry::with_any_strip(&GeometrySpec {
            organisation: Organisation::Raid0(Raid0Layout::Original),
            member_count: members,
            strip_bytes,
            component_bytes: MEMBER_BYTES,
            member_sizes_bytes: Vec::new(),
        })
        .unwrap()
    }

    fn window_of(
        before: &Geometry,
        after: &Geometry,
        direction: Direction,
        gap_bytes: u64,
    ) -> Result<Window, Unfit> {
        Window::new(&WindowSpec {
            before,
            after,
            direction,
            gap_bytes,
            step_bytes: u64::MAX,
        })
    }

    /// The sectors of members where these addresses are, counted from where the old data begin.
    fn sectors(geometry: &Geometry, range: Range<u64>, shift: i64) -> BTreeSet<(usize, i64)> {
        let sectors = range.step_by(512).map(|at| {
            let place = geometry.locate(at);
            (place.slot, place.member_offset_bytes as i64 + shift)
        });
        sectors.collect()
    }

    /// Every pair of small striped geometries, with the gap between them.
    fn all(mut see: impl FnMut(&Geometry, &Geometry, Direction, u64)) {
        let strips = [512, 1024, 1536];
        for (old, new) in (1..=4).flat_map(|old| (1..=5).map(move |new| (old, new))) {
            for (old_strip, new_strip) in strips.map(|old| strips.map(|new| (old, new))).concat() {
                for gap in [0, 512, 1024, 1536, 3072] {
                    for direction in [Direction::Up, Direction::Down] {
                        let (before, after) = (striped(old, old_strip), striped(new, new_strip));
                        see(&before, &after, direction, gap);
                    }
                }
            }
        }
    }

    /// What the border needs, looked up in the address map itself: all old rows ahead of it, the one that it cuts
    /// included.
    #[test]
    fn a_window_reaches_up_to_what_its_border_needs_and_no_farther() {
        let mut windows = 0;
        all(|before, after, direction, gap| {
            let Ok(window) = window_of(before, after, direction, gap) else {
                return;
            };
            let row = before.row_data_bytes();
            let shift = match direction {
                Direction::Up => -(gap as i64),
                Direction::Down => gap as i64,
            };
            let unit = window.unit_bytes();
            for border in (0..=after.volume_bytes()).step_by(unit as usize) {
                let all_old = before.volume_bytes();
                let (needed, next) = match direction {
                    Direction::Up => (
                        border.min(all_old) / row * row..all_old,
                        border..border + unit,
                    ),
                    Direction::Down => (
                        0..border.next_multiple_of(row).min(all_old),
                        border.saturating_sub(unit)..border,
                    ),
                };
                let needed = if direction == Direction::Up && border >= all_old {
                    BTreeSet::new()
                } else {
                    sectors(before, needed, 0)
                };
                let limit = window.limit(border);
                let moved = match direction {
                    Direction::Up => border..limit.max(border),
                    Direction::Down => limit.min(border)..border,
                };
                let next_one = window.next(border);
                assert!(moved.start <= next_one.start && next_one.end <= moved.end);
                let written = sectors(after, moved.clone(), shift);
                let place = format!("{before:?} {after:?} {direction:?} gap {gap} at {border}");
                assert!(written.is_disjoint(&needed), "{place}: {moved:?}");
                let beyond = match direction {
                    Direction::Up => moved.end..moved.end + unit,
                    Direction::Down => moved.start.saturating_sub(unit)..moved.start,
                };
                if !beyond.is_empty() && beyond.end <= after.volume_bytes() {
                    let beyond = sectors(after, beyond, shift);
                    assert!(
                        !beyond.is_disjoint(&needed),
                        "{place}: {moved:?} is too short"
                    );
                }
                if border >= window.critical_bytes()
                    && border != window.end_bytes()
                    && !next.is_empty()
                {
                    assert!(
                        !next_one.is_empty()
                            || direction == Direction::Down && border == window.critical_bytes(),
                        "{place}: it stands still"
                    );
                }
                windows += 1;
            }
        });
        assert!(windows > 2000, "{windows}");
    }

    #[test]
    fn the_critical_section_is_no_larger_than_what_cannot_be_moved() {
        let mut kept = 0;
        all(|before, after, direction, gap| {
            let Ok(window) = window_of(before, after, direction, gap) else {
                return;
            };
            let critical = window.critical_bytes();
            let place = format!("{before:?} {after:?} {direction:?} gap {gap}");
            if critical == 0 {
                return;
            }
            kept += 1;
            let last = match direction {
                Direction::Up => critical - window.unit_bytes(),
                Direction::Down => critical,
            };
            assert!(window.next(last).is_empty(), "{place}");
        });
        assert!(kept > 50, "{kept}");
    }

    /// Documented on the disks of those that gvinum has: data rows times one more.
    #[test]
    fn a_plex_that_gets_one_more_subdisk_keeps_as_many_rows_as_it_has_subdisks() {
        for (count, strip) in [(1, 512), (2, 1024), (3, 1536)] {
            let (before, after) = (striped(count, strip), striped(count + 1, strip));
            let window = window_of(&before, &after, Direction::Up, 0).unwrap();
            let count = u64::from(count);
            assert_eq!(window.critical_bytes(), count * (count + 1) * strip);
            assert_eq!(window.critical_member_bytes(), count * strip);
        }
    }

    /// The larger strip: md-reshape.md, second wave.
    #[test]
    fn with_a_strip_of_gap_nothing_is_kept_and_rows_of_the_same_length_move() {
        for (old_strip, new_strip, gap) in
            [(1024, 1024, 1024), (512, 1024, 1024), (1024, 512, 1024)]
        {
            let (before, after) = (striped(3, old_strip), striped(3, new_strip));
            let window = window_of(&before, &after, Direction::Up, gap).unwrap();
            assert_eq!(window.critical_bytes(), 0);
            let less = window_of(&before, &after, Direction::Up, gap - 512);
            assert_eq!(less, Err(Unfit::NoRoom));
        }
    }

    #[test]
    fn a_step_bounds_a_window_and_is_never_less_than_a_unit() {
        let (before, after) = (striped(2, 512), striped(3, 512));
        let next = |step_bytes| {
            let window = Window::new(&WindowSpec {
                before: &before,
                after: &after,
                direction: Direction::Up,
                gap_bytes: 4096,
                step_bytes,
            });
            window.unwrap().next(0)
        };
        assert_eq!(next(0), 0..1536);
        assert_eq!(next(4000), 0..3072);
        assert_eq!(next(u64::MAX), 0..8 * 1536, "the gap bounds it");
    }

    #[test]
    fn what_has_no_rows_or_no_room_is_refused() {
        let mirror = Geometry::new(&GeometrySpec {
            organisation: Organisation::Raid1,
            member_count: 2,
            strip_bytes: 0,
            component_bytes: MEMBER_BYTES,
            member_sizes_bytes: Vec::new(),
        })
        .unwrap();
        let uneven = Geometry::with_any_strip(&GeometrySpec {
            organisation: Organisation::Raid0(Raid0Layout::Original),
            member_count: 2,
            strip_bytes: 512,
            component_bytes: 0,
            member_sizes_bytes: vec![MEMBER_BYTES, 2 * MEMBER_BYTES],
        })
        .unwrap();
        let three = striped(3, 512);
        for without_rows in [&mirror, &uneven] {
            let refused = window_of(without_rows, &three, Direction::Up, 0);
            assert!(matches!(refused, Err(Unfit::NoRows(_))), "{refused:?}");
        }
        let fewer = window_of(&three, &striped(2, 512), Direction::Up, 0);
        assert!(matches!(fewer, Err(Unfit::Sizes { .. })), "{fewer:?}");
        assert_eq!(
            window_of(&three, &three, Direction::Up, 0),
            Err(Unfit::NoRoom)
        );
        let small = |members| {
            let spec = GeometrySpec {
                organisation: Organisation::Raid5(Raid5Layout::LeftAsymmetric),
                member_count: members,
                strip_bytes: 4096,
                component_bytes: 4096,
                member_sizes_bytes: Vec::new(),
            };
            Geometry::new(&spec).unwrap()
        };
        let refused = window_of(&small(4), &small(5), Direction::Up, 0);
        assert_eq!(refused, Err(Unfit::TooSmall));
    }

    #[test]
    fn a_position_is_a_whole_unit_behind_the_critical_section_or_that_section_kept() {
        let (before, after) = (striped(2, 512), striped(3, 512));
        let window = window_of(&before, &after, Direction::Up, 0).unwrap();
        let (unit, critical, end) = (1536, 3072, after.volume_bytes());
        let is_believed = |border_bytes, kept_bytes| {
            let position = Position {
                border_bytes,
                kept_bytes,
            };
            window.check(position).is_ok()
        };
        for (border, kept) in [
            (0, 0),
            (0, critical),
            (critical, 0),
            (end - unit, 0),
            (end, 0),
        ] {
            assert!(is_believed(border, kept), "{border} {kept}");
        }
        for (border, kept) in [
            (unit, 0),
            (critical + 512, 0),
            (end + unit, 0),
            (u64::MAX, 0),
            (0, unit),
            (0, u64::MAX),
            (critical, critical),
        ] {
            assert!(!is_believed(border, kept), "{border} {kept}");
        }
    }
}
