//! Everything that goes to standard output, and the notes beside it.
//!
//! Invariants:
//! - with `--json` standard output carries one JSON object per line and nothing else;
//! - a reader that goes away (`plexum status | head -1`) is no error: nothing more is printed, and the command ends as
//!   it would have;
//! - output that cannot be written (a full disk) ends the command with a problem, never with a panic.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};

use plexum_daemon::problem::Problem;

use serde_json::{Map, Value};

use crate::args::Common;

/// Where a command prints.
#[derive(Clone, Debug)]
pub struct Screen {
    /// One JSON object per result instead of text.
    pub is_json: bool,
    /// Notes and progress are left out.
    pub is_quiet: bool,
    /// How often `-v` was given.
    pub verbosity: u8,
    /// Colours may be used: a terminal, neither `--no-color` nor `NO_COLOR`.
    pub has_color: bool,
    /// Standard output is a terminal.
    pub is_terminal: bool,
}

/// Colour of a word. The word itself always says the same: colour is never the only sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    /// Fine.
    Green,
    /// Needs attention.
    Yellow,
    /// Broken.
    Red,
}

impl Screen {
    /// The screen for these options.
    #[must_use]
    pub fn new(common: &Common) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            is_json: common.json,
            is_quiet: common.quiet,
            verbosity: common.verbose,
            has_color: is_terminal && !common.no_color && !no_color,
            is_terminal,
        }
    }

    /// Prints one line of text; nothing with `--json`.
    pub fn line(&self, text: impl AsRef<str>) {
        if !self.is_json {
            write_out(text.as_ref());
        }
    }

    /// Prints text without an end of line; nothing with `--json`.
    pub fn part(&self, text: impl AsRef<str>) {
        if !self.is_json {
            write_raw(text.as_ref().as_bytes());
        }
    }

    /// Prints a line that says no more than that all went well; nothing with `--json` or `-q`.
    pub fn done(&self, text: impl AsRef<str>) {
        if !self.is_json && !self.is_quiet {
            write_out(text.as_ref());
        }
    }

    /// Prints a note on standard error; nothing with `-q`.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.is_quiet {
            tell_line!("note: {}", text.as_ref());
        }
    }

    /// Prints one JSON object; only with `--json`.
    pub fn object(&self, value: &Value) {
        if self.is_json {
            write_out(&value.to_string());
        }
    }

    /// Wraps a word in a colour where colours may be used.
    #[must_use]
    pub fn paint(&self, color: Color, word: &str) -> String {
        if !self.has_color {
            return word.to_owned();
        }
        let code = match color {
            Color::Green => "32",
            Color::Yellow => "33",
            Color::Red => "31",
        };
        format!("\x1b[{code}m{word}\x1b[0m")
    }
}

/// `{"version":1,"kind":kind,"volume":volume,...fields}`. `fields` must be an object.
#[must_use]
pub fn object(kind: &str, volume: Option<&str>, fields: Value) -> Value {
    let mut map = Map::new();
    map.insert("version".into(), plexum_daemon::status::JSON_VERSION.into());
    map.insert("kind".into(), kind.into());
    if let Some(volume) = volume {
        map.insert("volume".into(), volume.into());
    }
    if let Value::Object(fields) = fields {
        map.extend(fields);
    }
    Value::Object(map)
}

/// What became of standard output, when it cannot be written any more.
static LOST: Mutex<Option<Lost>> = Mutex::new(None);

#[derive(Clone, Debug)]
struct Lost {
    kind: ErrorKind,
    problem: Problem,
}

fn lost() -> Option<Lost> {
    LOST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Whether nothing that is printed reaches anybody: who prints for ever ends.
#[must_use]
pub fn is_lost() -> bool {
    lost().is_some()
}

/// Why standard output could not be written; none when its reader went away, which is his right.
#[must_use]
pub fn failure() -> Option<Problem> {
    let lost = lost().filter(|lost| lost.kind != ErrorKind::BrokenPipe)?;
    Some(lost.problem)
}

/// Why standard output could not be written, also when its reader went away.
///
/// # Errors
/// That.
pub fn check() -> Result<(), Problem> {
    lost().map_or(Ok(()), |lost| Err(lost.problem))
}

/// Notes that standard output could not be written.
pub fn note_lost(error: &std::io::Error) {
    let mut place = LOST.lock().unwrap_or_else(PoisonError::into_inner);
    place.get_or_insert_with(|| {
        let mut problem = Problem::from_io(error, "writing to", "standard output");
        problem.member = None;
        problem.hints.clear();
        Lost {
            kind: error.kind(),
            problem,
        }
    });
}

/// Writes bytes to standard output as they are.
pub fn write_raw(bytes: &[u8]) {
    if is_lost() {
        return;
    }
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        note_lost(&error);
    }
}

fn write_out(text: &str) {
    write_raw(format!("{text}\n").as_bytes());
}

/// Writes to standard error. When that cannot be written there is nobody left to tell.
pub fn tell(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// As `eprint!`, without its panic.
macro_rules! tell_part {
    ($($words:tt)*) => { $crate::output::tell(&format!($($words)*)) };
}
pub(crate) use tell_part;

/// As `eprintln!`, without its panic.
macro_rules! tell_line {
    ($($words:tt)*) => { $crate::output::tell(&format!("{}\n", format_args!($($words)*))) };
}
pub(crate) use tell_line;

/// Lays out rows of cells in columns, two blanks apart, without blanks at the ends of lines.
#[must_use]
pub fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(cell);
                line.push_str(&" ".repeat(width - cell.chars().count() + 2));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_version_and_kind() {
        let value = object("plan", Some("v"), serde_json::json!({"size_bytes": 5}));
        assert_eq!(
            value.to_string(),
            r#"{"kind":"plan","size_bytes":5,"version":1,"volume":"v"}"#
        );
    }

    #[test]
    fn columns_line_up_and_lines_have_no_trailing_blanks() {
        let rows = [
            vec!["SLOT".to_owned(), "STATE".to_owned()],
            vec!["0".to_owned(), "up".to_owned()],
        ];
        assert_eq!(table(&rows), ["SLOT  STATE", "0     up"]);
    }
}
