//! The requests of one client that are under way: their tags, their memory, and how many are with the export.
//!
//! Invariants:
//! - each admitted request holds a [`Tag`] until it was answered; the tags add up to what is counted here;
//! - a client that is at its limits, or that the budget has no memory for, is admitted nothing: its server reads no
//!   further, so that it stops only itself;
//! - one request that is larger than the limit is admitted when nothing else is.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::budget::{Budget, Holds, Permit};

/// Memory in bytes that a request is reckoned with besides its data.
pub const REQUEST_BYTES: u64 = 512;

/// What one client may have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Requests.
    pub requests_max: usize,
    /// Their bytes; one larger request is admitted when nothing else is.
    pub bytes_max: u64,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            requests_max: 128,
            bytes_max: 72 << 20,
        }
    }
}

/// The requests of one client.
pub struct Requests {
    limits: RequestLimits,
    budget: Budget,
    tags: Cell<usize>,
    bytes: Cell<u64>,
    with_export: Cell<usize>,
    waits_for_memory: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// The place of one request among those under way, with its memory. Given back by `drop`, once it was answered.
pub struct Tag {
    requests: Rc<Requests>,
    bytes: u64,
    _permit: Permit,
}

/// A request that is with the export, until this is dropped.
pub struct WithExport<'a>(&'a Requests);

impl Requests {
    /// Nothing is under way yet; memory comes from `budget`.
    #[must_use]
    pub fn new(limits: RequestLimits, budget: Budget) -> Self {
        Self {
            limits,
            budget,
            tags: Cell::new(0),
            bytes: Cell::new(0),
            with_export: Cell::new(0),
            waits_for_memory: Cell::new(false),
            waiting: RefCell::default(),
        }
    }

    /// The memory that all clients share.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Requests that were admitted and not yet answered.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.tags.get()
    }

    /// Of these, requests that the export works on.
    #[must_use]
    pub fn with_export(&self) -> usize {
        self.with_export.get()
    }

    /// Whether the client waits for memory of the budget.
    #[must_use]
    pub fn waits_for_memory(&self) -> bool {
        self.waits_for_memory.get()
    }

    /// Waits for a tag and for the memory of `data_bytes`, at most `REQUEST_BYTES_MAX`. One call at a time.
    pub async fn admit(self: &Rc<Self>, data_bytes: u64) -> Tag {
        let bytes = data_bytes + REQUEST_BYTES; // data are at most 2^25
        poll_fn(|cx| self.poll(cx, || self.fits(bytes))).await;
        let holds = match self.tags.get() {
            0 => Holds::Nothing,
            _ => Holds::Something,
        };
        let waiting = WaitsForMemory::begin(&self.waits_for_memory);
        let permit = self.budget.acquire(bytes, holds).await;
        drop(waiting);
        self.tags.set(self.tags.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        Tag {
            requests: Rc::clone(self),
            bytes,
            _permit: permit,
        }
    }

    /// Ready when nothing is under way; else the task of `cx` is woken when a request was answered.
    pub fn poll_empty(&self, cx: &Context<'_>) -> Poll<()> {
        self.poll(cx, || self.tags.get() == 0)
    }

    /// The export begins to work on a request.
    pub fn enter_export(&self) -> WithExport<'_> {
        assert!(
            self.with_export.get() < self.tags.get(),
            "only what was admitted reaches the export"
        );
        self.with_export.set(self.with_export.get() + 1);
        WithExport(self)
    }

    fn fits(&self, bytes: u64) -> bool {
        let tags = self.tags.get();
        tags == 0
            || (tags < self.limits.requests_max
                && self.bytes.get() + bytes <= self.limits.bytes_max)
    }

    fn poll(&self, cx: &Context<'_>, condition: impl Fn() -> bool) -> Poll<()> {
        if condition() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn wake(&self) {
        if self.waiting.borrow().is_empty() {
            return;
        }
        for waker in self.waiting.take() {
            waker.wake();
        }
    }
}

/// A wait for memory, which may be given up.
struct WaitsForMemory<'a>(&'a Cell<bool>);

impl<'a> WaitsForMemory<'a> {
    fn begin(waits: &'a Cell<bool>) -> Self {
        waits.set(true);
        Self(waits)
    }
}

impl Drop for WaitsForMemory<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        let requests = &self.requests;
        assert!(requests.tags.get() > 0, "a tag is given back once");
        requests.tags.set(requests.tags.get() - 1);
        requests.bytes.set(requests.bytes.get() - self.bytes);
        requests.wake();
    }
}

impl Drop for WithExport<'_> {
    fn drop(&mut self) {
        self.0.with_export.set(self.0.with_export.get() - 1);
    }
}
