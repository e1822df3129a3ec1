//! What every room of a volume stands on: its name and address map, time, buffers and settings, and the news of it.
//!
//! Invariants:
//! - name, address map, clock and buffers never change; settings do;
//! - the guard of the door (`shard`) hears of a change of state or doubt before anybody who waits for one.

use std::cell::{Cell, OnceCell, Ref, RefCell, RefMut};
use std::collections::VecDeque;

use crate::mutant::{DeliberateBug, Mutant};
use crate::news::Announcement;
use crate::options::VolumeOptions;
use crate::row::{Exponents, Row};
use crate::spot::Spot;
use crate::threshold::{Crossed, Threshold, Thresholds};
use plexum_block::buf::BufPool;
use plexum_block::device::IoError;
use plexum_block::lock::RangeLocks;
use plexum_block::wait::{Changed, Signal};
use plexum_layout::{Geometry, Organisation};

/// Most announcements kept until somebody fetches them; older ones are dropped.
const ANNOUNCEMENTS_MAX: usize = 1024;

/// Who looks after what others may do while a volume is on several cores (`shard`).
pub(crate) trait Guard {
    /// Something has changed.
    fn look(&self);

    /// Whether others write now: nothing may be kept in memory that they could change.
    fn is_shared_now(&self) -> bool;

    /// Whether nobody else works with anything that was lent.
    fn is_all_back(&self) -> bool;
}

/// What all rooms of one volume share. One thread owns it.
pub(crate) struct Base<C> {
    name: String,
    geometry: Geometry,
    clock: C,
    pool: BufPool,
    options: RefCell<VolumeOptions>,
    /// As in `options`, where it never changes: asked many times a request.
    bug: DeliberateBug,
    /// Thresholds that something has led over.
    crossed: Cell<Crossed>,
    /// State, doubt, spares or options changed: background tasks and waiters look again.
    changed: Signal,
    /// Rows of parity, ranges of copies: whoever writes there, or makes them agree.
    locks: RangeLocks,
    /// The volume ends: no new step in the background.
    is_stopping: Cell<bool>,
    /// Another geometry is being left (`migrate`): no job of its own.
    holds_jobs: Cell<bool>,
    guard: OnceCell<Box<dyn Guard>>,
    announcements: RefCell<VecDeque<Announcement>>,
    announced: Signal,
}

impl<C> Base<C> {
    pub(crate) fn new(
        name: String,
        geometry: Geometry,
        clock: C,
        pool: BufPool,
        options: VolumeOptions,
    ) -> Self {
        Self {
            name,
            geometry,
            clock,
            pool,
            bug: options.bug,
            options: RefCell::new(options),
            crossed: Cell::default(),
            changed: Signal::new(),
            locks: RangeLocks::new(),
            is_stopping: Cell::new(false),
            holds_jobs: Cell::new(false),
            guard: OnceCell::new(),
            announcements: RefCell::default(),
            announced: Signal::new(),
        }
    }

    /// Name of the volume.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Address map.
    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Time.
    #[inline]
    pub(crate) fn clock(&self) -> &C {
        &self.clock
    }

    /// Size in bytes as clients see it.
    #[inline]
    pub(crate) fn size_bytes(&self) -> u64 {
        self.geometry.volume_bytes()
    }

    /// A row of a parity organisation.
    #[inline]
    pub(crate) fn row(&self, number: u64) -> Row {
        Row {
            number,
            map: self.geometry.row_map(number),
            strip_bytes: self.geometry.strip_bytes(),
        }
    }

    /// Locks of rows and ranges.
    #[inline]
    pub(crate) fn locks(&self) -> &RangeLocks {
        &self.locks
    }

    /// Whether the volume ends.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.get()
    }

    /// The volume ends. `all_back` follows, before anything else is done.
    pub(crate) fn stop(&self) {
        self.is_stopping.set(true);
        self.changed.notify();
    }

    /// Whether resync, rebuild and scrub wait, and members are not exchanged: data come from another geometry.
    pub(crate) fn holds_jobs(&self) -> bool {
        self.holds_jobs.get()
    }

    /// They wait until `let_jobs`.
    pub(crate) fn hold_jobs(&self) {
        assert!(!self.holds_jobs.get(), "one geometry at a time is left");
        self.holds_jobs.set(true);
    }

    /// They go on.
    pub(crate) fn let_jobs(&self) {
        assert!(self.holds_jobs.get(), "what goes on was held");
        self.holds_jobs.set(false);
        self.changed.notify();
    }

    /// Buffers.
    #[inline]
    pub(crate) fn pool(&self) -> &BufPool {
        &self.pool
    }

    /// Settings. Not to be held over an await.
    pub(crate) fn options(&self) -> Ref<'_, VolumeOptions> {
        self.options.borrow()
    }

    /// Settings, to be changed; `changed` follows.
    pub(crate) fn options_mut(&self) -> RefMut<'_, VolumeOptions> {
        self.options.borrow_mut()
    }

    /// Whether nothing may be written.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.borrow().is_read_only
    }

    /// Whether something may be written.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub(crate) fn check_writable(&self) -> Result<(), IoError> {
        if self.is_read_only() {
            Err(IoError::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// Whether the volume has this deliberate bug.
    #[inline]
    pub(crate) fn has(&self, mutant: Mutant) -> bool {
        self.bug.is(mutant)
    }

    /// From where on it does something else.
    pub(crate) fn thresholds(&self) -> Thresholds {
        self.options.borrow().thresholds
    }

    /// Notes that something has led over a threshold.
    pub(crate) fn cross(&self, threshold: Threshold) {
        self.crossed.set(self.crossed.get().with(threshold));
    }

    /// Thresholds that something has led over, as far as they were noted.
    pub(crate) fn crossed(&self) -> Vec<Threshold> {
        self.crossed.get().list()
    }

    /// Whether there are copies or parity to keep in agreement.
    pub(crate) fn has_redundancy(&self) -> bool {
        !matches!(
            self.geometry.organisation(),
            Organisation::Linear | Organisation::Raid0(_)
        )
    }

    /// Who is told first of every change from now on; once.
    pub(crate) fn set_guard(&self, guard: Box<dyn Guard>) {
        let is_first = self.guard.set(guard).is_ok();
        assert!(is_first, "a volume has one guard");
    }

    /// Tells the guard alone: before anybody is answered who may act on what has changed.
    pub(crate) fn tell_guard(&self) {
        if let Some(guard) = self.guard.get() {
            guard.look();
        }
    }

    /// Whether others than this thread write now.
    pub(crate) fn is_shared_now(&self) -> bool {
        self.guard.get().is_some_and(|guard| guard.is_shared_now())
    }

    /// Waits until others have given everything back. The door must be shut, and stay so.
    pub(crate) async fn all_back(&self) {
        self.tell_guard();
        let is_back = || self.guard.get().is_none_or(|guard| guard.is_all_back());
        self.changed.until(is_back).await;
    }

    /// Something of state, doubt or settings has changed: the guard looks, then everybody who waits.
    pub(crate) fn note_change(&self) {
        self.tell_guard();
        self.changed.notify();
    }

    /// The signal that something has changed.
    pub(crate) fn changed(&self) -> &Signal {
        &self.changed
    }

    /// Waits for the next change.
    pub(crate) fn changes(&self) -> Changed<'_> {
        self.changed.changed()
    }

    /// Something the outside should hear about, once.
    pub(crate) fn announce(&self, announcement: Announcement) {
        let mut queue = self.announcements.borrow_mut();
        if queue.len() == ANNOUNCEMENTS_MAX {
            queue.pop_front();
        }
        queue.push_back(announcement);
        drop(queue);
        self.announced.notify();
    }

    /// Whether something waits to be heard about.
    pub(crate) fn has_announcement(&self) -> bool {
        !self.announcements.borrow().is_empty()
    }

    /// What was announced and nobody has fetched; the oldest.
    pub(crate) fn take_announcement(&self) -> Option<Announcement> {
        self.announcements.borrow_mut().pop_front()
    }

    /// The next thing that was announced. One task only.
    pub(crate) async fn next_announcement(&self) -> Announcement {
        loop {
            if let Some(announcement) = self.take_announcement() {
                return announcement;
            }
            self.announced.changed().await;
        }
    }

    /// Where the bytes from `at` on are.
    pub(crate) fn spot(&self, at: u64) -> Spot<'_> {
        match self.geometry.organisation() {
            Organisation::Linear | Organisation::Raid0(_) => Spot::Flat(self.geometry.locate(at)),
            Organisation::Raid1 | Organisation::Raid10(_) => {
                Spot::Copies(self.geometry.copies_of(at))
            }
            _ => {
                let (row, in_row) = self.geometry.row_of(at);
                let strip = self.geometry.strip_bytes();
                let start = in_row % strip;
                Spot::Row {
                    row,
                    index: usize::try_from(in_row / strip).expect("a row has few strips"),
                    start,
                    length_bytes: strip - start,
                }
            }
        }
    }

    /// Bytes from `at` to the end of its strip: what one piece of a read may cover.
    pub(crate) fn contiguous_bytes(&self, at: u64) -> u64 {
        match self.geometry.organisation() {
            Organisation::Raid1 => self.size_bytes() - at,
            _ => self.spot(at).length_bytes(),
        }
    }

    /// Whether this organisation keeps copies.
    pub(crate) fn has_copies(&self) -> bool {
        matches!(
            self.geometry.organisation(),
            Organisation::Raid1 | Organisation::Raid10(_)
        )
    }

    /// Exponents for Q of a row; of the other layout family with `WrongQOrder`, turned round with `WrongQCoefficient`.
    pub(crate) fn q_exponents(&self, row: &Row) -> Exponents {
        let mut exponents = row.exponents();
        if self.has(Mutant::WrongQCoefficient) {
            exponents.reverse();
        }
        if self.has(Mutant::WrongQOrder) {
            let in_order: Exponents = (0..row.map.data_count() as u8).collect();
            exponents = if exponents == in_order {
                (0..row.map.data_count())
                    .map(|index| row.map.data_slot(index) as u8)
                    .collect()
            } else {
                in_order
            };
        }
        exponents
    }
}
