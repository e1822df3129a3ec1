//! Which logs and which bitmap count at a start.

use plexum_format::md::Superblock;
use plexum_format::stripe_log::superblock_hash;
use plexum_format::units::EventCount;

use super::problem::{AssembleCode, AssembleError};
use super::{AssembledMember, AssembledStanding, BitmapUse, Examined, JournalUse, LogUse, Options};

/// The bitmap, if any copy of it can be trusted.
///
/// Usable when a complete, fresh member's copy is as new as the freshest superblock; then all fresh copies count
/// together, which only ever marks more. Source: linux-md.md section 3.
pub(super) fn judge_bitmap(examined: &[Examined], newest: &Superblock) -> BitmapUse {
    if newest.bitmap_offset_sectors.is_none() {
        return BitmapUse::None;
    }
    let uuid = newest.bitmap_uuid();
    let is_source = |member: &&Examined| {
        let superblock = &member.superblock;
        superblock.events.is_fresh_beside(newest.events)
            && superblock.role().slot().is_some()
            && newest.role_of(superblock.dev_number) == superblock.role()
            && superblock.rebuild_offset_sectors.is_none()
    };
    let mut sources = Vec::new();
    let mut events_cleared = EventCount(0);
    let mut is_current = false;
    for member in examined.iter().filter(is_source) {
        let Some(header) = member.bitmap.as_ref().filter(|header| header.uuid == uuid) else {
            continue;
        };
        if header.is_stale {
            return BitmapUse::Stale;
        }
        is_current |= header.events >= newest.events;
        events_cleared = events_cleared.max(header.events_cleared);
        sources.push(member.index);
    }
    if is_current {
        BitmapUse::Usable {
            events_cleared,
            sources,
        }
    } else {
        BitmapUse::Stale
    }
}

/// What the members' rings say together.
///
/// They count only when writes were under way, and when on every member in use the header names the superblock that is
/// there (L6): else somebody else has had the array, and what lies in the rings is older than what lies in place.
/// Read-only nothing can be replayed.
pub(super) fn judge_log(
    examined: &[Examined],
    members: &[AssembledMember],
    resync_start_bytes: Option<u64>,
    options: &Options,
) -> LogUse {
    let of = |member: &AssembledMember| examined.iter().find(|one| one.index == member.index);
    let is_slotted = |member: &&AssembledMember| member.standing.is_used() && member.slot.is_some();
    let slotted: Vec<&Examined> = members.iter().filter(is_slotted).filter_map(of).collect();
    let logs: Vec<_> = slotted
        .iter()
        .filter_map(|member| member.log.as_ref())
        .collect();
    if logs.is_empty() {
        return LogUse::None;
    }
    if let Some(reason) = logs.iter().find_map(|(_, reason)| reason.clone()) {
        return LogUse::Refused { reason };
    }
    let is_bound = |member: &&Examined| {
        let hash = superblock_hash(&member.superblock);
        let header = member.log.as_ref().map(|(header, _)| header);
        header.is_some_and(|header| header.is_bound_to(&hash))
    };
    if resync_start_bytes != Some(0) || options.read_only || !slotted.iter().all(is_bound) {
        return LogUse::Void;
    }
    let doubts = logs
        .iter()
        .filter_map(|(header, _)| header.doubt_from_bytes);
    LogUse::Replay {
        doubt_from_bytes: doubts.min(),
    }
}

/// L5: answered writes that are only in the log are never left out without a word.
///
/// # Errors
/// `LogLost` unless the log is replayed or the user gives up what it holds.
pub(super) fn check_answers_in_log(
    name: &str,
    newest: &Superblock,
    examined: &[Examined],
    members: &[AssembledMember],
    log: &LogUse,
    options: &Options,
) -> Result<(), AssembleError> {
    if !newest.has_answers_in_log || matches!(log, LogUse::Replay { .. }) {
        return Ok(());
    }
    if options.read_only {
        let message = format!("array {name}: answered writes are only in its stripe log");
        return Err(AssembleError::new(AssembleCode::LogLost, message)
            .why("read-only they cannot be put in place, and without them old data would be read")
            .hint("serve it once without --read-only"));
    }
    if options.force {
        return Ok(());
    }
    let is_bound = |index: usize| {
        let member = examined.iter().find(|one| one.index == index);
        member.is_some_and(|member| {
            let hash = superblock_hash(&member.superblock);
            let log = member.log.as_ref();
            log.is_some_and(|(header, _)| header.is_bound_to(&hash))
        })
    };
    let lost = members.iter().find(|member| {
        member.standing.is_used() && member.slot.is_some() && !is_bound(member.index)
    });
    let whose = lost.map_or_else(String::new, |member| {
        format!(" of the member of slot {}", member.slot.unwrap_or(0))
    });
    let message = format!(
        "array {name}: answered writes are only in its stripe log, and the log{whose} cannot be used"
    );
    let mut error = AssembleError::new(AssembleCode::LogLost, message)
        .why("the log's header is damaged, or somebody else has written the superblock");
    error.member = lost.map(|member| member.index);
    Err(error
        .hint("leave that member out: it is rebuilt from the others")
        .hint("or add --force: what is only in the log is given up, and old data are read"))
}

/// Whether the array has a journal, and its device is here.
pub(super) fn judge_journal(newest: &Superblock, members: &[AssembledMember]) -> JournalUse {
    let is_here = |member: &AssembledMember| member.standing == AssembledStanding::Journal;
    match (newest.has_journal, members.iter().any(is_here)) {
        (false, _) => JournalUse::None,
        (true, true) => JournalUse::Here,
        (true, false) => JournalUse::Absent,
    }
}

/// An array counts as clean while answered writes are only in its journal.
pub(super) fn check_journal(
    name: &str,
    newest: &Superblock,
    members: &[AssembledMember],
    options: &Options,
) -> Result<(), AssembleError> {
    if judge_journal(newest, members) != JournalUse::Absent || options.force {
        return Ok(());
    }
    let message =
        format!("array {name}: it has a write journal, and the journal's device is not here");
    let unused = members.iter().filter(|member| !member.standing.is_used());
    let error = unused.fold(
        AssembleError::new(AssembleCode::LogLost, message),
        |error, member| {
            let reason = member.reason.as_deref().unwrap_or("no reason recorded");
            error.why(format!("{} is left out: {reason}", member.name))
        },
    );
    Err(error
        .why("writes that were answered may be only in the journal, whatever the superblocks say")
        .hint("name the journal's device as well")
        .hint("or add --read-only --force: old data are read where the newest are in the journal"))
}
