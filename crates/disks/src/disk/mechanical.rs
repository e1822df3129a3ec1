//! The works of a rotating disk: which request goes next, what the arm does, when the answer comes.
//!
//! Invariants:
//! - the mechanism does one thing at a time: a read, a write through, or a batch of the write cache;
//! - reads go before the write cache, except while it is more than three quarters full (until it is half full), and
//!   while a flush, or a write that finds no room in it, has waited too long: reads that never end keep nothing waiting
//!   for ever;
//! - a write is answered from the cache only when its bytes fit; with FUA only when they are on the platter.
//!
//! Source: lab.md section 2, points 5 to 9 and 11.

mod destage;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use super::mechanical_buffer::{DirtyRanges, Lookup, ReadBuffer};
use super::mechanical_geometry::DiskGeometry;
use super::mechanical_spec::{MechanicalSpec, QueueOrder};
use super::timed::{Bus, Command, Operation, TimedDisk, TimedHardware};

/// The write cache starts to write out after this time ...
const DESTAGE_AFTER_NS: u64 = 12_000_000;
/// ... or when it holds so much.
const DESTAGE_BYTES: u64 = 768 << 10;
/// A flush, or a write that finds no room in the write cache, that has waited so long goes before reads. Not from
/// lab.md: without a bound, a few sequential reads at a time keep a flush waiting as long as they go on, until its
/// member counts as hung.
const LATE_NS: u64 = 200_000_000;
/// What has waited so long in the operating system's queue goes first: its elevator only goes up, and meets nobody
/// behind it while there is always a next request before it. Source: `write_expire` of Linux' mq-deadline.
const EXPIRED_NS: u64 = 5_000_000_000;
/// Most ranges in the write cache, however small they are: a drive's table of them is bounded, and so is how long its
/// flush takes (some seconds). By its bytes alone a cache of 256 MiB would hold tens of thousands, and a flush take
/// minutes.
const CACHED_RANGES_MAX: usize = 1024;
/// Longest batch of the write cache.
const BATCH_NS: f64 = 12e6;
/// Ranges on either side of the head that compete for being written out next.
const CANDIDATES: usize = 32;
/// A range that starts where the head ended this short a time ago costs nothing.
const UNDER_HEAD_NS: f64 = 25_000.0;

/// Requests that the drive treats as one.
struct Job {
    operation: Operation,
    offset_bytes: u64,
    length_bytes: u64,
    is_fua: bool,
    arrived_ns: u64,
    commands: Vec<Command>,
}

impl Job {
    fn new(command: Command) -> Self {
        Self {
            operation: command.operation,
            offset_bytes: command.offset_bytes,
            length_bytes: command.length_bytes,
            is_fua: command.is_fua,
            arrived_ns: command.arrived_ns,
            commands: vec![command],
        }
    }

    fn end_bytes(&self) -> u64 {
        self.offset_bytes + self.length_bytes
    }
}

/// A flush that waits for the cache: answered when so much was written out, or when nothing is left.
struct Flush {
    job: Job,
    left_bytes: u64,
}

#[derive(Default)]
struct State {
    /// The operating system's queue.
    waiting: VecDeque<Command>,
    /// Jobs the drive holds, in any state.
    held: u32,
    mechanical: Vec<Job>,
    blocked: VecDeque<Job>,
    flushes: Vec<Flush>,
    is_busy: bool,
    head_bytes: u64,
    head_ns: f64,
    head_cylinder: u64,
    elevator_bytes: u64,
    interface_free_ns: u64,
    buffer: ReadBuffer,
    dirty: DirtyRanges,
    dirty_since_ns: Option<u64>,
    accepting_bytes: u64,
    accepting_count: usize,
    destaging_bytes: u64,
    is_destaging: bool,
    is_pressed: bool,
    has_timer: bool,
}

impl State {
    fn cached_bytes(&self) -> u64 {
        self.dirty.total_bytes() + self.accepting_bytes + self.destaging_bytes
    }

    fn cached_ranges(&self) -> usize {
        self.dirty.count() + self.accepting_count
    }

    /// Whether the write cache has room for a write.
    fn has_room(&self, length_bytes: u64, cache_bytes: u64) -> bool {
        length_bytes + self.cached_bytes() <= cache_bytes
            && self.cached_ranges() < CACHED_RANGES_MAX
    }
}

pub(super) struct Machine {
    spec: MechanicalSpec,
    geometry: DiskGeometry,
    bus: Option<Bus>,
    state: RefCell<State>,
}

/// How long a positioning takes, by reason.
#[derive(Clone, Copy, Debug, Default)]
struct Positioning {
    seek_ns: f64,
    rotation_ns: f64,
}

impl Machine {
    pub fn new(spec: MechanicalSpec, bus: Option<Bus>) -> Self {
        Self {
            geometry: DiskGeometry::new(&spec),
            spec,
            bus,
            state: RefCell::default(),
        }
    }

    pub fn head(&self) -> (u64, u64) {
        (
            self.state.borrow().head_cylinder,
            self.geometry.cylinder_count(),
        )
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.state.borrow().cached_bytes()
    }

    pub fn submit(&self, inner: &Rc<TimedHardware>, command: Command) {
        self.state.borrow_mut().waiting.push_back(command);
        self.pump(inner);
    }

    fn ms(&self, milliseconds: f64) -> f64 {
        milliseconds * 1e6 * self.spec.slow_factor
    }

    /// Lets everything go on that can.
    fn pump(&self, inner: &Rc<TimedHardware>) {
        let mut state = self.state.borrow_mut();
        while state.held < self.spec.queue_depth && !state.waiting.is_empty() {
            let job = self.next_waiting(&mut state, inner.clock.now_ns());
            state.held += 1;
            self.place(inner, &mut state, job);
        }
        while !state.is_busy && self.start(inner, &mut state) {}
    }

    /// Takes the next request from the operating system's queue, joined with its neighbours.
    fn next_waiting(&self, state: &mut State, now_ns: u64) -> Job {
        // Commands wait in the order in which they came: the first one is the oldest.
        let is_expired =
            |command: &Command| now_ns.saturating_sub(command.arrived_ns) >= EXPIRED_NS;
        let index = match self.spec.order {
            _ if state.waiting.front().is_some_and(is_expired) => 0,
            QueueOrder::Fifo => 0,
            QueueOrder::Elevator => {
                let from = state.elevator_bytes;
                let key = |command: &Command| {
                    let is_behind = command.offset_bytes < from;
                    (is_behind, command.offset_bytes)
                };
                (0..state.waiting.len())
                    .min_by_key(|index| key(&state.waiting[*index]))
                    .expect("something waits")
            }
        };
        let first = state.waiting.remove(index).expect("the index is inside");
        let mut job = Job::new(first);
        while job.operation != Operation::Flush && job.length_bytes < self.spec.merge_bytes_max {
            let fits = |other: &Command| {
                other.operation == job.operation
                    && other.is_fua == job.is_fua
                    && job.length_bytes + other.length_bytes <= self.spec.merge_bytes_max
                    && (other.offset_bytes == job.end_bytes()
                        || other.offset_bytes + other.length_bytes == job.offset_bytes)
            };
            let Some(index) = state.waiting.iter().position(fits) else {
                break;
            };
            let other = state.waiting.remove(index).expect("the index is inside");
            job.offset_bytes = job.offset_bytes.min(other.offset_bytes);
            job.length_bytes += other.length_bytes;
            job.arrived_ns = job.arrived_ns.min(other.arrived_ns);
            job.commands.push(other);
        }
        state.elevator_bytes = job.end_bytes();
        job
    }

    /// A job enters the drive.
    fn place(&self, inner: &Rc<TimedHardware>, state: &mut State, job: Job) {
        let now = inner.clock.now_ns();
        inner.figures.borrow_mut().queue_ns += now - job.arrived_ns;
        match job.operation {
            Operation::Read if state.dirty.holds(job.offset_bytes, job.end_bytes()) => {
                self.answer_hit(inner, state, job);
            }
            Operation::Read => state.mechanical.push(job),
            Operation::Write => self.place_write(inner, state, job),
            Operation::Flush if state.cached_bytes() == 0 => {
                let end = now + self.ms(self.spec.write_ms) as u64;
                self.answer_at(inner, job, end);
            }
            Operation::Flush => {
                let left_bytes = state.cached_bytes();
                state.flushes.push(Flush { job, left_bytes });
            }
        }
    }

    fn place_write(&self, inner: &Rc<TimedHardware>, state: &mut State, job: Job) {
        state.buffer.forget(job.offset_bytes, job.end_bytes());
        if job.is_fua || job.length_bytes > self.spec.write_cache_bytes {
            state.mechanical.push(job);
            return;
        }
        let has_room = state.has_room(job.length_bytes, self.spec.write_cache_bytes);
        if !has_room || !state.blocked.is_empty() {
            state.blocked.push_back(job);
            return;
        }
        self.accept(inner, state, job);
    }

    /// The write cache takes a write.
    fn accept(&self, inner: &Rc<TimedHardware>, state: &mut State, job: Job) {
        let now = inner.clock.now_ns();
        state.accepting_bytes += job.length_bytes;
        state.accepting_count += 1;
        let overhead = self.ms(self.spec.write_ms);
        inner.figures.borrow_mut().overhead_ns += overhead as u64;
        let end = self.transfer(inner, state, now + overhead as u64, job.length_bytes);
        let shared = Rc::clone(inner);
        inner.clock.call_after(end - now, move || {
            let machine = TimedDisk::machine(&shared);
            {
                let mut state = machine.state.borrow_mut();
                state.accepting_bytes -= job.length_bytes;
                state.accepting_count -= 1;
                state.dirty.insert(job.offset_bytes, job.end_bytes());
                let now = shared.clock.now_ns();
                state.dirty_since_ns.get_or_insert(now);
                machine.watch_pressure(&mut state);
            }
            machine.answer(&shared, job);
        });
    }

    /// Moves bytes between host and buffer; returns when that ends.
    fn transfer(
        &self,
        inner: &Rc<TimedHardware>,
        state: &mut State,
        earliest_ns: u64,
        length_bytes: u64,
    ) -> u64 {
        let own_ns = (length_bytes as f64 / self.spec.interface_bytes_per_s * 1e9) as u64;
        let start = earliest_ns.max(state.interface_free_ns);
        let mut end = start + own_ns;
        if let Some(bus) = &self.bus {
            end = end.max(bus.reserve(inner.clock.now_ns(), start, length_bytes).1);
        }
        state.interface_free_ns = end;
        inner.figures.borrow_mut().interface_ns += end - earliest_ns;
        end
    }

    fn answer_hit(&self, inner: &Rc<TimedHardware>, state: &mut State, job: Job) {
        let overhead = self.ms(self.spec.hit_ms) as u64;
        let now = inner.clock.now_ns();
        let end = self.transfer(inner, state, now + overhead, job.length_bytes);
        {
            let mut figures = inner.figures.borrow_mut();
            figures.hits += 1;
            figures.overhead_ns += overhead;
        }
        self.answer_at(inner, job, end);
    }

    fn answer_at(&self, inner: &Rc<TimedHardware>, job: Job, at_ns: u64) {
        let shared = Rc::clone(inner);
        let delay = at_ns - inner.clock.now_ns();
        inner.clock.call_after(delay, move || {
            TimedDisk::machine(&shared).answer(&shared, job);
        });
    }

    fn answer(&self, inner: &Rc<TimedHardware>, job: Job) {
        self.state.borrow_mut().held -= 1;
        for command in job.commands {
            inner.finish(command);
        }
        self.pump(inner);
    }

    /// Gives the idle mechanism something to do. True when it should be asked again: something was answered without it.
    fn start(&self, inner: &Rc<TimedHardware>, state: &mut State) -> bool {
        let now = inner.clock.now_ns();
        let is_late = |job: &Job| now.saturating_sub(job.arrived_ns) >= LATE_NS;
        let is_pressed = state.is_pressed
            || state.blocked.front().is_some_and(is_late)
            || (state.flushes.first()).is_some_and(|flush| is_late(&flush.job));
        if is_pressed && !state.dirty.is_empty() {
            self.destage(inner, state);
            return false;
        }
        if let Some(index) = self.choose(state, now) {
            let job = state.mechanical.remove(index);
            return match job.operation {
                Operation::Read => self.read(inner, state, job),
                _ => {
                    self.write_through(inner, state, job);
                    false
                }
            };
        }
        if state.dirty.is_empty() {
            state.is_destaging = false;
            return false;
        }
        let due = state.dirty_since_ns.unwrap_or(now) + DESTAGE_AFTER_NS;
        let threshold = DESTAGE_BYTES.min(self.spec.write_cache_bytes / 2);
        let is_due = state.is_destaging
            || !state.flushes.is_empty()
            || state.dirty.total_bytes() >= threshold
            || now >= due;
        if is_due {
            self.destage(inner, state);
        } else if !state.has_timer {
            state.has_timer = true;
            let shared = Rc::clone(inner);
            inner.clock.call_after(due - now, move || {
                let machine = TimedDisk::machine(&shared);
                machine.state.borrow_mut().has_timer = false;
                machine.pump(&shared);
            });
        }
        false
    }

    /// Shortest positioning first, with ageing; the first one when there is one.
    fn choose(&self, state: &State, now_ns: u64) -> Option<usize> {
        if state.mechanical.len() <= 1 {
            return (!state.mechanical.is_empty()).then_some(0);
        }
        let cost = |job: &Job| {
            let is_write = job.operation == Operation::Write;
            let at = now_ns as f64 + self.ms(self.spec.overhead_ms);
            let way = self.positioning(state, job.offset_bytes, at, is_write);
            way.seek_ns + way.rotation_ns - now_ns.saturating_sub(job.arrived_ns) as f64 / 8.0
        };
        let mut best = (0, f64::INFINITY);
        for (index, job) in state.mechanical.iter().enumerate() {
            let cost = cost(job);
            if cost < best.1 {
                best = (index, cost);
            }
        }
        Some(best.0)
    }

    fn positioning(
        &self,
        state: &State,
        at_bytes: u64,
        now_ns: f64,
        is_write: bool,
    ) -> Positioning {
        let slow = self.spec.slow_factor;
        let cylinder = self.geometry.spot(at_bytes).cylinder;
        let mut seek = self.geometry.seek_ns(state.head_cylinder, cylinder);
        if is_write && cylinder != state.head_cylinder {
            seek += self.spec.write_settle_ms * 1e6;
        }
        let rotation = self.geometry.rotation_ns(at_bytes, now_ns + seek * slow);
        Positioning {
            seek_ns: seek * slow,
            rotation_ns: rotation * slow,
        }
    }

    /// Moves the arm and counts it.
    fn position(
        &self,
        inner: &TimedHardware,
        state: &mut State,
        at_bytes: u64,
        now_ns: f64,
        is_write: bool,
    ) -> f64 {
        let way = self.positioning(state, at_bytes, now_ns, is_write);
        let cylinder = self.geometry.spot(at_bytes).cylinder;
        let mut figures = inner.figures.borrow_mut();
        if cylinder != state.head_cylinder {
            figures.seeks += 1;
            figures.seek_cylinders += cylinder.abs_diff(state.head_cylinder);
        }
        figures.seek_ns += way.seek_ns as u64;
        figures.rotation_ns += way.rotation_ns as u64;
        state.head_cylinder = cylinder;
        now_ns + way.seek_ns + way.rotation_ns
    }

    /// The head has come to `at_bytes` at `now_ns`.
    fn leave_head(&self, state: &mut State, at_bytes: u64, now_ns: f64) {
        state.head_bytes = at_bytes;
        state.head_ns = now_ns;
        state.head_cylinder = self.geometry.spot(at_bytes.saturating_sub(1)).cylinder;
    }

    fn stop_stream(&self, state: &mut State, now_ns: f64) {
        if let Some(at) = state.buffer.stop(&self.geometry, &self.spec, now_ns) {
            state.head_cylinder = self.geometry.spot(at.saturating_sub(1)).cylinder;
            state.head_bytes = at;
            state.head_ns = 0.0;
        }
    }

    /// Reads by the mechanism. True when the buffer had it after all.
    fn read(&self, inner: &Rc<TimedHardware>, state: &mut State, job: Job) -> bool {
        let now = inner.clock.now_ns();
        let (start, length) = (job.offset_bytes, job.length_bytes);
        let found = state
            .buffer
            .look_up(&self.geometry, &self.spec, start, length, now as f64);
        match found {
            Lookup::Hit => {
                self.answer_hit(inner, state, job);
                true
            }
            Lookup::Ride(done_ns) => {
                let done_ns = done_ns.max(now as f64 + self.ms(self.spec.hit_ms));
                {
                    let mut figures = inner.figures.borrow_mut();
                    figures.rides += 1;
                    figures.transfer_ns += (done_ns - now as f64) as u64;
                }
                self.leave_head(state, job.end_bytes(), done_ns);
                self.finish_media(inner, state, job, now as f64, done_ns);
                false
            }
            Lookup::Miss => {
                self.stop_stream(state, now as f64);
                let overhead = self.ms(self.spec.overhead_ms);
                let media = self.position(inner, state, start, now as f64 + overhead, false);
                let transfer = self.geometry.transfer_ns(start, length) * self.spec.slow_factor;
                {
                    let mut figures = inner.figures.borrow_mut();
                    figures.misses += 1;
                    figures.overhead_ns += overhead as u64;
                    figures.transfer_ns += transfer as u64;
                }
                state
                    .buffer
                    .open(&self.geometry, &self.spec, start, length, media);
                self.leave_head(state, job.end_bytes(), media + transfer);
                self.finish_media(inner, state, job, media, media + transfer);
                false
            }
        }
    }

    /// The mechanism is busy until `end_ns`; the answer may have to wait for the bus.
    fn finish_media(
        &self,
        inner: &Rc<TimedHardware>,
        state: &mut State,
        job: Job,
        media_ns: f64,
        end_ns: f64,
    ) {
        let now = inner.clock.now_ns();
        let end = (end_ns.ceil() as u64).max(now);
        let mut answered = end;
        if let Some(bus) = &self.bus {
            let length_ns = (job.length_bytes as f64 / bus.bytes_per_s() * 1e9) as u64;
            let earliest = end.saturating_sub(length_ns).max(media_ns as u64).max(now);
            let (_, until) = bus.reserve(now, earliest, job.length_bytes);
            answered = end.max(until);
            inner.figures.borrow_mut().interface_ns += answered - end;
        }
        state.is_busy = true;
        let shared = Rc::clone(inner);
        inner.clock.call_after(end - now, move || {
            let machine = TimedDisk::machine(&shared);
            machine.state.borrow_mut().is_busy = false;
            if answered > end {
                machine.answer_at(&shared, job, answered);
                machine.pump(&shared);
            } else {
                machine.answer(&shared, job);
            }
        });
    }

    /// Writes to the platter before the answer. The data come over the bus while the arm moves.
    fn write_through(&self, inner: &Rc<TimedHardware>, state: &mut State, job: Job) {
        let now = inner.clock.now_ns();
        self.stop_stream(state, now as f64);
        let overhead = self.ms(self.spec.overhead_ms);
        let earliest = now + overhead as u64;
        let first = self.transfer_ahead(inner, earliest, job.length_bytes);
        let mut media = self.position(inner, state, job.offset_bytes, earliest as f64, true);
        if (first.0 as f64) > media {
            // The arm was there before the data: it waits for the sector to come round again.
            let wait = self.geometry.rotation_ns(job.offset_bytes, first.0 as f64);
            media = first.0 as f64 + wait;
        }
        let transfer = self
            .geometry
            .transfer_ns(job.offset_bytes, job.length_bytes)
            * self.spec.slow_factor
            / self.spec.write_efficiency;
        {
            let mut figures = inner.figures.borrow_mut();
            figures.overhead_ns += overhead as u64;
            figures.transfer_ns += transfer as u64;
        }
        let end = (media + transfer).max(first.1 as f64);
        self.leave_head(state, job.end_bytes(), media + transfer);
        state.is_busy = true;
        let end_ns = end.ceil() as u64;
        let shared = Rc::clone(inner);
        inner.clock.call_after(end_ns - now, move || {
            let machine = TimedDisk::machine(&shared);
            machine.state.borrow_mut().is_busy = false;
            machine.answer(&shared, job);
        });
    }

    /// When the bytes of a write begin and end to arrive.
    fn transfer_ahead(
        &self,
        inner: &TimedHardware,
        earliest_ns: u64,
        length_bytes: u64,
    ) -> (u64, u64) {
        match &self.bus {
            Some(bus) => {
                let taken = bus.reserve(inner.clock.now_ns(), earliest_ns, length_bytes);
                inner.figures.borrow_mut().interface_ns += taken.0 - earliest_ns;
                taken
            }
            None => (earliest_ns, earliest_ns),
        }
    }
}

fn is_under_head(state: &State, start_bytes: u64, now_ns: f64) -> bool {
    start_bytes == state.head_bytes && now_ns - state.head_ns <= UNDER_HEAD_NS
}
