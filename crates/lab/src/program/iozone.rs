//! iozone: the line of figures below its heads.

use super::unread;
use crate::error::LabError;
use crate::workload::iozone::TESTS;

/// The tests to ask for: write, read, random, backward, record rewrite, stride, fwrite, fread.
pub const CHOICE: [&str; 16] = [
    "-i", "0", "-i", "1", "-i", "2", "-i", "3", "-i", "4", "-i", "5", "-i", "6", "-i", "7",
];

/// K/s of the thirteen tests, in order.
///
/// # Errors
/// `Io` when the line is not there or a test is missing.
pub fn parse(text: &str) -> Result<Vec<f64>, LabError> {
    let is_head = |line: &&str| {
        let mut words = line.split_whitespace();
        words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("kb"))
            && words.next() == Some("reclen")
    };
    let mut lines = text.lines().skip_while(|line| !is_head(line)).skip(1);
    let line = lines
        .find(|line| !line.trim().is_empty())
        .ok_or_else(|| unread("iozone", "no line of figures"))?;
    let numbers: Option<Vec<f64>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    match numbers {
        Some(numbers) if numbers.len() == TESTS.len() + 2 => Ok(numbers[2..].to_vec()),
        _ => Err(unread("iozone", line.trim())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures that the Software-RAID HOWTO printed, in the frame of version 3.
    const PRINTED: &str = include_str!("../../../../fixtures/lab/programs/iozone.txt");

    #[test]
    fn thirteen_figures_are_read_in_the_order_of_the_columns() {
        let figures = parse(PRINTED).unwrap();
        assert_eq!(figures.len(), 13);
        assert_eq!(
            (figures[0], figures[8], figures[12]),
            (99028.0, 380_952.0, 292_633.0)
        );
        let short = PRINTED.replace("  292633", "");
        for text in ["", "kB reclen write\n", &short] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
