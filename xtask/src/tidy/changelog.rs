//! Shape of the changelog: newest first, fixed sections in a fixed order, entries that are sentences.

use super::Finding;
use crate::tree::Tree;

/// Sections of a version in their order.
const SECTIONS: [&str; 5] = ["Safety", "Performance", "Features", "Formats", "Fixes"];
const PATH: &str = "CHANGELOG.md";

/// Lines of the changelog that are out of shape.
pub fn shape(tree: &Tree) -> Vec<Finding> {
    let Some(file) = tree.text(PATH) else {
        return vec![Finding::new("changelog", PATH, 0, "missing")];
    };
    let mut found = Vec::new();
    let mut say =
        |line: usize, message: &str| found.push(Finding::new("changelog", PATH, line, message));
    let mut section: Option<usize> = None;
    let mut has_version = false;
    let mut entry: Option<(usize, String)> = None;
    for (index, text) in file.text.lines().chain([""]).enumerate() {
        let line = index + 1;
        let goes_on = text.starts_with("  ") && !text.trim().is_empty();
        if let Some((_, sentence)) = entry.as_mut().filter(|_| goes_on) {
            *sentence = text.trim().to_owned();
            continue;
        }
        if let Some((at, sentence)) = entry.take()
            && !sentence.ends_with('.')
        {
            say(at, "an entry is a sentence and ends with a full stop");
        }
        if line == 1 && text != "# Changelog" {
            say(line, "the first line is `# Changelog`");
        } else if let Some(version) = text.strip_prefix("## ") {
            (section, has_version) = (None, true);
            if version != "Unreleased" && !version.starts_with(|c: char| c.is_ascii_digit()) {
                say(line, "a heading is `## Unreleased` or `## 1.2.3 - date`");
            }
        } else if let Some(name) = text.strip_prefix("### ") {
            let place = SECTIONS.iter().position(|section| *section == name);
            if place.is_none() || place <= section {
                say(
                    line,
                    &format!("sections are {SECTIONS:?}, in this order, each once"),
                );
            }
            section = place.or(section);
        } else if let Some(sentence) = text.strip_prefix("- ") {
            if !has_version || section.is_none() {
                say(line, "an entry belongs to a section of a version");
            }
            entry = Some((line, sentence.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        shape(&Tree::of(&[(PATH, text)]))
            .iter()
            .map(|finding| finding.line)
            .collect()
    }

    #[test]
    fn a_changelog_in_shape_passes() {
        let good = "# Changelog\n\nFor users.\n\n## Unreleased\n### Safety\n- A long\n  entry.\n### Fixes\n- B.\n## 0.1.0 - 2026-12-01\n### Features\n- C.\n";
        assert!(lines(good).is_empty());
    }

    #[test]
    fn wrong_sections_orders_and_entries_are_found() {
        assert_eq!(lines("# Changes\n"), [1]);
        assert_eq!(lines("# Changelog\n## Soon\n"), [2]);
        assert_eq!(
            lines("# Changelog\n## Unreleased\n### Fixes\n### Safety\n"),
            [4]
        );
        assert_eq!(lines("# Changelog\n## Unreleased\n### Novelties\n"), [3]);
        assert_eq!(lines("# Changelog\n## Unreleased\n- no section.\n"), [3]);
        assert_eq!(
            lines("# Changelog\n## Unreleased\n### Fixes\n- no stop\n"),
            [4]
        );
        assert_eq!(shape(&Tree::default()).len(), 1);
    }
}
