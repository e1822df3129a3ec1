//! Scenarios that aim at one cell of the coverage matrix: a fault that strikes when some request is in a stage, and
//! then a crash when some request is in that stage.
//!
//! Invariants:
//! - a cell and an attempt are written into the number of a seed, so that a failure comes back by its seed like every
//!   other;
//! - what a cell needs is waited for: only the attempt decides the rest.

use std::fmt;

use super::cells::{CRASHES, FAULTS, stages};
use super::spec::Level;

/// Seeds from here up to twice this number aim. Bits 0: crash, 1 to 4: fault, 5 to 8: stage, 9 to 11: level, from 12
/// on: attempt.
const FIRST_SEED: u64 = 1 << 50;

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
