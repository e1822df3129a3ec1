//! The command as people use it.
//!
//! One program for all of them, so that they cost one link step.
#![allow(clippy::unwrap_used)] // a failed unwrap fails the test

mod a_new_disk_in_the_same_bay;
mod alarms;
mod alarms_by_mail;
mod alarms_by_request;
mod attach;
#[path = "../common/mod.rs"]
mod common;
mod create;
mod daemon;
mod daemon_finds;
mod daemon_has_pools;
mod daemon_in_poor_surroundings;
mod daemon_watches;
mod demo;
mod disks_are_known_by_bay_and_serial;
mod every_parity_kernel_and_runtime;
mod examine;
mod freebsd;
mod freebsd_bad_input;
mod freebsd_converts;
mod freebsd_words;
mod golden_arrays_are_served;
mod grow;
mod grow_to_stripes;
mod lab;
mod lab_builds_volumes;
mod lab_on_something_real;
mod long_reads_of_members_in_memory;
mod members_are_lost_and_mended;
mod roles;
mod serve;
mod served_pools_are_changed;
mod settings;
mod several_cores;
mod stats_say_where_the_time_goes;
mod the_api_is_as_described;
mod the_page_by_tls;
mod the_page_in_a_browser;
mod the_report_opens_in_a_browser;
mod the_tour_of_the_readme_works;
mod the_vinum_tour_works;
mod times_are_those_of_the_machine;
mod tls;
mod top;
mod trouble;
mod usage;
mod zfs_pools_are_made;
mod zfs_pools_are_read;
