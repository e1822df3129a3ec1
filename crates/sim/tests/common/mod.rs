//! A small world under a script: one array on simulated disks, virtual time, crashes when the script says so.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part; tests

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::{CrashKind, DiskShape, SimDisk};
use plexum_disks::rng::Rng;
use plexum_disks::trace::Trace;
use plexum_engine::mutant::Mutant;
use plexum_engine::threshold::Thresholds;
use plexum_exec::{Executor, Seeded};
use plexum_sim::md::engine::Engine;
use plexum_sim::md::reference::{Members, Mismatch, Reference};
use plexum_sim::md::{Level, Setting, SlotArray, Spec, Status};
use plexum_sim::subject::{Context, Force, Operation, Refusal, Subject};

/// Polls and events after which a script is taken as stuck.
const STEPS_MAX: u64 = 5_000_000;

pub struct Bench {
    pub clock: SimClock,
    pub disks: Vec<SimDisk>,
    pub spec: Spec,
    pub setting: Setting,
    executor: Executor<Seeded>,
    order: Rng,
    subject: Option<Rc<Engine>>,
}

/// A spec with regions of 4 KiB.
pub fn spec(level: Level, layout: u32, member_count: usize, strip_bytes: u64) -> Spec {
    Spec {
        level,
        layout,
        member_count,
        strip_bytes,
        component_bytes: 262_144,
        region_bytes: Some(4096),
        log_bytes: None,
        is_write_back: false,
        has_ppl: false,
    }
}

impl Bench {
    /// A fresh array that runs, with its background work.
    pub fn new(seed: u64, spec: Spec, metadata: u32, mutant: Option<Mutant>) -> Self {
        Self::divided(seed, spec, metadata, mutant, 1)
    }

    /// The same on several cores.
    pub fn divided(
        seed: u64,
        spec: Spec,
        metadata: u32,
        mutant: Option<Mutant>,
        shards: usize,
    ) -> Self {
        let mut bench = Self::empty(seed, spec, metadata, mutant, shards);
        let (setting, spec, disks) = (
            bench.setting.clone(),
            bench.spec.clone(),
            bench.disks.clone(),
        );
        let made = bench.run(async move { Engine::create(&setting, &spec, &disks).await });
        bench.adopt(made.unwrap());
        bench
    }

    fn empty(seed: u64, spec: Spec, metadata: u32, mutant: Option<Mutant>, shards: usize) -> Self {
        let rng = Rng::new(seed);
        let clock = SimClock::new();
        let trace = Trace::new(clock.clone(), false);
        let shape = DiskShape {
            size_bytes: spec.component_bytes + (4 << 20),
            sector_bytes: 512,
            atom_bytes: if metadata == 90 { 4096 } else { 512 },
            has_zeroing_trim: false,
            latency_ns: 50_000,
            flush_times: 1,
        };
        let disks = (0..spec.member_count as u32 + 3)
            .map(|number| SimDisk::new(number, shape, clock.clone(), trace.clone(), &rng))
            .collect();
        let mut order = rng.fork(2);
        let context = Context {
            clock: clock.clone(),
            pool: BufPool::new(1 << 20),
            // Multiples of 3 would begin with a resync, multiples of 5 with a write-mostly member.
            seed: seed * 15 + 1,
            mutant,
            pace_bytes_per_s: 32 << 20,
            thresholds: Thresholds::default(),
        };
        let setting = Setting {
            context,
            metadata,
            reads_ahead: false,
            connections: 0,
            shards,
        };
        let executor = Executor::new(Seeded::new(order.next_u64()));
        Self {
            clock,
            disks,
            spec,
            setting,
            executor,
            order,
            subject: None,
        }
    }

    fn adopt(&mut self, engine: Engine) {
        let subject = Rc::new(engine);
        let spawner = self.executor.spawner();
        self.executor.spawn(Rc::clone(&subject).background(spawner));
        self.subject = Some(subject);
    }

    /// Runs a future to its end.
    pub fn run<T: 'static>(&mut self, future: impl Future<Output = T> + 'static) -> T {
        self.run_for(u64::MAX, future).expect("it comes to an end")
    }

    /// Runs a future for at most so many polls of tasks.
    pub fn run_for<T: 'static>(
        &mut self,
        polls: u64,
        future: impl Future<Output = T> + 'static,
    ) -> Option<T> {
        let cell: Rc<RefCell<Option<T>>> = Rc::default();
        let inside = Rc::clone(&cell);
        self.executor.spawn(async move {
            *inside.borrow_mut() = Some(future.await);
        });
        let mut left = polls;
        for _ in 0..STEPS_MAX {
            if cell.borrow().is_some() || left == 0 {
                return cell.take();
            }
            if self.executor.poll_one() {
                left -= 1;
            } else {
                assert!(self.clock.advance(), "something is still to happen");
            }
        }
        panic!("the script is stuck");
    }

    /// One poll of a task, or the next moment at which there is one.
    pub fn step(&mut self) {
        assert!(self.executor.poll_one() || self.clock.advance());
    }

    /// Writes from now on until the array crashes, so that it stays dirty.
    pub fn keep_writing(&mut self) {
        let (subject, clock) = (self.subject(), self.clock.clone());
        let data = self.setting.context.pool.copy_of(&[9; 4096]).freeze();
        self.executor.spawn(async move {
            loop {
                subject.write(0, 0, data.clone(), Fua::No).await.unwrap();
                clock.sleep(Duration::from_millis(5)).await;
            }
        });
    }

    pub fn subject(&self) -> Rc<Engine> {
        Rc::clone(self.subject.as_ref().unwrap())
    }

    pub fn status(&self) -> Status {
        self.subject().status()
    }

    /// Lets time pass.
    pub fn rest(&mut self, milliseconds: u64) {
        let clock = self.clock.clone();
        self.run(async move { clock.sleep(Duration::from_millis(milliseconds)).await });
    }

    /// Drops the engine and crashes the disks.
    pub fn crash(&mut self, kind: CrashKind) {
        self.executor = Executor::new(Seeded::new(self.order.next_u64()));
        self.subject = None;
        self.clock.clear();
        self.disks.iter().for_each(|disk| disk.crash(kind));
    }

    /// Starts the array from the disks that are there.
    pub fn start(&mut self, force: Force) -> Result<(), Refusal> {
        let setting = self.setting.clone();
        let spec = self.spec.clone();
        let disks: Vec<SimDisk> = self
            .disks
            .iter()
            .filter(|disk| disk.is_present())
            .map(SimDisk::reopen)
            .collect();
        let made =
            self.run(async move { Engine::assemble(&setting, &spec, &disks, force).await })?;
        self.adopt(made);
        Ok(())
    }

    /// Stops in order.
    pub fn stop(&mut self) {
        let subject = self.subject();
        self.run(async move { subject.stop().await }).unwrap();
        self.crash(CrashKind::PowerCut);
    }

    pub fn operate(&mut self, operation: Operation) -> Result<(), String> {
        let (subject, disks) = (self.subject(), self.disks.clone());
        self.run(async move { subject.operate(operation, &disks).await })
    }

    /// Writes one byte value over a range of the volume.
    pub fn write(&mut self, offset: u64, length: usize, value: u8) -> Result<(), IoError> {
        let future = self.writing(offset, length, value);
        self.run(future)
    }

    pub fn writing(
        &self,
        offset: u64,
        length: usize,
        value: u8,
    ) -> impl Future<Output = Result<(), IoError>> + 'static {
        let subject = self.subject();
        let data = self
            .setting
            .context
            .pool
            .copy_of(&vec![value; length])
            .freeze();
        async move { subject.write(0, offset, data, Fua::No).await }
    }

    pub fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, IoError> {
        let subject = self.subject();
        self.run(async move { subject.read(0, offset..offset + length).await })
    }

    pub fn flush(&mut self) {
        let subject = self.subject();
        self.run(async move { subject.flush(0).await }).unwrap();
    }

    /// Waits until nothing is being rebuilt or resynced.
    pub fn settle(&mut self) {
        for _ in 0..600 {
            if !self.status().is_syncing {
                return;
            }
            self.rest(100);
        }
        panic!("it does not settle: {:?}", self.status());
    }

    /// Waits until every slot has its member; rows in doubt may stay in doubt.
    pub fn settle_rebuild(&mut self) {
        for _ in 0..600 {
            if !self.status().slots.contains(&None) {
                return;
            }
            self.rest(100);
        }
        panic!("it is not rebuilt: {:?}", self.status());
    }

    /// Where redundancy disagrees on the members, by the reference model.
    pub fn mismatches(&self) -> Vec<Mismatch> {
        let subject = self.subject();
        let status = subject.status();
        let members: Members = status
            .slots
            .iter()
            .map(|disk| {
                disk.map(|disk| {
                    let mut bytes = vec![0; self.spec.component_bytes as usize];
                    let start = subject.data_offset_bytes(disk);
                    self.disks[disk as usize].peek(start, &mut bytes);
                    bytes
                })
            })
            .collect();
        Reference::new(&self.spec)
            .without_ranges(&status.bad_ranges)
            .mismatches(&members)
    }

    /// Byte of the disk where a slot's data area begins.
    pub fn data_start(&self, disk: u32) -> u64 {
        self.subject().data_offset_bytes(disk)
    }
}
