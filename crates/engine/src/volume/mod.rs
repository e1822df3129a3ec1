//! A volume: one plex over the members of one array, its locks, its intent and its state.
//!
//! Invariants:
//! - members are used through a `MemberSet` snapshot taken *after* the lock of the row or range was got, so that a
//!   rebuild which has the lock next is seen by every later write;
//! - an answer to a write waits until every member failure known by then is durable (W3);
//! - a frozen volume answers everything with `Failed` and writes nothing at all (W4).

mod bitmap;
mod control;
mod extents;
mod log;
mod ppl;
mod read;
mod redundancy;
mod start;
mod status;
mod under;
mod write;

use std::ops::Range;
use std::rc::{Rc, Weak};

pub use bitmap::BitmapWish;
pub use control::{AddOutcome, ControlError, FormerMember, NewMember};
pub use redundancy::{MissingSlot, Redundancy, Safety, Standings};
pub use start::{Dirty, Force, PplError, ReplayError};
pub use status::{MemberStatus, VolumeStatus};

pub use crate::intent::log::LogStatus;
pub use crate::news::Announcement;
pub use crate::options::{MEMBER_TIMEOUT, VolumeOptions};
pub use crate::upkeep::{JobKind, JobStatus};

use plexum_format::stripe_log::LogHeader;

use crate::array::{Array, ArrayParts, Companion, Drives, Follower};
use crate::base::Base;
use crate::copies::Copies;
use crate::drive::Drive;
use crate::intent::Intent;
use crate::intent::regions::Regions;
use crate::metadata::Metadata;
use crate::mutant::Mutant;
use crate::rows::Rows;
use crate::shard::Division;
use crate::stage::RequestInfo;
use crate::state::{Event, MemberId, MemberRecord};
use crate::threshold::Threshold;
use crate::traffic::{ReadsWait, Traffic};
use crate::upkeep::scrub::{ScrubMode, ScrubReport};
use crate::upkeep::{Upkeep, UpkeepParts};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{Changed, Mutex};
use plexum_layout::Geometry;

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
    /// What the superblocks say: sync bytes below this are consistent; `Some(0)`: writes were under way (dirty);
    /// `None`: clean.
    pub resync_start_bytes: Option<u64>,
    /// Settings.
    pub options: VolumeOptions,
}

/// A running volume: its rooms, and the only entry to them. One thread owns it; share it by `Rc`.
pub struct Volume<D: Device, C: Clock> {
    base: Rc<Base<C>>,
    array: Rc<Array<D, C>>,
    intent: Rc<Intent<D, C>>,
    rows: Rc<Rows<D, C>>,
    copies: Rc<Copies<D, C>>,
    traffic: Rc<Traffic<D, C>>,
    upkeep: Upkeep<D, C>,
    /// Its part when it is on several cores.
    division: Division,
    /// For the deliberate bug of flushes that join one under way.
    running_flush: Mutex,
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

impl<D: Device, C: Clock> Volume<D, C> {
    /// Puts a volume together. Nothing is read or written yet; give `run_background` a task of its own.
    pub fn new(parts: VolumeParts<D, C>) -> Self {
        let (records, drives) = split(parts.members, &parts.options);
        let is_due = parts.metadata.is_commit_due() && !parts.options.is_read_only;
        let base = Rc::new(Base::new(
            parts.name,
            parts.geometry,
            parts.clock,
            parts.pool,
            parts.options,
        ));
        let array = ArrayParts {
            records,
            drives,
            metadata: parts.metadata,
            event_count: parts.event_count,
            is_uneven: parts.is_uneven,
            resync_start_bytes: parts.resync_start_bytes,
        };
        let array = Rc::new(Array::new(Rc::clone(&base), array));
        let of_base = || Rc::clone(&base);
        let of_array = || Rc::clone(&array);
        let intent = Rc::new(Intent::new(of_base(), of_array(), parts.regions));
        let of_intent = || Rc::clone(&intent);
        let rows = Rc::new(Rows::new(of_base(), of_array(), of_intent()));
        let copies = Rc::new(Copies::new(of_base(), of_array(), of_intent()));
        let reads_wait = match is_due {
            true => ReadsWait::Yes,
            false => ReadsWait::No,
        };
        let traffic = Rc::new(Traffic::new(of_base(), of_array(), reads_wait));
        let upkeep = Upkeep::new(UpkeepParts {
            base: of_base(),
            array: of_array(),
            intent: of_intent(),
            rows: Rc::clone(&rows),
            copies: Rc::clone(&copies),
            traffic: Rc::clone(&traffic),
        });
        let companion: Weak<dyn Companion<D>> = Rc::<Intent<D, C>>::downgrade(&intent);
        let follower: Weak<dyn Follower<D>> = Rc::<Copies<D, C>>::downgrade(&copies);
        array.begin(companion, follower);
        if let Some(headers) = parts.log {
            intent.adopt_log(&headers, false);
        }
        Self {
            base,
            array,
            intent,
            rows,
            copies,
            traffic,
            upkeep,
            division: Division::default(),
            running_flush: Mutex::new(),
        }
    }

    /// Name of the volume.
    pub fn name(&self) -> &str {
        self.base.name()
    }

    /// Address map.
    pub fn geometry(&self) -> &Geometry {
        self.base.geometry()
    }

    /// Size in bytes as clients see it.
    pub fn size_bytes(&self) -> u64 {
        self.base.size_bytes()
    }

    /// Largest sector of the members: unit of requests, in bytes.
    #[inline]
    pub fn sector_bytes(&self) -> u32 {
        self.array.sector_bytes()
    }

    /// Whether more was lost than the organisation survives (W4).
    pub fn is_frozen(&self) -> bool {
        self.array.is_frozen()
    }

    /// By slot, whether it has no active member now.
    pub fn lost_slots(&self) -> Vec<bool> {
        self.array.lost_slots()
    }

    /// Event count of the last superblock commit that has begun.
    pub fn event_count(&self) -> u64 {
        self.array.event_count()
    }

    /// Whether all that the state says is durable on the members.
    pub fn is_committed(&self) -> bool {
        self.array.is_committed()
    }

    /// Whether the members' superblocks name this one as complete: whoever starts the array after a crash can rely on
    /// it.
    pub fn is_durably_active(&self, member: MemberId) -> bool {
        self.array.is_durably_active(member)
    }

    /// Client requests that are being carried out, oldest first.
    pub fn requests(&self) -> Vec<RequestInfo> {
        self.traffic.list()
    }

    /// Locks of rows and ranges that are held or waited for; 0 when nothing runs.
    pub fn lock_count(&self) -> usize {
        self.base.locks().count()
    }

    /// Whether there are copies or parity to keep in agreement.
    pub fn has_redundancy(&self) -> bool {
        self.base.has_redundancy()
    }

    /// The thresholds that something has led over since it was opened.
    pub fn crossed(&self) -> Vec<Threshold> {
        if self.intent.regions().has_forgotten() {
            self.base.cross(Threshold::ProvenRanges);
        }
        if self.copies.was_full() {
            self.base.cross(Threshold::Ahead);
        }
        let drives = self.array.drives();
        if drives.iter().flatten().any(|drive| drive.has_waited()) {
            self.base.cross(Threshold::DriveSlots);
        }
        self.base.crossed()
    }

    /// What all its rooms stand on. This and the next ones are for whoever stands on a whole volume: `shard`, and
    /// formats that put one together.
    pub(crate) fn base(&self) -> &Rc<Base<C>> {
        &self.base
    }

    /// Who is in.
    pub(crate) fn array(&self) -> &Rc<Array<D, C>> {
        &self.array
    }

    /// What is known of the agreement of its members.
    pub(crate) fn intent(&self) -> &Rc<Intent<D, C>> {
        &self.intent
    }

    /// Its copies, when it is a mirror.
    pub(crate) fn copies(&self) -> &Copies<D, C> {
        &self.copies
    }

    /// Requests under way.
    pub(crate) fn traffic(&self) -> &Rc<Traffic<D, C>> {
        &self.traffic
    }

    /// Its work in the background.
    pub(crate) fn upkeep(&self) -> &Upkeep<D, C> {
        &self.upkeep
    }

    /// Its part when it is on several cores.
    pub(crate) fn division(&self) -> &Division {
        &self.division
    }

    /// Makes it a satellite's volume (`shard`): it counts as dirty, which its home has made durable, and commits
    /// nothing. What it learns of its members is the home's to make durable, before anything that depends on it is
    /// answered.
    pub(crate) fn become_lent(&self) {
        self.array.become_lent();
    }

    /// Whether something was learned since it became a satellite's volume that only its home can make durable.
    pub(crate) fn has_learned(&self) -> bool {
        self.array.state().version > 0 || self.intent.regions().doubtful_count() > 0
    }

    /// What the drive of a member has done.
    pub(crate) fn counters_of(&self, member: usize) -> crate::drive::DriveCounters {
        let drives = self.array.drives();
        let drive = drives.get(member).and_then(Option::as_ref);
        drive.map_or_else(Default::default, |drive| {
            drive.counters(self.base.clock().recent())
        })
    }

    /// Waits until something changes from now on: members, jobs, what the superblocks say. Requests change nothing.
    pub fn changes(&self) -> Changed<'_> {
        self.base.changes()
    }

    /// The next thing the outside should hear about. One task only.
    pub async fn next_announcement(&self) -> Announcement {
        self.base.next_announcement().await
    }

    /// Asks its metadata, when they are of the format `M`, what only that format knows. `None`: they are not.
    pub fn ask_metadata<M: 'static, R>(&self, ask: impl FnOnce(&M) -> R) -> Option<R> {
        let metadata = self.array.metadata();
        metadata.as_any()?.downcast_ref::<M>().map(ask)
    }

    /// Changes in its metadata, when they are of the format `M`, what only that format knows; durable with the next
    /// commit. `None`: they are not.
    pub fn change_metadata<M: 'static, R>(&self, change: impl FnOnce(&mut M) -> R) -> Option<R> {
        let mut metadata = self.array.metadata_mut();
        metadata.as_any_mut()?.downcast_mut::<M>().map(change)
    }

    /// Makes durable what the format says from now on besides the members: how far a migration is.
    ///
    /// # Errors
    /// As a commit: `Failed` when the volume is frozen, or freezes over it; nobody knows what is durable then.
    pub async fn commit_metadata(&self) -> Result<(), IoError> {
        debug_assert!(!self.array.is_silent(), "who commits for others commits");
        self.array.apply(&Event::SettingsChanged);
        self.array.commit_all().await
    }

    /// The same, at the end of a migration: slots that this geometry does not have are no more, and who held one of
    /// them is a spare.
    ///
    /// # Errors
    /// As `commit_metadata`.
    pub async fn commit_last_geometry(&self) -> Result<(), IoError> {
        let slot_count = u16::try_from(self.base.geometry().member_count());
        let slot_count = slot_count.expect("slots were bounded by the geometry");
        self.array.apply(&Event::SlotsLeft { slot_count });
        self.array.commit_all().await
    }

    /// Runs the background work until `stop`. Give it one task of its own; without it nothing is cleaned or rebuilt.
    pub async fn run_background(&self) {
        self.upkeep.run().await;
    }

    /// Ends the volume cleanly: no new background step, writes drained, everything flushed, bits cleared, marked clean.
    ///
    /// # Errors
    /// `Failed` when the array is frozen: the members are left as they are, an ordinary dirty start follows.
    pub async fn stop(&self) -> Result<(), IoError> {
        self.upkeep.stop().await
    }

    /// Whether another geometry is being left for this one: members are not exchanged, and nothing is scrubbed.
    pub fn is_being_reshaped(&self) -> bool {
        self.base.holds_jobs()
    }

    /// Starts a scrub; says `false` when one is running or the organisation has nothing to compare.
    pub fn start_scrub(&self, mode: ScrubMode) -> bool {
        !self.is_being_reshaped() && self.upkeep.start_scrub(mode)
    }

    /// Starts a scrub of a part of the sync space, which changes nothing and announces nothing; `false` as
    /// `start_scrub`. The part begins and ends at multiples of 4 KiB; what lies beyond `scrub_bytes` is not there.
    pub fn start_scrub_part(&self, part: Range<u64>) -> bool {
        !self.is_being_reshaped() && self.upkeep.start_scrub_part(part)
    }

    /// What the last scrub of a part has found that has ended.
    pub fn scrub_part_report(&self) -> Option<ScrubReport> {
        self.upkeep.scrub_part_report()
    }

    /// What there is to compare, in bytes of the sync space: of the volume where it has copies, else of each member.
    pub fn scrub_bytes(&self) -> u64 {
        self.upkeep.scrub_bytes()
    }

    /// Ends a scrub before it is through.
    pub fn stop_scrub(&self) {
        self.upkeep.stop_scrub();
    }

    /// Waits until neither bitmap nor log is being turned on or off; that takes a moment.
    pub async fn switched(&self) {
        let is_over = || !self.traffic.is_switching();
        self.base.changed().until(is_over).await;
    }

    /// Whether a scrub runs or is about to.
    pub fn is_scrubbing(&self) -> bool {
        self.upkeep.is_scrubbing()
    }

    /// What the scrub that runs, or the last one, has found.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        self.upkeep.scrub_report()
    }

    /// Waits until no scrub runs.
    pub async fn scrub_ended(&self) {
        self.upkeep.scrub_ended().await;
    }

    /// A hint: a write of this range is being received. `write` of the very range ends that, or `expect_no_write`.
    pub fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        if self.check_request(offset_bytes, length_bytes).is_ok() {
            self.rows
                .expect_write(offset_bytes..offset_bytes + length_bytes);
        }
    }

    /// What was expected will not come.
    pub fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        self.rows
            .expect_no_write(offset_bytes..offset_bytes.saturating_add(length_bytes));
    }
}
