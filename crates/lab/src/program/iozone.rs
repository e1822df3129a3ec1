//! iozone: the line of figures below its heads.

use super::unread;
use crate::error::LabError;
use crate::workload::iozone::{Run, TESTS};

/// The tests to ask for: write, read, random, backward, record rewrite, stride, fwrite, fread.
pub const CHOICE: [&str; 16] = [
    "-i", "0", "-i", "1", "-i", "2", "-i", "3", "-i", "4", "-i", "5", "-i", "6", "-i", "7",
];

/// K/s of the thirteen tests, in order, of each file with its record.
///
/// # Errors
/// `Io` when a line is not there, is another one's, or a test is missing.
pub fn parse(text: &str, runs: &[Run]) -> Result<Vec<f64>, LabError> {
    let is_head = |line: &&str| {
        let mut words = line.split_whitespace();
        words
            .next()
            .is_some_and(|word| word.eq_ignore_ascii_case("kb"))
            && words.next() == Some("reclen")
    };
    let lines = text.lines().skip_while(|line| !is_head(line)).skip(1);
    let mut lines = lines.filter(|line| !line.trim().is_empty());
    let mut rates = Vec::new();
    for (file_bytes, record_bytes) in runs {
        let line = lines.next();
        let line = line.ok_or_else(|| unread("iozone", "no line of figures"))?;
        let words = line.split_whitespace();
        let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
        let own = [(file_bytes >> 10) as f64, (record_bytes >> 10) as f64];
        match numbers {
            Some(numbers) if numbers.len() == TESTS.len() + 2 && numbers[..2] == own => {
                rates.extend(&numbers[2..]);
            }
            _ => return Err(unread("iozone", line.trim())),
        }
    }
    Ok(rates)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures that the Software-RAID HOWTO printed, in the frame of version 3.
    const PRINTED: &str = include_str!("../../../../fixtures/lab/programs/iozone.txt");

    #[test]
    fn thirteen_figures_are_read_in_the_order_of_the_columns() {
        let run = (4 << 20, 4096);
        let line = PRINTED.lines().find(|line| line.ends_with("  292633"));
        let line = line.unwrap();
        let figures = parse(PRINTED, &[run]).unwrap();
        assert_eq!(figures.len(), 13);
        assert_eq!(
            (figures[0], figures[8], figures[12]),
            (99028.0, 380_952.0, 292_633.0)
        );
        assert!(parse(PRINTED, &[run, run]).is_err(), "one line of two");
        assert!(
            parse(PRINTED, &[(run.0, run.1 * 2)]).is_err(),
            "another's line"
        );
        let twice = PRINTED.replace(line, &format!("{line}\n{line}"));
        let twice = parse(&twice, &[run, run]).unwrap();
        assert_eq!((twice.len(), twice[13]), (26, 99028.0));
        let short = PRINTED.replace("  292633", "");
        for text in ["", "kB reclen write\n", &short] {
            assert!(parse(text, &[run]).is_err(), "{text}");
        }
    }
}
