//! Which disk a member is, and how it is: found in sysfs, asked by smartctl, told in words.
//!
//! Invariants:
//! - nothing here is done on a thread that serves: sysfs, a device and a program may hang;
//! - no disk is woken: smartctl is told to leave a sleeping one alone, and is only called for a disk that was in use
//!   just now.

mod blank;
mod facts;
mod find;
mod settings;
mod smart;
mod status;

pub use blank::first_written;
pub use facts::disk_facts;
pub use find::{FoundDisk, find_disks};
pub use settings::DiskSettings;
pub use smart::ask;
pub use status::{DiskBay, DiskHealth, DiskStatus, FormerDisk};

use plexum_exec::mailbox::{Answer, reply};

/// Does `work` on a thread of its own. There is no answer when the thread could not be started.
pub(crate) fn beside<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Answer<T> {
    let (told, answer) = reply();
    let thread = std::thread::Builder::new().name(name.to_owned());
    // One that was not started drops `told`, which tells that there will be no answer.
    let _ = thread.spawn(move || told.send(work()));
    answer
}
