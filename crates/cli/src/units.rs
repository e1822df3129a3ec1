//! Sizes, rates and times as people type and read them. Powers of 1024, `s` = sectors of 512 bytes.

/// A size or rate as typed: `64K`, `1.5T`, `512s`, `100MiB`, `4096`.
///
/// Fractions are taken exactly and cut to a whole sector, because `1.1T` is not a whole number of bytes.
///
/// # Errors
/// One line that says what was not understood; for clap.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits_end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let number = number.replace('_', "");
    let unit_bytes = unit_bytes(unit.trim())
        .ok_or_else(|| format!("unit {unit:?} is none of s K M G T P (powers of 1024)"))?;
    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return Err("a size begins with a number, such as 64K, 1.5T or 512s".into());
    }
    let too_large = || format!("{text} is more than 2^63 bytes");
    let whole: u128 = if whole.is_empty() {
        0
    } else {
        whole.parse().map_err(|_| too_large())?
    };
    let whole_bytes = whole
        .checked_mul(u128::from(unit_bytes))
        .ok_or_else(too_large)?;
    let mut total = whole_bytes;
    if !fraction.is_empty() {
        if fraction.len() > 18 || fraction.contains('.') {
            return Err(format!("{number:?} is not a number"));
        }
        let scale = 10_u128.pow(fraction.len() as u32);
        let value: u128 = fraction
            .parse()
            .map_err(|_| format!("{number:?} is not a number"))?;
        total = (whole_bytes + value * u128::from(unit_bytes) / scale) / 512 * 512;
    }
    u64::try_from(total)
        .ok()
        .filter(|bytes| *bytes <= 1 << 63)
        .ok_or_else(too_large)
}

fn unit_bytes(unit: &str) -> Option<u64> {
    let lower = unit.to_ascii_lowercase();
    Some(match lower.as_str() {
        "" | "b" => 1,
        "s" => 512,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        "t" | "tb" | "tib" => 1 << 40,
        "p" | "pb" | "pib" => 1 << 50,
        _ => return None,
    })
}

/// Bytes for people: `512`, `64K`, `1.5G`, `12.0T`; exact multiples show no fraction below 1024 units.
#[must_use]
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [(u64, &str); 5] = [
        (1 << 50, "P"),
        (1 << 40, "T"),
        (1 << 30, "G"),
        (1 << 20, "M"),
        (1 << 10, "K"),
    ];
    for (unit, letter) in UNITS {
        if bytes >= unit {
            if bytes.is_multiple_of(unit) {
                return format!("{}{letter}", bytes / unit);
            }
            // Tenths, cut; u128 because bytes * 10 may exceed u64.
            let tenths = u128::from(bytes) * 10 / u128::from(unit);
            return format!("{}.{}{letter}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes}")
}

/// Seconds for people: `42s`, `3m10s`, `2h05m`, `3d04h`.
#[must_use]
pub fn show_seconds(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    if days > 0 {
        format!("{days}d{:02}h", hours % 24)
    } else if hours > 0 {
        format!("{hours}h{:02}m", minutes % 60)
    } else if minutes > 0 {
        format!("{minutes}m{:02}s", seconds % 60)
    } else {
        format!("{seconds}s")
    }
}

pub use plexum_daemon::date::show_time;

/// Date and time in UTC to the second, `2026-11-20 14:03:07`, from seconds since 1970.
#[must_use]
pub fn show_moment(seconds: u64) -> String {
    format!("{}:{:02}", show_time(seconds), seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024_and_s_is_a_sector() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("512s", 262_144),
            ("64K", 65536),
            ("64k", 65536),
            ("64KiB", 65536),
            ("1.5T", 3 << 39),
            (".5M", 512 << 10),
            ("1_000", 1000),
            ("1.1T", 1_209_462_790_144),
            ("8191P", 8191 << 50),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn nonsense_sizes_say_what_is_wrong() {
        for text in [
            "",
            "K",
            ".",
            "-1",
            "1X",
            "1.2.3K",
            "8193P",
            "99999999999999999999999999999999999999999",
            "1.1234567890123456789M",
            "0x10",
            "1 apple",
        ] {
            let message = parse_bytes(text).unwrap_err();
            assert!(!message.is_empty(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown_short_and_never_rounded_up() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (65536, "64K"),
            (1536 << 20, "1.5G"),
            ((1 << 30) - 1, "1023.9M"),
            (12 << 40, "12T"),
            (u64::MAX, "16383.9P"),
        ] {
            assert_eq!(show_bytes(bytes), text);
        }
    }

    #[test]
    fn times_are_civil_dates_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400, "2000-02-29 00:00"),
            (951_868_799, "2000-02-29 23:59"),
            (1_763_647_380, "2025-11-20 14:03"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(show_time(seconds), text);
            let whole = format!("{text}:{:02}", seconds % 60);
            assert_eq!(show_moment(seconds), whole);
        }
        assert_eq!(show_seconds(59), "59s");
        assert_eq!(show_seconds(190), "3m10s");
        assert_eq!(show_seconds(7500), "2h05m");
        assert_eq!(show_seconds(273_600), "3d04h");
    }
}
