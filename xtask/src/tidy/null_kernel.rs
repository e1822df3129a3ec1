//! The kernel that computes no parity belongs to the laboratory: whoever else named it would write garbage for parity.

use super::Finding;
use crate::tree::Tree;

/// Who may name it: where it is, and where its bytes are kept by nobody.
const ROOMS: [&str; 2] = ["crates/lab/", "crates/parity/"];
/// Its feature, in manifests.
const FEATURE: &str = "null-kernel";
/// The guard that puts it in force.
const GUARD: &str = "NullKernel";

/// Manifests that turn the feature on, and code that names the guard, outside of its rooms.
pub fn null_kernel(tree: &Tree) -> Vec<Finding> {
    let is_outside = |path: &str| !ROOMS.iter().any(|room| path.starts_with(room));
    let message = |what: &str| {
        format!(
            "`{what}` computes no parity: only the laboratory may (xtask/src/tidy/null_kernel.rs)"
        )
    };
    let mut found = Vec::new();
    for source in tree
        .sources
        .iter()
        .filter(|source| is_outside(&source.path))
    {
        for (at, _) in source.identifiers().filter(|(_, word)| *word == GUARD) {
            let line = source.line(at);
            found.push(Finding::new(
                "null-kernel",
                &source.path,
                line,
                message(GUARD),
            ));
        }
    }
    let manifests = tree
        .texts
        .iter()
        .filter(|text| text.path.ends_with("Cargo.toml"));
    for manifest in manifests.filter(|text| is_outside(&text.path)) {
        for (index, line) in manifest.text.lines().enumerate() {
            if line.contains(FEATURE) {
                let message = message(FEATURE);
                found.push(Finding::new(
                    "null-kernel",
                    &manifest.path,
                    index + 1,
                    message,
                ));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_laboratory_names_the_kernel_that_computes_nothing() {
        let code = "// NullKernel\nfn a() { plexum_parity::NullKernel::on_this_thread() }";
        let manifest =
            "[dependencies]\nplexum-parity = { workspace = true, features = [\"null-kernel\"] }";
        let found = null_kernel(&Tree::of(&[
            ("crates/daemon/src/a.rs", code),
            ("crates/lab/src/world.rs", code),
            ("crates/parity/src/null.rs", code),
            ("crates/daemon/Cargo.toml", manifest),
            ("crates/lab/Cargo.toml", manifest),
            ("Cargo.toml", manifest),
        ]));
        let places: Vec<_> = found
            .iter()
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        assert_eq!(
            places,
            [
                ("crates/daemon/src/a.rs", 2),
                ("crates/daemon/Cargo.toml", 2),
                ("Cargo.toml", 2)
            ]
        );
    }
}
