//! Drills: short scenarios that are bent towards one rule, so that a bug against it shows within few seeds.

use super::spec::Level;

/// What a short scenario is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Drill {
    /// A member leaves, another takes its slot until the bits are cleared, then the first one comes back (W7).
    RoundTrip,
    /// Members leave and come back while clients write, sometimes after a time in which bits would be cleared (W7,
    /// W12).
    ComeBack,
    /// Small writes meet inside of blocks (W10, locks).
    Narrow,
    /// Many flushes and power cuts (W1, W2).
    Flushes,
    /// Two members are away and one spare comes (W7).
    TwoAway,
    /// The rings go round and round without a flush of the clients (W2, L3).
    Ring,
    /// Parity without a log, a crash while a member is away: refused, forced, rows in doubt are rebuilt around (W8).
    Forced,
    /// A member hangs, is failed, answers late and comes back (W9).
    Hang,
    /// A slow member: reads are hedged (W9).
    Slow,
    /// With a log: a member is lost with each crash, and the start is cut too (L2, L7).
    Replay,
    /// The kernel has the array again and again (L6, W7).
    Kernel,
    /// The same with a log that holds rows at each crash, and which the kernel then writes (L6).
    Lent,
    /// Long work without a pause and without a flush: what was written seconds ago is still in the caches when its bits
    /// go (W2).
    Steady,
    /// Commits are cut, one after the other, and nothing else happens (W3, W7).
    Commits,
    /// A member is being replaced when the array is stopped, and then in a crash (W5).
    Replace,
    /// Writes that are in the log find no space on a member, others to the same rows follow, and with the power goes a
    /// further member: beyond the promise, so errors are right and wrong data are not (L3).
    Refused,
    /// A member cannot write some blocks, says so in its bad-block list until bits are cleared, is taken out and comes
    /// back by the bitmap (W7).
    Scarred,
    /// A member's flush fails, and power is cut soon after (W13).
    FailedFlush,
    /// One cable too many falls out, again and again (W4).
    Unplugged,
    /// Members are lost one after another, and with the power goes one too many; the earlier ones are there again, and
    /// too few are fresh (W7, forced).
    OneByOne,
    /// A member is lost under writes and power goes before that is durable, or soon after; at the next start it may be
    /// there again (W3).
    Lost,
    /// Mirrors are read forward and ahead, and writes fall where was read ahead.
    Streams,
    /// Mirrors that a power cut left unequal are read while they are made equal; power is cut again in the flush that
    /// ends that, and a copy is lost with it (W6).
    Resync,
    /// A fault at a stage of a request, then a crash at a stage, by the book of the coverage matrix.
    Meet,
    /// One cell of the coverage matrix (see `aim.rs`).
    Aim,
}

impl Drill {
    /// All that can be asked for by name: `Lent` is half of `Kernel`, the other two go by the book of the coverage.
    pub const ALL: [Drill; 22] = [
        Drill::RoundTrip,
        Drill::ComeBack,
        Drill::Narrow,
        Drill::Flushes,
        Drill::TwoAway,
        Drill::Ring,
        Drill::Forced,
        Drill::Hang,
        Drill::Slow,
        Drill::Replay,
        Drill::Kernel,
        Drill::Steady,
        Drill::Commits,
        Drill::Replace,
        Drill::Refused,
        Drill::Scarred,
        Drill::FailedFlush,
        Drill::Unplugged,
        Drill::OneByOne,
        Drill::Lost,
        Drill::Streams,
        Drill::Resync,
    ];
}

/// Those that arrays of a level and a version of the metadata can have.
pub(super) fn drills_of(level: Level, metadata: u32) -> Vec<Drill> {
    let mut drills = vec![Drill::Narrow, Drill::Flushes];
    if matches!(level, Level::Linear | Level::Raid0) {
        return drills;
    }
    drills.extend([
        Drill::RoundTrip,
        Drill::ComeBack,
        Drill::ComeBack,
        Drill::TwoAway,
        Drill::Hang,
        Drill::Slow,
        Drill::Kernel,
        Drill::Steady,
        Drill::Commits,
    ]);
    if level.has_parity() {
        drills.extend([Drill::Forced, Drill::Forced, Drill::Replace]);
        // Older metadata have no room for a log.
        if metadata >= 110 {
            drills.extend([Drill::Ring, Drill::Replay, Drill::Replay]);
        }
    }
    drills
}
