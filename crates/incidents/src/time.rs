//! Time as it is given, and how it is written.
//!
//! Wall-clock time is set back now and then. Nothing here may wait longer for that: a time in the future counts as now.

use serde::{Deserialize, Serialize};

/// Seconds of a minute.
pub const MINUTE_S: u64 = 60;
/// Seconds of an hour.
pub const HOUR_S: u64 = 60 * MINUTE_S;
/// Seconds of a day.
pub const DAY_S: u64 = 24 * HOUR_S;

/// The last second of the year 9999: no four-digit year is written behind it.
const LAST_S: u64 = 253_402_300_799;

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// Seconds since the beginning of 1970, UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixTime(pub u64);

impl UnixTime {
    /// `seconds` later.
    #[must_use]
    pub fn plus_s(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }

    /// Seconds since `earlier`; none when the clock was set back meanwhile.
    #[must_use]
    pub fn since_s(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// `03:02` at a place `utc_offset_s` east of UTC.
    #[must_use]
    pub fn clock(self, utc_offset_s: i32) -> String {
        let date = Date::of(self, utc_offset_s);
        format!("{:02}:{:02}", date.hour, date.minute)
    }

    /// `2026-11-26 03:02 +01:00` at a place `utc_offset_s` east of UTC: whoever reads it may be at another one.
    #[must_use]
    pub fn text(self, utc_offset_s: i32) -> String {
        let Date {
            year, month, day, ..
        } = Date::of(self, utc_offset_s);
        let sign = if utc_offset_s < 0 { '-' } else { '+' };
        let minutes = utc_offset_s.unsigned_abs() / 60;
        format!(
            "{year:04}-{month:02}-{day:02} {} {sign}{:02}:{:02}",
            self.clock(utc_offset_s),
            minutes / 60,
            minutes % 60
        )
    }

    /// `Thu, 26 Nov 2026 02:02:00 +0000`, as the header of a mail has it.
    #[must_use]
    pub fn mail_date(self) -> String {
        let date = Date::of(self, 0);
        let day_name = DAYS[date.day_number_from_zero];
        let month_name = MONTHS[date.month as usize - 1];
        format!(
            "{day_name}, {:02} {month_name} {:04} {:02}:{:02}:{:02} +0000",
            date.day, date.year, date.hour, date.minute, date.second
        )
    }
}

/// `3 d 4 h`, `12 min`, `40 s`: the two largest units that matter.
#[must_use]
pub fn duration_text(seconds: u64) -> String {
    let (days, hours, minutes) = (
        seconds / DAY_S,
        seconds % DAY_S / HOUR_S,
        seconds % HOUR_S / MINUTE_S,
    );
    match () {
        () if days > 0 && hours > 0 => format!("{days} d {hours} h"),
        () if days > 0 => format!("{days} d"),
        () if hours > 0 && minutes > 0 => format!("{hours} h {minutes} min"),
        () if hours > 0 => format!("{hours} h"),
        () if minutes > 0 => format!("{minutes} min"),
        () => format!("{seconds} s"),
    }
}

struct Date {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    /// Day of the week, as an index of `DAYS`.
    day_number_from_zero: usize,
}

impl Date {
    fn of(time: UnixTime, utc_offset_s: i32) -> Self {
        let seconds = time.0.min(LAST_S - DAY_S);
        let local = seconds
            .saturating_add_signed(i64::from(utc_offset_s))
            .min(LAST_S);
        let mut days = local / DAY_S;
        let day_number_from_zero = usize::try_from(days % 7).unwrap_or(0);
        // At most 8030 years: a loop that anybody can check is enough.
        let mut year = 1970;
        while days >= days_of_year(year) {
            days -= days_of_year(year);
            year += 1;
        }
        let mut month = 1;
        while days >= days_of_month(year, month) {
            days -= days_of_month(year, month);
            month += 1;
        }
        Self {
            year,
            month,
            day: days + 1,
            hour: local % DAY_S / HOUR_S,
            minute: local % HOUR_S / MINUTE_S,
            second: local % MINUTE_S,
            day_number_from_zero,
        }
    }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    365 + u64::from(is_leap(year))
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u64::from(is_leap(year)),
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(UnixTime(0).text(0), "1970-01-01 00:00 +00:00");
        assert_eq!(UnixTime(951_827_696).text(0), "2000-02-29 12:34 +00:00");
        assert_eq!(
            UnixTime(1_795_658_520).text(3600),
            "2026-11-26 03:02 +01:00"
        );
        assert_eq!(
            UnixTime(1_795_658_520).mail_date(),
            "Thu, 26 Nov 2026 02:02:00 +0000"
        );
        assert_eq!(
            UnixTime(0).text(-3600),
            "1970-01-01 00:00 -01:00",
            "nothing before"
        );
    }

    #[test]
    fn no_time_is_too_large_to_be_written() {
        assert_eq!(
            UnixTime(u64::MAX).text(i32::MAX),
            "9999-12-31 23:59 +596523:14"
        );
        assert_eq!(UnixTime(u64::MAX).plus_s(1), UnixTime(u64::MAX));
        assert_eq!(UnixTime(5).since_s(UnixTime(9)), 0);
    }

    #[test]
    fn durations_are_said_in_their_two_largest_units() {
        for (seconds, text) in [
            (40, "40 s"),
            (720, "12 min"),
            (3600, "1 h"),
            (3900, "1 h 5 min"),
            (DAY_S, "1 d"),
            (3 * DAY_S + 4 * HOUR_S + 5, "3 d 4 h"),
        ] {
            assert_eq!(duration_text(seconds), text);
        }
    }
}
