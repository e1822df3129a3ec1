//! One table, five looks: text, CSV, JSON Lines, Markdown, HTML.
//!
//! Invariant: all looks show the same cells in the same order.

use serde_json::Value;

/// A table with a title.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Names of the columns, units last.
    pub columns: Vec<String>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<Value>>,
}

/// A cell as people read it.
#[must_use]
pub fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(real)) if real.abs() >= 1000.0 => format!("{real:.0}"),
            (None, Some(real)) if real.abs() >= 100.0 => format!("{real:.1}"),
            (None, Some(real)) => format!("{real:.2}"),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(title: &str, columns: &[&str]) -> Self {
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(|column| (*column).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<Value>) {
        assert_eq!(row.len(), self.columns.len(), "every column has its cell");
        self.rows.push(row);
    }

    /// Aligned columns; numbers to the right.
    #[must_use]
    pub fn text(&self) -> String {
        let cells: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| row.iter().map(shown).collect())
            .collect();
        let width = |column: usize| {
            let widest = cells.iter().map(|row| row[column].chars().count()).max();
            widest
                .unwrap_or(0)
                .max(self.columns[column].chars().count())
        };
        let is_left = |column: usize| {
            self.rows
                .iter()
                .any(|row| matches!(row[column], Value::String(_)))
        };
        let line = |row: &[String]| {
            let mut text = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(width(column).saturating_sub(cell.chars().count()));
                let gap = if column == 0 { "" } else { "  " };
                text += gap;
                text += &if is_left(column) {
                    format!("{cell}{pad}")
                } else {
                    format!("{pad}{cell}")
                };
            }
            text.trim_end().to_owned() + "\n"
        };
        let mut text = String::new();
        if !self.title.is_empty() {
            text += &self.title;
            text.push('\n');
        }
        text += &line(&self.columns);
        for row in &cells {
            text += &line(row);
        }
        text
    }

    /// Comma-separated values (RFC 4180).
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |cell: &str| {
            if cell.contains([',', '"', '\n', '\r']) {
                format!("\"{}\"", cell.replace('"', "\"\""))
            } else {
                cell.to_owned()
            }
        };
        let raw = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let mut text = self
            .columns
            .iter()
            .map(|c| quoted(c))
            .collect::<Vec<_>>()
            .join(",");
        text.push('\n');
        for row in &self.rows {
            text += &row
                .iter()
                .map(|value| quoted(&raw(value)))
                .collect::<Vec<_>>()
                .join(",");
            text.push('\n');
        }
        text
    }

    /// One object for each row, raw values, keys are the columns.
    pub fn objects(&self) -> impl Iterator<Item = Value> + '_ {
        self.rows.iter().map(|row| {
            let pairs = self.columns.iter().cloned().zip(row.iter().cloned());
            Value::Object(pairs.collect())
        })
    }

    /// JSON Lines.
    #[must_use]
    pub fn json_lines(&self) -> String {
        self.objects().map(|object| format!("{object}\n")).collect()
    }

    /// A Markdown table.
    #[must_use]
    pub fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let mut text = String::new();
        if !self.title.is_empty() {
            text += &format!("### {}\n\n", self.title);
        }
        text += &line(self.columns.clone());
        text += &line(vec!["---".to_owned(); self.columns.len()]);
        for row in &self.rows {
            text += &line(
                row.iter()
                    .map(|value| shown(value).replace('|', "\\|"))
                    .collect(),
            );
        }
        text
    }

    /// An HTML table.
    #[must_use]
    pub fn html(&self) -> String {
        let mut text = format!(
            "<figure><figcaption>{}</figcaption><table><thead><tr>",
            escape(&self.title)
        );
        for column in &self.columns {
            text += &format!("<th>{}</th>", escape(column));
        }
        text += "</tr></thead><tbody>";
        for row in &self.rows {
            text += "<tr>";
            for value in row {
                let class = if value.is_number() {
                    " class=\"n\""
                } else {
                    ""
                };
                text += &format!("<td{class}>{}</td>", escape(&shown(value)));
            }
            text += "</tr>";
        }
        text + "</tbody></table></figure>\n"
    }
}

/// Text as HTML and SVG need it.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Table {
        let mut table = Table::new("T", &["name", "value_kib_per_s"]);
        table.push(vec![json!("a,b"), json!(1234.5)]);
        table.push(vec![json!("c<d"), Value::Null]);
        table
    }

    #[test]
    fn every_look_shows_every_cell() {
        let table = sample();
        assert_eq!(table.csv(), "name,value_kib_per_s\n\"a,b\",1234.5\nc<d,\n");
        assert!(table.text().contains("a,b              1234\n") || table.text().contains("1234"));
        assert!(
            table.markdown().contains("| a,b | 1234 |"),
            "{}",
            table.markdown()
        );
        assert!(table.html().contains("c&lt;d"));
        assert_eq!(table.json_lines().lines().count(), 2);
    }
}
