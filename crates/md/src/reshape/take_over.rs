//! Other names of a RAID-0, and of a mirror of two: which they are, whose slot is whose, and who is let go of. Pure.
//!
//! The data strips of RAID-4 and of RAID-5 with its parity last lie as a RAID-0 has them, and so do the first copies
//! of a RAID-10 of the layout near 2. What such a level has beside them is let go of before it becomes a RAID-0, and
//! is filled by an ordinary rebuild when a RAID-0 has become it.
//!
//! Source: md-reshape.md section 1.

use plexum_layout::{Level, Organisation, Raid5Layout, Raid10Layout};

use super::shape::{Relabel, Shape};
use super::situation::{PlanError, Situation, refuse};

/// RAID-5 with its parity on the last member.
pub(super) const PARITY_LAST: Organisation = Organisation::Raid5(Raid5Layout::ParityLast);

/// Two copies beside each other.
pub(super) fn near_two() -> Organisation {
    Organisation::Raid10(Raid10Layout::near(2))
}

impl Shape {
    pub(super) fn level(&self) -> Level {
        self.organisation.level()
    }

    /// Copies of two beside each other, all of them whole.
    fn is_pairs(&self) -> bool {
        self.organisation == near_two() && self.member_count.is_multiple_of(2)
    }
}

/// Whether a change is one name for another, where one is that of a RAID-0 or both are those of copies.
pub(super) fn is_take_over(from: Level, to: Level) -> bool {
    matches!(
        (from, to),
        (Level::Raid0, Level::Raid4 | Level::Raid5 | Level::Raid10)
            | (Level::Raid10, Level::Raid0 | Level::Raid1)
            | (Level::Raid1, Level::Raid10)
    )
}

/// Members of the level that `before` becomes, where nobody says so.
pub(super) fn as_many(before: &Shape, level: Level) -> Option<u16> {
    let count = before.member_count;
    match (before.level(), level) {
        (Level::Raid0, Level::Raid4 | Level::Raid5) => count.checked_add(1),
        (Level::Raid0, Level::Raid10) => count.checked_mul(2),
        (Level::Raid4 | Level::Raid5, Level::Raid0) => count.checked_sub(1),
        (Level::Raid10, Level::Raid0) => Some(count / 2),
        _ => None,
    }
}

/// The shape in which the data of `before` lie where they do, at the level of `after`.
///
/// # Errors
/// `PlanError`: there is none, or it is another one than is wished for.
pub(super) fn take_over(before: &Shape, after: &Shape) -> Result<Shape, PlanError> {
    let level = after.level();
    let with = |organisation, strip_sectors| Shape {
        organisation,
        member_count: as_many(before, level).unwrap_or(before.member_count),
        strip_sectors,
    };
    let strip = before.strip_sectors;
    let is_two = before.member_count == 2;
    let name = match (before.level(), level) {
        (Level::Raid0, Level::Raid4) => with(Organisation::Raid4, strip),
        (Level::Raid0, Level::Raid5) => with(PARITY_LAST, strip),
        (Level::Raid0, Level::Raid10) => with(near_two(), strip),
        (Level::Raid10, Level::Raid0) if before.is_pairs() => with(after.organisation, strip),
        (Level::Raid10, Level::Raid1) if before.is_pairs() && is_two => {
            with(Organisation::Raid1, 0)
        }
        (Level::Raid1, Level::Raid10) if is_two => with(near_two(), after.strip_sectors),
        (was, _) => {
            let needs = match (was, level) {
                (Level::Raid10, Level::Raid0) => "layout n2 and an even number of members",
                (Level::Raid10, _) => "layout n2 and two members",
                _ => "two members",
            };
            return refuse(
                format!("{was} becomes {level} with {needs}, and this is {before}"),
                Some("a copy does it: create the new array, and copy the data"),
            );
        }
    };
    if name == *after {
        return Ok(name);
    }
    let number = level.md_number();
    refuse(
        format!("{before} becomes {name} at first, where nothing moves, and not {after}"),
        Some(&format!(
            "first:   plexum grow VOLUME --level {number}, with the members that it needs; then the rest"
        )),
    )
}

/// The shape that becomes a RAID-0 of this one's data by another name.
pub(super) fn before_plain(from: &Shape, after: &Shape) -> Shape {
    Shape {
        organisation: match from.level() {
            Level::Raid4 => Organisation::Raid4,
            _ => PARITY_LAST,
        },
        member_count: after.member_count.saturating_add(1),
        ..*after
    }
}

/// What becomes a RAID-0 has but what a RAID-0 has.
pub(super) fn check_plain(now: &Situation, before: &Shape, after: &Shape) -> Result<(), PlanError> {
    if after.level() != Level::Raid0 || now.shape.level() == Level::Raid0 {
        return Ok(());
    }
    if !now.says_data_size {
        return refuse(
            "metadata 0.90 cannot say how much a raid0 uses of each member".to_owned(),
            Some("a copy does it: create the new array, and copy the data"),
        );
    }
    let missing = u16::try_from(now.missing_slots.len()).unwrap_or(u16::MAX);
    let most = before.member_count.max(now.shape.member_count);
    let spares = now
        .member_count
        .saturating_add(missing)
        .saturating_sub(most);
    if spares == 0 {
        return Ok(());
    }
    refuse(
        format!("a raid0 has no spares, and here are {spares}"),
        Some("take them off first:   plexum remove VOLUME MEMBER"),
    )
}

impl Relabel {
    /// Slots without redundancy of their own whose members are let go of before this, those included that have no
    /// complete member: `missing`. `None`: a slot that is needed is among these.
    #[must_use]
    pub fn let_go(&self, missing: &[u16]) -> Option<Vec<u16>> {
        let (before, after) = (&self.before, &self.after);
        let slots = match before.level() {
            _ if after.level() != Level::Raid0 => Vec::new(),
            Level::Raid4 | Level::Raid5 => vec![after.member_count],
            Level::Raid10 => (0..after.member_count)
                .map(|pair| match missing.contains(&(2 * pair)) {
                    true => 2 * pair,
                    false => 2 * pair + 1,
                })
                .collect(),
            _ => Vec::new(),
        };
        let is_needed = |slot: &u16| !slots.contains(slot);
        match missing.iter().any(is_needed) {
            true => None,
            false => Some(slots),
        }
    }

    /// The slot afterwards of who has `slot` before. `None`: it has none.
    pub(super) fn slot_after(&self, slot: u16) -> Option<u16> {
        let slot = match (self.before.level(), self.after.level()) {
            (Level::Raid0, Level::Raid10) => slot.checked_mul(2)?,
            (Level::Raid10, Level::Raid0) => slot / 2,
            _ => slot,
        };
        (slot < self.after.member_count).then_some(slot)
    }
}
