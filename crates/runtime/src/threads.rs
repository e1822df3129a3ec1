//! The fallback reactor: a small pool of threads does file operations, `poll` watches sockets.
//!
//! Invariants:
//! - a worker owns the operation (memory and file) while it works on it;
//! - a completion never gets lost between the look at the list and the sleep: the sleeper announces itself first.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CpuSet;

use crate::Wait;
use crate::event::EventFd;
use crate::op::{Key, Kind, Op, Outcome, Slots};
use crate::processors;

/// Threads at most; they are started when work waits and none is idle.
const WORKERS_MAX: usize = 64;

/// Threads that work on one file at most: a member that hangs leaves the others theirs (W9).
const WORKERS_PER_FILE_MAX: usize = 8;

#[derive(Default)]
struct Jobs {
    queue: VecDeque<(Key, Op)>,
    /// Threads at work on each file, by the address of its descriptor; a file without any is not listed.
    at_work: Vec<(usize, usize)>,
    idle_count: usize,
    worker_count: usize,
    is_closed: bool,
}

/// Names an open file as long as an operation keeps it open.
fn file_of(op: &Op) -> usize {
    Arc::as_ptr(&op.fd) as usize
}

impl Jobs {
    fn has_room(&self, op: &Op) -> bool {
        let file = file_of(op);
        let at_work = self.at_work.iter().find(|(other, _)| *other == file);
        at_work.is_none_or(|(_, count)| *count < WORKERS_PER_FILE_MAX)
    }

    /// Jobs that could be begun now; more than needed is never counted.
    fn ready_count(&self) -> usize {
        let ready = self.queue.iter().filter(|(_, op)| self.has_room(op));
        ready.take(self.idle_count + 1).count()
    }

    /// The first job whose file has room.
    fn take(&mut self) -> Option<(Key, Op)> {
        let at = self.queue.iter().position(|(_, op)| self.has_room(op))?;
        let job = self.queue.remove(at)?;
        let file = file_of(&job.1);
        match self.at_work.iter_mut().find(|(other, _)| *other == file) {
            Some((_, count)) => *count += 1,
            None => self.at_work.push((file, 1)),
        }
        Some(job)
    }

    /// A thread has ended its work on a file.
    fn ended(&mut self, file: usize) {
        let at = self.at_work.iter().position(|(other, _)| *other == file);
        let at = at.expect("a file at work is listed");
        self.at_work[at].1 -= 1;
        if self.at_work[at].1 == 0 {
            self.at_work.swap_remove(at);
        }
    }
}

struct SharedJobs {
    jobs: Mutex<Jobs>,
    has_jobs: Condvar,
    ended: Mutex<Vec<(Key, Op, Outcome)>>,
    is_sleeping: AtomicBool,
    wake: Arc<EventFd>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below panics between two changes, so a poisoned list is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Threads {
    shared: Arc<SharedJobs>,
    /// Where the workers run.
    processors: Option<CpuSet>,
    /// What the last `poll` said, for `reap`.
    ready: RefCell<Vec<(Key, PollFlags)>>,
    has_wake: Cell<bool>,
}

impl Threads {
    pub(crate) fn new(wake: Arc<EventFd>) -> Self {
        Self {
            shared: Arc::new(SharedJobs {
                jobs: Mutex::default(),
                has_jobs: Condvar::new(),
                ended: Mutex::default(),
                is_sleeping: AtomicBool::new(false),
                wake,
            }),
            processors: processors::for_helpers(),
            ready: RefCell::default(),
            has_wake: Cell::new(false),
        }
    }

    /// Hands the operation of the slot `key` to a worker; waits for readiness stay in their slots.
    pub(crate) fn start(&self, key: Key, slots: &RefCell<Slots>) {
        let mut slots = slots.borrow_mut();
        let op = slots.op(key).expect("a new slot has its operation");
        if matches!(op.kind, Kind::Ready(_)) {
            return;
        }
        let op = slots.lend(key).expect("a new slot has its operation");
        let mut jobs = lock(&self.shared.jobs);
        jobs.queue.push_back((key, op));
        if jobs.worker_count < WORKERS_MAX && jobs.ready_count() > jobs.idle_count {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("plexum-io".to_owned());
            let processors = self.processors;
            let worker = builder.spawn(move || {
                processors::keep_to(processors.as_ref());
                work(&shared);
            });
            match worker {
                Ok(_) => jobs.worker_count += 1,
                // Without any worker nothing would ever end; with one the job waits for it.
                Err(error) => assert!(jobs.worker_count > 0, "an I/O thread can start: {error}"),
            }
        }
        drop(jobs);
        self.shared.has_jobs.notify_one();
    }

    /// Blocks, if asked to, until a worker has ended a job, a socket is ready or another thread signals.
    pub(crate) fn enter(&self, wait: Wait, slots: &RefCell<Slots>) {
        self.has_wake.set(false);
        let slots = slots.borrow();
        let keys = slots.waiting_for_readiness();
        let may_block = !matches!(wait, Wait::No);
        if keys.is_empty() && !may_block {
            return;
        }
        let mut fds = Vec::with_capacity(keys.len() + 1);
        fds.push(PollFd::from_borrowed_fd(
            self.shared.wake.as_fd(),
            PollFlags::IN,
        ));
        for key in &keys {
            let (fd, what) = slots.readiness(*key).expect("listed just now");
            fds.push(PollFd::from_borrowed_fd(fd.as_fd(), what));
        }
        // Announced before the look at the list: a worker that ends a job after the look sees the announcement.
        self.shared.is_sleeping.store(may_block, Ordering::SeqCst);
        let has_ended = !lock(&self.shared.ended).is_empty();
        let time = match wait {
            Wait::Until(None) if !has_ended => None,
            Wait::Until(Some(duration)) if !has_ended => Timespec::try_from(duration).ok(),
            _ => Some(Timespec::default()),
        };
        // EINTR and ENOMEM count as nothing ready: the loop comes back.
        let count = poll(&mut fds, time.as_ref()).unwrap_or(0);
        self.shared.is_sleeping.store(false, Ordering::SeqCst);
        if count == 0 {
            return;
        }
        self.has_wake.set(!fds[0].revents().is_empty());
        let mut ready = self.ready.borrow_mut();
        for (key, fd) in keys.iter().zip(&fds[1..]) {
            if !fd.revents().is_empty() {
                ready.push((*key, fd.revents()));
            }
        }
    }

    /// Hands ended operations to their slots and wakes their tasks.
    pub(crate) fn reap(&self, slots: &RefCell<Slots>) {
        if self.has_wake.get() {
            self.shared.wake.drain();
        }
        let mut wakers = Vec::new();
        let ended = std::mem::take(&mut *lock(&self.shared.ended));
        let mut slots = slots.borrow_mut();
        for (key, op, outcome) in ended {
            slots.give_back(key, op);
            wakers.extend(slots.end(key, outcome));
        }
        for (key, flags) in self.ready.borrow_mut().drain(..) {
            wakers.extend(slots.end(key, Ok(u32::from(flags.bits()))));
        }
        drop(slots);
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.jobs).is_closed = true;
        self.shared.has_jobs.notify_all();
    }
}

/// A worker's life.
fn work(shared: &SharedJobs) {
    let mut worked_on = None;
    loop {
        let mut jobs = lock(&shared.jobs);
        if let Some(file) = worked_on {
            jobs.ended(file);
        }
        let (key, mut op) = loop {
            if let Some(job) = jobs.take() {
                break job;
            }
            if jobs.is_closed {
                return;
            }
            jobs.idle_count += 1;
            jobs = shared
                .has_jobs
                .wait(jobs)
                .unwrap_or_else(PoisonError::into_inner);
            jobs.idle_count -= 1;
        };
        drop(jobs);
        worked_on = Some(file_of(&op));
        let outcome = op.perform();
        lock(&shared.ended).push((key, op, outcome));
        if shared.is_sleeping.swap(false, Ordering::SeqCst) {
            shared.wake.signal();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::OpenFile;
    use plexum_block::buf::BufPool;

    #[test]
    fn a_job_that_ends_before_the_sleep_is_seen_all_the_same() {
        let threads = Threads::new(Arc::new(EventFd::new().expect("a descriptor")));
        let slots = RefCell::new(Slots::default());
        let file = std::fs::File::open("/dev/zero").expect("there");
        let fd = Arc::new(OpenFile::from(std::os::fd::OwnedFd::from(file)));
        for _ in 0..100 {
            let kind = Kind::Read {
                offset_bytes: 0,
                buf: BufPool::new(0).take(16),
                start: 0,
            };
            let fd = Arc::clone(&fd);
            let key = slots.borrow_mut().insert(Op { fd, kind });
            threads.start(key, &slots);
            while lock(&threads.shared.ended).is_empty() {
                std::thread::yield_now();
            }
            threads.enter(Wait::Until(None), &slots); // would never come back if it slept now
            threads.reap(&slots);
            assert_eq!(slots.borrow().running_transfers(), 0);
            slots.borrow_mut().forget(key);
        }
        assert!(lock(&threads.shared.jobs).worker_count <= WORKERS_MAX);
    }

    #[test]
    fn a_file_that_hangs_keeps_no_more_threads_than_its_quota() {
        use std::io::Write;
        let threads = Threads::new(Arc::new(EventFd::new().expect("a descriptor")));
        let slots = RefCell::new(Slots::default());
        // Reads of an empty pipe hang until something is written to it.
        let (hung, mut pipe) = std::io::pipe().expect("a pipe");
        let hung = Arc::new(OpenFile::from(std::os::fd::OwnedFd::from(hung)));
        let zero = std::fs::File::open("/dev/zero").expect("there");
        let zero = Arc::new(OpenFile::from(std::os::fd::OwnedFd::from(zero)));
        let start = |fd: &Arc<OpenFile>| {
            let offset_bytes = 0;
            let buf = BufPool::new(0).take(1);
            let kind = Kind::Read {
                offset_bytes,
                buf,
                start: 0,
            };
            let fd = Arc::clone(fd);
            let key = slots.borrow_mut().insert(Op { fd, kind });
            threads.start(key, &slots);
        };
        drop(pipe.write_all(&[]));
        for _ in 0..WORKERS_MAX {
            start(&hung);
        }
        start(&zero);
        // How many threads were started depends on how soon they run; how many are at one file does not.
        let has_quota = || {
            let jobs = lock(&threads.shared.jobs);
            let counts = jobs.at_work.iter();
            counts
                .map(|(_, count)| *count)
                .all(|count| count <= WORKERS_PER_FILE_MAX)
        };
        while !lock(&threads.shared.ended)
            .iter()
            .any(|(_, op, _)| Arc::ptr_eq(&op.fd, &zero))
        {
            assert!(has_quota());
            std::thread::yield_now();
        }
        assert!(has_quota());
    }
}
