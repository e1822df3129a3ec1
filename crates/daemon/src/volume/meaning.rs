//! What the state of a volume means for its data, in one sentence: the same wherever it is told.

use super::status::{MemberState, Verdict, VolumeStatus};

/// What the state means for the data.
#[must_use]
pub fn meaning(status: &VolumeStatus) -> Option<String> {
    let away = status
        .members
        .iter()
        .filter(|member| {
            member.slot.is_some() && member.state != MemberState::Active && !member.is_replacement
        })
        .count();
    match status.verdict {
        Verdict::Ok => None,
        Verdict::Damaged => {
            Some("all members are there, but not all that they hold is right".into())
        }
        Verdict::Full => {
            Some("all members are there, but one has no space for what is written".into())
        }
        Verdict::Degraded => Some(match status.spare_failures {
            0 => format!(
                "{away} of {} members not in sync; ONE MORE FAILURE LOSES THE VOLUME",
                status.slots
            ),
            n => format!(
                "{away} of {} members not in sync; {n} more can fail without loss of data",
                status.slots
            ),
        }),
        // A pool stops at what its members answered, before each of them is found out.
        Verdict::Failed if away == 0 => {
            Some("its members fail: requests get errors, nothing is written".into())
        }
        Verdict::Failed => Some(format!(
            "{away} of {} members lost, more than it survives: requests get errors, nothing is written",
            status.slots
        )),
    }
}
