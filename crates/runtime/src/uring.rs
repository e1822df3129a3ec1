//! The io_uring reactor: operations are queued while tasks run and go to the kernel in one call for each turn.
//!
//! Invariants:
//! - memory and file of a queued or running operation are owned by its slot, which outlives it;
//! - only the thread that made the ring enters it (`SINGLE_ISSUER`);
//! - completions appear only inside of `enter` (`DEFER_TASKRUN`).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::thread::CpuSet;

use crate::Wait;
use crate::event::EventFd;
use crate::op::{Key, Kind, Op, Slots};
use crate::processors;

/// Entries of the submission queue; what does not fit waits in `backlog`.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue; the kernel keeps what does not fit (`NODROP`).
const COMPLETIONS: u32 = 1024;
/// Largest single transfer: what the kernel moves in one call.
const TRANSFER_BYTES_MAX: usize = 0x7fff_f000;

/// Completions that belong to no slot; slots never have the highest generation.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// The operations without which the ring is of no use here.
const NEEDED: [u8; 6] = [
    opcode::Read::CODE,
    opcode::Write::CODE,
    opcode::Fsync::CODE,
    opcode::Fallocate::CODE,
    opcode::PollAdd::CODE,
    opcode::AsyncCancel::CODE,
];

pub(crate) struct Uring {
    ring: RefCell<IoUring>,
    backlog: RefCell<VecDeque<squeue::Entry>>,
    /// Completions on their way from the queue to their slots; kept for its memory.
    scratch: RefCell<Vec<(u64, i32, u32)>>,
    wake: Arc<EventFd>,
    is_listening: Cell<bool>,
}

impl Uring {
    /// Makes the ring and tries it out.
    ///
    /// # Errors
    /// When the kernel, a container's filter or a limit refuses it, or it lacks an operation.
    pub(crate) fn new(wake: Arc<EventFd>) -> io::Result<Self> {
        drop(IoUring::new(4)?); // the cheapest question whether rings are allowed at all
        let ring = build_best()?;
        if !ring.params().is_feature_nodrop() || !ring.params().is_feature_ext_arg() {
            return Err(io::Error::other("the kernel is older than 5.11"));
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if NEEDED.iter().any(|code| !probe.is_supported(*code)) {
            return Err(io::Error::other("the kernel lacks a needed operation"));
        }
        if let Some(processors) = processors::for_helpers() {
            // A kernel before 5.14 knows no such wish; then its workers run anywhere.
            let _ = ring.submitter().register_iowq_aff(&as_libc(&processors));
        }
        Ok(Self {
            ring: RefCell::new(ring),
            backlog: RefCell::default(),
            scratch: RefCell::default(),
            wake,
            is_listening: Cell::new(false),
        })
    }

    /// Queues the operation of the slot `key`.
    pub(crate) fn start(&self, key: Key, slots: &RefCell<Slots>) {
        let mut slots = slots.borrow_mut();
        let op = slots.op(key).expect("a new slot has its operation");
        self.push(entry(op).user_data(key.to_u64()));
    }

    /// Asks the kernel to end a wait for readiness; its completion comes in any case.
    pub(crate) fn cancel(&self, key: Key) {
        self.push(
            opcode::AsyncCancel::new(key.to_u64())
                .build()
                .user_data(CANCEL),
        );
    }

    /// The ring stays open until the process has ended, even when this is dropped.
    pub(crate) fn close_with_process(&self) {
        let ring = self.ring.borrow();
        // SAFETY: the descriptor is the ring's, which is borrowed here.
        let fd = unsafe { BorrowedFd::borrow_raw(ring.as_raw_fd()) };
        // Without descriptors it is closed earlier, which is worse only for a device that is used at that moment.
        if let Ok(fd) = fd.try_clone_to_owned() {
            std::mem::forget(fd);
        }
    }

    fn push(&self, entry: squeue::Entry) {
        let mut backlog = self.backlog.borrow_mut();
        if backlog.is_empty() {
            let mut ring = self.ring.borrow_mut();
            // SAFETY: the memory and file that `entry` names are owned by a slot that is freed only after the
            // completion was seen (op.rs), by this reactor (the eventfd), or there are none (a cancellation).
            if unsafe { ring.submission().push(&entry) }.is_ok() {
                return;
            }
        }
        backlog.push_back(entry);
    }

    /// Moves queued entries from the backlog to the ring; `true` when all have room.
    fn refill(&self, ring: &mut IoUring) -> bool {
        let mut backlog = self.backlog.borrow_mut();
        let mut queue = ring.submission();
        while let Some(entry) = backlog.front() {
            // SAFETY: as in `push`.
            if unsafe { queue.push(entry) }.is_err() {
                return false;
            }
            backlog.pop_front();
        }
        true
    }

    /// Submits what is queued, runs the kernel's deferred work, and blocks if asked to.
    pub(crate) fn enter(&self, wait: Wait) {
        if !self.is_listening.replace(true) {
            let fd = Fd(self.wake.as_fd().as_raw_fd());
            let listen = opcode::PollAdd::new(fd, u32::from(PollFlags::IN.bits())).multi(true);
            self.push(listen.build().user_data(WAKE));
        }
        let ring = &mut *self.ring.borrow_mut();
        while !self.refill(ring) {
            if !is_harmless(ring.submit()) {
                break; // the completion queue is full: reap first
            }
        }
        let is_idle = {
            let queue = ring.submission();
            queue.is_empty() && !queue.taskrun() && !queue.cq_overflow()
        };
        let has_completions = !ring.completion().is_empty();
        let result = match wait {
            Wait::No if is_idle => return,
            Wait::No => ring.submit(),
            Wait::Until(_) if has_completions => ring.submit(),
            Wait::Until(None) => ring.submit_and_wait(1),
            Wait::Until(Some(duration)) => {
                let time = Timespec::from(duration);
                ring.submitter()
                    .submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
        };
        let _ = is_harmless(result);
    }

    /// Whether `enter` would find something without waiting. No system call.
    pub(crate) fn has_event(&self) -> bool {
        let ring = &mut *self.ring.borrow_mut();
        !ring.completion().is_empty() || ring.submission().taskrun()
    }

    /// Hands completions to their slots and wakes their tasks.
    pub(crate) fn reap(&self, slots: &RefCell<Slots>) {
        let mut scratch = self.scratch.take();
        scratch.extend(
            self.ring
                .borrow_mut()
                .completion()
                .map(|entry| (entry.user_data(), entry.result(), entry.flags())),
        );
        for (user_data, result, flags) in scratch.drain(..) {
            match user_data {
                WAKE => {
                    self.wake.drain();
                    if !cqueue::more(flags) {
                        self.is_listening.set(false);
                    }
                }
                CANCEL => {}
                _ => {
                    let outcome =
                        u32::try_from(result).map_err(|_| Errno::from_raw_os_error(-result));
                    let waker = slots.borrow_mut().end(Key::from_u64(user_data), outcome);
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
            }
        }
        self.scratch.replace(scratch);
    }
}

/// A ring with as many of the wanted properties as the kernel knows (all of them: 6.1).
fn build_best() -> io::Result<IoUring> {
    let deferred = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_coop_taskrun()
        .setup_cqsize(COMPLETIONS)
        .build(SUBMISSIONS);
    deferred
        .or_else(|_| {
            IoUring::builder()
                .setup_coop_taskrun()
                .setup_taskrun_flag()
                .setup_cqsize(COMPLETIONS)
                .build(SUBMISSIONS)
        })
        .or_else(|_| {
            IoUring::builder()
                .setup_cqsize(COMPLETIONS)
                .build(SUBMISSIONS)
        })
}

/// The same set in the form that the ring takes.
fn as_libc(set: &CpuSet) -> libc::cpu_set_t {
    // SAFETY: a `cpu_set_t` is an array of numbers; all zeroes is the empty set.
    let mut form: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for processor in processors::of(set) {
        // SAFETY: the number is below `CpuSet::MAX_CPU`, which is how many bits the form has.
        unsafe { libc::CPU_SET(processor, &mut form) };
    }
    form
}

/// The kernel's form of an operation. Its pointers are valid as long as `op` stays in its slot.
fn entry(op: &mut Op) -> squeue::Entry {
    let fd = Fd(op.fd.as_fd().as_raw_fd());
    match &mut op.kind {
        Kind::Read {
            offset_bytes,
            buf,
            start,
        } => {
            let target = &mut buf[*start..];
            let length = target.len().min(TRANSFER_BYTES_MAX) as u32;
            opcode::Read::new(fd, target.as_mut_ptr(), length)
                .offset(*offset_bytes)
                .build()
        }
        Kind::Write {
            offset_bytes,
            data,
            is_durable,
            is_aside,
        } => {
            let length = data.len().min(TRANSFER_BYTES_MAX) as u32;
            let flags = if *is_durable { libc::RWF_DSYNC } else { 0 };
            opcode::Write::new(fd, data.as_ptr(), length)
                .offset(*offset_bytes)
                .rw_flags(flags)
                .build()
                .flags(if *is_aside {
                    squeue::Flags::ASYNC
                } else {
                    squeue::Flags::empty()
                })
        }
        Kind::Sync { is_whole: true } => opcode::Fsync::new(fd).build(),
        Kind::Sync { .. } => opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build(),
        Kind::Allocate {
            mode,
            offset_bytes,
            length_bytes,
        } => opcode::Fallocate::new(fd, *length_bytes)
            .offset(*offset_bytes)
            .mode(mode.bits().cast_signed())
            .build(),
        Kind::Ready(what) => opcode::PollAdd::new(fd, u32::from(what.bits())).build(),
        Kind::Command { code, argument } => {
            opcode::UringCmd16::new(fd, *code).cmd(*argument).build()
        }
    }
}

/// `false` when the kernel wants completions to be reaped, or has no memory, before it takes more.
///
/// # Panics
/// On any other error: the ring itself is broken, which no input can cause.
fn is_harmless(result: io::Result<usize>) -> bool {
    let Err(error) = result else { return true };
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::INTR | Errno::TIME) => true,
        Some(Errno::BUSY | Errno::AGAIN | Errno::NOMEM) => false,
        _ => panic!("the ring takes submissions: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use plexum_block::buf::BufPool;

    use super::*;
    use crate::{Core, IoChoice, Runtime, Wait};

    fn turn(core: &Core) {
        core.enter(Wait::Until(None));
        core.reap();
    }

    /// A read that stays in flight until somebody writes to the pipe.
    fn slow_read(core: &Rc<Core>, pool: &BufPool) -> (crate::op::InFlight, std::os::fd::OwnedFd) {
        let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
        let op = Op {
            fd: Arc::new(reader.into()),
            kind: Kind::Read {
                offset_bytes: 0,
                buf: pool.take(4096),
                start: 0,
            },
        };
        (core.start(op), writer)
    }

    #[test]
    fn memory_of_a_dropped_read_stays_out_of_the_pool_until_the_kernel_is_done() {
        let Ok(runtime) = Runtime::new(IoChoice::Uring) else {
            return; // the tests of both reactors say so loudly
        };
        let core = &runtime.handle.core;
        let pool = BufPool::new(1 << 20);
        let in_flight = pool.take(4096).as_ptr(); // the pool hands this block out again at once
        let (mut read, writer) = slow_read(core, &pool);
        let mut context = Context::from_waker(Waker::noop());
        assert!(Pin::new(&mut read).poll(&mut context).is_pending());
        core.enter(Wait::No);
        drop(read);
        assert_eq!(core.slots.borrow().running_transfers(), 1);
        let other = pool.take(4096);
        assert_ne!(other.as_ptr(), in_flight);
        rustix::io::write(&writer, &[0xee; 4096]).expect("the pipe takes it");
        turn(core);
        assert_eq!(core.slots.borrow().running_transfers(), 0);
        assert_eq!(pool.take(4096).as_ptr(), in_flight, "now it is back");
    }

    #[test]
    fn a_file_stays_open_until_its_last_operation_has_ended() {
        let Ok(runtime) = Runtime::new(IoChoice::Uring) else {
            return;
        };
        let core = &runtime.handle.core;
        let pool = BufPool::new(0);
        let (read, writer) = slow_read(core, &pool);
        drop(read); // dropped before it was ever submitted: the queue entry names the descriptor
        let mut others = Vec::new();
        for _ in 0..8 {
            others.push(rustix::pipe::pipe().expect("a pipe")); // would take the number if it were free
        }
        rustix::io::write(&writer, &[1; 10]).expect("the reading end is still open");
        turn(core);
        assert_eq!(core.slots.borrow().running_transfers(), 0);
        let closed = rustix::io::write(&writer, &[1; 10]);
        assert_eq!(closed, Err(Errno::PIPE), "the reading end is closed now");
    }

    #[test]
    fn more_operations_than_the_queues_hold_all_end() {
        let Ok(runtime) = Runtime::new(IoChoice::Uring) else {
            return;
        };
        let core = &runtime.handle.core;
        let zero = std::fs::File::open("/dev/zero").expect("there");
        let zero = Arc::new(std::os::fd::OwnedFd::from(zero).into());
        let pool = BufPool::new(0);
        let mut context = Context::from_waker(Waker::noop());
        let count = 3 * (SUBMISSIONS + COMPLETIONS) as usize;
        let mut reads: Vec<_> = (0..count)
            .map(|_| {
                let kind = Kind::Read {
                    offset_bytes: 0,
                    buf: pool.copy_of(&[1; 16]),
                    start: 0,
                };
                let fd = Arc::clone(&zero);
                core.start(Op { fd, kind })
            })
            .collect();
        while !reads.is_empty() {
            turn(core);
            reads.retain_mut(|read| match Pin::new(read).poll(&mut context) {
                std::task::Poll::Pending => true,
                std::task::Poll::Ready((op, outcome)) => {
                    assert_eq!(outcome, Ok(16));
                    let Kind::Read { buf, .. } = op.kind else {
                        panic!("an operation comes back as it went")
                    };
                    assert_eq!(*buf, [0; 16]);
                    false
                }
            });
        }
    }

    /// The processors that the kernel lets a thread of this process run on.
    fn processors_of(task: &std::path::Path) -> Vec<usize> {
        let status = std::fs::read_to_string(task.join("status")).expect("it lives");
        let list = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .expect("every thread has one");
        let ranges = list.trim().split(',').map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse::<usize>().expect("a number");
            number(first)..=number(last)
        });
        ranges.flatten().collect()
    }

    #[test]
    fn the_kernels_workers_leave_the_thread_that_they_work_for_a_processor_of_its_own() {
        let Ok(mut runtime) = Runtime::new(IoChoice::Uring) else {
            return;
        };
        let handle = runtime.handle();
        runtime.block_on(async move {
            let file = tempfile::tempfile().expect("a file");
            let kind = Kind::Write {
                offset_bytes: 0,
                data: BufPool::new(0).take_zeroed(4096).freeze(),
                is_durable: false,
                is_aside: true,
            };
            let fd = Arc::new(std::os::fd::OwnedFd::from(file).into());
            let (_, outcome) = handle.core.start(Op { fd, kind }).await;
            assert_eq!(outcome, Ok(4096));
        });
        let own = processors_of("/proc/thread-self".as_ref());
        let name = format!("iou-wrk-{}\n", rustix::thread::gettid().as_raw_nonzero());
        let tasks = std::fs::read_dir("/proc/self/task").expect("there");
        let tasks = tasks.map(|task| task.expect("an entry").path());
        let is_worker = |task: &std::path::PathBuf| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == name)
        };
        let workers: Vec<_> = tasks.filter(is_worker).collect();
        assert!(!workers.is_empty(), "somebody wrote");
        for worker in workers {
            let left = processors_of(&worker);
            let are_own = left.iter().all(|processor| own.contains(processor));
            assert!(
                are_own && left.len() == (own.len() - 1).max(1),
                "{left:?} of {own:?}"
            );
        }
    }

    use std::future::Future;
    use std::pin::Pin;
}
