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

mod alter;
mod fields;
mod goal;
mod ledger;
mod level;
mod open;
mod plan;
mod serve;
mod shape;
mod situation;
mod size;
mod stations;
mod take_over;
#[cfg(test)]
mod tests;

pub use alter::Alteration;
pub(crate) use fields::{end, follow, reshaped_offset_sectors};
pub use goal::{GOAL_BYTES, GOAL_SECTORS, Goal, Stand, goal_place};
pub(crate) use ledger::Moving;
pub(crate) use level::{contradicts, levelled};
pub use open::{Beginning, open_reshaping};
pub use plan::{Move, Plan, plan};
pub use serve::Reshaping;
pub use shape::{Relabel, Shape};
pub use situation::{LogNow, PlanError, Room, Situation, Wish, situation};
pub use size::{Capacity, Resize, SizeWish, data_room_sectors, plan_size};
