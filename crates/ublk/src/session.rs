//! The session of one queue: each tag fetches a request, has it carried out, answers, and fetches the next one.
//!
//! One session is one future. Its parts, one for each tag and one that waits for the end, are polled only when woken.
//!
//! Invariants:
//! - each request that was fetched is answered once, or, when the device is left to a successor, was never begun;
//! - a request takes memory of the budget before its data are looked at, in the order of arrival; who waits for memory
//!   is answered later, nothing is refused for that;
//! - the data of a write are copied once, before anybody computes with them;
//! - requests are never cancelled: `run` returns when the last one has ended;
//! - while the device stops, its users' last writes are served; of a client that is fenced nothing reaches the export.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use plexum_block::buf::{BufPool, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_block::wait::Mutex;
use plexum_front::export::{Export, ZeroRequest};
use plexum_front::exports::Visit;
use plexum_front::parts::Parts;
use plexum_front::perform::{Command, Job, Outcome, Performer};

use crate::queue::{Queue, QueueEnd, Withdrawn};
use crate::wire::{Descriptor, Operation};

/// What the kernel is told of an error: errno numbers of Linux, which are the same on all of its machines for these.
mod errno {
    pub const EIO: i32 = 5;
    pub const EINVAL: i32 = 22;
    pub const ENOSPC: i32 = 28;
    pub const EROFS: i32 = 30;
    pub const EOPNOTSUPP: i32 = 95;
}

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// It was told to leave, and the device was stopped.
    Stopped,
    /// It was told to leave, and the device waits for another server.
    Kept,
    /// Somebody else has stopped the device.
    Gone,
    /// The kernel takes no more commands: its errno.
    Refused(i32),
}

/// How the session stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Requests come and are served.
    Serving,
    /// The device was stopped: no requests come.
    Stopped,
    /// It stays: what is begun ends, nothing more is begun.
    Kept,
}

/// One queue, served for one client of an export.
pub struct Session<'a, Q, E> {
    queue: &'a Q,
    pool: &'a BufPool,
    visit: &'a Visit<E>,
    performer: Performer<'a, E, ()>,
    parts: Arc<Parts>,
    admission: Mutex,
    stage: Cell<Stage>,
    /// Tags whose request is being carried out; tags that have ended.
    busy: Cell<usize>,
    ended: Cell<usize>,
    refused: Cell<Option<i32>>,
}

impl<'a, Q: Queue, E: Export> Session<'a, Q, E> {
    /// A session that has not begun. The limits of the visit's client should allow all tags at once.
    #[must_use]
    pub fn new(queue: &'a Q, visit: &'a Visit<E>, pool: &'a BufPool) -> Self {
        Self {
            queue,
            pool,
            visit,
            performer: Performer::new(visit.export(), visit.client()),
            parts: Parts::new(),
            admission: Mutex::new(),
            stage: Cell::new(Stage::Serving),
            busy: Cell::new(0),
            ended: Cell::new(0),
            refused: Cell::new(None),
        }
    }

    /// Serves until the device is gone, or the client was told to leave. `ready` is called once every tag has asked for
    /// its first request.
    pub async fn run(&self, ready: impl FnOnce()) -> Ended {
        let depth = usize::from(self.queue.depth());
        let mut tags: Vec<_> = (0..self.queue.depth())
            .map(|tag| Box::pin(self.serve_tag(tag)))
            .collect();
        let mut has_ended = vec![false; depth];
        let mut end = pin!(self.watch_for_end());
        let wakers: Vec<_> = (0..=depth).map(|part| self.parts.waker(part)).collect();
        for part in 0..=depth {
            self.parts.wake(part);
        }
        let mut ready = Some(ready);
        poll_fn(|cx| {
            self.parts.poll(cx, |part| {
                let mut cx = Context::from_waker(&wakers[part]);
                if part == depth {
                    let Poll::Pending = end.as_mut().poll(&mut cx);
                } else if !has_ended[part] && tags[part].as_mut().poll(&mut cx).is_ready() {
                    has_ended[part] = true;
                    self.ended.set(self.ended.get() + 1);
                }
                !self.is_over(depth)
            });
            // The first poll has polled each tag once.
            if let Some(ready) = ready.take() {
                ready();
            }
            match self.is_over(depth) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
        match (self.refused.get(), self.stage.get()) {
            (Some(errno), _) => Ended::Refused(errno),
            (None, Stage::Stopped) => Ended::Stopped,
            (None, Stage::Kept) => Ended::Kept,
            (None, Stage::Serving) => Ended::Gone,
        }
    }

    fn is_over(&self, depth: usize) -> bool {
        let is_through = match self.stage.get() {
            Stage::Kept => self.busy.get() == 0,
            Stage::Serving | Stage::Stopped => self.ended.get() == depth,
        };
        is_through && self.visit.client().requests().with_export() == 0
    }

    /// Waits until the client is to leave, and has the device stopped or left.
    async fn watch_for_end(&self) -> Infallible {
        self.visit.client().leaving().await;
        let stage = match self.queue.withdraw().await {
            Withdrawn::Stopped => Stage::Stopped,
            Withdrawn::Kept => Stage::Kept,
        };
        self.stage.set(stage);
        std::future::pending().await
    }

    /// The life of one tag.
    async fn serve_tag(&self, tag: u16) {
        let mut next = self.queue.fetch(tag).await;
        loop {
            match next {
                Ok(()) if self.stage.get() == Stage::Kept => return, // the successor gets it
                Ok(()) => {}
                Err(QueueEnd::Gone) => return,
                Err(QueueEnd::Refused(errno)) => return self.refused.set(Some(errno)),
            }
            self.busy.set(self.busy.get() + 1);
            let result = self.serve_request(tag, &self.queue.descriptor(tag)).await;
            let result = result.unwrap_or_else(|errno| -errno);
            // The answer is on its way with the first poll of this.
            let mut commit = pin!(self.queue.commit_and_fetch(tag, result));
            let first = poll_fn(|cx| Poll::Ready(commit.as_mut().poll(cx))).await;
            self.busy.set(self.busy.get() - 1);
            next = match first {
                Poll::Ready(next) => next,
                Poll::Pending => commit.await,
            };
        }
    }

    /// Carries one request out; the bytes that it moved, or an errno.
    async fn serve_request(&self, tag: u16, asked: &Descriptor) -> Result<i32, i32> {
        let fua = match asked.is_fua {
            true => Fua::Yes,
            false => Fua::No,
        };
        let command = match asked.operation {
            Operation::Read => Command::Read,
            Operation::Write => Command::Write(fua),
            Operation::Flush => Command::Flush,
            Operation::Discard => Command::Trim(fua),
            Operation::WriteZeroes => Command::Zero(ZeroRequest {
                fua,
                may_unmap: !asked.keeps_space,
                only_if_fast: false,
            }),
            Operation::Other(_) => return Err(errno::EOPNOTSUPP),
        };
        let (offset_bytes, length_bytes) = match command {
            Command::Flush => (0, 0), // its sector means nothing
            _ => self.check_range(asked)?,
        };
        let data_bytes = match command {
            Command::Read | Command::Write(_) => length_bytes,
            _ => 0,
        };
        let moved = i32::try_from(length_bytes).map_err(|_| errno::EINVAL);
        let place = {
            let _turn = self.admission.lock().await;
            self.visit.client().requests().admit(data_bytes).await
        };
        let data = match command {
            Command::Write(_) => {
                let mut data = self
                    .pool
                    .take(usize::try_from(length_bytes).map_err(|_| errno::EINVAL)?);
                self.queue.take_data(tag, &mut data).await?;
                Some(data.freeze())
            }
            _ => None,
        };
        let performed = self
            .performer
            .carry_out(Job {
                key: (),
                command,
                offset_bytes,
                length_bytes,
                data,
                tag: place,
            })
            .await;
        match performed.result.map_err(errno_of)? {
            Outcome::Data(rope) => self.give(tag, rope).await?,
            Outcome::Done | Outcome::Extents(_) => {}
        }
        // Ranges of discards and zeroes may be longer than a result can say; the driver takes it for reads and writes.
        match command {
            Command::Read | Command::Write(_) => moved,
            _ => Ok(0),
        }
    }

    /// The range of a request, which lies in the export.
    fn check_range(&self, asked: &Descriptor) -> Result<(u64, u64), i32> {
        let (offset_bytes, length_bytes) = asked.range().ok_or(errno::EINVAL)?;
        // The sum cannot wrap: that was looked at.
        match offset_bytes + length_bytes <= self.visit.export().info().size_bytes {
            true => Ok((offset_bytes, length_bytes)),
            false => Err(errno::EIO),
        }
    }

    async fn give(&self, tag: u16, rope: Rope) -> Result<(), i32> {
        let mut at = 0;
        for piece in rope.pieces {
            self.queue.give_data(tag, at, &piece).await?;
            at += u32::try_from(piece.len()).map_err(|_| errno::EIO)?;
        }
        Ok(())
    }
}

/// What the kernel is told of an error of the engine.
fn errno_of(error: IoError) -> i32 {
    match error {
        IoError::NoSpace => errno::ENOSPC,
        IoError::ReadOnly => errno::EROFS,
        IoError::Unsupported => errno::EOPNOTSUPP,
        _ => errno::EIO,
    }
}
