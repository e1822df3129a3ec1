//! What the repository checks and makes about itself.
#![forbid(unsafe_code)]

fn main() {}
