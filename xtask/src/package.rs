//! `cargo xtask package [deb] [static] [oci]`: what is given to people, optimised, in `target/package`.
//!
//! The scripts of `packaging/` do the work, so that a test can give them the program that it has.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ci;

/// What can be made; all of it without a word.
const KINDS: [&str; 3] = ["deb", "static", "oci"];

/// The program itself.
const BUILD: [&str; 6] = [
    "--release",
    "--locked",
    "--package",
    "plexum-cli",
    "--bin",
    "plexum",
];

/// Makes packages.
///
/// # Errors
/// A word that is no kind of package; what could not be built or packed.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    if let Some(unknown) = words.iter().find(|word| !KINDS.contains(word)) {
        let known = KINDS.join(", ");
        return Err(format!("no such package: {unknown}; there are {known}"));
    }
    let wants = |kind| words.is_empty() || words.contains(&kind);
    let target = ci::target(root);
    let out = target.join("package");
    std::fs::create_dir_all(&out).map_err(|error| format!("{}: {error}", out.display()))?;
    if wants("deb") {
        let build = ["build"].into_iter().chain(BUILD);
        ci::cargo(root, &build.collect::<Vec<_>>())?;
        let deb = out.join("plexum.deb");
        script(root, "deb.sh", &target.join("release/plexum"), &deb)?;
    }
    if wants("static") || wants("oci") {
        let built = build_static(root, &target)?;
        println!("{}", built.display());
        if wants("oci") {
            script(root, "oci.sh", &built, &out.join("oci"))?;
        }
    }
    Ok(())
}

/// One program that needs nothing of the system but its kernel. Only the last step is another one: what it is put
/// together from is the same.
fn build_static(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let build = ["rustc"].into_iter().chain(BUILD);
    let words: Vec<&str> = build
        .chain(["--", "-C", "target-feature=+crt-static"])
        .collect();
    ci::cargo(root, &words)?;
    let built = target.join("release/plexum");
    let kept = target.join("package/plexum-static");
    std::fs::copy(&built, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    Ok(kept)
}

fn script(root: &Path, name: &str, binary: &Path, out: &Path) -> Result<(), String> {
    let path = root.join("packaging").join(name);
    let status = Command::new("sh")
        .arg(&path)
        .args([binary, out])
        .status()
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if !status.success() {
        return Err(format!("{} ended with {status}", path.display()));
    }
    println!("{}", out.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_that_nobody_knows_is_refused_before_anything_is_built() {
        let refused = run(Path::new("/nowhere"), &["deb", "rpm"]).unwrap_err();
        assert_eq!(refused, "no such package: rpm; there are deb, static, oci");
    }
}
