//! Files of one crate that import each other in a circle: none of them can be understood without all the others.
//!
//! A file imports another where its code, tests apart, has a path `crate::...` or `super::...` that leads there.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{ItemMod, ItemUse, UseTree};

use super::items::is_test;
use super::product;
use crate::source::Source;
use crate::tree::Tree;

/// The modules of a crate: their path from its root, and their file.
type Modules = BTreeMap<Vec<String>, String>;

/// Circles of files, the largest first, each sorted.
pub fn circles(tree: &Tree) -> Vec<Vec<String>> {
    let mut crates: BTreeMap<String, Vec<&Source>> = BTreeMap::new();
    for source in product(tree) {
        if let Some((name, _)) = source.path.split_once("/src/") {
            crates.entry(name.to_owned()).or_default().push(source);
        }
    }
    let mut found: Vec<Vec<String>> = Vec::new();
    for (name, sources) in crates {
        let modules: Modules = sources
            .iter()
            .map(|source| (module_of(&name, &source.path), source.path.clone()))
            .collect();
        let imports = sources
            .iter()
            .map(|source| (source.path.clone(), imports(&name, source, &modules)))
            .collect();
        found.extend(strongly_connected(&imports));
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Path of the module that a file is, from the crate's root.
fn module_of(name: &str, path: &str) -> Vec<String> {
    let inside = path
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix("/src/"));
    let inside = inside.unwrap_or(path).trim_end_matches(".rs");
    let mut parts: Vec<String> = inside.split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod") || parts == ["lib"] || parts == ["main"] {
        parts.pop();
    }
    parts
}

struct Paths<'a> {
    here: Vec<String>,
    modules: &'a Modules,
    found: BTreeSet<String>,
}

fn imports(name: &str, source: &Source, modules: &Modules) -> BTreeSet<String> {
    let Ok(file) = syn::parse_file(&source.text) else {
        return BTreeSet::new(); // the compiler's business
    };
    let mut paths = Paths {
        here: module_of(name, &source.path),
        modules,
        found: BTreeSet::new(),
    };
    paths.visit_file(&file);
    paths.found.remove(&source.path);
    paths.found
}

impl Paths<'_> {
    /// The file that a path leads to: of its longest part that is a module.
    fn lead(&mut self, path: &[String]) {
        let Some(first) = path.first() else { return };
        let supers = path.iter().take_while(|word| *word == "super").count();
        let mut whole = match first.as_str() {
            "crate" => path[1..].to_vec(),
            "super" => {
                let kept = self.here.len().saturating_sub(supers);
                [&self.here[..kept], &path[supers..]].concat()
            }
            "self" => [&self.here[..], &path[1..]].concat(),
            _ => return,
        };
        loop {
            if let Some(file) = self.modules.get(&whole) {
                self.found.insert(file.clone());
                return;
            }
            if whole.pop().is_none() {
                return;
            }
        }
    }

    fn lead_tree(&mut self, tree: &UseTree, before: &[String]) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        match tree {
            UseTree::Path(path) => self.lead_tree(&path.tree, &with(&path.ident)),
            UseTree::Name(name) => self.lead(&with(&name.ident)),
            UseTree::Rename(name) => self.lead(&with(&name.ident)),
            UseTree::Glob(_) => self.lead(before),
            UseTree::Group(group) => {
                for item in &group.items {
                    self.lead_tree(item, before);
                }
            }
        }
    }
}

impl<'ast> Visit<'ast> for Paths<'_> {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if is_test(&item.attrs) || item.content.is_none() {
            return;
        }
        self.here.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.here.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.lead_tree(&item.tree, &[]);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|part| part.ident.to_string())
            .collect();
        self.lead(&words);
        visit::visit_path(self, path);
    }
}

/// Groups of more than one file in which each reaches each.
fn strongly_connected(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reach = |from: &String| -> BTreeSet<String> {
        let (mut seen, mut todo) = (BTreeSet::new(), vec![from]);
        while let Some(at) = todo.pop() {
            for next in imports.get(at).into_iter().flatten() {
                if seen.insert(next.clone()) {
                    todo.push(next);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        imports.keys().map(|file| (file, reach(file))).collect();
    let mut grouped = BTreeSet::new();
    let mut found = Vec::new();
    for (file, others) in &reached {
        if !others.contains(*file) || !grouped.insert((*file).clone()) {
            continue;
        }
        let back = |other: &&String| reached.get(other).is_some_and(|of| of.contains(*file));
        let circle: Vec<String> = others.iter().filter(back).cloned().collect();
        grouped.extend(circle.iter().cloned());
        found.push(circle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        circles(&Tree::of(files))
    }

    #[test]
    fn files_that_import_each_other_are_a_circle() {
        let found = of(&[
            ("crates/a/src/lib.rs", "mod b; mod c; mod d;"),
            ("crates/a/src/b.rs", "use crate::{c::Thing, d};"),
            ("crates/a/src/c.rs", "fn e() { super::b::f() }"),
            ("crates/a/src/d.rs", "pub struct G;"),
        ]);
        assert_eq!(found, [["crates/a/src/b.rs", "crates/a/src/c.rs"]]);
    }

    #[test]
    fn imports_of_tests_and_of_one_way_are_none() {
        let found = of(&[
            ("crates/a/src/lib.rs", "pub use self::b::f; mod b;"),
            (
                "crates/a/src/b.rs",
                "#[cfg(test)]\nmod tests { use crate::g; use super::*; }",
            ),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn the_largest_circle_comes_first() {
        let found = of(&[
            ("crates/a/src/b/mod.rs", "mod c; use self::c::D;"),
            ("crates/a/src/b/c.rs", "use super::E;"),
            ("crates/f/src/g.rs", "use crate::h::I;"),
            ("crates/f/src/h.rs", "use crate::j::K;"),
            ("crates/f/src/j.rs", "use crate::g::L;"),
        ]);
        let sizes: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(sizes, [3, 2]);
    }
}
