//! The page of metrics of a server: a pure function of what `status --json` and `stats --json` tell.
//!
//! Invariants:
//! - nothing is read or decided here; what is not known has no sample, instead of a zero that looks well;
//! - a member that is gone is counted as missing: it never just leaves the page.

use std::time::Duration;

pub use plexum_metrics::merged;
use plexum_metrics::{Page, families};
use serde::Deserialize;

use crate::volume::status::{
    JobStatus, LatencyStatus, MemberState, MemberStatus, ScrubStatus, Verdict, VolumeStatus,
};

const MEMBER_STATES: [MemberState; 6] = [
    MemberState::Active,
    MemberState::Rebuilding,
    MemberState::Stale,
    MemberState::Faulty,
    MemberState::Missing,
    MemberState::Spare,
];

const VERDICTS: [Verdict; 5] = [
    Verdict::Ok,
    Verdict::Damaged,
    Verdict::Full,
    Verdict::Degraded,
    Verdict::Failed,
];

/// How many incidents of one kind are open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenIncidents {
    /// Their severity, in a word.
    pub severity: String,
    /// Their code.
    pub code: String,
    /// How many.
    pub count: u64,
}

/// How many times a channel has not taken a message; read of the daemon's list of incidents.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct DeliveryFailures {
    /// Name of the channel.
    #[serde(rename = "name")]
    pub channel: String,
    /// So often.
    #[serde(rename = "failed_attempts")]
    pub count: u64,
}

/// What is on a page.
#[derive(Clone, Debug, Default)]
pub struct PageFacts {
    /// The volumes that are served, each with its counters where they are known.
    pub volumes: Vec<(VolumeStatus, Option<VolumeCounters>)>,
    /// The volumes that should be served and are not. One that somebody has stopped is not missed.
    pub not_served: Vec<String>,
    /// Incidents that are open.
    pub incidents: Vec<OpenIncidents>,
    /// Messages that did not arrive, of each channel.
    pub delivery_failures: Vec<DeliveryFailures>,
    /// When the state was looked at, in seconds since 1970.
    pub judged_s: u64,
}

/// Counters of a volume: of `stats --json` what metrics need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct VolumeCounters {
    /// Of all clients.
    pub total: ClientCounters,
    /// Of each member.
    pub members: Vec<MemberCounters>,
}

/// What clients asked for, and how long it took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ClientCounters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests that were answered with an error.
    pub errors: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Time of all reads.
    pub read_ns: u64,
    /// Time of all writes.
    pub write_ns: u64,
}

/// What a member did, and how long it took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct MemberCounters {
    /// The member.
    pub member: Option<String>,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Time of all reads.
    pub read_ns: u64,
    /// Time of all writes.
    pub write_ns: u64,
}

/// The page as text.
#[must_use]
pub fn page(facts: &PageFacts) -> String {
    let mut page = Page::new();
    page.set(&families::BUILD_INFO, &[env!("CARGO_PKG_VERSION")], 1_u64);
    page.set(&families::JUDGED_TIMESTAMP_SECONDS, &[], facts.judged_s);
    for open in &facts.incidents {
        let labels = [open.severity.as_str(), &open.code];
        page.set(&families::INCIDENTS, &labels, open.count);
    }
    for failures in &facts.delivery_failures {
        let labels = [failures.channel.as_str()];
        page.set(
            &families::ALERT_DELIVERY_FAILURES_TOTAL,
            &labels,
            failures.count,
        );
    }
    for volume in &facts.not_served {
        page.set(&families::VOLUME_SERVED, &[volume], 0_u64);
    }
    for (status, counters) in &facts.volumes {
        add_volume(&mut page, status);
        add_scrub(&mut page, status, facts.judged_s);
        for job in &status.jobs {
            add_job(&mut page, &status.volume, job);
        }
        for member in &status.members {
            let label = MemberLabel::of(&status.volume, member);
            add_member(&mut page, &label, member);
            let counted = counters.iter().flat_map(|counters| &counters.members);
            let own = counted.filter(|one| one.member.is_some() && one.member == member.path);
            for counters in own {
                let [read, write] = [counters.read_ns, counters.write_ns].map(Duration::from_nanos);
                label.summary(&mut page, "read", (counters.reads, read));
                label.summary(&mut page, "write", (counters.writes, write));
            }
        }
        if let Some(counters) = counters {
            add_requests(&mut page, &status.volume, &counters.total);
        }
    }
    page.text()
}

fn add_volume(page: &mut Page, status: &VolumeStatus) {
    let volume = [status.volume.as_str()];
    let [name] = volume;
    page.set(&families::VOLUME_SERVED, &volume, 1_u64);
    let info = [name, &status.uuid, &status.level, &status.format];
    page.set(&families::VOLUME_INFO, &info, 1_u64);
    let verdict: u64 = match status.verdict {
        Verdict::Ok => 0,
        Verdict::Damaged | Verdict::Full | Verdict::Degraded => 1,
        Verdict::Failed => 2,
    };
    page.set(&families::VOLUME_VERDICT, &volume, verdict);
    for state in VERDICTS {
        let labels = [name, &state.word().to_lowercase()];
        page.set(
            &families::VOLUME_STATE,
            &labels,
            u64::from(state == status.verdict),
        );
    }
    page.set(
        &families::VOLUME_SPARE_FAILURES,
        &volume,
        status.spare_failures,
    );
    let designed = status.designed_spare_failures;
    page.set_known(&families::VOLUME_DESIGNED_SPARE_FAILURES, &volume, designed);
    page.set(&families::VOLUME_SIZE_BYTES, &volume, status.size_bytes);
    page.set(
        &families::VOLUME_READ_ONLY,
        &volume,
        u64::from(status.is_read_only),
    );
    let doubtful = status.bitmap.as_ref().map(|bitmap| {
        let bytes = bitmap.doubtful_regions.saturating_mul(bitmap.region_bytes);
        bytes.min(status.size_bytes)
    });
    page.set_known(&families::VOLUME_DOUBTFUL_BYTES, &volume, doubtful);
    for state in MEMBER_STATES {
        let count = status
            .members
            .iter()
            .filter(|member| member.state == state)
            .count();
        page.set(&families::MEMBERS, &[name, state.word()], count);
    }
    let clients: u64 = status.exports.iter().map(|export| export.clients).sum();
    page.set(&families::CLIENT_CONNECTIONS, &volume, clients);
}

fn add_scrub(page: &mut Page, status: &VolumeStatus, now_s: u64) {
    let volume = [status.volume.as_str()];
    if let Some(scrub) = &status.last_scrub {
        let bytes = scrub.unmended_bytes();
        page.set(&families::SCRUB_MISMATCH_BYTES, &volume, bytes);
    }
    let is_success = |scrub: &&ScrubStatus| scrub.is_complete && scrub.skipped_bytes == 0;
    let asked = status.last_scrub.as_ref().filter(is_success);
    let by_hand = asked.and_then(|scrub| scrub.finished_s);
    let plan = status.scrub_plan.as_ref();
    let planned = plan.and_then(|plan| plan.last_success_s);
    let last = by_hand.max(planned);
    page.set_known(
        &families::SCRUB_LAST_SUCCESS_TIMESTAMP_SECONDS,
        &volume,
        last,
    );
    let oldest = plan.map(|plan| plan.oldest_byte_s).or(by_hand);
    let age = oldest.map(|oldest| now_s.saturating_sub(oldest));
    page.set_known(&families::SCRUB_OLDEST_BYTE_AGE_SECONDS, &volume, age);
    let due_after = plan.map(|plan| plan.every_s);
    page.set_known(&families::SCRUB_DUE_AFTER_SECONDS, &volume, due_after);
    let next = plan.and_then(|plan| plan.next_s);
    page.set_known(&families::SCRUB_NEXT_TIMESTAMP_SECONDS, &volume, next);
}

fn add_job(page: &mut Page, volume: &str, job: &JobStatus) {
    let labels = [volume, job.kind.word()];
    let ratio = job.done_bytes as f64 / job.total_bytes.max(1) as f64;
    page.set(&families::JOB_PROGRESS_RATIO, &labels, ratio.min(1.0));
    page.set(&families::JOB_RATE_BYTES, &labels, job.rate_bytes_per_s);
    let (earliest, latest) = job.eta_range_s.unzip();
    for (bound, seconds) in [
        ("likely", job.eta_s),
        ("earliest", earliest),
        ("latest", latest),
    ] {
        let labels = [volume, job.kind.word(), bound];
        page.set_known(&families::JOB_ETA_SECONDS, &labels, seconds);
    }
}

/// What a member is called on the page: by its slot and its path, so that neither a replacement nor a spare is taken
/// for another.
struct MemberLabel {
    volume: String,
    slot: String,
    member: String,
}

impl MemberLabel {
    fn of(volume: &str, member: &MemberStatus) -> Self {
        let name = member.path.as_ref().or(member.was.as_ref());
        Self {
            volume: volume.to_owned(),
            slot: member.slot.map(|slot| slot.to_string()).unwrap_or_default(),
            member: name.cloned().unwrap_or_default(),
        }
    }

    fn alone(&self) -> [&str; 3] {
        [&self.volume, &self.slot, &self.member]
    }

    fn and<'a>(&'a self, word: &'a str) -> [&'a str; 4] {
        [&self.volume, &self.slot, &self.member, word]
    }

    fn summary(&self, page: &mut Page, direction: &str, done: (u64, Duration)) {
        let family = &families::MEMBER_IO_SECONDS;
        page.summary(family, &self.and(direction), done.0, done.1);
    }
}

fn add_member(page: &mut Page, label: &MemberLabel, member: &MemberStatus) {
    let serial = member.serial.as_deref().unwrap_or_default();
    page.set(&families::MEMBER_INFO, &label.and(serial), 1_u64);
    if member.state == MemberState::Missing {
        return; // there is nobody whose errors could be counted
    }
    for (kind, count) in [
        ("read", member.read_errors),
        ("write", member.write_errors),
        ("corrected", member.corrected_errors),
    ] {
        page.set(&families::MEMBER_ERRORS_TOTAL, &label.and(kind), count);
    }
    for (direction, bytes) in [("read", member.read_bytes), ("write", member.written_bytes)] {
        page.set(
            &families::MEMBER_IO_BYTES_TOTAL,
            &label.and(direction),
            bytes,
        );
    }
    for (direction, latency) in [
        ("read", member.read_latency),
        ("write", member.write_latency),
    ] {
        let Some(LatencyStatus { p50_us, p99_us, .. }) = latency else {
            continue;
        };
        for (percentile, us) in [("50", p50_us), ("99", p99_us)] {
            let labels = [
                &label.volume,
                &label.slot,
                &label.member,
                direction,
                percentile,
            ];
            page.set(&families::MEMBER_LATENCY_SECONDS, &labels, us as f64 / 1e6);
        }
    }
    let ratio = member
        .latency_vs_peers_percent
        .map(|percent| percent as f64 / 100.0);
    page.set_known(&families::MEMBER_PEER_RATIO, &label.alone(), ratio);
    page.set(
        &families::MEMBER_SLOW,
        &label.alone(),
        u64::from(member.is_slow),
    );
    page.set(
        &families::MEMBER_BAD_BYTES,
        &label.alone(),
        member.bad_bytes,
    );
}

fn add_requests(page: &mut Page, volume: &str, total: &ClientCounters) {
    for (request, count) in [
        ("read", total.reads),
        ("write", total.writes),
        ("flush", total.flushes),
    ] {
        page.set(&families::REQUESTS_TOTAL, &[volume, request], count);
    }
    page.set(&families::REQUEST_ERRORS_TOTAL, &[volume], total.errors);
    for (direction, count, ns, bytes) in [
        ("read", total.reads, total.read_ns, total.read_bytes),
        ("write", total.writes, total.write_ns, total.written_bytes),
    ] {
        let sum = Duration::from_nanos(ns);
        page.summary(&families::REQUEST_SECONDS, &[volume, direction], count, sum);
        page.set(&families::REQUEST_BYTES_TOTAL, &[volume, direction], bytes);
    }
}

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod tests;
