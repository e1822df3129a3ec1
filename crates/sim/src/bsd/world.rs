//! One simulated world of FreeBSD's formats: the engine on simulated disks under clients, faults, operations and
//! crashes, watched by an oracle for each volume.
//!
//! Invariants:
//! - everything that happens follows from the plan: two runs give one trace hash;
//! - a crash drops the executor with all futures, then the pending events, then crashes the disks, then the array is
//!   opened again from the disks alone;
//! - nobody is started without a disk that knows of the last change: none of these formats could know.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_engine::mutant::Mutant;
use plexum_engine::threshold::Thresholds;
use plexum_exec::{Executor, Seeded, Spawner};

use super::array::Array;
use super::plan::{End, Format, Pause, Plan, Shape};
use super::{client, compare, labels, operator};
use crate::finding::Finding;
use crate::oracle::Oracle;
use crate::scenario::small_thresholds;
use crate::subject::{Context, Force, Refusal};
use crate::world::{Counts, Outcome, PATIENCE_NS};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::{CrashKind, DiskShape, SimDisk};
use plexum_disks::fault::{FAULT_KINDS, Fault};
use plexum_disks::rng::Rng;
use plexum_disks::trace::{Actor, Trace, Verb};

/// Polls and events of a life after which it is taken as endless.
const STEPS_MAX: u64 = 40_000_000;

/// Between two looks at an array that is becoming whole.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What the tasks of a world share.
pub(super) struct Shared {
    pub plan: Plan,
    pub clock: SimClock,
    pub trace: Trace,
    pub pool: BufPool,
    pub disks: Vec<SimDisk>,
    pub oracles: RefCell<Vec<Oracle>>,
    pub findings: RefCell<Vec<Finding>>,
    pub counts: RefCell<Counts>,
    array: RefCell<Option<Rc<Array>>>,
    pub spawner: RefCell<Option<Spawner>>,
    pub next_wish: Cell<usize>,
    /// Requests begun in this life, and the most of it.
    pub life_requests: Cell<u64>,
    pub life_quota: Cell<u64>,
    /// Tasks of clients and operations that have not ended.
    pub busy: Cell<u64>,
    pub outstanding: Cell<u64>,
    /// Disks with a fault that costs the whole member, in this life.
    pub struck: RefCell<BTreeSet<u32>>,
    /// Disks that an operation is about to give to the array.
    pub reserved: RefCell<BTreeSet<u32>>,
    /// A disk vanished in this life, or a flush failed: answered writes of it are lost like in a power cut.
    pub has_vanished: Cell<bool>,
    /// No fault, no operation and no loss since the array was whole last.
    pub is_untouched: Cell<bool>,
    /// Errors are right answers from now on: parity was in doubt, and a block of its row lost.
    pub are_errors_allowed: Cell<bool>,
    pub rest_until_ns: Cell<u64>,
}

struct World {
    shared: Rc<Shared>,
    context: Context,
    order: Rng,
    executor: Executor<Seeded>,
    newest: Option<(u64, u64)>,
}

/// When a life is to crash.
#[derive(Clone, Copy)]
struct CrashDue {
    requests: u64,
    polls: u64,
    rest_ns: u64,
}

enum Stop {
    Done,
    Crashed,
    Stalled,
}

/// Runs a plan.
pub(super) fn run_plan(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Outcome {
    let mut world = World::new(plan, mutant, is_traced);
    let shared = Rc::clone(&world.shared);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        shared.find(Finding::Panic(
            text.unwrap_or_else(|| "no message".to_owned()),
        ));
        // After a panic nothing that belongs to the engine is trusted to drop cleanly.
        std::mem::forget(world);
    } else {
        drop(world);
    }
    shared.outcome()
}

impl Shared {
    pub fn find(&self, finding: Finding) {
        self.trace.note(Actor::World, Verb::Violation, [0, 0, 0]);
        self.findings.borrow_mut().push(finding);
    }

    pub fn has_findings(&self) -> bool {
        !self.findings.borrow().is_empty()
    }

    pub fn array(&self) -> Rc<Array> {
        Rc::clone(self.array.borrow().as_ref().expect("the array runs"))
    }

    pub fn volume_count(&self) -> usize {
        match &self.plan.shape {
            Shape::Mirror { .. } => 1,
            Shape::System { volumes, .. } => volumes.len(),
        }
    }

    fn count(&self, name: &'static str, by: u64) {
        *self.counts.borrow_mut().operations.entry(name).or_default() += by;
    }

    fn outcome(&self) -> Outcome {
        let mut counts = self.counts.borrow().clone();
        for disk in &self.disks {
            let done = disk.counters();
            counts.member_ios += done.reads + done.writes + done.flushes;
            for kind in 0..FAULT_KINDS {
                counts.faults_put[kind] += done.faults_put[kind];
                counts.faults_hit[kind] += done.faults_hit[kind];
            }
        }
        counts.virtual_ns = self.clock.now_ns();
        Outcome {
            findings: self.findings.borrow().clone(),
            counts,
            hash: self.trace.hash(),
            lines: self.trace.lines(),
        }
    }
}

impl World {
    fn new(plan: &Plan, mutant: Option<Mutant>, is_traced: bool) -> Self {
        let rng = Rng::new(plan.seed).fork(plan.format as u64);
        let clock = SimClock::new();
        let trace = Trace::new(clock.clone(), is_traced);
        let shape = DiskShape {
            size_bytes: plan.disk_bytes,
            sector_bytes: 512,
            atom_bytes: plan.atom_bytes,
            has_zeroing_trim: plan.seed.is_multiple_of(2),
            latency_ns: plan.latency_ns,
            flush_times: 1,
        };
        let disks = (0..plan.disk_count as u32)
            .map(|number| SimDisk::new(number, shape, clock.clone(), trace.clone(), &rng))
            .collect();
        let pool = BufPool::new(8 << 20);
        let context = Context {
            clock: clock.clone(),
            pool: pool.clone(),
            seed: plan.seed,
            mutant,
            metadata: 0,
            pace_bytes_per_s: plan.pace_bytes_per_s,
            reads_ahead: false,
            connections: 0,
            shards: 1,
            thresholds: if plan.has_small_thresholds {
                small_thresholds()
            } else {
                Thresholds::default()
            },
        };
        let shared = Shared {
            plan: plan.clone(),
            clock,
            trace,
            pool,
            disks,
            oracles: RefCell::default(),
            findings: RefCell::default(),
            counts: RefCell::default(),
            array: RefCell::default(),
            spawner: RefCell::default(),
            next_wish: Cell::new(0),
            life_requests: Cell::new(0),
            life_quota: Cell::new(0),
            busy: Cell::new(0),
            outstanding: Cell::new(0),
            struck: RefCell::default(),
            reserved: RefCell::default(),
            has_vanished: Cell::new(false),
            is_untouched: Cell::new(true),
            are_errors_allowed: Cell::new(false),
            rest_until_ns: Cell::new(0),
        };
        let mut order = rng.fork(2);
        let executor = Executor::new(Seeded::new(order.next_u64()));
        Self {
            shared: Rc::new(shared),
            context,
            order,
            executor,
            newest: None,
        }
    }

    fn run(&mut self) {
        let shared = Rc::clone(&self.shared);
        if let Err(reason) = labels::make(&shared.plan, &shared.disks) {
            shared.find(Finding::NotStarted(reason));
            return;
        }
        let sectors = shared.plan.volume_bytes / 512;
        let seed = shared.plan.seed;
        *shared.oracles.borrow_mut() = (0..shared.volume_count() as u64)
            .map(|volume| Oracle::new(seed ^ volume << 56, sectors))
            .collect();
        let mut was_short = false;
        let lives = shared.plan.lives.clone();
        for (number, (end, pause)) in lives.iter().enumerate() {
            let before = shared.counts.borrow().requests;
            let left = shared.plan.requests - before.min(shared.plan.requests);
            let (quota, due, kind) = match *end {
                End::Stop { requests } => (requests.min(left), None, CrashKind::PowerCut),
                End::Crash {
                    requests,
                    polls,
                    rest_ns,
                    kind,
                } => {
                    let due = CrashDue {
                        requests,
                        polls,
                        rest_ns,
                    };
                    let quota = if rest_ns > 0 {
                        requests.min(left)
                    } else {
                        left
                    };
                    (quota, Some(due), kind)
                }
            };
            shared.life_quota.set(quota);
            let survived = self.live(number, due);
            if shared.has_findings() {
                return;
            }
            // Parity without a log promises nothing when it is cut off degraded: most lives end in order then.
            let has_hole = shared
                .array
                .borrow()
                .as_ref()
                .is_some_and(|array| array.has_hole());
            let is_stopped = due.is_none() || has_hole && !self.order.chance(1, 6);
            if is_stopped {
                self.stop();
            } else {
                let is_nested = was_short;
                shared.counts.borrow_mut().nested_crashes += u64::from(is_nested);
                was_short = !survived && shared.counts.borrow().requests == before;
            }
            self.crash(number, kind, is_stopped, pause);
            if shared.has_findings() {
                return;
            }
        }
        self.last_lives(lives.len());
    }

    /// What is left of the requests, then everything that is broken is mended, and everything compared.
    fn last_lives(&mut self, number: usize) {
        let shared = Rc::clone(&self.shared);
        let begun = shared.counts.borrow().requests;
        let left = shared.plan.requests - begun.min(shared.plan.requests);
        for (step, quota) in [left, 0, 0].into_iter().enumerate() {
            shared.life_quota.set(quota);
            self.live(number + step, None);
            if step > 0 && !shared.has_findings() {
                self.mend();
            }
            if shared.has_findings() {
                return;
            }
            self.stop();
            if shared.has_findings() {
                return;
            }
            if step < 2 {
                self.crash(number + step, CrashKind::PowerCut, true, &Pause::default());
                self.shared.disks.iter().for_each(SimDisk::end_faults);
            }
        }
        let array = shared.array();
        if let Some(what) = array.leaks() {
            shared.find(Finding::Leak(what));
        }
        if !shared.has_findings() && !shared.are_errors_allowed.get() {
            let mut oracles = shared.oracles.borrow_mut();
            if let Some(finding) = compare::compare(&shared.plan, &shared.disks, &mut oracles) {
                shared.find(finding);
            }
        }
    }

    /// Gives a mirror disks until it lacks none, waits until nothing is left to do, reads and compares everything.
    fn mend(&mut self) {
        let shared = Rc::clone(&self.shared);
        let is_done = Rc::new(Cell::new(false));
        let (done, inside) = (Rc::clone(&is_done), Rc::clone(&shared));
        self.executor.spawn(async move {
            // Beyond the promise rows may stay in doubt: the array need not become whole.
            let is_promised = !inside.are_errors_allowed.get();
            if is_promised {
                inside.array().grown().await;
                while !inside.array().is_whole() {
                    if let Some(disk) = operator::idle_disk(&inside) {
                        operator::add_now(&inside, disk).await;
                    }
                    inside.clock.sleep(LOOK_AGAIN).await;
                }
            }
            client::read_all(&inside).await;
            if is_promised && inside.array().scrub().await > 0 {
                let text = "a scrub finds bytes that do not agree";
                inside.find(Finding::NotWhole(text.to_owned()));
            }
            done.set(true);
        });
        if !matches!(self.drive(None, || is_done.get()), Stop::Done) && !shared.has_findings() {
            let lacks = shared.array().lacks();
            shared.find(Finding::NotWhole(lacks));
        }
    }

    /// One life up to its end. False when it crashed on the way (as it should, where `crash` says so).
    fn live(&mut self, number: usize, crash: Option<CrashDue>) -> bool {
        let shared = Rc::clone(&self.shared);
        shared.life_requests.set(0);
        shared.busy.set(0);
        shared.outstanding.set(0);
        shared.has_vanished.set(false);
        shared.rest_until_ns.set(0);
        shared.struck.borrow_mut().clear();
        shared.reserved.borrow_mut().clear();
        *shared.spawner.borrow_mut() = Some(self.executor.spawner());
        let while_starting = crash.filter(|due| due.requests == 0 && due.rest_ns == 0);
        if !self.start(while_starting) {
            return false;
        }
        let array = shared.array();
        self.executor.spawn(array.background());
        self.spawn_busy(client::verify(Rc::clone(&shared), number as u64));
        for client in 0..shared.plan.clients as u32 {
            self.spawn_busy(client::work(Rc::clone(&shared), number as u64, client));
        }
        let has_rest = crash.is_some_and(|due| due.rest_ns > 0);
        match self.drive(crash, || shared.busy.get() == 0 && !has_rest) {
            Stop::Done => true,
            Stop::Crashed => false,
            Stop::Stalled => {
                let requests = shared.outstanding.get();
                shared.find(Finding::NoAnswer { requests });
                false
            }
        }
    }

    fn spawn_busy(&self, task: impl Future<Output = ()> + 'static) {
        let shared = Rc::clone(&self.shared);
        shared.busy.set(shared.busy.get() + 1);
        self.executor.spawn(async move {
            task.await;
            shared.busy.set(shared.busy.get() - 1);
        });
    }

    /// Opens what is there; true when it runs.
    fn start(&mut self, crash: Option<CrashDue>) -> bool {
        let shared = Rc::clone(&self.shared);
        let mut force = Force::No;
        loop {
            let result: Rc<RefCell<Option<Result<Array, Refusal>>>> = Rc::default();
            let (cell, context, inside) =
                (Rc::clone(&result), self.context.clone(), Rc::clone(&shared));
            self.executor.spawn(async move {
                let disks = inside.disks.iter().map(SimDisk::reopen);
                let present: Vec<SimDisk> = disks.filter(SimDisk::is_present).collect();
                let opened = Array::open(&context, &inside.plan, &present, force).await;
                *cell.borrow_mut() = Some(opened);
            });
            let waiting = Rc::clone(&result);
            match self.drive(crash, || waiting.borrow().is_some()) {
                Stop::Done => {}
                Stop::Crashed => return false,
                Stop::Stalled => {
                    shared.find(Finding::NotStarted("it never answered".to_owned()));
                    return false;
                }
            }
            let outcome = result.borrow_mut().take().expect("the start has ended");
            let numbers = [
                u64::from(force == Force::Yes),
                0,
                u64::from(outcome.is_err()),
            ];
            shared.trace.note(Actor::World, Verb::Assemble, numbers);
            match outcome {
                Ok(array) => {
                    self.adopt(array);
                    return true;
                }
                Err(Refusal::DirtyDegraded(_))
                    if force == Force::No && !shared.is_untouched.get() =>
                {
                    force = Force::Yes;
                    shared.are_errors_allowed.set(true);
                    shared.counts.borrow_mut().forced += 1;
                }
                Err(Refusal::DirtyDegraded(reason) | Refusal::Other(reason)) => {
                    shared.find(Finding::NotStarted(reason));
                    return false;
                }
            }
        }
    }

    fn adopt(&self, array: Array) {
        let shared = &self.shared;
        if let (true, Some(disk)) = (shared.is_untouched.get(), array.refused.first()) {
            let text = format!("disk {disk} is left out, and nothing had happened to it");
            shared.find(Finding::NotStarted(text));
        }
        *shared.array.borrow_mut() = Some(Rc::new(array));
    }

    /// Polls and lets time pass until `is_done`, a crash is due, or nothing will ever happen again.
    fn drive(&mut self, crash: Option<CrashDue>, is_done: impl Fn() -> bool) -> Stop {
        let shared = Rc::clone(&self.shared);
        let deadline_ns = shared.clock.now_ns() + PATIENCE_NS;
        let mut polls_left: Option<u64> = None;
        let mut quiet_since_ns: Option<u64> = None;
        for _ in 0..STEPS_MAX {
            if is_done() {
                return Stop::Done;
            }
            if let Some(due) = crash {
                let is_due = if due.rest_ns == 0 {
                    shared.life_requests.get() >= due.requests.min(shared.life_quota.get())
                } else {
                    let now = shared.clock.now_ns();
                    let is_quiet = shared.busy.get() == 0;
                    is_quiet && now - *quiet_since_ns.get_or_insert(now) >= due.rest_ns
                };
                if is_due {
                    let left = polls_left.get_or_insert(due.polls);
                    if *left == 0 {
                        return Stop::Crashed;
                    }
                    *left -= 1;
                }
            }
            if shared.has_findings() {
                return Stop::Crashed;
            }
            if self.executor.poll_one() {
                shared.counts.borrow_mut().polls += 1;
            } else if !shared.clock.advance() || shared.clock.now_ns() > deadline_ns {
                // At rest hardly anything is polled: a crash that is due comes nevertheless.
                let is_at_rest = polls_left.is_some() && shared.busy.get() == 0;
                return if is_at_rest {
                    Stop::Crashed
                } else {
                    Stop::Stalled
                };
            }
        }
        Stop::Stalled
    }

    /// An orderly stop: afterwards everything answered is durable.
    fn stop(&mut self) {
        let shared = Rc::clone(&self.shared);
        if shared.array.borrow().is_none() {
            return;
        }
        let array = shared.array();
        let mut oracles = shared.oracles.borrow_mut();
        let flushes: Vec<_> = oracles.iter_mut().map(Oracle::begin_flush).collect();
        drop(oracles);
        let result = Rc::new(Cell::new(None));
        let cell = Rc::clone(&result);
        self.executor
            .spawn(async move { cell.set(Some(array.stop().await)) });
        if !matches!(self.drive(None, || result.get().is_some()), Stop::Done) {
            shared.find(Finding::NoAnswer { requests: 1 });
            return;
        }
        match result.get().expect("the stop has ended") {
            Ok(()) => {
                let mut oracles = shared.oracles.borrow_mut();
                for (oracle, flush) in oracles.iter_mut().zip(&flushes) {
                    oracle.end_flush(flush);
                }
            }
            Err(error) if !shared.are_errors_allowed.get() => {
                shared.find(Finding::ErrorWithinPromise {
                    request: "stop".to_owned(),
                    error,
                });
            }
            Err(_) => {}
        }
        shared.counts.borrow_mut().stops += 1;
    }

    /// The end of a life: the machine is off, and comes on again with other disks perhaps.
    fn crash(&mut self, number: usize, kind: CrashKind, is_stopped: bool, pause: &Pause) {
        let shared = Rc::clone(&self.shared);
        let hidden = self.may_hide(pause, is_stopped);
        let stage = match shared.array.borrow().as_ref() {
            None => "start",
            Some(array) => {
                shared
                    .is_untouched
                    .set(shared.is_untouched.get() && !array.has_hole());
                array.stage()
            }
        };
        let how = if is_stopped {
            "stop".to_owned()
        } else {
            format!("{kind:?}")
        };
        let mut counts = shared.counts.borrow_mut();
        *counts
            .coverage
            .entry(format!("{how} / {stage}"))
            .or_default() += 1;
        counts.crashes += u64::from(!is_stopped);
        drop(counts);
        self.executor = Executor::new(Seeded::new(self.order.next_u64()));
        *shared.spawner.borrow_mut() = None;
        *shared.array.borrow_mut() = None;
        shared.clock.clear();
        if shared.disks.iter().any(SimDisk::has_dropped) {
            shared.has_vanished.set(true);
        }
        for disk in &shared.disks {
            disk.crash(kind);
            // One that is away may be found again by the restart, with old contents.
            if disk.is_present() || self.order.chance(1, 2) {
                disk.end_faults();
            }
        }
        if let Some(disk) = hidden {
            shared.disks[disk as usize].put_fault(&Fault::Vanish);
            shared.is_untouched.set(false);
            shared.count("hidden", 1);
        }
        if !labels::is_newest_present(&shared.disks) {
            shared.disks.iter().for_each(SimDisk::end_faults);
        }
        self.check_age();
        self.change(pause);
        let seen_kind = if shared.has_vanished.get() {
            CrashKind::PowerCut
        } else {
            kind
        };
        let mut oracles = shared.oracles.borrow_mut();
        oracles
            .iter_mut()
            .for_each(|oracle| oracle.crash(seen_kind));
        let numbers = [number as u64, u64::from(kind == CrashKind::Kill), 0];
        shared.trace.note(Actor::World, Verb::Crash, numbers);
    }

    /// A disk that the next life does without. After a crash parity gives nothing back.
    fn may_hide(&self, pause: &Pause, is_stopped: bool) -> Option<u32> {
        let shared = &self.shared;
        let array = shared.array.borrow();
        let (disk, array) = (pause.hides?, array.as_ref()?);
        let mut bad = shared.bad();
        bad.insert(disk);
        let is_within = array.survives(&bad) && (is_stopped || !array.needs_parity(&bad));
        (is_within && shared.disks[disk as usize].is_present()).then_some(disk)
    }

    /// What the newest disk says never gets older.
    fn check_age(&mut self) {
        let now = labels::newest(&self.shared.disks);
        if now < self.newest {
            let (before, now) = (self.newest.unwrap_or_default(), now.unwrap_or_default());
            self.shared.find(Finding::EventCountBack {
                before: before.0 << 32 | before.1,
                now: now.0 << 32 | now.1,
            });
        }
        self.newest = now;
    }

    /// What the operator does while nothing runs.
    fn change(&mut self, pause: &Pause) {
        let shared = &self.shared;
        let wall_seconds = shared.clock.wall_seconds();
        match shared.plan.format {
            Format::Gmirror if pause.activates => {
                let count = labels::activate(&shared.disks);
                shared.count("activate", count);
            }
            Format::Gmirror if pause.moves => {
                let count = labels::deactivate(&shared.disks);
                shared
                    .is_untouched
                    .set(shared.is_untouched.get() && count == 0);
                shared.count("deactivate", count);
            }
            Format::Gvinum if pause.moves => {
                let count = labels::move_lost(&shared.disks, wall_seconds);
                shared.count("move", count);
            }
            Format::Gvinum if pause.grows && shared.disks.iter().all(SimDisk::is_present) => {
                let has_grown = labels::grow(&shared.disks, wall_seconds);
                shared.count("grow", u64::from(has_grown));
            }
            _ => {}
        }
    }
}
