//! One virtual machine and its disk: messages are answered, rings are worked on, until the connection ends.
//!
//! One session is one future. Its parts (messages, the end, the size, each queue, and one worker for each request) are
//! polled only when woken; what carries a request out, and what a client may have under way, is `front`'s.
//!
//! Invariants:
//! - a request takes memory of the budget before its data are looked at, in the order of arrival;
//! - the data of a write are copied once, before anybody computes with them: a guest may change them meanwhile;
//! - a ring that breaks the rules is not worked on until it is set up anew; other rings, and other clients, go on;
//! - a ring that is stopped has nothing under way when that is answered;
//! - when the connection has ended nothing more is written to the machine's memory: what was under way is done again by
//!   the next session, which does not begin before this one is over;
//! - requests are never cancelled: `run` returns when the last one has ended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::wait::Mutex;
use plexum_front::client::Client;
use plexum_front::export::Export;
use plexum_front::exports::Visit;
use plexum_front::parts::Parts;
use plexum_front::perform::Performer;

use crate::config::{QUEUES_MAX, Shape};
use crate::peer::{Backend, Peer, PeerError};
use crate::wire::{WireError, config_change};

mod control;
mod machine;
mod queue;
mod work;

use machine::Machine;
use work::Desks;

const PART_CONTROL: usize = 0;
const PART_LEAVE: usize = 1;
const PART_LATE: usize = 2;
const PART_SIZE: usize = 3;
/// Queues follow, then workers.
const PART_QUEUES: usize = 4;
const PART_WORKERS: usize = PART_QUEUES + QUEUES_MAX as usize;

/// How long a connection may say nothing at its beginning: it keeps others from the disk.
const SILENCE: Duration = Duration::from_secs(10);

/// How a session came to its regular end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The front end has closed the connection.
    HungUp,
    /// The server is stopping, or the export was closed.
    Stopped,
}

/// Why a session ended before its time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The connection has failed.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// Bytes that are no message.
    #[error("what came is no message of vhost-user: {0}")]
    Wire(#[from] WireError),
    /// A message cannot be followed, and its sender does not want to know.
    #[error("request {request} cannot be followed: {reason}")]
    Refused {
        /// Its number.
        request: u32,
        /// Why.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("nothing was said for {} seconds", SILENCE.as_secs())]
    Silent,
}

/// One machine, served for one client of an export.
pub struct Session<'a, P: Peer, E, C> {
    peer: &'a P,
    export: &'a E,
    client: &'a Client,
    clock: &'a C,
    pool: &'a BufPool,
    shape: Shape,
    /// Is told what somebody should know of it.
    tell: &'a dyn Fn(String),
    performer: Performer<'a, E, ()>,
    parts: Arc<Parts>,
    admission: Mutex,
    /// Never borrowed across an await.
    machine: RefCell<Machine<P>>,
    desks: RefCell<Desks>,
    /// Queues whose guest may have to be told.
    given_back: RefCell<Vec<usize>>,
    /// Heads that were taken from rings and not given back.
    under_way: Cell<usize>,
    has_spoken: Cell<bool>,
    is_leaving: Cell<bool>,
    /// Nothing more is taken or given back.
    is_cut: Cell<bool>,
    verdict: Cell<Option<Result<Ended, SessionError>>>,
    has_ended: Cell<bool>,
}

impl<'a, P: Peer, E: Export, C: Clock> Session<'a, P, E, C> {
    /// A session that has not begun. `tell` is called with what the log should know.
    #[must_use]
    pub fn new(
        peer: &'a P,
        visit: &'a Visit<E>,
        clock: &'a C,
        pool: &'a BufPool,
        shape: Shape,
        tell: &'a dyn Fn(String),
    ) -> Self {
        Self {
            peer,
            export: visit.export(),
            client: visit.client(),
            clock,
            pool,
            shape,
            tell,
            performer: Performer::new(visit.export(), visit.client()),
            parts: Parts::new(),
            admission: Mutex::new(),
            machine: RefCell::new(Machine::new()),
            desks: RefCell::default(),
            given_back: RefCell::default(),
            under_way: Cell::new(0),
            has_spoken: Cell::new(false),
            is_leaving: Cell::new(false),
            is_cut: Cell::new(false),
            verdict: Cell::new(None),
            has_ended: Cell::new(false),
        }
    }

    /// Serves until the connection ends, or the client was told to leave; closes it.
    ///
    /// # Errors
    /// Why it ended before its time: for the log, nobody has to act.
    pub async fn run(&self) -> Result<Ended, SessionError> {
        let mut control = pin!(self.control());
        let mut leave = pin!(self.watch_for_end());
        let mut late = pin!(self.watch_silence());
        let mut size = pin!(self.watch_size());
        let mut others: BTreeMap<usize, Pin<Box<dyn Future<Output = ()> + '_>>> = BTreeMap::new();
        for part in [PART_CONTROL, PART_LEAVE, PART_LATE, PART_SIZE] {
            self.parts.wake(part);
        }
        poll_fn(|cx| {
            self.parts.poll(cx, |part| {
                let waker = self.parts.waker(part);
                let cx = &mut Context::from_waker(&waker);
                match part {
                    PART_CONTROL if !self.has_ended.get() => {
                        if let Poll::Ready(how) = control.as_mut().poll(cx) {
                            self.end(how);
                        }
                    }
                    PART_LEAVE => drop(leave.as_mut().poll(cx)),
                    PART_LATE => drop(late.as_mut().poll(cx)),
                    PART_SIZE => drop(size.as_mut().poll(cx)),
                    PART_CONTROL => {}
                    part => {
                        let other = others.entry(part).or_insert_with(|| self.part(part));
                        let _ = other.as_mut().poll(cx); // they never end
                    }
                }
                !self.is_over()
            });
            self.tell_guests();
            match self.is_over() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.peer.close();
        assert_eq!(
            self.client.requests().with_export(),
            0,
            "no request outlives its session"
        );
        let how = self.verdict.take();
        how.expect("a session that is over has a reason")
    }

    fn part(&self, part: usize) -> Pin<Box<dyn Future<Output = ()> + '_>> {
        match part.checked_sub(PART_WORKERS) {
            Some(worker) => Box::pin(self.work(worker)),
            None => Box::pin(self.serve_queue(part - PART_QUEUES)),
        }
    }

    fn is_over(&self) -> bool {
        self.has_ended.get() && self.desks.borrow().are_idle()
    }

    /// Messages have ended.
    fn end(&self, how: Result<Ended, SessionError>) {
        self.has_ended.set(true);
        self.conclude(how);
    }

    /// Ends the connection now: nothing more is taken or given back.
    fn cut(&self) {
        self.is_cut.set(true);
        self.performer.give_up();
        self.peer.close();
        self.parts.wake(PART_CONTROL); // it may wait for a ring
    }

    /// The session is to end; the first reason is the one.
    fn conclude(&self, how: Result<Ended, SessionError>) {
        let first = self.verdict.take();
        self.verdict.set(Some(first.unwrap_or(how)));
        self.cut();
    }

    /// Waits until the client is to leave, and until what it has under way is answered, unless it is fenced.
    async fn watch_for_end(&self) {
        self.client.leaving().await;
        self.is_leaving.set(true);
        let mut fenced = pin!(self.client.fenced());
        poll_fn(|cx| {
            let is_fenced = fenced.as_mut().poll(cx).is_ready();
            match is_fenced || self.under_way.get() == 0 {
                true => Poll::Ready(()),
                false => Poll::Pending, // `forget_head` wakes this part
            }
        })
        .await;
        self.tell_guests(); // of the last answers, before the connection ends
        self.conclude(Ok(Ended::Stopped));
        std::future::pending().await
    }

    async fn watch_silence(&self) {
        self.clock.sleep(SILENCE).await;
        if !self.has_spoken.get() {
            self.conclude(Err(SessionError::Silent));
        }
        std::future::pending().await
    }

    /// Tells the front end of each new size.
    async fn watch_size(&self) {
        let mut known_bytes = self.export.info().size_bytes;
        loop {
            known_bytes = self.export.resized(known_bytes).await;
            if let Some(backend) = &self.machine.borrow().backend {
                backend.send(&config_change());
            }
        }
    }
}
