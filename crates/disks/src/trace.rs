//! The trace of a run: one event per line for people, one hash over all of them for machines.
//!
//! Invariants:
//! - every event goes into the hash, whether or not lines are kept: two runs of a seed must give one hash;
//! - an event holds numbers only, so that keeping a trace cannot change a run.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use crate::clock::SimClock;
use crate::rng::{GOLDEN, mix};

/// Who did something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// The harness.
    World,
    /// A simulated disk, by its number.
    Disk(u32),
    /// A client of the volume, by its number.
    Client(u32),
}

/// What was done. The letters of an event's numbers follow each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verb {
    /// Read issued: offset, length in bytes.
    Read,
    /// Read answered: offset, length in bytes, outcome.
    ReadDone,
    /// Write issued: offset, length in bytes.
    Write,
    /// Write answered: offset, length in bytes, outcome.
    WriteDone,
    /// Flush issued.
    Flush,
    /// Flush answered: outcome.
    FlushDone,
    /// Trim or zeroing issued: offset, length in bytes.
    Zero,
    /// Trim or zeroing answered: offset, length in bytes, outcome.
    ZeroDone,
    /// Power cut or kill: number of the crash, kind.
    Crash,
    /// The volume was created or assembled: outcome.
    Assemble,
    /// A fault was put in: kind, offset, length in bytes.
    Fault,
    /// A fault struck an I/O: kind, offset, length in bytes.
    FaultHit,
    /// An administrator's operation: kind, slot or disk.
    Operate,
    /// An operation ended: kind, slot or disk, outcome.
    OperateDone,
    /// A check of the harness: kind.
    Check,
    /// A violation was found: kind.
    Violation,
}

/// One thing that happened. The meaning of the numbers is at `Verb`.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// Who.
    pub actor: Actor,
    /// What.
    pub verb: Verb,
    /// First number.
    pub a: u64,
    /// Second number.
    pub b: u64,
    /// Third number; 0 is success where it is an outcome.
    pub c: u64,
}

struct Recording {
    clock: SimClock,
    hash: Cell<u64>,
    count: Cell<u64>,
    kept: RefCell<Option<Vec<(u64, Event)>>>,
    is_muted: Cell<bool>,
}

/// The recorder of one world. Clones write to the same trace.
#[derive(Clone)]
pub struct Trace {
    inner: Rc<Recording>,
}

impl Trace {
    /// A trace that only hashes, or keeps its events as well.
    #[must_use]
    pub fn new(clock: SimClock, is_kept: bool) -> Self {
        Self {
            inner: Rc::new(Recording {
                clock,
                hash: Cell::new(GOLDEN),
                count: Cell::new(0),
                kept: RefCell::new(is_kept.then(Vec::new)),
                is_muted: Cell::new(false),
            }),
        }
    }

    /// Records one event at the present virtual moment.
    pub fn note(&self, actor: Actor, verb: Verb, numbers: [u64; 3]) {
        let inner = &self.inner;
        if inner.is_muted.get() {
            return;
        }
        let [a, b, c] = numbers;
        let who = match actor {
            Actor::World => 0,
            Actor::Disk(number) => (1 << 32) | u64::from(number),
            Actor::Client(number) => (2 << 32) | u64::from(number),
        };
        let moment_ns = inner.clock.now_ns();
        let mut hash = inner.hash.get();
        for word in [moment_ns, who ^ ((verb as u64) << 48), a, b, c] {
            hash = mix(hash.wrapping_add(GOLDEN) ^ word);
        }
        inner.hash.set(hash);
        inner.count.set(inner.count.get() + 1);
        if let Some(kept) = inner.kept.borrow_mut().as_mut() {
            kept.push((
                moment_ns,
                Event {
                    actor,
                    verb,
                    a,
                    b,
                    c,
                },
            ));
        }
    }

    /// Hash over all events so far, in order.
    #[must_use]
    pub fn hash(&self) -> u64 {
        self.inner.hash.get()
    }

    /// Number of events so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.inner.count.get()
    }

    /// The kept events as aligned lines, oldest first; empty when events were not kept.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let kept = self.inner.kept.borrow();
        let events = kept.as_deref().unwrap_or(&[]);
        events
            .iter()
            .map(|(moment_ns, event)| line(*moment_ns, event))
            .collect()
    }
}

impl fmt::Display for Actor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Actor::World => f.pad("world"),
            Actor::Disk(number) => f.pad(&format!("disk {number}")),
            Actor::Client(number) => f.pad(&format!("client {number}")),
        }
    }
}

fn line(moment_ns: u64, event: &Event) -> String {
    let (ms, ns) = (moment_ns / 1_000_000, moment_ns % 1_000_000);
    let verb = format!("{:?}", event.verb);
    format!(
        "{ms:>8}.{ns:06} ms  {:<9} {verb:<12} {:>10} {:>8} {:>6}",
        event.actor, event.a, event.b, event.c
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_sees_order_and_every_number() {
        let hash_of = |events: &[[u64; 3]]| {
            let trace = Trace::new(SimClock::new(), false);
            for numbers in events {
                trace.note(Actor::World, Verb::Check, *numbers);
            }
            trace.hash()
        };
        assert_eq!(
            hash_of(&[[1, 2, 3], [4, 5, 6]]),
            hash_of(&[[1, 2, 3], [4, 5, 6]])
        );
        assert_ne!(
            hash_of(&[[1, 2, 3], [4, 5, 6]]),
            hash_of(&[[4, 5, 6], [1, 2, 3]])
        );
        assert_ne!(hash_of(&[[1, 2, 3]]), hash_of(&[[1, 2, 4]]));
    }

    #[test]
    fn keeping_lines_does_not_change_the_hash() {
        let (quiet, loud) = (
            Trace::new(SimClock::new(), false),
            Trace::new(SimClock::new(), true),
        );
        for trace in [&quiet, &loud] {
            trace.note(Actor::Disk(3), Verb::Read, [4096, 512, 0]);
        }
        assert_eq!(quiet.hash(), loud.hash());
        assert_eq!((quiet.lines().len(), loud.lines().len()), (0, 1));
    }
}
