//! Tests do not wait for time to pass: virtual time, a line of output or `--wait` says when something is done.
//!
//! A test that sleeps is slow where the machine is fast and fails where it is slow.

use super::Finding;
use crate::source::Source;
use crate::tree::Tree;

/// Calls of `sleep` of the standard library in tests.
pub fn sleeps(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let tests = source.inline_tests();
        for (at, _) in source.identifiers().filter(|(_, word)| *word == "sleep") {
            let in_tests = source.is_test_file() || tests.iter().any(|span| span.contains(&at));
            if in_tests && is_real(source, at) {
                let message = "a test sleeps: wait for an event, or use virtual time";
                found.push(Finding::new(
                    "sleeps",
                    &source.path,
                    source.line(at),
                    message,
                ));
            }
        }
    }
    found
}

/// `thread::sleep`, or a bare `sleep(` in a file that imports it from there.
fn is_real(source: &Source, at: usize) -> bool {
    let before = source.code[..at].trim_end();
    before.ends_with("thread::")
        || source.code.contains("thread::sleep;") && !before.ends_with(['.', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeping_test_is_found_and_a_sleeping_program_is_not() {
        let found = sleeps(&Tree::of(&[
            ("tests/a.rs", "fn a() { std::thread::sleep(b) }"),
            (
                "crates/a/src/b.rs",
                "use std::thread::sleep;\n#[cfg(test)]\nmod tests { fn a() { sleep(b) } }",
            ),
            ("crates/a/src/c.rs", "fn a() { std::thread::sleep(b) }"),
            (
                "crates/a/tests/d.rs",
                "async fn a() { clock.sleep(b).await }",
            ),
        ]));
        let places: Vec<_> = found
            .iter()
            .map(|finding| (finding.path.as_str(), finding.line))
            .collect();
        assert_eq!(places, [("tests/a.rs", 1), ("crates/a/src/b.rs", 3)]);
    }
}
