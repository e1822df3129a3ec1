//! Scenarios in which a stage of a request, a fault and a crash are to meet: all of them in turn, or one cell of the
//! coverage matrix.

use super::drills::{LONG_NS, SMALL_RING_BYTES};
use super::{Promise, Scenario};
use crate::course::{LifeEnd, RESTS_NS, Wish};
use crate::md::cells;
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_disks::rng::Rng;

/// Requests of a scenario, and after how many of them the stage is brought about again.
const REQUESTS: u64 = 120;
const ROUND: u64 = 24;

impl Scenario {
    /// One life that waits for the cell, and the finale.
    pub(super) fn draw_aim(&mut self, rng: &mut Rng) {
        let Some(aim) = self.aim else { return };
        self.metadata = 120;
        self.course.requests = REQUESTS;
        self.course.flushes_of_100 = 20;
        self.course.clients = 6;
        self.course.latency_ns = 50_000;
        self.course.pace_bytes_per_s = 32 << 20;
        self.course.load.reads_of_93 = 30;
        self.takes_holes = true;
        // Some stages come only where something is lost already: more is lost then than some organisations promise.
        self.promise = Promise::Beyond;
        if self.spec.tolerates() > 0 {
            self.shrink();
            self.spec.region_bytes = Some(4096);
        }
        if self.spec.level.has_parity() {
            self.spec.log_bytes = Some(SMALL_RING_BYTES);
            // A write-back log answers a flush without one: its data are durable already.
            self.spec.is_write_back &= aim.stage != "flush" && aim.attempt % 2 == 1;
        }
        let slot = self.any_slot(rng);
        let fault = self.fault_of_kind(aim.fault);
        let stage = aim.stage;
        self.at(1, Wish::At { stage, slot, fault });
        for at in (2..REQUESTS).step_by(ROUND as usize) {
            self.draw_stage(rng, at, stage);
            self.at(at + ROUND / 2, Wish::Add);
        }
        self.course.lives.push(LifeEnd::Crash {
            requests: 1,
            rest_ns: 0,
            stage: Some(stage),
            polls: 0,
            kind: match aim.crash {
                "kill" => CrashKind::Kill,
                _ => CrashKind::PowerCut,
            },
        });
    }

    pub(super) fn draw_meet(&mut self, rng: &mut Rng) {
        let (stages, faults) = (cells::stages(self.spec.level), cells::FAULTS);
        self.metadata = 120;
        self.course.requests = 120;
        self.course.flushes_of_100 = 20;
        self.takes_holes = true;
        // Some stages come only where something is lost already: more is lost then than some organisations promise.
        self.promise = Promise::Beyond;
        if self.spec.level.has_parity() {
            self.spec.log_bytes = Some(SMALL_RING_BYTES);
        }
        if self.spec.tolerates() > 0 {
            self.spec.region_bytes = Some(4096);
        }
        self.course.clients = 6;
        self.course.load.reads_of_93 = 30;
        let (lives, count) = (6, stages.len() as u64);
        let share = self.course.requests / lives;
        for life in 0..lives {
            let number = self.round * lives + life;
            let stage = stages[(number % count) as usize];
            let fault = faults[(number / count % faults.len() as u64) as usize];
            let kind = if (number + number / count).is_multiple_of(2) {
                CrashKind::PowerCut
            } else {
                CrashKind::Kill
            };
            // Every life begins with a commit, for which all wait in one stage.
            let at = life * share + if stage == "settle" { share / 2 } else { 2 };
            self.draw_stage(rng, at, stage);
            let slot = self.any_slot(rng);
            let fault = self.fault_of_kind(fault);
            self.at(at + 1, Wish::At { stage, slot, fault });
            self.at(at + share / 2, Wish::Add);
            self.course.lives.push(LifeEnd::Crash {
                requests: share - 4,
                rest_ns: 0,
                stage: Some(stage).filter(|stage| *stage != "idle"),
                polls: rng.below(3),
                kind,
            });
        }
    }

    /// Makes requests come into this stage after request `at`.
    fn draw_stage(&mut self, rng: &mut Rng, at: u64, stage: &str) {
        match stage {
            "idle" | "dirty-mark" => self.rest(at, RESTS_NS[3]),
            "bit-mark" => self.rest(at, LONG_NS),
            "settle" => {
                let slot = self.any_slot(rng);
                let disk = self.fresh_disk(rng.below(3) as usize);
                let wish = if rng.chance(1, 2) {
                    Wish::Replace { slot }
                } else {
                    Wish::Fail { slot }
                };
                self.at(at, wish);
                self.at(at + 6, Wish::Give { disk });
            }
            _ => {}
        }
    }

    fn fault_of_kind(&self, kind: &str) -> Fault {
        let range = 0..self.spec.component_bytes;
        match kind {
            "read-error" => Fault::ReadError(range),
            "write-error" => Fault::WriteError(range),
            "torn-write" => Fault::TornWrite(range),
            "flush-error" => Fault::FlushError { count: 1 },
            "no-space" => Fault::NoSpace(range),
            "retryable" => Fault::Retryable { count: 1 },
            "slow" => Fault::Slow { factor: 20 },
            "hang" => Fault::Hang,
            _ => Fault::Vanish,
        }
    }
}
