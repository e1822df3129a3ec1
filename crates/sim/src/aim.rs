//! Scenarios that aim at one cell of the coverage matrix: a fault that strikes when some request is in a stage, and
//! then a crash when some request is in that stage.
//!
//! Invariants:
//! - a cell and an attempt are written into the number of a seed, so that a failure comes back by its seed like every
//!   other;
//! - what a cell needs is waited for: only the attempt decides the rest.

use std::fmt;

use crate::cells::{CRASHES, FAULTS, stages};
use crate::course::{LifeEnd, Wish};
use crate::drill::SMALL_RING_BYTES;
use crate::md::Level;
use crate::scenario::{Promise, Scenario};
use plexum_disks::disk::CrashKind;
use plexum_disks::rng::Rng;

/// Seeds from here up to twice this number aim. Bits 0: crash, 1 to 4: fault, 5 to 8: stage, 9 to 11: level, from 12
/// on: attempt.
const FIRST_SEED: u64 = 1 << 50;

/// Requests of a scenario, and after how many of them the stage is brought about again.
const REQUESTS: u64 = 120;
const ROUND: u64 = 24;

/// A cell of the coverage matrix, and which attempt at it this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aim {
    /// Organisation.
    pub level: Level,
    /// Stage of a request.
    pub stage: &'static str,
    /// Kind of the fault.
    pub fault: &'static str,
    /// Kind of the crash.
    pub crash: &'static str,
    /// Attempt, counted from 0.
    pub attempt: u64,
}

impl Aim {
    /// All cells of a level, as attempt `attempt`.
    #[must_use]
    pub fn all(level: Level, attempt: u64) -> Vec<Self> {
        let mut cells = Vec::new();
        for stage in stages(level) {
            for fault in FAULTS {
                cells.extend(CRASHES.map(|crash| Self {
                    level,
                    stage,
                    fault,
                    crash,
                    attempt,
                }));
            }
        }
        cells
    }

    /// What a seed aims at; `None` for the usual ones.
    #[must_use]
    pub fn of_seed(seed: u64) -> Option<Self> {
        let code = seed.checked_sub(FIRST_SEED)?;
        if code >= FIRST_SEED {
            return None;
        }
        let of = |shift: u32, bits: u32| (code >> shift) as usize & ((1 << bits) - 1);
        let level = *Level::ALL.get(of(9, 3))?;
        Some(Self {
            level,
            stage: stages(level).get(of(5, 4))?,
            fault: FAULTS.get(of(1, 4))?,
            crash: CRASHES[of(0, 1)],
            attempt: code >> 12,
        })
    }

    /// The seed that aims at it.
    #[must_use]
    pub fn seed(&self) -> u64 {
        let stages = stages(self.level);
        let level = Level::ALL.iter().position(|level| *level == self.level);
        let stage = stages.iter().position(|stage| *stage == self.stage);
        let fault = FAULTS.iter().position(|fault| *fault == self.fault);
        let crash = CRASHES.iter().position(|crash| *crash == self.crash);
        let parts = [(level, 9), (stage, 5), (fault, 1), (crash, 0)];
        parts
            .into_iter()
            .fold(FIRST_SEED + (self.attempt << 12), |seed, (part, shift)| {
                seed + ((part.expect("a cell of the matrix") as u64) << shift)
            })
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            level,
            stage,
            fault,
            crash,
            ..
        } = self;
        write!(f, "{level} / {stage} / {fault} / {crash}")
    }
}

impl Scenario {
    /// One life that waits for the cell, and the finale.
    pub(crate) fn draw_aim(&mut self, rng: &mut Rng) {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_and_its_attempt_come_back_out_of_the_seed() {
        for level in Level::ALL {
            for aim in [0, 1, 77].into_iter().flat_map(|n| Aim::all(level, n)) {
                assert_eq!(Aim::of_seed(aim.seed()), Some(aim));
            }
        }
        for usual in [0, 400, FIRST_SEED - 1, 2 * FIRST_SEED, u64::MAX] {
            assert_eq!(Aim::of_seed(usual), None);
        }
    }
}
