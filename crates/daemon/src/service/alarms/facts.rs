//! The facts of one volume, as alarms are judged by them.
//!
//! How bad it is comes from the engine's numbers. What comes from the status are names, and what to say of them.

use plexum_engine::volume::{MissingSlot as Lacking, Redundancy, Safety};
use plexum_format::zfs::PlexKind;
use plexum_incidents::facts::{
    MissingSlot, RedundancyKind, SafeAgain, ScrubFacts, SlowMember, VolumeFacts,
};
use plexum_incidents::time::UnixTime;
use plexum_layout::Level;

use crate::dataset::PoolServed;
use crate::volume::status::{JobKind, JobStatus, MemberState, MemberStatus, VolumeStatus};

/// A write for which there was no space counts for as long: then there may be some again.
const REFUSED_S: u64 = 60;

/// What is known of a volume that is served.
pub(super) struct Known<'a> {
    /// What it is known by.
    pub(super) identity: String,
    /// What makes copies of its data.
    pub(super) kind: RedundancyKind,
    /// How many more losses it survives.
    pub(super) redundancy: &'a Redundancy,
    /// Everything else.
    pub(super) status: &'a VolumeStatus,
    /// Slots that are meant to be without a member.
    pub(super) expected_missing: usize,
    /// It never had all its redundancy yet.
    pub(super) is_new: bool,
}

/// Its facts at `now`.
pub(super) fn of(known: &Known<'_>, now: UnixTime) -> VolumeFacts {
    let Known {
        redundancy, status, ..
    } = known;
    let missing = redundancy.missing.iter();
    let is_refused = |member: &MemberStatus| {
        let ago_s = member.refused_ago_s;
        member.state == MemberState::Active && ago_s.is_some_and(|ago_s| ago_s < REFUSED_S)
    };
    VolumeFacts {
        name: status.volume.clone(),
        uuid: known.identity.clone(),
        kind: known.kind,
        losses_left: redundancy.losses_left,
        losses_left_elsewhere: redundancy.losses_left_elsewhere,
        losses_designed: redundancy.losses_designed,
        missing: missing.map(|slot| missing_slot(slot, status)).collect(),
        expected_missing: known.expected_missing,
        is_lost: redundancy.safety == Safety::Lost,
        is_first_sync: known.is_new,
        doubtful_regions: redundancy.doubtful_regions.0 as u64,
        bad_bytes: redundancy.bad_bytes,
        spares: redundancy.spares,
        safe_again: status.jobs.iter().find_map(|job| safe_again(job, now)),
        scrub: scrub(status),
        slow: status.members.iter().filter_map(slow).collect(),
        is_full: status.members.iter().any(is_refused),
        space: None,
        cannot_judge: None,
        before: status.members.iter().filter_map(errors).collect(),
    }
}

/// What makes copies of the data of a level.
pub(super) fn kind_of(level: Level) -> RedundancyKind {
    match level {
        Level::Linear | Level::Raid0 => RedundancyKind::Plain,
        Level::Raid1 | Level::Raid10 => RedundancyKind::Copies,
        Level::Raid4 | Level::Raid5 | Level::Raid6 => RedundancyKind::Parity,
    }
}

/// What makes copies of a pool's data, for messages.
pub(super) fn kind_of_pool(pool: &PoolServed) -> RedundancyKind {
    let plexes = pool
        .report
        .plexes
        .iter()
        .filter_map(|(_, plex)| plex.as_ref());
    let has = |is_it: fn(&PlexKind) -> bool| plexes.clone().any(|plex| is_it(&plex.kind));
    if has(|kind| matches!(kind, PlexKind::Single)) {
        RedundancyKind::Plain
    } else if has(|kind| matches!(kind, PlexKind::RaidZ { .. })) {
        RedundancyKind::Parity
    } else {
        RedundancyKind::Copies
    }
}

/// Which disk it is, for people; none of a slot whose member nobody remembers. All messages say it by this.
fn member_words(member: &MemberStatus) -> Option<String> {
    if let Some(disk) = &member.disk {
        return Some(disk.words());
    }
    let name = member.path.as_ref().or(member.was.as_ref())?;
    Some(match &member.serial {
        Some(serial) => format!("{name} (serial {serial})"),
        None => name.clone(),
    })
}

fn missing_slot(lacking: &Lacking, status: &VolumeStatus) -> MissingSlot {
    let slot = u32::from(lacking.slot);
    let mut members = status.members.iter();
    let member = members.find(|member| member.slot == Some(slot) && !member.is_replacement);
    let because = member.and_then(|member| member.failed_because.clone());
    MissingSlot {
        slot: lacking.slot,
        valid_bytes: lacking.valid_bytes,
        member: member.and_then(member_words),
        reason: because,
        since: None,
        // One that is there again is taken back by itself; who may not is told with its reason.
        returned: None,
    }
}

/// When a job that brings redundancy back will be done, as far as that can be said.
fn safe_again(job: &JobStatus, now: UnixTime) -> Option<SafeAgain> {
    if !matches!(job.kind, JobKind::Rebuild | JobKind::Resync) {
        return None;
    }
    let likely_s = job.eta_s?;
    let (earliest_s, latest_s) = job.eta_range_s.unwrap_or((likely_s, likely_s));
    Some(SafeAgain {
        likely: now.plus_s(likely_s),
        earliest: now.plus_s(earliest_s),
        latest: now.plus_s(latest_s),
    })
}

/// A schedule knows the age of every byte; without one the last scrub of everything says it.
fn scrub(status: &VolumeStatus) -> ScrubFacts {
    let last = status.last_scrub.as_ref();
    let complete = last.filter(|last| last.is_complete);
    let finished = complete.and_then(|last| last.finished_s).map(UnixTime);
    let (mismatch_bytes, mended_bytes) =
        last.map_or((0, 0), |last| (last.unmended_bytes(), last.repaired_bytes));
    let plan = status.scrub_plan.as_ref();
    ScrubFacts {
        last_success: plan.map_or(finished, |plan| plan.last_success_s.map(UnixTime)),
        oldest_checked: plan.map_or(finished, |plan| Some(UnixTime(plan.oldest_byte_s))),
        // Windows, other jobs and restarts may keep a round waiting.
        due_after_s: plan.map(|plan| plan.every_s + plan.every_s / 2),
        mismatch_bytes,
        mended_bytes,
    }
}

fn slow(member: &MemberStatus) -> Option<SlowMember> {
    let slot = member.slot.filter(|_| member.is_slow)?;
    let ratio = member.latency_vs_peers_percent.unwrap_or(0);
    Some(SlowMember {
        slot: u16::try_from(slot).ok()?,
        member: member_words(member),
        peer_ratio_percent: u32::try_from(ratio).unwrap_or(u32::MAX),
    })
}

/// What was counted of a member, where anything was.
fn errors(member: &MemberStatus) -> Option<String> {
    let counted = [
        (member.read_errors, "read errors"),
        (member.write_errors, "write errors"),
        (member.corrected_errors, "of them mended"),
    ];
    let counted = counted.iter().filter(|(count, _)| *count > 0);
    let counted: Vec<String> = counted.map(|(count, of)| format!("{count} {of}")).collect();
    let words = member_words(member).filter(|_| !counted.is_empty())?;
    Some(format!("{words}: {}", counted.join(", ")))
}
