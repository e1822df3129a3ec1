//! The registry of volumes and their clients, over real members and sockets in one process.
#![allow(clippy::unwrap_used)] // tests

mod changes_that_never_began_say_so;
mod clients_leave_as_they_are_told;
mod ground;
mod volumes_open_and_close_at_run_time;
