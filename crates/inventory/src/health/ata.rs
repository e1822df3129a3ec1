//! What an ATA disk says. Source: smartctl's own JSON (7.0 to 7.5), ACS-4 for the device statistics.

use serde_json::Value;

use super::counters::Counters;
use super::self_test::SelfTest;
use super::value::{at, count, elements, text, truth, whole};

/// Where a device statistic is: the number of its page, the offset in it.
struct Statistic {
    page: u64,
    offset_bytes: u64,
}

/// ACS-4, 9.5: logical sectors that were reallocated, those that may be, errors that reached the host, transfers that
/// arrived damaged, lifetime that is used up.
const REALLOCATED: Statistic = Statistic {
    page: 3,
    offset_bytes: 32,
};
const CANDIDATES: Statistic = Statistic {
    page: 3,
    offset_bytes: 56,
};
const UNCORRECTABLE: Statistic = Statistic {
    page: 4,
    offset_bytes: 8,
};
const CRC: Statistic = Statistic {
    page: 6,
    offset_bytes: 24,
};
const USED: Statistic = Statistic {
    page: 7,
    offset_bytes: 8,
};

/// Attributes that are looked at: a table has 30.
const ATTRIBUTES_MAX: usize = 256;

/// The counters: of the attribute table, and where that lacks one, of the device statistics.
pub(super) fn counters(document: &Value) -> Counters {
    let used =
        count(document, "endurance_used/current_percent").or_else(|| statistic(document, &USED));
    let spare = count(document, "spare_available/current_percent");
    Counters {
        reallocated_sectors: attribute(document, 5).or_else(|| statistic(document, &REALLOCATED)),
        pending_sectors: attribute(document, 197).or_else(|| statistic(document, &CANDIDATES)),
        offline_uncorrectable_sectors: attribute(document, 198),
        reported_uncorrectable_errors: attribute(document, 187)
            .or_else(|| statistic(document, &UNCORRECTABLE)),
        crc_errors: attribute(document, 199).or_else(|| statistic(document, &CRC)),
        media_errors: None,
        spare_used_percent: spare.map(|percent| 100u64.saturating_sub(percent)),
        used_percent: used,
        failed_self_tests: failed_self_tests(document),
        invalid_words: None,
    }
}

/// Attributes that foretell failure and are at their threshold now.
pub(super) fn at_threshold(document: &Value) -> Vec<String> {
    let is_failing = |attribute: &&Value| {
        text(attribute, "when_failed").as_deref() == Some("now")
            && truth(attribute, "flags/prefailure") == Some(true)
    };
    let name = |attribute: &Value| {
        let number = whole(attribute, "id").unwrap_or(0);
        text(attribute, "name").unwrap_or_else(|| format!("attribute {number}"))
    };
    table(document).filter(is_failing).map(name).collect()
}

/// Whether a self-test runs.
pub(super) fn self_test(document: &Value) -> SelfTest {
    // The upper half of the byte is 15 while one runs, the lower half tens of percent that remain.
    match whole(document, "ata_smart_data/self_test/status/value") {
        Some(value) if value >> 4 & 15 == 15 => SelfTest::Running {
            remaining_percent: Some((value & 15) * 10),
        },
        Some(_) => SelfTest::Idle,
        None => SelfTest::Unknown,
    }
}

/// Whether the table is there and everything in it is zero, the power-on count too: no disk that answers is like that.
pub(super) fn is_blank(document: &Value) -> bool {
    let mut values = table(document)
        .filter_map(|attribute| whole(attribute, "raw/value"))
        .peekable();
    values.peek().is_some() && values.all(|value| value == 0)
}

fn table(document: &Value) -> impl Iterator<Item = &Value> {
    elements(document, "ata_smart_attributes/table")
        .iter()
        .take(ATTRIBUTES_MAX)
}

fn attribute(document: &Value, number: u64) -> Option<u64> {
    let found = table(document).find(|attribute| whole(attribute, "id") == Some(number))?;
    raw_count(at(found, "raw")?)
}

/// The count in a raw value: what smartctl prints first. The number beside it is all 48 bits, and makers put other
/// things into the upper ones (`24 (3 0)`).
fn raw_count(raw: &Value) -> Option<u64> {
    let printed = text(raw, "string").unwrap_or_default();
    let digits = printed
        .split(|c: char| !c.is_ascii_digit())
        .next()
        .unwrap_or_default();
    let is_decimal = !digits.is_empty() && !printed.starts_with("0x");
    match is_decimal {
        true => digits
            .parse()
            .ok()
            .filter(|value| *value < u64::from(u32::MAX)),
        false => count(raw, "value"),
    }
}

/// A device statistic, if the disk says that it is valid.
fn statistic(document: &Value, wanted: &Statistic) -> Option<u64> {
    let mut pages = elements(document, "ata_device_statistics/pages").iter();
    let page = pages.find(|found| whole(found, "number") == Some(wanted.page))?;
    let mut entries = elements(page, "table").iter();
    let entry = entries.find(|entry| whole(entry, "offset") == Some(wanted.offset_bytes))?;
    let is_valid = truth(entry, "flags/valid") == Some(true);
    is_valid.then(|| count(entry, "value")).flatten()
}

fn failed_self_tests(document: &Value) -> Option<u64> {
    ["extended", "standard"].iter().find_map(|log| {
        let folder = at(document, &format!("ata_smart_self_test_log/{log}"))?;
        // An empty log has no such number.
        let total = count(folder, "error_count_total")
            .or_else(|| (count(folder, "count") == Some(0)).then_some(0))?;
        Some(total.saturating_sub(count(folder, "error_count_outdated").unwrap_or(0)))
    })
}
