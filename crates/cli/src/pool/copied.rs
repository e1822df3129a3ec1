//! How far a copy is: lines now and then, with rate and time left.
//!
//! Invariant: nothing is shown with `-q` or `--json`.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::output::Screen;
use crate::units::{show_bytes, show_seconds};

/// Time between two plain lines, and between two looks of a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Progress of a copy.
pub(super) struct Copied {
    started: Instant,
    last_line: Instant,
    is_wanted: bool,
    is_terminal: bool,
    /// Bytes of all that is copied; 0: not known.
    pub(super) total_bytes: u64,
    /// Bytes that are copied, holes included.
    pub(super) done_bytes: u64,
    /// Files that are copied.
    pub(super) files: u64,
}

impl Copied {
    pub(super) fn new(screen: &Screen) -> Self {
        Self {
            started: Instant::now(),
            last_line: Instant::now(),
            is_wanted: !screen.is_quiet && !screen.is_json,
            is_terminal: std::io::stderr().is_terminal(),
            total_bytes: 0,
            done_bytes: 0,
            files: 0,
        }
    }

    /// Whether it is worth counting what is to be copied.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Shows a line when it is time.
    pub(super) fn tell(&mut self) {
        let every = if self.is_terminal {
            LOOK_EVERY
        } else {
            LINE_EVERY
        };
        if !self.is_wanted || self.last_line.elapsed() < every {
            return;
        }
        let line = line(
            self.files,
            self.done_bytes,
            self.total_bytes,
            self.started.elapsed(),
        );
        if self.is_terminal {
            crate::output::tell_part!("\r\x1b[K{line}");
        } else {
            crate::output::tell_line!("{line}");
        }
        self.last_line = Instant::now();
    }

    /// Takes the line of a terminal away.
    pub(super) fn end(&self) {
        if self.is_wanted && self.is_terminal {
            crate::output::tell_part!("\r\x1b[K");
        }
    }
}

/// `copied 12 files, 512M of 2G  100M/s  15s left`.
fn line(files: u64, done_bytes: u64, total_bytes: u64, elapsed: Duration) -> String {
    let millis = elapsed.as_millis().max(1);
    let rate = u64::try_from(u128::from(done_bytes) * 1000 / millis).unwrap_or(u64::MAX);
    let done = show_bytes(done_bytes);
    let rate_text = show_bytes(rate);
    let left = total_bytes.saturating_sub(done_bytes);
    match left.checked_div(rate) {
        Some(left_s) if total_bytes > 0 => {
            let total = show_bytes(total_bytes);
            let left = show_seconds(left_s);
            format!("copied {files} files, {done} of {total}  {rate_text}/s  {left} left")
        }
        _ => format!("copied {files} files, {done}  {rate_text}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_rate_and_time_left_once_both_are_known() {
        let second = Duration::from_secs(2);
        assert_eq!(
            line(3, 200 << 20, 1000 << 20, second),
            "copied 3 files, 200M of 1000M  100M/s  8s left"
        );
        assert_eq!(line(0, 0, 1000 << 20, second), "copied 0 files, 0  0/s");
        assert_eq!(
            line(3, 200 << 20, 0, second),
            "copied 3 files, 200M  100M/s"
        );
    }
}
