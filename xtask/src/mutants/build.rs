//! The copy of the repository with all mutants in it, and the test programs built from it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::list::Mutant;
use super::sites;
use super::weave::{Woven, weave};
use crate::ci;

/// The module that knows which mutant was chosen.
const WOVEN: &str = include_str!("woven.rs.txt");

/// How often the compiler is asked until nothing fails: each of its phases shows its errors only when those before have
/// none.
const ROUNDS_MAX: usize = 16;

/// A copy of the repository.
pub struct Copy {
    root: PathBuf,
    /// The copy itself.
    pub tree: PathBuf,
    target: PathBuf,
    package_folder: String,
    files: BTreeMap<String, Woven>,
}

/// A program that the tests of a package were built into.
#[derive(Clone, Debug)]
pub struct Program {
    /// Package and target, as `plexum-sim bugs_of_the_past`.
    pub name: String,
    /// `lib`, `test`, `example`.
    pub kind: String,
    /// Where it is.
    pub path: PathBuf,
    /// The folder of its package, where it expects to be started.
    pub folder: PathBuf,
}

impl Copy {
    /// Brings the copy below `place` up to date with the repository, but for the files with mutants: those are woven.
    ///
    /// # Errors
    /// What could not be read or written.
    pub fn new(
        root: &Path,
        place: &Path,
        package_folder: &str,
        mutants: &[Mutant],
    ) -> Result<Copy, String> {
        let library = format!("{package_folder}/src/lib.rs");
        let mut woven: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.file.as_str()).collect();
        woven.insert(&library);
        let tree = place.join("tree");
        let output = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .map_err(|error| format!("git ls-files: {error}"))?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        let files: Vec<&str> = listed
            .split('\0')
            .filter(|path| root.join(path).is_file())
            .collect();
        let known = place.join("files.txt");
        for path in std::fs::read_to_string(&known).unwrap_or_default().lines() {
            if !files.contains(&path) {
                // Gone already is as good.
                let _ = std::fs::remove_file(tree.join(path));
            }
        }
        for path in files.iter().filter(|path| !woven.contains(**path)) {
            let bytes =
                std::fs::read(root.join(path)).map_err(|error| format!("{path}: {error}"))?;
            put(&tree.join(path), &bytes)?;
        }
        put(&known, files.join("\n").as_bytes())?;
        Ok(Copy {
            root: root.to_owned(),
            tree,
            target: place.join("built"),
            package_folder: package_folder.to_owned(),
            files: BTreeMap::new(),
        })
    }

    /// Weaves the mutants in but those in `dropped`; says why when one cannot be woven.
    ///
    /// # Errors
    /// A file that is no Rust, or cannot be read or written.
    pub fn weave(
        &mut self,
        mutants: &[Mutant],
        dropped: &mut BTreeMap<u32, String>,
    ) -> Result<(), String> {
        let mut by_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in (1..).zip(mutants) {
            let of_file = by_file.entry(mutant.file.as_str()).or_default();
            if !dropped.contains_key(&number) {
                of_file.push((number, mutant));
            }
        }
        for (file, mutants) in by_file {
            let text = std::fs::read_to_string(self.root.join(file))
                .map_err(|error| format!("{file}: {error}"))?;
            let (sites, unfit) =
                sites::find(&text, &mutants).map_err(|error| format!("{file}: {error}"))?;
            for (number, reason) in unfit {
                dropped.insert(number, reason.to_owned());
            }
            let woven = weave(&text, &sites);
            put(&self.tree.join(file), woven.text.as_bytes())?;
            self.files.insert(file.to_owned(), woven);
        }
        let library = format!("{}/src/lib.rs", self.package_folder);
        let mut text = std::fs::read_to_string(self.root.join(&library))
            .map_err(|error| format!("{library}: {error}"))?;
        text.push_str("\npub mod woven;\n");
        put(&self.tree.join(&library), text.as_bytes())?;
        let module = self.tree.join(&self.package_folder).join("src/woven.rs");
        put(&module, WOVEN.as_bytes())
    }

    /// Weaves and compiles until the compiler takes it; what it does not take is dropped with the compiler's words.
    ///
    /// # Errors
    /// An error that belongs to no mutant.
    pub fn settle(
        &mut self,
        package: &str,
        mutants: &[Mutant],
        dropped: &mut BTreeMap<u32, String>,
    ) -> Result<(), String> {
        for round in 1..=ROUNDS_MAX {
            self.weave(mutants, dropped)?;
            let messages = self.cargo(&["check", "--package", package])?;
            let errors: Vec<&Value> = messages
                .iter()
                .filter(|message| message["reason"] == "compiler-message")
                .map(|message| &message["message"])
                .filter(|message| message["level"] == "error")
                .collect();
            if errors.is_empty() {
                return Ok(());
            }
            let before = dropped.len();
            let mut strange = BTreeSet::new();
            for error in &errors {
                let words = error["message"].as_str().unwrap_or_default();
                let owners = self.owners(error);
                if owners.is_empty() && !words.starts_with("aborting due to") {
                    strange.insert(error["rendered"].as_str().unwrap_or(words).to_owned());
                }
                for number in owners {
                    dropped.insert(number, words.to_owned());
                }
            }
            println!("round {round}: {} do not compile", dropped.len() - before);
            if dropped.len() == before {
                let strange: Vec<String> = strange.into_iter().collect();
                return Err(format!("errors of no mutant:\n{}", strange.join("\n")));
            }
        }
        Err(format!("still errors after {ROUNDS_MAX} rounds"))
    }

    /// The mutants that an error of the compiler is about: those of its first span that has any, the main one first.
    fn owners(&self, error: &Value) -> Vec<u32> {
        let mut spans: Vec<&Value> = error["spans"].as_array().into_iter().flatten().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        for span in spans {
            let number = |key: &str| span[key].as_u64().unwrap_or_default() as usize;
            let bytes: Range<usize> = number("byte_start")..number("byte_end");
            let file = span["file_name"].as_str().unwrap_or_default();
            let owners = self
                .files
                .get(file)
                .map_or(&[][..], |woven| woven.owners(&bytes));
            if !owners.is_empty() {
                return owners.to_vec();
            }
        }
        Vec::new()
    }

    /// Builds the tests and examples of some packages.
    ///
    /// # Errors
    /// When they do not build.
    pub fn programs(&self, packages: &[&str]) -> Result<Vec<Program>, String> {
        let mut words = vec!["test", "--no-run"];
        for package in packages {
            words.extend(["--package", package]);
        }
        let messages = self.cargo(&words)?;
        let mut programs = Vec::new();
        for message in &messages {
            if message["message"]["level"] == "error" {
                return Err(message["message"]["rendered"].to_string());
            }
            let Some(path) = message["executable"].as_str() else {
                continue;
            };
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let folder = PathBuf::from(text(&message["manifest_path"]));
            let folder = folder.parent().unwrap_or(&self.tree).to_owned();
            let of = folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            programs.push(Program {
                name: format!("{of} {}", text(&message["target"]["name"])),
                kind: text(&message["target"]["kind"][0]),
                path: PathBuf::from(path),
                folder,
            });
        }
        Ok(programs)
    }

    fn cargo(&self, words: &[&str]) -> Result<Vec<Value>, String> {
        let output = Command::new("cargo")
            .args(words)
            .args(["--offline", "--message-format", "json", "--jobs", "1"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "--cap-lints=warn")
            .stderr(std::process::Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo: {error}"))?;
        let messages = ci::messages(&output.stdout);
        let has_errors = messages
            .iter()
            .any(|message| message["message"]["level"] == "error");
        if !output.status.success() && !has_errors {
            return Err(format!("cargo {} failed", words.join(" ")));
        }
        Ok(messages)
    }
}

/// Writes a file unless it is as wanted: what is not new is not built again.
fn put(path: &Path, bytes: &[u8]) -> Result<(), String> {
    if std::fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    let fail = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(fail)?;
    }
    std::fs::write(path, bytes).map_err(fail)
}
