//! A simulated disk with a volatile cache, a seeded service order and faults.
//!
//! Invariants:
//! - a write is durable only after a flush issued after it was answered, or when it was issued with FUA;
//! - a crash keeps a seeded subset of the un-flushed *sectors*, in-flight writes included; a sector is never mixed;
//! - a dropped future cancels nothing: the I/O goes on and its buffer stays with it, as on real hardware;
//! - each I/O is answered once, at a seeded moment, so overlapping I/Os in flight land in any order.

mod cache;
mod hardware;
mod mechanical;
mod mechanical_buffer;
pub mod mechanical_geometry;
pub mod mechanical_spec;
mod sparse;
mod ssd;
pub mod timed;
pub mod timed_stats;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, ZeroMode, check_range};

use crate::clock::{SimClock, Slot};
use crate::fault::{FAULT_KINDS, Fault, FaultState, overlaps};
use crate::rng::Rng;
use crate::trace::{Actor, Trace, Verb};

use cache::{Payload, State, Written};
pub use sparse::Sparse;

pub use hardware::outcome_number;
use hardware::{Hardware, Work};

/// What a disk owed while it hung comes this many times later than what it is asked now: it may still change the disk
/// when the disk is in use again.
const OWED_FACTOR: u64 = 1000;

/// How a crash treats what was not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashKind {
    /// The process ends (SIGKILL): answered writes stay in the page cache, those in flight land or not.
    Kill,
    /// Power is cut: every un-flushed sector survives by a seeded coin toss.
    PowerCut,
}

/// Shape of a simulated disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskShape {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Unit of addressing in bytes.
    pub sector_bytes: u32,
    /// Unit of atomicity in bytes (the physical sector), a multiple of `sector_bytes`.
    pub atom_bytes: u32,
    /// Whether trimmed ranges are guaranteed to read as zeroes.
    pub has_zeroing_trim: bool,
    /// Usual time of an I/O in nanoseconds; one in 64 takes ten times that, one in 1024 a hundred times.
    pub latency_ns: u64,
    /// A flush takes so many times as long as another I/O.
    pub flush_times: u64,
}

/// What a disk did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Reads taken.
    pub reads: u64,
    /// Writes and zeroings taken.
    pub writes: u64,
    /// Flushes taken.
    pub flushes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Faults put in, by kind.
    pub faults_put: [u64; FAULT_KINDS],
    /// I/Os struck by a fault, by kind.
    pub faults_hit: [u64; FAULT_KINDS],
}

/// An open handle of a simulated disk. Clones are the same handle; after `Vanish` it is dead and `reopen` makes a new
/// one.
#[derive(Clone)]
pub struct SimDisk {
    hardware: Rc<Hardware>,
    generation: u32,
}

impl SimDisk {
    /// An empty disk; `number` names it in traces and, with `rng`, decides all its coin tosses.
    #[must_use]
    pub fn new(number: u32, shape: DiskShape, clock: SimClock, trace: Trace, rng: &Rng) -> Self {
        let state = State {
            rng: rng.fork(0x6469_736b_0000 + u64::from(number)),
            current: Sparse::default(),
            durable: Sparse::default(),
            unflushed: VecDeque::new(),
            limbo: Vec::new(),
            in_flight: BTreeMap::new(),
            hung: Vec::new(),
            next_io: 0,
            generation: 0,
            faults: FaultState {
                slow_factor: 1,
                ..FaultState::default()
            },
            counters: DiskCounters::default(),
        };
        let hardware = Hardware {
            number,
            shape,
            clock,
            trace,
            state: RefCell::new(state),
        };
        Self {
            hardware: Rc::new(hardware),
            generation: 0,
        }
    }

    /// A fresh handle; it works unless the disk has vanished.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let generation = self.hardware.state.borrow().generation;
        Self {
            hardware: Rc::clone(&self.hardware),
            generation,
        }
    }

    /// The same disk by what `Device::handle` says of an open handle: as dead or alive as that one.
    #[must_use]
    pub fn at_handle(&self, handle: u64) -> Self {
        Self {
            hardware: Rc::clone(&self.hardware),
            generation: (handle >> 32) as u32,
        }
    }

    /// Number of the disk.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.hardware.number
    }

    /// Size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.hardware.shape.size_bytes
    }

    /// Whether the disk can be reached by a fresh handle.
    #[must_use]
    pub fn is_present(&self) -> bool {
        !self.hardware.state.borrow().faults.is_vanished
    }

    /// Counters so far.
    #[must_use]
    pub fn counters(&self) -> DiskCounters {
        self.hardware.state.borrow().counters
    }

    /// I/Os taken and not answered.
    #[must_use]
    pub fn in_flight_count(&self) -> usize {
        self.hardware.state.borrow().in_flight.len()
    }

    /// Whether a flush is under way.
    #[must_use]
    pub fn is_flushing(&self) -> bool {
        let state = self.hardware.state.borrow();
        let is_flush = |work: &Work| matches!(work, Work::Flush { .. });
        state.in_flight.values().any(is_flush)
    }

    /// Copies the present contents out, behind the engine's back: for checkers and the reference model.
    pub fn peek(&self, offset_bytes: u64, target: &mut [u8]) {
        self.hardware
            .state
            .borrow()
            .current
            .read(offset_bytes, target);
    }

    /// Overwrites durable and present contents, behind the engine's back: for test images and a foreign actor.
    pub fn poke(&self, offset_bytes: u64, source: &[u8]) {
        let mut state = self.hardware.state.borrow_mut();
        state.current.write(offset_bytes, source);
        state.durable.write(offset_bytes, source);
    }

    /// Whether any byte of the range was ever written and not given back.
    #[must_use]
    pub fn is_allocated(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        self.hardware
            .state
            .borrow()
            .current
            .is_allocated(offset_bytes, length_bytes)
    }

    /// Whether any sector of the range (bytes of the disk) cannot be read now.
    #[must_use]
    pub fn has_read_errors(&self, range: &Range<u64>) -> bool {
        let state = self.hardware.state.borrow();
        state
            .faults
            .read_errors
            .iter()
            .any(|bad| overlaps(bad, range))
    }

    /// Whether writes to some range fail for good.
    #[must_use]
    pub fn has_write_errors(&self) -> bool {
        !self.hardware.state.borrow().faults.write_errors.is_empty()
    }

    /// Whether no fault was ever put into it.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        self.counters().faults_put.iter().all(|count| *count == 0)
    }

    /// Whether some writes find no space now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.hardware.state.borrow().faults.no_space.is_empty()
    }

    /// Whether it takes I/Os and answers none.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.hardware.state.borrow().faults.is_hung
    }

    /// Whether an interrupted I/O is still to come.
    #[must_use]
    pub fn has_retryable(&self) -> bool {
        self.hardware.state.borrow().faults.retryable_left > 0
    }

    /// Crashes the disk: I/Os in flight end unanswered, un-flushed sectors survive by chance. Handles stay alive;
    /// whoever crashes the world drops the engine's tasks first and opens new handles.
    pub fn crash(&self, kind: CrashKind) {
        let mut state = self.hardware.state.borrow_mut();
        let flying = std::mem::take(&mut state.in_flight);
        state.hung.clear();
        for (_, work) in flying {
            if let Work::Write {
                written: Some(written),
                ..
            } = work
            {
                state.unflushed.push_back(written);
            }
        }
        state.toss(kind, self.hardware.shape.atom_bytes);
        state.faults.is_hung = false;
    }

    /// Puts a fault in; it stays until the rules of its kind end it.
    pub fn put_fault(&self, fault: &Fault) {
        let hardware = &self.hardware;
        hardware.state.borrow_mut().counters.faults_put[fault.kind()] += 1;
        hardware.trace.note(
            Actor::Disk(hardware.number),
            Verb::Fault,
            [fault.kind() as u64, 0, 0],
        );
        let mut state = hardware.state.borrow_mut();
        match fault.clone() {
            Fault::ReadError(range) => state.faults.read_errors.push(range),
            Fault::WriteError(range) => state.faults.write_errors.push(range),
            Fault::FlushError { count } => state.faults.flush_errors_left += count,
            Fault::BitFlip { offset_bytes, mask } => {
                state.current.flip(offset_bytes, mask);
                state.durable.flip(offset_bytes, mask);
            }
            Fault::LostWrite(range) => state.faults.lost.push(range),
            Fault::MisdirectedWrite { range, shift_bytes } => {
                state.faults.misdirected.push((range, shift_bytes))
            }
            Fault::TornWrite(range) => state.faults.torn.push(range),
            Fault::NoSpace(range) => state.faults.no_space.push(range),
            Fault::Retryable { count } => state.faults.retryable_left += count,
            Fault::Slow { factor } => state.faults.slow_factor = factor.max(1),
            Fault::Hang => state.faults.is_hung = true,
            Fault::Vanish => {
                drop(state);
                self.vanish();
            }
            Fault::Return => {
                state.faults.is_vanished = false;
                state.faults.no_space.clear();
                state.faults.slow_factor = 1;
                state.faults.is_hung = false;
                let owed = std::mem::take(&mut state.hung);
                drop(state);
                for io in owed {
                    self.hardware.schedule(io, OWED_FACTOR);
                }
            }
        }
    }

    /// Whether a flush has failed since the last crash: what it covered may be gone after any crash, a kill too.
    pub fn has_dropped(&self) -> bool {
        !self.hardware.state.borrow().limbo.is_empty()
    }

    /// Ends every fault: nothing strikes any more, what was damaged stays damaged. A vanished disk returns.
    pub fn end_faults(&self) {
        if !self.is_present() || self.hardware.state.borrow().faults.is_hung {
            self.put_fault(&Fault::Return);
        }
        let mut state = self.hardware.state.borrow_mut();
        state.faults = FaultState {
            slow_factor: 1,
            ..FaultState::default()
        };
    }

    fn vanish(&self) {
        let answers = {
            let mut state = self.hardware.state.borrow_mut();
            state.faults.is_vanished = true;
            state.faults.is_hung = false;
            state.generation += 1;
            state.hung.clear();
            let flying = std::mem::take(&mut state.in_flight);
            let mut answers = Vec::new();
            for (_, work) in flying {
                if let Work::Write {
                    written: Some(written),
                    ..
                } = &work
                {
                    let whole = written.part(written.range.clone());
                    state.unflushed.push_back(whole);
                }
                answers.push(work);
            }
            state.toss(CrashKind::PowerCut, self.hardware.shape.atom_bytes);
            answers
        };
        for work in answers {
            work.answer_error(IoError::Gone);
        }
    }

    fn begin(&self, length_bytes: u64, offset_bytes: u64) -> Result<(), IoError> {
        let state = self.hardware.state.borrow();
        if self.generation != state.generation || state.faults.is_vanished {
            return Err(IoError::Gone);
        }
        check_range(&self.hardware.info(), offset_bytes, length_bytes)
    }

    async fn submit_write(&self, written: Written, fua: Fua) -> Result<(), IoError> {
        let answer = Slot::new();
        let length_bytes = written.range.end - written.range.start;
        self.begin(length_bytes, written.range.start)?;
        let io = {
            let mut state = self.hardware.state.borrow_mut();
            state.counters.writes += 1;
            state.counters.written_bytes += length_bytes;
            let io = state.take_number();
            let range = written.range.clone();
            let written = Written { io, ..written };
            // Half of the writes are seen by reads before they are answered, half only when they are.
            let (written, outcome) = if state.rng.chance(1, 2) {
                (None, self.hardware.apply(&mut state, written))
            } else {
                (Some(written), Ok(()))
            };
            state.in_flight.insert(
                io,
                Work::Write {
                    range,
                    written,
                    fua,
                    outcome,
                    answer: Rc::clone(&answer),
                },
            );
            io
        };
        self.hardware.schedule(io, 1);
        answer.wait().await
    }
}

impl Device for SimDisk {
    fn info(&self) -> DeviceInfo {
        self.hardware.info()
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        let answer = Slot::new();
        self.begin(buf.len() as u64, offset_bytes)?;
        let io = {
            let mut state = self.hardware.state.borrow_mut();
            state.counters.reads += 1;
            let io = state.take_number();
            // Half of the reads see the disk as it was when they came, half as it is when they are answered.
            let is_sampled = state.rng.chance(1, 2);
            if is_sampled {
                state.current.read(offset_bytes, &mut buf);
            }
            let answer = Rc::clone(&answer);
            state.in_flight.insert(
                io,
                Work::Read {
                    offset_bytes,
                    buf,
                    is_sampled,
                    answer,
                },
            );
            io
        };
        self.hardware.schedule(io, 1);
        answer.wait().await
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let end = offset_bytes
            .checked_add(data.len() as u64)
            .ok_or(IoError::OutOfRange)?;
        self.submit_write(Written::new(offset_bytes..end, Payload::Bytes(data)), fua)
            .await
    }

    async fn flush(&self) -> Result<(), IoError> {
        let answer = Slot::new();
        self.begin(0, 0)?;
        let io = {
            let mut state = self.hardware.state.borrow_mut();
            state.counters.flushes += 1;
            let io = state.take_number();
            state.in_flight.insert(
                io,
                Work::Flush {
                    covers: io,
                    answer: Rc::clone(&answer),
                },
            );
            io
        };
        self.hardware.schedule(io, self.hardware.shape.flush_times);
        answer.wait().await
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        _mode: ZeroMode,
    ) -> Result<(), IoError> {
        if !self.hardware.shape.has_zeroing_trim {
            return Err(IoError::Unsupported);
        }
        let end = offset_bytes
            .checked_add(length_bytes)
            .ok_or(IoError::OutOfRange)?;
        self.submit_write(Written::new(offset_bytes..end, Payload::Zeroes), Fua::No)
            .await
    }

    async fn check(&self) -> Result<(), IoError> {
        self.begin(0, 0)
    }

    fn handle(&self) -> Option<u64> {
        Some(u64::from(self.generation) << 32 | u64::from(self.hardware.number))
    }

    fn busy(&self) -> usize {
        self.in_flight_count()
    }
}

#[cfg(test)]
mod mechanical_tests;
#[cfg(test)]
mod tests;
