//! The volatile cache of a simulated disk: what reads see, what is durable, what lies between.
//!
//! Invariants:
//! - `current` is `durable` with every un-flushed write on top, in the order they reached the cache;
//! - after `toss` (a power cut) both agree.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use plexum_block::buf::Buf;

use super::{CrashKind, DiskCounters, Sparse, Work};
use crate::fault::{FaultState, overlaps};
use crate::rng::Rng;

/// Un-flushed writes kept; older ones have then been written out by the disk itself, as real caches do.
const UNFLUSHED_WRITES_MAX: usize = 4096;

/// A slow disk answers within this time: one that takes longer than a member may is a fault of its own, `Fault::Hang`.
const SLOWEST_NS: u64 = 2_000_000_000;

/// Answer number of a write that was not answered yet.
pub(super) const NOT_YET: u64 = u64::MAX;

pub(super) enum Payload {
    Bytes(Buf),
    Zeroes,
}

/// A write that was taken, or a part of one.
pub(super) struct Written {
    pub range: Range<u64>,
    pub payload: Payload,
    /// Offset of `range.start` inside of the payload.
    pub skip_bytes: u64,
    pub io: u64,
    /// Number of the moment when it was answered: covered by flushes with a higher number. `NOT_YET` before.
    pub answered_at: u64,
}

impl Written {
    pub fn new(range: Range<u64>, payload: Payload) -> Self {
        Self {
            range,
            payload,
            skip_bytes: 0,
            io: 0,
            answered_at: NOT_YET,
        }
    }

    pub fn part(&self, range: Range<u64>) -> Written {
        let skip_bytes = self.skip_bytes + (range.start - self.range.start);
        let payload = match &self.payload {
            Payload::Bytes(bytes) => Payload::Bytes(bytes.clone()),
            Payload::Zeroes => Payload::Zeroes,
        };
        Written {
            range,
            payload,
            skip_bytes,
            ..*self
        }
    }

    /// What is left of it in front of and behind `cut`.
    fn without(&self, cut: &Range<u64>) -> Vec<Written> {
        [
            self.range.start..self.range.end.min(cut.start),
            self.range.start.max(cut.end)..self.range.end,
        ]
        .into_iter()
        .filter(|left| left.start < left.end)
        .map(|left| self.part(left))
        .collect()
    }

    pub fn store(&self, image: &mut Sparse) {
        self.store_part(image, self.range.clone());
    }

    pub fn store_part(&self, image: &mut Sparse, part: Range<u64>) {
        match &self.payload {
            Payload::Bytes(bytes) => {
                let from = (self.skip_bytes + (part.start - self.range.start)) as usize;
                let length = (part.end - part.start) as usize;
                image.write(part.start, &bytes[from..from + length]);
            }
            Payload::Zeroes => image.zero(part.start, part.end - part.start),
        }
    }
}

pub(super) struct State {
    pub rng: Rng,
    /// What reads see.
    pub current: Sparse,
    /// What certainly survives a power cut.
    pub durable: Sparse,
    /// Taken and not certainly durable, oldest first.
    pub unflushed: VecDeque<Written>,
    /// Ranges whose flush failed: `current` shows them, a crash may take them back.
    pub limbo: Vec<Range<u64>>,
    pub in_flight: BTreeMap<u64, Work>,
    pub hung: Vec<u64>,
    pub next_io: u64,
    /// Handles of an older generation are dead.
    pub generation: u32,
    pub faults: FaultState,
    pub counters: DiskCounters,
}

impl State {
    pub fn take_number(&mut self) -> u64 {
        self.next_io += 1;
        self.next_io
    }

    pub fn hit(&mut self, kind: usize) {
        self.counters.faults_hit[kind] += 1;
    }

    /// A write reaches the cache.
    pub fn take(&mut self, written: Written) {
        written.store(&mut self.current);
        self.unflushed.push_back(written);
        if self.unflushed.len() > UNFLUSHED_WRITES_MAX {
            let oldest = self
                .unflushed
                .pop_front()
                .expect("the list is longer than its limit");
            oldest.store(&mut self.durable);
        }
    }

    pub fn latency_ns(&mut self, usual_ns: u64) -> u64 {
        let tail = match self.rng.below(1024) {
            0 => 100,
            1..=16 => 10,
            _ => 1,
        };
        let factor = tail * u64::from(self.faults.slow_factor);
        self.rng
            .between(usual_ns / 4, usual_ns * 2)
            .saturating_mul(factor)
            .min(SLOWEST_NS)
    }

    /// Decides for every un-flushed sector whether it survives; afterwards durable and present contents agree.
    pub fn toss(&mut self, kind: CrashKind, atom_bytes: u32) {
        let atom = u64::from(atom_bytes);
        // Some cuts lose all, some nothing, the others a share: rare subsets are reached that way.
        let keep_of_8 = *self.rng.pick(&[0, 8, 4, 4, 1, 7]);
        let unflushed = std::mem::take(&mut self.unflushed);
        let mut touched = std::mem::take(&mut self.limbo);
        for written in &unflushed {
            touched.push(written.range.clone());
            if kind == CrashKind::Kill && written.answered_at != NOT_YET {
                written.store(&mut self.durable);
                continue;
            }
            let mut at = written.range.start;
            while at < written.range.end {
                let end = (at / atom * atom + atom).min(written.range.end);
                if self.rng.below(8) < keep_of_8 {
                    written.store_part(&mut self.durable, at..end);
                }
                at = end;
            }
        }
        for range in touched {
            self.current
                .copy_from(&self.durable, range.start, range.end - range.start);
        }
    }

    /// Makes a write durable that overlaps older un-flushed ones: their common sectors may not come back over it.
    pub fn settle_fua(&mut self, io: u64) {
        let mut left = VecDeque::new();
        let mut settled: Vec<Written> = Vec::new();
        for entry in std::mem::take(&mut self.unflushed).into_iter().rev() {
            if entry.io == io {
                settled.push(entry);
                continue;
            }
            let mut parts = vec![entry];
            for cut in &settled {
                parts = parts
                    .iter()
                    .flat_map(|part| part.without(&cut.range))
                    .collect();
            }
            parts
                .into_iter()
                .rev()
                .for_each(|part| left.push_front(part));
        }
        self.unflushed = left;
        settled
            .iter()
            .for_each(|written| written.store(&mut self.durable));
    }

    /// A good flush: what was answered before the moment `covers` becomes durable.
    ///
    /// Writes that were not answered then need not be covered, and are not: the hardest reading of the contract. Only
    /// one that a covered newer write overlaps goes along, or it would come back over that write later.
    pub fn harden(&mut self, covers: u64) {
        let mut left = VecDeque::new();
        let mut covered: Vec<Written> = Vec::new();
        for written in std::mem::take(&mut self.unflushed).into_iter().rev() {
            let is_under = || {
                covered
                    .iter()
                    .any(|newer| overlaps(&newer.range, &written.range))
            };
            if written.answered_at < covers || (!covered.is_empty() && is_under()) {
                covered.push(written);
            } else {
                left.push_front(written);
            }
        }
        self.unflushed = left;
        for written in covered.iter().rev() {
            written.store(&mut self.durable);
        }
    }

    /// A failed flush: some of what it covered became durable, the rest is forgotten by the cache.
    pub fn fail_flush(&mut self, covers: u64, atom_bytes: u32) {
        let atom = u64::from(atom_bytes);
        let (covered, kept): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.unflushed)
            .into_iter()
            .partition(|written| written.answered_at < covers);
        self.unflushed = kept;
        for written in covered {
            self.limbo.push(written.range.clone());
            let mut at = written.range.start;
            while at < written.range.end {
                let end = (at / atom * atom + atom).min(written.range.end);
                if self.rng.chance(1, 2) {
                    written.store_part(&mut self.durable, at..end);
                }
                at = end;
            }
        }
    }
}
