//! Everything that goes to standard output, and the notes beside it.
//!
//! Invariants:
//! - with `--json` standard output carries one JSON object per line and nothing else;
//! - a reader that goes away (`plexum status | head -1`) ends the command quietly, not with a panic.

use std::io::{IsTerminal, Write};

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

    /// Prints a line that says no more than that all went well; nothing with `--json` or `-q`.
    pub fn done(&self, text: impl AsRef<str>) {
        if !self.is_json && !self.is_quiet {
            write_out(text.as_ref());
        }
    }

    /// Prints a note on standard error; nothing with `-q`.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.is_quiet {
            eprintln!("note: {}", text.as_ref());
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

fn write_out(text: &str) {
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0); // the reader has seen enough
    }
}

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
