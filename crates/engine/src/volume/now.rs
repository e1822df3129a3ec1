//! Requests that are carried out in one step: members in memory answer at once, and nothing else has to be waited for. No future is made for
//! them; moving those about is most of what an ordinary request in memory costs.
//!
//! Invariants:
//! - whatever a request would have to wait for, recover, mend or record is left to `read` and `write`, as is every error: a write that
//!   was begun here and could not be ended (`InOneStep::Begun`) is done once more by them, as a whole, before anybody else is heard;
//! - the conditions are those of `read` and `write`, by the same functions (W1, W3, W5, W7). No lock is taken, because nobody else runs
//!   before the request has ended; that nobody has it is asked.

use std::ops::Range;

use crate::buf::{Buf, Rope};
use crate::clock::{Clock, Moment};
use crate::device::{Device, InOneStep};
use crate::drive::Drive;
use crate::volume::Volume;
use crate::volume::read::Spot;
use plexum_parity::Block;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Whether `read_now` and `write_now` can be expected to succeed at present.
    pub(crate) fn answers_at_once(&self) -> bool {
        self.set.borrow().answers_at_once
    }

    /// Reads as `read` does, without waiting. `None`: not this way, and `read` says more.
    #[inline]
    pub fn read_now(&self, offset_bytes: u64, length_bytes: usize) -> Option<Rope> {
        let length = length_bytes as u64;
        if !self.answers_at_once()
            || length == 0
            || self.reads_wait.get()
            || self.check_request(offset_bytes, length).is_err()
        {
            return None;
        }
        let spot = self.spot(offset_bytes);
        if length > spot.length_bytes() {
            return None;
        }
        let now = self.clock.recent();
        self.last_request.set(now);
        match spot {
            Spot::Flat(place) => {
                let set = self.set.borrow();
                let drive = set.slots[place.slot].active.as_ref()?;
                self.read_drive_now(drive, now, place.member_offset_bytes, length_bytes)
                    .map(|(buf, _)| Rope::from(buf))
            }
            Spot::Copies(map) => {
                let sync = offset_bytes..offset_bytes + length;
                let mut rope = Rope::default();
                let is_read = self.choose_now(&map, &sync, now, |drive, start, length| {
                    let (buf, ended) = self.read_drive_now(drive, now, start, length)?;
                    rope.pieces.push(buf);
                    Some(ended)
                });
                is_read.then_some(rope)
            }
            Spot::Row {
                row, index, start, ..
            } => self.read_strip_now(row, index, start..start + length, now),
        }
    }

    #[inline]
    fn read_drive_now(
        &self,
        drive: &Drive<D>,
        now: Moment,
        start: u64,
        length_bytes: usize,
    ) -> Option<(Buf, Moment)> {
        let (buf, ended) = drive.read_now(&self.pool, &self.clock, now, start, length_bytes)?;
        Some((buf.freeze(), ended))
    }

    /// Part of one strip of a row with parity, from its member.
    fn read_strip_now(
        &self,
        row: u64,
        index: usize,
        part: Range<u64>,
        now: Moment,
    ) -> Option<Rope> {
        let row = self.row(row);
        let slot = row.slot(Block::Data(index));
        let member = row.member_range(&part);
        let set = self.set.borrow();
        let drive = self.readable_drive(&set, slot, &member, &member)?;
        if self.answers_from_log() {
            return None; // the member may be behind
        }
        let length_bytes = usize::try_from(part.end - part.start).expect("part of a request");
        self.read_drive_now(drive, now, member.start, length_bytes)
            .map(|(buf, _)| Rope::from(buf))
    }

    /// Writes as `write` does with `Fua::No`, without waiting.
    #[inline]
    pub fn write_now(&self, offset_bytes: u64, data: &[u8]) -> InOneStep {
        let length = data.len() as u64;
        if !self.answers_at_once()
            || length == 0
            || self.geometry.parity_count() > 0
            || self.check_request(offset_bytes, length).is_err()
            || length > self.contiguous_bytes(offset_bytes)
            || !self.may_write_now()
        {
            return InOneStep::NotBegun;
        }
        let now = self.clock.recent();
        self.last_request.set(now);
        self.write_count.set(self.write_count.get() + 1);
        if self.has_redundancy() {
            return self.write_copies_now(offset_bytes, data, now);
        }
        let place = self.geometry.locate(offset_bytes);
        let set = self.set.borrow();
        let drive = set.slots[place.slot].active.as_ref();
        let Some(drive) = drive.filter(|drive| drive.write_now(place.member_offset_bytes, data))
        else {
            return InOneStep::NotBegun; // whatever part is written, there is no copy that could differ
        };
        let (start, ended) = (place.member_offset_bytes, self.clock.now());
        drive.note_write_now(now, ended, start, data.len());
        InOneStep::Done
    }

    /// Whether a write may go to the members as it comes: nobody changes bitmap or log, "dirty" is durable (W1), and so is every
    /// failure that is known (W3).
    fn may_write_now(&self) -> bool {
        if self.options.borrow().is_read_only || self.is_switching.get() {
            return false;
        }
        let state = self.state.borrow();
        let committed = self.committed.get();
        let is_dirty = state.is_dirty && committed >= self.dirty_version.get();
        (is_dirty || !self.has_redundancy()) && committed >= state.urgent_version
    }
}
