//! A disk with a sense of time: every request takes as long in virtual time as its model says. No faults, no crashes.
//!
//! Invariants:
//! - the same requests at the same moments give the same answers at the same moments, on any machine;
//! - each request is answered once, and never before its model says so;
//! - in timing mode bytes above `Contents::Below` are not kept: reads of them give unspecified bytes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, ZeroMode, check_range};

use super::Sparse;
use super::mechanical::Machine;
use super::mechanical_spec::DiskSpec;
use super::ssd::Channels;
use super::timed_stats::DiskFigures;
use crate::clock::{SimClock, Slot};

/// Unit of addresses, in bytes.
const SECTOR_BYTES: u32 = 512;

/// Which bytes a timed disk keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All: the run also proves contents.
    All,
    /// Those below this offset (metadata): timing mode.
    Below(u64),
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
}

/// One request as a model sees it.
pub(super) struct Command {
    pub operation: Operation,
    pub offset_bytes: u64,
    pub length_bytes: u64,
    pub is_fua: bool,
    pub arrived_ns: u64,
    answer: Rc<Slot<()>>,
}

/// One interval for which a bus is taken.
type Taken = (u64, u64);

/// A bus that several disks share, one transfer at a time.
#[derive(Clone)]
pub struct Bus {
    bytes_per_s: f64,
    taken: Rc<RefCell<Vec<Taken>>>,
}

impl Bus {
    /// A free bus.
    #[must_use]
    pub fn new(bytes_per_s: f64) -> Self {
        Self {
            bytes_per_s,
            taken: Rc::default(),
        }
    }

    pub(super) fn bytes_per_s(&self) -> f64 {
        self.bytes_per_s
    }

    /// Takes the first gap from `earliest_ns` on that is long enough; returns when it begins and ends.
    pub(super) fn reserve(&self, now_ns: u64, earliest_ns: u64, length_bytes: u64) -> Taken {
        let length_ns = (length_bytes as f64 / self.bytes_per_s * 1e9) as u64;
        let mut taken = self.taken.borrow_mut();
        taken.retain(|(_, end)| *end > now_ns);
        let mut start = earliest_ns;
        let mut place = 0;
        for (index, (from, to)) in taken.iter().enumerate() {
            if start + length_ns <= *from {
                break;
            }
            start = start.max(*to);
            place = index + 1;
        }
        taken.insert(place, (start, start + length_ns));
        (start, start + length_ns)
    }
}

enum Model {
    Mechanical(Box<Machine>),
    Ssd(Channels),
}

pub(super) struct TimedHardware {
    pub clock: SimClock,
    size_bytes: u64,
    is_rotational: bool,
    contents: Cell<Contents>,
    store: RefCell<Sparse>,
    pub figures: RefCell<DiskFigures>,
    outstanding: Cell<u64>,
    changed_ns: Cell<u64>,
    model: Model,
}

impl TimedHardware {
    /// Integrates the queue up to now.
    fn tick(&self) {
        let now = self.clock.now_ns();
        let span = now - self.changed_ns.replace(now);
        let outstanding = self.outstanding.get();
        if outstanding > 0 {
            let mut figures = self.figures.borrow_mut();
            figures.busy_ns += span;
            figures.queue_integral_ns += span * outstanding;
        }
    }

    /// Answers a request now.
    pub fn finish(&self, command: Command) {
        self.tick();
        self.outstanding.set(self.outstanding.get() - 1);
        let wait = self.clock.now_ns() - command.arrived_ns;
        {
            let mut figures = self.figures.borrow_mut();
            match command.operation {
                Operation::Read => {
                    figures.reads += 1;
                    figures.read_bytes += command.length_bytes;
                    figures.read_wait_ns += wait;
                }
                Operation::Write => {
                    figures.writes += 1;
                    figures.written_bytes += command.length_bytes;
                    figures.write_wait_ns += wait;
                }
                Operation::Flush => {
                    figures.flushes += 1;
                    figures.flush_wait_ns += wait;
                }
            }
        }
        command.answer.fill(());
    }

    fn is_kept(&self, offset_bytes: u64) -> bool {
        match self.contents.get() {
            Contents::All => true,
            Contents::Below(limit) => offset_bytes < limit,
        }
    }
}

/// A disk in virtual time. Clones are the same disk.
#[derive(Clone)]
pub struct TimedDisk {
    inner: Rc<TimedHardware>,
}

impl TimedDisk {
    /// A blank disk of that make on `bus`, when it shares one.
    ///
    /// # Errors
    /// What makes no sense in the spec.
    pub fn new(
        spec: &DiskSpec,
        clock: &SimClock,
        bus: Option<Bus>,
        contents: Contents,
    ) -> Result<Self, String> {
        spec.check()?;
        let model = match spec {
            DiskSpec::Mechanical(spec) => {
                Model::Mechanical(Box::new(Machine::new(spec.clone(), bus)))
            }
            DiskSpec::Ssd(spec) => Model::Ssd(Channels::new(spec.clone())),
        };
        let size_bytes = spec.capacity_bytes() / 4096 * 4096;
        Ok(Self {
            inner: Rc::new(TimedHardware {
                clock: clock.clone(),
                size_bytes,
                is_rotational: matches!(spec, DiskSpec::Mechanical(_)),
                contents: Cell::new(contents),
                store: RefCell::default(),
                figures: RefCell::default(),
                outstanding: Cell::new(0),
                changed_ns: Cell::new(clock.now_ns()),
                model,
            }),
        })
    }

    /// From now on other bytes are kept.
    pub fn set_contents(&self, contents: Contents) {
        self.inner.contents.set(contents);
    }

    /// What it has done so far.
    #[must_use]
    pub fn figures(&self) -> DiskFigures {
        self.inner.tick();
        *self.inner.figures.borrow()
    }

    /// Requests outstanding now.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.inner.outstanding.get()
    }

    /// Cylinder under the arm, and how many there are; `None` without moving parts.
    #[must_use]
    pub fn head(&self) -> Option<(u64, u64)> {
        match &self.inner.model {
            Model::Mechanical(machine) => Some(machine.head()),
            Model::Ssd(_) => None,
        }
    }

    /// Bytes that the host believes written and the medium does not have yet.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        match &self.inner.model {
            Model::Mechanical(machine) => machine.dirty_bytes(),
            Model::Ssd(_) => 0,
        }
    }

    async fn submit(
        &self,
        operation: Operation,
        offset_bytes: u64,
        length_bytes: u64,
        is_fua: bool,
    ) {
        let inner = &self.inner;
        inner.tick();
        inner.outstanding.set(inner.outstanding.get() + 1);
        let answer = Slot::new();
        let command = Command {
            operation,
            offset_bytes,
            length_bytes,
            is_fua,
            arrived_ns: inner.clock.now_ns(),
            answer: Rc::clone(&answer),
        };
        match &inner.model {
            Model::Mechanical(machine) => machine.submit(inner, command),
            Model::Ssd(channels) => channels.submit(inner, command),
        }
        answer.wait().await;
    }

    pub(super) fn machine(inner: &TimedHardware) -> &Machine {
        match &inner.model {
            Model::Mechanical(machine) => machine,
            Model::Ssd(_) => unreachable!("only a machine schedules calls to itself"),
        }
    }
}

impl Device for TimedDisk {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            size_bytes: self.inner.size_bytes,
            sector_bytes: SECTOR_BYTES,
            is_rotational: self.inner.is_rotational,
            has_zeroing_trim: false,
        }
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        self.submit(Operation::Read, offset_bytes, buf.len() as u64, false)
            .await;
        if self.inner.is_kept(offset_bytes) {
            self.inner.store.borrow().read(offset_bytes, &mut buf);
        }
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        check_range(&self.info(), offset_bytes, data.len() as u64)?;
        let length_bytes = data.len() as u64;
        self.submit(
            Operation::Write,
            offset_bytes,
            length_bytes,
            fua == Fua::Yes,
        )
        .await;
        if self.inner.is_kept(offset_bytes) {
            self.inner.store.borrow_mut().write(offset_bytes, &data);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.submit(Operation::Flush, 0, 0, false).await;
        Ok(())
    }

    async fn zero(
        &self,
        _offset_bytes: u64,
        _length_bytes: u64,
        _mode: ZeroMode,
    ) -> Result<(), IoError> {
        Err(IoError::Unsupported)
    }
}
