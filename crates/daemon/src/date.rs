//! Points in time as people read them.

use jiff::tz::TimeZone;

/// The rules of local time, as the machine has them now.
///
/// They are read from the file that says them, without its name: to know that, hundreds of folders of the database of
/// time zones would be listed, while volumes wait to be served.
pub(crate) fn local_zone() -> TimeZone {
    let rules = || TimeZone::tzif("local", &std::fs::read("/etc/localtime").ok()?).ok();
    let is_named = std::env::var_os("TZ").is_some();
    let here = (!is_named).then(rules).flatten();
    here.unwrap_or_else(TimeZone::system)
}

/// Date and time in UTC, `2026-11-20 14:03`, from seconds since 1970.
///
/// Civil date from days: the era-of-400-years arithmetic, exact for all of u32 years.
#[must_use]
pub fn show_time(seconds: u64) -> String {
    let days = seconds / 86400 + 719_468;
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 {
        month_index + 3
    } else {
        month_index - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute) = (seconds % 86400 / 3600, seconds % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}
