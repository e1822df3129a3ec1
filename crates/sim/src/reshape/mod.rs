//! md arrays that get other members, levels, layouts or strips while they are served: the third thing that is built of
//! the world's disks.
//!
//! Everything here is about the time between two geometries: what happens to an array that is not reshaped is the
//! business of `md`. The model of a half-done reshape (`halves`) is of its own: it reads superblocks by the format
//! crate and rows by the reference model, one after the other, and shares nothing with the engine.

mod array;
mod compare;
mod halves;
mod kernel;
mod memory;
mod plan;
mod rules;

pub use array::Array;
pub use plan::{Plan, Transition};
