//! Which history of the array is the one to go on with: one array, nobody twice, the freshest member, no split brain.
//!
//! Invariants:
//! - the freshest member has a slot: spares never decide (linux-md.md section 9, rule 2);
//! - two histories that each excluded the other are never mixed, `--force` or not.

use plexum_format::md::Superblock;
use plexum_format::uuid::md_uuid_text;

use super::problem::{AssembleCode, AssembleError};
use super::{Examined, Options};

/// The chosen history. Numbers are positions in the list of examined members.
pub(super) struct History {
    /// The member whose superblock describes the array.
    pub freshest: usize,
    /// Members of other histories, set aside by force.
    pub set_aside: Vec<usize>,
}

/// Whether all members say that they belong to one array.
pub(super) fn check_one_array(examined: &[Examined]) -> Result<(), AssembleError> {
    let Some(first) = examined.first() else {
        return Err(AssembleError::new(
            AssembleCode::NoMetadata,
            "no member with md metadata was given",
        ));
    };
    let count = |member: &Examined| {
        examined
            .iter()
            .filter(|m| m.superblock.array_uuid == member.superblock.array_uuid)
            .count()
    };
    // The array with the most members; the first named of equals.
    let usual = examined
        .iter()
        .rev()
        .max_by_key(|member| count(member))
        .unwrap_or(first);
    let Some(other) = examined
        .iter()
        .find(|m| m.superblock.array_uuid != usual.superblock.array_uuid)
    else {
        return Ok(());
    };
    let uuid = |member: &Examined| md_uuid_text(&member.superblock.array_uuid);
    let message = format!(
        "{} belongs to another array: array UUID {}, {} has {}",
        other.name,
        uuid(other),
        usual.name,
        uuid(usual)
    );
    Err(AssembleError::new(AssembleCode::ForeignMember, message)
        .member(other)
        .why("members of different arrays hold nothing in common")
        .hint("name the members of one array only; \"plexum examine\" shows which belong together"))
}

/// Whether one member was given under two names (or a copy of it).
pub(super) fn check_nobody_twice(examined: &[Examined]) -> Result<(), AssembleError> {
    for (position, later) in examined.iter().enumerate() {
        let Some(earlier) = examined[..position]
            .iter()
            .find(|m| is_same_member(&m.superblock, &later.superblock))
        else {
            continue;
        };
        let events = (earlier.superblock.events, later.superblock.events);
        let message = format!(
            "{} and {} are the same member: device number {}, event counts {} and {}",
            earlier.name, later.name, later.superblock.dev_number, events.0, events.1
        );
        return Err(AssembleError::new(AssembleCode::DuplicateMember, message)
            .member(later)
            .why("one is a second path to the other, or a copy of it")
            .hint("leave one of them out (of copies with different event counts the one with the lower count)"));
    }
    Ok(())
}

fn is_same_member(a: &Superblock, b: &Superblock) -> bool {
    if a.dev_number != b.dev_number || a.device_uuid != b.device_uuid {
        return false;
    }
    // 0.90 has no member identity and uses numbers again: only equal event counts tell. Nor do they of spares, of which
    // one that was lost long ago may have counted as far: they hold no data, and one of a number is left out.
    let has_slot = a.role().slot().is_some();
    a.device_uuid != [0; 16] || (has_slot && a.events == b.events && a.role() == b.role())
}

/// Finds the freshest member and makes sure that nobody else has a history of its own.
///
/// # Errors
/// `TooFewMembers` when nobody has a slot, `SplitBrain` without force.
pub(super) fn choose(examined: &[Examined], options: &Options) -> Result<History, AssembleError> {
    let mut among: Vec<usize> = (0..examined.len())
        .filter(|m| examined[*m].superblock.role().slot().is_some())
        .collect();
    let mut set_aside = Vec::new();
    loop {
        let Some(freshest) = freshest_of(examined, &among) else {
            return Err(AssembleError::new(
                AssembleCode::TooFewMembers,
                "no member with a slot was given, only spares",
            )
            .hint("name the members that hold the data as well"));
        };
        let history = members_of_history(examined, &among, freshest);
        let forks = forks_of(examined, &among, &history);
        let Some(first_fork) = forks.first() else {
            return Ok(History {
                freshest,
                set_aside,
            });
        };
        if !options.force {
            return Err(split_brain(examined, freshest, *first_fork));
        }
        // By force the first named member's history goes on.
        let goes = if history.first() < Some(first_fork) {
            forks
        } else {
            history
        };
        among.retain(|m| !goes.contains(m));
        set_aside.extend(goes);
    }
}

/// Highest event count. Among equals the one that knows of more losses, then the first named.
fn freshest_of(examined: &[Examined], among: &[usize]) -> Option<usize> {
    let key = |position: &&usize| {
        let superblock = &examined[**position].superblock;
        let active = superblock
            .roles
            .iter()
            .filter(|role| role.slot().is_some())
            .count();
        (
            superblock.events,
            std::cmp::Reverse(active),
            std::cmp::Reverse(**position),
        )
    };
    among.iter().max_by_key(key).copied()
}

/// The freshest member and all that are as fresh and that it counts as active; ascending.
fn members_of_history(examined: &[Examined], among: &[usize], freshest: usize) -> Vec<usize> {
    let newest = &examined[freshest].superblock;
    let belongs = |m: &usize| {
        let superblock = &examined[*m].superblock;
        *m == freshest
            || (superblock.events.is_fresh_beside(newest.events)
                && newest.role_of(superblock.dev_number).slot().is_some())
    };
    among.iter().copied().filter(belongs).collect()
}

/// Members that went on without anybody of `history`, while `history` went on without them; ascending.
///
/// A member that merely missed the end still counts those as active whom it last worked with, so it is stale, no fork.
/// Neither is one whose slot somebody of the line has had after it: replaced members are not told that they are.
fn forks_of(examined: &[Examined], among: &[usize], history: &[usize]) -> Vec<usize> {
    let superblock = |position: usize| &examined[position].superblock;
    let line = line_of(examined, among, history);
    let is_fork = |m: &usize| {
        let of = |other: &usize| {
            excludes(superblock(*m), superblock(*other))
                && excludes(superblock(*other), superblock(*m))
        };
        let has_slot_of = |n: &usize| superblock(*n).role().slot() == superblock(*m).role().slot();
        !line.contains(m) && !line.iter().any(has_slot_of) && history.iter().all(of)
    };
    among.iter().copied().filter(is_fork).collect()
}

/// `history` and everybody who led to it: who was last together with one of the line, and is not ahead of that one, has
/// missed what the line did afterwards. Whoever went on alone has recorded the others as gone before he wrote (W3).
///
/// So 2, which was lost while 0 was away and 1 was there, is no fork of a 5 that was filled from 1 and is alone now.
fn line_of(examined: &[Examined], among: &[usize], history: &[usize]) -> Vec<usize> {
    let superblock = |position: usize| &examined[position].superblock;
    let mut line = history.to_vec();
    loop {
        let led_to = |m: &usize| {
            let (own, events) = (superblock(*m), superblock(*m).events);
            line.iter().map(|n| superblock(*n)).any(|next| {
                own.role_of(next.dev_number).slot().is_some() && next.events.is_fresh_beside(events)
            })
        };
        let next = among
            .iter()
            .copied()
            .find(|m| !line.contains(m) && led_to(m));
        let Some(next) = next else { return line };
        line.push(next);
    }
}

/// Whether `by` records that the slot of `other` has nobody: it went on without it.
pub(super) fn excludes(by: &Superblock, other: &Superblock) -> bool {
    let Some(slot) = other.role().slot() else {
        return false;
    };
    by.role_of(other.dev_number).slot().is_none()
        && by.roles.iter().all(|role| role.slot() != Some(slot))
}

fn split_brain(examined: &[Examined], freshest: usize, fork: usize) -> AssembleError {
    let (one, other) = (&examined[freshest], &examined[fork]);
    let message = format!(
        "split brain: {} (event count {}) and {} (event count {}) each went on without the other",
        one.name, one.superblock.events, other.name, other.superblock.events
    );
    let error = AssembleError::new(AssembleCode::SplitBrain, message)
        .member(other)
        .why("both may hold writes that the other lacks; mixing them would destroy data");
    let error = match absent_company(examined, &other.superblock) {
        Some(number) => error.hint(format!(
            "name device number {number} of the array as well: {} was last together with it, and may only be stale; if that disk has \
             been added anew since, leave {} out",
            other.name, other.name
        )),
        None => error,
    };
    error
        .hint("name only the members of the half whose data you want")
        .hint("or add --force to keep the half of the member named first; the other half is then left out as stale")
}

/// Somebody whom `of` counts as active and who was not given: he knows whether `of` was lost or went on.
fn absent_company(examined: &[Examined], of: &Superblock) -> Option<usize> {
    let is_given = |number: &usize| {
        let mut given = examined.iter().map(|m| m.superblock.dev_number);
        given.any(|other| other as usize == *number)
    };
    (0..of.roles.len()).find(|number| of.roles[*number].slot().is_some() && !is_given(number))
}
