//! Pools that are made and written: on made-up disks whose power is cut, on files, and with OpenZFS as their judge.
//!
//! One program for all of them, so that pools on each kind of device are compiled once.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod a_crash_leaves_a_whole_root;
mod a_full_pool_loses_nothing;
mod a_served_pool_is_changed;
mod clients_read_side_by_side;
mod common;
mod flushes_survive_without_a_commit;
mod labels_of_openzfs_are_encoded_the_same;
mod members_come_and_go;
mod members_return_while_the_pool_is_open;
mod openzfs_and_plexum_take_turns;
mod openzfs_takes_new_pools;
mod pools_of_openzfs_are_continued;
mod sides_and_groups_come_and_go;
mod snapshots_keep_what_was;
mod the_checker_is_content_with_sound_pools;
mod what_is_served_reaches_a_root_in_time;
mod what_the_simulator_found;
