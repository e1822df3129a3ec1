//! The simulator, and what it says of the engine.
//!
//! One program for all of them, so that they cost one link step.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod bugs_of_the_past;
#[path = "../common/mod.rs"]
mod common;
mod deliberate_bugs_are_found;
mod every_parity_kernel_keeps_the_promises;
mod freebsd_formats_keep_their_promises;
mod pools_keep_their_promises;
mod reshapes_keep_their_promises;
mod the_engine_keeps_its_promises;
mod the_oracle_complains_about_toys;
mod the_reference_reads_what_linux_md_wrote;
mod volumes_on_several_cores;
