//! An I/O queue: many requests under way, answered in batches.
//!
//! One session is one future. Its parts (receiving, sending, watching, admitting, and one worker for each request with
//! the export) are polled only when woken. What carries a request out, and what a host may have under way, is
//! `front`'s.
//!
//! Invariants:
//! - receiving never waits for memory: a command that came waits in the backlog, which is as long as the queue at
//!   most, and data in capsules have memory of their own. Data that were asked for come behind other commands, so a
//!   receiver that waited would wait for itself;
//! - data of a write are asked for when there is memory for them, and not before;
//! - each request that was admitted holds a tag until its answer was sent, and gets exactly one answer;
//! - a client that is to leave is admitted nothing new: what it sends is neither done nor answered, so that its host
//!   does it elsewhere or later;
//! - requests are never cancelled: `run` returns when the last one has ended, whatever became of the connection;
//! - data that came incomplete or damaged are not written.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};

use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::Clock;
use plexum_block::device::IoError;
use plexum_front::client::Client;
use plexum_front::expecting::Expecting;
use plexum_front::export::Export;
use plexum_front::peer::{Cut, Patience, Waiting, Watch};
use plexum_front::perform::{self, Job, Outcome, Performed, Performer};
use plexum_front::receive::Receiver;
use plexum_front::requests::Tag;
use plexum_front::transport::Transport;

use super::{PART_ADMIT, PART_RECEIVE, PART_WATCH};
use crate::controller::{Controller, Subsystem};
use crate::error::{Ended, NvmeError};
use crate::judge::{Purpose, Span, Verdict, judge, spans_of};
use crate::link::{Answer, Arrived, Intact, Link, Out, PART_SEND, next_pdu, receive_data};
use crate::wire::command::{Command, FABRICS};
use crate::wire::fabrics::Fabrics;
use crate::wire::pdu::{Kind, Reason, Transfer};
use crate::wire::status::Status;

/// Parts before the workers.
const PARTS: usize = 4;

/// What a request is answered with besides what it came to, and what of it is still to be done.
struct Asked {
    id: u16,
    /// Ranges that follow, the next one last.
    rest: Vec<Span>,
}

/// A command that waits to be admitted.
struct Pending {
    id: u16,
    what: What,
}

enum What {
    Run(perform::Command, Span),
    /// The data came with it.
    Use(Purpose, Buf),
    /// The data are to be asked for.
    Fetch(Purpose, u32),
}

/// Data of a command that were asked for.
struct Incoming<'a, E: Export> {
    id: u16,
    purpose: Purpose,
    data: BufMut,
    filled: usize,
    intact: Intact,
    tag: Tag,
    expecting: Option<Expecting<'a, E>>,
    _waiting: Waiting<'a>,
}

/// Everything an I/O queue's session is made of; see `run`.
pub(crate) struct IoQueue<'a, T, E: Export, C> {
    link: Link<'a, T>,
    controller: &'a Controller<E>,
    subsystem: &'a Subsystem<E>,
    clock: &'a C,
    patience: Patience,
    performer: Performer<'a, E, Asked>,
    backlog: RefCell<VecDeque<Pending>>,
    /// By their tags.
    incoming: RefCell<Vec<Option<Incoming<'a, E>>>>,
    /// Set with the reason when receiving has ended.
    received: Cell<Option<Result<Ended, NvmeError>>>,
    has_received: Cell<bool>,
    is_sent: Cell<bool>,
    /// Set by `watch` when it ended the session.
    verdict: Cell<Option<Result<Ended, NvmeError>>>,
}

impl<'a, T: Transport, E: Export, C: Clock> IoQueue<'a, T, E, C> {
    pub(crate) fn new(
        link: Link<'a, T>,
        controller: &'a Controller<E>,
        subsystem: &'a Subsystem<E>,
        clock: &'a C,
        patience: Patience,
    ) -> Self {
        Self {
            link,
            controller,
            subsystem,
            clock,
            patience,
            performer: Performer::new(subsystem.visit.export(), subsystem.visit.client()),
            backlog: RefCell::default(),
            incoming: RefCell::default(),
            received: Cell::new(None),
            has_received: Cell::new(false),
            is_sent: Cell::new(false),
            verdict: Cell::new(None),
        }
    }

    /// Serves until the end of the queue.
    ///
    /// # Errors
    /// Why it ended before its time.
    pub(crate) async fn run(&self, receiver: &mut Receiver<'a, T>) -> Result<Ended, NvmeError> {
        let parts = &self.link.parts;
        let is_last = || self.has_received.get() && self.performer.is_idle();
        let mut send = pin!(self.link.send(is_last, || self.cut(), || ()));
        let mut receive = pin!(self.receive(receiver));
        let mut watch = pin!(self.watch());
        let mut admit = pin!(self.admit());
        let mut workers = Vec::new();
        let mut wakers: Vec<_> = (0..PARTS).map(|part| parts.waker(part)).collect();
        let mut is_watching = true;
        (0..PARTS).for_each(|part| parts.wake(part));
        poll_fn(|cx| {
            parts.poll(cx, |part| {
                while wakers.len() <= part {
                    wakers.push(parts.waker(wakers.len()));
                    let answer = |performed| self.go_on(performed);
                    workers.push(Box::pin(self.performer.work(workers.len(), answer)));
                }
                let mut cx = Context::from_waker(&wakers[part]);
                match part {
                    PART_SEND if !self.is_sent.get() => {
                        self.is_sent.set(send.as_mut().poll(&mut cx).is_ready());
                    }
                    PART_RECEIVE if !self.has_received.get() => {
                        if let Poll::Ready(how) = receive.as_mut().poll(&mut cx) {
                            self.end_receiving(how);
                        }
                    }
                    PART_WATCH if is_watching => {
                        is_watching = watch.as_mut().poll(&mut cx).is_pending();
                    }
                    PART_ADMIT if !self.has_received.get() => {
                        let Poll::Pending = admit.as_mut().poll(&mut cx);
                    }
                    PART_SEND | PART_RECEIVE | PART_WATCH | PART_ADMIT => {}
                    worker => {
                        let Poll::Pending = workers[worker - PARTS].as_mut().poll(&mut cx);
                    }
                }
                !self.is_over()
            });
            match self.is_over() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.link.transport.close();
        assert!(self.performer.is_idle(), "no request outlives its session");
        let how = self.verdict.take().or(self.received.take());
        let how = how.expect("a session that is over has a reason");
        self.end_controller_for(&how);
        how
    }

    fn client(&self) -> &'a Client {
        self.subsystem.visit.client()
    }

    fn is_over(&self) -> bool {
        // Sending goes on, if only to drop answers, until nothing is running.
        self.has_received.get() && self.is_sent.get()
    }

    /// A host that breaks the rules loses its controller. One that lets go of a queue may want to say goodbye on its
    /// admin queue yet, as Linux does.
    fn end_controller_for(&self, how: &Result<Ended, NvmeError>) {
        if !matches!(how, Ok(_) | Err(NvmeError::Transport(_))) {
            self.controller.ended.set();
        }
    }

    /// What has not begun by now never does.
    fn end_receiving(&self, how: Result<Ended, NvmeError>) {
        self.end_controller_for(&how);
        // Only a host that is told what it did wrong is waited for.
        if !matches!(how, Ok(_) | Err(NvmeError::Fault(_))) {
            self.cut();
        }
        self.received.set(Some(how));
        self.has_received.set(true);
        self.backlog.borrow_mut().clear();
        self.incoming.borrow_mut().clear();
        self.link.parts.wake(PART_SEND);
        self.link.parts.wake(PART_WATCH);
    }

    /// Ends the stream now: pending reads and writes of it return.
    fn cut(&self) {
        self.performer.give_up();
        self.link.transport.close();
    }

    async fn watch(&self) {
        let watch = Watch {
            client: self.client(),
            clock: self.clock,
            peer: self.link.peer,
            has_received: &self.has_received,
            patience: self.patience,
        };
        let mut cut = pin!(watch.until_cut());
        let mut ended = pin!(self.controller.ended.wait());
        let cut = poll_fn(|cx| match ended.as_mut().poll(cx) {
            // Who has ended it himself may still be told why.
            Poll::Ready(()) if !self.has_received.get() => Poll::Ready(Cut::Stopped),
            _ => cut.as_mut().poll(cx),
        });
        match cut.await {
            Cut::Lingered => {}
            Cut::Stopped => self.verdict.set(Some(Ok(Ended::Stopped))),
            Cut::Stalled => self.verdict.set(Some(Err(NvmeError::Stalled))),
        }
        self.cut();
    }

    /// Takes PDUs until the host, the stream or a broken rule ends it.
    async fn receive(&self, receiver: &mut Receiver<'a, T>) -> Result<Ended, NvmeError> {
        loop {
            let arrived = match next_pdu(receiver, self.link.agreed.digests).await {
                Ok(arrived) => arrived,
                Err(why) => return self.link.without_pdu(why),
            };
            self.controller.is_heard.set(true);
            match arrived.frame.kind {
                Kind::Command => {
                    if self.take_command(receiver, &arrived).await? == Goes::End {
                        return Ok(Ended::Disconnected);
                    }
                }
                Kind::HostData => self.take_data(receiver, &arrived).await?,
                _ => return Err(self.link.fault(Reason::Sequence.at(0), arrived.header())),
            }
        }
    }

    async fn take_command(
        &self,
        receiver: &mut Receiver<'a, T>,
        arrived: &Arrived,
    ) -> Result<Goes, NvmeError> {
        let bytes = arrived.part::<64>(8);
        let command = Command::decode(bytes);
        self.link.count_command()?;
        let mut data = self.link.pool.take(arrived.frame.data_bytes);
        if !data.is_empty()
            && receive_data(receiver, &arrived.frame, &mut data).await? == Intact::No
        {
            self.refuse(command.id, Status::TRANSIENT_TRANSPORT);
            return Ok(Goes::On);
        }
        if command.opcode == FABRICS {
            let is_end = Fabrics::decode(bytes) == Fabrics::Disconnect;
            let (status, goes) = match is_end {
                true => (Status::SUCCESS, Goes::End),
                false => (Status::COMMAND_SEQUENCE, Goes::On),
            };
            self.refuse(command.id, status);
            return Ok(goes);
        }
        if self.client().is_leaving() {
            return Ok(Goes::On);
        }
        let info = self.subsystem.visit.export().info();
        let what = match judge(&command, data.len(), &info) {
            Verdict::Refuse(status) => {
                self.refuse(command.id, status);
                return Ok(Goes::On);
            }
            Verdict::Run(command, span) => What::Run(command, span),
            Verdict::Receive {
                purpose,
                is_in_capsule: true,
                ..
            } => What::Use(purpose, data.freeze()),
            Verdict::Receive {
                purpose,
                data_bytes,
                is_in_capsule: false,
            } => What::Fetch(purpose, data_bytes),
        };
        let id = command.id;
        self.backlog.borrow_mut().push_back(Pending { id, what });
        self.link.parts.wake(PART_ADMIT);
        Ok(Goes::On)
    }

    /// Admits what waits, in its order.
    async fn admit(&self) -> Infallible {
        loop {
            let next = poll_fn(|_| match self.backlog.borrow_mut().pop_front() {
                Some(next) => Poll::Ready(next),
                None => Poll::Pending, // whoever puts something in wakes this part
            });
            let next = next.await;
            let data_bytes = match &next.what {
                What::Run(perform::Command::Read, span) => span.length_bytes,
                What::Fetch(_, data_bytes) => u64::from(*data_bytes),
                What::Run(..) | What::Use(..) => 0,
            };
            let tag = {
                let _turn = self.subsystem.admission.lock().await;
                self.client().requests().admit(data_bytes).await
            };
            if !self.client().is_leaving() {
                self.begin(next, tag);
            }
        }
    }

    /// Begins what was admitted.
    fn begin(&self, Pending { id, what }: Pending, tag: Tag) {
        match what {
            What::Run(command, span) => self.start(Asked::one(id), command, span, None, tag),
            What::Use(purpose, data) => self.use_data(id, purpose, data, tag),
            What::Fetch(purpose, data_bytes) => {
                let export = self.subsystem.visit.export();
                let expecting = match purpose {
                    Purpose::Write(_, span) => {
                        let range = (span.offset_bytes, span.length_bytes);
                        Some(Expecting::begin(export, range))
                    }
                    Purpose::Deallocate(_) | Purpose::Hint => None,
                };
                let mut incoming = self.incoming.borrow_mut();
                let free = incoming.iter().position(Option::is_none);
                let place = free.unwrap_or_else(|| {
                    incoming.push(None);
                    incoming.len() - 1
                });
                incoming[place] = Some(Incoming {
                    id,
                    purpose,
                    data: self.link.pool.take(data_bytes as usize),
                    filled: 0,
                    intact: Intact::Yes,
                    tag,
                    expecting,
                    _waiting: self.link.peer.wait(),
                });
                self.link.put(Out::Ask(Transfer {
                    command: id,
                    tag: place as u16, // as many as the queue has entries
                    offset_bytes: 0,
                    count_bytes: data_bytes,
                }));
            }
        }
    }

    /// Takes data that were asked for.
    async fn take_data(
        &self,
        receiver: &mut Receiver<'a, T>,
        arrived: &Arrived,
    ) -> Result<(), NvmeError> {
        let transfer = Transfer::decode(arrived.part(0));
        let place = usize::from(transfer.tag);
        let found = self.incoming.borrow_mut().get_mut(place).map(Option::take);
        let Some(Some(mut incoming)) = found else {
            return Err(self.link.fault(Reason::DataRange.at(10), arrived.header()));
        };
        if incoming.id != transfer.command {
            return Err(self.link.fault(Reason::HeaderField.at(8), arrived.header()));
        }
        let count = arrived.frame.data_bytes;
        let end = incoming.filled + count;
        let is_next = transfer.offset_bytes as usize == incoming.filled;
        if !is_next || transfer.count_bytes as usize != count || end > incoming.data.len() {
            return Err(self.link.fault(Reason::DataRange.at(12), arrived.header()));
        }
        let into = &mut incoming.data[incoming.filled..end];
        if receive_data(receiver, &arrived.frame, into).await? == Intact::No {
            incoming.intact = Intact::No;
        }
        incoming.filled = end;
        if end < incoming.data.len() {
            self.incoming.borrow_mut()[place] = Some(incoming);
            return Ok(());
        }
        let Incoming {
            id,
            purpose,
            data,
            intact,
            tag,
            expecting,
            ..
        } = incoming;
        if intact == Intact::No {
            let status = Status::TRANSIENT_TRANSPORT;
            let tag = Some(tag);
            self.link.answer(Answer {
                tag,
                ..Answer::plain(id, status)
            });
            return Ok(());
        }
        if let Some(expecting) = expecting {
            expecting.fulfil();
        }
        self.use_data(id, purpose, data.freeze(), tag);
        Ok(())
    }

    /// All data of a command are there.
    fn use_data(&self, id: u16, purpose: Purpose, data: Buf, tag: Tag) {
        let spans = match purpose {
            Purpose::Write(fua, span) => {
                let command = perform::Command::Write(fua);
                return self.start(Asked::one(id), command, span, Some(data), tag);
            }
            Purpose::Hint => Ok(Vec::new()),
            Purpose::Deallocate(count) => {
                spans_of(&data, count, &self.subsystem.visit.export().info())
            }
        };
        let status = match spans {
            Ok(mut rest) => {
                rest.reverse();
                match rest.pop() {
                    Some(first) => {
                        let asked = Asked { id, rest };
                        return self.start(asked, TRIM, first, None, tag);
                    }
                    None => Status::SUCCESS,
                }
            }
            Err(status) => status,
        };
        self.link.answer(Answer {
            tag: Some(tag),
            ..Answer::plain(id, status)
        });
    }

    fn start(
        &self,
        key: Asked,
        command: perform::Command,
        span: Span,
        data: Option<Buf>,
        tag: Tag,
    ) {
        let worker = self.performer.start(Job {
            key,
            command,
            offset_bytes: span.offset_bytes,
            length_bytes: span.length_bytes,
            data,
            tag,
        });
        self.link.parts.wake(PARTS + worker);
    }

    /// A request was carried out: the next range of it, or its answer.
    fn go_on(&self, performed: Performed<Asked>) {
        let Performed {
            mut key,
            command,
            result,
            tag,
            ..
        } = performed;
        let next = result.is_ok().then(|| key.rest.pop()).flatten();
        if let Some(next) = next {
            return self.start(key, command, next, None, tag);
        }
        let (status, data) = match result {
            Ok(Outcome::Data(rope)) => (Status::SUCCESS, Some(rope)),
            Ok(Outcome::Done | Outcome::Extents(_)) => (Status::SUCCESS, None),
            Err(error) => (status_of(error, command), None),
        };
        self.link.answer(Answer {
            data,
            tag: Some(tag),
            ..Answer::plain(key.id, status)
        });
    }

    fn refuse(&self, id: u16, status: Status) {
        self.link.answer(Answer::plain(id, status));
    }
}

/// Whether a queue goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    On,
    End,
}

/// Ranges of Dataset Management. It has no bit for durability.
const TRIM: perform::Command = perform::Command::Trim(plexum_block::device::Fua::No);

impl Asked {
    fn one(id: u16) -> Self {
        Self {
            id,
            rest: Vec::new(),
        }
    }
}

/// What a host is told of an error of the engine.
fn status_of(error: IoError, command: perform::Command) -> Status {
    match error {
        IoError::NoSpace => Status::CAPACITY,
        IoError::ReadOnly => Status::WRITE_PROTECTED,
        IoError::OutOfRange => Status::LBA_RANGE,
        IoError::Unsupported => Status::INVALID_FIELD,
        IoError::Medium => match command {
            perform::Command::Read => Status::READ_ERROR,
            _ => Status::WRITE_FAULT,
        },
        _ => Status::INTERNAL,
    }
}
