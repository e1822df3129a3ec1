//! The verdict on a disk, in words that need no explanation.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::counters::Counter;

/// How a disk is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Nothing has changed for the worse since it joined.
    Fine,
    /// Counters grow: replace it while there is time.
    Growing {
        /// Which, how much, since when.
        growth: Vec<Growth>,
    },
    /// The disk itself says that it is failing.
    Failing {
        /// What it says.
        reasons: Vec<Reason>,
    },
    /// Transfers arrive damaged: look at the cable and the bay, not at the disk.
    Cable {
        /// Which counters, how much, since when.
        growth: Vec<Growth>,
    },
    /// It is hotter than it is made for.
    Hot {
        /// Degrees Celsius now.
        temperature_c: i64,
        /// The limit, degrees Celsius.
        limit_c: i64,
    },
    /// It sleeps and was not woken.
    Asleep {
        /// Since when it was found asleep, seconds since 1970.
        since_unix_s: u64,
        /// What was known before.
        known: Option<Known>,
    },
    /// Nothing can be said now. That is not "fine".
    CannotTell {
        /// Why not.
        silence: Silence,
        /// What was known before.
        known: Option<Known>,
    },
}

/// The verdict on the last reading of a disk that does not answer now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The verdict.
    pub verdict: Box<Verdict>,
    /// When it was read, seconds since 1970.
    pub read_unix_s: u64,
}

/// How much a counter has grown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// The counter.
    pub counter: Counter,
    /// Its value in the baseline.
    pub from: u64,
    /// Its value now.
    pub to: u64,
    /// The time of the baseline, seconds since 1970.
    pub since_unix_s: u64,
    /// When it last grew, seconds since 1970.
    pub grew_unix_s: u64,
}

/// What a failing disk says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// Its own verdict is "failed".
    OwnVerdict,
    /// An attribute that foretells failure is at its threshold.
    AtThreshold {
        /// The attribute's name.
        attribute: String,
    },
    /// A critical warning of an NVMe disk.
    CriticalWarning {
        /// In words.
        warning: String,
    },
    /// Its spare blocks are below its own limit.
    SpareLow {
        /// What is left, percent.
        available_percent: u64,
        /// The limit, percent.
        threshold_percent: u64,
    },
}

/// Why nothing was learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "silence", rename_all = "snake_case")]
pub enum Silence {
    /// smartctl did not come back in time.
    TimedOut {
        /// The time, in milliseconds.
        after_ms: u64,
    },
    /// A signal ended smartctl.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// There is no smartctl.
    NotInstalled,
    /// smartctl did not understand the call.
    Usage {
        /// What it said.
        message: Option<String>,
    },
    /// What it printed is no document.
    NotJson {
        /// The line where reading stopped.
        line: u64,
    },
    /// What it printed is longer than any document.
    TooLong {
        /// The bound, bytes.
        bytes_max: u64,
    },
    /// The device could not be opened, or did not say what it is.
    CannotOpen {
        /// What smartctl said.
        message: Option<String>,
    },
    /// The answer has no counter: a bridge or a RAID controller keeps them back.
    NoHealth,
    /// Every counter is zero, the hours too: somebody makes them up.
    Blank,
    /// The answer is another disk's.
    OtherDisk {
        /// The serial that was expected.
        expected: String,
        /// The serial that came.
        found: String,
    },
    /// A counter that can only rise has fallen.
    WentBackwards {
        /// The counter.
        counter: Counter,
        /// What it was.
        from: u64,
        /// What it is now.
        to: u64,
    },
}

impl Verdict {
    /// How much it matters: a higher number first. What does not answer stands over "fine" and under all that is known.
    #[must_use]
    pub(super) fn weight(&self) -> u8 {
        match self {
            Verdict::Failing { .. } => 6,
            Verdict::Growing { .. } => 5,
            Verdict::Cable { .. } => 4,
            Verdict::Hot { .. } => 3,
            Verdict::CannotTell { .. } => 2,
            Verdict::Asleep { .. } => 1,
            Verdict::Fine => 0,
        }
    }

    /// What holds of the disk itself: the verdict, or of a disk that does not answer the one that was known before.
    ///
    /// An incident is opened and closed by this one: it must not close because the disk went to sleep.
    #[must_use]
    pub fn underlying(&self) -> Option<&Verdict> {
        match self {
            Verdict::Asleep { known, .. } | Verdict::CannotTell { known, .. } => {
                known.as_ref().map(|known| known.verdict.as_ref())
            }
            verdict => Some(verdict),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Fine => write!(f, "fine"),
            Verdict::Growing { growth } => write!(f, "growing: {}", list(growth)),
            Verdict::Failing { reasons } => write!(f, "failing: {}", list(reasons)),
            Verdict::Cable { growth } => write!(f, "cable or bay: {}", list(growth)),
            Verdict::Hot {
                temperature_c,
                limit_c,
            } => {
                write!(f, "hot: {temperature_c} C, made for {limit_c} C")
            }
            Verdict::Asleep { known, .. } => {
                write!(f, "asleep")?;
                known
                    .iter()
                    .try_for_each(|known| write!(f, "; before: {}", known.verdict))
            }
            Verdict::CannotTell { silence, known } => {
                write!(f, "cannot tell: {silence}")?;
                known
                    .iter()
                    .try_for_each(|known| write!(f, "; before: {}", known.verdict))
            }
        }
    }
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items
        .iter()
        .map(T::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.counter, self.from, self.to)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::OwnVerdict => write!(f, "its own verdict is \"failed\""),
            Reason::AtThreshold { attribute } => write!(f, "{attribute} is at its threshold"),
            Reason::CriticalWarning { warning } => f.write_str(warning),
            Reason::SpareLow {
                available_percent,
                threshold_percent,
            } => write!(
                f,
                "{available_percent} % of its spare blocks are left, its limit is {threshold_percent} %"
            ),
        }
    }
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |message: &Option<String>| {
            message
                .as_ref()
                .map(|message| format!(": {message}"))
                .unwrap_or_default()
        };
        match self {
            Silence::TimedOut { after_ms } => {
                write!(f, "smartctl had not ended after {after_ms} ms")
            }
            Silence::Killed { signal } => write!(f, "smartctl was ended by signal {signal}"),
            Silence::NotInstalled => write!(f, "there is no smartctl; install smartmontools"),
            Silence::Usage { message } => write!(
                f,
                "smartctl did not understand the call{}; it has to be 7.0 or newer",
                told(message)
            ),
            Silence::NotJson { line } => write!(f, "smartctl printed no JSON (line {line})"),
            Silence::TooLong { bytes_max } => {
                write!(f, "smartctl printed more than {bytes_max} bytes")
            }
            Silence::CannotOpen { message } => {
                write!(
                    f,
                    "the device could not be opened or did not answer{}",
                    told(message)
                )
            }
            Silence::NoHealth => write!(
                f,
                "the answer has no counters; a bridge or controller keeps them back"
            ),
            Silence::Blank => write!(
                f,
                "every counter is zero, the hours too; a bridge makes them up"
            ),
            Silence::OtherDisk { expected, found } => {
                write!(f, "the answer is of disk {found}, and {expected} was asked")
            }
            Silence::WentBackwards { counter, from, to } => {
                write!(f, "{counter} fell from {from} to {to}, which no disk does")
            }
        }
    }
}
