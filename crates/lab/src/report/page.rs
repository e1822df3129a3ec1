//! The report of an experiment as a whole: text for a terminal, Markdown with charts as files, one HTML file with
//! everything.
//!
//! Invariants:
//! - the HTML file needs no network and no script;
//! - all looks say the same.

use serde_json::json;

use super::experiment::{Comparison, compare, describe, skipped};
use super::sweep::{Sweep, sweeps};
use super::table::{Table, escape};
use super::{inside, svg};
use crate::experiment::RunResult;
use crate::inside::Check;
use crate::sensitivity::{self, Changed, Verdict};

/// Charts and tables stand beside each other as far as the page is wide; ink and paper follow what the reader prefers.
const STYLE: &str = ":root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--line:#ccc;--shade:#f4f4f4}\
@media (prefers-color-scheme:dark){:root{--ink:#e4e4e4;--paper:#16181c;--line:#4a4e55;--shade:#24272c}}\
body{font-family:sans-serif;max-width:120em;margin:1em auto;padding:0 1em;line-height:1.4;color:var(--ink);\
background:var(--paper)}p,li{max-width:60em}\
.figures{display:flex;flex-wrap:wrap;gap:1em 2em;align-items:flex-start}\
.figures>svg{flex:1 1 24em;min-width:0;max-width:40em}.figures>figure{flex:2 1 36em;min-width:0}\
table{border-collapse:collapse;display:block;overflow-x:auto}\
td,th{border:1px solid var(--line);padding:.2em .5em;text-align:left}td.n{text-align:right}\
svg{width:100%;max-width:40em;height:auto;display:block}figure{margin:0}figcaption{font-weight:bold}\
pre{overflow-x:auto;background:var(--shade);padding:.5em}@media print{svg,table{break-inside:avoid}}";

/// A page that opens everywhere: head, `body`, end.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{0}</title><style>{STYLE}</style></head>\
         <body><h1>{0}</h1>\n{body}</body></html>\n",
        escape(title)
    )
}

/// Charts and tables that belong together.
#[must_use]
pub fn figures(all: impl Iterator<Item = String>) -> String {
    format!(
        "<div class=\"figures\">\n{}</div>\n",
        all.collect::<String>()
    )
}

/// A chart with the name of its file and what it shows.
struct Picture {
    file: String,
    title: String,
    svg: String,
}

/// Everything that a report says.
pub struct Report {
    name: String,
    file: String,
    comparisons: Vec<Comparison>,
    skipped: Vec<String>,
    sweeps: Vec<Sweep>,
    changed: Vec<Changed>,
    /// Books that disagree, and how many were compared.
    wrong: (Vec<Check>, usize),
}

impl Report {
    /// The report on `results`; `file` is the text of the experiment, `changed` what came of changed disks.
    #[must_use]
    pub fn of(name: &str, file: &str, results: &[RunResult], changed: Vec<Changed>) -> Self {
        let (wrong, count) = inside::wrong(results.iter());
        Self {
            name: name.to_owned(),
            file: file.to_owned(),
            comparisons: compare(results),
            skipped: skipped(results),
            sweeps: sweeps(results),
            changed,
            wrong: (wrong.into_iter().cloned().collect(), count),
        }
    }

    /// The figures beside each other.
    #[must_use]
    pub fn comparisons(&self) -> &[Comparison] {
        &self.comparisons
    }

    /// What changes of the disks do to the answer of a main figure.
    fn verdicts(&self, comparison: &Comparison) -> Vec<Verdict> {
        match comparison.is_main {
            true => sensitivity::verdicts(&self.changed, &comparison.work, &comparison.rows),
            false => Vec::new(),
        }
    }

    /// Each figure with its answer, and what would change it.
    fn answers(&self) -> Vec<(&str, String)> {
        let answer = |comparison: &Comparison| {
            let change = sensitivity::sentence(&self.verdicts(comparison), comparison.winner());
            match change.is_empty() {
                true => comparison.answer(),
                false => format!("{}; {change}", comparison.answer()),
            }
        };
        let all = self.comparisons.iter();
        all.map(|comparison| (comparison.title.as_str(), answer(comparison)))
            .collect()
    }

    fn books(&self) -> String {
        match (&self.wrong.0.len(), self.wrong.1) {
            (_, 0) => String::new(),
            (0, count) => format!("self-check: {count} pairs of books were compared and agree"),
            (wrong, count) => format!("self-check: {wrong} of {count} pairs of books DISAGREE"),
        }
    }

    fn tables(&self, comparison: &Comparison) -> Vec<Table> {
        let verdicts = verdicts_table(&comparison.title, &self.verdicts(comparison));
        let volumes = comparison.is_main.then(|| comparison.volumes());
        let all = [comparison.table()].into_iter().chain(volumes);
        all.chain([comparison.reasons(), verdicts])
            .filter(|table| !table.rows.is_empty())
            .collect()
    }

    /// The charts of one figure; those of the inside stand with the main figure.
    fn pictures(&self, index: usize) -> Vec<Picture> {
        let comparison = &self.comparisons[index];
        let mut all = vec![Picture {
            file: format!("chart{index}.svg"),
            title: comparison.title.clone(),
            svg: svg::bars(&comparison.title, &comparison.unit, &comparison.rows),
        }];
        if comparison.is_main {
            let charts = inside::charts(&describe(&comparison.work), &comparison.ranked());
            for (part, svg) in charts.into_iter().enumerate() {
                all.push(Picture {
                    file: format!("inside{index}-{part}.svg"),
                    title: format!("{}: inside", comparison.title),
                    svg,
                });
            }
        }
        all
    }

    fn sweep_pictures(&self) -> Vec<Picture> {
        let picture = |(index, sweep): (usize, &Sweep)| Picture {
            file: format!("sweep{index}.svg"),
            title: format!("{} over {}", sweep.title, sweep.axis),
            svg: sweep.svg(),
        };
        self.sweeps.iter().enumerate().map(picture).collect()
    }

    /// The charts as files: name and content.
    #[must_use]
    pub fn files(&self) -> Vec<(String, String)> {
        let inside = (0..self.comparisons.len()).flat_map(|index| self.pictures(index));
        let all = inside.chain(self.sweep_pictures());
        all.map(|picture| (picture.file, picture.svg)).collect()
    }

    /// For the terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = format!("{}\n\n", self.name);
        for (title, answer) in self.answers() {
            out += &format!("{title}\n  {answer}\n");
        }
        for reason in &self.skipped {
            out += &format!("skipped: {reason}\n");
        }
        for comparison in &self.comparisons {
            for (index, table) in self.tables(comparison).iter().enumerate() {
                out += &format!("\n{}", table.text());
                if index == 0 {
                    out += &comparison.plot();
                }
            }
        }
        let books = self.books();
        if !books.is_empty() {
            out += &format!("\n{books}\n");
        }
        if !self.wrong.0.is_empty() {
            out += &self.wrong_table().text();
        }
        out
    }

    fn wrong_table(&self) -> Table {
        inside::checks_table(&self.wrong.0.iter().collect::<Vec<_>>())
    }

    /// For a page of text; the charts are files beside it.
    #[must_use]
    pub fn markdown(&self) -> String {
        let mut out = format!("# {}\n\n", self.name);
        for (title, answer) in self.answers() {
            out += &format!("- **{title}**: {answer}\n");
        }
        for reason in &self.skipped {
            out += &format!("- skipped: {reason}\n");
        }
        let books = self.books();
        if !books.is_empty() {
            out += &format!("- {books}\n");
        }
        let shown = |picture: &Picture| format!("\n![{}]({})\n", picture.title, picture.file);
        for (index, comparison) in self.comparisons.iter().enumerate() {
            for table in self.tables(comparison) {
                out += &format!("\n{}", table.markdown());
            }
            out.extend(self.pictures(index).iter().map(shown));
        }
        out.extend(self.sweep_pictures().iter().map(shown));
        if !self.wrong.0.is_empty() {
            out += &format!("\n{}", self.wrong_table().markdown());
        }
        out
    }

    /// One file with everything, for a phone, a desk and a printer.
    #[must_use]
    pub fn html(&self) -> String {
        let item = |text: String| format!("<li>{text}</li>\n");
        let mut out = String::from("<ul>\n");
        for (title, answer) in self.answers() {
            out += &item(format!("<b>{}</b>: {}", escape(title), escape(&answer)));
        }
        let skipped = self
            .skipped
            .iter()
            .map(|reason| format!("skipped: {reason}"));
        let books = Some(self.books()).filter(|books| !books.is_empty());
        for line in skipped.chain(books) {
            out += &item(escape(&line));
        }
        out += "</ul>\n";
        let sweeps = self.sweep_pictures();
        if !sweeps.is_empty() {
            out += "<h2>Over what was varied</h2>\n";
            out += &figures(sweeps.into_iter().map(|picture| picture.svg));
        }
        for (index, comparison) in self.comparisons.iter().enumerate() {
            out += &format!("<h2>{}</h2>\n", escape(&comparison.title));
            let pictures = self.pictures(index).into_iter().map(|picture| picture.svg);
            let tables = self.tables(comparison).into_iter();
            out += &figures(pictures.chain(tables.map(|table| table.html())));
        }
        if !self.wrong.0.is_empty() {
            out += &self.wrong_table().html();
        }
        if self.file.is_empty() {
            return page(&self.name, &out);
        }
        out += &format!(
            "<h2>To run it again</h2><p>Save as <code>experiment.toml</code>, then <code>plexum lab run experiment.toml</code></p>\
             <pre>{}</pre>",
            escape(&self.file)
        );
        page(&self.name, &out)
    }
}

fn verdicts_table(title: &str, verdicts: &[Verdict]) -> Table {
    let mut table = Table::new(
        &format!("{title}: if the disks were different"),
        &["if", "best", "times_as_good_as_now_best", "answer"],
    );
    for verdict in verdicts {
        table.push(vec![
            json!(verdict.change),
            json!(verdict.best),
            json!((verdict.times * 100.0).round() / 100.0),
            json!(if verdict.is_other {
                "another"
            } else {
                "the same"
            }),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Experiment, read_results};

    const FILE: &str = "name = \"demo\"\nrepetitions = 3\n[setup]\nlevel = [\"0\", \"single\"]\nstrip_bytes = [\"64K\", \"128K\"]\n\
        [work]\nkind = \"random-read\"\nblock_bytes = \"4K\"\nprocesses = 8\nrequests = 60\n";

    fn report() -> Report {
        let folder = tempfile::tempdir().unwrap();
        let experiment = Experiment::parse(FILE).unwrap();
        experiment
            .run_in(folder.path(), &|| 0.0, |_, _| true)
            .unwrap();
        let results = read_results(folder.path()).unwrap();
        let pending = sensitivity::pending(folder.path(), &results).unwrap();
        assert_eq!(
            pending.len(),
            10 * 3,
            "ten changes of a disk that has a queue of one, three arrangements"
        );
        sensitivity::run_in(folder.path(), &pending[..5], |_, _| ()).unwrap();
        let pending = sensitivity::pending(folder.path(), &results).unwrap();
        assert_eq!(pending.len(), 10 * 3 - 5, "what is done is not done again");
        sensitivity::run_in(folder.path(), &pending, |_, _| ()).unwrap();
        let changed = sensitivity::read(folder.path()).unwrap();
        Report::of("demo", FILE, &results, changed)
    }

    #[test]
    fn all_looks_have_the_answers_the_charts_and_what_would_change_them() {
        let report = report();
        let (text, markdown, html) = (report.text(), report.markdown(), report.html());
        for look in [&text, &markdown, &html] {
            assert!(
                look.contains("random-read 4 KiB, 8 processes: requests"),
                "{look}"
            );
            assert!(look.contains("if the disks were different"), "{look}");
            assert!(
                look.contains("pairs of books were compared and agree"),
                "{look}"
            );
        }
        let files = report.files();
        // Two figures with their bars; inside of the main one: how long reads took, and the disks; one figure over the
        // strip.
        assert_eq!(files.len(), 2 + 2 + 1);
        for (file, svg) in &files {
            assert!(markdown.contains(&format!("({file})")), "{file}");
            assert!(html.contains(svg.as_str()), "{file}");
        }
    }

    #[test]
    fn the_html_file_needs_no_network_and_no_script() {
        let page = report().html();
        assert!(page.contains("<svg") && page.contains("To run it again"));
        for foreign in ["<script", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        let outside = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!outside.contains("http"), "no address but the name of SVG");
    }
}
