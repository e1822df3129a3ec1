//! One simulated world: an engine on simulated disks under clients, faults, operations and crashes, watched by the
//! oracle.
//!
//! Invariants:
//! - everything that happens follows from the scenario: two runs give one trace hash;
//! - a crash drops the executor with all futures, then the pending events, then crashes the disks, then the engine is
//!   assembled again from the disks alone;
//! - findings are collected, and the first one ends the run.

mod atlas;
mod client;
mod coverage;
mod finale;
mod foreign;
mod operator;
mod silent;
mod stale;
mod start;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::IoError;
use plexum_engine::mutant::Mutant;
use plexum_exec::{Executor, Seeded, Spawner};

use crate::checker;
use crate::drill::Drill;
use crate::finding::Finding;
use crate::oracle::Oracle;
use crate::scenario::{LifeEnd, OWN_FLUSH, Options, Promise, START_WRITES, Scenario};
use crate::subject::{Context, Subject};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::{CrashKind, DiskShape, SimDisk};
use plexum_disks::fault::{FAULT_KINDS, Fault};
use plexum_disks::rng::Rng;
use plexum_disks::trace::{Actor, Trace, Verb};

/// Virtual time within which every request is answered, and the array whole after the last fault.
pub const PATIENCE_NS: u64 = 900_000_000_000;

/// Time within which a resync comes to a flush, in a life that is to end there.
const FLUSH_PATIENCE_NS: u64 = 100_000_000;

/// Polls and events of a life after which it is taken as endless.
const STEPS_MAX: u64 = 40_000_000;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Requests begun.
    pub requests: u64,
    /// Requests answered.
    pub answers: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Crashes.
    pub crashes: u64,
    /// Crashes before the previous one was got over (assembly or resync under way).
    pub nested_crashes: u64,
    /// Orderly stops.
    pub stops: u64,
    /// Starts that were refused and forced.
    pub forced: u64,
    /// Faults put in, by kind.
    pub faults_put: [u64; FAULT_KINDS],
    /// I/Os struck by a fault, by kind.
    pub faults_hit: [u64; FAULT_KINDS],
    /// Wishes the fault budget held back.
    pub held_back: u64,
    /// Operations done, by name.
    pub operations: BTreeMap<&'static str, u64>,
    /// Polls of tasks.
    pub polls: u64,
    /// Virtual nanoseconds.
    pub virtual_ns: u64,
    /// Member I/Os.
    pub member_ios: u64,
    /// `what / during`, with how often: crashes by what was under way.
    pub coverage: BTreeMap<String, u64>,
    /// Request stage, fault that had struck in this life, crash: with how often they met.
    pub matrix: BTreeMap<Cell3, u64>,
}

/// Names of a request stage, a fault and a crash (`none` where there is none).
pub type Cell3 = (&'static str, &'static str, &'static str);

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What is wrong; empty when all is right.
    pub findings: Vec<Finding>,
    /// What was done.
    pub counts: Counts,
    /// Hash over the trace.
    pub hash: u64,
    /// The trace, when it was kept.
    pub lines: Vec<String>,
}

/// What the tasks of a world share.
pub(crate) struct Shared<S> {
    pub scenario: Scenario,
    pub clock: SimClock,
    pub trace: Trace,
    pub pool: BufPool,
    pub disks: Vec<SimDisk>,
    pub oracle: RefCell<Oracle>,
    pub findings: RefCell<Vec<Finding>>,
    pub counts: RefCell<Counts>,
    pub subject: RefCell<Option<Rc<S>>>,
    pub spawner: RefCell<Option<Spawner>>,
    /// Next wish that was not looked at.
    pub next_wish: Cell<usize>,
    /// Where the reads of each client go on, in sectors (`Load::has_streams`).
    pub streams: RefCell<Vec<u64>>,
    /// Requests begun in this life, and the most of it.
    pub life_requests: Cell<u64>,
    pub life_quota: Cell<u64>,
    /// Tasks of clients and operations that have not ended.
    pub busy: Cell<u64>,
    pub outstanding: Cell<u64>,
    /// Disks that were struck by a fault that costs the whole member, until the array has noticed.
    pub doomed: RefCell<BTreeSet<u32>>,
    /// Disks that an operation is about to give to the array.
    pub reserved: RefCell<BTreeSet<u32>>,
    /// A disk vanished in this life, or a flush failed: answered writes of it are lost like in a power cut.
    pub has_vanished: Cell<bool>,
    /// Too many cables are out: errors are right until the next start, which must need no force (W4).
    pub is_unplugged: Cell<bool>,
    /// Errors are right answers from now on.
    pub are_errors_allowed: Cell<bool>,
    pub event_count: Cell<u64>,
    /// Clients rest until this moment.
    pub rest_until_ns: Cell<u64>,
    /// This life is to end in a flush of the resync.
    pub is_of_flush: Cell<bool>,
    /// A disk that was full in this life has space again.
    pub was_full: Cell<bool>,
    /// Writes to disks before this life.
    pub writes_before: Cell<u64>,
    /// I/Os struck by a fault when this life began, by kind.
    pub hits_before: Cell<[u64; FAULT_KINDS]>,
    /// The same when a request began or ended last.
    pub hits_seen: Cell<[u64; FAULT_KINDS]>,
    /// Highest event count that was ever seen on a disk.
    pub highest_count: Cell<u64>,
    /// A write was answered in this life.
    pub has_written: Cell<bool>,
    /// All slots were held when the last life ended, and no disk was ever struck.
    pub was_whole: Cell<bool>,
    /// Faults that wait for a request in a stage: the stage, the slot, the fault.
    pub pending: RefCell<Vec<(&'static str, usize, Fault)>>,
}

struct World<S: Subject> {
    shared: Rc<Shared<S>>,
    context: Context,
    order: Rng,
    executor: Executor<Seeded>,
    size_known: bool,
    /// The array cannot start any more, rightly.
    is_over: bool,
}

/// When a life is to crash.
#[derive(Clone, Copy, Default)]
struct CrashDue {
    /// Requests begun.
    requests: u64,
    /// How long everything has rested after them; 0: it need not.
    rest_ns: u64,
    /// Some request is in this stage; `START_WRITES`: the start has begun to write to members; `OWN_FLUSH`: the array
    /// flushes for itself.
    stage: Option<&'static str>,
    /// Polls after that.
    polls: u64,
}

enum Stop {
    Done,
    Crashed,
    Stalled,
}

/// Runs one seed.
#[must_use]
pub fn run_seed<S: Subject>(seed: u64, options: &Options, mutant: Option<Mutant>) -> Outcome {
    run_scenario::<S>(&Scenario::new(seed, options), options, mutant)
}

/// Runs a scenario, which need not be the one of its seed (a shrunk plan).
#[must_use]
pub fn run_scenario<S: Subject>(
    scenario: &Scenario,
    options: &Options,
    mutant: Option<Mutant>,
) -> Outcome {
    let mut scenario = scenario.clone();
    S::fit(&mut scenario.spec);
    let mut world = World::<S>::new(&scenario, options, mutant);
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
        world.end();
    }
    shared.outcome()
}

impl<S> Shared<S> {
    pub fn find(&self, finding: Finding) {
        self.trace.note(Actor::World, Verb::Violation, [0, 0, 0]);
        self.findings.borrow_mut().push(finding);
    }

    /// Whether some request is in the stage of this name.
    pub fn is_at(&self, stage: Option<&'static str>) -> bool
    where
        S: Subject,
    {
        let Some(stage) = stage else { return true };
        if stage == START_WRITES {
            return self.member_writes() > self.writes_before.get();
        }
        let subject = self.subject.borrow();
        subject.as_ref().is_some_and(|subject| {
            let stages = subject.stages();
            if stage == OWN_FLUSH {
                let is_flushing = self.disks.iter().any(SimDisk::is_flushing);
                return is_flushing && subject.is_resyncing() && !stages.contains(&"flush");
            }
            stages.contains(&stage) || stage == "idle" && stages.is_empty()
        })
    }

    /// Writes that disks have taken.
    fn member_writes(&self) -> u64 {
        self.disks.iter().map(|disk| disk.counters().writes).sum()
    }

    /// The disks in use, when the last commit of that is durable. Nobody when nothing was committed or written in this
    /// life: a clean array that was started without a member and only read has nothing to tell, and the member has
    /// missed nothing.
    fn committed_live(&self) -> Option<Vec<u32>>
    where
        S: Subject,
    {
        let subject = self.subject.borrow();
        let status = subject.as_ref()?.status();
        let is_settled = !status.is_uncommitted && !status.is_frozen && !self.is_unplugged.get();
        let has_told = status.event_count > self.event_count.get() || self.has_written.get();
        (is_settled && has_told).then_some(status.live)
    }

    /// Where a log is to be replayed and there is no space: space is made, and then it must start. False: there was
    /// enough.
    fn make_space(&self) -> bool {
        let disks = self.disks.iter();
        let full: Vec<&SimDisk> = disks.filter(|disk| disk.is_full()).collect();
        full.iter().for_each(|disk| disk.put_fault(&Fault::Return));
        self.was_full.set(self.was_full.get() || !full.is_empty());
        !full.is_empty()
    }

    /// The disk in the first slot that is held and follows one that is not.
    fn next_to_the_lost(&self) -> Option<u32>
    where
        S: Subject,
    {
        let slots = self.subject().status().slots;
        let follows = |slot: &usize| slots[(slot + slots.len() - 1) % slots.len()].is_none();
        (0..slots.len())
            .filter(follows)
            .find_map(|slot| slots[slot])
    }

    pub fn has_findings(&self) -> bool {
        !self.findings.borrow().is_empty()
    }

    pub fn subject(&self) -> Rc<S> {
        Rc::clone(self.subject.borrow().as_ref().expect("the volume runs"))
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

/// What all disks of a scenario are like.
fn shape(scenario: &Scenario) -> DiskShape {
    DiskShape {
        size_bytes: scenario.disk_bytes,
        sector_bytes: 512,
        atom_bytes: scenario.atom_bytes,
        has_zeroing_trim: scenario.has_zeroing_trim,
        latency_ns: scenario.latency_ns,
        flush_times: scenario.flush_times,
    }
}

impl<S: Subject> World<S> {
    fn new(scenario: &Scenario, options: &Options, mutant: Option<Mutant>) -> Self {
        let rng = Rng::new(scenario.seed);
        let clock = SimClock::new();
        let trace = Trace::new(clock.clone(), options.is_traced);
        let shape = shape(scenario);
        let disks = (0..scenario.disk_count as u32)
            .map(|number| SimDisk::new(number, shape, clock.clone(), trace.clone(), &rng))
            .collect();
        let pool = BufPool::new(8 << 20);
        let context = Context {
            clock: clock.clone(),
            pool: pool.clone(),
            seed: scenario.seed,
            mutant,
            metadata: scenario.metadata,
            pace_bytes_per_s: scenario.pace_bytes_per_s,
            reads_ahead: scenario.load.has_streams,
            connections: scenario.connections,
            shards: scenario.shards,
            thresholds: scenario.thresholds(),
        };
        let shared = Shared {
            scenario: scenario.clone(),
            clock,
            trace,
            pool,
            disks,
            oracle: RefCell::new(Oracle::new(scenario.seed, 0)),
            findings: RefCell::default(),
            counts: RefCell::default(),
            subject: RefCell::default(),
            spawner: RefCell::default(),
            next_wish: Cell::new(0),
            streams: RefCell::new(vec![0; scenario.clients]),
            life_requests: Cell::new(0),
            life_quota: Cell::new(0),
            busy: Cell::new(0),
            outstanding: Cell::new(0),
            doomed: RefCell::default(),
            reserved: RefCell::default(),
            has_vanished: Cell::new(false),
            is_unplugged: Cell::new(false),
            are_errors_allowed: Cell::new(scenario.promise == Promise::Beyond),
            event_count: Cell::new(0),
            rest_until_ns: Cell::new(0),
            is_of_flush: Cell::new(false),
            was_full: Cell::new(false),
            writes_before: Cell::new(0),
            hits_before: Cell::default(),
            hits_seen: Cell::default(),
            highest_count: Cell::new(0),
            has_written: Cell::new(false),
            was_whole: Cell::new(false),
            pending: RefCell::default(),
        };
        let mut order = rng.fork(2);
        let executor = Executor::new(Seeded::new(order.next_u64()));
        Self {
            shared: Rc::new(shared),
            context,
            order,
            executor,
            size_known: false,
            is_over: false,
        }
    }

    fn run(&mut self) {
        let lives = self.shared.scenario.lives.clone();
        let mut has_created = false;
        let mut was_short = false;
        for (number, end) in lives.iter().enumerate() {
            let before = self.shared.counts.borrow().requests;
            let left = self.shared.scenario.requests - before;
            match *end {
                LifeEnd::Crash {
                    requests,
                    rest_ns,
                    stage,
                    polls,
                    kind,
                } => {
                    // The first life must at least exist; creation under crashes is the create command's business.
                    let quota = if rest_ns > 0 {
                        requests.min(left)
                    } else {
                        left
                    };
                    self.shared.life_quota.set(quota);
                    let due = CrashDue {
                        requests,
                        rest_ns,
                        stage,
                        polls,
                    };
                    let survived = self.live(number, has_created, Some(due));
                    has_created |= self.size_known;
                    if self.shared.has_findings() || !has_created || self.is_over {
                        return;
                    }
                    self.note_nested(was_short);
                    was_short = !survived && self.shared.counts.borrow().requests == before;
                    self.crash(number, kind);
                }
                LifeEnd::Stop { requests } => {
                    self.shared.life_quota.set(requests.min(left));
                    self.live(number, has_created, None);
                    has_created |= self.size_known;
                    if self.shared.has_findings() || !has_created || self.is_over {
                        return;
                    }
                    if !self.shared.is_unplugged.get() {
                        self.stop();
                    }
                    self.crash(number, CrashKind::PowerCut);
                }
                LifeEnd::Foreign { salt } => self.lend(has_created, salt),
                LifeEnd::Finale => {
                    self.shared.life_quota.set(left);
                    self.live(number, has_created, None);
                    if self.shared.is_unplugged.get() && !self.shared.has_findings() {
                        self.crash(number, CrashKind::PowerCut);
                        self.shared.life_quota.set(0);
                        self.live(number + 1, true, None);
                    }
                    if !self.shared.has_findings() {
                        self.finale();
                    }
                }
            }
            if self.shared.has_findings() {
                return;
            }
        }
    }

    /// Gives all memory back: the tasks of the last life hold what they share, and that holds the way to start tasks.
    fn end(self) {
        *self.shared.spawner.borrow_mut() = None;
        drop(self.executor);
        *self.shared.subject.borrow_mut() = None;
        self.shared.clock.clear();
    }

    /// The kernel has the array between two lives.
    fn lend(&self, has_created: bool, salt: u64) {
        let shared = &self.shared;
        let is_promised =
            shared.scenario.promise == Promise::Within && !shared.are_errors_allowed.get();
        if S::HAS_METADATA && has_created && is_promised {
            shared.was_whole.set(false);
            let done = foreign::visit(shared, salt);
            shared
                .trace
                .note(Actor::World, Verb::Operate, [done.len() as u64, salt, 9]);
            let mut counts = shared.counts.borrow_mut();
            *counts.operations.entry(done).or_default() += 1;
        }
    }

    fn note_nested(&self, is_nested: bool) {
        self.shared.counts.borrow_mut().nested_crashes += u64::from(is_nested);
    }

    /// One life up to its end. False when it crashed on the way (as it should, where `crash` says so).
    fn live(&mut self, number: usize, is_created: bool, crash: Option<CrashDue>) -> bool {
        let shared = Rc::clone(&self.shared);
        shared.life_requests.set(0);
        shared.busy.set(0);
        shared.outstanding.set(0);
        shared.has_vanished.set(false);
        let is_of_flush = crash.is_some_and(|due| due.stage == Some(OWN_FLUSH));
        shared.is_of_flush.set(is_of_flush);
        let resting_until_ns = is_of_flush.then(|| shared.clock.now_ns() + FLUSH_PATIENCE_NS);
        shared.rest_until_ns.set(resting_until_ns.unwrap_or(0));
        shared.was_full.set(false);
        shared.has_written.set(false);
        shared.hits_before.set(shared.hits());
        shared.reserved.borrow_mut().clear();
        *shared.spawner.borrow_mut() = Some(self.executor.spawner());
        // The very first life is created undisturbed; from then on any poll may be the last.
        let crash_while_starting = crash.filter(|due| {
            let is_of_start = matches!(due.stage, None | Some(START_WRITES));
            is_created && due.requests == 0 && due.rest_ns == 0 && is_of_start
        });
        shared.writes_before.set(shared.member_writes());
        if !self.start(is_created, crash_while_starting) {
            return false;
        }
        let subject = shared.subject();
        let spawner = self.executor.spawner();
        self.executor.spawn(subject.background(spawner));
        if is_created {
            self.spawn_busy(client::verify(Rc::clone(&shared), number as u64));
        }
        for client in 0..shared.scenario.clients {
            self.spawn_busy(client::work(
                Rc::clone(&shared),
                number as u64,
                client as u32,
            ));
        }
        let has_rest = crash.is_some_and(|due| due.rest_ns > 0);
        match self.drive(crash, || shared.busy.get() == 0 && !has_rest) {
            Stop::Done => true,
            Stop::Crashed => false,
            // Everything was answered, and an engine without a clock of its own lets no time pass.
            Stop::Stalled if has_rest && shared.outstanding.get() == 0 => false,
            Stop::Stalled => {
                shared.find(Finding::NoAnswer {
                    requests: shared.outstanding.get(),
                });
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
                let has_begun = shared.life_requests.get() >= shared.life_quota.get();
                let is_due = if due.rest_ns == 0 {
                    shared.life_requests.get() >= due.requests
                        && (polls_left.is_some() || shared.is_at(due.stage) && shared.is_aim_hit())
                } else if has_begun && shared.busy.get() == 0 {
                    let now = shared.clock.now_ns();
                    now - *quiet_since_ns.get_or_insert(now) >= due.rest_ns
                } else {
                    false
                };
                if is_due && self.may_crash() {
                    if shared.is_of_flush.get() {
                        shared.rest_until_ns.set(0); // clients come in with it
                    }
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
            operator::strike_pending(&shared);
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

    fn crash(&mut self, number: usize, kind: CrashKind) {
        let shared = Rc::clone(&self.shared);
        shared.note_crash_coverage(kind);
        shared.note_thresholds();
        let is_untouched = shared.disks.iter().all(SimDisk::is_untouched);
        if let Some(subject) = shared.subject.borrow().as_ref() {
            let status = subject.status();
            let is_whole = status.slots.iter().all(Option::is_some) && !status.is_uncommitted;
            shared.was_whole.set(is_whole && is_untouched);
        }
        let committed = shared.committed_live();
        if shared.is_unplugged.get() {
            // The cables are put back in before the machine starts again.
            shared
                .disks
                .iter()
                .filter(|disk| !disk.is_present())
                .for_each(|disk| disk.put_fault(&Fault::Return));
        } else if shared.subject.borrow().is_some() && shared.has_hole() {
            shared.are_errors_allowed.set(true);
        }
        let lost = self.lost_with_the_crash(number);
        self.executor = Executor::new(Seeded::new(self.order.next_u64()));
        *shared.spawner.borrow_mut() = None;
        *shared.subject.borrow_mut() = None;
        shared.clock.clear();
        if shared.disks.iter().any(SimDisk::has_dropped) {
            shared.has_vanished.set(true);
        }
        for disk in &shared.disks {
            disk.crash(kind);
            if !disk.is_present() && self.order.chance(1, 2) {
                disk.put_fault(&Fault::Return); // found again by the restart, with old contents
            }
        }
        if matches!(shared.scenario.drill, Some(Drill::Meet | Drill::Aim)) {
            shared.disks.iter().for_each(SimDisk::end_faults); // the next life is about another one
        }
        if let Some(disk) = lost {
            shared.was_whole.set(false);
            shared.disks[disk as usize].put_fault(&Fault::Vanish);
            *shared
                .counts
                .borrow_mut()
                .operations
                .entry("lost-at-crash")
                .or_default() += 1;
        }
        shared.is_unplugged.set(false);
        self.check_members(committed.as_deref());
        let seen_kind = if shared.has_vanished.get() {
            CrashKind::PowerCut
        } else {
            kind
        };
        shared.oracle.borrow_mut().crash(seen_kind);
        shared.trace.note(
            Actor::World,
            Verb::Crash,
            [number as u64, u64::from(kind == CrashKind::Kill), 0],
        );
        shared.counts.borrow_mut().crashes += 1;
    }

    /// What the log is for, and copies: a member that does not survive the crash. Only where the promise covers it.
    fn lost_with_the_crash(&mut self, number: usize) -> Option<u32> {
        let shared = Rc::clone(&self.shared);
        let is_running = shared.subject.borrow().is_some() && !shared.is_unplugged.get();
        if is_running && shared.scenario.drill == Some(Drill::OneByOne) {
            return shared.next_to_the_lost();
        }
        let is_own_flush = matches!(
            shared.scenario.lives.get(number),
            Some(LifeEnd::Crash {
                stage: Some(OWN_FLUSH),
                ..
            })
        );
        let is_losing_copies = is_own_flush && shared.scenario.is_losing;
        let has_spare_member = shared.scenario.spec.log_bytes.is_some() || is_losing_copies;
        if !is_running || !has_spare_member {
            return None;
        }
        let members = shared.scenario.spec.member_count as u64;
        let of = if shared.scenario.is_losing { 1 } else { 3 };
        let slot = self.order.below(of * members) as usize;
        let disk = shared
            .subject()
            .status()
            .slots
            .get(slot)
            .copied()
            .flatten()?;
        shared.review_doomed();
        // The kernel refuses what is dirty and lacks a member: that drill would be over.
        let is_within = shared.scenario.drill != Some(Drill::Lent)
            && shared.admits(disk, &Fault::Vanish)
            && !shared.has_hole();
        is_within.then_some(disk)
    }

    /// What the members say after a crash, whoever starts the array next.
    fn check_members(&self, committed: Option<&[u32]>) {
        let shared = &self.shared;
        if !S::HAS_METADATA || shared.scenario.spec.tolerates() == 0 || shared.has_findings() {
            return;
        }
        let now = checker::highest_count(&shared.disks);
        let before = shared.highest_count.replace(now);
        if now < before {
            shared.find(Finding::EventCountBack { before, now });
        }
        if shared.are_errors_allowed.get() {
            return;
        }
        if let Some(live) = committed
            && let Some(finding) = checker::check_counts(&shared.disks, live)
        {
            shared.find(finding);
        }
        if let Some(finding) = checker::check_bits(&shared.disks, &shared.scenario.spec) {
            shared.find(finding);
        }
    }

    /// An orderly stop: afterwards everything answered is durable. A log that holds what the members have no space for
    /// says so; then space is made, and the next try has to end it.
    fn stop(&mut self) {
        let shared = Rc::clone(&self.shared);
        let flush = shared.oracle.borrow_mut().begin_flush();
        let Some(mut result) = self.try_stop() else {
            return;
        };
        if matches!(result, Err(IoError::NoSpace)) && shared.make_space() {
            let Some(second) = self.try_stop() else {
                return;
            };
            result = second;
        }
        match result {
            Ok(()) => shared.oracle.borrow_mut().end_flush(&flush),
            Err(error) if !shared.are_errors_allowed.get() => {
                shared.find(Finding::ErrorWithinPromise {
                    request: "stop".to_owned(),
                    error,
                });
            }
            Err(_) => {}
        }
        shared.note_thresholds();
        shared.counts.borrow_mut().stops += 1;
    }

    /// Stops once. `None`: it never answered, which was found.
    fn try_stop(&mut self) -> Option<Result<(), IoError>> {
        let subject = self.shared.subject();
        let result = Rc::new(Cell::new(None));
        let cell = Rc::clone(&result);
        self.executor
            .spawn(async move { cell.set(Some(subject.stop().await)) });
        if !matches!(self.drive(None, || result.get().is_some()), Stop::Done) {
            self.shared.find(Finding::NoAnswer { requests: 1 });
            return None;
        }
        result.get()
    }
}
