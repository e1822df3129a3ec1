//! Volumes side by side: some of the disks each, with some of the workload's jobs each. Pure.
//!
//! Invariants:
//! - no disk is in two volumes, and no job runs on two;
//! - what a volume does not say is as the arrangement says it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

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

/// Whether volumes over some of so many disks fit beside each other.
///
/// # Errors
/// `Usage` with the volume, the disk or the job that is wrong.
pub fn check(volumes: &[VolumeBeside], disk_count: usize) -> Result<(), LabError> {
    if volumes.len() > VOLUMES_MAX {
        return Err(refused(format!("at most {VOLUMES_MAX} side by side")));
    }
    let (mut names, mut disks, mut jobs) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for volume in volumes {
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
            if *disk >= disk_count {
                return Err(refused(format!(
                    "{name} has disk {disk}; there are {disk_count}, counted from 0"
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
pub fn check_jobs(volumes: &[VolumeBeside], jobs: &[String]) -> Result<(), LabError> {
    let carried: Vec<&String> = volumes.iter().flat_map(|one| &one.jobs).collect();
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
