//! Formats beside golden images, damaged ones and made-up ones.
//!
//! One program for all of them, so that they cost one link step.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

#[path = "../common/mod.rs"]
mod common;
mod geom_golden_images_read_back;
mod md_damage_is_never_silent;
mod md_golden_images_read_back;
mod md_logs_of_golden_images;
mod md_properties;
mod vinum_golden_images_read_back;
