//! The requests that a volume has under way, and what makes new ones wait.
//!
//! Invariant: a write is counted from before it is marked until it has ended on all members, so that "none under way"
//! means that a flush covers everything.

use std::cell::Cell;
use std::rc::Rc;

use crate::array::Array;
use crate::base::Base;
use crate::mutant::Mutant;
use crate::stage::{RequestInfo, RequestKind, Requests, Tag};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, IoError};
use plexum_block::wait::{Gauge, GaugeGuard};

/// The entry of requests. One thread owns it.
pub(crate) struct Traffic<D: Device, C> {
    base: Rc<Base<C>>,
    array: Rc<Array<D, C>>,
    requests: Requests,
    writes: Rc<Gauge>,
    write_count: Cell<u64>,
    last_request: Cell<Moment>,
    /// The bitmap or a log is being turned on or off: new writes wait.
    is_switching: Cell<bool>,
    /// What the start decided about the members is not durable yet: reads wait for it.
    reads_wait: Cell<bool>,
}

impl<D: Device, C: Clock> Traffic<D, C> {
    /// Nothing is under way. `reads_wait`: until somebody calls `let_read`.
    pub(crate) fn new(base: Rc<Base<C>>, array: Rc<Array<D, C>>, reads_wait: ReadsWait) -> Self {
        Self {
            base,
            array,
            requests: Requests::default(),
            writes: Rc::default(),
            write_count: Cell::new(0),
            last_request: Cell::default(),
            is_switching: Cell::new(false),
            reads_wait: Cell::new(reads_wait == ReadsWait::Yes),
        }
    }

    /// A request begins; it ends with its tag.
    #[inline]
    pub(crate) fn begin(
        &self,
        kind: RequestKind,
        offset_bytes: u64,
        length_bytes: u64,
        now: Moment,
    ) -> Tag<'_> {
        self.requests.begin(kind, offset_bytes, length_bytes, now)
    }

    /// Requests that are being carried out, oldest first.
    pub(crate) fn list(&self) -> Vec<RequestInfo> {
        self.requests.list()
    }

    /// A write begins, which came at `now`, and is under way until the guard is dropped. W1: the array is durably dirty
    /// before the first one.
    ///
    /// # Errors
    /// `ReadOnly`, and `Failed` when the array is frozen.
    pub(crate) async fn enter_write(&self, now: Moment) -> Result<GaugeGuard, IoError> {
        self.base.check_writable()?;
        if self.is_switching() {
            let is_over = || !self.is_switching();
            Box::pin(self.base.changed().until(is_over)).await;
        }
        let guard = self.writes.enter();
        self.note_request(now);
        self.count_write();
        if !self.base.has_redundancy() {
            return Ok(guard);
        }
        if !self.array.is_marked_dirty() && !self.base.has(Mutant::DirtyMarkAfterData) {
            // Boxed: what is seldom needed does not make every write larger.
            Box::pin(self.array.make_dirty()).await?;
        }
        Ok(guard)
    }

    /// A write has begun or ended: whoever compares the count sees that something was written meanwhile.
    #[inline]
    pub(crate) fn count_write(&self) {
        self.write_count.set(self.write_count.get() + 1);
    }

    /// How often a write has begun or ended.
    pub(crate) fn write_count(&self) -> u64 {
        self.write_count.get()
    }

    /// Writes under way.
    pub(crate) fn writes_under_way(&self) -> u64 {
        self.writes.count()
    }

    /// Waits until no write is under way.
    pub(crate) async fn no_writes(&self) {
        self.writes.empty().await;
    }

    /// A client has asked for something.
    #[inline]
    pub(crate) fn note_request(&self, now: Moment) {
        self.last_request.set(now);
    }

    /// When a client last asked for something.
    pub(crate) fn last_request(&self) -> Moment {
        self.last_request.get()
    }

    /// Whether new writes wait for a switch of bitmap or log.
    #[inline]
    pub(crate) fn is_switching(&self) -> bool {
        self.is_switching.get()
    }

    /// New writes wait until `end_switch`.
    pub(crate) fn begin_switch(&self) {
        assert!(!self.is_switching.get(), "one switch at a time");
        self.is_switching.set(true);
    }

    /// Writes go on.
    pub(crate) fn end_switch(&self) {
        assert!(self.is_switching.get(), "a switch ends once");
        self.is_switching.set(false);
    }

    /// Whether reads wait for the first commit.
    #[inline]
    pub(crate) fn reads_wait(&self) -> bool {
        self.reads_wait.get()
    }

    /// That commit is durable.
    pub(crate) fn let_read(&self) {
        self.reads_wait.set(false);
    }
}

/// Whether reads wait for the first commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadsWait {
    /// What the start decided is not durable yet.
    Yes,
    /// Every member says the same.
    No,
}
