//! Reshapes of md arrays: what can become what (`plan`, pure), what the superblocks say at each step (`fields`, pure),
//! and an array between two geometries, which is served and written to (`Reshaping`).
//!
//! Invariants:
//! - the first row moves when every member's superblock says that a reshape has begun (R1), and capacity changes when
//!   every one says that it has ended (R10);
//! - a member that an interrupted update left one event behind is brought to where the freshest is before anything is
//!   decided by its own fields (R9): such an update never lies between rows that have moved and a position that says
//!   so.
//!
//! Source: md-reshape.md sections 1, 3 and 8.

mod fields;
mod ledger;
mod open;
mod plan;
mod serve;
mod situation;
#[cfg(test)]
mod tests;

pub(crate) use fields::{contradicts, end, follow, levelled, reshaped_offset_sectors};
pub(crate) use ledger::Moving;
pub use open::{Beginning, open_reshaping};
pub use plan::{LogNow, Move, Plan, PlanError, Relabel, Room, Shape, Situation, Wish, plan};
pub use serve::Reshaping;
pub use situation::situation;
