//! Workers: each carries one request out, and answers it.

use std::future::poll_fn;
use std::task::Poll;

use plexum_block::buf::{Buf, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};
use plexum_front::export::{Export, ZeroRequest};
use plexum_front::memory::{Fill, MemoryError, Part};
use plexum_front::perform::{Command, Job, Outcome};
use plexum_front::requests::Tag;

use super::{PART_WORKERS, Session};
use crate::ask::{Ask, Range, Status};
use crate::chain::{Chain, Scattered};
use crate::peer::Peer;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    /// Its queue.
    pub(super) index: usize,
    /// Its first descriptor.
    pub(super) head: u16,
}

/// A request that may run.
pub(super) struct Task {
    pub(super) origin: Origin,
    pub(super) chain: Chain,
    pub(super) ask: Ask,
    pub(super) data: Option<Buf>,
    /// Kept until it was answered.
    pub(super) tag: Option<Tag>,
    pub(super) writes_through: bool,
}

/// A request for each worker, taken by it when it is polled.
#[derive(Default)]
pub(super) struct Desks {
    tasks: Vec<Option<Task>>,
    idle: Vec<usize>,
}

impl Desks {
    pub(super) fn are_idle(&self) -> bool {
        self.idle.len() == self.tasks.len()
    }
}

impl<P: Peer, E: Export, C: Clock> Session<'_, P, E, C> {
    /// Lays a request on the desk of a worker that is idle.
    pub(super) fn start(&self, task: Task) {
        let mut desks = self.desks.borrow_mut();
        let worker = desks.idle.pop().unwrap_or_else(|| {
            desks.tasks.push(None);
            desks.tasks.len() - 1
        });
        assert!(desks.tasks[worker].is_none(), "an idle worker has no task");
        desks.tasks[worker] = Some(task);
        self.parts.wake(PART_WORKERS + worker);
    }

    /// The life of a worker.
    pub(super) async fn work(&self, worker: usize) {
        loop {
            let mut task = poll_fn(|_| match self.desks.borrow_mut().tasks[worker].take() {
                Some(task) => Poll::Ready(task),
                None => Poll::Pending,
            })
            .await;
            let (status, filled_bytes) = match self.carry_out(&mut task).await {
                Ok(None) => (Status::Ok, 0),
                Ok(Some(rope)) => self.fill_guest(&task.chain, &rope).await,
                Err(IoError::Unsupported) => (Status::Unsupported, 0),
                Err(_) => (Status::Failed, 0),
            };
            // Of a client that is fenced nothing is answered: the next session does it again.
            if !self.client.is_fenced() {
                self.answer(task.origin, &task.chain, status, filled_bytes);
            }
            drop(task);
            self.desks.borrow_mut().idle.push(worker);
        }
    }

    async fn carry_out(&self, task: &mut Task) -> Result<Option<Rope>, IoError> {
        let fua = match task.writes_through {
            true => Fua::Yes,
            false => Fua::No,
        };
        let whole = |range: &Range| (range.offset_bytes, range.length_bytes);
        let commands: Vec<(Command, (u64, u64))> = match &task.ask {
            Ask::Read(range) => vec![(Command::Read, whole(range))],
            Ask::Write(range) => vec![(Command::Write(fua), whole(range))],
            Ask::Flush | Ask::Identity => vec![(Command::Flush, (0, 0))],
            Ask::Discard(ranges) => {
                let trim = |range| (Command::Trim(fua), whole(range));
                ranges.iter().map(trim).collect()
            }
            Ask::Zero(ranges) => {
                let zero = |range: &Range| {
                    let how = ZeroRequest {
                        fua,
                        may_unmap: range.may_unmap,
                        only_if_fast: false,
                    };
                    (Command::Zero(how), whole(range))
                };
                ranges.iter().map(zero).collect()
            }
        };
        let mut read = None;
        for (command, (offset_bytes, length_bytes)) in commands {
            let tag = task.tag.take();
            let performed = self.performer.carry_out(Job {
                key: (),
                command,
                offset_bytes,
                length_bytes,
                data: task.data.take(),
                tag: tag.expect("a request keeps its tag"),
            });
            let performed = performed.await;
            task.tag = Some(performed.tag);
            if let Outcome::Data(rope) = performed.result? {
                read = Some(rope);
            }
        }
        Ok(read)
    }

    /// Copies what was read into the guest's memory.
    async fn fill_guest(&self, chain: &Chain, rope: &Rope) -> (Status, u32) {
        let count = rope.length_bytes();
        self.peer.charge(count).await;
        if self.is_cut.get() {
            return (Status::Failed, 0); // which nobody is told
        }
        let machine = self.machine.borrow();
        let part = Part {
            offset_bytes: 0,
            count,
        };
        let memory = Scattered::new(&machine.table, &chain.writable, part);
        let filled = memory.ok_or(MemoryError::Gone);
        match filled.and_then(|memory| Fill::new(memory).with(rope).map(drop)) {
            Ok(()) => (Status::Ok, count as u32), // at most a largest request
            Err(_) => (Status::Failed, 0),
        }
    }
}
