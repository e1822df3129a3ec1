//! Sizes, times and lengths of time, as the page says them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Bytes in powers of 1024: `512`, `64K`, `1.5G`, `12T`.
pub(super) fn bytes(bytes: u64) -> String {
    let units = [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    for (shift, letter) in units {
        let unit = 1_u64 << shift;
        if bytes >= unit {
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            return match tenths % 10 {
                0 => format!("{}{letter}", tenths / 10),
                tenth => format!("{}.{tenth}{letter}", tenths / 10),
            };
        }
    }
    bytes.to_string()
}

/// A length of time: `42 s`, `3 min`, `2 h 05 min`, `3 d 04 h`.
pub(super) fn seconds(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {:02} min", minutes % 60),
        _ => format!("{days} d {:02} h", hours % 24),
    }
}

/// Microseconds as milliseconds: `4.1`.
pub(super) fn milliseconds(us: u64) -> String {
    format!("{}.{}", us / 1000, us / 100 % 10)
}

/// A moment by the clock of this machine, `2026-11-20 14:03`; a moment that no calendar has stays a number.
pub(super) fn moment(time_s: u64, zone: &TimeZone) -> String {
    written(time_s, zone, "%Y-%m-%d %H:%M")
}

/// Its time of day alone, `14:03`.
pub(super) fn time_of_day(time_s: u64, zone: &TimeZone) -> String {
    written(time_s, zone, "%H:%M")
}

/// With seconds and the distance to UTC, `2026-11-20 14:03:07 +01:00`.
pub(super) fn exact_moment(time_s: u64, zone: &TimeZone) -> String {
    written(time_s, zone, "%Y-%m-%d %H:%M:%S %:z")
}

fn written(time_s: u64, zone: &TimeZone, format: &str) -> String {
    let stamp = i64::try_from(time_s).ok().map(Timestamp::from_second);
    match stamp {
        Some(Ok(stamp)) => stamp
            .to_zoned_datetime(zone.clone())
            .strftime(format)
            .to_string(),
        _ => time_s.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_short_and_never_rounded_up() {
        assert_eq!(bytes(0), "0");
        assert_eq!(bytes(65536), "64K");
        assert_eq!(bytes((3 << 30) / 2), "1.5G");
        assert_eq!(bytes(u64::MAX), "16383.9P");
        assert_eq!(seconds(59), "59 s");
        assert_eq!(seconds(7500), "2 h 05 min");
        assert_eq!(seconds(u64::MAX), "213503982334601 d 07 h");
        assert_eq!(milliseconds(4150), "4.1");
    }

    #[test]
    fn a_moment_is_told_by_the_clock_of_the_machine_with_its_distance_to_utc() {
        let zone = TimeZone::fixed(jiff::tz::offset(1));
        assert_eq!(exact_moment(0, &zone), "1970-01-01 01:00:00 +01:00");
        assert_eq!(moment(1_795_000_000, &zone), "2026-11-18 12:06");
        assert_eq!(moment(u64::MAX, &zone), u64::MAX.to_string());
    }
}
