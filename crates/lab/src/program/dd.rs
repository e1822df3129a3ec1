//! GNU and BSD dd: bytes and seconds of the last line.

use super::unread;
use crate::error::LabError;

/// Bytes and seconds of `1638400 bytes (1.6 MB, 1.6 MiB) copied, 0.000613887 s, 2.7 GB/s`, or of BSD's
/// `1638400 bytes transferred in 0.61 secs (2685901 bytes/sec)`.
///
/// # Errors
/// `Io` when there is no such line.
pub fn parse(text: &str) -> Result<(u64, f64), LabError> {
    let line = text.lines().rfind(|line| line.contains(" bytes "));
    let line = line.ok_or_else(|| unread("dd", "no line with bytes"))?;
    let bytes = line
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok());
    let after = line
        .split_once("copied, ")
        .or_else(|| line.split_once("transferred in "));
    let seconds = after.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
    bytes.zip(seconds).ok_or_else(|| unread("dd", line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_seconds_of_both_families_are_read() {
        let gnu = include_str!("../../../../fixtures/lab/programs/dd.txt");
        assert_eq!(parse(gnu).unwrap(), (1_638_400, 0.000_613_887));
        let bsd = "1+0 records in\n1+0 records out\n16384 bytes transferred in 0.25 secs (65536 bytes/sec)\n";
        assert_eq!(parse(bsd).unwrap(), (16384, 0.25));
        // Another language, another program, nothing.
        for text in ["", "1+0 records in", "x bytes copied, y s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
