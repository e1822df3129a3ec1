//! How disks are, as plain data for whoever judges what is wrong now.

use plexum_incidents::facts::{DiskFacts, Health};
use plexum_inventory::health::{Silence, Verdict};

use crate::volume::status::VolumeStatus;

/// What a verdict says of the disk itself. One that sleeps is as it was.
fn health_of(verdict: &Verdict) -> Health {
    let what = verdict.to_string();
    match verdict {
        Verdict::Asleep { .. } | Verdict::CannotTell { .. } => of_silent(verdict),
        Verdict::Fine => Health::Fine,
        Verdict::Growing { .. } => Health::Growing { what },
        Verdict::Failing { .. } => Health::Failing { what },
        Verdict::Cable { .. } => Health::Connection { what },
        Verdict::Hot { .. } => Health::Hot { what },
    }
}

/// A disk that does not answer now is as it was, when that was bad.
fn of_silent(verdict: &Verdict) -> Health {
    match (verdict, verdict.underlying()) {
        (_, Some(before)) if *before != Verdict::Fine => health_of(before),
        (Verdict::Asleep { .. }, _) => Health::Asleep,
        (Verdict::CannotTell { silence, .. }, None) if is_never_offered(silence) => {
            Health::NotOffered
        }
        (other, _) => Health::CannotJudge {
            reason: other.to_string(),
        },
    }
}

/// Whether nobody can expect an answer, ever.
fn is_never_offered(silence: &Silence) -> bool {
    matches!(
        silence,
        Silence::NotInstalled | Silence::NoHealth | Silence::Blank
    )
}

/// The disks of a volume's members that are there. `identity`: by what the volume is known.
#[must_use]
pub fn disk_facts(status: &VolumeStatus, identity: &str) -> Vec<DiskFacts> {
    let mut found = Vec::new();
    for member in &status.members {
        let Some(disk) = member.disk.as_ref().filter(|disk| !disk.is_gone) else {
            continue;
        };
        let path = member.path.clone().unwrap_or_default();
        let known_by = [&disk.wwn, &disk.serial];
        let known_by: Vec<&str> = known_by.into_iter().flatten().map(String::as_str).collect();
        let slot = member.slot.and_then(|slot| u16::try_from(slot).ok());
        let health = disk.health.as_ref();
        found.push(DiskFacts {
            identity: match known_by.is_empty() {
                true => disk.path.clone().unwrap_or_else(|| path.clone()),
                false => known_by.join(" "),
            },
            member: disk.words(),
            used_by: slot.map(|slot| (identity.to_owned(), slot)),
            health: health.map_or(Health::NotOffered, |health| health_of(&health.verdict)),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use plexum_inventory::health::Known;

    use super::*;

    #[test]
    fn a_disk_that_sleeps_is_as_it_was_and_one_that_never_answered_is_not_blamed() {
        let hot = Verdict::Hot {
            temperature_c: 70,
            limit_c: 60,
        };
        let asleep = |known| Verdict::Asleep {
            since_unix_s: 1,
            known,
        };
        let before = |verdict: &Verdict| {
            Some(Known {
                verdict: Box::new(verdict.clone()),
                read_unix_s: 1,
            })
        };
        let fact = health_of;
        assert_eq!(fact(&asleep(before(&hot))), fact(&hot));
        assert_eq!(fact(&asleep(before(&Verdict::Fine))), Health::Asleep);
        let silent = |silence, known| Verdict::CannotTell { silence, known };
        let never = silent(Silence::NoHealth, None);
        assert_eq!(fact(&never), Health::NotOffered);
        let late = silent(Silence::TimedOut { after_ms: 1 }, before(&Verdict::Fine));
        assert!(matches!(fact(&late), Health::CannotJudge { .. }));
    }
}
