//! Volumes side by side: some of the disks each, with some of the workload's jobs each.
//!
//! Invariants:
//! - no disk is in two volumes, and no job runs on two;
//! - what a volume does not say is as the arrangement says it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Setup, level_word};
use crate::error::LabError;

/// Most volumes beside each other: as many as there may be disks.
const VOLUMES_MAX: usize = 64;

/// One of several volumes over the disks of an arrangement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeBeside {
    /// Its name, in tables.
    pub name: String,
    /// Its disks, counted from 0.
    pub disks: Vec<usize>,
    /// Jobs of the workload that it carries, by name.
    pub jobs: Vec<String>,
    /// Level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Layout in md's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// Strip size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strip_bytes: Option<u64>,
    /// Balance policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<String>,
    /// Whether there is a bitmap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_bitmap: Option<bool>,
    /// What closes the write hole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consistency: Option<String>,
    /// Bytes used of each member; 0 = all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_bytes: Option<u64>,
}

fn refused(text: String) -> LabError {
    LabError::Usage(format!("volumes: {text}"))
}

impl VolumeBeside {
    /// The volume as an arrangement of its own disks, as if there were no others.
    #[must_use]
    pub fn alone(&self, whole: &Setup) -> Setup {
        let disks = self.disks.iter().map(|disk| whole.disk_name(*disk));
        let slow = self.disks.iter().enumerate().filter_map(|(own, disk)| {
            let found = whole.slow.iter().find(|(slow, _)| slow == disk);
            found.map(|(_, factor)| (own, *factor))
        });
        let or =
            |own: &Option<String>, other: &str| own.clone().unwrap_or_else(|| other.to_owned());
        Setup {
            disks: disks.collect(),
            members: self.disks.len(),
            slow: slow.collect(),
            level: or(&self.level, &whole.level),
            layout: or(&self.layout, &whole.layout),
            balance: or(&self.balance, &whole.balance),
            consistency: or(&self.consistency, &whole.consistency),
            strip_bytes: self.strip_bytes.unwrap_or(whole.strip_bytes),
            has_bitmap: self.has_bitmap.unwrap_or(whole.has_bitmap),
            member_bytes: self.member_bytes.unwrap_or(whole.member_bytes),
            volumes: Vec::new(),
            buses: Vec::new(),
            bus_of: Vec::new(),
            ..whole.clone()
        }
    }

    /// In tables: name, what it is, its disks, and what it carries.
    fn label(&self, whole: &Setup) -> String {
        let alone = Setup {
            queue_depth: 0,
            change: String::new(),
            ..self.alone(whole)
        };
        let disks: Vec<String> = self.disks.iter().map(ToString::to_string).collect();
        format!(
            "{}: {} (disks {}; {})",
            self.name,
            alone.label(),
            disks.join(" "),
            self.jobs.join(", ")
        )
    }
}

impl Setup {
    /// What the disk with this number is.
    fn disk_name(&self, number: usize) -> String {
        let last = self.disks.len().saturating_sub(1);
        self.disks
            .get(number.min(last))
            .cloned()
            .unwrap_or_default()
    }

    /// All volumes in words; empty when there is one over all disks.
    pub(super) fn beside_label(&self) -> String {
        let each = self.volumes.iter().map(|volume| volume.label(self));
        each.collect::<Vec<_>>().join(" + ")
    }

    /// What the level is called in a table: of several volumes that of each.
    #[must_use]
    pub fn level_words(&self) -> String {
        if self.volumes.is_empty() {
            return self.level.clone();
        }
        let levels = self.volumes.iter().map(|volume| volume.alone(self).level);
        levels.collect::<Vec<_>>().join(" + ")
    }

    /// The disks that no volume has.
    pub(crate) fn free_disks(&self) -> impl Iterator<Item = usize> {
        let is_used = |disk: &usize| self.volumes.iter().any(|one| one.disks.contains(disk));
        (0..self.members).filter(move |disk| !self.volumes.is_empty() && !is_used(disk))
    }

    /// Whether volumes, disks and jobs fit together, as far as that can be said without the workload.
    pub(super) fn check_beside(&self) -> Result<(), LabError> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        if self.inner_volumes > 0 {
            return Err(refused(
                "volumes over volumes cannot be side by side as well".to_owned(),
            ));
        }
        if !self.is_simulated() {
            return Err(refused("they are for simulated disks".to_owned()));
        }
        if self.volumes.len() > VOLUMES_MAX {
            return Err(refused(format!("at most {VOLUMES_MAX} side by side")));
        }
        let (mut names, mut disks, mut jobs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for volume in &self.volumes {
            let name = &volume.name;
            if name.trim().is_empty() || !names.insert(name) {
                return Err(refused(format!(
                    "each has a name of its own, not \"{name}\""
                )));
            }
            if volume.disks.is_empty() {
                return Err(refused(format!("{name} has no disks: disks = [0, 1]")));
            }
            for disk in &volume.disks {
                if *disk >= self.members {
                    return Err(refused(format!(
                        "{name} has disk {disk}; there are {}, counted from 0",
                        self.members
                    )));
                }
                if !disks.insert(disk) {
                    return Err(refused(format!("disk {disk} is in two of them")));
                }
            }
            if volume.jobs.is_empty() {
                return Err(refused(format!(
                    "{name} carries no job of the workload: jobs = [\"name\"]"
                )));
            }
            if let Some(job) = volume.jobs.iter().find(|job| !jobs.insert(*job)) {
                return Err(refused(format!("job {job} is on two of them")));
            }
        }
        Ok(())
    }

    /// Whether the volumes carry exactly these jobs.
    ///
    /// # Errors
    /// `Usage` with the job that no volume carries, or that does not exist.
    pub fn check_jobs(&self, jobs: &[String]) -> Result<(), LabError> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let carried: Vec<&String> = self.volumes.iter().flat_map(|one| &one.jobs).collect();
        if let Some(job) = jobs.iter().find(|job| !carried.contains(job)) {
            return Err(refused(format!("none carries the job {job}")));
        }
        if let Some(job) = carried.iter().find(|job| !jobs.contains(job)) {
            return Err(refused(format!(
                "the workload has no job {job}; it has: {}",
                jobs.join(", ")
            )));
        }
        Ok(())
    }
}

/// A volume in few words: its level and its disks.
#[must_use]
pub fn short(alone: &Setup) -> String {
    match alone.level.as_str() {
        "single" => "single disk".to_owned(),
        level => format!("{} of {}", level_word(level), alone.members),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Mode;

    pub(crate) fn beside() -> Setup {
        let volume = |name: &str, disks: &[usize], job: &str| VolumeBeside {
            name: name.to_owned(),
            disks: disks.to_vec(),
            jobs: vec![job.to_owned()],
            level: Some("1".to_owned()),
            ..VolumeBeside::default()
        };
        Setup {
            disks: ["nas-12t", "nas-12t", "ssd-sata"]
                .map(str::to_owned)
                .to_vec(),
            volumes: vec![
                volume("hdd", &[0, 1], "archive"),
                volume("ssd", &[2, 3], "database"),
            ],
            slow: vec![(3, 2.0)],
            ..Setup::default()
        }
    }

    #[test]
    fn each_volume_is_an_arrangement_of_its_own_disks() {
        let setup = beside();
        let ssd = setup.volumes[1].alone(&setup);
        assert_eq!(ssd.disks, ["ssd-sata", "ssd-sata"]);
        assert_eq!((ssd.members, ssd.level.as_str()), (2, "1"));
        assert_eq!(ssd.slow, [(1, 2.0)]);
        assert_eq!(
            setup.label(),
            "hdd: RAID-1 of 2 load (disks 0 1; archive) + ssd: RAID-1 of 2 load (disks 2 3; database)"
        );
        assert_eq!(setup.level_words(), "1 + 1");
        let running = setup.start(1, 0, Mode::Timing).unwrap();
        assert_eq!(running.disks.len(), 4);
        let sizes: Vec<u64> = running
            .beside
            .iter()
            .map(|one| one.target.size_bytes() >> 30)
            .collect();
        assert!(sizes[0] > 20 * sizes[1], "{sizes:?}");
        let members = running.beside[1].volume.as_ref().unwrap().status().members;
        let names: Vec<_> = members.into_iter().filter_map(|one| one.name).collect();
        assert_eq!(names, ["disk2", "disk3"]);
    }

    #[test]
    fn what_does_not_fit_together_is_refused_by_name() {
        let refused = |change: &dyn Fn(&mut Setup)| {
            let mut setup = beside();
            change(&mut setup);
            let error = setup.start(1, 0, Mode::Timing).err();
            error.expect("it is refused").to_string()
        };
        type Change = dyn Fn(&mut Setup);
        let cases: [(&Change, &str); 9] = [
            (&|one| one.volumes[1].disks = vec![1, 2], "disk 1 is in two"),
            (
                &|one| one.volumes[1].disks = vec![4],
                "has disk 4; there are 4",
            ),
            (&|one| one.volumes[1].disks.clear(), "ssd has no disks"),
            (&|one| one.volumes[1].name = "hdd".to_owned(), "not \"hdd\""),
            (&|one| one.volumes[1].name.clear(), "not \"\""),
            (&|one| one.volumes[1].jobs.clear(), "ssd carries no job"),
            (
                &|one| one.volumes[1].jobs = vec!["archive".to_owned()],
                "job archive is on two",
            ),
            (&|one| one.inner_volumes = 2, "volumes over volumes"),
            (&|one| one.volumes[1].level = Some("6".to_owned()), "ssd: "),
        ];
        for (change, told) in cases {
            let error = refused(change);
            assert!(error.contains(told), "{told}: {error}");
        }
        let jobs = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            beside().check_jobs(&names)
        };
        assert!(jobs(&["database", "archive"]).is_ok());
        let error = jobs(&["archive", "database", "mail"])
            .unwrap_err()
            .to_string();
        assert!(error.contains("none carries the job mail"), "{error}");
        let error = jobs(&["archive"]).unwrap_err().to_string();
        assert!(
            error.contains("no job database; it has: archive"),
            "{error}"
        );
    }
}
