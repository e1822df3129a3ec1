//! The published tables, run again in virtual time: published figure, ours, error; misses included.
//!
//! Invariants:
//! - one preset a machine, one host model a system, nothing fitted to a cell;
//! - a cell whose constants were chosen by looking at it says `fitted` and does not count for a band;
//! - a band that is missed is printed as missed.
//!
//! Source: lab.md sections 8 and 9, and the seed tables (`fixtures/lab/seed-tables`).

mod a_article;
mod b1_rebuild;
mod bands;
mod c1_vinum;
mod d_howto;
mod e_ratios;

use serde::Serialize;
use serde_json::json;

use crate::error::LabError;
use crate::report::page::{figures, page};
use crate::report::svg;
use crate::report::table::{Table, escape};

pub use bands::{Band, check};

/// One figure of a published table beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Table: `gmirror-rebuild`, `vinum`, ...
    pub table: &'static str,
    /// Group that a band counts: a column or a part of the table.
    pub group: &'static str,
    /// Row and column, as one name.
    pub name: String,
    /// As published.
    pub published: f64,
    /// As we get it.
    pub ours: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// Whether a constant of the model was chosen by looking at this cell.
    pub is_fitted: bool,
    /// Seed of the run.
    pub seed: u64,
}

impl Cell {
    /// Ours over published, less one, in percent.
    #[must_use]
    pub fn error_percent(&self) -> f64 {
        (self.ours / self.published - 1.0) * 100.0
    }

    /// Whether the error is at most so many percent of the published figure.
    #[must_use]
    pub fn is_within(&self, percent: f64) -> bool {
        self.error_percent().abs() <= percent
    }
}

/// An ordering or effect that a table shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Table.
    pub table: &'static str,
    /// The effect in words.
    pub name: &'static str,
    /// As published.
    pub published: String,
    /// As we get it.
    pub ours: String,
    /// Whether it is right.
    pub is_right: bool,
    /// Whether it was right in the prototype: must stay so.
    pub must_hold: bool,
    /// Seed of the run.
    pub seed: u64,
}

/// What a table gave.
#[derive(Clone, Debug, Default)]
pub struct Reproduction {
    /// Its figures.
    pub cells: Vec<Cell>,
    /// Its effects.
    pub effects: Vec<Effect>,
    /// Text to show below: iostat and the like.
    pub notes: Vec<String>,
}

impl Reproduction {
    fn add(&mut self, other: Reproduction) {
        self.cells.extend(other.cells);
        self.effects.extend(other.effects);
        self.notes.extend(other.notes);
    }
}

/// The tables that can be reproduced, with a line about each.
pub const TABLES: [(&str, &str); 6] = [
    (
        "gmirror-rebuild",
        "four balance algorithms while a mirror is rebuilt (iostat)",
    ),
    ("random-read", "one 16 KiB read at a time on a mirror"),
    (
        "vinum",
        "bonnie on Vinum volumes, stripe sizes 1 KiB to 4 MiB",
    ),
    (
        "howto",
        "bonnie on RAID-0, RAID-5, RAID-10, tagged queueing",
    ),
    ("article", "rawio and dd on gmirror and a single disk"),
    (
        "ratios",
        "md and a copy-on-write pool of 2020, bitmap on and off",
    ),
];

/// Runs one table with one seed.
///
/// # Errors
/// `Usage` for an unknown table.
pub fn run(table: &str, seed: u64) -> Result<Reproduction, LabError> {
    match table {
        "gmirror-rebuild" => b1_rebuild::rebuild(seed),
        "random-read" => b1_rebuild::random_reads(seed),
        "vinum" => c1_vinum::run(seed),
        "howto" => d_howto::run(seed),
        "article" => a_article::run(seed),
        "ratios" => e_ratios::run(seed),
        _ => {
            let names: Vec<&str> = TABLES.iter().map(|(name, _)| *name).collect();
            Err(LabError::Usage(format!(
                "\"{table}\" is no table; there are: {}",
                names.join(", ")
            )))
        }
    }
}

/// Runs several tables.
///
/// # Errors
/// As `run`.
pub fn run_all(tables: &[String], seed: u64) -> Result<Reproduction, LabError> {
    let mut all = Reproduction::default();
    for (name, _) in TABLES {
        if tables.is_empty() || tables.iter().any(|table| table == name) {
            all.add(run(name, seed)?);
        }
    }
    for table in tables {
        if !TABLES.iter().any(|(name, _)| name == table) {
            return run(table, seed);
        }
    }
    Ok(all)
}

/// Cells as a table.
#[must_use]
pub fn cells_table(cells: &[Cell]) -> Table {
    let mut table = Table::new(
        "published beside ours",
        &[
            "table",
            "cell",
            "published",
            "ours",
            "unit",
            "error_percent",
            "kind",
        ],
    );
    for cell in cells {
        let round = |value: f64| (value * 100.0).round() / 100.0;
        table.push(vec![
            json!(cell.table),
            json!(cell.name),
            json!(cell.published),
            json!(round(cell.ours)),
            json!(cell.unit),
            json!((cell.error_percent() * 10.0).round() / 10.0),
            json!(if cell.is_fitted {
                "fitted"
            } else {
                "predicted"
            }),
        ]);
    }
    table
}

/// Effects as a table.
#[must_use]
pub fn effects_table(effects: &[Effect]) -> Table {
    let mut table = Table::new(
        "effects",
        &["table", "effect", "published", "ours", "verdict"],
    );
    for effect in effects {
        let verdict = match (effect.is_right, effect.must_hold) {
            (true, _) => "right",
            (false, true) => "WRONG",
            (false, false) => "missed",
        };
        table.push(vec![
            json!(effect.table),
            json!(effect.name),
            json!(effect.published),
            json!(effect.ours),
            json!(verdict),
        ]);
    }
    table
}

/// All of it as one page: the cells of each table as bars of their errors and as figures, effects, what each disk did.
/// Of the runs that several seeds made, those of `seed`.
#[must_use]
pub fn html(all: &Reproduction, seed: u64) -> String {
    let mut body = String::from(
        "<p>Published figures beside ours, from simulated disks in virtual time. Cells that say <i>fitted</i> were looked at when a \
         constant of the model was chosen.</p>\n",
    );
    for (table, about) in TABLES {
        let of = |cell: &&Cell| cell.table == table && cell.seed == seed;
        let cells: Vec<Cell> = all.cells.iter().filter(of).cloned().collect();
        let of = |effect: &&Effect| effect.table == table && effect.seed == seed;
        let effects: Vec<Effect> = all.effects.iter().filter(of).cloned().collect();
        if cells.is_empty() && effects.is_empty() {
            continue;
        }
        body += &format!("<h2>{}</h2><p>{}</p>\n", escape(table), escape(about));
        let pairs: Vec<_> = cells
            .iter()
            .map(|cell| (cell.name.clone(), cell.published, cell.ours, cell.unit))
            .collect();
        let chart = svg::pairs(&format!("{table}: published (above) and ours"), &pairs);
        let tables = [cells_table(&cells), effects_table(&effects)].into_iter();
        let tables = tables.filter(|table| !table.rows.is_empty());
        body += &figures(std::iter::once(chart).chain(tables.map(|table| table.html())));
    }
    for note in &all.notes {
        body += &format!("<pre>{}</pre>\n", escape(note));
    }
    body += &format!(
        "<h2>To run it again</h2><pre>plexum lab reproduce --seed {seed} --out report.html</pre>\n"
    );
    page("The published tables", &body)
}

/// A table of the seeds: rows by column name.
pub(crate) fn seed_rows(csv: &str) -> Vec<std::collections::BTreeMap<String, String>> {
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    lines
        .map(|line| {
            let cells = line.split(',').map(str::to_owned);
            heads
                .iter()
                .map(|head| (*head).to_owned())
                .zip(cells)
                .collect()
        })
        .collect()
}

pub(crate) fn number(row: &std::collections::BTreeMap<String, String>, column: &str) -> f64 {
    row.get(column)
        .and_then(|cell| cell.parse().ok())
        .unwrap_or(f64::NAN)
}
