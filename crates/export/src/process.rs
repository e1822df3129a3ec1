//! What a process needs that block I/O of the kernel waits for.

/// Whether this process may do what only the administrator may: mount, and make loop devices.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
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
