//! Damaged input for every parser: valid images are damaged, their checksums computed anew, and the parser must neither
//! panic nor hang nor take much memory; what it accepts is written, and reading that gives the same.
//!
//! `cargo xtask fuzz [TARGET]... --seconds N` runs it; a short run is among the tests. What it finds goes into
//! `corpus/TARGET/bad-*` for ever; `corpus/TARGET/ok-*` are valid images, from the recorded ones (`--gather`).

mod alloc;
pub mod driver;
pub mod gather;
pub mod input;
pub mod mutate;
pub mod targets;
