//! Processes, told apart from later ones with the same number.

use std::fs;

/// When the running process `pid` began, in ticks since the system's start: with the number it names one process for ever.
/// `None` where it ended (even when nobody has asked how it ended) or never was.
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
