//! What is built for some rooms alone and would do harm in others: a feature in manifests, a name in code.

use super::Finding;
use crate::tree::Tree;

/// Something that few may name.
struct Guarded {
    rule: &'static str,
    /// Who may name it: where it is, and who needs it.
    rooms: &'static [&'static str],
    /// Its feature, in manifests.
    feature: &'static str,
    /// Its name in code.
    name: &'static str,
    why: &'static str,
}

const GUARDED: [Guarded; 2] = [
    // Whoever else named it would write garbage for parity.
    Guarded {
        rule: "null-kernel",
        rooms: &["crates/lab/", "crates/parity/"],
        feature: "\"null-kernel\"",
        name: "NullKernel",
        why: "computes no parity: only the laboratory may",
    },
    // A feature that a program's own dependencies turn on would be in what people run.
    Guarded {
        rule: "deliberate-bugs",
        rooms: &[
            "crates/engine/",
            "crates/freebsd/",
            "crates/incidents/",
            "crates/md/",
            "crates/pool/",
            "crates/sim/",
        ],
        feature: "\"mutants\"",
        name: "Mutant",
        why: "is a bug on purpose: only the simulator's tests and examples may",
    },
];

/// Manifests that turn such a feature on, and code that names it, outside of its rooms.
pub fn guarded(tree: &Tree) -> Vec<Finding> {
    GUARDED.iter().flat_map(|of| named(of, tree)).collect()
}

fn named(of: &Guarded, tree: &Tree) -> Vec<Finding> {
    let is_outside = |path: &str| {
        path.starts_with("crates/") && !of.rooms.iter().any(|room| path.starts_with(room))
            || path == "Cargo.toml"
    };
    let message = |what: &str| format!("`{what}` {} (xtask/src/tidy/guarded.rs)", of.why);
    let mut found = Vec::new();
    let sources = tree.sources.iter();
    for source in sources.filter(|source| is_outside(&source.path)) {
        for (at, word) in source.identifiers().filter(|(_, word)| *word == of.name) {
            let line = source.line(at);
            found.push(Finding::new(of.rule, &source.path, line, message(word)));
        }
    }
    let texts = tree.texts.iter();
    let manifests = texts.filter(|text| text.path.ends_with("Cargo.toml"));
    for manifest in manifests.filter(|text| is_outside(&text.path)) {
        let lines = manifest.text.lines().enumerate();
        for (index, _) in lines.filter(|(_, line)| line.contains(of.feature)) {
            let (path, feature) = (&manifest.path, message(of.feature));
            found.push(Finding::new(of.rule, path, index + 1, feature));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let found = guarded(&Tree::of(files)).into_iter();
        found.map(|finding| (finding.path, finding.line)).collect()
    }

    fn expected(places: &[(&str, usize)]) -> Vec<(String, usize)> {
        let each = places.iter();
        each.map(|(path, line)| ((*path).to_owned(), *line))
            .collect()
    }

    #[test]
    fn only_the_laboratory_names_the_kernel_that_computes_nothing() {
        let code = "// NullKernel\nfn a() { plexum_parity::NullKernel::on_this_thread() }";
        let manifest =
            "[dependencies]\nplexum-parity = { workspace = true, features = [\"null-kernel\"] }";
        let found = places(&[
            ("crates/daemon/src/a.rs", code),
            ("crates/lab/src/world.rs", code),
            ("crates/parity/src/null.rs", code),
            ("crates/daemon/Cargo.toml", manifest),
            ("crates/lab/Cargo.toml", manifest),
            ("Cargo.toml", manifest),
        ]);
        let outside = [
            ("crates/daemon/src/a.rs", 2),
            ("crates/daemon/Cargo.toml", 2),
            ("Cargo.toml", 2),
        ];
        assert_eq!(found, expected(&outside));
    }

    #[test]
    fn only_the_simulator_turns_deliberate_bugs_on() {
        let manifest =
            "[dependencies]\nplexum-sim = { workspace = true, features = [\"mutants\"] }";
        let found = places(&[
            ("crates/sim/Cargo.toml", manifest),
            ("crates/cli/Cargo.toml", manifest),
            (
                "crates/cli/src/sim.rs",
                "use plexum_engine::mutant::Mutant;",
            ),
        ]);
        let outside = [("crates/cli/src/sim.rs", 1), ("crates/cli/Cargo.toml", 2)];
        assert_eq!(found, expected(&outside));
    }
}
