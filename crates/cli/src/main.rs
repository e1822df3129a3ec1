//! The plexum command.
#![forbid(unsafe_code)]

fn main() {}
