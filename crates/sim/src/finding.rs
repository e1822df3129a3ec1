//! What the harness may have to say against an engine.

use std::fmt;

use plexum_block::device::IoError;

use crate::md::reference::Mismatch;
use crate::oracle::Violation;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A client read what it may not have.
    WrongData(Violation),
    /// A client got more or less than it asked for.
    WrongLength {
        /// Bytes asked for.
        asked: u64,
        /// Bytes answered.
        got: u64,
    },
    /// A request took longer than any may.
    Late {
        /// What was asked.
        request: String,
        /// How long it took, in nanoseconds of virtual time.
        took_ns: u64,
    },
    /// A client got an error although everything that failed is within the promise.
    ErrorWithinPromise {
        /// What was asked.
        request: String,
        /// What came.
        error: IoError,
    },
    /// Requests were not answered in bounded virtual time.
    NoAnswer {
        /// How many.
        requests: u64,
    },
    /// The array did not become whole in bounded virtual time after all faults had ended.
    NotWhole(String),
    /// After resync, copies or parity do not agree.
    Disagree(Vec<Mismatch>),
    /// What the members hold is not what clients may read, with these slots left out.
    LostOnMembers {
        /// Slots left out.
        missing: Vec<usize>,
        /// The difference.
        violation: Option<Violation>,
    },
    /// An array that has to start did not.
    NotStarted(String),
    /// An event count went back.
    EventCountBack {
        /// Before.
        before: u64,
        /// Now.
        now: u64,
    },
    /// A member that the array has dropped looks as fresh as those that went on.
    StaleLooksFresh {
        /// Its disk.
        disk: u32,
        /// Its event count.
        events: u64,
        /// The least of those that went on.
        newest: u64,
    },
    /// Something is still held after everything has ended.
    Leak(String),
    /// A silent fault was not treated as the guarantees say.
    Silent(String),
    /// A start that took stale members to read them (W7, forced) took the wrong ones, or wrote.
    StaleStart(String),
    /// A region's copies or parity differ and its bit is clear.
    BitClear {
        /// The difference.
        mismatch: Mismatch,
    },
    /// What the checker of pools says, or what a pool has that it should not have.
    PoolCheck(String),
    /// An invariant of the engine broke.
    Panic(String),
}

impl Finding {
    /// Short name of the kind, for counting.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Finding::WrongData(_) => "wrong-data",
            Finding::WrongLength { .. } => "wrong-length",
            Finding::Late { .. } => "late",
            Finding::ErrorWithinPromise { .. } => "error-within-promise",
            Finding::NoAnswer { .. } => "no-answer",
            Finding::NotWhole(_) => "not-whole",
            Finding::Disagree(_) => "disagree",
            Finding::LostOnMembers { .. } => "lost-on-members",
            Finding::NotStarted(_) => "not-started",
            Finding::EventCountBack { .. } => "event-count-back",
            Finding::BitClear { .. } => "bit-clear",
            Finding::StaleLooksFresh { .. } => "stale-looks-fresh",
            Finding::Leak(_) => "leak",
            Finding::Silent(_) => "silent-fault",
            Finding::StaleStart(_) => "stale-start",
            Finding::PoolCheck(_) => "pool-check",
            Finding::Panic(_) => "panic",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::WrongData(violation) => write!(f, "wrong data: {violation}"),
            Finding::WrongLength { asked, got } => {
                write!(f, "a read of {asked} bytes was answered with {got}")
            }
            Finding::Late { request, took_ns } => {
                write!(f, "{request} took {} s", took_ns / 1_000_000_000)
            }
            Finding::ErrorWithinPromise { request, error } => {
                write!(f, "an error within the promise: {request}: {error}")
            }
            Finding::NoAnswer { requests } => write!(f, "{requests} requests were never answered"),
            Finding::NotWhole(status) => write!(f, "the array does not become whole: {status}"),
            Finding::Disagree(places) => {
                let first = places.first().map(|at| (at.member, at.offset_bytes));
                write!(
                    f,
                    "copies or parity disagree at {} places, first (slot, byte) {first:?}",
                    places.len()
                )
            }
            Finding::LostOnMembers { missing, violation } => {
                let what = violation
                    .as_ref()
                    .map_or("nothing readable".to_owned(), ToString::to_string);
                write!(
                    f,
                    "members without slots {missing:?} do not hold the content: {what}"
                )
            }
            Finding::NotStarted(reason) => write!(f, "the array does not start: {reason}"),
            Finding::EventCountBack { before, now } => {
                write!(f, "the event count went from {before} to {now}")
            }
            Finding::BitClear { mismatch } => write!(
                f,
                "clean, or the bit is clear, where slot {} differs at byte {}",
                mismatch.member, mismatch.offset_bytes
            ),
            Finding::StaleLooksFresh {
                disk,
                events,
                newest,
            } => write!(
                f,
                "disk {disk} was dropped, and its event count {events} looks fresh beside {newest}"
            ),
            Finding::Leak(what) => write!(f, "still held at the end: {what}"),
            Finding::StaleStart(what) => write!(f, "a start with stale members: {what}"),
            Finding::Silent(what) => write!(f, "against the guarantees for silent faults: {what}"),
            Finding::PoolCheck(what) => write!(f, "the checker of pools: {what}"),
            Finding::Panic(message) => write!(f, "the engine panicked: {message}"),
        }
    }
}
