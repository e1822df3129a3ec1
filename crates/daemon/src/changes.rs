//! What commands wrote on members that nobody served, with the bytes that were there before, so that it can be undone.
//!
//! Invariants:
//! - what was there before is durable before the first byte is written;
//! - a folder that cannot be written keeps nobody from a change: it is told, and that change cannot be undone;
//! - a change that fails is put back at once; one that is cut by a crash stays known as begun.

mod store;
mod undo;
mod writes;

pub use store::{Change, ChangeNote, ChangeState, ChangedRange, Changes, Noted, Reverse, Written};
pub use undo::{Undone, undo};
pub(crate) use writes::Writes;
