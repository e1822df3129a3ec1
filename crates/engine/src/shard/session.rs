//! One opening of the door as a satellite lives it: a volume over the members it was lent, and what it holds of slabs
//! and marks.
//!
//! Invariants:
//! - a write runs only while its slab and the marks of its regions are held, and both stay until it has ended;
//! - the volume commits nothing: what it learns of its members is handed to the home;
//! - what came back to the home is not used again in this session unless it was lent again.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_exec::mailbox::Sender;

use super::loans::{Hold, Loans};
use super::{Learned, MemberTally, Opening, ToHome, ToShard};
use crate::balance::Policy;
use crate::drive::DriveCounters;
use crate::intent::regions::Regions;
use crate::metadata::{CommitView, Metadata, MetadataWrite, NewMemberPlace};
use crate::mutant::Mutant;
use crate::options::VolumeOptions;
use crate::state::{FailCause, MemberId, MemberRecord, Standing};
use crate::volume::{DrivePart, Volume, VolumeParts};
use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, DeviceInfo, Extent, Fua, IoError};
use plexum_block::ranges::RangeSet;
use plexum_block::wait::{Changed, Gauge, GaugeGuard, Signal, first, join};
use plexum_layout::Geometry;

/// What a write lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Missing {
    /// The slab.
    Slab(u32),
    /// The mark of a region.
    Mark(usize),
}

/// Most bad ranges of a member that are passed on: beyond them it is failed.
const BAD_MAX: usize = 64;

/// The home hears so much later what members have done: for status alone, so not with each request.
const PUBLISH_AFTER: Duration = Duration::from_millis(10);

type Failures = Rc<RefCell<Vec<(MemberId, FailCause)>>>;

/// One opening, at a satellite.
pub(super) struct Session<D: Device, C: Clock> {
    opening: Opening,
    volume: Volume<D, C>,
    requests: Rc<Gauge>,
    slabs: RefCell<Loans>,
    marks: RefCell<Loans>,
    changed: Signal,
    is_shutting: Cell<bool>,
    is_back: Cell<bool>,
    /// Members have done something since the home was told.
    has_news: Cell<bool>,
    news: Signal,
    failures: Failures,
    /// What members had done for this satellite before.
    before: Vec<DriveCounters>,
    teller: Teller,
}

/// How the home hears of a satellite.
pub(super) struct Teller {
    /// The satellite's number.
    pub(super) number: usize,
    pub(super) home: Sender<(usize, ToHome)>,
    pub(super) tally: MemberTally,
}

/// A write that uses a slab and marks.
pub(super) struct Using<D: Device, C: Clock> {
    session: Rc<Session<D, C>>,
    slab: Option<u32>,
    regions: Range<usize>,
    _request: GaugeGuard,
}

impl<D: Device, C: Clock> Drop for Using<D, C> {
    fn drop(&mut self) {
        self.session.end(self.slab, self.regions.clone());
    }
}

impl<D: Device, C: Clock + Clone> Session<D, C> {
    /// A session over `devices`, in the order of the opening's members. `parts`: name and geometry; `teller`: how the
    /// home hears.
    pub(super) fn new(
        opening: Opening,
        devices: Vec<D>,
        parts: (String, Geometry),
        clock: &C,
        pool: &BufPool,
        teller: Teller,
    ) -> Self {
        let failures = Failures::default();
        let volume = volume_of(&opening, devices, parts, clock, pool, &failures);
        volume.become_lent();
        let before = opening.members.iter();
        let before: Vec<DriveCounters> = before.map(|lent| teller.tally.of(lent.id)).collect();
        Self {
            opening,
            volume,
            requests: Rc::default(),
            slabs: RefCell::default(),
            marks: RefCell::default(),
            changed: Signal::new(),
            is_shutting: Cell::new(false),
            is_back: Cell::new(false),
            has_news: Cell::new(false),
            news: Signal::new(),
            failures,
            before,
            teller,
        }
    }
}

/// A volume over the lent members.
fn volume_of<D: Device, C: Clock + Clone>(
    opening: &Opening,
    devices: Vec<D>,
    (name, geometry): (String, Geometry),
    clock: &C,
    pool: &BufPool,
    failures: &Failures,
) -> Volume<D, C> {
    let members = opening.members.iter().zip(devices);
    let members = members.map(|(member, device)| DrivePart {
        name: member.name.clone(),
        device: Some(device),
        record: MemberRecord {
            slot: Some(member.slot),
            standing: Standing::Active,
            is_replacement: false,
            is_write_mostly: member.is_write_mostly,
        },
        data: member.data.clone(),
        bad: RangeSet::new(),
    });
    let balance = match opening.balance {
        // Others write too: nothing can be kept here.
        Policy::Adaptive { .. } => Policy::Adaptive { reads_ahead: false },
        other => other,
    };
    let sector_bytes = 4096;
    Volume::new(VolumeParts {
        name,
        geometry,
        clock: clock.clone(),
        pool: pool.clone(),
        members: members.collect(),
        metadata: Box::new(NoMetadata {
            failures: Rc::clone(failures),
            has_bad_lists: opening.has_bad_lists,
        }),
        regions: Regions::new(
            opening.sync_bytes,
            opening.region_bytes,
            sector_bytes,
            false,
        ),
        event_count: 0,
        is_uneven: false,
        log: None,
        resync_start_bytes: None,
        options: VolumeOptions {
            balance,
            member_timeout: opening.member_timeout,
            bug: opening.bug,
            ..VolumeOptions::default()
        },
    })
}

impl<D: Device, C: Clock> Session<D, C> {
    pub(super) fn epoch(&self) -> u64 {
        self.opening.epoch
    }

    pub(super) fn takes_writes(&self) -> bool {
        self.opening.takes_writes
    }

    pub(super) fn has(&self, mutant: Mutant) -> bool {
        self.opening.bug.is(mutant)
    }

    pub(super) fn is_shutting(&self) -> bool {
        self.is_shutting.get()
    }

    /// Nothing more is taken on.
    pub(super) fn shut(&self) {
        self.is_shutting.set(true);
        self.changed.notify();
    }

    pub(super) fn changed(&self) -> Changed<'_> {
        self.changed.changed()
    }

    /// Looks after members that do not answer, until the session is over.
    pub(super) async fn watch(&self) {
        let watching = self.volume.upkeep().watch_members(|| self.is_back.get());
        join(watching, self.publish_news()).await;
    }

    async fn publish_news(&self) {
        while !self.is_back.get() {
            let is_due = || self.has_news.get() || self.is_back.get();
            self.news.until(is_due).await;
            let over = self.news.until(|| self.is_back.get());
            first(self.volume.base().clock().sleep(PUBLISH_AFTER), over).await;
            // What was given back was told, too; the next session may have told more since.
            if !self.is_back.get() {
                self.publish();
            }
        }
    }

    pub(super) async fn read(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Rope, IoError> {
        let _request = self.requests.enter();
        self.volume.read(offset_bytes, length_bytes).await
    }

    pub(super) async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        let _request = self.requests.enter();
        self.volume
            .extents(offset_bytes, length_bytes, extents_max)
            .await
    }

    /// Members have done something: the home will be told.
    #[inline]
    pub(super) fn note_done(&self) {
        if !self.has_news.replace(true) {
            self.news.notify();
        }
    }

    fn publish(&self) {
        self.has_news.set(false);
        let members = self.opening.members.iter().zip(&self.before).enumerate();
        self.teller
            .tally
            .set(members.map(|(index, (lent, before))| {
                let mut counters = self.volume.counters_of(index);
                counters.add(before);
                (lent.id, counters)
            }));
    }

    pub(super) async fn write(
        &self,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        self.volume.write(offset_bytes, data, fua).await
    }

    /// Range of the sync space that a write touches, empty where nothing is kept in agreement; `None` for what is out
    /// of range.
    pub(super) fn sync_range(&self, offset_bytes: u64, length_bytes: u64) -> Option<Range<u64>> {
        self.volume.check_request(offset_bytes, length_bytes).ok()?;
        Some(
            self.volume
                .sync_range(offset_bytes, length_bytes)
                .unwrap_or(0..0),
        )
    }

    fn regions(&self, sync: &Range<u64>) -> Range<usize> {
        let shift = self.opening.region_bytes.trailing_zeros(); // powers of two
        let index = |at: u64| usize::try_from(at >> shift).expect("a region");
        if sync.is_empty() {
            return 0..0;
        }
        index(sync.start)..index(sync.end - 1) + 1
    }

    /// The first thing that a write lacks.
    pub(super) fn missing(&self, slab: u32, sync: &Range<u64>) -> Option<Missing> {
        if sync.is_empty() {
            return None; // nothing is locked or marked without redundancy
        }
        if self.slabs.borrow().hold(slab as usize) != Hold::Held {
            return Some(Missing::Slab(slab));
        }
        if self.has(Mutant::ShardWritesUnmarked) {
            return None;
        }
        let marks = self.marks.borrow();
        let mut regions = self.regions(sync);
        regions
            .find(|region| marks.hold(*region) != Hold::Held)
            .map(Missing::Mark)
    }

    /// The list that something is on, and its number there.
    fn place(&self, missing: Missing) -> (&RefCell<Loans>, usize) {
        match missing {
            Missing::Slab(slab) => (&self.slabs, slab as usize),
            Missing::Mark(region) => (&self.marks, region),
        }
    }

    fn set_hold(&self, missing: Missing, hold: Hold) {
        let (loans, index) = self.place(missing);
        loans.borrow_mut().set_hold(index, hold);
    }

    /// Whether the caller has to ask the home; otherwise somebody has, or it is on its way back.
    pub(super) fn ask(&self, missing: Missing) -> bool {
        let (loans, index) = self.place(missing);
        let mut loans = loans.borrow_mut();
        let is_first = loans.hold(index) == Hold::Home;
        if is_first {
            loans.set_hold(index, Hold::Asked);
        }
        is_first
    }

    /// Takes back `ask`: nobody was asked.
    pub(super) fn unask(&self, missing: Missing) {
        self.set_hold(missing, Hold::Home);
        self.changed.notify();
    }

    /// A write begins; `missing` has found nothing.
    pub(super) fn begin(session: &Rc<Self>, slab: u32, sync: &Range<u64>) -> Using<D, C> {
        let regions = session.regions(sync);
        let slab = (!sync.is_empty()).then_some(slab);
        if let Some(slab) = slab {
            session.slabs.borrow_mut().begin(slab as usize);
        }
        let mut marks = session.marks.borrow_mut();
        regions.clone().for_each(|region| marks.begin(region));
        drop(marks);
        Using {
            slab,
            regions,
            _request: session.requests.enter(),
            session: Rc::clone(session),
        }
    }

    fn end(&self, slab: Option<u32>, regions: Range<usize>) {
        let mut marks = self.marks.borrow_mut();
        regions.for_each(|region| marks.end(region));
        drop(marks);
        if let Some(slab) = slab {
            self.slabs.borrow_mut().end(slab as usize);
            self.give_slab_back(slab);
        }
    }

    /// Gives a slab back that was called back and is not used any more.
    fn give_slab_back(&self, slab: u32) {
        let is_free = self.slabs.borrow_mut().leave(slab as usize);
        if is_free {
            self.tell(ToHome::SlabBack { slab });
            self.changed.notify();
        }
    }

    fn tell(&self, message: ToHome) {
        let _ = self.teller.home.send((self.teller.number, message));
    }

    /// What the home says of this opening; of another one nothing counts.
    pub(super) fn hear(&self, message: ToShard) {
        let lent = |is_lent| if is_lent { Hold::Held } else { Hold::Home };
        match message {
            ToShard::Lent {
                slab,
                epoch,
                is_lent,
            } if epoch == self.epoch() => {
                self.set_hold(Missing::Slab(slab), lent(is_lent));
            }
            ToShard::Marked {
                region,
                epoch,
                is_marked,
            } if epoch == self.epoch() => {
                self.set_hold(Missing::Mark(region), lent(is_marked));
            }
            ToShard::Recall { slab } => {
                let hold = self.slabs.borrow().hold(slab as usize);
                if hold == Hold::Held {
                    self.set_hold(Missing::Slab(slab), Hold::CalledBack);
                }
                self.give_slab_back(slab);
            }
            ToShard::Shut => return self.shut(),
            ToShard::Lent { .. } | ToShard::Marked { .. } => return,
            ToShard::Open(_) | ToShard::Serve(_) => return, // the satellite's own
        }
        self.changed.notify();
    }

    /// Whether something was learned of the members that the home has to hear before anything more is answered.
    pub(super) fn has_learned(&self) -> bool {
        self.volume.has_learned()
    }

    /// Waits for all requests to end, then gives everything back.
    pub(super) async fn give_all_back(&self) {
        self.requests.empty().await;
        self.publish();
        self.tell(ToHome::AllBack {
            epoch: self.epoch(),
            learned: self.learned(),
        });
        self.is_back.set(true);
        self.news.notify();
        self.changed.notify();
        self.volume.base().changed().notify(); // the watchman ends
    }

    /// Waits until that has happened.
    pub(super) async fn all_is_back(&self) {
        self.changed.until(|| self.is_back.get()).await;
    }

    fn learned(&self) -> Learned {
        let at_home = |member: MemberId| self.opening.members[usize::from(member.0)].id;
        let failures = self.failures.take().into_iter();
        let bad = self.volume.array().all_bad().into_iter();
        Learned {
            failures: failures
                .map(|(member, cause)| (at_home(member), cause))
                .collect(),
            bad: bad
                .map(|(member, range)| (at_home(member), range))
                .collect(),
            doubt: self.volume.intent().regions().unproven(),
        }
    }

    /// Whether no I/O is under way on any member, not even one that nobody waits for (W9).
    pub(super) fn is_drained(&self) -> bool {
        self.volume.array().are_devices_idle()
    }

    pub(super) fn has_marks(&self) -> bool {
        self.marks.borrow().held_count() > 0
    }

    /// Gives back the marks that nobody has used since the last call.
    pub(super) fn give_idle_marks_back(&self) {
        let regions = self.marks.borrow_mut().take_idle();
        if !regions.is_empty() {
            self.tell(ToHome::MarksBack { regions });
        }
    }
}

/// Metadata of a volume that has none; it only hears what happens to members.
struct NoMetadata {
    failures: Failures,
    has_bad_lists: bool,
}

impl Metadata for NoMetadata {
    fn format_name(&self) -> String {
        "a shard".to_owned()
    }

    fn superblock(
        &mut self,
        _member: MemberId,
        _view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        Vec::new()
    }

    fn has_commits(&self) -> bool {
        false
    }

    fn note_failure(&mut self, member: MemberId, cause: FailCause) {
        self.failures.borrow_mut().push((member, cause));
    }

    fn has_room_for_bad(&self, _member: MemberId, bad: &RangeSet) -> bool {
        self.has_bad_lists && bad.len() <= BAD_MAX
    }

    fn add_member(
        &mut self,
        _member: MemberId,
        _identity: [u8; 16],
        _info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        Err("a shard takes nobody in".to_owned())
    }
}
