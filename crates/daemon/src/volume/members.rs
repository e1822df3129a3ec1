//! Members and scrubs of the engine as status tells them.

use plexum_engine::latency::Latency;
use plexum_engine::state::Standing;
use plexum_engine::upkeep::scrub::{ScrubMode, ScrubReport};
use plexum_engine::volume::MemberStatus as EngineMember;

use super::status::{
    LatencyStatus, LearnedStatus, MemberState, MemberStatus, Mismatch, ScrubStatus,
};

/// Ranges of a scrub that status tells; `mismatch_bytes` counts all.
const RANGES_MAX: usize = 1000;

pub(super) fn scrub_status(report: &ScrubReport) -> ScrubStatus {
    let mut ranges = Vec::new();
    for mismatch in report.mismatches.iter().take(RANGES_MAX) {
        let member = &mismatch.member_range;
        let volume = mismatch.volume_ranges.first();
        ranges.push(Mismatch {
            member_offset_bytes: member.start,
            volume_offset_bytes: volume.map_or(0, |range| range.start),
            length_bytes: member.end - member.start,
            slot: mismatch.slot.map(u32::from),
        });
    }
    ScrubStatus {
        is_complete: report.is_complete,
        is_repair: report.mode == ScrubMode::Repair,
        mismatch_bytes: report.mismatch_bytes,
        repaired_bytes: report.repaired_bytes,
        skipped_bytes: report.skipped_bytes,
        ranges,
        finished_s: Some(report.ended_s),
        done_bytes: report.done_bytes,
        total_bytes: report.total_bytes,
        mismatch_bytes_before: report.mismatch_bytes_before,
    }
}

pub(super) fn member_status(member: &EngineMember) -> MemberStatus {
    let counters = &member.counters;
    MemberStatus {
        slot: member.slot.map(u32::from),
        path: member.name.clone(),
        serial: None,
        disk: None,
        was: None,
        state: match member.standing {
            _ if member.is_lost => MemberState::Faulty,
            Standing::Active => MemberState::Active,
            Standing::Rebuilding { .. } => MemberState::Rebuilding,
            Standing::Spare => MemberState::Spare,
            Standing::Faulty => MemberState::Faulty,
            Standing::Removed => MemberState::Missing,
        },
        is_write_mostly: member.is_write_mostly,
        is_replacement: member.is_replacement,
        read_errors: counters.read_errors,
        write_errors: counters.write_errors,
        corrected_errors: counters.corrected_errors,
        reads: counters.reads,
        writes: counters.writes,
        read_bytes: counters.read_bytes,
        written_bytes: counters.written_bytes,
        bad_bytes: member.bad_bytes,
        hedged_reads: counters.hedged_reads,
        read_latency: latency_status(member.latencies.0),
        write_latency: latency_status(member.latencies.1),
        latency_vs_peers_percent: member.comparison.map(|comparison| comparison.percent),
        is_slow: member
            .comparison
            .is_some_and(|comparison| comparison.is_slow),
        is_draining: member.is_draining,
        learned: member.learned.map(|learned| LearnedStatus {
            sequential_us: learned.sequential_ns / 1000,
            random_us: learned.random_ns / 1000,
            mib_us: learned.mib_ns / 1000,
        }),
        fua_way: member.fua_way.map(|way| way.word().to_owned()),
        failed_because: None,
        refused_writes: member.refused_writes,
        refused_ago_s: None,
        unwritten_bytes: None,
        free_bytes: None,
    }
}

fn latency_status(latency: Latency) -> Option<LatencyStatus> {
    (latency.samples > 0).then_some(LatencyStatus {
        samples: latency.samples,
        p50_us: latency.p50_ns / 1000,
        p99_us: latency.p99_ns / 1000,
    })
}

pub(crate) fn empty_slot(slot: u32) -> MemberStatus {
    MemberStatus {
        slot: Some(slot),
        path: None,
        serial: None,
        disk: None,
        was: None,
        state: MemberState::Missing,
        is_write_mostly: false,
        is_replacement: false,
        read_errors: 0,
        write_errors: 0,
        corrected_errors: 0,
        reads: 0,
        writes: 0,
        read_bytes: 0,
        written_bytes: 0,
        bad_bytes: 0,
        hedged_reads: 0,
        read_latency: None,
        write_latency: None,
        latency_vs_peers_percent: None,
        is_slow: false,
        is_draining: false,
        learned: None,
        fua_way: None,
        failed_because: None,
        refused_writes: 0,
        refused_ago_s: None,
        unwritten_bytes: None,
        free_bytes: None,
    }
}
