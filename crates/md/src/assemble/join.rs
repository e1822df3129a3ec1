//! What each member may be used for, and who has which slot.
//!
//! Invariants:
//! - only members at most one event behind get a slot, and the role comes from the freshest table (W7);
//! - a slot ends with at most one `Active` member and at most one that is being filled.

use plexum_engine::mutant::DeliberateBug;
use plexum_format::md::{Role, Superblock};
use plexum_format::units::EventCount;

use super::history::{History, excludes};
use super::problem::{AssembleCode, AssembleError};
use super::{AssembledMember, AssembledStanding, BitmapUse, Examined};
use crate::reshape::contradicts;

const SECTOR_BYTES: u64 = 512;

/// What members are judged by.
pub(super) struct Judge<'a> {
    /// The superblock that describes the array.
    pub newest: &'a Superblock,
    /// Slots that can have a member.
    pub slot_count: u16,
    /// Event count from which a stale member can be brought up to date by the bitmap; `None`: there is no usable
    /// bitmap.
    pub by_bitmap_from: Option<EventCount>,
    /// A deliberate bug, or none.
    pub bug: DeliberateBug,
}

/// A member's standing before slots are compared.
struct Verdict {
    slot: Option<u16>,
    standing: AssembledStanding,
    reason: Option<String>,
}

impl Verdict {
    fn without_slot(standing: AssembledStanding) -> Verdict {
        Verdict {
            slot: None,
            standing,
            reason: None,
        }
    }

    fn out(standing: AssembledStanding, reason: String) -> Verdict {
        Verdict {
            slot: None,
            standing,
            reason: Some(reason),
        }
    }
}

/// Judges every member, in the order given.
///
/// # Errors
/// `DuplicateMember` when two usable members claim one place.
pub(super) fn join(
    examined: &[Examined],
    history: &History,
    judge: &Judge<'_>,
) -> Result<Vec<AssembledMember>, AssembleError> {
    let mut members: Vec<AssembledMember> = examined
        .iter()
        .enumerate()
        .map(|(position, member)| {
            let verdict = if history.set_aside.contains(&position) {
                let reason = "it went on without the chosen members (split brain)".to_owned();
                Verdict::out(judge.stale_for_good(&member.superblock), reason)
            } else {
                judge.member(member)
            };
            describe(member, verdict, judge.by_bitmap_from.is_some())
        })
        .collect();
    settle_numbers(&mut members, examined)?;
    settle_slots(&mut members, examined, judge)?;
    Ok(members)
}

fn describe(member: &Examined, verdict: Verdict, has_bitmap: bool) -> AssembledMember {
    let superblock = &member.superblock;
    let mut standing = verdict.standing;
    let shift_sectors = superblock
        .reshape
        .and_then(|reshape| reshape.new_offset_sectors)
        .map_or(0, i64::from);
    if let AssembledStanding::Rebuilding { by_bitmap, .. } = &mut standing {
        *by_bitmap &= has_bitmap;
    }
    AssembledMember {
        index: member.index,
        name: member.name.clone(),
        dev_number: superblock.dev_number,
        slot: verdict.slot,
        standing,
        is_replacement: superblock.is_replacement && verdict.slot.is_some(),
        is_write_mostly: superblock.is_write_mostly,
        events: superblock.events,
        data_offset_bytes: superblock.data_offset_sectors.saturating_mul(SECTOR_BYTES),
        reshaped_offset_bytes: superblock
            .data_offset_sectors
            .saturating_add_signed(shift_sectors)
            .saturating_mul(SECTOR_BYTES),
        data_size_bytes: superblock.data_size_sectors.saturating_mul(SECTOR_BYTES),
        reason: verdict.reason,
        caution: None,
    }
}

impl<'a> Judge<'a> {
    /// Judges by this superblock, which describes the array.
    pub fn new(
        newest: &'a Superblock,
        slot_count: u16,
        bitmap: &BitmapUse,
        bug: DeliberateBug,
    ) -> Self {
        Self {
            newest,
            slot_count,
            by_bitmap_from: bitmap.events_cleared(),
            bug,
        }
    }
}

impl Judge<'_> {
    fn stale(&self, superblock: &Superblock) -> AssembledStanding {
        AssembledStanding::Stale {
            events: superblock.events,
            newest: self.newest.events,
            fits_bitmap: superblock.role().slot().is_some()
                && self
                    .by_bitmap_from
                    .is_some_and(|from| superblock.events >= from),
        }
    }

    /// Stale, and not to be brought up to date by the bitmap.
    fn stale_for_good(&self, superblock: &Superblock) -> AssembledStanding {
        AssembledStanding::Stale {
            events: superblock.events,
            newest: self.newest.events,
            fits_bitmap: false,
        }
    }

    fn member(&self, member: &Examined) -> Verdict {
        let superblock = &member.superblock;
        let given = self.newest.role_of(superblock.dev_number);
        let is_fresh = superblock.events.is_fresh_beside(self.newest.events);
        match (superblock.role(), given) {
            (Role::Faulty, _) => Verdict::out(
                AssembledStanding::Faulty,
                "its own superblock calls it faulty".to_owned(),
            ),
            (Role::Journal, Role::Journal) if is_fresh => {
                Verdict::without_slot(AssembledStanding::Journal)
            }
            (Role::Journal, Role::Journal) => {
                let reason = format!(
                    "it is stale: event count {}, newest is {}",
                    superblock.events, self.newest.events
                );
                Verdict::out(AssembledStanding::Unusable, reason)
            }
            (Role::Journal, _) => Verdict::out(
                AssembledStanding::Unusable,
                "the array has no such journal device".to_owned(),
            ),
            (Role::Spare, Role::Spare) => Verdict::without_slot(AssembledStanding::Spare),
            (Role::Spare, Role::Faulty) => Verdict::out(
                AssembledStanding::Faulty,
                "the array records this spare as faulty".to_owned(),
            ),
            (own, given) if is_fresh => self.fresh_member(member, own, given),
            _ => {
                let reason = format!(
                    "it is stale: event count {}, newest is {}",
                    superblock.events, self.newest.events
                );
                Verdict::out(self.stale(superblock), reason)
            }
        }
    }

    fn fresh_member(&self, member: &Examined, own: Role, given: Role) -> Verdict {
        let superblock = &member.superblock;
        match (own, given) {
            // It became active in the very commit that it missed.
            (Role::Spare, Role::Active(slot)) => self.slotted(member, slot.0, Some(0)),
            (Role::Active(own), Role::Active(slot)) if own != slot => {
                let reason =
                    format!("it claims slot {own}, the freshest superblock gives it slot {slot}");
                Verdict::out(AssembledStanding::Unusable, reason)
            }
            (_, Role::Active(slot)) => {
                self.slotted(member, slot.0, superblock.rebuild_offset_sectors)
            }
            (_, Role::Faulty) => Verdict::out(
                AssembledStanding::Faulty,
                "the freshest superblock records it as faulty".to_owned(),
            ),
            _ => Verdict::out(
                self.stale(superblock),
                "the freshest superblock has taken it out".to_owned(),
            ),
        }
    }

    /// A fresh member that the freshest table gives `slot`.
    fn slotted(
        &self,
        member: &Examined,
        slot: u16,
        rebuild_offset_sectors: Option<u64>,
    ) -> Verdict {
        let (superblock, newest) = (&member.superblock, self.newest);
        if slot >= self.slot_count {
            let reason = format!(
                "slot {slot} does not exist in an array of {} members",
                self.slot_count
            );
            return Verdict::out(AssembledStanding::Unusable, reason);
        }
        if let Some(reason) = unusable(member, newest) {
            return Verdict::out(AssembledStanding::Unusable, reason);
        }
        // The freshest may have become active in the very commit that this one missed: its own superblock is written
        // first.
        let is_newcomer = superblock.role_of(newest.dev_number) == Role::Spare
            && newest.events.0 == superblock.events.0 + 1;
        let is_filled = newest.rebuild_offset_sectors.is_none();
        if excludes(superblock, newest) && is_filled && !is_newcomer {
            let reason = "it records the freshest member as missing".to_owned();
            return Verdict::out(self.stale_for_good(superblock), reason);
        }
        // A member that a growing reshape added is complete as far as the reshape got (linux-md.md sections 9 and 12).
        let is_grown = superblock.reshape.is_some_and(|reshape| {
            i64::from(slot)
                >= i64::from(superblock.member_count) - i64::from(reshape.member_count_change)
        });
        let standing = match rebuild_offset_sectors {
            Some(sectors) if !is_grown => AssembledStanding::Rebuilding {
                valid_below_bytes: sectors
                    .min(newest.component_sectors)
                    .saturating_mul(SECTOR_BYTES),
                by_bitmap: superblock.is_bitmap_rebuild,
            },
            _ => AssembledStanding::Active,
        };
        Verdict {
            slot: Some(slot),
            standing,
            reason: None,
        }
    }
}

/// Why a fresh member cannot be what the freshest superblock says.
pub(super) fn unusable(member: &Examined, newest: &Superblock) -> Option<String> {
    let own = &member.superblock;
    if let Some(damage) = &member.refused.bad_blocks {
        return Some(format!(
            "{damage}, and nobody knows which of its blocks are bad"
        ));
    }
    let differs = |what: &str, found: String, expected: String| {
        Some(format!(
            "its superblock says {what} {found}, the freshest {expected}"
        ))
    };
    if own.version != newest.version {
        return differs(
            "version",
            own.version.to_string(),
            newest.version.to_string(),
        );
    }
    if own.level != newest.level {
        return differs("level", own.level.to_string(), newest.level.to_string());
    }
    if own.layout != newest.layout && newest.level != 1 {
        return differs("layout", own.layout.to_string(), newest.layout.to_string());
    }
    if own.strip_sectors != newest.strip_sectors && newest.level != 1 {
        return differs(
            "strip size",
            format!("{} sectors", own.strip_sectors),
            format!("{} sectors", newest.strip_sectors),
        );
    }
    if own.member_count != newest.member_count && newest.level != 1 {
        return differs(
            "slots",
            own.member_count.to_string(),
            newest.member_count.to_string(),
        );
    }
    if newest.level != 1 && contradicts(own, newest) {
        return Some("its superblock knows of another reshape than the freshest".to_owned());
    }
    if newest.level > 0 && own.data_size_sectors < newest.component_sectors {
        return Some(format!(
            "it has {} sectors for data, the array uses {} of each member",
            own.data_size_sectors, newest.component_sectors
        ));
    }
    let end_sectors = own.data_offset_sectors.saturating_add(own.used_sectors());
    if end_sectors > member.device_bytes / SECTOR_BYTES {
        return Some(format!(
            "its data end at sector {end_sectors}, the device has {}",
            member.device_bytes / SECTOR_BYTES
        ));
    }
    None
}

/// Two members of one device number: the array means the one with more events.
fn settle_numbers(
    members: &mut [AssembledMember],
    examined: &[Examined],
) -> Result<(), AssembleError> {
    for later in 1..members.len() {
        for earlier in 0..later {
            let (a, b) = (&members[earlier], &members[later]);
            if a.dev_number != b.dev_number || !a.standing.is_used() || !b.standing.is_used() {
                continue;
            }
            if a.events == b.events && a.slot.is_some() && b.slot.is_some() {
                return Err(same_place(
                    &examined[earlier],
                    &examined[later],
                    format!("device number {}", a.dev_number),
                ));
            }
            let (loser, winner) = if (a.slot.is_some(), a.events) < (b.slot.is_some(), b.events) {
                (earlier, later)
            } else {
                (later, earlier)
            };
            leave_out(members, loser, winner, "device number");
        }
    }
    Ok(())
}

/// Two members of one slot: the second must be a replacement, or one event behind.
fn settle_slots(
    members: &mut [AssembledMember],
    examined: &[Examined],
    judge: &Judge<'_>,
) -> Result<(), AssembleError> {
    for slot in 0..judge.slot_count {
        let mut holders: Vec<usize> = (0..members.len())
            .filter(|m| members[*m].slot == Some(slot))
            .collect();
        while let [first, second, ..] = holders[..] {
            if members[first].is_replacement != members[second].is_replacement {
                break;
            }
            let (a, b) = (members[first].events, members[second].events);
            if a == b {
                return Err(same_place(
                    &examined[first],
                    &examined[second],
                    format!("slot {slot}"),
                ));
            }
            let (loser, winner) = if a < b {
                (first, second)
            } else {
                (second, first)
            };
            leave_out(members, loser, winner, "slot");
            holders.retain(|m| *m != loser);
        }
        match holders[..] {
            [only] => members[only].is_replacement = false,
            [first, second] => {
                let (old, new) = if members[first].is_replacement {
                    (second, first)
                } else {
                    (first, second)
                };
                settle_replacement(members, old, new, judge.newest);
            }
            [] => {}
            _ => {
                return Err(same_place(
                    &examined[holders[0]],
                    &examined[holders[2]],
                    format!("slot {slot}"),
                ));
            }
        }
    }
    Ok(())
}

/// An old member and its replacement: the old one serves as long as it is complete.
fn settle_replacement(
    members: &mut [AssembledMember],
    old: usize,
    new: usize,
    newest: &Superblock,
) {
    let whole = newest.component_sectors.saturating_mul(SECTOR_BYTES);
    match (members[old].standing.clone(), members[new].standing.clone()) {
        (AssembledStanding::Active, AssembledStanding::Active) => {
            members[new].standing = AssembledStanding::Rebuilding {
                valid_below_bytes: whole,
                by_bitmap: false,
            };
        }
        (AssembledStanding::Active, _) => {}
        (_, AssembledStanding::Active) => leave_out(members, old, new, "slot"),
        (_, _) => leave_out(members, new, old, "slot"),
    }
    if members[old].slot.is_none() {
        members[new].is_replacement = false;
    }
}

fn leave_out(members: &mut [AssembledMember], loser: usize, winner: usize, what: &str) {
    let reason = format!("{} has its {what}", members[winner].name);
    let newest = members[winner].events.max(members[loser].events);
    let member = &mut members[loser];
    member.standing = AssembledStanding::Stale {
        events: member.events,
        newest,
        fits_bitmap: false,
    };
    (member.slot, member.is_replacement, member.reason) = (None, false, Some(reason));
}

fn same_place(one: &Examined, other: &Examined, place: String) -> AssembleError {
    let message = format!(
        "{} and {} both claim {place}, with the same event count {}",
        one.name, other.name, other.superblock.events
    );
    AssembleError::new(AssembleCode::DuplicateMember, message)
        .member(other)
        .why("only one of them can hold the data of this place")
        .hint("leave one of them out; \"plexum examine\" shows what is on each")
}
