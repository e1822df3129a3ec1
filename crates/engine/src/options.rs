//! How a volume is served.

use std::time::Duration;

use crate::balance::Policy;
use crate::mutant::DeliberateBug;
use crate::threshold::Thresholds;

/// How long a member may take to answer when nothing else is said (reliability.md, row 15).
pub const MEMBER_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits of background work, in member bytes per second. Sources: md's speed_limit_min and speed_limit_max.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// At least this much while clients are served.
    pub floor_bytes_per_s: u64,
    /// At most this much, ever; 0 = no limit.
    pub ceiling_bytes_per_s: u64,
    /// Whether background work rests.
    pub is_paused: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            floor_bytes_per_s: 32 << 20,
            ceiling_bytes_per_s: 0,
            is_paused: false,
        }
    }
}

/// Settings of a volume; all but `bug` can be changed while it is served.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// How reads are spread over copies.
    pub balance: Policy,
    /// Limits of background work.
    pub pace: Pace,
    /// Nothing may be written, neither data nor metadata.
    pub is_read_only: bool,
    /// Ranges whose redundancy is not proven are read all the same (`--force-data`, W8).
    pub trust_unproven: bool,
    /// A member that has not answered for so long is failed (W9).
    pub member_timeout: Duration,
    /// Requests must be multiples of this, even where members could do with less (at most 4096; 0: nothing is asked).
    pub block_bytes_min: u32,
    /// From where on it does something else; fixed when it is opened.
    pub thresholds: Thresholds,
    /// A deliberate bug; tests only.
    pub bug: DeliberateBug,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        Self {
            balance: Policy::Load,
            pace: Pace::default(),
            is_read_only: false,
            trust_unproven: false,
            member_timeout: MEMBER_TIMEOUT,
            block_bytes_min: 0,
            thresholds: Thresholds::default(),
            bug: DeliberateBug::NONE,
        }
    }
}
