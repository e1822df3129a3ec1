//! Model to and from any format; superblock commits; joining members at start.

pub mod adapter;
pub mod assemble;
mod bitmap_place;
pub mod create;
pub mod foreign;
pub mod gmirror;
pub mod gvinum;
mod journal;
pub mod md;
pub mod open;
pub mod partitions;
pub mod plain;
pub mod stripe_concat;
