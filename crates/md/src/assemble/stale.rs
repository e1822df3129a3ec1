//! Forced starts that take members which missed writes (W7, forced).
//!
//! Invariants:
//! - nobody is taken while the fresh members suffice, and of the stale ones as few as needed, the newest first;
//! - a member that went on without the freshest one, or was left in another place of a reshape, is never taken;
//! - where a copy on a fresh member exists, it is read instead; nothing is written where copies would stay different.

use plexum_engine::mutant::{DeliberateBug, Mutant};
use plexum_format::md::{Reshape, Superblock};

use super::history::{History, excludes};
use super::join::{Judge, unusable};
use super::problem::{AssembleCode, AssembleError};
use super::{AssembledMember, AssembledStanding, Examined, Options, StaleUse, put_together};
use plexum_layout::Geometry;

/// What was decided about stale members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nobody stale is used.
    Nobody,
    /// Some are, and the array can be read.
    ToRead,
    /// Some are, and the array can be written.
    ToWrite,
}

/// Takes every stale member of an organisation without redundancy: its superblocks are never written again, so event
/// counts say nothing about its data.
pub(super) fn take_all(
    examined: &[Examined],
    history: &History,
    judge: &Judge<'_>,
    members: &mut [AssembledMember],
    options: &Options,
) {
    if !options.force || judge.newest.level > 0 {
        return;
    }
    for position in candidates(examined, history, judge, members) {
        let is_free = |slot| members.iter().all(|member| member.slot != slot);
        if is_free(own_slot(&examined[position].superblock)) {
            take(&examined[position], judge.newest, &mut members[position]);
        }
    }
}

/// Takes the least stale members, as few as `is_enough` needs.
pub(super) fn take_needed(
    examined: &[Examined],
    history: &History,
    judge: &Judge<'_>,
    members: &mut [AssembledMember],
    options: &Options,
    is_enough: impl Fn(&[AssembledMember]) -> bool,
) -> Taken {
    if !options.force || options.stale == StaleUse::Never || is_enough(members) {
        return Taken::Nobody;
    }
    let before = members.to_vec();
    let mut taken = Vec::new();
    for position in candidates(examined, history, judge, members) {
        let slot = own_slot(&examined[position].superblock);
        if members.iter().any(|member| member.slot == slot) {
            continue;
        }
        take(&examined[position], judge.newest, &mut members[position]);
        taken.push(position);
        if is_enough(members) {
            break;
        }
    }
    // Whoever turns out not to be needed goes again, the stalest first.
    for position in taken.iter().rev() {
        let with = std::mem::replace(&mut members[*position], before[*position].clone());
        if !is_enough(members) {
            members[*position] = with;
        }
    }
    if !is_enough(members) {
        members.clone_from_slice(&before);
        return Taken::Nobody;
    }
    match options.stale {
        StaleUse::Write if judge.newest.ppl.is_none() => Taken::ToWrite,
        _ => Taken::ToRead,
    }
}

/// Whether nothing may be written because of the stale members that were taken.
pub(super) fn is_only_read(
    taken: Taken,
    geometry: &Geometry,
    members: &mut [AssembledMember],
    bug: DeliberateBug,
) -> bool {
    let has_shared_copies = spare_fresh_copies(geometry, members);
    (taken == Taken::ToRead || has_shared_copies) && !bug.is(Mutant::StaleWrittenUnasked)
}

/// Whether a copy of something that a taken member holds is on another one as well: then the fresh one is read, and
/// nothing may be written, because nobody would make the copies equal.
fn spare_fresh_copies(geometry: &Geometry, members: &mut [AssembledMember]) -> bool {
    if geometry.copy_count() < 2 {
        return false;
    }
    let holds = |slot: usize, is_taken: bool| {
        let of_slot = |member: &AssembledMember| member.slot.map(usize::from) == Some(slot);
        members
            .iter()
            .any(|member| of_slot(member) && member.caution.is_some() == is_taken)
    };
    let strip = geometry.strip_bytes().max(1);
    let around = (geometry.member_count() * geometry.copy_count()) as u64 * strip;
    let mut shared = Vec::new();
    for offset in (0..around.min(geometry.volume_bytes())).step_by(strip as usize) {
        let copies = geometry.copies_of(offset);
        let slots: Vec<usize> = copies.iter().map(|copy| copy.slot).collect();
        if slots.iter().any(|slot| holds(*slot, false)) {
            shared.extend(slots.into_iter().filter(|slot| holds(*slot, true)));
        }
    }
    let mut is_shared = false;
    for member in members.iter_mut().filter(|member| member.caution.is_some()) {
        let shares = member
            .slot
            .is_some_and(|slot| shared.contains(&usize::from(slot)));
        member.is_write_mostly |= shares;
        is_shared |= shares;
    }
    is_shared
}

/// Stale members that could be taken, newest first; of equals the first named.
fn candidates(
    examined: &[Examined],
    history: &History,
    judge: &Judge<'_>,
    members: &[AssembledMember],
) -> Vec<usize> {
    let newest = judge.newest;
    let may_be_taken = |position: &usize| {
        let own = &examined[*position].superblock;
        let standing = &members[*position].standing;
        matches!(
            standing,
            AssembledStanding::Stale { .. } | AssembledStanding::Faulty
        ) && own_slot(own).is_some_and(|slot| slot < judge.slot_count)
            && !history.set_aside.contains(position)
            && own.rebuild_offset_sectors.is_none()
            && place_of_reshape(own) == place_of_reshape(newest)
            && !excludes(own, newest)
            && unusable(&examined[*position], newest).is_none()
    };
    let mut found: Vec<usize> = (0..examined.len()).filter(may_be_taken).collect();
    found.sort_by_key(|position| std::cmp::Reverse(examined[*position].superblock.events));
    if judge.bug.is(Mutant::StalestTaken) {
        found.reverse();
    }
    found
}

/// Where a reshape was; the shift of the data may differ between members.
fn place_of_reshape(superblock: &Superblock) -> Option<Reshape> {
    superblock.reshape.map(|reshape| Reshape {
        new_offset_sectors: None,
        ..reshape
    })
}

fn own_slot(superblock: &Superblock) -> Option<u16> {
    superblock.role().slot().map(|slot| slot.0)
}

fn take(examined: &Examined, newest: &Superblock, member: &mut AssembledMember) {
    let own = &examined.superblock;
    let reason = member.reason.take().unwrap_or_default();
    let seconds = newest.utime.seconds.saturating_sub(own.utime.seconds);
    let later = match seconds {
        0 => String::new(),
        seconds => format!(", {seconds} s later"),
    };
    let missed = if newest.level > 0 {
        format!(
            "; what was written between event count {} and {}{later}, is not on it",
            own.events, newest.events
        )
    } else {
        String::new()
    };
    member.slot = own_slot(own);
    member.standing = AssembledStanding::Active;
    member.is_replacement = false;
    member.caution = Some(format!("{reason}{missed}"));
}

/// A refusal for want of members, with the way out that there is when stale ones would be enough.
pub(super) fn with_way_out(
    examined: &[Examined],
    options: &Options,
    error: AssembleError,
) -> AssembleError {
    if error.code != AssembleCode::TooFewMembers {
        return error;
    }
    let insisted = Options {
        force: true,
        read_only: true,
        stale: StaleUse::Read,
        ..*options
    };
    if insisted == *options || put_together(examined, &insisted, DeliberateBug::NONE).is_err() {
        return error;
    }
    let names: Vec<String> = examined.iter().map(|member| quoted(&member.name)).collect();
    error.hint(format!(
        "to read it with the least stale ones, as it may have been at two times:   plexum serve --force --read-only {}",
        names.join(" ")
    ))
}

/// A word as a shell takes it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+,@%=".contains(c);
    if word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
