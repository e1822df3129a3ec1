//! Dead files: every Rust file is reached from a target by `mod`.

use std::collections::BTreeSet;

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Rust files that no crate compiles.
pub fn dead_files(tree: &Tree) -> Vec<Finding> {
    let mut alive = BTreeSet::new();
    let roots = tree.packages.iter().flat_map(|package| &package.roots);
    let mut todo: Vec<(String, bool)> = roots.map(|root| (root.clone(), true)).collect();
    while let Some((path, is_root)) = todo.pop() {
        if !alive.insert(path.clone()) {
            continue;
        }
        if let Some(source) = tree.sources.iter().find(|source| source.path == path) {
            todo.extend(
                children(source, is_root)
                    .into_iter()
                    .map(|path| (path, false)),
            );
        }
    }
    let dead = tree
        .sources
        .iter()
        .filter(|source| !alive.contains(&source.path));
    dead.map(|source| {
        Finding::new(
            "dead-file",
            &source.path,
            0,
            "no `mod` leads here: remove the file or name it",
        )
    })
    .collect()
}

/// Files that the `mod` lines of `source` may mean.
fn children(source: &Source, is_root: bool) -> Vec<String> {
    let (folder, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let home = match file {
        "mod.rs" => folder.to_owned(),
        _ if is_root => folder.to_owned(),
        _ => join(folder, file.trim_end_matches(".rs")),
    };
    let mut found = Vec::new();
    let mut inline: Vec<(usize, String)> = Vec::new();
    let mut names = source.identifiers().peekable();
    while let Some((at, word)) = names.next() {
        inline.retain(|(end, _)| *end > at);
        if word == "include" {
            found.extend(literal_after(source, at).map(|path| join(folder, &path)));
        }
        let Some(&(name_at, name)) = names.peek() else {
            break;
        };
        if word != "mod" {
            continue;
        }
        let after = name_at + name.len();
        let Some(next) = source.code[after..].find(|c: char| !c.is_whitespace()) else {
            continue;
        };
        if source.code[after + next..].starts_with('{') {
            inline.push((
                crate::source::closing(&source.code, after + next),
                name.to_owned(),
            ));
            continue;
        }
        if let Some(path) = path_attribute(source, at) {
            found.push(join(folder, &path));
            continue;
        }
        let nested = inline
            .iter()
            .fold(home.clone(), |path, (_, name)| join(&path, name));
        found.push(join(&nested, &format!("{name}.rs")));
        found.push(join(&nested, &format!("{name}/mod.rs")));
    }
    found
}

/// The file named by a `#[path]` just before the `mod` at `at`.
fn path_attribute(source: &Source, at: usize) -> Option<String> {
    let start = source.code[..at]
        .rfind([';', '}', '{'])
        .map_or(0, |n| n + 1);
    let attribute = source.text[start..at].split("#[path").nth(1)?;
    attribute.split('"').nth(1).map(str::to_owned)
}

fn literal_after(source: &Source, at: usize) -> Option<String> {
    let rest = source.text[at..].strip_prefix("include!(\"")?;
    rest.split('"').next().map(str::to_owned)
}

fn join(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Package;

    fn dead(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::of(files);
        tree.packages.push(Package {
            roots: vec!["crates/a/src/lib.rs".into()],
            ..Package::default()
        });
        dead_files(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect()
    }

    #[test]
    fn a_file_without_mod_is_dead() {
        let files = [
            ("crates/a/src/lib.rs", "mod b; // mod dead;\n"),
            ("crates/a/src/b.rs", "pub mod c;"),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/dead.rs", ""),
        ];
        assert_eq!(dead(&files), ["crates/a/src/dead.rs"]);
    }

    #[test]
    fn folders_paths_nested_modules_and_includes_are_followed() {
        let files = [
            (
                "crates/a/src/lib.rs",
                "mod b { mod c; } #[path = \"../x/y.rs\"] mod z; mod d; include!(\"e.rs\");",
            ),
            ("crates/a/src/b/c.rs", ""),
            ("crates/a/src/d/mod.rs", "mod f;"),
            ("crates/a/src/d/f.rs", ""),
            ("crates/a/src/e.rs", ""),
            ("crates/a/x/y.rs", ""),
        ];
        assert_eq!(dead(&files), Vec::<String>::new());
    }
}
