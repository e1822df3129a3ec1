//! Which spare takes which empty slot: a pure choice.

use super::apply::ArrayState;
use super::member::{MemberId, Standing};

/// The next spare to use, with the slot it shall take: the lowest empty slot that nobody fills, and the first spare
/// that `fits` (large enough). `None` when there is nothing to do.
pub fn pick(state: &ArrayState, fits: impl Fn(MemberId) -> bool) -> Option<(MemberId, u16)> {
    if state.is_frozen {
        return None;
    }
    let lost = state.lost_slots();
    let slot = (0..state.slot_count)
        .find(|slot| lost[usize::from(*slot)] && state.rebuilding(*slot).is_none())?;
    let spare = state
        .members
        .iter()
        .enumerate()
        .filter(|(_, record)| record.standing == Standing::Spare)
        .map(|(index, _)| MemberId(u16::try_from(index).expect("members are few")))
        .find(|member| fits(*member))?;
    Some((spare, slot))
}
