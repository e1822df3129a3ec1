//! The engine's tests, one file a subject, in one program: what is generic is compiled and linked once.
#![allow(clippy::unwrap_used)] // tests

mod a_damaged_log_is_never_believed;
mod a_hung_member_is_failed;
mod a_log_closes_the_write_hole;
mod a_partial_parity_log_is_written;
mod a_rebuild_goes_on_beside_its_checkpoints;
mod a_volume_at_rest_does_nothing;
mod a_write_back_log_answers_first;
mod balance_traces;
#[path = "../common/mod.rs"]
mod common;
mod drives_and_plexes_count;
mod drives_say_how_busy_they_are;
mod formats_change_in_place;
mod freebsd_defects_stay_away;
mod freebsd_members_come_back;
mod freebsd_systems_at_their_edges;
mod freebsd_writes;
mod gmirror_rules;
mod golden_freebsd;
mod golden_md;
mod golden_volumes;
mod gvinum_scripts;
mod half_way_images_go_on;
mod holes_are_told_where_they_are;
mod hot_spares_take_over;
mod jobs_suit_their_members;
mod md_arrays_are_reshaped;
mod members_come_back_after_a_reshape;
mod members_that_fail_in_one_place;
mod mirrors_are_put_together_at_their_edges;
mod new_arrays_are_laid_out_exactly;
mod plexes_grow_while_they_are_served;
mod short_rows_are_asked_for_together;
mod small_writes_become_full_rows;
mod stopping_leaves_it_clean;
mod streams_are_read_ahead;
mod the_bitmap_is_turned_on_and_off;
mod vinum_configurations_are_made_and_saved;
mod vinum_systems_are_changed_offline;
mod what_the_members_say_of_the_array;
