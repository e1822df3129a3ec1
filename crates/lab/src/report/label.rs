//! Words in charts: broken into lines, never cut, so that two names that differ look different.

use super::table::escape;

/// Letters of a name that fit into a line of a chart.
pub(super) const NAME_LETTERS: usize = 60;
/// Letters of a title that fit: they are wider.
pub(super) const TITLE_LETTERS: usize = 50;
/// From line to line.
pub(super) const LINE: f64 = 14.0;
/// What a name is moved by behind its mark in a legend.
const MARK: f64 = 16.0;
/// A name in a legend has less room.
const LEGEND_LETTERS: usize = NAME_LETTERS - 3;

/// A text in lines of at most so many letters, broken at blanks where there are any. At least one line.
pub(super) fn broken(text: &str, letters_max: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        let gap = usize::from(!line.is_empty());
        if line.chars().count() + gap + rest.len() > letters_max && !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        while rest.len() > letters_max {
            let tail = rest.split_off(letters_max);
            lines.push(rest.into_iter().collect());
            rest = tail;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(rest);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

/// What a name needs beside its first line.
pub(super) fn further(name: &str) -> f64 {
    (broken(name, NAME_LETTERS).len() - 1) as f64 * LINE
}

/// A text whose first line stands at (x, y).
pub(super) fn text(x: f64, y: f64, lines: &[String]) -> String {
    let one = |(index, line): (usize, &String)| {
        let y = y + index as f64 * LINE;
        format!("<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(line))
    };
    lines.iter().enumerate().map(one).collect()
}

/// A name whose first line stands at (x, y).
pub(super) fn name(x: f64, y: f64, name: &str) -> String {
    text(x, y, &broken(name, NAME_LETTERS))
}

/// Marks of colour with their names, from `top` on; where it ends.
pub(super) fn legend(x: f64, top: f64, names: &[(&str, &str)]) -> (String, f64) {
    let (mut svg, mut y) = (String::new(), top);
    for (name, color) in names {
        let lines = broken(name, LEGEND_LETTERS);
        svg += &format!(
            "<path d=\"M{x:.1} {0:.1}h10v10h-10Z\" fill=\"{color}\"/>",
            y - 9.0
        );
        svg += &text(x + MARK, y, &lines);
        y += lines.len() as f64 * LINE + 2.0;
    }
    (svg, y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_broken_and_lose_no_letter() {
        assert_eq!(broken("short name", 60), ["short name"]);
        assert_eq!(broken("", 60), [""]);
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
        assert_eq!(broken("abcdefgh ij", 3), ["abc", "def", "gh", "ij"]);
        let long = "RAID-10 of 6 strip 64K ".repeat(9);
        let lines = broken(&long, NAME_LETTERS);
        assert!(
            lines
                .iter()
                .all(|line| line.chars().count() <= NAME_LETTERS)
        );
        assert_eq!(lines.join(" "), long.trim());
        assert!(further(&long) >= 2.0 * LINE);
    }
}
