//! Faults of one simulated disk, and the plan that says when they come.
//!
//! Invariants:
//! - a plan is made from the seed before a run and can be printed: what strikes is known, when it strikes too;
//! - a fault says what the *disk* does; whether the volume must survive it is decided in `atlas.rs`.
//!
//! Source: the fault list of the simulation section of the reliability reference.

use std::fmt;
use std::ops::Range;

/// What goes wrong. Ranges are bytes of the disk, multiples of its sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reads of the range fail until it is written again (a latent sector error).
    ReadError(Range<u64>),
    /// Writes to the range fail, for good.
    WriteError(Range<u64>),
    /// The next flushes fail; what they would have made durable is in doubt.
    FlushError {
        /// How many.
        count: u32,
    },
    /// One bit of a byte turns round, silently.
    BitFlip {
        /// Byte on the disk.
        offset_bytes: u64,
        /// The bit, as a mask.
        mask: u8,
    },
    /// The next write that touches the range is answered and not done.
    LostWrite(Range<u64>),
    /// The next write that touches the range lands somewhere else.
    MisdirectedWrite {
        /// Where the write was meant to go.
        range: Range<u64>,
        /// How far away it lands, in bytes, modulo the size of the disk.
        shift_bytes: i64,
    },
    /// The next write that touches the range is done in part and answered with an error.
    TornWrite(Range<u64>),
    /// Writes to the range find no space, until `Return`.
    NoSpace(Range<u64>),
    /// The next I/Os are interrupted and may be tried again at once.
    Retryable {
        /// How many.
        count: u32,
    },
    /// Every I/O takes so many times longer.
    Slow {
        /// The factor; 1 ends it.
        factor: u32,
    },
    /// I/Os are taken and never answered, until `Return`.
    Hang,
    /// The disk is pulled out: its handles are dead for good, its volatile cache is lost.
    Vanish,
    /// A vanished disk can be opened again; a hung one answers all it owes; space is there again.
    Return,
}

/// Number of different faults.
pub const FAULT_KINDS: usize = 13;

impl Fault {
    /// Number of the kind, below `FAULT_KINDS`.
    #[must_use]
    pub fn kind(&self) -> usize {
        match self {
            Fault::ReadError(_) => 0,
            Fault::WriteError(_) => 1,
            Fault::FlushError { .. } => 2,
            Fault::BitFlip { .. } => 3,
            Fault::LostWrite(_) => 4,
            Fault::MisdirectedWrite { .. } => 5,
            Fault::TornWrite(_) => 6,
            Fault::NoSpace(_) => 7,
            Fault::Retryable { .. } => 8,
            Fault::Slow { .. } => 9,
            Fault::Hang => 10,
            Fault::Vanish => 11,
            Fault::Return => 12,
        }
    }
}

/// Name of a kind of fault, for reports.
#[must_use]
pub fn kind_name(kind: usize) -> &'static str {
    const NAMES: [&str; FAULT_KINDS] = [
        "read-error",
        "write-error",
        "flush-error",
        "bit-flip",
        "lost-write",
        "misdirected-write",
        "torn-write",
        "no-space",
        "retryable",
        "slow",
        "hang",
        "vanish",
        "return",
    ];
    NAMES.get(kind).copied().unwrap_or("unknown")
}

/// One fault of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFault {
    /// The fault is put in when this request of the workload starts (counted from 0 over all clients).
    pub request: u64,
    /// The disk it strikes.
    pub disk: usize,
    /// What happens.
    pub fault: Fault,
}

/// Everything that will go wrong in a run, in order of `request`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// The faults, ascending by `request`.
    pub faults: Vec<PlannedFault>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = kind_name(self.kind());
        match self {
            Fault::ReadError(range)
            | Fault::WriteError(range)
            | Fault::LostWrite(range)
            | Fault::TornWrite(range)
            | Fault::NoSpace(range) => {
                write!(
                    f,
                    "{name} at byte {} for {}",
                    range.start,
                    range.end - range.start
                )
            }
            Fault::MisdirectedWrite { range, shift_bytes } => {
                write!(f, "{name} at byte {} by {shift_bytes}", range.start)
            }
            Fault::BitFlip { offset_bytes, mask } => {
                write!(f, "{name} in byte {offset_bytes} mask {mask:#04x}")
            }
            Fault::FlushError { count } | Fault::Retryable { count } => {
                write!(f, "{name} {count} times")
            }
            Fault::Slow { factor } => write!(f, "{name} by {factor}"),
            Fault::Hang | Fault::Vanish | Fault::Return => f.write_str(name),
        }
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for PlannedFault {
            request,
            disk,
            fault,
        } in &self.faults
        {
            writeln!(f, "request {request:>6}  disk {disk:>2}  {fault}")?;
        }
        Ok(())
    }
}

/// What is wrong with a disk now.
#[derive(Clone, Debug, Default)]
pub(crate) struct FaultState {
    pub read_errors: Vec<Range<u64>>,
    pub write_errors: Vec<Range<u64>>,
    pub lost: Vec<Range<u64>>,
    pub misdirected: Vec<(Range<u64>, i64)>,
    pub torn: Vec<Range<u64>>,
    pub no_space: Vec<Range<u64>>,
    pub flush_errors_left: u32,
    pub retryable_left: u32,
    pub slow_factor: u32,
    pub is_hung: bool,
    pub is_vanished: bool,
}

pub(crate) fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl FaultState {
    /// True when nothing can strike a read or write: the usual case, checked first.
    pub fn is_quiet(&self) -> bool {
        self.read_errors.is_empty()
            && self.write_errors.is_empty()
            && self.lost.is_empty()
            && self.misdirected.is_empty()
            && self.torn.is_empty()
            && self.no_space.is_empty()
            && self.retryable_left == 0
    }

    /// Writing heals latent read errors, sector by sector.
    pub fn heal(&mut self, written: &Range<u64>) {
        if self.read_errors.iter().any(|bad| overlaps(bad, written)) {
            self.read_errors = self
                .read_errors
                .iter()
                .flat_map(|bad| {
                    [
                        bad.start..bad.end.min(written.start),
                        bad.start.max(written.end)..bad.end,
                    ]
                })
                .filter(|left| left.start < left.end)
                .collect();
        }
    }
}

/// Takes the first entry that overlaps `range` out of a list of one-time faults.
pub(crate) fn take_hit<T>(
    list: &mut Vec<T>,
    range: &Range<u64>,
    region: impl Fn(&T) -> &Range<u64>,
) -> Option<T> {
    let hit = list
        .iter()
        .position(|entry| overlaps(region(entry), range))?;
    Some(list.remove(hit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_heals_exactly_the_written_part_of_a_read_error() {
        let mut state = FaultState {
            read_errors: vec![100..200, 300..400],
            ..FaultState::default()
        };
        state.heal(&(150..160));
        assert_eq!(state.read_errors, [100..150, 160..200, 300..400]);
        state.heal(&(0..350));
        assert_eq!(state.read_errors, std::slice::from_ref(&(350..400)));
    }

    #[test]
    fn a_plan_prints_one_line_for_each_fault() {
        let plan = FaultPlan {
            faults: vec![
                PlannedFault {
                    request: 5,
                    disk: 1,
                    fault: Fault::ReadError(4096..8192),
                },
                PlannedFault {
                    request: 9,
                    disk: 0,
                    fault: Fault::Vanish,
                },
            ],
        };
        let text = plan.to_string();
        assert_eq!(text.lines().count(), 2);
        assert!(text.contains("request      5  disk  1  read-error at byte 4096 for 4096"));
    }
}
