//! Model to and from any format; superblock commits; joining members at start.

pub mod assemble;
