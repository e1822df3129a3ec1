//! Sizes: a file is one idea, a function fits on a screen.
//!
//! Inline tests are not counted: they belong to the file whose tests they are.

use super::Finding;
use crate::tree::Tree;

/// Lines of a file, inline tests apart.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function; the aim is 45.
const FUNCTION_LINES_MAX: usize = 70;

/// Lines of a test: tables of cases make them long.
const TEST_LINES_MAX: usize = 130;

/// Files and functions that are too long.
pub fn sizes(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &tree.sources {
        let lines_in = |start, end| source.line(end) + 1 - source.line(start);
        let tests = source.inline_tests();
        let in_tests: usize = tests
            .iter()
            .map(|span| lines_in(span.start, span.end))
            .sum();
        let lines = source.text.lines().count().saturating_sub(in_tests);
        if lines > FILE_LINES_MAX {
            let message = format!(
                "{lines} lines without inline tests, at most {FILE_LINES_MAX}: split it by idea"
            );
            found.push(Finding::new("file-size", &source.path, 0, message));
        }
        for function in source.functions() {
            let lines = lines_in(function.span.start, function.span.end);
            let start = function.span.start;
            let is_test = source.is_test_file() || tests.iter().any(|span| span.contains(&start));
            let lines_max = if is_test {
                TEST_LINES_MAX
            } else {
                FUNCTION_LINES_MAX
            };
            if lines > lines_max {
                let message = format!("`{}` has {lines} lines, at most {lines_max}", function.name);
                let line = source.line(function.span.start);
                found.push(Finding::new("function-size", &source.path, line, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found_and_its_inline_tests_are_not_counted() {
        let code = "const A: u8 = 1;\n".repeat(801);
        assert_eq!(sizes(&Tree::of(&[("a.rs", &code)])).len(), 1);
        let tests = format!("const A: u8 = 1;\n#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(sizes(&Tree::of(&[("a.rs", &tests)])).is_empty());
    }

    #[test]
    fn a_long_function_is_found_with_its_name_and_line() {
        let body = "    let a = 1;\n".repeat(69);
        let text = |more| format!("fn short() {{}}\nfn long() {{\n{body}{more}}}\n");
        let found = sizes(&Tree::of(&[("a.rs", &text(""))]));
        assert_eq!((found.len(), found[0].line), (1, 2));
        assert!(found[0].message.contains("`long` has 71 lines"));
    }
}
