//! What status tells of a volume that is scrubbed by itself.

use serde::{Deserialize, Serialize};

/// The schedule of a volume's scrubs, as it stands. Moments are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubPlanStatus {
    /// Every byte is compared so often, in seconds.
    pub every_s: u64,
    /// End of the last round that compared everything; none while there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_success_s: Option<u64>,
    /// When the byte was compared that has waited longest; of one that never was, when the volume was first known.
    pub oldest_byte_s: u64,
    /// Whether something was never compared.
    pub is_partly_unknown: bool,
    /// When it goes on; none while it runs, and where nobody can say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_s: Option<u64>,
    /// Why it does not run now, in words; none while it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_because: Option<String>,
    /// Of the round that has begun: bytes that it has looked at. None between rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_done_bytes: Option<u64>,
    /// Bytes of a round.
    pub total_bytes: u64,
}
