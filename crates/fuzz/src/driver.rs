//! The loop: damage, repair the checksum, parse, look.
//!
//! Invariants:
//! - the inputs of a seed are always the same;
//! - what was accepted is damaged further, so that the damage adds up behind the checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::alloc::peak_bytes;
use crate::input::{Input, corpus};
use crate::mutate::{Dice, Hand, damage};
use crate::targets::Target;

/// Memory that a parser may take at most: far above all that is valid, far below what an unchecked count asks for.
pub const PEAK_BYTES_MAX: usize = 16 << 20;

/// Accepted inputs that are damaged further.
const POOL_MAX: usize = 256;

/// Share of accepted inputs, in percent, below which only the first checks are tested.
pub const ACCEPTED_PERCENT_MIN: u64 = 30;

/// What came of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Inputs given.
    pub inputs: u64,
    /// Of these, accepted by the parser.
    pub accepted: u64,
    /// Most memory that one took, in bytes.
    pub peak_bytes: usize,
}

impl Counts {
    /// Accepted inputs in percent.
    #[must_use]
    pub fn accepted_percent(&self) -> u64 {
        self.accepted * 100 / self.inputs.max(1)
    }
}

/// The input that is being parsed and since when, for whoever watches for hangs.
pub type Current = Arc<Mutex<Option<(Instant, Input)>>>;

/// What a parser did wrong, with the input.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it did.
    pub text: String,
    /// On what.
    pub input: Input,
}

/// A run of one target.
pub struct Run<'a> {
    target: &'a Target,
    dice: Dice,
    pool: Vec<Input>,
    kept: usize,
    /// So far.
    pub counts: Counts,
    current: Current,
}

impl<'a> Run<'a> {
    /// Reads the corpus and gives the parser each file as it is: valid ones must be accepted and written back
    /// unchanged.
    ///
    /// # Errors
    /// What is wrong with the corpus or with the parser.
    pub fn start(target: &'a Target, seed: u64, current: Current) -> Result<Self, Fault> {
        let tell = |text| Fault {
            text,
            input: Input::default(),
        };
        let mut run = Self {
            target,
            dice: Dice::new(seed),
            pool: Vec::new(),
            kept: 0,
            counts: Counts::default(),
            current,
        };
        for (name, input) in corpus(target.name).map_err(tell)? {
            let is_accepted = run.check(&input)?;
            if !name.starts_with("ok") {
                continue;
            }
            let is_same = (target.write_back)(&input).is_none_or(|bytes| bytes == input.bytes);
            if !is_accepted || !is_same {
                let text = format!("{name} is refused, or not written back byte for byte");
                return Err(Fault { text, input });
            }
            run.pool.push(input);
        }
        run.kept = run.pool.len();
        if run.kept == 0 {
            return Err(tell(format!("{}: the corpus is empty", target.name)));
        }
        Ok(run)
    }

    /// One damaged input.
    ///
    /// # Errors
    /// What the parser did wrong.
    pub fn step(&mut self) -> Result<(), Fault> {
        let mut input = self.pool[self.dice.below(self.pool.len())].clone();
        let hand = match self.counts.accepted_percent() < 2 * ACCEPTED_PERCENT_MIN {
            true => Hand::Gentle,
            false => Hand::Rough,
        };
        damage(&mut input, &self.target.hints, &mut self.dice, hand);
        input.bytes.truncate(self.target.length_max_bytes);
        // Once in a while the checksum stays wrong.
        if self.dice.below(64) != 0 {
            (self.target.repair)(&mut input);
        }
        self.counts.inputs += 1;
        if self.check(&input)? {
            self.counts.accepted += 1;
            if self.pool.len() < POOL_MAX {
                self.pool.push(input);
            } else if self.kept < POOL_MAX {
                let at = self.kept + self.dice.below(POOL_MAX - self.kept);
                self.pool[at] = input;
            }
        }
        Ok(())
    }

    fn check(&mut self, input: &Input) -> Result<bool, Fault> {
        let tell = |text: String| Fault {
            text,
            input: input.clone(),
        };
        let now = |what| *self.current.lock().unwrap_or_else(PoisonError::into_inner) = what;
        now(Some((Instant::now(), input.clone())));
        let parse = AssertUnwindSafe(|| peak_bytes(|| (self.target.check)(input)));
        let result = catch_unwind(parse);
        now(None);
        let (verdict, peak) = result.map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            tell(format!("panic: {}", text.unwrap_or_default()))
        })?;
        self.counts.peak_bytes = self.counts.peak_bytes.max(peak);
        if peak > PEAK_BYTES_MAX {
            return Err(tell(format!("{peak} bytes of memory were taken")));
        }
        verdict.map_err(tell)
    }
}
