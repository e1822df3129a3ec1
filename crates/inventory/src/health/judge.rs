//! The judge: a baseline and a reading in, a verdict out. Pure.
//!
//! Invariants:
//! - The same baseline and the same reading give the same verdict; no clock is read.
//! - Old logs, old errors and thresholds of the past (exit bits 5 to 7) are no verdict.

use super::baseline::{Baseline, QUIET_S};
use super::counters::Counter;
use super::document::{Health, Protocol, Reading, Report};
use super::verdict::{Growth, Known, Reason, Silence, Verdict};

/// Where a disk names no limit: with platters 60 degrees, as makers of disks for servers do.
const ROTATING_LIMIT_C: i64 = 60;
/// Without platters 70 degrees, at which SSDs begin to slow down.
const SOLID_LIMIT_C: i64 = 70;
/// Lifetime rises in every disk without platters. From here on each further percent is worth a word.
const USED_PERCENT_NOTABLE: u64 = 80;
/// A SAS link loses words whenever it is set up anew; a bad cable loses them by the thousand.
const INVALID_WORDS_NOTABLE: u64 = 100;

/// The verdict that matters most.
#[must_use]
pub fn judge(baseline: &Baseline, now: &Reading) -> Verdict {
    findings(baseline, now)
        .into_iter()
        .next()
        .unwrap_or(Verdict::Fine)
}

/// All verdicts on one reading, most important first: a disk may be growing and hot. Empty if it is fine.
#[must_use]
pub fn findings(baseline: &Baseline, now: &Reading) -> Vec<Verdict> {
    let health = match &now.report {
        Report::Awake(health) => health,
        Report::Asleep { .. } => {
            return vec![Verdict::Asleep {
                since_unix_s: baseline.asleep_since_unix_s.unwrap_or(now.read_unix_s),
                known: known(baseline),
            }];
        }
        Report::Silent(silence) => return vec![cannot_tell(baseline, silence.clone())],
    };
    if let Some((expected, found)) = baseline.other_serial(health) {
        return vec![cannot_tell(
            baseline,
            Silence::OtherDisk { expected, found },
        )];
    }
    if let Some((counter, from, to)) = baseline.went_backwards(health) {
        return vec![cannot_tell(
            baseline,
            Silence::WentBackwards { counter, from, to },
        )];
    }
    of_health(baseline, health, now.read_unix_s)
}

/// The verdicts on an answer that is the disk's own.
fn of_health(baseline: &Baseline, health: &Health, read_unix_s: u64) -> Vec<Verdict> {
    let mut found: Vec<Verdict> = [failing(health), hot(health)]
        .into_iter()
        .flatten()
        .collect();
    let growth = growth(baseline, health, read_unix_s);
    let (cable, disk): (Vec<Growth>, Vec<Growth>) = growth
        .into_iter()
        .partition(|growth| growth.counter.is_of_the_cable());
    found.extend((!disk.is_empty()).then_some(Verdict::Growing { growth: disk }));
    found.extend((!cable.is_empty()).then_some(Verdict::Cable { growth: cable }));
    found.sort_by_key(|verdict| std::cmp::Reverse(verdict.weight()));
    found
}

fn cannot_tell(baseline: &Baseline, silence: Silence) -> Verdict {
    Verdict::CannotTell {
        silence,
        known: known(baseline),
    }
}

/// What the last reading of the disk awake was judged.
fn known(baseline: &Baseline) -> Option<Known> {
    let last = baseline.last_awake.as_ref()?;
    let Report::Awake(health) = &last.report else {
        return None;
    };
    let found = of_health(baseline, health, last.read_unix_s);
    Some(Known {
        verdict: Box::new(found.into_iter().next().unwrap_or(Verdict::Fine)),
        read_unix_s: last.read_unix_s,
    })
}

fn failing(health: &Health) -> Option<Verdict> {
    let mut reasons: Vec<Reason> = Vec::new();
    let attributes = health.at_threshold.iter().cloned();
    reasons.extend(attributes.map(|attribute| Reason::AtThreshold { attribute }));
    let warnings = health
        .critical_warning
        .map(|warning| warning.failures())
        .unwrap_or_default();
    reasons.extend(warnings.into_iter().map(|warning| Reason::CriticalWarning {
        warning: warning.to_owned(),
    }));
    if let (Some(available), Some(threshold)) = (
        health.available_spare_percent,
        health.spare_threshold_percent,
    ) && available < threshold
    {
        reasons.push(Reason::SpareLow {
            available_percent: available,
            threshold_percent: threshold,
        });
    }
    // An NVMe disk's own verdict is made of its warnings, and heat is among them.
    let own = health.is_passed == Some(false) || health.exit_status.is_failing();
    let is_only_heat = health
        .critical_warning
        .is_some_and(|warning| warning.is_of_temperature());
    if own && reasons.is_empty() && !is_only_heat {
        reasons.push(Reason::OwnVerdict);
    }
    (!reasons.is_empty()).then_some(Verdict::Failing { reasons })
}

fn hot(health: &Health) -> Option<Verdict> {
    let temperature_c = health.temperature_c?;
    let usual = match (health.protocol, health.rotation_per_min) {
        (Protocol::Nvme, _) | (_, Some(0)) => SOLID_LIMIT_C,
        (Protocol::Ata | Protocol::Scsi, _) => ROTATING_LIMIT_C,
    };
    let limit_c = health.temperature_limit_c.unwrap_or(usual);
    // The warning is of heat or of cold, and the disk decides at which limit.
    let warns = health
        .critical_warning
        .is_some_and(|warning| warning.is_of_temperature());
    let is_hot = temperature_c >= limit_c || warns && temperature_c > 0;
    is_hot.then_some(Verdict::Hot {
        temperature_c,
        limit_c,
    })
}

/// The counters that have grown since the baseline, and not so long ago that it is the past.
fn growth(baseline: &Baseline, health: &Health, now: u64) -> Vec<Growth> {
    let grown = |(counter, value): (Counter, u64)| {
        let course = baseline.counters.get(&counter)?;
        let grew_unix_s = match value > course.last {
            true => now,
            false => course.grew_unix_s.unwrap_or(now),
        };
        let is_news = value > course.from && now.saturating_sub(grew_unix_s) < QUIET_S;
        let is_notable = match counter {
            Counter::UsedPercent => value >= USED_PERCENT_NOTABLE,
            Counter::InvalidWords => value.saturating_sub(course.from) >= INVALID_WORDS_NOTABLE,
            _ => true,
        };
        (is_news && is_notable).then_some(Growth {
            counter,
            from: course.from,
            to: value,
            since_unix_s: course.since_unix_s,
            grew_unix_s,
        })
    };
    health.counters.known().filter_map(grown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Counters, Ended, ExitStatus, read};

    fn reading(read_unix_s: u64, change: impl FnOnce(&mut Health)) -> Reading {
        let document =
            br#"{"device":{"protocol":"SCSI"},"serial_number":"Z1","scsi_grown_defect_list":5,
            "power_on_time":{"hours":100}}"#;
        let Report::Awake(mut health) = read(document, Ended::Exited(ExitStatus(0))) else {
            panic!("the document has a counter");
        };
        change(&mut health);
        Reading {
            read_unix_s,
            report: Report::Awake(health),
        }
    }

    fn pending(count: u64) -> impl FnOnce(&mut Health) {
        move |health| {
            health.counters = Counters {
                pending_sectors: Some(count),
                ..Counters::default()
            }
        }
    }

    #[test]
    fn growth_is_news_until_it_has_been_quiet() {
        let day = 24 * 3600;
        let mut baseline = Baseline::start(&reading(0, pending(8)));
        let grown = reading(day, pending(24));
        let want = Growth {
            counter: Counter::PendingSectors,
            from: 8,
            to: 24,
            since_unix_s: 0,
            grew_unix_s: day,
        };
        assert_eq!(
            judge(&baseline, &grown),
            Verdict::Growing { growth: vec![want] }
        );
        baseline.follow(&grown);
        let still = reading(80 * day, pending(24));
        assert_eq!(
            judge(&baseline, &still),
            Verdict::Growing { growth: vec![want] }
        );
        baseline.follow(&still);
        let quiet = reading(day + QUIET_S, pending(24));
        assert_eq!(judge(&baseline, &quiet), Verdict::Fine);
        baseline.follow(&quiet);
        let again = judge(&baseline, &reading(100 * day, pending(25)));
        assert_eq!(
            again.to_string(),
            "growing: pending sectors 24 -> 25",
            "what was quiet is the past"
        );
    }

    #[test]
    fn what_went_and_comes_again_has_grown() {
        let mut baseline = Baseline::start(&reading(0, pending(8)));
        baseline.follow(&reading(10, pending(0)));
        let again = judge(&baseline, &reading(20, pending(4)));
        assert_eq!(again.to_string(), "growing: pending sectors 0 -> 4");
    }

    #[test]
    fn somebody_who_keeps_the_disk_is_told_of_new_growth_only() {
        let mut baseline = Baseline::start(&reading(0, pending(0)));
        baseline.follow(&reading(10, pending(9)));
        baseline.accept(&reading(10, pending(9)));
        assert_eq!(judge(&baseline, &reading(20, pending(9))), Verdict::Fine);
        assert!(matches!(
            judge(&baseline, &reading(20, pending(10))),
            Verdict::Growing { .. }
        ));
    }

    #[test]
    fn sleep_hides_nothing_and_counts_from_its_first_sight() {
        let asleep = |at| Reading {
            read_unix_s: at,
            report: Report::Asleep {
                mode: "STANDBY".into(),
            },
        };
        let mut baseline = Baseline::start(&reading(0, pending(0)));
        baseline.follow(&reading(10, pending(9)));
        baseline.follow(&asleep(20));
        baseline.follow(&asleep(25));
        let verdict = judge(&baseline, &asleep(30));
        let Verdict::Asleep {
            since_unix_s: 20,
            known: Some(known),
        } = &verdict
        else {
            panic!("{verdict:?}");
        };
        assert_eq!(known.read_unix_s, 10);
        assert!(matches!(
            verdict.underlying(),
            Some(Verdict::Growing { .. })
        ));
        baseline.follow(&reading(40, pending(9)));
        assert!(matches!(
            judge(&baseline, &asleep(50)),
            Verdict::Asleep {
                since_unix_s: 50,
                ..
            }
        ));
    }

    #[test]
    fn a_baseline_survives_being_written_down() {
        let mut baseline = Baseline::start(&reading(5, pending(3)));
        baseline.follow(&reading(6, pending(4)));
        let text = serde_json::to_string(&baseline).unwrap();
        assert!(
            text.contains(
                r#""pending_sectors":{"from":3,"since_unix_s":5,"last":4,"grew_unix_s":6}"#
            ),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Baseline>(&text).unwrap(), baseline);
    }

    #[test]
    fn numbers_of_another_disk_are_not_taken_in() {
        let mut baseline = Baseline::start(&reading(0, |_| {}));
        let before = baseline.counters.clone();
        let other = reading(10, |health| {
            health.serial = Some("Z2".into());
            health.counters.reallocated_sectors = Some(4000);
        });
        assert!(matches!(
            judge(&baseline, &other),
            Verdict::CannotTell {
                silence: Silence::OtherDisk { .. },
                known: Some(_)
            }
        ));
        baseline.follow(&other);
        assert_eq!(baseline.counters, before);
        // A file that somebody edited is no reason to go round in circles.
        baseline.last_awake = Some(other.clone());
        assert!(matches!(
            judge(&baseline, &other),
            Verdict::CannotTell { known: Some(_), .. }
        ));
        baseline.last_awake = Some(reading(0, |_| {}));
        let backwards = reading(20, |health| {
            health.counters.reallocated_sectors = Some(1);
            health.power_on_hours = Some(3);
        });
        assert!(matches!(
            judge(&baseline, &backwards),
            Verdict::CannotTell {
                silence: Silence::WentBackwards { from: 5, to: 1, .. },
                ..
            }
        ));
    }
}
