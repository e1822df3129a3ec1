//! Documents tell the truth: links lead somewhere, named files and functions exist, the README stays short.
//!
//! Checked are `README.md`, `ARCHITECTURE.md`, `CONTRIBUTING.md` and everything under `docs/`. In `ARCHITECTURE.md` and
//! `docs/guarantees.md` each name in backquotes must be in the code; when the same line names Rust files, in one of
//! these. So must each test that `docs/freebsd.md` or `docs/features.md` names.

use super::Finding;
use crate::source::words;
use crate::tree::{TextFile, Tree};

const README_LINES_MAX: usize = 150;
const ARCHITECTURE: &str = "ARCHITECTURE.md";
const GUARANTEES: &str = "docs/guarantees.md";
const FREEBSD: &str = "docs/freebsd.md";
const FEATURES: &str = "docs/features.md";
/// Things that a service of storage is asked for.
const FEATURES_COUNT: usize = 54;

/// Endings that make a name in backquotes a file's.
const ENDINGS: [&str; 7] = [".rs", ".md", ".toml", ".sh", ".svg", ".txt", ".lock"];

/// A README that is too long.
pub fn readme_length(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.text("README.md") else {
        return vec![Finding::new("readme", "README.md", 0, "missing")];
    };
    let lines = file.text.lines().count();
    if lines < README_LINES_MAX {
        return Vec::new();
    }
    let message =
        format!("{lines} lines, must stay under {README_LINES_MAX}: move something to docs/");
    vec![Finding::new("readme", "README.md", 0, message)]
}

/// Links to files that do not exist.
pub fn links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in documents(tree) {
        let mut in_block = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
            }
            if in_block || line.starts_with("    ") {
                continue;
            }
            let prose: String = line.split('`').step_by(2).collect();
            for target in prose
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split(')').next())
            {
                let target = target.split('#').next().unwrap_or("");
                if target.is_empty() || target.contains("://") {
                    continue;
                }
                let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                if !is_there(tree, &resolve(folder, target)) {
                    let message = format!("link to `{target}`, which does not exist");
                    found.push(Finding::new("links", &file.path, index + 1, message));
                }
            }
        }
    }
    found
}

/// Files, functions and types in backquotes that do not exist.
pub fn names(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in documents(tree) {
        let mut in_block = false;
        for (index, line) in file.text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            let spans: Vec<String> = if !in_block {
                line.split('`')
                    .skip(1)
                    .step_by(2)
                    .flat_map(braces)
                    .collect()
            } else if file.path == ARCHITECTURE {
                tree_names(line)
            } else {
                continue;
            };
            for message in missing(tree, file, &spans) {
                found.push(Finding::new("names", &file.path, index + 1, message));
            }
        }
    }
    found
}

/// Features that are said to be there without a test that shows it.
pub fn features(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.text(FEATURES) else {
        return vec![Finding::new("features", FEATURES, 0, "missing")];
    };
    let mut found = Vec::new();
    let mut counts = [("yes", 0), ("partly", 0), ("no", 0)];
    for (index, line) in file.text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, number, _, is_there, shown, _] = cells.as_slice() else {
            continue;
        };
        if number.parse::<usize>().is_err() {
            continue;
        }
        let of_word = counts.iter_mut().find(|(word, _)| word == is_there);
        let is_word = of_word.map(|(_, count)| *count += 1).is_some();
        let names_a_test = shown
            .split('`')
            .skip(1)
            .step_by(2)
            .any(|name| name.contains('_'));
        let message = match *is_there {
            "yes" if !names_a_test => "a yes that no test shows",
            _ if is_word => continue,
            _ => "it is yes, partly or no",
        };
        found.push(Finding::new("features", FEATURES, index + 1, message));
    }
    let [(_, yes), (_, partly), (_, no)] = counts;
    if yes + partly + no != FEATURES_COUNT {
        let message = format!("{} rows, expected {FEATURES_COUNT}", yes + partly + no);
        found.push(Finding::new("features", FEATURES, 0, message));
    }
    let sum = format!("{yes} are there, {partly} partly, {no} not");
    let text: Vec<&str> = file.text.split_whitespace().collect();
    if !text.join(" ").contains(&sum) {
        let message = format!("it does not say what its rows say: {sum}");
        found.push(Finding::new("features", FEATURES, 0, message));
    }
    found
}

/// Documents named in the comments of the code.
pub fn sources_of_comments(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let is_part = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        for word in source.comments.split(|c| !is_part(c)) {
            if word.ends_with(".md") && is_path(word) && find_path(tree, word).is_empty() {
                let at = word.as_ptr() as usize - source.comments.as_ptr() as usize;
                let message = format!("names `{word}`, which is not in the repository");
                found.push(Finding::new(
                    "names",
                    &source.path,
                    source.line(at),
                    message,
                ));
            }
        }
    }
    found
}

fn documents(tree: &Tree) -> impl Iterator<Item = &TextFile> {
    let is_document = |path: &str| {
        ["README.md", ARCHITECTURE, "CONTRIBUTING.md"].contains(&path)
            || path.starts_with("docs/") && path.ends_with(".md")
    };
    tree.texts
        .iter()
        .filter(move |file| is_document(&file.path))
}

/// What of one line's names does not exist.
fn missing(tree: &Tree, file: &TextFile, spans: &[String]) -> Vec<String> {
    let (paths, others): (Vec<&String>, Vec<&String>) =
        spans.iter().partition(|span| is_path(span));
    let gone = paths.iter().filter(|path| find_path(tree, path).is_empty());
    let mut found: Vec<String> = gone
        .map(|path| format!("`{path}` does not exist"))
        .collect();
    // Of FreeBSD's words only those with underscores are ours: the tests of the defects that are not copied.
    let is_ours = |name: &str| match file.path.as_str() {
        ARCHITECTURE | GUARANTEES => true,
        FREEBSD | FEATURES => name.contains('_'),
        _ => false,
    };
    let files = paths.iter().filter(|path| path.ends_with(".rs"));
    let homes: Vec<String> = files.flat_map(|path| find_path(tree, path)).collect();
    for name in others
        .iter()
        .filter(|name| is_ours(name) && is_name(name) && !is_crate(tree, name))
    {
        let in_homes = |path: &str| homes.is_empty() || homes.iter().any(|home| home == path);
        let mut sources = tree.sources.iter().filter(|source| in_homes(&source.path));
        let parts: Vec<&str> = name.trim_end_matches("()").split("::").collect();
        if !sources.any(|source| {
            parts
                .iter()
                .all(|part| words(&source.code).any(|(_, word)| word == *part))
        }) {
            let place = if homes.is_empty() {
                "the code".to_owned()
            } else {
                homes.join(", ")
            };
            found.push(format!("`{name}` is not in {place}"));
        }
    }
    found
}

fn is_path(span: &str) -> bool {
    let has_ending = ENDINGS.iter().any(|ending| span.ends_with(ending)) || span.ends_with('/');
    let is_plain = span
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    is_plain && !span.starts_with('/') && span != "/" && (has_ending || span.starts_with("./"))
}

fn is_name(span: &str) -> bool {
    let name = span.trim_end_matches("()");
    let is_identifier = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    !name.is_empty() && name.split("::").all(is_identifier)
}

fn is_crate(tree: &Tree, name: &str) -> bool {
    is_there(tree, &format!("crates/{name}"))
        || tree.packages.iter().any(|package| package.name == name)
}

/// Files that `path` may mean: from the root, from `crates/NAME/src/`, or the end of a path.
fn find_path(tree: &Tree, path: &str) -> Vec<String> {
    let path = path.trim_start_matches("./");
    let bare = path.trim_end_matches('/');
    let in_crate = match path.split_once('/') {
        Some((first, rest)) => format!("crates/{first}/src/{rest}"),
        None => format!("crates/{bare}"),
    };
    let exact: Vec<String> = [path.to_owned(), in_crate]
        .into_iter()
        .filter(|path| is_there(tree, path))
        .collect();
    if !exact.is_empty() {
        return exact;
    }
    let (tail, middle) = (format!("/{path}"), format!("/{bare}/"));
    let is_folder = path.ends_with('/');
    let fits = |full: &&String| {
        if is_folder {
            full.contains(&middle)
        } else {
            full.ends_with(&tail)
        }
    };
    tree.paths.iter().filter(fits).cloned().collect()
}

/// Whether a file or a folder is at `path`.
fn is_there(tree: &Tree, path: &str) -> bool {
    let bare = path.trim_end_matches('/');
    let folder = format!("{bare}/");
    bare.is_empty()
        || tree
            .paths
            .iter()
            .any(|full| full == bare || full.starts_with(&folder))
}

/// `a/{b,c}.rs` as `a/b.rs` and `a/c.rs`.
fn braces(span: &str) -> Vec<String> {
    let Some((head, rest)) = span.split_once('{') else {
        return vec![span.to_owned()];
    };
    let Some((list, tail)) = rest.split_once('}') else {
        return vec![span.to_owned()];
    };
    list.split(',')
        .flat_map(|part| braces(&format!("{head}{}{tail}", part.trim())))
        .collect()
}

/// Rust files in a line of the drawn tree.
fn tree_names(line: &str) -> Vec<String> {
    let parts = line.split_whitespace().flat_map(braces);
    parts
        .filter(|part| part.ends_with(".rs") && is_path(part))
        .collect()
}

fn resolve(folder: &str, target: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(path: &str, text: &str) -> Tree {
        Tree::of(&[
            (path, text),
            (
                "crates/engine/src/volume/write.rs",
                "impl Volume { pub fn write() {} } // fn gone",
            ),
            ("crates/engine/src/plan.rs", "fn plan_write() {}"),
            ("docs/formats.md", ""),
        ])
    }

    #[test]
    fn links_must_lead_somewhere() {
        let found = links(&tree(
            "docs/README.md",
            "[a](formats.md#x) [b](../crates/engine) [c](gone.md) [d](https://example.com)",
        ));
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains("gone.md"));
    }

    #[test]
    fn files_and_functions_in_the_walks_must_exist() {
        let messages = |text: &str| {
            names(&tree(ARCHITECTURE, text))
                .into_iter()
                .map(|finding| finding.message)
                .collect::<Vec<_>>()
        };
        for good in [
            "| `volume/write.rs` `Volume::write` | any words |",
            "| `engine/volume/write.rs` |",
            "`plan_write()` in `engine` and `volume/`",
            "`{plan,volume/write}.rs`",
            "```\ncrates/engine/ plan.rs\n```",
        ] {
            assert_eq!(messages(good), Vec::<String>::new(), "{good}");
        }
        for bad in [
            "`volume/read.rs`",
            "`volume/write.rs` `plan_write`",
            "`volume/write.rs` `gone`",
            "`Volume::erase`",
            "`{plan,gone}.rs`",
            "```\ncrates/engine/ gone.rs\n```",
        ] {
            assert_eq!(messages(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn a_feature_that_no_test_shows_or_whose_test_is_gone_is_found() {
        let rows = |last: &str| {
            let good = "| 1 | a | yes | `plan_write` |\n".repeat(53);
            let sums = "54 are there, 0 partly, 0 not; 53 are there, 0 partly, 1 not; 53 are there, 0 partly, 0 not";
            tree(
                FEATURES,
                &format!("{sums}\n\n| # | asked for | there | by |\n|---|\n{good}{last}\n"),
            )
        };
        let findings = |last: &str| features(&rows(last)).len() + names(&rows(last)).len();
        assert_eq!(findings("| 54 | a | no | `plexum add` by hand |"), 0);
        for (bad, count) in [
            ("| 54 | a | yes | by hand |", 1),
            ("| 54 | a | yes | `gone_with_it` |", 1),
            ("| 54 | a | maybe | |", 2), // and a row less
            ("", 1),
        ] {
            assert_eq!(findings(bad), count, "{bad}");
        }
    }

    #[test]
    fn documents_named_in_comments_must_exist() {
        let text =
            "// formats.md 3, docs/formats.md.\nconst A: &str = \"other.md\"; // gone.md 2\n";
        let found = sources_of_comments(&Tree::of(&[("a.rs", text), ("docs/formats.md", "")]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].line == 2 && found[0].message.contains("gone.md"));
    }

    #[test]
    fn the_sum_of_the_features_is_that_of_their_rows() {
        let rows = |no: &str| {
            let rows = (1..54).map(|number| format!("| {number} | a | yes | `a_b` |\n"));
            let rows: String = rows.collect();
            format!("53 are there, 0\npartly, 1 not.\n{rows}| 54 | a | {no} |  |\n")
        };
        let found = |no: &str| features(&tree("docs/features.md", &rows(no))).len();
        assert_eq!(found("no"), 0);
        assert_eq!(found("partly"), 1, "the sum is another");
        assert_eq!(found("yes"), 2, "and no test shows it");
        assert_eq!(found("maybe"), 3, "no word, a row less, another sum");
    }

    #[test]
    fn a_long_or_missing_readme_is_found() {
        assert_eq!(
            readme_length(&tree("README.md", &"a\n".repeat(150))).len(),
            1
        );
        assert_eq!(
            readme_length(&tree("README.md", &"a\n".repeat(149))).len(),
            0
        );
        assert_eq!(readme_length(&Tree::default()).len(), 1);
    }
}
