//! What a disk was like when it joined, and what was seen of it since.
//!
//! Invariants:
//! - A counter's baseline falls with the counter: pending sectors that went and come again have grown.
//! - Growth is news for a time. A counter that has stood still for [`QUIET_S`] is the past, as it was at joining.
//! - Readings that are older than what is known change nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::counters::Counter;
use super::document::{Health, Reading, Report};

/// How long a counter has to stand still until its growth is the past: 90 days. A weak spot of a disk that grows shows
/// again within weeks; after three months without, the disk is as good as its neighbours.
pub const QUIET_S: u64 = 90 * 24 * 3600;

/// What is known of one counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// The value that growth is counted from.
    pub from: u64,
    /// Since when, seconds since 1970.
    pub since_unix_s: u64,
    /// The last value that was seen.
    pub last: u64,
    /// When it last grew, seconds since 1970.
    pub grew_unix_s: Option<u64>,
}

/// What a disk was like, and what was seen since. Serialisable, so that a restart forgets nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Baseline {
    /// The serial that smartctl gave, once it gave one.
    pub serial: Option<String>,
    /// The counters.
    pub counters: BTreeMap<Counter, Course>,
    /// Since when the disk sleeps, seconds since 1970.
    pub asleep_since_unix_s: Option<u64>,
    /// The last reading of it awake.
    pub last_awake: Option<Reading>,
    /// The time of the last reading of any kind, seconds since 1970.
    pub read_unix_s: Option<u64>,
}

impl Baseline {
    /// The baseline of a disk that joins now. If it sleeps or is silent, its first answer will be the baseline.
    #[must_use]
    pub fn start(reading: &Reading) -> Baseline {
        let mut baseline = Baseline::default();
        baseline.follow(reading);
        baseline
    }

    /// Takes a reading in. Call it after the reading was judged, once for each.
    pub fn follow(&mut self, reading: &Reading) {
        let now = reading.read_unix_s;
        if self.read_unix_s.is_some_and(|known| now < known) {
            return;
        }
        self.read_unix_s = Some(now);
        match &reading.report {
            Report::Asleep { .. } => {
                self.asleep_since_unix_s.get_or_insert(now);
            }
            Report::Silent(_) => {}
            Report::Awake(health) => {
                self.asleep_since_unix_s = None;
                // Another disk's numbers, or a liar's, are not taken in.
                if self.contradiction(health).is_none() {
                    self.take(health, now);
                    self.last_awake = Some(reading.clone());
                }
            }
        }
    }

    /// Somebody has seen the growth and keeps the disk: what it is now is the baseline.
    pub fn accept(&mut self, reading: &Reading) {
        if let Report::Awake(health) = &reading.report {
            self.serial.clone_from(&health.serial);
            self.counters.clear();
            self.take(health, reading.read_unix_s);
            self.last_awake = Some(reading.clone());
            self.read_unix_s = Some(reading.read_unix_s);
        }
    }

    /// The first counter that fell although it cannot, while the hours fell as well.
    ///
    /// Hours alone may fall: some firmware counts them in 16 bits.
    pub(super) fn went_backwards(&self, health: &Health) -> Option<(Counter, u64, u64)> {
        let before = match &self.last_awake.as_ref()?.report {
            Report::Awake(before) => before.power_on_hours?,
            Report::Asleep { .. } | Report::Silent(_) => return None,
        };
        if health.power_on_hours? >= before {
            return None;
        }
        let mut fallen = health
            .counters
            .known()
            .filter(|(counter, _)| counter.only_rises());
        fallen.find_map(|(counter, value)| {
            let known = self.counters.get(&counter)?;
            (value < known.last).then_some((counter, known.last, value))
        })
    }

    /// The serial that was expected, if the document is another disk's.
    pub(super) fn other_serial(&self, health: &Health) -> Option<(String, String)> {
        let (known, found) = self.serial.clone().zip(health.serial.clone())?;
        (known != found).then_some((known, found))
    }

    fn contradiction(&self, health: &Health) -> Option<()> {
        let is_contradicted =
            self.other_serial(health).is_some() || self.went_backwards(health).is_some();
        is_contradicted.then_some(())
    }

    fn take(&mut self, health: &Health, now: u64) {
        if self.serial.is_none() {
            self.serial.clone_from(&health.serial);
        }
        for (counter, value) in health.counters.known() {
            let fresh = Course {
                from: value,
                since_unix_s: now,
                last: value,
                grew_unix_s: None,
            };
            let course = self.counters.entry(counter).or_insert(fresh);
            if value > course.last {
                course.grew_unix_s = Some(now);
            }
            course.last = value;
            let is_quiet = course
                .grew_unix_s
                .is_some_and(|grew| now.saturating_sub(grew) >= QUIET_S);
            if value < course.from || is_quiet {
                *course = fresh;
            }
        }
    }
}
