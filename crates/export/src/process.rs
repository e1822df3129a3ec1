//! What a process needs that block I/O of the kernel waits for.

use rustix::mm::MlockAllFlags;

/// Whether this process may do what only the administrator may: mount, and make loop devices.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Keeps all memory of this process, present and future, from being paged out. Whether it was allowed.
///
/// A page of it on a swap file that lies on the volume could only come back through this process. For root alone:
/// under another user's limit a later allocation could fail instead.
#[must_use]
pub fn lock_memory() -> bool {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    is_root() && rustix::mm::mlockall(all).is_ok()
}

/// Leaves the terminal's session: closing the terminal must not end the process below a mounted file system.
pub fn leave_session() {
    // Fails only for a process that leads a group already: then it is out of the terminal's reach as well.
    let _ = rustix::process::setsid();
}

/// Ends a process of this user at once; nothing when there is none of that number.
pub fn kill(pid: u32) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // Gone already is as good.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
