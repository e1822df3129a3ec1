//! What a seed means: the array, the clients, and everything that will be done to them.
//!
//! Invariants:
//! - a scenario is a pure function of seed and options, made before the run, and prints as text;
//! - whether a fault of its wishes may strike now is decided at its moment by `atlas.rs`.

mod drills;
mod met;

use std::fmt;

use super::aim::Aim;
use super::cells;
use super::drill::Drill;
use super::spec::{Level, Spec};
use crate::course::{Course, LifeEnd, Load, Plan, RESTS_NS, Shortage, Wish, draw_nested};
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

/// Whether faults stay inside of what the organisation promises to survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Nothing may be lost, no error may be answered.
    Within,
    /// More is lost than promised: errors are right, wrong data never.
    Beyond,
    /// Nothing but one silent fault at the end: scrub and repair must do what the guarantees say.
    Silent,
}

impl Promise {
    fn of(is_silent: bool, is_beyond: bool) -> Self {
        match (is_silent, is_beyond) {
            (true, _) => Promise::Silent,
            (false, true) => Promise::Beyond,
            (false, false) => Promise::Within,
        }
    }
}

/// What a run may contain.
#[derive(Clone, Debug)]
pub struct Options {
    /// Levels to choose from.
    pub levels: Vec<Level>,
    /// Requests of each seed.
    pub requests: u64,
    /// Crashes happen.
    pub has_crashes: bool,
    /// Disks fail.
    pub has_faults: bool,
    /// Administrators operate.
    pub has_operations: bool,
    /// Share of the parity arrays, in 256ths, that have a stripe log where their metadata leave room.
    pub logs_of_256: u64,
    /// Share of the stripe logs, in 256ths, that answer before the data are in place.
    pub write_backs_of_256: u64,
    /// Share of the RAID-5 arrays without a stripe log, in 256ths, that have a partial parity log.
    pub ppls_of_256: u64,
    /// Share of the ordinary seeds without connections, in 256ths, whose volume is served by several shards.
    pub shards_of_256: u64,
    /// Share of the seeds, in 256ths, whose volume has thresholds so small that they are crossed. 0: nothing is as it
    /// was not before there were such, neither flushes that take longer nor `Drill::Resync`.
    pub small_of_256: u64,
    /// Share of seeds, in 256ths, that go beyond the promise.
    pub beyond_of_256: u64,
    /// Share of seeds, in 256ths, that end in a silent fault.
    pub silent_of_256: u64,
    /// The kernel has the array between some lives.
    pub has_foreign: bool,
    /// Share of seeds, in 256ths, that are a drill: short, and bent towards one rule (see `drill.rs`).
    pub drills_of_256: u64,
    /// Every seed is this drill, where its organisation can have it.
    pub drill: Option<Drill>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            levels: Level::ALL.to_vec(),
            requests: 1000,
            has_crashes: true,
            has_faults: true,
            has_operations: true,
            logs_of_256: 160,
            write_backs_of_256: 112,
            ppls_of_256: 128,
            shards_of_256: 96,
            small_of_256: 240,
            beyond_of_256: 24,
            silent_of_256: 32,
            has_foreign: true,
            drills_of_256: 128,
            drill: None,
        }
    }
}

/// What has to come up everywhere goes by the number of the seed, not by chance.
struct Turn {
    is_silent: bool,
    is_meet: bool,
    level: Level,
    round: u64,
}

impl Turn {
    fn of(seed: u64, aim: Option<Aim>, options: &Options, rng: &mut Rng) -> Self {
        if let Some(aim) = aim {
            return Self {
                is_silent: false,
                is_meet: false,
                level: aim.level,
                round: aim.attempt,
            };
        }
        let is_silent = options.has_faults && seed % 8 * 32 + options.silent_of_256 >= 256;
        let is_meet = options.is_whole() && !is_silent && seed % 4 == 1;
        let count = options.levels.len() as u64;
        let turn = if is_silent { seed / 8 } else { seed / 4 };
        let level = if is_silent || is_meet {
            options.levels[(turn % count) as usize]
        } else {
            *rng.pick(&options.levels)
        };
        Self {
            is_silent,
            is_meet,
            level,
            round: turn / count,
        }
    }
}

impl Options {
    /// Whether everything that can happen may happen, so that drills make sense.
    pub(crate) fn is_whole(&self) -> bool {
        self.has_faults && self.has_crashes && self.has_operations && self.drills_of_256 > 0
    }
}

/// Everything a seed decides beforehand.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What the world goes by.
    pub course: Course,
    /// The array.
    pub spec: Spec,
    /// md metadata version times 100 (0.90 is 90).
    pub metadata: u32,
    /// NBD connections between the clients and the volume; 0: they call it directly.
    pub connections: usize,
    /// Shards of the volume, the home counted; 1: it is not divided.
    pub shards: usize,
    /// The rule that this seed is bent towards.
    pub drill: Option<Drill>,
    /// The cell of the coverage matrix that this seed is about.
    pub aim: Option<Aim>,
    /// How often the level had its turn before, where seeds go through all combinations.
    pub round: u64,
    /// Crashes that meet the write hole are not put off: refusals and errors are expected, wrong data never.
    pub takes_holes: bool,
    /// A member is lost with each crash where the stripe log promises to survive that, else with some; of copies with
    /// each crash in a flush of the array's own.
    pub is_losing: bool,
    /// Inside or beyond the promise.
    pub promise: Promise,
}

/// Room for metadata in front of and behind the data, at most, in bytes.
pub(crate) const METADATA_BYTES: u64 = 4 << 20;

impl Scenario {
    /// The scenario of `seed`.
    #[must_use]
    pub fn new(seed: u64, options: &Options) -> Self {
        let mut rng = Rng::new(seed).fork(1);
        let aim = Aim::of_seed(seed).filter(|_| options.is_whole());
        let Turn {
            is_silent,
            is_meet,
            level,
            round,
        } = Turn::of(seed, aim, options, &mut rng);
        let mut spec = Spec::draw(&mut rng, level);
        let is_beyond = options.has_faults && rng.below(256) < options.beyond_of_256;
        // 0.90 has no field for the data size of a member without redundancy: it would take the whole disk.
        let oldest = if spec.tolerates() > 0 { 90 } else { 120 };
        let metadata = *rng.pick(&[120, 120, 120, 120, 100, 110, oldest]);
        // A 0.90 superblock is eight sectors long: where sectors are small, changes of its table can tear, under every
        // engine. Physical sectors of 4 KiB are what keeps it whole.
        let atom_bytes = if metadata == 90 || rng.chance(1, 4) {
            4096
        } else {
            512
        };
        draw_log(&mut spec, seed, metadata, options, is_silent);
        // Long steady work, no pause long enough for a clean mark, no flush: what was written seconds ago is still in
        // the caches when its bits go.
        let is_steady = !is_silent && !is_beyond && rng.chance(1, 8);
        let has_connections = rng.chance(1, 4);
        let connections = has_connections.then(|| rng.between(1, 3) as usize);
        let think_ns_max = *rng.pick(&[0, 0, 0, 2_000_000, 200_000_000]);
        let flushes_of_100 = *rng.pick(&[7, 7, 1, 0]);
        let clients = if is_steady { (3, 5) } else { (1, 8) };
        let mut scenario = Self {
            drill: is_meet.then_some(Drill::Meet).or(aim.map(|_| Drill::Aim)),
            aim,
            round,
            takes_holes: seed.is_multiple_of(4),
            is_losing: false,
            metadata,
            connections: connections.unwrap_or(0),
            shards: 1,
            promise: Promise::of(is_silent, is_beyond),
            course: Course {
                seed,
                load: Load::default(),
                atom_bytes,
                pace_bytes_per_s: *rng.pick(&[32 << 20, 32 << 20, 4 << 20, 512 << 10, 64 << 10]),
                think_ns_max: if is_steady { 150_000_000 } else { think_ns_max },
                has_small_thresholds: false,
                flushes_of_100: if is_steady { 0 } else { flushes_of_100 },
                disk_bytes: spec.component_bytes + METADATA_BYTES,
                disk_count: spec.member_count + 3,
                latency_ns: *rng.pick(&[5_000, 50_000, 50_000, 500_000]),
                flush_times: 1,
                has_zeroing_trim: rng.chance(1, 2),
                clients: rng.between(clients.0, clients.1) as usize,
                requests: options.requests,
                wishes: Vec::new(),
                lives: Vec::new(),
                shortage: Shortage::Rest,
                aim: aim.map(|aim| aim.fault),
            },
            spec,
        };
        scenario.draw_course(&mut rng, options, is_steady);
        if scenario.drill.is_some() || scenario.promise == Promise::Within {
            scenario.draw_drill(options);
        }
        scenario.settle(options);
        scenario
    }

    /// What goes by everything else.
    fn settle(&mut self, options: &Options) {
        // A drill may ask for a log or a bitmap, which md's own log excludes.
        let spec = &mut self.spec;
        spec.has_ppl &= spec.log_bytes.is_none() && spec.region_bytes.is_none();
        self.draw_shards(options);
        let mut rng = Rng::new(self.course.seed).fork(43);
        self.course.has_small_thresholds = rng.below(256) < options.small_of_256;
        let is_flushed_slowly = self.course.flush_times > 1;
        if self.aim.is_none() && options.small_of_256 > 0 && !is_flushed_slowly {
            let drawn = *Rng::new(self.course.seed).fork(41).pick(&[1, 1, 4, 20]);
            self.course.flush_times = match self.drill {
                Some(Drill::Resync) => 20, // it is about what happens meanwhile
                _ => drawn,
            };
        }
    }

    /// Whether the volume is on several cores. Drawn apart, like the log. Cells of the coverage matrix ask for stages,
    /// which satellites do not tell.
    fn draw_shards(&mut self, options: &Options) {
        let mut rng = Rng::new(self.course.seed).fork(23);
        let is_drawn = rng.below(256) < options.shards_of_256;
        let is_asking = self.aim.is_some() || self.drill == Some(Drill::Meet);
        if is_drawn && !is_asking && self.connections == 0 && self.promise != Promise::Silent {
            self.shards = *rng.pick(&[2, 2, 3]);
        }
    }

    /// What happens, and how each life ends.
    fn draw_course(&mut self, rng: &mut Rng, options: &Options, is_steady: bool) {
        if self.promise == Promise::Silent {
            self.course.requests = self.course.requests.min(200);
            self.course.lives.push(LifeEnd::Finale);
        } else {
            self.draw_wishes(rng, options);
            self.draw_lives(rng, options);
        }
        if is_steady && options.has_crashes {
            let whole = self.course.requests;
            let crash = LifeEnd::Crash {
                requests: rng.between(whole * 6 / 10, whole * 95 / 100),
                rest_ns: 0,
                stage: None,
                polls: rng.below(3000),
                kind: CrashKind::PowerCut,
            };
            self.course.lives = vec![crash, LifeEnd::Finale];
        }
    }

    fn draw_wishes(&mut self, rng: &mut Rng, options: &Options) {
        let redundant = self.spec.tolerates() > 0;
        if options.has_faults {
            for _ in 0..rng.between(0, 12) {
                let wish = self.draw_fault(rng);
                self.course
                    .wishes
                    .push((rng.below(self.course.requests), wish));
            }
            for _ in 0..2 {
                self.course
                    .wishes
                    .push((rng.below(self.course.requests), Wish::Return));
            }
            if rng.chance(1, 4) {
                let slot = rng.below(self.spec.member_count as u64) as usize;
                self.course
                    .wishes
                    .push((rng.below(self.course.requests), Wish::Cable { slot }));
            }
            if rng.chance(1, 5) {
                let wish = self.draw_full(rng);
                let at = rng.below(self.course.requests);
                self.course.wishes.push((at, wish));
                self.course
                    .wishes
                    .push((at + rng.between(5, 200), Wish::Return));
            }
        }
        if options.has_operations && redundant {
            for _ in 0..rng.between(1, 10) {
                let slot = rng.below(self.spec.member_count as u64) as usize;
                let wish = match rng.below(10) {
                    0..=1 => Wish::Fail { slot },
                    2..=6 => Wish::Add,
                    7..=8 => Wish::Replace { slot },
                    _ => Wish::Scrub,
                };
                self.course
                    .wishes
                    .push((rng.below(self.course.requests), wish));
            }
        }
        if options.has_operations && redundant && rng.chance(1, 4) {
            self.draw_round_trip(rng);
        }
        for _ in 0..rng.below(3) {
            let length_ns = *rng.pick(&RESTS_NS);
            self.course
                .wishes
                .push((rng.below(self.course.requests), Wish::Rest { length_ns }));
        }
        self.course.wishes.sort_by_key(|(request, _)| *request);
    }

    /// A member leaves, another takes its slot, bits are cleared, that one leaves as well, and perhaps the first comes
    /// back: the bitmap no longer knows what it has missed.
    fn draw_round_trip(&mut self, rng: &mut Rng) {
        let slot = rng.below(self.spec.member_count as u64) as usize;
        let mut at = rng.below(self.course.requests / 2 + 1);
        let long = RESTS_NS[RESTS_NS.len() - 1];
        for wish in [
            Wish::Fail { slot },
            Wish::Add,
            Wish::Rest { length_ns: long },
            Wish::Fail { slot },
            Wish::Add,
            Wish::Add,
        ] {
            self.course.wishes.push((at, wish));
            at += rng.between(5, self.course.requests / 10 + 6);
        }
    }

    fn draw_full(&self, rng: &mut Rng) -> Wish {
        let sectors = self.spec.component_bytes / 512;
        let start = rng.below(sectors);
        let end = (start + rng.between(1, 1000)).min(sectors);
        Wish::Fault {
            slot: rng.below(self.spec.member_count as u64) as usize,
            fault: Fault::NoSpace(start * 512..end * 512),
        }
    }

    pub(crate) fn draw_fault(&self, rng: &mut Rng) -> Wish {
        let sectors = self.spec.component_bytes / 512;
        let start = rng.below(sectors);
        let length = *rng.pick(&[1, 1, 8, 8, 64, 300]);
        let range = start * 512..(start + length).min(sectors) * 512;
        let fault = match rng.below(20) {
            0..=6 => Fault::ReadError(range),
            7 => Fault::Hang,
            8 => Fault::WriteError(range),
            9 => Fault::TornWrite(range),
            10 => Fault::FlushError { count: 1 },
            11..=13 => Fault::Vanish,
            14..=15 => Fault::Retryable { count: 1 },
            16..=17 => Fault::Slow {
                factor: rng.between(2, 200) as u32,
            },
            _ => Fault::ReadError(0..rng.between(1, 200) * 512),
        };
        Wish::Fault {
            slot: rng.below(self.spec.member_count as u64) as usize,
            fault,
        }
    }

    fn draw_lives(&mut self, rng: &mut Rng, options: &Options) {
        let mut left = self.course.requests;
        if options.has_crashes {
            for _ in 0..rng.between(0, 6) {
                // A third of the lives ends early: in assembly, resync, or among the first requests.
                let requests = if rng.chance(1, 3) {
                    rng.below(4)
                } else {
                    rng.below(left / 2 + 1)
                };
                let kind = if rng.chance(1, 4) {
                    CrashKind::Kill
                } else {
                    CrashKind::PowerCut
                };
                let polls = if rng.chance(1, 2) {
                    rng.below(60)
                } else {
                    rng.below(3000)
                };
                self.course.lives.push(if rng.chance(1, 6) {
                    LifeEnd::Stop { requests }
                } else {
                    let rest_ns = if rng.chance(1, 3) {
                        *rng.pick(&RESTS_NS) + rng.below(200_000_000)
                    } else {
                        0
                    };
                    let stage = (rest_ns == 0 && rng.chance(3, 5))
                        .then(|| *rng.pick(&cells::stages(self.spec.level)));
                    let stage = stage.filter(|stage| *stage != "idle");
                    LifeEnd::Crash {
                        requests,
                        rest_ns,
                        stage,
                        polls: if stage.is_some() { polls % 3 } else { polls },
                        kind,
                    }
                });
                left -= requests.min(left);
                if options.has_foreign && rng.chance(1, 5) {
                    // With a partial parity log it is drawn apart: such seeds had no kernel once, and are the same
                    // else.
                    let mut apart =
                        Rng::new(self.course.seed).fork(23 + self.course.lives.len() as u64);
                    let draw = if self.spec.has_ppl {
                        &mut apart
                    } else {
                        &mut *rng
                    };
                    let salt = draw.below(1 << 32);
                    self.course.lives.push(LifeEnd::Foreign { salt });
                }
                if rng.chance(1, 5) {
                    self.course.lives.extend(draw_nested(rng, kind));
                }
            }
        }
        self.course.lives.push(LifeEnd::Finale);
    }
}

/// What closes the write hole. Drawn apart, so that everything else of a seed is the same with and without.
fn draw_log(spec: &mut Spec, seed: u64, metadata: u32, options: &Options, is_silent: bool) {
    let mut log_rng = Rng::new(seed).fork(11);
    if spec.level.has_parity() && metadata >= 110 && log_rng.below(256) < options.logs_of_256 {
        spec.log_bytes = Some(*log_rng.pick(&[128 << 10, 128 << 10, 192 << 10, 8 << 20]));
        // A silent fault under rows that wait in the log would be mended by them, unseen.
        spec.is_write_back = log_rng.below(256) < options.write_backs_of_256 && !is_silent;
    } else if spec.level == Level::Raid5
        && metadata >= 100
        && log_rng.below(256) < options.ppls_of_256
    {
        (spec.has_ppl, spec.region_bytes) = (true, None);
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.course.seed, self.spec)?;
        writeln!(
            f,
            "metadata {}, {} clients over {} connections, {} shards, {} thresholds, {} requests, {:?} the promise",
            self.metadata,
            self.course.clients,
            self.connections,
            self.shards,
            if self.course.has_small_thresholds {
                "small"
            } else {
                "ordinary"
            },
            self.course.requests,
            self.promise
        )?;
        if let Some(drill) = self.drill {
            writeln!(f, "a drill: {drill:?}, {:?}", self.course.load)?;
        }
        self.course.fmt(f)
    }
}

impl Plan for Scenario {
    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }

    fn kind(&self) -> String {
        self.spec.level.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::{RAID6_LAYOUTS, RAID10_LAYOUTS};
    use super::*;

    #[test]
    fn a_scenario_is_a_function_of_its_seed() {
        let options = Options::default();
        for seed in 0..100 {
            let one = Scenario::new(seed, &options).to_string();
            assert_eq!(one, Scenario::new(seed, &options).to_string());
        }
    }

    #[test]
    fn every_level_and_layout_comes_up() {
        let options = Options::default();
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..3000 {
            let spec = Scenario::new(seed, &options).spec;
            seen.insert((spec.level, spec.layout));
        }
        assert_eq!(
            seen.len(),
            1 + 2 + 1 + 1 + 6 + RAID6_LAYOUTS.len() + RAID10_LAYOUTS.len()
        );
    }
}
