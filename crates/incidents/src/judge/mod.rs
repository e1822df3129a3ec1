//! What is wrong now: pure functions of the facts and the clock.
//!
//! Invariants:
//! - the same facts at the same time give the same findings, whatever was found before;
//! - no finding depends on a text;
//! - what is not known is never taken for good.

mod daemon;
mod disk;
mod volume;

use crate::facts::{Facts, Health};
use crate::finding::{Finding, Object};
use crate::mutant::DeliberateBug;
use crate::time::UnixTime;

/// Everything that is wrong at `now`.
#[must_use]
pub fn judge(facts: &Facts, now: UnixTime) -> Vec<Finding> {
    judge_with(facts, now, DeliberateBug::NONE)
}

/// The same, with a bug.
pub(crate) fn judge_with(facts: &Facts, now: UnixTime, bug: DeliberateBug) -> Vec<Finding> {
    let volumes = facts.volumes.iter();
    let mut found: Vec<Finding> = volumes
        .flat_map(|volume| volume::judge(volume, facts.utc_offset_s, now, bug))
        .collect();
    found.extend(
        facts
            .disks
            .iter()
            .filter_map(|disk| disk::judge(disk, facts)),
    );
    found.extend(daemon::judge(&facts.daemon, facts.utc_offset_s));
    found
}

/// Of what nothing can be said now. What was found of it last still counts: unknown is not whole.
#[must_use]
pub fn unjudged(facts: &Facts) -> Vec<Object> {
    let volumes = facts.volumes.iter();
    let silent = volumes.filter(|volume| volume.cannot_judge.is_some());
    let absent = facts.daemon.absent.iter();
    let by_uuid = silent
        .map(|volume| &volume.uuid)
        .chain(absent.map(|volume| &volume.uuid))
        .chain(&facts.daemon.starting);
    let disks = facts.disks.iter();
    let asleep =
        disks.filter(|disk| matches!(disk.health, Health::Asleep | Health::CannotJudge { .. }));
    let mut objects: Vec<Object> = by_uuid.map(|uuid| Object::Volume(uuid.clone())).collect();
    objects.extend(asleep.map(|disk| Object::Disk(disk.identity.clone())));
    objects
}

/// Whether `object` is still looked at. A volume that somebody has closed is neither well nor ill.
#[must_use]
pub fn is_looked_at(facts: &Facts, object: &Object) -> bool {
    match object {
        Object::Volume(uuid) | Object::Member(uuid, _) => {
            facts.volumes.iter().any(|volume| volume.uuid == *uuid)
        }
        Object::Disk(identity) => facts.disks.iter().any(|disk| disk.identity == *identity),
        Object::Channel(_) | Object::Daemon => true,
    }
}

/// `8 KiB`, `3.6 TiB`: three digits are enough for a message.
pub(crate) fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut unit = 0;
    let mut tenths = u128::from(bytes) * 10 / 1024;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    match tenths % 10 {
        0 => format!("{} {}", tenths / 10, UNITS[unit]),
        tenth => format!("{}.{tenth} {}", tenths / 10, UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes_text;

    #[test]
    fn bytes_are_said_in_the_unit_that_fits() {
        for (bytes, text) in [
            (512, "512 bytes"),
            (8192, "8 KiB"),
            (3_985_729_650_688, "3.6 TiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(bytes_text(bytes), text);
        }
    }
}
