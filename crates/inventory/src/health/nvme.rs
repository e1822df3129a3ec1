//! What an NVMe disk says. Source: smartctl's own JSON (7.0 to 7.5), NVM Express Base Specification 2.0, figure 207.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::counters::Counters;
use super::self_test::SelfTest;
use super::value::{at, count, whole};

/// The critical warnings of an NVMe disk, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CriticalWarning(pub u8);

impl CriticalWarning {
    /// The temperature is over or under a limit: the disk is not failing.
    const TEMPERATURE: u8 = 1 << 1;

    /// Whether the temperature is outside of its limits.
    #[must_use]
    pub fn is_of_temperature(self) -> bool {
        self.0 & Self::TEMPERATURE != 0
    }

    /// What the other bits say, in words.
    #[must_use]
    pub fn failures(self) -> Vec<&'static str> {
        let words = [
            (0, "the spare blocks are below their limit"),
            (2, "its reliability is degraded"),
            (3, "it is read-only"),
            (4, "the backup of its volatile memory has failed"),
            (5, "its persistent memory region is unreliable"),
            (6, "it warns with bit 6"),
            (7, "it warns with bit 7"),
        ];
        let is_set = |bit: &u8| self.0 >> bit & 1 == 1;
        words
            .into_iter()
            .filter(|(bit, _)| is_set(bit))
            .map(|(_, word)| word)
            .collect()
    }
}

const LOG: &str = "nvme_smart_health_information_log";

/// The counters.
pub(super) fn counters(document: &Value) -> Counters {
    let of = |name: &str| count(document, &format!("{LOG}/{name}"));
    Counters {
        media_errors: of("media_errors"),
        spare_used_percent: of("available_spare").map(|spare| 100u64.saturating_sub(spare)),
        used_percent: of("percentage_used"),
        failed_self_tests: failed_self_tests(document),
        ..Counters::default()
    }
}

/// The critical warnings.
pub(super) fn critical_warning(document: &Value) -> Option<CriticalWarning> {
    let bits = count(document, &format!("{LOG}/critical_warning"))?;
    Some(CriticalWarning(u8::try_from(bits).unwrap_or(u8::MAX)))
}

/// Available spare and the limit below which the disk warns, both percent.
pub(super) fn spare(document: &Value) -> (Option<u64>, Option<u64>) {
    let of = |name: &str| count(document, &format!("{LOG}/{name}"));
    (of("available_spare"), of("available_spare_threshold"))
}

/// Whether a self-test runs.
pub(super) fn self_test(document: &Value) -> SelfTest {
    let done = count(
        document,
        "nvme_self_test_log/current_self_test_completion_percent",
    );
    match count(
        document,
        "nvme_self_test_log/current_self_test_operation/value",
    ) {
        Some(0) => SelfTest::Idle,
        Some(_) => SelfTest::Running {
            remaining_percent: done.map(|done| 100u64.saturating_sub(done)),
        },
        None => SelfTest::Unknown,
    }
}

/// Whether the log is there and says that the disk was never switched on: no disk that answers is like that.
pub(super) fn is_blank(document: &Value) -> bool {
    let of = |name: &str| whole(document, &format!("{LOG}/{name}"));
    at(document, LOG).is_some() && of("power_cycles") == Some(0) && of("power_on_hours") == Some(0)
}

/// Self-tests whose result says that something failed: 5 to 7 (figure 202). The others were stopped, or passed.
fn failed_self_tests(document: &Value) -> Option<u64> {
    let table = at(document, "nvme_self_test_log/table")?.as_array()?;
    let is_failed = |entry: &&Value| {
        count(entry, "self_test_result/value").is_some_and(|value| (5..=7).contains(&value))
    };
    Some(table.iter().take(64).filter(is_failed).count() as u64)
}
