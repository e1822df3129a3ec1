//! Sets of FreeBSD as a subject: gmirror's labels and gvinum's drives, in the same world as md arrays.
//!
//! Invariant: the engine and the formats are those that the daemon uses.

mod array;
mod compare;
mod labels;
pub mod plan;
mod rules;

pub use array::Array;
pub use plan::{Format, Plan};
