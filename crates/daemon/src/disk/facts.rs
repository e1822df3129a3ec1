//! How disks are, as plain data for whoever judges what is wrong now.

use plexum_inventory::health::{Silence, Verdict};

use crate::volume::status::VolumeStatus;

/// One disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFacts {
    /// What it is known by; never a name that changes at the next start.
    pub identity: String,
    /// Which disk it is, such as `disk in bay 4 (WD40EFRX, serial WCC4E17)`.
    pub member: String,
    /// The volume that it is in, by `uuid`, and its slot.
    pub used_by: Option<(String, u16)>,
    /// What it says of itself.
    pub health: DiskHealthFact,
}

/// What a disk says of itself, held against what it said when it joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskHealthFact {
    /// Nothing grows.
    Fine,
    /// It says nothing of itself, or was never asked.
    NotOffered,
    /// It sleeps, and nothing bad was known of it before.
    Asleep,
    /// Faults grow.
    Growing {
        /// Which, and how fast.
        what: String,
    },
    /// It says that it fails.
    Failing {
        /// In which words.
        what: String,
    },
    /// Errors on the way to it: cable or bay, not the disk.
    Connection {
        /// Which, and how fast.
        what: String,
    },
    /// It is hotter than it is made for.
    Hot {
        /// How hot.
        what: String,
    },
    /// It should have answered and did not.
    CannotJudge {
        /// Why.
        reason: String,
    },
}

impl DiskHealthFact {
    /// What a verdict says of the disk itself. One that sleeps is as it was.
    #[must_use]
    pub fn of(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Asleep { .. } | Verdict::CannotTell { .. } => Self::of_silent(verdict),
            Verdict::Fine => Self::Fine,
            Verdict::Growing { .. } => Self::Growing {
                what: verdict.to_string(),
            },
            Verdict::Failing { .. } => Self::Failing {
                what: verdict.to_string(),
            },
            Verdict::Cable { .. } => Self::Connection {
                what: verdict.to_string(),
            },
            Verdict::Hot { .. } => Self::Hot {
                what: verdict.to_string(),
            },
        }
    }

    /// A disk that does not answer now is as it was, when that was bad.
    fn of_silent(verdict: &Verdict) -> Self {
        match (verdict, verdict.underlying()) {
            (_, Some(before)) if *before != Verdict::Fine => Self::of(before),
            (Verdict::Asleep { .. }, _) => Self::Asleep,
            (Verdict::CannotTell { silence, .. }, None) if is_never_offered(silence) => {
                Self::NotOffered
            }
            (other, _) => Self::CannotJudge {
                reason: other.to_string(),
            },
        }
    }
}

/// Whether nobody can expect an answer, ever.
fn is_never_offered(silence: &Silence) -> bool {
    matches!(
        silence,
        Silence::NotInstalled | Silence::NoHealth | Silence::Blank
    )
}

/// The disks of a volume's members that are there.
#[must_use]
pub fn disk_facts(status: &VolumeStatus) -> Vec<DiskFacts> {
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
            used_by: slot.map(|slot| (status.uuid.clone(), slot)),
            health: health.map_or(DiskHealthFact::NotOffered, |health| {
                DiskHealthFact::of(&health.verdict)
            }),
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
        let fact = DiskHealthFact::of;
        assert_eq!(fact(&asleep(before(&hot))), fact(&hot));
        assert_eq!(
            fact(&asleep(before(&Verdict::Fine))),
            DiskHealthFact::Asleep
        );
        let silent = |silence, known| Verdict::CannotTell { silence, known };
        let never = silent(Silence::NoHealth, None);
        assert_eq!(fact(&never), DiskHealthFact::NotOffered);
        let late = silent(Silence::TimedOut { after_ms: 1 }, before(&Verdict::Fine));
        assert!(matches!(fact(&late), DiskHealthFact::CannotJudge { .. }));
    }
}
