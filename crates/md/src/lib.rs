//! Linux md for the engine: members are joined at the start (pure), arrays created and opened, and their metadata kept
//! while they are served. Bytes are `crates/format/`'s.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod adapter;
pub mod assemble;
mod bitmap_place;
pub mod create;
mod error;
mod journal;
pub mod open;
pub mod reshape;

pub use adapter::MdMetadata;
