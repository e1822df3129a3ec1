//! ublk's two kinds of device files: the control device, and a queue of a device as a session serves it.
//!
//! Invariants:
//! - control commands are calls that may wait, some of them for requests that the server answers: they are made on a
//!   thread of their own ([`aside`]), never on the one that serves;
//! - what the driver can do is asked of it before anything is made;
//! - a ring that has served a device is closed by the end of the process and not before. When it is closed earlier,
//!   two of the kernel's threads end its commands at the same time. A request that comes just then is taken by neither,
//!   and whoever waits for it, and the next server, wait for ever (Linux 6.12.118: one of 15 ends while a file system
//!   wrote).

mod control;
mod queue;
pub mod users;

pub use control::{ControlDevice, UblkError, devices};
pub use queue::DeviceQueue;

use plexum_exec::mailbox::reply;

/// Does what may wait on a thread of its own, and gives what came of it; `None` when there is no thread to be had.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (answer, answered) = reply();
    std::thread::Builder::new()
        .name("plexum-ublk".to_owned())
        .spawn(move || answer.send(work()))
        .ok()?;
    answered.await.ok()
}

/// The block device of a number.
#[must_use]
pub fn block_device(device: u32) -> std::path::PathBuf {
    format!("/dev/ublkb{device}").into()
}
