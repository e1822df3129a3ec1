//! Lines of text as a picture of a terminal: `plexum demo | cargo xtask picture > docs/demo.svg`.

use std::io::{BufRead, Write};

/// Size of a character cell in pixels.
const CELL: (usize, usize) = (8, 17);

/// Space around the text in pixels.
const MARGIN: usize = 16;

/// Draws standard input on standard output.
///
/// # Errors
/// A sentence when either cannot be read or written.
pub fn run() -> Result<(), String> {
    let lines: Result<Vec<String>, _> = std::io::stdin().lock().lines().collect();
    let lines = lines.map_err(|error| format!("standard input: {error}"))?;
    std::io::stdout()
        .write_all(svg(&lines).as_bytes())
        .map_err(|error| format!("standard output: {error}"))
}

/// Draws lines of text as a terminal.
#[must_use]
pub fn svg(lines: &[String]) -> String {
    let columns = lines
        .iter()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
        .max(60);
    let (width, height) = (
        columns * CELL.0 + 2 * MARGIN,
        lines.len() * CELL.1 + 2 * MARGIN,
    );
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#16181d\"/>\n\
         <g font-family=\"monospace\" font-size=\"13\" fill=\"#d6d9e0\" xml:space=\"preserve\">\n"
    );
    for (number, line) in lines.iter().enumerate() {
        let y = MARGIN + (number + 1) * CELL.1 - 4;
        let color = if line.contains(" ok  ") {
            " fill=\"#8fd694\""
        } else if line.contains("FAILED") {
            " fill=\"#f08080\""
        } else {
            ""
        };
        text += &format!(
            "<text x=\"{MARGIN}\" y=\"{y}\"{color}>{}</text>\n",
            escaped(line)
        );
    }
    text + "</g>\n</svg>\n"
}

fn escaped(line: &str) -> String {
    line.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::svg;

    #[test]
    fn text_is_escaped_keeps_its_blanks_and_every_line_is_drawn() {
        let picture = svg(&["  a < b & c".to_owned(), "x".to_owned()]);
        assert!(picture.contains(">  a &lt; b &amp; c<")); // indentation is kept
        assert!(picture.contains("xml:space=\"preserve\""));
        assert_eq!(picture.matches("<text ").count(), 2);
    }
}
