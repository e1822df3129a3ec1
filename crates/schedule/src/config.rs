//! `[scrub]` of the configuration.
//!
//! Invariant: what is understood is in bounds, and is written back as it is understood.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::window::Windows;
use crate::word::{ConfigError, as_word};

/// Ten years: longer is no schedule.
const EVERY_S_MAX: u64 = 10 * 365 * 86_400;

/// How volumes are scrubbed by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubConfig {
    /// Every byte is compared so often.
    pub every: Every,
    /// When a scrub may run; always where nothing is said.
    #[serde(default, skip_serializing_if = "Windows::is_always")]
    pub within: Windows,
    /// What a scrub reads of each member at most, in bytes per second; where nothing is said, what `plexum set` allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// A time from one scrub to the next: `30d`, `12h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Every {
    seconds: u64,
}

impl Every {
    /// In seconds; at least 1.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.seconds
    }
}

const DURATIONS: [(&str, u64); 5] = [
    ("w", 7 * 86_400),
    ("d", 86_400),
    ("h", 3_600),
    ("m", 60),
    ("s", 1),
];

impl FromStr for Every {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let parsed = DURATIONS.iter().find_map(|(unit, seconds)| {
            let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(*seconds)
        });
        match parsed {
            Some(seconds) if (1..=EVERY_S_MAX).contains(&seconds) => Ok(Self { seconds }),
            _ => Err(ConfigError {
                text: text.to_owned(),
                expected: "a time is expected, such as 30d, 4w or 12h, ten years at most",
            }),
        }
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, unit): &&(&str, u64)| self.seconds.is_multiple_of(*unit);
        let (word, unit) = DURATIONS.iter().find(fits).unwrap_or(&("s", 1));
        write!(f, "{}{word}", self.seconds / unit)
    }
}

/// Bytes per second: `100M`; powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rate {
    bytes_per_s: u64,
}

impl Rate {
    /// In bytes per second; at least 1.
    #[must_use]
    pub fn bytes_per_s(self) -> u64 {
        self.bytes_per_s
    }
}

const SIZES: [(&str, u64); 4] = [
    ("T", 1 << 40),
    ("G", 1 << 30),
    ("M", 1 << 20),
    ("K", 1 << 10),
];

impl FromStr for Rate {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let with_unit = SIZES.iter().find_map(|(unit, bytes)| {
            let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(*bytes)
        });
        match with_unit.or_else(|| text.parse().ok()) {
            Some(bytes_per_s) if bytes_per_s > 0 => Ok(Self { bytes_per_s }),
            _ => Err(ConfigError {
                text: text.to_owned(),
                expected: "bytes per second are expected, such as 100M",
            }),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |(_, unit): &&(&str, u64)| self.bytes_per_s.is_multiple_of(*unit);
        let (word, unit) = SIZES.iter().find(fits).unwrap_or(&("", 1));
        write!(f, "{}{word}", self.bytes_per_s / unit)
    }
}

as_word!(Every);
as_word!(Rate);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_rates_are_understood_and_written_back() {
        for (text, seconds, shown) in [
            ("30d", 2_592_000, "30d"),
            ("4 w", 2_419_200, "4w"),
            ("90m", 5_400, "90m"),
            ("86400s", 86_400, "1d"),
        ] {
            let every: Every = text.parse().unwrap();
            assert_eq!(
                (every.seconds(), every.to_string().as_str()),
                (seconds, shown)
            );
        }
        for (text, bytes, shown) in [
            ("100M", 100 << 20, "100M"),
            ("1024", 1024, "1K"),
            ("7", 7, "7"),
        ] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(
                (rate.bytes_per_s(), rate.to_string().as_str()),
                (bytes, shown)
            );
        }
    }

    #[test]
    fn what_is_no_time_and_no_rate_is_refused_with_what_is_expected() {
        for text in [
            "",
            "30",
            "d",
            "-1d",
            "0s",
            "4000d",
            "99999999999999999999d",
            "3.5d",
        ] {
            let error = text.parse::<Every>().unwrap_err();
            assert!(error.to_string().contains("such as 30d"), "{error}");
        }
        for text in ["", "0", "M", "1X", "99999999999T", "-5"] {
            let error = text.parse::<Rate>().unwrap_err();
            assert!(error.to_string().contains("such as 100M"), "{error}");
        }
    }

    #[test]
    fn a_configuration_is_read_and_one_with_an_unknown_word_is_refused() {
        let read = |text: &str| serde_json::from_str::<ScrubConfig>(text);
        let whole = read(r#"{"every":"30d","within":"Sat,Sun 01:00-06:00","rate":"50M"}"#).unwrap();
        assert_eq!(whole.every.seconds(), 30 * 86_400);
        assert_eq!(
            read(&serde_json::to_string(&whole).unwrap()).unwrap(),
            whole
        );
        let short = read(r#"{"every":"1w"}"#).unwrap();
        assert!(short.within.is_always() && short.rate.is_none());
        assert_eq!(serde_json::to_string(&short).unwrap(), r#"{"every":"1w"}"#);
        let error = read(r#"{"every":"1w","whithin":"01:00-06:00"}"#).unwrap_err();
        assert!(error.to_string().contains("whithin"), "{error}");
    }
}
