//! The book of one member's ring: what is in it, where the next batch goes, what may be reused. Pure.
//!
//! Invariants:
//! - a place is given again only after a header that begins behind it is durable (`release`), and a header may begin
//!   behind a batch only when all its records are covered: in place on all members, and flushed (W2);
//! - positions only grow; batches neither overlap nor run over the ring's end.

use std::collections::VecDeque;

use plexum_format::stripe_log::LogArea;

/// Where a chain of batches begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChainStart {
    pub position: u64,
    pub number: u64,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: ChainStart,
    last_sequence: u64,
}

/// One member's ring.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    pub area: LogArea,
    /// Records below were never meant for this member.
    pub joined_sequence: u64,
    /// Moments (counted by the log) of the last block in place, and up to which this member was flushed.
    pub written: u64,
    pub flushed: u64,
    next: ChainStart,
    /// What the durable header says.
    durable: ChainStart,
    /// Batches that may still be needed, oldest first.
    spans: VecDeque<Span>,
}

impl Ring {
    /// An empty ring whose chain begins at `start`.
    pub fn new(area: LogArea, joined_sequence: u64, start: ChainStart) -> Self {
        Self {
            area,
            joined_sequence,
            written: 0,
            flushed: 0,
            next: start,
            durable: start,
            spans: VecDeque::new(),
        }
    }

    /// Most bytes of blocks in one group: half of the ring, so that a group never waits for itself.
    pub fn group_bytes_max(&self) -> u64 {
        self.area.ring_bytes / 2
    }

    /// Position from which on the ring may still be needed.
    pub fn needed_from(&self) -> u64 {
        self.durable.position
    }

    /// Whether more than a quarter of the ring may still be needed: the rest has to last until the tail has followed.
    pub fn is_filling(&self) -> bool {
        self.next.position - self.durable.position > self.area.ring_bytes / 4
    }

    fn place_of(&self, length_bytes: u64) -> u64 {
        let ring = self.area.ring_bytes;
        if self.area.within_ring(self.next.position) + length_bytes > ring {
            self.next.position.next_multiple_of(ring)
        } else {
            self.next.position
        }
    }

    /// Whether a batch of `length_bytes` fits now.
    pub fn has_room(&self, length_bytes: u64) -> bool {
        assert!(length_bytes <= self.area.ring_bytes, "a group fits a ring");
        self.place_of(length_bytes) + length_bytes <= self.durable.position + self.area.ring_bytes
    }

    /// Takes room for a batch whose last record is `last_sequence`.
    pub fn take(&mut self, length_bytes: u64, last_sequence: u64) -> ChainStart {
        assert!(self.has_room(length_bytes), "room was made before");
        let start = ChainStart {
            position: self.place_of(length_bytes),
            number: self.next.number,
        };
        debug_assert!(
            self.spans
                .back()
                .is_none_or(|last| last.last_sequence <= last_sequence),
            "records are numbered in order"
        );
        debug_assert!(start.position >= self.next.position, "positions only grow");
        self.spans.push_back(Span {
            start,
            last_sequence,
        });
        self.next = ChainStart {
            position: start.position + length_bytes,
            number: start.number + 1,
        };
        start
    }

    /// Where the chain may begin when all records below `covered` are on all members, flushed.
    pub fn start_for(&self, covered: u64) -> ChainStart {
        let needed = self.spans.iter().find(|span| span.last_sequence >= covered);
        needed.map_or(self.next, |span| span.start)
    }

    /// Whether a header that is written now would give room back.
    pub fn gains(&self, covered: u64) -> bool {
        self.start_for(covered).position > self.durable.position
    }

    /// A header that begins at `start` is durable: what lies before may be overwritten.
    pub fn release(&mut self, start: ChainStart) {
        if start.position < self.durable.position {
            return; // a header that was composed earlier ended later
        }
        debug_assert!(
            start.position <= self.next.position,
            "a chain begins at what was given out, or where the next batch goes"
        );
        self.durable = start;
        while self
            .spans
            .front()
            .is_some_and(|span| span.start.position < start.position)
        {
            self.spans.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Ring {
        let area = LogArea {
            ring_sector: 64,
            ring_bytes: 65_536,
        };
        let start = ChainStart {
            position: 0,
            number: 0,
        };
        Ring::new(area, 0, start)
    }

    #[test]
    fn room_comes_back_only_with_a_durable_header_behind_covered_batches() {
        let mut ring = ring();
        for sequence in 1..=4 {
            ring.take(16_384, sequence);
        }
        assert!(!ring.has_room(4096));
        let start = ring.start_for(3);
        assert_eq!((start.position, start.number), (2 * 16_384, 2));
        assert!(
            !ring.has_room(4096),
            "a start that is not durable frees nothing"
        );
        ring.release(start);
        assert!(ring.has_room(32_768) && !ring.has_room(36_864));
        assert_eq!(ring.start_for(5).position, 65_536);
    }

    #[test]
    fn a_batch_that_would_run_over_the_end_begins_at_the_front() {
        let mut ring = ring();
        ring.take(40_960, 1);
        ring.release(ring.start_for(2));
        assert_eq!(ring.take(32_768, 2).position, 65_536);
        assert_eq!(ring.take(8192, 3).position, 65_536 + 32_768);
        assert!(
            !ring.has_room(4096),
            "the rest of the first round is skipped, not free"
        );
    }

    #[test]
    fn an_older_header_that_ends_later_takes_nothing_back() {
        let mut ring = ring();
        ring.take(4096, 1);
        let old = ring.start_for(1);
        ring.take(4096, 2);
        ring.release(ring.start_for(3));
        ring.release(old);
        assert!(ring.has_room(57_344), "all but what was skipped");
    }

    #[test]
    fn a_header_gains_room_only_behind_covered_batches_and_once() {
        let mut ring = ring();
        assert!(!ring.gains(9));
        ring.take(4096, 1);
        assert!(!ring.gains(1), "the record is still needed");
        assert!(ring.gains(2));
        ring.release(ring.start_for(2));
        assert!(!ring.gains(2));
    }

    #[test]
    fn a_ring_fills_when_more_than_a_quarter_of_it_may_still_be_needed() {
        let mut ring = ring();
        assert!(!ring.is_filling());
        ring.take(16_384, 1);
        assert!(!ring.is_filling(), "a quarter, not more");
        ring.take(4096, 2);
        assert!(ring.is_filling());
        ring.release(ring.start_for(2));
        assert!(!ring.is_filling());
        ring.take(12_288, 3);
        assert!(!ring.is_filling(), "what was released does not count");
        ring.take(4096, 4);
        assert!(ring.is_filling());
    }

    #[test]
    fn what_was_released_is_forgotten_and_what_follows_is_not() {
        let mut ring = ring();
        for sequence in 1..=3 {
            ring.take(4096, sequence);
        }
        ring.release(ring.start_for(2));
        assert_eq!(ring.spans.len(), 2);
        assert_eq!(
            ring.start_for(0).position,
            4096,
            "the second batch is the first one now"
        );
        ring.release(ring.start_for(2)); // the same again
        assert_eq!((ring.spans.len(), ring.durable.position), (2, 4096));
    }
}
