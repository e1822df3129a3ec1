//! The inventory's tests, one file a subject, in one program.
#![allow(clippy::unwrap_used)] // tests

mod a_gone_disk_keeps_its_identity;
#[path = "../common/mod.rs"]
mod common;
mod damaged_trees_are_only_unknown;
mod disks_are_known_by_their_stickers;
mod equal_names_are_told_apart;
mod lights_are_addressed_by_bay;
mod smartctl_documents_are_judged;
