//! What the demo shows: steps as lines, and on a terminal a live picture of the members below them.
//!
//! Invariants: without a terminal, or with `--json`, nothing is drawn over; every step is one line or one object.

use std::cell::RefCell;
use std::io::Write;

use plexum_daemon::status::{MemberState, VolumeStatus};
use serde_json::{Value, json};

use crate::output::{Color, Screen, object};
use crate::progress::percent;
use crate::units::show_bytes;

/// Something that has to be so.
pub struct Check<'a> {
    /// What.
    pub text: &'a str,
    /// Whether it is so.
    pub is_good: bool,
    /// What is wrong, when it is not.
    pub details: &'a [String],
}

/// The demo's screen.
pub struct View {
    screen: Screen,
    /// Lines drawn below the steps.
    drawn: RefCell<usize>,
    failed: RefCell<Vec<String>>,
}

impl View {
    /// A view on this screen.
    #[must_use]
    pub fn new(screen: &Screen) -> Self {
        Self {
            screen: screen.clone(),
            drawn: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    fn is_live(&self) -> bool {
        self.screen.is_terminal && !self.screen.is_json && !self.screen.is_quiet
    }

    /// Something was done.
    pub fn step(&self, text: &str) {
        self.erase();
        self.screen.done(text);
        self.screen
            .object(&object("demo_step", None, json!({"text": text})));
    }

    /// Something was checked. A failed check makes the demo fail.
    pub fn check(&self, check: &Check<'_>) {
        let Check {
            text,
            is_good,
            details,
        } = *check;
        self.erase();
        let word = if is_good {
            self.screen.paint(Color::Green, "ok")
        } else {
            self.screen.paint(Color::Red, "FAILED")
        };
        self.screen.line(format!("  {word}  {text}"));
        for detail in details.iter().filter(|_| !is_good) {
            self.screen.line(format!("        {detail}"));
        }
        self.screen.object(&object(
            "demo_check",
            None,
            json!({"text": text, "is_good": is_good, "details": details}),
        ));
        if !is_good {
            self.failed.borrow_mut().push(text.to_owned());
        }
    }

    /// Checks that did not hold.
    #[must_use]
    pub fn failed(&self) -> Vec<String> {
        self.failed.borrow().clone()
    }

    /// Draws members and throughput; nothing without a terminal.
    pub fn live(&self, status: &VolumeStatus, bytes_per_s: u64) {
        if !self.is_live() {
            return;
        }
        self.erase();
        let mut lines = vec![format!(
            "  {} {}  load {}/s",
            status.volume,
            status.verdict.word(),
            show_bytes(bytes_per_s)
        )];
        for member in &status.members {
            let path = member.path.as_deref().unwrap_or("-");
            let name = path.rsplit('/').next().unwrap_or(path);
            let slot = member.slot.map_or("-".to_owned(), |slot| slot.to_string());
            let bar = status
                .jobs
                .iter()
                .find(|_| member.state == MemberState::Rebuilding)
                .map_or(String::new(), |job| {
                    let filled = usize::try_from(percent(job) / 5).unwrap_or(0).min(20);
                    format!(
                        " [{}{}] {} %",
                        "#".repeat(filled),
                        "-".repeat(20 - filled),
                        percent(job)
                    )
                });
            let color = match member.state {
                MemberState::Active => Color::Green,
                MemberState::Faulty | MemberState::Missing | MemberState::Stale => Color::Red,
                MemberState::Rebuilding | MemberState::Spare => Color::Yellow,
            };
            let state = self.screen.paint(color, member.state.word());
            lines.push(format!("    {slot:>2}  {name:<8} {state}{bar}"));
        }
        let mut out = std::io::stdout().lock();
        for line in &lines {
            let _ = writeln!(out, "{line}");
        }
        let _ = out.flush();
        *self.drawn.borrow_mut() = lines.len();
    }

    /// Takes the live picture away.
    pub fn erase(&self) {
        let lines = self.drawn.replace(0);
        if lines > 0 {
            let mut out = std::io::stdout().lock();
            let _ = write!(out, "\x1b[{lines}A\x1b[J");
            let _ = out.flush();
        }
    }

    /// The end, good or bad.
    pub fn finish(&self, fields: Value) {
        self.erase();
        self.screen.object(&object("demo", None, fields));
    }
}
