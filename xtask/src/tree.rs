//! The repository as the rules see it: text files, Rust sources, and what cargo says about the crates.
//!
//! Invariants:
//! - paths are relative to the root and use `/`; files come in the order of their paths;
//! - build output, recorded binary images and everything whose name begins with a dot (but `.ci`, `.cargo`) are left
//!   out.

use std::path::Path;

use serde_json::Value;

use crate::source::Source;

/// A text file that is no Rust source.
pub struct TextFile {
    /// Path from the root.
    pub path: String,
    /// The whole text.
    pub text: String,
}

/// A crate of the workspace.
#[derive(Clone, Default)]
pub struct Package {
    /// Its name, `plexum-` left out.
    pub name: String,
    /// First source files of its targets: library, programs, tests, benches, examples.
    pub roots: Vec<String>,
    /// First source files of the library and the programs alone.
    pub crate_roots: Vec<String>,
    /// Names of the crates it depends on outside tests (`plexum-` left out of our own).
    pub dependencies: Vec<String>,
}

/// All that the rules look at.
#[derive(Default)]
pub struct Tree {
    /// Text files, documents and scripts.
    pub texts: Vec<TextFile>,
    /// Rust files.
    pub sources: Vec<Source>,
    /// Crates of the workspace.
    pub packages: Vec<Package>,
    /// Paths of all files, the ones that were not read too.
    pub paths: Vec<String>,
}

/// Files longer than this are no documents.
const TEXT_BYTES_MAX: u64 = 1 << 20;

impl Tree {
    /// Reads the repository at `root`.
    ///
    /// # Errors
    /// A sentence when a folder cannot be read or cargo fails.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let mut tree = Tree {
            packages: packages(root)?,
            ..Tree::default()
        };
        tree.walk(root, "")?;
        Ok(tree)
    }

    /// A made-up repository for tests of the rules.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Tree {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.add(path, text);
        }
        tree
    }

    /// The text file at `path`.
    pub fn text(&self, path: &str) -> Option<&TextFile> {
        self.texts.iter().find(|file| file.path == path)
    }

    fn add(&mut self, path: &str, text: &str) {
        self.paths.push(path.to_owned());
        if path.ends_with(".rs") {
            self.sources.push(Source::new(path, text));
        } else {
            self.texts.push(TextFile {
                path: path.to_owned(),
                text: text.to_owned(),
            });
        }
    }

    fn walk(&mut self, root: &Path, folder: &str) -> Result<(), String> {
        let full = root.join(folder);
        let fail = |error: std::io::Error| format!("{}: {error}", full.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&full).map_err(fail)? {
            names.push(
                entry
                    .map_err(fail)?
                    .file_name()
                    .to_string_lossy()
                    .into_owned(),
            );
        }
        names.sort();
        for name in names {
            let path = if folder.is_empty() {
                name.clone()
            } else {
                format!("{folder}/{name}")
            };
            let meta = std::fs::symlink_metadata(root.join(&path)).map_err(fail)?;
            let is_hidden = name.starts_with('.') && name != ".ci" && name != ".cargo";
            if is_hidden || name == "target" {
                continue;
            }
            if meta.is_dir() {
                self.walk(root, &path)?;
            } else if meta.is_file() && meta.len() <= TEXT_BYTES_MAX {
                match std::fs::read(root.join(&path)).map(String::from_utf8) {
                    Ok(Ok(text)) => self.add(&path, &text),
                    _ => self.paths.push(path),
                }
            } else {
                self.paths.push(path);
            }
        }
        Ok(())
    }
}

/// The crates of the workspace as cargo sees them.
fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let output = crate::cargo::plain()
        .args([
            "metadata",
            "--offline",
            "--no-deps",
            "--format-version",
            "1",
        ])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "cargo metadata: {}",
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let data: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}"))?;
    let root = root.to_string_lossy();
    Ok(list(&data["packages"])
        .iter()
        .map(|package| package_of(package, &root))
        .collect())
}

/// One package of `cargo metadata`.
pub fn package_of(package: &Value, root: &str) -> Package {
    let relative = |path: &Value| {
        text(path)
            .trim_start_matches(root)
            .trim_start_matches('/')
            .to_owned()
    };
    let mut found = Package {
        name: short(text(&package["name"])),
        ..Package::default()
    };
    for target in list(&package["targets"]) {
        let kinds: Vec<&str> = list(&target["kind"]).iter().map(text).collect();
        let path = relative(&target["src_path"]);
        if kinds
            .iter()
            .any(|kind| ["lib", "bin", "rlib", "proc-macro"].contains(kind))
        {
            found.crate_roots.push(path.clone());
        }
        found.roots.push(path);
    }
    for dependency in list(&package["dependencies"]) {
        if text(&dependency["kind"]) != "dev" {
            found.dependencies.push(short(text(&dependency["name"])));
        }
    }
    found
}

fn short(name: &str) -> String {
    name.trim_start_matches("plexum-").to_owned()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
