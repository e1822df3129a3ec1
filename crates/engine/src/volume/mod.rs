//! A volume: one plex over the members of one array, its locks, its intent and its state.
//!
//! Invariants:
//! - members are used through a `MemberSet` snapshot taken *after* the lock of the row or range was got, so that a rebuild
//!   which has the lock next is seen by every later write;
//! - an answer to a write waits until every member failure known by then is durable (W3);
//! - a frozen volume answers everything with `Failed` and writes nothing at all (W4).

mod bitmap;
mod control;
mod extents;
mod log;
mod members;
mod options;
mod ppl;
mod read;
mod status;
mod write;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

pub use bitmap::BitmapWish;
pub use control::{AddOutcome, ControlError, FormerMember, NewMember};
pub use members::{Filling, MemberSet, SlotView};
pub use options::VolumeOptions;
pub use status::{JobKind, JobStatus, LogStatus, MemberStatus, VolumeStatus};

use plexum_format::stripe_log::LogHeader;

use crate::ahead::ReadAhead;
use crate::background::scrub::ScrubReport;
use crate::balance::{Balancer, MemberTraits};
use crate::drive::Drive;
use crate::intent::log::{FlushBegun, StripeLog};
use crate::intent::ppl::Ppl;
use crate::intent::regions::Regions;
use crate::meta::adapter::Metadata;
use crate::mutant::{DeliberateBug, Mutant};
use crate::shard::Division;
use crate::stage::{RequestInfo, Requests};
use crate::state::{ArrayState, Effect, Event, FailCause, MemberId, MemberRecord, Standing};
use crate::stripe::collect::Collector;
use crate::stripe::expect::Expected;
use crate::threshold::Crossed;
use plexum_block::buf::BufPool;
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};
use plexum_block::lock::RangeLocks;
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{Changed, Gauge, Mutex, Signal};
use plexum_layout::{Geometry, Organisation};

/// How long a member may take to answer when nothing else is said (reliability.md, row 15).
pub const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);

/// Most announcements kept until somebody fetches them; older ones are dropped and counted.
const ANNOUNCEMENTS_MAX: usize = 1024;

/// Something the outside should hear about, once.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Announcement {
    /// A member was failed.
    MemberFailed {
        /// Its name.
        member: String,
        /// Why.
        cause: FailCause,
    },
    /// More is lost than the organisation survives.
    Frozen {
        /// The member whose loss was one too many.
        member: String,
        /// Why it was lost.
        cause: FailCause,
    },
    /// A member is being filled.
    RebuildStarted {
        /// Its name.
        member: String,
        /// Its slot.
        slot: u16,
    },
    /// A member is complete.
    RebuildFinished {
        /// Its name.
        member: String,
        /// Its slot.
        slot: u16,
    },
    /// Ranges could not be rebuilt and are lost: reads of them answer an error.
    RangesLost {
        /// The member that should have held them.
        member: String,
        /// How many bytes.
        lost_bytes: u64,
    },
    /// A resync after an unclean stop, or the first one, has begun.
    ResyncStarted,
    /// All regions are consistent.
    ResyncFinished,
    /// A read error was corrected from redundancy.
    ReadCorrected {
        /// The member that could not read.
        member: String,
        /// Offset in its data area.
        offset_bytes: u64,
        /// Length.
        length_bytes: u64,
    },
    /// A scrub went to the end.
    ScrubFinished {
        /// Bytes of the members that do not agree.
        mismatch_bytes: u64,
        /// Bytes that could not be compared.
        skipped_bytes: u64,
    },
    /// A scrub ended before it was through.
    ScrubStopped {
        /// How far it came.
        done_bytes: u64,
        /// Of how much.
        total_bytes: u64,
        /// Bytes of the members that do not agree, as far as it came.
        mismatch_bytes: u64,
    },
    /// A member took no write for want of space; told at most once a minute.
    NoSpace {
        /// Its name.
        member: String,
    },
}

/// One member as it enters a volume.
pub struct DrivePart<D> {
    /// Path or URI, for messages.
    pub name: String,
    /// Its storage; `None` for a member that is not there.
    pub device: Option<D>,
    /// What assembly decided.
    pub record: MemberRecord,
    /// Data area on the device, in bytes.
    pub data: std::ops::Range<u64>,
    /// Known bad ranges of the data area.
    pub bad: RangeSet,
}

/// Everything a volume is made of; assembly or creation fills it.
pub struct VolumeParts<D, C> {
    /// Name clients and commands use.
    pub name: String,
    /// Address map.
    pub geometry: Geometry,
    /// Time.
    pub clock: C,
    /// Buffers.
    pub pool: BufPool,
    /// Members in the order of their ids.
    pub members: Vec<DrivePart<D>>,
    /// Format adapter.
    pub metadata: Box<dyn Metadata>,
    /// Regions with what assembly knows: doubt, bits.
    pub regions: Regions,
    /// Event count of the freshest superblock.
    pub event_count: u64,
    /// Whether some used member's superblock is one event behind.
    pub is_uneven: bool,
    /// Headers of the stripe log by member, when the array has one; `None` for members without a ring yet.
    pub log: Option<Vec<Option<LogHeader>>>,
    /// What the superblocks say: sync bytes below this are consistent; `Some(0)`: writes were under way (dirty); `None`: clean.
    pub resync_start_bytes: Option<u64>,
    /// Settings.
    pub options: VolumeOptions,
}

/// A running volume. One thread owns it; share it by `Rc`.
pub struct Volume<D: Device, C: Clock> {
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
    pub(crate) clock: C,
    pub(crate) pool: BufPool,
    pub(crate) locks: RangeLocks,
    /// Partial writes that wait for their row.
    pub(crate) collector: Collector,
    pub(crate) expected: Expected,
    pub(crate) options: RefCell<VolumeOptions>,
    /// As in `options`, where it never changes: asked many times a request.
    bug: DeliberateBug,
    /// Thresholds that something has led over.
    pub(crate) crossed: Cell<Crossed>,
    pub(crate) state: RefCell<ArrayState>,
    /// By `MemberId`; `None` for members that are not there.
    pub(crate) drives: RefCell<Vec<Option<Rc<Drive<D>>>>>,
    /// Largest sector of `drives`.
    sector_bytes: Cell<u32>,
    pub(crate) fillings: RefCell<Vec<Rc<Filling<D>>>>,
    pub(crate) set: RefCell<Rc<MemberSet<D>>>,
    /// For the deliberate bug of a member set that goes on after its time.
    set_before: RefCell<Option<(Moment, Rc<MemberSet<D>>)>>,
    pub(crate) metadata: RefCell<Box<dyn Metadata>>,
    pub(crate) regions: RefCell<Regions>,
    /// The stripe log, when the volume has one.
    pub(crate) log: RefCell<Option<Rc<StripeLog<D>>>>,
    /// md's partial parity log, when the volume has one.
    pub(crate) ppl: RefCell<Option<Rc<Ppl>>>,
    /// One writer of bitmap blocks at a time.
    pub(crate) bitmap_writer: Mutex,
    pub(crate) balancer: RefCell<Balancer>,
    /// What was read ahead.
    pub(crate) ahead: ReadAhead,
    pub(crate) event_count: Cell<u64>,
    /// What the freshest superblock says, until every member says the same.
    pub(crate) uneven: RefCell<Option<ArrayState>>,
    /// Last version of the state that is durable.
    pub(crate) committed: Cell<u64>,
    /// Members that are active in it.
    pub(crate) durably_active: RefCell<Vec<MemberId>>,
    /// Version of the state that says "dirty"; writes wait until it is durable.
    pub(crate) dirty_version: Cell<u64>,
    pub(crate) commit_lock: Mutex,
    /// For the deliberate bug of flushes that join one under way.
    pub(crate) running_flush: Mutex,
    /// One new member at a time: its id and its place in the format's tables are taken together.
    pub(crate) entry_lock: Mutex,
    /// Something changed: state, doubt, spares, options. Background tasks and waiters look again.
    pub(crate) changed: Signal,
    pub(crate) writes: Rc<Gauge>,
    pub(crate) write_count: Cell<u64>,
    pub(crate) last_request: Cell<Moment>,
    pub(crate) requests: Requests,
    pub(crate) is_stopping: Cell<bool>,
    /// The bitmap is being turned on or off: new writes wait.
    pub(crate) is_switching: Cell<bool>,
    /// What the start decided about the members is not durable yet: reads wait for it.
    pub(crate) reads_wait: Cell<bool>,
    pub(crate) is_background_running: Cell<bool>,
    pub(crate) announcements: RefCell<VecDeque<Announcement>>,
    pub(crate) announced: Signal,
    pub(crate) job: RefCell<Option<JobStatus>>,
    /// Its part when it is on several cores.
    pub(crate) division: Division,
    pub(crate) scrub: RefCell<crate::background::scrub::ScrubState>,
    pub(crate) last_scrub: RefCell<Option<ScrubReport>>,
    /// Members that were lost when it froze and later: the state keeps them as the superblocks have them (W4).
    pub(crate) lost_when_frozen: RefCell<Vec<MemberId>>,
}

type Drives<D> = Vec<Option<Rc<Drive<D>>>>;

fn largest_sector<D: Device>(drives: &Drives<D>, asked_bytes: u32) -> u32 {
    let sectors = drives.iter().flatten();
    let sectors = sectors.map(|drive| drive.info().sector_bytes);
    sectors.max().unwrap_or(512).max(asked_bytes.min(4096))
}

fn split<D: Device>(
    members: Vec<DrivePart<D>>,
    options: &VolumeOptions,
) -> (Vec<MemberRecord>, Drives<D>) {
    let mut records = Vec::new();
    let mut drives = Vec::new();
    for (index, part) in members.into_iter().enumerate() {
        let id = MemberId(u16::try_from(index).expect("members are few"));
        let (name, data, bad) = (part.name, part.data, part.bad);
        let drive = part
            .device
            .map(|device| Drive::with_thresholds(id, name, device, data, bad, &options.thresholds))
            .map(Rc::new);
        drives.push(drive);
        records.push(part.record);
    }
    if options.bug.is(Mutant::RetryableIsFinal) {
        drives
            .iter()
            .flatten()
            .for_each(|drive| drive.never_retry());
    }
    (records, drives)
}

/// What is known of the members when nothing was read yet; `resync_start_bytes` as in [`VolumeParts`].
fn first_state(
    members: Vec<MemberRecord>,
    slot_count: u16,
    resync_start_bytes: Option<u64>,
    version: u64,
) -> ArrayState {
    let is_dirty = resync_start_bytes == Some(0);
    ArrayState {
        members,
        slot_count,
        is_dirty,
        consistent_below_bytes: resync_start_bytes.filter(|_| !is_dirty),
        is_frozen: false,
        version,
        urgent_version: version,
    }
}

impl<D: Device, C: Clock> Volume<D, C> {
    /// Puts a volume together. Nothing is read or written yet; give `run_background` a task of its own.
    pub fn new(parts: VolumeParts<D, C>) -> Self {
        let (records, drives) = split(parts.members, &parts.options);
        let slot_count = u16::try_from(parts.geometry.member_count())
            .expect("slots were bounded by the geometry");
        let is_due = parts.metadata.is_commit_due() && !parts.options.is_read_only;
        let is_dirty = parts.resync_start_bytes == Some(0);
        // A dirty array was written to before it went down: what is true now (who is missing) must be durable before more is.
        let first_version = u64::from(is_due || is_dirty && !parts.options.is_read_only);
        let state = first_state(records, slot_count, parts.resync_start_bytes, first_version);
        let block_bytes_min = parts.options.block_bytes_min;
        let mut regions = parts.regions;
        regions.remember_at_most(parts.options.thresholds.proven_ranges_max);
        let balancer = Balancer::new(parts.options.balance, usize::from(slot_count), 512);
        let volume = Self {
            name: parts.name,
            ahead: ReadAhead::new(parts.options.thresholds.ahead_bytes_max),
            balancer: RefCell::new(balancer),
            geometry: parts.geometry,
            clock: parts.clock,
            pool: parts.pool,
            locks: RangeLocks::new(),
            collector: Collector::default(),
            expected: Expected::default(),
            bug: parts.options.bug,
            crossed: Cell::default(),
            options: RefCell::new(parts.options),
            durably_active: RefCell::new(state.all_active().collect()),
            uneven: RefCell::new(parts.is_uneven.then(|| state.clone())),
            state: RefCell::new(state),
            sector_bytes: Cell::new(largest_sector(&drives, block_bytes_min)),
            drives: RefCell::new(drives),
            fillings: RefCell::default(),
            set: RefCell::new(Rc::new(MemberSet::empty(usize::from(slot_count)))),
            set_before: RefCell::default(),
            metadata: RefCell::new(parts.metadata),
            regions: RefCell::new(regions),
            log: RefCell::default(),
            ppl: RefCell::default(),
            bitmap_writer: Mutex::new(),
            event_count: Cell::new(parts.event_count),
            committed: Cell::new(0),
            dirty_version: Cell::new(first_version),
            commit_lock: Mutex::new(),
            running_flush: Mutex::new(),
            entry_lock: Mutex::new(),
            changed: Signal::new(),
            writes: Rc::default(),
            write_count: Cell::new(0),
            last_request: Cell::default(),
            requests: Requests::default(),
            is_stopping: Cell::new(false),
            is_switching: Cell::new(false),
            reads_wait: Cell::new(is_due),
            is_background_running: Cell::new(false),
            announcements: RefCell::default(),
            announced: Signal::new(),
            job: RefCell::default(),
            division: Division::default(),
            scrub: RefCell::default(),
            last_scrub: RefCell::default(),
            lost_when_frozen: RefCell::default(),
        };
        volume.publish_members();
        if let Some(headers) = parts.log {
            volume.adopt_log(&headers, false);
        }
        volume
    }

    /// Name of the volume.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Address map.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Size in bytes as clients see it.
    pub fn size_bytes(&self) -> u64 {
        self.geometry.volume_bytes()
    }

    /// Largest sector of the members: unit of requests, in bytes.
    #[inline]
    pub fn sector_bytes(&self) -> u32 {
        self.sector_bytes.get()
    }

    /// A drive has come or gone.
    pub(crate) fn note_sectors(&self) {
        let asked = self.options.borrow().block_bytes_min;
        (self.sector_bytes).set(largest_sector(&self.drives.borrow(), asked));
    }

    /// Whether more was lost than the organisation survives (W4).
    pub fn is_frozen(&self) -> bool {
        self.state.borrow().is_frozen
    }

    /// By slot, whether it has no active member now.
    pub fn lost_slots(&self) -> Vec<bool> {
        self.state.borrow().lost_slots()
    }

    /// Event count of the last durable superblock commit.
    pub fn event_count(&self) -> u64 {
        self.event_count.get()
    }

    /// Whether all that the state says is durable on the members.
    pub fn is_committed(&self) -> bool {
        self.committed.get() >= self.state.borrow().version
    }

    /// Whether the members' superblocks name this one as complete: whoever starts the array after a crash can rely on it.
    pub fn is_durably_active(&self, member: MemberId) -> bool {
        self.durably_active.borrow().contains(&member)
    }

    /// Client requests that are being carried out, oldest first.
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.requests.list()
    }

    /// Locks of rows and ranges that are held or waited for; 0 when nothing runs.
    pub fn lock_count(&self) -> usize {
        self.locks.count()
    }

    /// Whether there are copies or parity to keep in agreement.
    pub fn has_redundancy(&self) -> bool {
        !matches!(
            self.geometry.organisation(),
            Organisation::Linear | Organisation::Raid0(_)
        )
    }

    /// Makes it a satellite's volume (`shard`): it counts as dirty, which its home has made durable, and commits nothing. What it
    /// learns of its members is the home's to make durable, before anything that depends on it is answered.
    pub(crate) fn become_lent(&self) {
        self.division.is_lent.set(true);
        self.state.borrow_mut().is_dirty = true;
    }

    /// Whether it is a satellite's volume. Such a one mends nothing and recovers nothing for a reader: the rows are not its own.
    pub(crate) fn is_lent(&self) -> bool {
        self.division.is_lent.get()
    }

    /// Whether something was learned since it became a satellite's volume that only its home can make durable.
    pub(crate) fn has_learned(&self) -> bool {
        self.state.borrow().version > 0 || self.regions.borrow().doubtful_count() > 0
    }

    /// What the drive of a member has done.
    pub(crate) fn counters_of(&self, member: usize) -> crate::drive::DriveCounters {
        let drives = self.drives.borrow();
        let drive = drives.get(member).and_then(Option::as_ref);
        drive.map_or_else(Default::default, |drive| {
            drive.counters(self.clock.recent())
        })
    }

    /// Bad ranges of members, in bytes of their data areas.
    pub(crate) fn all_bad(&self) -> Vec<(MemberId, std::ops::Range<u64>)> {
        let drives = self.drives.borrow();
        let of = |drive: &Rc<Drive<D>>| -> Vec<_> {
            let bad = drive.bad_ranges();
            bad.iter().map(|range| (drive.id, range)).collect()
        };
        drives.iter().flatten().flat_map(of).collect()
    }

    /// Whether no device has anything under way, not even what nobody waits for (W9).
    pub(crate) fn are_devices_idle(&self) -> bool {
        let drives = self.drives.borrow();
        drives.iter().flatten().all(|drive| drive.is_at_rest())
    }

    #[inline]
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.bug.is(mutant)
    }

    /// Snapshot of who serves which slot. Take it after the lock.
    pub(crate) fn members(&self) -> Rc<MemberSet<D>> {
        Rc::clone(&self.set.borrow())
    }

    /// The snapshot for writes. The same, but for a deliberate bug.
    pub(crate) fn members_to_write(&self) -> Rc<MemberSet<D>> {
        if self.has(Mutant::OldMemberSetStillWrites)
            && let Some((since, set)) = &*self.set_before.borrow()
            && self.clock.now().since(*since) < crate::mutant::OLD_SET_LASTS
        {
            return Rc::clone(set);
        }
        self.members()
    }

    pub(crate) fn drive(&self, member: MemberId) -> Option<Rc<Drive<D>>> {
        self.drives
            .borrow()
            .get(usize::from(member.0))
            .cloned()
            .flatten()
    }

    /// Drives of all live members: active, rebuilding and spare.
    pub(crate) fn live_drives(&self) -> Vec<Rc<Drive<D>>> {
        let state = self.state.borrow();
        let drives = self.drives.borrow();
        let live = state
            .members
            .iter()
            .zip(drives.iter())
            .filter(|(record, _)| record.is_live());
        live.filter_map(|(_, drive)| drive.clone()).collect()
    }

    /// Whether all members with a slot answer at once, from memory (tmpfs).
    pub(crate) fn is_in_memory(&self) -> bool {
        self.with_slotted_drives(|mut drives| Iterator::all(&mut drives, |it| it.is_in_memory()))
    }

    /// Drives that hold data and bitmap: active and rebuilding.
    pub(crate) fn slotted_drives(&self) -> Vec<Rc<Drive<D>>> {
        self.with_slotted_drives(|drives| drives.cloned().collect())
    }

    fn with_slotted_drives<R>(
        &self,
        act: impl FnOnce(&mut dyn Iterator<Item = &Rc<Drive<D>>>) -> R,
    ) -> R {
        let state = self.state.borrow();
        let drives = self.drives.borrow();
        let members = state.members.iter().zip(drives.iter());
        let slotted = members.filter(|(record, _)| record.is_slotted());
        act(&mut slotted.filter_map(|(_, drive)| drive.as_ref()))
    }

    pub(crate) fn announce(&self, announcement: Announcement) {
        let mut queue = self.announcements.borrow_mut();
        if queue.len() == ANNOUNCEMENTS_MAX {
            queue.pop_front();
        }
        queue.push_back(announcement);
        drop(queue);
        self.announced.notify();
    }

    /// Waits until something changes from now on: members, jobs, what the superblocks say. Requests change nothing.
    pub fn changes(&self) -> Changed<'_> {
        self.changed.changed()
    }

    /// The next thing the outside should hear about. One task only.
    pub async fn next_announcement(&self) -> Announcement {
        loop {
            if let Some(announcement) = self.announcements.borrow_mut().pop_front() {
                return announcement;
            }
            self.announced.changed().await;
        }
    }

    /// Applies an event and carries out what needs no await. The caller commits where it has to.
    pub(crate) fn apply(&self, event: &Event) {
        let geometry = &self.geometry;
        let tolerates = |lost: &[bool]| geometry.tolerates(lost);
        let tolerates_all = |_: &[bool]| true;
        let effects = if self.has(Mutant::CommitBeyondRedundancy) {
            self.state.borrow_mut().apply(event, &tolerates_all)
        } else {
            self.state.borrow_mut().apply(event, &tolerates)
        };
        for effect in effects {
            match effect {
                Effect::PublishMembers => self.publish_members(),
                Effect::Freeze => {
                    if let Some(log) = self.stripe_log() {
                        log.progress.notify(); // whoever waits for older writes waits for nothing now
                    }
                    if let Event::MemberFailed { member, cause } = event {
                        self.lost_when_frozen.borrow_mut().push(*member);
                        self.announce(Announcement::Frozen {
                            member: self.member_name(*member),
                            cause: *cause,
                        });
                    }
                }
                Effect::CommitSuperblock | Effect::PickSpare => {}
            }
        }
        self.check_sharing();
        self.changed.notify();
    }

    pub(crate) fn member_name(&self, member: MemberId) -> String {
        self.drive(member).map_or_else(
            || format!("member {}", member.0),
            |drive| drive.name.clone(),
        )
    }

    /// A member cannot be used any more. Its answer-side consequences follow in `settle` (W3).
    pub(crate) fn fail_member(&self, member: MemberId, cause: FailCause) {
        if !self.state.borrow().record(member).is_live() {
            return;
        }
        if self.is_frozen() {
            return self.note_lost_when_frozen(member);
        }
        self.metadata.borrow_mut().note_failure(member, cause);
        self.apply(&Event::MemberFailed { member, cause });
        if !self.is_frozen() {
            if let Some(drive) = self.drive(member) {
                drive.fence();
            }
            self.announce(Announcement::MemberFailed {
                member: self.member_name(member),
                cause,
            });
        }
    }

    /// Whether every failure known now is durable on the survivors.
    pub(crate) fn is_settled(&self) -> bool {
        self.has(Mutant::AnswerBeforeFailureCommit)
            || self.committed.get() >= self.state.borrow().urgent_version
    }

    /// W3: waits until every failure known now is durable on the survivors.
    pub(crate) async fn settle(&self) -> Result<(), IoError> {
        if self.has(Mutant::AnswerBeforeFailureCommit) {
            return Ok(());
        }
        let urgent = self.state.borrow().urgent_version;
        self.commit_until(urgent).await
    }

    /// Flushes every live member; a failed flush fails the member (W13), durably before it returns (W3).
    pub(crate) async fn flush_members(&self) -> Result<(), IoError> {
        let begun = self.flush_live_members().await?;
        self.settle_flush(begun).await
    }

    /// The first half of `flush_members`: whoever could not be flushed is failed, not durably yet.
    pub(crate) async fn flush_live_members(&self) -> Result<Option<FlushBegun<D>>, IoError> {
        if self.is_frozen() {
            return Err(IoError::Failed);
        }
        let begun = self.before_flush();
        let drives = self.live_drives();
        let marks: Vec<u64> = drives.iter().map(|drive| drive.healed_mark()).collect();
        let results = plexum_block::wait::join_all(drives.iter().map(|drive| drive.flush())).await;
        for ((drive, mark), result) in drives.iter().zip(marks).zip(results) {
            if result.is_ok() && drive.forget_healed(mark) {
                self.apply(&Event::BadBlocksChanged {
                    member: drive.id,
                    is_urgent: false,
                });
            }
            if let Err(error) = result {
                if self.has(Mutant::IgnoreFlushError) && error != IoError::Gone {
                    continue;
                }
                self.fail_member(
                    drive.id,
                    if error == IoError::Gone {
                        FailCause::Gone
                    } else {
                        FailCause::FlushError
                    },
                );
            }
        }
        if self.is_frozen() {
            return Err(IoError::Failed);
        }
        Ok(begun)
    }

    /// The second half: what was flushed counts.
    pub(crate) async fn settle_flush(&self, begun: Option<FlushBegun<D>>) -> Result<(), IoError> {
        if !self.is_settled() && !self.options.borrow().is_read_only {
            // W3: what is covered but for a lost member is covered when its loss is durable. Until then a crash brings it back.
            self.settle().await?;
        }
        if self.is_settled() {
            self.after_flush(begun);
        }
        Ok(())
    }

    /// Makes a new snapshot from the state.
    fn publish_members(&self) {
        let state = self.state.borrow();
        let drives = self.drives.borrow();
        let mut fillings = self.fillings.borrow_mut();
        fillings.retain(|filling| {
            matches!(
                state.record(filling.drive.id).standing,
                Standing::Rebuilding { .. }
            )
        });
        for (record, drive) in state.members.iter().zip(drives.iter()) {
            let (
                Standing::Rebuilding {
                    valid_below_bytes,
                    by_bitmap,
                },
                Some(drive),
            ) = (record.standing, drive)
            else {
                continue;
            };
            if !fillings.iter().any(|filling| filling.drive.id == drive.id) {
                let stale = by_bitmap.then(|| self.regions.borrow().wanted().clone());
                fillings.push(Rc::new(Filling::new(
                    Rc::clone(drive),
                    valid_below_bytes,
                    stale,
                )));
            }
        }
        let mut set = MemberSet::of(&state, &drives, &fillings);
        if self.has(Mutant::SpareUsedTwice) {
            set.lend_fillings();
        }
        self.rebalance(&set);
        let before = std::mem::replace(&mut *self.set.borrow_mut(), Rc::new(set));
        if self.has(Mutant::OldMemberSetStillWrites) {
            *self.set_before.borrow_mut() = Some((self.clock.now(), before));
        }
    }

    /// Tells the balancer who can be read now.
    fn rebalance(&self, set: &MemberSet<D>) {
        let before = self.members();
        let mut balancer = self.balancer.borrow_mut();
        for (slot, (old, new)) in before.slots.iter().zip(&set.slots).enumerate() {
            let drive = |view: &SlotView<D>| {
                view.active.clone().or(view
                    .filling
                    .as_ref()
                    .map(|filling| Rc::clone(&filling.drive)))
            };
            let (old, drive) = (drive(old), drive(new));
            if old.as_ref().map(|drive| drive.id) == drive.as_ref().map(|drive| drive.id) {
                continue;
            }
            balancer.detach(slot);
            if let Some(drive) = drive {
                let traits = MemberTraits {
                    is_write_mostly: new.is_write_mostly,
                    is_rotational: drive.info().is_rotational,
                };
                balancer.attach(slot, traits, self.clock.now());
            }
        }
    }
}
