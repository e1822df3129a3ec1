//! The judge of what clients see: per sector, the set of values that a read may return.
//!
//! Invariants (the contract of a block device, reliability reference 1 and 1.1):
//! - while running, a read may return the last answered write or any write in flight during the read; of writes that
//!   overlapped each other either may have won, and once a read has shown the winner it stays;
//! - after a power cut a sector holds its last durable value or any value received later; what a read then returned is
//!   the only value left;
//! - a write that failed may show or not until a later write is answered.
//!
//! The oracle knows nothing of organisations, members or time: only what the client sent and was told.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use plexum_disks::disk::CrashKind;
use plexum_disks::sector::{self, SECTOR_BYTES, Seen, Value};

/// Tick of what has not happened yet.
const NEVER: u64 = u64::MAX;

/// How a write changes sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// Data, made by `Oracle::fill`.
    Data,
    /// Zeroes.
    Zeroes,
    /// Trim: afterwards zeroes or what was there, but the same for every later read (W11).
    Trim,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// Answered; durable after the next flush.
    Done,
    /// Answered with FUA: durable.
    Durable,
    /// Answered with an error.
    Failed,
}

/// A write in flight.
#[derive(Clone, Debug)]
pub struct WriteToken {
    /// Sectors of the volume.
    pub sectors: Range<u64>,
    /// Number of this write; never used twice.
    pub sequence: u64,
    kind: WriteKind,
    started: u64,
}

/// A read in flight.
#[derive(Clone, Debug)]
pub struct ReadToken {
    /// Sectors of the volume.
    pub sectors: Range<u64>,
    started: u64,
}

/// A flush in flight.
#[derive(Clone, Debug)]
pub struct FlushToken {
    started: u64,
}

#[derive(Clone, Debug)]
struct Candidate {
    value: Value,
    sequence: u64,
    answered: u64,
    /// When a later write, or a read that showed another winner, ruled it out for reads.
    superseded: u64,
    /// It was there when the volume last came up: reads settle which of these is the one.
    is_settled: bool,
    has_failed: bool,
    /// No crash can bring it back; kept only for reads that began before it was superseded.
    is_past: bool,
}

/// A sector that a read returned with a value it may not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Sector of the volume.
    pub sector: u64,
    /// What the read returned.
    pub seen: Seen,
    /// What it might have returned.
    pub allowed: Vec<Value>,
    /// Sectors of the same read that were wrong too.
    pub more: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}: read {}, allowed", self.sector, self.seen)?;
        for value in &self.allowed {
            write!(f, " [{value}]")?;
        }
        if self.more > 0 {
            write!(f, ", and {} more sectors", self.more)?;
        }
        Ok(())
    }
}

/// The judge of one volume.
#[derive(Clone)]
pub struct Oracle {
    seed: u64,
    tick: u64,
    sequence: u64,
    /// The only value of sectors without an entry in `open`.
    base: Vec<Value>,
    open: BTreeMap<u64, Vec<Candidate>>,
    /// Start ticks of reads in flight, with their number.
    reads: BTreeMap<u64, ()>,
}

impl Oracle {
    /// An oracle for a fresh volume of `sector_count` sectors of zeroes.
    #[must_use]
    pub fn new(seed: u64, sector_count: u64) -> Self {
        let count = usize::try_from(sector_count).expect("simulated volumes fit into memory");
        Self {
            seed,
            tick: 0,
            sequence: 0,
            base: vec![Value::Zero; count],
            open: BTreeMap::new(),
            reads: BTreeMap::new(),
        }
    }

    /// Number of sectors of the volume.
    #[must_use]
    pub fn sector_count(&self) -> u64 {
        self.base.len() as u64
    }

    /// Sectors that may still hold one of several values.
    #[must_use]
    pub fn open_count(&self) -> usize {
        self.open.len()
    }

    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// A write is about to be sent.
    pub fn begin_write(&mut self, sectors: Range<u64>, kind: WriteKind) -> WriteToken {
        assert!(
            sectors.end <= self.sector_count(),
            "writes stay inside of the volume"
        );
        let started = self.next_tick();
        self.sequence += 1;
        let sequence = self.sequence;
        let value = match kind {
            WriteKind::Data => Value::Written(sequence),
            WriteKind::Zeroes | WriteKind::Trim => Value::Zero,
        };
        for at in sectors.clone() {
            let base = self.base[at as usize];
            let candidates = self
                .open
                .entry(at)
                .or_insert_with(|| vec![Candidate::settled(base)]);
            candidates.push(Candidate {
                value,
                sequence,
                ..Candidate::new()
            });
        }
        WriteToken {
            sectors,
            sequence,
            kind,
            started,
        }
    }

    /// The data of a write, for its whole range.
    ///
    /// # Panics
    /// When `target` has another length than the range.
    pub fn fill(&self, token: &WriteToken, target: &mut [u8]) {
        let count = token.sectors.end - token.sectors.start;
        assert_eq!(
            target.len() as u64,
            count * SECTOR_BYTES as u64,
            "the buffer fits the write"
        );
        for (at, bytes) in token
            .sectors
            .clone()
            .zip(target.chunks_exact_mut(SECTOR_BYTES))
        {
            sector::fill(bytes, self.seed, at, token.sequence);
        }
    }

    /// A write was answered.
    pub fn end_write(&mut self, token: &WriteToken, end: WriteEnd) {
        let now = self.next_tick();
        for at in token.sectors.clone() {
            let candidates = self
                .open
                .get_mut(&at)
                .expect("a sector with a write in flight is open");
            let own = candidates
                .iter_mut()
                .find(|candidate| candidate.sequence == token.sequence)
                .expect("a write in flight is a candidate");
            own.answered = now;
            own.has_failed = end == WriteEnd::Failed;
            if end == WriteEnd::Failed || token.kind == WriteKind::Trim {
                continue; // it may have changed nothing
            }
            for older in candidates
                .iter_mut()
                .filter(|older| older.answered < token.started)
            {
                older.superseded = older.superseded.min(now);
                older.is_past |= end == WriteEnd::Durable;
            }
        }
        if end == WriteEnd::Durable {
            for at in token.sectors.clone() {
                self.tidy(at);
            }
        }
    }

    /// A flush is about to be sent.
    pub fn begin_flush(&mut self) -> FlushToken {
        FlushToken {
            started: self.next_tick(),
        }
    }

    /// A flush was answered without an error.
    pub fn end_flush(&mut self, token: &FlushToken) {
        let touched: Vec<u64> = self.open.keys().copied().collect();
        for at in touched {
            let candidates = self.open.get_mut(&at).expect("the key was just listed");
            for candidate in candidates.iter_mut() {
                candidate.is_past |= candidate.superseded < token.started;
            }
            self.tidy(at);
        }
    }

    /// A read is about to be sent.
    pub fn begin_read(&mut self, sectors: Range<u64>) -> ReadToken {
        assert!(
            sectors.end <= self.sector_count(),
            "reads stay inside of the volume"
        );
        let started = self.next_tick();
        self.reads.insert(started, ());
        ReadToken { sectors, started }
    }

    /// A read was answered with an error: nothing was seen.
    pub fn fail_read(&mut self, token: &ReadToken) {
        self.reads.remove(&token.started);
    }

    /// A read was answered with `data`.
    ///
    /// # Errors
    /// The first sector with a value outside of its allowed set.
    pub fn end_read(&mut self, token: &ReadToken, data: &[u8]) -> Result<(), Violation> {
        let count = token.sectors.end - token.sectors.start;
        assert_eq!(
            data.len() as u64,
            count * SECTOR_BYTES as u64,
            "a read returns its whole range"
        );
        self.reads.remove(&token.started);
        let mut first: Option<Violation> = None;
        for (at, bytes) in token.sectors.clone().zip(data.chunks_exact(SECTOR_BYTES)) {
            let seen = sector::look(bytes);
            let Err(allowed) = self.judge(token.started, at, seen) else {
                continue;
            };
            match &mut first {
                Some(violation) => violation.more += 1,
                None => {
                    first = Some(Violation {
                        sector: at,
                        seen,
                        allowed,
                        more: 0,
                    })
                }
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The world has crashed: requests in flight are lost or not.
    pub fn crash(&mut self, kind: CrashKind) {
        let now = self.next_tick();
        self.reads.clear();
        let touched: Vec<u64> = self.open.keys().copied().collect();
        for at in touched {
            let candidates = self.open.get_mut(&at).expect("the key was just listed");
            // After a kill the members still hold everything that was answered.
            candidates.retain(|candidate| {
                !candidate.is_past && (kind == CrashKind::PowerCut || candidate.superseded == NEVER)
            });
            for candidate in candidates.iter_mut() {
                candidate.answered = candidate.answered.min(now);
                candidate.superseded = NEVER;
                candidate.is_settled = true;
                candidate.has_failed = false;
            }
            self.tidy(at);
        }
    }

    /// The values that a read of sector `at` may return now.
    #[must_use]
    pub fn allowed(&self, at: u64) -> Vec<Value> {
        match self.open.get(&at) {
            None => vec![self.base[at as usize]],
            Some(candidates) => candidates
                .iter()
                .filter(|c| c.superseded == NEVER)
                .map(|c| c.value)
                .collect(),
        }
    }

    /// The volume has become again what it was when `earlier` was copied off. Nobody uses it meanwhile.
    pub fn go_back(&mut self, earlier: &Oracle) {
        for at in 0..self.sector_count() {
            self.settle(at, earlier.allowed(at));
        }
    }

    /// The volume may become again what it was when `earlier` was copied off: each sector holds what it held, or what
    /// it held then. Nobody uses it meanwhile.
    pub fn may_go_back(&mut self, earlier: &Oracle) {
        for at in 0..self.sector_count() {
            let mut values = self.allowed(at);
            values.extend(earlier.allowed(at));
            self.settle(at, values);
        }
    }

    /// A sector holds one of these.
    fn settle(&mut self, at: u64, mut values: Vec<Value>) {
        values.sort_unstable();
        values.dedup();
        self.open.remove(&at);
        match values[..] {
            [value] => self.base[at as usize] = value,
            _ => {
                let candidates = values.into_iter().map(Candidate::settled);
                self.open.insert(at, candidates.collect());
            }
        }
    }

    /// Whether these bytes may have been in sector `at` at any time: zeroes, or a write to it.
    #[must_use]
    pub fn may_ever_have_been(&self, at: u64, bytes: &[u8]) -> bool {
        match sector::look(bytes) {
            Seen::Zero => true,
            Seen::Valid {
                seed,
                address,
                sequence,
            } => seed == self.seed && address == at && sequence <= self.sequence,
            _ => false,
        }
    }

    fn judge(&mut self, started: u64, at: u64, seen: Seen) -> Result<(), Vec<Value>> {
        let value = match seen {
            Seen::Zero => Some(Value::Zero),
            Seen::Valid {
                seed,
                address,
                sequence,
            } if seed == self.seed && address == at => Some(Value::Written(sequence)),
            _ => None,
        };
        let base = self.base[at as usize];
        let Some(candidates) = self.open.get_mut(&at) else {
            return if value == Some(base) {
                Ok(())
            } else {
                Err(vec![base])
            };
        };
        let live = candidates
            .iter()
            .filter(|candidate| candidate.superseded > started);
        if !live.clone().any(|candidate| Some(candidate.value) == value) {
            return Err(live.map(|candidate| candidate.value).collect());
        }
        let is_quiet = live
            .clone()
            .all(|candidate| candidate.answered < started && !candidate.has_failed);
        // All writes had been answered before, and meanwhile another read has shown another winner: they disagree.
        let is_winner = |c: &Candidate| c.superseded == NEVER && Some(c.value) == value;
        if is_quiet && !candidates.iter().any(is_winner) {
            let left = candidates.iter().filter(|c| c.superseded == NEVER);
            return Err(left.map(|candidate| candidate.value).collect());
        }
        if is_quiet {
            self.tick += 1;
            let now = self.tick;
            // An equal value that was written (or trimmed) later settles nothing: a crash may take it back.
            let mut winners = candidates
                .iter()
                .filter(|c| c.superseded > started && Some(c.value) == value);
            let winner_is_settled = winners.all(|c| c.is_settled);
            for other in candidates
                .iter_mut()
                .filter(|other| Some(other.value) != value)
            {
                other.superseded = other.superseded.min(now);
                other.is_past |= winner_is_settled && other.is_settled;
            }
            self.tidy(at);
        }
        Ok(())
    }

    /// Forgets candidates that no read and no crash can bring back; closes the sector when one is left.
    fn tidy(&mut self, at: u64) {
        let oldest_read = self.reads.keys().next().copied().unwrap_or(NEVER);
        let Some(candidates) = self.open.get_mut(&at) else {
            return;
        };
        candidates.retain(|candidate| !candidate.is_past || candidate.superseded > oldest_read);
        assert!(!candidates.is_empty(), "a sector always has a value");
        let first = candidates[0].value;
        let is_closed = candidates.iter().all(|candidate| {
            let is_live = !candidate.is_past && candidate.superseded == NEVER;
            candidate.value == first
                && is_live
                && candidate.answered != NEVER
                && !candidate.has_failed
        });
        if is_closed {
            self.base[at as usize] = first;
            self.open.remove(&at);
        }
    }
}

impl Candidate {
    fn new() -> Self {
        Self {
            value: Value::Zero,
            sequence: 0,
            answered: NEVER,
            superseded: NEVER,
            is_settled: false,
            has_failed: false,
            is_past: false,
        }
    }

    fn settled(value: Value) -> Self {
        Self {
            value,
            answered: 0,
            is_settled: true,
            ..Self::new()
        }
    }
}

#[cfg(test)]
mod tests;
