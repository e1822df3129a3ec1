//! The status of a volume as the control socket tells it: what people see in `plexum status` and programs in its JSON.
//!
//! Invariants: field names are never changed, only added to; units are in the names; numbers are integers.

use plexum_runtime::Waits;
use serde::{Deserialize, Serialize};

pub use super::scrub_plan::ScrubPlanStatus;
use crate::disk::{DiskStatus, FormerDisk};

/// Version of every JSON object that Plexum prints.
pub const JSON_VERSION: u32 = 1;

/// The state of a volume in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Everything is there and in sync, or the initial resync runs with all members present.
    Ok,
    /// Every member is there, but copies or parity are known to differ, or blocks to be bad.
    Damaged,
    /// Every member is there, but one has no space for what is written.
    Full,
    /// Data are complete, redundancy is not.
    Degraded,
    /// More members are lost than the organisation survives; nothing was written since (W4).
    Failed,
}

impl Verdict {
    /// The word that people see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "OK",
            Verdict::Damaged => "DAMAGED",
            Verdict::Full => "FULL",
            Verdict::Degraded => "DEGRADED",
            Verdict::Failed => "FAILED",
        }
    }

    /// Exit code of a command that tells it.
    #[must_use]
    pub fn exit(self) -> u8 {
        match self {
            Verdict::Ok => 0,
            Verdict::Damaged | Verdict::Full | Verdict::Degraded => 1,
            Verdict::Failed => EXIT_FAILED,
        }
    }
}

/// Exit code of `plexum status` and of commands that wait, when a volume has failed.
pub const EXIT_FAILED: u8 = 8;

/// State of a member, as in the glossary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemberState {
    /// In sync and in use.
    Active,
    /// Being filled.
    Rebuilding,
    /// Missed writes; not used.
    Stale,
    /// Failed; not used.
    Faulty,
    /// Its slot is empty.
    Missing,
    /// Ready to take a slot.
    Spare,
}

impl MemberState {
    /// The word that people see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            MemberState::Active => "active",
            MemberState::Rebuilding => "rebuilding",
            MemberState::Stale => "stale",
            MemberState::Faulty => "faulty",
            MemberState::Missing => "missing",
            MemberState::Spare => "spare",
        }
    }
}

/// One member of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Slot; none for spares and for members that have left.
    pub slot: Option<u32>,
    /// Path or URI as the user gave it; none for an empty slot.
    pub path: Option<String>,
    /// Serial number where the system tells one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Its disk; of an empty slot the one that it had last, marked as gone. None for files and addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskStatus>,
    /// Of an empty slot: the member that it had last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub was: Option<String>,
    /// State.
    pub state: MemberState,
    /// Whether it is read only when nothing else can be.
    #[serde(default)]
    pub is_write_mostly: bool,
    /// Whether it is filled to take the place of the active member of the same slot.
    #[serde(default)]
    pub is_replacement: bool,
    /// Read errors seen.
    pub read_errors: u64,
    /// Write errors seen.
    pub write_errors: u64,
    /// Read errors that were mended from redundancy.
    pub corrected_errors: u64,
    /// Reads done.
    #[serde(default)]
    pub reads: u64,
    /// Writes done.
    #[serde(default)]
    pub writes: u64,
    /// Bytes read.
    #[serde(default)]
    pub read_bytes: u64,
    /// Bytes written.
    #[serde(default)]
    pub written_bytes: u64,
    /// Bytes on its bad block list.
    #[serde(default)]
    pub bad_bytes: u64,
    /// Reads that took so long that another copy answered first.
    #[serde(default)]
    pub hedged_reads: u64,
    /// How long reads took in the last minutes: none while there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_latency: Option<LatencyStatus>,
    /// How long writes took in the last minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_latency: Option<LatencyStatus>,
    /// How long it takes, in percent of what its peers take; none while too little is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_vs_peers_percent: Option<u64>,
    /// Whether it is slow beside its peers.
    #[serde(default)]
    pub is_slow: bool,
    /// It did not answer in time, and requests on it have not ended: it cannot come back yet.
    #[serde(default)]
    pub is_draining: bool,
    /// What the balance policy `adaptive` has learned of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<LearnedStatus>,
    /// How a durable write becomes so: `write` (it asks for it by itself), or a write and then `fsync` or `flush`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fua_way: Option<String>,
    /// Why it failed, in words; none while it has not, and where nobody knows. Of an empty slot: why the member failed
    /// that it had last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_because: Option<String>,
    /// Writes that it had no space for.
    #[serde(default)]
    pub refused_writes: u64,
    /// How long ago the last one of these was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_ago_s: Option<u64>,
    /// Bytes of the file that have no space yet: they get it when they are written. None for what is no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten_bytes: Option<u64>,
    /// Space left in the file system that holds the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
}

/// How long reads take a member that do not wait for others; 0 while unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnedStatus {
    /// A read that goes on where the last one ended.
    pub sequential_us: u64,
    /// A read anywhere.
    pub random_us: u64,
    /// What a further MiB adds to either.
    pub mib_us: u64,
}

/// Latency of one member in the last minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyStatus {
    /// Answers counted.
    pub samples: u64,
    /// Half of them took at most this long.
    pub p50_us: u64,
    /// 99 of 100 took at most this long.
    pub p99_us: u64,
}

/// Kind of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobKind {
    /// Make copies or parity agree after an unclean stop or after creation.
    Resync,
    /// Fill a new or returned member.
    Rebuild,
    /// Copy a member that still serves to its replacement.
    Replace,
    /// Compare, change nothing.
    Scrub,
    /// Compare and mend.
    Repair,
    /// Move data to where they are with more members.
    Reshape,
}

impl JobKind {
    /// The word that people see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            JobKind::Resync => "resync",
            JobKind::Rebuild => "rebuild",
            JobKind::Replace => "replace",
            JobKind::Scrub => "scrub",
            JobKind::Repair => "repair",
            JobKind::Reshape => "reshape",
        }
    }
}

/// Background work in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    /// What it does.
    pub kind: JobKind,
    /// Bytes of each member done.
    pub done_bytes: u64,
    /// Bytes of each member to do.
    pub total_bytes: u64,
    /// Rate of the last seconds.
    pub rate_bytes_per_s: u64,
    /// Time left at that rate; none while the rate is unknown.
    pub eta_s: Option<u64>,
    /// Shortest and longest time left, from the fastest and the slowest recent rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eta_range_s: Option<(u64, u64)>,
    /// Slots being filled.
    #[serde(default)]
    pub slots: Vec<u32>,
}

/// The write-intent bitmap.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BitmapStatus {
    /// Size of a region.
    pub region_bytes: u64,
    /// Number of regions.
    pub regions: u64,
    /// Regions whose bit is set: written to lately, missed by a member that is away, or not yet made to agree.
    pub dirty_regions: u64,
    /// Of these, regions whose copies or parity may differ now: a resync makes them agree.
    #[serde(default)]
    pub doubtful_regions: u64,
}

/// One way in for clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// URI to give to a client.
    pub uri: String,
    /// Connections open now.
    pub clients: u64,
}

/// What `attach` has made of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentStatus {
    /// By what the kernel reaches the volume: `nbd` or `fuse`.
    #[serde(default)]
    pub by: String,
    /// The block device; none without root.
    pub device: Option<String>,
    /// The file below it; by nbd the device.
    pub file: String,
    /// Where the device is mounted.
    pub mountpoint: Option<String>,
    /// The process that serves the file, or gives the device new connections; none when it has ended.
    pub pid: Option<u32>,
}

/// A stretch where a scrub found a difference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Offset within every member's data area.
    pub member_offset_bytes: u64,
    /// Offset in the volume.
    pub volume_offset_bytes: u64,
    /// Length.
    pub length_bytes: u64,
    /// Slot of the wrong member, where redundancy can tell.
    pub slot: Option<u32>,
}

/// Result of the last scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// Whether it went to the end.
    pub is_complete: bool,
    /// Whether it mended what it found.
    pub is_repair: bool,
    /// Bytes that differ.
    pub mismatch_bytes: u64,
    /// Of these, bytes that were mended.
    #[serde(default)]
    pub repaired_bytes: u64,
    /// Bytes that could not be compared.
    #[serde(default)]
    pub skipped_bytes: u64,
    /// Where; neighbours merged. May be cut: then `mismatch_bytes` is larger than their sum.
    pub ranges: Vec<Mismatch>,
    /// End of the scrub, seconds since 1970; also of one that did not get through.
    pub finished_s: Option<u64>,
    /// How far it came, of `total_bytes`: nothing is known of what lies behind.
    #[serde(default)]
    pub done_bytes: u64,
    /// What there is to compare.
    #[serde(default)]
    pub total_bytes: u64,
    /// Bytes that an earlier scrub found, which nobody has mended and no scrub has looked at again.
    #[serde(default)]
    pub mismatch_bytes_before: u64,
}

impl ScrubStatus {
    /// How far it came in percent, cut: 100 only when it got to the end.
    #[must_use]
    pub fn percent(&self) -> u64 {
        if self.is_complete {
            return 100;
        }
        let percent = u128::from(self.done_bytes) * 100 / u128::from(self.total_bytes.max(1));
        u64::try_from(percent).unwrap_or(99).min(99)
    }

    /// Bytes that are known to differ now.
    #[must_use]
    pub fn unmended_bytes(&self) -> u64 {
        let own = self.mismatch_bytes.saturating_sub(self.repaired_bytes);
        own.max(self.mismatch_bytes_before)
    }
}

/// A problem that `status` tells about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Slug, for `plexum explain`.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// Commands to copy.
    pub commands: Vec<String>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `event`.
    pub kind: String,
    /// Number of the event in this server's life, from 1; 0 for one of an earlier life.
    pub sequence: u64,
    /// Seconds since 1970.
    pub time_s: u64,
    /// Volume concerned.
    pub volume: String,
    /// Name, a slug in the past tense: `member_failed`, `rebuild_done`.
    pub name: String,
    /// One sentence.
    pub message: String,
    /// Member concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// The stripe log of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeLogStatus {
    /// Length of each member's ring.
    pub ring_bytes: u64,
    /// Records that are durable and whose blocks are on their way in place.
    pub records_under_way: u64,
    /// Whether an unclean stop now leaves no row in doubt, even if a member is lost with it.
    pub is_sure: bool,
    /// Whether writes are answered when they are durable in the log.
    #[serde(default)]
    pub is_write_back: bool,
    /// Bytes that are in the log and not in place yet.
    #[serde(default)]
    pub logged_bytes: u64,
}

impl From<plexum_engine::volume::LogStatus> for StripeLogStatus {
    fn from(log: plexum_engine::volume::LogStatus) -> Self {
        Self {
            ring_bytes: log.ring_bytes,
            records_under_way: log.records_under_way as u64,
            is_sure: log.is_sure,
            is_write_back: log.is_write_back,
            logged_bytes: log.logged_bytes,
        }
    }
}

/// Everything about one running volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `volume`.
    pub kind: String,
    /// Name.
    pub volume: String,
    /// State in one word.
    pub verdict: Verdict,
    /// `raid5`, `linear`, ...
    pub level: String,
    /// Layout in words, where the level has several.
    pub layout: Option<String>,
    /// Strip size; none where there is none.
    pub strip_bytes: Option<u64>,
    /// Format of the metadata, `md-1.2`.
    pub format: String,
    /// Identity of the array.
    pub uuid: String,
    /// Size as clients see it.
    pub size_bytes: u64,
    /// Size of each member's part, where all are equal.
    pub member_bytes: Option<u64>,
    /// Number of slots.
    pub slots: u32,
    /// How many more members may be lost, in the worst order, without losing data.
    pub spare_failures: u32,
    /// The same when no member is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub designed_spare_failures: Option<u32>,
    /// Event count of the metadata.
    pub event_count: u64,
    /// Whether the metadata says that writes are going on.
    pub is_dirty: bool,
    /// Whether writes are refused.
    pub is_read_only: bool,
    /// Read balance policy.
    pub balance: String,
    /// What closes the write hole: `bitmap`, `resync`, `log`, `ppl`.
    pub consistency: String,
    /// The bitmap, when there is one.
    pub bitmap: Option<BitmapStatus>,
    /// The stripe log, when there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<StripeLogStatus>,
    /// How member I/O is done: `uring` or `threads`.
    pub io: String,
    /// Ways in.
    pub exports: Vec<ExportStatus>,
    /// Members by slot, then spares.
    pub members: Vec<MemberStatus>,
    /// Disks that had a slot in the last month and whose place another has taken: those to be pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_disks: Vec<FormerDisk>,
    /// Block devices and files that `attach` has made of it, as far as whoever asks can see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<AttachmentStatus>,
    /// What runs.
    pub jobs: Vec<JobStatus>,
    /// Last scrub of this server's life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_scrub: Option<ScrubStatus>,
    /// When it is scrubbed by itself; none where scrubs are on no schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scrub_plan: Option<ScrubPlanStatus>,
    /// What is wrong and what to do.
    pub findings: Vec<Finding>,
    /// The next thing to do, as a command to copy.
    pub next: Option<String>,
    /// Process number of the server.
    pub server_pid: u32,
    /// How often the server's main thread has waited so far.
    #[serde(default)]
    pub server_waits: WaitsStatus,
}

/// How often a thread has waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitsStatus {
    /// It slept, and was woken.
    pub asleep: u64,
    /// Of these, what woke it was a timer that was due.
    pub for_timers: u64,
    /// It looked for a client's next request awake.
    pub awake: u64,
}

impl From<Waits> for WaitsStatus {
    fn from(waits: Waits) -> Self {
        Self {
            asleep: waits.asleep,
            for_timers: waits.for_timers,
            awake: waits.awake,
        }
    }
}

impl VolumeStatus {
    /// Exit code of `plexum status` for this volume: 0 healthy, 1 not, 8 failed.
    #[must_use]
    pub fn exit(&self) -> u8 {
        self.verdict.exit()
    }
}

/// Time left for `left_bytes` at `rate_bytes_per_s`; none at rate 0.
#[must_use]
pub fn eta_s(left_bytes: u64, rate_bytes_per_s: u64) -> Option<u64> {
    (rate_bytes_per_s > 0).then(|| left_bytes.div_ceil(rate_bytes_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_eta_is_rounded_up_and_unknown_without_a_rate() {
        assert_eq!(eta_s(0, 5), Some(0));
        assert_eq!(eta_s(11, 5), Some(3));
        assert_eq!(eta_s(u64::MAX, 1), Some(u64::MAX));
        assert_eq!(eta_s(1, 0), None);
    }
}
