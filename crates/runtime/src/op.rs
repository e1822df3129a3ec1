//! One I/O: what is asked of the kernel, and the slot that owns it (and its memory) until the kernel is done.
//!
//! Invariants:
//! - a slot is freed only after its operation has ended; a dropped future leaves the slot behind (W9);
//! - a key names one operation for ever: late completions and cancellations never hit a successor.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use plexum_block::buf::{Buf, BufMut};
use rustix::event::PollFlags;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use slab::Slab;

use crate::lock::OpenFile;
use crate::{Core, Reactor};

/// What shall be done with a file.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Fills `buf` from `start` on with the bytes at `offset_bytes`.
    Read {
        offset_bytes: u64,
        buf: BufMut,
        start: usize,
    },
    /// Writes `data` at `offset_bytes`; `is_durable`: answers when it is on stable storage; `is_aside`: is not done by
    /// the thread that asks, though it would not have to wait.
    Write {
        offset_bytes: u64,
        data: Buf,
        is_durable: bool,
        is_aside: bool,
    },
    /// Data, and metadata needed to find them, to stable storage; `is_whole`: all metadata.
    Sync { is_whole: bool },
    Allocate {
        mode: FallocateFlags,
        offset_bytes: u64,
        length_bytes: u64,
    },
    /// Waits until a socket (or pipe) can be read or written, or has failed.
    Ready(PollFlags),
    /// A command of the file's own, which may wait for ever; the kernel keeps its argument. Of a ring alone.
    Command { code: u32, argument: [u8; 16] },
}

/// An operation; it keeps its file open.
#[derive(Debug)]
pub(crate) struct Op {
    pub(crate) fd: Arc<OpenFile>,
    pub(crate) kind: Kind,
}

/// Bytes moved, or the kernel's error.
pub(crate) type Outcome = Result<u32, Errno>;

impl Op {
    /// Does the operation on the calling thread, which may block. Not for `Ready`.
    pub(crate) fn perform(&mut self) -> Outcome {
        let fd = &*self.fd;
        let moved = match &mut self.kind {
            Kind::Read {
                offset_bytes,
                buf,
                start,
            } => rustix::io::pread(fd, &mut buf[*start..], *offset_bytes)?,
            Kind::Write {
                offset_bytes,
                data,
                is_durable: false,
                ..
            } => rustix::io::pwrite(fd, data, *offset_bytes)?,
            Kind::Write {
                offset_bytes, data, ..
            } => {
                let slices = [std::io::IoSlice::new(data)];
                rustix::io::pwritev2(fd, &slices, *offset_bytes, ReadWriteFlags::DSYNC)?
            }
            Kind::Sync { is_whole: true } => rustix::fs::fsync(fd).map(|()| 0)?,
            Kind::Sync { .. } => rustix::fs::fdatasync(fd).map(|()| 0)?,
            Kind::Allocate {
                mode,
                offset_bytes,
                length_bytes,
            } => rustix::fs::fallocate(fd, *mode, *offset_bytes, *length_bytes).map(|()| 0)?,
            Kind::Ready(_) => unreachable!("readiness belongs to the reactor"),
            Kind::Command { .. } => return Err(Errno::OPNOTSUPP),
        };
        // The kernel moves at most 2^31 - 4096 bytes in one call.
        Ok(u32::try_from(moved).expect("a transfer is below 2 GiB"))
    }
}

/// Names an operation in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    pub(crate) fn to_u64(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_u64(raw: u64) -> Self {
        Self {
            index: (raw & 0xffff_ffff) as u32,
            generation: (raw >> 32) as u32,
        }
    }
}

enum State {
    Running(Option<Waker>),
    Ended(Outcome),
    /// Its future is gone; the slot waits for the kernel.
    Abandoned,
}

struct Slot {
    generation: u32,
    /// Absent while a worker thread has it.
    op: Option<Op>,
    /// It uses memory of its slot: it is no wait for readiness, and no command.
    is_transfer: bool,
    state: State,
}

/// All operations in flight of one runtime.
#[derive(Default)]
pub(crate) struct Slots {
    slab: Slab<Slot>,
    generation: u32,
    running_transfers: usize,
}

impl Slots {
    pub(crate) fn insert(&mut self, op: Op) -> Key {
        // Keys with the highest generation are the reactor's own.
        self.generation = (self.generation + 1) % u32::MAX;
        let generation = self.generation;
        let is_transfer = !matches!(op.kind, Kind::Ready(_) | Kind::Command { .. });
        self.running_transfers += usize::from(is_transfer);
        let index = self.slab.insert(Slot {
            generation,
            op: Some(op),
            is_transfer,
            state: State::Running(None),
        });
        Key {
            index: u32::try_from(index).expect("fewer than 2^32 operations in flight"),
            generation,
        }
    }

    fn slot(&mut self, key: Key) -> Option<&mut Slot> {
        self.slab
            .get_mut(key.index as usize)
            .filter(|slot| slot.generation == key.generation)
    }

    /// The operation of a running slot that no worker has.
    pub(crate) fn op(&mut self, key: Key) -> Option<&mut Op> {
        self.slot(key)?.op.as_mut()
    }

    /// Lends the operation to a worker thread.
    pub(crate) fn lend(&mut self, key: Key) -> Option<Op> {
        self.slot(key)?.op.take()
    }

    /// Takes the operation back from a worker thread.
    pub(crate) fn give_back(&mut self, key: Key, op: Op) {
        if let Some(slot) = self.slot(key) {
            slot.op = Some(op);
        }
    }

    /// The operation has ended. Returns whom to wake, once no borrow is held.
    pub(crate) fn end(&mut self, key: Key, outcome: Outcome) -> Option<Waker> {
        let slot = self.slot(key)?;
        let is_transfer = slot.is_transfer;
        let before = std::mem::replace(&mut slot.state, State::Ended(outcome));
        self.running_transfers -= usize::from(is_transfer);
        match before {
            State::Running(waker) => waker,
            State::Abandoned => {
                self.slab.remove(key.index as usize);
                None
            }
            State::Ended(_) => unreachable!("an operation ends once"),
        }
    }

    fn poll(&mut self, key: Key, waker: &Waker) -> Poll<(Op, Outcome)> {
        let slot = self.slot(key).expect("a future's slot is there");
        match &mut slot.state {
            State::Running(place) => {
                match place {
                    Some(old) => old.clone_from(waker),
                    None => *place = Some(waker.clone()),
                }
                Poll::Pending
            }
            State::Ended(_) => {
                let slot = self.slab.remove(key.index as usize);
                let State::Ended(outcome) = slot.state else {
                    unreachable!("just looked at")
                };
                let op = slot.op.expect("an ended operation is back in its slot");
                Poll::Ready((op, outcome))
            }
            State::Abandoned => unreachable!("an abandoned slot has no future"),
        }
    }

    /// The future was dropped. `true`: the operation still runs and only waits for readiness, so cancel it.
    fn abandon(&mut self, key: Key) -> bool {
        let slot = self.slot(key).expect("a future's slot is there");
        if matches!(slot.state, State::Ended(_)) {
            self.slab.remove(key.index as usize);
            return false;
        }
        slot.state = State::Abandoned;
        !slot.is_transfer
    }

    /// Ends an operation that never reached the kernel or a worker.
    pub(crate) fn forget(&mut self, key: Key) {
        if self.slot(key).is_some() {
            let slot = self.slab.remove(key.index as usize);
            let is_running = !matches!(slot.state, State::Ended(_));
            self.running_transfers -= usize::from(slot.is_transfer && is_running);
        }
    }

    /// Operations in flight that use memory or a file, not counting those that wait for readiness.
    pub(crate) fn running_transfers(&self) -> usize {
        self.running_transfers
    }

    /// Which file a wait for readiness is about, and what for.
    pub(crate) fn readiness(&self, key: Key) -> Option<(&OpenFile, PollFlags)> {
        let slot = self.slab.get(key.index as usize)?;
        match slot.op.as_ref()? {
            Op {
                fd,
                kind: Kind::Ready(what),
            } => Some((fd, *what)),
            _ => None,
        }
    }

    /// Operations that wait for readiness.
    pub(crate) fn waiting_for_readiness(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for (index, slot) in &self.slab {
            let Some(op) = &slot.op else { continue };
            if matches!(op.kind, Kind::Ready(_)) && !matches!(slot.state, State::Ended(_)) {
                let index = u32::try_from(index).expect("fewer than 2^32 operations in flight");
                let generation = slot.generation;
                keys.push(Key { index, generation });
            }
        }
        keys
    }
}

impl Core {
    /// Starts `op`; the future gives it back with its outcome.
    pub(crate) fn start(self: &Rc<Self>, op: Op) -> InFlight {
        let key = self.slots.borrow_mut().insert(op);
        match &self.reactor {
            Reactor::Uring(ring) => ring.start(key, &self.slots),
            Reactor::Threads(threads) => threads.start(key, &self.slots),
        }
        InFlight {
            core: Rc::clone(self),
            key: Some(key),
        }
    }

    /// Waits until `fd` is ready for `what`, or has failed (which the next call on it will tell).
    pub(crate) async fn ready(self: &Rc<Self>, fd: &Arc<OpenFile>, what: PollFlags) {
        let op = Op {
            fd: Arc::clone(fd),
            kind: Kind::Ready(what),
        };
        // An error of the wait itself (no memory) makes the caller try again: it gets the real answer then.
        let _ = self.start(op).await;
    }
}

/// The future of an operation.
pub(crate) struct InFlight {
    core: Rc<Core>,
    /// Absent once the result was given out.
    key: Option<Key>,
}

impl Future for InFlight {
    type Output = (Op, Outcome);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.expect("not polled after it was ready");
        let poll = self.core.slots.borrow_mut().poll(key, context.waker());
        if poll.is_ready() {
            self.key = None;
        }
        poll
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let has_to_cancel = self.core.slots.borrow_mut().abandon(key);
        if !has_to_cancel {
            return;
        }
        match &self.core.reactor {
            Reactor::Uring(ring) => ring.cancel(key),
            Reactor::Threads(_) => self.core.slots.borrow_mut().forget(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_for_input() -> Op {
        let file = std::fs::File::open("/dev/null").expect("there");
        Op {
            fd: Arc::new(OpenFile::from(std::os::fd::OwnedFd::from(file))),
            kind: Kind::Ready(PollFlags::IN),
        }
    }

    #[test]
    fn a_late_end_of_an_old_operation_leaves_its_successor_alone() {
        let mut slots = Slots::default();
        let old = slots.insert(wait_for_input());
        slots.forget(old);
        let new = slots.insert(wait_for_input());
        assert_eq!((old.index, new.index), (0, 0));
        assert!(slots.end(old, Ok(1)).is_none());
        assert!(slots.poll(new, Waker::noop()).is_pending());
        slots.forget(old);
        assert!(slots.end(new, Ok(2)).is_some());
        let Poll::Ready((_, outcome)) = slots.poll(new, Waker::noop()) else {
            panic!("it has ended")
        };
        assert_eq!(outcome, Ok(2));
        assert!(slots.slab.is_empty());
    }

    #[test]
    fn spurious_polls_change_nothing_and_the_last_waker_counts() {
        let mut slots = Slots::default();
        let key = slots.insert(wait_for_input());
        for _ in 0..3 {
            assert!(slots.poll(key, Waker::noop()).is_pending());
        }
        let last = Waker::from(Arc::new(Last));
        assert!(slots.poll(key, &last).is_pending());
        assert!(slots.end(key, Ok(0)).is_some_and(|w| w.will_wake(&last)));
    }

    struct Last;

    impl std::task::Wake for Last {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn an_abandoned_operation_frees_its_slot_when_it_ends_and_wakes_nobody() {
        let mut slots = Slots::default();
        let key = slots.insert(wait_for_input());
        assert!(slots.poll(key, Waker::noop()).is_pending());
        assert!(slots.abandon(key), "a wait for readiness can be cancelled");
        assert_eq!(slots.slab.len(), 1);
        assert!(slots.end(key, Err(Errno::CANCELED)).is_none());
        assert!(slots.slab.is_empty());
    }

    #[test]
    fn keys_survive_their_way_through_the_kernel_and_never_look_like_the_reactors_own() {
        let mut slots = Slots {
            generation: u32::MAX - 3,
            ..Slots::default()
        };
        for _ in 0..6 {
            let key = slots.insert(wait_for_input());
            assert_eq!(Key::from_u64(key.to_u64()), key);
            assert_ne!(key.generation, u32::MAX);
        }
    }
}
