//! Times of the day at which a scrub may run: `01:00-06:00`, `Sat,Sun 22:00-08:00`, several with `;` between them.
//!
//! Invariants:
//! - what counts is what a clock on the wall shows: an hour that is skipped is in no window, one that comes twice is in
//!   it twice;
//! - a window that ends at or before its beginning ends on the next day, and belongs to the day on which it begins.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::UnixSeconds;
use crate::word::{ConfigError, as_word};

const DAY_M: u16 = 24 * 60;
/// Windows in one configuration.
const WINDOWS_MAX: usize = 32;
/// A window opens within so many days, or never: each has a day of the week, and one night may be without its hour.
const AHEAD_DAYS: usize = 16;

const DAYS: [(&str, Weekday); 7] = [
    ("Mon", Weekday::Monday),
    ("Tue", Weekday::Tuesday),
    ("Wed", Weekday::Wednesday),
    ("Thu", Weekday::Thursday),
    ("Fri", Weekday::Friday),
    ("Sat", Weekday::Saturday),
    ("Sun", Weekday::Sunday),
];

/// One window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    /// Days on which it begins, by their place in `DAYS`.
    days: [bool; 7],
    /// Minute of the day at which it begins.
    from_m: u16,
    /// Minute at which it ends: of the next day where it is not behind `from_m`. At most `DAY_M`.
    until_m: u16,
}

impl Window {
    fn has_day(&self, day: Weekday) -> bool {
        self.days[usize::try_from(day.to_monday_zero_offset()).unwrap_or(0)]
    }

    fn is_over_midnight(&self) -> bool {
        self.until_m <= self.from_m
    }

    /// Whether a clock that shows this minute of this day is inside.
    fn has(&self, date: Date, minute: u16) -> bool {
        let began_today = self.has_day(date.weekday()) && minute >= self.from_m;
        if !self.is_over_midnight() {
            return began_today && minute < self.until_m;
        }
        let yesterday = date.yesterday().map(Date::weekday);
        let began_yesterday = yesterday.is_ok_and(|day| self.has_day(day));
        began_today || began_yesterday && minute < self.until_m
    }
}

/// When a scrub may run. Empty: always.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Windows(Vec<Window>);

as_word!(Windows);

impl Windows {
    /// Whether it may run at any time.
    #[must_use]
    pub fn is_always(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it may run now.
    #[must_use]
    pub fn has(&self, now: UnixSeconds, zone: &TimeZone) -> bool {
        self.is_always() || timestamp(now).is_some_and(|now| self.has_moment(now, zone))
    }

    fn has_moment(&self, now: Timestamp, zone: &TimeZone) -> bool {
        let clock = zone.to_datetime(now);
        let minute =
            u16::from(clock.hour().unsigned_abs()) * 60 + u16::from(clock.minute().unsigned_abs());
        self.0.iter().any(|window| window.has(clock.date(), minute))
    }

    /// The next moment at which it may run: now, where it may. None for a window that never opens, and for a time that
    /// no calendar has.
    #[must_use]
    pub fn next(&self, now: UnixSeconds, zone: &TimeZone) -> Option<UnixSeconds> {
        if self.has(now, zone) {
            return Some(now);
        }
        let start = timestamp(now)?;
        let end = timestamp(now.checked_add(AHEAD_DAYS as u64 * 86_400)?)?;
        // A window opens where the clock shows its beginning, or jumps into it.
        let shown = self.next_shown(start, zone);
        let end = shown.unwrap_or(end);
        let jumps = zone.following(start).map(|jump| jump.timestamp());
        let mut jumps = jumps.take_while(|jump| *jump < end);
        let jump = jumps.find(|jump| self.has_moment(*jump, zone));
        u64::try_from(jump.or(shown)?.as_second()).ok()
    }

    /// The next moment at which the clock shows the beginning of a window.
    fn next_shown(&self, start: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut date = zone.to_datetime(start).date();
        for _ in 0..AHEAD_DAYS {
            let mut opens: Option<Timestamp> = None;
            for window in &self.0 {
                let (hour, minute) = (window.from_m / 60, window.from_m % 60);
                let shown = date.at(i8::try_from(hour).ok()?, i8::try_from(minute).ok()?, 0, 0);
                let moment = zone.to_ambiguous_timestamp(shown);
                let both = [moment.earlier(), moment.later()];
                let later = both.into_iter().flatten().filter(|moment| *moment > start);
                let open = later.filter(|moment| self.has_moment(*moment, zone));
                opens = opens.into_iter().chain(open).min();
            }
            if opens.is_some() {
                return opens;
            }
            date = date.tomorrow().ok()?;
        }
        None
    }
}

fn timestamp(seconds: UnixSeconds) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(seconds).ok()?).ok()
}

fn parse_time(text: &str) -> Option<u16> {
    let (hour, minute) = text.trim().split_once(':')?;
    let is_number = |text: &str| text.len() <= 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(hour) || !is_number(minute) {
        return None;
    }
    let (hour, minute): (u16, u16) = (hour.parse().ok()?, minute.parse().ok()?);
    let whole = hour * 60 + minute;
    (minute < 60 && whole <= DAY_M).then_some(whole)
}

fn parse_day(text: &str) -> Option<usize> {
    let text = text.trim();
    DAYS.iter()
        .position(|(name, _)| name.eq_ignore_ascii_case(text))
}

/// `Sat,Sun`, `Mon-Fri`.
fn parse_days(text: &str) -> Option<[bool; 7]> {
    let mut days = [false; 7];
    for part in text.split(',') {
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (parse_day(first)?, parse_day(last)?),
            None => (parse_day(part)?, parse_day(part)?),
        };
        let mut day = first;
        days[day] = true;
        while day != last {
            day = (day + 1) % 7;
            days[day] = true;
        }
    }
    Some(days)
}

fn parse_window(text: &str) -> Option<Window> {
    let text = text.trim();
    let (days, times) = match text.rsplit_once(char::is_whitespace) {
        Some((days, times)) => (parse_days(days)?, times),
        None => ([true; 7], text),
    };
    let (from, until) = times.split_once('-')?;
    let (from_m, until_m) = (parse_time(from)?, parse_time(until)?);
    let is_empty = from_m == until_m || from_m == DAY_M;
    (!is_empty).then_some(Window {
        days,
        from_m,
        until_m,
    })
}

impl FromStr for Windows {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let refused = || ConfigError {
            text: text.to_owned(),
            expected: "times are expected, such as 01:00-06:00 or Sat,Sun 22:00-08:00",
        };
        if text.trim() == "always" {
            return Ok(Self::default());
        }
        let windows: Option<Vec<Window>> = text.split(';').map(parse_window).collect();
        let windows = windows.filter(|windows| windows.len() <= WINDOWS_MAX);
        windows.map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_always() {
            return f.write_str("always");
        }
        for (place, window) in self.0.iter().enumerate() {
            if place > 0 {
                f.write_str("; ")?;
            }
            if window.days != [true; 7] {
                let days = DAYS.iter().zip(window.days);
                let days: Vec<&str> = days
                    .filter(|(_, is_in)| *is_in)
                    .map(|((name, _), _)| *name)
                    .collect();
                write!(f, "{} ", days.join(","))?;
            }
            let (from, until) = (window.from_m, window.until_m);
            write!(
                f,
                "{:02}:{:02}-{:02}:{:02}",
                from / 60,
                from % 60,
                until / 60,
                until % 60
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Central Europe: the clock goes ahead on 2026-03-29 at 01:00 UTC and back on 2026-10-25 at 01:00 UTC.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()
    }

    fn at(text: &str) -> UnixSeconds {
        let moment: Timestamp = text.parse().unwrap();
        u64::try_from(moment.as_second()).unwrap()
    }

    fn next(windows: &str, now: &str) -> String {
        let windows: Windows = windows.parse().unwrap();
        let next = windows.next(at(now), &berlin()).unwrap();
        timestamp(next).unwrap().to_string()
    }

    #[test]
    fn a_window_is_of_local_time_in_winter_and_in_summer() {
        let windows: Windows = "01:00-06:00".parse().unwrap();
        for (moment, is_in) in [
            ("2026-01-10T00:00:00Z", true),
            ("2026-01-09T23:59:59Z", false),
            ("2026-01-10T05:00:00Z", false),
            ("2026-07-10T03:59:59Z", true),
            ("2026-07-09T23:00:00Z", true),
            ("2026-07-10T04:00:00Z", false),
        ] {
            assert_eq!(windows.has(at(moment), &berlin()), is_in, "{moment}");
        }
        assert_eq!(
            next("01:00-06:00", "2026-01-10T12:00:00Z"),
            "2026-01-11T00:00:00Z"
        );
        assert_eq!(
            next("01:00-06:00", "2026-07-10T12:00:00Z"),
            "2026-07-10T23:00:00Z"
        );
    }

    #[test]
    fn a_window_over_midnight_belongs_to_the_day_on_which_it_begins() {
        let windows: Windows = "Fri 22:00-08:00".parse().unwrap();
        for (moment, is_in) in [
            ("2026-01-09T21:00:00Z", true),  // Friday, 22:00
            ("2026-01-10T06:59:00Z", true),  // Saturday, 07:59
            ("2026-01-10T07:00:00Z", false), // Saturday, 08:00
            ("2026-01-09T05:00:00Z", false), // Friday, 06:00: that was Thursday's night
            ("2026-01-10T21:30:00Z", false), // Saturday, 22:30
        ] {
            assert_eq!(windows.has(at(moment), &berlin()), is_in, "{moment}");
        }
        let thursday = "2026-01-08T12:00:00Z";
        assert_eq!(next("Fri 22:00-08:00", thursday), "2026-01-09T21:00:00Z");
    }

    #[test]
    fn an_hour_that_is_skipped_opens_no_window_that_night() {
        // 02:00 to 03:00 does not exist on 2026-03-29.
        assert_eq!(
            next("02:00-03:00", "2026-03-28T12:00:00Z"),
            "2026-03-30T00:00:00Z"
        );
        // The clock jumps into this one.
        assert_eq!(
            next("02:30-04:00", "2026-03-28T12:00:00Z"),
            "2026-03-29T01:00:00Z"
        );
    }

    #[test]
    fn an_hour_that_comes_twice_is_in_its_window_twice() {
        let windows: Windows = "02:00-03:00".parse().unwrap();
        for moment in ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"] {
            assert!(windows.has(at(moment), &berlin()), "{moment}");
        }
        assert!(!windows.has(at("2026-10-25T02:00:00Z"), &berlin()));
        // Behind 02:30 of the first time, the second one is still to come.
        assert_eq!(
            next("02:00-02:30", "2026-10-25T00:40:00Z"),
            "2026-10-25T01:00:00Z"
        );
    }

    #[test]
    fn windows_are_written_back_as_they_were_understood() {
        for (text, shown) in [
            ("01:00-06:00", "01:00-06:00"),
            ("sat,sun 0:00-24:00", "Sat,Sun 00:00-24:00"),
            (
                "Fri-Mon 22:00-08:00;  12:00-13:30",
                "Mon,Fri,Sat,Sun 22:00-08:00; 12:00-13:30",
            ),
            ("always", "always"),
        ] {
            let windows: Windows = text.parse().unwrap();
            assert_eq!(windows.to_string(), shown);
            assert_eq!(shown.parse(), Ok(windows));
        }
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for text in [
            "",
            "01:00",
            "1-6",
            "01:00-01:00",
            "24:00-06:00",
            "25:00-26:00",
            "01:60-02:00",
            "Sol 01:00-02:00",
            "Mon- 01:00-02:00",
            "01:00-06:00;",
            "+1:00-02:00",
            "01:00-06:00 Sat",
        ] {
            let error = text.parse::<Windows>().unwrap_err();
            assert!(
                error.to_string().contains("such as 01:00-06:00"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_time_that_no_calendar_has_is_in_no_window_and_has_no_next() {
        let windows: Windows = "01:00-06:00".parse().unwrap();
        for now in [u64::MAX, i64::MAX as u64, 300_000_000_000] {
            assert!(!windows.has(now, &berlin()));
            assert_eq!(windows.next(now, &berlin()), None);
        }
    }
}
