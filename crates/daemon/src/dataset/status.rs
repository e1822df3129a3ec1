//! What is told of a volume of a pool.

use plexum_front::export::ExportInfo;
use plexum_pool::MemberInfo;
use plexum_runtime::Handle;
use plexum_zfs::{MemberReport, PoolReport};

use crate::volume::empty_slot;
use crate::volume::status::{JSON_VERSION, MemberState, MemberStatus, Verdict, VolumeStatus};

/// The verdict that the states of the members mean.
pub(super) fn verdict(members: &[MemberStatus]) -> Verdict {
    let mut states = members.iter().map(|member| member.state);
    match states.all(|state| state == MemberState::Active) {
        true => Verdict::Ok,
        false => Verdict::Degraded,
    }
}

/// The status of a volume as it was opened; ways in are added to it later.
pub(super) fn status(report: &PoolReport, info: &ExportInfo, handle: &Handle) -> VolumeStatus {
    let members: Vec<MemberStatus> = report.members.iter().map(member_status).collect();
    let mut kinds: Vec<String> = report
        .plexes
        .iter()
        .filter_map(|(_, plex)| Some(plex.as_ref()?.kind.to_string()))
        .collect();
    kinds.dedup();
    VolumeStatus {
        version: JSON_VERSION,
        kind: "volume".into(),
        volume: info.name.clone(),
        verdict: verdict(&members),
        level: kinds.join("+"),
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

/// The state of a member of a pool that is written; `before`: as it was opened.
pub(super) fn live_state(member: &MemberInfo, before: MemberState) -> MemberState {
    match (&member.out, member.missed_groups) {
        (Some(_), _) if before == MemberState::Missing => MemberState::Missing,
        (Some(_), _) => MemberState::Faulty,
        (None, 0) => MemberState::Active,
        (None, _) => MemberState::Rebuilding,
    }
}

fn member_status(member: &MemberReport) -> MemberStatus {
    MemberStatus {
        slot: u32::try_from(member.slot).ok(),
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
