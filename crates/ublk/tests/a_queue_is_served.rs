//! A session against a made-up kernel: what it does with requests, and how it ends.
#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use plexum_block::buf::{BufMut, BufPool};
use plexum_block::device::{Fua, IoError};
use plexum_exec::{Executor, Fifo};
use plexum_front::budget::Budget;
use plexum_front::client::{Client, Leave};
use plexum_front::export::ZeroRequest;
use plexum_front::exports::Exports;
use plexum_front::requests::RequestLimits;
use plexum_front::testing::{MemoryExport, Operation as Call};
use plexum_ublk::queue::{Queue, QueueEnd, Withdrawn};
use plexum_ublk::session::{Ended, Session};
use plexum_ublk::wire::{Descriptor, Operation};

const DEPTH: u16 = 32;
const EIO: i32 = -5;

/// One tag as the kernel has it.
#[derive(Default)]
struct Tag {
    /// The server waits for a request.
    is_fetching: bool,
    given: Option<Descriptor>,
    data: Vec<u8>,
    answer: Option<i32>,
    waker: Option<Waker>,
}

/// A made-up queue of the kernel.
struct Kernel {
    tags: RefCell<Vec<Tag>>,
    is_gone: Cell<bool>,
    refuses: Cell<Option<i32>>,
    loses_data: Cell<bool>,
    withdrawn: Cell<Option<Withdrawn>>,
}

impl Kernel {
    fn wait(&self, cx: &Context<'_>, tag: u16) -> Poll<Result<(), QueueEnd>> {
        let tag = &mut self.tags.borrow_mut()[usize::from(tag)];
        if let Some(errno) = self.refuses.get() {
            return Poll::Ready(Err(QueueEnd::Refused(errno)));
        }
        if tag.given.is_some() && tag.is_fetching {
            tag.is_fetching = false;
            return Poll::Ready(Ok(()));
        }
        if self.is_gone.get() {
            return Poll::Ready(Err(QueueEnd::Gone));
        }
        tag.is_fetching = true;
        tag.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// A user of the device asks for something.
    fn give(&self, tag: usize, descriptor: Descriptor, data: &[u8]) {
        let tag = &mut self.tags.borrow_mut()[tag];
        assert!(tag.given.is_none(), "a tag has one request at a time");
        tag.given = Some(descriptor);
        tag.data = data.to_vec();
        tag.data.resize(descriptor.sectors as usize * 512, 0);
        tag.answer = None;
        if let Some(waker) = tag.waker.take() {
            waker.wake();
        }
    }

    fn answer(&self, tag: usize) -> Option<i32> {
        self.tags.borrow()[tag].answer
    }

    fn remove(&self) {
        self.is_gone.set(true);
        for tag in self.tags.borrow_mut().iter_mut() {
            if let Some(waker) = tag.waker.take() {
                waker.wake();
            }
        }
    }
}

impl Queue for Kernel {
    fn depth(&self) -> u16 {
        DEPTH
    }

    async fn fetch(&self, tag: u16) -> Result<(), QueueEnd> {
        poll_fn(|cx| self.wait(cx, tag)).await
    }

    async fn commit_and_fetch(&self, tag: u16, result: i32) -> Result<(), QueueEnd> {
        {
            let tag = &mut self.tags.borrow_mut()[usize::from(tag)];
            assert!(tag.answer.is_none(), "one answer for each request");
            tag.answer = Some(result);
            tag.given = None;
        }
        poll_fn(|cx| self.wait(cx, tag)).await
    }

    fn descriptor(&self, tag: u16) -> Descriptor {
        self.tags.borrow()[usize::from(tag)].given.unwrap()
    }

    async fn take_data(&self, tag: u16, target: &mut BufMut) -> Result<(), i32> {
        if self.loses_data.get() {
            return Err(14);
        }
        target.copy_from_slice(&self.tags.borrow()[usize::from(tag)].data);
        Ok(())
    }

    async fn give_data(&self, tag: u16, at: u32, data: &[u8]) -> Result<(), i32> {
        let at = at as usize;
        self.tags.borrow_mut()[usize::from(tag)].data[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }

    async fn withdraw(&self) -> Withdrawn {
        poll_fn(|_| match self.withdrawn.get() {
            Some(withdrawn) => Poll::Ready(withdrawn),
            None => Poll::Pending,
        })
        .await
    }
}

/// A session that runs, and both of its ends.
struct Ground {
    executor: Executor<Fifo>,
    kernel: Rc<Kernel>,
    export: Rc<MemoryExport>,
    client: Rc<Client>,
    budget: Budget,
    is_ready: Rc<Cell<bool>>,
    ended: Rc<Cell<Option<Ended>>>,
}

impl Ground {
    fn new(withdrawn: Withdrawn) -> Self {
        let executor = Executor::new(Fifo);
        let kernel = Rc::new(Kernel {
            tags: RefCell::new((0..DEPTH).map(|_| Tag::default()).collect()),
            is_gone: Cell::new(false),
            refuses: Cell::new(None),
            loses_data: Cell::new(false),
            withdrawn: Cell::new(Some(withdrawn)),
        });
        let export = Rc::new(MemoryExport::new("nas", 256 << 20, |_| ()));
        let exports = Exports::default();
        exports.open(Rc::clone(&export)).unwrap();
        let opened = exports.find("nas").unwrap();
        let limits = RequestLimits {
            requests_max: usize::from(DEPTH),
            bytes_max: u64::MAX / 2,
        };
        let budget = Budget::new(0);
        let visit = exports
            .enter(&opened, "/dev/ublkb0".to_owned(), limits, &budget)
            .unwrap();
        let client = exports.client("nas", exports.clients("nas")[0].id).unwrap();
        let (is_ready, ended) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(None)));
        let (ready, end, queue) = (Rc::clone(&is_ready), Rc::clone(&ended), Rc::clone(&kernel));
        let session = executor.spawner().spawn(async move {
            let pool = BufPool::new(1 << 20);
            let session = Session::new(&*queue, &visit, &pool);
            end.set(Some(session.run(|| ready.set(true)).await));
        });
        drop(session);
        let mut ground = Self {
            executor,
            kernel,
            export,
            client,
            budget,
            is_ready,
            ended,
        };
        ground.settle();
        ground
    }

    /// Runs until nothing moves.
    fn settle(&mut self) {
        while self.executor.poll_one() {}
    }

    /// One request, carried out.
    fn ask(&mut self, descriptor: Descriptor, data: &[u8]) -> i32 {
        self.kernel.give(0, descriptor, data);
        self.settle();
        self.kernel.answer(0).expect("it was answered")
    }
}

fn asks(operation: Operation, start_sector: u64, sectors: u32) -> Descriptor {
    Descriptor {
        operation,
        is_fua: false,
        keeps_space: false,
        start_sector,
        sectors,
    }
}

#[test]
fn every_tag_has_asked_before_the_device_is_said_to_be_ready() {
    let ground = Ground::new(Withdrawn::Stopped);
    assert!(ground.is_ready.get());
    let tags = ground.kernel.tags.borrow();
    assert!(tags.iter().all(|tag| tag.is_fetching));
}

#[test]
fn what_was_written_is_read_again_and_a_flush_or_fua_makes_it_durable() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    let block = [7; 4096];
    assert_eq!(ground.ask(asks(Operation::Write, 8, 8), &block), 4096);
    assert_eq!(ground.export.bytes(4096, 4096), block);
    assert_eq!(ground.export.durable_bytes(4096, 4096), [0; 4096]);
    assert_eq!(ground.ask(asks(Operation::Read, 8, 8), &[]), 4096);
    assert_eq!(ground.kernel.tags.borrow()[0].data, block);
    // The sector of a flush is none: the kernel says -1.
    assert_eq!(ground.ask(asks(Operation::Flush, u64::MAX, 0), &[]), 0);
    assert_eq!(ground.export.durable_bytes(4096, 4096), block);
    let fua = Descriptor {
        is_fua: true,
        ..asks(Operation::Write, 0, 1)
    };
    assert_eq!(ground.ask(fua, &[9; 512]), 512);
    assert_eq!(ground.export.durable_bytes(0, 512), [9; 512]);
}

#[test]
fn discards_and_zeroes_reach_the_export_with_what_was_said_of_their_space() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    assert_eq!(ground.ask(asks(Operation::Discard, 16, 8), &[]), 0);
    assert_eq!(ground.ask(asks(Operation::WriteZeroes, 16, 8), &[]), 0);
    let keeping = Descriptor {
        keeps_space: true,
        ..asks(Operation::WriteZeroes, 16, 8)
    };
    assert_eq!(ground.ask(keeping, &[]), 0);
    let zero = |may_unmap| {
        let how = ZeroRequest {
            fua: Fua::No,
            may_unmap,
            only_if_fast: false,
        };
        Call::Zero(8192, 4096, how)
    };
    let expected = [Call::Trim(8192, 4096, Fua::No), zero(true), zero(false)];
    assert_eq!(ground.export.take_log(), expected);
}

#[test]
fn what_is_outside_or_unknown_is_refused_and_reaches_no_export() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    let size_sectors = (256 << 20) / 512;
    for (descriptor, answer) in [
        (asks(Operation::Read, size_sectors, 1), EIO),
        (asks(Operation::Write, size_sectors - 1, 2), EIO),
        (asks(Operation::Read, u64::MAX, 8), -22),
        (asks(Operation::Other(15), 0, 8), -95),
    ] {
        assert_eq!(ground.ask(descriptor, &[]), answer, "{descriptor:?}");
    }
    assert_eq!(ground.export.take_log(), []);
}

#[test]
fn errors_of_a_volume_have_the_kernels_numbers() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    for (error, errno) in [
        (IoError::NoSpace, -28),
        (IoError::ReadOnly, -30),
        (IoError::Failed, EIO),
    ] {
        ground.export.fail_with(Some(error));
        assert_eq!(ground.ask(asks(Operation::Write, 0, 8), &[]), errno);
        assert_eq!(ground.ask(asks(Operation::Flush, 0, 0), &[]), errno);
    }
    ground.export.fail_with(None);
    ground.export.read_short(true);
    assert_eq!(ground.ask(asks(Operation::Read, 0, 8), &[]), EIO);
}

#[test]
fn a_write_whose_data_cannot_be_had_is_not_written() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    ground.kernel.loses_data.set(true);
    assert_eq!(ground.ask(asks(Operation::Write, 0, 8), &[1; 4096]), -14);
    assert_eq!(ground.export.take_log(), []);
}

#[test]
fn requests_beyond_the_memory_wait_and_are_answered_in_the_end() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    ground.export.hold(true);
    let all = usize::from(DEPTH);
    for tag in 0..all {
        ground
            .kernel
            .give(tag, asks(Operation::Write, 0, 8192), &[]); // 4 MiB
    }
    ground.settle();
    let held = ground.export.held().len();
    assert!(held > 0 && held < all, "{held}");
    assert!(ground.budget.used_bytes() <= 64 << 20);
    for _ in 0..all {
        ground.export.release(0);
        ground.settle();
    }
    assert!((0..all).all(|tag| ground.kernel.answer(tag) == Some(4 << 20)));
    assert_eq!(ground.budget.used_bytes(), 0);
}

#[test]
fn while_a_device_stops_the_last_writes_of_its_users_are_served() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    ground.client.tell(Leave::Drain);
    ground.settle();
    assert_eq!(ground.ask(asks(Operation::Write, 0, 8), &[3; 4096]), 4096);
    assert_eq!(ground.ended.get(), None);
    ground.kernel.remove();
    ground.settle();
    assert_eq!(ground.ended.get(), Some(Ended::Stopped));
}

#[test]
fn a_device_that_is_left_answers_what_was_begun_and_begins_nothing_more() {
    let mut ground = Ground::new(Withdrawn::Kept);
    ground.export.hold(true);
    ground
        .kernel
        .give(0, asks(Operation::Write, 0, 8), &[5; 4096]);
    ground.settle();
    ground.client.tell(Leave::Drain);
    ground.settle();
    assert_eq!(ground.ended.get(), None, "one is under way");
    ground
        .kernel
        .give(1, asks(Operation::Write, 8, 8), &[6; 4096]);
    ground.settle();
    ground.export.release(0);
    ground.settle();
    assert_eq!(ground.ended.get(), Some(Ended::Kept));
    assert_eq!(ground.kernel.answer(0), Some(4096));
    assert_eq!(ground.kernel.answer(1), None, "it is the successor's");
    assert_eq!(ground.export.take_log().len(), 1);
}

#[test]
fn of_a_client_that_is_fenced_nothing_reaches_the_export() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    ground.client.tell(Leave::Fence);
    assert_eq!(ground.ask(asks(Operation::Write, 0, 8), &[3; 4096]), EIO);
    assert_eq!(ground.export.take_log(), []);
    ground.kernel.remove();
    ground.settle();
    assert_eq!(ground.ended.get(), Some(Ended::Stopped));
}

#[test]
fn a_device_that_others_remove_ends_its_session_after_what_is_under_way() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    ground.export.hold(true);
    ground.kernel.give(0, asks(Operation::Read, 0, 8), &[]);
    ground.settle();
    ground.kernel.remove();
    ground.settle();
    assert_eq!(ground.ended.get(), None);
    ground.export.release(0);
    ground.settle();
    assert_eq!(ground.ended.get(), Some(Ended::Gone));
}

#[test]
fn a_kernel_that_refuses_commands_ends_the_session_with_its_word() {
    let mut ground = Ground::new(Withdrawn::Stopped);
    ground.kernel.refuses.set(Some(22));
    ground.kernel.remove();
    ground.settle();
    assert_eq!(ground.ended.get(), Some(Ended::Refused(22)));
}
