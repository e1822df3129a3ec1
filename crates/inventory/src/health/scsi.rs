//! What a SCSI disk says. Source: smartctl's own JSON (7.0 to 7.5), SPC-5 and SBC-4 for the log pages.

use serde_json::Value;

use super::counters::Counters;
use super::self_test::SelfTest;
use super::value::{at, count, truth};

/// Ports and links of a disk that are looked at: it has two.
const LINKS_MAX: u64 = 16;
/// The self-test log has 20 entries.
const SELF_TESTS: usize = 20;

/// The counters.
pub(super) fn counters(document: &Value) -> Counters {
    let used = count(document, "endurance_used/current_percent")
        .or_else(|| count(document, "scsi_percentage_used_endurance_indicator"));
    Counters {
        reallocated_sectors: count(document, "scsi_grown_defect_list"),
        pending_sectors: count(document, "scsi_pending_defects/count"),
        reported_uncorrectable_errors: uncorrected(document),
        used_percent: used,
        failed_self_tests: failed_self_tests(document),
        invalid_words: invalid_words(document),
        ..Counters::default()
    }
}

/// Whether a self-test runs.
pub(super) fn self_test(document: &Value) -> SelfTest {
    let runs = truth(document, "scsi_self_test_status/in_progress")
        .or_else(|| truth(document, "scsi_self_test_0/self_test_in_progress"));
    let done = count(document, "scsi_self_test_status/completion_percent");
    match runs {
        Some(true) => SelfTest::Running {
            remaining_percent: done.map(|done| 100u64.saturating_sub(done)),
        },
        Some(false) => SelfTest::Idle,
        None => SelfTest::Unknown,
    }
}

/// Errors of reading, writing and verifying that could not be corrected, together.
fn uncorrected(document: &Value) -> Option<u64> {
    let log = at(document, "scsi_error_counter_log")?;
    let of = |way: &str| count(log, &format!("{way}/total_uncorrected_errors"));
    let counts = ["read", "write", "verify"].into_iter().filter_map(of);
    counts.reduce(u64::saturating_add)
}

/// Self-tests whose result says that something failed: 3 to 7 (SPC-5, 6.7.4.4). 1 and 2 were stopped.
fn failed_self_tests(document: &Value) -> Option<u64> {
    let result = |number: usize| count(document, &format!("scsi_self_test_{number}/result/value"));
    let results: Vec<u64> = (0..SELF_TESTS).filter_map(result).collect();
    let failed = results
        .iter()
        .filter(|result| (3..=7).contains(*result))
        .count();
    (!results.is_empty()).then_some(failed as u64)
}

/// Words that the links could not read, all ports together. The names of the keys differ between versions.
fn invalid_words(document: &Value) -> Option<u64> {
    let mut sum = None;
    for port in 0..LINKS_MAX {
        for link in 0..LINKS_MAX {
            let place = format!("scsi_sas_port_{port}/phy_{link}");
            let fields = at(document, &place).and_then(Value::as_object);
            let mut fields = fields.into_iter().flatten();
            let found = fields.find_map(|(key, value)| {
                let key = key.to_ascii_lowercase().replace(' ', "_");
                (key == "invalid_dword_count").then(|| value.as_u64())?
            });
            sum = found
                .map(|found| found.saturating_add(sum.unwrap_or(0)))
                .or(sum);
        }
    }
    sum
}
