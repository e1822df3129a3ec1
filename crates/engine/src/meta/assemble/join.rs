//! What each member may be used for, and who has which slot.
//!
//! Invariants:
//! - only members at most one event behind get a slot, and the role comes from the freshest table (W7);
//! - a slot ends with at most one `Active` member and at most one that is being filled.

use plexum_format::md::{Role, Superblock};
use plexum_format::units::EventCount;

use super::history::{History, excludes};
use super::problem::{AssembleCode, AssembleError};
use super::{AssembledMember, AssembledStanding, Examined};

const SECTOR_BYTES: u64 = 512;

/// A member's standing before slots are compared.
struct Verdict {
    slot: Option<u16>,
    standing: AssembledStanding,
    reason: Option<String>,
}

impl Verdict {
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
/// `by_bitmap_from`: event count from which a stale member can be brought up to date by the bitmap.
/// # Errors
/// `DuplicateMember` when two usable members claim one place.
pub(super) fn join(
    examined: &[Examined],
    history: &History,
    by_bitmap_from: Option<EventCount>,
) -> Result<Vec<AssembledMember>, AssembleError> {
    let newest = &examined[history.freshest].superblock;
    let mut members: Vec<AssembledMember> = examined
        .iter()
        .enumerate()
        .map(|(position, member)| {
            let verdict = if history.set_aside.contains(&position) {
                let reason = "it went on without the chosen members (split brain)".to_owned();
                Verdict::out(stale(&member.superblock, newest, None), reason)
            } else {
                judge(member, newest, by_bitmap_from)
            };
            describe(member, verdict, by_bitmap_from.is_some())
        })
        .collect();
    settle_numbers(&mut members, examined)?;
    settle_slots(&mut members, examined, newest)?;
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
    }
}

fn stale(
    superblock: &Superblock,
    newest: &Superblock,
    by_bitmap_from: Option<EventCount>,
) -> AssembledStanding {
    AssembledStanding::Stale {
        events: superblock.events,
        newest: newest.events,
        fits_bitmap: by_bitmap_from.is_some_and(|from| superblock.events >= from)
            && superblock.role().slot().is_some(),
    }
}

fn judge(member: &Examined, newest: &Superblock, by_bitmap_from: Option<EventCount>) -> Verdict {
    let superblock = &member.superblock;
    let is_fresh = superblock.events.is_fresh_beside(newest.events);
    let given = newest.role_of(superblock.dev_number);
    let behind = || {
        format!(
            "it is stale: event count {}, newest is {}",
            superblock.events, newest.events
        )
    };
    match (superblock.role(), given) {
        (Role::Faulty, _) => Verdict::out(
            AssembledStanding::Faulty,
            "its own superblock calls it faulty".to_owned(),
        ),
        (Role::Journal, Role::Journal) => Verdict {
            slot: None,
            standing: AssembledStanding::Journal,
            reason: None,
        },
        (Role::Journal, _) => Verdict::out(
            AssembledStanding::Unusable,
            "the array has no such journal device".to_owned(),
        ),
        (Role::Spare, Role::Spare) => Verdict {
            slot: None,
            standing: AssembledStanding::Spare,
            reason: None,
        },
        (Role::Spare, Role::Faulty) => Verdict::out(
            AssembledStanding::Faulty,
            "the array records this spare as faulty".to_owned(),
        ),
        (Role::Spare, Role::Active(slot)) if is_fresh => {
            judge_slotted(member, newest, slot.0, Some(0))
        }
        (Role::Active(own), Role::Active(slot)) if is_fresh && own != slot => {
            let reason =
                format!("it claims slot {own}, the freshest superblock gives it slot {slot}");
            Verdict::out(AssembledStanding::Unusable, reason)
        }
        (Role::Active(_), Role::Active(slot)) if is_fresh => {
            judge_slotted(member, newest, slot.0, superblock.rebuild_offset_sectors)
        }
        (Role::Active(_), Role::Faulty) if is_fresh => Verdict::out(
            AssembledStanding::Faulty,
            "the freshest superblock records it as faulty".to_owned(),
        ),
        (Role::Active(_), _) if is_fresh => Verdict::out(
            stale(superblock, newest, by_bitmap_from),
            "the freshest superblock has taken it out".to_owned(),
        ),
        _ => Verdict::out(stale(superblock, newest, by_bitmap_from), behind()),
    }
}

/// A fresh member that the freshest table gives `slot`.
fn judge_slotted(
    member: &Examined,
    newest: &Superblock,
    slot: u16,
    rebuild_offset_sectors: Option<u64>,
) -> Verdict {
    let superblock = &member.superblock;
    if let Some(reason) = unusable(member, newest, slot) {
        return Verdict::out(AssembledStanding::Unusable, reason);
    }
    if excludes(superblock, newest) && newest.rebuild_offset_sectors.is_none() {
        let reason = "it records the freshest member as missing".to_owned();
        return Verdict::out(stale(superblock, newest, None), reason);
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

/// Why a fresh member cannot be what the freshest superblock says.
fn unusable(member: &Examined, newest: &Superblock, slot: u16) -> Option<String> {
    let own = &member.superblock;
    if u32::from(slot) >= newest.member_count {
        return Some(format!(
            "slot {slot} does not exist in an array of {} members",
            newest.member_count
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
    newest: &Superblock,
) -> Result<(), AssembleError> {
    for slot in 0..newest.member_count.min(u32::from(u16::MAX)) as u16 {
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
                settle_replacement(members, old, new, newest);
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
