//! The transmission phase of one connection: many requests in flight, answered in batches.
//!
//! One session is one future. Its parts (`receive`, `send`, `watch`, and one worker for each request in flight) are
//! polled only when woken, see `parts.rs`; workers live as long as the session and take one job after the other.
//!
//! Invariants:
//! - each admitted request holds a tag and memory of the budget until its answer was sent, and gets exactly one answer;
//! - the receiver reads no further when tags or memory are used up: a client that reads no answers stops only itself;
//! - everything one receive brought is started before anything is sent; what is ready then goes out in one send;
//! - requests are never cancelled: `run` returns when the last one has ended, whatever became of the connection,
//!   so that a successor of a dead connection finds none of its writes still running (nbd.md section 9);
//! - an unfinished payload is not written.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::clock::Clock;

use crate::budget::{Budget, Permit};
use crate::error::NbdError;
use crate::export::{Export, Extent};
use crate::negotiate::Agreed;
use crate::parts::Parts;
use crate::signal::Signal;
use crate::transport::Transport;
use crate::wire::Errno;

mod execute;
pub mod judge;
mod receive;
mod send;
mod watch;

use judge::Command;

/// Parts that every session has; workers follow.
const PART_RECEIVE: usize = 0;
const PART_SEND: usize = 1;
const PART_WATCH: usize = 2;
const PARTS: usize = 3;

/// Memory in bytes that a request is reckoned with besides its data.
const REQUEST_BYTES: u64 = 512;

/// Limits of one session.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Requests in flight.
    pub requests_max: usize,
    /// Bytes of requests in flight; one larger request is admitted when nothing else is.
    pub bytes_max: u64,
    /// How long a client may neither send nor read while others wait for the memory it holds; at least a second.
    pub stall: Duration,
    /// How long answers are still sent after the client has ended the session.
    pub linger: Duration,
}

impl Default for SessionLimits {
    fn default() -> Self {
        Self {
            requests_max: 128,
            bytes_max: 72 << 20,
            stall: Duration::from_secs(30),
            linger: Duration::from_secs(10),
        }
    }
}

/// How a session came to its regular end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The client said so.
    Disconnected,
    /// The stream ended between two requests.
    HungUp,
    /// The client ended the handshake.
    Aborted,
    /// The server is stopping, or the export was removed.
    Stopped,
}

/// What a session did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Requests answered.
    pub requests: u64,
    /// Data bytes read by the client.
    pub read_bytes: u64,
    /// Data bytes written by the client.
    pub written_bytes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Sends; the requests divided by them say how well batches work.
    pub sends: u64,
}

/// One request that may run.
struct Job {
    command: Command,
    cookie: u64,
    offset_bytes: u64,
    length_bytes: u64,
    /// Of writes.
    data: Option<Buf>,
    tag: Tag,
}

/// A place among the requests in flight, with its memory.
struct Tag {
    bytes: u64,
    _permit: Permit,
}

/// An answer on its way.
struct Answer {
    cookie: u64,
    offset_bytes: u64,
    is_read: bool,
    is_status: bool,
    body: Result<Body, (Errno, &'static str)>,
    tag: Tag,
}

enum Body {
    Nothing,
    Data(Rope),
    Extents(Vec<Extent>),
}

/// State that the parts share. Never borrowed across an await.
#[derive(Default)]
struct Shared {
    /// A job for each worker, taken by it when it is polled.
    desks: Vec<Option<Job>>,
    idle: Vec<usize>,
    outbox: VecDeque<Answer>,
    /// Requests admitted and not yet answered, with their bytes.
    tags: usize,
    tags_bytes: u64,
    /// Requests being executed.
    running: usize,
    counts: SessionCounts,
}

/// Everything a session is made of; see `run`.
pub(crate) struct Session<'a, T, E, C> {
    pub(crate) transport: &'a T,
    pub(crate) export: &'a E,
    pub(crate) clock: &'a C,
    pub(crate) agreed: &'a Agreed,
    pub(crate) limits: SessionLimits,
    pub(crate) pool: &'a BufPool,
    pub(crate) budget: &'a Budget,
    /// Set when the server stops or the export is removed.
    pub(crate) stop: [&'a Signal; 2],
    parts: Arc<Parts>,
    shared: RefCell<Shared>,
    /// Set with the reason when receiving has ended.
    received: Cell<Option<Result<Ended, NbdError>>>,
    has_received: Cell<bool>,
    is_sent: Cell<bool>,
    is_cut: Cell<bool>,
    /// Set by `watch` when it ended the session.
    verdict: Cell<Option<Result<Ended, NbdError>>>,
    /// How often the peer took or gave something; and how many parts wait for it right now.
    moves: Cell<u64>,
    waits_for_peer: Cell<usize>,
    waits_for_memory: Cell<bool>,
}

impl<'a, T: Transport, E: Export, C: Clock> Session<'a, T, E, C> {
    #[allow(clippy::too_many_arguments)] // the parts of a struct, put together in one place
    pub(crate) fn new(
        transport: &'a T,
        export: &'a E,
        clock: &'a C,
        agreed: &'a Agreed,
        limits: SessionLimits,
        pool: &'a BufPool,
        budget: &'a Budget,
        stop: [&'a Signal; 2],
    ) -> Self {
        Self {
            transport,
            export,
            clock,
            agreed,
            limits,
            pool,
            budget,
            stop,
            parts: Parts::new(),
            shared: RefCell::default(),
            received: Cell::new(None),
            has_received: Cell::new(false),
            is_sent: Cell::new(false),
            is_cut: Cell::new(false),
            verdict: Cell::new(None),
            moves: Cell::new(0),
            waits_for_peer: Cell::new(0),
            waits_for_memory: Cell::new(false),
        }
    }

    /// Serves until the end of the session. `leftover` are bytes that came right behind the handshake.
    ///
    /// # Errors
    /// Why the session ended before its time.
    pub(crate) async fn run(&self, leftover: &[u8]) -> (Result<Ended, NbdError>, SessionCounts) {
        let mut receive = pin!(self.receive(leftover));
        let mut send = pin!(self.send());
        let mut watch = pin!(self.watch());
        let mut workers = Vec::new();
        let mut wakers: Vec<_> = (0..PARTS).map(|part| self.parts.waker(part)).collect();
        let mut is_watching = true;
        for part in 0..PARTS {
            self.parts.wake(part);
        }
        poll_fn(|cx| {
            self.parts.poll(cx, |part| {
                while wakers.len() <= part {
                    wakers.push(self.parts.waker(wakers.len()));
                    workers.push(Box::pin(self.work(workers.len())));
                }
                let mut cx = Context::from_waker(&wakers[part]);
                match part {
                    PART_RECEIVE if !self.has_received.get() => {
                        if let Poll::Ready(how) = receive.as_mut().poll(&mut cx) {
                            self.end_receiving(how);
                        }
                    }
                    PART_SEND if !self.is_sent.get() => {
                        if let Poll::Ready(()) = send.as_mut().poll(&mut cx) {
                            self.is_sent.set(true);
                        }
                    }
                    PART_WATCH if is_watching => {
                        is_watching = watch.as_mut().poll(&mut cx).is_pending();
                    }
                    PART_RECEIVE | PART_SEND | PART_WATCH => {}
                    worker => {
                        let Poll::Pending = workers[worker - PARTS].as_mut().poll(&mut cx);
                    }
                }
                !self.is_over()
            });
            if self.is_over() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
        self.transport.close();
        assert_eq!(
            self.shared.borrow().running,
            0,
            "no request outlives its session"
        );
        let how = self.verdict.take().or(self.received.take());
        let how = how.expect("a session that is over has a reason");
        (how, self.shared.borrow().counts)
    }

    fn is_over(&self) -> bool {
        // `send` goes on, if only to drop answers, until nothing is running.
        self.has_received.get() && self.is_sent.get()
    }

    fn end_receiving(&self, how: Result<Ended, NbdError>) {
        self.received.set(Some(how));
        self.has_received.set(true);
        self.parts.wake(PART_SEND);
        self.parts.wake(PART_WATCH);
    }

    /// Ends the stream now: pending reads and writes of it return.
    fn cut(&self) {
        self.is_cut.set(true);
        self.transport.close();
    }

    /// Whether the server stops or the export is removed.
    fn is_stopping(&self) -> bool {
        self.stop.iter().any(|signal| signal.is_set())
    }

    /// Waits for a tag and `data_bytes` of memory. While it waits, nothing is read from the client.
    async fn admit(&self, data_bytes: u64) -> Tag {
        let bytes = data_bytes + REQUEST_BYTES; // data are at most 2^25
        poll_fn(|_| {
            let shared = self.shared.borrow();
            let fits = shared.tags == 0
                || (shared.tags < self.limits.requests_max
                    && shared.tags_bytes + bytes <= self.limits.bytes_max);
            // `release` wakes this part.
            if fits { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let holds_nothing = self.shared.borrow().tags == 0;
        self.waits_for_memory.set(true);
        let permit = self.budget.acquire(bytes, holds_nothing).await;
        self.waits_for_memory.set(false);
        let mut shared = self.shared.borrow_mut();
        shared.tags += 1;
        shared.tags_bytes += bytes;
        Tag {
            bytes,
            _permit: permit,
        }
    }

    fn release(&self, tags: impl IntoIterator<Item = Tag>) {
        for tag in tags {
            let mut shared = self.shared.borrow_mut();
            assert!(shared.tags > 0, "a tag is given back once");
            shared.tags -= 1;
            shared.tags_bytes -= tag.bytes;
            drop(shared);
            drop(tag);
        }
        self.parts.wake(PART_RECEIVE);
        if self.is_stopping() {
            self.parts.wake(PART_WATCH);
        }
    }

    fn start(&self, job: Job) {
        let mut shared = self.shared.borrow_mut();
        shared.running += 1;
        let desk = shared.idle.pop().unwrap_or_else(|| {
            shared.desks.push(None);
            shared.desks.len() - 1
        });
        assert!(shared.desks[desk].is_none(), "an idle worker has no job");
        shared.desks[desk] = Some(job);
        drop(shared);
        self.parts.wake(PARTS + desk);
    }

    fn answer(&self, answer: Answer) {
        let mut shared = self.shared.borrow_mut();
        shared.counts.requests += 1;
        shared.counts.errors += u64::from(answer.body.is_err());
        shared.outbox.push_back(answer);
        let is_first = shared.outbox.len() == 1;
        drop(shared);
        if is_first {
            self.parts.wake(PART_SEND); // which takes all that is there by then
        }
    }

    /// Marks what happens inside as waiting for the peer, and its end as a move of the peer.
    async fn with_peer<R>(&self, wait: impl Future<Output = R>) -> R {
        self.waits_for_peer.set(self.waits_for_peer.get() + 1);
        let result = wait.await;
        self.waits_for_peer.set(self.waits_for_peer.get() - 1);
        self.moves.set(self.moves.get() + 1);
        result
    }
}
