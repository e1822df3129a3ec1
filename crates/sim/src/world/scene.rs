//! What a run is made of: what its tasks share, what it counts, and what drives it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_engine::mutant::Mutant;
use plexum_exec::{Executor, Seeded, Spawner};

use crate::course::{Course, OWN_FLUSH, Plan, START_WRITES};
use crate::finding::Finding;
use crate::oracle::Oracle;
use crate::subject::{Attempt, Context, Subject};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;
use plexum_disks::fault::{FAULT_KINDS, Fault};
use plexum_disks::rng::Rng;
use plexum_disks::trace::{Actor, Trace, Verb};

/// Virtual time within which every request is answered, and the array whole after the last fault.
pub const PATIENCE_NS: u64 = 900_000_000_000;

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

/// Whether a run keeps its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracing {
    /// Only the hash over it.
    Hash,
    /// All lines.
    Lines,
}

/// What the tasks of a world share.
pub struct Scene<S: Subject> {
    pub(crate) plan: S::Plan,
    /// What the rules of the subject remember.
    pub(crate) memory: S::Memory,
    pub(crate) clock: SimClock,
    pub(crate) trace: Trace,
    pub(crate) pool: BufPool,
    pub(crate) disks: Vec<SimDisk>,
    /// By volume; none before the subject has started for the first time.
    pub(crate) oracles: RefCell<Vec<Oracle>>,
    pub(crate) findings: RefCell<Vec<Finding>>,
    pub(crate) counts: RefCell<Counts>,
    pub(crate) subject: RefCell<Option<Rc<S>>>,
    pub(super) spawner: RefCell<Option<Spawner>>,
    /// Next wish that was not looked at.
    pub(super) next_wish: Cell<usize>,
    /// Where the reads of each client go on, in sectors (`Load::has_streams`).
    pub(super) streams: RefCell<Vec<u64>>,
    /// Requests begun in this life, and the most of it.
    pub(super) life_requests: Cell<u64>,
    pub(super) life_quota: Cell<u64>,
    /// Tasks of clients and operations that have not ended.
    pub(super) busy: Cell<u64>,
    pub(super) outstanding: Cell<u64>,
    /// Disks that were struck by a fault that costs the whole member, until that is settled.
    pub(crate) struck: RefCell<BTreeSet<u32>>,
    /// Disks that an operation is about to give to the subject.
    pub(crate) reserved: RefCell<BTreeSet<u32>>,
    /// A disk vanished in this life, or a flush failed: answered writes of it are lost like in a power cut.
    pub(crate) has_vanished: Cell<bool>,
    /// Neither a fault nor an operation nor a loss so far.
    pub(crate) is_untouched: Cell<bool>,
    /// Errors are right answers from now on.
    pub(crate) are_errors_allowed: Cell<bool>,
    /// Clients rest until this moment.
    pub(super) rest_until_ns: Cell<u64>,
    /// This life is to end in a flush of the resync.
    pub(super) is_of_flush: Cell<bool>,
    /// A disk that was full in this life has space again.
    pub(crate) was_full: Cell<bool>,
    /// Writes to disks before this life.
    pub(super) writes_before: Cell<u64>,
    /// I/Os struck by a fault when this life began, by kind.
    pub(super) hits_before: Cell<[u64; FAULT_KINDS]>,
    /// The same when a request began or ended last.
    pub(super) hits_seen: Cell<[u64; FAULT_KINDS]>,
    /// A write was answered in this life.
    pub(crate) has_written: Cell<bool>,
    /// Faults that wait for a request in a stage: the stage, the slot, the fault.
    pub(super) pending: RefCell<Vec<(&'static str, usize, Fault)>>,
}

/// A run.
pub struct World<S: Subject> {
    pub(crate) scene: Rc<Scene<S>>,
    pub(crate) context: Context,
    pub(crate) order: Rng,
    pub(crate) executor: Executor<Seeded>,
    /// How lives begin: it is created until that was done once.
    pub(super) opening: Attempt,
    /// It cannot start any more, rightly.
    pub(super) is_over: bool,
    /// The last life crashed before it had come to a request.
    pub(super) was_short: bool,
}

impl<S: Subject> Scene<S> {
    /// What the world goes by.
    pub(crate) fn course(&self) -> &Course {
        self.plan.course()
    }

    /// Counts what was done.
    pub(crate) fn count(&self, what: &'static str, times: u64) {
        *self.counts.borrow_mut().operations.entry(what).or_default() += times;
    }

    pub(crate) fn find(&self, finding: Finding) {
        self.trace.note(Actor::World, Verb::Violation, [0, 0, 0]);
        self.findings.borrow_mut().push(finding);
    }

    /// Whether some request is in the stage of this name.
    pub(crate) fn is_at(&self, stage: Option<&'static str>) -> bool {
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
    pub(crate) fn member_writes(&self) -> u64 {
        self.disks.iter().map(|disk| disk.counters().writes).sum()
    }

    /// Where a log is to be replayed and there is no space: space is made, and then it must start. False: there was
    /// enough.
    pub(crate) fn make_space(&self) -> bool {
        let disks = self.disks.iter();
        let full: Vec<&SimDisk> = disks.filter(|disk| disk.is_full()).collect();
        full.iter().for_each(|disk| disk.put_fault(&Fault::Return));
        self.was_full.set(self.was_full.get() || !full.is_empty());
        !full.is_empty()
    }

    pub(crate) fn volume_count(&self) -> usize {
        self.oracles.borrow().len()
    }

    pub(crate) fn sector_count(&self, volume: usize) -> u64 {
        self.oracles.borrow()[volume].sector_count()
    }

    pub(crate) fn has_findings(&self) -> bool {
        !self.findings.borrow().is_empty()
    }

    pub(crate) fn subject(&self) -> Rc<S> {
        Rc::clone(self.subject.borrow().as_ref().expect("it runs"))
    }

    pub(super) fn outcome(&self) -> Outcome {
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

impl<S: Subject> World<S> {
    pub(super) fn new(plan: &S::Plan, tracing: Tracing, mutant: Option<Mutant>) -> Self {
        let course = plan.course();
        let rng = plan.rng();
        let clock = SimClock::new();
        let trace = Trace::new(clock.clone(), tracing == Tracing::Lines);
        let shape = course.disk_shape();
        let disks = (0..course.disk_count as u32)
            .map(|number| SimDisk::new(number, shape, clock.clone(), trace.clone(), &rng))
            .collect();
        let pool = BufPool::new(8 << 20);
        let context = Context {
            clock: clock.clone(),
            pool: pool.clone(),
            seed: course.seed,
            mutant,
            pace_bytes_per_s: course.pace_bytes_per_s,
            thresholds: course.thresholds(),
        };
        let scene = Scene {
            plan: plan.clone(),
            memory: S::Memory::default(),
            clock,
            trace,
            pool,
            disks,
            oracles: RefCell::default(),
            findings: RefCell::default(),
            counts: RefCell::default(),
            subject: RefCell::default(),
            spawner: RefCell::default(),
            next_wish: Cell::new(0),
            streams: RefCell::new(vec![0; course.clients]),
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
            is_of_flush: Cell::new(false),
            was_full: Cell::new(false),
            writes_before: Cell::new(0),
            hits_before: Cell::default(),
            hits_seen: Cell::default(),
            has_written: Cell::new(false),
            pending: RefCell::default(),
        };
        let mut order = rng.fork(2);
        let executor = Executor::new(Seeded::new(order.next_u64()));
        Self {
            scene: Rc::new(scene),
            context,
            order,
            executor,
            opening: Attempt::Create,
            is_over: false,
            was_short: false,
        }
    }

    /// Gives all memory back: the tasks of the last life hold what they share, and that holds the way to start tasks.
    pub(super) fn end(self) {
        *self.scene.spawner.borrow_mut() = None;
        drop(self.executor);
        *self.scene.subject.borrow_mut() = None;
        self.scene.clock.clear();
    }
}
