//! Metrics: which there are (`families`), and how a page of them is written (`page`).
//!
//! Invariants:
//! - no clock, no file, no thread: whoever has the facts sets the values;
//! - a page has no family that is not in `families::ALL`, and every sample has all labels of its family;
//! - a label of a sample is never a word that changes while the thing it names stays the same, but in families that end
//!   in `_info`.
#![forbid(unsafe_code)]

pub mod families;
mod merge;
pub mod page;

pub use families::{Family, Kind};
pub use merge::merged;
pub use page::{Number, Page};
