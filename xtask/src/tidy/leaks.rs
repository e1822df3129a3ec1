//! What must not be in the repository: places of somebody's machine, talk about how it was made, unknown hosts.

use super::Finding;
use crate::source::line_of;
use crate::tree::Tree;

const SELF: &str = "xtask/src/tidy/leaks.rs";

/// Strings, in lower case, that tell of a machine or of how a text came about.
const STRINGS: [(&str, &str); 14] = [
    ("/work/", "a path of somebody's machine"),
    ("/root/", "a path of somebody's machine"),
    ("/home/", "a path of somebody's machine"),
    ("../shared", "a path outside of the repository"),
    ("target-", "somebody's build folder"),
    ("claude", "talk about how this was made"),
    ("anthropic", "talk about how this was made"),
    ("openai", "talk about how this was made"),
    ("chatgpt", "talk about how this was made"),
    ("copilot", "talk about how this was made"),
    ("language model", "talk about how this was made"),
    ("ai-generated", "talk about how this was made"),
    ("helpers.md", "talk about how this was made"),
    ("worktree", "talk about how this was made"),
];

/// `target-` in front of these is innocent.
const INNOCENT: [&str; 6] = [
    "target-dir",
    "target-cpu",
    "target-feature",
    "target-os",
    "target-arch",
    "target-endian",
];

/// Hosts that may be named. Registries are reached through cargo and apt and never named.
const HOSTS: [&str; 11] = [
    "github.com",
    "www.apache.org",
    "rustup.rs",
    "www.kernel.org",
    "www.debian.org",
    "raid.wiki.kernel.org",
    "man7.org",
    "docs.freebsd.org",
    "semver.org",
    "www.w3.org",
    "example.com",
];

const DEFAULT_REGISTRY: &str = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";

/// Machine paths and talk.
pub fn words(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in texts(tree) {
        let lower = text.to_ascii_lowercase();
        for (string, what) in STRINGS {
            for (at, _) in lower.match_indices(string) {
                if !INNOCENT.iter().any(|word| lower[at..].starts_with(word)) {
                    let line = line_of(text, at);
                    found.push(Finding::new(
                        "leaks",
                        path,
                        line,
                        format!("`{string}`: {what}"),
                    ));
                }
            }
        }
    }
    found
}

/// Hosts that are not on the list, and package registries other than the default one.
pub fn hosts(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in texts(tree) {
        for (at, _) in text.match_indices("://") {
            let scheme = text[..at]
                .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '+')
                .next()
                .unwrap_or("");
            if !scheme.ends_with("http") && !scheme.ends_with("https") {
                continue;
            }
            let host = text[at + 3..]
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-')
                .next();
            let host = host.unwrap_or("").trim_end_matches('.');
            let is_local = host.is_empty() || host == "localhost" || host.starts_with("127.");
            if !is_local && !HOSTS.contains(&host) {
                let message = format!("host `{host}` is not in the list of {SELF}");
                found.push(Finding::new("hosts", path, line_of(text, at), message));
            }
        }
        if path.ends_with(".toml") || path.ends_with("Cargo.lock") {
            found.extend(registries(path, text));
        }
    }
    found
}

/// Lines of cargo's settings that name a registry other than the default one.
fn registries(path: &str, text: &str) -> Vec<Finding> {
    let is_foreign = |line: &str| {
        let is_source = line.starts_with("source = ") && line != DEFAULT_REGISTRY;
        is_source || line.starts_with("[registries") || line.starts_with("[source")
    };
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| is_foreign(line));
    let message = "a registry of one machine's settings";
    lines
        .map(|(index, _)| Finding::new("hosts", path, index + 1, message))
        .collect()
}

fn texts(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    let sources = tree
        .sources
        .iter()
        .map(|source| (source.path.as_str(), source.text.as_str()));
    let texts = tree
        .texts
        .iter()
        .map(|file| (file.path.as_str(), file.text.as_str()));
    sources
        .chain(texts)
        .filter(|(path, _)| *path != SELF && !path.starts_with("fixtures/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_paths_and_talk_are_found() {
        let found = words(&Tree::of(&[
            ("a.md", "fine\nsee /work/x\n"),
            ("b.rs", "// as Claude said"),
            ("c.sh", "--target-dir target-cpu"),
        ]));
        let places: Vec<_> = found
            .iter()
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        assert_eq!(places, [("b.rs", 1), ("a.md", 2)]);
    }

    #[test]
    fn unknown_hosts_and_registries_are_found() {
        let count = |path, text| hosts(&Tree::of(&[(path, text)])).len();
        assert_eq!(
            count(
                "a.md",
                "https://mirror.invalid/x http://127.0.0.1:80/ nbd://peer/"
            ),
            1
        );
        assert_eq!(count("a.md", "https://github.com/x."), 0);
        assert_eq!(
            count(
                "Cargo.lock",
                "source = \"registry+https://github.com/rust-lang/crates.io-index\""
            ),
            0
        );
        assert_eq!(count("Cargo.lock", "name = \"signal-hook-registry\""), 0);
        assert_eq!(
            count("Cargo.lock", "source = \"sparse+https://127.0.0.1/\""),
            1
        );
        assert_eq!(count(".cargo/config.toml", "[registries.mine]\n"), 1);
    }
}
