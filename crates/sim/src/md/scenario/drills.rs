//! Scenarios that are drills.
//!
//! Invariants:
//! - a drill changes only what happens how often: faults still pass the budget of `atlas.rs`, and the same oracle and
//!   checkers judge;
//! - `Meet` counts through all stages, faults and crashes of a level in turn, the rest is drawn.

use super::{METADATA_BYTES, Options, Promise, Scenario};
use crate::course::{LifeEnd, Load, OWN_FLUSH, RESTS_NS, START_WRITES, Wish};
use crate::md::drill::{Drill, drills_of};
use crate::md::spec::Level;
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

pub(super) const LONG_NS: u64 = RESTS_NS[RESTS_NS.len() - 1];

/// Sizes that make something happen often, in bytes.
const SMALL_COMPONENT_BYTES: u64 = 262_144;
pub(super) const SMALL_RING_BYTES: u64 = 128 << 10;

fn cut(requests: u64, polls: u64) -> LifeEnd {
    LifeEnd::Crash {
        requests,
        rest_ns: 0,
        stage: None,
        polls,
        kind: CrashKind::PowerCut,
    }
}

impl Scenario {
    /// Some of those drawn are exchanged for one that came later: drawn apart, so that no other seed becomes another.
    fn exchanged(&self, picked: Drill, has_copies: bool, options: &Options) -> Drill {
        let chance = |one_of| Rng::new(self.course.seed).fork(22).chance(1, one_of);
        let has_small = has_copies && options.small_of_256 > 0;
        match picked {
            Drill::Replay if chance(3) => Drill::Refused,
            Drill::ComeBack if chance(6) => Drill::Scarred,
            Drill::Flushes if chance(4) => Drill::FailedFlush,
            Drill::Narrow if has_copies && chance(4) => Drill::Streams,
            Drill::Commits if has_small && chance(2) => Drill::Resync,
            Drill::TwoAway if chance(4) => Drill::Unplugged,
            // Long streams of reads are met by nothing else.
            Drill::Narrow | Drill::Flushes | Drill::Slow | Drill::Hang
                if has_small && Rng::new(self.course.seed).fork(23).chance(1, 4) =>
            {
                Drill::Streams
            }
            other => other,
        }
    }

    /// Turns this scenario into a drill, or leaves it as it is.
    pub(super) fn draw_drill(&mut self, options: &Options) {
        let mut rng = Rng::new(self.course.seed).fork(21);
        let drills = drills_of(self.spec.level, self.metadata);
        let can_replay = drills.contains(&Drill::Replay);
        let has_copies = matches!(self.spec.level, Level::Raid1 | Level::Raid10);
        let can_have = |drill: &Drill| match drill {
            Drill::Refused => can_replay,
            Drill::Scarred => drills.contains(&Drill::ComeBack),
            Drill::Streams | Drill::Resync => has_copies,
            // One of a RAID-1 is always enough: nobody stale is ever needed.
            Drill::OneByOne => self.spec.level != Level::Raid1 && self.spec.tolerates() > 1,
            Drill::FailedFlush | Drill::Unplugged | Drill::Lost => drills.contains(&Drill::TwoAway),
            other => drills.contains(other),
        };
        let drill = match options.drill.filter(can_have).or(self.drill) {
            Some(drill) => drill,
            None if !options.is_whole() || rng.below(256) >= options.drills_of_256 => return,
            None => self.exchanged(*rng.pick(&drills), has_copies, options),
        };
        self.drill = Some(drill);
        self.course.wishes.clear();
        self.course.lives.clear();
        self.course.requests = self.course.requests.min(rng.between(60, 240));
        self.course.clients = rng.between(2, 6) as usize;
        self.course.latency_ns = *rng.pick(&[5_000, 50_000]);
        self.course.pace_bytes_per_s = *rng.pick(&[32 << 20, 4 << 20]);
        self.course.think_ns_max = 0;
        match drill {
            Drill::RoundTrip => self.draw_round_trips(&mut rng),
            Drill::ComeBack => self.draw_come_backs(&mut rng),
            Drill::Narrow => self.draw_narrow(&mut rng),
            Drill::Flushes => self.draw_flushes(&mut rng),
            Drill::TwoAway => self.draw_two_away(&mut rng),
            Drill::Ring => self.draw_ring(&mut rng),
            Drill::Forced => self.draw_forced(&mut rng),
            Drill::Hang => self.draw_hang(&mut rng),
            Drill::Slow => self.draw_slow(&mut rng),
            Drill::Replay => self.draw_replay(&mut rng),
            Drill::Kernel => self.draw_kernel(&mut rng),
            Drill::Lent => self.draw_lent(&mut rng),
            Drill::Steady => self.draw_steady(&mut rng),
            Drill::Commits => self.draw_commits(&mut rng),
            Drill::Replace => self.draw_replace(&mut rng),
            Drill::Refused => self.draw_refused(&mut rng),
            Drill::Scarred => self.draw_scarred(&mut rng),
            Drill::FailedFlush => self.draw_failed_flushes(&mut rng),
            Drill::Unplugged => self.draw_unplugged(&mut rng),
            Drill::OneByOne => self.draw_one_by_one(&mut rng),
            Drill::Lost => self.draw_lost(&mut rng),
            Drill::Streams => self.draw_streams(&mut rng),
            Drill::Resync => self.draw_resync(&mut rng),
            Drill::Meet => self.draw_meet(&mut rng),
            Drill::Aim => self.draw_aim(&mut rng),
        }
        self.course.wishes.sort_by_key(|(request, _)| *request);
        self.course.lives.push(LifeEnd::Finale);
    }

    pub(super) fn any_slot(&self, rng: &mut Rng) -> usize {
        rng.below(self.spec.member_count as u64) as usize
    }

    pub(super) fn fresh_disk(&self, number: usize) -> u32 {
        (self.spec.member_count + number) as u32
    }

    pub(super) fn shrink(&mut self) {
        self.spec.component_bytes = SMALL_COMPONENT_BYTES;
        self.course.disk_bytes = SMALL_COMPONENT_BYTES + METADATA_BYTES;
    }

    fn with_bitmap(&mut self, rng: &mut Rng) {
        self.spec.region_bytes = Some(*rng.pick(&[4096, 16384]));
    }

    pub(super) fn at(&mut self, request: u64, wish: Wish) {
        let last = self.course.requests.saturating_sub(1);
        self.course.wishes.push((request.min(last), wish));
    }

    fn strike(&mut self, request: u64, slot: usize, fault: Fault) {
        self.at(request, Wish::Fault { slot, fault });
    }

    pub(super) fn rest(&mut self, request: u64, length_ns: u64) {
        self.at(request, Wish::Rest { length_ns });
    }

    fn draw_round_trips(&mut self, rng: &mut Rng) {
        self.shrink();
        self.with_bitmap(rng);
        let slot = self.any_slot(rng);
        let step = self.course.requests / 8;
        let fresh = self.fresh_disk(0);
        self.at(step, Wish::Fail { slot });
        self.at(2 * step, Wish::Give { disk: fresh });
        self.rest(3 * step, LONG_NS);
        self.rest(5 * step, 2 * LONG_NS);
        self.at(6 * step, Wish::Fail { slot });
        self.at(6 * step + 2, Wish::Give { disk: slot as u32 });
    }

    fn draw_come_backs(&mut self, rng: &mut Rng) {
        self.shrink();
        self.with_bitmap(rng);
        let slot = self.any_slot(rng);
        // Without a log a member comes back after so short a time that nothing of its row is settled otherwise.
        let rounds = rng.between(1, 4);
        let step = self.course.requests / (rounds + 1);
        for round in 0..rounds {
            let at = round * step + step / 4;
            self.at(at, Wish::Fail { slot });
            if rng.chance(1, 2) {
                self.rest(at + step / 3, LONG_NS + LONG_NS / 2);
            }
            self.at(at + step / 2, Wish::Give { disk: slot as u32 });
        }
        self.course.flushes_of_100 = *rng.pick(&[7, 0]);
    }

    fn draw_narrow(&mut self, rng: &mut Rng) {
        self.course.load = Load {
            reads_of_93: 30,
            is_narrow: true,
            ..Load::default()
        };
        self.course.clients = rng.between(4, 8) as usize;
        if rng.chance(1, 2) {
            let requests = rng.below(self.course.requests);
            self.course.lives.push(cut(requests, rng.below(60)));
        }
    }

    fn draw_flushes(&mut self, rng: &mut Rng) {
        self.course.flushes_of_100 = rng.between(25, 45);
        self.course.clients = rng.between(4, 8) as usize;
        self.course.load.reads_of_93 = 10;
        let lives = rng.between(3, 6);
        for _ in 0..lives {
            self.course.lives.push(cut(
                rng.between(8, self.course.requests / lives),
                rng.below(12),
            ));
        }
    }

    fn draw_two_away(&mut self, rng: &mut Rng) {
        self.course.pace_bytes_per_s = 4 << 20;
        let slot = self.any_slot(rng);
        let other = (slot + 1 + rng.below(self.spec.member_count as u64 - 1) as usize)
            % self.spec.member_count;
        let step = self.course.requests / 6;
        self.at(step, Wish::Fail { slot });
        self.at(step + 3, Wish::Fail { slot: other });
        let fresh = self.fresh_disk(0);
        self.at(2 * step, Wish::Give { disk: fresh });
        self.course.load.reads_of_93 = 20;
        if rng.chance(1, 2) {
            let fresh = self.fresh_disk(1);
            self.at(4 * step, Wish::Give { disk: fresh });
        }
    }

    fn draw_ring(&mut self, rng: &mut Rng) {
        self.spec.log_bytes = Some(SMALL_RING_BYTES);
        self.course.load.reads_of_93 = 0;
        self.course.flushes_of_100 = 0;
        self.course.requests = rng.between(250, 400);
        self.is_losing = rng.chance(1, 2);
        self.course.clients = rng.between(1, 6) as usize;
        if rng.chance(1, 2) {
            // The parity's ring goes round while a member that was written long ago is not flushed by records of its
            // own.
            if self.spec.level == Level::Raid5 {
                self.spec.layout = 4 + rng.below(2) as u32;
            }
            self.course.load.is_narrow = true;
            self.course.load.is_skewed = true;
            self.course.clients = 1;
        }
        let lives = rng.between(3, 6);
        for _ in 0..lives {
            let requests = rng.between(
                self.course.requests / lives / 2,
                self.course.requests / lives,
            );
            self.course.lives.push(LifeEnd::Crash {
                requests,
                rest_ns: 0,
                stage: *rng.pick(&[Some("log"), Some("log"), None]),
                polls: rng.below(8),
                kind: CrashKind::PowerCut,
            });
        }
    }

    fn draw_forced(&mut self, rng: &mut Rng) {
        self.shrink();
        self.spec.log_bytes = None;
        self.takes_holes = true;
        self.course.load.reads_of_93 = 25;
        let slot = self.any_slot(rng);
        self.at(10, Wish::Fail { slot });
        let requests = rng.between(20, self.course.requests / 3);
        self.course.lives.push(cut(requests, rng.below(60)));
        // Disks that were never members: what they held has nothing to do with the array.
        let fresh = self.fresh_disk(1);
        self.at(requests + 2, Wish::Give { disk: fresh });
        self.rest(requests + 4, 2_000_000_000);
        // Lost blocks are written again; a commit that comes before a flush must still name them (W2).
        let is_resting = rng.chance(1, 2);
        if is_resting {
            self.course.load.is_narrow = true;
            self.course.load.reads_of_93 = 40;
            self.course.flushes_of_100 = 0;
            self.course.clients = 2;
        }
        for _ in 0..2 {
            let requests = rng.between(self.course.requests / 5, self.course.requests / 3);
            self.course.lives.push(if is_resting {
                LifeEnd::Crash {
                    requests,
                    rest_ns: rng.between(20_000_000, 180_000_000),
                    stage: None,
                    polls: 0,
                    kind: CrashKind::PowerCut,
                }
            } else {
                cut(requests, rng.below(60))
            });
        }
    }

    fn draw_commits(&mut self, rng: &mut Rng) {
        self.shrink();
        self.course.requests = 60;
        self.course.load.reads_of_93 = 10;
        self.course.clients = rng.between(1, 2) as usize;
        for _ in 0..rng.between(8, 12) {
            self.course.lives.push(if rng.chance(1, 6) {
                LifeEnd::Stop { requests: 1 }
            } else {
                cut(1, rng.below(30))
            });
        }
    }

    fn draw_replace(&mut self, rng: &mut Rng) {
        self.shrink();
        self.with_bitmap(rng);
        self.spec.log_bytes = None;
        self.course.pace_bytes_per_s = *rng.pick(&[8 << 20, 4 << 20, 1 << 20]);
        self.course.latency_ns = 50_000;
        self.course.load.reads_of_93 = 10;
        self.course.flushes_of_100 = 0;
        let slot = self.any_slot(rng);
        self.at(2, Wish::Replace { slot });
        // How far it got is durable with the stop.
        let requests = rng.between(20, self.course.requests / 3);
        self.course.lives.push(LifeEnd::Stop { requests });
        for _ in 0..rng.between(1, 2) {
            let requests = rng.between(5, self.course.requests / 4);
            self.course.lives.push(cut(requests, rng.below(60)));
        }
    }

    fn draw_hang(&mut self, rng: &mut Rng) {
        self.with_bitmap(rng);
        let rounds = rng.between(1, 2);
        let step = self.course.requests / (2 * rounds + 1);
        for round in 0..rounds {
            let slot = self.any_slot(rng);
            let at = (2 * round + 1) * step;
            self.strike(at, slot, Fault::Hang);
            // Given back while it still owes answers, and again when it has given them.
            self.at(at + step / 2, Wish::Give { disk: slot as u32 });
            self.at(at + step / 2 + 1, Wish::Return);
            self.at(at + step / 2 + 1, Wish::Give { disk: slot as u32 });
            self.rest(at + step / 2 + 2, RESTS_NS[0]);
            self.at(at + step / 2 + 3, Wish::Give { disk: slot as u32 });
        }
        if rng.chance(1, 3) {
            let requests = rng.between(step, self.course.requests - 1);
            self.course.lives.push(cut(requests, rng.below(400)));
        }
    }

    fn draw_slow(&mut self, rng: &mut Rng) {
        // Percentiles need some answers first.
        self.course.requests = rng.between(500, 900);
        self.course.load.reads_of_93 = 70;
        self.course.flushes_of_100 = 1;
        self.course.latency_ns = 5_000;
        for _ in 0..3 {
            let slot = self.any_slot(rng);
            let factor = rng.between(20, 300) as u32;
            let at = self.course.requests / 3 + rng.below(self.course.requests / 2);
            self.strike(at, slot, Fault::Slow { factor });
        }
    }

    fn draw_replay(&mut self, rng: &mut Rng) {
        self.spec.log_bytes = Some(*rng.pick(&[SMALL_RING_BYTES, 8 << 20]));
        self.is_losing = rng.chance(7, 8);
        self.course.load.reads_of_93 = 10;
        self.course.flushes_of_100 = *rng.pick(&[7, 0]);
        let lives = rng.between(4, 6);
        for _ in 0..lives {
            let stage = *rng.pick(&["log", "log", "log", "write", "settle"]);
            self.course.lives.push(LifeEnd::Crash {
                requests: rng.between(3, self.course.requests / lives),
                rest_ns: 0,
                stage: Some(stage),
                polls: rng.below(12),
                kind: CrashKind::PowerCut,
            });
            for _ in 0..rng.between(1, 3) {
                self.course.lives.push(match rng.chance(1, 3) {
                    true => cut(0, rng.below(400)),
                    // In the middle of the replay, wherever in the start it comes.
                    false => LifeEnd::Crash {
                        requests: 0,
                        rest_ns: 0,
                        stage: Some(START_WRITES),
                        polls: rng.below(40),
                        kind: CrashKind::PowerCut,
                    },
                });
            }
        }
        let fresh = self.fresh_disk(0);
        self.at(self.course.requests / 3, Wish::Give { disk: fresh });
        self.at(self.course.requests * 2 / 3, Wish::Add);
    }

    fn draw_refused(&mut self, rng: &mut Rng) {
        self.promise = Promise::Beyond;
        self.shrink();
        self.spec.log_bytes = Some(8 << 20); // a tail that follows soon takes the refused record out of every replay
        self.spec.is_write_back = false; // its rows find out that there is no space after the answer
        self.is_losing = true;
        self.course.load.is_narrow = true;
        self.course.load.reads_of_93 = 10;
        self.course.clients = rng.between(1, 3) as usize;
        let slot = self.any_slot(rng);
        let range = 0..self.spec.component_bytes;
        let full = self.course.requests / 2;
        self.strike(full, slot, Fault::NoSpace(range));
        self.course
            .lives
            .push(cut(full + rng.between(2, 12), rng.below(60)));
    }

    fn draw_scarred(&mut self, rng: &mut Rng) {
        self.shrink();
        self.with_bitmap(rng);
        self.spec.log_bytes = None;
        self.spec.has_ppl = false;
        self.course.load.is_narrow = true;
        let slot = self.any_slot(rng);
        let fault = Fault::WriteError(0..self.spec.component_bytes);
        self.at(4, Wish::Fault { slot, fault });
        let third = self.course.requests / 3;
        self.rest(third, LONG_NS);
        self.rest(third + 2, LONG_NS);
        self.at(third + 4, Wish::Fail { slot });
        self.at(third + 6, Wish::Add);
        if rng.chance(1, 2) {
            self.course
                .lives
                .push(cut(third + rng.between(8, 30), rng.below(60)));
        }
    }

    fn draw_failed_flushes(&mut self, rng: &mut Rng) {
        if rng.chance(1, 2) {
            self.spec.log_bytes = None;
        }
        self.course.flushes_of_100 = 30;
        self.course.clients = rng.between(2, 4) as usize;
        self.course.load.reads_of_93 = 10;
        let lives = rng.between(3, 5);
        let step = self.course.requests / lives;
        for life in 0..lives {
            let slot = self.any_slot(rng);
            self.strike(life * step + 3, slot, Fault::FlushError { count: 1 });
            self.course
                .lives
                .push(cut(rng.between(8, step), rng.below(60)));
        }
    }

    fn draw_unplugged(&mut self, rng: &mut Rng) {
        let lives = rng.between(2, 4);
        let step = self.course.requests / (lives + 1);
        for life in 0..lives {
            let slot = self.any_slot(rng);
            self.at(life * step + rng.between(2, step / 2), Wish::Cable { slot });
            self.course.lives.push(cut(step, rng.below(200)));
        }
    }

    fn draw_lost(&mut self, rng: &mut Rng) {
        self.shrink();
        self.with_bitmap(rng);
        self.course.load.reads_of_93 = 5;
        self.course.load.is_durable = true; // a power cut may take back what is not
        self.course.flush_times = 20; // it takes a while until a loss is durable
        let lives = rng.between(4, 6);
        let share = self.course.requests / (lives + 1);
        let mut begun = 0;
        for _ in 0..lives {
            self.at(begun + 1, Wish::Add); // who was away for good
            let length = rng.between(share / 2, share);
            begun += length;
            // What the first copy lacks is not made up for by the others.
            let slot = if rng.chance(1, 2) {
                0
            } else {
                self.any_slot(rng)
            };
            self.strike(begun - rng.between(1, 3), slot, Fault::Vanish);
            self.course.lives.push(cut(length, rng.below(60)));
        }
    }

    fn draw_one_by_one(&mut self, rng: &mut Rng) {
        self.promise = Promise::Beyond;
        self.shrink();
        self.spec.is_write_back = false; // without the members that have the log nobody reads it, stale or not
        self.course.load.reads_of_93 = 20;
        let (first, losses) = (
            rng.between(0, self.spec.member_count as u64 - 1),
            self.spec.tolerates() as u64,
        );
        let step = self.course.requests / (losses + 2);
        for loss in 0..losses {
            let slot = (first + loss) as usize % self.spec.member_count;
            self.at((loss + 1) * step, Wish::Fail { slot });
            // Further events come between: clean, and dirty again.
            self.rest((loss + 1) * step + step / 2, RESTS_NS[3]);
        }
        let requests = (losses + 1) * step + rng.below(step);
        self.course.lives.push(cut(requests, rng.below(60)));
    }

    fn draw_streams(&mut self, rng: &mut Rng) {
        self.course.load.has_streams = true;
        self.course.load.reads_of_93 = 75;
        self.course.flushes_of_100 = 1;
        self.course.requests = rng.between(250, 400);
        self.course.clients = rng.between(3, 6) as usize;
        if rng.chance(1, 2) {
            let slot = self.any_slot(rng);
            self.at(self.course.requests / 2, Wish::Fail { slot });
        }
        if rng.chance(1, 2) {
            let requests = rng.between(self.course.requests / 2, self.course.requests);
            self.course.lives.push(cut(requests, rng.below(200)));
        }
    }

    fn draw_resync(&mut self, rng: &mut Rng) {
        self.shrink();
        self.spec.region_bytes = Some(*rng.pick(&[65_536, SMALL_COMPONENT_BYTES]));
        self.is_losing = true;
        self.course.flushes_of_100 = 0;
        self.course.load.reads_of_93 = 50;
        let rounds = rng.between(1, 3);
        let share = self.course.requests / (rounds + 1);
        for round in 0..rounds {
            self.course.lives.push(cut(share / 2, rng.below(60)));
            self.course.lives.push(LifeEnd::Crash {
                requests: 0,
                rest_ns: 0,
                stage: Some(OWN_FLUSH),
                polls: rng.below(120),
                kind: CrashKind::PowerCut,
            });
            self.at((round + 1) * share, Wish::Add);
        }
    }

    fn draw_steady(&mut self, rng: &mut Rng) {
        self.with_bitmap(rng);
        self.course.requests = rng.between(350, 500);
        self.course.think_ns_max = 170_000_000;
        self.course.flushes_of_100 = 0;
        self.course.clients = 3;
        self.course.load.reads_of_93 = 20;
        let requests = rng.between(
            self.course.requests * 6 / 10,
            self.course.requests * 95 / 100,
        );
        self.course.lives.push(cut(requests, rng.below(3000)));
    }

    /// The log holds rows at each crash, the kernel writes the same ones, and then they are to be its own (L6).
    fn draw_lent(&mut self, rng: &mut Rng) {
        self.drill = Some(Drill::Lent);
        self.spec.is_write_back = false; // the kernel refuses those
        self.course.load.is_narrow = true;
        self.course.load.reads_of_93 = 5;
        self.course.flushes_of_100 = 0;
        self.course.clients = rng.between(3, 6) as usize;
        for _ in 0..rng.between(4, 7) {
            self.course.lives.push(LifeEnd::Crash {
                requests: rng.between(3, 14),
                rest_ns: 0,
                stage: Some(*rng.pick(&["log", "write", "write"])),
                polls: rng.below(40),
                kind: *rng.pick(&[CrashKind::PowerCut, CrashKind::Kill]),
            });
            let salt = rng.below(1 << 32);
            self.course.lives.push(LifeEnd::Foreign { salt });
        }
    }

    fn draw_kernel(&mut self, rng: &mut Rng) {
        if self.spec.log_bytes.is_some() && rng.chance(1, 2) {
            return self.draw_lent(rng);
        }
        let lives = rng.between(2, 4);
        for _ in 0..lives {
            let requests = rng.between(3, self.course.requests / lives);
            self.course.lives.push(if rng.chance(1, 4) {
                LifeEnd::Stop { requests }
            } else {
                cut(requests, rng.below(60))
            });
            let salt = rng.below(1 << 32);
            self.course.lives.push(LifeEnd::Foreign { salt });
            if rng.chance(1, 4) {
                self.course.lives.push(cut(0, rng.below(400)));
            }
        }
        let slot = self.any_slot(rng);
        self.at(self.course.requests / 3, Wish::Fail { slot });
        self.at(self.course.requests / 2, Wish::Add);
    }
}
