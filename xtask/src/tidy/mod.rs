//! The rules of the house, kept by a program: a rule that a tool checks holds, one that people check erodes.
//!
//! Each rule is a function from the tree to findings, in a file of its own with a violating sample as its test.
//! Exceptions are in `xtask/exceptions.txt`, each with its reason; one that excepts nothing is a finding itself.

mod arrows;
mod changelog;
mod documents;
mod guarded;
mod leaks;
mod modules;
mod size;
mod sleeps;
mod units;
mod unsafe_rooms;
mod words;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::tree::Tree;

/// Something against a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Name of the rule, as in the exceptions.
    pub rule: &'static str,
    /// File, from the root.
    pub path: String,
    /// Line from 1; 0 when the whole file is meant.
    pub line: usize,
    /// What was found and what to do.
    pub message: String,
}

impl Finding {
    /// A finding at `line` of `path`; line 0 is the whole file.
    pub fn new(rule: &'static str, path: &str, line: usize, message: impl Into<String>) -> Self {
        Finding {
            rule,
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}: [{}] {}",
            self.path, self.line, self.rule, self.message
        )
    }
}

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: [Rule; 19] = [
    arrows::arrows,
    arrows::no_operating_system,
    changelog::shape,
    crate::layouts::check,
    documents::features,
    documents::links,
    documents::names,
    documents::readme_length,
    documents::sources_of_comments,
    leaks::words,
    leaks::hosts,
    modules::dead_files,
    crate::ratchets::ratchets,
    guarded::guarded,
    size::sizes,
    sleeps::sleeps,
    units::units,
    unsafe_rooms::rooms,
    words::foreign_words,
];

const EXCEPTIONS: &str = "xtask/exceptions.txt";

/// Everything in the tree that is against a rule and not excepted.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let exceptions = tree.text(EXCEPTIONS).map_or("", |file| &file.text);
    without_exceptions(side_by_side(tree), exceptions)
}

/// What all rules find, in their order; a rule reads the tree by itself, so that each processor has one.
fn side_by_side(tree: &Tree) -> Vec<Finding> {
    let next = AtomicUsize::new(0);
    let work = || -> Vec<(usize, Vec<Finding>)> {
        let mut found = Vec::new();
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(rule) = RULES.get(place) else {
                return found;
            };
            found.push((place, rule(tree)));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let ended = workers.into_iter().map(|worker| worker.join());
        let found = ended.flat_map(|found| found.expect("no rule panics"));
        found.collect::<Vec<_>>()
    });
    all.sort_by_key(|(place, _)| *place);
    all.into_iter().flat_map(|(_, found)| found).collect()
}

/// Checks the repository at `root` and prints what is wrong.
///
/// # Errors
/// A sentence when something was found, or the tree cannot be read.
pub fn run(root: &Path) -> Result<(), String> {
    let tree = Tree::read(root)?;
    let found = findings(&tree);
    for finding in &found {
        println!("{finding}");
    }
    match found.len() {
        0 => {
            println!(
                "tidy: {} rules hold in {} files",
                RULES.len(),
                tree.paths.len()
            );
            Ok(())
        }
        count => Err(format!("tidy: {count} findings")),
    }
}

/// Leaves out what `exceptions` (lines of `RULE PATH REASON`) excepts; complains about lines that except nothing.
fn without_exceptions(mut all: Vec<Finding>, exceptions: &str) -> Vec<Finding> {
    for (index, line) in exceptions.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut parts = line.splitn(3, ' ');
        let (rule, path) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let before = all.len();
        all.retain(|finding| finding.rule != rule || finding.path != path);
        let message = match parts.next() {
            _ if all.len() == before => "this exception excepts nothing: remove it",
            None => "an exception needs a reason",
            Some(_) => continue,
        };
        all.push(Finding::new("exceptions", EXCEPTIONS, index + 1, message));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exception_covers_its_file_and_rule_only() {
        let all = vec![
            Finding::new("size", "a.rs", 1, "long"),
            Finding::new("size", "b.rs", 1, "long"),
            Finding::new("words", "a.rs", 1, "foreign"),
        ];
        let left = without_exceptions(all, "# why\nsize a.rs a table of all opcodes\n");
        assert_eq!(left.len(), 2);
        assert!(
            left.iter()
                .all(|finding| finding.path == "b.rs" || finding.rule == "words")
        );
    }

    #[test]
    fn an_exception_without_use_or_reason_is_a_finding() {
        assert_eq!(
            without_exceptions(Vec::new(), "size gone.rs it was long")[0].rule,
            "exceptions"
        );
        let all = vec![Finding::new("size", "a.rs", 1, "long")];
        assert!(
            without_exceptions(all, "size a.rs")[0]
                .message
                .contains("reason")
        );
    }
}
