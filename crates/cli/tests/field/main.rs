//! Stories of users that were tried on Plexum, each with the outcome that they would expect; `docs/field.md` has the
//! table.
//!
//! One program for all of them, so that they cost one link step. A module is one kind of story.
#![allow(clippy::unwrap_used)]

mod advice;
mod attached;
mod bytes;
mod changes;
#[path = "../common/mod.rs"]
mod common;
mod dry_runs;
mod durable;
mod freebsd_sets;
mod held;
mod inputs;
mod mdforce;
mod mdread;
mod overwrites;
mod refusals;
mod restarts;
mod serving;
mod shell;
mod statuses;
mod zfs;
