//! What tests show to the metadata of a format.

use plexum_engine::metadata::CommitView;
use plexum_engine::state::{ArrayState, MemberRecord, Standing};

/// An array with members of these standings, each in the slot of its number.
pub(crate) fn state_of(standings: &[Standing]) -> ArrayState {
    let members = (0..).zip(standings).map(|(slot, standing)| MemberRecord {
        slot: Some(slot),
        standing: *standing,
        is_replacement: false,
        is_write_mostly: false,
    });
    ArrayState {
        members: members.collect(),
        slot_count: standings.len() as u16,
        is_dirty: true,
        consistent_below_bytes: None,
        is_frozen: false,
        version: 1,
        urgent_version: 1,
    }
}

/// What a commit of it shows to the metadata.
pub(crate) fn view_of(state: &ArrayState, event_count: u64) -> CommitView<'_> {
    CommitView {
        state,
        event_count,
        wall_seconds: 0,
        is_doubtful: false,
        answers_from_log: false,
    }
}
