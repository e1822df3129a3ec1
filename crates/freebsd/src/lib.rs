//! FreeBSD's formats for the engine: gmirror, gvinum, gstripe and gconcat are joined (pure), opened, and their metadata
//! kept while they are served; members change from one format to another in place. Bytes are `crates/format/`'s.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod gmirror;
pub mod gvinum;
pub mod in_place;
pub mod labels;
pub mod stacked;
pub mod stripe_concat;
#[cfg(test)]
mod testing;
