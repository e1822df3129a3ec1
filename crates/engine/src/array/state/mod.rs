//! Array state: events in, effects out, no await. Everyone else holds snapshots.

pub mod apply;
pub mod event;
pub mod member;
pub mod spare;

pub use apply::ArrayState;
pub use event::{Effect, Event, FailCause};
pub use member::{MemberId, MemberRecord, Standing};
