//! The disk itself: I/Os under way, and what becomes of each.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::buf::BufMut;
use plexum_block::device::{DeviceInfo, Fua, IoError};

use crate::clock::{SimClock, Slot};
use crate::fault::{overlaps, take_hit};
use crate::trace::{Actor, Trace, Verb};

use super::cache::{State, Written};

use super::DiskShape;

pub(super) enum Work {
    Read {
        offset_bytes: u64,
        buf: BufMut,
        is_sampled: bool,
        answer: Rc<Slot<Result<BufMut, IoError>>>,
    },
    Write {
        range: Range<u64>,
        written: Option<Written>,
        fua: Fua,
        outcome: Result<(), IoError>,
        answer: Rc<Slot<Result<(), IoError>>>,
    },
    Flush {
        covers: u64,
        answer: Rc<Slot<Result<(), IoError>>>,
    },
}

impl Work {
    pub(super) fn answer_error(self, error: IoError) {
        match self {
            Work::Read { answer, .. } => answer.fill(Err(error)),
            Work::Write { answer, .. } | Work::Flush { answer, .. } => answer.fill(Err(error)),
        }
    }
}

/// The disk itself, which all its handles share.
pub(super) struct Hardware {
    pub(super) number: u32,
    pub(super) shape: DiskShape,
    pub(super) clock: SimClock,
    pub(super) trace: Trace,
    pub(super) state: RefCell<State>,
}

impl Hardware {
    pub(super) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            size_bytes: self.shape.size_bytes,
            sector_bytes: self.shape.sector_bytes,
            is_rotational: false,
            has_zeroing_trim: self.shape.has_zeroing_trim,
        }
    }

    /// Completes an I/O after so many times the usual latency.
    pub(super) fn schedule(self: &Rc<Self>, io: u64, factor: u64) {
        let delay_ns = {
            let mut state = self.state.borrow_mut();
            if state.faults.is_hung {
                state.hit(10);
                state.hung.push(io);
                return;
            }
            state.latency_ns(self.shape.latency_ns.saturating_mul(factor))
        };
        let hardware = Rc::clone(self);
        self.clock
            .call_after(delay_ns, move || hardware.complete(io));
    }

    fn complete(&self, io: u64) {
        let mut state = self.state.borrow_mut();
        if state.faults.is_hung {
            state.hung.push(io); // it hung while the I/O was under way
            return;
        }
        let Some(work) = state.in_flight.remove(&io) else {
            return; // answered when the disk vanished
        };
        match work {
            Work::Read {
                offset_bytes,
                mut buf,
                is_sampled,
                answer,
            } => {
                let outcome = self.read_outcome(&mut state, offset_bytes, buf.len() as u64);
                if !is_sampled {
                    state.current.read(offset_bytes, &mut buf);
                }
                drop(state);
                self.note(Verb::ReadDone, offset_bytes, buf.len() as u64, outcome);
                answer.fill(outcome.map(|()| buf));
            }
            Work::Write {
                range,
                written,
                fua,
                outcome,
                answer,
            } => {
                let outcome = match written {
                    Some(written) => self.apply(&mut state, written),
                    None => outcome,
                };
                let answered_at = state.take_number();
                // A FUA write over it may have cut it into parts.
                for entry in state.unflushed.iter_mut().filter(|entry| entry.io == io) {
                    entry.answered_at = answered_at;
                }
                if fua == Fua::Yes && outcome.is_ok() {
                    state.settle_fua(io);
                }
                drop(state);
                self.note(
                    Verb::WriteDone,
                    range.start,
                    range.end - range.start,
                    outcome,
                );
                answer.fill(outcome);
            }
            Work::Flush { covers, answer } => {
                let outcome = self.finish_flush(&mut state, covers);
                drop(state);
                self.note(Verb::FlushDone, 0, 0, outcome);
                answer.fill(outcome);
            }
        }
    }

    fn finish_flush(&self, state: &mut State, covers: u64) -> Result<(), IoError> {
        if state.faults.flush_errors_left > 0 {
            state.faults.flush_errors_left -= 1;
            state.hit(2);
            state.fail_flush(covers, self.shape.atom_bytes);
            return Err(IoError::Medium);
        }
        state.harden(covers);
        Ok(())
    }

    fn read_outcome(
        &self,
        state: &mut State,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Result<(), IoError> {
        if state.faults.is_quiet() {
            return Ok(());
        }
        if state.faults.retryable_left > 0 {
            state.faults.retryable_left -= 1;
            state.hit(8);
            return Err(IoError::Retryable);
        }
        let range = offset_bytes..offset_bytes + length_bytes;
        if state
            .faults
            .read_errors
            .iter()
            .any(|bad| overlaps(bad, &range))
        {
            state.hit(0);
            return Err(IoError::Medium);
        }
        Ok(())
    }

    /// Carries a write out, or what a fault makes of it.
    pub(super) fn apply(&self, state: &mut State, written: Written) -> Result<(), IoError> {
        if state.faults.is_quiet() {
            state.take(written);
            return Ok(());
        }
        let range = written.range.clone();
        if state.faults.retryable_left > 0 {
            state.faults.retryable_left -= 1;
            state.hit(8);
            return Err(IoError::Retryable);
        }
        if state
            .faults
            .write_errors
            .iter()
            .any(|bad| overlaps(bad, &range))
        {
            state.hit(1);
            return Err(IoError::Medium);
        }
        if state
            .faults
            .no_space
            .iter()
            .any(|full| overlaps(full, &range))
        {
            state.hit(7);
            return Err(IoError::NoSpace);
        }
        if take_hit(&mut state.faults.lost, &range, |lost| lost).is_some() {
            state.hit(4);
            return Ok(());
        }
        if let Some((_, shift_bytes)) =
            take_hit(&mut state.faults.misdirected, &range, |(at, _)| at)
        {
            state.hit(5);
            let length = range.end - range.start;
            let start = self.shifted(range.start, shift_bytes, length);
            state.take(Written {
                range: start..start + length,
                ..written
            });
            return Ok(());
        }
        if take_hit(&mut state.faults.torn, &range, |torn| torn).is_some() {
            state.hit(6);
            let sector = u64::from(self.shape.sector_bytes);
            let sectors = (range.end - range.start) / sector;
            let kept = range.start + state.rng.below(sectors) * sector;
            state.take(written.part(range.start..kept));
            return Err(IoError::Medium);
        }
        state.faults.heal(&range);
        state.take(written);
        Ok(())
    }

    /// Where a misdirected write lands: inside of the disk, at a sector border.
    fn shifted(&self, start: u64, shift_bytes: i64, length: u64) -> u64 {
        let sector = u64::from(self.shape.sector_bytes);
        let room = (self.shape.size_bytes - length) / sector + 1;
        let moved = (i128::from(start) + i128::from(shift_bytes)) / i128::from(sector);
        moved.rem_euclid(i128::from(room)) as u64 * sector
    }

    fn note(&self, verb: Verb, a: u64, b: u64, outcome: Result<(), IoError>) {
        self.trace.note(
            Actor::Disk(self.number),
            verb,
            [a, b, outcome_number(outcome)],
        );
    }
}

/// Number of an outcome in a trace: 0 is success.
#[must_use]
pub fn outcome_number(outcome: Result<(), IoError>) -> u64 {
    match outcome {
        Ok(()) => 0,
        Err(IoError::Retryable) => 1,
        Err(IoError::Medium) => 2,
        Err(IoError::Gone) => 3,
        Err(IoError::NoSpace) => 4,
        Err(IoError::OutOfRange) => 5,
        Err(IoError::ReadOnly) => 6,
        Err(IoError::Unsupported) => 7,
        Err(IoError::Failed) => 8,
        Err(_) => 99,
    }
}
