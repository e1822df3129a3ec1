//! One volume that is being served: its status for people and programs, rates of its jobs, its events.
//!
//! Invariants:
//! - status is a snapshot and changes nothing;
//! - a rate comes from the last seconds, its range from the last minute, never from the whole life of a job.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use plexum_block::clock::{Clock, Moment};
use plexum_block::wait::Signal;
use plexum_engine::latency::Latency;
use plexum_engine::state::{FailCause, Standing};
use plexum_engine::upkeep::Pace;
use plexum_engine::upkeep::scrub::{ScrubMode, ScrubReport};
use plexum_engine::volume::{Announcement, JobKind as EngineJob, MemberStatus as EngineMember};
use plexum_front::counted::Counted;
use plexum_md::assemble::Assembly;
use plexum_nbd::server::Server;
use plexum_runtime::clock::RealClock;
use serde_json::{Value, json};

use crate::advice::advise;
use crate::assembly::Body;
use crate::events::{EventHub, cause_words, words_of};
use crate::export::VolumeExport;
use crate::memory::VolumeMemory;
use crate::owners::Choice;
use crate::status::{
    BitmapStatus, ExportStatus, Finding, JSON_VERSION, JobKind, JobStatus, LatencyStatus,
    LearnedStatus, MemberState, MemberStatus, Mismatch, ScrubStatus, StripeLogStatus, Verdict,
    VolumeStatus, eta_s,
};

/// The export of this process.
pub type RealExport = Counted<VolumeExport, RealClock>;
/// The NBD server of this process.
pub type RealServer = Server<RealExport, RealClock>;

/// Time between two samples of a job's progress.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Samples kept: a minute of them.
const SAMPLES_MAX: usize = 120;
/// Samples that the present rate comes from: five seconds.
const SAMPLES_RECENT: usize = 10;
/// Ranges of a scrub that status tells; `mismatch_bytes` counts all.
const RANGES_MAX: usize = 1000;

/// What does not change while a volume is served.
#[derive(Clone, Debug)]
pub struct Facts {
    /// `raid5`.
    pub level: String,
    /// Layout in words.
    pub layout: Option<String>,
    /// Strip size.
    pub strip_bytes: Option<u64>,
    /// `md-1.2`.
    pub format: String,
    /// Identity of the array.
    pub uuid: String,
    /// Size of each member's part, where all are equal.
    pub member_bytes: Option<u64>,
    /// Number of slots.
    pub slots: u32,
    /// How member I/O is done.
    pub io: String,
    /// What was found at the start and stays so.
    pub findings: Vec<crate::status::Finding>,
    /// Which set is meant where a member may be of several, as was said at the start.
    pub choice: Choice,
}

impl Facts {
    /// The facts of an assembly.
    #[must_use]
    pub fn of(assembly: &Assembly, io: String) -> Self {
        let geometry = &assembly.geometry;
        let organisation = geometry.organisation();
        Self {
            level: organisation.level().to_string(),
            layout: organisation.layout_name(),
            strip_bytes: (geometry.strip_bytes() > 0).then(|| geometry.strip_bytes()),
            format: format!("md-{}", assembly.array.version),
            uuid: plexum_format::uuid::md_uuid_text(&assembly.array.uuid),
            member_bytes: organisation
                .level()
                .has_redundancy()
                .then(|| geometry.component_bytes()),
            slots: assembly.missing().len() as u32, // at most MEMBERS_MAX
            io,
            findings: Vec::new(),
            choice: Choice::Only,
        }
    }
}

/// A sample of a job's progress.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Moment,
    kind: EngineJob,
    worked_bytes: u64,
}

/// Socket files of one volume.
#[derive(Debug)]
pub struct Sockets {
    /// Where clients connect.
    pub nbd: PathBuf,
    /// Where commands connect.
    pub control: PathBuf,
    /// Whether the client socket was made by this process, and so is its to remove.
    pub is_bound: Cell<bool>,
}

impl Sockets {
    /// Paths that are not bound yet.
    #[must_use]
    pub fn new(nbd: PathBuf, control: PathBuf) -> Self {
        Self {
            nbd,
            control,
            is_bound: Cell::new(false),
        }
    }

    /// Removes the client socket if it is ours.
    pub fn remove_nbd(&self) {
        if self.is_bound.replace(false) {
            let _ = std::fs::remove_file(&self.nbd);
        }
    }
}

/// A volume that is being served.
pub struct Served {
    /// The volume.
    pub volume: Rc<Body>,
    /// Its export.
    pub export: Rc<RealExport>,
    /// What does not change.
    pub facts: Facts,
    /// Its socket files.
    pub sockets: Sockets,
    /// Where clients find it, with the server behind each address.
    pub addresses: RefCell<Vec<(String, Rc<RealServer>)>>,
    /// Limits of background work.
    pub pace: Cell<Pace>,
    /// Whether a stop was asked for.
    pub is_stopping: Cell<bool>,
    has_ended: Cell<bool>,
    ended: Signal,
    clock: RealClock,
    samples: RefCell<VecDeque<Sample>>,
    scrub_is_repair: Cell<bool>,
    /// What outlives this server.
    pub memory: VolumeMemory,
    /// When it began to be served, or the last reset.
    pub(crate) counting_since: Cell<Moment>,
    /// Members' counters at the last reset, by id.
    pub(crate) baseline: RefCell<Vec<(u16, plexum_engine::drive::DriveCounters)>>,
    /// The slot that each member had last, by its id: a failed one has none any more, and people still call it by that.
    last_slots: RefCell<BTreeMap<u16, u16>>,
}

impl Served {
    /// A volume about to be served.
    pub fn new(
        volume: Rc<Body>,
        export: Rc<RealExport>,
        facts: Facts,
        clock: RealClock,
        sockets: Sockets,
        memory: VolumeMemory,
    ) -> Self {
        let counting_since = clock.now();
        Self {
            volume,
            export,
            facts,
            sockets,
            addresses: RefCell::default(),
            pace: Cell::default(),
            is_stopping: Cell::new(false),
            has_ended: Cell::new(false),
            ended: Signal::new(),
            clock,
            samples: RefCell::default(),
            scrub_is_repair: Cell::new(false),
            memory,
            counting_since: Cell::new(counting_since),
            baseline: RefCell::default(),
            last_slots: RefCell::default(),
        }
    }

    /// The members; notes who has which slot.
    pub fn known_members(&self) -> Vec<EngineMember> {
        let members = self.volume.status().members;
        let mut last_slots = self.last_slots.borrow_mut();
        for member in &members {
            if let (Some(slot), false) = (member.slot, member.is_replacement) {
                last_slots.insert(member.id.0, slot);
            }
        }
        let in_slots = members.iter().filter(|member| {
            let is_gone = matches!(member.standing, Standing::Faulty | Standing::Removed);
            !(is_gone || member.is_lost || member.is_replacement)
        });
        let in_slots = in_slots.filter_map(|member| {
            let name = member.name.clone()?;
            Some((u32::from(member.slot?), name))
        });
        self.memory.note_slots(in_slots);
        members
    }

    /// The slot that a member has, or had before it failed.
    pub fn last_slot(&self, member: &EngineMember) -> Option<u16> {
        let last_slots = self.last_slots.borrow();
        member.slot.or(last_slots.get(&member.id.0).copied())
    }

    /// Name of the volume.
    pub fn name(&self) -> &str {
        self.volume.name()
    }

    /// Notes that a scrub was started, and whether it mends.
    pub fn note_scrub(&self, is_repair: bool) {
        self.scrub_is_repair.set(is_repair);
    }

    /// Notes why a member failed.
    pub fn note_cause(&self, member: &str, cause: FailCause) {
        self.memory.note_cause(member, cause_words(cause));
    }

    /// Takes samples of the job's progress until `end`; a task of its own.
    pub async fn sample(self: Rc<Self>) {
        while !self.has_ended.get() {
            let change = self.volume.changes();
            if !self.take_sample() {
                // No job: none begins, and nobody becomes a member, without a change.
                select(pin!(change), pin!(self.ended.changed())).await;
            }
            if self.has_ended.get() {
                break;
            }
            let rest = pin!(self.clock.sleep(SAMPLE_EVERY));
            select(rest, pin!(self.ended.changed())).await;
        }
    }

    /// Ends `sample` and `tell`, so that nothing holds the volume any more.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.ended.notify();
    }

    /// Whether there is a job to take samples of.
    fn take_sample(&self) -> bool {
        let _ = self.known_members();
        let mut samples = self.samples.borrow_mut();
        let job = self.volume.job_beside(self.volume.status().job);
        let Some(job) = job else {
            samples.clear();
            return false;
        };
        let is_other =
            |last: &Sample| last.kind != job.kind || last.worked_bytes > job.worked_bytes;
        if samples.back().is_some_and(is_other) {
            samples.clear();
        }
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back(Sample {
            at: self.clock.now(),
            kind: job.kind,
            worked_bytes: job.worked_bytes,
        });
        true
    }

    /// Publishes what the volume announces until `end`; a task of its own.
    pub async fn tell(self: Rc<Self>, events: EventHub) {
        while !self.has_ended.get() {
            let next = pin!(self.volume.next_announcement());
            let ended = pin!(self.ended.changed());
            let Either::Left((announcement, _)) = select(next, ended).await else {
                continue;
            };
            let time_s = self.clock.wall_seconds();
            if let Announcement::MemberFailed { member, cause }
            | Announcement::Frozen { member, cause } = &announcement
            {
                self.note_cause(member, *cause);
            }
            if let Announcement::ScrubFinished { .. } | Announcement::ScrubStopped { .. } =
                &announcement
                && let Some(scrub) = self.last_scrub()
            {
                self.memory.note_scrub(scrub);
            }
            let (name, message, member) = words_of(&announcement);
            events.publish(time_s, self.name(), name, message, member);
        }
    }

    /// Status for the control socket.
    pub fn status(&self) -> VolumeStatus {
        let status = self.volume.status();
        let members = self.members(&status.members, &status.lost_slots, status.moment);
        let last_scrub = self.last_scrub();
        let unmended_bytes = last_scrub.as_ref().map_or(0, ScrubStatus::unmended_bytes);
        let has_bad = |member: &MemberStatus| member.slot.is_some() && member.bad_bytes > 0;
        let is_damaged = unmended_bytes > 0 || members.iter().any(has_bad);
        let verdict = match (status.is_frozen, status.lost_slots.is_empty()) {
            (true, _) => Verdict::Failed,
            (false, false) => Verdict::Degraded,
            (false, true) if is_damaged => Verdict::Damaged,
            (false, true) => Verdict::Ok,
        };
        let jobs = self.jobs(&status);
        let mut snapshot = VolumeStatus {
            version: JSON_VERSION,
            kind: "volume".into(),
            volume: status.name,
            verdict,
            level: self.facts.level.clone(),
            layout: self.facts.layout.clone(),
            strip_bytes: self.facts.strip_bytes,
            format: self.facts.format.clone(),
            uuid: self.facts.uuid.clone(),
            size_bytes: self.volume.volume_bytes(),
            member_bytes: self.facts.member_bytes,
            slots: self.facts.slots,
            spare_failures: status.losses_left as u32, // at most the number of slots
            event_count: status.event_count,
            is_dirty: status.is_dirty,
            is_read_only: status.is_read_only,
            balance: status.balance,
            consistency: match (status.log, status.bitmap_region_bytes) {
                _ if !self.volume.has_redundancy() => "none",
                (Some(_), _) => "log",
                _ if status.has_ppl => "ppl",
                (None, Some(_)) => "bitmap",
                (None, None) => "resync",
            }
            .into(),
            log: status.log.map(StripeLogStatus::from),
            bitmap: status.bitmap_region_bytes.map(|region_bytes| BitmapStatus {
                region_bytes,
                regions: status.doubtful_regions.1 as u64,
                dirty_regions: status.marked_regions as u64,
                doubtful_regions: status.doubtful_regions.0 as u64,
            }),
            io: self.facts.io.clone(),
            exports: self.exports(),
            members,
            attachments: Vec::new(),
            jobs,
            last_scrub,
            findings: Vec::new(),
            next: None,
            server_pid: std::process::id(),
            server_waits: self.clock.waits().into(),
        };
        advise(&mut snapshot);
        snapshot
            .findings
            .extend(self.facts.findings.iter().cloned());
        snapshot.findings.extend(self.not_kept());
        snapshot
    }

    /// What is told where not everything is kept.
    fn not_kept(&self) -> Option<Finding> {
        let failure = self.memory.failure()?;
        Some(Finding {
            code: "not_kept".into(),
            message: format!("events and results are not all kept for the next start: {failure}"),
            commands: Vec::new(),
        })
    }

    /// The last scrub, of this life or an earlier one. What an earlier one found counts until one has been everywhere.
    fn last_scrub(&self) -> Option<ScrubStatus> {
        let before = self.memory.last_scrub();
        let Some(report) = self.volume.scrub_report() else {
            return before;
        };
        let mut scrub = scrub_status(&report);
        if !scrub.is_complete {
            let known = before.map_or(0, |before| before.unmended_bytes());
            scrub.mismatch_bytes_before = scrub.mismatch_bytes_before.max(known);
        }
        Some(scrub)
    }

    fn exports(&self) -> Vec<ExportStatus> {
        let addresses = self.addresses.borrow();
        // Only the first address hands connections to other threads.
        let mut elsewhere = self.export.sessions_elsewhere();
        let mut clients = |server: &RealServer| -> u64 {
            let elsewhere = std::mem::take(&mut elsewhere);
            let all = server.exports().status();
            let own = all.iter().find(|export| export.info.name == self.name());
            own.map_or(0, |export| export.sessions as u64) + elsewhere
        };
        addresses
            .iter()
            .map(|(uri, server)| ExportStatus {
                uri: uri.clone(),
                clients: clients(server),
            })
            .collect()
    }

    fn members(
        &self,
        known: &[EngineMember],
        lost_slots: &[u16],
        now: Moment,
    ) -> Vec<MemberStatus> {
        let status = |member: &EngineMember| {
            let mut status = member_status(member);
            if let (MemberState::Faulty, Some(path)) = (status.state, &status.path) {
                status.failed_because = self.memory.cause(path);
            }
            status.refused_ago_s = member.refused_at.map(|at| now.since(at).as_secs());
            status
        };
        let mut members: Vec<MemberStatus> = known.iter().map(status).collect();
        for slot in lost_slots {
            let slot = u32::from(*slot);
            if !members.iter().any(|member| member.slot == Some(slot)) {
                let was = self.memory.last_in(slot);
                members.push(MemberStatus {
                    failed_because: was.as_ref().and_then(|was| self.memory.cause(was)),
                    was,
                    ..empty_slot(slot)
                });
            }
        }
        members.sort_by_key(|member| (member.slot.is_none(), member.slot, member.is_replacement));
        members
    }

    fn jobs(&self, status: &plexum_engine::volume::VolumeStatus) -> Vec<JobStatus> {
        let slots: Vec<u32> = status
            .members
            .iter()
            .filter(|member| matches!(member.standing, Standing::Rebuilding { .. }))
            .filter_map(|member| member.slot.map(u32::from))
            .collect();
        let is_replace = status
            .members
            .iter()
            .any(|m| m.is_replacement && matches!(m.standing, Standing::Rebuilding { .. }));
        let mut jobs = Vec::new();
        if let Some(job) = self.volume.job_beside(status.job) {
            let (rate, range) = self.rate();
            let rate = rate.unwrap_or_else(|| job.rate(self.clock.now()).0);
            let left = job.total_bytes.saturating_sub(job.done_bytes);
            let is_rebuild = job.kind == EngineJob::Rebuild;
            jobs.push(JobStatus {
                kind: match job.kind {
                    EngineJob::Resync => JobKind::Resync,
                    EngineJob::Rebuild if is_replace => JobKind::Replace,
                    EngineJob::Rebuild => JobKind::Rebuild,
                    EngineJob::Scrub => JobKind::Scrub,
                    EngineJob::Repair => JobKind::Repair,
                    EngineJob::Reshape => JobKind::Reshape,
                },
                done_bytes: job.done_bytes,
                total_bytes: job.total_bytes,
                rate_bytes_per_s: rate,
                eta_s: eta_s(left, rate),
                eta_range_s: range.and_then(|(slowest, fastest)| {
                    Some((eta_s(left, fastest)?, eta_s(left, slowest)?))
                }),
                slots: if is_rebuild { slots } else { Vec::new() },
            });
        }
        self.add_waiting(status, &mut jobs);
        jobs
    }

    /// Adds what is due and has not begun: whoever waits for its end must see it.
    fn add_waiting(&self, status: &plexum_engine::volume::VolumeStatus, jobs: &mut Vec<JobStatus>) {
        let waiting = |kind, done_bytes, total_bytes| JobStatus {
            kind,
            done_bytes,
            total_bytes,
            rate_bytes_per_s: 0,
            eta_s: None,
            eta_range_s: None,
            slots: Vec::new(),
        };
        let total = self.facts.member_bytes.unwrap_or(0);
        let (doubtful, regions) = status.doubtful_regions;
        let is_resync_shown = jobs.iter().any(|job| job.kind == JobKind::Resync);
        if doubtful > 0 && !is_resync_shown && !status.is_read_only && !status.is_frozen {
            let left = u128::from(total) * doubtful as u128 / regions.max(1) as u128;
            let done = total.saturating_sub(u64::try_from(left).unwrap_or(total));
            jobs.push(waiting(JobKind::Resync, done, total));
        }
        let is_scrub = |job: &JobStatus| matches!(job.kind, JobKind::Scrub | JobKind::Repair);
        if self.volume.is_scrubbing() && !jobs.iter().any(is_scrub) {
            let kind = if self.scrub_is_repair.get() {
                JobKind::Repair
            } else {
                JobKind::Scrub
            };
            jobs.push(waiting(kind, 0, total));
        }
    }

    /// The present rate, and the slowest and fastest of the last minute.
    fn rate(&self) -> (Option<u64>, Option<(u64, u64)>) {
        let samples = self.samples.borrow();
        let samples: Vec<Sample> = samples.iter().copied().collect();
        let between = |from: &Sample, to: &Sample| -> u64 {
            let spent = to.at.since(from.at).as_secs_f64();
            if spent <= 0.0 {
                return 0;
            }
            ((to.worked_bytes - from.worked_bytes) as f64 / spent) as u64
        };
        let present = match samples.as_slice() {
            [] | [_] => None,
            [.., last] => {
                let from = samples.len().saturating_sub(SAMPLES_RECENT + 1);
                Some(between(&samples[from], last))
            }
        };
        let windows: Vec<u64> = samples
            .windows(SAMPLES_RECENT + 1)
            .map(|window| between(&window[0], &window[SAMPLES_RECENT]))
            .collect();
        let range = match (windows.iter().min(), windows.iter().max()) {
            (Some(slowest), Some(fastest)) if windows.len() > SAMPLES_RECENT => {
                Some((*slowest, *fastest))
            }
            _ => None,
        };
        (present, range)
    }

    /// Requests in flight with their stage, oldest first.
    pub fn requests(&self) -> Value {
        let now = self.clock.now();
        let requests = self.volume.requests();
        let requests: Vec<Value> = requests
            .iter()
            .map(|request| {
                let age = now.since(request.started).as_micros();
                json!({"number": request.number, "request": request.kind.name(),
                    "stage": request.stage.name(), "offset_bytes": request.offset_bytes,
                    "length_bytes": request.length_bytes,
                    "age_us": u64::try_from(age).unwrap_or(u64::MAX)})
            })
            .collect();
        json!({"version": JSON_VERSION, "kind": "requests", "volume": self.name(), "requests": requests})
    }
}

fn scrub_status(report: &ScrubReport) -> ScrubStatus {
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

fn member_status(member: &EngineMember) -> MemberStatus {
    let counters = &member.counters;
    MemberStatus {
        slot: member.slot.map(u32::from),
        path: member.name.clone(),
        serial: member.name.as_deref().and_then(serial_of),
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

/// Serial number of the disk behind a device's path; none for files.
#[must_use]
pub fn serial_of(path: &str) -> Option<String> {
    let real = std::fs::canonicalize(path).ok()?;
    let name = real.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
    let folder = std::path::Path::new("/sys/class/block").join(name);
    // A partition has its disk's folder above it.
    for place in ["device/serial", "serial", "../device/serial", "device/wwid"] {
        if let Ok(text) = std::fs::read_to_string(folder.join(place)) {
            let text = text.trim();
            if !text.is_empty() {
                return Some(text.to_owned());
            }
        }
    }
    None
}
