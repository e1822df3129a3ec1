//! The admin queue of a controller: commands one after the other, events of its namespace, and its signs of life.
//!
//! Invariants:
//! - a command whose answer has data is followed by no other until that was sent: a host that reads no answers holds
//!   one of them;
//! - the controller ends with this queue.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_front::export::Export;
use plexum_front::flag::Flag;
use plexum_front::peer::{Cut, Patience, Watch};
use plexum_front::receive::Receiver;
use plexum_front::transport::Transport;

use super::{PART_EVENTS, PART_RECEIVE, PART_WATCH};
use crate::controller::{Controller, Reply, Told};
use crate::error::{Ended, NvmeError};
use crate::link::{Answer, Arrived, Intact, Link, PART_SEND, next_pdu, receive_data};
use crate::wire::command::Command;
use crate::wire::pdu::{Kind, Reason};
use crate::wire::status::Status;

/// Parts of a session; the last one watches for signs of life.
const PARTS: usize = 5;

/// Everything an admin queue's session is made of; see `run`.
pub(crate) struct AdminQueue<'a, T, E, C> {
    link: Link<'a, T>,
    controller: &'a Controller<E>,
    clock: &'a C,
    patience: Patience,
    /// The server stops.
    stopped: &'a Flag,
    /// What is told of the server at this moment.
    told: &'a dyn Fn() -> Told,
    has_received: Cell<bool>,
    received: Cell<Option<Result<Ended, NvmeError>>>,
    is_sent: Cell<bool>,
    verdict: Cell<Option<Result<Ended, NvmeError>>>,
}

impl<'a, T: Transport, E: Export, C: Clock> AdminQueue<'a, T, E, C> {
    pub(crate) fn new(
        link: Link<'a, T>,
        controller: &'a Controller<E>,
        clock: &'a C,
        patience: Patience,
        stopped: &'a Flag,
        told: &'a dyn Fn() -> Told,
    ) -> Self {
        Self {
            link,
            controller,
            clock,
            patience,
            stopped,
            told,
            has_received: Cell::new(false),
            received: Cell::new(None),
            is_sent: Cell::new(false),
            verdict: Cell::new(None),
        }
    }

    /// Serves until the end of the queue, and ends the controller.
    ///
    /// # Errors
    /// Why it ended before its time.
    pub(crate) async fn run(&self, receiver: &mut Receiver<'a, T>) -> Result<Ended, NvmeError> {
        let parts = &self.link.parts;
        let is_last = || self.has_received.get();
        let cut = || self.link.transport.close();
        // A receiver that waits for an answer to be sent goes on.
        let sent = || parts.wake(PART_RECEIVE);
        let mut send = pin!(self.link.send(is_last, cut, sent));
        let mut receive = pin!(self.receive(receiver));
        let mut watch = pin!(self.watch());
        let mut events = pin!(self.tell_events());
        let mut alive = pin!(self.watch_for_life());
        let wakers: Vec<_> = (0..PARTS).map(|part| parts.waker(part)).collect();
        let mut has_ended = [false; PARTS];
        (0..PARTS).for_each(|part| parts.wake(part));
        poll_fn(|cx| {
            parts.poll(cx, |part| {
                if has_ended[part] {
                    return !self.is_over();
                }
                let mut cx = Context::from_waker(&wakers[part]);
                let ended = match part {
                    PART_SEND => {
                        let ended = send.as_mut().poll(&mut cx);
                        self.is_sent.set(ended.is_ready());
                        ended
                    }
                    PART_RECEIVE => receive.as_mut().poll(&mut cx).map(|how| self.end(how)),
                    PART_WATCH => watch.as_mut().poll(&mut cx),
                    PART_EVENTS => events.as_mut().poll(&mut cx),
                    _ => alive.as_mut().poll(&mut cx),
                };
                has_ended[part] = ended.is_ready();
                !self.is_over()
            });
            match self.is_over() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        self.link.transport.close();
        self.controller.ended.set();
        let how = self.verdict.take().or(self.received.take());
        how.expect("a session that is over has a reason")
    }

    fn is_over(&self) -> bool {
        self.has_received.get() && self.is_sent.get()
    }

    fn end(&self, how: Result<Ended, NvmeError>) {
        self.controller.ended.set();
        self.received.set(Some(how));
        self.has_received.set(true);
        self.link.parts.wake(PART_SEND);
        self.link.parts.wake(PART_WATCH);
    }

    fn cut(&self, how: Result<Ended, NvmeError>) {
        self.verdict.set(Some(how));
        self.link.transport.close();
    }

    /// Waits until the session is to be cut, from outside or for its own slowness.
    async fn watch(&self) {
        let cut = async {
            match &self.controller.subsystem {
                Some(subsystem) => {
                    let watch = Watch {
                        client: subsystem.visit.client(),
                        clock: self.clock,
                        peer: self.link.peer,
                        has_received: &self.has_received,
                        patience: self.patience,
                    };
                    watch.until_cut().await
                }
                None => {
                    let is_ending = || self.has_received.get();
                    poll_fn(|_| match is_ending() {
                        true => Poll::Ready(()),
                        false => Poll::Pending, // `end` wakes this part
                    })
                    .await;
                    self.clock.sleep(self.patience.linger).await;
                    Cut::Lingered
                }
            }
        };
        let mut cut = pin!(cut);
        let mut ended = pin!(self.controller.ended.wait());
        let mut stopped = pin!(self.stopped.wait());
        let is_discovery = self.controller.subsystem.is_none();
        let cut = poll_fn(|cx| {
            let is_ended = ended.as_mut().poll(cx).is_ready() && !self.has_received.get();
            // Hosts with a volume leave as its clients do.
            let is_stopped = is_discovery && stopped.as_mut().poll(cx).is_ready();
            match is_ended || is_stopped {
                true => Poll::Ready(Cut::Stopped),
                false => cut.as_mut().poll(cx),
            }
        });
        match cut.await {
            Cut::Lingered => self.link.transport.close(),
            Cut::Stopped => self.cut(Ok(Ended::Stopped)),
            Cut::Stalled => self.cut(Err(NvmeError::Stalled)),
        }
    }

    async fn receive(&self, receiver: &mut Receiver<'a, T>) -> Result<Ended, NvmeError> {
        loop {
            let arrived = match next_pdu(receiver, self.link.agreed.digests).await {
                Ok(arrived) => arrived,
                Err(why) => return self.link.without_pdu(why),
            };
            match arrived.frame.kind {
                Kind::Command => self.take_command(receiver, &arrived).await?,
                _ => return Err(self.link.fault(Reason::Sequence.at(0), arrived.header())),
            }
        }
    }

    async fn take_command(
        &self,
        receiver: &mut Receiver<'a, T>,
        arrived: &Arrived,
    ) -> Result<(), NvmeError> {
        let bytes = arrived.part::<64>(8);
        let command = Command::decode(bytes);
        self.link.count_command()?;
        if arrived.frame.data_bytes > 0 {
            // No command of this queue needs any; nothing is kept of them.
            let mut data = self.link.pool.take(arrived.frame.data_bytes);
            if receive_data(receiver, &arrived.frame, &mut data).await? == Intact::No {
                let status = Status::TRANSIENT_TRANSPORT;
                self.link.answer(Answer::plain(command.id, status));
                return Ok(());
            }
        }
        let answer = match self.controller.answer(&command, bytes, &(self.told)()) {
            Reply::Later => None,
            Reply::Refused(status) => Some(Answer::plain(command.id, status)),
            Reply::Done { result, data } => Some(Answer {
                result,
                data: data.map(|data| self.link.pool.copy_of(&data).freeze().into()),
                ..Answer::plain(command.id, Status::SUCCESS)
            }),
        };
        let has_data = answer.as_ref().is_some_and(|answer| answer.data.is_some());
        if let Some(answer) = answer {
            self.link.answer(answer);
        }
        self.tell_news();
        if has_data {
            poll_fn(|_| match self.link.has_sent_all() {
                true => Poll::Ready(()),
                false => Poll::Pending, // woken behind each send
            })
            .await;
        }
        Ok(())
    }

    fn tell_news(&self) {
        if let Some((id, result)) = self.controller.news() {
            self.link.answer(Answer {
                result,
                ..Answer::plain(id, Status::SUCCESS)
            });
        }
    }

    /// Tells of each change of the namespace's size.
    async fn tell_events(&self) {
        let Some(subsystem) = &self.controller.subsystem else {
            return;
        };
        let export = subsystem.visit.export();
        let mut known_bytes = export.info().size_bytes;
        loop {
            known_bytes = export.resized(known_bytes).await;
            self.controller.note_change();
            self.tell_news();
        }
    }

    /// Ends the controller when no command has come for as long as its host has allowed.
    async fn watch_for_life(&self) {
        loop {
            let limit_ms = self.controller.keep_alive_ms();
            if limit_ms == 0 {
                let is_timed = || self.controller.keep_alive_ms() != 0;
                self.controller.retimed.until(is_timed).await;
                continue;
            }
            self.controller.is_heard.set(false);
            let limit = Duration::from_millis(limit_ms.into());
            self.clock.sleep(limit).await;
            if !self.controller.is_heard.get() {
                return self.cut(Err(NvmeError::KeepAlive(limit_ms)));
            }
        }
    }
}
