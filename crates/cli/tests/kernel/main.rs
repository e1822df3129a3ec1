//! The kernel beside Plexum, in a machine of its own: its md driver, and its nbd.
//!
//! One program for all of them, so that they cost one link step.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod and_plexum_share_a_ppl;
mod attaches_by_nbd;
mod carries_reshapes_on;
#[path = "../common/mod.rs"]
mod common;
mod goes_on_with_a_rebuild;
mod leaves_no_stripe_log_behind;
mod leaves_plexums_sets_alone;
mod nests_arrays;
mod re_adds_what_was_away;
mod reads_what_plexum_wrote;
mod refuses_a_write_back_log;
mod sees_more_of_the_members;
mod takes_over_in_every_state;
mod takes_over_levels;
mod turns_reshapes_round;
mod wrote_what_plexum_reads;
