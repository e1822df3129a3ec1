//! Processes, told apart from later ones with the same number.

use std::fs;
use std::ops::Range;

use rustix::mm::MlockAllFlags;

use crate::kernel::drop_code;

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

/// Lets go of the pages of code that this process has run so far: what it runs again comes back by itself, from the
/// file, and what was needed for a start alone stays away. It makes a process that goes on for months, all of whose
/// pages are locked, about half as large.
///
/// For who has started; nothing is lost where the kernel does not do it.
pub fn let_go_of_code() {
    let smaps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for code in code_of(&smaps) {
        let _ = drop_code(&code); // it stays
    }
}

/// Executable mappings of files, of which this process has changed no page: they are as in their files.
///
/// Source: proc(5), `/proc/pid/smaps`. A mapping begins with its line of `/proc/pid/maps`.
fn code_of(smaps: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut mapping = None;
    for line in smaps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(first), Some(second)) = (fields.next(), fields.next()) else {
            continue;
        };
        match first.strip_suffix(':') {
            None => {
                let is_of_file = fields.nth(2).is_some_and(|inode| inode != "0");
                mapping = range_of(first).filter(|_| second == "r-xp" && is_of_file);
            }
            Some("Anonymous") if second == "0" => found.extend(mapping.take()),
            Some(_) => {}
        }
    }
    found
}

fn range_of(text: &str) -> Option<Range<usize>> {
    let (start, end) = text.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::{code_of, let_go_of_code, start_ticks};

    #[test]
    fn code_that_was_let_go_of_runs_again() {
        let code_kib = || {
            let smaps = fs::read_to_string("/proc/self/smaps").expect("it is there");
            let mut is_code = false;
            let mut sum = 0;
            for line in smaps.lines() {
                match line.strip_prefix("Rss:") {
                    Some(rest) if is_code => {
                        let kib = rest.trim().trim_end_matches(" kB");
                        sum += kib.parse::<u64>().expect("a number");
                    }
                    Some(_) => {}
                    None if line.contains(" r-xp ") => is_code = true,
                    None if line.contains("-p ") => is_code = false,
                    None => {}
                }
            }
            sum
        };
        let before = code_kib();
        let_go_of_code();
        let after = code_kib();
        assert!(0 < after && after < before, "{before} {after}");
    }

    #[test]
    fn only_code_as_it_is_in_files_is_let_go_of() {
        let mapping = |perms: &str, inode: &str, anonymous: &str| {
            let first = format!("1000-3000 {perms} 00001000 fe:00 {inode} /usr/bin/plexum");
            code_of(&format!("{first}\nRss: 8 kB\nAnonymous: {anonymous} kB\n"))
        };
        let whole = mapping("r-xp", "17", "0");
        assert_eq!((whole.len(), &whole[0]), (1, &(0x1000..0x3000)));
        assert_eq!(mapping("r-xp", "17", "4"), [], "a breakpoint is in it");
        assert_eq!(mapping("r-xp", "0", "0"), [], "the kernel's own");
        for perms in ["r--p", "rw-p", "rwxp", "r-xs"] {
            assert_eq!(mapping(perms, "17", "0"), [], "{perms}");
        }
        assert_eq!(code_of("nonsense\n\nAnonymous: 0 kB\n"), []);
    }

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
