//! Processes, told apart from later ones with the same number.

use std::fs;

use rustix::mm::MlockAllFlags;

/// When the running process `pid` began, in ticks since the system's start: with the number it names one process for
/// ever. `None` where it ended (even when nobody has asked how it ended) or never was.
///
/// Source: proc(5), `/proc/pid/stat`; state is field 3, the start is field 22.
#[must_use]
pub fn start_ticks(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, so the fields are counted behind the last one.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Makes this process fit to do what the kernel waits for when memory is short, as the server of a block device does.
/// Whether all of it was allowed; without it the device works, only less surely.
///
/// - All memory, present and future, stays: a page of it on a swap file that lies on the volume could only come back
///   through this process.
/// - The calling thread, and those it starts from now on, never wait for write-out when they ask for memory
///   (`PR_SET_IO_FLUSHER`): what they would wait for may be themselves.
///
/// For root alone: under another user's limit a later allocation could fail instead.
#[must_use]
pub fn join_write_out_path() -> bool {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let is_locked = rustix::mm::mlockall(all).is_ok();
    rustix::process::configure_io_flusher_behavior(true).is_ok() && is_locked
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::start_ticks;

    #[test]
    fn a_running_process_has_one_start_and_an_ended_one_has_none() {
        let own = std::process::id();
        let start = start_ticks(own).expect("this process runs");
        assert!(start > 0);
        assert_eq!(start_ticks(own), Some(start));

        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat starts");
        assert!(start_ticks(child.id()).expect("it runs") >= start);
        drop(child.stdin.take());
        child.wait().expect("it ends");
        assert_eq!(start_ticks(child.id()), None);
    }
}
