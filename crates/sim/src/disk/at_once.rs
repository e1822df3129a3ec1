//! I/Os that a disk in memory answers at once, when the caller cannot wait: now and then, and never while something is wrong with it.
//!
//! Invariants:
//! - what is answered here is what `read` and `write` would have answered, without their time;
//! - a write that is answered here is as volatile as any other until the next flush.

use plexum_engine::buf::{BufMut, BufPool};
use plexum_engine::device::IoError;

use super::SimDisk;
use super::cache::{Payload, Written};
use crate::trace::Verb;

impl SimDisk {
    /// One I/O in two, so that each request may meet members of both kinds.
    fn is_willing(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        if !self.shared.shape.answers_at_once || self.begin(length_bytes, offset_bytes).is_err() {
            return false;
        }
        let mut state = self.shared.state.borrow_mut();
        state.faults.is_quiet() && !state.faults.is_hung && state.rng.chance(1, 2)
    }

    pub(super) fn read_at_once(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
        pool: &BufPool,
    ) -> Option<BufMut> {
        let length = length_bytes as u64;
        if !self.is_willing(offset_bytes, length) {
            return None;
        }
        let mut buf = pool.take(length_bytes);
        let mut state = self.shared.state.borrow_mut();
        state.counters.reads += 1;
        state.current.read(offset_bytes, &mut buf);
        drop(state);
        self.shared
            .note(Verb::ReadDone, offset_bytes, length, Ok(()));
        Some(buf)
    }

    pub(super) fn write_at_once(&self, offset_bytes: u64, data: &[u8]) -> bool {
        let length = data.len() as u64;
        if !self.is_willing(offset_bytes, length) {
            return false;
        }
        let mut state = self.shared.state.borrow_mut();
        state.counters.writes += 1;
        state.counters.written_bytes += length;
        let io = state.take_number();
        let answered_at = state.take_number();
        let range = offset_bytes..offset_bytes + length;
        let written = Written {
            io,
            answered_at,
            ..Written::new(
                range,
                Payload::Bytes(self.shared.pool.copy_of(data).freeze()),
            )
        };
        let outcome: Result<(), IoError> = self.shared.apply(&mut state, written);
        drop(state);
        self.shared
            .note(Verb::WriteDone, offset_bytes, length, outcome);
        outcome.is_ok()
    }
}
