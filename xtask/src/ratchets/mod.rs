//! `cargo xtask ratchets`: figures of the house that may only get better, beside the committed ones. Tidy fails where
//! one is worse.
//!
//! A rule without exceptions would have to wait until the last place keeps it. A figure that may only fall keeps every
//! place that has been mended, from the first day. What each figure counts is said beside it in `FIGURES`.

mod circles;
mod items;

use std::fmt::Write as _;
use std::path::Path;

use self::items::{Found, Kind};
use crate::source::Source;
use crate::tidy::Finding;
use crate::tree::Tree;

/// The committed figures: lines of `NUMBER NAME`; `#` begins a comment.
const FILE: &str = "xtask/ratchets.txt";

/// Lines of a file that is one idea, tests apart.
const FILE_LINES_AIM: usize = 600;

/// Columns of a comment or a document.
const COLUMNS_MAX: usize = 120;

/// Rooms of the engine whose invariants are asserted where they are relied on.
const ROOMS: [&str; 7] = [
    "array", "intent", "rows", "copies", "upkeep", "volume", "migrate",
];

/// Which way a figure may move.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Falls,
    Rises,
}

/// A figure: its name, its way, and how it is counted.
struct Figure {
    name: &'static str,
    way: Way,
    count: fn(&Counted) -> u64,
}

/// What figures are counted in: every source is parsed once for its items and once for its imports.
struct Counted<'a> {
    tree: &'a Tree,
    circles: Vec<Vec<String>>,
    items: Vec<Found>,
}

impl<'a> Counted<'a> {
    fn of(tree: &'a Tree) -> Self {
        Counted {
            tree,
            circles: circles::circles(tree),
            items: items::found(tree),
        }
    }

    fn items(&self, kind: Kind) -> u64 {
        self.items.iter().filter(|found| found.kind == kind).count() as u64
    }
}

const FIGURES: [Figure; 10] = [
    // Files of one crate that import each other in a circle, the most of them in one.
    falls("files-in-the-largest-circle", |counted| {
        counted
            .circles
            .first()
            .map_or(0, |circle| circle.len() as u64)
    }),
    falls("circles-of-files", |counted| counted.circles.len() as u64),
    // Fields of the engine's `Volume` that others can reach.
    falls("open-fields-of-volume", |counted| {
        counted.items(Kind::OpenField)
    }),
    // `bool` parameters of functions that are public, or public in their crate.
    falls("bool-parameters-of-public-functions", |counted| {
        counted.items(Kind::BoolParameter)
    }),
    // Functions with two integers of one type in a row: whoever calls can exchange them.
    falls("functions-with-integers-in-a-row", |counted| {
        counted.items(Kind::IntegersInARow)
    }),
    // Types whose name does not say what is placed, wrapped or shared.
    falls("types-with-a-name-that-says-nothing", |counted| {
        counted.items(Kind::EmptyName)
    }),
    falls("files-over-600-lines", |counted| long_files(counted.tree)),
    falls("comment-lines-over-120-columns", |counted| {
        wide_comments(counted.tree)
    }),
    falls("document-lines-over-120-columns", |counted| {
        wide_documents(counted.tree)
    }),
    // Assertions in 10,000 lines of the engine's rooms, tests apart.
    Figure {
        name: "assertions-in-10000-lines-of-the-rooms",
        way: Way::Rises,
        count: |counted| assertions(counted.tree),
    },
];

const fn falls(name: &'static str, count: fn(&Counted) -> u64) -> Figure {
    Figure {
        name,
        way: Way::Falls,
        count,
    }
}

/// Figures that are worse than what is committed.
pub fn ratchets(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.text(FILE) else {
        return Vec::new();
    };
    let counted = Counted::of(tree);
    let mut found = Vec::new();
    for figure in &FIGURES {
        let now = (figure.count)(&counted);
        let message = match committed(&file.text, figure.name) {
            None => format!("{} is not there: cargo xtask ratchets --write", figure.name),
            Some(before) if figure.is_worse(before, now) => format!(
                "{} was {before} and is {now}: it may only {}; cargo xtask ratchets --places names the places",
                figure.name,
                match figure.way {
                    Way::Falls => "fall",
                    Way::Rises => "rise",
                }
            ),
            Some(_) => continue,
        };
        found.push(Finding::new("ratchets", FILE, 0, message));
    }
    found
}

/// Prints each figure beside the committed one. With `--write` the better ones are committed; `--places` names what is
/// counted.
///
/// # Errors
/// The tree cannot be read, or the figures not be written.
pub fn run(root: &Path, arguments: &[&str]) -> Result<(), String> {
    let (is_write, has_places) = match arguments {
        [] => (false, false),
        ["--write"] => (true, false),
        ["--places"] => (false, true),
        other => return Err(format!("unknown: {}; --write or --places", other.join(" "))),
    };
    let tree = Tree::read(root)?;
    let counted = Counted::of(&tree);
    let text = tree.text(FILE).map_or("", |file| &file.text);
    let mut page = "# Figures that may only get better: NUMBER NAME. `cargo xtask ratchets --write` after one did.\n".to_owned();
    for figure in &FIGURES {
        let now = (figure.count)(&counted);
        let before = committed(text, figure.name);
        let shown = before.map_or("-".to_owned(), |before| before.to_string());
        println!("{now:>6}  before {shown:>6}  {}", figure.name);
        let best = before.filter(|before| figure.is_worse(*before, now));
        writeln!(page, "{} {}", best.unwrap_or(now), figure.name).expect("text");
    }
    if has_places {
        for (number, circle) in counted.circles.iter().enumerate() {
            println!("circle {}: {}", number + 1, circle.join(" "));
        }
        for found in &counted.items {
            println!("{found}");
        }
        for place in wide_places(&tree) {
            println!("{place}");
        }
    }
    if is_write {
        std::fs::write(root.join(FILE), page).map_err(|error| format!("{FILE}: {error}"))?;
    }
    Ok(())
}

impl Figure {
    fn is_worse(&self, before: u64, now: u64) -> bool {
        match self.way {
            Way::Falls => now > before,
            Way::Rises => now < before,
        }
    }
}

fn committed(text: &str, name: &str) -> Option<u64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let mut named = lines.filter_map(|line| line.split_once(' '));
    named.find(|(_, of)| *of == name)?.0.parse().ok()
}

/// Sources of the product and of what checks it, tests apart.
fn product(tree: &Tree) -> impl Iterator<Item = &Source> {
    let is_product = |path: &str| path.starts_with("crates/") || path.starts_with("xtask/");
    let sources = tree.sources.iter();
    sources.filter(move |source| is_product(&source.path) && !source.is_test_file())
}

/// Lines of a source without its inline tests.
fn lines(source: &Source) -> usize {
    let tests = source.inline_tests();
    let in_tests = tests
        .iter()
        .map(|span| source.line(span.end) + 1 - source.line(span.start));
    source.text.lines().count().saturating_sub(in_tests.sum())
}

fn long_files(tree: &Tree) -> u64 {
    product(tree)
        .filter(|source| lines(source) > FILE_LINES_AIM)
        .count() as u64
}

fn wide_comments(tree: &Tree) -> u64 {
    tree.sources
        .iter()
        .map(|source| wide_lines(source).count() as u64)
        .sum()
}

/// Lines with a comment that are too wide; a path or an address cannot be broken.
fn wide_lines(source: &Source) -> impl Iterator<Item = usize> {
    let each = source.text.lines().zip(source.comments.lines()).enumerate();
    each.filter(|(_, (line, comment))| {
        line.chars().count() > COLUMNS_MAX && comment.split_whitespace().count() > 2
    })
    .map(|(index, _)| index + 1)
}

fn wide_places(tree: &Tree) -> Vec<String> {
    let of = |source: &Source| -> Vec<String> {
        let path = &source.path;
        wide_lines(source)
            .map(|line| format!("wide comment: {path}:{line}"))
            .collect()
    };
    tree.sources.iter().flat_map(of).collect()
}

/// Lines of documents that are too wide, tables apart.
fn wide_documents(tree: &Tree) -> u64 {
    let documents = tree.texts.iter().filter(|file| file.path.ends_with(".md"));
    let is_wide =
        |line: &&str| line.chars().count() > COLUMNS_MAX && !line.trim_start().starts_with('|');
    documents
        .map(|file| file.text.lines().filter(is_wide).count() as u64)
        .sum()
}

fn assertions(tree: &Tree) -> u64 {
    let of_room = |source: &&Source| {
        let rest = source.path.strip_prefix("crates/engine/src/");
        rest.is_some_and(|rest| {
            ROOMS
                .iter()
                .any(|room| rest.split(['/', '.']).next() == Some(*room))
        })
    };
    let (mut count, mut all) = (0, 0);
    for source in product(tree).filter(of_room) {
        let tests = source.inline_tests();
        let is_assertion = |(at, word): &(usize, &str)| {
            (word.starts_with("assert") || word.starts_with("debug_assert"))
                && source.code[at + word.len()..].starts_with('!')
                && !tests.iter().any(|span| span.contains(at))
        };
        count += source.identifiers().filter(is_assertion).count();
        all += lines(source);
    }
    (count * 10_000).checked_div(all).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(more: &str) -> Tree {
        let text = format!("{more}\nfn a(is_new: bool) {{}}\n");
        let figures: String = FIGURES
            .iter()
            .map(|figure| format!("0 {}\n", figure.name))
            .collect();
        Tree::of(&[("crates/engine/src/state/mod.rs", &text), (FILE, &figures)])
    }

    #[test]
    fn a_figure_that_is_worse_is_found_and_one_that_is_as_before_is_not() {
        assert_eq!(ratchets(&tree("")), []);
        let found = ratchets(&tree("pub fn b(is_old: bool) {}"));
        assert_eq!(found.len(), 1);
        assert!(
            found[0]
                .message
                .contains("bool-parameters-of-public-functions was 0 and is 1")
        );
    }

    #[test]
    fn a_figure_that_is_not_committed_is_found() {
        let found = ratchets(&Tree::of(&[(FILE, "0 circles-of-files\n")]));
        assert_eq!(found.len(), FIGURES.len() - 1);
    }

    #[test]
    fn assertions_are_counted_in_the_rooms_and_not_in_their_tests() {
        let text = "fn a() { assert!(true); debug_assert_eq!(1, 1); }\n#[cfg(test)]\nmod tests { fn b() { assert!(true); } }\n";
        let tree = Tree::of(&[
            ("crates/engine/src/intent/a.rs", text),
            ("crates/nbd/src/a.rs", text),
        ]);
        assert_eq!(assertions(&tree), 20_000);
    }

    #[test]
    fn wide_comments_and_documents_are_counted_and_tables_are_not() {
        let wide = "word ".repeat(30);
        let comment = format!("// {wide}\nlet a = \"{wide}\";\n");
        let document = format!("{wide}\n| {wide} |\n");
        let tree = Tree::of(&[("crates/a/src/a.rs", &comment), ("docs/a.md", &document)]);
        assert_eq!((wide_comments(&tree), wide_documents(&tree)), (1, 1));
    }
}
