//! Pipes between files in memory and sockets: what long reads pass through instead of through our memory (`Parked`).
//!
//! A pipe holds references to pages of a file, not their bytes: `splice` puts them in and hands them on to a socket. Two copies
//! of every byte are saved that way.
//!
//! Invariants:
//! - a pipe of the pool is empty: one with something left in it is closed;
//! - at most `PIPES_MAX` pipes for each runtime: they count against what the kernel lets one user have in all pipes
//!   (`pipe-user-pages-soft`, 64 MiB); who gets none reads by copying;
//! - nothing here waits.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use plexum_engine::parked::Parked;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

use crate::Core;

/// What one pipe holds: the most that a user without privileges may ask for (`pipe-max-size`). Room is counted in pages: a range
/// that is not aligned takes one more.
const PIPE_BYTES: usize = 1 << 20;

/// Pipes of one runtime: so many reads of 1 MiB are on their way at once, the others are copied.
const PIPES_MAX: usize = 8;

struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    held_bytes: usize,
}

impl Pipe {
    fn new() -> Option<Self> {
        let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
        let (reader, writer) = rustix::pipe::pipe_with(flags).ok()?;
        // Refused where the user's other pipes hold too much already.
        rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES).ok()?;
        Some(Self {
            reader,
            writer,
            held_bytes: 0,
        })
    }
}

/// Empty pipes of one runtime, made when they are first needed.
#[derive(Default)]
pub(crate) struct PipePool {
    free: RefCell<Vec<Pipe>>,
    /// With those in use.
    count: Cell<usize>,
}

impl PipePool {
    /// How many `take` would give at most.
    fn available(&self) -> usize {
        self.free.borrow().len() + PIPES_MAX - self.count.get()
    }

    fn take(&self) -> Option<Pipe> {
        if let Some(pipe) = self.free.borrow_mut().pop() {
            return Some(pipe);
        }
        if self.count.get() >= PIPES_MAX {
            return None;
        }
        let pipe = Pipe::new()?;
        self.count.set(self.count.get() + 1);
        Some(pipe)
    }

    fn give_back(&self, pipe: Pipe) {
        if pipe.held_bytes == 0 {
            self.free.borrow_mut().push(pipe);
        } else {
            self.count.set(self.count.get() - 1); // closed, with what is in it
        }
    }
}

/// Pages of files on their way to a socket.
pub(crate) struct InPipes {
    core: Rc<Core>,
    /// In order; all but the last that has something are full.
    pipes: Vec<Pipe>,
    /// Which one is being filled, and which one is being emptied.
    filling: usize,
    emptying: usize,
}

impl InPipes {
    /// Room for `length_bytes`; `None` when there is none now.
    pub(crate) fn take(core: &Rc<Core>, length_bytes: usize) -> Option<Self> {
        let count = length_bytes.div_ceil(PIPE_BYTES);
        if count > core.pipes.available() {
            return None;
        }
        let mut taken = Self {
            core: Rc::clone(core),
            pipes: Vec::with_capacity(count),
            filling: 0,
            emptying: 0,
        };
        for _ in 0..count {
            taken.pipes.push(core.pipes.take()?);
        }
        Some(taken)
    }

    /// Puts the pages of a range of `file` in, behind what is there; `false` when it is not all in.
    pub(crate) fn fill(&mut self, file: impl AsFd, offset_bytes: u64, length_bytes: usize) -> bool {
        let (mut at, mut left_bytes) = (offset_bytes, length_bytes);
        while left_bytes > 0 {
            if self.filling == self.pipes.len() {
                // Ranges that are not aligned take more room than they have bytes.
                let Some(more) = self.core.pipes.take() else {
                    return false;
                };
                self.pipes.push(more);
            }
            let pipe = &mut self.pipes[self.filling];
            let (to, flags) = (&pipe.writer, SpliceFlags::NONBLOCK);
            match rustix::pipe::splice(&file, Some(&mut at), to, None, left_bytes, flags) {
                Ok(0) => return false, // the file has become shorter than it was
                Ok(count) => {
                    pipe.held_bytes += count;
                    left_bytes -= count;
                }
                Err(Errno::AGAIN) => self.filling += 1, // full
                Err(Errno::INTR) => {}
                Err(_) => return false, // the ordinary read will say what is wrong
            }
        }
        true
    }

    /// The pipe to be emptied next, and how much is in it.
    pub(crate) fn first(&self) -> Option<(BorrowedFd<'_>, usize)> {
        let pipe = self.pipes.get(self.emptying)?;
        (pipe.held_bytes > 0).then(|| (pipe.reader.as_fd(), pipe.held_bytes))
    }

    /// So many bytes of the first pipe have left.
    pub(crate) fn sent(&mut self, count: usize) {
        let pipe = &mut self.pipes[self.emptying];
        pipe.held_bytes -= count;
        if pipe.held_bytes == 0 {
            self.emptying += 1;
        }
    }
}

impl Parked for InPipes {
    fn length_bytes(&self) -> usize {
        self.pipes.iter().map(|pipe| pipe.held_bytes).sum()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl Drop for InPipes {
    fn drop(&mut self) {
        for pipe in self.pipes.drain(..) {
            self.core.pipes.give_back(pipe);
        }
    }
}
