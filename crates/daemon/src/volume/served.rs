//! One volume that is being served: its status for people and programs, rates of its jobs, its events.
//!
//! Invariants:
//! - status is a snapshot and changes nothing;
//! - a rate comes from the last seconds, its range from the last minute, never from the whole life of a job.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};
use plexum_block::clock::{Clock, Moment};
use plexum_block::wait::Signal;
use plexum_engine::state::{FailCause, Standing};
use plexum_engine::upkeep::Pace;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::{Announcement, JobKind as EngineJob, MemberStatus as EngineMember};
use plexum_runtime::clock::RealClock;
use serde_json::{Value, json};

use super::advice::advise;
use super::export::VolumeExport;
use super::facts::Facts;
use super::jobs::Samples;
use super::member_disks::MemberDisks;
use super::members::{empty_slot, member_status};
use super::status::{
    BitmapStatus, ExportStatus, Finding, JSON_VERSION, JobKind, JobStatus, MemberState,
    MemberStatus, ScrubPlanStatus, ScrubStatus, StripeLogStatus, Verdict, VolumeStatus, eta_s,
};
use crate::assembly::Body;
use crate::control::event::{cause_words, words_of};
use crate::control::events::EventHub;
use crate::memory::VolumeMemory;

/// Time between two samples of a job's progress.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(500);

/// A volume that is being served.
pub struct Served {
    /// The volume.
    pub volume: Rc<Body>,
    /// Its export.
    pub export: Rc<VolumeExport>,
    /// What does not change.
    pub facts: Facts,
    /// Limits of background work.
    pub pace: Cell<Pace>,
    pub(super) has_ended: Cell<bool>,
    pub(super) ended: Signal,
    pub(super) clock: RealClock,
    samples: Samples,
    /// Of the scrub that was started last.
    scrub_mode: Cell<ScrubMode>,
    /// What outlives this server.
    pub memory: VolumeMemory,
    /// When it began to be served, or the last reset.
    pub(crate) counting_since: Cell<Moment>,
    /// Members' counters at the last reset, by id.
    pub(crate) baseline: RefCell<Vec<(u16, plexum_engine::drive::DriveCounters)>>,
    /// The slot that each member had last, by its id: a failed one has none any more, and people still call it by that.
    last_slots: RefCell<BTreeMap<u16, u16>>,
    /// The members' disks.
    pub(super) disks: MemberDisks,
    /// When it is scrubbed by itself; whoever does so keeps it up to date.
    pub(crate) scrub_plan: RefCell<Option<ScrubPlanStatus>>,
    /// The scrub that runs is a part of a scheduled one: whoever scrubs by hand comes first.
    pub(crate) has_scrub_part: Cell<bool>,
    /// Somebody waits for the end of that to scrub by hand.
    pub(super) is_wanted_by_hand: Cell<bool>,
    /// Until then, in seconds since 1970, nothing is scrubbed by schedule: somebody has stopped it.
    pub(crate) held_until_s: Cell<u64>,
}

impl Served {
    /// A volume about to be served.
    pub fn new(
        volume: Rc<Body>,
        export: Rc<VolumeExport>,
        facts: Facts,
        clock: RealClock,
        memory: VolumeMemory,
    ) -> Self {
        let counting_since = clock.now();
        Self {
            volume,
            export,
            facts,
            pace: Cell::default(),
            has_ended: Cell::new(false),
            ended: Signal::new(),
            clock,
            samples: Samples::default(),
            scrub_mode: Cell::new(ScrubMode::Check),
            memory,
            counting_since: Cell::new(counting_since),
            baseline: RefCell::default(),
            last_slots: RefCell::default(),
            disks: MemberDisks::default(),
            scrub_plan: RefCell::default(),
            has_scrub_part: Cell::default(),
            is_wanted_by_hand: Cell::default(),
            held_until_s: Cell::default(),
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

    /// Notes that a scrub was started.
    pub fn note_scrub(&self, mode: ScrubMode) {
        self.scrub_mode.set(mode);
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
        let job = self.volume.job_beside(self.volume.status().job);
        self.samples.take(self.clock.now(), job.as_ref())
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

    /// Status for the control socket; `exports` are the ways in for clients.
    pub fn status(&self, exports: Vec<ExportStatus>) -> VolumeStatus {
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
        let consistency = self.consistency(&status);
        let mut snapshot = VolumeStatus {
            version: JSON_VERSION,
            kind: "volume".into(),
            volume: status.name,
            verdict,
            level: self.facts.level.to_string(),
            layout: self.facts.layout.clone(),
            strip_bytes: self.facts.strip_bytes,
            format: self.facts.format.to_string(),
            uuid: self.facts.uuid.clone(),
            size_bytes: self.volume.volume_bytes(),
            member_bytes: self.facts.member_bytes,
            slots: self.facts.slots,
            spare_failures: status.losses_left as u32, // at most the number of slots
            designed_spare_failures: self.designed_spare_failures(),
            event_count: status.event_count,
            is_dirty: status.is_dirty,
            is_read_only: status.is_read_only,
            balance: status.balance,
            consistency: consistency.into(),
            log: status.log.map(StripeLogStatus::from),
            bitmap: status.bitmap_region_bytes.map(|region_bytes| BitmapStatus {
                region_bytes,
                regions: status.doubtful_regions.1 as u64,
                dirty_regions: status.marked_regions as u64,
                doubtful_regions: status.doubtful_regions.0 as u64,
            }),
            io: self.facts.io.clone(),
            exports,
            members,
            former_disks: self.former_disks(),
            attachments: Vec::new(),
            jobs,
            last_scrub,
            scrub_plan: self.scrub_plan.borrow().clone(),
            findings: Vec::new(),
            next: None,
            server_pid: std::process::id(),
            server_waits: self.clock.waits().into(),
        };
        advise(&mut snapshot);
        snapshot
            .findings
            .extend(self.facts.findings.iter().cloned());
        let ailing = self.ailing(&snapshot.members);
        snapshot.findings.extend(ailing);
        snapshot.findings.extend(self.twins());
        snapshot.findings.extend(self.not_kept());
        snapshot
    }

    fn designed_spare_failures(&self) -> Option<u32> {
        let geometry = self.volume.geometry();
        u32::try_from(geometry.losses_left(&vec![false; geometry.member_count()])).ok()
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

    fn members(
        &self,
        known: &[EngineMember],
        lost_slots: &[u16],
        now: Moment,
    ) -> Vec<MemberStatus> {
        let status = |member: &EngineMember| {
            let mut status = member_status(member);
            status.disk = self.disk_of(member);
            status.serial = status.disk.as_ref().and_then(|disk| disk.serial.clone());
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
                    disk: self.last_disk_of(slot),
                    ..empty_slot(slot)
                });
            }
        }
        members.sort_by_key(|member| (member.slot.is_none(), member.slot, member.is_replacement));
        members
    }

    /// What closes the write hole.
    fn consistency(&self, status: &plexum_engine::volume::VolumeStatus) -> &'static str {
        match (&status.log, status.bitmap_region_bytes) {
            _ if !self.volume.has_redundancy() => "none",
            (Some(_), _) => "log",
            _ if status.has_ppl => "ppl",
            (None, Some(_)) => "bitmap",
            (None, None) => "resync",
        }
    }

    /// What runs or is due.
    #[must_use]
    pub fn jobs_now(&self) -> Vec<JobStatus> {
        self.jobs(&self.volume.status())
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
            let (rate, range) = self.samples.rate();
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
            let kind = match self.scrub_mode.get() {
                ScrubMode::Repair => JobKind::Repair,
                ScrubMode::Check => JobKind::Scrub,
            };
            jobs.push(waiting(kind, 0, total));
        }
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
