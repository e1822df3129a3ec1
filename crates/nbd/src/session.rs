//! The transmission phase of one connection: many requests in flight, answered in batches.
//!
//! One session is one future. Its parts (`receive`, `send`, `watch`, and one worker for each request in flight) are
//! polled only when woken; what carries a request out, and what a client may have under way, is `front`'s.
//!
//! Invariants:
//! - each admitted request holds a tag and memory of the budget until its answer was sent, and gets exactly one answer;
//! - the receiver reads no further when tags or memory are used up: a client that reads no answers stops only itself;
//! - everything one receive brought is started before anything is sent; what is ready then goes out in one send;
//! - a client that is to leave is admitted nothing new; one that is fenced is cut off at once;
//! - requests are never cancelled: `run` returns when the last one has ended, whatever became of the connection,
//!   so that a successor of a dead connection finds none of its writes still running (nbd.md section 9);
//! - an unfinished payload is not written.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::IoError;
use plexum_front::client::Client;
use plexum_front::export::{Export, ZeroRequest};
use plexum_front::exports::Visit;
use plexum_front::parts::Parts;
use plexum_front::peer::{Patience, Peer};
use plexum_front::perform::{Command, Job, Outcome, Performed, Performer};
use plexum_front::requests::{RequestLimits, Tag};

use crate::error::NbdError;
use crate::negotiate::Agreed;
use crate::transport::Transport;
use crate::wire::Errno;

pub mod judge;
mod receive;
mod send;
mod watch;

/// Parts that every session has; workers follow.
const PART_RECEIVE: usize = 0;
const PART_SEND: usize = 1;
const PART_WATCH: usize = 2;
const PARTS: usize = 3;

/// Limits of one session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionLimits {
    /// What it may have in flight.
    pub requests: RequestLimits,
    /// How long the client is waited for.
    pub patience: Patience,
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

/// What a request is answered with besides what it came to.
struct Asked {
    cookie: u64,
    is_read: bool,
    is_status: bool,
}

/// An answer on its way.
struct Answer {
    asked: Asked,
    offset_bytes: u64,
    body: Result<Outcome, (Errno, &'static str)>,
    tag: Tag,
}

/// Everything a session is made of; see `run`.
pub(crate) struct Session<'a, T, E, C> {
    pub(crate) transport: &'a T,
    pub(crate) export: &'a E,
    pub(crate) client: &'a Client,
    pub(crate) clock: &'a C,
    pub(crate) agreed: &'a Agreed,
    pub(crate) limits: SessionLimits,
    pub(crate) pool: &'a BufPool,
    performer: Performer<'a, E, Asked>,
    parts: Arc<Parts>,
    /// Answers that wait to be sent. Never borrowed across an await.
    outbox: RefCell<VecDeque<Answer>>,
    counts: Cell<SessionCounts>,
    /// Set with the reason when receiving has ended.
    received: Cell<Option<Result<Ended, NbdError>>>,
    has_received: Cell<bool>,
    is_sent: Cell<bool>,
    /// Set by `watch` when it ended the session.
    verdict: Cell<Option<Result<Ended, NbdError>>>,
    peer: Peer,
}

impl<'a, T: Transport, E: Export, C: Clock> Session<'a, T, E, C> {
    pub(crate) fn new(
        transport: &'a T,
        visit: &'a Visit<E>,
        clock: &'a C,
        agreed: &'a Agreed,
        limits: SessionLimits,
        pool: &'a BufPool,
    ) -> Self {
        Self {
            transport,
            export: visit.export(),
            client: visit.client(),
            clock,
            agreed,
            limits,
            pool,
            performer: Performer::new(visit.export(), visit.client()),
            parts: Parts::new(),
            outbox: RefCell::default(),
            counts: Cell::default(),
            received: Cell::new(None),
            has_received: Cell::new(false),
            is_sent: Cell::new(false),
            verdict: Cell::new(None),
            peer: Peer::default(),
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
                    let answer = |performed| self.answer_performed(performed);
                    workers.push(Box::pin(self.performer.work(workers.len(), answer)));
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
        assert!(self.performer.is_idle(), "no request outlives its session");
        let how = self.verdict.take().or(self.received.take());
        let how = how.expect("a session that is over has a reason");
        (how, self.counts.get())
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
        self.performer.give_up();
        self.transport.close();
    }

    fn start(&self, job: Job<Asked>) {
        let worker = self.performer.start(job);
        self.parts.wake(PARTS + worker);
    }

    /// Leaves the answer to a request that was carried out in the outbox.
    fn answer_performed(&self, performed: Performed<Asked>) {
        let command = performed.command;
        let is_fast_zero = matches!(
            command,
            Command::Zero(ZeroRequest {
                only_if_fast: true,
                ..
            })
        );
        let body = performed.result.map_err(|error| {
            let errno = Errno::from_io(error, is_fast_zero);
            (errno, words(error))
        });
        if body.is_ok() {
            self.count(|counts| match command {
                Command::Read => counts.read_bytes += performed.length_bytes,
                Command::Write(_) => counts.written_bytes += performed.length_bytes,
                _ => {}
            });
        }
        self.answer(Answer {
            asked: performed.key,
            offset_bytes: performed.offset_bytes,
            body,
            tag: performed.tag,
        });
    }

    fn answer(&self, answer: Answer) {
        self.count(|counts| {
            counts.requests += 1;
            counts.errors += u64::from(answer.body.is_err());
        });
        let mut outbox = self.outbox.borrow_mut();
        outbox.push_back(answer);
        if outbox.len() == 1 {
            self.parts.wake(PART_SEND); // which takes all that is there by then
        }
    }

    fn count(&self, change: impl FnOnce(&mut SessionCounts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}

/// Words for people about an error of the engine; what exactly failed stays in the server's log.
fn words(error: IoError) -> &'static str {
    match error {
        IoError::NoSpace => "no space is left under the volume",
        IoError::ReadOnly => "the volume is read-only",
        IoError::Unsupported => "not faster than writing zeroes",
        IoError::OutOfRange => "the range is outside of the volume",
        IoError::Failed => "more members are lost than the volume survives",
        _ => "the volume cannot read or write this range",
    }
}
