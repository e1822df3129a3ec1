//! What is told of a volume of a pool.

use std::time::Duration;

use plexum_front::export::ExportInfo;
use plexum_pool::{MemberInfo, Task, Walking};
use plexum_runtime::Handle;
use plexum_zfs::{MemberReport, PoolReport};

use crate::volume::empty_slot;
use crate::volume::status::{
    JSON_VERSION, JobKind, JobStatus, MemberState, MemberStatus, Verdict, VolumeStatus,
};

/// The verdict that the states of the members mean.
pub(super) fn verdict(members: &[MemberStatus]) -> Verdict {
    // Who comes to take the place of another takes nothing away before.
    let mut own = members.iter().filter(|member| !member.is_replacement);
    match own.all(|member| member.state == MemberState::Active) {
        true => Verdict::Ok,
        false => Verdict::Degraded,
    }
}

/// The status of a volume as it was opened; ways in are added to it later.
pub(super) fn status(report: &PoolReport, info: &ExportInfo, handle: &Handle) -> VolumeStatus {
    let members = members_of(report);
    VolumeStatus {
        version: JSON_VERSION,
        kind: "volume".into(),
        volume: info.name.clone(),
        verdict: verdict(&members),
        level: level_of(report),
        layout: None,
        strip_bytes: None,
        format: "zfs".into(),
        uuid: report.guid.to_string(),
        size_bytes: info.size_bytes,
        member_bytes: None,
        slots: u32::try_from(members.len()).unwrap_or(u32::MAX),
        spare_failures: 0,
        designed_spare_failures: None,
        event_count: report.root.txg,
        is_dirty: false,
        is_read_only: info.is_read_only,
        balance: "round-robin".into(),
        consistency: "checksums".into(),
        bitmap: None,
        log: None,
        io: handle.status().kind.to_string(),
        exports: Vec::new(),
        members,
        former_disks: Vec::new(),
        attachments: Vec::new(),
        jobs: Vec::new(),
        last_scrub: None,
        scrub_plan: None,
        findings: Vec::new(),
        next: None,
        server_pid: std::process::id(),
        server_waits: handle.clock().waits().into(),
    }
}

fn members_of(report: &PoolReport) -> Vec<MemberStatus> {
    let members = report.members.iter().enumerate();
    members.map(member_status).collect()
}

/// The kinds of its groups.
fn level_of(report: &PoolReport) -> String {
    let plexes = report.plexes.iter();
    let kinds = plexes.filter_map(|(_, plex)| Some(plex.as_ref()?.kind.to_string()));
    let mut kinds: Vec<String> = kinds.collect();
    kinds.dedup();
    kinds.join("+")
}

/// A pool that is written, as it is put together now, with its members as they are.
pub(super) fn show_live(status: &mut VolumeStatus, report: &PoolReport, members: &[MemberInfo]) {
    status.level = level_of(report);
    status.members = members_of(report);
    status.slots = u32::try_from(status.members.len()).unwrap_or(u32::MAX);
    for (known, shown) in report.members.iter().zip(&mut status.members) {
        let is_it =
            |one: &&MemberInfo| one.guid == known.guid && u64::from(one.plex_id) == known.plex_id;
        if let Some(member) = members.iter().find(is_it) {
            show_member(shown, member);
        }
    }
    let coming = members.iter().filter_map(|one| one.successor.clone());
    status.members.extend(coming.map(|name| MemberStatus {
        slot: None,
        path: Some(name),
        state: MemberState::Rebuilding,
        is_replacement: true,
        ..empty_slot(0)
    }));
}

/// A member of a pool that is written, as it is now; it is shown as its labels have it.
fn show_member(shown: &mut MemberStatus, member: &MemberInfo) {
    shown.state = match (&member.out, member.missed_groups) {
        (Some(_), _) if !member.is_there => MemberState::Missing,
        (Some(_), _) => MemberState::Faulty,
        (None, 0) => MemberState::Active,
        (None, _) => MemberState::Rebuilding,
    };
    match shown.state {
        MemberState::Missing => {}
        MemberState::Faulty => shown.failed_because.clone_from(&member.out),
        _ => shown.path = Some(member.name.clone()),
    }
}

/// A walk over the blocks, `age` after it began.
pub(super) fn job(walking: &Walking, age: Duration) -> JobStatus {
    let done_bytes = walking.report.bytes;
    let total_bytes = walking.total_bytes.max(done_bytes);
    let milliseconds = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate_bytes_per_s = done_bytes.saturating_mul(1000) / milliseconds;
    JobStatus {
        kind: match walking.task {
            Task::Scrub => JobKind::Repair,
            Task::Rebuild => JobKind::Rebuild,
            Task::Fill(_) => JobKind::Replace,
        },
        done_bytes,
        total_bytes,
        rate_bytes_per_s,
        eta_s: (total_bytes - done_bytes).checked_div(rate_bytes_per_s),
        eta_range_s: None,
        slots: Vec::new(),
    }
}

/// Slots are counted over all groups of the pool.
fn member_status((at, member): (usize, &MemberReport)) -> MemberStatus {
    MemberStatus {
        slot: u32::try_from(at).ok(),
        path: Some(member.name.clone().unwrap_or_else(|| member.path.clone())),
        serial: None,
        was: None,
        state: match (&member.name, member.is_stale) {
            (None, _) => MemberState::Missing,
            (Some(_), true) => MemberState::Stale,
            (Some(_), false) => MemberState::Active,
        },
        ..empty_slot(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_whole_while_a_member_of_it_is_replaced_that_is_there() {
        let member = |state, is_replacement| MemberStatus {
            state,
            is_replacement,
            ..empty_slot(0)
        };
        let active = member(MemberState::Active, false);
        let coming = member(MemberState::Rebuilding, true);
        assert_eq!(verdict(&[active.clone(), coming.clone()]), Verdict::Ok);
        let behind = member(MemberState::Rebuilding, false);
        assert_eq!(verdict(&[active, behind, coming]), Verdict::Degraded);
    }
}
